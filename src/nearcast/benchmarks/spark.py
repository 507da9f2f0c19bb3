"""Compare the Spark pipeline with the same work in one process, in rotation, on the same files.

The single process runs the same generator as Spark's workers, on one thread. A Spark job is timed
from its call to its result; the session, its workers and the kernels are warmed up before.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nearcast.extras import require

require("spark", "nearcast bench spark")

import numpy as np
import psutil
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import functions as F

from nearcast import indexes
from nearcast.benchmarks.compare import Step, spread
from nearcast.datasets.tables import message_table, subscription_table
from nearcast.datasets.workloads import Workload
from nearcast.errors import InvalidInput, NearcastError, UnknownName
from nearcast.intake import load_subscriptions
from nearcast.plots.machine import PeakMemory, describe_machine
from nearcast.segments.warm import warm_tables, warm_up
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.build import build
from nearcast.spark.match import match
from nearcast.spark.prepare import prepare
from nearcast.spark.workers.answers import answer_schema
from nearcast.spark.workers.matching import MatchMessages
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkRun", "measure_spark"]

IDS = ("integer", "string")

_ROWS_PER_GROUP = 100_000
_WARM_UP_ROUNDS = 3  # until the JIT compiler of Java has compiled the frequent code
_ROWS_PER_BATCH = 20_000


@dataclass(frozen=True)
class SparkRun:
    """The workload and the size of the experiment.

    Parameters
    ----------
    dataset, subscriptions, messages, seed
        The workload.
    shards
        Number of shards of the sharded index.
    prepared
        Number of messages to prepare while the memory of the driver is measured.
    rounds
        How often each job runs, in rotation.
    ids
        ``integer`` or ``string``. Strings are slower in the Java part of Spark.
    folder
        Folder for the data, which is deleted at the end.
    """

    dataset: str
    subscriptions: int
    messages: int
    shards: int
    prepared: int
    rounds: int
    seed: int
    ids: str
    folder: Path

    def __post_init__(self) -> None:
        if self.ids not in IDS:
            raise UnknownName("type of ids", self.ids, IDS)
        for name in ("subscriptions", "messages", "shards", "prepared", "rounds"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, getattr(self, name), "must be at least 1")


def measure_spark(
    spark: SparkSession, plan: SparkRun, step: Step = lambda name, done, total: None
) -> dict[str, Any]:
    """Run the experiment and return all measurements.

    Raises
    ------
    NearcastError
        If the jobs find different numbers of matches.
    """
    try:
        return _Run(spark, plan, step).result()
    finally:
        shutil.rmtree(plan.folder / "data", ignore_errors=True)


class _Run:
    """The steps of the experiment."""

    def __init__(self, spark: SparkSession, plan: SparkRun, step: Step) -> None:
        self._spark = spark
        self._plan = plan
        self._data = plan.folder / "data"
        self._step = step
        self._done = 0
        self._total = 5 + 6 * plan.rounds

    def result(self) -> dict[str, Any]:
        plan = self._plan
        self._draw()
        self._next_step("warming up")
        self._warm_up()
        building = self._time_in_rotation(
            {
                "in_process": self._build_in_process,
                "replicated": self._build_replicated,
                "sharded": self._build_sharded,
            }
        )
        self._next_step("matching, not counted")
        self._match_in_process()
        for _ in range(_WARM_UP_ROUNDS):
            self._match("replicated")
        found: dict[str, set[int]] = {}
        matching = self._time_in_rotation(
            {
                "in_process": lambda: found.setdefault("in_process", set()).add(
                    self._match_in_process()
                ),
                "replicated": lambda: found.setdefault("replicated", set()).add(
                    self._match("replicated")
                ),
                "sharded": lambda: found.setdefault("sharded", set()).add(self._match("sharded")),
            }
        )
        matches = set().union(*found.values())
        if len(matches) != 1:
            raise NearcastError(f"the jobs found different numbers of matches: {found}")
        version = Artifact(self._data / "sharded").latest()
        prepare_results = self._measure_prepare()
        return {
            "experiment": "spark",
            "dataset": plan.dataset,
            "subscriptions": plan.subscriptions,
            "messages": plan.messages,
            "shards": plan.shards,
            "prepared": plan.prepared,
            "rounds": plan.rounds,
            "seed": plan.seed,
            "ids": plan.ids,
            "master": self._spark.sparkContext.master,
            "matches_per_message": matches.pop() / plan.messages,
            "build_s": building,
            "match_s": matching,
            "plan": version.plan,
            "prepare": prepare_results,
            "machine": describe_machine(),
        }

    def _next_step(self, name: str) -> None:
        self._step(name, self._done, self._total)
        self._done += 1

    def _draw(self) -> None:
        """Write the workload as Parquet, in row groups that Spark can distribute."""
        self._next_step("drawing the workload")
        plan = self._plan
        workload = Workload(plan.dataset, plan.seed)

        def subscriptions(first: int, count: int) -> pa.Table:
            drawn = workload.subscriptions(count, first=first)
            return self._with_ids(subscription_table(workload, drawn, first=first), first)

        def messages(first: int, count: int) -> pa.Table:
            drawn = workload.messages(count, first=first)
            return self._with_ids(message_table(workload, drawn, first=first), first)

        _write(self._data / "subscriptions.parquet", subscriptions, plan.subscriptions)
        _write(self._data / "messages.parquet", messages, plan.messages)

    def _with_ids(self, table: pa.Table, first: int) -> pa.Table:
        if self._plan.ids == "string":
            return table
        return table.set_column(0, "id", pa.array(np.arange(first, first + table.num_rows)))

    def _warm_up(self) -> None:
        """Compile the kernels, start the workers of the session, and run the Java code."""
        warm_up(indexes.create())
        warm_tables()
        few = self._frame("subscriptions").limit(20_000)
        build(few, self._data / "warm")
        match(self._frame("messages").limit(20_000), self._data / "warm").count()
        build(few, self._data / "warm", shards=2)
        match(self._frame("messages").limit(20_000), self._data / "warm", mode="sharded").count()

    def _time_in_rotation(self, jobs: dict[str, Callable[[], Any]]) -> dict[str, dict[str, float]]:
        """Run each job once per round, in rotation, and measure its time."""
        spent: dict[str, list[float]] = {name: [] for name in jobs}
        for turn in range(self._plan.rounds):
            for name, job in jobs.items():
                self._next_step(f"round {turn + 1}: {name}")
                began = time.perf_counter()
                job()
                spent[name].append(time.perf_counter() - began)
        return {name: spread(values) for name, values in spent.items()}

    def _frame(self, name: str) -> DataFrame:
        return self._spark.read.parquet(str(self._data / f"{name}.parquet"))

    def _build_in_process(self) -> None:
        columns, _ = load_subscriptions(self._data / "subscriptions.parquet", Vocabulary())
        indexes.create().build(columns.clauses).save(self._data / "in-process")

    def _build_replicated(self) -> None:
        build(self._frame("subscriptions"), self._data / "replicated", mode="replicated")

    def _build_sharded(self) -> None:
        frame, shards = self._frame("subscriptions"), self._plan.shards
        build(frame, self._data / "sharded", shards=shards, messages=self._frame("messages"))

    def _match_in_process(self) -> int:
        """Match in this process, with the generator that Spark's workers run."""
        artifact = Artifact(self._data / "replicated")
        kind = pa.int64() if self._plan.ids == "integer" else pa.string()
        schema = answer_schema(kind, kind)
        matching = MatchMessages(artifact.folder.uri, artifact.latest().number, 0, schema)
        with parquet.ParquetFile(self._data / "messages.parquet") as file:
            answers = matching(file.iter_batches(_ROWS_PER_BATCH, use_threads=False))
            return sum(len(batch.column("subscription_ids").flatten()) for batch in answers)

    def _match(self, mode: str) -> int:
        matches = match(self._frame("messages"), self._data / mode, mode=mode)
        row = matches.agg(F.count("subscription_id")).first()
        assert row is not None
        return int(row[0])

    def _measure_prepare(self) -> list[dict[str, Any]]:
        """Prepare and count a tenth of the messages, then all; measure the memory of the driver."""
        results = []
        for count in (self._plan.prepared // 10 or 1, self._plan.prepared):
            self._next_step(f"preparing {count:,} messages")
            copies = max(count // self._plan.messages, 1)
            raw = (
                self._frame("messages")
                .crossJoin(self._spark.range(copies).withColumnRenamed("id", "copy"))
                .withColumn("id", F.concat("id", F.lit("-"), F.col("copy")))
                .drop("copy")
            )
            began = time.perf_counter()
            with PeakMemory() as memory:
                prepared = prepare(raw, "messages")
                prepared.rows.write.format("noop").mode("overwrite").save()
                counts = prepared.check()
            results.append(
                {
                    **counts,
                    "seconds": time.perf_counter() - began,
                    "driver_growth_bytes": memory.growth_bytes,
                    "driver_heap_bytes": _heap_bytes(self._spark),
                    "driver_rss_bytes": psutil.Process().memory_info().rss,
                }
            )
        return results


def _heap_bytes(spark: SparkSession) -> int:
    """Return the heap size of the driver's JVM after a garbage collection."""
    jvm: Any = spark._jvm
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def _write(path: Path, draw: Callable[[int, int], pa.Table], rows: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with parquet.ParquetWriter(path, draw(0, 0).schema, compression="zstd") as writer:
        for first in range(0, rows, _ROWS_PER_GROUP):
            writer.write_table(draw(first, min(_ROWS_PER_GROUP, rows - first)))
