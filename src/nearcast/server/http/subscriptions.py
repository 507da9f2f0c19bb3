"""Routes of subscriptions: create, read, list, change, pause and delete them."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Response
from starlette.requests import Request

from nearcast.errors import InvalidInput
from nearcast.model import expression_hints
from nearcast.server.delivery.signing import new_secret
from nearcast.server.http.answers import json_answer
from nearcast.server.http.auth import Principal
from nearcast.server.http.boxes import parse_bbox
from nearcast.server.http.context import Context, context_of, may, named_subscriber
from nearcast.server.http.definitions import (
    check_marks,
    definition_of,
    patched,
    request_of,
    without_read_only,
)
from nearcast.server.http.limits import read_body
from nearcast.server.http.messages import JSON
from nearcast.server.http.models import (
    Subscription,
    SubscriptionPage,
    SubscriptionRequest,
    WebhookSecret,
)
from nearcast.server.http.problems import CODES, Problem
from nearcast.server.http.stored import (
    as_given,
    definition_in,
    given_now,
    resource_of,
    stored_definition,
)
from nearcast.server.log.records import Change
from nearcast.server.matching.changes import sink_id
from nearcast.server.matching.registry import Channel
from nearcast.server.state import EXPIRED, STATUSES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from nearcast.server.matching.changes import Outcome
    from nearcast.server.service import Service
    from nearcast.server.state import Definition as Row
    from nearcast.server.state import State

__all__ = ["known_secret", "problem_of_outcome", "router"]

router = APIRouter(tags=["subscriptions"])
Subscriber = Annotated[Principal, Depends(may("subscribe"))]

_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {JSON: {"schema": {"$ref": "#/components/schemas/SubscriptionRequest"}}},
    }
}
_PATCH: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/merge-patch+json": {
                "schema": {"type": "object"},
                "example": {"status": "INACTIVE"},
            }
        },
    }
}
_ATTEMPTS = 5
_NO_SUCH = "there is no such subscription"


@router.post("/subscriptions", status_code=201, response_model=Subscription, openapi_extra=_BODY)
async def create(request: Request, principal: Subscriber) -> Response:
    """Create a subscription; it counts from the answer on."""
    context = context_of(request)
    body = await _body_of(request, context, principal)
    resource, given = await context.parse(_created, context, principal, body)
    made = await _complete_sink(context, principal, resource, given)
    change = Change(given["id"], stored_definition(given), expected=0)
    async with _reserved(context, principal.tenant, given, new=True):
        [outcome] = await context.service.change(principal.tenant, [change])
    return await _answer(context, principal, outcome, 201, made)


@router.get("/subscriptions", response_model=SubscriptionPage)
async def list_subscriptions(
    request: Request,
    principal: Subscriber,
    subscriber: Annotated[str | None, Query(min_length=1, max_length=256)] = None,
    after: Annotated[str | None, Query(max_length=64, description="`next` of a page.")] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    bbox: Annotated[
        str | None,
        Query(max_length=200, description="west,south,east,north; west > east across 180."),
    ] = None,
    status: Annotated[str | None, Query(description="Only those with this status.")] = None,
) -> Response:
    """Return subscriptions in the order of their creation, page by page."""
    context = context_of(request)
    if subscriber is not None:
        principal.require_subscriber(subscriber)
    if status is not None and status not in STATUSES:
        raise InvalidInput("status", status, f"must be one of {', '.join(STATUSES)}")
    read = partial(
        context.service.state.definitions,
        principal.tenant,
        subscriber=subscriber or principal.subscriber,
        after=_after(after),
        limit=limit,
        bbox=None if bbox is None else parse_bbox(bbox),
        status=status,
    )
    return await asyncio.to_thread(_page, read, limit)


@router.get("/subscriptions/{id}", response_model=Subscription)
async def read(id: str, request: Request, principal: Subscriber) -> Response:
    """Return a subscription."""
    row = await _row(context_of(request), principal, id)
    return await asyncio.to_thread(_shown, row, 200)


@router.put(
    "/subscriptions/{id}",
    response_model=Subscription,
    openapi_extra=_BODY,
    responses={201: {"model": Subscription, "description": "It is new."}},
)
async def replace(id: str, request: Request, principal: Subscriber) -> Response:
    """Replace a subscription, or create it under an id of your own.

    With `If-Match`, only if it has that version; with `If-None-Match: *`, only if it is new. A
    resource that was read can be sent back: what the server sets is ignored.
    """
    context = context_of(request)
    body = await _body_of(request, context, principal)
    before = await _row_or_none(context, principal, id)
    # One that has ended begins again, and does not go on with the secret of its sink.
    ended = before is not None and before.status == EXPIRED
    previous = None if ended else before
    resource, given = await context.parse(_replaced, context, principal, body, id, previous)
    made = await _complete_sink(context, principal, resource, given)
    expected = 0 if request.headers.get("if-none-match") == "*" else _if_match(request)
    if before is None:
        # A key for one subscriber does not see the subscriptions of others, nor replaces them.
        if principal.subscriber is not None and expected is not None and expected > 0:
            raise Problem(412, "PRECONDITION_FAILED", _NO_SUCH)
        expected = 0 if principal.subscriber is not None else expected
    change = Change(id, stored_definition(given), expected)
    async with _reserved(context, principal.tenant, given, new=before is None or ended):
        [outcome] = await context.service.change(principal.tenant, [change])
    return await _answer(context, principal, outcome, 201 if before is None else 200, made)


@router.patch("/subscriptions/{id}", response_model=Subscription, openapi_extra=_PATCH)
async def change(id: str, request: Request, principal: Subscriber) -> Response:
    """Change parts of a subscription, by a merge patch (RFC 7396); `status` pauses it."""
    context = context_of(request)
    body = await _body_of(request, context, principal)
    expected = _if_match(request)
    for attempt in range(_ATTEMPTS):
        row = await _row(context, principal, id)
        if row.status == EXPIRED:
            raise Problem(409, "CONFLICT", "it has ended; create another one instead")
        if expected is not None and row.version != expected:
            raise Problem(412, "PRECONDITION_FAILED", "it was changed meanwhile; read it again")
        resource, given = await context.parse(_changed, context, principal, body, row)
        made = await _complete_sink(context, principal, resource, given)
        done = Change(id, stored_definition(given), row.version, must_exist=True)
        async with _reserved(context, principal.tenant, given, new=False):
            [outcome] = await context.service.change(principal.tenant, [done])
        lost = outcome.code == "PRECONDITION_FAILED" and expected is None
        if not lost or attempt == _ATTEMPTS - 1:
            break
    return await _answer(context, principal, outcome, 200, made)


@router.delete("/subscriptions/{id}", status_code=204)
async def delete(id: str, request: Request, principal: Subscriber) -> Response:
    """Delete a subscription."""
    context = context_of(request)
    await _row(context, principal, id)
    change = Change(id, None, _if_match(request), must_exist=True)
    [outcome] = await context.service.change(principal.tenant, [change])
    if outcome.code:
        raise problem_of_outcome(outcome)
    return Response(status_code=204)


@asynccontextmanager
async def _reserved(
    context: Context, tenant: int, given: dict[str, Any], *, new: bool
) -> AsyncIterator[None]:
    """Reserve what a definition adds to a tenant, or raise a problem if that would be too much."""
    async with AsyncExitStack() as reserved:
        if new:
            await reserved.enter_async_context(context.quotas.one_subscription(tenant))
        if not context.service.registry.channel_of(Channel(tenant, given["subscriber"])):
            await reserved.enter_async_context(context.quotas.one_subscriber(tenant))
        yield


def problem_of_outcome(outcome: Outcome) -> Problem:
    """Return the problem that the outcome of a change is for a client."""
    return Problem(CODES[outcome.code][0], outcome.code, outcome.reason)


def known_secret(service: Service, tenant: int, subscriber: str, url: str) -> str | None:
    """Return the secret of the sink of a subscriber with an address; None if there is none."""
    channel = service.registry.channel_of(Channel(tenant, subscriber, url))
    row = service.state.sink(tenant, sink_id(channel)) if channel else None
    return row.secrets[0] if row is not None and row.secrets else None


async def _body_of(request: Request, context: Context, principal: Principal) -> bytes:
    return await read_body(request, context.limits(principal.tenant).document_bytes)


def _document(context: Context, principal: Principal, body: bytes) -> Any:
    """Return the JSON of a body that is not too much for a subscription."""
    try:
        check_marks(body, context.limits(principal.tenant).definitions)
    except InvalidInput as error:
        raise Problem(413, "CONTENT_TOO_LARGE", f"the body {error.problem}") from None
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Problem(400, "INVALID_ARGUMENT", f"the body is not JSON: {error}") from None


# What parsing a body may take is not known before, so these run beside the event loop.


def _created(
    context: Context, principal: Principal, body: bytes
) -> tuple[SubscriptionRequest, dict[str, Any]]:
    """Return the resource of a body, and its definition."""
    resource = request_of(_document(context, principal, body))
    return resource, _defined(context, principal, resource)


def _replaced(
    context: Context, principal: Principal, body: bytes, id: str, before: Row | None
) -> tuple[SubscriptionRequest, dict[str, Any]]:
    """Return the resource of a body with an id, and the definition that replaces one or is new."""
    document = without_read_only(_document(context, principal, body))
    if isinstance(document, dict) and document.setdefault("id", id) != id:
        raise InvalidInput("id", document["id"], "must be the id in the path, or left out")
    resource = request_of(document)
    previous = None if before is None else as_given(definition_in(before))
    return resource, _defined(context, principal, resource, previous)


def _changed(
    context: Context, principal: Principal, body: bytes, row: Row
) -> tuple[SubscriptionRequest, dict[str, Any]]:
    """Return what a patch makes of a subscription, and its definition."""
    patch = _document(context, principal, body)
    resource = patched({**given_now(row), "status": row.status}, patch)
    return resource, _defined(context, principal, resource, as_given(definition_in(row)))


def _defined(
    context: Context,
    principal: Principal,
    resource: SubscriptionRequest,
    previous: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the definition of a resource; a key for one subscriber can only make its own."""
    limits = context.limits(principal.tenant).definitions
    given = definition_of(resource, limits, previous=previous)
    named = "subscriber" in resource.config.subscriptionDetail.model_fields_set
    given["subscriber"] = named_subscriber(principal, given["subscriber"] if named else None)
    return given


