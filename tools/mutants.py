"""Plant faults in the code, one at a time, and see whether tests find them: `make mutants`.

The faults (`tools/faults.py`) are planted in a copy of the checkout, whose tests then run, the
nearest to the changed file first (`tools/changed.py`), until one fails.

::

    out/mutants/results.jsonl     a line for each mutant: a second run goes on where one stopped
    out/mutants/baseline-*.jsonl  seconds of tests without a fault
    tools/mutants_equal.toml      survivors that change no answer, each with the reason

Kernels run as plain Python, as in the suite `interpreted`: compiling takes longer than the tests.
``--again --compiled`` runs the survivors once more, compiled.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import changed

from faults import Mutant, mutants_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]
RESULTS = Path("out", "mutants", "results.jsonl")
EQUAL = Path("tools", "mutants_equal.toml")

COPIED = ("src", "tests", "tools", "docs", "examples")
NEAR = 4
"""How many test files are considered for a source file."""

BUDGET_S = 40.0
"""Seconds of tests for each mutant."""

FACTOR = 3.0
MARGIN_S = 15.0
COMPILING_S = 45.0
"""A test hangs after this many times its seconds, the margin, and time to compile kernels."""

LIMIT = "NEARCAST_MUTANT_TEST_S"
"""The environment variable that limits each test: with it, this module is a plugin of pytest."""

MEMORY = 12 << 30


@dataclass(frozen=True)
class Target:
    """A part of the code that faults are planted in.

    Parameters
    ----------
    folders
        Where it is.
    oracles
        Test files that try it with everything, and which of their tests are about it (``-k``).
    """

    folders: tuple[str, ...]
    oracles: dict[str, str] = field(default_factory=dict)


TARGETS = {
    "engine": Target(("src/nearcast/engine",)),
    "segments": Target(("src/nearcast/segments",)),
    "trie-pyramid": Target(
        ("src/nearcast/indexes/trie_pyramid",),
        {
            "tests/indexes/test_contract.py": "trie-pyramid",
            "tests/indexes/test_crafted_arrays.py": "trie-pyramid",
        },
    ),
    "twin-lists": Target(
        ("src/nearcast/indexes/moving/twin_lists",),
        {"tests/indexes/moving/test_moving_contract.py": "twin-lists"},
    ),
    "log and delivery": Target(
        ("src/nearcast/storage/log", "src/nearcast/server/log", "src/nearcast/server/delivery")
    ),
}


def selected(root: Path, count: int, seed: int, only: str = "*") -> list[Mutant]:
    """Choose faults at random: as many of each target, spread over its files and over kinds."""
    chosen: list[list[Mutant]] = []
    for name, target in TARGETS.items():
        draw = random.Random(f"{seed} {name}")
        files = sorted(
            path.relative_to(root).as_posix()
            for folder in target.folders
            for path in (root / folder).rglob("*.py")
        )
        pools = []
        for file in files:
            if fnmatch(file, only) or fnmatch(name, only) or only in file:
                if found := mutants_of((root / file).read_bytes(), file, name):
                    pools.append(_by_kind(found, draw))
        draw.shuffle(pools)
        chosen.append(_drawn(pools, draw))
    picked: list[Mutant] = []
    for number in range(max(map(len, chosen), default=0)):
        picked += [order[number] for order in chosen if number < len(order)]
    return list(islice((mutant for mutant in picked if _compiles(root, mutant)), count))


def _compiles(root: Path, mutant: Mutant) -> bool:
    try:
        compile(mutant.planted((root / mutant.file).read_bytes()), mutant.file, "exec")
    except SyntaxError:
        return False
    return True


def _by_kind(mutants: list[Mutant], draw: random.Random) -> dict[str, list[Mutant]]:
    kinds: defaultdict[str, list[Mutant]] = defaultdict(list)
    for mutant in draw.sample(mutants, len(mutants)):
        kinds[mutant.kind].append(mutant)
    return kinds


def _drawn(pools: list[dict[str, list[Mutant]]], draw: random.Random) -> list[Mutant]:
    """Take one of each file in turn, of a kind that is drawn, until all are taken."""
    order = []
    while pools:
        for kinds in pools:
            kind = draw.choice(sorted(kinds))
            order.append(kinds[kind].pop())
            if not kinds[kind]:
                del kinds[kind]
        pools = [kinds for kinds in pools if kinds]
    return order


# Running tests in a copy.


def pytest_runtest_logstart() -> None:
    """Let the alarm clock end this process if the test that starts now does not."""
    if LIMIT in os.environ:
        signal.setitimer(signal.ITIMER_REAL, float(os.environ[LIMIT]))


@dataclass(frozen=True)
class Plan:
    """The tests of a file, whether kernels are interpreted, and the seconds without a fault.

    ``seconds`` are those of all tests, ``longest`` those of the longest one.
    """

    tests: tuple[str, ...]
    interpreted: bool
    seconds: float
    longest: float


class Outcome(NamedTuple):
    """What tests said: ``how`` they found a fault (test, timeout, crash), and which one did."""

    outcome: str
    how: str
    test: str
    seconds: float


class Copy:
    """A copy of a checkout in which tests run.

    Parameters
    ----------
    root
        The checkout.
    folder
        Where the copy will be.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        folder.chmod(0o755)  # PostgreSQL runs as another user
        self.root = folder / "checkout"
        self._cache = folder / "cache"
        self._temporary = folder / "tmp"
        for path in (self.root, self._cache, self._temporary):
            path.mkdir()
        ignored = shutil.ignore_patterns("__pycache__", "node_modules", "images")
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, self.root / name, ignore=ignored)
        for path in root.iterdir():
            if path.is_file():
                shutil.copy2(path, self.root / path.name)
        self._copy_kernels()

    def _copy_kernels(self) -> None:
        """Start with the kernels that are compiled already: with links, as files never change."""
        home = os.environ.get("NEARCAST_CACHE_DIR") or Path.home() / ".cache" / "nearcast"
        kernels = Path(home, "kernels")
        (self._cache / "kernels").mkdir(mode=0o700)
        for file in kernels.glob("*/*.nbc"):
            copied = self._cache / "kernels" / file.parent.name / file.name
            copied.parent.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                try:
                    os.link(file, copied)
                except OSError:
                    shutil.copy2(file, copied)

    def environment(self, *, interpreted: bool) -> dict[str, str]:
        """Return the environment in which this copy is imported."""
        ours = ("NEARCAST_RECORD", "PYTEST_")  # of the tests that may be running this
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(ours)
        } | {
            "PYTHONPATH": f"{self.root / 'src'}:{Path(__file__).parent}",  # with our plugins
            "NEARCAST_CACHE_DIR": str(self._cache),
            "TMPDIR": str(self._temporary),
        }
        if interpreted:
            environment["NUMBA_DISABLE_JIT"] = "1"
        return environment

    def check_imports(self) -> None:
        """Make sure that tests import this copy, and not the checkout."""
        found = subprocess.run(
            [sys.executable, "-c", "import nearcast; print(nearcast.__file__)"],
            cwd=self.root,
            env=self.environment(interpreted=False),
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        if not Path(found).is_relative_to(self.root):
            raise SystemExit(f"expected to import nearcast from {self.root}, got {found}")

    @contextlib.contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """Plant a fault for a while."""
        path = self.root / mutant.file
        source = path.read_bytes()
        kernels = {folder.name for folder in (self._cache / "kernels").iterdir()}
        try:
            self._write(path, mutant.planted(source))
            yield
        finally:
            self._write(path, source)
            for folder in (self._cache / "kernels").iterdir():
                if folder.name not in kernels:
                    shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary.mkdir(exist_ok=True)

    def _write(self, path: Path, source: bytes) -> None:
        path.write_bytes(source)
        # Python compares seconds and sizes only, which may be the same.
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

    def run(
        self,
        arguments: tuple[str, ...],
        *,
        interpreted: bool = False,
        limit_s: float | None = None,
        record: Path | None = None,
    ) -> tuple[int, str, float]:
        """Run pytest with a limit for each test; return its exit code, output and seconds."""
        started = time.monotonic()
        options = ["-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-rfE"]
        environment = self.environment(interpreted=interpreted)
        if record is not None:
            environment |= {"NEARCAST_RECORD": str(record), "PYTEST_PLUGINS": "recording"}
        if limit_s is not None:
            environment |= {LIMIT: str(limit_s), "PYTEST_PLUGINS": "mutants"}
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, "--hypothesis-seed=0", *arguments],
            cwd=self.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
        )
        try:
            # Importing may hang as well, and servers that tests have started may keep the pipe.
            output, _ = process.communicate(timeout=limit_s and 20 * limit_s)
            code = process.returncode
        except subprocess.TimeoutExpired:
            output, code = "", -signal.SIGALRM
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.poll() is None:
                process.wait()
        return code, output, time.monotonic() - started


