"""The sinks of a server: which there are, their events, and what became of them.

`StoredSinks` is what a `WebhookSender` reads and writes, over the state and the event store.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from nearcast.errors import Trimmed
from nearcast.server.delivery.pacing import PacingSettings
from nearcast.server.delivery.sinks import Attempt, RenderedEvent, Sink
from nearcast.server.matching.changes import sink_id
from nearcast.server.matching.events import DamagedEvents
from nearcast.server.matching.postings import Position
from nearcast.server.state import Attempt as AttemptRow
from nearcast.server.state import DeadLetter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nearcast.server.delivery.feeds import Feeds
    from nearcast.server.delivery.readers import Reader, Readers
    from nearcast.server.delivery.sinks import SinkStatus
    from nearcast.server.matching.events import Block
    from nearcast.server.matching.registry import Registry
    from nearcast.server.state import Sink as SinkRow
    from nearcast.server.state import SinkProgress, State

__all__ = ["SinkChannels", "StoredSinks"]

_FLUSH_S = 0.25
"""How long attempts are collected before they are saved together."""


class SinkChannels:
    """Which channels belong to sinks.

    Parameters
    ----------
    registry
        Knows all channels.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._seen = 1  # channel 0 is no channel
        self._channels = np.empty(0, np.uint32)

    def of_block(self, block: Block) -> list[str]:
        """Return the ids of the sinks that a block has events for."""
        self._look()
        found = np.intersect1d(block.channels, self._channels, assume_unique=True)
        return [sink_id(channel) for channel in found.tolist()]

    def _look(self) -> None:
        """Take note of channels that are new."""
        registry, last = self._registry, self._registry.channel_count
        numbers = range(self._seen, last)
        new = [number for number in numbers if registry.channel(number).url is not None]
        self._seen = last
        if new:
            self._channels = np.concatenate([self._channels, np.array(new, np.uint32)])


