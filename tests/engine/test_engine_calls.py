"""What single calls give and refuse, and that a refused call changes nothing."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from nearcast import indexes
from nearcast.columns import Messages
from nearcast.engine import Engine
from nearcast.errors import (
    DuplicateId,
    InvalidInput,
    NearcastError,
    RegionError,
    StorageError,
    UnknownId,
    UnknownName,
    UnsupportedFile,
)
from nearcast.indexes.statistics import Statistics
from nearcast.model import Circle, Message, Polygon, Proximity, Rect, Subscription, Update
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HERE, THERE = Rect(0, 0, 1, 1), Rect(5, 5, 6, 6)


def update(time: float, subscription: Any, message: Any, sign: int) -> dict[str, Any]:
    """Return a boolean update as a row of a table."""
    when = datetime.fromtimestamp(time, UTC)
    names = ("time", "subscription_id", "message_id", "sign", "score")
    return dict(zip(names, (when, subscription, message, sign, None), strict=True))


def engine_with(*subscriptions: Subscription, **options: Any) -> Engine:
    engine = Engine(**options)
    engine.subscribe(subscriptions)
    return engine


def matched(engine: Engine, *messages: Message) -> list[Any]:
    return [match.subscription_id for match in engine.publish(messages)]


WRONG_CALLS: list[tuple[type[Exception], str, Callable[[Engine], object]]] = [
    (DuplicateId, "'a' is registered", lambda e: e.subscribe(Subscription("a", HERE))),
    (
        DuplicateId,
        "'a', 'b' is registered",
        lambda e: e.subscribe([Subscription(i, THERE) for i in ("n", "a", "b")]),
    ),
    (
        DuplicateId,
        "two subscriptions",
        lambda e: e.subscribe([Subscription("n", HERE), Subscription("n", THERE)]),
    ),
    (InvalidInput, "must be a Subscription", lambda e: e.subscribe(["a"])),  # type: ignore[list-item]
    (InvalidInput, "must be a Subscription", lambda e: e.subscribe(7)),  # type: ignore[arg-type]
    (InvalidInput, "keyword", lambda e: e.subscribe(Subscription("n", HERE, "😀"))),
    (UnknownId, "'x' is registered", lambda e: e.unsubscribe("x")),
    (UnknownId, "7, 8, 9 and 2 more", lambda e: e.unsubscribe([*range(7, 12), "a"])),
    (InvalidInput, "string or an integer", lambda e: e.unsubscribe(["a", 1.5])),  # type: ignore[list-item]
    (UnknownId, "'x'", lambda e: e.move("x", THERE)),
    (RegionError, "region", lambda e: e.move("a", "somewhere")),
    (InvalidInput, "time", lambda e: e.move("a", THERE, time="noon")),
    (UnknownId, "'x'", lambda e: e.get("x")),
    (InvalidInput, "id", lambda e: e.unsubscribe(1.5)),  # type: ignore[arg-type]
    (InvalidInput, "id", lambda e: e.unsubscribe(np.bool_(True))),  # type: ignore[arg-type]
    (InvalidInput, "id", lambda e: e.get(np.array(7))),  # type: ignore[arg-type]
    (InvalidInput, "must be a Message", lambda e: e.publish(["hello"])),  # type: ignore[list-item]
    (UnsupportedFile, "id", lambda e: e.subscribe_table(pa.table({"x": [1]}))),
    (UnsupportedFile, "id", lambda e: e.publish_table(pa.table({"x": [1]}))),
    (
        InvalidInput,
        "threads: must be a whole number of at least 1",
        lambda e: e.publish_table(
            pa.table({"id": [1], "text": ["tea"], "lon": [0], "lat": [0], "ttl_s": [9]}), threads=0
        ),
    ),
]


@pytest.mark.parametrize(("error", "text", "call"), WRONG_CALLS)
def test_a_refused_call_changes_nothing(
    error: type[Exception], text: str, call: Callable[[Engine], object]
) -> None:
    engine = engine_with(
        Subscription("a", HERE, "tea"), Subscription("b", HERE), clock=lambda: 50.0
    )
    engine.publish(Message("m", (5.5, 5.5), "tea", ttl_s=9.0))
    state, stats, content = engine._store.state, engine.stats(), [*engine]
    with pytest.raises(error, match=text):
        call(engine)
    after = engine.stats()
    assert after._replace(tokens=0, nbytes=0) == stats._replace(tokens=0, nbytes=0)
    assert engine._store.state is state
    assert [*engine] == content
    engine.subscribe(Subscription("n", THERE))  # no id stays reserved
    assert engine.move("a", THERE) == [Update(50.0, "a", "m", 1)]


def test_a_failed_build_gives_the_ids_back(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    many = [Subscription(i, HERE) for i in range(600)]

    def fail(*_: object) -> None:
        raise MemoryError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(indexes.get("trie-pyramid"), "build", fail)
        with pytest.raises(MemoryError):
            engine.subscribe(many)
    assert (len(engine), engine.stats().segments) == (0, ())
    engine.subscribe(many)
    assert len(engine) == 600


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownName, match="trie-pyramid"):
        Engine("btree")
    with pytest.raises(UnknownName, match="list_size"):
        Engine(options={"fanout": 3})
    assert Engine(options={"list_size": 8})._store.builder.options.list_size == 8


def test_a_closed_engine_refuses_work() -> None:
    with engine_with(Subscription("a", HERE)) as engine:
        assert "a" in engine
    for call in (engine.settle, lambda: engine.unsubscribe("a"), lambda: engine.publish([])):
        with pytest.raises(NearcastError, match="closed"):
            call()


def test_ids_come_back_as_given() -> None:
    engine = engine_with(*(Subscription(i, HERE) for i in ("2", 1, "é", -(2**63))))
    assert set(matched(engine, Message("m", (0, 0), ""))) == {"2", 1, "é", -(2**63)}
    engine.unsubscribe(np.array([1]))
    engine.unsubscribe(pa.array(["2"]))
    engine.unsubscribe(["é", "é"])
    assert [s.id for s in engine] == [-(2**63)]
    engine.unsubscribe([])
    assert repr(engine) == "Engine('trie-pyramid', 1 subscriptions)"


def test_expiry_ends_at_its_very_moment() -> None:
    clock = [0.0]
    engine = engine_with(
        Subscription("a", HERE, "tea", expires_at=10.0),
        Subscription("b", HERE, "tea"),
        clock=lambda: clock[0],
    )
    at = [Message(t, (0, 0), "tea", time=t / 1e6) for t in (9_999_999, 10_000_000)]
    assert [(m.message_id, m.subscription_id) for m in engine.publish(at)] == [
        (9_999_999, "a"),
        (9_999_999, "b"),
        (10_000_000, "b"),
    ]
    clock[0] = 9.999999
    assert "a" in engine
    clock[0] = 10.0
    assert ("a" in engine, len(engine), [s.id for s in engine]) == (False, 1, ["b"])
    with pytest.raises(UnknownId):
        engine.unsubscribe("a")
    with pytest.raises(UnknownId):
        engine.move("a", THERE)
    engine.subscribe(Subscription("a", THERE, "tea"))
    engine.settle()
    assert matched(engine, Message("m", (5, 5), "tea"), Message("n", (0, 0), "tea")) == ["a", "b"]


def test_a_message_lives_until_the_end_of_its_ttl_and_late_events_happen_now() -> None:
    engine = engine_with(Subscription("s", HERE, "tea"))
    engine.publish(Message("m", (5, 5), "tea", time=100.0, ttl_s=10.0))
    for time, heard in [(99.999999, 1), (100.0, 1), (109.999999, 1), (110.0, 0)]:
        assert len(engine.move("s", THERE, time)) == heard
        assert [u.sign for u in engine.move("s", HERE, time)] == [-1] * heard


def test_a_mover_does_not_hear_of_what_comes_after_its_expiry() -> None:
    clock = [9.0]
    engine = engine_with(Subscription("s", HERE, "tea", expires_at=10.0), clock=lambda: clock[0])
    engine.publish(Message("m", (5, 5), "tea", ttl_s=60.0))
    assert engine.move("s", THERE) == [Update(9.0, "s", "m", 1)]
    clock[0] = 10.0
    assert engine.publish(Message("n", (5, 5), "tea", ttl_s=60.0)) == []
    assert engine.advance().to_pylist() == [update(10.0, "s", "m", -1)]
    with pytest.raises(UnknownId):
        engine.move("s", HERE)


def test_updates_come_in_the_order_of_publication() -> None:
    engine = engine_with(Subscription("s", HERE, "tea"))
    for number, (place, time) in enumerate([(5, 7.0), (0, 3.0), (5, 3.0), (5, 7.0), (9, 1.0)]):
        engine.publish(Message(number, (place, place), "tea", time=time, ttl_s=99.0))
    assert engine.move("s", THERE, 8.0) == [
        Update(8.0, "s", 0, 1),
        Update(8.0, "s", 1, -1),
        Update(8.0, "s", 2, 1),
        Update(8.0, "s", 3, 1),
    ]


def test_a_mover_hears_of_words_that_nobody_knew_when_they_were_said() -> None:
    engine = Engine(clock=lambda: 5.0)
    engine.publish(Message("m", (5, 5), "Rooibos with milk", ttl_s=60.0))
    engine.subscribe(Subscription("s", HERE, expression="rooibos NOT lemon"))
    engine.subscribe(Subscription("t", HERE, expression="rooibos NOT milk"))
    assert engine.move("s", THERE) == [Update(5.0, "s", "m", 1)]
    assert engine.move("t", THERE) == []


def test_a_move_keeps_all_but_the_region() -> None:
    given = Subscription("s", Rect(170, 0, -170, 1), None, "a b OR c NOT d", "ann", 1e11)
    engine = engine_with(given, Subscription("t", HERE))
    ring = [(0, 0), (4, 0), (4, 4), (0, 4)]
    hole = [(1, 1), (2, 1), (2, 2), (1, 2)]
    lens = Polygon([[ring, hole], [[(8, 8), (9, 8), (8, 9)]]])
    for place in (lens, Circle(1, 2, 3.5), Rect(3, 4, 3, 4), Rect(170, 0, -170, 1), HERE):
        engine.move("s", place)
        now = engine.get("s")
        assert now.region == place
        assert now.clauses(str.split) == given.clauses(str.split)
        assert (now.owner, now.expires_at) == ("ann", 1e11)
    assert len(engine) == 2


def test_a_record_batch_is_a_table_and_other_things_are_not() -> None:
    engine = Engine()
    rows = {"id": [1], "west": [0], "south": [0], "east": [1], "north": [1]}
    assert len(engine.subscribe_table(pa.RecordBatch.from_pydict(rows))) == 0
    message = pa.RecordBatch.from_pydict({"id": [2], "text": ["tea"], "lon": [0], "lat": [0]})
    assert engine.publish_table(message).matches["subscription_id"].to_pylist() == [1]
    wrong: Any = rows
    with pytest.raises(InvalidInput, match="table: must be a PyArrow table"):
        engine.subscribe_table(wrong)
    with pytest.raises(InvalidInput, match="table: must be a PyArrow table"):
        engine.publish_table(wrong)


def test_live_messages_and_their_words_are_let_go() -> None:
    clock = [0.0]
    engine = Engine(clock=lambda: clock[0])
    for batch in range(40):
        clock[0] = float(batch)
        if batch == 5:
            engine.publish(Message("old", (0, 0), "keepsake", ttl_s=1000.0))
        engine.publish(
            Message(100 * batch + i, (0, 0), f"w{batch}x{i % 80} tea", ttl_s=2.0)
            for i in range(100)
        )
    live: Any = engine._live
    assert engine.stats().live_messages == 201
    assert len(live.messages.vocabulary) < 2500
    engine.subscribe(Subscription("s", THERE, ["tea", "w39x3"]))
    assert [u.message_id for u in engine.move("s", HERE)] == [3903, 3983]
    engine.subscribe(Subscription("t", THERE, "keepsake"))
    assert [u.message_id for u in engine.move("t", HERE)] == ["old"]


def test_a_recording_can_be_replayed_years_later() -> None:
    engine = engine_with(Subscription("s", HERE, "tea"))
    times = [float(t) for t in range(5000)]
    engine.publish([Message(int(t), (5, 5), "tea", time=t, ttl_s=1.5) for t in times])
    assert [u.message_id for u in engine.move("s", THERE, 4999.0)] == [4998, 4999]
    assert engine.stats().live_messages < 5000


def test_published_tables_keep_rejects_apart() -> None:
    engine = engine_with(Subscription(1, HERE, "tea"), Subscription(2, HERE, "tea"))
    table = pa.table(
        {"id": ["x", None, "y"], "text": ["tea", "tea", "TEA!"], "lon": [0, 0, 1], "lat": [1, 0, 0]}
    )
    published = engine.publish_table(table, threads=2)
    assert published.matches.schema.names == ["message_id", "subscription_id", "score"]
    assert published.matches.column("message_id").to_pylist() == ["x", "x", "y", "y"]
    assert published.matches.column("subscription_id").type == pa.int64()
    assert (published.messages, published.rejects.row.tolist()) == (2, [1])
    nothing = Engine().publish_table(table)
    assert (nothing.matches.num_rows, nothing.messages) == (0, 2)


def test_a_saved_engine_opens_as_it_was(tmp_path: Path) -> None:
    engine = engine_with(
        *(Subscription(i, HERE, "tea", owner="ann") for i in range(700)), clock=lambda: 5.0
    )
    engine.subscribe([Subscription("x", Circle(0, 0, 9.0), expression="tea OR jam")])
    engine.unsubscribe([3, 4])
    engine.publish(Message("m", (5, 5), "new tea", ttl_s=9.0))
    engine.save(tmp_path / "a")
    engine.subscribe(Subscription("after", HERE))
    opened = Engine.open(tmp_path / "a", clock=lambda: 5.0)
    assert len(opened) == 699
    assert [*opened] == [s for s in engine if s.id != "after"]
    assert len(matched(opened, Message("n", (0, 0), "tea"))) == 699
    opened.unsubscribe([5, "x"])
    opened.subscribe(Subscription(3, HERE, "new"))
    assert opened.move(3, THERE) == [Update(5.0, 3, "m", 1)]
    opened.settle()
    opened.save(tmp_path / "a")
    again = Engine.open(tmp_path / "a", verify=False)
    assert {s.id for s in again} == {*range(700)} - {4, 5}
    assert len(Engine.open(tmp_path / "a")) == 698


def test_an_empty_engine_can_be_saved(tmp_path: Path) -> None:
    Engine("scan").save(tmp_path / "a")
    opened = Engine.open(tmp_path / "a")
    assert (len(opened), repr(opened)) == (0, "Engine('scan', 0 subscriptions)")
    opened.subscribe(Subscription("a", HERE, "tea"))
    assert matched(opened, Message("m", (0, 0), "tea")) == ["a"]


def test_a_save_over_the_save_of_another_engine_is_refused(tmp_path: Path) -> None:
    engine_with(Subscription("a", HERE)).save(tmp_path / "a")
    one, other = Engine.open(tmp_path / "a"), Engine.open(tmp_path / "a")
    one.subscribe(Subscription("one", HERE))
    one.save(tmp_path / "a")
    other.subscribe(Subscription("other", HERE))
    with pytest.raises(StorageError, match="another engine has saved here since"):
        other.save(tmp_path / "a")
    other.save(tmp_path / "b")
    one.save(tmp_path / "a")
    assert {s.id for s in Engine.open(tmp_path / "a")} == {"a", "one"}


def test_leftovers_of_killed_saves_are_swept_on_opening(tmp_path: Path) -> None:
    engine_with(Subscription("a", HERE)).save(tmp_path / "a")
    left = tmp_path / ".a.0123456789ab.new"
    left.mkdir()
    (left / "arrays.bin").write_bytes(b"half")
    assert "a" in Engine.open(tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_the_tokenizer_must_be_the_same(tmp_path: Path) -> None:
    engine = engine_with(Subscription("a", HERE, "tea time"), tokenizer=str.split)
    engine.save(tmp_path / "a")
    with pytest.raises(StorageError, match=r"'builtins:str\.split', not 'words'"):
        Engine.open(tmp_path / "a", tokenizer="words")
    for opened in (
        Engine.open(tmp_path / "a"),
        Engine.open(tmp_path / "a", tokenizer="builtins:str.split"),
        Engine.open(tmp_path / "a", tokenizer=str.split),
    ):
        assert matched(opened, Message("m", (0, 0), "time for tea")) == ["a"]
        assert matched(opened, Message("m", (0, 0), "Tea time!")) == []


def test_a_tokenizer_without_a_name_must_be_given(tmp_path: Path) -> None:
    engine = engine_with(Subscription("a", HERE, "tea"), tokenizer=lambda text: text.split("/"))
    engine.save(tmp_path / "a")
    with pytest.raises(StorageError, match=r"<lambda>.*open it with tokenizer="):
        Engine.open(tmp_path / "a")
    with pytest.raises(StorageError, match="not 'words'"):
        Engine.open(tmp_path / "a", tokenizer="words")
    opened = Engine.open(tmp_path / "a", tokenizer=lambda text: text.split("/"))
    assert matched(opened, Message("m", (0, 0), "hot/tea")) == ["a"]


def test_a_tokenizer_that_is_gone_is_named(tmp_path: Path) -> None:
    engine_with(Subscription("a", HERE, "tea"), tokenizer=gone).save(tmp_path / "a")
    with pytest.raises(StorageError, match=r"nowhere:gone.*install it, or open it with"):
        Engine.open(tmp_path / "a")
    assert len(Engine.open(tmp_path / "a", tokenizer=gone)) == 1


def gone(text: str) -> list[str]:
    return text.split()


gone.__module__ = "nowhere"


def test_what_is_no_engine_is_refused(tmp_path: Path) -> None:
    from nearcast.columns import Clauses

    indexes.create("scan").build(Clauses.empty()).save(tmp_path / "index")
    for folder in (tmp_path / "index", tmp_path / "nothing"):
        with pytest.raises(StorageError):
            Engine.open(folder)
    engine_with(Subscription("a", HERE)).save(tmp_path / "a")
    content = bytearray((tmp_path / "a" / "arrays.bin").read_bytes())
    content[-1] ^= 1
    (tmp_path / "a" / "arrays.bin").write_bytes(content)
    with pytest.raises(StorageError, match="checksum"):
        Engine.open(tmp_path / "a")


@pytest.mark.parametrize("damage", ["index", "indexed", "alive", "vocabulary.slot", "segment0.row"])
def test_a_folder_that_does_not_fit_together_is_refused(tmp_path: Path, damage: str) -> None:
    from nearcast.storage import read_arrays, write_arrays

    engine_with(*(Subscription(i, HERE) for i in range(600))).save(tmp_path / "a")
    arrays, meta = read_arrays(tmp_path / "a", "engine")
    if damage == "index":
        meta["index"] = "btree"
    elif damage == "indexed":
        meta["indexed"] = [True, True]
    elif damage == "alive":
        arrays["segment0.alive"] = arrays["segment0.alive"][:-1]
    elif damage == "vocabulary.slot":
        del arrays["vocabulary.slot"]
    else:
        arrays["segment0.ids.number"] = np.zeros(600, np.int64)
    write_arrays(tmp_path / "b", "engine", arrays, meta)
    with pytest.raises(StorageError):
        Engine.open(tmp_path / "b")


@pytest.mark.parametrize(
    ("index", "option"),
    [("rt++-tree", "statistics"), ("iq-tree", "statistics"), ("ap-tree", "sample")],
)
def test_an_engine_carries_its_statistics(
    index: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saved engine opens, and merges, where the folder of its statistics is unknown."""
    monkeypatch.chdir(tmp_path)
    words = Vocabulary(["tea", "milk"])
    Statistics.count(Messages.of([[0, 1], [0]], [[0, 0]] * 2), words).save("counted")
    engine = Engine(index, options={option: "counted"})
    shutil.rmtree("counted")
    engine.subscribe([Subscription(i, HERE, ["milk", "tea"]) for i in range(700)])
    engine.settle()
    engine.save("engine")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    opened = Engine.open(tmp_path / "engine")
    opened.subscribe([Subscription(i, HERE, ["honey"]) for i in range(1000, 1600)])
    opened.settle()
    assert len(matched(opened, Message("m", (0.5, 0.5), "Tea with milk and honey"))) == 1300


