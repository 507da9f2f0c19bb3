"""The digest of a kernel changes with its machine code, and with nothing else."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import nearcast
from nearcast.compiled.digest import UnknownPart, kernel_digest

PACKAGE = Path(nearcast.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
JIT = PACKAGE / "compiled" / "jit.py"

SAMPLE = '''
"""A module."""
from __future__ import annotations
import math
from typing import NamedTuple
import numpy as np
from nearcast.compiled import areas
from nearcast.compiled.jit import inlined_kernel, instruction, kernel

SCALE = 3
LIMITS = (1, 2.5)
TABLE = np.arange(4)
UNUSED = 1

class Pair(NamedTuple):
    """Two numbers."""
    first: int
    second: int

def _generate(typing_context, value):
    """Double a number."""
    def generate(context, builder, signature, arguments):
        return builder.add(arguments[0], arguments[0])
    return value(value), generate

twice = instruction(_generate, lambda value: 2 * value)

@inlined_kernel
def helper(value):
    """Help."""
    return value + SCALE

@kernel
def middle(value):
    return helper(value) * 2

@kernel
def whole(value: int, times=2):
    """Do it all."""
    pair = Pair(middle(value), twice(value))
    limit = math.floor(LIMITS[1]) + TABLE[1]
    if value in {4, 5}:
        return pair.first
    return pair.first * times + pair.second + limit

@kernel
def beside(value):
    return value - 1
'''


def digest_of(source: str, name: str = "whole") -> str:
    module = ModuleType("nearcast.sample")
    sys.modules["nearcast.sample"] = module
    try:
        exec(compile(source, "sample.py", "exec"), module.__dict__)
        kernel: Any = module.__dict__[name]
        return kernel_digest(getattr(kernel, "py_func", kernel))
    finally:
        del sys.modules["nearcast.sample"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""A module."""', '"""Another module."""\n\n# With a comment.\n'),
        ('"""Do it all."""', '"""Do all of it."""'),
        ('"""Help."""', '"""Give help."""'),
        ('"""Double a number."""', '"""Add a number to itself."""'),
        ('"""Two numbers."""', '"""A pair."""'),
        ("value: int, times=2", "value: float, times=2"),
        ("UNUSED = 1", "UNUSED = 2"),
        ("return value - 1", "return value - 2"),
        ("@kernel\ndef middle", "# Calls it.\n@kernel\ndef middle"),
    ],
)
def test_what_does_not_reach_machine_code_does_not_count(old: str, new: str) -> None:
    assert SAMPLE.count(old) == 1
    assert digest_of(SAMPLE.replace(old, new)) == digest_of(SAMPLE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SCALE = 3", "SCALE = 4"),
        ("SCALE = 3", "SCALE = 3.0"),
        ("SCALE = 3", "SCALE = np.int32(3)"),
        ("LIMITS = (1, 2.5)", "LIMITS = (1, 3.5)"),
        ("TABLE = np.arange(4)", "TABLE = np.arange(4) + 1"),
        ("TABLE = np.arange(4)", "TABLE = np.arange(4.0)"),
        ("return value + SCALE", "return value - SCALE"),
        ("@inlined_kernel", "@kernel"),
        ("return helper(value) * 2", "return helper(value) * 3"),
        ("builder.add", "builder.sub"),
        ("    first: int\n    second: int", "    second: int\n    first: int"),
        ("pair.first * times", "pair.second * times"),
        ("times=2", "times=3"),
        ("{4, 5}", "{4, 6}"),
        ("math.floor", "math.ceil"),
    ],
)
def test_what_reaches_machine_code_counts(old: str, new: str) -> None:
    assert SAMPLE.count(old) == 1
    assert digest_of(SAMPLE.replace(old, new)) != digest_of(SAMPLE)


def test_what_is_enclosed_counts() -> None:
    source = """
from nearcast.compiled.jit import kernel

def made(bound):
    @kernel
    def inner(value):
        return value < bound
    return inner

small, same, large = made(1), made(1), made(2)
"""
    small, same, large = (digest_of(source, name) for name in ("small", "same", "large"))
    assert small == same != large


def test_what_is_not_understood_is_not_cached() -> None:
    source = """
from nearcast.compiled.jit import kernel

class Odd:
    pass

odd = Odd()

@kernel
def whole(value):
    return odd
"""
    with pytest.raises(UnknownPart, match="Odd"):
        digest_of(source)


def all_kernels() -> dict[str, Any]:
    for module in pkgutil.walk_packages(nearcast.__path__, "nearcast."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    from numba.core.dispatcher import Dispatcher

    return {
        f"{kernel.py_func.__module__}.{kernel.py_func.__qualname__}": kernel.py_func
        for name, module in [*sys.modules.items()]
        if name.startswith("nearcast.")
        for kernel in [*vars(module).values()]
        if isinstance(kernel, Dispatcher)
    }


def test_every_kernel_has_a_digest_of_its_own_that_all_processes_share() -> None:
    kernels = all_kernels()
    assert len(kernels) > 1_000
    digests = {name: kernel_digest(function) for name, function in kernels.items()}
    assert len(set(digests.values())) == len(digests)
    some = sorted(digests)[::100]
    program = f"""
import importlib
from nearcast.compiled.digest import kernel_digest
for name in {some!r}:
    module, _, kernel = name.rpartition(".")
    print(kernel_digest(getattr(importlib.import_module(module), kernel).py_func))
"""
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert printed.stdout.split() == [digests[name] for name in some]


def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def file_of(module: str) -> list[Path]:
    base = PACKAGE.parent.joinpath(*module.split("."))
    return [file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file()]


def imports(tree: ast.AST) -> set[Path]:
    """Return the files of the package that a tree imports."""
    found: list[Path] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [file for alias in node.names for file in file_of(alias.name)]
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, "a relative import"
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            found += [file for name in names for file in file_of(name)]
    return {file for file in found if file.is_relative_to(PACKAGE)}


def test_every_kernel_is_compiled_by_our_decorators() -> None:
    for file in FILES:
        compilers = {
            node.attr
            for node in ast.walk(parse(file))
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "numba"
        } & {"jit", "njit", "vectorize", "guvectorize", "cfunc", "stencil", "generated_jit"}
        assert not compilers or file == JIT, file


def test_modules_with_kernels_do_not_import_each_other_in_a_circle() -> None:
    # Processes lock modules in the order of their imports: in a circle, they would wait for
    # each other. Imports for type checkers do not count.
    graph: dict[Path, set[Path]] = {}
    waiting = [file for file in FILES if JIT in imports(parse(file))]
    assert len(waiting) > 30
    while waiting:
        file = waiting.pop()
        tree = parse(file)
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                node.body = [ast.Pass()]
        graph[file] = imports(tree)
        waiting += graph[file] - set(graph)
    list(TopologicalSorter(graph).static_order())
