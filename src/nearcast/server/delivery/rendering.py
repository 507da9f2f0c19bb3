"""Events as bytes: CloudEvents in JSON, and the frames of streams."""

from __future__ import annotations

import math
import threading
import time as clocks
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nearcast.errors import Trimmed
from nearcast.server.delivery.recent import RecentRecords
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
    from collections.abc import Iterator

    from nearcast.server.log import Log
    from nearcast.server.matching.postings import EventRef, JoinedEvent
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
_encode = msgspec.json.Encoder().encode
_START = datetime(1970, 1, 1, tzinfo=UTC)
MAX_JOINED_MATCHES = 1_000
"""How many matches of an event of several subscribers are listed; the others are counted."""

_KEPT_SOURCES = 4096
_KEPT_IDS = 100_000


class Rendered(NamedTuple):
    """An event as bytes: its position, id, type (``match``), the CloudEvent and its time."""

    position: Position
    id: str
    type: bytes
    body: bytes
    time_us: int


class _Source(NamedTuple):
    """What every event of a message shares.

    ``head`` and ``data`` are the parts of a match before its subject and before its matches.
    """

    epoch: int
    time_us: int
    time: bytes
    message: bytes
    id: str
    head: bytes
    data: bytes


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
    return _encode(text)


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
        self._recent = RecentRecords()
        self._last_time = -1, b""

    def remember(self, records: list[Record]) -> None:
        """Keep records that were just matched, so that their messages are not read again."""
        self._recent.add(records)

    def render(
        self, refs: list[EventRef], subscriber: str, max_bytes: int | None = None
    ) -> list[Rendered]:
        """Return events of a subscriber as bytes: all, or the first ones that have this size."""
        subject = json_text(subscriber)
        return _fitting((self._event(ref, subject) for ref in refs), max_bytes)

    def render_joined(self, events: list[JoinedEvent], max_bytes: int) -> list[Rendered]:
        """Return events of several subscribers as bytes, the first ones that have this size.

        They have no subject: each match names its subscriber. At most `MAX_JOINED_MATCHES` are
        listed.
        """
        return _fitting((self._joined_event(event) for event in events), max_bytes)

    @property
    def first_seq(self) -> int:
        """The first record that the log has; events of those before it cannot be rendered."""
        return self._log.first_seq

    @property
    def lost(self) -> list[tuple[int, int]]:
        """The ranges of the log, first and last, whose events cannot be rendered either."""
        return self._log.lost

    def message(self, seq: int) -> bytes:
        """Return the JSON of a message; ``null`` if its record was trimmed."""
        try:
            return b"null" if seq < self._log.first_seq else self._source(seq).message
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
        body = _encode({"from": since, "to": id, "lost": lost})
        return Rendered(resumed, id, b"gap", body, clocks.time_ns() // 1000)

    def _event(self, ref: EventRef, subject: bytes) -> Rendered:
        seq, k, about, matches = ref
        source = self._sources.get(seq) or self._source(seq)
        if about == seq and not k and len(matches) == 1 and matches[0][1] == MATCH:
            body = b"".join((source.head, subject, source.data, self._match(*matches[0]), b"]}}"))
            return Rendered(Position(seq, 0), source.id, b"match", body, source.time_us)
        return self._any_event(ref, subject, source)

    def _any_event(self, ref: EventRef, subject: bytes, source: _Source) -> Rendered:
        kind = _kind(ref)
        if ref.message:
            matches = b",".join([self._match(*match) for match in ref.matches])
            data = b'{"message":%s,"matches":[%s]}' % (self._message_of(ref, source), matches)
        else:
            id = self._id(ref.matches[0][0])
            data = b'{"subscriptionId":%s%s}' % (id, _REASONS.get(kind, b""))
        return self._cloud_event(ref, kind, source, b'"subject":%s,' % subject, data)

    def _joined_event(self, event: JoinedEvent) -> Rendered:
        source, kind = self._source(event.seq), _kind(event)
        names = [
            json_text(self._registry.channel(one).subscriber)
            for one in event.channels[:MAX_JOINED_MATCHES]
        ]
        if event.message:
            listed = zip(names, event.matches, strict=False)
            matches = b",".join([self._match(*match, subscriber=name) for name, match in listed])
            omitted = len(event.matches) - len(names)
            data = b'{"message":%s,"matches":[%s]%s}' % (
                self._message_of(event, source),
                matches,
                b',"omitted":%d' % omitted if omitted else b"",
            )
        else:
            id = self._id(event.matches[0][0])
            reason = _REASONS.get(kind, b"")
            data = b'{"subscriptionId":%s,"subscriber":%s%s}' % (id, names[0], reason)
        return self._cloud_event(event, kind, source, b"", data)

    def _message_of(self, ref: EventRef | JoinedEvent, source: _Source) -> bytes:
        return source.message if ref.message == ref.seq else self.message(ref.message)

    def _cloud_event(
        self,
        ref: EventRef | JoinedEvent,
        kind: int,
        source: _Source,
        subject: bytes,
        data: bytes,
    ) -> Rendered:
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
                b'",',
                subject,
                b'"datacontenttype":"application/json","data":',
                data,
                b"}",
            ]
        )
        return Rendered(ref.position, id, name, body, source.time_us)

    def _match(
        self, handle: int, kind: int, score: float, subscriber: bytes | None = None
    ) -> bytes:
        id = self._id(handle)
        sign = b"1" if kind == MATCH else b"-1"
        scored = b"" if math.isnan(score) else b',"score":' + repr(score).encode()
        if subscriber is not None:
            scored += b',"subscriber":' + subscriber
        return b'{"subscriptionId":%s%s,"sign":%s}' % (id, scored, sign)

    def _source(self, seq: int) -> _Source:
        source = self._sources.get(seq)
        if source is None:
            source = self._make_source(seq)
            with self._lock:
                if len(self._sources) >= _KEPT_SOURCES:
                    for old in [*self._sources][: _KEPT_SOURCES // 2]:
                        del self._sources[old]
                self._sources[seq] = source
        return source

    def _make_source(self, seq: int) -> _Source:
        found = self._recent.find(seq) or self._recent.add_one(self._log.find(seq))
        epoch, message, time = found.record.epoch, found.message(seq), self._time(found.time_us)
        id = event_id(epoch, Position(seq, 0))
        head = (
            b'{"specversion":"1.0","id":"%s","source":"/v1","type":"org.nearcast.match",'
            b'"time":"%s","subject":' % (id.encode(), time)
        )
        data = b',"datacontenttype":"application/json","data":{"message":%s,"matches":[' % message
        return _Source(epoch, found.time_us, time, message, id, head, data)

    def _time(self, time_us: int) -> bytes:
        """Return a time as text; that of a group is needed for all of its messages."""
        known, text = self._last_time
        if known != time_us:
            text = rfc3339(time_us).encode()
            self._last_time = time_us, text
        return text

    def _id(self, handle: int) -> bytes:
        """Return the id of a subscription as JSON."""
        found = self._ids.get(handle)
        if found is None:
            found = json_text(self._registry.id_of(handle))
            if len(self._ids) >= _KEPT_IDS:
                self._ids.clear()
            self._ids[handle] = found
        return found


def _fitting(events: Iterator[Rendered], max_bytes: int | None) -> list[Rendered]:
    """Return all events, or the first ones that have a size."""
    if max_bytes is None:
        return [*events]
    rendered: list[Rendered] = []
    for event in events:
        rendered.append(event)
        max_bytes -= len(event.body)
        if max_bytes <= 0:
            break
    return rendered


def _kind(ref: EventRef | JoinedEvent) -> int:
    """Return the kind of an event: a match if one of its matches begins."""
    kinds = [kind for _, kind, _ in ref.matches]
    return MATCH if MATCH in kinds else kinds[0]