def test_numpy_integers_are_ids() -> None:
    seven: Any = np.int64(7)
    engine = engine_with(Subscription(seven, HERE, "tea"), Subscription(8, HERE, "tea"))
    assert engine.get(seven).id == 7
    engine.unsubscribe(np.array([7, 8]))
    assert len(engine) == 0


def test_a_very_long_word_does_not_refuse_a_table() -> None:
    """No vocabulary holds a word above 16 MB, also not that of messages that stay alive."""
    engine = engine_with(Subscription("a", HERE, "tea"))
    texts = ["tea " + "x" * (1 << 24), "tea"]
    columns = {"id": [1, 2], "text": texts, "lon": [0.5, 0.5], "lat": [0.5, 0.5], "ttl_s": [9, 9]}
    published = engine.publish_table(pa.table(columns))
    assert published.matches["message_id"].to_pylist() == [1, 2]
    assert engine.stats().live_messages == 2


def test_the_last_moment_comes_back() -> None:
    engine = engine_with(Subscription("a", HERE, expires_at=datetime.max))
    assert engine.get("a").expires_at == datetime.max.replace(tzinfo=UTC)
    assert [subscription.id for subscription in engine] == ["a"]


def test_an_integer_id_beside_strings_keeps_its_value_when_it_moves() -> None:
    engine = Engine()
    engine.subscribe([Subscription("a", Rect(0, 0, 1, 1), ["tea"])])
    engine.subscribe([Subscription(7, Rect(0, 0, 1, 1), ["tea"])])
    engine.move(7, Rect(0, 0, 2, 2))
    engine.move("a", Rect(0, 0, 2, 2))
    assert sorted(str(subscription.id) for subscription in engine) == ["7", "a"]
    matches = engine.publish(Message("m", (2, 2), "tea"))
    assert {match.subscription_id for match in matches} == {"a", 7}


