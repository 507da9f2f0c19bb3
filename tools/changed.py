"""Choose the tests of changed files, nearest first: `make check` runs what this prints.

A test is near if few imports lead from it to a changed file. Imports under ``TYPE_CHECKING`` do not
count; names in strings do (``"trie_pyramid:TriePyramid"``, ``"journal_child.py"``), and so do the
fixtures that a test takes from a plugin.

::

    changed file                  chosen
    src/nearcast/**/*.py          test files that import it, and its own doctests
    tests/**/test_*.py            itself
    other modules in tests/       test files that import them
    conftest.py, pyproject.toml   everything that is quick
    *.md                          tests/test_documents.py and the doctests of the page
    anything else                 test files that have its name in a string
"""

from __future__ import annotations

import argparse
import ast
import heapq
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
RECORDS = Path("out", "tests")
"""Where `tools/recording.py` leaves the seconds that tests took, as lines of JSON."""

BUDGET_S = 150.0
"""Seconds of tests for `make check`: with collecting them, about three minutes."""

GUESS_S = 5.0
SLOW_GUESS_S = 60.0
"""How long a test file takes that was never measured."""

SLOW = (
    "tests/benchmarks/",
    "tests/kafka/",
    "tests/package/",
    "tests/server/faults/",
    "tests/spark/",
    "tests/web/",
)
"""Tests that start a JVM, a browser, or servers that they kill, or that measure: chosen last."""

SEARCHED = (
    "",
    "tools/",
    "tests/",
    "tests/intake/",
    "tests/server/",
    "tests/server/faults/",
    "tests/client/",
    "tests/web/",
)
"""Folders that tests import from: ``pythonpath`` in pyproject.toml."""

EVERYTHING = ("conftest.py", "pyproject.toml")

NAMED, IMPLICIT, BY_STRING = 1, 2, 2
"""The length of an import: of a module or a name in it; of a package around it; by a string."""

READ = ("src", "tests", "tools", "examples")
CACHE = Path("out", "changed", "imports.json")
_FORMAT = 1
"""Of the cache: another one after a change of `Facts`."""

_NAMES = re.compile(r"[a-z_][\w.]*:[A-Za-z_]\w*|[\w./-]+\.\w+|Makefile")
"""Strings that may name an object (``scan:Scan``) or a file."""


@dataclass
class Choice:
    """Test files, nearest first, and those that did not fit into the budget.

    Parameters
    ----------
    chosen, left_out
        Arguments for pytest.
    seconds
        How long the chosen ones take, as far as it is known.
    """

    chosen: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    seconds: float = 0.0


def choose(
    files: list[Path],
    budget_s: float | None = None,
    root: Path = ROOT,
    seconds: dict[str, float] | None = None,
) -> Choice:
    """Choose the tests of changed files, nearest first.

    Parameters
    ----------
    files
        Changed files, absolute or relative to the checkout.
    budget_s
        Leave out what takes longer than this in all, the farthest first.
    root
        The checkout.
    seconds
        How long test files take, if not as recorded.
    """
    known = recorded_seconds(root) if seconds is None else seconds
    graph = ImportGraph(root)
    orders = [nearest_tests(graph, _relative(file, root), known) for file in files]
    return _within(_merged(orders), budget_s, known)


def recorded_seconds(root: Path = ROOT) -> dict[str, float]:
    """Return how long each test file took when it last ran: the sum over its tests."""
    tests: dict[tuple[str, str], float] = {}
    for record in sorted((root / RECORDS).glob("*.jsonl"), key=lambda path: path.stat().st_mtime):
        tests |= seconds_of_tests(record)
    return seconds_of_files(tests)


def seconds_of_tests(record: Path) -> dict[tuple[str, str], float]:
    """Return the seconds of the phases of tests in a record."""
    found = {}
    for text in record.read_text().splitlines():
        try:
            line = json.loads(text)
        except ValueError:  # a run that was stopped leaves half a line
            continue
        if "seconds" in line:
            found[line["test"], line.get("phase", "")] = float(line["seconds"])
    return found


