"""The compiled forms of one kernel in the cache, in the shape that Numba's dispatcher expects.

`nearcast.compiled.cache` has the folders, `nearcast.compiled.digest` what a kernel depends on.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import os
import pickle
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.serialize import dumps

from nearcast.compiled.cache import UnsafeFolder, count_compiled, module_folder, note_use, warn
from nearcast.compiled.digest import UnknownPart, kernel_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["KernelCache"]

_CHECKSUM_BYTES = 32


class KernelCache(_Cache):  # type: ignore[misc]
    """The compiled forms of one kernel, in the shape that Numba's dispatcher expects.

    No method raises: without a usable cache, nothing is found and nothing is saved.
    """

    _suffix = ""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._folder = module_folder(function.__module__)
        self._compilations: list[contextlib.ExitStack] = []

    @functools.cached_property
    def _name(self) -> str | None:
        """The beginning of the names of its files; None if it cannot be cached."""
        try:
            digest = kernel_digest(self._function)
        except UnknownPart as error:
            warn(error)
            return None
        name = re.sub(r"\W+", ".", self._function.__qualname__)
        return f"{name}-{digest}{self._suffix}"

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Surround everything that the dispatcher does to load or compile the kernel."""
        # Numba's own lock, not another one: Numba holds it when a kernel is compiled because
        # somebody's function calls it, and two locks would be taken in both orders.
        with global_compiler_lock, _no_collection(), contextlib.ExitStack() as stack:
            self._compilations.append(stack)
            try:
                yield
            finally:
                self._compilations.pop()

    def holds(self, signature: Any) -> bool:
        """Whether there is a compiled form for a signature."""
        try:
            key = _key(signature, _codegen())
            return self._name is not None and self._file(key).exists()
        except OSError:
            return False

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return the compiled form for a signature; None where it must be compiled.

        In that case the module is locked until the end of `compiling`.
        """
        target_context.refresh()
        if self._name is None:
            return None
        found = self._load(signature, target_context)
        if found is None and self._compilations:
            self._compilations[-1].enter_context(self._folder.locked())
            found = self._load(signature, target_context)
        return found

    def save_overload(self, signature: Any, data: Any) -> None:
        """Save the compiled form for a signature."""
        count_compiled()
        if self._name is None or data.library.has_dynamic_globals or any(data.lifted):
            return
        try:
            key = _key(signature, data.codegen)
            content = dumps((key, self._reduce(data)))
            content = hashlib.sha256(content).digest() + content
            self._folder.tidy()
            try:
                _write(self._file(key), content)
            except FileNotFoundError:  # the folder was removed just now
                _write(self._file(key), content)
        except Exception as error:
            warn(error)

    def _load(self, signature: Any, target_context: Any) -> Any:
        try:
            key = _key(signature, target_context.codegen())
            file = self._file(key)
            content = _read(file)
            if content is None:
                return None
            note_use(file)
            found, payload = pickle.loads(content)
            return self._rebuild(target_context, payload) if found == key else None
        except Exception as error:
            warn(error)
            return None

    def _reduce(self, result: CompileResult) -> tuple[Any, ...]:
        parts: tuple[Any, ...] = result._reduce()
        return parts

    def _rebuild(self, context: Any, parts: tuple[Any, ...]) -> CompileResult:
        return CompileResult._rebuild(context, *parts)

    def _file(self, key: tuple[Any, ...]) -> Path:
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        return self._folder.open() / f"{self._name}-{digest}.nbc"

    @property
    def cache_path(self) -> str | None:
        """The folder of the kernel's module, for Numba's statistics."""
        try:
            return None if self._name is None else str(self._folder.open())
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


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Pause the garbage collector: it takes an eighth of the time, and finds little."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@functools.cache
def _codegen() -> Any:
    return cpu_target.target_context.codegen()


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
