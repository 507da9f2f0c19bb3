"""Build, check and time one index of an experiment."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.benchmarks.ranking import of_kind
from nearcast.columns import Clauses, Messages
from nearcast.errors import NearcastError
from nearcast.indexes import UpdatableIndex
from nearcast.plots.machine import PeakMemory

if TYPE_CHECKING:
    from nearcast.benchmarks.answers import Answers
    from nearcast.benchmarks.paper.experiment import Series
    from nearcast.columns import Ranked
    from nearcast.indexes import Builder, Index

__all__ = ["Runner", "check_sample", "content_size"]

_INSERTS_PER_CALL = 10_000
"""Number of subscriptions per call of ``insert``."""

_WARM_UP_CLAUSES = 3_000
"""Enough clauses to run every kernel of an index once."""


class Runner:
    """One index of a heat."""

    def __init__(
        self, label: str, series: Series, groups: list[str], kind: str = "boolean"
    ) -> None:
        self.kind = kind
        self.label = label
        self.series = series
        self.groups = groups
        self.index: Index
        self.rounds_us: list[float] = []

    def build(self, content: Clauses | Ranked) -> dict[str, Any]:
        """Build the index, insert the rest, and return time and memory."""
        builder = of_kind(self.series.builder(), self.kind)
        _compile(builder, content)
        count = round(content_size(content) * self.series.share)
        built = round(count * self.series.built)
        self._count = count
        first = content
        if built < content_size(content):
            first = content.take(np.arange(built))
        with PeakMemory() as memory:
            began = time.perf_counter()
            self.index = builder.build(first)
            spent = time.perf_counter() - began
        del first
        insert_cost = self._insert(content, range(built, count)) if built < count else {}
        return {
            "series": self.label,
            "index": self.series.index,
            "options": {name: _to_json(value) for name, value in vars(builder.options).items()},
            "subscriptions": count,
            "built": built,
            "build_s": spent,
            "build_peak_bytes": memory.growth_bytes,
            "index_bytes": self.index.nbytes,
            "bytes_per_subscription": self.index.nbytes / count,
            **insert_cost,
        }

    def _insert(self, content: Clauses | Ranked, rows: range) -> dict[str, float]:
        """Insert subscriptions in the order of their rows; return the time per insert."""
        index = self.index
        if not isinstance(index, UpdatableIndex):
            raise NearcastError(
                f"{self.label} cannot be changed in place; build it from all subscriptions"
            )
        spent = 0.0
        for first in range(rows.start, rows.stop, _INSERTS_PER_CALL):
            new = content.take(np.arange(first, min(first + _INSERTS_PER_CALL, rows.stop)))
            began = time.perf_counter()
            index.insert(new)
            spent += time.perf_counter() - began
        return {"us_per_insert": spent / len(rows) * 1e6}

    def match(self, messages: Messages) -> float:
        """Match messages; return microseconds per message."""
        began = time.perf_counter()
        self.index.match(messages)
        return (time.perf_counter() - began) / len(messages) * 1e6

    def verify(self, answers: Answers) -> dict[str, int]:
        """Compare the matches of a sample with the right ones over all subscriptions."""
        matches = answers.check(self.label, self.index, self._count)
        return {"verified_messages": len(answers.sample), "verified_matches": matches}

    def accessed_per_message(self, messages: Messages) -> float | None:
        """Return the postings that were read per message; None if the index does not count them."""
        explain = getattr(self.index, "explain", None)
        # Explanations of boolean indexes are about something else.
        if self.kind == "boolean" or explain is None:
            return None
        return float(np.mean(explain(messages).accessed))


def check_sample(
    label: str, index: Index, sample: Messages, expected: set[tuple[int, int]]
) -> None:
    """Raise an error if the matches of an index differ from the scan's."""
    found = index.match(sample).pairs()
    if found != expected:
        raise NearcastError(
            f"{label} and the scan differ: of {len(expected)} matches of {len(sample)} messages, "
            f"{len(expected - found)} are missing; {len(found - expected)} matches are wrong"
        )


def _to_json(value: Any) -> Any:
    """Return an option as a JSON value."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def content_size(content: Clauses | Ranked) -> int:
    """Return the number of subscriptions."""
    return content.subscriptions if isinstance(content, Clauses) else len(content)


def _compile(builder: Builder, content: Clauses | Ranked) -> None:
    """Compile or load all kernels before the timing starts, including those for changes.

    A few clauses are not enough: kernels that split nodes or move full lists run only with many
    clauses.
    """
    some = content.take(np.arange(min(_WARM_UP_CLAUSES, content_size(content))))
    clauses = some if isinstance(some, Clauses) else some.clauses
    messages = Messages.of([clauses.token[:20].tolist()], [[0, 0]])
    if not isinstance(some, Clauses):
        messages = some.weigh(messages)
    index = builder.build(some)
    index.match(messages)
    if isinstance(index, UpdatableIndex):
        index.insert(some)
        index.delete(np.arange(content_size(some)))
        index.match(messages)
