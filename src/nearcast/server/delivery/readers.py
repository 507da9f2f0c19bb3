"""Who reads events, and how many wait for each: streams, cursors that are kept, and sinks.

The number of events that wait is never counted as a whole. Each channel that somebody reads has a
running total, to which every block of new events adds. A reader remembers the total as of its
position, so the difference is what waits for it, and the sum over 100,000 readers is one
subtraction of arrays.
"""

from __future__ import annotations

import asyncio
from array import array
from typing import TYPE_CHECKING, Literal

import numpy as np

from nearcast.server.matching.events import DamagedEvents
from nearcast.server.matching.postings import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nearcast.server.matching.events import Block, EventStore

__all__ = ["Reader", "ReaderKind", "Readers"]

ReaderKind = Literal["stream", "cursor", "webhook"]
KINDS: tuple[ReaderKind, ...] = ("stream", "cursor", "webhook")

_FREE = 255


class Reader:
    """Somebody who reads the events of a channel; `Readers` has the numbers, by ``row``."""

    __slots__ = ("channel", "row")

    def __init__(self, channel: int, row: int) -> None:
        self.channel, self.row = channel, row


class Readers:
    """How many events wait for readers; used in the thread of the event loop.

    Parameters
    ----------
    events
        The event store.
    first_seq
        Returns the first record whose events can be had.
    """

    def __init__(self, events: EventStore, first_seq: Callable[[], int]) -> None:
        self._events, self._first_of = events, first_seq
        self._first_seq, self._last_seq = first_seq(), events.last_seq
        self._total = np.zeros(16, np.int64)  # by channel: events since somebody reads it
        self._count = np.zeros(16, np.int64)  # by channel: its readers
        # By reader. One number of an `array` changes faster than one of a NumPy array, and every
        # write to a stream changes three.
        self._read = array("q")  # the total of its channel as of its position
        self._seq = array("q")
        self._moves = array("q")
        self._channel = array("I")
        self._kind = array("B")
        self._free: list[int] = []
        self._uncounted: list[tuple[Reader, Position]] = []
        self.on_damage: Callable[[DamagedEvents], None] = lambda error: None

    def put(self, block: Block) -> None:
        """Count new events; blocks come long before they are trimmed."""
        if block.last_seq <= self._last_seq:
            return  # the store had them when this began
        self._last_seq = block.last_seq
        channels = block.channels
        if len(channels):
            self._grow(int(channels[-1]))
            if self._count[channels].any():
                self._total[channels] += block.counts

    async def add(self, kind: ReaderKind, channel: int, after: Position) -> Reader:
        """Return a new reader of a channel, who has read everything up to a position."""
        [reader] = await self.add_all(kind, [(channel, after)])
        return reader

    async def add_all(
        self, kind: ReaderKind, given: Sequence[tuple[int, Position]]
    ) -> list[Reader]:
        """Return new readers, given as channels and positions."""
        readers = [self._new(kind, channel) for channel, _ in given]
        try:
            await self._place(readers, [after for _, after in given])
        except BaseException:
            for reader in readers:
                self.remove(reader)
            raise
        return readers

    async def move(self, reader: Reader, after: Position) -> None:
        """Note that a reader goes on after a position."""
        if reader.row >= 0:
            await self._place([reader], [after])

    def advance(self, reader: Reader, events: int, position: Position) -> None:
        """Note that a reader has read some events, up to a position."""
        row = reader.row
        if row >= 0:
            self._read[row] += events
            self._seq[row] = position.seq
            self._moves[row] += 1

    async def recount(self) -> None:
        """Count for those for whom it was not possible, because events were damaged."""
        given, self._uncounted = self._uncounted, []
        alive = [(reader, after) for reader, after in given if reader.row >= 0]
        places = []
        for reader, after in alive:
            seq = self._seq[reader.row]
            places.append(after if seq == after.seq else Position(seq))
        await self._place([reader for reader, _ in alive], places)

    def remove(self, reader: Reader) -> None:
        """Forget a reader."""
        if reader.row >= 0:
            self._kind[reader.row] = _FREE
            self._moves[reader.row] += 1
            self._count[reader.channel] -= 1
            self._free.append(reader.row)
            reader.row = -1

    async def pending(self) -> dict[ReaderKind, int]:
        """Return how many events wait for the readers of each kind."""
        await self._leave_trimmed()
        # What a stream has read from the store may not be in the totals for a moment.
        waiting = np.maximum(self._total[np.asarray(self._channel)] - np.asarray(self._read), 0)
        kinds = np.asarray(self._kind)
        return {kind: int(waiting[kinds == n].sum()) for n, kind in enumerate(KINDS)}

    async def _leave_trimmed(self) -> None:
        """Let readers whose next events were trimmed go on with the first ones that are left."""
        first_seq = self._first_of()
        if first_seq == self._first_seq:
            return
        self._first_seq = first_seq
        is_late = (np.asarray(self._kind) != _FREE) & (np.asarray(self._seq) < first_seq)
        readers = [Reader(self._channel[row], row) for row in np.flatnonzero(is_late).tolist()]
        await self._place(readers, [Position(first_seq - 1)] * len(readers))

    async def _place(self, readers: Sequence[Reader], after: Sequence[Position]) -> None:
        """Count what waits for readers after positions, unless they move on meanwhile."""
        numbers = np.array([reader.row for reader in readers], np.intp)
        channels = np.array([reader.channel for reader in readers], np.uint32)
        first = Position(self._first_of() - 1)
        after = [max(position, first) for position in after]
        until, total = self._last_seq, self._total[channels]
        np.asarray(self._moves)[numbers] += 1
        moves = np.asarray(self._moves)[numbers]
        counts = np.zeros(len(numbers), np.int64)
        if any(position != Position(until) for position in after):
            try:
                counts = await asyncio.to_thread(self._events.counts, channels, after, until)
            except DamagedEvents as error:
                self._uncounted += zip(readers, after, strict=True)
                self.on_damage(error)
        same = np.asarray(self._moves)[numbers] == moves
        chosen = numbers[same]
        np.asarray(self._read)[chosen] = (total - counts)[same]
        seqs = np.array([position.seq for position in after], np.int64)
        np.asarray(self._seq)[chosen] = seqs[same]

    def _new(self, kind: ReaderKind, channel: int) -> Reader:
        self._grow(channel)
        self._count[channel] += 1
        columns = (self._read, self._seq, self._moves, self._channel, self._kind)
        if not self._free:
            self._free.append(len(self._kind))
            for column in columns:
                column.append(0)
        row = self._free.pop()  # whose moves go on: somebody may still be counting for it
        values = (0, 0, self._moves[row], channel, KINDS.index(kind))
        for column, value in zip(columns, values, strict=True):
            column[row] = value
        return Reader(channel, row)

    def _grow(self, channel: int) -> None:
        while channel >= len(self._total):
            self._total = np.append(self._total, np.zeros_like(self._total))
            self._count = np.append(self._count, np.zeros_like(self._count))
