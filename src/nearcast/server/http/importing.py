"""Routes for many subscriptions at once: imports and moves. Each line stands for itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import numpy as np
from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from nearcast.server.http.answers import json_answer
from nearcast.server.http.auth import Principal
from nearcast.server.http.context import DEFAULT_SUBSCRIBER, Context, context_of, may
from nearcast.server.http.imports import GEOJSON, MAX_REJECTED, read_import, read_moves
from nearcast.server.http.limits import read_body
from nearcast.server.http.messages import JSON, NDJSON
from nearcast.server.http.problems import FieldError, Problem
from nearcast.server.http.stored import stored_definition
from nearcast.server.http.subscriptions import known_secret
from nearcast.server.log.messages import Rejected
from nearcast.server.log.records import Change, moves_body
from nearcast.server.matching.recovery import no_collections
from nearcast.server.matching.registry import Channel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nearcast.server.http.definitions import Definition
    from nearcast.storage.log import Entry

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
_MIN_RECORD_BYTES = 32
_NEWLINE = ord("\n")
_MAX_ERRORS = 20
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

    def check(self, done: int) -> None:
        """Raise a problem if there are many more than ``done``, the number of valid lines."""
        if self.count > MAX_REJECTED + done:
            more = f"{done:,} valid lines were stored, and reading stopped at {self.count:,} others"
            detail = f"more than {MAX_REJECTED:,} lines are invalid: {more}"
            errors = [
                FieldError(f"line {one['line']}: {one['field']}", one["reason"])
                for one in self.first[:_MAX_ERRORS]
            ]
            raise Problem(400, "INVALID_ARGUMENT", detail, errors)


class _Piece(NamedTuple):
    """A part of a body that can be read by itself, and the number of lines before it."""

    lines_before: int
    body: bytes


class _Part(NamedTuple):
    """What fits into a record of the log, and the lines that it was."""

    lines: list[int]
    entry: Entry


class _Chosen(NamedTuple):
    """What will be changed or moved, and the lines that were refused."""

    parts: list[_Part]
    rejected: list[Rejected]


class _Left(NamedTuple):
    """How many subscriptions and subscribers there may be more."""

    subscriptions: int
    subscribers: int


@router.post(
    "/subscriptions/import",
    openapi_extra=_body(**dict.fromkeys(sorted(_LINES), _RECORD), **{GEOJSON: _FEATURES}),
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
    Invalid lines are rejected with the reason; `rejected` names the first 1,000 of them. If 10,000
    lines more are invalid than valid, it ends with an error; what came before is stored.
    """
    context, tenant = context_of(request), principal.tenant
    accepted, rejections = 0, _Rejections()
    async for piece in _pieces(request):
        most = len(piece.body) // _MIN_RECORD_BYTES + 1
        async with (
            context.quotas.new_subscriptions(tenant, most) as subscriptions,
            context.quotas.new_subscribers(tenant, most) as subscribers,
        ):
            left = _Left(subscriptions, subscribers)
            may_fail = MAX_REJECTED + accepted - rejections.count
            chosen = await context.parse(_choose, context, principal, piece, upsert, left, may_fail)
            # All at once: they are written, matched and stored together.
            writing = [context.service.write(part.entry) for part in chosen.parts]
            outcomes = await asyncio.gather(*writing)
        for rejected in chosen.rejected:
            rejections.add(rejected)
        for part, some in zip(chosen.parts, outcomes, strict=True):
            for line, outcome in zip(part.lines, some, strict=True):
                if outcome.code:
                    rejections.add(Rejected(line, "id", outcome.reason))
                else:
                    accepted += 1
            await asyncio.sleep(0)  # others get their turn
        rejections.check(accepted)
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
    chosen = await context.parse(_choose_moves, context, principal, body)
    rejections = _Rejections()
    for rejected in chosen.rejected:
        rejections.add(rejected)
    moved = 0
    for part in chosen.parts:
        outcomes = await context.service.write(part.entry)
        for line, outcome in zip(part.lines, outcomes, strict=True):
            if outcome.code:
                field = "subscriptionId" if outcome.code == "NOT_FOUND" else ""
                rejections.add(Rejected(line, field, outcome.reason))
            else:
                moved += 1
    rejections.check(moved)
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
            lines += _count_lines(body)
        if len(waiting) > _MAX_LINE_BYTES:
            raise _too_large(f"line {lines + 1}", _MAX_LINE_BYTES)
    if waiting:
        yield _Piece(lines, bytes(waiting))


