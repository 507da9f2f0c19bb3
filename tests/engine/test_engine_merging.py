"""When segments are merged, and that nothing is lost while they are."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.engine import Engine
from nearcast.engine.directory import Directory
from nearcast.engine.merging import SMALL_ROWS, Size, Worker, choose, choose_small
from nearcast.errors import DuplicateId
from nearcast.indexes import Builder
from nearcast.model import Message, Rect, Subscription

if TYPE_CHECKING:
    from nearcast.columns import Clauses, Ranked
    from nearcast.indexes import Index

HERE = Rect(0, 0, 1, 1)
sizes = st.builds(
    lambda rows, share, indexed: Size(rows, int(rows * share), indexed=indexed),
    st.integers(1, 10**6),
    st.floats(0, 1),
    st.booleans(),
)


def subscriptions(first: int, count: int) -> list[Subscription]:
    return [Subscription(i, HERE, ["tea"]) for i in range(first, first + count)]


def received(engine: Engine) -> set[Any]:
    return {m.subscription_id for m in engine.publish(Message("m", (0.5, 0.5), "tea"))}


@pytest.mark.parametrize(
    ("alive", "tier"),
    [(0, 0), (1, 0), (8191, 0), (8192, 1), (65535, 1), (65536, 2), (10**6, 3), (2**22, 4)],
)
def test_tiers_grow_by_eight(alive: int, tier: int) -> None:
    assert Size(alive + 7, dead=7).tier == tier


def test_two_of_the_lowest_full_tier_become_one() -> None:
    large, small = [Size(9000)] * 2, [Size(100)] * 3
    assert choose([*large, *small], quiet=False) == (2, 3, 4)
    assert choose(large + small[:1], quiet=False) == (0, 1)
    assert choose(large[:1] + small[:1], quiet=False) == ()


def test_the_open_buffer_is_left_alone_unless_it_is_quiet() -> None:
    crowd = [Size(100), Size(100, dead=90, open=True, indexed=False)]
    assert choose(crowd, quiet=False) == ()
    assert choose(crowd, quiet=True) == (0, 1)


def test_a_quarter_of_dead_rows_is_borne() -> None:
    assert choose([Size(1000, dead=250)], quiet=False) == ()
    assert choose([Size(1000, dead=251)], quiet=False) == (0,)


def test_writers_merge_only_what_is_small() -> None:
    assert choose_small([Size(5000)] * 2) == (0, 1)
    assert choose_small([Size(100_000)] * 2) == ()
    assert choose_small([Size(5000, dead=4000)]) == ()


def test_consolidation_spares_the_largest_unless_it_is_worth_it() -> None:
    assert choose([Size(1600), Size(50), Size(50)], quiet=True) == (1, 2)
    assert choose([Size(1600), Size(50), Size(51)], quiet=True) == (0, 1, 2)
    assert choose([Size(1000, dead=101), Size(10)], quiet=True) == (0, 1)
    assert choose([Size(1600), Size(100)], quiet=True) == ()
    assert choose([Size(1600), Size(100, dead=11)], quiet=True) == (1,)
    assert choose([Size(SMALL_ROWS, indexed=False)], quiet=True) == ()
    assert choose([Size(SMALL_ROWS + 1, indexed=False)], quiet=True) == (0,)
    assert choose([], quiet=True) == ()


@given(st.lists(sizes, max_size=8))
def test_consolidation_needs_one_step(before: list[Size]) -> None:
    chosen = choose(before, quiet=True)
    rows = sum(before[number].alive for number in chosen)
    left = [size for number, size in enumerate(before) if number not in chosen]
    merged = [Size(rows, indexed=rows > SMALL_ROWS)] if rows else []
    assert choose(left + merged, quiet=True) == ()
    assert len(left + merged) <= 2


@given(st.lists(sizes, max_size=20))
def test_merging_comes_to_an_end(left: list[Size]) -> None:
    for _ in range(60):
        chosen = choose(left, quiet=False)
        if not chosen:
            break
        rows = sum(left[number].alive for number in chosen)
        left = [size for number, size in enumerate(left) if number not in chosen]
        left += [Size(rows)] if rows else []
    assert choose(left, quiet=False) == ()


class Gate(Builder):
    """Builds indexes, but only while nobody holds the gate."""

    def __init__(self, builder: Builder) -> None:
        super().__init__(builder.index, builder.options)
        object.__setattr__(self, "waiting", threading.Event())
        object.__setattr__(self, "opened", threading.Event())

    def build(self, content: Clauses | Ranked) -> Index:
        self.waiting.set()  # type: ignore[attr-defined]
        assert self.opened.wait(60)  # type: ignore[attr-defined]
        return super().build(content)


def test_a_small_write_leaves_the_reservation_of_an_expired_id() -> None:
    """A large write takes over an expired id of the buffer while the buffer is written to."""
    clock = [0.0]
    engine = Engine(clock=lambda: clock[0])
    engine.subscribe(Subscription("late", HERE, "tea", expires_at=5.0))
    clock[0] = 9.0
    store: Any = engine._store
    builder = store.builder
    store.builder = gate = Gate(builder)
    many = [Subscription("late", HERE, "tea"), *subscriptions(0, 600)]
    writing = threading.Thread(target=engine.subscribe, args=(many,))
    writing.start()
    assert gate.waiting.wait(60)  # type: ignore[attr-defined]
    store.builder = builder
    engine.subscribe(Subscription("other", HERE, "tea"))
    with pytest.raises(DuplicateId, match="late"):
        engine.subscribe(Subscription("late", HERE, "tea"))
    engine.settle()
    engine.subscribe(Subscription("next", HERE, "tea"))
    gate.opened.set()  # type: ignore[attr-defined]
    writing.join(60)
    assert received(engine) == {*range(600), "late", "other", "next"}
    engine.unsubscribe("late")
    assert received(engine) == {*range(600), "other", "next"}
    engine.close()


def test_writes_during_a_merge_are_carried_over() -> None:
    clock = [0.0]
    engine = Engine(clock=lambda: clock[0])
    engine.subscribe(subscriptions(0, 600))
    engine.subscribe(subscriptions(1000, 600))
    engine.subscribe(Subscription("late", HERE, "tea", expires_at=5.0))
    store: Any = engine._store
    builder = store.builder
    store.builder = gate = Gate(builder)
    clock[0] = 9.0
    settling = threading.Thread(target=engine.settle)
    settling.start()
    assert gate.waiting.wait(60)  # type: ignore[attr-defined]
    store.builder = builder
    engine.unsubscribe([3, 1003])
    engine.unsubscribe(4)
    engine.subscribe([Subscription(4, HERE, "cake"), Subscription("late", HERE, "tea")])
    assert engine.move(5, Rect(2, 2, 3, 3)) == []
    expected = {*range(600), *range(1000, 1600), "late"} - {3, 1003, 4, 5}
    assert received(engine) == expected
    gate.opened.set()  # type: ignore[attr-defined]
    settling.join(60)
    assert received(engine) == expected
    assert len(engine) == 1200 - 2 + 1
    engine.unsubscribe([*range(6, 600), 4, "late", 0, 1, 2, 5])
    assert received(engine) == {*range(1000, 1600)} - {1003}
    engine.settle()
    assert received(engine) == {*range(1000, 1600)} - {1003}
    assert engine.stats().tombstones == 0
    engine.close()


def test_a_reader_keeps_its_version() -> None:
    engine = Engine()
    engine.subscribe(subscriptions(0, 5))
    state = engine._store.state
    listing = iter(engine)
    engine.unsubscribe([1, 2])
    engine.subscribe(subscriptions(7, 1))
    engine.settle()
    assert [s.id for s in listing] == [0, 1, 2, 3, 4]
    assert [np.count_nonzero(s.alive(state.version)) for s in state.segments] == [5]
    assert sorted(s.id for s in engine) == [0, 3, 4, 7]


def test_a_failure_in_the_background_is_raised_once() -> None:
    engine = Engine()
    engine.subscribe(subscriptions(0, 600))
    worker: Any = engine._store.worker
    worker._failure = MemoryError("no room")
    with pytest.raises(MemoryError, match="no room"):
        engine.unsubscribe(0)
    assert 0 in engine
    engine.unsubscribe(0)
    assert len(engine) == 599


class Task:
    """Something to merge, once."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.done = threading.Event()
        self.failure = failure

    def merge(self, quiet: bool) -> bool:
        if self.done.is_set():
            return False
        self.done.set()
        if self.failure is not None:
            raise self.failure
        return True


