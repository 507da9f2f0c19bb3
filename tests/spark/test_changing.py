"""Round after round of changes, as plain generators, held against a dictionary and the scan."""

from __future__ import annotations

import json
import pickle
import random
import shutil
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from generated import (
    NOW_US,
    SUBSCRIPTION_FIELDS,
    build_locally,
    message_table,
    pairs_of,
    scanned,
    subscription_table,
)
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from effort import examples
from nearcast.errors import StorageError
from nearcast.spark.artifact.segments import open_segment
from nearcast.spark.artifact.versions import Artifact, ShardRef, Stored
from nearcast.spark.workers.answers import answer_schema
from nearcast.spark.workers.building import BUILT, STORED
from nearcast.spark.workers.changing import (
    RESOLVED,
    ApplyChanges,
    FindChanged,
    ResolveChanges,
    SpoolChanges,
    read_changes,
)
from nearcast.spark.workers.matching import MatchMessages, MatchRouted
from nearcast.spark.workers.routing import RouteMessages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from nearcast.spark.artifact.versions import Version

Row = dict[str, Any]
PLACE = ("west", "south", "east", "north", "lon", "lat", "radius_m", "geometry")
TYPES = {"string": pa.string(), "integer": pa.int64()}


class Outcome(NamedTuple):
    """What changes did: the version in force, the changes taken, the rows refused."""

    version: Version
    taken: dict[str, int]
    refused: list[int]


