"""Ranked subscriptions of a benchmark: their kind, and the ranges that they are drawn from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nearcast import indexes
from nearcast.columns import Scoring
from nearcast.datasets.ranges import show_ranges
from nearcast.errors import UnknownName

if TYPE_CHECKING:
    from nearcast.columns import Ranked
    from nearcast.datasets.workloads import Workload
    from nearcast.indexes import Builder

__all__ = ["RANKED_KINDS", "Ranking", "compared_names", "default_index", "of_kind"]

RANKED_KINDS = ("proximity", "overlap")


@dataclass(frozen=True)
class Ranking:
    """The ranges of ranked subscriptions, and how they score.

    Parameters
    ----------
    kind
        ``proximity`` or ``overlap``.
    text_share, threshold, max_distance_m
        As in `Workload.ranked`; the defaults are the ranges of the papers.
    scoring
        The similarity and the distance.

    Examples
    --------
    >>> Ranking("overlap", text_share=(0.25, 0.5)).to_dict()
    {'alpha': [0.5, 0.75], 'theta': [0.5, 1.0], 'similarity': 'containment'}
    """

    kind: str
    text_share: tuple[float, float] = (0.0, 1.0)
    threshold: tuple[float, float] = (0.5, 1.0)
    max_distance_m: tuple[float, float] = (100_000.0, 100_000.0)
    scoring: Scoring = field(default_factory=Scoring)

    def __post_init__(self) -> None:
        if self.kind not in RANKED_KINDS:
            raise UnknownName("ranked kind", self.kind, RANKED_KINDS)

    def draw(self, workload: Workload, count: int) -> Ranked:
        """Draw the subscriptions of a workload."""
        return workload.ranked(
            count,
            self.kind,
            text_share=self.text_share,
            threshold=self.threshold,
            max_distance_m=self.max_distance_m,
            scoring=self.scoring,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the ranges under the names that users know, the similarity and the distance."""
        ranges = {
            "text_share": self.text_share,
            "threshold": self.threshold,
            "max_distance_m": self.max_distance_m,
        }
        shown: dict[str, Any] = show_ranges({self.kind: ranges})
        shown["similarity"] = self.scoring.similarity
        # Overlap measures areas, no distances.
        return shown | ({"distance": self.scoring.distance} if self.kind == "proximity" else {})


def default_index(kind: str) -> str:
    """Return the name of the default index of a kind of subscriptions."""
    return indexes.DEFAULT if kind == "boolean" else indexes.RANKED_DEFAULT


def compared_names(kind: str) -> list[str]:
    """Return the indexes of a kind that a comparison measures: all but the scan.

    Examples
    --------
    >>> "scan" in compared_names("boolean"), "trie-pyramid" in compared_names("boolean")
    (False, True)
    """
    return [name for name in indexes.names(kind) if name != "scan"]


def of_kind(builder: Builder, kind: str) -> Builder:
    """Return the builder for one kind; an index that does not take it is an error."""
    # A builder would otherwise give the subscriptions to the default index of their kind.
    if kind not in builder.kinds:
        names = indexes.names(kind)
        raise UnknownName("index", builder.index.name, names, of=f"{kind} subscriptions")
    return builder.for_kind(kind)
