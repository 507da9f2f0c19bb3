"""The clock of an artifact: each time has one version, and that answer never changes.

A stream asks which version was in force when a micro-batch began. Many tasks ask, and a restarted
stream asks again, so all of them must get the same answer, even while new versions are committed.
A version is in force from its ``created_ms`` until that of the next one. Therefore a new version
must get a time later than every time that somebody has already asked about::

    clock/lock            locked alone while a version gets its time and appears, or is dropped
    clock/1700000000123   somebody has asked about this time; only the latest such file is kept
    clock/commit-1f2e...  where files cannot be locked: a version is being committed

Both sides announce themselves before they look at the other side:

- Who asks about a time T first writes ``clock/T``, then waits for the commit that holds the lock,
  if any, and only then looks at the versions.
- Who commits takes the lock, then reads ``clock/T`` and the last version, takes a time later than
  both, and writes the version before it releases the lock.

So a commit either sees T and takes a later time, or the one who asks waits for the commit and sees
its version. This does not depend on clocks: it holds when a clock is set back, and between machines
whose clocks differ, as long as they see each other's files at once (a local disk, a cluster file
system, NFS with ``lookupcache=none``, an object store with consistent listings).

Clocks only decide when a version takes effect. A commit returns when its time has come, so that the
next micro-batch gets the new version. It raises an error if that time is more than `MAX_AHEAD_S`
away, because another machine's clock must be wrong.

Two limits remain. Where files cannot be locked, a commit that has been announced for `COMMIT_S`
seconds is taken for dead. And who may not write to the artifact cannot announce a time: such a
reader waits until its own clock has passed T, and relies on clocks that agree.
"""

from __future__ import annotations

import secrets
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nearcast.errors import StorageError
from nearcast.spark.artifact.locks import exclusive_lock, shared_lock, supports_locks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nearcast.spark.artifact.folders import Folder

__all__ = ["Clock"]

MAX_AHEAD_S = 60.0
"""How far ahead of this machine's clock the times in an artifact may be."""

COMMIT_S = 60.0
"""How long a commit may take where files cannot be locked."""

_COMMIT = "commit-"
_POLL_S = 0.02


class Clock:
    """The times of an artifact's versions.

    Examples
    --------
    >>> import tempfile
    >>> from nearcast.spark.artifact.folders import open_folder
    >>> clock = Clock(open_folder(tempfile.mkdtemp()))
    >>> now = now_ms() + 500
    >>> clock.close_until(now)
    >>> with clock.committing():
    ...     clock.next_time(0) > now
    True
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    @property
    def lockable(self) -> bool:
        """Whether files of the artifact can be locked."""
        return supports_locks(self._lock_file())

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Let nobody else commit or drop a version, and let those who ask for one wait."""
        lock = self._lock_file()
        if lock is not None and supports_locks(lock):
            with exclusive_lock(lock):
                yield
            return
        announced = f"clock/{_COMMIT}{secrets.token_hex(8)}"
        self._folder.create(announced, b"")
        try:
            yield
        finally:
            self._folder.remove(announced)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let nobody commit or drop a version for a moment."""
        with shared_lock(self._lock_file()):
            yield

    def next_time(self, last_ms: int) -> int:
        """Return the time of a version that follows one of ``last_ms``; call while `committing`.

        Raises
        ------
        StorageError
            When that time is too far ahead of this machine's clock.
        """
        asked_ms = max(self._asked(), default=0)
        now, earliest = now_ms(), max(last_ms, asked_ms) + 1
        if earliest > now + MAX_AHEAD_S * 1000:
            what, remedy = "the version in force is dated", "build into a new folder"
            if asked_ms > last_ms:
                what = f"clock/{_name(asked_ms)}: a stream has asked for the version at"
                remedy = "remove that file"
            raise StorageError(
                f"{self._folder.uri}: {what} {_shown(earliest - 1)}, but this machine's clock says "
                f"{_shown(now)}; correct the clock that is wrong, or {remedy}"
            )
        return max(now, earliest)

    def close_until(self, time_ms: int) -> None:
        """Make sure that no version appears any more whose time is at or before this one."""
        asked = self._asked()
        try:
            if time_ms > max(asked, default=-1):
                with suppress(FileExistsError):
                    self._folder.create(f"clock/{_name(time_ms)}", b"")
        except OSError:  # a reader that may not write
            wait_until(time_ms + 1)
        self._await_commits()
        # A commit that lists these files may miss a new one that appears and an old one that is
        # removed meanwhile. So old ones are removed when all commits that run can see the new one.
        with suppress(OSError):
            for earlier in asked:
                if earlier < time_ms:
                    self._folder.remove(f"clock/{_name(earlier)}")

    def _await_commits(self) -> None:
        """Wait for the commits that run now."""
        lock = self._lock_file(create=False)
        if lock is not None and supports_locks(lock):
            # Alone, though it only reads: many who share a lock can keep a commit waiting for ever.
            with exclusive_lock(lock):
                return
        patience = time.monotonic() + COMMIT_S
        running = {name for name in self._folder.names("clock") if name.startswith(_COMMIT)}
        while running and time.monotonic() < patience:
            time.sleep(_POLL_S)
            running &= set(self._folder.names("clock"))
        for dead in running:
            self._folder.remove(f"clock/{dead}")

    def _asked(self) -> list[int]:
        """Return the times that somebody has asked about, as far as they are kept."""
        return [int(name) for name in self._folder.names("clock") if name.isdecimal()]

    def _lock_file(self, *, create: bool = True) -> Path | None:
        local = self._folder.local
        if local is None:
            return None
        path = local / "clock" / "lock"
        if create and not path.exists():
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        return path


def now_ms() -> int:
    """Return what this machine's clock says, in milliseconds."""
    return time.time_ns() // 1_000_000


def wait_until(time_ms: int) -> None:
    """Wait until this machine's clock has come to a time."""
    while (left := time_ms - now_ms()) > 0:
        time.sleep(left / 1000)


def _name(time_ms: int) -> str:
    return f"{time_ms:015d}"


def _shown(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
