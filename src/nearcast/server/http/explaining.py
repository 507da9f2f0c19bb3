"""Routes that say why: a preview of a subscription, and explanations of events and messages."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from fastapi import APIRouter, Depends, Query
from pydantic import ConfigDict, Field, JsonValue, field_validator, model_validator
from starlette.requests import Request
from starlette.responses import Response

from nearcast.errors import StorageError
from nearcast.model import Message, Subscription, expression_hints
from nearcast.model.checks import stored_before
from nearcast.server.delivery.rendering import event_id
from nearcast.server.http.answers import json_answer
from nearcast.server.http.auth import Principal
from nearcast.server.http.context import context_of, may, named_reader
from nearcast.server.http.definitions import definition_of
from nearcast.server.http.messages import JSON, parse_messages
from nearcast.server.http.models import (
    Resource,
    SubscriptionRequest,
    given_types,
    in_first,
    whole_number,
)
from nearcast.server.http.problems import FieldError, Problem
from nearcast.server.http.publishing import MESSAGE_SCHEMA
from nearcast.server.log.records import (
    MESSAGES,
    Definition,
    message_at,
    read_messages_body,
)
from nearcast.server.matching.postings import MATCH, Position
from nearcast.server.matching.registry import Channel
from nearcast.server.service import parse_event_id

if TYPE_CHECKING:
    from nearcast.engine import Engine
    from nearcast.model import Explanation
    from nearcast.server.http.definitions import DefinitionLimits
    from nearcast.server.matching.postings import EventRef, JoinedEvent
    from nearcast.server.service import Service

__all__ = ["router"]

router = APIRouter(tags=["explanations"])
Reader = Annotated[Principal, Depends(may("subscribe"))]

_MAX_RECORDS = 50_000
_MAX_EXPLAINED = 100
"""How many subscriptions of an event of all subscribers are explained."""

_PLACE = frozenset({"lon", "lat", "radius_m", "west", "south", "east", "north", "geometry"})
_decode = msgspec.msgpack.Decoder(Definition).decode
_decode_place = msgspec.msgpack.Decoder(dict[str, Any]).decode
_EXPLANATION = {
    "subscriptionId": "s1",
    "sign": 1,
    "kind": "proximity",
    "matches": True,
    "reasons": ["The message has tea (100%).", "The score 0.9000 reaches 0.6000 (0.3000 above)."],
    "shared": [{"word": "tea", "weight": 0.69, "share": 1.0}],
    "missing": [],
    "forbidden": [],
    "distanceM": 200.0,
    "score": 0.9,
    "scoreThen": 0.9,
    "parts": {"words": 0.5, "place": 0.4},
    "threshold": 0.6,
    "margin": 0.3,
}
_MESSAGE = {"text": "Hot tea", "lon": 13.4, "lat": 52.5}


class PreviewRequest(Resource):
    """A subscription that may be made, and the messages that it is compared with."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [given_types(message="null"), given_types(messages="null")]}
    )
    subscription: SubscriptionRequest
    messages: int | None = Field(
        default=None, ge=1, le=1_000, description="The last n messages of the tenant; 100."
    )
    message: dict[str, JsonValue] | None = Field(
        default=None,
        description="A message as `POST /v1/messages` takes it, instead.",
        json_schema_extra=in_first(**MESSAGE_SCHEMA),
    )

    _whole = field_validator("messages", mode="before")(whole_number)

    @model_validator(mode="after")
    def _only_one(self) -> PreviewRequest:
        if self.messages is not None and self.message is not None:
            raise ValueError("messages and message cannot be given both")
        return self


class _Numbered(NamedTuple):
    """A message and its id; the id of one that is not published is None."""

    id: str | None
    blob: bytes


def _example(example: dict[str, Any], about: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"description": about, "content": {JSON: {"example": example}}}}


