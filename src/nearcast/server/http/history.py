"""The route of the replay bar: how far back the log goes, and how busy it was when."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from nearcast.errors import StorageError
from nearcast.server.delivery.rendering import event_id, rfc3339
from nearcast.server.http.answers import json_answer
from nearcast.server.http.auth import Principal
from nearcast.server.http.context import context_of, may
from nearcast.server.http.models import Resource, Timestamp
from nearcast.server.http.problems import Problem
from nearcast.server.log.records import MESSAGES, read_messages_body, time_of
from nearcast.server.matching.postings import Position
from nearcast.server.matching.retention import seq_at

if TYPE_CHECKING:
    from nearcast.server.log import Log
    from nearcast.storage.log import Record

__all__ = ["BUCKETS", "EXACT", "History", "history_of", "router"]

router = APIRouter(tags=["messages"])

BUCKETS = 100
"""How many stretches of equal time there are, at most."""

EXACT = 10_000
"""A log with at most this many numbers is read as a whole; of a longer one, samples are."""

_SAMPLES = 16
"""How many records are read for each bucket of a long log."""

_ATTEMPTS = 3


class Bucket(Resource):
    """A stretch of time, up to the next one, and the messages of the tenant in it."""

    # `from` is a word of Python.
    from_: Timestamp = Field(alias="from")
    messages: int = Field(ge=0)


class HistoryAnswer(Resource):
    """How far back messages and events can be read, and how many messages there were when."""

    from_: Timestamp = Field(alias="from", description="The time of the first record kept.")
    to: Timestamp = Field(description="The time of the last one.")
    firstId: str = Field(description="A cursor before everything is `earliest`.")
    lastId: str
    approximate: bool = Field(description="Whether the numbers of messages are estimates.")
    buckets: list[Bucket] = Field(description="Of equal lengths, about 100.")


class History(NamedTuple):
    """What the log has: times in microseconds, numbers, and the messages of a tenant by bucket."""

    from_us: int
    to_us: int
    first_seq: int
    last_seq: int
    approximate: bool
    bucket_us: list[int]
    messages: list[int]


@router.get("/history", response_model=HistoryAnswer)
async def history(
    request: Request, principal: Annotated[Principal, Depends(may("publish", "subscribe"))]
) -> Response:
    """Tell how far back the log goes, and how many messages of the tenant there were when.

    Numbers are exact for short logs, and estimated from samples otherwise.
    """
    service = context_of(request).service
    found = await asyncio.to_thread(history_of, service.log, principal.tenant)
    if found is None:
        raise Problem(404, "NOT_FOUND", "nothing has happened yet")
    log = service.log
    answer: dict[str, Any] = {
        "from": rfc3339(found.from_us),
        "to": rfc3339(found.to_us),
        "firstId": event_id(log.epoch_of(found.first_seq), Position(found.first_seq, 0)),
        "lastId": event_id(log.epoch_of(found.last_seq), Position(found.last_seq, 0)),
        "approximate": found.approximate,
        "buckets": [
            {"from": rfc3339(from_us), "messages": messages}
            for from_us, messages in zip(found.bucket_us, found.messages, strict=True)
        ],
    }
    return json_answer(answer)


def history_of(log: Log, tenant: int) -> History | None:
    """Return the history of a tenant's messages; None if the log has no record."""
    for _ in range(_ATTEMPTS):  # the first records may be trimmed meanwhile
        first, last = log.first_seq, log.last_seq
        if first > last:
            return None
        oldest, newest = _find(log, first), _find(log, last)
        if oldest is not None and newest is not None:
            break
    else:
        return None
    to_us = time_of(newest)
    from_us = min(time_of(oldest), to_us)  # later, if the clock was repaired since
    buckets = min(BUCKETS, to_us - from_us + 1)
    bucket_us = [from_us + (to_us - from_us + 1) * at // buckets for at in range(buckets)]
    messages = None
    if last - first < EXACT:
        messages = _counted(log, tenant, bucket_us, first, last)
    if messages is not None:
        return History(from_us, to_us, first, last, False, bucket_us, messages)
    messages = _estimated(log, tenant, bucket_us, first, last)
    return History(from_us, to_us, first, last, True, bucket_us, messages)


def _find(log: Log, seq: int) -> Record | None:
    try:
        return log.find(seq)
    except StorageError:  # trimmed, or given up by a repair
        return None


def _counted(
    log: Log, tenant: int, bucket_us: list[int], first: int, last: int
) -> list[int] | None:
    """Count messages by reading all records; None if some are gone."""
    messages = [0] * len(bucket_us)
    at = 0
    try:
        for record in log.read(first):
            if record.seq > last:
                break
            while at + 1 < len(bucket_us) and bucket_us[at + 1] <= time_of(record):
                at += 1
            if record.kind == MESSAGES and read_messages_body(record).tenant == tenant:
                messages[at] += record.count
    except StorageError:  # trimmed meanwhile, or given up by a repair
        return None
    return messages


def _estimated(log: Log, tenant: int, bucket_us: list[int], first: int, last: int) -> list[int]:
    """Estimate the numbers of messages: where buckets begin is exact, the tenant's share is not.

    All numbers of a bucket are equally far apart from the samples, so large records do not count
    more than their messages.
    """
    starts = [first]
    for time_us in bucket_us[1:]:
        starts.append(seq_at(log, time_us, starts[-1], last))
    starts.append(last + 1)
    messages = []
    for begin, end in pairwise(starts):
        samples = min(_SAMPLES, end - begin)
        seqs = [begin + (end - begin) * (2 * i + 1) // (2 * samples) for i in range(samples)]
        own = sum(_is_message_of(log, tenant, seq) for seq in seqs)
        messages.append(round((end - begin) * own / samples) if samples else 0)
    return messages


def _is_message_of(log: Log, tenant: int, seq: int) -> bool:
    record = _find(log, seq)
    if record is None or record.kind != MESSAGES:
        return False
    return read_messages_body(record).tenant == tenant