def shipped(step: Any, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[Row]:
    """Run a step as a worker would, and return the rows that it tells."""
    told = list(pickle.loads(pickle.dumps(step))(iter(batches)))
    assert all(batch.schema == schema for batch in told)
    return [row for batch in told for row in batch.to_pylist()]


def numbers(count: int) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        yield pa.record_batch({"id": pa.array([number], pa.int64())})


def made(version: Version, step: ApplyChanges) -> Version:
    told = shipped(step, numbers(len(version.shards)), BUILT)
    shards = {row["shard"]: ShardRef.from_json(row["segments"]) for row in told}
    return replace(version, shards=tuple(shards[n] for n in range(len(version.shards))))


def change(artifact: Artifact, table: pa.Table) -> Outcome:
    """Change the version in force as the job does, without Spark."""
    uri, version, work = artifact.folder.uri, artifact.latest(), "work/test"
    [spooled] = stored(shipped(SpoolChanges(uri, work), table.to_batches(7), STORED))
    assert read_changes(artifact.folder, spooled).equals(table)
    finding = FindChanged(uri, work, version.number, spooled)
    found = stored(shipped(finding, numbers(len(version.shards)), STORED))
    resolving = ResolveChanges(uri, work, version.number, spooled, tuple(found))
    told = shipped(resolving, numbers(1), RESOLVED)
    parts: dict[int, list[tuple[str, str]]] = {}
    dead, weights = None, version.weights
    for row in told:
        if row["what"] == "part":
            parts.setdefault(row["shard"], []).append((row["name"], row["digest"]))
        elif row["what"] == "dead":
            dead = Stored(row["name"], row["digest"], 0)
        elif row["what"] == "weights":
            weights = Stored(row["name"], row["digest"], row["nbytes"])
    applying = ApplyChanges(uri, version.number, dead, json.dumps(parts), weights=weights)
    remade = replace(made(version, applying), weights=weights)
    changed = artifact.commit(remade, after=version.number)
    artifact.folder.remove(work)
    taken = {row["what"]: row["rows"] for row in told if row["rows"] and not row["name"]}
    return Outcome(changed, taken, [row["row"] for row in told if row["what"] == "reject"])


def stored(told: list[Row]) -> list[Stored]:
    return [Stored(row["name"], row["digest"], row["nbytes"]) for row in told]


def fold(artifact: Artifact) -> Version:
    version = artifact.latest()
    folding = ApplyChanges(artifact.folder.uri, version.number, None, "{}", fold=True)
    return artifact.commit(made(version, folding), after=version.number)


def replicated(artifact: Artifact, version: Version, messages: pa.Table) -> list[tuple[Any, Any]]:
    schema = answer_schema(messages.schema.field("id").type, TYPES[version.ids])
    matching = MatchMessages(artifact.folder.uri, version.number, NOW_US, schema)
    return pairs_of(matching(messages.to_batches(30)))


def routed(artifact: Artifact, version: Version, messages: pa.Table) -> list[tuple[Any, Any]]:
    schema = answer_schema(messages.schema.field("id").type, TYPES[version.ids])
    keys = tuple(range(len(version.shards)))
    routing = RouteMessages(artifact.folder.uri, version.number, NOW_US, keys)
    return pairs_of(MatchRouted(artifact.folder.uri, schema)(routing(messages.to_batches(30))))


class Registry:
    """Subscriptions in a dictionary, which takes changes one at a time."""

    def __init__(self, ids: str, rows: Iterable[Row] = ()) -> None:
        self.kind = TYPES[ids]
        self.rows = {row["id"]: row for row in rows}

    def subscriptions(self) -> pa.Table:
        schema = pa.schema([("id", self.kind), *SUBSCRIPTION_FIELDS.items()])
        return pa.Table.from_pylist(list(self.rows.values()), schema)

    def changes(self, rows: list[Row]) -> pa.Table:
        fields = {"op": pa.string(), "id": self.kind, "time": pa.timestamp("us", "UTC")}
        return pa.Table.from_pylist(
            rows, pa.schema([*fields.items(), *SUBSCRIPTION_FIELDS.items()])
        )

    def take(self, changes: list[Row]) -> tuple[dict[str, int], list[int]]:
        """Take changes in order; return how many of each, and the rows that could not be."""
        taken: dict[str, int] = {}
        refused = []
        order = sorted(range(len(changes)), key=lambda n: changes[n].get("time") or float("inf"))
        for number in order:
            row = {name: v for name, v in changes[number].items() if name not in ("op", "time")}
            operation, one = changes[number]["op"], row["id"]
            if not sound(changes[number]) or (one in self.rows) == (operation == "insert"):
                refused.append(number)
                continue
            taken[operation] = taken.get(operation, 0) + 1
            if operation == "insert":
                self.rows[one] = row
            elif operation == "delete":
                del self.rows[one]
            else:
                wants = {name: v for name, v in self.rows[one].items() if name not in PLACE}
                self.rows[one] = wants | {name: row.get(name) for name in PLACE}
        return taken, sorted(refused)


def sound(row: Row) -> bool:
    return row["id"] is not None and row["op"] in ("insert", "delete", "move")


def subscriptions(count: int, seed: int, ids: str, first: int = 0) -> list[Row]:
    """Return generated subscriptions."""
    rows: list[Row] = subscription_table(count, seed, ids=ids, first=first).to_pylist()
    return rows


def drawn_changes(draw: random.Random, registry: Registry, ids: str, count: int) -> list[Row]:
    """Draw changes of ids that are there and of others, some of an id that came before."""
    fresh = subscriptions(count, draw.randrange(10**6), ids, first=draw.choice([0, 10_000]))
    known = [*registry.rows, *(row["id"] for row in fresh[:5])]
    rows: list[Row] = []
    for new in fresh:
        operation = draw.choice(["insert", "insert", "delete", "move", "move"])
        row = {"op": operation, **new}
        if operation != "insert" or draw.random() < 0.2:
            row["id"] = draw.choice(known)
        if draw.random() < 0.3:
            row["time"] = draw.randrange(1, 10**6)
        if draw.random() < 0.1:
            row |= draw.choice([{"id": None}, {"op": "twist"}])
        rows.append(row)
    return rows


def rows_alive(artifact: Artifact, version: Version) -> set[Any]:
    """Return the ids that are in some shard and not gone."""
    found = set()
    for shard in version.shards:
        for ref in shard.segments:
            segment = open_segment(artifact.folder, ref)
            alive = segment.alive()
            assert int(alive.sum()) == ref.rows - ref.dead_rows
            ids = segment.subscriptions.ids.tolist()
            here = [one for one, lives in zip(ids, alive.tolist(), strict=True) if lives]
            found |= set(here)
    return found


@pytest.mark.parametrize(
    ("shards", "ids"),
    [(1, "string"), (1, "integer"), (3, "string"), (3, "integer"), (70, "string")],
)
def test_rounds_of_changes_keep_the_answers_right(tmp_path: Path, shards: int, ids: str) -> None:
    draw = random.Random(shards)
    registry = Registry(ids, subscriptions(300, shards, ids))
    messages = message_table(80, shards, ids=ids)
    artifact = Artifact(tmp_path)
    build_locally(artifact, registry.subscriptions(), shards)
    before: list[tuple[Version, Any]] = []
    layers = set()
    for count in (12, 120, 15) if shards > 10 else (6, 10, 12, 120, 1, 15, 25):
        rows = drawn_changes(draw, registry, ids, count)
        outcome = change(artifact, registry.changes(rows))
        assert (outcome.taken, outcome.refused) == registry.take(rows)
        version = outcome.version
        expected = scanned(registry.subscriptions(), messages)
        assert replicated(artifact, version, messages) == expected
        assert routed(artifact, version, messages) == expected
        assert rows_alive(artifact, version) == set(registry.rows)
        layers |= {len(shard.segments) for shard in version.shards}
        before.append((version, expected))
    assert layers == {1, 2}, "changes lie beside a shard until they are folded in"
    for version, expected in before:
        assert replicated(artifact, version, messages) == expected, "old versions do not change"
    folded = fold(artifact)
    assert folded.deltas == 0
    assert replicated(artifact, folded, messages) == before[-1][1]
    assert routed(artifact, folded, messages) == before[-1][1]


def test_much_that_changed_is_folded_in_and_little_is_not(tmp_path: Path) -> None:
    registry = Registry("string", subscriptions(100, 3, "string"))
    artifact = Artifact(tmp_path)
    first = build_locally(artifact, registry.subscriptions())
    fresh = subscriptions(26, 77, "string", first=5_000)
    steps = [
        ([{"op": "insert", **row} for row in fresh[:20]], [(100, 0), (20, 0)]),
        ([{"op": "delete", "id": f"s{n}"} for n in range(5)], [(100, 5), (20, 0)]),
        ([{"op": "delete", "id": "s5000"}], [(100, 5), (19, 0)]),
        ([{"op": "insert", **fresh[20]}], [(100, 5), (20, 0)]),
        ([{"op": "delete", "id": "ghost"}], [(100, 5), (20, 0)]),
        ([{"op": "insert", **fresh[21]}], [(116, 0)]),
        ([{"op": "move", **fresh[7], "id": "s50"}], [(116, 1), (1, 0)]),
        ([{"op": "delete", "id": "s50"}], [(116, 1)]),
    ]
    base = first.shards[0].segments[0].data
    for rows, layers in steps:
        version = change(artifact, registry.changes(rows)).version
        registry.take(rows)
        [shard] = version.shards
        assert [(ref.rows, ref.dead_rows) for ref in shard.segments] == layers
        assert (shard.segments[0].data == base) == (layers[0][0] == 100)
        assert version.deltas == (len(layers) > 1 or layers[0][1] > 0)
        assert version.rows == len(registry.rows)
    messages = message_table(60, 3)
    expected = scanned(registry.subscriptions(), messages)
    assert replicated(artifact, artifact.latest(), messages) == expected


def test_rows_of_one_shard_are_joined_by_rows_of_several(tmp_path: Path) -> None:
    registry = Registry("string", subscriptions(150, 9, "string"))
    messages = message_table(80, 9)
    artifact = Artifact(tmp_path)
    build_locally(artifact, registry.subscriptions(), 3)
    bits = []
    for row in subscriptions(20, 10, "string", first=1_000):
        rows = [{"op": "insert", **row}]
        version = change(artifact, registry.changes(rows)).version
        registry.take(rows)
        assert replicated(artifact, version, messages) == scanned(
            registry.subscriptions(), messages
        )
        for number, shard in enumerate(version.shards):
            for ref in shard.segments[1:]:
                bits.append((number, open_segment(artifact.folder, ref).shards is None))
    later = [number for number, alone in bits if alone and number > 0]
    assert later, "some segment had rows of its own shard only, and that was not the first"
    assert (later[0], False) in bits, "and others came to it"


@pytest.mark.parametrize("shards", [1, 3])
def test_an_index_can_become_empty_and_full_again(tmp_path: Path, shards: int) -> None:
    registry = Registry("string", subscriptions(40, 4, "string"))
    messages = message_table(60, 4)
    artifact = Artifact(tmp_path)
    build_locally(artifact, registry.subscriptions(), shards)
    gone = [{"op": "delete", "id": one} for one in registry.rows]
    back = [{"op": "insert", **row} for row in subscriptions(40, 5, "string")]
    for rows in (gone, back):
        version = change(artifact, registry.changes(rows)).version
        registry.take(rows)
        assert version.rows >= len(registry.rows)
        expected = scanned(registry.subscriptions(), messages)
        assert replicated(artifact, version, messages) == expected
        assert routed(artifact, version, messages) == expected
    assert len(expected) > 0


@pytest.mark.parametrize("shards", [1, 3])
def test_expiry_and_owner_survive_a_move(tmp_path: Path, shards: int) -> None:
    registry = Registry("string", subscriptions(60, 6, "string"))
    artifact = Artifact(tmp_path)
    build_locally(artifact, registry.subscriptions(), shards)
    places = [{name: row[name] for name in PLACE} for row in subscriptions(60, 7, "string")]
    rows = [{"op": "move", "id": f"s{n}", **place} for n, place in enumerate(places)]
    for low in range(0, 60, 20):
        change(artifact, registry.changes(rows[low : low + 20]))
    wanted = {one: (row["expires_at"], row["owner"]) for one, row in registry.rows.items()}
    for shard in artifact.latest().shards:
        for ref in shard.segments:
            segment = open_segment(artifact.folder, ref)
            known, alive = segment.subscriptions, segment.alive()
            owner = [None] * len(known) if known.owner is None else known.owner.to_pylist()
            for row, one in enumerate(known.ids.tolist()):
                expires_at, owned_by = wanted[str(one)]
                moment = int(known.expires_us[row])
                assert not alive[row] or owner[row] == owned_by
                assert (expires_at is None) == (moment > NOW_US * 2)
                if expires_at is not None:
                    assert moment == round(expires_at.timestamp() * 1e6)


def test_no_rows_are_spooled_nowhere(tmp_path: Path) -> None:
    empty = Registry("string").changes([])
    assert shipped(SpoolChanges(str(tmp_path), "work/test"), empty.to_batches(), STORED) == []
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_spool_is_an_error(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    registry = Registry("string", subscriptions(5, 1, "string"))
    version = build_locally(artifact, registry.subscriptions())
    table = registry.changes([{"op": "delete", "id": "s1"}])
    [spooled] = stored(shipped(SpoolChanges(str(tmp_path), "work/x"), table.to_batches(), STORED))
    path = tmp_path / spooled.name / "arrays.bin"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    finding = FindChanged(str(tmp_path), "work/x", version.number, spooled)
    with pytest.raises(StorageError):
        shipped(finding, numbers(1), STORED)


IDS = [f"s{n}" for n in range(5)]
PLACES: list[Row] = [
    {"west": 0.0, "south": 0.0, "east": 60.0, "north": 30.0},
    {"west": 120.0, "south": -90.0, "east": -120.0, "north": 0.0},
    {"lon": 0.0, "lat": 0.0, "radius_m": 6_671_704.0},
    {"geometry": "POLYGON ((0 0, 60 0, 60 30, 0 0))"},
]
WANTS: list[Row] = [
    {"keywords": ["w0"]},
    {},
    {"expression": "w0 OR (w1 NOT w2)"},
    {"keywords": ["x7", "w1"]},
]
ROWS = st.builds(
    lambda op, one, wants, place, time: {"op": op, "id": one, **wants, **place, "time": time},
    st.sampled_from(["insert", "delete", "move"]),
    st.sampled_from(IDS),
    st.sampled_from(WANTS),
    st.sampled_from(PLACES),
    st.none() | st.integers(1, 3),
)


class Changing(RuleBasedStateMachine):
    """An artifact and a dictionary, which take the same changes."""

    messages = message_table(20, 8)

    @initialize(shards=st.sampled_from([1, 3]), first=st.lists(ROWS, max_size=8))
    def begin(self, shards: int, first: list[Row]) -> None:
        self.folder = tempfile.mkdtemp()
        self.artifact = Artifact(self.folder)
        self.registry = Registry("string")
        self.registry.take([{**row, "op": "insert"} for row in first])
        build_locally(self.artifact, self.registry.subscriptions(), shards)

    @rule(rows=st.lists(ROWS, min_size=1, max_size=6))
    def take_changes(self, rows: list[Row]) -> None:
        outcome = change(self.artifact, self.registry.changes(rows))
        assert (outcome.taken, outcome.refused) == self.registry.take(rows)

    @rule()
    def fold_in(self) -> None:
        assert fold(self.artifact).deltas == 0

    @invariant()
    def answers_are_right(self) -> None:
        version = self.artifact.latest()
        expected = scanned(self.registry.subscriptions(), self.messages)
        assert replicated(self.artifact, version, self.messages) == expected
        assert routed(self.artifact, version, self.messages) == expected
        assert rows_alive(self.artifact, version) == set(self.registry.rows)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


TestChanging = Changing.TestCase
TestChanging.settings = settings(max_examples=examples(12), stateful_step_count=6, deadline=None)
