"""What an experiment is: series, figures, data sets, and the paper's statements."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from benchmarks.paper.data import Data
from nearcast import indexes
from nearcast.errors import InvalidInput, UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.paper.figures import Figure, Spot, Sweep
    from benchmarks.paper.statements import Statement
    from nearcast.datasets.workloads import Workload
    from nearcast.indexes import Builder

__all__ = ["Experiment", "Plan", "Series"]


@dataclass(frozen=True)
class Series:
    """An index with options, over the first ``share`` of the subscriptions.

    It is built from the first ``built`` of these; the others are inserted.
    """

    index: str
    options: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0
    built: float = 1.0

    def builder(self) -> Builder:
        """Choose the index; unknown names are refused here."""
        return indexes.create(self.index, **self.options)


@dataclass(frozen=True)
class Experiment:
    """A paper's experiments.

    ``own`` is the series that stands out in pictures: the paper's best. ``data`` are data sets
    that differ from those of the workloads; every other name is that of a workload.
    """

    name: str
    title: str
    own: str
    series: Mapping[str, Series]
    figures: tuple[Figure | Sweep, ...]
    statements: tuple[Statement, ...]
    data: Mapping[str, Data] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for figure in self.figures:
            for spot in figure.spots():
                if spot.series not in self.series:
                    raise UnknownName("series", spot.series, self.series)
        for statement in self.statements:
            for case in statement.cases:
                for spot in case.spots():
                    self._check(statement, spot)

    def _check(self, statement: Statement, spot: Spot) -> None:
        """Refuse a statement about something that no figure measures."""
        if spot.series not in self.series:
            raise UnknownName("series", spot.series, self.series)
        needed = self.needed(spot.dataset, spot.series, mixed=statement.quantity == "operations")
        measured = spot.group in needed if spot.group else bool(needed)
        if statement.quantity == "insert" and self.series[spot.series].built == 1.0:
            measured = False
        if not measured:
            raise InvalidInput(
                "statement",
                statement.key,
                f"no figure measures {spot.series} on {spot.dataset} {spot.group}".rstrip(),
            )

    @property
    def datasets(self) -> list[str]:
        """The data sets of all figures."""
        spots = (spot for figure in self.figures for spot in figure.spots())
        return list(dict.fromkeys(spot.dataset for spot in spots))

    def workload(self, dataset: str, seed: int) -> Workload:
        """Return the source of a data set."""
        return self.data.get(dataset, Data(dataset)).workload(seed)

    def needed(self, dataset: str, label: str, *, mixed: bool = False) -> list[str]:
        """Return the groups of messages that a series is measured on, mixed with changes or not."""
        # A mixed load is sized by what messages alone cost.
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
        for spot in figure.spots():
            found.setdefault((spot.dataset, spot.series), {})[spot.group] = None
    return {key: list(groups) for key, groups in found.items()}


@dataclass(frozen=True)
class Plan:
    """At which size an experiment is run.

    Parameters
    ----------
    subscriptions, messages, seed
        The workloads, and the number of messages of each group.
    rounds
        How often the messages are matched by each index.
    sample
        How many messages of each group are checked against the scan.
    range_share
        The most area of a message that is a box, as a share of the world's.
    point_s
        The time for all rounds of one index over one group; slow ones make messages fewer.
    memory_bytes
        So much may be held in indexes at once; those that fit take turns.
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
        # A mixed load deletes some in every round, and leaves at least half of them.
        if self.subscriptions < 1_000 + 100 * self.rounds:
            problem = f"must be at least {1_000 + 100 * self.rounds:,} for {self.rounds} rounds"
            raise InvalidInput("subscriptions", self.subscriptions, problem)
