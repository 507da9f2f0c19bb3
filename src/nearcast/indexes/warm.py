"""Warm kernels: compiled, or loaded from the cache, before anybody waits for them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from nearcast.columns import BOOLEAN, KINDS, OVERLAP, PROXIMITY, Clauses, Messages, Ranked
from nearcast.intake import read_messages, read_subscriptions
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from nearcast.indexes.builder import Builder

__all__ = ["warm_reading", "warm_up"]


def warm_up(builder: Builder, kind: str = KINDS[BOOLEAN]) -> float:
    """Compile or load the kernels of an index on tiny data; return the seconds that it took.

    ``kind`` is the kind of subscriptions that the index will have.

    Examples
    --------
    >>> from nearcast import indexes
    >>> warm_up(indexes.create("scan")) >= 0
    True
    """
    began = time.perf_counter()
    # Enough clauses for more than one node of any tree, some with tokens that must not occur.
    tokens, box = [[1], [1, 2]] * 100, [[0, 0, 9, 9]] * 200
    content: Clauses | Ranked
    if kind == KINDS[BOOLEAN]:
        content = Clauses.of(tokens, box, negatives=[[3], []] * 100)
    else:
        place = box if kind == KINDS[OVERLAP] else [[0, 0], [9, 9]] * 100
        share = np.linspace(0, 1, 200)
        reach_m = 1000.0 if kind == KINDS[PROXIMITY] else 0.0
        content = Ranked.of(tokens, place, kind=kind, p=share, q=0.5, max_distance_m=reach_m)
    messages = Messages.of([[1, 2], [4]], [[5, 5, 5, 5], [1, 1, 7, 7]], text_weight=[2.0, 1.0])
    for some in (content, content.take(np.arange(1, 200, 2))):
        builder.build(some).match(messages)
    return time.perf_counter() - began


def warm_reading() -> None:
    """Compile or load what reads rows, so that this is not counted as reading."""
    vocabulary = Vocabulary()
    place = {"lon": [0.0], "lat": [0.0]}
    read_subscriptions(
        pa.table({"id": ["s"], "keywords": [["tea"]], **place, "radius_m": [1.0]}), vocabulary
    )
    batch, _ = read_messages(pa.table({"id": ["m"], "text": ["Tea"], **place}), now_us=0)
    batch.number(vocabulary)
