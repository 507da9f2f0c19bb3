"""Kernels and instructions before Numba is imported.

Importing Numba takes longer than everything else that the first answer of a process needs, and the
first calls run as plain Python anyway (see `nearcast.compiled.first_calls`). So decorators return a
`Deferred`: it runs the plain Python function while calls are tiny and have not taken long in all.
Then Numba is imported, and in every module what it makes takes the place of what was deferred, so
that compiled kernels find other kernels, and calls take no detour.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from nearcast.compiled import first_calls
from nearcast.compiled.first_calls import TINY, interpreted, interpreting, size_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Deferred", "defer", "load_numba"]

IMPORTING_S = 0.5
"""About as long as it takes to import Numba, and to make its dispatchers."""

# Only one thread imports Numba, and only here: its modules import each other in circles, and two
# threads that enter them in different places fail.
_making = threading.RLock()
_is_loaded = False
_interpreted_s = 0.0


class Deferred:
    """A function that Numba will compile, or generate code for.

    Parameters
    ----------
    plain
        The same as plain Python.
    make
        Makes what Numba knows, given the seconds that were spent in plain Python.
    """

    def __init__(self, plain: Callable[..., Any], make: Callable[[float], Any]) -> None:
        functools.update_wrapper(self, plain)
        self._plain, self._interpreted = plain, interpreted(plain)
        self._make, self._made = make, None
        self._spent_s = 0.0

    def __call__(self, *arguments: Any) -> Any:
        """Run the plain function, or what Numba made."""
        global _interpreted_s
        if interpreting():
            return self._plain(*arguments)
        if _is_loaded or not (
            _interpreted_s < IMPORTING_S
            and not first_calls.is_at_once()
            and size_of(arguments) <= TINY
        ):
            load_numba()
            return self.made()(*arguments)
        start = time.perf_counter()
        try:
            return self._interpreted(*arguments)
        finally:
            spent_s = time.perf_counter() - start
            self._spent_s += spent_s
            _interpreted_s += spent_s

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        load_numba()
        return getattr(self.made(), name)

    def made(self) -> Any:
        """Return what Numba knows."""
        with _making:
            if self._made is None:
                import numba  # noqa: F401

                self._made = self._make(self._spent_s)
            return self._made


def defer(plain: Callable[..., Any], make: Callable[[float], Any]) -> Any:
    """Return what Numba makes of a function; a `Deferred` while Numba is not imported."""
    one = Deferred(plain, make)
    return one.made() if _is_loaded or first_calls.is_at_once() else one


def load_numba() -> None:
    """Import Numba, and put what it makes in the place of everything that was deferred."""
    global _is_loaded
    if _is_loaded:
        return
    with _making:
        if _is_loaded:
            return
        import numba  # noqa: F401
        from numba.extending import typeof_impl

        # What is not a name of a module, such as a variable of a closure, stays deferred.
        typeof_impl.register(Deferred)(lambda value, context: typeof_impl(value.made(), context))
        for module in [*sys.modules.values()]:
            names = getattr(module, "__dict__", {})
            for name, value in [*names.items()]:
                if type(value) is Deferred:
                    names[name] = value.made()
        _is_loaded = True


def _forget() -> None:
    """Release the lock in a forked process: the thread that had it is not there."""
    global _making
    _making = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
