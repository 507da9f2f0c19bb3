"""Matches that come back become entries of the log, each pair once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from nearcast.server.kafka.seen import Seen
from nearcast.server.log.records import MATCHES, matches_body, read_matches
from nearcast.server.matching.postings import Position
from nearcast.server.matching.remote import parse_remote_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.server.log import Log
    from nearcast.server.matching.events import EventStore
    from nearcast.server.matching.registry import Registry
    from nearcast.storage.log import Entry

__all__ = ["Intake", "Value"]

_SEEN_SEQS = 1_000_000
_READ_EVENTS = 1_000
_MAX_ID = 40


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
        if len(id) > _MAX_ID or not (epoch.isdecimal() and number.isdecimal()):
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