def seconds_of_files(tests: dict[tuple[str, str], float]) -> dict[str, float]:
    """Add up the seconds of tests by file."""
    files: defaultdict[str, float] = defaultdict(float)
    for (test, _), seconds in tests.items():
        files[test.partition("::")[0]] += seconds
    return dict(files)


class Facts(NamedTuple):
    """What is read from a source file, once for each state of it.

    ``imports`` are pairs of a module and a name in it, which may be empty; ``origins`` tell the
    modules of imported names, those for type checkers among them; ``strings`` may name files or
    objects; ``arguments`` are those of all functions, ``fixtures`` those that it defines, and
    ``plugins`` what a conftest.py names.
    """

    imports: list[tuple[str, str]]
    origins: dict[str, str]
    strings: list[str]
    arguments: list[str]
    fixtures: list[str]
    plugins: list[str]


def read_facts(file: str, source: str) -> Facts:
    """Read what a source file imports and names; nothing, if somebody is still writing it."""
    facts = Facts([], {}, [], [], [], [])
    try:
        waiting: list[tuple[ast.AST, bool]] = [(ast.parse(source), True)]
    except SyntaxError:
        return facts
    while waiting:
        node, runs = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += [(child, False) for child in node.body]
            waiting += [(child, runs) for child in node.orelse]
            continue
        if isinstance(node, ast.Import) and runs:
            facts.imports.extend((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(file, node)
            facts.origins.update({alias.asname or alias.name: module for alias in node.names})
            if runs:
                facts.imports.extend((module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str) and _NAMES.fullmatch(node.value):
                facts.strings.append(node.value)
            continue
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            facts.arguments.extend(argument.arg for argument in node.args.args)
            if "fixture" in map(last_name, node.decorator_list):
                facts.fixtures.append(node.name)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytest_plugins":
            facts.plugins.extend(ast.literal_eval(node.value))
        elif isinstance(node, ast.Name | ast.expr_context | ast.operator):
            continue
        waiting += [(child, runs) for child in ast.iter_child_nodes(node)]
    return facts


def _absolute(file: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = file.split("/")[: -node.level]
    return ".".join([*parts[parts[:1] == ["src"] :], *([node.module] if node.module else [])])


class ImportGraph:
    """Which files of a checkout lead to which: by imports, by names in strings, by fixtures."""

    def __init__(self, root: Path) -> None:
        self._root = root
        paths = [
            *(path for folder in READ for path in (root / folder).rglob("*.py")),
            *root.glob("*.py"),
        ]
        self._facts = _all_facts(root, paths)

    @cached_property
    def tests(self) -> list[str]:
        """All test files."""
        return sorted(name for name in self._facts if is_test(name))

    @cached_property
    def importers(self) -> dict[str, list[tuple[int, str]]]:
        """The files that lead to a file, each with the length of the step."""
        found: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for file in self._facts:
            for length, other in self._steps(file):
                if other != file:
                    found[other][file] = min(length, found[other].get(file, length))
        return {
            file: sorted((length, other) for other, length in steps.items())
            for file, steps in found.items()
        }

    def distances(self, file: str) -> dict[str, int]:
        """Return how far the test files are that lead to a file."""
        best = {file: 0}
        waiting = [(0, file)]
        while waiting:
            distance, near = heapq.heappop(waiting)
            if distance > best[near]:
                continue
            for length, other in self.importers.get(near, ()):
                if distance + length < best.get(other, sys.maxsize):
                    best[other] = distance + length
                    heapq.heappush(waiting, (best[other], other))
        return {name: distance for name, distance in best.items() if is_test(name)}

    def mentioning(self, name: str) -> list[str]:
        """Return the test files that have the name of a file in a string."""
        last = _last_part(name)
        return [f for f in self.tests if last in map(_last_part, self._facts[f].strings)]

    def has_doctests(self, file: str) -> bool:
        """Return whether a module or a page has examples that run."""
        path = self._root / file
        return path.exists() and ">>> " in path.read_text()

    def _steps(self, file: str) -> list[tuple[int, str]]:
        facts = self._facts[file]
        found: list[tuple[int, str]] = []
        for module, name in facts.imports:
            found += self._name(file, module, name) if name else self._module(file, module)
        for text in facts.strings:
            found += self._by_string(file, text)
        if file.startswith("tests/"):
            taken = self._fixtures.keys() & set(facts.arguments)
            found += [(NAMED, self._fixtures[name]) for name in taken]
        return found

    def _file_of(self, importer: str, module: str) -> str | None:
        path = module.replace(".", "/")
        folders = ["src/"]
        if not importer.startswith("src/"):
            folders += [importer[: importer.rfind("/") + 1], *SEARCHED]
        for folder in folders:
            for name in (f"{folder}{path}.py", f"{folder}{path}/__init__.py"):
                if name in self._facts:
                    return name
        return None

    def _module(self, importer: str, module: str) -> list[tuple[int, str]]:
        """Return the file of a module, and those of the packages around it."""
        found = []
        parts = module.split(".")
        if file := self._file_of(importer, module):
            found.append((NAMED, file))
        for number in range(1, len(parts)):
            if file := self._file_of(importer, ".".join(parts[:number])):
                found.append((IMPLICIT, file))
        return found

    def _name(self, importer: str, module: str, name: str) -> list[tuple[int, str]]:
        """Return where a name comes from: a module, or the module that a package has it from."""
        if self._file_of(importer, f"{module}.{name}"):
            return self._module(importer, f"{module}.{name}")
        found = self._module(importer, module)
        file = self._file_of(importer, module)
        if file is not None and file.endswith("__init__.py"):
            found = [(IMPLICIT, other) for _, other in found]
            # Where a package has __getattr__, its imports for type checkers say what that finds.
            origin = self._facts[file].origins.get(name, module)
            if origin != module:
                found += self._name(file, origin, name)
        return found

    def _by_string(self, file: str, text: str) -> list[tuple[int, str]]:
        folder = file[: file.rfind("/") + 1]
        if ":" in text:
            module = text.partition(":")[0]
            package = folder.removeprefix("src/").replace("/", ".") if "src/" in folder else ""
            for name in (module, f"{package}{module}"):
                if found := self._file_of(file, name):
                    return [(BY_STRING, found)]
        elif text.endswith(".py") and file.startswith("tests/"):
            for near in (folder, "tools/", "examples/", ""):
                name = f"{near}{_last_part(text)}"
                if name in self._facts and not is_test(name):
                    return [(BY_STRING, name)]
        return []

    @cached_property
    def _fixtures(self) -> dict[str, str]:
        """Where fixtures are that tests do not import: in plugins, and in conftest.py files."""
        files = [name for name in self._facts if _last_part(name) == "conftest.py"]
        for conftest in tuple(files):
            plugins = [self._file_of(conftest, name) for name in self._facts[conftest].plugins]
            files += [name for name in plugins if name]
        return {name: file for file in files for name in self._facts[file].fixtures}


def _all_facts(root: Path, paths: list[Path]) -> dict[str, Facts]:
    """Read all sources; those that have not changed since the last time are in a cache."""
    cache = root / CACHE
    try:
        known = json.loads(cache.read_text())
    except (OSError, ValueError):
        known = {}
    now: dict[str, list[Any]] = {}
    for path in paths:
        name, found = path.relative_to(root).as_posix(), path.stat()
        state = [_FORMAT, found.st_mtime_ns, found.st_size]
        if known.get(name, [None])[0] == state:
            now[name] = known[name]
        else:
            now[name] = [state, read_facts(name, path.read_text())]
    if now != known:
        cache.parent.mkdir(parents=True, exist_ok=True)
        part = cache.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(now))
        part.replace(cache)
    return {name: Facts(*facts) for name, (_, facts) in now.items()}


def _last_part(name: str) -> str:
    return name.rpartition("/")[2]


def is_test(name: str) -> bool:
    """Return whether pytest collects a file of ``tests/`` by its name."""
    return name.startswith("tests/") and Path(name).name.startswith("test_")


def last_name(node: ast.expr) -> str:
    """Return the last part of the name of a function or a class, called or not."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else ast.unparse(node)


def _relative(file: Path, root: Path) -> str:
    return (file.relative_to(root) if file.is_absolute() else file).as_posix()


def nearest_tests(graph: ImportGraph, file: str, seconds: dict[str, float]) -> list[str]:
    """Return the tests of one changed file, nearest first; ``seconds`` are those of test files."""
    if file in EVERYTHING:
        quick = [test for test in graph.tests if not test.startswith(SLOW)]
        return sorted(quick, key=lambda test: _seconds(test, seconds))
    if file.endswith(".md"):
        pages = [file] if graph.has_doctests(file) else []
        return [*pages, "tests/test_documents.py"]
    if is_test(file):
        return [file] if file in graph.tests else []
    if file.startswith("web/"):
        return [test for test in graph.tests if test.startswith("tests/web/")]
    if not file.endswith(".py"):
        return graph.mentioning(file)
    distances = graph.distances(file)
    order = sorted(
        distances,
        key=lambda test: (
            test.startswith(SLOW),
            unlikeness(test, file),
            Path(test).parts[1:2] != Path(file).parts[2:3],
            distances[test],
            _seconds(test, seconds),
        ),
    )
    own = [file] if file.startswith("src/") and graph.has_doctests(file) else []
    return own + order


def unlikeness(test: str, file: str) -> int:
    """Return 0 for a test that is named after a module, 1 after its package, else 2.

    Examples
    --------
    >>> unlikeness("tests/engine/test_engine_merging.py", "src/nearcast/engine/merging.py")
    0
    >>> kernels = "src/nearcast/indexes/trie_pyramid/match.py"
    >>> unlikeness("tests/indexes/test_trie_pyramid.py", kernels)
    1
    >>> unlikeness("tests/cli/test_cli_match.py", kernels)
    2
    """
    name = Path(test).stem.removeprefix("test_")
    stem, package = Path(file).stem, Path(file).parent.name
    if stem in name and (package in test or name == stem or name.endswith(f"_{stem}")):
        return 0
    return 1 if package in name or Path(test).parent.name == package else 2


def _seconds(test: str, seconds: dict[str, float]) -> float:
    if not is_test(test):
        return seconds.get(test, 1.0)
    return seconds.get(test, SLOW_GUESS_S if test.startswith(SLOW) else GUESS_S)


def _merged(orders: list[list[str]]) -> list[str]:
    """Return the nearest tests of all files, then the second nearest, and so on, each once."""
    merged: dict[str, None] = {}
    for number in range(max(map(len, orders), default=0)):
        for order in orders:
            if number < len(order):
                merged.setdefault(order[number])
    return list(merged)


def _within(order: list[str], budget_s: float | None, seconds: dict[str, float]) -> Choice:
    """Take what fits into the budget: whatever it takes, the nearest test."""
    choice = Choice()
    for test in order:
        needed = _seconds(test, seconds)
        if budget_s is not None and choice.chosen and choice.seconds + needed > budget_s:
            choice.left_out.append(test)
        else:
            choice.chosen.append(test)
            choice.seconds += needed
    return choice


def changed_files(since: str = "HEAD", root: Path = ROOT) -> list[Path]:
    """Return the files that differ from a revision, and those that git does not know."""
    commands = (
        ["git", "diff", "--name-only", "--no-renames", since],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    names = [
        name
        for command in commands
        for name in subprocess.run(
            command, cwd=root, check=True, capture_output=True, text=True
        ).stdout.splitlines()
    ]
    return [Path(name) for name in dict.fromkeys(names)]


def main() -> None:
    """Print the choice, one argument of pytest a line; what was left out goes to stderr."""
    parser = argparse.ArgumentParser(description="Choose the tests of changed files.")
    parser.add_argument("files", nargs="*", type=Path, help="changed files; default: ask git")
    parser.add_argument("--since", default="HEAD", help="the revision to compare with")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds of tests")
    given = parser.parse_args()
    choice = choose(given.files or changed_files(given.since), given.budget)
    print("\n".join(choice.chosen))
    if choice.left_out:
        print(
            f"Chosen: {len(choice.chosen)} files, about {choice.seconds:.0f} s. "
            f"Left out, for more than {given.budget:.0f} s: {len(choice.left_out)} files, "
            f"the nearest are {', '.join(choice.left_out[:5])}.",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
