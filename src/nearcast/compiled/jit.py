"""The one decorator that holds all Numba policy.

Every kernel is compiled in nopython mode, releases the GIL and is cached on disk. The cache lies
in one folder per state of the sources of kernels and columns (a kernel that uses another file is
recompiled when that file changes, which Numba's own cache does not notice) and may be shared by
any number of processes: whoever compiles first holds a lock, the others wait and then load.

``NEARCAST_CACHE_DIR`` moves the cache; ``NUMBA_DISABLE_JIT=1`` runs every kernel as plain Python.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numba
import numpy as np
from numba.core import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "JIT",
    "Number",
    "bit_count",
    "borrow",
    "cache_folder",
    "inlined_kernel",
    "kernel",
    "lowest_bit",
    "prefetch",
]

F = TypeVar("F", bound="Callable[..., Any]")

Number: TypeAlias = Any
"""A machine number inside a kernel; its exact type is Numba's business."""

JIT = not numba.config.DISABLE_JIT


_PACKAGE = Path(__file__).parents[1]
_IMPORT = re.compile(r"^\s*from (nearcast[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


@functools.cache
def _imported(path: Path) -> tuple[Path, ...]:
    """Return the files of this package that a source file imports."""
    found: set[Path] = set()
    for module, names in _IMPORT.findall(path.read_text()):
        base = _PACKAGE.parent.joinpath(*module.split("."))
        places = [base, *(base / name for name in re.findall(r"\w+", names))]
        for place in places:
            found.update(p for p in (place.with_suffix(".py"), place / "__init__.py") if p.exists())
    return tuple(sorted(found))


@functools.cache
def source_digest(path: Path) -> str:
    """Return a digest of a source file and of all files of this package that it imports.

    Constants and functions of an imported file are compiled into a kernel, which Numba's own cache
    does not notice.
    """
    seen, waiting = {path}, [path]
    while waiting:
        for imported in _imported(waiting.pop()):
            if imported not in seen:
                seen.add(imported)
                waiting.append(imported)
    digest = hashlib.sha256(f"{numba.__version__} {sys.version}".encode())
    for each in sorted(seen):
        digest.update(each.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def cache_folder() -> Path:
    """Return the folder of the compiled kernels, made where it is missing."""
    given = os.environ.get("NEARCAST_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    shared = Path(tempfile.gettempdir()) / f"nearcast-{os.getuid() if hasattr(os, 'getuid') else 0}"
    for root in [Path(given)] if given else [Path(home) / "nearcast", shared]:
        folder = root / "kernels"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        return folder
    return Path(tempfile.mkdtemp(prefix="nearcast-kernels-"))


class _Locator(_CacheLocator):  # type: ignore[misc]
    """Place the cache files of one function in our own folder."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        self._file = Path(py_file)
        self._line = py_func.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(cache_folder() / f"{self._file.stem}-{source_digest(self._file)}")

    def get_source_stamp(self) -> str:
        return source_digest(self._file)

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator | None:
        return cls(py_func, py_file) if os.path.exists(py_file) else None


class _CacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class _KernelCache(FunctionCache):  # type: ignore[misc]
    _impl_class = _CacheImpl


_thread_lock = threading.RLock()
_lock_depth = 0


@contextlib.contextmanager
def _one_compiler() -> Iterator[None]:
    """Hold the lock of the cache folder: one thread of one process compiles or loads at a time."""
    global _lock_depth
    with _thread_lock, contextlib.ExitStack() as stack:
        if _lock_depth == 0 and sys.platform != "win32":
            import fcntl

            handle = stack.enter_context(open(cache_folder() / "lock", "w"))
            fcntl.flock(handle, fcntl.LOCK_EX)
        _lock_depth += 1
        try:
            yield
        finally:
            _lock_depth -= 1


def kernel(function: F) -> F:
    """Compile a function of arrays and numbers: nopython, GIL released, cached, cache shared.

    Examples
    --------
    >>> from nearcast.compiled.jit import kernel
    >>> kernel.__name__
    'kernel'
    """
    return _compiled(function, inline="never")


def inlined_kernel(function: F) -> F:
    """Compile a function into its callers: for what is called with many arrays in a hot loop."""
    return _compiled(function, inline="always")


def _compiled(function: F, inline: str) -> F:
    if not JIT:
        return _interpreted(function)
    dispatcher = numba.njit(
        function, nogil=True, error_model="numpy", boundscheck=False, inline=inline
    )
    dispatcher._cache = _KernelCache(function)
    compile_once = dispatcher.compile

    @functools.wraps(compile_once)
    def compile_alone(signature: Any) -> Any:
        with _one_compiler():
            return compile_once(signature)

    dispatcher.compile = compile_alone
    return dispatcher  # type: ignore[no-any-return]


def _interpreted(function: F) -> F:
    """Run a kernel as plain Python; unsigned arithmetic wraps around as it does when compiled."""

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments)

    return run  # type: ignore[return-value]


def _prefetch(typing_context: Any, array: Any, position: Any) -> Any:
    """Ask for the cache line of ``array[position]`` (first axis) without waiting for it.

    It goes into the second level of the cache: of such requests twice as many are under way at a
    time as of those for the first level, and it is the memory that kernels wait for.
    """
    signature = types.void(array, position)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        from llvmlite import ir
        from numba.np import arrayobj

        array_type, position_type = sig.args
        struct = arrayobj.make_array(array_type)(context, builder, arguments[0])
        index = context.cast(builder, arguments[1], position_type, types.intp)
        stride = builder.extract_value(struct.strides, 0)
        byte = ir.IntType(8)
        base = builder.bitcast(struct.data, byte.as_pointer())
        address = builder.gep(base, [builder.mul(index, stride)])
        i32 = ir.IntType(32)
        prefetch_type = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), i32, i32, i32])
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", (byte.as_pointer(),), prefetch_type
        )
        builder.call(function, [address, i32(0), i32(2), i32(1)])
        return context.get_dummy_value()

    return signature, generate


def _borrow(typing_context: Any, array: Any) -> Any:
    """Return the same array without an owner.

    Numba counts references to every array that a function takes, atomically, which costs more than
    the work of a short function. An array without an owner is not counted. It must not outlive
    the call of the kernel that borrowed it.
    """
    signature = array(array)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        from numba.core import cgutils
        from numba.np import arrayobj

        struct = arrayobj.make_array(sig.args[0])(context, builder, arguments[0])
        struct.meminfo = cgutils.get_null_value(struct.meminfo.type)
        struct.parent = cgutils.get_null_value(struct.parent.type)
        return struct._getvalue()

    return signature, generate


def _lowest_bit(typing_context: Any, mask: Any) -> Any:
    """Return the position of the lowest bit that is set; the mask must not be 0."""
    signature = types.int64(types.uint64)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        from llvmlite import ir

        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return signature, generate


def _bit_count(typing_context: Any, mask: Any) -> Any:
    """Return how many bits are set."""
    signature = types.int64(types.uint64)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return signature, generate


def _no_prefetch(array: Any, position: Any) -> None:
    """Do nothing: interpreted kernels have no cache lines to fetch."""


borrow: Callable[[Any], Any] = intrinsic(_borrow) if JIT else lambda array: array
prefetch: Callable[[Any, Any], None] = intrinsic(_prefetch) if JIT else _no_prefetch
lowest_bit: Callable[[Any], Any] = (
    intrinsic(_lowest_bit) if JIT else lambda mask: (int(mask) & -int(mask)).bit_length() - 1
)
bit_count: Callable[[Any], Any] = (
    intrinsic(_bit_count) if JIT else lambda mask: int(mask).bit_count()
)
