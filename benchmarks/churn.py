"""Changing subscriptions while messages are matched: an engine that follows a runbook.

Rows are drawn before the clock runs. At the end, an engine that is built in one go from the
subscriptions that are left publishes the same messages: it says what matching costs where nothing
changes, and must find the same matches.
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

    from benchmarks.compare import Step
    from benchmarks.runbook import Runbook, RunbookStep

__all__ = ["churn"]

_LOAD_ROWS = 100_000
_MAX_STATS = 200


class _Piece(NamedTuple):
    """A batch: what is done, to how many rows, and the call that does it."""

    kind: str
    size: int
    work: Callable[[], Any]


def churn(
    runbook: Runbook,
    *,
    index: str = "trie-pyramid",
    seed: int = 0,
    step: Step = lambda what, done, total: None,
) -> dict[str, Any]:
    """Follow a runbook and return what each step cost.

    Raises
    ------
    NearcastError
        When the engine does not find what a freshly built one finds.
    """
    total = len(runbook.steps) + 2
    step("warming up", 0, total)
    _warm_up(index, runbook, seed)
    with Engine(index) as engine:
        run = _Run(engine, runbook, seed)
        for number, one in enumerate(runbook.steps):
            step(f"{one.do} {one.count:,}" if one.count else one.do, number + 1, total)
            run.follow(one)
        found = run.last_matches()
    step("a freshly built engine", total - 1, total)
    fresh = run.fresh(index, found)
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
    """The batches of one step: what each was, how long it took, and the segments after it."""

    kind: list[str] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    segments: list[int | None] = field(default_factory=list)

    def time(self, piece: _Piece) -> None:
        """Do a piece of work and note how long it took."""
        began = time.perf_counter()
        piece.work()
        self.seconds.append(time.perf_counter() - began)
        self.kind.append(piece.kind)
        self.size.append(piece.size)

    def figures(self, kind: str) -> dict[str, Any]:
        """Return operations, rate and latency of the batches of one kind."""
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
        """Return every batch, for pictures."""
        ms = [round(s * 1e3, 4) for s in self.seconds]
        return {"kind": self.kind, "size": self.size, "ms": ms, "segments": self.segments}


class _Run:
    """An engine, the subscriptions that live in it, and what was measured."""

    def __init__(self, engine: Engine, runbook: Runbook, seed: int) -> None:
        self.engine = engine
        self.batch = runbook.batch
        self.workload = Workload(runbook.dataset, seed)
        self.rng = np.random.default_rng([seed, 3])
        self.live = np.empty(0, np.int64)
        self.steps: list[dict[str, Any]] = []
        self._tables: list[pa.Table] = []
        self._next_message = 0
        self._messages: list[pa.Table] = []

    def follow(self, one: RunbookStep) -> None:
        """Do one step and note what it cost."""
        plan = self._plan(one)
        timings = _Timings()
        every = len(plan) // _MAX_STATS + 1
        for number, piece in enumerate(plan):
            timings.time(piece)
            looked = number % every == 0
            timings.segments.append(len(self.engine.stats().segments) if looked else None)
        stats = self.engine.stats()
        taken = sum(timings.seconds)
        kinds = [kind for kind in ("insert", "delete", "search") if kind in timings.kind]
        self.steps.append(
            {
                "do": one.do,
                "count": one.count,
                "seconds": taken,
                "operations_per_second": sum(timings.size) / taken,
                **{kind: timings.figures(kind) for kind in kinds},
                "subscriptions": stats.subscriptions,
                "segments": list(stats.segments),
                "tombstones": stats.tombstones,
                "batches": timings.to_dict(),
            }
        )

    def last_matches(self) -> pa.Table:
        """Return what the engine finds for the messages that came last."""
        return self._publish_all(self.engine)

    def fresh(self, index: str, found: pa.Table) -> dict[str, Any]:
        """Build an engine in one go, compare its matches, and measure it with the same messages."""
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
                timings.time(_Piece("search", batch.num_rows, publish))
        return {
            "build_s": built,
            "search": timings.figures("search") if self._messages else None,
            "reading_us_per_message": self._reading_us(table),
            "verified_messages": sum(batch.num_rows for batch in self._messages),
        }

    def _plan(self, one: RunbookStep) -> list[_Piece]:
        """Draw all rows of a step; return its batches."""
        if one.do == "settle":
            return [_Piece("settle", 0, self.engine.settle)]
        if one.do == "insert":
            return self._inserts(one.count, self.batch if len(self.live) else _LOAD_ROWS)
        if one.do == "delete":
            return self._deletes(one.count, self.live)
        if one.do == "search":
            return self._searches(one.count)
        return self._mix(one)

    def _mix(self, one: RunbookStep) -> list[_Piece]:
        """Spread inserts, deletes and messages evenly over the step."""
        inserted, deleted = round(one.count * one.insert), round(one.count * one.delete)
        # Only what was there before is deleted: a new row may come after its turn.
        older = self.live
        kinds = (
            self._inserts(inserted, self.batch),
            self._deletes(deleted, older),
            self._searches(one.count - inserted - deleted),
        )
        placed = [
            ((i + 0.5) / len(pieces), number, piece)
            for number, pieces in enumerate(kinds)
            for i, piece in enumerate(pieces)
        ]
        return [piece for _, _, piece in sorted(placed, key=lambda p: p[:2])]

    def _inserts(self, count: int, size: int) -> list[_Piece]:
        plan = []
        for done in range(0, count, size):
            first, rows = sum(t.num_rows for t in self._tables), min(size, count - done)
            drawn = self.workload.subscriptions(rows, first=first)
            table = subscription_table(self.workload, drawn, first=first)
            self._tables.append(table)
            plan.append(_Piece("insert", rows, partial(self.engine.subscribe_table, table)))
        last = sum(t.num_rows for t in self._tables)
        self.live = np.concatenate([self.live, np.arange(last - count, last)])
        return plan

    def _deletes(self, count: int, among: NDArray[np.int64]) -> list[_Piece]:
        if count > len(among):
            problem = f"a step deletes more than the {len(among):,} that are there"
            raise InvalidInput("delete", count, problem)
        chosen = self.rng.choice(among, count, replace=False)
        self.live = np.setdiff1d(self.live, chosen)
        plan = []
        for first in range(0, count, self.batch):
            ids = [f"s{number}" for number in chosen[first : first + self.batch].tolist()]
            plan.append(_Piece("delete", len(ids), partial(self.engine.unsubscribe, ids)))
        return plan

    def _searches(self, count: int) -> list[_Piece]:
        tables = []
        for done in range(0, count, self.batch):
            rows = min(self.batch, count - done)
            drawn = self.workload.messages(rows, first=self._next_message)
            tables.append(message_table(self.workload, drawn, first=self._next_message))
            self._next_message += rows
        self._messages = tables[-20:] or self._messages
        publish = self.engine.publish_table
        return [_Piece("search", table.num_rows, partial(publish, table)) for table in tables]

    def _publish_all(self, engine: Engine) -> pa.Table:
        parts = [engine.publish_table(batch).matches for batch in self._messages]
        filled = [part for part in parts if part.num_rows]
        return pa.concat_tables(filled) if filled else pa.table({})

    def _reading_us(self, subscriptions: pa.Table) -> float:
        """Return what it costs to make columns of a message, which is no matching."""
        vocabulary = Vocabulary()
        read_subscriptions(subscriptions, vocabulary)
        timings = _Timings()
        for batch in self._messages * 3:
            read = partial(_read_and_number, batch, vocabulary)
            timings.time(_Piece("read", batch.num_rows, read))
        return float(timings.figures("read")["us_per_operation"]) if self._messages else 0.0


def _read_and_number(table: pa.Table, vocabulary: Vocabulary) -> None:
    batch, _ = read_messages(table, now_us=0)
    batch.number(vocabulary)


def _warm_up(index: str, runbook: Runbook, seed: int) -> None:
    """Compile or load all kernels that a run uses."""
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
    """Refuse figures of an engine that does not find what a freshly built one finds."""
    one, other = _pairs(found), _pairs(fresh)
    if one != other:
        raise NearcastError(
            f"the engine does not agree with a freshly built one: it missed {len(other - one)} of "
            f"{len(other)} matches and gave {len(one - other)} that are none"
        )


def _pairs(table: pa.Table) -> set[tuple[Any, Any]]:
    if not table.num_rows:
        return set()
    columns = (table[name].to_pylist() for name in ("message_id", "subscription_id"))
    return set(zip(*columns, strict=True))
