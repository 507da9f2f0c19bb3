"""Routes of subscribers: when they want events, and cursors that the server keeps for them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from nearcast.errors import InvalidInput
from nearcast.server.delivery.pacing import PacingSettings
from nearcast.server.delivery.rendering import event_id
from nearcast.server.http.answers import json_answer
from nearcast.server.http.auth import Principal
from nearcast.server.http.context import Context, context_of, may, named_subscriber
from nearcast.server.http.models import timestamp_text
from nearcast.server.http.problems import Problem
from nearcast.server.http.settings_models import (
    Cursor,
    CursorRequest,
    DeliverySettings,
    Subscriber,
)
from nearcast.server.matching.registry import Channel
from nearcast.server.service import parse_event_id

if TYPE_CHECKING:
    from nearcast.server.service import Gap
    from nearcast.server.state import Subscriber as Row

__all__ = ["resolved_position", "router"]

router = APIRouter(tags=["events"])
Reader = Annotated[Principal, Depends(may("subscribe"))]
CursorName = Annotated[str, Path(min_length=1, max_length=256)]
Whose = Annotated[
    str | None,
    Query(min_length=1, max_length=256, description="Whose cursor; that of the key's own."),
]


@router.get("/subscribers/{name}", response_model=Subscriber)
async def read_subscriber(
    name: str,
    request: Request,
    principal: Reader,
    cursor: Annotated[
        str,
        Query(max_length=260, description="Count events after it: an id, `@name`, `earliest`..."),
    ] = "earliest",
) -> Response:
    """Return the delivery settings of a subscriber, and how many events it has.

    `recorded` counts the events that are kept, `pending` those after the cursor. `lost` counts the
    events after the cursor that are no longer kept; null if nobody knows.
    """
    context = context_of(request)
    principal.require_subscriber(name)
    row = await _subscriber(context, principal, name)
    position, gap = await resolved_position(context, principal, name, cursor)
    events, channel = context.service.events, row.channel
    start, _ = context.service.position("earliest")
    recorded = await asyncio.to_thread(events.count, channel, start)
    pending = await asyncio.to_thread(events.count, channel, position)
    counts = {"recorded": recorded, "pending": pending, "lost": 0 if gap is None else gap.lost}
    return json_answer({"name": name, "delivery": row.settings, **counts})


@router.put("/subscribers/{name}", response_model=Subscriber)
async def replace_settings(
    name: str, given: DeliverySettings, request: Request, principal: Reader
) -> Response:
    """Set when a subscriber wants events: a cap, a digest, quiet hours.

    They hold for streams, polling and webhooks, from now on. Events that may not be sent yet wait;
    none is dropped.
    """
    context = context_of(request)
    name = named_subscriber(principal, name)
    settings = given.model_dump(exclude_none=True, by_alias=True)
    pacing = PacingSettings.of(settings)
    await context.make_subscriber(principal.tenant, name)
    change = {"op": "subscriber", "tenant": principal.tenant, "name": name, "settings": settings}
    outcome = await context.service.administer(change)
    await context.change_pace(principal.tenant, name, outcome.handle, pacing)
    return await read_subscriber(name, request, principal)


@router.put("/cursors/{name}", response_model=Cursor)
async def save_cursor(
    name: CursorName,
    given: CursorRequest,
    request: Request,
    principal: Reader,
    subscriber: Whose = None,
) -> Response:
    """Keep a cursor under a name: `GET /v1/events?cursor=@name` goes on after it."""
    context = context_of(request)
    whose = named_subscriber(principal, subscriber)
    value = given.cursor
    if parse_event_id(value) is None:
        position, _ = context.service.position(value)
        value = event_id(context.service.epoch_at(position), position)
    now_us = time.time_ns() // 1000
    await context.save_cursor(principal.tenant, whose, name, value, now_us)
    return json_answer(_shown(name, value, now_us))


@router.get("/cursors/{name}", response_model=Cursor)
async def read_cursor(
    name: CursorName, request: Request, principal: Reader, subscriber: Whose = None
) -> Response:
    """Return a cursor that the server keeps."""
    context = context_of(request)
    whose = named_subscriber(principal, subscriber)
    row = await asyncio.to_thread(context.service.state.cursor, principal.tenant, whose, name)
    if row is None:
        raise _no_cursor()
    return json_answer(_shown(name, row.value, row.updated_us))


async def resolved_position(
    context: Context, principal: Principal, subscriber: str | None, cursor: str
) -> tuple[Any, Gap | None]:
    """Return the position of a cursor, and what is missing after it; ``@name`` is a kept one."""
    if subscriber is None:
        if cursor.startswith("@"):
            problem = "is kept for one subscriber; give an id, now, earliest or a time with all=1"
            raise InvalidInput("cursor", cursor, problem)
        return context.service.position(cursor)
    if cursor.startswith("@"):
        state = context.service.state
        row = await asyncio.to_thread(state.cursor, principal.tenant, subscriber, cursor[1:])
        if row is None:
            raise _no_cursor()
        cursor = row.value
    channel = context.service.registry.channel_of(Channel(principal.tenant, subscriber))
    return context.service.position(cursor, channel or None)


async def _subscriber(context: Context, principal: Principal, name: str) -> Row:
    service = context.service
    known = service.registry.channel_of(Channel(principal.tenant, name))
    row = await asyncio.to_thread(service.state.subscriber, principal.tenant, name)
    if not known or row is None:
        raise Problem(404, "NOT_FOUND", "there is no such subscriber")
    return row


def _no_cursor() -> Problem:
    return Problem(404, "NOT_FOUND", "there is no such cursor")


def _shown(name: str, value: str, updated_us: int) -> dict[str, str]:
    return {"name": name, "cursor": value, "updatedAt": timestamp_text(updated_us)}
