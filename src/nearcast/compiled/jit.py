"""The decorators that compile kernels, and the processor instructions that kernels use.

Every kernel is compiled in nopython mode, releases the GIL and is cached on disk (see
`nearcast.compiled.cache`). Its first calls may run as plain Python (see
`nearcast.compiled.first_calls`); with ``NUMBA_DISABLE_JIT=1`` all of them do.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from nearcast.compiled.deferred import defer
from nearcast.compiled.first_calls import interpreted

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "JIT",
    "Number",
    "bit_count",
    "borrow",
    "inlined_kernel",
    "instruction",
    "kernel",
    "lowest_bit",
    "prefetch",
    "short_kernel",
]

F = TypeVar("F", bound="Callable[..., Any]")

Number: TypeAlias = Any
"""A number inside a kernel, whose exact type Numba infers."""

JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"


def kernel(function: F) -> F:
    """Compile a function of arrays and numbers when it is first called.

    Examples
    --------
    >>> from nearcast.compiled.jit import kernel
    >>> kernel.__name__
    'kernel'
    """
    return _compiled(function, inline="never")


def short_kernel(function: F) -> F:
    """Compile a function that takes about a microsecond, and keep the GIL while it runs.

    Other kernels release the GIL. After that a thread has to wait for it, and while segments are
    merged in the background that takes ten times as long as a lookup.
    """
    return _compiled(function, inline="never", nogil=False)


def inlined_kernel(function: F) -> F:
    """Compile a function into its callers.

    Use it for functions with many array arguments that are called in hot loops.
    """
    return _compiled(function, inline="always")


def _compiled(function: F, inline: str, nogil: bool = True) -> F:
    if not JIT:
        return interpreted(function)  # type: ignore[return-value]
    made: F = defer(function, functools.partial(_dispatcher, function, inline, nogil))
    return made


def _dispatcher(
    function: Callable[..., Any], inline: str, nogil: bool, interpreted_s: float
) -> Any:
    """Return Numba's dispatcher of a kernel."""
    from nearcast.compiled.dispatchers import Kernel

    options = {"nopython": True, "nogil": nogil, "error_model": "numpy", "boundscheck": False}
    return Kernel(function, None, options | {"inline": inline}, interpreted_s)


def instruction(generate: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that compiled kernels generate code for, and plain Python calls.

    Parameters
    ----------
    generate
        What `numba.extending.intrinsic` takes.
    plain
        The same as plain Python.
    """
    if not JIT:
        return plain
    made: Callable[..., Any] = defer(plain, functools.partial(_intrinsic, generate, plain))
    return made


def _intrinsic(generate: Callable[..., Any], plain: Callable[..., Any], _: float) -> Any:
    """Return an intrinsic of Numba that plain Python can call, too."""
    made = _instruction_class()(generate.__name__, generate)
    made._plain = plain
    made._register()
    return made


@functools.cache
def _instruction_class() -> type[Any]:
    from numba.core.extending import _Intrinsic

    class Instruction(_Intrinsic):  # type: ignore[misc]
        def __call__(self, *arguments: Any) -> Any:
            return self._plain(*arguments)

    return Instruction


def _prefetch(typing_context: Any, array: Any, position: Any) -> Any:
    """Prefetch the cache line of ``array[position]`` (first axis) into L2.

    A processor has twice as many prefetches into L2 in flight as into L1, and kernels wait for
    memory, not for L2.
    """
    from numba.core import types

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


def _borrow(typing_context: Any, value: Any) -> Any:
    """Return the same array, or tuple with arrays, without reference counting.

    Numba counts the references to every array that it passes to a function, with atomic
    instructions that cost more than a short function itself. A borrowed array is not counted. It
    must not outlive the call of the kernel that borrowed it. Tuples may contain tuples; numbers in
    them stay as they are.
    """
    if not _can_borrow(value):
        return None
    signature = value(value)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return _without_owner(context, builder, sig.args[0], arguments[0])

    return signature, generate


def _can_borrow(kind: Any) -> bool:
    from numba.core import types
    from numba.core.types.containers import BaseTuple

    if isinstance(kind, BaseTuple):
        return all(_can_borrow(member) for member in kind.types)
    return isinstance(kind, (types.Array, types.Number, types.Boolean))


def _without_owner(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Generate code for an array, a tuple or a number that returns it without owners."""
    from numba.core import cgutils, types
    from numba.core.types.containers import BaseTuple
    from numba.np import arrayobj

    if isinstance(kind, BaseTuple):
        members = [
            _without_owner(context, builder, member, builder.extract_value(value, i))
            for i, member in enumerate(kind.types)
        ]
        return context.make_tuple(builder, kind, members)
    if not isinstance(kind, types.Array):
        return value
    struct = arrayobj.make_array(kind)(context, builder, value)
    struct.meminfo = cgutils.get_null_value(struct.meminfo.type)
    struct.parent = cgutils.get_null_value(struct.parent.type)
    return struct._getvalue()


def _lowest_bit(typing_context: Any, mask: Any) -> Any:
    """Return the position of the lowest set bit of a mask other than 0."""
    from numba.core import types

    signature = types.int64(types.uint64)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        from llvmlite import ir

        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return signature, generate


def _bit_count(typing_context: Any, mask: Any) -> Any:
    """Return the number of set bits."""
    from numba.core import types

    signature = types.int64(types.uint64)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return signature, generate


def _no_prefetch(array: Any, position: Any) -> None:
    """Do nothing: interpreted kernels cannot prefetch."""


borrow: Callable[[Any], Any] = instruction(_borrow, lambda value: value)
prefetch: Callable[[Any, Any], None] = instruction(_prefetch, _no_prefetch)
lowest_bit: Callable[[Any], Any] = instruction(
    _lowest_bit, lambda mask: (int(mask) & -int(mask)).bit_length() - 1
)
bit_count: Callable[[Any], Any] = instruction(_bit_count, lambda mask: int(mask).bit_count())
