"""The cost of single calls of an engine, at several numbers of subscriptions.

Each call handles one object and is timed on its own. The engine is built from tables and merged
into one segment; then the calls publish, read and write, in this order.
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

_ROWS_PER_TABLE = 1_000_000
_WARM_UP_CALLS = 100
_CALL_KINDS = 8


def measure_calls(
    dataset: str, sizes: Sequence[int], calls: int, seed: int, step: Step
) -> dict[str, Any]:
    """Return mean, median and p99 of each call in microseconds, for engines of these sizes."""
    results = []
    for size in sizes:
        workload = Workload(dataset, seed)
        engine = _build_engine(workload, size, step)
        for done, (name, timings) in enumerate(
            _Calls(engine, workload, size, calls, seed).time_all()
        ):
            step(f"{size:,} subscriptions: {name}", done + 1, _CALL_KINDS)
            results.append({"subscriptions": size, "call": name, **_summarize(timings)})
        engine.close()
    return {
        "experiment": "calls",
        "dataset": dataset,
        "sizes": list(sizes),
        "calls": calls,
        "seed": seed,
        "results": results,
        "machine": describe_machine(),
    }


def _build_engine(workload: Workload, size: int, step: Step) -> Engine:
    engine = Engine()
    for first in range(0, size, _ROWS_PER_TABLE):
        step(f"{size:,} subscriptions: building", first, size)
        rows = min(_ROWS_PER_TABLE, size - first)
        table = subscription_table(workload, workload.subscriptions(rows, first=first))
        ids = np.arange(first, first + rows)
        engine.subscribe_table(table.set_column(0, "id", [ids]))
    engine.settle()
    return engine


class _Calls:
    """The calls, whose arguments are drawn before the timing starts."""

    def __init__(
        self, engine: Engine, workload: Workload, size: int, calls: int, seed: int
    ) -> None:
        count = calls + _WARM_UP_CALLS
        rng = np.random.default_rng([seed, size])
        self._engine = engine
        self._calls = calls
        self._messages: pa.Table = message_table(workload, workload.messages(count))
        self._registered: list[int] = rng.choice(size, min(2 * count, size), replace=False).tolist()
        new = subscription_table(workload, workload.subscriptions(count, first=size + 1))
        self._subscriptions = [
            Subscription(
                size + number,
                Rect(row["west"], row["south"], row["east"], row["north"]),
                row["keywords"],
            )
            for number, row in enumerate(new.to_pylist())
        ]

    def time_all(self) -> Iterator[tuple[str, list[int]]]:
        """Yield the name of each kind of call, and the duration of each call in nanoseconds."""
        engine, messages = self._engine, self._messages
        half = len(self._registered) // 2
        to_move, to_delete = self._registered[:half], self._registered[half:]
        objects = [
            Message(row["id"], (row["lon"], row["lat"]), row["text"])
            for row in messages.to_pylist()
        ]
        tables = [messages.slice(number, 1) for number in range(len(messages))]
        regions = [subscription.region for subscription in self._subscriptions]
        yield "publish", self._time(engine.publish, objects)
        yield "publish_table", self._time(engine.publish_table, tables)
        yield "get", self._time(engine.get, self._registered)
        yield "iterate", self._time(lambda _: None, iter(engine))
        yield "subscribe", self._time(engine.subscribe, self._subscriptions)
        pairs = list(zip(to_move, regions, strict=False))
        yield "move", self._time(lambda pair: engine.move(*pair), pairs)
        yield "unsubscribe", self._time(engine.unsubscribe, to_delete)
        yield "publish, after writes", self._time(engine.publish, objects)

    def _time(self, call: Callable[[Any], object], values: Any) -> list[int]:
        """Return the nanoseconds of each call, including the time to get the next value."""
        clock, timings = time.perf_counter_ns, []
        iterator = iter(values)
        for _ in range(self._calls + _WARM_UP_CALLS):
            began = clock()
            value = next(iterator, None)
            if value is None:
                break
            call(value)
            timings.append(clock() - began)
        return timings[min(_WARM_UP_CALLS, len(timings) // 2) :]


def _summarize(timings: list[int]) -> dict[str, float]:
    us = np.array(timings) / 1000
    return {
        "mean_us": float(us.mean()),
        "median_us": float(np.median(us)),
        "p99_us": float(np.quantile(us, 0.99)),
    }
