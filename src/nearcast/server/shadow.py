"""A folder that cannot be written: what it has is served from a shadow of it.

The shadow is a temporary folder with links to the files of the real one, and copies of the few that
are written while a server opens. Nothing in the real folder is changed. The server reads the shadow
and refuses what would have to be stored; the shadow is removed when it ends.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from nearcast.errors import StorageError
from nearcast.locks import LOCKS, lock_file, unlock_file
from nearcast.storage.log.disk import Disk

__all__ = ["Shadow", "ShadowDisk", "why_unwritable"]

_UNWRITABLE = {
    errno.EROFS: "its file system is read-only",
    errno.ENOSPC: "its disk is full",
    errno.EDQUOT: "its quota is used up",
}
_SQLITE = {"SQLITE_FULL": errno.ENOSPC, "SQLITE_READONLY": errno.EROFS}
_COPIED = ("state.db", "state.db-wal", "log/epoch")
_LEFT_OUT = ("state.db-shm", "log/LOCK", "log/spare")


def why_unwritable(error: BaseException | None) -> str | None:
    """Return why a folder cannot be written, if an error or its cause says so.

    Examples
    --------
    >>> why_unwritable(OSError(errno.EROFS, "Read-only file system"))
    'its file system is read-only'
    >>> why_unwritable(OSError(errno.EIO, "Input/output error"))
    """
    while error is not None:
        name = getattr(error, "sqlite_errorname", "")
        number = error.errno if isinstance(error, OSError) else None
        for prefix, meant in _SQLITE.items():
            if name.startswith(prefix):
                number = meant
        if number in _UNWRITABLE:
            return _UNWRITABLE[number]
        error = error.__cause__ or error.__context__
    return None


class ShadowDisk(Disk):
    """A disk whose files are opened for reading if they cannot be opened for writing."""

    def open(self, path: Path) -> int:
        """Open a file; the links of a shadow lead to files that are only read."""
        if path.is_symlink():
            return os.open(path, os.O_RDONLY)
        return super().open(path)


class Shadow:
    """The shadow of a server's folder.

    Parameters
    ----------
    folder
        The real folder.

    Attributes
    ----------
    path
        The shadow.

    Raises
    ------
    StorageError
        If another server has the folder open, or the temporary folder cannot be made either.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = _locked(folder)
        self.path = Path()
        try:
            self.path = Path(tempfile.mkdtemp(prefix="nearcast-shadow-"))
            self._mirror(folder.resolve())
        except OSError as error:
            self.close()
            problem = f"cannot be written, and its shadow cannot be made ({error.strerror})"
            raise StorageError(f"{folder}: {problem}; free some space, or set TMPDIR") from error

    def _mirror(self, folder: Path) -> None:
        last = max((folder / "log").glob("0*.log"), default=None)
        copied = {folder / name for name in _COPIED} | {last}
        left_out = {folder / name for name in _LEFT_OUT}
        for parent, folders, files in os.walk(folder):
            shadow = self.path / Path(parent).relative_to(folder)
            folders[:] = [name for name in folders if not name.endswith(".part")]
            for name in folders:
                (shadow / name).mkdir(mode=0o700)
            for name in files:
                path = Path(parent, name)
                if path in copied:
                    shutil.copyfile(path, shadow / name)  # others cannot get into the shadow
                    (shadow / name).chmod(0o600)
                elif path not in left_out:
                    (shadow / name).symlink_to(path)

    def close(self) -> None:
        """Remove the shadow."""
        if self.path != Path():
            shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            with suppress(OSError):
                unlock_file(self._lock)
            self._lock.close()


def _locked(folder: Path) -> IO[bytes] | None:
    """Lock the log of a folder, if it has one: nobody may write to it meanwhile."""
    try:
        file = open(folder / "log" / "LOCK", "rb")
    except OSError:
        return None
    if LOCKS and not lock_file(file):
        file.close()
        raise StorageError(f"{folder}: is already open, by another server; stop it first")
    return file
