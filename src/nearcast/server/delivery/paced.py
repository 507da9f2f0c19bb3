"""Streams that hold events back as their subscriber asked for, and drop none.

All connections of a subscriber share one `Pace`: an event that one of them has sent counts once
towards the cap, and the others may send it too. `Paces` has those of all subscribers, and saves the
sends that caps have to know of: every second if there are new ones, and at the end.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING

from nearcast.errors import StorageError
from nearcast.server.delivery.pacing import Pacing, PacingSettings
from nearcast.server.matching.postings import Position
from nearcast.server.state import RecentSends

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nearcast.server.delivery.feeds import Feed
    from nearcast.server.delivery.readers import Reader, Readers
    from nearcast.server.delivery.rendering import Rendered
    from nearcast.server.state import State

__all__ = ["Pace", "PacedFeed", "Paces"]

_log = logging.getLogger("nearcast.server")
_SAVE_S = 1.0
"""How long sends are collected before they are saved together."""

_MAX_WAIT_S = 60.0
"""The clock of the system may be changed, and so may the settings."""


class Pace:
    """When events of a subscriber may be sent, and which were.

    ``holds`` tells whether some may have to wait.

    Parameters
    ----------
    settings
        What the subscriber asked for.
    now_us
        The time, in microseconds since 1970.
    saved
        What it had sent when it was saved.
    noted
        Is called after sends that a cap has to know of.
    """

    def __init__(
        self,
        settings: PacingSettings,
        now_us: Callable[[], int],
        saved: RecentSends | None = None,
        noted: Callable[[], None] = lambda: None,
    ) -> None:
        self._now_us, self._noted = now_us, noted
        self._sent: tuple[int, ...] = () if saved is None else saved.send_times_us
        self._released = Position(0) if saved is None else Position(saved.seq, saved.k)
        self.change(settings)

    def sends(self, channel: int) -> RecentSends:
        """Return what has to be saved, for a subscriber with this channel."""
        return RecentSends(channel, *self._released, self._sent)

    def change(self, settings: PacingSettings) -> None:
        """Use other settings from now on; what was sent stays known."""
        self.holds = settings != PacingSettings()
        self._pacing = Pacing(settings)

    def release(self, events: Sequence[Rendered]) -> tuple[int, float]:
        """Return how many of the first events may be sent now, and else how long to wait.

        Those that may be sent count as sent.
        """
        if not self.holds:
            return len(events), 0.0
        count, wait_s = self._release(events)
        if count and self._pacing.is_capped:
            self._noted()
        return count, wait_s

    def _release(self, events: Sequence[Rendered]) -> tuple[int, float]:
        now_us = self._now_us()
        for count, event in enumerate(events):
            known = event.position <= self._released
            sent = () if known else self._sent
            wait_us = self._pacing.next_release(event.time_us, now_us, sent) - now_us
            if wait_us > 0:
                return count, min(wait_us / 1e6, _MAX_WAIT_S)
            if not known:
                self._sent = self._pacing.remember(self._sent, now_us)
                self._released = event.position
        return len(events), 0.0


class Paces:
    """The paces of all subscribers, by channel; used in the thread of the event loop.

    Parameters
    ----------
    state
        Keeps settings and recent sends.
    now_us
        The time, in microseconds since 1970.
    """

    def __init__(self, state: State, now_us: Callable[[], int]) -> None:
        self._state, self._now_us = state, now_us
        self._paces: dict[int, Pace] = {}
        self._unsaved: set[int] = set()
        self._saving: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def of(self, tenant: int, subscriber: str | None, channel: int) -> Pace:
        """Return the pace of a subscriber; nothing waits for one who watches all of them."""
        if subscriber is None:
            return Pace(PacingSettings(), self._now_us)
        pace = self._paces.get(channel)
        if pace is None:
            settings, saved = await asyncio.to_thread(self._load, tenant, subscriber, channel)
            made = Pace(settings, self._now_us, saved, lambda: self._note(channel))
            pace = self._paces.setdefault(channel, made)
        return pace

    def _load(
        self, tenant: int, subscriber: str, channel: int
    ) -> tuple[PacingSettings, RecentSends | None]:
        row = self._state.subscriber(tenant, subscriber)
        settings = PacingSettings() if row is None else PacingSettings.of(row.settings)
        return settings, self._state.sends(channel) if settings.caps else None

    def _note(self, channel: int) -> None:
        self._unsaved.add(channel)
        if self._saving is None or self._saving.done():
            # For all subscribers, and so for nobody's turn.
            self._saving = asyncio.create_task(self._save_later(), context=Context())

    async def _save_later(self) -> None:
        while self._unsaved and not self._closing.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_SAVE_S):
                    await self._closing.wait()
            await self._save()

    async def _save(self) -> None:
        channels, self._unsaved = self._unsaved, set()
        sends = [self._paces[channel].sends(channel) for channel in sorted(channels)]
        try:
            if sends:
                await asyncio.to_thread(self._state.save_sends, sends)
        except StorageError as error:  # the next time may succeed
            _log.warning("recent sends could not be saved: %s", error)
            self._unsaved |= channels

    async def close(self) -> None:
        """Save what was not saved yet."""
        self._closing.set()
        if self._saving is not None:
            await self._saving
        await self._save()


class PacedFeed:
    """A feed whose events come when they may be sent.

    Parameters
    ----------
    feed
        The feed.
    pace
        When its events may be sent.
    readers, reader
        Where it is counted what waits for the feed.
    """

    def __init__(self, feed: Feed, pace: Pace, readers: Readers, reader: Reader) -> None:
        self.feed = feed
        self._pace = pace
        self._readers, self._reader = readers, reader
        self._held: list[Rendered] = []
        self._taken = feed.position

    @property
    def position(self) -> Position:
        """After the last event that was taken, and before those that wait."""
        return self._taken if self._held else self.feed.position

    async def next(self) -> list[Rendered]:
        """Return the next events; an empty list if the feed was woken or has ended."""
        if not self._held:
            self._held = await self.feed.next()
        while self._held:
            count, wait_s = self._pace.release(self._held)
            if count:
                events = self._held[:count]
                await self._count(events)  # nothing is taken if nobody waits any more
                self._taken, self._held = events[-1].position, self._held[count:]
                return events
            if await self.feed.hold(wait_s):
                break
        return []

    def send_at_once(
        self, is_free: Callable[[], bool], send: Callable[[list[Rendered]], object]
    ) -> None:
        """Let events that come while `next` waits, and need not wait themselves, be sent at once.

        Parameters
        ----------
        is_free
            Tells whether something can be sent now.
        send
            Sends events.
        """

        def take(events: list[Rendered]) -> None:
            self._readers.advance(self._reader, len(events), events[-1].position)
            send(events)

        self.feed.is_free = lambda: not self._pace.holds and is_free()
        self.feed.take = take

    async def _count(self, events: Sequence[Rendered]) -> None:
        """Note that events are handed over; after a gap, count those that are left."""
        if any(event.type == b"gap" for event in events):
            await self._readers.move(self._reader, events[-1].position)
        else:
            self._readers.advance(self._reader, len(events), events[-1].position)
