"""Write the tables of docs/benchmarks/coverage.md: `make coverage` runs this.

The report is the one that ``coverage json`` writes. A package counts the statements and branches of
all its modules, whether a test imported them or not.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Self

from nearcast.plots.machine import describe_machine, machine_caption

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks" / "coverage.md"
LEAST_COVERED = 15
MIN_STATEMENTS = 20
WIDTH = 190

BEGIN, END = "<!-- coverage:begin -->", "<!-- coverage:end -->"


@dataclass
class Count:
    """Statements and branches, and how many of them ran."""

    statements: int = 0
    covered_statements: int = 0
    branches: int = 0
    covered_branches: int = 0

    @classmethod
    def of_summary(cls, summary: dict[str, Any]) -> Self:
        """Return the counts of a file in the report."""
        return cls(
            summary["num_statements"],
            summary["covered_lines"],
            summary["num_branches"],
            summary["covered_branches"],
        )

    def add(self, other: Count) -> None:
        """Add the counts of another file."""
        self.statements += other.statements
        self.covered_statements += other.covered_statements
        self.branches += other.branches
        self.covered_branches += other.covered_branches

    @property
    def percent(self) -> float:
        """The share of statements and branches that ran; of nothing, all of it."""
        total = self.statements + self.branches
        covered = self.covered_statements + self.covered_branches
        return 100 * covered / total if total else 100.0


def coverage_block(report: dict[str, Any], suites: list[str], note: str = "") -> str:
    """Return the part of the page between the two markers, for a report of coverage."""
    modules = {
        _module(path): Count.of_summary(file["summary"]) for path, file in report["files"].items()
    }
    packages: defaultdict[str, Count] = defaultdict(Count)
    total = Count()
    for module, count in modules.items():
        packages[_package(module)].add(count)
        total.add(count)
    measured = [name for name in sorted(packages) if any(_is_whole_suite(s, name) for s in suites)]
    large = [
        (count.percent, module)
        for module, count in modules.items()
        if count.statements >= MIN_STATEMENTS and _package(module) in measured
    ]
    poor = [(f"`{module}`", modules[module]) for _, module in sorted(large)[:LEAST_COVERED]]
    day = date.fromisoformat(report["meta"]["timestamp"][:10])
    machine = machine_caption(describe_machine())
    parts = [
        "## Packages",
        "A row is a package, or a module at the top of `nearcast`. Covered is the share of its "
        "statements and branches,\ntaken together, that ran.",
        _table(
            "package",
            [*((f"`{name}`", packages[name]) for name in sorted(packages)), ("**total**", total)],
        ),
        "## Modules with the least coverage",
        f"Modules of at least {MIN_STATEMENTS} statements, of the packages whose tests were all "
        f"measured: {_quoted(measured)}.",
        _table("module", poor),
        "## Measured suites",
        "\n".join(f"- `{suite}`" for suite in suites),
        *([textwrap.fill(note, WIDTH)] if note else []),
        f"Measured on {day}, with coverage {report['meta']['version']}; {machine}.",
    ]
    return "\n\n" + "\n\n".join(parts) + "\n\n"


def rewrite_page(path: Path, block: str) -> None:
    """Replace the text between the two markers of a page."""
    text = path.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"{path}: must contain {BEGIN} and, after it, {END}, once each")
    before, _, rest = text.partition(BEGIN)
    path.write_text(f"{before}{BEGIN}{block}{END}{rest.partition(END)[2]}")


def _quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(header: str, rows: list[tuple[str, Count]]) -> str:
    lines = [f"| {header} | statements | branches | covered |", "|---|---:|---:|---:|"]
    lines += [
        f"| {name} | {count.statements:,} | {count.branches:,} | {count.percent:.1f} % |"
        for name, count in rows
    ]
    return "\n".join(lines)


def _module(path: str) -> str:
    """Return the name of a module below ``nearcast``.

    Examples
    --------
    >>> _module("src/nearcast/storage/log/disk.py"), _module("src/nearcast/text/__init__.py")
    ('storage.log.disk', 'text')
    """
    name = path.partition("src/nearcast/")[2].removesuffix(".py").replace("/", ".")
    return name.removesuffix(".__init__").replace("__init__", "nearcast")


def _package(module: str) -> str:
    return module.partition(".")[0]


def _is_whole_suite(suite: str, package: str) -> bool:
    """Return whether a suite has all tests of a package: a folder, or a file that is alone.

    Examples
    --------
    >>> _is_whole_suite("tests/text", "text"), _is_whole_suite("tests/test_columns.py", "columns")
    (True, True)
    >>> _is_whole_suite("tests/compiled/test_sorting.py", "compiled")
    False
    """
    return suite.rstrip("/") in (f"tests/{package}", f"tests/test_{package}.py")


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(
        description="Rewrite the tables of docs/benchmarks/coverage.md."
    )
    parser.add_argument("report", type=Path, help="what coverage json has written")
    parser.add_argument("suites", nargs="+", help="the tests that were measured")
    parser.add_argument("--note", default="", help="a sentence for the end of the page")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to rewrite")
    given = parser.parse_args()
    report = json.loads(given.report.read_text())
    rewrite_page(given.page, coverage_block(report, given.suites, given.note))


if __name__ == "__main__":
    main()