def test_the_worker_merges_when_it_is_woken_and_ends_when_stopped() -> None:
    task = Task()
    worker = Worker(task.merge)
    worker.wake(urgent=True)
    assert task.done.wait(60)
    worker.stop()
    worker.join()
    worker.wake(urgent=True)
    worker.raise_failure()


def test_the_worker_keeps_what_went_wrong() -> None:
    task = Task(ValueError("broken"))
    worker = Worker(task.merge)
    worker.wake(urgent=True)
    assert task.done.wait(60)
    worker.stop()
    worker.join()
    with pytest.raises(ValueError, match="broken"):
        worker.raise_failure()
    worker.raise_failure()


def test_an_engine_that_nobody_holds_ends_its_thread() -> None:
    engine = Engine()
    engine.subscribe(subscriptions(0, 600))
    engine.subscribe(subscriptions(600, 100))
    worker, gone = engine._store.worker, weakref.ref(engine)
    assert worker._thread is not None
    del engine
    gc.collect()
    worker.join()
    assert gone() is None


def test_reserved_ids_survive_the_end_of_what_they_replace() -> None:
    from nearcast.columns import Ids

    directory = Directory()
    handle = directory.reserve(Ids.of(["a", "b"]))
    directory.place(handle, 0, np.arange(2))
    again = directory.reserve(Ids.of(["a"]))
    directory.release(handle)
    assert directory.find(Ids.of(["a", "b"])).tolist() == [again[0], -1]
    assert directory.segment_of(again).tolist() == [-1]
    assert directory.reserved(again).tolist() == [True]
    directory.cancel(again)
    assert (len(directory), directory.find(Ids.of(["a"])).tolist()) == (0, [-1])


