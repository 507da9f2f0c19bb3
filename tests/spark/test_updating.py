"""Events to updates, without Spark: the same as the scan, whatever the micro-batches and tasks."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from generated import NOW_US, build_locally
from moving_events import (
    SECOND,
    SUBSCRIPTIONS,
    Batch,
    FakeStream,
    Recording,
    Truth,
    Update,
    alternating,
    record,
    table_of,
)

from nearcast.errors import InvalidInput, StorageError
from nearcast.spark.artifact.folders import open_folder
from nearcast.spark.artifact.states import PartitionStates, StreamSettings, open_settings
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.workers import updating
from nearcast.spark.workers.happening import Happening

if TYPE_CHECKING:
    from pathlib import Path

SEED = int(os.environ.get("NEARCAST_TEST_SEED", "0"))


def begun(
    recording: Recording, folder: Path, partitions: int, draw: random.Random, shards: int = 1
) -> FakeStream:
    artifact = Artifact(folder / "index")
    build_locally(artifact, recording.subscriptions, shards)
    return FakeStream(artifact, folder, partitions, draw)


@pytest.mark.parametrize(("partitions", "shards"), [(1, 1), (3, 1), (2, 4)])
def test_any_cut_gives_what_the_scan_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int, shards: int
) -> None:
    draw = random.Random(SEED + partitions)
    recording = record(SEED + partitions)
    cuts = [[], *([NOW_US + draw.randrange(25) * SECOND for _ in range(n)] for n in (3, 12))]
    [whole] = recording.cut([])
    truth = Truth(recording.subscriptions)
    expected = truth.apply(whole)
    assert expected.total() > 200
    assert truth.rejected > 5
    for number, cut in enumerate(cuts):
        stream = begun(recording, tmp_path / str(number), partitions, draw, shards)
        found: Counter[Update] = Counter()
        counts: Counter[str] = Counter()
        for batch, rows in enumerate(recording.cut(cut)):
            updates, counted = stream.batch(batch, rows, monkeypatch)
            found, counts = found + updates, counts + counted
        assert found == expected
        assert counts["rejected"] == truth.rejected
        assert counts["begun"] + counts["ended"] == expected.total()
        events = len(recording.changes) + len(recording.messages)
        assert counts["messages"] + counts["changes"] + counts["rejected"] == events


@pytest.mark.parametrize("cut", [1, 4])
def test_events_that_alternate_happen_in_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    recording = alternating(SEED + cut)
    calls = Counter[int]()
    call = Happening.call

    def counted(self: Any, step: int, *given: Any) -> None:
        calls[step] += 1
        call(self, step, *given)

    monkeypatch.setattr(Happening, "call", counted)
    draw = random.Random(SEED)
    stream, truth = begun(recording, tmp_path, 2, draw), Truth(recording.subscriptions)
    total = 0
    cuts = [NOW_US + 10 * k * SECOND // cut for k in range(1, cut)]
    for number, batch in enumerate(recording.cut(cuts)):
        expected = truth.apply(batch)
        assert stream.batch(number, batch, monkeypatch)[0] == expected
        total += expected.total()
    assert total > 150
    assert calls.total() < 60


def test_late_rows_happen_now_and_so_do_future_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(SEED + 7)
    recording = record(SEED + 7)
    rows: list[tuple[str, Any]] = [("change", row) for row in recording.changes]
    rows += [("message", row) for row in recording.messages]
    draw.shuffle(rows)
    stream, truth = begun(recording, tmp_path, 2, draw), Truth(recording.subscriptions)
    for number in range(6):
        chosen = rows[number::6]
        changes, messages = (
            [row for kind, row in chosen if kind == which] for which in ("change", "message")
        )
        batch = Batch(changes, messages, NOW_US + (4 * number + 2) * SECOND)
        assert stream.batch(number, batch, monkeypatch)[0] == truth.apply(batch)
    assert truth.present_us > NOW_US + 15 * SECOND


def test_batches_that_are_tried_again_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(SEED + 8)
    recording = record(SEED + 8)
    stream, truth = begun(recording, tmp_path, 2, draw), Truth(recording.subscriptions)
    repeated = restarted = 0
    for number, batch in enumerate(recording.cut([NOW_US + k * SECOND for k in range(1, 25)])):
        expected = truth.apply(batch)
        while draw.random() < 0.4:  # as a task that failed, or a query that was killed
            repeated += 1
            routed = stream.routed(batch)
            for partition in draw.sample([0, 1], draw.randint(0, 2)):
                stream.partition(number, partition, routed, monkeypatch)
            if draw.random() < 0.5:
                restarted += 1
                stream.restart()
        assert stream.batch(number, batch, monkeypatch)[0] == expected
    assert repeated > 5
    assert restarted > 1


def test_a_task_that_fails_at_any_step_leaves_the_batch_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(SEED + 9)
    recording = record(SEED + 9, events=60)
    stream, truth = begun(recording, tmp_path, 1, draw), Truth(recording.subscriptions)
    steps = ["write_log", "write_snapshot", "remove_before", "last_snapshot"]
    failed = Counter[str]()
    monkeypatch.setattr(updating, "_SNAPSHOT_SHARE", 1000)  # a snapshot of every batch
    for number, batch in enumerate(recording.cut([NOW_US + k * 2 * SECOND for k in range(1, 12)])):
        expected, step = truth.apply(batch), steps[number % 4]
        before = getattr(PartitionStates, step)

        def fail(*given: Any, before: Any = before, step: str = step, **named: Any) -> None:
            before(*given, **named)
            failed[step] += 1
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.MonkeyPatch.context() as inner:
            inner.setattr(PartitionStates, step, fail)
            try:
                stream.batch(number, batch, patch)
            except KeyboardInterrupt:
                pass
        assert stream.batch(number, batch, monkeypatch)[0] == expected
    assert failed.keys() == {*steps}


def changed(op: str, id: str, second: float, **fields: Any) -> dict[str, Any]:
    return {"op": op, "id": id, "time": NOW_US + round(second * SECOND), **fields}


def message(id: str, second: float, ttl_s: float | None = 100.0, **fields: Any) -> dict[str, Any]:
    time_us = NOW_US + round(second * SECOND)
    place = {"lon": 0.5, "lat": 0.5, "text": "w0 w1"}
    return {"id": id, "time": time_us, "ttl_s": ttl_s, **place, **fields}


HERE = {"west": 0.0, "south": 0.0, "east": 1.0, "north": 1.0}
THERE = {"west": 5.0, "south": 5.0, "east": 6.0, "north": 6.0}


def one_stream(folder: Path, partitions: int = 1) -> FakeStream:
    """Return a stream over two subscriptions: one that matches messages, and one elsewhere."""
    rows = [{"id": "s0", "keywords": ["w0"], **HERE}, {"id": "s1", "keywords": ["w1"], **THERE}]
    table = table_of(rows, SUBSCRIPTIONS)
    return begun(Recording(table, [], []), folder, partitions, random.Random(0))


def signs(updates: Counter[Update]) -> list[tuple[float, str, str, int]]:
    rows = [((t - NOW_US) / SECOND, s, m, sign) for t, s, m, sign, _ in updates.elements()]
    return sorted(rows)


def test_at_one_time_a_pair_begins_or_ends_or_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = one_stream(tmp_path)
    assert signs(stream.batch(0, Batch([], [message("m", 0)]), monkeypatch)[0]) == [
        (0, "s0", "m", 1)
    ]
    replaced = [
        changed("insert", "s0", 1, keywords=["w1"], **HERE),
        changed("delete", "s0", 1),
        changed("insert", "s2", 1, keywords=["w1"], **HERE),
        changed("move", "s2", 1, **THERE),
        changed("insert", "s3", 1, keywords=["w1"], **THERE),
        changed("move", "s3", 1, **THERE),
        changed("move", "s3", 1, **HERE),
    ]
    assert signs(stream.batch(1, Batch(replaced, []), monkeypatch)[0]) == [(1, "s3", "m", 1)]
    gone = [changed("delete", "s0", 2), changed("delete", "s3", 3)]
    assert signs(stream.batch(2, Batch(gone, []), monkeypatch)[0]) == [
        (2, "s0", "m", -1),
        (3, "s3", "m", -1),
    ]


def test_a_batch_ends_with_its_last_event_for_all_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partitions in (1, 4):
        stream = one_stream(tmp_path / str(partitions), partitions)
        stream.batch(0, Batch([], [message("m", 0, 5.0)]), monkeypatch)
        # Somebody unknown moves later, in some partition: that ends the message in all of them.
        updates, counts = stream.batch(1, Batch([changed("move", "x", 9)], []), monkeypatch)
        assert signs(updates) == [(5, "s0", "m", -1)]
        assert counts["rejected"] == 1


def test_rejected_rows_are_written_once_with_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = one_stream(tmp_path, 3)
    rows = [
        changed("move", "nobody", 0, **HERE),
        changed("delete", "nobody", 0),
        changed("insert", "s0", 0, keywords=["w0"], **HERE),
        changed("insert", "s9", 0, keywords=[], **HERE),
        changed("move", "s0", 0, **{**HERE, "west": 200.0}),
        {**changed("move", "s0", 0, **HERE), "id": None},
        changed("turn", "s0", 0, **HERE),
    ]
    told = [
        message("m", 0),
        message("m", 1),
        message("far", 0, lon=200.0),
        message("mute", 0, text=None),
        message("short", 0, None),
        {**message("m", 0), "id": None},
    ]
    for _ in range(2):  # a second attempt writes the same files
        updates, counts = stream.batch(0, Batch(rows, told), monkeypatch)
        assert signs(updates) == [(0, "s0", "m", 1)]
        assert (counts["messages"], counts["changes"], counts["rejected"]) == (1, 0, 12)
    files = sorted((tmp_path / "rejects").iterdir())
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    reasons = sorted((row["source"], row["field"], row["reason"][:21]) for row in found)
    assert reasons == [
        ("messages", "id", "is missing"),
        ("messages", "id", "is the id of a messag"),
        ("messages", "lon", "must lie between -180"),
        ("messages", "text", "is missing; give text"),
        ("messages", "ttl_s", "is missing; give it, "),
        ("moves", "id", "is missing"),
        ("moves", "id", "is not registered"),
        ("moves", "id", "is not registered, or"),
        ("moves", "id", "is registered already"),
        ("moves", "keywords", "must not be empty; le"),
        ("moves", "op", "must be one of insert"),
        ("moves", "west", "must lie between -180"),
    ]
    assert all(json.loads(row["record"]) for row in found)


def test_a_stream_that_begins_with_invalid_rows_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = one_stream(tmp_path, 2)
    nowhere = {**message("m", 0), "lat": 99.0}
    assert stream.batch(0, Batch([], [nowhere]), monkeypatch)[1]["rejected"] == 1
    stream.restart()
    updates, _ = stream.batch(1, Batch([], [message("m", 1)]), monkeypatch)
    assert signs(updates) == [(1, "s0", "m", 1)]


def test_the_first_batch_takes_the_version_in_force_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = one_stream(tmp_path)
    artifact = Artifact(tmp_path / "index")
    first = artifact.latest()
    now_us = first.created_ms * 1000 + 500
    build_locally(artifact, record(3).subscriptions)
    for number, later in enumerate([now_us, now_us + 3600 * SECOND]):
        updates, _ = stream.batch(number, Batch([], [message(f"m{number}", 0)], later), monkeypatch)
        assert signs(updates) == [(0, "s0", f"m{number}", 1)]


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_state_does_not_grow_with_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = one_stream(tmp_path, 2)
    sizes, counts = [], []
    for number in range(40):
        messages = [message(f"m{number}-{k}", number, 3.0) for k in range(20)]
        moves = [changed("move", f"s{number % 2}", number, **(THERE if number % 4 < 2 else HERE))]
        stream.batch(number, Batch(moves, messages), monkeypatch)
        sizes.append(size(tmp_path / "state"))
        counts.append(len([*(tmp_path / "state").rglob("*.log")]))
    assert max(sizes[20:]) < 1.5 * max(sizes[5:20])
    assert max(counts) <= 8


def test_a_state_that_is_incomplete_or_damaged_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(said: str) -> None:
        stream.restart()
        with pytest.raises(StorageError, match=said):
            stream.batch(3, Batch([], [message("last", 3)]), monkeypatch)

    monkeypatch.setattr(updating, "_SNAPSHOT_SHARE", 0)
    stream = one_stream(tmp_path)
    for number in range(3):
        stream.batch(number, Batch([], [message(f"m{number}", number)]), monkeypatch)
    log = tmp_path / "state" / "0000" / "00000002.log"
    content = log.read_bytes()
    log.unlink()
    failing("state of the stream is incomplete")
    log.write_bytes(content[:-1])
    failing("does not match its checksum")
    log.write_bytes(content)
    arrays = tmp_path / "state" / "0000" / "00000000" / "arrays.bin"
    arrays.rename(arrays.with_name("elsewhere"))
    failing("arrays.bin")
    arrays.with_name("elsewhere").rename(arrays)
    named = tmp_path / "state" / "0000" / "00000000.json"
    named.write_text("{}")
    failing("is damaged")


def test_settings_stay_as_they_were(tmp_path: Path) -> None:
    folder = open_folder(tmp_path / "nearcast")
    wanted = StreamSettings("index", 3, "string")
    assert open_settings(folder, wanted, begun=False) == wanted
    assert open_settings(folder, wanted._replace(partitions=0), begun=True) == wanted
    with pytest.raises(InvalidInput, match="must be 3, as when the stream began"):
        open_settings(folder, wanted._replace(partitions=4), begun=True)
    with pytest.raises(InvalidInput, match="must be 'string'"):
        open_settings(folder, wanted._replace(ids="integer"), begun=True)
    with pytest.raises(InvalidInput, match="a stream without moves"):
        open_settings(open_folder(tmp_path / "other"), wanted, begun=True)
    (tmp_path / "nearcast" / "stream.json").write_text("[]")
    with pytest.raises(StorageError, match="is damaged"):
        open_settings(folder, wanted, begun=True)
