"""Caps, digests and quiet hours: from when on an event may be sent.

Pacing holds events back and never drops them: the cursor of the subscriber waits. It is a pure
function of the settings, the time of the event and the times of recent sends. Only the recent sends
have to survive a restart, and `Pacing.remember` bounds how many there are.

The three compose in this order. A cap gives the earliest time at which one more event is allowed.
A digest moves it to the next mark; marks are ``origin_us + n * interval_us``. Quiet hours that
contain the result move it to their end: a digest whose mark lies in the night comes in the morning.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Cap", "Digest", "Pacing", "PacingSettings", "QuietHours"]

MAX_CAP_EVENTS: Final = 1_000
_SECOND_US: Final = 1_000_000
_MINUTE_US: Final = 60 * _SECOND_US
_DAY_US: Final = 24 * 60 * _MINUTE_US
_MAX_PERIOD_US: Final = 366 * _DAY_US


@dataclass(frozen=True, slots=True)
class Cap:
    """At most ``events`` in any period of ``period_us``: the window slides.

    Two sends that are exactly ``period_us`` apart are not in one period.
    """

    events: int
    period_us: int

    def __post_init__(self) -> None:
        if not 1 <= self.events <= MAX_CAP_EVENTS:
            raise InvalidInput("cap.events", self.events, f"must be 1 to {MAX_CAP_EVENTS:,}")
        _check_period("cap.period", self.period_us)


@dataclass(frozen=True, slots=True)
class Digest:
    """Events are sent together, at ``origin_us`` and every ``interval_us`` before and after it."""

    interval_us: int
    origin_us: int = 0

    def __post_init__(self) -> None:
        _check_period("digest.interval", self.interval_us)

    def next_mark(self, time_us: int) -> int:
        """Return the first mark that is not before a time."""
        return time_us + (self.origin_us - time_us) % self.interval_us


@dataclass(frozen=True, slots=True)
class QuietHours:
    """No events while the clocks of a time zone show ``start_minute`` up to before ``end_minute``.

    Parameters
    ----------
    start_minute, end_minute
        Minutes since midnight, 0 to 1,439. The start may be after the end: 22:00 to 07:00.
    zone
        The name of an IANA time zone, such as ``Europe/Helsinki``.

    Examples
    --------
    >>> night = QuietHours(22 * 60, 7 * 60, "Europe/Helsinki")
    >>> evening_us = 1_700_000_000_000_000  # 2023-11-15 00:13:20 in Helsinki
    >>> (night.end_us(evening_us) - evening_us) / 3_600_000_000
    6.777...
    """

    start_minute: int
    end_minute: int
    zone: str

    def __post_init__(self) -> None:
        for name, minute in (("from", self.start_minute), ("to", self.end_minute)):
            if not 0 <= minute < 24 * 60:
                raise InvalidInput(f"quietHours.{name}", minute, "must be 00:00 to 23:59")
        if self.start_minute == self.end_minute:
            problem = "must differ from the start; pause the subscription to get no events at all"
            raise InvalidInput("quietHours.to", self.end_minute, problem)
        _zone(self.zone)

    def contains(self, time_us: int) -> bool:
        """Return whether a time is inside of the quiet hours."""
        return self._since_start(time_us) < self._length_us

    def end_us(self, time_us: int) -> int:
        """Return the first time that is not before ``time_us`` and outside of the quiet hours.

        Clocks may be changed meanwhile: then the answer is when they show a time outside.
        """
        while (since := self._since_start(time_us)) < self._length_us:
            end_us = time_us + self._length_us - since
            change_us = self._clock_change(time_us, end_us)
            time_us = end_us if change_us is None else change_us
        return time_us

    @property
    def _length_us(self) -> int:
        return (self.end_minute - self.start_minute) % (24 * 60) * _MINUTE_US

    def _since_start(self, time_us: int) -> int:
        """Return the time on the clock since the last start, if the clocks were not changed."""
        local_us = time_us + self._offset_us(time_us)
        return (local_us - self.start_minute * _MINUTE_US) % _DAY_US

    def _offset_us(self, time_us: int) -> int:
        local = datetime.fromtimestamp(time_us // _SECOND_US, UTC).astimezone(_zone(self.zone))
        offset = local.utcoffset()
        assert offset is not None  # the zone is given
        return offset.days * _DAY_US + offset.seconds * _SECOND_US

    def _clock_change(self, after_us: int, until_us: int) -> int | None:
        """Return when the clocks are changed in a stretch of less than a day, to the second."""
        before = self._offset_us(after_us)
        if self._offset_us(until_us) == before:
            return None
        low, high = after_us // _SECOND_US, -(-until_us // _SECOND_US)
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset_us(middle * _SECOND_US) == before:
                low = middle
            else:
                high = middle
        return high * _SECOND_US


@dataclass(frozen=True, slots=True)
class PacingSettings:
    """What a subscriber asked for; the default holds nothing back."""

    caps: tuple[Cap, ...] = ()
    digest: Digest | None = None
    quiet_hours: QuietHours | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> PacingSettings:
        """Return the settings that a subscriber's JSON describes.

        Raises
        ------
        InvalidInput
            When a value is out of its range.

        Examples
        --------
        >>> PacingSettings.of({"cap": {"events": 3, "periodS": 60}}).caps
        (Cap(events=3, period_us=60000000),)
        """
        cap, digest, quiet = (given.get(name) for name in ("cap", "digest", "quietHours"))
        return cls(
            () if cap is None else (Cap(cap["events"], round(cap["periodS"] * _SECOND_US)),),
            None if digest is None else Digest(round(digest["everyS"] * _SECOND_US)),
            None
            if quiet is None
            else QuietHours(
                _minute(quiet["from"]), _minute(quiet["to"]), quiet.get("timeZone", "UTC")
            ),
        )


class Pacing:
    """When events may be sent.

    Parameters
    ----------
    settings
        Caps, digest and quiet hours; each is optional.

    Examples
    --------
    >>> pacing = Pacing(PacingSettings(caps=(Cap(events=2, period_us=60_000_000),)))
    >>> pacing.next_release(event_us=50_000_000, now_us=50_000_000, sent=[10_000_000, 20_000_000])
    70000000
    """

    def __init__(self, settings: PacingSettings) -> None:
        self._caps = settings.caps
        self._digest = settings.digest
        self._quiet = settings.quiet_hours
        self._remembered = max((cap.events for cap in settings.caps), default=0)

    @property
    def is_digest(self) -> bool:
        """Whether events are sent together."""
        return self._digest is not None

    @property
    def is_capped(self) -> bool:
        """Whether the times of recent sends matter."""
        return bool(self._caps)

    def next_release(self, event_us: int, now_us: int, sent: Sequence[int]) -> int:
        """Return the time from which on the next event may be sent.

        The event may go now if the time is not after ``now_us``. An event whose release has passed,
        because the server was down or the receiver failed, goes as soon as it is not quiet.

        Parameters
        ----------
        event_us
            The time of the event. One in the future, from before a change of the clock, is now.
        now_us
            The current time.
        sent
            The times of recent sends, ascending: at least as many as `remember` keeps.
        """
        released_us = self._released(min(event_us, now_us), sent)
        if released_us < now_us and self._quiet is not None:
            return max(released_us, self._quiet.end_us(now_us))
        return released_us

    def count_together(self, event_times_us: Sequence[int], sent: Sequence[int]) -> int:
        """Return how many events, the first one and some after it, are sent in one digest.

        These are the events of the same mark, up to the cap. The answer does not depend on the
        current time, so a digest that has to be sent again contains the same events.
        """
        if self._digest is None:
            return min(1, len(event_times_us))
        sent = list(sent)
        first_us = self._released(event_times_us[0], sent) if event_times_us else 0
        for count, event_us in enumerate(event_times_us):
            if self._released(event_us, sent) != first_us:
                return count
            sent.append(first_us)
        return len(event_times_us)

    def remember(self, sent: Sequence[int], now_us: int, events: int = 1) -> tuple[int, ...]:
        """Return the recent sends after some events were sent now; as few as the caps need."""
        if not self._remembered:
            return ()
        return (*sent, *[now_us] * events)[-self._remembered :]

    def _released(self, event_us: int, sent: Sequence[int]) -> int:
        time_us = event_us
        for cap in self._caps:
            if len(sent) >= cap.events:
                time_us = max(time_us, sent[-cap.events] + cap.period_us)
        if self._digest is not None:
            time_us = self._digest.next_mark(time_us)
        if self._quiet is not None:
            time_us = self._quiet.end_us(time_us)
        return time_us


def _minute(clock: str) -> int:
    """Return the minutes since midnight of a time of day such as ``22:00``."""
    hours, _, minutes = clock.partition(":")
    return 60 * int(hours) + int(minutes)


def _check_period(field: str, period_us: int) -> None:
    if not _SECOND_US <= period_us <= _MAX_PERIOD_US:
        raise InvalidInput(field, period_us, "must be 1 second to 366 days, in microseconds")


@lru_cache(maxsize=1_000)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, not a name, or a folder
        problem = "must be an IANA time zone such as Europe/Helsinki"
        raise InvalidInput("quietHours.timeZone", name, problem) from None
