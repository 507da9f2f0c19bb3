"""The clock of an engine."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["EngineClock"]


class EngineClock:
    """The current time, which can stand still: for a thread during a call, or for all.

    A call that is journaled sees one time from begin to end. When it is made once more, after a
    crash, the clock shows that time again.

    Examples
    --------
    >>> clock = EngineClock(lambda: 2.0)
    >>> clock.now_us(), clock.set(5), clock.now_us()
    (2000000, None, 5)
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._thread = threading.local()
        self._set: int | None = None

    def now_us(self) -> int:
        """Return the time in microseconds since 1970."""
        if self._set is not None:
            return self._set
        stopped: int | None = getattr(self._thread, "now_us", None)
        return round(self._clock() * 1_000_000) if stopped is None else stopped

    def stop(self) -> int:
        """Let the clock stand still for this thread, and return what it shows."""
        self._thread.now_us = now_us = self.now_us()
        return now_us

    def go_on(self) -> None:
        """Let the clock go on for this thread."""
        self._thread.now_us = None

    def set(self, now_us: int | None) -> None:
        """Let the clock show a time to everybody; None lets it go on."""
        self._set = now_us