@router.post(
    "/preview",
    responses=_example(
        {
            "weightsVersion": 3,
            "warnings": [],
            "matched": 1,
            "messages": [{"id": "1795888800-42", "message": _MESSAGE, **_EXPLANATION}],
        },
        "Each message, whether it matches, and why or why not.",
    ),
)
async def preview(given: PreviewRequest, request: Request, principal: Reader) -> Response:
    """Tell which messages a subscription would have matched, before it is made.

    Scores are split into words and place. `warnings` says what in the expression is valid and
    probably not meant. Nothing is stored.
    """
    context = context_of(request)
    limits = context.limits(principal.tenant)
    subscription = await context.parse(_asked_for, given.subscription, limits.definitions)
    if given.message is None:
        last = given.messages or 100
        messages = await asyncio.to_thread(_last, context.service, principal.tenant, last)
    else:
        body = _encoded(given.message)
        read = await context.parse(parse_messages, body, JSON, limits.messages)
        if read.rejected:
            first = read.rejected[0]
            raise Problem.of_fields([FieldError(f"message.{first.field}", first.reason)])
        messages = [_Numbered(None, read.blobs[0])]
    engine = context.service.engine
    shown = await context.parse(_compare, engine, subscription, messages)
    warnings = await context.parse(expression_hints, subscription.expression or "")
    return json_answer(
        {
            "weightsVersion": engine.stats().weights_version,
            "warnings": warnings,
            "matched": sum(one["matches"] for one in shown),
            "messages": shown,
        }
    )


@router.get(
    "/events/{id}/explain",
    responses=_example(
        {
            "id": "1795888800-42",
            "weightsVersion": 3,
            "message": _MESSAGE,
            "explanations": [_EXPLANATION],
        },
        "Why the subscriptions matched, or why one did not.",
    ),
)
async def explain(
    id: str,
    request: Request,
    principal: Reader,
    subscriber: Annotated[
        str | None,
        Query(min_length=1, max_length=256, description="Whose event; that of the key's own."),
    ] = None,
    everyone: Annotated[
        bool,
        Query(
            alias="all",
            description="The id is that of an event of all subscribers.",
        ),
    ] = False,
    subscription_id: Annotated[
        str | None,
        Query(
            alias="subscriptionId",
            max_length=256,
            description="Explain the message with this id and this subscription instead.",
        ),
    ] = None,
) -> Response:
    """Tell why an event came, or why a message did not match a subscription.

    The subscription is taken as it was then. Weights of words are those of now: `scoreThen` is the
    score that the event had, and differs if they have changed. A key or token of one subscriber
    finds only messages that this subscriber was sent, or that its subscription matched.
    """
    context = context_of(request)
    name = named_reader(principal, subscriber, everyone)
    found = await asyncio.to_thread(
        _explained, context.service, principal, name, id, subscription_id
    )
    if found is None:
        raise Problem(404, "NOT_FOUND", "there is no such event, or it is no longer kept")
    return json_answer({"id": id, **found})


# --- previews --------------------------------------------------------------------------------


def _asked_for(given: SubscriptionRequest, limits: DefinitionLimits) -> Subscription:
    """Return the subscription of a preview."""
    return Subscription.from_dict({"id": "new", **definition_of(given, limits)["row"]})


def _encoded(message: dict[str, Any]) -> bytes:
    """Return a message as JSON, as `POST /v1/messages` would get it."""
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:
        reason = "has half of a surrogate pair, which is no character; send whole characters"
        raise Problem.of_fields([FieldError("message", reason)]) from None


def _last(service: Service, tenant: int, limit: int) -> list[_Numbered]:
    """Return the last messages of a tenant, in their order."""
    found: list[_Numbered] = []
    seq = service.log.last_seq
    for _ in range(_MAX_RECORDS):
        if seq < service.log.first_seq or len(found) >= limit:
            break
        try:
            record = service.log.find(seq)
        except StorageError:  # trimmed meanwhile
            break
        if record.kind == MESSAGES:
            body = read_messages_body(record)
            if body.tenant == tenant:
                numbered = [
                    _Numbered(event_id(record.epoch, Position(record.seq + at, 0)), blob)
                    for at, blob in enumerate(body.messages)
                ]
                found += reversed(numbered)
        seq = record.seq - 1
    return found[:limit][::-1]


def _compare(
    engine: Engine, subscription: Subscription, messages: list[_Numbered]
) -> list[dict[str, Any]]:
    shown = []
    for id, blob in messages:
        numbered = {} if id is None else {"id": id}
        why = _shown(engine.explain(_message(blob), subscription))
        shown.append({**numbered, "message": msgspec.Raw(blob), **why})
    return shown


def _message(blob: bytes) -> Message:
    fields = {k: v for k, v in msgspec.json.decode(blob).items() if k != "properties"}
    return Message.from_dict({**fields, "id": 0})


