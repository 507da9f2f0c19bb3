"""Matching against plain Python, and against itself in other batches and after restarts."""

from __future__ import annotations

import itertools
import math
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from matching_oracle import (
    SECOND,
    START_US,
    WIDE,
    Oracle,
    Told,
    message_json,
    operations,
    random_records,
    records_of,
)
from nearcast.server.log.records import (
    CHANGES,
    MESSAGES,
    Change,
    Definition,
    changes_body,
    messages_body,
    moves_body,
    timed,
)
from nearcast.server.matching.checkpoint import Checkpoints
from nearcast.server.matching.events import EventStore
from nearcast.server.matching.matcher import Matcher, Processed, new_engine
from nearcast.server.matching.postings import Postings
from nearcast.server.state import Sqlite, State
from nearcast.storage.log import Entry, Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

logs = st.lists(operations, min_size=1, max_size=25)


def told_by(matcher: Matcher, postings: Postings) -> list[Told]:
    rows = zip(*(column.tolist() for column in postings), strict=True)
    found = []
    for seq, channel, handle, message, kind, score in rows:
        whose = matcher.registry.channel(channel)
        scored = None if math.isnan(score) else score
        named = whose.tenant, whose.subscriber, whose.url
        found.append(Told(seq, named, handle, message, kind, scored))
    return found


def by_channel(told: Sequence[Told]) -> dict[Any, list[Told]]:
    """The postings of each channel, by seq; scores are rounded, because metrics differ a bit."""
    channels: dict[Any, list[Told]] = {}
    for one in sorted(told, key=lambda t: t.seq):
        score = None if one.score is None else round(one.score, 4)
        channels.setdefault(one.channel, []).append(one._replace(score=score))
    return channels


def process(records: Sequence[Record], sizes: Iterator[int] | None = None) -> list[Processed]:
    with new_engine() as engine:
        matcher = Matcher(engine)
        return [matcher.process(batch) for batch in batches(records, sizes)]


def batches(
    records: Sequence[Record], sizes: Iterator[int] | None = None
) -> Iterator[Sequence[Record]]:
    at = 0
    while at < len(records):
        size = len(records) if sizes is None else next(sizes, 1)
        yield records[at : at + size]
        at += size


def columns(parts: Sequence[Processed]) -> list[bytes]:
    """Everything that some records led to, bit for bit."""
    postings = Postings.concatenate([part.postings for part in parts])
    changes = [change for part in parts for change in part.changes]
    outcomes = {seq: o for part in parts for seq, o in part.outcomes.items()}
    ordered = sorted(changes, key=lambda change: (change.seq, type(change).__name__, repr(change)))
    return [
        *(column.tobytes() for column in postings),
        repr(ordered).encode(),
        repr(outcomes).encode(),
    ]


@settings(deadline=None, max_examples=examples(60))
@given(logs)
def test_matching_is_what_plain_python_says(drawn: list[Any]) -> None:
    oracle = Oracle()
    compare(records_of(drawn, oracle), oracle)


def test_long_logs_too() -> None:
    for seed in range(4):
        oracle = Oracle()
        compare(random_records(seed, 150, oracle), oracle)
        assert {told.kind for told in oracle.told} == {*range(8)}
        assert len(oracle.told) > 200


def compare(records: Sequence[Record], oracle: Oracle) -> None:
    with new_engine() as engine, tempfile.TemporaryDirectory() as folder:
        matcher, state = Matcher(engine), State(Sqlite(Path(folder) / "state.db"))
        processed = matcher.process(records)
        assert by_channel(told_by(matcher, processed.postings)) == by_channel(oracle.told)
        codes = {seq: [o.code for o in outcomes] for seq, outcomes in processed.outcomes.items()}
        assert codes == oracle.outcomes
        state.apply(processed.changes, processed.last_seq)
        check_state(state, matcher, oracle)
        state.close()


def check_state(state: State, matcher: Matcher, oracle: Oracle) -> None:
    """What the state and the registry say of every subscription."""
    status = {"active": "ACTIVE", "paused": "INACTIVE", "ended": "EXPIRED", "deleted": "DELETED"}
    for sub in oracle.subs:
        stored = state.definition_of(sub.handle)
        assert stored is not None
        assert (stored.external_id, stored.status) == (sub.id, status[sub.status])
        found = matcher.registry.find(sub.tenant, sub.id)
        current = oracle.find(sub.tenant, sub.id)
        assert found == (-1 if current is None else current.handle)
        if not sub.over:
            assert stored.version == sub.version == matcher.registry.rows["version"][sub.handle]
    open_ = [sub.tenant for sub in oracle.subs if not sub.over]
    counts = {tenant: n for tenant, n in matcher.registry.per_tenant.items() if n}
    assert counts == {tenant: open_.count(tenant) for tenant in {*open_}}
    state.check()


@settings(deadline=None, max_examples=examples(30))
@given(logs, st.lists(st.integers(1, 6), max_size=25))
def test_batches_make_no_difference(drawn: list[Any], sizes: list[int]) -> None:
    records = records_of(drawn, Oracle())
    expected = columns(process(records))
    assert columns(process(records, iter([1] * len(records)))) == expected
    assert columns(process(records, iter(sizes))) == expected


