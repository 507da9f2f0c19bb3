"""Streams of messages to streams of matches: the same pairs as a scan, each once."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from stream_pipeline import (
    PATIENCE_S,
    Pairs,
    StreamPipeline,
    messages,
    pairs_of,
    put_file,
    scanned,
    subscriptions,
    written,
)

from nearcast.errors import InvalidInput, StorageError, UnknownName, UnsupportedFile
from nearcast.spark.frames import plain_errors
from nearcast.spark.match import match
from nearcast.spark.stream import (
    rates,
    remove_first_attempt,
    remove_leftovers,
    stream,
    stream_rejects,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> StreamPipeline:
    return StreamPipeline(spark, tmp_path)


def told(query: StreamingQuery) -> list[dict[str, float]]:
    return [rate for progress in query.recentProgress if (rate := rates(progress)) is not None]


SHARDED = {"mode": "sharded", "shards": 3}


@pytest.mark.parametrize("built", [{}, SHARDED], ids=["whole", "shards"])
@pytest.mark.parametrize("mode", ["replicated", "sharded"])
def test_a_stream_gives_what_a_batch_gives(
    pipeline: StreamPipeline, built: dict[str, Any], mode: str
) -> None:
    wanted = subscriptions(1)
    pipeline.build(wanted, **built)
    files = pipeline.put("a", "b", "c")
    query = pipeline.run(mode=mode)
    expected = scanned(wanted, *files)
    assert written(pipeline.out) == expected
    batch = match(
        pipeline.spark.createDataFrame(pa.concat_tables(files)), pipeline.index, mode=mode
    )
    assert pairs_of(iter(batch.collect())) == expected
    assert pipeline.spark.read.parquet(str(pipeline.out)).dtypes == batch.dtypes
    batches = told(query)
    assert [rate["batch"] for rate in batches] == [0, 1, 2]
    assert [rate["messages"] for rate in batches] == [25, 25, 25]
    assert sum(rate["matches"] for rate in batches) == expected.total()
    assert all(rate["examined_per_message"] * 25 >= rate["matches"] for rate in batches)
    assert all(rate["matches_per_second"] > 0 for rate in batches)


def test_the_same_checkpoint_goes_on_where_it_stopped(pipeline: StreamPipeline) -> None:
    wanted = subscriptions(2)
    pipeline.build(wanted)
    files = pipeline.put("a", "b")
    pipeline.run()
    files += pipeline.put("c")
    assert [rate["batch"] for rate in told(pipeline.run())] == [2]
    assert not told(pipeline.run())
    assert written(pipeline.out) == scanned(wanted, *files)


def test_a_function_gets_the_matches_of_every_batch(pipeline: StreamPipeline) -> None:
    wanted = subscriptions(3)
    pipeline.build(wanted)
    files = pipeline.put("a", "b")
    got: dict[int, Pairs] = {}

    def take(matches: DataFrame, number: int) -> None:
        got[number] = pairs_of(iter(matches.collect()))

    query = pipeline.run(to=take)
    assert sum(got.values(), Counter()) == scanned(wanted, *files)
    assert list(got) == [0, 1]
    assert [rate["matches"] for rate in told(query)] == [pairs.total() for pairs in got.values()]


def test_rows_that_are_no_messages_are_counted_and_written(pipeline: StreamPipeline) -> None:
    wanted = subscriptions(4)
    pipeline.build(wanted, **SHARDED)
    files = pipeline.put("a", "b")
    bad = messages("bad", 4).to_pylist()
    for row, fault in zip(bad, [{"id": None}, {"lon": 200.0}, {"text": None}, {}], strict=True):
        row |= fault
    files.append(pa.Table.from_pylist(bad, schema=files[0].schema))
    put_file(pipeline.folder / "messages", "bad", files[-1])
    for mode in ("replicated", "sharded"):
        where = {"to": pipeline.folder / mode, "checkpoint": pipeline.folder / f"{mode}-progress"}
        batches = told(pipeline.run(mode=mode, **where))
        assert sum(rate["rejected"] for rate in batches) == 3
        assert sum(rate["messages"] for rate in batches) == 51
        assert written(pipeline.folder / mode) == scanned(wanted, *files)
    rejects, progress = pipeline.folder / "rejects", pipeline.folder / "rejects-progress"
    query = stream_rejects(pipeline.messages(), to=rejects, checkpoint=progress, available_now=True)
    assert query.awaitTermination(PATIENCE_S)
    lines = [line for path in rejects.glob("*.json") for line in path.read_text().splitlines()]
    rows = [json.loads(line) for line in lines]
    assert sorted(row["field"] for row in rows) == ["id", "lon", "text"]
    assert all(row["reason"] for row in rows)
    assert {json.loads(row["record"]).get("id") for row in rows} == {None, "bad-1", "bad-2"}


@pytest.mark.parametrize(
    ("mode", "builds"),
    [
        ("replicated", [{}, SHARDED, {}]),
        ("sharded", [SHARDED, {}, {"mode": "sharded", "shards": 5}]),
    ],
)
def test_a_new_version_is_met_by_the_batches_after_it(
    pipeline: StreamPipeline, mode: str, builds: list[dict[str, Any]]
) -> None:
    expected: Pairs = Counter()
    sets = [subscriptions(seed, prefix=f"{seed}s") for seed in (5, 6, 7)]
    pipeline.build(sets[0], **builds[0])
    expected += scanned(sets[0], *pipeline.put("a", "b"))
    query = pipeline.start(mode=mode)
    try:
        query.processAllAvailable()
        for number in (1, 2):
            pipeline.build(sets[number], **builds[number])
            expected += scanned(sets[number], *pipeline.put(f"{number}a", f"{number}b"))
            query.processAllAvailable()
    finally:
        query.stop()
    assert written(pipeline.out) == expected


def test_integer_ids_stay_integers_and_become_text_where_text_began(
    pipeline: StreamPipeline,
) -> None:
    wanted = subscriptions(8, prefix=None)
    pipeline.build(wanted)
    [first] = pipeline.put("a")
    pipeline.run()
    assert written(pipeline.out) == scanned(wanted, first)

    pipeline.build(subscriptions(8))
    where = {"to": pipeline.folder / "texts", "checkpoint": pipeline.folder / "texts-progress"}
    query = pipeline.start(**where)
    try:
        query.processAllAvailable()
        pipeline.build(wanted)
        [second] = pipeline.put("b")
        query.processAllAvailable()
    finally:
        query.stop()
    numbers = Counter((m, str(s)) for m, s in scanned(wanted, second).elements())
    assert written(pipeline.folder / "texts") == scanned(subscriptions(8), first) + numbers


def test_text_ids_stop_a_stream_that_began_with_integers(pipeline: StreamPipeline) -> None:
    pipeline.build(subscriptions(9, prefix=None))
    pipeline.put("a")
    query = pipeline.start()
    try:
        query.processAllAvailable()
        pipeline.build(subscriptions(9))
        pipeline.put("b")
        with pytest.raises(StorageError, match="start the job again"), plain_errors():
            query.processAllAvailable()
    finally:
        query.stop()


def test_what_cannot_be_streamed_is_said_at_once(pipeline: StreamPipeline) -> None:
    pipeline.build(subscriptions(10))
    [table] = pipeline.put("a")
    batch = pipeline.spark.createDataFrame(table)
    where: dict[str, Any] = {"to": pipeline.out, "checkpoint": pipeline.folder / "checkpoint"}
    with pytest.raises(InvalidInput, match="use match"):
        stream(batch, pipeline.index, **where)
    with pytest.raises(InvalidInput, match="use prepare"):
        stream_rejects(batch, **where)
    with pytest.raises(UnknownName, match="sideways"):
        pipeline.start(mode="sideways")
    with pytest.raises(InvalidInput, match="left out for a stream"):
        match(pipeline.messages(), pipeline.index, version=1)
    with pytest.raises(UnsupportedFile, match="place"):
        stream(pipeline.messages().drop("lon", "west", "geometry"), pipeline.index, **where)
    with pytest.raises(StorageError, match="contains no index"):
        stream(pipeline.messages(), pipeline.folder / "nothing", **where)
    with pytest.raises(InvalidInput, match="kafka://HOST:PORT/TOPIC"):
        pipeline.start(to="kafka://somewhere")
    assert not pipeline.out.exists()
    assert not where["checkpoint"].exists()


def test_a_folder_and_a_checkpoint_belong_together(pipeline: StreamPipeline) -> None:
    wanted = subscriptions(11)
    pipeline.build(wanted)
    files = pipeline.put("a")
    pipeline.run()
    with pytest.raises(InvalidInput, match="contains files, but"):
        pipeline.start(checkpoint=pipeline.folder / "other")
    with pytest.raises(InvalidInput, match="lacks files that"):
        pipeline.start(to=pipeline.folder / "other")
    stray = pipeline.out / "part-00000-stray.snappy.parquet"
    stray.write_bytes(next(pipeline.out.glob("part-*.parquet")).read_bytes())
    files += pipeline.put("b")
    pipeline.run()
    assert not stray.exists()
    assert written(pipeline.out) == scanned(wanted, *files)


def log_of(out: Path, entries: dict[str, str]) -> None:
    (out / "_spark_metadata").mkdir(parents=True)
    for name, text in entries.items():
        (out / "_spark_metadata" / name).write_text(text)


def progress_of(checkpoint: Path, last: int) -> None:
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True)
        (checkpoint / log / str(last)).write_text("v1\n{}")


def line(name: str) -> str:
    return json.dumps({"path": f"file:///some/where/{name}", "action": "add"})


def test_leftovers_are_what_no_entry_of_the_log_counts(tmp_path: Path) -> None:
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    assert remove_leftovers(out, checkpoint) == []
    log_of(
        out,
        {
            "9.compact": f"v1\n{line('a')}\n{line('b')}",
            "10": f"v1\n{line('c')}\n",
            "11": "v1",
            ".12.tmp": line("d"),
        },
    )
    progress_of(checkpoint, 10)
    for name in ("a", "b", "c", "d", "e", "_SUCCESS", ".e.crc"):
        (out / name).write_text(name)
    assert remove_leftovers(str(out), str(checkpoint)) == ["d", "e"]
    assert remove_leftovers(f"file://{out}", checkpoint) == []
    assert sorted(p.name for p in out.iterdir() if p.is_file()) == [
        ".e.crc",
        "_SUCCESS",
        "a",
        "b",
        "c",
    ]


def test_half_an_entry_before_the_first_batch_is_removed(pipeline: StreamPipeline) -> None:
    wanted = subscriptions(12)
    pipeline.build(wanted)
    files = pipeline.put("a")
    offsets = pipeline.folder / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    for name in (".0.some.tmp", "..0.some.tmp.crc"):
        (offsets / name).write_text("v1")
    pipeline.run()
    assert written(pipeline.out) == scanned(wanted, *files)
    (offsets / ".1.some.tmp").write_text("v1")
    remove_first_attempt(pipeline.folder / "checkpoint")
    assert (offsets / "0").exists()
    assert (offsets / ".1.some.tmp").exists()


@pytest.mark.parametrize("text", ["", "v2\n", "v1\n{", 'v1\n{"name": 1}', "v1\n[]", "v1\n\xff"])
def test_a_log_that_cannot_be_read_loses_nothing(tmp_path: Path, text: str) -> None:
    out = tmp_path / "out"
    log_of(out, {"0": text})
    (out / "a").write_text("a")
    progress_of(tmp_path / "checkpoint", 0)
    with pytest.raises(StorageError, match="_spark_metadata/0"):
        remove_leftovers(out, tmp_path / "checkpoint")
    assert (out / "a").exists()


def test_rates_are_per_second_of_the_batch() -> None:
    told = {"messages": 30, "matches": 60, "rejected": 1, "examined": 90}
    progress = {
        "batchId": 4,
        "observedMetrics": {"nearcast": told},
        "durationMs": {"triggerExecution": 500},
    }
    found = rates(progress)
    assert found is not None
    assert (found["batch"], found["seconds"]) == (4, 0.5)
    assert (found["messages_per_second"], found["matches_per_second"]) == (60.0, 120.0)
    assert found["examined_per_message"] == 3.0
    nothing = dict.fromkeys(told, 0)
    assert rates({**progress, "observedMetrics": {"nearcast": nothing}}) is None
