"""The data sets of an experiment: workloads with other numbers, expressions, or a drift."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.paper.expressions import draw_expressions, to_clauses
from nearcast.datasets.draw import hash_to_uniform
from nearcast.datasets.workloads import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nearcast.columns import Clauses

__all__ = ["Boolean", "Data", "Drifting"]

_DRIFT = 0.5
"""So much of a subscription's time of arrival depends on its words; the rest is chance."""


@dataclass(frozen=True)
class Data:
    """A data set: one of the workloads, with some numbers of its profile changed.

    Examples
    --------
    >>> three = Data("tweets", {"keywords": (3, 3)})
    >>> three.workload(seed=7).subscriptions(10).token_start[-1]
    np.int64(30)
    """

    dataset: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    draws: type[Workload] = Workload

    def workload(self, seed: int) -> Workload:
        """Return the source of subscriptions and messages."""
        return self.draws(self.dataset, seed, **self.changes)


class Boolean(Workload):
    """A workload whose subscriptions are boolean expressions of their keywords."""

    def subscriptions(self, count: int, *, first: int = 0) -> Clauses:
        """Draw subscriptions, each of one clause or several."""
        plain = super().subscriptions(count, first=first)
        rng = np.random.default_rng([self.seed, 5, first])
        return to_clauses(plain, draw_expressions(rng, plain))


class Drifting(Workload):
    """A workload whose words come into use one after the other, as those of real tweets do.

    The subscriptions are those of the plain workload in another order: every word has a time of
    its own, and a subscription comes about when its words do.
    """

    def subscriptions(self, count: int, *, first: int = 0) -> Clauses:
        """Draw subscriptions in the order of their arrival."""
        plain = super().subscriptions(count, first=first)
        rng = np.random.default_rng([self.seed, 6, first])
        when = np.add.reduceat(
            hash_to_uniform(plain.token.astype(np.uint64)), plain.token_start[:-1]
        )
        when /= np.diff(plain.token_start)
        order = np.argsort(_DRIFT * when + (1 - _DRIFT) * rng.random(count), kind="stable")
        return plain.take(order)
