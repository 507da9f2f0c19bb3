"""Single calls of an engine: what each costs, whatever the number of subscriptions.

Every call is made one object at a time, and timed alone. The engine is built from tables, merged
into one segment, and called in the order of an application: publish, read, then write.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.datasets import Workload, message_table, subscription_table
from nearcast.engine import Engine
from nearcast.model import Message, Rect, Subscription
from nearcast.plots.machine import describe_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    Step = Callable[[str, int, int], None]

__all__ = ["measure_calls"]

_ROWS_AT_A_TIME = 1_000_000
_WARM_UP = 100
_KINDS = 8


def measure_calls(
    dataset: str, sizes: Sequence[int], calls: int, seed: int, step: Step
) -> dict[str, Any]:
    """Return mean, median and p99 of each call in microseconds, for engines of these sizes."""
    found = []
    for size in sizes:
        workload = Workload(dataset, seed)
        engine = _filled(workload, size, step)
        for done, (name, timings) in enumerate(_Calls(engine, workload, size, calls, seed).all()):
            step(f"{size:,} subscriptions: {name}", done + 1, _KINDS)
            found.append({"subscriptions": size, "call": name, **_figures(timings)})
        engine.close()
    return {
        "experiment": "calls",
        "dataset": dataset,
        "sizes": list(sizes),
        "calls": calls,
        "seed": seed,
        "results": found,
        "machine": describe_machine(),
    }


def _filled(workload: Workload, size: int, step: Step) -> Engine:
    engine = Engine()
    for first in range(0, size, _ROWS_AT_A_TIME):
        step(f"{size:,} subscriptions: built", first, size)
        rows = min(_ROWS_AT_A_TIME, size - first)
        table = subscription_table(workload, workload.subscriptions(rows, first=first))
        ids = np.arange(first, first + rows)
        engine.subscribe_table(table.set_column(0, "id", [ids]))
    engine.settle()
    return engine


class _Calls:
    """The calls, drawn before the clock runs."""

    def __init__(
        self, engine: Engine, workload: Workload, size: int, calls: int, seed: int
    ) -> None:
        count = calls + _WARM_UP
        rng = np.random.default_rng([seed, size])
        self._engine = engine
        self._calls = calls
        self._messages: pa.Table = message_table(workload, workload.messages(count))
        self._registered: list[int] = rng.choice(size, min(2 * count, size), replace=False).tolist()
        more = subscription_table(workload, workload.subscriptions(count, first=size + 1))
        self._subscriptions = [
            Subscription(
                size + number,
                Rect(row["west"], row["south"], row["east"], row["north"]),
                row["keywords"],
            )
            for number, row in enumerate(more.to_pylist())
        ]

    def all(self) -> Iterator[tuple[str, list[int]]]:
        """Yield the name of each call, and the nanoseconds that every one took."""
        engine, messages = self._engine, self._messages
        half = len(self._registered) // 2
        moving, leaving = self._registered[:half], self._registered[half:]
        objects = [
            Message(row["id"], (row["lon"], row["lat"]), row["text"])
            for row in messages.to_pylist()
        ]
        tables = [messages.slice(number, 1) for number in range(len(messages))]
        regions = [subscription.region for subscription in self._subscriptions]
        yield "publish", self._timed(engine.publish, objects)
        yield "publish_table", self._timed(engine.publish_table, tables)
        yield "get", self._timed(engine.get, self._registered)
        yield "iterate", self._timed(lambda _: None, iter(engine))
        yield "subscribe", self._timed(engine.subscribe, self._subscriptions)
        pairs = list(zip(moving, regions, strict=False))
        yield "move", self._timed(lambda pair: engine.move(*pair), pairs)
        yield "unsubscribe", self._timed(engine.unsubscribe, leaving)
        yield "publish, after writes", self._timed(engine.publish, objects)

    def _timed(self, call: Callable[[Any], object], values: Any) -> list[int]:
        """Return the nanoseconds of each call; taking the next value counts, for iterators."""
        clock, timings = time.perf_counter_ns, []
        each = iter(values)
        for _ in range(self._calls + _WARM_UP):
            began = clock()
            value = next(each, None)
            if value is None:
                break
            call(value)
            timings.append(clock() - began)
        return timings[min(_WARM_UP, len(timings) // 2) :]


def _figures(timings: list[int]) -> dict[str, float]:
    us = np.array(timings) / 1000
    return {
        "mean_us": float(us.mean()),
        "median_us": float(np.median(us)),
        "p99_us": float(np.quantile(us, 0.99)),
    }