def _shown(why: Explanation) -> dict[str, Any]:
    """Return an explanation as clients read it; what does not apply is left out."""
    shown: dict[str, Any] = {
        "kind": why.kind,
        "matches": why.matches,
        "reasons": list(why.reasons),
        "shared": [word._asdict() for word in why.shared],
        "missing": [word._asdict() for word in why.missing],
        "forbidden": list(why.forbidden),
        "inside": why.inside,
        "condition": why.condition,
        "distanceM": why.distance_m,
        "score": why.score,
        "threshold": why.threshold,
        "margin": why.margin,
    }
    if why.score is not None:
        shown["parts"] = {"words": why.text_part, "place": why.space_part}
    return {name: value for name, value in shown.items() if value is not None}


# --- events ----------------------------------------------------------------------------------


class _Pair(NamedTuple):
    """A subscription to be explained, and what its event said."""

    handle: int
    sign: int | None
    score: float


def _explained(
    service: Service,
    principal: Principal,
    subscriber: str | None,
    id: str,
    subscription_id: str | None,
) -> dict[str, Any] | None:
    parsed = parse_event_id(id)
    if parsed is None or not service.log.first_seq <= parsed[1].seq <= service.events.last_seq:
        return None
    epoch, position = parsed
    if service.log.epoch_of(position.seq) != epoch:
        return None
    if subscription_id is None:
        message, pairs = _event(service, principal.tenant, subscriber, position)
    else:
        message = position.seq
        pairs = _asked(service, principal, subscription_id)
    blob = None if message is None else _blob(service, principal.tenant, message)
    if blob is None or not pairs:
        return None
    explanations = [_explain_pair(service, position.seq, blob, pair) for pair in pairs]
    if subscription_id is not None and principal.subscriber is not None:
        matched = any(one.get("matches") for one in explanations)
        if not (matched or _was_sent(service, principal, position.seq)):
            return None  # as if there were no such message: numbers are easy to guess
    return {
        "weightsVersion": service.engine.stats().weights_version,
        "message": msgspec.Raw(blob),
        "explanations": explanations,
    }


def _was_sent(service: Service, principal: Principal, message: int) -> bool:
    """Return whether there is an event of the principal's subscriber about a message."""
    channel = service.registry.channel_of(Channel(principal.tenant, str(principal.subscriber)))
    if not channel:
        return False
    found = service.events.read(channel, Position(message - 1), 1, message)
    return any(event.message == message for event in found)


def _event(
    service: Service, tenant: int, subscriber: str | None, position: Position
) -> tuple[int | None, list[_Pair]]:
    """Return the message of an event, and its subscriptions."""
    seq, k = position
    before = Position(seq, k - 1) if k else Position(seq - 1)
    found: list[EventRef] | list[JoinedEvent]
    if subscriber is None:
        found = service.events.read_joined(service.subscribers_of(tenant), before, 1, seq)
    else:
        channel = service.registry.channel_of(Channel(tenant, subscriber))
        found = service.events.read(channel, before, 1, seq) if channel else []
    if not found or found[0].position != position or not found[0].message:
        return None, []
    matches = found[0].matches if subscriber else found[0].matches[:_MAX_EXPLAINED]
    pairs = [_Pair(handle, 1 if kind == MATCH else -1, score) for handle, kind, score in matches]
    return found[0].message, pairs


def _asked(service: Service, principal: Principal, subscription_id: str) -> list[_Pair]:
    row = service.state.definition(principal.tenant, subscription_id)
    if row is None or principal.subscriber not in (None, row.subscriber):
        return []
    return [_Pair(row.handle, None, math.nan)]


def _blob(service: Service, tenant: int, seq: int) -> bytes | None:
    """Return the JSON of a message of a tenant; None if there is none."""
    if seq < service.log.first_seq:
        return None
    try:
        record = service.log.find(seq)
    except StorageError:
        return None
    if record.kind != MESSAGES:
        return None
    owner, blob = message_at(record, seq)
    return blob if owner == tenant else None


def _explain_pair(service: Service, seq: int, blob: bytes, pair: _Pair) -> dict[str, Any]:
    shown: dict[str, Any] = {"subscriptionId": service.registry.id_of(pair.handle)}
    if pair.sign is not None:
        shown["sign"] = pair.sign
    stored = service.state.definition_at(pair.handle, seq)
    if stored is None:
        return {**shown, "reasons": ["The subscription as it was then is no longer kept."]}
    definition, place = stored
    row = _decode(definition).row
    if place is not None:
        row = {name: value for name, value in row.items() if name not in _PLACE}
        row |= _decode_place(place)
    with stored_before():
        subscription = Subscription.from_dict({"id": pair.handle, **row})
        shown |= _shown(service.engine.explain(_message(blob), subscription))
    if not math.isnan(pair.score):
        shown["scoreThen"] = pair.score
    return shown
