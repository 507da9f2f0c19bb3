"""Ranked subscriptions on Spark: shards, streams and changes score as one process does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from generated import NOW_US, message_table, mixed_table, scored
from pyarrow import parquet
from stream_pipeline import StreamPipeline, put_file
from typer.testing import CliRunner

from nearcast.cli import app
from nearcast.columns import Scoring
from nearcast.engine import Engine
from nearcast.errors import UnknownName
from nearcast.spark.artifact.segments import open_scorer
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.build import build
from nearcast.spark.changes import changes
from nearcast.spark.compact import compact
from nearcast.spark.match import match
from nearcast.spark.prepare import prepare
from nearcast.spark.statistics import token_statistics

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from generated import Scored
    from pyspark.sql import DataFrame, SparkSession

# Nothing expires, and every message has a time: no result depends on the moment of a job.
SUBSCRIPTIONS = mixed_table(200, 3).drop_columns(["expires_at"])
MESSAGES = message_table(80, 3)
TIME = pa.array([NOW_US] * len(MESSAGES), pa.timestamp("us", "UTC"))
MESSAGES = MESSAGES.set_column(MESSAGES.column_names.index("time"), "time", TIME)


def triples(rows: Iterable[Any]) -> list[Scored]:
    names = ("message_id", "subscription_id", "score")
    return sorted((tuple(row[name] for name in names) for row in rows), key=lambda one: one[:2])


def command(*words: object) -> Any:
    """Give a command and return what it says, as JSON."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def matched(spark: SparkSession, where: Path, mode: str, version: int | None = None) -> Any:
    frame = spark.createDataFrame(MESSAGES).repartition(3)
    return triples(match(frame, where, mode=mode, version=version).collect())


@pytest.mark.parametrize("scoring", [Scoring(), Scoring("jaccard", "planar")], ids=str)
def test_shards_engine_and_command_score_alike(
    spark: SparkSession, tmp_path: Path, scoring: Scoring
) -> None:
    engine = Engine(similarity=scoring.similarity, distance=scoring.distance)
    engine.subscribe_table(SUBSCRIPTIONS)
    expected = triples(engine.publish_table(MESSAGES).matches.to_pylist())
    assert len({score for _, _, score in expected}) > 100
    assert any(score is None for _, _, score in expected)

    parquet.write_table(SUBSCRIPTIONS, tmp_path / "subscriptions.parquet")
    parquet.write_table(MESSAGES, tmp_path / "messages.parquet")
    chosen = ("--similarity", scoring.similarity, "--distance", scoring.distance, "--json")
    given = ("--subscriptions", tmp_path / "subscriptions.parquet", *chosen)
    alone = ("--messages", tmp_path / "messages.parquet", "--out", tmp_path / "alone.parquet")
    command("match", *given, *alone)
    assert triples(parquet.read_table(tmp_path / "alone.parquet").to_pylist()) == expected

    index = tmp_path / "index"
    frame = spark.createDataFrame(SUBSCRIPTIONS).repartition(4)
    build(frame, index, similarity=scoring.similarity, distance=scoring.distance)
    built = command("spark", "build", *given, "--out", index, "--shards", 3)
    assert (built["similarity"], built["distance"]) == (scoring.similarity, scoring.distance)
    assert built["ranked"] == engine.stats().weighed_subscriptions
    tables = [Artifact(index).read(number).weights for number in (1, 2)]
    assert len({table.digest for table in tables if table is not None}) == 1
    assert matched(spark, index, "replicated", 1) == expected
    assert matched(spark, index, "replicated", 2) == expected
    assert matched(spark, index, "sharded", 2) == expected


