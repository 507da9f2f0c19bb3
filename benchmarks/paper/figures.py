"""What a figure is: which series are measured where, and how it is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from benchmarks.compare import GROUPS
from benchmarks.paper.results import QUANTITIES
from nearcast.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["KINDS", "Figure", "Group", "Line", "Spot", "Sweep"]

KINDS = ("lengths", "groups", "scale", "mixed", "datasets")
"""Kinds of figures: over the length of messages, over their groups, over the number of
subscriptions, with subscriptions that change meanwhile, and over data sets."""


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


class Spot(NamedTuple):
    """Where something is measured: a series over a data set, with a group of messages."""

    dataset: str
    series: str
    group: str = "short-point"


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
        The data sets: a row of panels each, or for ``datasets`` a column.
    groups
        The panels, from left to right; for ``datasets`` there is one group.
    lengths
        For ``lengths``: the tokens of messages in each panel.
    names
        What series are called in the legend, where it is not their label.
    measures
        For ``datasets``: what is shown, a row of panels each.
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

    def points(self) -> list[str]:
        """Return the names of all groups of messages that the figure needs."""
        return [*self.groups, *(name for group in self.lengths for name in self.at(group))]

    def at(self, group: str) -> list[str]:
        """Return the groups of one length each that make up the panel of a group."""
        place = "range" if Group.named(group).ranges else "point"
        return [f"{tokens}-{place}" for tokens in self.lengths.get(group, ())]

    def spots(self) -> Iterator[Spot]:
        """Yield all that must be measured."""
        for dataset in self.datasets:
            for series in self.series:
                yield from (Spot(dataset, series, group) for group in self.points())


Line = dict[float, Spot]
"""The line of a sweep: where it is measured for every value of what grows."""


@dataclass(frozen=True)
class Sweep:
    """A figure of lines over something that grows: an option, a number of the data, a share.

    Parameters
    ----------
    name, title
        For the file and for people; the title says where it is in the paper.
    grows
        What grows from left to right.
    panels
        The lines by their names in the legend, panel by panel; all panels have the same names.
    measures
        What is shown, a row of panels each.
    """

    name: str
    title: str
    grows: str
    panels: Mapping[str, Mapping[str, Line]]
    measures: tuple[str, ...] = ("time",)
    kind: ClassVar[str] = "sweep"

    def __post_init__(self) -> None:
        _check(self.measures)
        first = list(next(iter(self.panels.values())))
        for title, lines in self.panels.items():
            if list(lines) != first:
                raise UnknownName(f"line of {title}", ", ".join(lines), first)

    @property
    def names(self) -> list[str]:
        """The names of the legend."""
        return list(next(iter(self.panels.values())))

    def spots(self) -> Iterator[Spot]:
        """Yield all that must be measured."""
        for lines in self.panels.values():
            for line in lines.values():
                yield from line.values()


def _check(measures: tuple[str, ...]) -> None:
    for name in measures:
        if name not in QUANTITIES:
            raise UnknownName("quantity", name, QUANTITIES)
