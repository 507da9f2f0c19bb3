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

from nearcast.errors import UnknownName

if TYPE_CHECKING:
    from nearcast.bench.paper.experiment import Experiment

__all__ = ["Case", "CaseResult", "Statement", "Verdict", "judge"]

HOLDS, DIFFERS, UNCLEAR, NOT_JUDGED = "holds", "differs", "unclear", "not judged"
_QUANTITIES = ("time", "bytes", "operations")

NEAR = 0.05
"""Times and rates within this share of a bound are on neither side of it."""

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
        empty for sizes.
    label
        What people call the case; the group where it is empty.
    """

    top: str
    bottom: tuple[str, ...] = ()
    group: str = ""
    bottom_group: str = ""
    dataset: str = "tweets"
    label: str = ""

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of messages that the case needs."""
        return tuple(name for name in (self.group, self.bottom_group) if name)


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
        ``time`` (microseconds a message), ``bytes`` (a subscription) or ``operations`` (a second).
    printed
        The paper's figure, where it prints one.
    at_size
        Whether it means something at the paper's number of subscriptions only.
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
    at_size: bool = False
    why: str = ""

    def __post_init__(self) -> None:
        if self.quantity not in _QUANTITIES:
            raise UnknownName("quantity", self.quantity, _QUANTITIES)
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


class _Measured(NamedTuple):
    """One series somewhere: its rounds, and the work that a message makes."""

    label: str
    rounds: list[float]
    median: float
    work: dict[str, float]


def judge(experiment: Experiment, result: dict[str, Any]) -> list[Verdict]:
    """Hold all statements of an experiment against a result."""
    measured = _Lookup(result)
    return [
        _judge(statement, [_case(statement, case, measured) for case in statement.cases], result)
        if not statement.at_size or result["subscriptions"] >= experiment.subscriptions
        else _other_size(statement, experiment, result, measured)
        for statement in experiment.statements
    ]


def _judge(statement: Statement, cases: list[CaseResult], result: dict[str, Any]) -> Verdict:
    if statement.quantity != "bytes" and result["rounds"] < FEWEST_ROUNDS:
        return Verdict(statement, cases, NOT_JUDGED, f"fewer than {FEWEST_ROUNDS} rounds")
    found = {case.verdict for case in cases}
    verdict = DIFFERS if DIFFERS in found else UNCLEAR if UNCLEAR in found else HOLDS
    return Verdict(statement, cases, verdict, _sentence(statement, cases, verdict))


def _other_size(
    statement: Statement, experiment: Experiment, result: dict[str, Any], measured: _Lookup
) -> Verdict:
    cases = [_case(statement, case, measured) for case in statement.cases]
    sentence = (
        f"the paper has {experiment.subscriptions:,} subscriptions, "
        f"this run {result['subscriptions']:,}"
    )
    return Verdict(statement, cases, NOT_JUDGED, sentence)


class _Lookup:
    """Finds what was measured, by quantity, data set, series and group."""

    def __init__(self, result: dict[str, Any]) -> None:
        self._times = {(p["dataset"], p["series"], p["group"]): p for p in result["points"]}
        self._mixed = {(p["dataset"], p["series"], p["group"]): p for p in result["mixed"]}
        self._builds = {(b["dataset"], b["series"]): b for b in result["builds"]}

    def index(self, dataset: str, label: str) -> str:
        """Return which index a series is."""
        return str(self._builds[dataset, label]["index"])

    def find(self, quantity: str, dataset: str, label: str, group: str) -> _Measured:
        if quantity == "bytes":
            value = float(self._builds[dataset, label]["bytes_per_subscription"])
            return _Measured(label, [value], value, {})
        if quantity == "operations":
            point = self._mixed[dataset, label, group]
            rounds = point["rounds_operations_per_second"]
            median = point["operations_per_second"]["median"]
            return _Measured(label, rounds, median, {})
        point = self._times[dataset, label, group]
        work = {name: float(point[f"{name}_per_message"]) for name in ("examined", "visited")}
        median = point["us_per_message"]["median"]
        return _Measured(label, point["rounds_us"], median, work)


def _case(statement: Statement, case: Case, measured: _Lookup) -> CaseResult:
    quantity = statement.quantity
    top = measured.find(quantity, case.dataset, case.top, case.group)
    label = case.label or case.group
    if not case.bottom:
        value, least, most = top.median, min(top.rounds), max(top.rounds)
        verdict = _side(statement, value, least, most)
        return CaseResult(label, "", value, least, most, None, None, True, verdict)
    below = [
        measured.find(quantity, case.dataset, name, case.bottom_group or case.group)
        for name in case.bottom
    ]
    best = max if quantity == "operations" else min
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
        measured.index(case.dataset, top.label) == measured.index(case.dataset, bottom.label),
        _side(statement, value, least, most),
    )


def _work_ratio(top: _Measured, bottom: _Measured, name: str) -> float | None:
    if not top.work.get(name) or not bottom.work.get(name):
        return None
    return top.work[name] / bottom.work[name]


def _side(statement: Statement, value: float, least: float, most: float) -> str:
    """Return on which side of the bound a case is, if it is clear."""
    bound = statement.below if statement.below is not None else statement.above
    assert bound is not None
    agreeing = {statement.agrees(one) for one in (value, least, most)}
    near = statement.quantity != "bytes" and abs(value / bound - 1) < NEAR
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
