"""The whole pipeline on sample data: the library first, then Spark, then a stream that changes.

Run it: python examples/spark/pipeline.py OUT [MESSAGES] [SUBSCRIPTIONS]. It writes the output of
each step and three plots to the folder OUT. Each step says what it does before it starts.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from nearcast import Engine
from nearcast.cli.spark.java_output import JavaOutput
from nearcast.columns import UNITS
from nearcast.datasets import Workload, message_table, subscription_table
from nearcast.intake import Reading
from nearcast.plots.match_map import MapData
from nearcast.plots.statistics import plot_statistics
from nearcast.plots.stream import plot_stream
from nearcast.spark import (
    build,
    changes,
    match,
    open_stream,
    prepare,
    rates,
    read_files,
    session,
    statistics,
    stream,
)

NAMES = {"id": "key", "text": "body", "lon": "longitude", "lat": "latitude", "time": "at"}
"""Our names of columns, and those of the raw records."""

FILES = 4
WORLD = (-180.0, -90.0, 180.0, 90.0)
BOX_SHARE = (1e-5, 1e-3)
"""The area of a subscription's box, as a share of the world."""

# Spark is made for jobs of hours. A run of seconds is done sooner without Java's second compiler
# and without code that is generated for each query. Leave these out for data of your own.
SMALL_JOBS = {
    "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark__sql__codegen__wholeStage": "false",
    "spark__sql__codegen__factoryMode": "NO_CODEGEN",
    "spark__sql__shuffle__partitions": "2",
    "spark__sql__adaptive__enabled": "false",
}


def show(text: str) -> None:
    """Print a line of a result, at once."""
    print(f"    {text}", flush=True)


@contextmanager
def step(number: int, text: str) -> Iterator[None]:
    """Say what a step does before it starts, and how long it took when it is done."""
    print(f"\n{number}. {text}", flush=True)
    began = time.perf_counter()
    yield
    show(f"({time.perf_counter() - began:.1f} s)")


def start_spark() -> "Future[SparkSession]":
    """Start Spark's Java process in the background; its warnings are not shown."""
    running = SparkSession.getActiveSession()
    if running is not None:
        future: Future[SparkSession] = Future()
        future.set_result(running)
        return future
    pool = ThreadPoolExecutor(1)
    started = pool.submit(JavaOutput().start, new_session)
    pool.shutdown(wait=False)
    return started


def new_session() -> SparkSession:
    """Return a session whose Python workers have imported what they need."""
    made = session(**SMALL_JOBS)
    made.range(0, 2, 1, 2).mapInArrow(import_reader, "id bigint").count()
    return made


