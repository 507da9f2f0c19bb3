"""Locks on files, which are gone when their holder dies, however it dies."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

try:
    import fcntl
except ImportError:  # Windows has no such locks: there, only time tells
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["LOCKS", "claimed", "held"]

LOCKS = fcntl is not None
"""Whether this system has such locks."""


@contextmanager
def held(path: Path | None, *, alone: bool) -> Iterator[None]:
    """Hold a file, alone or together with others; no file, or one that is gone, is no matter."""
    try:
        file = open(path, "rb") if LOCKS and path is not None else None
    except FileNotFoundError:
        file = None
    if file is None:
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@contextmanager
def claimed(path: Path | None) -> Iterator[bool]:
    """Hold a file alone if nobody else holds it, and say whether that is so.

    Where there is no file, or there are no locks, nobody can hold it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "lock"
    >>> path.touch()
    >>> with held(path, alone=False), claimed(path) as mine:
    ...     print(mine)
    False
    >>> with claimed(path) as mine:
    ...     print(mine)
    True
    """
    try:
        file = open(path, "rb") if LOCKS and path is not None else None
    except FileNotFoundError:
        file = None
    if file is None:
        yield True
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            mine = False
        else:
            mine = True
        yield mine
