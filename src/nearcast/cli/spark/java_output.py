"""What Java writes to stderr: kept out of sight, except for the progress bars of a terminal.

Spark's Java process inherits stderr, and writes warnings and stack traces to it that no user asked
for. Here it gets a pipe instead. Errors reach the user as one line, by way of Python.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["JavaOutput"]

T = TypeVar("T")

_PROGRESS = b"[Stage"
_KEPT_LINES = 50


class JavaOutput:
    """The output of the Java process that a call starts.

    Parameters
    ----------
    shown
        Whether progress bars are passed on to stderr.
    """

    def __init__(self, *, shown: bool = False) -> None:
        self._shown = shown
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)

    def start(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returns; processes that it starts write to the pipe."""
        sys.stderr.flush()
        read_end, write_end = os.pipe()
        terminal = os.dup(2)
        reader = threading.Thread(target=self._read, args=(read_end, terminal), daemon=True)
        reader.start()
        os.dup2(write_end, 2)
        os.close(write_end)
        try:
            return make()
        finally:
            os.dup2(terminal, 2)

    def problem(self) -> str:
        """Return the last line that says what is wrong, or an empty text."""
        wrong = [line for line in self._lines if "rror" in line or "xception" in line]
        return wrong[-1].strip() if wrong else ""

    def _read(self, read_end: int, terminal: int) -> None:
        """Read until all writers have closed the pipe."""
        rest = b""
        while chunk := os.read(read_end, 1 << 16):
            if self._shown and (_PROGRESS in chunk or not chunk.strip()):
                os.write(terminal, chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            self._lines.extend(line.decode(errors="replace") for line in lines)
        os.close(read_end)
        os.close(terminal)
