"""Subscriptions change while messages are matched: an engine runs the steps of a runbook.

Rows are drawn before the timing starts. At the end, a new engine is built from the remaining
subscriptions and publishes the same messages. It gives the cost of matching without changes, and
must find the same matches.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.datasets.tables import message_table, subscription_table
from nearcast.datasets.workloads import Workload
from nearcast.engine import Engine
from nearcast.errors import InvalidInput, NearcastError
from nearcast.intake import read_messages, read_subscriptions
from nearcast.plots.machine import describe_machine
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nearcast.benchmarks.compare import Step
    from nearcast.benchmarks.runbook import Runbook, RunbookStep

__all__ = ["churn"]

_ROWS_PER_LOAD = 100_000
_MAX_STATS_CALLS = 200


class _Batch(NamedTuple):
    """A batch: its kind, the number of rows, and the call that processes them."""

    kind: str
    size: int
    call: Callable[[], Any]


def churn(
    runbook: Runbook,
    *,
    index: str = "trie-pyramid",
    seed: int = 0,
    step: Step = lambda name, done, total: None,
) -> dict[str, Any]:
    """Run the steps of a runbook and return the cost of each.

    Raises
    ------
    NearcastError
        If the engine does not find the same matches as a newly built one.
    """
    total = len(runbook.steps) + 2
    step("warming up", 0, total)
    _warm_up(index, runbook, seed)
    with Engine(index) as engine:
        run = _Run(engine, runbook, seed)
        for number, planned in enumerate(runbook.steps):
            name = f"{planned.do} {planned.count:,}" if planned.count else planned.do
            step(name, number + 1, total)
            run.run_step(planned)
        found = run.last_matches()
    step("building a new engine", total - 1, total)
    fresh = run.measure_fresh(index, found)
    return {
        "experiment": "churn",
        "index": index,
        "runbook": runbook.to_dict(),
        "seed": seed,
        "subscriptions": len(run.live),
        "steps": run.steps,
        "fresh": fresh,
        "machine": describe_machine(),
    }


@dataclass
class _Timings:
    """The batches of one step: kind, size, duration, and the number of segments after each."""

    kind: list[str] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    segments: list[int | None] = field(default_factory=list)

    def time(self, batch: _Batch) -> None:
        """Run a batch and record its duration."""
        began = time.perf_counter()
        batch.call()
        self.seconds.append(time.perf_counter() - began)
        self.kind.append(batch.kind)
        self.size.append(batch.size)

    def summarize(self, kind: str) -> dict[str, Any]:
        """Return number of operations, rate and latency of the batches of one kind."""
        chosen = np.array(self.kind) == kind
        seconds, size = np.array(self.seconds)[chosen], np.array(self.size)[chosen]
        return {
            "operations": int(size.sum()),
            "us_per_operation": float(np.median(seconds / size) * 1e6),
            "operations_per_second": float(size.sum() / seconds.sum()),
            "batch_median_ms": float(np.median(seconds) * 1e3),
            "batch_p99_ms": float(np.percentile(seconds, 99) * 1e3),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all batches, for plots."""
        ms = [round(s * 1e3, 4) for s in self.seconds]
        return {"kind": self.kind, "size": self.size, "ms": ms, "segments": self.segments}


