"""Signing in with a browser: a one-time link, or, in the demo, nothing; and who one is."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import time
from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from nearcast.server.http.answers import json_answer
from nearcast.server.http.auth import Principal, unauthenticated
from nearcast.server.http.context import Context, context_of, may
from nearcast.server.http.models import Resource, Timestamp, timestamp_text
from nearcast.server.http.parameters import check_parameters
from nearcast.server.http.problems import Problem
from nearcast.server.state.keys import ROLES, TokenClaims, make_token

__all__ = ["is_loopback", "router"]

router = APIRouter(tags=["signing in"])

_TENANT = 0
_TOKEN_S = 12 * 3600
"""A working day: a token cannot be revoked."""

_WRONG = "the code is wrong, or was used, or is older than 15 minutes; use a key, or a new link"


class SignInRequest(Resource):
    """The code of the one-time link that `nearcast serve` prints; none in the demo."""

    code: str | None = Field(
        default=None, min_length=1, max_length=256, examples=["kq0RkB2nq1vG7m0x3o9wTq5dYb1hJ4aZ"]
    )


class Me(Resource):
    """Who a key or a token belongs to, and what it may do."""

    tenant: str
    roles: list[str] = Field(examples=[["publish", "subscribe", "admin"]])
    subscriber: str | None = Field(description="The only subscriber that it is for, if any.")
    expiresAt: Timestamp | None = Field(description="When it ends; null for a key.")


class SignedIn(Me):
    """A token for the browser, and what it may do."""

    token: str = Field(examples=["nct_..."])


@router.post("/sign-in", response_model=SignedIn)
async def sign_in(given: SignInRequest, request: Request) -> Response:
    """Return a token for the browser that opens the one-time link which `nearcast serve` prints.

    The link ends with `#code=...`; the code is valid once, for 15 minutes. In the demo, browsers on
    the same machine need no code. The token is valid for 12 hours. Needs no key.
    """
    check_parameters(request)
    context = context_of(request)
    address = "" if request.client is None else request.client.host
    wait_s = context.one_time_code.wait_s(address, given.code)
    if wait_s > 0:
        seconds = str(math.ceil(wait_s))
        detail = f"too many attempts to sign in; try again in {seconds} s"
        raise Problem(429, "TOO_MANY_REQUESTS", detail, headers={"Retry-After": seconds})
    if given.code is None:
        allowed = context.settings.demo and _is_local(request)
    else:
        allowed = context.one_time_code.take(given.code)
    if not allowed:
        raise unauthenticated(_WRONG)
    expires_s = int(time.time()) + _TOKEN_S
    token = make_token(TokenClaims(_TENANT, None, ROLES, expires_s), context.token_secret)
    principal = Principal(_TENANT, "", frozenset(ROLES), None, expires_s)
    return json_answer({"token": token, **await _shown(context, principal)})


@router.get("/me", response_model=Me)
async def me(request: Request, principal: Annotated[Principal, Depends(may(*ROLES))]) -> Response:
    """Tell who the key or token of the request belongs to."""
    return json_answer(await _shown(context_of(request), principal))


async def _shown(context: Context, principal: Principal) -> dict[str, object]:
    tenants = await asyncio.to_thread(context.service.state.tenants)
    expires_s = principal.expires_s
    return {
        "tenant": next(row.name for row in tenants if row.number == principal.tenant),
        "roles": [role for role in ROLES if role in principal.roles],
        "subscriber": principal.subscriber,
        "expiresAt": None if expires_s is None else timestamp_text(expires_s * 1_000_000),
    }


def _is_local(request: Request) -> bool:
    """Whether a request comes from this machine, to a name of it.

    The name matters too: a page of elsewhere can let its own name lead to this machine.
    """
    client = request.client
    return client is not None and is_loopback(client.host) and is_loopback(request.url.hostname)


def is_loopback(host: str | None) -> bool:
    """Whether a host, by name or number, is this machine and cannot be reached from another.

    Examples
    --------
    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.com")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
