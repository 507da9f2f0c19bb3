"""An engine with a journal: what was acknowledged is there after a crash."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from nearcast.engine import Engine, journal
from nearcast.errors import InvalidInput, StorageError, UnknownName
from nearcast.model import Circle, Message, Overlap, Point, Proximity, Rect, Subscription

if TYPE_CHECKING:
    from pathlib import Path

HERE, THERE = Rect(0, 0, 1, 1), Rect(5, 5, 6, 6)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def described(engine: Engine) -> list[dict[str, Any]]:
    return sorted((s.to_dict() for s in engine), key=str)


def waiting(engine: Engine) -> list[tuple[Any, ...]]:
    return rows(engine.advance(engine._live.present_us / 1e6))


def rows(updates: pa.Table) -> list[tuple[Any, ...]]:
    """Return updates; those of one message at one time are in no order."""
    names = ("time", "subscription_id", "message_id", "sign")
    return sorted((tuple(row[name] for name in names) for row in updates.to_pylist()), key=str)


def crash(engine: Engine) -> None:
    """Stop an engine as if its process had been killed: nothing is written any more."""
    assert engine._journal is not None
    engine._journal.close()


def do_everything(engine: Engine, clock: Clock) -> None:
    engine.subscribe(
        [Subscription("a", HERE, "tea"), Subscription(7, HERE, expression="tea NOT milk")]
    )
    near = Proximity(delta=0.5, tau=0.5, max_distance_m=90_000)
    engine.subscribe(Subscription("near", (0.5, 0.5), ["tea"], ranking=near))
    engine.subscribe(Subscription("over", HERE, ["tea"], ranking=Overlap(0.5, 0.2)))
    table = pa.table({"id": ["t1", "t2"], "lon": [0.0, 99], "lat": [0.0, 99], "radius_m": [9e4, 9]})
    assert len(engine.subscribe_table(table)) == 1
    clock.now += 1
    engine.publish([Message("m1", (0.5, 0.5), "tea", ttl_s=50), Message("m2", (5.5, 5.5), "tea")])
    columns = {"id": [1, 2], "text": ["tea", "milk tea"], "lon": [5.5, 0.5], "lat": [5.5, 0.5]}
    engine.publish_table(pa.table({**columns, "ttl_s": [5.0, 60.0]}))
    engine.move("a", THERE)
    engine.move("near", Point(5.5, 5.5))
    clock.now += 2
    engine.move(7, Circle(0, 0, 50_000.0), time=clock.now - 1)
    box = {"west": [5], "south": [5], "east": [6], "north": [6]}
    engine.move_table(pa.table({"subscription_id": ["t1"], **box}))
    engine.replace(Subscription("over", THERE, ["milk"], ranking=Overlap(0.5, 0.2)))
    engine.subscribe(Subscription("gone", HERE, expires_at=clock.now + 1))
    clock.now += 10
    engine.subscribe(Subscription("gone", THERE), initial=False)
    engine.unsubscribe("t1")


def test_every_call_is_there_after_a_crash(tmp_path: Path) -> None:
    clock = Clock()
    engine = Engine.open(tmp_path / "e", journal=True, clock=clock, similarity="cosine")
    do_everything(engine, clock)
    before = described(engine)
    crash(engine)
    clock.now += 1000  # what was acknowledged then is not judged by the clock of now
    again = Engine.open(tmp_path / "e", journal=True, clock=clock)
    assert described(again) == before
    assert again._store.state.scorer.scoring.similarity == "cosine"
    assert again._live.present_us == engine._live.present_us
    assert waiting(again) == waiting(without_journal(clock))
    again.close()


def without_journal(clock: Clock) -> Engine:
    """Return an engine without a journal to which the same happened."""
    clock.now = Clock.now
    engine = Engine(clock=clock, similarity="cosine")
    do_everything(engine, clock)
    return engine


@pytest.mark.parametrize("seed", range(4))
def test_checkpoints_and_crashes_at_any_moment(tmp_path: Path, seed: int) -> None:
    rng, clock = random.Random(seed), Clock()
    engine, plain = Engine.open(tmp_path, journal=True, clock=clock), Engine(clock=clock)
    known: list[int] = []
    for step in range(60):
        clock.now += 1
        choice = rng.randrange(6)
        place = Rect(west := rng.randrange(5), 0, west + 2, 1)
        one = rng.choice(known) if known else None
        found: list[Any] = []
        for each in (engine, plain):
            if choice == 0 or one is None:
                each.subscribe(Subscription(step, place, "tea"), initial=step % 2 == 0)
            elif choice == 1:
                message = Message(step, (place.west + 0.5, 0.5), "tea", ttl_s=8)
                found.append(sorted(map(str, each.publish(message))))
            elif choice == 2:
                found.append(each.move(one, place))
            elif choice == 3:
                each.unsubscribe(one)
            elif choice == 4:
                found.append(each.replace(Subscription(one, place, expression="tea OR milk")))
            else:
                found.append(rows(each.advance()))
        if choice == 0 or one is None:
            known.append(step)
        elif choice == 3:
            known.remove(one)
        assert not found or found[0] == found[1]
        if rng.random() < 0.15:
            engine.checkpoint()
        if rng.random() < 0.15:
            crash(engine)
            engine = Engine.open(tmp_path, journal=True, clock=clock)
        assert described(engine) == described(plain)
    assert rows(engine.advance()) == rows(plain.advance())
    assert len([*tmp_path.glob("checkpoint-*")]) == 1
    engine.close()


def test_a_long_journal_gets_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "CHECKPOINT_BYTES", 2_000)
    engine = Engine.open(tmp_path, journal=True)
    for i in range(100):
        engine.subscribe(Subscription(i, HERE, "tea"))
    engine.close()
    assert int((tmp_path / "CURRENT").read_text()) > 0
    with Engine.open(tmp_path, journal=True) as engine:
        assert len(engine) == 100


def test_one_process_writes(tmp_path: Path) -> None:
    with (
        Engine.open(tmp_path, journal=True) as engine,
        pytest.raises(StorageError, match="is already open for writing"),
    ):
        Engine.open(tmp_path, journal=True)
    with pytest.raises(StorageError, match="journal=True"):
        Engine.open(tmp_path)
    with pytest.raises(StorageError, match="checkpoint"):
        engine.save(tmp_path)


def test_a_saved_engine_gets_a_journal(tmp_path: Path) -> None:
    engine = Engine()
    engine.subscribe(Subscription("a", HERE, "tea"))
    engine.save(tmp_path / "e")
    with Engine.open(tmp_path / "e", journal=True) as engine:
        engine.subscribe(Subscription("b", HERE, "tea"))
    with Engine.open(tmp_path / "e", journal=True) as engine:
        assert [s.id for s in engine] == ["a", "b"]


def test_what_cannot_be_noted_does_not_happen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine.open(tmp_path, journal=True)
    engine.subscribe(Subscription("a", HERE, "tea"))

    def full(size: int) -> None:
        raise StorageError("no place")

    assert engine._journal is not None
    with monkeypatch.context() as patch:
        patch.setattr(engine._journal.log, "reserve", full)
        with pytest.raises(StorageError):
            engine.subscribe(Subscription("b", HERE, "tea"))
        with pytest.raises(StorageError):
            engine.move("a", THERE)
    assert [s.to_dict() for s in engine] == [Subscription("a", HERE, "tea").to_dict()]
    engine.subscribe(Subscription("c", HERE, "tea"))
    assert len(engine) == 2
    engine.close()


def test_settings_of_another_engine_are_refused(tmp_path: Path) -> None:
    made: dict[str, Any] = {"index": "ap-tree", "options": {"leaf": 30}, "similarity": "cosine"}
    Engine.open(tmp_path, journal=True, **made).close()
    Engine.open(tmp_path, journal=True, **made).close()
    with pytest.raises(StorageError, match=r"was created with index='ap-tree', not 'rt-tree'"):
        Engine.open(tmp_path, journal=True, index="rt-tree")
    with pytest.raises(StorageError, match="was created with options="):
        Engine.open(tmp_path, journal=True, options={"leaf": 31})
    with pytest.raises(UnknownName, match="similarity"):
        Engine.open(tmp_path, journal=True, similarty="cosine")
    with pytest.raises(InvalidInput, match="leave it out to open a saved one"):
        Engine.open(tmp_path / "other", index="ap-tree")


@pytest.mark.parametrize(("weights", "other"), [("auto", "manual"), ("manual", "auto")])
def test_how_weights_are_counted_is_kept(tmp_path: Path, weights: Any, other: Any) -> None:
    Engine.open(tmp_path, journal=True, weights=weights).close()
    Engine.open(tmp_path, journal=True, weights=weights).close()
    with pytest.raises(StorageError, match=f"created with weights='{weights}', not '{other}'"):
        Engine.open(tmp_path, journal=True, weights=other)


def test_leftovers_of_killed_checkpoints_are_swept(tmp_path: Path) -> None:
    with Engine.open(tmp_path, journal=True) as engine:
        engine.subscribe(Subscription("a", HERE, "tea"))
    for name in (".checkpoint-00000000000000000009.0123456789ab.new", "checkpoint-9"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "arrays.bin").write_bytes(b"half")
    (tmp_path / ".CURRENT.0123456789ab.part").write_text("9")
    with Engine.open(tmp_path, journal=True) as engine:
        assert "a" in engine
    assert sorted(p.name.split("-")[0] for p in tmp_path.iterdir()) == [
        *("CURRENT", "checkpoint", "log")
    ]


def test_a_table_larger_than_a_segment_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine.open(tmp_path, journal=True) as engine:
        assert engine._journal is not None
        monkeypatch.setattr(engine._journal.log, "_segment_bytes", 1 << 16)
        count = 5_000
        square = {name: [i % 50 for i in range(count)] for name in ("lon", "lat", "radius_m")}
        table = pa.table({"id": [f"subscription {i}" for i in range(count)], **square})
        assert not len(engine.subscribe_table(table))
    with Engine.open(tmp_path, journal=True) as engine:
        assert len(engine) == count
