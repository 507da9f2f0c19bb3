"""What comes back from Kafka: matches, which become records of the log, each pair once."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from nearcast.errors import NearcastError, NoSpace
from nearcast.server.kafka.seen import Seen
from nearcast.server.log.committer import Overloaded, Written
from nearcast.server.log.records import MATCHES, matches_body, read_matches
from nearcast.server.matching.postings import Position
from nearcast.server.matching.remote import parse_remote_id

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from nearcast.server.kafka.topics import Topics
    from nearcast.server.log import Log
    from nearcast.server.matching.events import EventStore
    from nearcast.server.matching.registry import Registry
    from nearcast.storage.log import Entry

__all__ = ["Intake", "Receiver", "Value"]

_log = logging.getLogger("nearcast.server")
_MAX_MATCHES = 20_000
_POLL_S = 0.25
_RETRY_S = 1.0
_SEEN_SEQS = 1_000_000
_READ_EVENTS = 1_000
_CONSUMER = {
    "group.id": "nearcast",  # librdkafka wants one; the log has the offsets
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": False,
}


class Value(NamedTuple):
    """A value of the topic of matches, and where it was."""

    partition: int
    offset: int
    value: bytes | None


class _Match(msgspec.Struct, frozen=True, gc=False):
    message_id: str
    subscription_id: str
    score: float | None = None
    sign: int = 1


_decode = msgspec.json.Decoder(_Match).decode


class _Messages:
    """The messages that the log has now, by their event ids."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._first, self._last = log.first_seq, log.last_seq
        self._seq_of: dict[str, int] = {}

    def seq(self, id: str) -> int:
        """Return the number of a message; 0 if it is none of ours, or is gone."""
        found = self._seq_of.get(id)
        if found is None:
            found = self._seq_of[id] = self._find(id)
        return found

    def _find(self, id: str) -> int:
        epoch, _, number = id.partition("-")
        if not all(n.isascii() and n.isdigit() and len(n) <= 18 for n in (epoch, number)):
            return 0
        seq = int(number)
        known = self._first <= seq <= self._last and self._log.epoch_of(seq) == int(epoch)
        return seq if known else 0


