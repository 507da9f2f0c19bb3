"""The digest of a kernel's sources covers every file that the kernel may depend on."""

from __future__ import annotations

import ast
import shutil
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from nearcast.compiled import cache as cache_module
from nearcast.compiled.cache import PACKAGE, imported_files, source_digest

FILES = sorted(PACKAGE.rglob("*.py"))
JIT = PACKAGE / "compiled" / "jit.py"


def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def file_of(module: str) -> list[Path]:
    base = PACKAGE.parent.joinpath(*module.split("."))
    return [file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file()]


def imports(tree: ast.AST) -> set[Path]:
    """Return the files of the package that a tree imports, found by Python's own parser."""
    found: list[Path] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [file for alias in node.names for file in file_of(alias.name)]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            assert node.module is not None
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            found += [file for name in names for file in file_of(name)]
    return {file for file in found if file.is_relative_to(PACKAGE)}


def defines_kernels(file: Path) -> bool:
    return any(
        isinstance(node, ast.FunctionDef)
        and any(
            isinstance(name, ast.Name) and name.id in ("kernel", "inlined_kernel")
            for name in node.decorator_list
        )
        for node in ast.walk(parse(file))
    )


KERNELS = [file for file in FILES if defines_kernels(file)]


def reachable(file: Path) -> set[Path]:
    seen, waiting = {file}, [file]
    while waiting:
        new = imports(parse(waiting.pop())) - seen
        seen |= new
        waiting += new
    return seen


def test_all_imports_are_found() -> None:
    for file in FILES:
        assert imported_files(file) >= imports(parse(file)), file
    for file in KERNELS:
        assert imported_files(file) == imports(parse(file)), file


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package that may be changed."""
    copy = Path(shutil.copytree(PACKAGE, tmp_path / "nearcast"))
    monkeypatch.setattr(cache_module, "PACKAGE", copy)
    monkeypatch.setattr(cache_module, "_modules", cache(cache_module._modules.__wrapped__))
    monkeypatch.setattr(cache_module, "_read_source", Path.read_bytes)
    return copy


def test_a_change_of_any_imported_file_changes_the_digest(package: Path) -> None:
    deepest = max(KERNELS, key=lambda file: len(reachable(file)))
    used = reachable(deepest)
    assert len(used) > 8
    kernel = package / deepest.relative_to(PACKAGE)
    digests = {source_digest.__wrapped__(kernel)}
    for number, file in enumerate(sorted(used), 2):
        with open(package / file.relative_to(PACKAGE), "a") as copy:
            copy.write("# changed\n")
        digests.add(source_digest.__wrapped__(kernel))
        assert len(digests) == number, file


def test_a_change_of_another_file_does_not(package: Path) -> None:
    kernel = PACKAGE / "compiled" / "messages.py"
    [other, *_] = set(KERNELS) - reachable(kernel)
    copy = package / kernel.relative_to(PACKAGE)
    before = source_digest.__wrapped__(copy)
    with open(package / other.relative_to(PACKAGE), "a") as file:
        file.write("# changed\n")
    assert source_digest.__wrapped__(copy) == before


def test_every_kernel_is_compiled_by_our_decorators() -> None:
    assert len(KERNELS) > 30
    for file in FILES:
        compilers = {
            node.attr
            for node in ast.walk(parse(file))
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "numba"
        } & {"jit", "njit", "vectorize", "guvectorize", "cfunc", "stencil", "generated_jit"}
        assert not compilers or file == JIT, file
        if defines_kernels(file):
            assert JIT in imported_files(file), file
            assert source_digest(file)


def test_no_two_modules_share_a_folder() -> None:
    names = [cache_module.ModuleFolder(file)._module for file in KERNELS]
    assert len(set(names)) == len(names)


def test_modules_with_kernels_do_not_import_each_other_in_a_circle() -> None:
    # Processes lock modules in the order of their imports: in a circle, they would wait for
    # each other. Imports for type checkers do not count.
    graph: dict[Path, set[Path]] = {}
    waiting = list(KERNELS)
    while waiting:
        file = waiting.pop()
        tree = parse(file)
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                node.body = [ast.Pass()]
        graph[file] = imports(tree)
        waiting += graph[file] - set(graph)
    list(TopologicalSorter(graph).static_order())
