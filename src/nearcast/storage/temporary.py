"""Files and folders that are written beside their target and take its place when complete.

A writer keeps its temporary file locked until it is done, and the operating system drops the lock
if the writer dies. Whoever writes to the same target next removes what nobody has locked.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from nearcast.locks import LOCKS, lock_file, names_file, unlock_file

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["TemporaryFile", "TemporaryFolder", "remove_leftovers", "sync_folder"]


class TemporaryFile:
    """A file beside its target, used as a context: it is removed unless it was published.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "report.txt"
    >>> with TemporaryFile(target) as temporary:
    ...     _ = temporary.path.write_text("complete")
    ...     temporary.publish()
    >>> target.read_text()
    'complete'
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        while True:
            self.path = _temporary_name(target, "part")
            self._file = open(self.path, "xb")
            if _lock(self._file, self.path):
                break
            self._file.close()

    def publish(self) -> None:
        """Bring the file to the disk and let it replace its target."""
        _sync(self._file)
        os.replace(self.path, self._target)

    def discard(self) -> None:
        """Remove the file unless it was published."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.discard()


class TemporaryFolder:
    """A folder beside its target, used as a context that removes whatever has its path at the end.

    Parameters
    ----------
    target
        The folder that is to be replaced.
    first
        The name of the file that is created first. It stays open, as ``file``, and locked.
    """

    def __init__(self, target: Path, first: str) -> None:
        self._first = first
        while True:
            self.path = _temporary_name(target, "new")
            self.path.mkdir()
            try:
                self.file = open(self.path / first, "xb")
            except FileNotFoundError:  # another writer took the empty folder for a leftover
                continue
            if _lock(self.file, self.path / first):
                break
            self.file.close()

    def sync(self) -> None:
        """Bring the first file to the disk; nothing can be written to it after that."""
        _sync(self.file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            self.file.close()


def remove_leftovers(target: Path, first: str = "") -> None:
    """Remove what writers of a target left beside it when they were killed.

    ``first`` is the file that a `TemporaryFolder` begins with.
    """
    name = re.compile(re.escape(f".{target.name}.") + r"[0-9a-f]{12}\.(part|new|old)")
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if not name.fullmatch(entry.name):
                continue
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    _remove_file(Path(entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    _remove_folder(Path(entry.path), target, first)


def sync_folder(folder: Path) -> None:
    """Bring the names of the files in a folder to the disk."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_file(path: Path) -> None:
    with _locked_leftover(path) as dead:
        if dead:
            path.unlink()


def _remove_folder(path: Path, target: Path, first: str) -> None:
    names = os.listdir(path)
    if not names:
        path.rmdir()  # fails if its writer has just begun
    elif path.suffix == ".old" and not target.exists():
        return  # a writer was killed after it had moved the target away: this is the only copy
    elif first not in names:
        shutil.rmtree(path)  # killed while it was being removed
    else:
        with _locked_leftover(path / first) as dead:
            if dead:
                shutil.rmtree(path)


@contextmanager
def _locked_leftover(path: Path) -> Iterator[bool]:
    """Lock a file if nobody else has; say whether that worked, which is when its writer is dead."""
    with open(path, "rb+") as file:
        dead = lock_file(file)
        try:
            yield dead
        finally:
            if dead:
                unlock_file(file)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
    if not LOCKS:
        file.close()  # Windows does not rename open files


def _temporary_name(target: Path, suffix: str) -> Path:
    return target.parent / f".{target.name}.{secrets.token_hex(6)}.{suffix}"


def _lock(file: BinaryIO, path: Path) -> bool:
    """Lock a new file; return False if another writer took it for a leftover."""
    try:
        return lock_file(file) and names_file(path, file)
    except OSError:
        return True  # without locks nothing is taken for a leftover
