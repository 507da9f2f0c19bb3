"""The data sets of an experiment: workloads with other parameters, expressions, or a drift."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.benchmarks.paper.expressions import draw_expressions, to_clauses
from nearcast.datasets.draw import hash_to_uniform
from nearcast.datasets.workloads import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nearcast.benchmarks.ranking import Ranking
    from nearcast.columns import Clauses, Ranked

__all__ = ["Boolean", "Data", "Drifting"]

_DRIFT = 0.5
"""The share of a subscription's arrival time that depends on its words; the rest is random."""


@dataclass(frozen=True)
class Data:
    """A data set: a workload with some parameters of its profile changed.

    ``ranking`` has the ranges of ranked subscriptions; None for boolean ones.

    Examples
    --------
    >>> three = Data("tweets", {"keywords": (3, 3)})
    >>> three.workload(seed=7).subscriptions(10).token_start[-1]
    np.int64(30)
    """

    dataset: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    workload_class: type[Workload] = Workload
    ranking: Ranking | None = None

    @property
    def kind(self) -> str:
        """The kind of the subscriptions."""
        return "boolean" if self.ranking is None else self.ranking.kind

    def workload(self, seed: int) -> Workload:
        """Return the workload."""
        return self.workload_class(self.dataset, seed, **self.changes)

    def draw(self, workload: Workload, count: int) -> Clauses | Ranked:
        """Draw the subscriptions of a workload."""
        if self.ranking is None:
            return workload.subscriptions(count)
        return self.ranking.draw(workload, count)


class Boolean(Workload):
    """A workload whose subscriptions are boolean expressions of their keywords."""

    def subscriptions(self, count: int, *, first: int = 0) -> Clauses:
        """Draw subscriptions with one or several clauses."""
        base = super().subscriptions(count, first=first)
        rng = np.random.default_rng([self.seed, 5, first])
        return to_clauses(base, draw_expressions(rng, base))


class Drifting(Workload):
    """A workload whose words change over time, as in real tweets.

    The subscriptions are those of the base workload in another order: each word has a random time,
    and a subscription arrives at about the mean time of its words.
    """

    def subscriptions(self, count: int, *, first: int = 0) -> Clauses:
        """Draw subscriptions in the order of their arrival."""
        base = super().subscriptions(count, first=first)
        rng = np.random.default_rng([self.seed, 6, first])
        arrival = np.add.reduceat(
            hash_to_uniform(base.token.astype(np.uint64)), base.token_start[:-1]
        )
        arrival /= np.diff(base.token_start)
        order = np.argsort(_DRIFT * arrival + (1 - _DRIFT) * rng.random(count), kind="stable")
        return base.take(order)