@pytest.mark.parametrize("when", ["never", "first", "between"])
@pytest.mark.parametrize("ttl_s", [0.0, 0.5])
def test_a_recording_gives_the_same_whenever_segments_are_merged(when: str, ttl_s: float) -> None:
    engine = Engine(clock=lambda: 1e9)
    engine.subscribe(Subscription("s", HERE, "tea", expires_at=40.0), time=0.0)
    engine.subscribe(subscriptions(0, 600))
    counts: list[int] = []
    for time in (10.0, 20.0, 30.0, 40.0):
        if when == "between" or (when == "first" and not counts):
            engine.settle()
        matches = engine.publish(Message(int(time), (0.5, 0.5), "tea", time=time, ttl_s=ttl_s))
        counts.append(sum(match.subscription_id == "s" for match in matches))
    assert counts == [1, 1, 1, 0]
    engine.close()


def test_what_has_expired_is_let_go_when_something_happens_by_the_clock() -> None:
    clock = [0.0]
    engine = Engine(clock=lambda: clock[0])
    engine.subscribe([Subscription(i, HERE, "tea", expires_at=5.0) for i in range(600)])
    clock[0] = 9.0
    engine.settle()
    assert engine.stats().segments == (600,)
    assert engine.publish(Message("m", (0.5, 0.5), "tea")) == []
    late = Message("late", (0.5, 0.5), "tea", time=1.0)
    assert engine.publish(late) == []
    engine.settle()
    assert engine.stats().segments == ()
    assert engine.publish(late) == []
    engine.subscribe([Subscription(i, HERE, "tea", expires_at=10.0) for i in range(600)])
    clock[0] = 11.0
    engine.advance()
    engine.settle()
    assert engine.stats().segments == ()
    engine.close()
