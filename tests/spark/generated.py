"""Generated subscriptions and messages as tables, what the scan finds in them, and artifacts."""

from __future__ import annotations

import json
import pickle
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast import indexes
from nearcast.columns import Messages, Scoring
from nearcast.intake import read_messages, read_subscriptions
from nearcast.segments import Part, Scorer, Segment, deliver, routing_clauses
from nearcast.spark.artifact.segments import write_router
from nearcast.spark.artifact.versions import ShardRef, Stored, Version
from nearcast.spark.shards.planner import plan
from nearcast.spark.workers.building import (
    BuildShards,
    CombineCounts,
    RouteParts,
    WriteParts,
    Written,
    data_name,
)
from nearcast.testing.cases import LATITUDES, LONGITUDES
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nearcast.spark.artifact.versions import Artifact

NOW_US = 1_700_000_000_000_000
WORDS = [f"w{i}" for i in range(12)]
RARE = [f"x{i}" for i in range(1_500)]
LONS = (LONGITUDES / 1e7).tolist()
LATS = (LATITUDES / 1e7).tolist()

_BOX = {side: pa.float64() for side in ("west", "south", "east", "north")}
_TIME = pa.timestamp("us", "UTC")
SUBSCRIPTION_FIELDS = {
    "keywords": pa.list_(pa.string()),
    "expression": pa.string(),
    **_BOX,
    "lon": pa.float64(),
    "lat": pa.float64(),
    "radius_m": pa.float64(),
    "geometry": pa.string(),
    "owner": pa.string(),
    "expires_at": _TIME,
    "scope": pa.string(),
}
RANKED_FIELDS = dict.fromkeys(("delta", "tau", "max_distance_m", "alpha", "theta"), pa.float64())
MESSAGE_FIELDS = {
    "text": pa.string(),
    "tokens": pa.list_(pa.string()),
    "lon": pa.float64(),
    "lat": pa.float64(),
    **_BOX,
    "time": _TIME,
    "scope": pa.string(),
}

Pair = tuple[Any, Any]
Scored = tuple[Any, Any, float | None]


def _words(draw: random.Random, least: int, most: int) -> list[str]:
    weight = [1 / (i + 1) for i in range(len(WORDS))]
    return draw.choices(WORDS, weight, k=draw.randint(least, most))


def _rect(draw: random.Random, *, crossing: bool) -> dict[str, Any]:
    west, east = draw.choice(LONS), draw.choice(LONS)
    south, north = sorted((draw.choice(LATS), draw.choice(LATS)))
    if west > east and not crossing:
        west, east = east, west
    return {"west": west, "south": south, "east": east, "north": north}


def _region(draw: random.Random) -> dict[str, Any]:
    form = draw.choice(["rect", "rect", "crossing", "circle", "polygon"])
    if form == "circle":
        radius = draw.choice([0.0, 111_195.0797, 6_671_704.0])
        return {"lon": draw.choice(LONS), "lat": draw.choice(LATS), "radius_m": radius}
    if form == "polygon":
        west, south = draw.choice([-120, -60, 0]), draw.choice([-60, -30, 0])
        east, north = west + draw.choice([59, 60]), south + draw.choice([29, 30])
        ring = f"{west} {south}, {east} {south}, {east} {north}, {west} {south}"
        return {"geometry": f"POLYGON (({ring}))"}
    return _rect(draw, crossing=form == "crossing")


def _wants(draw: random.Random) -> dict[str, Any]:
    form = draw.choice(["words", "words", "rare", "any", "expression"])
    if form == "rare":
        return {"keywords": draw.sample(RARE, draw.randint(1, 3))}
    if form == "any":
        return {}
    if form == "words":
        return {"keywords": _words(draw, 1, 4)}
    one, two, three = draw.sample(WORDS, 3)
    text = draw.choice(
        [
            *("{} AND NOT {}", "{} OR {}", "({} OR {}) AND NOT {}", "{} AND ({} OR {})"),
            *('"{} {}" OR {}', '{} NOT "{} {}"', "{}* NOT {}"),
        ]
    )
    return {"expression": text.format(one, two, three)}


def _id(number: int, ids: str, letter: str) -> Any:
    return number if ids == "integer" else f"{letter}{number}"


def _table(rows: list[dict[str, Any]], ids: str, fields: dict[str, pa.DataType]) -> pa.Table:
    kind = pa.int64() if ids == "integer" else pa.string()
    return pa.Table.from_pylist(rows, pa.schema([("id", kind), *fields.items()]))


