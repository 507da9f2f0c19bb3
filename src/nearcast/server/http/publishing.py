"""Routes of publishers: messages, what became of them, and whom they would reach."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from nearcast.errors import InvalidInput, StorageError
from nearcast.intake.json_records import column_type
from nearcast.server.delivery.rendering import event_id, rfc3339
from nearcast.server.http.auth import Principal
from nearcast.server.http.context import context_of, may
from nearcast.server.http.limits import read_body
from nearcast.server.http.messages import (
    ARROW,
    JSON,
    NDJSON,
    media_type,
    parse_at_once,
    parse_messages,
)
from nearcast.server.http.problems import FieldError, Problem
from nearcast.server.http.reach import reach_of
from nearcast.server.log.messages import columns_of
from nearcast.server.log.records import MESSAGES, message_at, read_messages_body, time_of
from nearcast.server.matching.postings import Position
from nearcast.server.matching.registry import ACTIVE
from nearcast.server.service import IdempotencyMismatch, digest_of, parse_event_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nearcast.server.log.messages import Rejected
    from nearcast.server.service import Service

__all__ = ["MESSAGE_SCHEMA", "FoundMessage", "find_message", "router"]

router = APIRouter(tags=["messages"])
Publisher = Annotated[Principal, Depends(may("publish"))]

_DIGESTED_HERE = 64 << 10
_MAX_KEY = 255
_MAX_DRY_RUN = 1_000
_MESSAGE = {
    "id": "m1",
    "text": "Half price on every iPad until six",
    "lon": 13.4,
    "lat": 52.52,
    "ttl_s": 3600,
}
MESSAGE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "Text (or tokens) at a point or a box.",
    "allOf": [
        {"oneOf": [{"required": ["text"]}, {"required": ["tokens"]}]},
        {
            "oneOf": [
                {"required": ["lon", "lat"]},
                {"required": ["west", "south", "east", "north"]},
                {"required": ["geometry"]},
            ]
        },
    ],
    "properties": {
        "id": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "text": {"type": "string"},
        "tokens": {"type": "array", "items": {"type": "string"}},
        "lon": {"type": "number", "minimum": -180, "maximum": 180},
        "lat": {"type": "number", "minimum": -90, "maximum": 90},
        "west": {"type": "number", "minimum": -180, "maximum": 180},
        "south": {"type": "number", "minimum": -90, "maximum": 90},
        "east": {"type": "number", "minimum": -180, "maximum": 180},
        "north": {"type": "number", "minimum": -90, "maximum": 90},
        "geometry": {"type": "object", "description": "A GeoJSON point."},
        "time": {"description": "RFC 3339, or seconds since 1970."},
        "ttl_s": {
            "type": "number",
            "minimum": 0,
            "description": "How long it lives, for subscriptions that move or come later.",
        },
        "properties": {"type": "object", "description": "Delivered as it is."},
    },
    "additionalProperties": False,
}
_LINES = (
    '{"text": "Fresh coffee", "lon": 13.4, "lat": 52.5}\n{"text": "Tea", "lon": 0, "lat": 51.5}\n'
)
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {"anyOf": [MESSAGE_SCHEMA, {"type": "array", "items": MESSAGE_SCHEMA}]},
                "example": _MESSAGE,
            },
            NDJSON: {"schema": {"type": "string"}, "example": _LINES},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
_ACCEPTED = {
    "accepted": 2,
    "firstSeq": 41,
    "lastSeq": 42,
    "firstId": "1795888800-41",
    "lastId": "1795888800-42",
    "rejected": [{"line": 3, "field": "lat", "reason": "must be from -90 to 90 (got 95)"}],
}


@router.post(
    "/messages",
    openapi_extra=_BODY,
    responses={
        200: {
            "description": "The accepted messages are on disk.",
            "content": {JSON: {"example": _ACCEPTED}},
        }
    },
    response_class=Response,
)
async def publish(
    request: Request,
    principal: Publisher,
    dry_run: Annotated[
        bool, Query(alias="dryRun", description="Only tell whom the messages would reach.")
    ] = False,
) -> Response:
    """Publish messages.

    The answer comes when they are on disk. Of several, invalid ones are rejected with the reason,
    and the others are published; with the header `Prefer: handling=strict` it is all or nothing.
    A request with an `Idempotency-Key` that was sent before gets the same answer again, and nothing
    is published twice.
    """
    context = context_of(request)
    limits = context.limits(principal.tenant).messages
    # Who has sent too much lately is told so before anything is read or parsed.
    context.limiter.check_messages(principal.tenant, 0)
    body = await read_body(request, limits.body_bytes)
    content_type = request.headers.get("content-type", JSON)
    read = parse_at_once(body, content_type, limits)
    if read is None:
        read = await context.parse(parse_messages, body, content_type, limits)
    context.limiter.check_messages(principal.tenant, len(read.blobs))
    if read.rejected:
        context.metrics.rejected.inc(len(read.rejected))
    if read.rejected and _is_strict(request):
        errors = [FieldError(f"line {r.line}: {r.field}", r.reason) for r in read.rejected]
        raise Problem(422, "INVALID_ARGUMENT", "nothing was published: see errors", errors[:100])
    if read.rejected and not read.blobs and body.lstrip()[:1] == b"{" and _is_json(content_type):
        raise Problem.of_fields([FieldError(*read.rejected[0][1:])])
    rejected = b"[]"
    if read.rejected:
        rejected = await context.parse(_rejected, read.rejected)
    if dry_run and context.service.remote:
        detail = "dryRun is not possible here: Spark matches the messages, not the server"
        raise Problem(400, "INVALID_ARGUMENT", detail)
    if dry_run:
        reach = await context.parse(
            _dry_run, context.service, principal.tenant, read.blobs[:_MAX_DRY_RUN]
        )
        shown = msgspec.Raw(rejected)
        return _json({"accepted": len(read.blobs), "reach": reach, "rejected": shown})
    key, digest = _idempotency_key(request), b""
    if key is not None and len(body) <= _DIGESTED_HERE:
        digest = digest_of(body)
    elif key is not None:
        digest = await context.parse(digest_of, body)
    try:
        answer = await context.service.publish(
            principal.tenant,
            read.blobs,
            rejected,
            key,
            digest,
        )
    except IdempotencyMismatch as error:
        raise Problem(422, "CONFLICT", str(error)) from None
    if answer.stretch is None:
        return _json({"accepted": 0, "rejected": msgspec.Raw(rejected)})
    first, last, first_id, last_id = answer.stretch
    return Response(
        b'{"accepted":%d,"firstSeq":%d,"lastSeq":%d,"firstId":"%s","lastId":"%s","rejected":%s}'
        % (last - first + 1, first, last, first_id.encode(), last_id.encode(), answer.note),
        media_type=JSON,
    )


@router.get("/messages/{id}", response_class=Response)
async def read_message(id: str, request: Request, principal: Publisher) -> Response:
    """Return a message of the tenant, by the id that publishing returned, with its reach."""
    service = context_of(request).service
    found = await asyncio.to_thread(_read, service, principal.tenant, id)
    if found is None:
        raise Problem(404, "NOT_FOUND", "there is no such message, or it is no longer kept")
    return Response(found, media_type=JSON)


@router.get("/messages", response_class=Response)
async def list_messages(
    request: Request,
    principal: Publisher,
    after: Annotated[
        str, Query(max_length=64, description="The id of a message, now, earliest or a time.")
    ] = "earliest",
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> Response:
    """Return messages of the tenant in their order, each with its reach."""
    service = context_of(request).service
    position, _ = service.position(after)
    found = await asyncio.to_thread(_list, service, principal.tenant, position.seq + 1, limit)
    return Response(b'{"messages":[%s]}' % b",".join(found), media_type=JSON)


def _rejected(rejected: list[Rejected]) -> bytes:
    """Return the rejected messages as clients read them."""
    return msgspec.json.encode([one._asdict() for one in rejected])


def _is_json(content_type: str) -> bool:
    return media_type(content_type) == JSON


def _is_strict(request: Request) -> bool:
    preferences = ",".join(request.headers.getlist("prefer")).lower().replace(" ", "")
    return "handling=strict" in preferences.split(",")


def _idempotency_key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and (not key or len(key) > _MAX_KEY or not key.isprintable()):
        raise InvalidInput("Idempotency-Key", key, f"must have 1 to {_MAX_KEY} characters")
    return key


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type=JSON)


def _dry_run(service: Service, tenant: int, blobs: list[bytes]) -> list[dict[str, int]]:
    """Return how many subscriptions and subscribers each message would reach now."""
    if not blobs:
        return []
    columns = {name: pa.array(v, column_type(name)) for name, v in columns_of(blobs).items()}
    columns.pop("ttl_s", None)  # nothing is kept
    columns["id"] = pa.array(np.arange(len(blobs)), pa.int64())
    columns["scope"] = pa.array([str(tenant)] * len(blobs), pa.string())
    matches = service.engine.publish_table(pa.table(columns)).matches
    message = matches["message_id"].to_numpy()
    rows = service.registry.rows[matches["subscription_id"].to_numpy().astype(np.int64)]
    active = rows["status"] == ACTIVE
    found = []
    for number in range(len(blobs)):
        mine = rows[active & (message == number)]
        found.append({"subscriptions": len(mine), "subscribers": len(np.unique(mine["channel"]))})
    return found


class FoundMessage(NamedTuple):
    """A message of the log."""

    epoch: int
    seq: int
    time_us: int
    blob: bytes


def _shown(service: Service, messages: list[FoundMessage]) -> list[bytes]:
    """Return messages as clients read them, each with its reach."""
    reached = reach_of(service, [message.seq for message in messages])
    shown = []
    for epoch, seq, time_us, blob in messages:
        reach = reached.get(seq)  # None: it is not matched yet, or nobody can say when it is
        shown.append(
            b'{"id":"%s","publishedAt":"%s","message":%s,"reach":%s}'
            % (
                event_id(epoch, Position(seq, 0)).encode(),
                rfc3339(time_us).encode(),
                blob,
                msgspec.json.encode(None if reach is None else reach._asdict()),
            )
        )
    return shown


def find_message(service: Service, tenant: int, id: str) -> FoundMessage | None:
    """Return a message of a tenant by its id; None if there is none, or it is no longer kept."""
    parsed = parse_event_id(id)
    if parsed is None or parsed[1].k:
        return None
    epoch, (seq, _) = parsed
    if not service.log.first_seq <= seq <= service.log.last_seq:
        return None
    try:
        record = service.log.find(seq)
    except StorageError:
        return None
    if record.kind != MESSAGES or record.epoch != epoch:
        return None
    owner, blob = message_at(record, seq)
    return FoundMessage(epoch, seq, time_of(record), blob) if owner == tenant else None


def _read(service: Service, tenant: int, id: str) -> bytes | None:
    found = find_message(service, tenant, id)
    return None if found is None else _shown(service, [found])[0]


def _list(service: Service, tenant: int, first: int, limit: int) -> list[bytes]:
    return _shown(service, list(islice(_messages(service, tenant, first), limit)))


def _messages(service: Service, tenant: int, first: int) -> Iterator[FoundMessage]:
    """Yield the messages of a tenant from a number on, as far as there are some now."""
    last = service.log.last_seq
    for record in service.log.read(max(first, service.log.first_seq)):
        if record.seq > last:
            break
        if record.kind != MESSAGES:
            continue
        body = read_messages_body(record)
        if body.tenant != tenant:
            continue
        for seq, blob in enumerate(body.messages, record.seq):
            if first <= seq <= last:
                yield FoundMessage(record.epoch, seq, body.time_us, blob)
