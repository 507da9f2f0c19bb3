"""Streams of messages and moves to a stream of updates: the same as a replay and as the scan."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from generated import NOW_US, build_locally
from moving_events import (
    LIVING_FIELDS,
    SECOND,
    SUBSCRIPTIONS,
    Recording,
    Truth,
    Update,
    record,
    table_of,
)
from pyarrow import parquet
from typer.testing import CliRunner
from updates_pipeline import UpdatesPipeline, told, updates_in, updates_of

from nearcast.cli import app
from nearcast.errors import InvalidInput, UnsupportedFile
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.stream import stream
from nearcast.spark.updates import stream_updates, update_rates

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> UpdatesPipeline:
    return UpdatesPipeline(spark, tmp_path)


def command(*given: object) -> Any:
    done = CliRunner().invoke(app, [*map(str, given), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def only_moves(seed: int) -> Recording:
    """Draw moves and messages that can be replayed: no other changes, and each id once.

    A subscription moves once at a time: the order of rows is shuffled.
    """
    drawn = record(seed)
    moved = {(row["id"], row["time"]): row for row in drawn.changes if row["op"] == "move"}
    moves = [*moved.values()]
    messages = list({row["id"]: row for row in drawn.messages}.values())
    return Recording(drawn.subscriptions, moves, messages)


def replayed(recording: Recording, folder: Path) -> Counter[Update]:
    """Return the updates of ``nearcast match --moves``."""
    moves = table_of(recording.changes, {"time": pa.timestamp("us", "UTC"), **SUBSCRIPTIONS})
    names = ["subscription_id" if name == "id" else name for name in moves.column_names]
    tables = {
        "subscriptions": recording.subscriptions,
        "messages": table_of(recording.messages, LIVING_FIELDS),
        "moves": moves.rename_columns(names),
    }
    for name, table in tables.items():
        parquet.write_table(table, folder / f"{name}.parquet")
    files = [(f"--{name}", folder / f"{name}.parquet") for name in (*tables,)]
    out = folder / "replayed.parquet"
    command("match", *(word for pair in files for word in pair), "--out", out)
    return updates_of(parquet.read_table(out).to_pylist())


def test_a_stream_gives_what_a_replay_and_the_scan_give(pipeline: UpdatesPipeline) -> None:
    recording = only_moves(31)
    build_locally(Artifact(pipeline.folder / "index"), recording.subscriptions, 2)
    expected = Truth(recording.subscriptions).apply(*recording.cut([]))
    assert replayed(recording, pipeline.folder) == expected
    draw = random.Random(31)
    for number, batch in enumerate(recording.cut([NOW_US + 6 * SECOND, NOW_US + 15 * SECOND])):
        draw.shuffle(batch.changes)
        pipeline.put(str(number), batch)
    for partitions, files_per_batch in ((2, 1), (3, None)):
        out = pipeline.folder / f"out{partitions}"
        where = {"to": out, "checkpoint": pipeline.folder / f"checkpoint{partitions}"}
        query = pipeline.run(partitions=partitions, files_per_batch=files_per_batch, **where)
        assert updates_in(out) == expected
        batches = told(query)
        assert len(batches) == (1 if files_per_batch is None else 3)
        assert sum(rate["begun"] + rate["ended"] for rate in batches) == expected.total()
        assert sum(rate["messages"] for rate in batches) == len(recording.messages)
        total = sum(rate["changes"] + rate["rejected"] for rate in batches)
        assert total == len(recording.changes)
        assert all(rate["updates_per_second"] > 0 for rate in batches)


def test_a_function_gets_updates_and_a_restart_goes_on(pipeline: UpdatesPipeline) -> None:
    recording = record(32)
    build_locally(Artifact(pipeline.folder / "index"), recording.subscriptions)
    truth = Truth(recording.subscriptions)
    first, second = recording.cut([NOW_US + 9 * SECOND])
    got: dict[int, list[Counter[Update]]] = {}

    def take(updates: DataFrame, number: int) -> None:
        # Whatever is asked twice is applied twice, each time to the state of the batch before.
        got[number] = [updates_of(row.asDict() for row in updates.collect()) for _ in range(2)]

    for number, batch in enumerate((first, second)):
        pipeline.put(str(number), batch)
        pipeline.run(to=take)
        expected = truth.apply(batch)
        assert got[number] == [expected, expected]
    assert [*got] == [0, 1]
    files = (pipeline.folder / "rejects").glob("*.json")
    lines = [line for path in files for line in path.read_text().splitlines()]
    assert len(lines) == truth.rejected
    assert {json.loads(line)["source"] for line in lines} <= {"moves", "messages"}


def test_the_command_streams_moves_in_json(pipeline: UpdatesPipeline) -> None:
    folder = pipeline.folder
    place = {"west": 0, "south": 0, "east": 1, "north": 1}
    rows = [{"id": "s0", "keywords": ["tea"], **place}]
    build_locally(Artifact(folder / "index"), table_of(rows, SUBSCRIPTIONS))
    lines = {
        "messages": ['{"id": "m", "text": "Tea", "lon": 0, "lat": 0, "time": 100}', "no JSON"],
        "moves": [
            json.dumps({"subscription_id": "s0", "time": 150, **place, "west": 0.5}),
            json.dumps({"op": "insert", "id": "s1", "keywords": ["tea"], "time": 160, **place}),
            json.dumps({"op": "delete", "id": "s2", "time": 170}),
            "[",
        ],
    }
    for name, some in lines.items():
        (folder / name).mkdir()
        (folder / name / "0.json").write_text("\n".join(some))
    batch = command(
        *("spark", "stream", "--index-path", folder / "index", "--messages", folder / "messages"),
        *("--moves", folder / "moves", "--format", "json", "--ttl", 65, "--partitions", 2),
        *("--out", folder / "out", "--checkpoint", folder / "checkpoint", "--once"),
    )
    assert (batch["messages"], batch["changes"], batch["rejected"]) == (1, 2, 3)
    assert (batch["begun"], batch["ended"]) == (2, 2)
    found = updates_in(folder / "out")
    assert sorted((t // SECOND, s, sign) for t, s, _, sign, _ in found) == [
        (100, "s0", 1),
        (150, "s0", -1),
        (160, "s1", 1),
        (165, "s1", -1),
    ]
    rejects = pipeline.spark.read.json(str(folder / "out.rejects")).collect()
    assert sorted((row.source, row.reason) for row in rejects) == [
        ("messages", "is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("moves", "is not JSON: Expecting value: line 1 column 2 (char 1)"),
        ("moves", "is not registered"),
    ]
    records = {(row.source, row.file, row.row): row.record for row in rejects}
    assert records == {
        ("messages", "0.json", 2): '"no JSON"',
        ("moves", "0.json", 3): lines["moves"][2],
        ("moves", "0.json", 4): '"["',
    }


def test_what_cannot_be_streamed_is_said_at_once(pipeline: UpdatesPipeline) -> None:
    recording = record(33, events=10)
    build_locally(Artifact(pipeline.folder / "index"), recording.subscriptions)
    pipeline.put("a", recording.cut([])[0])
    messages, moves = pipeline.frames()
    index = pipeline.folder / "index"
    where: dict[str, Any] = {"to": pipeline.out, "checkpoint": pipeline.folder / "checkpoint"}
    batch = pipeline.spark.createDataFrame([("a",)], "id string")
    with pytest.raises(InvalidInput, match="messages: must be a stream"):
        stream_updates(batch, moves, index, **where)
    with pytest.raises(InvalidInput, match="moves: must be a stream"):
        stream_updates(messages, batch, index, **where)
    with pytest.raises(UnsupportedFile, match="not a table of changes"):
        stream_updates(messages, messages, index, **where)
    with pytest.raises(InvalidInput, match="messages have no column ttl_s"):
        stream_updates(messages.drop("ttl_s"), moves, index, **where)
    numbers = moves.withColumn("id", moves["id"].cast("int"))
    with pytest.raises(InvalidInput, match="must be string like those of the index"):
        stream_updates(messages, numbers, index, **where)
    with pytest.raises(InvalidInput, match="at least 1"):
        stream_updates(messages, moves, index, **where, partitions=0)
    with pytest.raises(InvalidInput, match="0 or more"):
        stream_updates(messages, moves, index, **where, ttl_s=-1.0)
    with pytest.raises(InvalidInput, match="kafka://HOST:PORT/TOPIC"):
        stream_updates(messages, moves, index, **{**where, "to": "kafka://somewhere"})
    assert not pipeline.out.exists()
    assert not where["checkpoint"].exists()


def test_a_checkpoint_keeps_its_settings(pipeline: UpdatesPipeline) -> None:
    recording = record(34, events=10)
    build_locally(Artifact(pipeline.folder / "index"), recording.subscriptions)
    pipeline.put("a", recording.cut([])[0])
    pipeline.run(partitions=2)
    pipeline.run()
    with pytest.raises(InvalidInput, match="must be 2, as when the stream began"):
        pipeline.run(partitions=3)
    with pytest.raises(InvalidInput, match="lacks files that"):
        pipeline.run(to=pipeline.folder / "other")
    messages, _ = pipeline.frames()
    other: dict[str, Any] = {"to": lambda *_: None, "checkpoint": pipeline.folder / "plain"}
    query = stream(messages, pipeline.folder / "index", available_now=True, **other)
    assert query.awaitTermination(300)
    with pytest.raises(InvalidInput, match="a stream without moves"):
        pipeline.run(**other)


def test_rates_are_per_second_of_the_batch() -> None:
    counted = {"messages": 30, "changes": 20, "begun": 60, "ended": 40, "rejected": 1}
    progress = {
        "batchId": 4,
        "observedMetrics": {"nearcast": counted},
        "durationMs": {"triggerExecution": 500},
    }
    found = update_rates(progress)
    assert found is not None
    assert (found["events_per_second"], found["updates_per_second"]) == (100.0, 200.0)
    nothing = dict.fromkeys(counted, 0)
    assert update_rates({**progress, "observedMetrics": {"nearcast": nothing}}) is None
