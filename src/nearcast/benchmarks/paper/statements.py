"""Statements of a paper, compared with the measurements.

A statement is about a ratio (``rt+-tree`` to ``rt-tree``: below 1), in one or several cases, or
about a single value. A case is clear if all rounds are on one side of the bound (the slowest round
of one series against the fastest of the other) and the median is not too close to the bound: copies
of one index differ by a few percent, depending on their memory layout. A statement holds if all
cases are clear and agree with the paper. It differs if a case is clear and contradicts the paper.
Otherwise it is unclear. The size of the paper's own ratio is shown beside the measured one, but not
judged: it depends on the machine, the data and the number of subscriptions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from nearcast.benchmarks.paper.figures import Point
from nearcast.benchmarks.paper.results import QUANTITIES, Measured, Results
from nearcast.errors import UnknownName

if TYPE_CHECKING:
    from nearcast.benchmarks.paper.experiment import Experiment

__all__ = ["Case", "CaseResult", "Statement", "Verdict", "judge"]

HOLDS, DIFFERS, UNCLEAR, NOT_JUDGED = "holds", "differs", "unclear", "not judged"

MIN_ROUNDS = 3
"""With fewer rounds, equal indexes would seem to differ too often."""


@dataclass(frozen=True)
class Case:
    """A case of a statement: one series, or one series relative to the best of some others.

    Parameters
    ----------
    top
        The series in the numerator of the ratio.
    bottom
        The series in the denominator; of several, the best is used. Empty for a single value.
    group, bottom_group
        The group of messages, and that of the denominator if it is different; both are empty for
        quantities of the build.
    dataset, bottom_dataset
        The data set, and that of the denominator if it is different.
    label
        The name of the case; the group if empty.
    """

    top: str
    bottom: tuple[str, ...] = ()
    group: str = ""
    bottom_group: str = ""
    dataset: str = "tweets"
    label: str = ""
    bottom_dataset: str = ""

    def points(self) -> list[Point]:
        """Return the points of the case, the numerator first."""
        dataset, group = self.bottom_dataset or self.dataset, self.bottom_group or self.group
        below = [Point(dataset, label, group) for label in self.bottom]
        return [Point(self.dataset, self.top, self.group), *below]


@dataclass(frozen=True)
class Statement:
    """One statement of a paper.

    Parameters
    ----------
    key
        A short name that does not change between versions.
    source
        The section or figure of the paper.
    says
        The statement, in our words.
    below, above
        The bound: the measured value must be below or above it in all cases.
    quantity
        One of `QUANTITIES`: ``time``, ``bytes``, ``build``…
    printed
        The value printed in the paper, if any.
    at_size
        The number of subscriptions from which the statement is judged; 0 for any number.
    why
        The explanation, shown only if the statement differs.
    """

    key: str
    source: str
    says: str
    cases: tuple[Case, ...]
    below: float | None = None
    above: float | None = None
    quantity: str = "time"
    printed: str = ""
    at_size: int = 0
    why: str = ""

    def __post_init__(self) -> None:
        if self.quantity not in QUANTITIES:
            raise UnknownName("quantity", self.quantity, QUANTITIES)
        if (self.below is None) == (self.above is None):
            raise ValueError(f"{self.key}: give one of below and above")

    def agrees(self, value: float) -> bool:
        """Return whether a value agrees with the paper."""
        if self.below is not None:
            return value < self.below
        return self.above is not None and value > self.above


class CaseResult(NamedTuple):
    """The measurement of one case: a ratio or a value, the range of its rounds, and the work.

    ``examined`` and ``visited`` are ratios, None if one of the two series has no such count. Each
    index defines these counts itself. They are comparable if both series are ``alike``: one index
    with different options.
    """

    label: str
    bottom: str
    value: float
    least: float
    most: float
    examined: float | None
    visited: float | None
    alike: bool
    verdict: str


class Verdict(NamedTuple):
    """A statement and the verdict about it."""

    statement: Statement
    cases: list[CaseResult]
    verdict: str
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict and its cases for JSON."""
        return {
            "statement": self.statement.key,
            "says": self.statement.says,
            "source": self.statement.source,
            "printed": self.statement.printed,
            "quantity": self.statement.quantity,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "cases": [
                {key: _to_json(value) for key, value in case._asdict().items()}
                for case in self.cases
            ],
        }


def judge(experiment: Experiment, result: dict[str, Any]) -> list[Verdict]:
    """Compare all statements of an experiment with a result."""
    measured = Results(result)
    return [
        _judge(statement, [_case(statement, case, measured) for case in statement.cases], result)
        if result["subscriptions"] >= statement.at_size
        else _other_size(statement, result, measured)
        for statement in experiment.statements
    ]


