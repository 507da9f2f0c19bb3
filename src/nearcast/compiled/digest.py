"""What the machine code of a kernel depends on, as a digest.

That is its bytecode, and everything that this names, as far as Numba follows it: other kernels,
instructions, constants and the fields of tuples. Documentation, comments, annotations, and
functions beside it do not count. It is taken of what a process has imported, not of files, which
may change while it runs.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from nearcast.compiled.deferred import Deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["UnknownPart", "kernel_digest"]

PACKAGE = "nearcast"

_VERSIONS = f"{sys.version} {numba.__version__} {np.__version__} {numba.config.BOUNDSCHECK}"


class UnknownPart(ValueError):
    """A kernel names something of which it is not known how it changes machine code."""


def kernel_digest(function: Callable[..., Any]) -> str:
    """Return a digest of a kernel, as plain Python, and of all that is compiled into it.

    Raises
    ------
    UnknownPart
        When there is no telling what it depends on.
    """
    seen: dict[Callable[..., Any], str] = {}
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if one not in seen:
            part, used = _part(one)
            seen[one] = f"{one.__module__}.{one.__qualname__} {part}"
            waiting += used
    whole = "\n".join([_VERSIONS, seen.pop(function), *sorted(seen.values())])
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


@functools.cache
def _part(function: Callable[..., Any]) -> tuple[str, list[Callable[..., Any]]]:
    """Return a digest of a function without those that it calls, and these."""
    assert isinstance(function, FunctionType)
    codes = [*_codes(function.__code__)]
    names = sorted({name for code in codes for name in code.co_names})
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found = {name: function.__globals__[name] for name in names if name in function.__globals__}
    found |= {name: cell.cell_contents for name, cell in cells}
    used: list[Callable[..., Any]] = []
    lines = [_code_text(code, function.__doc__) for code in codes]
    lines += [repr(function.__defaults__), repr(function.__kwdefaults__)]
    lines += [f"{name} = {_text(value, names, used)}" for name, value in found.items()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest(), used


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _code_text(code: CodeType, documentation: str | None) -> str:
    # Python keeps the documentation of a function as its first constant.
    constants = [_constant(one) for one in code.co_consts if one is None or one != documentation]
    bytecode = code.co_code.hex()
    variables = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return f"{bytecode} {constants} {variables} {code.co_argcount} {code.co_exceptiontable.hex()}"


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return "code"
    if isinstance(value, frozenset):  # their order is another one in each process
        return f"frozenset({sorted(map(_constant, value))})"
    return repr(value)


def _text(value: Any, names: list[str], used: list[Callable[..., Any]]) -> str:
    """Return what a kernel knows of a value; functions are left to the caller."""
    if isinstance(value, Deferred):
        value = value.made()
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None))):
        return repr(value)
    if isinstance(value, np.generic):
        return f"{value.dtype.str} {value.tobytes().hex()}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({[_text(one, names, used) for one in value]})"
    if isinstance(value, ModuleType):
        return _module_text(value, names, used)
    if isinstance(value, type):
        return _class_text(value)
    if (plain := getattr(value, "py_func", None)) is not None:  # a kernel
        used.append(plain)
        return f"{plain.__module__}.{plain.__qualname__} {sorted(value.targetoptions.items())}"
    if (generate := getattr(value, "_defn", None)) is not None:  # an instruction
        used.append(generate)
        return f"{generate.__module__}.{generate.__qualname__}"
    if isinstance(value, FunctionType) and value.__module__.startswith(PACKAGE):
        used.append(value)
        return f"{value.__module__}.{value.__qualname__}"
    if callable(value) and not getattr(value, "__module__", "").startswith(PACKAGE):
        return f"{getattr(value, '__module__', '')}.{value!r}".partition(" at 0x")[0]
    raise UnknownPart(f"{type(value).__name__}: {value!r}")


def _module_text(module: ModuleType, names: list[str], used: list[Callable[..., Any]]) -> str:
    if not module.__name__.startswith(PACKAGE):
        return module.__name__
    inside = {name: getattr(module, name) for name in names if hasattr(module, name)}
    return "; ".join(f"{name} = {_text(value, names, used)}" for name, value in inside.items())


def _class_text(kind: type) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}"
    if not kind.__module__.startswith(PACKAGE):
        return name
    if not hasattr(kind, "_fields"):
        raise UnknownPart(f"{name} is no named tuple")
    return f"{name} {kind._fields} {kind._field_defaults}"  # type: ignore[attr-defined]
