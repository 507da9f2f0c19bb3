"""Owners of subscriptions, and replacing subscriptions one by one and by table."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from nearcast.columns import Ids
from nearcast.engine import Engine, segment, upkeep
from nearcast.engine.segment import RowsByOwner
from nearcast.errors import InvalidInput, UnknownId, UnsupportedFile
from nearcast.model import (
    Message,
    Overlap,
    OwnedMatch,
    Polygon,
    Proximity,
    Rect,
    Subscription,
)
from nearcast.text import hash_ids

if TYPE_CHECKING:
    from pathlib import Path

HERE, THERE = Rect(0, 0, 1, 1), Rect(5, 5, 6, 6)
TEA = Message("m", (0.5, 0.5), "tea")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def ids(subscriptions: list[Subscription]) -> list[Any]:
    return sorted((one.id for one in subscriptions), key=str)


def rows(updates: pa.Table) -> list[tuple[Any, ...]]:
    names = ("subscription_id", "message_id", "sign")
    return sorted((tuple(row[name] for name in names) for row in updates.to_pylist()), key=str)


def test_matches_name_owners_on_request() -> None:
    engine = Engine()
    engine.subscribe(Subscription("a", HERE, "tea", owner="ann"))
    engine.subscribe(Subscription("b", HERE, "tea"))
    near = Proximity(delta=0.5, tau=0.9, max_distance_m=200_000)
    engine.subscribe(Subscription("c", (0.5, 0.5), ["tea"], ranking=near, owner="cid"))
    engine.subscribe(Subscription("d", THERE, "tea", owner="dan"))
    engine.move("d", HERE)
    found = {m.subscription_id: m for m in engine.publish(TEA, owners=True)}
    assert all(isinstance(match, OwnedMatch) for match in found.values())
    assert {id: match.owner for id, match in found.items()} == {
        "a": "ann",
        "b": None,
        "c": "cid",
        "d": "dan",
    }
    assert found["c"].score == 1.0
    assert {len(match) for match in engine.publish(TEA)} == {3}
    table = pa.table({"id": [1, 2], "text": ["tea", "tea"], "lon": [0.5, 9], "lat": [0.5, 9]})
    matches = engine.publish_table(table, owners=True).matches
    assert matches.column_names == ["message_id", "subscription_id", "score", "owner"]
    named = zip(*(matches[name].to_pylist() for name in ("subscription_id", "owner")), strict=True)
    assert dict(named) == {id: match.owner for id, match in found.items()}
    best = engine.publish_table(table, owners=True, top=1).matches
    assert best["owner"].to_pylist() == ["cid"]
    nothing = engine.publish_table(table.slice(1), owners=True).matches
    assert nothing.column_names == matches.column_names
    assert nothing.num_rows == 0


@pytest.mark.parametrize("settled", [False, True])
def test_owners_of_large_segments_are_found(monkeypatch: pytest.MonkeyPatch, settled: bool) -> None:
    monkeypatch.setattr(segment, "_MIN_SORTED", 1)
    engine = Engine()
    count = 6_000
    owner = [None if i % 7 == 0 else f"owner {i % 50}" for i in range(count)]
    place = {"lon": [0.5] * count, "lat": [0.5] * count, "radius_m": [100.0] * count}
    engine.subscribe_table(pa.table({"id": range(count), "owner": owner, **place}))
    engine.unsubscribe([i for i in range(count) if i % 3 == 0])
    engine.move(1, THERE)
    if settled:
        engine.settle()
    before = engine.stats().nbytes
    for name in ("owner 1", "owner 49", "nobody"):
        wanted = [i for i in range(count) if owner[i] == name and i % 3]
        assert ids(engine.by_owner(name)) == sorted(wanted, key=str)
    assert engine.get(1).owner == "owner 1"
    if settled:  # otherwise a merge in the background may change the size, too
        assert engine.stats().nbytes > before  # the rows by owner
    assert engine.unsubscribe_owner("owner 1") == len(
        [i for i in range(count) if owner[i] == "owner 1" and i % 3]
    )
    assert engine.by_owner("owner 1") == []
    assert engine.unsubscribe_owner("owner 1") == 0
    with pytest.raises(InvalidInput, match="owner"):
        engine.by_owner("")


def test_owners_with_the_same_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "hash_ids", lambda ids: hash_ids(Ids.of(["x"] * len(ids))))
    by_owner = RowsByOwner(pa.array(["ann", "bob", None, "ann"]))
    assert by_owner.find("ann").tolist() == [0, 3]
    assert by_owner.find("bob").tolist() == [1]
    assert by_owner.find("eve").tolist() == []


def test_expired_subscriptions_have_no_owner_any_more() -> None:
    clock = Clock()
    engine = Engine(clock=clock)
    engine.subscribe(Subscription("a", HERE, "tea", owner="ann", expires_at=110))
    engine.subscribe(Subscription("b", HERE, "tea", owner="ann", expires_at=120))
    engine.move("b", THERE)
    clock.now = 110
    assert ids(engine.by_owner("ann")) == ["b"]
    clock.now = 120
    assert engine.by_owner("ann") == []
    assert engine.unsubscribe_owner("ann") == 0


def test_subscriptions_of_a_table_of_names() -> None:
    engine = Engine()
    square = Polygon([[(0, 0), (4, 0), (1, 4), (0, 0)]])
    several = [
        Subscription("a", HERE, ["tea", "cake"], owner="ann"),
        Subscription("b", square, expression="tea NOT milk", owner="bob", expires_at=9e9),
        Subscription("c", HERE, ["tea"], ranking=Overlap(0.5, 0.2), owner="ann"),
        Subscription("d", HERE),
    ]
    engine.subscribe(several)
    found = engine.get_table(pa.table({"id": ["d", "x", "b", "d", None]}))
    assert found.subscriptions["id"].to_pylist() == ["d", "b"]
    assert found.rejects.row.tolist() == [1, 3, 4]
    assert found.rejects.reason[0] == "is not registered, or has expired"
    owned = engine.get_table(pa.table({"owner": ["ann", "eve", "bob"]}))
    assert sorted(owned.subscriptions["id"].to_pylist()) == ["a", "b", "c"]
    assert owned.rejects.reason == ("owns no subscription",)
    copy = Engine()
    everything = engine.get_table(pa.table({"id": ["a", "b", "c", "d"]})).subscriptions
    assert not len(copy.subscribe_table(everything))
    assert [one.to_dict() for one in copy] == [one.to_dict() for one in engine]
    with pytest.raises(UnsupportedFile, match="either a column id or a column owner"):
        engine.get_table(pa.table({"id": ["a"], "owner": ["ann"]}))
    none = engine.get_table(pa.table({"id": pa.array([], pa.string())}))
    assert none.subscriptions.column_names[:1] == ["id"]


def test_a_table_of_names_is_removed() -> None:
    engine = Engine()
    engine.subscribe([Subscription(i, HERE, "tea", owner=f"o{i % 3}") for i in range(9)])
    removed = engine.unsubscribe_table(pa.table({"id": [0, 3, 77, 0, None]}))
    assert (removed.removed, removed.rejects.row.tolist()) == (2, [2, 3, 4])
    removed = engine.unsubscribe_table(pa.table({"owner": ["o1", "o9", "o1"]}))
    assert (removed.removed, removed.rejects.row.tolist()) == (3, [1, 2])
    assert ids([*engine]) == [2, 5, 6, 8]


def test_replacing_registers_only_when_asked() -> None:
    engine = Engine()
    with pytest.raises(UnknownId):
        engine.replace(Subscription("a", HERE, "tea"))
    assert len(engine) == 0
    assert engine.replace(Subscription("a", HERE, "tea", owner="ann"), upsert=True) == []
    assert engine.replace(Subscription("a", HERE, "milk", owner="bob"), upsert=True) == []
    assert engine.publish(TEA) == []
    assert (ids(engine.by_owner("bob")), engine.by_owner("ann")) == (["a"], [])


def test_replacing_a_boolean_one_by_the_first_ranked_one() -> None:
    engine = Engine()
    engine.subscribe([Subscription(i, HERE, ["tea", f"word{i}"]) for i in range(3)])
    near = Overlap(0.5, 0.1)
    engine.replace(Subscription(0, HERE, ["tea", "rare"], ranking=near))
    fresh = Engine()
    fresh.subscribe(Subscription(0, HERE, ["tea", "rare"], ranking=near))
    assert engine.publish(TEA) == fresh.publish(TEA)


@pytest.mark.parametrize("bulk", [2, 1 << 30])
@pytest.mark.parametrize("seed", range(3))
def test_a_table_replaces_as_single_calls_do(
    monkeypatch: pytest.MonkeyPatch, seed: int, bulk: int
) -> None:
    monkeypatch.setattr("nearcast.engine.store.BULK_ROWS", bulk)
    assert upkeep.BULK_ROWS > 2
    rng, clock = random.Random(seed), Clock()
    engine, single = Engine(clock=clock), Engine(clock=clock)
    for step in range(25):
        clock.now += 1
        message = Message(f"m{step}", (rng.randrange(4) + 0.5, 0.5), rng.choice(["tea", "milk"]))
        message = Message(message.id, message.place, message.text, ttl_s=rng.choice([0.0, 6.0]))
        found = [sorted(map(str, each.publish(message))) for each in (engine, single)]
        assert found[0] == found[1]
        if len(engine) and rng.random() < 0.4:
            one = rng.choice([*engine]).id
            place = Rect(rng.randrange(3), 0, 4, 1)
            assert engine.move(one, place) == single.move(one, place)
        chosen = rng.sample(range(8), rng.randrange(1, 6))
        upsert = rng.random() < 0.7
        given = []
        for id in chosen:
            west, ends = rng.randrange(4), rng.choice([None, clock.now + 5])
            keywords = rng.choice([["tea"], ["milk"], None])
            owner = rng.choice([None, "ann", "bob"])
            place = Rect(west, 0, west + 2, 1)
            given.append(Subscription(id, place, keywords, owner=owner, expires_at=ends))
        unknown = [s.id for s in given if s.id not in engine]
        names = {name for one in given for name in one.to_dict()}
        columns = {name: [one.to_dict().get(name) for one in given] for name in names}
        done = engine.replace_table(pa.table(columns), upsert=upsert)
        assert (done.added, len(done.rejects)) == (
            (len(unknown), 0) if upsert else (0, len(unknown))
        )
        assert done.replaced == len(given) - len(unknown)
        wanted = []
        for one in given:
            if upsert or one.id not in unknown:
                wanted += single.replace(one, upsert=upsert)
        assert rows(done.updates) == sorted(
            ((u.subscription_id, u.message_id, u.sign) for u in wanted), key=str
        )
        described = [sorted((s.to_dict() for s in each), key=str) for each in (engine, single)]
        assert described[0] == described[1]
        for owner in ("ann", "bob"):
            assert ids(engine.by_owner(owner)) == ids([s for s in single if s.owner == owner])
    assert rows(engine.advance()) == rows(single.advance())


def test_owners_and_tables_survive_a_crash(tmp_path: Path) -> None:
    engine = Engine.open(tmp_path, journal=True)
    engine.subscribe([Subscription(i, HERE, "tea", owner=f"o{i % 3}") for i in range(9)])
    engine.unsubscribe_owner("o1")
    engine.unsubscribe_table(pa.table({"id": [0, 99]}))
    place = {"lon": [0.5, 0.5], "lat": [0.5, 0.5], "radius_m": [5.0, 5.0]}
    table = pa.table({"id": [2, 100], "owner": ["new", "new"], **place})
    engine.replace_table(table, upsert=True)
    engine.replace_table(pa.table({**table.to_pydict(), "id": [3, 101]}))
    engine.replace(Subscription("x", HERE, owner="x"), upsert=True)
    before = sorted((one.to_dict() for one in engine), key=str)
    assert engine._journal is not None
    engine._journal.close()
    with Engine.open(tmp_path, journal=True) as again:
        assert sorted((one.to_dict() for one in again), key=str) == before
        assert ids(again.by_owner("new")) == [100, 2, 3]
