"""What an experiment is: series, groups of messages, figures, and the paper's statements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nearcast import indexes
from nearcast.bench.compare import GROUPS
from nearcast.errors import InvalidInput, UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nearcast.bench.paper.statements import Statement
    from nearcast.indexes import Builder

__all__ = ["KINDS", "Experiment", "Figure", "Group", "Plan", "Series"]

KINDS = ("lengths", "groups", "scale", "mixed")
"""Kinds of figures: over the length of messages, over their groups, over the number of
subscriptions, and with subscriptions that change meanwhile."""


@dataclass(frozen=True)
class Series:
    """An index with options, over the first ``share`` of the subscriptions."""

    index: str
    options: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0

    def builder(self) -> Builder:
        """Choose the index; unknown names are refused here."""
        return indexes.create(self.index, **self.options)


@dataclass(frozen=True)
class Group:
    """Messages of one kind: how many tokens (None: as the data set has them), whether boxes."""

    tokens: tuple[int, int] | None
    ranges: bool

    @classmethod
    def named(cls, name: str) -> Group:
        """Read the name of a group.

        Examples
        --------
        >>> Group.named("long-range")
        Group(tokens=(100, 1000), ranges=True)
        >>> Group.named("20-point")
        Group(tokens=(20, 20), ranges=False)
        """
        if name in GROUPS:
            return cls(*GROUPS[name])
        tokens, _, place = name.partition("-")
        if not tokens.isdigit() or place not in {"point", "range"}:
            raise UnknownName("group", name, [*GROUPS, "20-point", "20-range"])
        return cls((int(tokens), int(tokens)), place == "range")


@dataclass(frozen=True)
class Figure:
    """One figure of the paper: which series, on which data sets, over which messages.

    Parameters
    ----------
    name, title
        For the file and for people; the title says where it is in the paper.
    kind
        One of `KINDS`.
    series
        Labels of the experiment's series, in the order of the legend. For ``scale``, those of one
        index over growing shares.
    datasets
        The data sets, a row of panels each.
    groups
        The panels, from left to right.
    lengths
        For ``lengths``: the tokens of messages in each panel.
    names
        What series are called in the legend, where it is not their label.
    """

    name: str
    title: str
    kind: str
    series: tuple[str, ...]
    datasets: tuple[str, ...] = ("tweets",)
    groups: tuple[str, ...] = tuple(GROUPS)
    lengths: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownName("kind of figure", self.kind, KINDS)

    def points(self) -> list[str]:
        """Return the names of all groups of messages that the figure needs."""
        return [*self.groups, *(name for group in self.lengths for name in self.at(group))]

    def at(self, group: str) -> list[str]:
        """Return the groups of one length each that make up the panel of a group."""
        place = "range" if Group.named(group).ranges else "point"
        return [f"{tokens}-{place}" for tokens in self.lengths.get(group, ())]


@dataclass(frozen=True)
class Experiment:
    """A paper's experiments.

    ``subscriptions`` is how many the paper has; statements about times and sizes as such (not as
    ratios) are judged at that size only. ``own`` is the series that stands out in pictures: the
    paper's best.
    """

    name: str
    title: str
    subscriptions: int
    own: str
    series: Mapping[str, Series]
    figures: tuple[Figure, ...]
    statements: tuple[Statement, ...]

    def __post_init__(self) -> None:
        for figure in self.figures:
            for label in figure.series:
                if label not in self.series:
                    raise UnknownName("series", label, self.series)
        for statement in self.statements:
            for case in statement.cases:
                self._check(statement, case.dataset, (case.top, *case.bottom), case.groups)

    def _check(
        self,
        statement: Statement,
        dataset: str,
        labels: tuple[str, ...],
        groups: tuple[str, ...],
    ) -> None:
        """Refuse a statement about something that no figure measures."""
        mixed = statement.quantity == "operations"
        for label in labels:
            needed = self.needed(dataset, label, mixed=mixed)
            if label not in self.series:
                raise UnknownName("series", label, self.series)
            for group in groups:
                if group not in needed:
                    raise InvalidInput(
                        "statement", statement.key, f"no figure measures {label} on {group}"
                    )

    @property
    def datasets(self) -> list[str]:
        """The data sets of all figures."""
        return list(dict.fromkeys(name for figure in self.figures for name in figure.datasets))

    def needed(self, dataset: str, label: str, *, mixed: bool = False) -> list[str]:
        """Return the groups of messages that a series is measured on, mixed with changes or not."""
        names = [
            name
            for figure in self.figures
            if dataset in figure.datasets and label in figure.series
            # A mixed load is sized by what messages alone cost.
            if figure.kind == "mixed" or not mixed
            for name in figure.points()
        ]
        return list(dict.fromkeys(names))


@dataclass(frozen=True)
class Plan:
    """At which size an experiment is run.

    Parameters
    ----------
    subscriptions, messages, seed
        The workloads; so many messages of each group.
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
