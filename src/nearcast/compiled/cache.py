"""Compiled kernels on disk: where they are, when they are valid, and who compiles them.

::

    ~/.cache/nearcast/kernels/                      NEARCAST_CACHE_DIR or XDG_CACHE_HOME moves it
        compiled.shapes-3f0c61d29b7e5a84/           one folder per module and state of its sources
            lock                                    held by the process that compiles
            touches_shape-41-9c2e77f01d3b6a58.nbc   one file per kernel and types of its arguments

A file holds a checksum and a pickle of what Numba compiled. Files appear complete, in one step, so
loading needs no lock; the lock only keeps processes from compiling the same kernel twice.

Pickles run code when they are loaded. The cache is therefore used only if nobody but this user
(and root) can write to it; see `private_folder`.

The cache is an optimization: whatever goes wrong with it, kernels are compiled in memory, and one
warning per process says why.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import logging
import os
import pickle
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.serialize import dumps

from nearcast.locks import LOCKS, lock_file, names_file, unlock_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["KernelCache", "cache_folder", "imported_files", "private_folder", "source_digest"]

PACKAGE = Path(__file__).parents[1]

LOCK_TIMEOUT_S = 600.0
"""How long to wait for another process to compile a module before compiling it as well."""

MAX_UNUSED_S = 30 * 86_400.0
"""Folders of other states of a module are removed after this long without use."""

_TOUCH_S = 86_400.0
_CHECKSUM_BYTES = 32
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_TEMPORARY = "nearcast-cache-"

_COMMENT = re.compile(r"#[^\n]*|\\\n")
_FROM = re.compile(r"^[ \t]*from[ \t]+(nearcast[\w.]*)[ \t]+import\b([ \t]*\([^)]*\)|[^\n]*)", re.M)
_IMPORT = re.compile(r"^[ \t]*import[ \t]+([^\n]*\bnearcast\b[^\n]*)", re.M)

_warned = False


def _warn(problem: Exception) -> None:
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
        return _lasting_folder(name)
    except OSError as error:
        _warn(error)
        folder = _temporary_root(os.getpid()) / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder


def _lasting_folder(name: str) -> Path:
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


@functools.cache
def _modules() -> dict[str, Path]:
    """Return the source files of this package by the names of their modules."""
    modules = {}
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return modules


@functools.cache
def _read_source(source: Path) -> bytes:
    """Return the content of a source file when it was first read.

    If the file changes later, this process still runs, and compiles, what it had imported.
    """
    return source.read_bytes()


@functools.cache
def imported_files(source: Path) -> frozenset[Path]:
    """Return the files of this package that a source file imports, wherever in it.

    Searching the text takes a tenth of the time of parsing it, and every process does it when it
    starts. Imports must be absolute.
    """
    text = _COMMENT.sub("", _read_source(source).decode())
    names: list[str] = []
    for module, imported in _FROM.findall(text):
        names += [module, *(f"{module}.{name}" for name in re.findall(r"\w+", imported))]
    for imported in _IMPORT.findall(text):
        names += re.findall(r"[\w.]+", imported)
    modules = _modules()
    return frozenset(modules[name] for name in names if name in modules)


@functools.cache
def source_digest(source: Path) -> str:
    """Return a digest of a source file and of all files of this package that it imports.

    Constants and functions of imported files are compiled into a kernel, which Numba's own cache
    does not notice.
    """
    seen, waiting = {source}, [source]
    while waiting:
        new = imported_files(waiting.pop()) - seen
        seen |= new
        waiting += new
    digest = hashlib.sha256(f"{numba.__version__} {sys.version}".encode())
    for file in sorted(seen):
        content = _read_source(file)
        digest.update(f"\0{file.name} {len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


class ModuleFolder:
    """The cached kernels of one source file, in the state that was imported."""

    def __init__(self, source: Path) -> None:
        inside = source.relative_to(PACKAGE) if source.is_relative_to(PACKAGE) else source.name
        self._module = ".".join(Path(inside).with_suffix("").parts)
        self._digest = source_digest(source)
        self._locks = 0
        self._touched = False

    def open(self) -> Path:
        """Return the folder, created if it is missing; raise `OSError` unless it is private."""
        # Checked every time: the folder may have been deleted, and made again by somebody else.
        parent = _lasting_folder("kernels")
        folder = parent / f"{self._module}-{self._digest}"
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            self._touch(folder)
        else:
            self._remove_unused(parent, folder)
        return folder

    def _touch(self, folder: Path) -> None:
        """Let the time of the folder show that it is in use."""
        if not self._touched:
            self._touched = True
            with contextlib.suppress(OSError):
                if time.time() - folder.stat().st_mtime > _TOUCH_S:
                    os.utime(folder)

    def _remove_unused(self, parent: Path, folder: Path) -> None:
        """Remove the folders of other states of this module that nobody used for a month."""
        pattern = re.compile(re.escape(self._module) + "-[0-9a-f]{16}")
        for other in parent.iterdir():
            if other == folder or not pattern.fullmatch(other.name):
                continue
            with contextlib.suppress(OSError):
                if time.time() - other.stat().st_mtime < MAX_UNUSED_S:
                    continue
                # A process that compiles holds the lock. One that loads finds less than it hoped
                # for, and compiles.
                with open(other / "lock", "ab") as lock:
                    if lock_file(lock):
                        shutil.rmtree(other, ignore_errors=True)

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
                    _warn(error)
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
def _module_folder(source: Path) -> ModuleFolder | None:
    """Return the folder of a source file; None if it cannot be read, as in a zip archive."""
    try:
        return ModuleFolder(source)
    except (OSError, ValueError):
        return None


class KernelCache(_Cache):  # type: ignore[misc]
    """The compiled forms of one kernel, in the shape that Numba's dispatcher expects.

    No method raises: without a usable cache, nothing is found and nothing is saved.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        code = function.__code__
        name = re.sub(r"\W+", ".", function.__qualname__)
        self._name = f"{name}-{code.co_firstlineno}"
        # Closures are not cached: what they enclose is not part of their source.
        closed = function.__closure__ is not None
        self._folder = None if closed else _module_folder(Path(code.co_filename))
        self._compilations: list[contextlib.ExitStack] = []

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Surround everything that the dispatcher does to load or compile the kernel."""
        # Numba's own lock, not another one: Numba holds it when a kernel is compiled because
        # somebody's function calls it, and two locks would be taken in both orders.
        with global_compiler_lock, contextlib.ExitStack() as stack:
            self._compilations.append(stack)
            try:
                yield
            finally:
                self._compilations.pop()

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return the compiled form for a signature; None where it must be compiled.

        In that case the module is locked until the end of `compiling`.
        """
        target_context.refresh()
        if self._folder is None:
            return None
        found = self._load(signature, target_context)
        if found is None and self._compilations:
            self._compilations[-1].enter_context(self._folder.locked())
            found = self._load(signature, target_context)
        return found

    def save_overload(self, signature: Any, data: Any) -> None:
        """Save the compiled form for a signature."""
        if self._folder is None or data.library.has_dynamic_globals or any(data.lifted):
            return
        try:
            key = _key(signature, data.codegen)
            content = dumps((key, data._reduce()))
            content = hashlib.sha256(content).digest() + content
            try:
                _write(self._file(key), content)
            except FileNotFoundError:  # the folder was removed just now
                _write(self._file(key), content)
        except Exception as error:
            _warn(error)

    def _load(self, signature: Any, target_context: Any) -> Any:
        try:
            key = _key(signature, target_context.codegen())
            file = self._file(key)
            content = _read(file)
            if content is None:
                return None
            found, payload = pickle.loads(content)
            return CompileResult._rebuild(target_context, *payload) if found == key else None
        except Exception as error:
            _warn(error)
            return None

    def _file(self, key: tuple[Any, ...]) -> Path:
        assert self._folder is not None
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        return self._folder.open() / f"{self._name}-{digest}.nbc"

    @property
    def cache_path(self) -> str | None:
        """The folder of the kernel's module, for Numba's statistics."""
        try:
            return None if self._folder is None else str(self._folder.open())
        except OSError:
            return None

    def flush(self) -> None:
        """Remove everything that is cached of this kernel."""
        if self.cache_path is not None:
            for file in Path(self.cache_path).glob(f"{self._name}-*.nbc"):
                file.unlink(missing_ok=True)

    def enable(self) -> None:
        """Do nothing: the cache is always enabled."""

    def disable(self) -> None:
        """Do nothing: the cache is always enabled."""


def _key(signature: Any, codegen: Any) -> tuple[Any, ...]:
    """Return what a compiled form depends on besides the sources: types and processor."""
    return (signature, codegen.magic_tuple())


def _read(path: Path) -> bytes | None:
    """Return the content of a cache file, None if there is none; raise if it is damaged."""
    try:
        with open(path, "rb") as file:
            if hasattr(os, "geteuid") and os.fstat(file.fileno()).st_uid != os.geteuid():
                raise UnsafeFolder(f"{path} belongs to another user")
            raw = file.read()
    except FileNotFoundError:
        return None
    content = raw[_CHECKSUM_BYTES:]
    if hashlib.sha256(content).digest() != raw[:_CHECKSUM_BYTES]:
        raise ValueError(f"{path} is damaged")
    return content


def _write(path: Path, content: bytes) -> None:
    """Write a cache file so that it appears complete or not at all."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(6)}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
