"""Events as bytes: CloudEvents in JSON, and the frames of streams."""

from __future__ import annotations

import json
import math
import threading
import time as clocks
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from nearcast.errors import Trimmed
from nearcast.server.log.records import MESSAGES, message_at, time_of
from nearcast.server.matching.postings import (
    ENDED_DELETED,
    ENDED_EXPIRED,
    ENDED_MAX_EVENTS,
    ENDED_SINK_GONE,
    MATCH,
    STARTED,
    UNMATCH,
    UPDATED,
    Position,
)

if TYPE_CHECKING:
    from nearcast.server.log import Log
    from nearcast.server.matching.postings import EventRef
    from nearcast.server.matching.registry import Registry
    from nearcast.storage.log import Record

__all__ = ["TYPE_PREFIX", "Rendered", "Renderer", "event_id", "json_text", "rfc3339", "sse_frame"]

TYPE_PREFIX = "org.nearcast."
_TYPES = {
    MATCH: b"match",
    UNMATCH: b"unmatch",
    STARTED: b"subscription-started",
    UPDATED: b"subscription-updated",
    ENDED_DELETED: b"subscription-ended",
    ENDED_EXPIRED: b"subscription-ended",
    ENDED_MAX_EVENTS: b"subscription-ended",
    ENDED_SINK_GONE: b"subscription-ended",
}
_REASONS = {
    ENDED_DELETED: b',"terminationReason":"SUBSCRIPTION_DELETED"',
    ENDED_EXPIRED: b',"terminationReason":"SUBSCRIPTION_EXPIRED"',
    ENDED_MAX_EVENTS: b',"terminationReason":"MAX_EVENTS_REACHED"',
    ENDED_SINK_GONE: b',"terminationReason":"SINK_GONE"',
}
_START = datetime(1970, 1, 1, tzinfo=UTC)
_KEPT_RECORDS = 4096
_KEPT_IDS = 100_000
_RECENT_RECORDS = 256


class Rendered(NamedTuple):
    """An event as bytes: its position, id, type (``match``), the CloudEvent and its time."""

    position: Position
    id: str
    type: bytes
    body: bytes
    time_us: int


class _Source(NamedTuple):
    """What every event of a record shares."""

    epoch: int
    time_us: int
    time: bytes
    message: bytes


def rfc3339(time_us: int) -> str:
    """Return a time as text.

    Examples
    --------
    >>> rfc3339(1_500_000)
    '1970-01-01T00:00:01.500000Z'
    """
    moment = _START + timedelta(microseconds=time_us)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def json_text(text: str) -> bytes:
    """Return a text as JSON."""
    return json.dumps(text, ensure_ascii=False).encode()


def event_id(epoch: int, position: Position) -> str:
    """Return the id of an event, which is also a cursor.

    Examples
    --------
    >>> event_id(7, Position(12, 0)), event_id(7, Position(12, 3))
    ('7-12', '7-12.3')
    """
    return f"{epoch}-{position.seq}" + (f".{position.k}" if position.k else "")


