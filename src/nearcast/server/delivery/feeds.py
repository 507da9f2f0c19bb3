"""Feeds: the events of a channel, or of a whole tenant, from a position on, as they come.

A feed reads what it has missed from the event store, then the blocks that the matcher hands over,
and goes back to the store if it falls behind. Live and resumed streams are the same code, and a
slow reader costs no memory: it only has a position. A reader that waits and can send without
waiting is called at once, which is less work than waking its task.
"""

from __future__ import annotations

import asyncio
import time as clocks
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.errors import Trimmed, Unavailable
from nearcast.server.matching.events import DamagedEvents
from nearcast.server.matching.postings import Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nearcast.server.delivery.rendering import Rendered, Renderer
    from nearcast.server.matching.events import Block, EventStore
    from nearcast.server.matching.postings import EventRef, JoinedEvent
    from nearcast.server.matching.runs import ChosenChannels

__all__ = ["ALL_CHANNELS", "Feed", "Feeds"]

ALL_CHANNELS = 0
"""The channel of feeds of several channels; 0 is no channel of events."""

_MAX_BLOCKS = 64
_READ_EVENTS = 256
_READ_BYTES = 128 << 10
_STUCK_S = 120.0


class Feeds:
    """All feeds of a server, by channel; used in the thread of the event loop.

    Parameters
    ----------
    events
        The event store.
    renderer
        Renders events.

    Attributes
    ----------
    on_damage
        Is called in the thread of the event loop if the events of a feed cannot be read.
    """

    def __init__(self, events: EventStore, renderer: Renderer) -> None:
        self.events, self.renderer = events, renderer
        self.on_damage: Callable[[DamagedEvents], None] = lambda error: None
        self._of_channel: dict[int, set[Feed]] = {}
        self._channels: NDArray[np.uint32] | None = None
        self._last_seq = events.last_seq
        self.count = 0

    @property
    def first_seq(self) -> int:
        """The first record whose events can be had."""
        return max(self.events.first_seq, self.renderer.first_seq)

    def open(self, channel: int, subscriber: str, after: Position) -> Feed:
        """Return a feed of the events of a channel after a position; it must be closed."""
        own = _Channel(self.events, self.renderer, channel, subscriber)
        return self._add(Feed(self, channel, own, after))

    def open_joined(self, chosen: ChosenChannels, after: Position) -> Feed:
        """Return a feed of the events of all chosen channels; it must be closed."""
        joined = _Channels(self.events, self.renderer, chosen)
        return self._add(Feed(self, ALL_CHANNELS, joined, after))

    def _add(self, feed: Feed) -> Feed:
        self._of_channel.setdefault(feed.channel, set()).add(feed)
        self._channels = None
        self.count += 1
        return feed

    def close(self, feed: Feed) -> None:
        """Forget a feed."""
        others = self._of_channel.get(feed.channel)
        if others is not None and feed in others:
            others.discard(feed)
            self.count -= 1
            feed.closed()
            if not others:
                del self._of_channel[feed.channel]
                self._channels = None

    def put(self, block: Block) -> None:
        """Hand over new events to the feeds of their channels."""
        self._last_seq = block.last_seq
        if self._channels is None:
            self._channels = np.array(sorted(self._of_channel), np.uint32)
        found = np.intersect1d(block.channels, self._channels, assume_unique=True)
        for channel in found.tolist():
            for feed in self._of_channel[channel]:
                feed.put(block)
        if len(block.channels):
            for feed in self._of_channel.get(ALL_CHANNELS, ()):
                feed.put(block)

    def beat(self) -> None:
        """Wake all feeds, so that those with nothing to tell say that they are alive.

        A connection whose last write has not ended for two minutes is given up.
        """
        self.check()
        for feeds in self._of_channel.values():
            for feed in feeds:
                feed.beat(self._last_seq)

    def check(self) -> None:
        """End the feeds of those who may not read them any more."""
        for feeds in self._of_channel.values():
            for feed in feeds:
                with suppress(Unavailable):  # nobody can say; the next beat asks again
                    if not feed.allowed():
                        feed.end()

    def wake(self, channel: int) -> None:
        """Wake the feeds of a channel: it may be time for events that wait."""
        for feed in self._of_channel.get(channel, ()):
            feed.wake()

    def wake_all(self) -> None:
        """Wake all feeds: what could not be read may be there again."""
        for feeds in self._of_channel.values():
            for feed in feeds:
                feed.wake()

    def end(self) -> None:
        """End all feeds."""
        for feeds in self._of_channel.values():
            for feed in feeds:
                feed.end()


