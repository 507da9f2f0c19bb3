"""Kernels are compiled at their first call; a server calls them before somebody waits for one.

The first start on a machine takes a minute or two. Later starts load what was compiled then.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from nearcast.model import Message, Overlap, Polygon, Proximity, Rect, Subscription
from nearcast.server.matching.matcher import new_engine

__all__ = ["compile_kernels"]

_MESSAGES = 40


def compile_kernels() -> None:
    """Let subscriptions and messages of all kinds meet once, in an engine of their own."""
    engine = new_engine()
    near = Proximity(delta=0.5, tau=0.1, max_distance_m=100_000)
    place = Rect(0, 0, 2, 2)
    triangle = Polygon([[(0, 0), (2, 0), (0, 2), (0, 0)]])
    engine.subscribe(
        [
            Subscription(1, place, ["tea"], scope="0"),
            Subscription(2, triangle, expression='"hot tea" OR (milk NOT sug*)', scope="0"),
            Subscription(3, (1, 1), ["tea", "hot"], ranking=near, scope="0"),
            Subscription(4, place, ["tea"], ranking=Overlap(0.5, 0.1), scope="0"),
        ]
    )
    engine.count_weights()
    engine.publish_table(_messages(0, ttl_s=60.0))
    engine.publish_table(_messages(_MESSAGES, ttl_s=None))
    for id, to in ((1, Rect(5, 5, 6, 6)), (2, place), (3, (1.5, 1.5)), (4, Rect(1, 1, 3, 3))):
        engine.move(id, to)
    engine.publish_table(_messages(2 * _MESSAGES, ttl_s=60.0))
    engine.move(1, place)
    engine.replace(Subscription(1, place, ["milk"], scope="0"))
    engine.preview(Subscription(9, (1, 1), ["tea"], ranking=near), Message(1, (1, 1), "Hot tea"))
    engine.unsubscribe([1, 2, 3, 4])
    engine.close()


def _messages(first: int, ttl_s: float | None) -> pa.Table:
    count = _MESSAGES
    columns = {
        "id": np.arange(first, first + count),
        "text": ["hot tea with milk"] * count,
        "lon": np.linspace(0, 2, count),
        "lat": np.ones(count),
        "scope": ["0"] * count,
    }
    if ttl_s is not None:
        columns["ttl_s"] = np.full(count, ttl_s)
    return pa.table(columns)