def subscription_table(
    count: int, seed: int = 0, *, ids: str = "string", faulty: float = 0.0, first: int = 0
) -> pa.Table:
    """Return subscriptions of every kind; some expire around `NOW_US`."""
    draw, draw_scope = random.Random(seed), random.Random(seed + first)
    rows = []
    for number in range(first, first + count):
        row = {"id": _id(number, ids, "s"), **_region(draw), **_wants(draw)}
        if draw.random() < 0.2:
            row["expires_at"] = NOW_US + draw.choice([-1, 0, 1]) * 1_000_000
        if draw.random() < 0.3:
            row["owner"] = draw.choice(["ann", "bob"])
        row["scope"] = draw_scope.choice([None, None, "w1", "t"])
        if draw.random() < faulty:
            row |= draw.choice([{"id": None}, {"west": 200.0}, {"expression": "w1 AND"}])
        rows.append(row)
    return _table(rows, ids, SUBSCRIPTION_FIELDS)


def mixed_table(
    count: int, seed: int = 0, *, ids: str = "string", faulty: float = 0.0, first: int = 0
) -> pa.Table:
    """Return subscriptions of which a third is boolean, ranked by distance, and by overlap."""
    draw = random.Random(seed + 7)
    rows = subscription_table(count, seed, ids=ids, faulty=faulty, first=first).to_pylist()
    for row in rows:
        kind = draw.choice(["boolean", "distance", "overlap"])
        if kind == "boolean":
            continue
        row["keywords"] = draw.choice([None, _words(draw, 1, 4), _words(draw, 1, 3), ["w1", "x7"]])
        row["expression"] = draw.choice(
            [None, None, f'NOT "w1 w{draw.choice("123")}"', f"NOT {draw.choice(WORDS)}"]
        )
        share = round(draw.choice([0.0, 1.0, draw.random(), draw.random()]), 3)
        least = round(draw.choice([0.0, 1.0, 0.5, *(draw.uniform(0.3, 1) for _ in range(6))]), 3)
        if kind == "overlap":
            row |= {"alpha": share, "theta": least}
            continue
        row |= dict.fromkeys((*_BOX, "radius_m", "geometry"))
        row |= {"lon": draw.choice(LONS), "lat": draw.choice(LATS)}
        reach_m = draw.choice([0.01, 111_195.0797, 6_671_704.0, 20_015_114.0])
        row |= {"delta": share, "tau": least, "max_distance_m": reach_m}
    return _table(rows, ids, {**SUBSCRIPTION_FIELDS, **RANKED_FIELDS})


def message_table(
    count: int, seed: int = 0, *, ids: str = "string", faulty: float = 0.0
) -> pa.Table:
    """Return messages: points and ranges, some across the antimeridian, a few very long ones."""
    draw, draw_scope = random.Random(seed + 1_000_000), random.Random(seed)
    rows = []
    for number in range(count):
        row: dict[str, Any] = {"id": _id(number, ids, "m")}
        if draw.random() < 0.7:
            row |= {"lon": draw.choice(LONS), "lat": draw.choice(LATS)}
        else:
            row |= _rect(draw, crossing=True)
        row["scope"] = draw_scope.choice([None, "w1", "t", "other"])
        found = _words(draw, 0, 9)
        if number % 25 == 7:
            found += draw.sample(RARE, 1_000)
        row |= {"text": ", ".join(found)} if draw.random() < 0.5 else {"tokens": found}
        if draw.random() < 0.5:
            row["time"] = NOW_US + draw.choice([-2, -1, 0, 1]) * 1_000_000
        if draw.random() < faulty:
            row |= draw.choice([{"id": None}, {"lat": 91.0}, {"text": None, "tokens": None}])
        rows.append(row)
    return _table(rows, ids, MESSAGE_FIELDS)


def scanned(subscriptions: pa.Table, messages: pa.Table, now_us: int = NOW_US) -> list[Pair]:
    """Return every pair, sorted: the scan over whole tables, in one process."""
    vocabulary = Vocabulary()
    known, _ = read_subscriptions(subscriptions, vocabulary)
    batch, _ = read_messages(messages, now_us=now_us, unique=False)
    matches = indexes.create("scan").build(known.clauses).match(batch.number(vocabulary))
    alive = known.expires_us[matches.subscription] > batch.time_us[matches.message]
    message, subscription = batch.ids.tolist(), known.ids.tolist()
    chosen = zip(matches.message[alive], matches.subscription[alive], strict=True)
    return sorted((message[m], subscription[s]) for m, s in chosen)


