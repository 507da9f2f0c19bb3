"""The table of a paper's statements, with the measurements and the verdicts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nearcast.benchmarks.paper.results import QUANTITIES, Results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nearcast.benchmarks.paper.experiment import Experiment
    from nearcast.benchmarks.paper.statements import Statement, Verdict

__all__ = ["NOTE", "statement_table", "summary_table"]

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


def summary_table(
    experiment: Experiment, result: dict[str, Any]
) -> tuple[list[str], list[list[str]]]:
    """Return header and rows with the costs of each series, where the experiment sums up.

    There is a column of times for each pair in `Experiment.summary` that was measured.
    """
    found = Results(result)
    places = [pair for pair in experiment.summary if found.series(*pair)]
    labels = dict.fromkeys(label for pair in places for label in found.series(*pair))
    header = ["index"]
    for dataset, group in places:
        matches = found.find("answers", dataset, next(iter(found.series(dataset, group))), group)
        name = f"{dataset}, {group}: {_format_number(matches.median)} matches"
        header += [f"{name}, ms/message", "ns/match"]
    rows = []
    for label in labels:
        row = [f"`{label}`"]
        for dataset, group in places:
            if label not in found.series(dataset, group):
                row += ["", ""]
                continue
            ms = found.find("time", dataset, label, group).median / 1000
            row += [f"{ms:.3g}", _range([found.find("match", dataset, label, group).median])]
        build = found.find("build", places[0][0], label, "").median
        size = found.find("bytes", places[0][0], label, "").median
        rows.append([*row, _format_number(size), f"{build:.3g} s"])
    return [*header, "bytes/sub", "build"], rows if places else []


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
    values = [value for value in values if not math.isnan(value)]
    if not values:
        return "-"
    least, most = _format_number(min(values)), _format_number(max(values))
    return least if least == most else f"{least}-{most}"


def _format_number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1 or value < 0.01 else f"{value:.2f}"
