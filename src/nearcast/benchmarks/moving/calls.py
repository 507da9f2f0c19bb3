"""Whole calls of an engine on a moving load: tables of moves and messages, and single moves.

The engine gets the subscriptions as a table and moves each once, so that all of them are in the
moving index. Then it takes messages until as many are alive as in the load. After that it runs
ticks: `advance` lets the oldest messages expire, `move_table` moves, `publish_table` takes messages
that stay alive. All ids are integers.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast.benchmarks.compare import spread
from nearcast.columns import UNITS
from nearcast.datasets.roads import arrival_table, mover_table
from nearcast.datasets.tables import box_columns
from nearcast.engine import Engine
from nearcast.model import Rect

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.benchmarks.compare import Step
    from nearcast.benchmarks.moving.load import MovingLoad
    from nearcast.benchmarks.moving.runs import MovingPlan
    from nearcast.datasets.roads import MovingWorkload

__all__ = ["measure_engine"]

_ROWS_PER_TABLE = 100_000
_WARM_UP_CALLS = 100


def measure_engine(
    load: MovingLoad,
    plan: MovingPlan,
    *,
    moving: str,
    calls: int = 1_000,
    step: Step = lambda name, done, total: None,
) -> dict[str, Any]:
    """Return what calls of an engine cost: CPU time of tables, duration of single calls."""
    workload = load.workload()
    total = load.ticks_of_life + plan.warm_up + plan.ticks + 3
    with Engine(moving=moving) as engine:
        run = _EngineRun(engine, workload)
        step("engine: subscribing", 0, total)
        subscribe_s = run.subscribe()
        step("engine: first moves", 1, total)
        first_s = run.move_all()
        for number in range(load.ticks_of_life):
            step("engine: publishing", 2 + number, total)
            run.publish()
        costs: dict[str, list[float]] = {name: [] for name in ("advance", "move", "publish")}
        updates, moves = 0, 0
        for number in range(plan.warm_up + plan.ticks):
            step("engine: ticks", 2 + load.ticks_of_life + number, total)
            spent, moved, changed = run.tick()
            if number >= plan.warm_up:
                for name, us in spent.items():
                    costs[name].append(us)
                updates, moves = updates + changed, moves + moved
        step("engine: single moves", total - 1, total)
        single = run.move_single(calls)
    return {
        "moving": moving,
        "subscribe_us": subscribe_s / load.subscriptions * 1e6,
        "first_move_us": first_s / load.subscriptions * 1e6,
        "us_per_advanced_message": spread(costs["advance"]),
        "us_per_table_move": spread(costs["move"]),
        "us_per_published_message": spread(costs["publish"]),
        "updates_per_move": updates / max(1, moves),
        "single_moves": len(single),
        "single_move_us": {
            "mean": float(single.mean()),
            "median": float(np.median(single)),
            "p99": float(np.quantile(single, 0.99)),
        },
    }


class _EngineRun:
    """An engine, and the workload that it has taken so far."""

    def __init__(self, engine: Engine, workload: MovingWorkload) -> None:
        self._engine = engine
        self._workload = workload
        self._tick = 0
        self._published = 0

    def subscribe(self) -> float:
        """Register all subscriptions; return the seconds of CPU time."""
        spent = 0.0
        count = len(self._workload.movers)
        for first in range(0, count, _ROWS_PER_TABLE):
            last = min(first + _ROWS_PER_TABLE, count)
            table = mover_table(self._workload, first, last)
            table = table.set_column(0, "id", pa.array(np.arange(first, last)))
            began = time.process_time()
            self._engine.subscribe_table(table, time=self._time_us() / 1e6)
            spent += time.process_time() - began
        began = time.process_time()
        self._engine.settle()
        return spent + time.process_time() - began

    def move_all(self) -> float:
        """Move every subscription to where it is; return the seconds of CPU time."""
        every = np.arange(len(self._workload.movers))
        table = self._moves(every, self._workload.movers.boxes())
        began = time.process_time()
        self._engine.move_table(table)
        return time.process_time() - began

    def publish(self) -> float:
        """Publish the messages of a tick; return the microseconds of CPU time for each."""
        self._tick += 1
        count = int(self._workload.arrivals)
        first = self._published
        messages = self._workload.messages(first, first + count, self._time_us())
        table = arrival_table(self._workload, messages, first)
        table = table.set_column(0, "id", pa.array(np.arange(first, first + count)))
        self._published += count
        began = time.process_time()
        self._engine.publish_table(table)
        return (time.process_time() - began) / count * 1e6

    def tick(self) -> tuple[dict[str, float], int, int]:
        """Run a tick; return the microseconds of each operation, the moves and their updates."""
        moves = self._workload.movers.tick()
        self._tick += 1
        table = self._moves(moves.mover, moves.box)
        began = time.process_time()
        self._engine.advance(self._time_us() / 1e6)
        advanced = time.process_time()
        moved = self._engine.move_table(table)
        ended = time.process_time()
        self._tick -= 1
        spent = {
            "advance": (advanced - began) / int(self._workload.arrivals) * 1e6,
            "move": (ended - advanced) / max(1, len(moves.mover)) * 1e6,
            "publish": self.publish(),
        }
        return spent, moved.moved, moved.updates.num_rows

    def move_single(self, calls: int) -> NDArray[np.float64]:
        """Move subscriptions one by one; return the microseconds of each call."""
        moves = self._workload.movers.tick()
        count = min(calls + _WARM_UP_CALLS, len(moves.mover))
        regions = [Rect(*corners) for corners in (moves.box[:count] / UNITS).tolist()]
        taken = []
        now = self._time_us() / 1e6
        for id, region in zip(moves.mover[:count].tolist(), regions, strict=True):
            began = time.perf_counter_ns()
            self._engine.move(id, region, now)
            taken.append((time.perf_counter_ns() - began) / 1000)
        return np.array(taken[min(_WARM_UP_CALLS, count // 2) :])

    def _moves(self, mover: NDArray[Any], box: NDArray[np.int32]) -> pa.Table:
        times = pa.array(np.full(len(mover), self._time_us())).cast(pa.timestamp("us", "UTC"))
        columns = {"subscription_id": pa.array(mover.astype(np.int64)), "time": times}
        return pa.table({**columns, **box_columns(box)})

    def _time_us(self) -> int:
        return self._workload.time_us(self._tick)