@settings(deadline=None, max_examples=examples(30))
@given(logs, st.integers(0, 24))
def test_a_checkpoint_makes_no_difference(drawn: list[Any], at: int) -> None:
    records = records_of(drawn, Oracle())
    at = min(at, len(records) - 1)
    expected = columns(process(records, iter([at + 1, 1 << 30])))
    with new_engine() as engine, tempfile.TemporaryDirectory() as name:
        folder, matcher = Path(name), Matcher(engine)
        first = matcher.process(records[: at + 1])
        checkpoints = Checkpoints(folder / "checkpoint")
        with EventStore(folder / "events") as events:
            events.append(first.postings, first.last_seq)
            checkpoints.take(matcher, events, first.last_seq, 5)()
        loaded = checkpoints.load(first.last_seq)
        with loaded.matcher.engine:
            parts = [first]
            if records[at + 1 :]:
                parts.append(loaded.matcher.process(records[at + 1 :]))
            assert columns(parts) == expected
        assert (loaded.seq, loaded.time_us) == (first.last_seq, 5)


def ranked_records(seed: int) -> list[Record]:
    """Return a log with many ranked subscriptions that come, change, move, pause and end."""
    rng = random.Random(seed)
    common, rare = [f"w{number}" for number in range(30)], itertools.count()
    ids: list[str] = []

    def place(kind: str) -> dict[str, Any]:
        lon, lat = rng.randrange(4), rng.randrange(4)
        if kind == "proximity":
            return {"lon": lon, "lat": lat}
        return {"west": lon, "south": lat, "east": lon + 1, "north": lat + 1}

    def definition(kind: str, time_us: int) -> Definition:
        keywords = [*rng.sample(common, rng.randint(1, 4)), f"rare{next(rare)}"]
        ranking = {**WIDE, "tau": 0.2} if kind == "proximity" else {"alpha": 0.6, "theta": 0.2}
        return Definition(
            rng.choice("uv"),
            {"keywords": keywords[: rng.randint(1, 5)], **place(kind), **ranking},
            (0.0, 0.0, 5.0, 5.0),
            kind,
            {},
            expires_us=time_us + rng.randint(1, 20) * SECOND if rng.random() < 0.2 else None,
            max_events=rng.choice([0, 0, 0, 1, 5]),
            initial=rng.random() < 0.5,
            dwell_us=rng.choice([0, 0, 2 * SECOND]),
            active=rng.random() < 0.9,
        )

    def change(time_us: int) -> Change:
        if ids and rng.random() < 0.3:
            id = rng.choice(ids)
            gone = rng.random() < 0.5
            return Change(id, None if gone else definition(kind_of(id), time_us))
        ids.append(f"{rng.choice(['proximity', 'overlap'])} {len(ids)}")
        return Change(ids[-1], definition(kind_of(ids[-1]), time_us))

    def kind_of(id: str) -> str:
        return id.split()[0]

    def message() -> bytes:
        words = [*rng.choices(common, k=6), f"rare{rng.randrange(400)}", "unknown"]
        return message_json(words, rng.randrange(5), rng.randrange(5), rng.choice([None, 9]))

    def entry(time_us: int) -> Entry:
        chance = rng.random()
        if chance < 0.45 or not ids:
            return changes_body(0, [change(time_us) for _ in range(rng.randint(1, 150))])
        if chance < 0.85:
            return messages_body(0, [message() for _ in range(rng.randint(1, 4))])
        moved = rng.choices(ids, k=20)
        return moves_body(0, [(id, place(kind_of(id))) for id in moved])

    records, seq, time_us = [], 1, START_US
    for _ in range(60):
        time_us += rng.choice([0, 0, 1, 2]) * SECOND
        one = timed(entry(time_us), time_us)
        records.append(Record(seq, one.kind, one.body, 7, one.count))
        seq += one.count
    return records


@pytest.mark.parametrize("seed", range(3))
def test_scores_depend_on_the_log_only(tmp_path: Path, seed: int) -> None:
    """Not on batches, merged segments, checkpoints, or what the engine has not forgotten yet."""
    records = ranked_records(seed)
    expected = process(records)
    assert np.count_nonzero(~np.isnan(expected[0].postings.score)) > 1000
    rng = random.Random(seed)
    engine = new_engine()
    matcher, parts = Matcher(engine), []
    checkpoints = Checkpoints(tmp_path / "checkpoint")
    with EventStore(tmp_path / "events") as events:
        for batch in batches(records, iter(rng.choices(range(1, 6), k=len(records)))):
            parts.append(matcher.process(batch))
            last_seq = parts[-1].last_seq
            events.append(parts[-1].postings, last_seq)
            chance = rng.random()
            if chance < 0.3:
                matcher.engine.settle()
            elif chance < 0.5:
                checkpoints.take(matcher, events, last_seq, 0)()
                matcher.engine.close()
                matcher = checkpoints.load(last_seq).matcher
    matcher.engine.close()
    assert matcher.counted > 512
    assert columns(parts) == columns(expected)


def test_weights_are_counted_at_moments_of_the_log() -> None:
    """Scores with rare and frequent words do not depend on batches."""
    rng = np.random.default_rng(7)
    words = [f"w{i}" for i in range(30)]

    def ranked() -> Change:
        keywords = rng.choice(words, 3, replace=False).tolist()
        row = {"keywords": keywords, "lon": 0, "lat": 0, **WIDE, "tau": 0.1}
        definition = Definition("u", row, (0.0, 0.0, 0.0, 0.0), "proximity", {})
        return Change(None, definition)

    records, seq = [], 1
    for number in range(40):
        if number % 2:
            texts = [rng.choice(words, 5).tolist() for _ in range(5)]
            entry = messages_body(0, [message_json(text, 0, 1) for text in texts])
        else:
            entry = changes_body(0, [ranked() for _ in range(int(rng.integers(1, 120)))])
        kind = MESSAGES if number % 2 else CHANGES
        records.append(Record(seq, kind, timed(entry, number * 1000).body, 7, entry.count))
        seq += entry.count
    expected = columns(process(records))
    assert columns(process(records, iter([1] * 40))) == expected
    assert columns(process(records, iter([7, 1, 9, 30]))) == expected
