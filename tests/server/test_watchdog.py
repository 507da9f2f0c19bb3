"""A loop that no longer turns is noticed, and the process ends with the reason."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from nearcast.server.http.watchdog import Watchdog

if TYPE_CHECKING:
    import pytest


class Seconds:
    """Lets seconds pass for the watchdog when a test says so, and then ends it."""

    def __init__(self, seconds: int) -> None:
        self.left = seconds
        self.waited = threading.Event()

    def wait(self, seconds: float) -> bool:
        self.left -= 1
        if self.left < 0:
            self.waited.set()
        return self.left < 0


def watched(seconds: int, *, blocked: bool) -> list[BaseException]:
    """Let seconds pass while the loop is blocked, or turns."""
    reasons: list[BaseException] = []

    async def work() -> None:
        time = Seconds(seconds)
        turns = asyncio.get_running_loop()

        def wait(seconds: float) -> bool:
            if not blocked:  # the loop has done everything that it was asked for
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), turns).result(30)
            return time.wait(seconds)

        watchdog = Watchdog(turns, reasons.append, wait)
        watchdog.start()
        if blocked:
            assert time.waited.wait(30)
        else:
            await asyncio.to_thread(time.waited.wait, 30)
            await asyncio.to_thread(watchdog.stop)
            return
        watchdog.stop()

    asyncio.run(work())
    return reasons


def test_a_blocked_loop_ends_the_process_and_says_where(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("nearcast").propagate = True
    with caplog.at_level("WARNING", "nearcast.server"):
        [reason] = watched(62, blocked=True)
    assert "has not turned for 60 s" in str(reason)
    assert "test_watchdog.py" in str(reason)
    assert "has not turned for 10 s; it is at " in caplog.text


def test_a_loop_that_is_busy_for_less_goes_on() -> None:
    assert watched(50, blocked=True) == []


def test_a_loop_that_turns_goes_on() -> None:
    assert watched(200, blocked=False) == []