def _row(value: bytes | None, messages: _Messages) -> tuple[int, int, int, float] | None:
    """Return message, handle, version and score; None if it is not about our messages."""
    try:
        match = _decode(value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    definition, seq = parse_remote_id(match.subscription_id), messages.seq(match.message_id)
    if definition is None or not seq or match.sign < 0:
        return None
    return seq, *definition, math.nan if match.score is None else match.score


class Intake:
    """Turns values of the topic into entries of the log; those that are there already are dropped.

    Parameters
    ----------
    log
        The log.
    registry, events
        Know which events were made of older matches.
    offsets
        How far the topic was read: the next offset by partition.
    """

    def __init__(
        self, log: Log, registry: Registry, events: EventStore, offsets: dict[int, int]
    ) -> None:
        self._log, self._registry, self._events = log, registry, events
        self.offsets = dict(offsets)
        self.seen = Seen(max(log.first_seq, log.last_seq - _SEEN_SEQS))
        for record in log.read(self.seen.since):
            if record.kind == MATCHES:
                body = read_matches(record)
                self.seen.add(body.message, body.handle)

    def entry(self, values: Sequence[Value]) -> tuple[Entry, NDArray[np.int64], dict[int, int]]:
        """Return the new matches of some values, their pairs, and the offsets after them."""
        rows: dict[tuple[int, int], tuple[int, float]] = {}
        messages = _Messages(self._log)
        offsets = dict(self.offsets)
        for partition, offset, value in values:
            offsets[partition] = offset + 1
            row = _row(value, messages)
            if row is not None:
                message, handle, version, score = row
                rows.setdefault((message, handle), (version, score))
        pairs = np.array([*rows], np.int64).reshape(-1, 2)
        versions = np.array([version for version, _ in rows.values()], np.int64)
        scores = np.array([score for _, score in rows.values()], np.float64)
        new = np.flatnonzero(~self._known(pairs[:, 0], pairs[:, 1]))
        pairs = pairs[new]
        entry = matches_body(offsets, pairs[:, 0], pairs[:, 1], versions[new], scores[new])
        return entry, pairs, offsets

    def written(self, pairs: NDArray[np.int64], offsets: dict[int, int]) -> None:
        """Hear that an entry is in the log."""
        self.seen.add(pairs[:, 0], pairs[:, 1])
        self.offsets = offsets

    def _known(self, message: NDArray[np.int64], handle: NDArray[np.int64]) -> NDArray[np.bool_]:
        known = self.seen.contains(message, handle)
        for at in np.flatnonzero(message < self.seen.since).tolist():
            known[at] = self._has_event(int(message[at]), int(handle[at]))
        return known

    def _has_event(self, message: int, handle: int) -> bool:
        """Return whether there is an event of an old message for a subscription."""
        if handle >= len(self._registry):
            return False
        channel = int(self._registry.rows["channel"][handle])
        after = Position(message)
        while refs := self._events.read(channel, after, _READ_EVENTS):
            for ref in refs:
                if ref.message == message and any(match[0] == handle for match in ref.matches):
                    return True
            after = refs[-1].position
        return False


class Receiver:
    """Reads the topic of matches. One thread uses it.

    Parameters
    ----------
    topics
        Where to read from.
    intake
        Makes entries.
    submit
        Lets an entry be written, and hears of it by its tag.
    stopping
        Is set when the thread has to end.
    """

    def __init__(
        self,
        topics: Topics,
        intake: Intake,
        submit: Callable[[object, Entry], None],
        stopping: threading.Event,
    ) -> None:
        self._topic, self._intake = topics.matches, intake
        self._submit, self._stopping = submit, stopping
        self._consumer = Consumer(topics.settings(**_CONSUMER))
        self._assign()

    def _assign(self) -> None:
        """Begin where the log ends."""
        found = self._consumer.list_topics(self._topic, timeout=_RETRY_S * 15)
        offsets = self._intake.offsets
        starts = [
            TopicPartition(self._topic, number, offsets.get(number, OFFSET_BEGINNING))
            for number in found.topics[self._topic].partitions
        ]
        for start in starts:
            oldest, _ = self._consumer.get_watermark_offsets(start, timeout=_RETRY_S * 15)
            if 0 <= start.offset < oldest:
                _log.error(
                    "%s: partition %d has lost the matches from %d to %d before they were read; "
                    "keep them longer (retention.ms)",
                    self._topic,
                    start.partition,
                    start.offset,
                    oldest - 1,
                )
        self._consumer.assign(starts)

    def receive(self) -> None:
        """Read what is there, or wait a moment for something, and write it to the log.

        Raises
        ------
        NearcastError
            If the topic cannot be read.
        """
        values = self._poll()
        if not values:
            return
        entry, pairs, offsets = self._intake.entry(values)
        if not len(pairs) or self._write(entry):
            self._intake.written(pairs, offsets)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _poll(self) -> list[Value]:
        first = self._consumer.poll(_POLL_S)
        if first is None:
            return []
        try:
            rest = self._consumer.consume(_MAX_MATCHES - 1, 0)
        except KafkaException as error:
            raise NearcastError(f"{self._topic}: {error}") from None
        return [_value(message) for message in (first, *rest) if not _failed(message)]

    def _write(self, entry: Entry) -> bool:
        """Write an entry, however long that takes; return whether it was written."""
        while not self._stopping.is_set():
            tag = Written()
            try:
                self._submit(tag, entry)
            except Overloaded:
                self._stopping.wait(_RETRY_S)
                continue
            outcome = tag.wait()
            if outcome.record is not None:
                return True
            if not isinstance(outcome.error, NoSpace):
                return False  # the log has failed: the server ends
            self._stopping.wait(_RETRY_S)
        return False


def _failed(message: Any) -> bool:
    error = message.error()
    if error is not None:
        _log.warning("Kafka: %s", error.str())
    return error is not None


def _value(message: Any) -> Value:
    return Value(message.partition(), message.offset(), message.value())
