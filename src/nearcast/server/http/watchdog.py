"""A watchdog: a server whose event loop no longer turns ends, with a line that says where it was.

It would hold its port and its lock, and answer nobody. A supervisor can only start it again if it
ends. A process that is stopped and continued, or a machine that sleeps, is no reason: the watchdog
counts its own checks, and makes none meanwhile.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from typing import TYPE_CHECKING

from nearcast.errors import StorageError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["Watchdog"]

_log = logging.getLogger("nearcast.server")
_EVERY_S = 1.0
_WARN_AFTER = 10
_END_AFTER = 60
_FRAMES = 6


class Watchdog:
    """Checks from a thread of its own, every second, whether an event loop turns.

    Parameters
    ----------
    loop
        The event loop; this is called in its thread.
    end
        Ends the process; gets the reason.
    wait
        Waits for some seconds; returns whether the watchdog is to stop. Tests give another one.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        end: Callable[[BaseException], object],
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self._loop, self._end = loop, end
        self._watched = threading.get_ident()
        self._stopped = threading.Event()
        self._wait = wait or self._stopped.wait
        self._turned = True
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to check."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        missed = 0
        while not self._wait(_EVERY_S):
            if self._turned:
                missed, self._turned = 0, False
                try:
                    self._loop.call_soon_threadsafe(self._turn)
                except RuntimeError:  # the loop has ended
                    return
                continue
            missed += 1
            if missed == _WARN_AFTER:
                _log.warning(
                    "the event loop has not turned for %d s; it is at %s", missed, self._place()
                )
            if missed == _END_AFTER:
                place = self._place()
                self._end(StorageError(f"its loop has not turned for {missed} s; it is at {place}"))

    def _turn(self) -> None:
        self._turned = True

    def _place(self) -> str:
        """Return where the thread of the loop is, the innermost call first."""
        frame = sys._current_frames().get(self._watched)
        if frame is None:
            return "an unknown place"
        calls = traceback.extract_stack(frame)[-_FRAMES:]
        return ", called by ".join(f"{c.name} ({c.filename}:{c.lineno})" for c in reversed(calls))