def test_a_stream_scores_with_the_weights_of_the_build(spark: SparkSession, tmp_path: Path) -> None:
    """Half of the messages before and half after a change, which keeps the weights."""
    pipeline = StreamPipeline(spark, tmp_path)
    pipeline.build(SUBSCRIPTIONS, shards=3, similarity="jaccard")
    first = Artifact(pipeline.index).latest()
    put_file(tmp_path / "messages", "a", MESSAGES.slice(0, 40))
    pipeline.run(mode="sharded")

    fresh = mixed_table(12, 9, first=5_000).drop_columns(["expires_at"]).to_pylist()
    rows = {row["id"]: row for row in SUBSCRIPTIONS.to_pylist()}
    near = next(one for one, row in rows.items() if row["delta"] is not None)
    made = [{"op": "insert", **row} for row in fresh]
    made += [{"op": "move", "id": near, "lon": 1.0, "lat": 2.0}, {"op": "delete", "id": "s1"}]
    rows |= {row["id"]: row for row in fresh}
    rows[near] |= {"lon": 1.0, "lat": 2.0}
    del rows["s1"]
    schema = pa.schema([("op", pa.string()), *SUBSCRIPTIONS.schema])
    done = changes(spark.createDataFrame(pa.Table.from_pylist(made, schema)), pipeline.index)
    assert (done.rejected, done.taken) == (0, {"insert": 12, "delete": 1, "move": 1})
    assert done.version.weights == first.weights

    put_file(tmp_path / "messages", "b", MESSAGES.slice(40))
    pipeline.run(mode="sharded")
    now = pa.Table.from_pylist(list(rows.values()), SUBSCRIPTIONS.schema)
    how: dict[str, Any] = {"scoring": Scoring("jaccard"), "counted": SUBSCRIPTIONS}
    expected = scored(SUBSCRIPTIONS, MESSAGES.slice(0, 40), **how)
    expected += scored(now, MESSAGES.slice(40), **how)
    streamed = [parquet.read_table(path) for path in pipeline.out.glob("*.parquet")]
    assert triples(row for table in streamed for row in table.to_pylist()) == triples(
        dict(zip(("message_id", "subscription_id", "score"), one, strict=True)) for one in expected
    )

    compacted = compact(spark, pipeline.index).version
    assert (compacted.deltas, compacted.weights) == (0, first.weights)
    assert matched(spark, pipeline.index, "sharded") == scored(now, MESSAGES, **how)


def test_every_subscription_is_counted_once(spark: SparkSession, tmp_path: Path) -> None:
    """Also if rows are duplicates, come as text, or have been prepared."""

    def digest(frame: DataFrame, shards: int = 1) -> str:
        version = build(frame, tmp_path, shards=shards).version
        assert version.weights is not None
        return version.weights.digest

    frame = spark.createDataFrame(SUBSCRIPTIONS).repartition(2)
    expected = digest(frame)
    scorer = open_scorer(Artifact(tmp_path).folder, Artifact(tmp_path).latest())
    assert scorer is not None
    ranked = [row for row in SUBSCRIPTIONS.to_pylist() if row["tau"] or row["theta"] is not None]
    assert scorer.weights.subscriptions >= len(ranked) > 50
    again = frame.union(frame.limit(30))
    assert digest(again) == digest(again, 2) == expected
    numbers = [name for name, kind in frame.dtypes if kind == "double"]
    texts = frame.withColumns({name: frame[name].cast("string") for name in numbers})
    assert digest(prepare(texts, "subscriptions").rows) == expected


def test_statistics_count_ranked_subscriptions_too(spark: SparkSession) -> None:
    frame = spark.createDataFrame(SUBSCRIPTIONS)
    found = {row.token: row.df for row in token_statistics(frame, "subscriptions").collect()}
    rows = [row for row in SUBSCRIPTIONS.to_pylist() if "x7" in (row["keywords"] or ())]
    assert found["x7"] == len(rows) > 5


def test_unknown_similarities_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(SUBSCRIPTIONS)
    with pytest.raises(UnknownName, match="choose from: containment, cosine, dice, jaccard"):
        build(frame, tmp_path, similarity="likeness")
    with pytest.raises(UnknownName, match="choose from: geodesic, planar"):
        build(frame, tmp_path, distance="taxi")