class _Run:
    """An engine, the ids of its subscriptions, and the measurements."""

    def __init__(self, engine: Engine, runbook: Runbook, seed: int) -> None:
        self.engine = engine
        self.batch_size = runbook.batch
        self.workload = Workload(runbook.dataset, seed)
        self.rng = np.random.default_rng([seed, 3])
        self.live = np.empty(0, np.int64)
        self.steps: list[dict[str, Any]] = []
        self._tables: list[pa.Table] = []
        self._next_message = 0
        self._messages: list[pa.Table] = []

    def run_step(self, step: RunbookStep) -> None:
        """Run one step and record its cost."""
        plan = self._plan(step)
        timings = _Timings()
        stride = len(plan) // _MAX_STATS_CALLS + 1
        for number, batch in enumerate(plan):
            timings.time(batch)
            sampled = number % stride == 0
            timings.segments.append(len(self.engine.stats().segments) if sampled else None)
        stats = self.engine.stats()
        taken = sum(timings.seconds)
        kinds = [kind for kind in ("insert", "delete", "search") if kind in timings.kind]
        self.steps.append(
            {
                "do": step.do,
                "count": step.count,
                "seconds": taken,
                "operations_per_second": sum(timings.size) / taken,
                **{kind: timings.summarize(kind) for kind in kinds},
                "subscriptions": stats.subscriptions,
                "segments": list(stats.segments),
                "tombstones": stats.tombstones,
                "batches": timings.to_dict(),
            }
        )

    def last_matches(self) -> pa.Table:
        """Return the matches of the last messages."""
        return self._publish_all(self.engine)

    def measure_fresh(self, index: str, found: pa.Table) -> dict[str, Any]:
        """Build a new engine, compare its matches, and measure it with the same messages."""
        table = pa.concat_tables(self._tables).take(pa.array(np.sort(self.live)))
        timings = _Timings()
        with Engine(index) as engine:
            began = time.perf_counter()
            engine.subscribe_table(table)
            engine.settle()
            built = time.perf_counter() - began
            _check_same(found, self._publish_all(engine))
            for batch in self._messages * 3:
                publish = partial(engine.publish_table, batch)
                timings.time(_Batch("search", batch.num_rows, publish))
        return {
            "build_s": built,
            "search": timings.summarize("search") if self._messages else None,
            "reading_us_per_message": self._reading_us(table),
            "verified_messages": sum(batch.num_rows for batch in self._messages),
        }

    def _plan(self, step: RunbookStep) -> list[_Batch]:
        """Draw all rows of a step, and return its batches."""
        if step.do == "settle":
            return [_Batch("settle", 0, self.engine.settle)]
        if step.do == "insert":
            return self._inserts(step.count, self.batch_size if len(self.live) else _ROWS_PER_LOAD)
        if step.do == "delete":
            return self._deletes(step.count, self.live)
        if step.do == "search":
            return self._searches(step.count)
        return self._mix(step)

    def _mix(self, step: RunbookStep) -> list[_Batch]:
        """Spread inserts, deletes and messages evenly over the step."""
        inserted, deleted = round(step.count * step.insert), round(step.count * step.delete)
        # Delete only older rows: a row of this step may be inserted after its deletion.
        older = self.live
        kinds = (
            self._inserts(inserted, self.batch_size),
            self._deletes(deleted, older),
            self._searches(step.count - inserted - deleted),
        )
        positioned = [
            ((i + 0.5) / len(batches), number, batch)
            for number, batches in enumerate(kinds)
            for i, batch in enumerate(batches)
        ]
        return [batch for _, _, batch in sorted(positioned, key=lambda p: p[:2])]

    def _inserts(self, count: int, size: int) -> list[_Batch]:
        plan = []
        for done in range(0, count, size):
            first, rows = sum(t.num_rows for t in self._tables), min(size, count - done)
            drawn = self.workload.subscriptions(rows, first=first)
            table = subscription_table(self.workload, drawn, first=first)
            self._tables.append(table)
            plan.append(_Batch("insert", rows, partial(self.engine.subscribe_table, table)))
        last = sum(t.num_rows for t in self._tables)
        self.live = np.concatenate([self.live, np.arange(last - count, last)])
        return plan

    def _deletes(self, count: int, among: NDArray[np.int64]) -> list[_Batch]:
        if count > len(among):
            problem = f"must be at most the {len(among):,} existing subscriptions"
            raise InvalidInput("delete", count, problem)
        chosen = self.rng.choice(among, count, replace=False)
        self.live = np.setdiff1d(self.live, chosen)
        plan = []
        for first in range(0, count, self.batch_size):
            ids = [f"s{number}" for number in chosen[first : first + self.batch_size].tolist()]
            plan.append(_Batch("delete", len(ids), partial(self.engine.unsubscribe, ids)))
        return plan

    def _searches(self, count: int) -> list[_Batch]:
        tables = []
        for done in range(0, count, self.batch_size):
            rows = min(self.batch_size, count - done)
            drawn = self.workload.messages(rows, first=self._next_message)
            tables.append(message_table(self.workload, drawn, first=self._next_message))
            self._next_message += rows
        self._messages = tables[-20:] or self._messages
        publish = self.engine.publish_table
        return [_Batch("search", table.num_rows, partial(publish, table)) for table in tables]

    def _publish_all(self, engine: Engine) -> pa.Table:
        parts = [engine.publish_table(batch).matches for batch in self._messages]
        filled = [part for part in parts if part.num_rows]
        return pa.concat_tables(filled) if filled else pa.table({})

    def _reading_us(self, subscriptions: pa.Table) -> float:
        """Return the cost of converting a message to columns, which is not part of matching."""
        vocabulary = Vocabulary()
        read_subscriptions(subscriptions, vocabulary)
        timings = _Timings()
        for batch in self._messages * 3:
            read = partial(_read_and_number, batch, vocabulary)
            timings.time(_Batch("read", batch.num_rows, read))
        return float(timings.summarize("read")["us_per_operation"]) if self._messages else 0.0


def _read_and_number(table: pa.Table, vocabulary: Vocabulary) -> None:
    batch, _ = read_messages(table, now_us=0)
    batch.number(vocabulary)


def _warm_up(index: str, runbook: Runbook, seed: int) -> None:
    """Compile or load all kernels of a run."""
    workload = Workload(runbook.dataset, seed)
    with Engine(index) as engine:
        table = subscription_table(workload, workload.subscriptions(3_000))
        engine.subscribe_table(table.slice(0, 2_000))
        engine.subscribe_table(table.slice(2_000, 10))
        engine.unsubscribe([f"s{number}" for number in range(500)])
        messages = message_table(workload, workload.messages(50))
        engine.publish_table(messages)
        engine.settle()
        engine.publish_table(messages)


def _check_same(found: pa.Table, fresh: pa.Table) -> None:
    """Raise an error if the two engines found different matches."""
    got, expected = _pairs(found), _pairs(fresh)
    if got != expected:
        raise NearcastError(
            f"the engine and a newly built one differ: of {len(expected)} matches, "
            f"{len(expected - got)} are missing; {len(got - expected)} matches are wrong"
        )


def _pairs(table: pa.Table) -> set[tuple[Any, Any]]:
    if not table.num_rows:
        return set()
    columns = (table[name].to_pylist() for name in ("message_id", "subscription_id"))
    return set(zip(*columns, strict=True))
