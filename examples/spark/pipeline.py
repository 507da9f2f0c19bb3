"""The whole pipeline on sample data: raw records to matches, then a stream with a changing index.

Run it: python examples/spark/pipeline.py OUT [MESSAGES] [SUBSCRIPTIONS]. It writes the output of
each step and three plots to the folder OUT.
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
    subscriptions,
)

NAMES = {"id": "key", "text": "body", "lon": "longitude", "lat": "latitude", "time": "at"}
FILES = 6
SHARE = (1e-6, 1e-4)
"""The area of a subscription's box, as a share of where the messages are."""


def write_raw(path: Path, count: int) -> None:
    """Write raw records with other column names, numbers as text, duplicates and broken lines."""
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
    """Draw a map of the messages, colored by their number of matches."""
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


def with_ranked(rows: DataFrame) -> DataFrame:
    """Return subscriptions, and some of them once more, ranked by words and distance."""
    chosen = rows.where(F.pmod(F.hash("id"), F.lit(50)) == 7)
    shares = {"delta": 0.5, "tau": 0.7, "max_distance_m": 100_000.0}
    ranked = chosen.select(
        F.concat("id", F.lit("~ranked")).alias("id"),
        "keywords",
        ((F.col("west") + F.col("east")) / 2).alias("lon"),
        ((F.col("south") + F.col("north")) / 2).alias("lat"),
        *(F.lit(value).alias(name) for name, value in shares.items()),
    )
    return rows.unionByName(ranked, allowMissingColumns=True)


def make_changes(spark: SparkSession, out: Path) -> DataFrame:
    """Return changes that delete a tenth of the subscriptions and enlarge another tenth."""
    part = F.pmod(F.hash("id"), F.lit(10))
    rows = spark.read.parquet(f"{out}/subscriptions").withColumn("part", part)
    world = {"west": -180.0, "south": -90.0, "east": 180.0, "north": 90.0}
    deleted = rows.where("part = 0").select(F.lit("delete").alias("op"), "id")
    moved = rows.where("part = 1").select(
        F.lit("move").alias("op"),
        "id",
        *(F.lit(value).alias(side) for side, value in world.items()),
    )
    return moved.unionByName(deleted, allowMissingColumns=True)


def run_stream(spark: SparkSession, out: Path) -> list[dict[str, Any]]:
    """Stream files of messages, one half before and one half after the changes."""
    arriving = out / "arriving"
    spark.read.parquet(f"{out}/messages").repartition(FILES).write.parquet(f"{out}/files")
    files = sorted((out / "files").glob("*.parquet"))
    results = []
    for version, part in ((1, files[: FILES // 2]), (2, files[FILES // 2 :])):
        arriving.mkdir(exist_ok=True)
        for file in part:
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
        results += [{**batch, "version": version} for batch in batches if batch is not None]
        if version == 1:
            done = changes(make_changes(spark, out), out / "index")
            print(f"changes     {done.taken}, version {done.version.number} is in use")
    return results


def main(out: Path, messages: int, count: int) -> None:
    """Run the pipeline."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    spark = session()
    write_raw(out / "raw.json", messages)

    raw = read_files(spark, out / "raw.json", "messages", Reading(columns=tuple(NAMES.items())))
    prepared = prepare(raw, "messages")
    prepared.rows.write.parquet(f"{out}/messages")
    print(f"prepare     {prepared.check()}")
    for row in prepared.rejects.collect():
        print(f"            rejected: {row.file}:{row.row} {row.field} {row.reason}")

    clean = spark.read.parquet(f"{out}/messages")
    counted = statistics(clean, "messages", out / "statistics")
    plot_statistics(counted, out / "statistics.png", "messages")
    print(f"statistics  {counted.documents:,} messages, {len(counted.vocabulary):,} tokens")

    subscriptions(clean, count, seed=7, share=SHARE).write.parquet(f"{out}/subscriptions")
    print(f"subscribe   {count:,} subscriptions drawn from the messages")

    registered = with_ranked(spark.read.parquet(f"{out}/subscriptions"))
    built = build(registered, out / "index", messages=clean)
    ranked = built.version.source["ranked"]
    size = built.version.nbytes / 1e6
    print(f"build       {built.version.mode}, {ranked:,} are ranked as well, {size:.1f} MB")

    observed = Observation()
    match(clean, out / "index", observation=observed).write.parquet(f"{out}/matches")
    found = observed.get
    scored = spark.read.parquet(f"{out}/matches").where("score is not null").count()
    print(
        f"match       {found['matches']:,} matches of {found['messages']:,} messages, "
        f"{scored:,} with a score"
    )
    draw_map(spark, out, out / "matches.png")

    batches = run_stream(spark, out)
    for batch in batches:
        print(
            f"stream      batch {batch['batch']}: {batch['messages']:,} messages, "
            f"{batch['matches']:,} matches, "
            f"{batch['examined_per_message']:.0f} examined per message"
        )
    plot_stream(batches, out / "stream.png")
    summary = {"prepare": prepared.counts, "match": found, "stream": batches}
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(f"plots       {out}/statistics.png, {out}/matches.png, {out}/stream.png")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(
        Path(given[0]) if given else Path(tempfile.mkdtemp()) / "out",
        int(given[1]) if len(given) > 1 else 2_000,
        int(given[2]) if len(given) > 2 else 4_000,
    )
