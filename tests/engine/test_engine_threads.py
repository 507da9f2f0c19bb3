"""Writers and readers at the same time: a write is seen as a whole or not at all."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from nearcast.engine import Engine
from nearcast.errors import DuplicateId
from nearcast.model import Message, Rect, Subscription

if TYPE_CHECKING:
    from collections.abc import Callable

LEFT, RIGHT = Rect(0, 0, 1, 1), Rect(2, 2, 3, 3)


def run_together(writers: list[Callable[[], None]], reader: Callable[[], None]) -> None:
    """Run all writers, and the reader again and again until they are done."""
    done = threading.Event()
    ready = threading.Barrier(len(writers) + 1)

    def read() -> None:
        ready.wait()
        while not done.is_set():
            reader()
        reader()

    def write(writer: Callable[[], None]) -> None:
        ready.wait()
        writer()

    with ThreadPoolExecutor(len(writers) + 1) as pool:
        reading = pool.submit(read)
        writing = [pool.submit(write, writer) for writer in writers]
        try:
            for future in writing:
                future.result()
        finally:
            done.set()
        reading.result()


@pytest.mark.parametrize("size", [2, 600])
def test_pairs_come_and_go_together(size: int) -> None:
    engine = Engine()
    rounds = 40 if size == 2 else 8

    def writer(name: str) -> Callable[[], None]:
        def write() -> None:
            for number in range(rounds):
                ids = [f"{name}-{number}-{i}" for i in range(size)]
                engine.subscribe([Subscription(i, LEFT, [f"word{number}"]) for i in ids])
                if number >= 2:
                    engine.unsubscribe([f"{name}-{number - 2}-{i}" for i in range(size)])

        return write

    def read() -> None:
        said = " ".join(f"word{number}" for number in range(rounds))
        matches = engine.publish(Message("m", (0.5, 0.5), said))
        groups: dict[str, int] = {}
        for match in matches:
            group = str(match.subscription_id).rsplit("-", 1)[0]
            groups[group] = groups.get(group, 0) + 1
        assert set(groups.values()) <= {size}
        listed = [str(s.id).rsplit("-", 1)[0] for s in engine] if size == 2 else []
        assert all(listed.count(group) == size for group in set(listed))

    run_together([writer("one"), writer("two")], read)
    engine.settle()
    assert len(engine) == 2 * 2 * size
    assert engine.stats().tombstones == 0
    engine.close()


def test_a_moving_subscription_is_always_in_one_place() -> None:
    engine = Engine()
    engine.subscribe([Subscription(i, LEFT, "tea") for i in range(70)])

    def move() -> None:
        for number in range(60):
            engine.move(7, RIGHT if number % 2 == 0 else LEFT)

    def churn() -> None:
        for number in range(20):
            engine.subscribe(Subscription(f"x{number}", Rect(9, 9, 9, 9), "tea"))
            engine.settle()

    def read() -> None:
        everywhere = engine.publish(Message("m", Rect(0, 0, 5, 5), "tea"))
        assert sorted(m.subscription_id for m in everywhere) == [*range(70)]

    run_together([move, churn], read)
    engine.close()


def test_updates_and_matches_agree_on_what_a_mover_heard() -> None:
    """Between two moves, every message is either delivered or comes with the next update."""
    engine = Engine(clock=lambda: 10.0)
    engine.subscribe(Subscription("mover", LEFT, "tea"))
    heard: set[int] = set()
    updates: list[tuple[int, int]] = []

    def move() -> None:
        for number in range(41):
            place = RIGHT if number % 2 == 0 else LEFT
            updates.extend((int(u.message_id), u.sign) for u in engine.move("mover", place))

    def publish() -> None:
        for number in range(120):
            if engine.publish(Message(number, (2.5, 2.5), "tea", time=10.0, ttl_s=5.0)):
                heard.add(number)

    run_together([move, publish], lambda: None)
    balance = {number: int(number in heard) for number in range(120)}
    for number, sign in updates:
        balance[number] += sign
    assert set(balance.values()) == {1}  # the last move went to the right


def test_only_one_of_many_gets_an_id() -> None:
    engine = Engine()
    table = pa.table(
        {
            "id": [f"s{i}" for i in range(600)],
            **{edge: [0.0] * 600 for edge in ("west", "south", "east", "north")},
        }
    )
    ready = threading.Barrier(4)

    def by_table() -> int:
        ready.wait()
        return 600 - len(engine.subscribe_table(table))

    def by_object() -> int:
        ready.wait()
        try:
            engine.subscribe([Subscription(f"s{i}", LEFT) for i in range(600)])
        except DuplicateId:
            return 0
        return 600

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(task) for task in (by_table, by_table, by_object, by_object)]
        assert sum(future.result() for future in futures) == 600
    assert len(engine) == len({s.id for s in engine}) == 600
    engine.close()
