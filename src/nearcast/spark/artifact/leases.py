"""Leases: a driver keeps the versions that its job reads from being dropped.

Between its tasks, no worker reads a version. So the driver holds one from planning to the end of
the job. A lease is a shared lock, which ends with the driver's process at the latest:

- A batch holds one version: the lock is on the file of the version, as for workers that read it.
- A stream holds a version and all later ones, which its next micro-batches may need. The lock is on
  ``leases/00000007``.

Where files cannot be locked, a lease does nothing: there, `nearcast.spark.compact` keeps versions
for a time.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from nearcast.errors import StorageError
from nearcast.spark.artifact.locks import open_shared_lock, try_lock

if TYPE_CHECKING:
    from pathlib import Path

    from nearcast.spark.artifact.versions import Artifact

__all__ = ["Lease", "StreamLease", "lease_version", "leased_from"]

_FOLDER = "leases"


class Lease:
    """One version that stays until `release` is called or the process ends."""

    def __init__(self, artifact: Artifact, file: IO[bytes] | None) -> None:
        self.artifact = artifact
        self._file = file

    @property
    def held(self) -> bool:
        """Whether it still keeps a version."""
        return self._file is not None and not self._file.closed

    def release(self) -> None:
        """Let the version go."""
        if self._file is not None:
            self._file.close()


def lease_version(artifact: Artifact, number: int) -> Lease:
    """Hold a version.

    Raises
    ------
    StorageError
        When the version has been dropped.

    Examples
    --------
    >>> import tempfile
    >>> from nearcast.spark.artifact.versions import Artifact, Version
    >>> artifact = Artifact(tempfile.mkdtemp())
    >>> for _ in range(2):
    ...     made = artifact.commit(Version("trie-pyramid", {}, "string", ()))
    >>> lease = lease_version(artifact, 1)
    >>> artifact.drop(1)
    False
    >>> lease.release()
    >>> artifact.drop(1)
    True
    """
    file = open_shared_lock(artifact.version_path(number))
    if file is None:
        artifact.read(number)  # raises if it is gone
    return Lease(artifact, file)


class StreamLease(Lease):
    """A version and all later ones. At first, all versions that there are."""

    def __init__(self, artifact: Artifact) -> None:
        super().__init__(artifact, _lock_from(artifact, 0))
        self._first = 0

    def advance(self, time_ms: int) -> None:
        """Let the versions go that were replaced before a time."""
        try:
            first = self.artifact.number_at(time_ms)
        except StorageError:
            return
        if first > self._first and self.held:
            later = _lock_from(self.artifact, first)
            if later is not None:
                self.release()
                self._file, self._first = later, first


def leased_from(artifact: Artifact) -> int | None:
    """Return from which version on streams hold all versions; call while nobody else commits."""
    local = artifact.folder.local
    if local is None:
        return None
    held = []
    for name in artifact.folder.names(_FOLDER):
        if name.isdecimal():
            with try_lock(local / _FOLDER / name) as unused:
                if unused:
                    artifact.folder.remove(f"{_FOLDER}/{name}")
                else:
                    held.append(int(name))
    return min(held, default=None)


def _lock_from(artifact: Artifact, number: int) -> IO[bytes] | None:
    local = artifact.folder.local
    if local is None:
        return None
    path: Path = local / _FOLDER / f"{number:08d}"
    # Unused files are removed only while somebody commits or drops a version.
    with artifact.clock.reading():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        except OSError:  # who may not write holds at least the version in force now
            return open_shared_lock(artifact.version_path(max(number, artifact.numbers()[-1])))
        return open_shared_lock(path)
