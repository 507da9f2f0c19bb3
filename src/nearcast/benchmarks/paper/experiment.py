"""The definition of an experiment: series, figures, data sets and statements."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nearcast import indexes
from nearcast.benchmarks.paper.data import Data
from nearcast.errors import InvalidInput, UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nearcast.benchmarks.paper.figures import Figure, Point, Sweep
    from nearcast.benchmarks.paper.statements import Case, Statement
    from nearcast.indexes import Builder

__all__ = ["Experiment", "Plan", "Series"]


@dataclass(frozen=True)
class Series:
    """An index with options, over the first ``share`` of the subscriptions.

    It is built from the first share ``built`` of these; the others are inserted.
    """

    index: str
    options: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0
    built: float = 1.0

    def builder(self) -> Builder:
        """Return the builder of the index; unknown names are an error."""
        return indexes.create(self.index, **self.options)


@dataclass(frozen=True)
class Experiment:
    """A paper's experiments.

    ``highlighted`` is the series to highlight in figures, the paper's best. ``data`` has data sets
    with changed parameters; all other names are names of workloads. ``note`` says what else the
    reader must know, such as parameters that the paper does not give. ``summary`` has pairs of a
    data set and a group of messages: all series that are measured there get a table of costs.
    ``range_share`` is the largest area of a range message, if not that of the plan.
    """

    name: str
    title: str
    highlighted: str
    series: Mapping[str, Series]
    figures: tuple[Figure | Sweep, ...]
    statements: tuple[Statement, ...]
    data: Mapping[str, Data] = field(default_factory=dict)
    note: str = ""
    summary: tuple[tuple[str, str], ...] = ()
    range_share: float | None = None

    def __post_init__(self) -> None:
        for figure in self.figures:
            for point in figure.points():
                if point.series not in self.series:
                    raise UnknownName("series", point.series, self.series)
        for statement in self.statements:
            for case in statement.cases:
                for point in case.points():
                    self._check(statement, point)

    def _check(self, statement: Statement, point: Point) -> None:
        """Raise an error if no figure measures what a statement is about."""
        if point.series not in self.series:
            raise UnknownName("series", point.series, self.series)
        if not self._is_measured(statement, point):
            raise InvalidInput(
                "statement",
                statement.key,
                f"no figure measures {point.series} on {point.dataset} {point.group}".rstrip(),
            )

    def _is_measured(self, statement: Statement, point: Point) -> bool:
        """Return whether a figure measures what a statement says about a point."""
        needed = self.needed(point.dataset, point.series, mixed=statement.quantity == "operations")
        measured = point.group in needed if point.group else bool(needed)
        if statement.quantity == "insert" and self.series[point.series].built == 1.0:
            measured = False
        return measured

    def only(self, names: Sequence[str]) -> Experiment:
        """Return the experiment with some of its figures, and what they say about statements.

        Without names, it is the whole experiment.
        """
        known = {figure.name: figure for figure in self.figures}
        for name in names:
            if name not in known:
                raise UnknownName("figure", name, known, of=self.name)
        if not names:
            return self
        some = replace(self, figures=tuple(known[name] for name in names), statements=())

        def measured(statement: Statement, case: Case) -> bool:
            return all(some._is_measured(statement, point) for point in case.points())

        kept = [
            replace(one, cases=tuple(case for case in one.cases if measured(one, case)))
            for one in self.statements
        ]
        return replace(some, statements=tuple(statement for statement in kept if statement.cases))

    @property
    def datasets(self) -> list[str]:
        """The data sets of all figures."""
        points = (point for figure in self.figures for point in figure.points())
        return list(dict.fromkeys(point.dataset for point in points))

    def data_of(self, dataset: str) -> Data:
        """Return a data set by name."""
        return self.data.get(dataset, Data(dataset))

    def needed(self, dataset: str, label: str, *, mixed: bool = False) -> list[str]:
        """Return the groups of messages of a series, in all figures or only in mixed ones."""
        # All figures include the mixed ones: their size depends on the cost of messages alone.
        groups = self._mixed_groups if mixed else self._all_groups
        return groups.get((dataset, label), [])

    @cached_property
    def _all_groups(self) -> dict[tuple[str, str], list[str]]:
        return _groups(self.figures)

    @cached_property
    def _mixed_groups(self) -> dict[tuple[str, str], list[str]]:
        return _groups([figure for figure in self.figures if figure.kind == "mixed"])


def _groups(figures: Iterable[Figure | Sweep]) -> dict[tuple[str, str], list[str]]:
    """Return the groups of messages that figures need, by data set and series."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for figure in figures:
        for point in figure.points():
            found.setdefault((point.dataset, point.series), {})[point.group] = None
    return {key: list(groups) for key, groups in found.items()}


@dataclass(frozen=True)
class Plan:
    """The size of an experiment.

    Parameters
    ----------
    subscriptions, messages, seed
        The workloads, and the number of messages of each group.
    rounds
        How often each index matches the messages.
    sample
        Number of messages per group to compare with the scan.
    range_share
        Largest area of a range message, as a share of the world.
    point_s
        Time for all rounds of one index on one group. Slow indexes get fewer messages.
    memory_bytes
        Maximum size of the indexes in memory. Indexes that fit run in rotation.
    """

    subscriptions: int = 1_000_000
    messages: int = 1_000
    seed: int = 0
    rounds: int = 5
    sample: int = 10
    range_share: float = 0.0001
    point_s: float = 3.0
    memory_bytes: float = 8e9

    def __post_init__(self) -> None:
        for name in ("messages", "rounds"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, getattr(self, name), "must be at least 1")
        # A mixed load deletes subscriptions in each round, at most half of all.
        if self.subscriptions < 1_000 + 100 * self.rounds:
            problem = f"must be at least {1_000 + 100 * self.rounds:,} for {self.rounds} rounds"
            raise InvalidInput("subscriptions", self.subscriptions, problem)
