"""The definition of a figure: what it measures, and how it is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from nearcast.benchmarks.compare import ALL_GROUPS, GROUPS
from nearcast.benchmarks.paper.results import QUANTITIES
from nearcast.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["KINDS", "Figure", "Group", "Line", "Point", "Sweep"]

KINDS = ("lengths", "groups", "scale", "mixed", "datasets")
"""Kinds of figures: over the length of messages, over their groups, over the number of
subscriptions, with changing subscriptions, and over data sets."""


@dataclass(frozen=True)
class Group:
    """Messages of one kind: range of tokens (None: as in the data set), and whether boxes."""

    tokens: tuple[int, int] | None
    ranges: bool

    @classmethod
    def named(cls, name: str) -> Group:
        """Parse the name of a group.

        Examples
        --------
        >>> Group.named("long-range")
        Group(tokens=(100, 1000), ranges=True)
        >>> Group.named("20-point")
        Group(tokens=(20, 20), ranges=False)
        """
        if name in ALL_GROUPS:
            return cls(*ALL_GROUPS[name])
        tokens, _, place = name.partition("-")
        if not tokens.isdigit() or place not in {"point", "range"}:
            raise UnknownName("group", name, [*ALL_GROUPS, "20-point", "20-range"])
        return cls((int(tokens), int(tokens)), place == "range")


class Point(NamedTuple):
    """A point to measure: a series on a data set, with a group of messages."""

    dataset: str
    series: str
    group: str = "short-point"


@dataclass(frozen=True)
class Figure:
    """One figure of the paper: series, data sets and groups of messages.

    Parameters
    ----------
    name, title
        Part of the file name, and the title, which has the number of the figure in the paper.
    kind
        One of `KINDS`.
    series
        Labels of the experiment's series, in the order of the legend. For ``scale``, those of one
        index over growing shares of the subscriptions.
    datasets
        The data sets: one row of panels each, or one column for ``datasets``.
    groups
        The panels, from left to right; ``datasets`` has only one group.
    lengths
        For ``lengths``: the numbers of tokens in each panel.
    names
        Names of series in the legend, if different from their labels.
    measures
        For ``datasets``: the quantities to show, one row of panels each.
    """

    name: str
    title: str
    kind: str
    series: tuple[str, ...]
    datasets: tuple[str, ...] = ("tweets",)
    groups: tuple[str, ...] = tuple(GROUPS)
    lengths: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    measures: tuple[str, ...] = ("time",)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownName("kind of figure", self.kind, KINDS)
        _check(self.measures)

    def group_names(self) -> list[str]:
        """Return the names of all groups of messages of the figure."""
        return [
            *self.groups,
            *(name for group in self.lengths for name in self.length_groups(group)),
        ]

    def length_groups(self, group: str) -> list[str]:
        """Return the groups with one length each that form the panel of a group."""
        place = "range" if Group.named(group).ranges else "point"
        return [f"{tokens}-{place}" for tokens in self.lengths.get(group, ())]

    def points(self) -> Iterator[Point]:
        """Yield all that must be measured."""
        for dataset in self.datasets:
            for series in self.series:
                yield from (Point(dataset, series, group) for group in self.group_names())


Line = dict[float, Point]
"""A line of a sweep: the point to measure for each value of the varied parameter."""


@dataclass(frozen=True)
class Sweep:
    """A figure of lines over a varied parameter: an option, a parameter of the data, or a share.

    Parameters
    ----------
    name, title
        Part of the file name, and the title, which has the number of the figure in the paper.
    parameter
        The name of the varied parameter.
    panels
        The lines of each panel by name; all panels have the same names.
    measures
        The quantities to show, one row of panels each.
    """

    name: str
    title: str
    parameter: str
    panels: Mapping[str, Mapping[str, Line]]
    measures: tuple[str, ...] = ("time",)
    kind: ClassVar[str] = "sweep"

    def __post_init__(self) -> None:
        _check(self.measures)
        first = list(next(iter(self.panels.values())))
        for title, lines in self.panels.items():
            if list(lines) != first:
                raise UnknownName("line", ", ".join(lines), first, of=title)

    @property
    def names(self) -> list[str]:
        """The names in the legend."""
        return list(next(iter(self.panels.values())))

    def points(self) -> Iterator[Point]:
        """Yield all that must be measured."""
        for lines in self.panels.values():
            for line in lines.values():
                yield from line.values()


def _check(measures: tuple[str, ...]) -> None:
    for name in measures:
        if name not in QUANTITIES:
            raise UnknownName("quantity", name, QUANTITIES)