async def _complete_sink(
    context: Context, principal: Principal, resource: SubscriptionRequest, given: dict[str, Any]
) -> str | None:
    """Check where a sink leads, and give it its secret; return the secret if it is new.

    The answer shows it only then. The subscriptions of a subscriber with one address share one
    sink. A resource without a secret does not change that of the sink.
    """
    sink = given["sink"]
    if sink is None:
        return None
    await context.check_sink(sink["url"])
    if isinstance(resource.sinkCredential, WebhookSecret):
        return None
    known = await asyncio.to_thread(
        known_secret, context.service, principal.tenant, given["subscriber"], sink["url"]
    )
    sink["secret"] = known or sink["secret"] or new_secret()
    return None if known else str(sink["secret"])


def _if_match(request: Request) -> int | None:
    given = request.headers.get("if-match")
    if given is None or given == "*":
        return None
    digits = given.removeprefix("W/").strip('"')
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise Problem(412, "PRECONDITION_FAILED", "If-Match must be the ETag of the subscription")
    return int(digits)


async def _row_or_none(context: Context, principal: Principal, id: str) -> Row | None:
    row = await asyncio.to_thread(context.service.state.definition, principal.tenant, id)
    hidden = row is not None and principal.subscriber not in (None, row.subscriber)
    return None if hidden else row


