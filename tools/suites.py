"""Runs the suites of tests, two or three at a time, and shows how far each is.

    python tools/suites.py                  what `make test` runs
    python tools/suites.py --long           what `make test-all` runs: the long form of every suite
    python tools/suites.py spark server     these suites
    python tools/suites.py --since HEAD     what `make check` runs: style, types, and the tests of
                                            what changed since then and of what imports it

Failures are shown as they happen, and what each suite printed is in out/tests/NAME.log. The records
of all tests are in out/tests/NAME.jsonl, from which `tools/changed.py` knows how long they take.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from changed import BUDGET_S, changed_files, choose

__all__ = ["SUITES", "Suite"]

ROOT = Path(__file__).parents[1]
OUT = ROOT / "out" / "tests"
BIN = ROOT / ".venv" / "bin"
AT_ONCE = 2
"""Suites that run beside each other. One that mostly waits runs beside them."""

SLOWEST = 20
SHOWN_LINES = 40
EVERY_S = 20.0

OTHERS = ("spark", "kafka", "server", "client", "web", "package", "versions")
"""Folders of tests with suites of their own."""


@dataclass
class Suite:
    """A command and its environment.

    Parameters
    ----------
    what
        What it tests.
    command, environment
        What runs, and what that gets beside the environment of this process.
    waits
        Whether it mostly waits, so that others do not notice it.
    long_only
        Whether it belongs to the long form only.
    """

    what: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    waits: bool = False
    long_only: bool = False


def _tests(
    what: str,
    *arguments: str,
    workers: int = 2,
    waits: bool = False,
    long_only: bool = False,
    **environment: str,
) -> Suite:
    parallel = ["-n", str(workers)] if workers > 1 else []
    command = [str(BIN / "pytest"), "-p", "recording", *parallel, *arguments]
    return Suite(what, command, environment, waits, long_only)


def _shell(what: str, *commands: str, long_only: bool = False) -> Suite:
    return Suite(what, ["bash", "-ec", " && ".join(commands)], long_only=long_only)


KERNELS = [
    f"tests/compiled/test_{name}.py"
    for name in (
        "borrow",
        "distances_and_areas",
        "partition",
        "simd_boxes",
        "sorting",
        "token_table",
    )
]
ROADS = ["tests/datasets/test_movers.py", "tests/datasets/test_roads_network.py"]

# Those first that take longest.
SUITES = {
    "library": _tests("the library", *(f"--ignore=tests/{name}" for name in OTHERS)),
    "spark": _tests("Spark, in one process and on executors of their own", "tests/spark"),
    "server": _tests("the server and its client", "tests/server", "tests/client"),
    "interpreted": _tests(
        "kernels as plain Python, one index of each family",
        "tests/indexes/test_contract.py",
        "tests/indexes/moving/test_moving_contract.py",
        *KERNELS,
        NUMBA_DISABLE_JIT="1",
    ),
    "all-interpreted": _tests(
        "all kernels as plain Python",
        "tests/indexes",
        "tests/text",
        *KERNELS,
        *ROADS,
        long_only=True,
        NUMBA_DISABLE_JIT="1",
    ),
    "bounds": _tests(
        "compiled kernels that check every position in an array",
        "tests/indexes",
        "tests/text",
        "tests/compiled",
        long_only=True,
        NUMBA_BOUNDSCHECK="1",
    ),
    "versions": _tests(
        "the lowest versions, and the newest Python",
        "tests/versions",
        workers=1,
        long_only=True,
        NEARCAST_VERSIONS="1",
    ),
    "web": _tests("the map, in a browser", "tests/web", workers=1, waits=True),
    "package": _tests(
        "wheel and extras", "tests/package", workers=1, waits=True, NEARCAST_PACKAGE="1"
    ),
    "kafka": _tests(
        "streams through a Kafka broker",
        "tests/kafka",
        workers=1,
        long_only=True,
        NEARCAST_KAFKA="1",
    ),
    "attack": _shell(
        "attacks on a server, and what they did to it",
        f"PYTHONPATH=tests:tests/server/faults {BIN}/python -u -m attack --long",
        long_only=True,
    ),
    "types": _shell("mypy", f"{BIN}/mypy"),
    "map": _shell(
        "the map's modules in Node",
        "if ! command -v npm; then echo 'Node.js is not installed'; exit; fi",
        "cd web",
        "npm test --silent",
    ),
    "docs": _shell("the documentation site", f"NO_MKDOCS_2_WARNING=1 {BIN}/mkdocs build --strict"),
    "lint": _shell(
        "style and layers",
        f"{BIN}/ruff check .",
        f"{BIN}/ruff format --check .",
        f"{BIN}/lint-imports --no-cache",
    ),
}


class Run:
    """A suite that runs, or has run."""

    def __init__(self, name: str, suite: Suite, long: bool) -> None:
        self.name, self.suite = name, suite
        self.tests = 0
        self.outcomes: Counter[str] = Counter()
        self.seconds: dict[str, float] = defaultdict(float)
        self.failures: list[str] = []
        self._record = OUT / f"{name}.jsonl"
        self._record.unlink(missing_ok=True)
        self._record.touch()
        self._lines: IO[str] = open(self._record)
        self.log = OUT / f"{name}.log"
        environment = {**os.environ, **suite.environment, "NEARCAST_RECORD": str(self._record)}
        environment["PYTHONPATH"] = str(ROOT / "tools")
        if long:
            environment["NEARCAST_LONG"] = "1"
        self.started = time.monotonic()
        self.ended = 0.0
        self.cpu_s = 0.0
        self.code: int | None = None
        with open(self.log, "w") as log:
            self._process = subprocess.Popen(
                suite.command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def took_s(self) -> float:
        """How long it has been running, or ran."""
        return (self.ended or time.monotonic()) - self.started

    @property
    def failed(self) -> bool:
        """Whether it ended badly."""
        return self.code not in (None, 0)

    def read(self) -> list[dict[str, Any]]:
        """Read what was recorded since the last time; return the failures."""
        failed = []
        while (at := self._lines.tell(), line := self._lines.readline())[1]:
            if not line.endswith("\n"):
                self._lines.seek(at)
                break
            one = json.loads(line)
            if "tests" in one:
                self.tests = one["tests"]
                continue
            if one["phase"] == "collect":  # every worker says it
                if one["test"] in self.seconds:
                    continue
                self.seconds[one["test"]] = 0.0
            self.seconds[one["test"]] += one["seconds"]
            if one["phase"] == "call" or one["outcome"] != "passed":
                self.outcomes[one["outcome"]] += 1
            if one["outcome"] == "failed":
                failed.append(one)
        return failed

    def has_ended(self) -> bool:
        """Whether nothing more will be recorded."""
        self._wait(os.WNOHANG)
        return bool(self.ended)

    def stop(self) -> None:
        """End it, with all that it has started."""
        if not self.ended:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._wait(0)

    def _wait(self, how: int) -> None:
        """Note the end, and the seconds of CPU of what it started and waited for."""
        if self.ended:
            return
        ended, status, used = os.wait4(self._process.pid, how)
        if ended:
            self.ended = time.monotonic()
            self.cpu_s = used.ru_utime + used.ru_stime
            self.code = self._process.returncode = os.waitstatus_to_exitcode(status)

    def progress(self) -> str:
        """Say how far it is."""
        done = sum(self.outcomes.values())
        share = (
            f"{100 * done // self.tests:3d} %, {done:,} of {self.tests:,}" if self.tests else "..."
        )
        failed = f", {self.outcomes['failed']} failed" if self.outcomes["failed"] else ""
        return f"{self.name:12} {share}{failed}"


def main() -> int:
    """Run suites; return 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="suite", help=", ".join(SUITES))
    parser.add_argument("--long", action="store_true", help="the long form of every suite")
    parser.add_argument(
        "--since", metavar="REV", help="style, types, and the tests of what changed"
    )
    given = parser.parse_args()
    unknown = set(given.names) - set(SUITES)
    if unknown:
        parser.error(f"no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    suites = SUITES
    if given.since:
        suites = _changed(given.since) | {name: SUITES[name] for name in ("types", "lint")}
    elif given.names:
        suites = {name: SUITES[name] for name in given.names}
    elif not given.long:
        suites = {name: suite for name, suite in SUITES.items() if not suite.long_only}
    OUT.mkdir(parents=True, exist_ok=True)
    return _summary(_run(suites, given.long))


def _changed(revision: str) -> dict[str, Suite]:
    """Return a suite with the tests of what has changed, nearest first."""
    choice = choose(changed_files(revision), BUDGET_S)
    if choice.left_out:
        print(f"Left to `make test`, as too long or too far: {', '.join(choice.left_out)}")
    if not choice.chosen:
        return {}
    return {"changed": _tests("what changed, and what imports it", *choice.chosen)}


def _run(suites: dict[str, Suite], long: bool) -> list[Run]:
    waiting, running, ended = list(suites), list[Run](), list[Run]()
    start = shown = time.monotonic()
    try:
        while waiting or running:
            for name in _next(suites, waiting, [run.suite for run in running]):
                waiting.remove(name)
                running.append(Run(name, suites[name], long))
                _say(start, f"{name:12} begins: {suites[name].what}")
            time.sleep(0.5)
            for run in list(running):
                over = run.has_ended()
                for failure in run.read():
                    _show_failure(run, failure)
                if over:
                    running.remove(run)
                    ended.append(run)
                    _show_end(start, run)
            if time.monotonic() - shown >= EVERY_S:
                shown = time.monotonic()
                for run in running:
                    _say(start, run.progress())
    finally:
        for run in running:
            run.stop()
    return ended


def _next(suites: dict[str, Suite], waiting: list[str], running: list[Suite]) -> list[str]:
    """Return which suites begin now: up to `AT_ONCE`, and one that mostly waits."""
    missing = {True: 1, False: AT_ONCE}
    for suite in running:
        missing[suite.waits] -= 1
    chosen = []
    for kind, count in missing.items():
        chosen += [name for name in waiting if suites[name].waits == kind][: max(count, 0)]
    return chosen


def _clock(seconds: float) -> str:
    minutes, left = divmod(int(seconds), 60)
    return f"{minutes}:{left:02d}"


def _say(start: float, text: str) -> None:
    print(f"{_clock(time.monotonic() - start):>6}  {text}", flush=True)


def _show_failure(run: Run, failure: dict[str, Any]) -> None:
    print(f"\nFAILED {failure['test']} ({run.name}, {failure['phase']})")
    lines = failure["why"].splitlines()
    if len(lines) > SHOWN_LINES:
        print(f"... ({len(lines) - SHOWN_LINES} lines more in {run.log.relative_to(ROOT)})")
    print("\n".join(lines[-SHOWN_LINES:]) + "\n", flush=True)


def _show_end(start: float, run: Run) -> None:
    counts = _counts(run.outcomes) or ("failed" if run.failed else "ok")
    _say(start, f"{run.name:12} ended after {_clock(run.took_s)}: {counts}")
    if run.failed and not run.outcomes["failed"]:
        said = run.log.read_text(errors="replace").splitlines()
        print("\n".join(said[-SHOWN_LINES:]), flush=True)


def _counts(outcomes: Counter[str]) -> str:
    order = ("failed", "passed", "skipped")
    return ", ".join(f"{outcomes[name]} {name}" for name in order if outcomes[name])


def _summary(runs: list[Run]) -> int:
    print("\nSuite         time     CPU   tests")
    for run in sorted(runs, key=lambda run: -run.took_s):
        counts = _counts(run.outcomes) or ("failed" if run.failed else "ok")
        print(f"{run.name:12} {_clock(run.took_s):>5}   {_clock(run.cpu_s):>5}   {counts}")
    tests = [(took, f"{test} ({run.name})") for run in runs for test, took in run.seconds.items()]
    print(f"\nThe {SLOWEST} slowest tests, in seconds")
    for took, test in sorted(tests, reverse=True)[:SLOWEST]:
        print(f"{took:8.1f}  {test}")
    outcomes = Counter[str]()
    for run in runs:
        outcomes.update(run.outcomes)
        if run.failed and not run.outcomes["failed"]:  # a command that is not pytest, or pytest
            outcomes["failed"] += 1
        elif not run.outcomes:
            outcomes["passed"] += 1
    took = max(run.ended for run in runs) - min(run.started for run in runs)
    print(f"\n{_counts(outcomes)} in {took:.2f}s ({_clock(took)})", flush=True)
    return 1 if outcomes["failed"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
