"""When segments are merged, and the thread that merges them.

Segments form tiers: each tier holds segments up to eight times as large as the one below, and two
segments of one tier become one. A subscription is copied about four times per tier, and a message
visits no more segments than there are tiers: copying is cheap and mostly happens in the background,
but every segment costs every message. When nobody writes for a moment, small segments are joined.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING, NamedTuple

from nearcast.engine.buffer import BUFFER_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["SMALL_ROWS", "Size", "Worker", "choose", "choose_all", "choose_small"]

SMALL_ROWS = 64
"""Up to this size, comparing every subscription is as fast as an index."""

_TIER_GROWTH = 8
_TIER_SEGMENTS = 2
_SMALL_TIERS = 2
_MAX_DEAD = 0.25
_MAX_DEAD_QUIET = 0.1
_MAX_BESIDE = 1 / 16
_QUIET_S = 0.25


class Size(NamedTuple):
    """What the merge policy knows about a segment.

    ``dead`` of its ``rows`` are gone. It is ``open`` if it is the buffer that the next write
    appends to, and ``indexed`` if it has an index.
    """

    rows: int
    dead: int = 0
    open: bool = False
    indexed: bool = True

    @property
    def alive(self) -> int:
        """How many subscriptions are left."""
        return self.rows - self.dead

    @property
    def tier(self) -> int:
        """The tier: 0 below 8,192 rows, then one more for each factor of eight."""
        tier, rows = 0, self.alive // BUFFER_ROWS
        while rows >= _TIER_GROWTH:
            tier, rows = tier + 1, rows // _TIER_GROWTH
        return tier


def choose(sizes: Sequence[Size], *, quiet: bool) -> tuple[int, ...]:
    """Return which segments to merge now; an empty tuple if none.

    Parameters
    ----------
    sizes
        The segments.
    quiet
        Whether nobody is writing, so that there is time to merge everything worth merging.

    Examples
    --------
    >>> choose([Size(9000), Size(1000), Size(1000)], quiet=False)
    (1, 2)
    >>> choose([Size(9000), Size(500)], quiet=True)
    ()
    >>> choose([Size(9000, dead=3000)], quiet=False)
    (0,)
    """
    return _consolidation(sizes) if quiet else _full_tier(sizes) or _mostly_dead(sizes)


def choose_small(sizes: Sequence[Size]) -> tuple[int, ...]:
    """Return which segments of the lowest tiers to merge: that takes milliseconds."""
    chosen = _full_tier(sizes)
    return chosen if chosen and sizes[chosen[0]].tier < _SMALL_TIERS else ()


def choose_all(sizes: Sequence[Size]) -> tuple[int, ...]:
    """Return all segments, unless there is only one and it is not worth rebuilding.

    Examples
    --------
    >>> choose_all([Size(9000), Size(1)]), choose_all([Size(9000)])
    ((0, 1), ())
    >>> choose_all([Size(9000, dead=1)])
    (0,)
    """
    worn = any(size.dead or _is_worn(size) for size in sizes)
    return tuple(range(len(sizes))) if len(sizes) > 1 or worn else ()


def _full_tier(sizes: Sequence[Size]) -> tuple[int, ...]:
    closed = [number for number, size in enumerate(sizes) if not size.open]
    if len(closed) < _TIER_SEGMENTS:  # nearly always, and asked after every write
        return ()
    tiers: dict[int, list[int]] = {}
    for number in closed:
        tiers.setdefault(sizes[number].tier, []).append(number)
    full = [tier for tier, members in tiers.items() if len(members) >= _TIER_SEGMENTS]
    return tuple(tiers[min(full)]) if full else ()


def _mostly_dead(sizes: Sequence[Size]) -> tuple[int, ...]:
    for number, size in enumerate(sizes):
        if not size.open and size.dead > _MAX_DEAD * size.rows:
            return (number,)
    return ()


def _consolidation(sizes: Sequence[Size]) -> tuple[int, ...]:
    if not sizes:
        return ()
    largest = max(range(len(sizes)), key=lambda number: sizes[number].alive)
    beside = sum(size.alive for size in sizes) - sizes[largest].alive
    if _is_worn(sizes[largest]) or beside > _MAX_BESIDE * sizes[largest].alive:
        return tuple(range(len(sizes)))
    rest = [number for number in range(len(sizes)) if number != largest]
    return tuple(rest) if len(rest) > 1 or any(_is_worn(sizes[n]) for n in rest) else ()


def _is_worn(size: Size) -> bool:
    """Whether a segment is worth rebuilding."""
    unindexed = not size.indexed and size.rows > SMALL_ROWS
    return unindexed or size.dead > _MAX_DEAD_QUIET * size.rows


class Worker:
    """A thread that merges when it is woken.

    It starts with the first call of `wake`. It holds only a weak reference to the merge method, and
    ends when its owner is gone.

    Parameters
    ----------
    merge
        A method that merges once and returns whether there was something to merge. Its argument
        says whether nobody is writing.
    """

    def __init__(self, merge: Callable[[bool], bool]) -> None:
        self._merge = weakref.WeakMethod(merge)
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self._written = 0.0
        self._urgent = self._pending = self._stopping = False

    def wake(self, *, urgent: bool) -> None:
        """Merge at once if urgent, otherwise when nobody has written for a moment."""
        with self._condition:
            if self._stopping:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nearcast", daemon=True)
                self._thread.start()
            self._written = time.monotonic()
            if urgent or not self._pending:
                self._condition.notify()
            self._urgent |= urgent
            self._pending = True

    @property
    def pending(self) -> bool:
        """Whether the thread will merge as soon as nobody writes."""
        return self._pending

    def raise_failure(self) -> None:
        """Raise an error of the thread, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def stop(self) -> None:
        """Let the thread end after its current merge."""
        with self._condition:
            self._stopping = True
            self._condition.notify()

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while (quiet := self._next()) is not None:
            merge = self._merge()
            if merge is None:
                return
            try:
                while merge(quiet) and not (quiet or self._stopping):
                    pass
            except Exception as error:
                self._failure = error
            del merge

    def _next(self) -> bool | None:
        """Wait for work: False means at once, True that it is quiet, None the end."""
        with self._condition:
            while not self._stopping:
                if self._urgent:
                    self._urgent = False
                    return False
                if not self._pending:
                    self._condition.wait()
                    continue
                left = self._written + _QUIET_S - time.monotonic()
                if left <= 0:
                    self._pending = False
                    return True
                self._condition.wait(left)
            return None