def _count_lines(body: bytes) -> int:
    """Return how many lines end in a body; `bytes.count` takes long if there are many."""
    return int(np.count_nonzero(np.frombuffer(body, np.uint8) == _NEWLINE))


def _too_large(what: str, limit_bytes: int) -> Problem:
    detail = f"{what} is larger than {limit_bytes:,} bytes; lines before that may be stored"
    return Problem(413, "CONTENT_TOO_LARGE", detail)


def _choose(
    context: Context,
    principal: Principal,
    piece: _Piece,
    upsert: bool,
    may_make: _Left,
    max_rejected: int,
) -> _Chosen:
    """Return the changes that a piece asks for and that are allowed, as entries of the log."""
    limits = context.limits(principal.tenant)
    with no_collections():
        found = read_import(piece.body, limits.definitions, max_rejected=max_rejected)
    before = piece.lines_before
    rejected = [one._replace(line=one.line + before) for one in found.rejected]
    chosen: list[tuple[int, Change]] = []
    left = may_make.subscriptions
    is_known: dict[str, bool] = {}
    names_left = may_make.subscribers
    for line, given in zip(found.lines, found.definitions, strict=True):
        refusal = _refusal(context, principal, given)
        version = -1 if given["id"] is None else _version(context, principal, given["id"])
        if refusal is None and version < 0 and left <= 0:
            reason = f"the tenant may have {limits.subscriptions:,} subscriptions"
            refusal = Rejected(0, "", reason)
        subscriber = given["subscriber"]
        if refusal is None and not _is_known(context, principal.tenant, subscriber, is_known):
            if names_left <= 0:
                reason = context.quotas.too_many_subscribers(principal.tenant)
                refusal = Rejected(0, "subscriber", reason)
            else:
                names_left -= 1
                is_known[subscriber] = True
        if refusal is not None:
            rejected.append(refusal._replace(line=line + before))
            if len(rejected) > max_rejected + len(chosen):
                break
            continue
        left -= version < 0
        expected: int | None = 0
        if upsert:
            expected = None if principal.subscriber is None else max(version, 0)
        change = Change(given["id"], stored_definition(given), expected)
        chosen.append((line + before, change))
    entry_of = context.service.entry_of
    parts = [
        _Part([line for line, _ in part], entry_of(principal.tenant, [c for _, c in part]))
        for part in _parts(chosen)
    ]
    return _Chosen(parts, rejected)


def _is_known(context: Context, tenant: int, subscriber: str, known: dict[str, bool]) -> bool:
    """Return whether there is a subscriber, and remember that."""
    if subscriber not in known:
        channel = context.service.registry.channel_of(Channel(tenant, subscriber))
        known[subscriber] = channel > 0
    return known[subscriber]


def _choose_moves(context: Context, principal: Principal, body: bytes) -> _Chosen:
    """Return the moves of a body that are allowed, in the order of their times."""
    found = read_moves(body, context.limits(principal.tenant).definitions)
    rejected = [*found.rejected]
    ordered = sorted(
        zip(found.lines, found.moves, strict=True), key=lambda pair: pair[1].time_us or 0
    )
    own = []
    for line, one in ordered:
        if _is_hidden(context, principal, one.subscription_id):
            rejected.append(Rejected(line, "subscriptionId", "there is no such subscription"))
        else:
            own.append((line, (one.subscription_id, one.row)))
    parts = [
        _Part([line for line, _ in part], moves_body(principal.tenant, [m for _, m in part]))
        for part in _parts(own)
    ]
    return _Chosen(parts, rejected)


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
