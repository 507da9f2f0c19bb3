"""Compiled kernels on disk: where they are, when they are valid, and who compiles them.

::

    ~/.cache/nearcast/kernels/                      NEARCAST_CACHE_DIR or XDG_CACHE_HOME moves it
        compiled.shapes/                            one folder per module
            lock                                    held by the process that compiles
            touches_shape-3f0c61d29b7e5a84-9c2e77f01d3b6a58.nbc

There is one file per kernel, digest of its code (see `nearcast.compiled.digest`) and types of its
arguments. It holds a checksum and a pickle of what Numba compiled. Files appear complete, in one
step, so loading needs no lock; the lock only keeps processes from compiling the same kernel twice.

Pickles run code when they are loaded. The cache is therefore used only if nobody but this user
(and root) can write to it; see `private_folder`.

The cache is an optimization: whatever goes wrong with it, kernels are compiled in memory, and one
warning per process says why.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import shutil
import stat
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from nearcast.locks import LOCKS, lock_file, names_file, unlock_file

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ModuleFolder",
    "UnsafeFolder",
    "cache_folder",
    "compiled_kernels",
    "count_compiled",
    "lasting_folder",
    "module_folder",
    "note_use",
    "private_folder",
    "warn",
]

PACKAGE = Path(__file__).parents[1]

LOCK_TIMEOUT_S = 600.0
"""How long to wait for another process to compile a module before compiling it as well."""

MAX_UNUSED_S = 30 * 86_400.0
"""Files are removed after this long without use."""

_TOUCH_S = 86_400.0
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_TEMPORARY = "nearcast-cache-"

_warned = False
_compiled = 0


def compiled_kernels() -> int:
    """Return how many kernels this process has compiled."""
    return _compiled


def count_compiled() -> None:
    """Count a kernel that was compiled."""
    global _compiled
    _compiled += 1


def warn(problem: Exception) -> None:
    """Warn, once per process, that the cache does not work."""
    global _warned
    if _warned:
        return
    _warned = True
    message = f"kernels are compiled again, without their cache: {problem}"
    if isinstance(problem, OSError):
        message += "; set NEARCAST_CACHE_DIR to a folder that you, and nobody else, can write to"
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    except RuntimeWarning:
        # Warnings are errors in this process. A kernel must not fail because of its cache.
        logging.getLogger("nearcast").warning(message)


class UnsafeFolder(OSError):
    """A folder into which other users could put files."""


def private_folder(folder: Path) -> Path:
    """Return a folder, its links resolved, that only this user and root can write to.

    It is created if it is missing, and so are its parents. It must belong to this user and must
    not be writable by others. Its parents must belong to this user or to root, and be writable by
    others only where the sticky bit keeps them from replacing what is not theirs, as in ``/tmp``.

    Raises
    ------
    UnsafeFolder
        When other users can write to it, or put another folder in its place.
    OSError
        When it cannot be created.
    """
    resolved = Path(os.path.realpath(folder))
    if not hasattr(os, "geteuid"):  # Windows: the profile of a user is private by default
        resolved.mkdir(parents=True, exist_ok=True)
        return resolved
    user = os.geteuid()
    above: os.stat_result | None = None
    for path in [*reversed(resolved.parents), resolved]:
        if above is not None and _open_to_others(above):
            raise UnsafeFolder(f"{path.parent} can be written to by other users")
        found = _stat_or_create(path)
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(f"{path} is not a folder")
        if found.st_uid not in (user, 0):
            raise UnsafeFolder(f"{path} belongs to another user (uid {found.st_uid})")
        above = found
    _check_own(resolved, found)
    return resolved


def _check_own(folder: Path, found: os.stat_result) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{folder} is not a folder")
    if found.st_uid != os.geteuid():
        raise UnsafeFolder(f"{folder} belongs to another user (uid {found.st_uid})")
    if found.st_mode & _OTHERS_WRITE:
        raise UnsafeFolder(f"{folder} can be written to by other users (run: chmod go-w)")


def _stat_or_create(path: Path) -> os.stat_result:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        return os.lstat(path)


def _open_to_others(parent: os.stat_result) -> bool:
    """Whether others can replace what is inside a folder of this user or of root."""
    if parent.st_mode & stat.S_ISVTX:
        return False
    if parent.st_mode & stat.S_IWOTH:
        return True
    return bool(parent.st_mode & stat.S_IWGRP) and not _is_own_group(parent.st_gid)


def _is_own_group(group: int) -> bool:
    """Whether a group has this user as its only member.

    Many systems give every user such a group, and a umask that makes new folders writable by it.
    Group 0 never counts: containers that run as arbitrary users share it.
    """
    import grp
    import pwd

    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    own = group != 0 and group == user.pw_gid and entry.gr_name == user.pw_name
    return own and set(entry.gr_mem) <= {user.pw_name}


def cache_folder(name: str) -> Path:
    """Return a private folder for one kind of cached files, created if it is missing.

    It is inside ``NEARCAST_CACHE_DIR``, else inside ``nearcast`` in ``XDG_CACHE_HOME`` or
    ``~/.cache``. Where that is not private or cannot be written, a warning says so, and the folder
    is a temporary one that is removed when the process ends.
    """
    try:
        return lasting_folder(name)
    except OSError as error:
        warn(error)
        folder = _temporary_root(os.getpid()) / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder


def lasting_folder(name: str) -> Path:
    """Return a folder of the cache that outlives the process; raise `OSError` if there is none."""
    folder = private_folder(_root()) / name
    found = _stat_or_create(folder)
    if hasattr(os, "geteuid"):
        _check_own(folder, found)
    return folder


def _root() -> Path:
    if given := os.environ.get("NEARCAST_CACHE_DIR"):
        return _absolute(given)
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if not os.path.isabs(caches):
        raise FileNotFoundError("there is no home folder")
    return Path(caches, "nearcast")


@functools.cache
def _absolute(path: str) -> Path:
    """Return an absolute path that stays the same when the process changes its folder."""
    return Path(os.path.abspath(path))


@functools.cache
def _temporary_root(process: int) -> Path:
    """Return a new private folder that is removed at exit; a forked process gets its own."""
    _remove_temporary_roots()
    while True:
        root = Path(tempfile.mkdtemp(prefix=_TEMPORARY))
        lock = open(root / "lock", "xb")
        try:
            if lock_file(lock) and names_file(root / "lock", lock):
                break
        except OSError:  # without locks, only the exit of this process removes the folder
            break
        lock.close()

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(root, ignore_errors=True)
        lock.close()

    atexit.register(remove)
    return root


def _remove_temporary_roots() -> None:
    """Remove the temporary folders of processes that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):
            if hasattr(os, "geteuid") and os.lstat(path).st_uid != os.geteuid():
                continue
            with open(path / "lock", "rb+") as lock:
                if lock_file(lock):
                    shutil.rmtree(path, ignore_errors=True)


