"""The first calls of a kernel: as plain Python, while loading or compiling it would take longer.

A process that registers two subscriptions and matches one message calls some fifty kernels once or
twice each. Compiling them takes 15 s and loading them from the cache half a second, but running
them as plain Python, with the same answers, takes milliseconds. So a kernel whose arrays are tiny
runs as plain Python until that has taken as long as loading it would. Then it is loaded; if it is
not in the cache and its arrays are small, `nearcast.compiled.background` compiles it, and plain
Python goes on meanwhile. Before Numba is imported, `nearcast.compiled.deferred` decides.

Large arrays are compiled at once. So is everything with ``NEARCAST_COMPILE=at-once``, and in
processes that called `compile_at_once`: servers, workers of Spark, benchmarks.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.compiled import background

if TYPE_CHECKING:
    from collections.abc import Callable

    from nearcast.compiled.kernel_cache import KernelCache

__all__ = [
    "FirstCalls",
    "compile_at_once",
    "interpreted",
    "interpreting",
    "is_at_once",
    "size_of",
]

TINY = 5_000
"""The numbers in all arrays of a call, up to which plain Python may be faster than loading."""

SMALL = 100_000
"""The numbers in all arrays of a call, up to which plain Python is faster than compiling."""

LOADING_S = 0.005
"""About as long as it takes to load a kernel from the cache."""

_interpreting: ContextVar[bool] = ContextVar("_interpreting", default=False)
_at_once = os.environ.get("NEARCAST_COMPILE") == "at-once"
_said = False


def compile_at_once() -> None:
    """Compile every kernel of this process at its first call, whatever the size of its arrays."""
    global _at_once
    _at_once = True


def is_at_once() -> bool:
    """Whether every kernel is compiled at its first call."""
    return _at_once


def interpreting() -> bool:
    """Whether this runs within a kernel that runs as plain Python."""
    return _interpreting.get()


def interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a kernel as plain Python, with the unsigned overflow of compiled code and no warnings."""

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        # Kernels call small kernels in their loops; entering `errstate` for each of those takes
        # more time than all the rest.
        if _interpreting.get():
            return function(*arguments)
        token = _interpreting.set(True)
        try:
            with np.errstate(all="ignore"):
                return function(*arguments)
        finally:
            _interpreting.reset(token)

    return run


class FirstCalls:
    """The calls of one kernel for which its dispatcher has no compiled form.

    Numba's dispatcher asks for a function that it can call with the arguments.
    """

    def __init__(self, dispatcher: Any, cache: KernelCache, interpreted_s: float) -> None:
        self._dispatcher = dispatcher
        self._cache = cache
        self._load_or_compile = dispatcher._compile_for_args
        self._function = dispatcher.py_func
        self._interpreted = interpreted(self._function)
        self._interpreted_s = interpreted_s
        self._asked: set[tuple[Any, ...]] = set()
        self._waiting: background.Waiting | None = None

    def __call__(self, *arguments: Any) -> Callable[..., Any]:
        """Return the function for a call: plain Python, or what was loaded or compiled for it."""
        if _interpreting.get():
            return self._function  # type: ignore[no-any-return]
        if _at_once:
            return self._load_or_compile(*arguments)  # type: ignore[no-any-return]
        size = size_of(arguments)
        if size <= SMALL:
            is_quick = size <= TINY and self._interpreted_s < LOADING_S
            if is_quick or self._must_wait(arguments):
                return self._timed
        elif not self._cache.holds(self._signature(arguments)):
            _say_once()
        return self._load_or_compile(*arguments)  # type: ignore[no-any-return]

    def _timed(self, *arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            return self._interpreted(*arguments)
        finally:
            self._interpreted_s += time.perf_counter() - start

    def _must_wait(self, arguments: tuple[Any, ...]) -> bool:
        """Whether the kernel is being compiled elsewhere; False to load it, or compile it here."""
        # While it waits, the cache is not asked: that takes longer than many a call.
        if self._waiting is not None and self._waiting():
            return True
        signature = self._signature(arguments)
        if self._cache.holds(signature) or signature in self._asked or not self._can_be_found():
            return False
        self._waiting = background.compile_kernel(self._function, signature)
        if self._waiting is None:
            return False
        if self._waiting.here:  # whatever comes of it, it is not asked for a second time
            self._asked.add(signature)
        return True

    def _signature(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        try:
            return tuple(self._dispatcher.typeof_pyval(argument) for argument in arguments)
        finally:
            self._dispatcher._types_active_call.clear()

    def _can_be_found(self) -> bool:
        """Whether another process finds the kernel by its name."""
        module = sys.modules.get(self._function.__module__)
        return (
            module is not None
            and module.__name__ != "__main__"
            and getattr(module, self._function.__name__, None) is self._dispatcher
        )


def size_of(value: Any) -> int:
    """Return how many numbers the arrays of a call have."""
    if isinstance(value, np.ndarray):
        return int(value.size)
    return sum(map(size_of, value)) if isinstance(value, tuple) else 0


def _say_once() -> None:
    """Tell somebody at a terminal why the first answer takes a while."""
    global _said
    if not _said and sys.stderr is not None and sys.stderr.isatty():
        print("Compiling for this machine, once: up to half a minute.", file=sys.stderr)  # noqa: T201
    _said = True
