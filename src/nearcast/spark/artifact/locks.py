"""File locks. The operating system releases them when their process ends, even if it is killed.

They are advisory ``flock`` locks: they work between processes of one machine, and between machines
on shared file systems that support them. Where a file cannot be locked, nothing is locked and
`supports_locks` says so; callers then use a time limit instead.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["exclusive_lock", "open_shared_lock", "shared_lock", "supports_locks", "try_lock"]


def supports_locks(path: Path | None) -> bool:
    """Return whether a file can be locked: it is on a disk of this machine, or mounted there."""
    file = _open(path)
    if file is None:
        return False
    with file:
        return _lock(file, alone=False, wait=False) is not None


@contextmanager
def shared_lock(path: Path | None) -> Iterator[None]:
    """Lock a file together with others; a file that does not exist is not locked."""
    file = open_shared_lock(path)
    try:
        yield
    finally:
        if file is not None:
            file.close()


@contextmanager
def exclusive_lock(path: Path | None) -> Iterator[None]:
    """Lock a file alone; wait for others. A file that does not exist is not locked."""
    file = _open(path)
    if file is None:
        yield
        return
    with file:
        _lock(file, alone=True, wait=True)
        yield


@contextmanager
def try_lock(path: Path | None) -> Iterator[bool]:
    """Lock a file alone unless others hold it, and tell whether that worked.

    Nobody holds a file that does not exist or cannot be locked.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "lock"
    >>> path.touch()
    >>> with shared_lock(path), try_lock(path) as locked:
    ...     print(locked)
    False
    >>> with try_lock(path) as locked:
    ...     print(locked)
    True
    """
    file = _open(path)
    if file is None:
        yield True
        return
    with file:
        yield _lock(file, alone=True, wait=False) is not False


def open_shared_lock(path: Path | None) -> IO[bytes] | None:
    """Lock a file together with others until the returned file is closed.

    Returns None where the file does not exist. A file that was removed while this waited for the
    lock counts as one that does not exist.
    """
    file = _open(path)
    if file is None:
        return None
    _lock(file, alone=False, wait=True)
    if path is None or not path.exists():
        file.close()
        return None
    return file


def _open(path: Path | None) -> IO[bytes] | None:
    if fcntl is None or path is None:
        return None
    try:
        return open(path, "r+b")  # NFS locks alone only what is open for writing
    except FileNotFoundError:
        return None
    except OSError:
        return open(path, "rb")


def _lock(file: IO[bytes], *, alone: bool, wait: bool) -> bool | None:
    """Return whether the file is locked now; None where its file system has no locks."""
    mode = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    try:
        fcntl.flock(file, mode if wait else mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