def _judge(statement: Statement, cases: list[CaseResult], result: dict[str, Any]) -> Verdict:
    if QUANTITIES[statement.quantity].near and result["rounds"] < MIN_ROUNDS:
        return Verdict(statement, cases, NOT_JUDGED, f"fewer than {MIN_ROUNDS} rounds")
    found = {case.verdict for case in cases}
    if NOT_JUDGED in found:
        some = ", ".join(case.label for case in cases if case.verdict == NOT_JUDGED)
        return Verdict(statement, cases, NOT_JUDGED, f"not measured: {some}")
    verdict = DIFFERS if DIFFERS in found else UNCLEAR if UNCLEAR in found else HOLDS
    return Verdict(statement, cases, verdict, _sentence(statement, cases, verdict))


def _other_size(statement: Statement, result: dict[str, Any], measured: Results) -> Verdict:
    cases = [_case(statement, case, measured) for case in statement.cases]
    sentence = (
        f"the paper has {statement.at_size:,} subscriptions, this run {result['subscriptions']:,}"
    )
    return Verdict(statement, cases, NOT_JUDGED, sentence)


def _case(statement: Statement, case: Case, measured: Results) -> CaseResult:
    quantity = statement.quantity
    above, *others = case.points()
    top = measured.find(quantity, *above)
    label = case.label or case.group
    if not others:
        value, least, most = top.median, min(top.rounds), max(top.rounds)
        verdict = _side(statement, value, least, most)
        return CaseResult(label, "", value, least, most, None, None, True, verdict)
    below = [measured.find(quantity, *point) for point in others]
    best = max if QUANTITIES[quantity].more_is_better else min
    known = [one for one in below if not math.isnan(one.median)]
    bottom = best(known or below, key=lambda one: one.median)
    value = _divide(top.median, bottom.median)
    least = _divide(min(top.rounds), max(bottom.rounds))
    most = _divide(max(top.rounds), min(bottom.rounds))
    return CaseResult(
        label,
        bottom.label,
        value,
        least,
        most,
        _work_ratio(top, bottom, "examined"),
        _work_ratio(top, bottom, "visited"),
        measured.index(*above[:2]) == measured.index(others[0].dataset, bottom.label),
        _side(statement, value, least, most),
    )


def _divide(top: float, bottom: float) -> float:
    """Return a ratio; NaN if there is none, because nothing was accessed or examined."""
    return top / bottom if bottom else math.nan


def _to_json(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _work_ratio(top: Measured, bottom: Measured, name: str) -> float | None:
    if not top.work.get(name) or not bottom.work.get(name):
        return None
    return top.work[name] / bottom.work[name]


def _side(statement: Statement, value: float, least: float, most: float) -> str:
    """Return whether a case holds, differs or is unclear."""
    bound = statement.below if statement.below is not None else statement.above
    assert bound is not None
    if math.isnan(value):
        return NOT_JUDGED
    agreeing = {statement.agrees(one) for one in (value, least, most)}
    near = abs(value / bound - 1) < QUANTITIES[statement.quantity].near
    if near or len(agreeing) > 1:
        return UNCLEAR
    return HOLDS if agreeing == {True} else DIFFERS


def _sentence(statement: Statement, cases: list[CaseResult], verdict: str) -> str:
    """Describe the cases in which a statement does not hold."""
    if verdict == HOLDS:
        return ""
    parts = []
    if len(cases) > 1:
        holding = sum(case.verdict == HOLDS for case in cases)
        parts.append(f"holds in {holding} of {len(cases)}")
    for kind, name in ((DIFFERS, "against it"), (UNCLEAR, "within the noise")):
        some = [_describe_case(statement, case) for case in cases if case.verdict == kind]
        if some:
            parts.append(f"{name}: " + ", ".join(some))
    if verdict == DIFFERS and statement.why:
        parts.append(statement.why)
    return "; ".join(parts)


def _describe_case(statement: Statement, case: CaseResult) -> str:
    """Return a case with its value, and a note if the work agrees with the paper."""
    text = f"{case.label} {case.value:.3g}" + (" x" if case.bottom else "")
    work = [ratio for ratio in (case.examined, case.visited) if ratio is not None]
    against = case.alike and case.verdict == DIFFERS
    if work and against and all(statement.agrees(ratio) for ratio in work):
        text += " though the work is on the paper's side"
    return text
