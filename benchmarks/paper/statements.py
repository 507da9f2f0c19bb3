"""Statements of a paper, held against what was measured.

A statement is about a ratio (``rt+-tree`` to ``rt-tree``: below 1), in one or several cases, or
about a figure as such. A case is clear where all rounds lie on one side of the bound (the slowest
round of the one against the fastest of the other) and the median is not too near to it: copies of
one index differ by a few percent, by where they lie in memory. A statement holds where every case
is clear and on the paper's side, differs where one is clear and on the other, and is unclear
otherwise. How large the paper's own ratio is, where it says so, is shown beside the measured one
and not judged: that is the machine, the data and the size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.paper.figures import Spot
from benchmarks.paper.results import QUANTITIES, Measured, Results
from nearcast.errors import UnknownName

if TYPE_CHECKING:
    from benchmarks.paper.experiment import Experiment

__all__ = ["Case", "CaseResult", "Statement", "Verdict", "judge"]

HOLDS, DIFFERS, UNCLEAR, NOT_JUDGED = "holds", "differs", "unclear", "not judged"

FEWEST_ROUNDS = 3
"""With fewer rounds, equal indexes would too often seem to differ."""


@dataclass(frozen=True)
class Case:
    """Where a statement is looked at: one series, or one to the best of some others.

    Parameters
    ----------
    top
        The series whose figure is above the line.
    bottom
        The series below the line: of several, the best counts. Empty for a figure as such.
    group, bottom_group
        The group of messages, and that of the series below the line where it is another one; both
        empty for what is known from the build.
    dataset, bottom_dataset
        The data set, and that of the series below the line where it is another one.
    label
        What people call the case; the group where it is empty.
    """

    top: str
    bottom: tuple[str, ...] = ()
    group: str = ""
    bottom_group: str = ""
    dataset: str = "tweets"
    label: str = ""
    bottom_dataset: str = ""

    def spots(self) -> list[Spot]:
        """Return what the case needs: first what is above the line."""
        dataset, group = self.bottom_dataset or self.dataset, self.bottom_group or self.group
        below = [Spot(dataset, label, group) for label in self.bottom]
        return [Spot(self.dataset, self.top, self.group), *below]


@dataclass(frozen=True)
class Statement:
    """One statement of a paper.

    Parameters
    ----------
    key
        A short name, the same in every version.
    source
        Where the paper says so.
    says
        What it says, in our words.
    below, above
        The measured figure must lie below the one, or above the other, in every case.
    quantity
        One of `QUANTITIES`: ``time``, ``bytes``, ``build``…
    printed
        The paper's figure, where it prints one.
    at_size
        With how many subscriptions it means something; 0 if with any number.
    why
        Why it differs, where it does: shown after what was measured, and only then.
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
        """Return whether a figure is on the paper's side."""
        if self.below is not None:
            return value < self.below
        return self.above is not None and value > self.above


class CaseResult(NamedTuple):
    """What was measured in one case: a ratio or a figure, its rounds' range, and the work.

    ``examined`` and ``visited`` are ratios, None where one of the two has none. Each index counts
    them in its own way: they mean the same where both are ``alike``, one index with two options.
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
    """A statement and how it fares."""

    statement: Statement
    cases: list[CaseResult]
    verdict: str
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain values, case by case."""
        return {
            "statement": self.statement.key,
            "says": self.statement.says,
            "source": self.statement.source,
            "printed": self.statement.printed,
            "quantity": self.statement.quantity,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "cases": [case._asdict() for case in self.cases],
        }


def judge(experiment: Experiment, result: dict[str, Any]) -> list[Verdict]:
    """Hold all statements of an experiment against a result."""
    measured = Results(result)
    return [
        _judge(statement, [_case(statement, case, measured) for case in statement.cases], result)
        if result["subscriptions"] >= statement.at_size
        else _other_size(statement, result, measured)
        for statement in experiment.statements
    ]


def _judge(statement: Statement, cases: list[CaseResult], result: dict[str, Any]) -> Verdict:
    if QUANTITIES[statement.quantity].near and result["rounds"] < FEWEST_ROUNDS:
        return Verdict(statement, cases, NOT_JUDGED, f"fewer than {FEWEST_ROUNDS} rounds")
    found = {case.verdict for case in cases}
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
    above, *others = case.spots()
    top = measured.find(quantity, *above)
    label = case.label or case.group
    if not others:
        value, least, most = top.median, min(top.rounds), max(top.rounds)
        verdict = _side(statement, value, least, most)
        return CaseResult(label, "", value, least, most, None, None, True, verdict)
    below = [measured.find(quantity, *spot) for spot in others]
    best = max if QUANTITIES[quantity].more_is_better else min
    bottom = best(below, key=lambda one: one.median)
    value = top.median / bottom.median
    least = min(top.rounds) / max(bottom.rounds)
    most = max(top.rounds) / min(bottom.rounds)
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


def _work_ratio(top: Measured, bottom: Measured, name: str) -> float | None:
    if not top.work.get(name) or not bottom.work.get(name):
        return None
    return top.work[name] / bottom.work[name]


def _side(statement: Statement, value: float, least: float, most: float) -> str:
    """Return on which side of the bound a case is, if it is clear."""
    bound = statement.below if statement.below is not None else statement.above
    assert bound is not None
    agreeing = {statement.agrees(one) for one in (value, least, most)}
    near = abs(value / bound - 1) < QUANTITIES[statement.quantity].near
    if near or len(agreeing) > 1:
        return UNCLEAR
    return HOLDS if agreeing == {True} else DIFFERS


def _sentence(statement: Statement, cases: list[CaseResult], verdict: str) -> str:
    """Say where it does not hold, from what was measured."""
    if verdict == HOLDS:
        return ""
    parts = []
    if len(cases) > 1:
        holding = sum(case.verdict == HOLDS for case in cases)
        parts.append(f"holds in {holding} of {len(cases)}")
    for kind, name in ((DIFFERS, "against it"), (UNCLEAR, "within the noise")):
        some = [_told(statement, case) for case in cases if case.verdict == kind]
        if some:
            parts.append(f"{name}: " + ", ".join(some))
    if verdict == DIFFERS and statement.why:
        parts.append(statement.why)
    return "; ".join(parts)


def _told(statement: Statement, case: CaseResult) -> str:
    """Return a case with its figure, and whether the work says something else."""
    told = f"{case.label} {case.value:.3g}" + (" x" if case.bottom else "")
    work = [ratio for ratio in (case.examined, case.visited) if ratio is not None]
    against = case.alike and case.verdict == DIFFERS
    if work and against and all(statement.agrees(ratio) for ratio in work):
        told += " though the work is on the paper's side"
    return told
