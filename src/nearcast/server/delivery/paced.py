"""Streams that hold events back as their subscriber asked for, and drop none.

All connections of a subscriber share one `Pace`: an event that one of them has sent counts once
towards the cap, and the others may send it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nearcast.server.delivery.pacing import Pacing, PacingSettings
from nearcast.server.matching.postings import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nearcast.server.delivery.feeds import Feed
    from nearcast.server.delivery.rendering import Rendered

__all__ = ["Pace", "PacedFeed"]

_MAX_WAIT_S = 60.0
"""The clock of the system may be changed, and so may the settings."""


class Pace:
    """When events of a subscriber may be sent, and which were.

    Parameters
    ----------
    settings
        What the subscriber asked for.
    now_us
        The time, in microseconds since 1970.
    """

    def __init__(self, settings: PacingSettings, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._sent: tuple[int, ...] = ()
        self._released = Position(0)
        self.change(settings)

    def change(self, settings: PacingSettings) -> None:
        """Use other settings from now on; what was sent stays known."""
        self._holds = settings != PacingSettings()
        self._pacing = Pacing(settings)

    def release(self, events: Sequence[Rendered]) -> tuple[int, float]:
        """Return how many of the first events may be sent now, and else how long to wait.

        Those that may be sent count as sent.
        """
        if not self._holds:
            return len(events), 0.0
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


class PacedFeed:
    """A feed whose events come when they may be sent.

    Parameters
    ----------
    feed
        The feed.
    pace
        When its events may be sent.
    """

    def __init__(self, feed: Feed, pace: Pace) -> None:
        self.feed = feed
        self._pace = pace
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
                events, self._held = self._held[:count], self._held[count:]
                self._taken = events[-1].position
                return events
            if await self.feed.hold(wait_s):
                break
        return []