def sse_frame(event: Rendered) -> bytes:
    """Return an event as server-sent events have it."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (event.id.encode(), event.type, event.body)


class Renderer:
    """Renders events. Any thread may use it.

    Parameters
    ----------
    log
        Has the messages.
    registry
        Has the ids of the subscriptions.
    """

    def __init__(self, log: Log, registry: Registry) -> None:
        self._log = log
        self._registry = registry
        self._lock = threading.Lock()
        self._sources: dict[int, _Source] = {}
        self._ids: dict[int, bytes] = {}
        self._recent: list[Record] = []
        self._recent_seqs: list[int] = []

    def remember(self, records: list[Record]) -> None:
        """Keep records that were just matched, so that their messages are not read again."""
        with self._lock:
            self._recent = [*self._recent, *records][-_RECENT_RECORDS:]
            self._recent_seqs = [record.seq for record in self._recent]

    def render(self, refs: list[EventRef], subscriber: str) -> list[Rendered]:
        """Return events of a subscriber as bytes."""
        subject = json_text(subscriber)
        return [self._event(ref, subject) for ref in refs]

    @property
    def first_seq(self) -> int:
        """The first record that the log has; events of those before it cannot be rendered."""
        return self._log.first_seq

    def message(self, seq: int) -> bytes:
        """Return the JSON of a message; ``null`` if its record was trimmed."""
        try:
            return self._source(seq).message
        except Trimmed:
            return b"null"

    def cursor(self, position: Position) -> str:
        """Return the id of a position; its epoch is 0 if nobody knows it any more."""
        try:
            return event_id(self._log.epoch_of(position.seq), position)
        except Trimmed:
            return event_id(0, position)

    def gap(self, after: Position, first_seq: int, lost: int | None) -> Rendered:
        """Return what says that events after a position, and before a record, are gone."""
        resumed = Position(first_seq - 1)
        since, id = self.cursor(after), self.cursor(resumed)
        body = json.dumps({"from": since, "to": id, "lost": lost}, separators=(",", ":"))
        return Rendered(resumed, id, b"gap", body.encode(), clocks.time_ns() // 1000)

    def _event(self, ref: EventRef, subject: bytes) -> Rendered:
        source = self._source(ref.seq)
        message = source.message if ref.message in (0, ref.seq) else self.message(ref.message)
        kind = _kind(ref)
        name = _TYPES[kind]
        id = event_id(source.epoch, ref.position)
        body = b"".join(
            [
                b'{"specversion":"1.0","id":"',
                id.encode(),
                b'","source":"/v1","type":"org.nearcast.',
                name,
                b'","time":"',
                source.time,
                b'","subject":',
                subject,
                b',"datacontenttype":"application/json","data":',
                self._data(ref, kind, message),
                b"}",
            ]
        )
        return Rendered(ref.position, id, name, body, source.time_us)

    def _data(self, ref: EventRef, kind: int, message: bytes) -> bytes:
        if not ref.message:
            id = self._id(ref.matches[0][0])
            return b'{"subscriptionId":%s%s}' % (id, _REASONS.get(kind, b""))
        matches = b",".join([self._match(*match) for match in ref.matches])
        return b'{"message":%s,"matches":[%s]}' % (message, matches)

    def _match(self, handle: int, kind: int, score: float) -> bytes:
        id = self._id(handle)
        sign = b"1" if kind == MATCH else b"-1"
        scored = b"" if math.isnan(score) else b',"score":' + repr(score).encode()
        return b'{"subscriptionId":%s%s,"sign":%s}' % (id, scored, sign)

    def _source(self, seq: int) -> _Source:
        source = self._sources.get(seq)
        if source is None:
            record = self._find(seq)
            message = message_at(record, seq)[1] if record.kind == MESSAGES else b""
            time_us = time_of(record)
            source = _Source(record.epoch, time_us, rfc3339(time_us).encode(), message)
            with self._lock:
                if len(self._sources) >= _KEPT_RECORDS:
                    for old in [*self._sources][: _KEPT_RECORDS // 2]:
                        del self._sources[old]
                self._sources[seq] = source
        return source

    def _find(self, seq: int) -> Record:
        """Return the record with a number: a recent one, or from the log."""
        with self._lock:
            at = bisect_right(self._recent_seqs, seq) - 1
            if at >= 0 and seq <= self._recent[at].last_seq:
                return self._recent[at]
        return self._log.find(seq)

    def _id(self, handle: int) -> bytes:
        """Return the id of a subscription as JSON."""
        found = self._ids.get(handle)
        if found is None:
            found = json_text(self._registry.id_of(handle))
            if len(self._ids) >= _KEPT_IDS:
                self._ids.clear()
            self._ids[handle] = found
        return found


def _kind(ref: EventRef) -> int:
    """Return the kind of an event: a match if one of its matches begins."""
    kind = ref.matches[0][1]
    if kind == MATCH or len(ref.matches) == 1:
        return kind
    return MATCH if any(other == MATCH for _, other, _ in ref.matches) else kind