def test_mappings_and_texts_are_refused_with_a_hint() -> None:
    engine = Engine()
    with pytest.raises(InvalidInput, match=r"Subscription.from_dict reads a mapping"):
        engine.subscribe({"id": 1})  # type: ignore[dict-item]
    with pytest.raises(InvalidInput, match=r"must be a Message.* \(got 'tea'\)"):
        engine.publish("tea")  # type: ignore[arg-type]


def test_open_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="has nothing that Nearcast saved"):
        Engine.open(tmp_path / "missing")
    with pytest.raises(UnknownName, match="unknown setting 'jornal'; choose from"):
        Engine.open(tmp_path, jornal=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be created"):
        Engine.open(tmp_path / "file", journal=True)


@pytest.mark.parametrize(("first", "second"), [(7, "7"), ("7", 7), ("-8", -8), (0, "0")])
def test_tables_can_tell_ids_apart(first: Any, second: Any) -> None:
    engine = engine_with(Subscription(first, HERE, "tea"), Subscription("07", HERE, "tea"))
    for call in (
        lambda: engine.subscribe(Subscription(second, HERE, "tea")),
        lambda: engine.replace(Subscription(second, HERE, "tea"), upsert=True),
        lambda: engine.subscribe([Subscription(9, HERE), Subscription("9", HERE)]),
    ):
        with pytest.raises(DuplicateId, match="written like an id of another type"):
            call()
    columns = {"id": [second], "lon": [0.0], "lat": [0.0], "radius_m": [5.0]}
    rejects = engine.subscribe_table(pa.table(columns))
    assert (rejects.row.tolist(), rejects.field) == ([0], ("id",))
    assert "tell them apart" in rejects.reason[0]
    replaced = engine.replace_table(pa.table(columns), upsert=True)
    assert (replaced.added, replaced.replaced, replaced.rejects.row.tolist()) == (0, 0, [0])
    engine.unsubscribe(first)
    engine.subscribe(Subscription(second, HERE, "tea"))
    assert {s.id for s in engine} == {second, "07"}


def test_stats_name_the_index_of_each_kind() -> None:
    engine = Engine(index="keyword-first")
    assert engine.stats().indexes == {}
    engine.subscribe(Subscription("b", HERE, "tea"))
    assert engine.stats().indexes == {"boolean": "keyword-first"}
    near = Proximity(delta=0.5, tau=0.5, max_distance_m=10.0)
    engine.subscribe(Subscription("n", (0, 0), "tea", ranking=near))
    assert engine.stats().indexes == {"boolean": "keyword-first", "proximity": "ranked-pyramid"}