class _Channel:
    """The events of one subscriber or sink.

    `_Channels` has the same methods. ``lost`` and ``count`` return None if the number is unknown.
    """

    def __init__(
        self, events: EventStore, renderer: Renderer, channel: int, subscriber: str
    ) -> None:
        self._events, self._renderer = events, renderer
        self._channel, self._subscriber = channel, subscriber

    def of_block(self, block: Block) -> list[EventRef]:
        return block.events(self._channel)

    def read(self, after: Position, limit: int) -> list[EventRef]:
        return self._events.read(self._channel, after, limit)

    def render(self, refs: list[EventRef]) -> list[Rendered]:
        return self._renderer.render(refs, self._subscriber, _READ_BYTES)

    def lost(self, after: Position, first_seq: int) -> int | None:
        return self._events.lost(self._channel, after, first_seq)

    def count(self, after: Position, last: Position) -> int | None:
        count = self._events.count(self._channel, after) - self._events.count(self._channel, last)
        return count or None


class _Channels:
    """The events of several channels; those about one message are one event.

    How many are lost is unknown: what was trimmed is counted for each channel.
    """

    def __init__(self, events: EventStore, renderer: Renderer, chosen: ChosenChannels) -> None:
        self._events, self._renderer, self._chosen = events, renderer, chosen

    def of_block(self, block: Block) -> list[JoinedEvent]:
        return block.joined_events(self._chosen)

    def read(self, after: Position, limit: int) -> list[JoinedEvent]:
        return self._events.read_joined(self._chosen, after, limit)

    def render(self, refs: list[JoinedEvent]) -> list[Rendered]:
        return self._renderer.render_joined(refs, _READ_BYTES)

    def lost(self, after: Position, first_seq: int) -> int | None:
        return None

    def count(self, after: Position, last: Position) -> int | None:
        return None


