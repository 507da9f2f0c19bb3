"""The time of records, and what it has to do with the clock of the machine.

The time of records never decreases by itself: a clock that is set back by less than a minute stands
still until it has caught up. One that is set back further was wrong before, or is wrong now; nobody
but its operator knows. So records go on with a *lead* over the clock, which a record of the log
tells. Durations are right meanwhile, and expiry is compared with the clock.

The operator ends the lead by a *step*: records have the time of the clock again. Durations that are
under way are measured with the time of the engine, which goes on as if nothing had happened.

::

    clock of the machine  + lead     = time of records
    time of records       + stepped  = time of the engine
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from nearcast.server.log.records import read_clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from nearcast.storage.log import Record

__all__ = ["MAX_LEAD_US", "Clocks", "LogClock", "Stamp", "Step", "as_duration"]

MAX_LEAD_US = 60_000_000
"""By how much records may be ahead of the clock before that is noted."""

_log = logging.getLogger("nearcast.server")


class Step(NamedTuple):
    """A record at which the time of records went back to ``time_us``, by ``back_us``."""

    seq: int
    time_us: int
    back_us: int


class Clocks(NamedTuple):
    """What the log has told of its time so far.

    Examples
    --------
    >>> clocks = Clocks(lead_us=5, steps=(Step(7, 100, 30),))
    >>> clocks.real_us(200), clocks.engine_us(200), clocks.real_of_engine(230)
    (195, 230, 195)
    """

    lead_us: int = 0
    steps: tuple[Step, ...] = ()

    @property
    def stepped_us(self) -> int:
        """By how much the time of the engine is ahead of that of records."""
        return sum(step.back_us for step in self.steps)

    def real_us(self, time_us: int) -> int:
        """Return the time of the machine's clock when a record was written."""
        return time_us - self.lead_us

    def engine_us(self, time_us: int) -> int:
        """Return the time of the engine at a record."""
        return time_us + self.stepped_us

    def real_of_engine(self, engine_us: int) -> int:
        """Return the time of the machine's clock, given that of the engine."""
        return engine_us - self.stepped_us - self.lead_us

    def after(self, record: Record) -> Clocks:
        """Return what is known after a record of the kind CLOCK."""
        body = read_clock(record)
        steps = self.steps
        if body.back_us:
            steps = (*steps, Step(record.seq, body.time_us, body.back_us))
        return Clocks(body.lead_us, steps)

    def before(self, seq: int) -> Clocks:
        """Return the steps before a number."""
        return Clocks(0, tuple(step for step in self.steps if step.seq < seq))


class Stamp(NamedTuple):
    """The time of a group of records; and its lead and its step back, for a record of them."""

    time_us: int
    lead_us: int
    back_us: int


class LogClock:
    """Gives records their time. One thread uses it; any may read ``lead_us``.

    Parameters
    ----------
    clock_us
        The clock of the machine, in microseconds since 1970.
    last_us, stored_us
        The time of the last record, and the lead that the log has told last.
    """

    def __init__(self, clock_us: Callable[[], int], last_us: int = 0, stored_us: int = 0) -> None:
        self._clock_us = clock_us
        self._last_us = last_us
        self.stored_us = stored_us
        if self.lead_us > MAX_LEAD_US:
            _warn(self.lead_us)

    @property
    def lead_us(self) -> int:
        """By how much the last record is ahead of the clock."""
        return max(self._last_us - self._clock_us(), 0)

    def stamp(self, *, step: bool = False) -> Stamp:
        """Return the time of the next group; ``step`` ends the lead, if there is one."""
        now_us = self._clock_us()
        behind_us = self._last_us - now_us
        if step and behind_us > 0:
            return Stamp(now_us, 0, behind_us)
        lead_us = self.stored_us
        if behind_us <= 0:
            lead_us = 0
        elif behind_us - lead_us > MAX_LEAD_US:
            lead_us = behind_us
        return Stamp(max(self._last_us, now_us + lead_us), lead_us, 0)

    def keep(self, stamp: Stamp) -> None:
        """Note that records with a stamp are on disk."""
        if stamp.lead_us > self.stored_us:
            _warn(stamp.lead_us)
        elif stamp.lead_us < self.stored_us:
            _log.warning("the clock of this machine is no longer behind the log")
        self._last_us, self.stored_us = stamp.time_us, stamp.lead_us


def as_duration(microseconds: int) -> str:
    """Return a duration in words.

    Examples
    --------
    >>> as_duration(400 * 86_400_000_000)
    '400 days, 0:00:00'
    """
    return str(timedelta(seconds=microseconds // 1_000_000))


def _warn(lead_us: int) -> None:
    _log.warning(
        "the last record of the log is %s ahead of the clock of this machine, which was set back: "
        "new records are stamped ahead of it; if the clock is right now, stop the server and run: "
        "nearcast clock --repair",
        as_duration(lead_us),
    )
