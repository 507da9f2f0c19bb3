"""Optional packages: who may import them, and that `nearcast.extras` says the same as pyproject."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nearcast.extras import EXTRAS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOR_DEVELOPERS = {"dev", "docs"}
USED = {name for name in PROJECT["optional-dependencies"] if name not in FOR_DEVELOPERS}
SOURCES = {
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "src" / "nearcast").rglob("*.py"))
}


def distributions(requirements: list[str]) -> set[str]:
    """Return the distributions that requirements bring, and those that these bring."""
    found: set[str] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        needed, extra = waiting.pop()
        if needed.marker is not None and not needed.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(needed.name)
        if name == "nearcast":
            texts = [t for one in needed.extras for t in PROJECT["optional-dependencies"][one]]
            waiting += [(Requirement(text), "") for text in texts]
        elif name not in found:
            found.add(name)
            try:
                parts = requires(name) or []
            except PackageNotFoundError:
                continue
            for one in {"", *needed.extras}:
                waiting += [(Requirement(text), one) for text in parts]
    return found


@cache
def optional_modules() -> dict[str, set[str]]:
    """Return the top-level modules that only extras bring, and which extras bring each."""
    plain = distributions(PROJECT["dependencies"])
    by_extra = {
        extra: distributions(PROJECT["optional-dependencies"][extra]) - plain for extra in USED
    }
    modules: dict[str, set[str]] = {}
    for module, names in packages_distributions().items():
        known = {canonicalize_name(name) for name in names}
        extras = {extra for extra, brought in by_extra.items() if known & brought}
        if extras:
            modules[module] = extras
    return modules


def top_level(tree: ast.Module) -> list[ast.stmt]:
    """Return the statements that run on import, without those for type checkers."""
    found: list[ast.stmt] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                waiting.append(ast.Module(node.orelse, []))
                continue
            if isinstance(node, ast.stmt):
                found.append(node)
            waiting.append(node)
    return found


def imported(statements: list[ast.stmt]) -> set[str]:
    """Return the full names of what statements import: modules, and names in modules."""
    names: set[str] = set()
    for node in statements:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def required(statements: list[ast.stmt]) -> set[str]:
    """Return the extras that a module requires when it is imported."""
    calls = [node.value for node in statements if isinstance(node, ast.Expr)]
    return {
        str(call.args[0].value)
        for call in calls
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) == "require"
        and isinstance(call.args[0], ast.Constant)
    }


@cache
def statements(module: str) -> list[ast.stmt]:
    return top_level(ast.parse(SOURCES[module].read_text()))


@cache
def promised(module: str) -> set[str]:
    """Return the extras that a module or a package around it requires, with what they contain."""
    parts = module.split(".")
    found: set[str] = set()
    for end in range(1, len(parts) + 1):
        found |= required(statements(".".join(parts[:end])))
    modules = optional_modules()
    brought = {name for name, extras in modules.items() if extras & found}
    return found | {
        extra
        for extra in USED
        if {name for name, extras in modules.items() if extra in extras} <= brought
    }


def test_optional_packages_are_found() -> None:
    modules = optional_modules()
    assert modules["psycopg"] == {"postgres"}
    assert {"spark"} == modules["pyspark"] == modules["pandas"]
    assert "server" in modules["starlette"]
    assert not {"numpy", "pyarrow", "typer", "nearcast"} & modules.keys()


def test_what_runs_on_import_is_found() -> None:
    text = "import a\nif TYPE_CHECKING:\n import b\nelse:\n import c\ntry:\n from d import e\n"
    text += "finally:\n pass\ndef f():\n import g\nclass H:\n import i\n"
    assert imported(top_level(ast.parse(text))) == {"a", "c", "d", "d.e", "i"}


def test_modules_import_only_what_their_package_requires() -> None:
    """Optional packages, and modules that need one, are imported inside of functions elsewhere.

    A package that needs an extra calls `require` in its ``__init__`` (a module: at its top). So
    everything else can be imported without the extra, and the error names it.
    """
    optional = optional_modules()
    wrong: list[str] = []
    for module in SOURCES:
        mine = promised(module)
        for name in sorted(imported(statements(module))):
            extras = optional.get(name.partition(".")[0])
            if extras and not extras & mine:
                wrong.append(f"{module} imports {name}, which is in {extras}")
            if name in SOURCES and (missing := promised(name) - mine):
                wrong.append(f"{module} imports {name}, which requires {missing}")
    assert not wrong, "\n".join(wrong)


def test_extras_are_those_of_the_project() -> None:
    optional = optional_modules()
    for extra, modules in EXTRAS.items():
        named = {canonicalize_name(Requirement(text).name) for text in _texts(extra)}
        for module in modules:
            assert extra in optional[module]
            owners = {canonicalize_name(name) for name in packages_distributions()[module]}
            assert owners & named, f"pyproject has no {module} in the extra {extra}"


def _texts(extra: str) -> list[str]:
    """Return the requirements of an extra, with those of extras that it contains."""
    texts: list[str] = []
    for text in PROJECT["optional-dependencies"][extra]:
        inner = re.fullmatch(r"nearcast\[(.*)\]", text)
        texts += [t for one in inner[1].split(",") for t in _texts(one)] if inner else [text]
    return texts
