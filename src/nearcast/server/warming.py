"""Kernels are compiled at their first call; a server calls them before somebody waits for one.

The first start on a machine takes about three minutes, later starts a few seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from nearcast.model import (
    Circle,
    Message,
    Overlap,
    Polygon,
    Proximity,
    Rect,
    Subscription,
)
from nearcast.server.matching.matcher import new_engine

if TYPE_CHECKING:
    from nearcast.engine import Engine

__all__ = ["compile_kernels"]

_MESSAGES = 40
_MANY = 1_000
_PLACE = Rect(0, 0, 2, 2)
_TRIANGLE = Polygon([[(0, 0), (2, 0), (0, 2), (0, 0)]])
_NEAR = Proximity(delta=0.5, tau=0.1, max_distance_m=100_000)
_COVERS = Overlap(0.5, 0.1)
_CLOSE = Proximity(delta=0.5, tau=0.9, max_distance_m=10_000)
_MOST = Overlap(0.5, 0.9)


def compile_kernels() -> None:
    """Let subscriptions and messages of all kinds meet, in an engine of their own.

    Few subscriptions are in a buffer, many in an index; what has moved is in an index of its own.
    Most have a word of their own, so that nearly all of the time goes into compiling.
    """
    engine = new_engine()
    engine.subscribe(_one_of_each("few"))
    engine.count_weights()
    _publish(engine, 0)
    _move(engine, "few")
    _publish(engine, 1)
    engine.subscribe_table(_many())
    engine.subscribe([_ranked(f"many-{i}", i) for i in range(_MANY)])
    engine.subscribe(_one_of_each("late"))
    engine.settle()
    _publish(engine, 2)
    _move(engine, "late")
    engine.move_table(_moves())
    _publish(engine, 3)
    engine.replace(Subscription("few-0", _PLACE, ["milk"], scope="0"))
    for message in (
        Message("point", (1, 1), "Hot tea", scope="0"),
        Message("area", Rect(0, 0, 1, 1), "Hot milk", scope="0"),
    ):
        for subscription in _one_of_each("other"):
            engine.preview(subscription, message)
            engine.explain(message, subscription)
        engine.publish(message)
        engine.trace(message)
    engine.unsubscribe([f"few-{i}" for i in range(5)])
    engine.unsubscribe(list(range(_MANY // 2)))
    engine.settle()
    _publish(engine, 4)
    engine.close()


def _one_of_each(name: str) -> list[Subscription]:
    phrase = '"hot tea" OR (milk NOT sug*)'
    return [
        Subscription(f"{name}-0", _PLACE, ["tea"], scope="0"),
        Subscription(f"{name}-1", _TRIANGLE, expression=phrase, scope="0"),
        Subscription(f"{name}-2", (1, 1), ["tea", "hot"], ranking=_NEAR, scope="0"),
        Subscription(f"{name}-3", _PLACE, ["tea"], ranking=_COVERS, scope="0"),
        Subscription(f"{name}-4", Circle(1, 1, radius_m=5_000), ["mil*"], scope="0"),
    ]


def _ranked(id: str, number: int) -> Subscription:
    where = number / _MANY
    if number % 2:
        return Subscription(id, (where, 1), [f"w{number}", "tea"], ranking=_CLOSE, scope="0")
    place = Rect(where, 0, where + 1, 2)
    return Subscription(id, place, [f"w{number}", "tea"], ranking=_MOST, scope="0")


def _many() -> pa.Table:
    number = np.arange(_MANY)
    return pa.table(
        {
            "id": number,
            "keywords": [[f"w{i % 100}", "tea"] if i % 3 else [f"w{i}"] for i in range(_MANY)],
            "lon": number / _MANY,
            "lat": np.ones(_MANY),
            "radius_m": np.full(_MANY, 5_000.0),
            "scope": ["0"] * _MANY,
        }
    )


def _moves() -> pa.Table:
    number = np.arange(_MANY)
    return pa.table(
        {
            "subscription_id": number,
            "lon": number / _MANY,
            "lat": np.full(_MANY, 1.01),
            "radius_m": np.full(_MANY, 5_000.0),
        }
    )


def _move(engine: Engine, name: str) -> None:
    there = [Rect(5, 5, 6, 6), _PLACE, (1.5, 1.5), Rect(1, 1, 3, 3), Circle(1, 1, radius_m=900)]
    for number, to in enumerate(there):
        engine.move(f"{name}-{number}", to)
    engine.move(f"{name}-0", _PLACE)
    engine.move(f"{name}-1", Polygon([[(0, 0), (2, 0), (2, 2), (0, 0)]]))


def _publish(engine: Engine, turn: int) -> None:
    """Publish points and areas, one and a few at a time, some of which stay alive."""
    first = turn * 100_000
    for count in (1, _MESSAGES):
        for area in (False, True):
            for ttl_s in (None, 60.0):
                engine.publish_table(_messages(first, count, ttl_s, area=area))
                first += count


def _messages(first: int, count: int, ttl_s: float | None, *, area: bool) -> pa.Table:
    number = np.arange(count)
    where = number / count
    columns = {
        "id": first + number,
        "text": [f"hot tea with milk w{i}" for i in range(count)],
        "scope": ["0"] * count,
    }
    if area:
        columns |= {"west": where, "south": where, "east": where + 0.5, "north": where + 0.5}
    else:
        columns |= {"lon": where, "lat": np.ones(count)}
    if ttl_s is not None:
        columns["ttl_s"] = np.full(count, ttl_s)
    return pa.table(columns)
