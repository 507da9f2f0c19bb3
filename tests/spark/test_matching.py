"""The matching function as plain generators, held against the scan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from generated import (
    NOW_US,
    build_locally,
    costs_of,
    message_table,
    pairs_of,
    scanned,
    subscription_table,
)

from nearcast import indexes
from nearcast.errors import StorageError
from nearcast.intake import read_subscriptions
from nearcast.segments import routing_clauses
from nearcast.segments.parts import Part
from nearcast.spark.artifact.segments import open_router, open_segment, write_dead, write_segment
from nearcast.spark.artifact.versions import Artifact, ShardRef, Version
from nearcast.spark.shards.shard_dedup import pack_shards
from nearcast.spark.workers import answers, routing
from nearcast.spark.workers.answers import answer_schema
from nearcast.spark.workers.building import at_least_one_shard, data_name, several_shards
from nearcast.spark.workers.matching import MatchMessages, MatchRouted
from nearcast.spark.workers.routing import NOW, ROUTE, RouteMessages
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path

SHARDS = (1, 2, 4, 70)
_TYPES = {"string": pa.string(), "integer": pa.int64()}


def _schema(messages: pa.Table, version: Version) -> pa.Schema:
    return answer_schema(messages.schema.field("id").type, _TYPES[version.ids])


def replicated(
    artifact: Artifact, version: Version, messages: pa.Table, batch_rows: int = 37
) -> list[pa.RecordBatch]:
    schema = _schema(messages, version)
    matching = MatchMessages(artifact.folder.uri, version.number, NOW_US, schema)
    answered = list(matching(messages.to_batches(max_chunksize=batch_rows)))
    assert all(batch.schema == schema for batch in answered)
    return answered


def routed(
    artifact: Artifact, version: Version, messages: pa.Table, *, each: int = 1
) -> list[pa.RecordBatch]:
    """Route, let a dictionary be the shuffle, and match partition by partition."""
    keys = tuple(range(100, 100 + each * len(version.shards)))
    routing_function = RouteMessages(artifact.folder.uri, version.number, NOW_US, keys)
    copies = list(routing_function(messages.to_batches(max_chunksize=37)))
    assert all(b.schema.names == [*messages.column_names, *ROUTE.names] for b in copies)
    together = pa.Table.from_batches(copies)
    schema = _schema(messages, version)
    matching = MatchRouted(artifact.folder.uri, schema)
    answered = []
    for key in keys:
        mask = np.array(together["_key"].to_pylist()) == key
        own = together.filter(pa.array(mask)).combine_chunks()
        answered += list(matching(own.to_batches(max_chunksize=50)))
    assert all(batch.schema == schema for batch in answered)
    return answered


@pytest.mark.parametrize(("shards", "ids"), [*((n, "string") for n in SHARDS), (4, "integer")])
def test_both_ways_find_what_the_scan_finds(tmp_path: Path, shards: int, ids: str) -> None:
    subscriptions = subscription_table(400, shards, ids=ids, faulty=0.05)
    messages = message_table(150, shards, ids=ids, faulty=0.1)
    artifact = Artifact(tmp_path)
    version = build_locally(artifact, subscriptions, shards)
    assert len(version.shards) == shards
    expected = scanned(subscriptions, messages)
    assert len(expected) > 500
    sound = len(messages) - costs_of(replicated(artifact, version, messages))["rejected"]
    for found in (
        replicated(artifact, version, messages),
        routed(artifact, version, messages),
        routed(artifact, version, messages, each=3),
    ):
        assert pairs_of(found) == expected
        costs = costs_of(found)
        assert costs["messages"] == sound
        assert costs["rejected"] == len(messages) - sound > 0
        assert costs["matches"] == len(expected) <= costs["examined"]


def with_changes(artifact: Artifact, version: Version, seed: int) -> tuple[Version, pa.Table]:
    """Add a segment of new subscriptions to every shard and let some rows of the first die."""
    table = subscription_table(120, seed + 50, first=10_000)
    vocabulary = Vocabulary()
    fresh, _ = read_subscriptions(table, vocabulary)
    router = open_router(artifact.folder, version)
    start, shard = router.route_subscriptions(
        routing_clauses(fresh.clauses, vocabulary), router.ranks(vocabulary)
    )
    start, shard = at_least_one_shard(start, shard)
    bits = pack_shards(start, shard, router.shards)
    row = np.repeat(np.arange(len(fresh)), np.diff(start))
    builder = indexes.create(version.index)
    changed = []
    for number, old in enumerate(version.shards):
        rows = row[shard == number]
        part = Part(fresh.take(rows), vocabulary)
        own = several_shards(bits[rows]) if version.router is not None else None
        delta = write_segment(artifact.folder, data_name(), part, builder, own)
        [base] = old.segments
        ids = open_segment(artifact.folder, base).subscriptions.ids.tolist()
        gone = np.array([r for r, one in enumerate(ids) if str(one).endswith("3")], np.int32)
        if len(gone):
            stored = write_dead(artifact.folder, data_name(), gone)
            base = replace(base, dead=stored, dead_rows=len(gone))
        changed.append(ShardRef((base, delta)))
    made = replace(version, shards=tuple(changed))
    return artifact.commit(made, after=version.number), table


@pytest.mark.parametrize("shards", SHARDS)
def test_changes_are_seen_by_their_version_only(tmp_path: Path, shards: int) -> None:
    before = subscription_table(300, shards + 9)
    messages = message_table(120, shards + 9)
    artifact = Artifact(tmp_path)
    first = build_locally(artifact, before, shards)
    second, added = with_changes(artifact, first, shards)
    kept = before.filter(pa.array([not i.endswith("3") for i in before["id"].to_pylist()]))
    expected = {
        first.number: scanned(before, messages),
        second.number: scanned(pa.concat_tables([kept, added]), messages),
    }
    assert expected[1] != expected[2]
    for version in (first, second, first):
        assert pairs_of(replicated(artifact, version, messages)) == expected[version.number]
        assert pairs_of(routed(artifact, version, messages)) == expected[version.number]


@pytest.mark.parametrize("shards", [1, 4])
def test_messages_of_a_stream_meet_the_version_of_their_moment(tmp_path: Path, shards: int) -> None:
    before = subscription_table(200, 5)
    artifact = Artifact(tmp_path)
    first = build_locally(artifact, before, shards)
    second, added = with_changes(artifact, first, 5)
    messages = message_table(60, 5).drop_columns(["time"])
    # Versions of one millisecond cannot be told apart by a moment.
    late_us = second.created_ms * 1000 + 999_000
    early_us = min(first.created_ms, second.created_ms - 1) * 1000
    kept = before.filter(pa.array([not i.endswith("3") for i in before["id"].to_pylist()]))
    both = pa.concat_tables([kept, added])
    schema = _schema(messages, first)
    for moment, known in ((early_us, before), (late_us, both)):
        column = pa.array([moment] * len(messages), pa.timestamp("us", "UTC"))
        streamed = messages.append_column(NOW, column)
        expected = scanned(known, messages, moment)
        matching = MatchMessages(str(tmp_path), None, 0, schema)
        assert pairs_of(matching(streamed.to_batches(max_chunksize=20))) == expected
        copies = list(RouteMessages(str(tmp_path), None, 0, (0,))(streamed.to_batches()))
        assert NOW not in copies[0].schema.names
        assert pairs_of(MatchRouted(str(tmp_path), schema)(copies)) == expected


def test_batches_of_nothing_and_of_rejects_only(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    messages = message_table(20, 1)
    version = build_locally(artifact, subscription_table(50), 2)
    schema = _schema(messages, version)
    matching = MatchMessages(str(tmp_path), version.number, NOW_US, schema)
    routing_function = RouteMessages(str(tmp_path), version.number, NOW_US, (0, 1))
    empty = [pa.RecordBatch.from_pylist([], messages.schema)]
    assert list(matching([])) == list(matching(empty)) == list(routing_function(empty)) == []
    wrong = messages.set_column(0, "id", pa.nulls(20, pa.string())).to_batches()
    assert costs_of(matching(wrong))["rejected"] == 20
    [alone] = [batch for batch in routing_function(wrong) if batch.num_rows]
    assert alone["_shard"].null_count == alone.num_rows == 1
    answered = list(MatchRouted(str(tmp_path), schema)([alone]))
    assert costs_of(answered) == {"messages": 0, "matches": 0, "examined": 0, "rejected": 20}
    assert pairs_of(answered) == []


@pytest.mark.parametrize("shards", [1, 3])
def test_an_index_of_no_subscriptions_answers_with_nothing(tmp_path: Path, shards: int) -> None:
    artifact = Artifact(tmp_path)
    version = build_locally(artifact, subscription_table(0), shards)
    for found in (
        replicated(artifact, version, message_table(10)),
        routed(artifact, version, message_table(10)),
    ):
        assert pairs_of(found) == []
        assert costs_of(found)["messages"] == 10


def test_an_id_that_comes_again_is_matched_again(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    subscriptions, once = subscription_table(100), message_table(30)
    twice = pa.concat_tables([once, once]).combine_chunks()
    version = build_locally(artifact, subscriptions, 4)
    expected = sorted(2 * scanned(subscriptions, once))
    assert pairs_of(replicated(artifact, version, twice, batch_rows=1000)) == expected
    assert pairs_of(routed(artifact, version, twice)) == expected


def test_small_output_batches_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_IDS_AT_A_TIME", 3)
    monkeypatch.setattr(routing, "COPIES_AT_A_TIME", 5)
    monkeypatch.setattr(routing, "_MAX_TOKENS", 5)
    artifact = Artifact(tmp_path)
    subscriptions, messages = subscription_table(150), message_table(50)
    version = build_locally(artifact, subscriptions, 4)
    expected = scanned(subscriptions, messages)
    for found in (replicated(artifact, version, messages), routed(artifact, version, messages)):
        assert pairs_of(found) == expected
        assert max(len(batch["subscription_ids"].flatten()) for batch in found) <= 3
    keys = RouteMessages(str(tmp_path), version.number, NOW_US, (0, 1, 2, 3))
    assert max(batch.num_rows for batch in keys(messages.to_batches())) <= 5


def test_ids_that_became_text_are_an_error(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    version = build_locally(artifact, subscription_table(100))
    messages = message_table(30)
    schema = answer_schema(pa.string(), pa.int64())
    matching = MatchMessages(str(tmp_path), version.number, NOW_US, schema)
    with pytest.raises(StorageError, match="start the job again"):
        list(matching(messages.to_batches()))


def test_every_index_can_be_stored(tmp_path: Path) -> None:
    subscriptions, messages = subscription_table(150), message_table(40)
    expected = scanned(subscriptions, messages)
    artifact = Artifact(tmp_path)
    for name in indexes.names():
        version = build_locally(artifact, subscriptions, 2, index=name)
        assert pairs_of(replicated(artifact, version, messages)) == expected
