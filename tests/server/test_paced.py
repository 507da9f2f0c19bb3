"""The paces of subscribers: what is saved of their sends, and when."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from nearcast.errors import StorageError
from nearcast.server.delivery import paced
from nearcast.server.delivery.paced import Paces
from nearcast.server.delivery.rendering import Rendered
from nearcast.server.delivery.webhooks import SystemClock
from nearcast.server.matching.postings import Position
from nearcast.server.state import PutSubscriber, RecentSends, Sqlite, State, Subscriber

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CAP: dict[str, Any] = {"cap": {"events": 2, "periodS": 3600}}
DIGEST: dict[str, Any] = {"digest": {"everyS": 1}}


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    state = State(Sqlite(tmp_path / "state.db"))
    rows = [("capped", CAP), ("free", {}), ("digest", DIGEST)]
    given = [
        PutSubscriber(1, Subscriber(0, name, channel, settings))
        for channel, (name, settings) in enumerate(rows, 1)
    ]
    state.apply(given, 1)
    yield state
    state.close()


def events(count: int) -> list[Rendered]:
    return [
        Rendered(Position(seq, 0), f"7-{seq}", b"match", b"{}", 1) for seq in range(1, count + 1)
    ]


def test_sends_are_saved_while_the_server_runs(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is killed has saved them: nothing is closed here."""
    saved = asyncio.Event()
    save_sends = state.save_sends

    def save(sends: list[RecentSends]) -> None:
        save_sends(sends)
        loop.call_soon_threadsafe(saved.set)

    monkeypatch.setattr(state, "save_sends", save)
    monkeypatch.setattr(paced, "_SAVE_S", 0.0)

    async def run() -> None:
        pace = await Paces(state, SystemClock().now_us).of(0, "capped", 1)
        assert pace.release(events(5))[0] == 2
        await saved.wait()
        after = await Paces(state, SystemClock().now_us).of(0, "capped", 1)
        assert after.release(events(5)[2:])[0] == 0
        assert after.release(events(5))[0] == 2  # these were sent before

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        runner.run(run())


def test_sends_are_saved_together_and_at_the_end(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[list[RecentSends]] = []
    monkeypatch.setattr(state, "save_sends", written.append)

    async def run() -> None:
        paces = Paces(state, SystemClock().now_us)
        pace = await paces.of(0, "capped", 1)
        pace.release(events(1))
        pace.release(events(2))
        assert written == []
        await paces.close()

    asyncio.run(run())
    [[row]] = written
    assert (row.channel, row.seq, row.k, len(row.send_times_us)) == (1, 2, 0, 2)


def test_nothing_is_saved_of_those_without_a_cap(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(state, "save_sends", fail)
    monkeypatch.setattr(state, "sends", fail)

    async def run() -> None:
        paces = Paces(state, SystemClock().now_us)
        for channel, name in ((2, "free"), (3, "digest")):
            pace = await paces.of(0, name, channel)
            assert pace.release(events(4))[0] == 4
        await paces.close()

    asyncio.run(run())


def test_sends_that_could_not_be_saved_are_saved_later(
    state: State, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    save_sends, failures = state.save_sends, [StorageError("the disk is full")]

    def save(sends: list[RecentSends]) -> None:
        if failures:
            raise failures.pop()
        save_sends(sends)

    monkeypatch.setattr(state, "save_sends", save)
    monkeypatch.setattr(paced, "_SAVE_S", 0.0)

    async def run() -> None:
        paces = Paces(state, SystemClock().now_us)
        (await paces.of(0, "capped", 1)).release(events(5))
        while failures:
            await asyncio.sleep(0)
        await paces.close()

    asyncio.run(run())
    found = state.sends(1)
    assert found is not None
    assert len(found.send_times_us) == 2
    assert "the disk is full" in caplog.text
