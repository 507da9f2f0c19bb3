"""Routes for many subscriptions at once: imports and moves. Each line stands for itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from nearcast.server.http.answers import json_answer
from nearcast.server.http.auth import Principal
from nearcast.server.http.context import DEFAULT_SUBSCRIBER, Context, context_of, may
from nearcast.server.http.imports import GEOJSON, read_import, read_moves
from nearcast.server.http.limits import read_body
from nearcast.server.http.messages import JSON, NDJSON
from nearcast.server.http.problems import Problem
from nearcast.server.http.stored import stored_definition
from nearcast.server.http.subscriptions import known_secret
from nearcast.server.log.messages import Rejected
from nearcast.server.log.records import Change
from nearcast.server.matching.recovery import no_collections
from nearcast.server.matching.registry import Channel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nearcast.server.http.definitions import Definition

__all__ = ["router"]

T = TypeVar("T")

router = APIRouter(tags=["subscriptions"])
Subscriber = Annotated[Principal, Depends(may("subscribe"))]

MAX_IMPORT_BYTES = 256 << 20
MAX_COLLECTION_BYTES = 64 << 20
"""A FeatureCollection has to be read as a whole."""

MAX_SHOWN = 1_000
"""How many rejected lines an answer names."""

_PIECE_BYTES = 4 << 20
_MAX_LINE_BYTES = 16 << 20
_MAX_RECORD = 10_000
_LINES = {NDJSON, "application/ndjson", "application/jsonl"}

_RECORD = '{"id": "s1", "keywords": ["tea"], "lon": 13.4, "lat": 52.5, "radius_m": 500}\n'
_FEATURES: dict[str, Any] = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "id": "s1",
            "properties": {"keywords": ["tea"], "radius_m": 500},
            "geometry": {"type": "Point", "coordinates": [13.4, 52.5]},
        }
    ],
}
_MOVE = '{"subscriptionId": "s1", "lon": 13.41, "lat": 52.51}\n'
_REJECTED = [{"line": 3, "field": "lat", "reason": "is missing"}]


def _body(**examples: Any) -> dict[str, Any]:
    content = {name: {"schema": {}, "example": example} for name, example in examples.items()}
    return {"requestBody": {"required": True, "content": content}}


def _answers(example: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    description = "What can be stored is on disk and counts; the other lines are named."
    return {200: {"description": description, "content": {JSON: {"example": example}}}}


class _Rejections:
    """The lines that were refused: the first ones, and how many there are."""

    def __init__(self) -> None:
        self.first: list[dict[str, Any]] = []
        self.count = 0

    def add(self, rejected: Rejected) -> None:
        self.count += 1
        if len(self.first) < MAX_SHOWN:
            self.first.append(rejected._asdict())


class _Piece(NamedTuple):
    """A part of a body that can be read by itself, and the number of lines before it."""

    lines_before: int
    body: bytes


class _Chosen(NamedTuple):
    """What will be changed, by line; and what will not."""

    lines: list[int]
    changes: list[Change]
    rejected: list[Rejected]


@router.post(
    "/subscriptions/import",
    openapi_extra=_body(**{NDJSON: _RECORD, GEOJSON: _FEATURES}),
    responses=_answers({"accepted": 2, "rejectedCount": 1, "rejected": _REJECTED}),
)
async def import_subscriptions(
    request: Request,
    principal: Subscriber,
    upsert: Annotated[
        bool, Query(description="Replace subscriptions whose id exists; otherwise reject them.")
    ] = False,
) -> Response:
    """Import subscriptions: lines of JSON (up to 256 MiB), or a FeatureCollection (up to 64 MiB).

    A line is a subscription as `POST /v1/subscriptions` takes it, or a record of Nearcast's files.
    Invalid lines are rejected with the reason; `rejected` names the first 1,000 of them.
    """
    context = context_of(request)
    accepted, rejections = 0, _Rejections()
    async for piece in _pieces(request):
        chosen = await asyncio.to_thread(_choose, context, principal, piece, upsert)
        for rejected in chosen.rejected:
            rejections.add(rejected)
        parts = _parts([*zip(chosen.lines, chosen.changes, strict=True)])
        given = [[one for _, one in part] for part in parts]
        # All at once: they are written, matched and stored together.
        changing = [context.service.change(principal.tenant, changes) for changes in given]
        for part, outcomes in zip(parts, await asyncio.gather(*changing), strict=True):
            for (line, _), outcome in zip(part, outcomes, strict=True):
                if outcome.code:
                    rejections.add(Rejected(line, "id", outcome.reason))
                else:
                    accepted += 1
    return json_answer(
        {"accepted": accepted, "rejectedCount": rejections.count, "rejected": rejections.first}
    )


@router.post(
    "/moves",
    openapi_extra=_body(**{NDJSON: _MOVE}),
    responses=_answers({"moved": 2, "rejectedCount": 1, "rejected": _REJECTED}),
)
async def move(request: Request, principal: Subscriber) -> Response:
    """Move subscriptions: lines of JSON, each with the id of a subscription and its new place.

    Of several moves of one subscription the last one counts; with `time`, the latest one.
    """
    context = context_of(request)
    limits = context.limits(principal.tenant)
    body = await read_body(request, limits.messages.body_bytes)
    found = await asyncio.to_thread(read_moves, body, limits.definitions)
    rejections = _Rejections()
    for rejected in found.rejected:
        rejections.add(rejected)
    ordered = sorted(
        zip(found.lines, found.moves, strict=True), key=lambda pair: pair[1].time_us or 0
    )
    own = []
    for line, one in ordered:
        if _is_hidden(context, principal, one.subscription_id):
            rejections.add(Rejected(line, "subscriptionId", "there is no such subscription"))
        else:
            own.append((line, one))
    moved = 0
    for part in _parts(own):
        moves = [(one.subscription_id, one.row) for _, one in part]
        outcomes = await context.service.move(principal.tenant, moves)
        for (line, _), outcome in zip(part, outcomes, strict=True):
            if outcome.code:
                field = "subscriptionId" if outcome.code == "NOT_FOUND" else ""
                rejections.add(Rejected(line, field, outcome.reason))
            else:
                moved += 1
    shown = sorted(rejections.first, key=lambda one: int(one["line"]))
    return json_answer({"moved": moved, "rejectedCount": rejections.count, "rejected": shown})


def _parts(values: list[T]) -> list[list[T]]:
    """Return values in parts that fit into records of the log."""
    return [values[at : at + _MAX_RECORD] for at in range(0, len(values), _MAX_RECORD)]


async def _pieces(request: Request) -> AsyncIterator[_Piece]:
    """Yield a body in pieces of whole lines; one that is no lines as a whole."""
    if request.headers.get("content-type", NDJSON).split(";")[0].strip().lower() not in _LINES:
        yield _Piece(0, await read_body(request, MAX_COLLECTION_BYTES))
        return
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > MAX_IMPORT_BYTES):
        raise _too_large("the body", MAX_IMPORT_BYTES)
    waiting, size, lines = bytearray(), 0, 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_IMPORT_BYTES:
            raise _too_large("the body", MAX_IMPORT_BYTES)
        end = chunk.rfind(b"\n") + 1
        end += len(waiting) if end else 0
        waiting += chunk
        if end and len(waiting) >= _PIECE_BYTES:
            body = bytes(waiting[:end])
            del waiting[:end]
            yield _Piece(lines, body)
            lines += body.count(b"\n")
        if len(waiting) > _MAX_LINE_BYTES:
            raise _too_large(f"line {lines + 1}", _MAX_LINE_BYTES)
    if waiting:
        yield _Piece(lines, bytes(waiting))


def _too_large(what: str, limit_bytes: int) -> Problem:
    detail = f"{what} is larger than {limit_bytes:,} bytes; lines before that may be stored"
    return Problem(413, "CONTENT_TOO_LARGE", detail)


def _choose(context: Context, principal: Principal, piece: _Piece, upsert: bool) -> _Chosen:
    """Return the changes that a piece asks for and that are allowed."""
    limits = context.limits(principal.tenant)
    with no_collections():
        found = read_import(piece.body, limits.definitions)
    before = piece.lines_before
    rejected = [one._replace(line=one.line + before) for one in found.rejected]
    chosen = _Chosen([], [], rejected)
    left = limits.subscriptions - context.service.registry.per_tenant.get(principal.tenant, 0)
    for line, given in zip(found.lines, found.definitions, strict=True):
        refusal = _refusal(context, principal, given)
        version = -1 if given["id"] is None else _version(context, principal, given["id"])
        if refusal is None and version < 0 and left <= 0:
            reason = f"the tenant may have {limits.subscriptions:,} subscriptions"
            refusal = Rejected(0, "", reason)
        if refusal is not None:
            chosen.rejected.append(refusal._replace(line=line + before))
            continue
        left -= version < 0
        expected: int | None = 0
        if upsert:
            expected = None if principal.subscriber is None else max(version, 0)
        chosen.lines.append(line + before)
        chosen.changes.append(Change(given["id"], stored_definition(given), expected))
    return chosen


def _refusal(context: Context, principal: Principal, given: Definition) -> Rejected | None:
    """Complete a definition, or return why it cannot be stored."""
    named = given["given"]["config"]["subscriptionDetail"].get("subscriber")
    own = principal.subscriber
    if own is not None and named not in (None, own):
        return Rejected(0, "subscriber", f"must be {own!r}: the key is only for that subscriber")
    given["subscriber"] = named or own or DEFAULT_SUBSCRIBER
    if given["id"] is not None and _is_hidden(context, principal, given["id"]):
        return Rejected(0, "id", "a subscription with this id exists already")
    sink = given["sink"]
    if sink is not None and sink["secret"] is None:
        sink["secret"] = known_secret(
            context.service, principal.tenant, given["subscriber"], sink["url"]
        )
        if sink["secret"] is None:
            return Rejected(0, "sinkCredential", "must have a secret, since the sink is new")
    return None


def _version(context: Context, principal: Principal, id: str) -> int:
    """Return the version of a subscription; -1 if there is none."""
    registry = context.service.registry
    handle = registry.find(principal.tenant, id)
    return int(registry.rows["version"][handle]) if handle >= 0 else -1


def _is_hidden(context: Context, principal: Principal, id: str) -> bool:
    """Whether a subscription is of another subscriber than the key is for."""
    if principal.subscriber is None:
        return False
    registry = context.service.registry
    handle = registry.find(principal.tenant, id)
    own = registry.channel_of(Channel(principal.tenant, principal.subscriber))
    return handle >= 0 and int(registry.rows["channel"][handle]) != own