async def _row(context: Context, principal: Principal, id: str) -> Row:
    row = await _row_or_none(context, principal, id)
    if row is None:
        raise Problem(404, "NOT_FOUND", _NO_SUCH)
    return row


async def _answer(
    context: Context, principal: Principal, outcome: Outcome, status: int, secret: str | None
) -> Response:
    if outcome.code:
        raise problem_of_outcome(outcome)
    state = context.service.state
    return await asyncio.to_thread(_shown_now, state, outcome.handle, status, secret)


def _shown_now(state: State, handle: int, status: int, secret: str | None) -> Response:
    row = state.definition_of(handle)
    if row is None:
        raise Problem(404, "NOT_FOUND", _NO_SUCH)
    return _shown(row, status, secret, warn=True)


def _page(read: Callable[[], list[Row]], limit: int) -> Response:
    """Return a page of subscriptions; for other threads, as each may have a large region."""
    rows = read()
    page: dict[str, Any] = {"subscriptions": [resource_of(row) for row in rows]}
    if len(rows) == limit:
        page["next"] = str(rows[-1].handle)
    return json_answer(page)


def _shown(row: Row, status: int, secret: str | None = None, *, warn: bool = False) -> Response:
    resource = resource_of(row)
    hints = expression_hints(definition_in(row).row.get("expression") or "") if warn else []
    if hints:
        resource["warnings"] = hints
    if secret is not None:
        resource["sinkCredential"] = {"credentialType": "WEBHOOKSECRET", "secret": secret}
    headers = {"ETag": f'"{row.version}"'}
    if status == 201:
        headers["Location"] = f"/v1/subscriptions/{quote(row.external_id, safe='')}"
    return json_answer(resource, status, headers)


def _after(text: str | None) -> int:
    if text is None:
        return -1
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidInput("after", text, "must be `next` of a page")
    return int(text)