class StoredSinks:
    """Sinks and their events; see `nearcast.server.delivery.sinks.SinkEvents`.

    Used in the thread of the event loop.

    Parameters
    ----------
    state
        Keeps sinks and how far they are.
    feeds
        Have the events of their channels.
    noted
        Is called with every attempt.
    lost
        Is called with the number of events that were trimmed before they could be sent.
    end
        Ends the subscriptions of a sink, given its id and the reason, and disables it.
    """

    def __init__(
        self,
        state: State,
        feeds: Feeds,
        noted: Callable[[Attempt], None] = lambda attempt: None,
        lost: Callable[[int], None] = lambda events: None,
        *,
        readers: Readers,
        end: Callable[[str, str], Awaitable[object]],
    ) -> None:
        self._state, self._feeds, self._readers = state, feeds, readers
        self._noted, self._lost, self._end = noted, lost, end
        self._reader_of: dict[str, Reader] = {}
        self._retrying: set[str] = set()
        self._rows: dict[str, SinkRow] = {}
        self._disabled: set[str] = set()
        self._counted: dict[str, Position] = {}  # up to where lost events were counted
        self._numbers: dict[str, int] = {}
        self._attempts: list[AttemptRow] = []
        self._flushing: asyncio.Task[None] | None = None
        self._saving = asyncio.Lock()

    @property
    def retrying(self) -> int:
        """How many sinks wait for another attempt."""
        return len(self._retrying)

    async def all(self) -> list[Sink]:
        """Return the sinks that get events."""
        found = []
        for row in await asyncio.to_thread(self._state.sinks):
            sink = await self.sink(row.id)
            if sink is not None and sink.status != "DISABLED":
                found.append(sink)
        return found

    async def sink(self, sink_id: str) -> Sink | None:
        """Return a sink as it was saved last; None if there is none."""
        row, progress, pacing = await asyncio.to_thread(self._load, sink_id)
        if row is None or progress is None:
            return None
        self._rows[sink_id] = row
        disabled = progress.status == "DISABLED"
        if disabled:
            self._disabled.add(sink_id)
        else:
            self._disabled.discard(sink_id)
        self._note_retrying(sink_id, not disabled and progress.attempts > 0)
        await self._note_position(sink_id, Position(progress.seq, progress.k))
        status: SinkStatus = "RETRYING" if progress.attempts else "ACTIVE"
        return Sink(
            sink_id,
            row.url,
            row.secrets,
            Position(progress.seq, progress.k),
            row.headers,
            progress.attempts,
            progress.next_try_us,
            "DISABLED" if disabled else status,
            pacing,
            progress.send_times_us,
            row.tenant,
        )

    def _load(self, sink_id: str) -> tuple[SinkRow | None, SinkProgress | None, PacingSettings]:
        state, pacing = self._state, PacingSettings()
        row = state.sink_of(sink_id)
        if row is None:
            return None, None, pacing
        subscriber = state.subscriber(row.tenant, row.subscriber)
        if subscriber is not None:
            pacing = PacingSettings.of(subscriber.settings)
        return row, state.progress(row), pacing

    async def _note_position(self, sink_id: str, position: Position) -> None:
        """Count what waits for a sink."""
        reader = self._reader_of.get(sink_id)
        if reader is not None:
            await self._readers.move(reader, position)
            return
        reader = await self._readers.add("webhook", self._rows[sink_id].channel, position)
        if self._reader_of.setdefault(sink_id, reader) is not reader:
            self._readers.remove(reader)

    def _note_retrying(self, sink_id: str, retrying: bool) -> None:
        if retrying:
            self._retrying.add(sink_id)
        else:
            self._retrying.discard(sink_id)

    def forget(self, sink_id: str) -> None:
        """Forget a sink that was removed."""
        reader = self._reader_of.pop(sink_id, None)
        if reader is not None:
            self._readers.remove(reader)
        for known in (self._rows, self._counted, self._numbers):
            known.pop(sink_id, None)
        self._disabled.discard(sink_id)
        self._retrying.discard(sink_id)

    async def read(self, sink: Sink, after: tuple[int, int], limit: int) -> list[RenderedEvent]:
        """Return the first events after a position."""
        row = self._rows[sink.id]
        position = max(Position(*after), self._counted.get(sink.id, Position(0)))
        while True:
            first_seq = self._feeds.first_seq
            if position < Position(first_seq - 1):
                lost = self._feeds.events.lost(row.channel, position, first_seq)
                if lost:
                    self._lost(lost)
                position = self._counted[sink.id] = Position(first_seq - 1)
            try:
                return await asyncio.to_thread(self._read, row, position, limit)
            except DamagedEvents as error:
                self._feeds.on_damage(error)
                raise
            except Trimmed:
                if self._feeds.first_seq == first_seq:  # not because of trimming
                    raise

    def _read(self, row: SinkRow, after: Position, limit: int) -> list[RenderedEvent]:
        refs = self._feeds.events.read(row.channel, after, limit)
        return [
            RenderedEvent(event.position, event.id, event.body, event.time_us)
            for event in self._feeds.renderer.render(refs, row.subscriber)
        ]

    async def save(
        self,
        sink_id: str,
        position: tuple[int, int],
        *,
        attempts: int,
        next_try_us: int,
        status: SinkStatus,
        sent: tuple[int, ...],
    ) -> None:
        """Save how far a sink is."""
        state = self._state
        if status == "ACTIVE" and sink_id in self._disabled:
            await asyncio.to_thread(state.enable, sink_id)
            self._disabled.discard(sink_id)
        await asyncio.to_thread(state.save_position, sink_id, position, attempts, next_try_us, sent)
        self._note_retrying(sink_id, attempts > 0)
        await self._note_position(sink_id, Position(*position))

    async def dead(self, sink_id: str, event: RenderedEvent, reason: str) -> None:
        """Save an event that is given up."""
        letter = DeadLetter(sink_id, *event.position, event.id, reason, event.time_us)
        await asyncio.to_thread(self._state.add_dead, [letter])

    async def disable(self, sink_id: str, reason: str) -> None:
        """Save that a sink gets nothing until it is enabled."""
        self._disabled.add(sink_id)
        self._retrying.discard(sink_id)
        await asyncio.to_thread(self._state.disable, sink_id, reason)

    async def gone(self, sink_id: str, reason: str) -> None:
        """End the subscriptions of a sink whose receiver wants nothing any more."""
        await self._end(sink_id, reason)
        self._disabled.add(sink_id)
        self._retrying.discard(sink_id)

    async def note_attempt(self, sink_id: str, attempt: Attempt) -> None:
        """Note an attempt; it is saved a moment later, with others."""
        self._noted(attempt)
        number = self._numbers.get(sink_id)
        if number is None:
            number = await asyncio.to_thread(self._last_number, sink_id)
        number = max(number, self._numbers.get(sink_id, 0)) + 1
        self._numbers[sink_id] = number
        self._attempts.append(AttemptRow(sink_id, number, *attempt))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush_later())

    def _last_number(self, sink_id: str) -> int:
        row = self._state.sink_of(sink_id)
        found = [] if row is None else self._state.attempts(row.tenant, sink_id)
        return found[0].number if found else 0

    async def _flush_later(self) -> None:
        while self._attempts:
            await asyncio.sleep(_FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        """Save the attempts that were noted; return when all of them can be read."""
        async with self._saving:
            attempts, self._attempts = self._attempts, []
            if attempts:
                await asyncio.to_thread(self._state.note_attempts, attempts)

    async def close(self) -> None:
        """Save what was noted."""
        await self.flush()
        if self._flushing is not None:
            await self._flushing
