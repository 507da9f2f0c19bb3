"""Parts and the two steps of a build as plain generators."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from generated import build_locally, subscription_table

from nearcast import indexes
from nearcast.errors import StorageError
from nearcast.intake import read_subscriptions
from nearcast.segments.parts import Part, part_arrays, part_from_arrays, unite
from nearcast.spark.artifact.segments import open_segment
from nearcast.spark.artifact.versions import Artifact, ShardRef
from nearcast.spark.workers import building
from nearcast.spark.workers.building import (
    BUILT,
    PARTS,
    BuildShards,
    WriteParts,
    at_least_one_shard,
)
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path


def part_of(table: pa.Table, before: list[str] | None = None) -> Part:
    """Read a table with a vocabulary of its own, which may know words already."""
    vocabulary = Vocabulary(before or [])
    return Part(read_subscriptions(table, vocabulary)[0], vocabulary)


def spelled(part: Part) -> list[tuple[Any, ...]]:
    """Return every clause with its words as strings, and what belongs to its subscription."""
    subscriptions, words = part.subscriptions, part.vocabulary.tokens().to_pylist()
    clauses, ids = subscriptions.clauses, subscriptions.ids.tolist()
    owner = [None] * len(ids) if subscriptions.owner is None else subscriptions.owner.to_pylist()
    told = []
    for number, row in enumerate(clauses.row.tolist()):
        needed = clauses.token[clauses.token_start[number] : clauses.token_start[number + 1]]
        low, high = clauses.negative_start[number : number + 2]
        assert (np.diff(needed) > 0).all(), "tokens ascend in every clause"
        shape = clauses.shape[number]
        told.append(
            (
                ids[row],
                sorted(words[token] for token in needed.tolist()),
                sorted(words[token] for token in clauses.negative[low:high].tolist()),
                clauses.box[number].tolist(),
                None if shape < 0 else float(clauses.shapes.radius_m[shape]),
                int(subscriptions.expires_us[row]),
                owner[row],
            )
        )
    return told


@pytest.mark.parametrize("seed", range(5))
def test_parts_come_together_as_if_they_had_been_read_as_one(seed: int) -> None:
    draw = random.Random(seed)
    table = subscription_table(150, seed, faulty=0.05)
    cuts = sorted(draw.choices(range(151), k=draw.randint(1, 6)))
    pieces = [
        part_of(table.slice(low, high - low), draw.sample(["w3", "x7", "never", "w0"], 2))
        for low, high in zip([0, *cuts], [*cuts, 150], strict=True)
    ]
    assert spelled(unite(pieces)) == spelled(part_of(table))


def test_no_part_and_one_part() -> None:
    assert spelled(unite([])) == []
    one = part_of(subscription_table(20))
    assert unite([one]) is one
    nobody = part_of(subscription_table(0))
    assert spelled(unite([nobody, one, nobody])) == spelled(one)


def test_parts_of_integer_and_text_ids() -> None:
    pieces = [part_of(subscription_table(5, ids=kind)) for kind in ("integer", "string")]
    ids = unite(pieces).subscriptions.ids.tolist()
    assert ids == [0, 1, 2, 3, 4, "s0", "s1", "s2", "s3", "s4"]


def test_a_part_survives_storage() -> None:
    part = part_of(subscription_table(80))
    assert spelled(part_from_arrays(part_arrays(part))) == spelled(part)


def write(tmp_path: Path, table: pa.Table, rows: int = 30) -> list[dict[str, Any]]:
    writing = WriteParts(str(tmp_path), "work/x", None)
    batches = list(writing(table.to_batches(max_chunksize=rows)))
    assert all(batch.schema == PARTS for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def build(tmp_path: Path, told: list[dict[str, Any]], index: str = "scan") -> ShardRef:
    parts = [[(row["name"], row["digest"]) for row in told if row["name"] is not None]]
    steps = BuildShards(str(tmp_path), json.dumps(parts), index, "{}")
    [batch] = list(steps([pa.record_batch({"id": [0]})]))
    assert batch.schema == BUILT
    return ShardRef.from_json(batch.to_pylist()[0]["segments"])


def test_what_tasks_write_is_what_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_MAX_PART_ROWS", 50)
    table = subscription_table(200, faulty=0.2)
    told = write(tmp_path, table)
    assert sum(row["name"] is not None for row in told) > 2, "a large task writes several parts"
    sound = part_of(table)
    assert sum(row["rows"] for row in told) == len(sound.subscriptions) < 200
    assert sum(row["rejected"] for row in told) == 200 - len(sound.subscriptions)
    [segment] = build(tmp_path, told).segments
    assert segment.rows == len(sound.subscriptions)
    assert spelled(open_segment(Artifact(tmp_path).folder, segment).part) == spelled(sound)


def test_a_task_without_rows_writes_nothing(tmp_path: Path) -> None:
    assert write(tmp_path, subscription_table(0)) == []
    assert Artifact(tmp_path).folder.names("work") == []
    [segment] = build(tmp_path, []).segments
    assert segment.rows == 0


def test_a_part_that_is_damaged_or_gone_stops_the_build(tmp_path: Path) -> None:
    told = write(tmp_path, subscription_table(40))
    arrays = tmp_path / told[0]["name"] / "arrays.bin"
    raw = arrays.read_bytes()
    arrays.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(StorageError, match="does not match its checksum"):
        build(tmp_path, told)
    arrays.with_name("manifest.json").unlink()
    with pytest.raises(StorageError, match="missing"):
        build(tmp_path, told)


def test_subscriptions_without_a_shard_go_to_the_first() -> None:
    start, shard = at_least_one_shard(np.array([0, 0, 2, 2, 3, 3]), np.array([1, 2, 5], np.int32))
    assert start.tolist() == [0, 1, 3, 4, 5, 6]
    assert shard.tolist() == [0, 1, 2, 0, 5, 0]


@pytest.mark.parametrize("shards", [2, 5])
def test_every_subscription_lies_in_the_shards_that_its_bits_say(
    tmp_path: Path, shards: int
) -> None:
    artifact = Artifact(tmp_path)
    table = subscription_table(120)
    version = build_locally(artifact, table, shards)
    lies: dict[Any, set[int]] = {}
    says: dict[Any, set[int]] = {}
    for number, shard in enumerate(version.shards):
        segment = open_segment(artifact.folder, shard.segments[0])
        assert segment.alive().all()
        ids = segment.subscriptions.ids.tolist()
        assert len(set(ids)) == len(ids)
        for row, one in enumerate(ids):
            lies.setdefault(one, set()).add(number)
            if segment.shards is not None:
                bits = int(segment.shards[row, 0])
                says.setdefault(one, set()).update(n for n in range(shards) if bits >> n & 1)
    assert lies.keys() == set(table["id"].to_pylist())
    assert all(lies[one] == some for one, some in says.items())
    assert any(len(some) > 1 for some in lies.values())


def test_options_reach_the_index(tmp_path: Path) -> None:
    told = write(tmp_path, subscription_table(40))
    parts = [[(row["name"], row["digest"]) for row in told]]
    steps = BuildShards(str(tmp_path), json.dumps(parts), "trie-pyramid", '{"list_size": 7}')
    [batch] = list(steps([pa.record_batch({"id": [0]})]))
    [segment] = ShardRef.from_json(batch.to_pylist()[0]["segments"]).segments
    opened = open_segment(Artifact(tmp_path).folder, segment).index
    assert opened.options == indexes.create("trie-pyramid", list_size=7).options