def try_mutant(copy: Copy, mutant: Mutant, plan: Plan) -> Outcome:
    """Plant a fault, run its tests, and tell whether one of them failed."""
    limit = FACTOR * plan.longest + MARGIN_S
    if not plan.interpreted and b"@kernel" in (copy.root / mutant.file).read_bytes():
        limit += COMPILING_S
    chosen = copy.root / "out" / "chosen.txt"
    chosen.parent.mkdir(exist_ok=True)
    chosen.write_text("\n".join(plan.tests) + "\n")
    with copy.planted(mutant):
        code, output, seconds = copy.run(
            ("-x", f"@{chosen}"), interpreted=plan.interpreted, limit_s=limit
        )
    seconds = round(seconds, 1)
    if code == -signal.SIGALRM:
        return Outcome("found", "timeout", "", seconds)
    if code == 0:
        return Outcome("survived", "", "", seconds)
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", output, re.M)
    if code < 0:
        return Outcome("found", "crash", "", seconds)
    if failed is None and "loading conftest" not in output:
        raise SystemExit(f"pytest ended with {code}, and no test failed:\n{output}")
    return Outcome("found", "test", failed[1] if failed else "conftest.py", seconds)


class Planner:
    """Chooses the tests of each file, and measures them without a fault.

    Parameters
    ----------
    copy
        Where tests run.
    folder
        Where the seconds of tests are kept: ``baseline-compiled.jsonl`` and
        ``baseline-interpreted.jsonl``, as `tools/recording.py` writes them.
    budget_s
        How long the tests of a file may take.
    near
        How many test files to consider.
    compiled
        Compile kernels, wherever they are.
    """

    def __init__(
        self, copy: Copy, folder: Path, budget_s: float, *, near: int, compiled: bool
    ) -> None:
        self._copy = copy
        self._graph = changed.ImportGraph(copy.root)
        self._folder = folder
        self._budget_s = budget_s
        self._near = near
        self._compiled = compiled

    def plans(self, files: dict[str, str], say: Callable[[str], None]) -> dict[str, Plan]:
        """Return the plan of each file; ``files`` tells their targets."""
        plans = {}
        for mode in ("compiled", "interpreted"):
            wanted = {
                file: self._candidates(file, target)
                for file, target in files.items()
                if self._mode(file) == mode
            }
            missing = {test: word for tests in wanted.values() for test, word in tests.items()}
            for test in self._measured(mode):
                missing.pop(test, None)
            if missing:
                say(f"Measuring {len(missing)} test files without a fault, {mode}.")
                self._measure(missing, mode)
            measured = self._measured(mode)
            for file, tests in wanted.items():
                plans[file] = self._plan(file, tests, measured, mode)
        return plans

    def _mode(self, file: str) -> str:
        """Indexes are interpreted: the kernels of others are small, and quickly compiled."""
        indexes = file.startswith("src/nearcast/indexes/")
        return "interpreted" if indexes and not self._compiled else "compiled"

    def _candidates(self, file: str, target: str) -> dict[str, str]:
        """Return test files, nearest first, each with what selects its tests."""
        order = changed.nearest_tests(self._graph, file, {})
        near = [test for test in order if not test.startswith(changed.SLOW)]
        oracles = TARGETS[target].oracles if target in TARGETS else {}
        # Contracts come second: after the tests that have the name of the module or its package.
        own = [test for test in near if changed.unlikeness(test, file) < 2 or test == file]
        order = list(dict.fromkeys([*own, *oracles, *near]))[: self._near]
        return {test: oracles.get(test, "") for test in order}

    def _record(self, mode: str) -> Path:
        return self._folder / f"baseline-{mode}.jsonl"

    def _measure(self, tests: dict[str, str], mode: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        record = self._record(mode)
        _, output, _ = self._copy.run(
            _arguments(tests), interpreted=mode == "interpreted", record=record
        )
        if not record.exists():
            raise SystemExit(f"the tests do not run without a fault:\n{output}")
        with record.open("a") as file:  # files without a test are measured, too
            for test in tests:
                file.write(json.dumps({"test": test, "phase": "file", "seconds": 0}) + "\n")

    def _measured(self, mode: str) -> dict[str, dict[str, float]]:
        """Return the seconds of tests that pass without a fault, by test file."""
        if not self._record(mode).exists():
            return {}
        lines = [json.loads(text) for text in self._record(mode).read_text().splitlines()]
        failed = {line["test"] for line in lines if line.get("outcome") in ("failed", "skipped")}
        found: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        for line in lines:
            if line.get("phase") == "file":
                found[line["test"]].update()
            elif "test" in line and line["test"] not in failed:
                file = line["test"].partition("::")[0]
                found[file][line["test"]] += line["seconds"]
        return {file: dict(tests) for file, tests in found.items()}

    def _plan(
        self, file: str, tests: dict[str, str], measured: dict[str, dict[str, float]], mode: str
    ) -> Plan:
        """Choose what fits into the budget: of the nearest test files, the quickest tests first."""
        chosen: list[str] = []
        total = longest = 0.0
        for test_file in tests:
            of_file = measured.get(test_file, {})
            for test in sorted(of_file, key=of_file.__getitem__):
                if not chosen or total + of_file[test] <= self._budget_s:
                    chosen.append(test)
                    total += of_file[test]
                    longest = max(longest, of_file[test])
        if not chosen:
            raise SystemExit(f"no test of {file} passes without a fault")
        return Plan(tuple(chosen), mode == "interpreted", total, longest)


def _arguments(tests: dict[str, str]) -> tuple[str, ...]:
    """Return arguments of pytest: files, and for some of them which of their tests to run."""
    chosen = {test: keyword for test, keyword in tests.items() if keyword}
    if not chosen:
        return tuple(tests)
    files = " or ".join(Path(test).stem for test in chosen)
    keywords = " or ".join(dict.fromkeys(chosen.values()))
    return (*tests, "-k", f"{keywords} or not ({files})")


# Results.


def read_results(path: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the last result of each mutant."""
    results = {}
    if path.exists():
        for text in path.read_text().splitlines():
            line = json.loads(text)
            results[tuple(line[name] for name in ("file", "line", "kind", "old", "new"))] = line
    return results


def read_equal(path: Path) -> dict[tuple[str, str, str], str]:
    """Return the reasons why survivors change no answer, by file, old line and new line."""
    if not path.exists():
        return {}
    entries = tomllib.loads(path.read_text()).get("equal", [])
    return {(entry["file"], entry["old"], entry["new"]): entry["reason"] for entry in entries}


def report(
    results: list[dict[str, Any]], equal: dict[tuple[str, str, str], str]
) -> tuple[str, int]:
    """Return tables by target and by kind with a list of survivors, and how many there are."""
    judged = []
    for line in results:
        is_equal = (line["file"], line["old"], line["new"]) in equal
        outcome = "equal" if line["outcome"] == "survived" and is_equal else line["outcome"]
        judged.append(line | {"outcome": outcome})
    parts = [_table(by, judged) for by in ("target", "kind")]
    survivors = [line for line in judged if line["outcome"] == "survived"]
    for line in sorted(survivors, key=lambda line: (line["file"], line["line"])):
        parts.append(
            f"{line['file']}:{line['line']}  ({line['kind']})\n"
            f"  old: {line['old']}\n  new: {line['new']}"
        )
    return "\n\n".join(parts), len(survivors)


def _table(by: str, judged: list[dict[str, Any]]) -> str:
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for line in judged:
        rows[line[by]][line["outcome"]] += 1
        rows["all"][line["outcome"]] += 1
    total = rows.pop("all", Counter())
    lines = [
        f"{by:<18}{'mutants':>9}{'found':>8}{'survived':>10}{'equal':>7}"
        f"{'found of those that change an answer':>40}"
    ]
    for name, row in [*sorted(rows.items()), ("all", total)]:
        changing = row["found"] + row["survived"]
        share = f"{100 * row['found'] / changing:.0f} %" if changing else "-"
        lines.append(
            f"{name:<18}{row.total():>9}{row['found']:>8}{row['survived']:>10}{row['equal']:>7}"
            f"{share:>40}"
        )
    return "\n".join(lines)


def run_mutants(
    root: Path,
    mutants: list[Mutant],
    results: Path,
    budget_s: float = BUDGET_S,
    *,
    near: int = NEAR,
    compiled: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Try mutants, one after the other, and append what happened to the results."""
    with tempfile.TemporaryDirectory(prefix="nearcast-mutants-") as folder:
        copy = Copy(root, Path(folder))
        copy.check_imports()
        planner = Planner(copy, results.parent, budget_s, near=near, compiled=compiled)
        plans = planner.plans({mutant.file: mutant.target for mutant in mutants}, say)
        results.parent.mkdir(parents=True, exist_ok=True)
        for number, mutant in enumerate(mutants, 1):
            plan = plans[mutant.file]
            outcome = try_mutant(copy, mutant, plan)
            line = {**mutant._asdict(), **outcome._asdict(), "tests": len(plan.tests)}
            with results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            say(
                f"{number}/{len(mutants)} {outcome.outcome}"
                f"{f' by {outcome.how}' if outcome.how else ''} in {outcome.seconds:.0f} s: "
                f"{mutant.file}:{mutant.line} {mutant.new}"
            )


def main() -> None:
    """Plant faults, and tell which of them no test found."""
    parser = argparse.ArgumentParser(description="Plant faults, and see whether tests find them.")
    parser.add_argument("--count", type=int, default=200, help="how many faults")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--only", default="*", help="a pattern of files, or a target")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds of tests for each")
    parser.add_argument("--near", type=int, default=NEAR, help="how many test files for each")
    parser.add_argument("--list", action="store_true", help="print the faults, and run nothing")
    parser.add_argument("--report", action="store_true", help="print the results, and run nothing")
    parser.add_argument("--again", action="store_true", help="try those that survived once more")
    parser.add_argument("--compiled", action="store_true", help="compile kernels")
    parser.add_argument("--results", type=Path, default=ROOT / RESULTS)
    parser.add_argument(
        "--judge", type=Path, default=ROOT / EQUAL, help="survivors that change no answer"
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and so are its tests
    mutants = selected(ROOT, given.count, given.seed, given.only)
    if given.list:
        for mutant in mutants:
            print(f"{mutant.file}:{mutant.line}  ({mutant.kind})\n  {mutant.old}\n  {mutant.new}")
        return
    equal = read_equal(given.judge)
    known = read_results(given.results)
    if given.again:
        waiting = [
            mutant
            for mutant in mutants
            if known.get(mutant.key, {}).get("outcome") == "survived"
            and (mutant.file, mutant.old, mutant.new) not in equal
        ]
    else:
        waiting = [mutant for mutant in mutants if mutant.key not in known]
    if waiting and not given.report:
        run_mutants(
            ROOT, waiting, given.results, given.budget, near=given.near, compiled=given.compiled
        )
    known = read_results(given.results)
    text, survivors = report([known[m.key] for m in mutants if m.key in known], equal)
    print(text)
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
