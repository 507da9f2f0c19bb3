"""Exclusive locks on open files, which the operating system releases when their holder dies."""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

__all__ = ["LOCKS", "lock_file", "names_file", "unlock_file"]

LOCKS = fcntl is not None
"""Whether this system has such locks."""

_POLL_S = 0.02


def lock_file(file: IO[Any], *, timeout_s: float = 0.0) -> bool:
    """Lock an open file for this process; return False if another one keeps its lock.

    Raises
    ------
    OSError
        When the system or the file system has no locks.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as mine, open(mine.name, "ab") as other:
    ...     lock_file(mine), lock_file(other)
    (True, False)
    """
    if not LOCKS:
        raise OSError(errno.ENOTSUP, "this system has no file locks")
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        else:
            return True


def unlock_file(file: IO[Any]) -> None:
    """Release the lock of an open file.

    Closing the file is not enough when the process forked in between: the child still has it open.
    """
    if LOCKS:
        fcntl.flock(file, fcntl.LOCK_UN)


def names_file(path: Path, file: IO[Any]) -> bool:
    """Whether a path still leads to this open file, and not to another one or to none."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
