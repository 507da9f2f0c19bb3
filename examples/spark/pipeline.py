"""The whole pipeline on sample data: raw records to matches, then a stream over a changing index.

Run it: python examples/spark/pipeline.py OUT [MESSAGES] [SUBSCRIPTIONS]. It writes every step and
three pictures into the folder OUT.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from nearcast.columns import UNITS
from nearcast.datasets import Workload
from nearcast.datasets.tables import message_table
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
    read_records,
    session,
    statistics,
    stream,
    subscriptions,
)

NAMES = {"id": "key", "text": "body", "lon": "longitude", "lat": "latitude", "time": "at"}
FILES = 6
SHARE = (1e-6, 1e-4)
"""The area of a subscription's box, as shares of the world's: towns to provinces."""


def write_raw(path: Path, count: int) -> None:
    """Write records as somebody else would: other names, numbers as text, twins, broken lines."""
    workload = Workload("places", seed=7)
    table = message_table(workload, workload.messages(count))
    lines = []
    for row in table.set_column(4, "time", pc.cast(table["time"], "string")).to_pylist():
        record = {theirs: row[ours] for ours, theirs in NAMES.items()}
        lines.append(json.dumps({**record, "longitude": str(record["longitude"])}))
    lines[count // 2 : count // 2] = [
        lines[0],
        '{"key": "broken", "body": "no en',
        '{"key": "nowhere", "body": "north of the pole", "longitude": "0", "latitude": 99}',
    ]
    path.write_text("\n".join(lines) + "\n")


def draw_map(spark: SparkSession, out: Path, path: Path) -> None:
    """Draw the messages, coloured by how many subscriptions each has found."""
    found = spark.read.parquet(f"{out}/matches").groupBy("message_id").count()
    messages = spark.read.parquet(f"{out}/messages")
    counted = messages.join(found, messages.id == found.message_id, "left")
    rows = counted.select("lon", "lat", F.coalesce("count", F.lit(0))).toArrow()
    lon, lat, number = (column.to_numpy() for column in rows.columns)
    point = np.rint(np.stack([lon, lat, lon, lat], axis=1) * UNITS).astype(np.int32)
    boxes = spark.read.parquet(f"{out}/subscriptions").select("west", "south", "east", "north")
    box = np.stack([column.to_numpy() for column in boxes.toArrow().columns], axis=1)
    data = MapData()
    data.add_boxes(np.rint(box * UNITS).astype(np.int32))
    data.add_messages(point, number)
    data.draw(path, "Messages and the subscriptions that they match")


def changed(spark: SparkSession, out: Path) -> DataFrame:
    """Return changes: every tenth subscription goes, every tenth moves to the whole world."""
    part = F.pmod(F.hash("id"), F.lit(10))
    rows = spark.read.parquet(f"{out}/subscriptions").withColumn("part", part)
    world = {"west": -180.0, "south": -90.0, "east": 180.0, "north": 90.0}
    gone = rows.where("part = 0").select(F.lit("delete").alias("op"), "id")
    moved = rows.where("part = 1").select(
        F.lit("move").alias("op"),
        "id",
        *(F.lit(value).alias(side) for side, value in world.items()),
    )
    return moved.unionByName(gone, allowMissingColumns=True)


def run_stream(spark: SparkSession, out: Path) -> list[dict[str, Any]]:
    """Stream files of messages, half of them before and half of them after a change."""
    arriving = out / "arriving"
    spark.read.parquet(f"{out}/messages").repartition(FILES).write.parquet(f"{out}/files")
    files = sorted((out / "files").glob("*.parquet"))
    told = []
    for version, some in ((1, files[: FILES // 2]), (2, files[FILES // 2 :])):
        arriving.mkdir(exist_ok=True)
        for file in some:
            shutil.copy(file, arriving)
        query = stream(
            open_stream(spark, str(arriving), files_per_batch=1),
            out / "index",
            to=f"{out}/streamed",
            checkpoint=f"{out}/checkpoint",
            available_now=True,
        )
        query.awaitTermination()
        batches = [rates(progress) for progress in query.recentProgress]
        told += [{**batch, "version": version} for batch in batches if batch is not None]
        if version == 1:
            done = changes(changed(spark, out), out / "index")
            print(f"changes     {done.taken}, version {done.version.number} is in force")
    return told


def main(out: Path, messages: int, count: int) -> None:
    """Go through the pipeline."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    spark = session()
    write_raw(out / "raw.json", messages)

    prepared = prepare(read_records(spark, f"{out}/raw.json", "json", NAMES), "messages", NAMES)
    prepared.rows.write.parquet(f"{out}/messages")
    print(f"prepare     {prepared.check()}")
    for row in prepared.rejects.collect():
        print(f"            rejected: {row.field or 'line'} {row.reason}")

    clean = spark.read.parquet(f"{out}/messages")
    counted = statistics(clean, "messages", out / "statistics")
    plot_statistics(counted, out / "statistics.png", "messages")
    print(f"statistics  {counted.documents:,} messages, {len(counted.vocabulary):,} tokens")

    subscriptions(clean, count, seed=7, share=SHARE).write.parquet(f"{out}/subscriptions")
    print(f"subscribe   {count:,} subscriptions drawn from the messages")

    registered = spark.read.parquet(f"{out}/subscriptions")
    built = build(registered, out / "index", messages=clean)
    print(f"build       {built.version.mode}, {built.version.nbytes / 1e6:.1f} MB")

    observed = Observation()
    match(clean, out / "index", observation=observed).write.parquet(f"{out}/matches")
    found = observed.get
    print(f"match       {found['matches']:,} matches of {found['messages']:,} messages")
    draw_map(spark, out, out / "matches.png")

    batches = run_stream(spark, out)
    for batch in batches:
        print(
            f"stream      batch {batch['batch']}: {batch['messages']:,} messages, "
            f"{batch['matches']:,} matches, {batch['examined_per_message']:.0f} examined a message"
        )
    plot_stream(batches, out / "stream.png")
    summary = {"prepare": prepared.counts, "match": found, "stream": batches}
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(f"pictures    {out}/statistics.png, {out}/matches.png, {out}/stream.png")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(
        Path(given[0]) if given else Path(tempfile.mkdtemp()) / "out",
        int(given[1]) if len(given) > 1 else 2_000,
        int(given[2]) if len(given) > 2 else 4_000,
    )
