"""The folder of a server is open to one user of the machine only: 0700, and its files 0600.

Who can read it could sign tokens for everything, and send in the name of every webhook.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nearcast.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["close_to_others", "private_files"]

_log = logging.getLogger("nearcast.server")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OURS = {"log", "events", "checkpoint", "state.db", "kafka"}
_ANYWHERE = {"lost+found"}  # every file system of ext4 begins with it


@contextmanager
def private_files() -> Iterator[None]:
    """Let only this user read what the process makes, until the end of the block."""
    before = os.umask(_OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def close_to_others(folder: Path) -> None:
    """Make the folder of a server if it is not there, and close it if others can look into it.

    What is mended is logged in one line: others may have read the keys before.

    Raises
    ------
    StorageError
        If it cannot be made or closed, or has files of something else than a server.
    """
    try:
        folder.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
        if os.name == "nt":  # permissions are inherited there, and modes say nothing
            return
        mode = _mode(folder)
        if mode & _OTHERS:
            _check_contents(folder)
            _close(folder)
        files = _close_contents(folder)
    except StorageError:
        raise
    except OSError as error:
        if error.errno == errno.EROFS and folder.is_dir():
            _log.warning("%s: cannot be closed to other users: %s", folder, error.strerror)
            return
        problem = f"cannot be made, or closed to other users ({error.strerror})"
        remedy = "choose another folder, or one below it, which is made with the right owner"
        raise StorageError(f"{folder}: {problem}; {remedy}") from error
    if mode & _OTHERS:
        _log.warning(
            "%s was open to other users of this machine (mode %04o), and is closed to them now; "
            "if one may have read it, make new keys and run: nearcast keys end-tokens",
            folder,
            mode,
        )
    elif files:
        _log.warning("%s: %d files were readable by others, and are closed now", folder, files)


def _check_contents(folder: Path) -> None:
    """Raise an error for a folder such as /tmp, which others need."""
    names = {name for name in os.listdir(folder) if not name.startswith(".")} - _ANYWHERE
    if names and not names & _OURS:
        raise StorageError(
            f"{folder}: is open to other users and has files that are not of a server, such as "
            f"{min(names)!r}; choose a new or an empty folder, such as {folder / 'nearcast-data'}"
        )


def _close_contents(folder: Path) -> int:
    """Close what is in a folder; return how many files and folders were open."""
    opened = 0
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            try:
                if not path.is_symlink() and _mode(path) & _OTHERS:
                    _close(path)
                    opened += 1
            except FileNotFoundError:  # a file of SQLite that another process has just removed
                continue
    return opened


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _close(path: Path) -> None:
    path.chmod(_mode(path) & ~_OTHERS)
    if _mode(path) & _OTHERS:
        raise OSError(errno.ENOTSUP, "its file system has no permissions")
