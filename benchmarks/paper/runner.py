"""One index of an experiment: built, grown, checked and timed."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import Clauses, Messages
from nearcast.errors import NearcastError
from nearcast.indexes import UpdatableIndex
from nearcast.plots.machine import PeakMemory

if TYPE_CHECKING:
    from benchmarks.paper.experiment import Series
    from nearcast.indexes import Builder, Index

__all__ = ["Runner", "check_sample"]

_INSERTED = 10_000
"""So many subscriptions are inserted at a time into an index that grows."""

_WARM = 3_000
"""So many clauses are enough for every kernel of an index to run once."""


class Runner:
    """One index of a heat."""

    def __init__(self, label: str, series: Series, groups: list[str]) -> None:
        self.label = label
        self.series = series
        self.groups = groups
        self.index: Index
        self.rounds_us: list[float] = []

    def build(self, clauses: Clauses) -> dict[str, Any]:
        """Build the index, watching time and memory, and insert the rest; return what it cost."""
        builder = self.series.builder()
        _compile(builder, clauses)
        count = round(clauses.subscriptions * self.series.share)
        built = round(count * self.series.built)
        first = clauses
        if built < clauses.subscriptions:
            first = clauses.take(np.arange(built))
        with PeakMemory() as memory:
            began = time.perf_counter()
            self.index = builder.build(first)
            spent = time.perf_counter() - began
        del first
        grown = self._insert(clauses, range(built, count)) if built < count else {}
        return {
            "series": self.label,
            "index": self.series.index,
            "options": {name: _plain(value) for name, value in vars(builder.options).items()},
            "subscriptions": count,
            "built": built,
            "build_s": spent,
            "build_peak_bytes": memory.growth_bytes,
            "index_bytes": self.index.nbytes,
            "bytes_per_subscription": self.index.nbytes / count,
            **grown,
        }

    def _insert(self, clauses: Clauses, rows: range) -> dict[str, float]:
        """Insert subscriptions in the order of their rows; return what each took."""
        index = self.index
        if not isinstance(index, UpdatableIndex):
            raise NearcastError(f"{self.label} takes no changes; build it from all subscriptions")
        spent = 0.0
        for first in range(rows.start, rows.stop, _INSERTED):
            some = clauses.take(np.arange(first, min(first + _INSERTED, rows.stop)))
            began = time.perf_counter()
            index.insert(some)
            spent += time.perf_counter() - began
        return {"us_per_insert": spent / len(rows) * 1e6}

    def match(self, messages: Messages) -> float:
        """Match messages; return the microseconds each took."""
        began = time.perf_counter()
        self.index.match(messages)
        return (time.perf_counter() - began) / len(messages) * 1e6

    def verify(self, sample: Messages, expected: set[tuple[int, int]]) -> dict[str, int]:
        """Compare the answers to a sample with those of the scan over all subscriptions."""
        last = self.index.clauses.subscriptions
        own = {pair for pair in expected if pair[1] < last}
        check_sample(self.label, self.index, sample, own)
        return {"verified_messages": len(sample), "verified_matches": len(own)}


def check_sample(
    label: str, index: Index, sample: Messages, expected: set[tuple[int, int]]
) -> None:
    """Refuse the figures of an index that does not agree with the scan."""
    found = index.match(sample).pairs()
    if found != expected:
        raise NearcastError(
            f"{label} does not agree with the scan: of {len(expected)} matches of "
            f"{len(sample)} messages it missed {len(expected - found)} and gave "
            f"{len(found - expected)} that are none; its figures would mean nothing"
        )


def _plain(value: Any) -> Any:
    """Return an option as JSON can hold it."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _compile(builder: Builder, clauses: Clauses) -> None:
    """Compile or load the kernels, those for changes included, before the clock runs.

    A few clauses are not enough: kernels that split nodes, or move what outgrew its capacity, run
    only with many clauses.
    """
    some = clauses.take(np.arange(min(_WARM, clauses.subscriptions)))
    messages = Messages.of([some.token[:20].tolist()], [[0, 0]])
    index = builder.build(some)
    index.match(messages)
    if isinstance(index, UpdatableIndex):
        index.insert(some)
        index.delete(np.arange(some.subscriptions))
        index.match(messages)
