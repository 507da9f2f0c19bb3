"""The table of a paper's statements: what it says, what is measured here, and whether it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.paper.results import QUANTITIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.paper.statements import Statement, Verdict

__all__ = ["NOTE", "statement_table"]

HEADER = [
    "the paper says",
    "where",
    "printed",
    "measured",
    "examined",
    "visited",
    "verdict",
    "where not",
]

NOTE = (
    "Ratios (x) over all groups of messages that a statement is about. It is unclear where rounds "
    "lie on both sides of the bound, or all too near to it. Every index counts in its own way what "
    "it examined and visited: these two compare options of one index, and hardly two indexes."
)
"""What must be known to read the table."""


def statement_table(verdicts: Sequence[Verdict]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows, one row a statement; several cases make a range."""
    return HEADER, [_row(verdict) for verdict in verdicts]


def _row(verdict: Verdict) -> list[str]:
    statement, cases = verdict.statement, verdict.cases
    ratio = bool(cases[0].bottom)
    unit = "x" if ratio else QUANTITIES[statement.quantity].unit
    return [
        statement.says,
        statement.source,
        statement.printed or _bound(statement, unit),
        f"{_range([case.value for case in cases])} {unit}",
        _work([case.examined for case in cases]),
        _work([case.visited for case in cases]),
        verdict.verdict,
        verdict.sentence,
    ]


def _bound(statement: Statement, unit: str) -> str:
    if statement.below is not None:
        return f"below {statement.below:,g} {unit}"
    return f"above {statement.above:,g} {unit}"


def _work(ratios: list[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio is not None]
    return f"{_range(known)} x" if known else ""


def _range(values: list[float]) -> str:
    least, most = _figure(min(values)), _figure(max(values))
    return least if least == most else f"{least}-{most}"


def _figure(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1 or value < 0.01 else f"{value:.2f}"
