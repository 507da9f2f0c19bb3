"""Ranked subscriptions in the workers, without Spark: the same bits however they are spread."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from generated import (
    NOW_US,
    RANKED_FIELDS,
    SUBSCRIPTION_FIELDS,
    build_locally,
    message_table,
    mixed_table,
    scanned,
    scored,
    scores_of,
    subscription_table,
)
from test_changing import change, fold

from nearcast import indexes
from nearcast.columns import Scoring
from nearcast.errors import StorageError
from nearcast.intake import read_messages, read_subscriptions
from nearcast.segments import Part, Scorer
from nearcast.spark.artifact.segments import open_scorer, open_segment, write_weights
from nearcast.spark.artifact.versions import Artifact, Version
from nearcast.spark.workers import answers
from nearcast.spark.workers.answers import answer_schema
from nearcast.spark.workers.building import data_name
from nearcast.spark.workers.matching import MatchMessages, MatchRouted
from nearcast.spark.workers.routing import RouteMessages
from nearcast.text import Vocabulary, Weights

if TYPE_CHECKING:
    from pathlib import Path

    from generated import Scored

Row = dict[str, Any]
PLANAR_COSINE = Scoring("cosine", "planar")
SCORINGS = (Scoring(), Scoring("jaccard"), PLANAR_COSINE)
SCHEMA = answer_schema(pa.string(), pa.string())


def replicated(artifact: Artifact, version: Version, messages: pa.Table) -> list[Scored]:
    matching = MatchMessages(artifact.folder.uri, version.number, NOW_US, SCHEMA)
    return scores_of(matching(messages.to_batches(37)))


def routed(artifact: Artifact, version: Version, messages: pa.Table) -> list[Scored]:
    keys = tuple(range(len(version.shards)))
    routing = RouteMessages(artifact.folder.uri, version.number, NOW_US, keys)
    return scores_of(MatchRouted(artifact.folder.uri, SCHEMA)(routing(messages.to_batches(37))))


def kinds(found: list[Scored]) -> tuple[int, int]:
    """Return the number of boolean and of ranked matches."""
    ranked = sum(score is not None for _, _, score in found)
    return len(found) - ranked, ranked


@pytest.mark.parametrize(
    ("shards", "scoring"),
    [*((shards, scoring) for shards in (1, 4) for scoring in SCORINGS), (70, SCORINGS[1])],
    ids=str,
)
def test_shards_find_what_one_index_finds(tmp_path: Path, shards: int, scoring: Scoring) -> None:
    table, messages = mixed_table(300, shards, faulty=0.05), message_table(100, shards, faulty=0.1)
    artifact = Artifact(tmp_path)
    version = build_locally(artifact, table, shards, scoring=scoring)
    expected = scored(table, messages, scoring)
    boolean, ranked = kinds(expected)
    assert boolean > 200
    assert ranked > 1_000
    assert replicated(artifact, version, messages) == expected
    assert routed(artifact, version, messages) == expected


def test_what_is_expected_is_what_the_scan_finds() -> None:
    table, messages = mixed_table(200, 1), message_table(60, 1)
    vocabulary = Vocabulary()
    known, _ = read_subscriptions(table, vocabulary)
    for scoring in SCORINGS:
        scorer = Scorer.counted(Part(known, vocabulary), scoring)
        batch, _ = read_messages(messages, now_us=NOW_US, unique=False)
        numbered = batch.number(vocabulary, text_weight=scorer.text_weight(batch.words))
        content = scorer.content(known, vocabulary)
        matches = indexes.create("scan").build(content).match(numbered)
        alive = known.expires_us[matches.subscription] > batch.time_us[matches.message]
        message, subscription = batch.ids.tolist(), known.ids.tolist()
        pairs = zip(matches.message[alive], matches.subscription[alive], strict=True)
        found = [(m, s) for m, s, _ in scored(table, messages, scoring)]
        assert found == sorted((message[m], subscription[s]) for m, s in pairs)


def test_every_ranked_index_can_be_stored(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    table, messages = mixed_table(120, 8), message_table(30, 8)
    expected = scored(table, messages)
    ranked = {name for kind in ("proximity", "overlap") for name in indexes.names(kind)}
    assert indexes.RANKED_DEFAULT in ranked
    for name in sorted(ranked - {"scan"}):
        version = build_locally(artifact, table, 2, index=name)
        assert replicated(artifact, version, messages) == expected, name


def test_one_table_whatever_the_tasks_and_the_shards(tmp_path: Path) -> None:
    table = mixed_table(200, 2)
    ranked = sum(one is not None for name in ("tau", "theta") for one in table[name].to_pylist())
    artifact = Artifact(tmp_path)
    backwards = table.take(pa.array(range(len(table)))[::-1])
    versions = [
        build_locally(artifact, rows, shards, pieces=pieces)
        for rows, shards, pieces in ((table, 1, 1), (table, 1, 7), (backwards, 1, 3), (table, 5, 4))
    ]
    assert sum(shard.rows for shard in versions[-1].shards) > len(table), "some rows are copied"
    digests = {version.weights.digest for version in versions if version.weights is not None}
    assert len(digests) == 1
    scorer = open_scorer(artifact.folder, versions[-1])
    assert scorer is not None
    assert scorer.weights.subscriptions == ranked
    tokens = scorer.weights.vocabulary.tokens().to_pylist()
    assert tokens == sorted(tokens)
    assert (
        len(tokens) == len(scorer.weights.frequency) == np.count_nonzero(scorer.weights.frequency)
    )


def test_a_version_without_ranked_subscriptions_has_no_table(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    nulls = mixed_table(0).schema
    table = pa.Table.from_pylist(subscription_table(40).to_pylist(), nulls)
    version = build_locally(artifact, table, 2)
    assert version.weights is None
    assert open_scorer(artifact.folder, version) is None
    raw = json.loads(version.render())
    assert "weights" not in raw
    assert "scoring" not in raw, "files that are older than both have neither"
    assert Version.parse(version.render(), "here") == version
    later = replace(version, scoring=PLANAR_COSINE)
    assert Version.parse(later.render(), "here") == later
    messages = message_table(30)
    found = replicated(artifact, version, messages)
    assert [pair for *pair, _ in found] == [[*pair] for pair in scanned(table, messages)]
    assert kinds(found) == (len(found), 0)


def test_small_output_batches_have_the_same_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_IDS_AT_A_TIME", 3)
    artifact = Artifact(tmp_path)
    table, messages = mixed_table(100), message_table(30)
    version = build_locally(artifact, table, 3)
    expected = scored(table, messages)
    assert replicated(artifact, version, messages) == expected
    assert routed(artifact, version, messages) == expected


# --- changes -------------------------------------------------------------------------------------


def changes_table(rows: list[Row]) -> pa.Table:
    fields = {"op": pa.string(), "id": pa.string(), "time": pa.timestamp("us", "UTC")}
    schema = pa.schema([*fields.items(), *SUBSCRIPTION_FIELDS.items(), *RANKED_FIELDS.items()])
    return pa.Table.from_pylist(rows, schema)


def drawn_changes(draw: random.Random, rows: dict[str, Row], count: int) -> list[Row]:
    """Draw valid changes of distinct ids, and apply them to the rows."""
    fresh = mixed_table(count, draw.randrange(10**6), first=draw.randrange(10**6)).to_pylist()
    known = draw.sample(sorted(rows), count)
    made: list[Row] = []
    for new, old in zip(fresh, known, strict=True):
        operation = draw.choice(["insert", "delete", "move", "move", "replace"])
        if operation == "move":
            by_distance = rows[old]["delta"] is not None
            place = {"lon": new["lon"] or 13.4, "lat": new["lat"] or 52.5}
            if not by_distance and draw.random() < 0.5:
                place = {"geometry": "POLYGON ((0 0, 60 0, 60 30, 0 0))"}
            elif not by_distance:
                place |= {"radius_m": 111_195.0797}
            # What is no part of the place is not looked at.
            made.append({"op": "move", "id": old, **place, "delta": 0.25, "keywords": ["w9"]})
            nowhere = dict.fromkeys(
                ("west", "south", "east", "north", "lon", "lat", "radius_m", "geometry")
            )
            rows[old] |= nowhere | place
            continue
        one = new["id"] if operation == "insert" else old
        if operation != "insert":
            made.append({"op": "delete", "id": old})
            del rows[old]
        if operation != "delete":
            rows[one] = new | {"id": one}
            made.append({"op": "insert", **rows[one]})
    return made


@pytest.mark.parametrize(
    ("shards", "scoring"), [(1, SCORINGS[0]), (4, SCORINGS[1]), (4, SCORINGS[2])], ids=str
)
def test_changes_and_folding_keep_the_table(tmp_path: Path, shards: int, scoring: Scoring) -> None:
    draw = random.Random(shards)
    table, messages = mixed_table(250, 3), message_table(60, 3)
    rows = {row["id"]: row for row in table.to_pylist()}
    artifact = Artifact(tmp_path)
    first = build_locally(artifact, table, shards, scoring=scoring)
    layers = set()
    for count in (10, 15, 60, 8):
        made = drawn_changes(draw, rows, count)
        outcome = change(artifact, changes_table(made))
        assert outcome.refused == []
        assert (outcome.version.weights, outcome.version.scoring) == (first.weights, scoring)
        now = pa.Table.from_pylist(list(rows.values()), table.schema)
        expected = scored(now, messages, scoring, counted=table)
        assert replicated(artifact, outcome.version, messages) == expected
        assert routed(artifact, outcome.version, messages) == expected
        layers |= {len(shard.segments) for shard in outcome.version.shards}
    assert layers == {1, 2}
    folded = fold(artifact)
    assert (folded.deltas, folded.weights) == (0, first.weights)
    assert replicated(artifact, folded, messages) == expected
    assert routed(artifact, folded, messages) == expected
    anew = build_locally(artifact, now, shards, scoring=scoring)
    assert anew.weights != first.weights
    counted_again = scored(now, messages, scoring)
    assert replicated(artifact, anew, messages) == counted_again
    assert (counted_again != expected) == scoring.weighs


def test_the_place_of_a_move_depends_on_what_moves(tmp_path: Path) -> None:
    near = {"keywords": ["tea"], "delta": 0.5, "tau": 0.6, "max_distance_m": 100.0}
    everywhere = {"west": -1.0, "south": -1.0, "east": 1.0, "north": 1.0}
    point, circle = {"lon": 0.0, "lat": 0.0}, {"lon": 0.0, "lat": 0.0, "radius_m": 9.0}
    known: list[Row] = [
        {"id": "near", **near, **point},
        {"id": "over", "keywords": ["tea"], "alpha": 0.5, "theta": 0.5, **everywhere},
        {"id": "in", "keywords": ["tea"], **everywhere},
        {"id": "area", "keywords": ["tea"], "alpha": 0.5, "theta": 0.9, **everywhere},
    ]
    artifact = Artifact(tmp_path)
    schema = mixed_table(0).schema
    build_locally(artifact, pa.Table.from_pylist(known, schema))
    moved = {"lon": 50.0, "lat": 10.0}
    rows: list[Row] = [
        {"op": "move", "id": "near", **moved},
        {"op": "move", "id": "near", **circle},
        {"op": "move", "id": "near", **everywhere},
        {"op": "move", "id": "over", **point},
        {"op": "move", "id": "in", **point},
        {"op": "move", "id": "in", "geometry": "POINT (0 0)"},
        {"op": "move", "id": "in", **moved, "radius_m": 1.0},
        {"op": "move", "id": "area", "geometry": "POINT (50 10)"},
        {"op": "insert", "id": "new", **near, **point},
        {"op": "move", "id": "new", "geometry": "POINT (50 10)"},
        {"op": "move", "id": "new", "lon": 500.0, "lat": 0.0},
        {"op": "delete", "id": "over"},
        {"op": "insert", "id": "over", **near, **point},
        {"op": "move", "id": "over", **moved},
        {"op": "move", "id": "ghost", **moved},
        {"op": "move", "id": "ghost"},
    ]
    outcome = change(artifact, changes_table(rows))
    assert outcome.taken == {"insert": 2, "delete": 1, "move": 5}
    assert outcome.refused == [1, 2, 3, 4, 5, 10, 14, 15]
    messages = pa.table({"id": ["m"], "text": ["tea"], "lon": [50.0], "lat": [10.0]})
    found = replicated(artifact, outcome.version, messages)
    ranked = [("m", id, 1.0) for id in ("near", "new", "over")]
    assert found == [("m", "area", 1.0), ("m", "in", None), *ranked]


def test_moves_of_points_need_no_column_for_a_radius(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    table = pa.table(
        {
            "id": ["a"],
            "keywords": ["tea"],
            "lon": [0.0],
            "lat": [0.0],
            "delta": [0.5],
            "tau": [0.6],
            "max_distance_m": [10.0],
        }
    )
    build_locally(artifact, table)
    moves = {"op": ["move", "move"], "id": ["a", "b"], "lon": [3.0, 3.0], "lat": [4.0, 4.0]}
    outcome = change(artifact, pa.table(moves))
    assert (outcome.taken, outcome.refused) == ({"move": 1}, [1])
    messages = pa.table({"id": ["m"], "text": ["tea"], "lon": [3.0], "lat": [4.0]})
    assert replicated(artifact, outcome.version, messages) == [("m", "a", 1.0)]


@pytest.mark.parametrize("shards", [1, 3])
def test_the_first_ranked_subscriptions_may_come_as_changes(tmp_path: Path, shards: int) -> None:
    artifact = Artifact(tmp_path)
    before, messages = subscription_table(100, 5), message_table(40, 5)
    first = build_locally(artifact, before, shards, scoring=Scoring("jaccard"))
    fresh = mixed_table(40, 6, first=5_000)
    rows = [{"op": "insert", **row} for row in fresh.to_pylist()]
    version = artifact.latest()
    for some in (rows[:30], rows[30:]):
        version = change(artifact, changes_table(some)).version
    assert first.weights is None
    assert version.weights is not None
    both = pa.concat_tables([before, fresh], promote_options="default")
    expected = scored(both, messages, Scoring("jaccard"), counted=fresh.slice(0, 30))
    assert kinds(expected)[1] > 100
    assert replicated(artifact, version, messages) == expected
    assert routed(artifact, version, messages) == expected
    assert replicated(artifact, fold(artifact), messages) == expected


# --- stored weights ------------------------------------------------------------------------------


def test_a_segment_is_opened_with_its_own_weights_only(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    version = build_locally(artifact, mixed_table(40))
    [ref] = version.shards[0].segments
    with pytest.raises(StorageError, match="has ranked subscriptions but no weights"):
        open_segment(artifact.folder, ref)
    other = write_weights(artifact.folder, data_name(), Weights.empty())
    for forged in (replace(version, weights=other), replace(version, scoring=PLANAR_COSINE)):
        scorer = open_scorer(artifact.folder, forged)
        with pytest.raises(StorageError, match=r"was built with the weights .* build it again"):
            open_segment(artifact.folder, ref, scorer)
    assert open_segment(artifact.folder, ref, open_scorer(artifact.folder, version)).ranked


def test_damaged_weights_are_found(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    version = build_locally(artifact, mixed_table(40))
    assert version.weights is not None
    assert version.weights in version.stored()
    path = tmp_path / version.weights.name / "arrays.bin"
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    messages = message_table(5)
    with pytest.raises(StorageError, match="does not match its checksum"):
        replicated(artifact, version, messages)
    path.write_bytes(raw)
    assert replicated(artifact, version, messages)
    (path.parent / "manifest.json").unlink()
    with pytest.raises(StorageError, match="is missing"):
        replicated(artifact, version, messages)


def test_a_shard_of_boolean_rows_has_no_columns_for_scores(tmp_path: Path) -> None:
    """The router keeps the one ranked subscription in the shards that its messages visit."""
    artifact = Artifact(tmp_path)
    rows = subscription_table(80, 4).to_pylist()
    ranked = {"keywords": ["tea"], "delta": 1.0, "tau": 1.0, "max_distance_m": 1.0}
    rows.append({"id": "ranked", "lon": 0.0, "lat": 0.0, **ranked})
    table = pa.Table.from_pylist(rows, mixed_table(0).schema)
    version = build_locally(artifact, table, 4)
    scorer = open_scorer(artifact.folder, version)
    segments = [open_segment(artifact.folder, s.segments[0], scorer) for s in version.shards]
    assert {segment.ranked for segment in segments} == {True, False}