def import_reader(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return what is given; a worker that has imported a module keeps it."""
    import nearcast.spark.workers.reading  # noqa: F401

    yield from batches


def write_raw(path: Path, table: pa.Table) -> None:
    """Write raw records with other column names, numbers as text, duplicates and broken lines."""
    lines = []
    for row in table.set_column(4, "time", pc.cast(table["time"], "string")).to_pylist():
        record = {theirs: row[ours] for ours, theirs in NAMES.items()}
        lines.append(json.dumps({**record, "longitude": str(record["longitude"])}))
    half = len(lines) // 2
    lines[half:half] = [
        lines[0],
        '{"key": "broken", "body": "no en',
        '{"key": "nowhere", "body": "north of the pole", "longitude": "0", "latitude": 99}',
    ]
    path.write_text("\n".join(lines) + "\n")


def match_with_library(rows: pa.Table, messages: pa.Table) -> pa.Table:
    """Match messages in this process, without Spark, and show one of the matches."""
    engine = Engine()
    began = time.perf_counter()
    engine.subscribe_table(rows)
    engine.publish_table(messages.slice(0, 1))  # compiles what was not compiled before
    show(f"the index is ready after {time.perf_counter() - began:.1f} s")
    began = time.perf_counter()
    found = engine.publish_table(messages).matches
    taken = time.perf_counter() - began
    show(f"{messages.num_rows:,} messages have {found.num_rows:,} matches, found in {taken:.2f} s")
    if found.num_rows:
        pair = found.slice(0, 1).to_pylist()[0]
        wanted = engine.get(pair["subscription_id"])
        text = messages.filter(pc.equal(messages["id"], pair["message_id"]))["text"][0]
        show(f"message {pair['message_id']}: {text}")
        show(f"matches {wanted.id}, which asks for: {' '.join(wanted.keywords or ())}")
    return found


def draw_map(rows: pa.Table, messages: pa.Table, matches: pa.Table, path: Path) -> None:
    """Draw a map of the messages, colored by their number of matches."""
    counted = matches.group_by("message_id").aggregate([([], "count_all")])
    number = dict(zip(*(counted[name].to_pylist() for name in counted.column_names), strict=True))
    lon, lat = (messages[name].to_numpy() for name in ("lon", "lat"))
    box = np.stack([rows[name].to_numpy() for name in ("west", "south", "east", "north")], axis=1)
    data = MapData()
    data.add_boxes(np.rint(box * UNITS).astype(np.int32))
    data.add_messages(
        np.rint(np.stack([lon, lat, lon, lat], axis=1) * UNITS).astype(np.int32),
        np.array([number.get(name, 0) for name in messages["id"].to_pylist()]),
    )
    data.draw(path, "Messages and the subscriptions that they match")


def make_changes(rows: DataFrame) -> DataFrame:
    """Return changes that delete a tenth of the subscriptions and enlarge another tenth."""
    rows = rows.withColumn("part", F.pmod(F.hash("id"), F.lit(10)))
    sides = zip(("west", "south", "east", "north"), WORLD, strict=True)
    deleted = rows.where("part = 0").select(F.lit("delete").alias("op"), "id")
    moved = rows.where("part = 1").select(
        F.lit("move").alias("op"), "id", *(F.lit(value).alias(side) for side, value in sides)
    )
    return moved.unionByName(deleted, allowMissingColumns=True)


def run_stream(spark: SparkSession, out: Path, messages: pa.Table) -> list[dict[str, Any]]:
    """Let files arrive in a folder, one half before and one half after the changes."""
    arriving = out / "arriving"
    arriving.mkdir()
    share = -(-messages.num_rows // FILES)
    parts = [messages.slice(at * share, share) for at in range(FILES)]

    def arrive(numbers: range) -> None:
        for number in numbers:
            parquet.write_table(parts[number], out / "new.parquet")
            (out / "new.parquet").rename(arriving / f"{number}.parquet")  # appears as a whole

    arrive(range(FILES // 2))
    query = stream(
        open_stream(spark, str(arriving), files_per_batch=1),
        out / "index",
        to=f"{out}/streamed",
        checkpoint=f"{out}/checkpoint",
    )
    results: list[dict[str, Any]] = []
    for version in (1, 2):
        query.processAllAvailable()
        for batch in (rates(progress) for progress in query.recentProgress):
            if batch is not None and batch["batch"] >= len(results):
                results.append({**batch, "version": version})
                show(
                    f"batch {batch['batch']} with version {version}: {batch['messages']:,} "
                    f"messages, {batch['matches']:,} matches"
                )
        if version == 1:
            done = changes(make_changes(spark.read.parquet(f"{out}/subscriptions")), out / "index")
            counts = ", ".join(f"{name} {count:,}" for name, count in done.taken.items() if count)
            show(f"changes: {counts}; version {done.version.number} is in use")
            arrive(range(FILES // 2, FILES))
    query.stop()
    return results


def show_next(out: Path) -> None:
    """Print commands to try."""
    folder = Path(sys.executable).parent
    nearcast = "nearcast" if shutil.which("nearcast") else near(folder / "nearcast")
    print(
        f"""
What to try next:
  # the same matches with the library, in seconds, as CSV
  {nearcast} match --subscriptions {out}/subscriptions --messages {out}/messages \\
      --out {out}/matches.csv
  # Spark, with the subscriptions as they were before the changes
  {nearcast} spark match --index-path {out}/index --version 1 --messages {out}/messages \\
      --out {out}/before
  # merge the changes into the index, and drop versions that nobody reads
  {nearcast} spark compact --index-path {out}/index
  # subscriptions that are ranked by words and distance
  {near(Path(sys.executable))} {near(Path(__file__).with_name("ranked.py"))}"""
    )


def near(path: Path) -> str:
    """Return a path as it is written from the current folder, if it is in there."""
    written = os.path.relpath(path)
    return str(path) if written.startswith("..") else written


def main(out: Path, count: int, subscriptions: int) -> None:
    """Run the pipeline."""
    print("Nearcast: which of many subscriptions does each message match?", flush=True)
    began = time.perf_counter()
    starting = start_spark()
    shutil.rmtree(out, ignore_errors=True)
    (out / "subscriptions").mkdir(parents=True)

    with step(1, f"Sample data: {count:,} messages and {subscriptions:,} subscriptions."):
        workload = Workload("places", seed=7, box_share=BOX_SHARE)
        messages = message_table(workload, workload.messages(count))
        rows = subscription_table(workload, workload.subscriptions(subscriptions))
        write_raw(out / "raw.json", messages)
        parquet.write_table(rows, out / "subscriptions" / "part.parquet")
        with open(out / "raw.json") as file:
            show(f"a raw record: {file.readline().strip()}")

    with step(
        2,
        "Match with the library, without Spark. The first run on a machine compiles the index, "
        "which can take\n   a minute; later runs load it. Meanwhile, Spark starts in the "
        "background.",
    ):
        alone = match_with_library(rows, messages)
        draw_map(rows, messages, alone, out / "matches.png")
        show(f"a map of them: {out}/matches.png")

    with step(3, "Spark: wait until its Java process has started."):
        spark = starting.result()

    with step(
        4, "Prepare: turn the raw records into clean rows. Invalid rows must not stop a job."
    ):
        raw = read_files(spark, out / "raw.json", "messages", Reading(columns=tuple(NAMES.items())))
        prepared = prepare(raw, "messages")
        prepared.rows.write.parquet(f"{out}/messages")
        show(", ".join(f"{number:,} {what}" for what, number in prepared.check().items()))
        for row in prepared.rejects.collect():
            problem = f"{row.field} {row.reason}".strip()
            show(f"rejected: {row.file}, line {row.row}: {problem}")
    clean = spark.read.parquet(f"{out}/messages")

    with step(5, "Statistics: count how often each word occurs, and where."):
        counted = statistics(clean, "messages", out / "statistics", box=WORLD)
        plot_statistics(counted, out / "statistics.png", "messages")
        words = f"{counted.documents:,} messages have {len(counted.vocabulary):,} words"
        show(f"{words}: {out}/statistics.png")

    with step(6, "Build an index over the subscriptions. All machines of a cluster share it."):
        built = build(spark.read.parquet(f"{out}/subscriptions"), out / "index", mode="replicated")
        size = built.version.nbytes / 1e6
        show(f"version {built.version.number}: {built.version.rows:,} rows, {size:.1f} MB")

    with step(7, "Match all messages with Spark. It must find what the library found."):
        observed = Observation()
        match(clean, out / "index", observation=observed).write.parquet(f"{out}/matches")
        found = observed.get
        same = "the same number" if found["matches"] == alone.num_rows else "NOT the same number"
        show(f"{found['matches']:,} matches, {same} as in step 2")

    with step(8, "Stream: files arrive, subscriptions change, and the running stream uses them."):
        batches = run_stream(spark, out, messages)
        plot_stream(batches, out / "stream.png")
        show(f"matches by version: {out}/stream.png")

    summary = {"prepare": prepared.counts, "match": found, "stream": batches}
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(f"\nDone in {time.perf_counter() - began:.0f} s. All output is in {out}.")
    show_next(out)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(
        Path(given[0]) if given else Path(tempfile.mkdtemp()) / "out",
        int(given[1]) if len(given) > 1 else 2_000,
        int(given[2]) if len(given) > 2 else 4_000,
    )