class Feed:
    """Events after ``position``, which moves on as they are taken.

    Attributes
    ----------
    position
        After the last event that was taken.
    ended
        Whether the server is ending.
    damage
        Why the next events could not be read at the last try; they are computed again.
    allowed
        Tells whether its reader may still read it: keys are revoked, and tokens expire.
    closed
        Is called when the feed is closed.
    is_free, take
        While somebody waits in `next` and is free, new events are handed to `take`, and `next`
        goes on waiting.
    """

    def __init__(
        self, feeds: Feeds, channel: int, source: _Channel | _Channels, after: Position
    ) -> None:
        self._feeds = feeds
        self._source: Any = source
        self.channel, self.position = channel, after
        self._blocks: deque[Block] = deque()
        self._behind = True
        self._awake = asyncio.Event()
        self._interrupted = asyncio.Event()
        self._woken = False
        self._waiting = False
        self._writer: tuple[Callable[[], object] | None, float] | None = None
        self.ended = False
        self.damage: DamagedEvents | None = None
        self.allowed: Callable[[], bool] = lambda: True
        self.closed: Callable[[], object] = lambda: None
        self.is_free: Callable[[], bool] = lambda: False
        self.take: Callable[[list[Rendered]], object] = lambda events: None

    def put(self, block: Block) -> None:
        """Take note of a block with events of the channel."""
        if self._waiting and not (self._behind or self._blocks or self.ended) and self.is_free():
            self._blocks.append(block)
            self._hand_over()
            return
        if not self._behind:
            if len(self._blocks) == _MAX_BLOCKS:
                self._blocks.clear()
                self._behind = True
            else:
                self._blocks.append(block)
        self._awake.set()

    def end(self) -> None:
        """End: nothing comes any more."""
        self.ended = True
        self._interrupted.set()
        self._awake.set()

    def close(self) -> None:
        """Forget the feed."""
        self._feeds.close(self)

    def writing(self, abort: Callable[[], object] | None = None) -> None:
        """Note that the connection writes, and has to be given up if that never ends.

        Parameters
        ----------
        abort
            Gives it up without waiting for what was written; the task is canceled if it is None.
        """
        if abort is None and (task := asyncio.current_task()) is not None:  # slow
            abort = task.cancel
        self._writer = abort, clocks.monotonic()

    def written(self) -> None:
        """Note that the connection has written."""
        self._writer = None

    def beat(self, last_seq: int) -> None:
        """Wake the feed; if it has read everything, its position is after the last record."""
        if not self._behind and not self._blocks:
            self.position = max(self.position, Position(last_seq))
        if self._writer is not None:
            abort, since = self._writer
            if abort is not None and clocks.monotonic() - since > _STUCK_S:
                self._writer = None
                abort()
        self.wake()

    def wake(self) -> None:
        """Let `next` and `hold` return, even if there is nothing."""
        self._woken = True
        self._interrupted.set()
        self._awake.set()

    async def hold(self, seconds: float) -> bool:
        """Wait, with events that may not be sent yet; return whether the feed was woken or ended.

        New events do not end the wait.
        """
        if not self._woken and not self.ended:
            self._interrupted.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._interrupted.wait()
        interrupted, self._woken = self._woken or self.ended, False
        return interrupted

    async def next(self) -> list[Rendered]:
        """Return the next events; an empty list if the feed was woken or has ended.

        An event of the type ``gap`` says that events are gone because they were not read in time.
        Whoever stops waiting, by a cancellation, misses nothing.
        """
        while True:
            if self._behind or self._blocks:
                events = await self._ready()
                if events:
                    self.position = events[-1].position
                    return events
            else:
                self._awake.clear()
            if self.ended or self._woken:
                self._woken = False
                return []
            self._waiting = True
            try:
                await self._awake.wait()
            finally:
                self._waiting = False

    def _hand_over(self) -> None:
        """Let the events of the first block be taken by somebody who waits for them."""
        try:
            events = self._read_blocks()
        except Exception:  # whoever waits meets it again in the store
            self._behind = True
            self._awake.set()
            return
        if self._behind:  # there are more
            self._awake.set()
        if events:
            self.position = events[-1].position
            self.take(events)

    async def _ready(self) -> list[Rendered]:
        """Return events that are there already."""
        self._awake.clear()
        was_behind, self._behind = self._behind, False
        after, self.damage = self.position, None
        try:
            return await self._read_store(after) if was_behind else self._read_blocks()
        except DamagedEvents as error:  # they are computed again; whoever waits is woken then
            self._behind, self.position, self.damage = True, after, error
            self._feeds.on_damage(error)
            return []
        except BaseException:  # also if nobody waits any more: nothing may be skipped
            self._behind, self.position = True, after
            raise

    async def _read_store(self, after: Position) -> list[Rendered]:
        self._blocks.clear()  # blocks from now on are kept; the store has those before
        events, more = await asyncio.to_thread(self._stored, after)
        if more:
            self._behind = True
        return events

    def _read_blocks(self) -> list[Rendered]:
        found: list[EventRef | JoinedEvent] = []
        while self._blocks and len(found) < _READ_EVENTS:
            events = self._source.of_block(self._blocks.popleft())
            if events and events[0][:2] <= self.position:  # the store had some of them
                events = [event for event in events if event[:2] > self.position]
            found += events
        if self._blocks or len(found) > _READ_EVENTS:
            self._awake.set()
        if len(found) > _READ_EVENTS:  # the others from the store, to let other feeds go on
            del found[_READ_EVENTS:]
            self._behind = True
        rendered: list[Rendered] = self._source.render(found)
        if len(rendered) < len(found):
            self._behind = True
        return rendered

    def _stored(self, after: Position) -> tuple[list[Rendered], bool]:
        """Read the store, and say if events are gone; return whether there may be more."""
        source, renderer = self._source, self._feeds.renderer
        gaps: list[Rendered] = []
        while True:
            first_seq = self._feeds.first_seq
            if after < Position(first_seq - 1):
                lost = source.lost(after, first_seq)
                gaps += [renderer.gap(after, first_seq, lost)] if lost != 0 else []
                after = Position(first_seq - 1)
            try:
                refs = source.read(after, _READ_EVENTS)
                rendered, more = self._rendered(refs, after)
                return gaps + rendered, more or len(refs) == _READ_EVENTS
            except Trimmed:
                if self._feeds.first_seq == first_seq:  # not because of trimming
                    raise

    def _rendered(
        self, refs: list[EventRef | JoinedEvent], after: Position
    ) -> tuple[list[Rendered], bool]:
        """Render events, with a gap for each range of the log that a repair gave up.

        Return whether there are more than fit into `_READ_BYTES`.
        """
        source, renderer = self._source, self._feeds.renderer
        until = refs[-1].seq if len(refs) == _READ_EVENTS else self._feeds.events.last_seq
        for first, last in renderer.lost:
            if last <= after.seq or until < first:
                continue
            before = [ref for ref in refs if ref.seq < first]
            rendered: list[Rendered] = source.render(before)
            if len(rendered) == len(before):
                begin = max(after, Position(first - 1))
                count = source.count(begin, Position(last))
                rendered.append(renderer.gap(begin, last + 1, count))
            return rendered, True
        rendered = source.render(refs)
        return rendered, len(rendered) < len(refs)
