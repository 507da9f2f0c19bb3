"""The table of a paper's statements, with the measurements and the verdicts."""

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
    "Ratios (x) over all groups of messages of a statement. A statement is unclear if rounds are "
    "on both sides of the bound, or too close to it. Each index defines what it counts as examined "
    "and visited: use these two columns to compare options of one index, not different indexes."
)
"""The explanation of the table."""


def statement_table(verdicts: Sequence[Verdict]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows, one row per statement; several cases are shown as a range."""
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
    least, most = _format_number(min(values)), _format_number(max(values))
    return least if least == most else f"{least}-{most}"


def _format_number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1 or value < 0.01 else f"{value:.2f}"
