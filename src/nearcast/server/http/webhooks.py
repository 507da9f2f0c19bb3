"""Routes of webhook sinks: how far they are, what was tried, and what to do about it.

A sink is an address of a subscriber; the subscriptions that name it share it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from nearcast.errors import InvalidInput
from nearcast.server.delivery.rendering import event_id
from nearcast.server.http.answers import json_answer
from nearcast.server.http.auth import Principal
from nearcast.server.http.context import Context, context_of, may
from nearcast.server.http.models import timestamp_text
from nearcast.server.http.problems import Problem
from nearcast.server.http.settings_models import (
    DeadEvents,
    ReplayRequest,
    Sink,
    SinkAttempt,
    SinkAttempts,
    SinkList,
)
from nearcast.server.http.subscriptions import problem_of_outcome
from nearcast.server.matching.postings import Position
from nearcast.server.service import parse_event_id

if TYPE_CHECKING:
    from nearcast.server.delivery.sinks import Attempt
    from nearcast.server.state import Attempt as AttemptRow
    from nearcast.server.state import Sink as Row

__all__ = ["router"]

router = APIRouter(tags=["webhooks"])
Reader = Annotated[Principal, Depends(may("subscribe"))]


@router.get("/sinks", response_model=SinkList)
async def list_sinks(
    request: Request,
    principal: Reader,
    unused: Annotated[
        bool,
        Query(description="Also those that no subscription has and that got all their events."),
    ] = False,
) -> Response:
    """Return the sinks of the tenant; those of its subscriber for a key that has one."""
    context = context_of(request)
    rows = await asyncio.to_thread(context.service.state.sinks, principal.tenant)
    used = await asyncio.to_thread(context.service.registry.used_sinks)
    found = []
    for row in rows:
        if principal.subscriber in (None, row.subscriber):
            sink = await _shown(context, row)
            if unused or row.channel in used or sink["pending"]:
                found.append(sink)
    return json_answer({"sinks": found})


@router.get("/sinks/{id}", response_model=Sink)
async def read_sink(id: str, request: Request, principal: Reader) -> Response:
    """Return a sink: where its cursor is, and whether attempts fail."""
    context = context_of(request)
    return json_answer(await _shown(context, await _row(context, principal, id)))


@router.delete("/sinks/{id}", status_code=204)
async def remove_sink(id: str, request: Request, principal: Reader) -> Response:
    """Remove a sink that no subscription has, with the events that it did not get.

    A subscription that names its address later gets another sink, with another secret.
    """
    context = context_of(request)
    row = await _row(context, principal, id)
    async with context.webhooks.paused(row.id):
        await context.sinks.flush()
        outcome = await context.service.administer({"op": "remove-sink", "id": row.id})
        if outcome.code:
            raise problem_of_outcome(outcome)
        context.sinks.forget(row.id)
    return Response(status_code=204)


@router.get("/sinks/{id}/attempts", response_model=SinkAttempts)
async def list_attempts(id: str, request: Request, principal: Reader) -> Response:
    """Return the last 100 attempts of a sink, the newest first."""
    context = context_of(request)
    row = await _row(context, principal, id)
    await context.sinks.flush()
    found = await asyncio.to_thread(context.service.state.attempts, principal.tenant, row.id)
    return json_answer({"attempts": [_attempt(one) for one in found]})


@router.get("/sinks/{id}/dead", response_model=DeadEvents)
async def list_dead(
    id: str,
    request: Request,
    principal: Reader,
    after: Annotated[str | None, Query(max_length=64, description="`next` of a page.")] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> Response:
    """Return events that were given up, in their order; `replay` sends them again."""
    context = context_of(request)
    row = await _row(context, principal, id)
    position = (-1, -1) if after is None else tuple(_event_position(after))
    rows = await asyncio.to_thread(
        lambda: context.service.state.dead(
            principal.tenant, row.id, after=(position[0], position[1]), limit=limit
        )
    )
    dead = [
        {"eventId": one.event_id, "at": timestamp_text(one.time_us), "reason": one.reason}
        for one in rows
    ]
    page: dict[str, Any] = {"dead": dead}
    if len(rows) == limit:
        page["next"] = rows[-1].event_id
    return json_answer(page)


@router.post("/sinks/{id}/test", response_model=SinkAttempt)
async def test_sink(id: str, request: Request, principal: Reader) -> Response:
    """Send a test event to a sink, once, and return what became of it."""
    context = context_of(request)
    row = await _row(context, principal, id)
    sink = await context.sinks.sink(row.id)
    if sink is None:
        raise _no_sink()
    return json_answer(_attempt(await context.webhooks.test(sink)))


@router.post("/sinks/{id}/replay", response_model=Sink)
async def replay(id: str, given: ReplayRequest, request: Request, principal: Reader) -> Response:
    """Send everything after a cursor once more; ids stay the same. This enables the sink too."""
    context = context_of(request)
    row = await _row(context, principal, id)
    position, _ = context.service.position(given.cursor)
    await context.webhooks.replay(row.id, position)
    return json_answer(await _shown(context, row))


@router.post("/sinks/{id}/enable", response_model=Sink)
async def enable(id: str, request: Request, principal: Reader) -> Response:
    """Go on with a sink that was disabled or waits for another attempt, now."""
    context = context_of(request)
    row = await _row(context, principal, id)
    await context.webhooks.enable(row.id)
    return json_answer(await _shown(context, row))


async def _row(context: Context, principal: Principal, id: str) -> Row:
    row = await asyncio.to_thread(context.service.state.sink, principal.tenant, id)
    if row is None or principal.subscriber not in (None, row.subscriber):
        raise _no_sink()
    return row


def _no_sink() -> Problem:
    return Problem(404, "NOT_FOUND", "there is no such sink")


def _event_position(text: str) -> Position:
    parsed = parse_event_id(text)
    if parsed is None:
        raise InvalidInput("after", text, "must be `next` of a page")
    return parsed[1]


async def _shown(context: Context, row: Row) -> dict[str, Any]:
    """Return a sink as clients read it: without secrets and headers."""
    progress = await asyncio.to_thread(context.service.state.progress, row)
    position = Position(progress.seq, progress.k)
    enabled = progress.status == "ENABLED"
    shown: dict[str, Any] = {
        "id": row.id,
        "url": row.url,
        "subscriber": row.subscriber,
        "status": "ACTIVE" if enabled else "DISABLED",
        "cursor": event_id(context.service.epoch_at(position), position),
        "failures": progress.attempts,
        "pending": await asyncio.to_thread(context.service.events.count, row.channel, position),
    }
    if progress.reason is not None:
        shown["reason"] = progress.reason
    if enabled and progress.attempts:
        shown["nextAttemptAt"] = timestamp_text(progress.next_try_us)
    return shown


def _attempt(attempt: Attempt | AttemptRow) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "eventId": attempt.event_id,
        "at": timestamp_text(attempt.time_us),
        "durationMs": attempt.duration_us / 1000,
    }
    if attempt.status is not None:
        shown["status"] = attempt.status
    if attempt.error is not None:
        shown["error"] = attempt.error
    return shown