class ModuleFolder:
    """The cached kernels of one module."""

    def __init__(self, module: str) -> None:
        self._name = module.removeprefix(f"{PACKAGE.name}.")
        self._locks = 0
        self._tidied = False

    def open(self) -> Path:
        """Return the folder, created if it is missing; raise `OSError` unless it is private."""
        # Checked every time: the folder may have been deleted, and made again by somebody else.
        folder = lasting_folder("kernels") / self._name
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        return folder

    def tidy(self) -> None:
        """Remove, once per process, the files that nobody used for a month."""
        if self._tidied:
            return
        self._tidied = True
        oldest = time.time() - MAX_UNUSED_S
        for file in self.open().iterdir():
            # A process that wanted to load it finds less than it hoped for, and compiles.
            with contextlib.suppress(OSError):
                if file.name != "lock" and file.stat().st_mtime < oldest:
                    file.unlink()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the module, so that no other process compiles it.

        Compiling a kernel compiles the kernels that it calls, so a process may hold the locks of
        several modules. It takes them in the order in which modules import each other. As there
        are no cycles among imports, two processes never wait for each other. Threads of one
        process are kept apart by Numba's own lock.
        """
        with contextlib.ExitStack() as stack:
            if self._locks == 0 and LOCKS:
                try:
                    stack.enter_context(self._file_lock())
                except Exception as error:
                    warn(error)
            self._locks += 1
            try:
                yield
            finally:
                self._locks -= 1

    @contextlib.contextmanager
    def _file_lock(self) -> Iterator[None]:
        path = self.open() / "lock"
        with open(path, "ab") as lock:
            if not lock_file(lock, timeout_s=LOCK_TIMEOUT_S):
                raise TimeoutError(f"{path} is locked by another process")
            # If the folder was removed meanwhile, this lock keeps nobody out. Then a kernel may be
            # compiled twice, which is harmless.
            try:
                yield
            finally:
                unlock_file(lock)


@functools.cache
def module_folder(module: str) -> ModuleFolder:
    """Return the folder of a module."""
    return ModuleFolder(module)


def note_use(file: Path) -> None:
    """Let the time of a file show that it is in use."""
    with contextlib.suppress(OSError):
        if time.time() - file.stat().st_mtime > _TOUCH_S:
            os.utime(file)
