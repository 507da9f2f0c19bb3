"""Warm kernels: compiled, or loaded from the cache, before anybody waits for them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from nearcast.columns import Clauses, Messages, Ranked, Scoring
from nearcast.indexes import create
from nearcast.intake import read_messages, read_subscriptions
from nearcast.segments.delivery import deliver
from nearcast.segments.segment import Segment
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nearcast.indexes.builder import Builder

__all__ = ["warm_tables", "warm_up"]

_ROWS = 40  # few rows are read one by one


def warm_up(
    builder: Builder, kinds: Iterable[str] = ("boolean",), scoring: Scoring | None = None
) -> float:
    """Compile or load the kernels of an index on tiny data; return the seconds that it took.

    ``kinds`` are the kinds of subscriptions that it will hold, and ``scoring`` how ranked ones
    score.

    Examples
    --------
    >>> from nearcast import indexes
    >>> warm_up(indexes.create("scan")) >= 0
    True
    """
    began = time.perf_counter()
    for kind in kinds:
        if kind == "boolean":
            _warm_boolean(builder)
        else:
            _warm_ranked(builder, kind, scoring or Scoring())
    return time.perf_counter() - began


def _warm_boolean(builder: Builder) -> None:
    # Enough clauses for more than one node of any tree, some with tokens that must not occur.
    clauses = Clauses.of([[1], [1, 2]] * 100, [[0, 0, 9, 9]] * 200, negatives=[[3], []] * 100)
    messages = Messages.of([[1, 2]], [[5, 5]])
    for some in (clauses, clauses.take(np.arange(1, 200, 2))):
        builder.build(some).match(messages)


def _warm_ranked(builder: Builder, kind: str, scoring: Scoring) -> None:
    place = [[0, 0]] if kind == "proximity" else [[0, 0, 9, 9]]
    reach = 1000.0 if kind == "proximity" else 0.0
    share = [0.3, 0.7] * 100
    ranked = Ranked.of(
        [[1], [1, 2]] * 100,
        place * 200,
        kind=kind,
        p=share,
        q=0.5,
        max_distance_m=reach,
        scoring=scoring,
    )
    index = builder.build(ranked)
    for box in ([[5, 5]], [[5, 5, 20, 20]]):
        index.match(ranked.weigh(Messages.of([[1, 2]], box)))


def warm_tables() -> None:
    """Compile or load what reads rows and returns ids, so that this is not counted as matching."""
    vocabulary = Vocabulary()
    number = np.arange(_ROWS)
    ids = [f"s{i}" for i in number]
    place = {"lon": number / _ROWS, "lat": number / _ROWS}
    subscriptions, _ = read_subscriptions(
        pa.table({"id": ids, "keywords": [["tea"]] * _ROWS, **place, "radius_m": [1.0] * _ROWS}),
        vocabulary,
    )
    segment = Segment.build(subscriptions, create("scan"), vocabulary)
    for rows in (1, _ROWS):
        columns = {"id": ids, "text": ["Hot tea"] * _ROWS, **place}
        batch, _ = read_messages(pa.table(columns).slice(0, rows), now_us=0)
        deliver([segment], batch).to_table(batch.ids)
