"""The two forms in which a kernel is compiled: for Python, and for other kernels.

Most kernels are called only by other kernels, and LLVM copies those into the code of their callers.
So they need neither machine code nor what converts Python's objects to their arguments, which
together take a third of the time to compile. `Kernel` is what Python calls; other kernels find a
`CalledKernel` in its place.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from llvmlite.binding import parse_bitcode
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult, Flags, compile_extra, compile_result
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.registry import CPUDispatcher

from nearcast.compiled.first_calls import FirstCalls
from nearcast.compiled.kernel_cache import KernelCache

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CalledKernel", "Kernel"]


class Kernel(CPUDispatcher):  # type: ignore[misc]
    """A kernel that Python calls.

    Parameters
    ----------
    py_func
        The kernel as plain Python.
    locals
        For Numba, which makes a dispatcher again from a pickle; always empty.
    targetoptions
        Numba's options.
    interpreted_s
        The seconds that were spent in plain Python.
    """

    def __init__(
        self,
        py_func: Callable[..., Any],
        locals: Any = None,
        targetoptions: dict[str, Any] | None = None,
        interpreted_s: float = 0.0,
    ) -> None:
        super().__init__(py_func, locals or {}, targetoptions)
        self._cache = KernelCache(py_func)
        self._compile_for_args = FirstCalls(self, self._cache, interpreted_s)

    @functools.cached_property
    def called(self) -> CalledKernel:
        """The kernel that other kernels call."""
        return CalledKernel(self.py_func, None, self.targetoptions)

    @property
    def _numba_type_(self) -> types.Type:
        return types.Dispatcher(self.called)

    def compile(self, sig: Any) -> Any:
        """Return the machine code for types of arguments, loaded from the cache or compiled."""
        with self._cache.compiling():
            return super().compile(sig)


class CalledKernel(CPUDispatcher):  # type: ignore[misc]
    """A kernel that other kernels call: code for LLVM, which is linked into theirs."""

    def __init__(
        self,
        py_func: Callable[..., Any],
        locals: Any = None,
        targetoptions: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            py_func, locals or {}, {**(targetoptions or {}), "no_cpython_wrapper": True}
        )
        self._cache = _CalledCache(py_func)
        self._compiler = _CalledCompiler(
            py_func, self.targetdescr, self.targetoptions, self.locals, Compiler
        )

    def compile(self, sig: Any) -> None:
        """Compile for types of arguments, or load what is in the cache."""
        with self._cache.compiling():
            if sig not in self.overloads:
                super().compile(sig)

    def add_overload(self, cres: CompileResult) -> None:
        """Make a form known to kernels that are compiled; Python never calls it."""
        arguments = tuple(cres.signature.args)
        self.overloads[arguments] = cres
        self.targetctx.insert_user_function((self, arguments), cres.fndesc, [cres.library])

    def get_overload(self, sig: Any) -> Any:
        """Return the key of the form for a signature."""
        return self, tuple(sig)


class _CalledCompiler(_FunctionCompiler):  # type: ignore[misc]
    def _compile_core(self, args: Any, return_type: Any) -> CompileResult:
        context = self.targetdescr.target_context
        flags = Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        flags.no_compile = True
        return compile_extra(
            self.targetdescr.typing_context,
            context,
            self.py_func,
            args,
            return_type,
            flags,
            self.locals,
            library=_LinkedLibrary(context.codegen(), self.py_func.__qualname__),
        )


class _LinkedLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Optimized code that is linked into other libraries, and not run itself."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class _CalledCache(KernelCache):
    """The cache of a `CalledKernel`, whose files have no machine code."""

    _suffix = "-called"

    def _reduce(self, result: CompileResult) -> tuple[Any, ...]:
        library = result.library
        code = library._get_module_for_linking().as_bitcode()
        result.fndesc.typemap = result.fndesc.calltypes = None  # as Numba does
        return library.name, code, result.fndesc, result.signature

    def _rebuild(self, context: Any, parts: tuple[Any, ...]) -> CompileResult:
        name, code, fndesc, signature = parts
        library = _LinkedLibrary(context.codegen(), name)
        library._final_module = parse_bitcode(code)
        library._finalize_final_module()
        return compile_result(
            typing_context=context.typing_context,
            target_context=context,
            library=library,
            fndesc=fndesc,
            signature=signature,
            objectmode=False,
            lifted=(),
        )
