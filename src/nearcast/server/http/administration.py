"""Routes of administrators: tenants, their limits, keys, and tokens for browsers and phones.

Admin keys of the first tenant, ``default``, manage all tenants. Those of another tenant manage
their own keys; for them there are no other tenants.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from nearcast.errors import InvalidInput
from nearcast.server.http.answers import json_answer
from nearcast.server.http.auth import Principal
from nearcast.server.http.context import Context, context_of, may
from nearcast.server.http.models import timestamp_text
from nearcast.server.http.problems import Problem
from nearcast.server.http.settings_models import (
    KeyList,
    KeyRequest,
    Limits,
    NewKey,
    Tenant,
    TenantList,
    TenantRequest,
    Token,
    TokenRequest,
)
from nearcast.server.opening import make_tenant_key
from nearcast.server.state.keys import TokenClaims, make_token, parse_key

if TYPE_CHECKING:
    from nearcast.server.state import Key as KeyRow
    from nearcast.server.state import Tenant as TenantRow

__all__ = ["router"]

router = APIRouter(tags=["administration"])
Admin = Annotated[Principal, Depends(may("admin"))]
_NO_TENANT = "there is no such tenant"


@router.post("/tokens", status_code=201, response_model=Token)
async def create_token(given: TokenRequest, request: Request, principal: Admin) -> Response:
    """Make a token that expires by itself, for one subscriber of the key's tenant."""
    principal.require_subscriber(given.subscriber)
    context = context_of(request)
    expires_s = int(time.time()) + given.expiresInS
    roles = tuple(sorted(set(given.roles)))
    claims = TokenClaims(principal.tenant, given.subscriber, roles, expires_s)
    token = make_token(claims, context.token_secret)
    return json_answer({"token": token, "expiresAt": timestamp_text(expires_s * 1_000_000)}, 201)


@router.post("/tenants", status_code=201, response_model=Tenant)
async def create_tenant(given: TenantRequest, request: Request, principal: Admin) -> Response:
    """Make a tenant. Only keys of the tenant `default` can do this."""
    context = context_of(request)
    _require_first(principal)
    async with context.administering:
        if await _tenant(context, given.name) is not None:
            raise Problem(409, "CONFLICT", "a tenant with this name exists already")
        await _put_tenant(context, given.name, _limits(given.limits), None)
    made = await _tenant(context, given.name)
    assert made is not None
    return json_answer(_shown_tenant(made), 201)


@router.get("/tenants", response_model=TenantList)
async def list_tenants(request: Request, principal: Admin) -> Response:
    """Return all tenants; for keys of other tenants than `default`, only their own."""
    rows = await asyncio.to_thread(context_of(request).service.state.tenants)
    seen = [row for row in rows if principal.tenant in (0, row.number)]
    return json_answer({"tenants": [_shown_tenant(row) for row in seen]})


@router.get("/tenants/{name}/limits", response_model=Limits)
async def read_limits(name: str, request: Request, principal: Admin) -> Response:
    """Return the limits that a tenant has of its own."""
    return json_answer((await _visible_tenant(context_of(request), principal, name)).limits)


@router.put("/tenants/{name}/limits", response_model=Limits)
async def replace_limits(name: str, given: Limits, request: Request, principal: Admin) -> Response:
    """Replace the limits of a tenant. Only keys of the tenant `default` can do this."""
    context = context_of(request)
    async with context.administering:
        row = await _visible_tenant(context, principal, name)
        _require_first(principal)
        limits = _limits(given)
        await _put_tenant(context, name, limits, row.created_us)
    return json_answer(limits)


@router.post("/keys", status_code=201, response_model=NewKey)
async def create_key(given: KeyRequest, request: Request, principal: Admin) -> Response:
    """Make a key. This answer is the only one that contains its secret."""
    context = context_of(request)
    if "admin" in given.roles and given.subscriber is not None:
        raise InvalidInput("subscriber", None, "must be left out: admin keys manage whole tenants")
    tenant = principal.tenant
    if given.tenant is not None:
        tenant = (await _visible_tenant(context, principal, given.tenant)).number
    text = await make_tenant_key(
        context.service, tenant, tuple(given.roles), given.name or "", given.subscriber
    )
    parts = parse_key(text)
    assert parts is not None
    row = await asyncio.to_thread(context.service.state.key, parts.id)
    assert row is not None
    names = await _names(context)
    return json_answer(_shown_key(row, names) | {"key": text}, 201)


@router.get("/keys", response_model=KeyList)
async def list_keys(request: Request, principal: Admin) -> Response:
    """Return the keys, without their secrets; revoked ones too."""
    context = context_of(request)
    whose = None if principal.tenant == 0 else principal.tenant
    rows = await asyncio.to_thread(context.service.state.keys, whose)
    names = await _names(context)
    return json_answer({"keys": [_shown_key(row, names) for row in rows]})


@router.delete("/keys/{id}", status_code=204)
async def revoke_key(id: str, request: Request, principal: Admin) -> Response:
    """Revoke a key: it is not valid any more."""
    context = context_of(request)
    row = await asyncio.to_thread(context.service.state.key, id)
    if row is None or principal.tenant not in (0, row.tenant) or row.revoked_us is not None:
        raise Problem(404, "NOT_FOUND", "there is no such key, or it was revoked")
    await context.service.administer({"op": "revoke", "id": id})
    context.forget()
    return Response(status_code=204)


def _require_first(principal: Principal) -> None:
    if principal.tenant != 0:
        detail = "only admin keys of the tenant default can do this"
        raise Problem(403, "PERMISSION_DENIED", detail)


async def _tenant(context: Context, name: str) -> TenantRow | None:
    rows = await asyncio.to_thread(context.service.state.tenants)
    return next((row for row in rows if row.name == name), None)


async def _visible_tenant(context: Context, principal: Principal, name: str) -> TenantRow:
    row = await _tenant(context, name)
    if row is None or principal.tenant not in (0, row.number):
        raise Problem(404, "NOT_FOUND", _NO_TENANT)
    return row


async def _put_tenant(
    context: Context, name: str, limits: dict[str, Any], created_us: int | None
) -> None:
    change = {"op": "tenant", "name": name, "limits": limits, "created_us": created_us}
    await context.service.administer(change)
    context.forget()


async def _names(context: Context) -> dict[int, str]:
    rows = await asyncio.to_thread(context.service.state.tenants)
    return {row.number: row.name for row in rows}


def _limits(given: Limits | None) -> dict[str, Any]:
    return {} if given is None else given.model_dump(exclude_none=True)


def _shown_tenant(row: TenantRow) -> dict[str, Any]:
    return {"name": row.name, "limits": row.limits, "createdAt": timestamp_text(row.created_us)}


def _shown_key(row: KeyRow, names: dict[int, str]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": row.id,
        "tenant": names[row.tenant],
        "roles": list(row.roles),
        "createdAt": timestamp_text(row.created_us),
    }
    if row.name:
        shown["name"] = row.name
    if row.subscriber is not None:
        shown["subscriber"] = row.subscriber
    if row.revoked_us is not None:
        shown["revokedAt"] = timestamp_text(row.revoked_us)
    return shown