def scored(
    subscriptions: pa.Table,
    messages: pa.Table,
    scoring: Scoring | None = None,
    *,
    counted: pa.Table | None = None,
    now_us: int = NOW_US,
) -> list[Scored]:
    """Return every pair and its score, sorted: what one process finds with one index.

    The weights are those of the ``counted`` subscriptions, by default of the same ones.
    """
    vocabulary = Vocabulary()
    known, _ = read_subscriptions(subscriptions, vocabulary)
    table = subscriptions if counted is None else counted
    part = Part(read_subscriptions(table, vocabulary)[0], vocabulary)
    scorer = Scorer.counted(part, scoring)
    segment = Segment.build(known, indexes.create(), vocabulary, scorer)
    batch, _ = read_messages(messages, now_us=now_us, unique=False)
    found = deliver([segment], batch).to_table(batch.ids)
    return _sorted(found.to_pylist())


def _sorted(rows: Iterable[dict[str, Any]]) -> list[Scored]:
    names = ("message_id", "subscription_id", "score")
    triples = (tuple(row[name] for name in names) for row in rows)
    return sorted(triples, key=lambda one: one[:2])


def scores_of(answers: Iterable[pa.RecordBatch]) -> list[Scored]:
    """Return the pairs of answers with their scores, sorted, as often as they came."""
    found = []
    for batch in answers:
        for row in batch.to_pylist():
            ids = row["subscription_ids"] or ()
            scores = row["scores"] or [None] * len(ids)
            assert len(scores) == len(ids)
            found += [(row["message_id"], *one) for one in zip(ids, scores, strict=True)]
    return sorted(found, key=lambda one: one[:2])


def pairs_of(answers: Iterable[pa.RecordBatch]) -> list[Pair]:
    """Return the pairs of answers, sorted, as often as they came."""
    return sorted(
        (row["message_id"], one)
        for batch in answers
        for row in batch.to_pylist()
        for one in row["subscription_ids"] or ()
    )


def costs_of(answers: Iterable[pa.RecordBatch]) -> dict[str, int]:
    """Return the sums of what answers cost."""
    names = ("messages", "matches", "examined", "rejected")
    table = pa.Table.from_batches(answers)
    return {name: sum(table[name].to_pylist()) for name in names}


def build_locally(
    artifact: Artifact,
    table: pa.Table,
    shards: int = 1,
    *,
    pieces: int = 3,
    index: str = indexes.DEFAULT,
    scoring: Scoring | None = None,
) -> Version:
    """Build a version without Spark, each piece of the table as if by a task of its own."""
    uri, work, scoring = artifact.folder.uri, "work/test", scoring or Scoring()
    stored = None
    if shards > 1:
        vocabulary = Vocabulary()
        sample, _ = read_subscriptions(table, vocabulary)
        nobody = Messages.of([], np.empty((0, 4)))
        scorer = Scorer.counted(Part(sample, vocabulary), scoring)
        clauses = routing_clauses(scorer.content(sample, vocabulary), vocabulary)
        router, _ = plan(clauses, nobody, vocabulary, shards=shards, total=len(sample))
        stored = write_router(artifact.folder, data_name(), router)
    written = Written(shards)
    writing = WriteParts(uri, work, stored)
    for number in range(pieces):
        piece = table.take(pa.array(range(number, len(table), pieces), pa.int64()))
        written.add(told(writing, piece.to_batches(max_chunksize=50)))
    weights = None
    if written.counts:
        [row] = told(CombineCounts(uri, json.dumps(written.counts)), numbers(1))
        weights = Stored(row["name"], row["digest"], row["nbytes"])
    if stored is not None and weights is not None:
        unrouted = json.dumps(written.unrouted)
        routing = RouteParts(uri, work, stored, unrouted, weights, scoring)
        written.add(told(routing, numbers(len(written.unrouted))))
    parts = json.dumps(written.parts)
    building = BuildShards(uri, parts, index, "{}", weights, scoring)
    built = {
        row["shard"]: ShardRef.from_json(row["segments"]) for row in told(building, numbers(shards))
    }
    kind = "integer" if table.schema.field("id").type == pa.int64() else "string"
    every = tuple(built[shard] for shard in range(shards))
    version = Version(index, {}, kind, every, stored, weights=weights, scoring=scoring)
    return artifact.commit(version)


def told(step: Any, batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Run a step as a worker would, and return the rows that it tells."""
    shipped = pickle.loads(pickle.dumps(step))
    return [row for batch in shipped(iter(batches)) for row in batch.to_pylist()]


def numbers(count: int) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        yield pa.record_batch({"id": pa.array([number], pa.int64())})
