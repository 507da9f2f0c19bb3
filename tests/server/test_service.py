"""The service in a temporary folder: publishing, changes, failures, cursors, feeds, retention."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import shutil
import threading
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from nearcast.errors import InvalidInput, NoSpace, StorageError
from nearcast.server.delivery.rendering import rfc3339
from nearcast.server.log.committer import Overloaded
from nearcast.server.log.records import (
    MESSAGES,
    Change,
    Definition,
    SinkDefinition,
    read_messages_body,
    time_of,
)
from nearcast.server.matching.pipeline import CheckpointPolicy
from nearcast.server.matching.postings import Position
from nearcast.server.matching.recovery import Seal
from nearcast.server.matching.retention import Retention
from nearcast.server.matching.segments import DamagedEvents
from nearcast.server.service import Answer, IdempotencyMismatch, Service
from nearcast.storage.log.disk import Disk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path

    from nearcast.server.delivery.feeds import Feed
    from nearcast.server.delivery.rendering import Rendered

SEAL = Seal(40, 60)


@asynccontextmanager
async def running(folder: Path, **options: Any) -> AsyncIterator[Service]:
    service = Service.open(folder, seal=SEAL, segment_bytes=8192, **options)
    service.start()
    try:
        yield service
    finally:
        await service.close()


def definition(subscriber: str = "ann", **fields: Any) -> Definition:
    row = {"keywords": ["tea"], "west": 0, "south": 0, "east": 9, "north": 9}
    box = (0.0, 0.0, 9.0, 9.0)
    return Definition(subscriber, row, box, "boolean", {}, types=("match",), **fields)


def texts(*names: str) -> list[bytes]:
    return [b'{"id":"%s","text":"tea","lon":1.0,"lat":1.0}' % name.encode() for name in names]


def living(count: int) -> list[bytes]:
    """Messages that meet what comes in the next quarter of an hour."""
    message = b'{"id":"%d","text":"tea","lon":1.0,"lat":1.0,"ttl_s":900.0}'
    return [message % n for n in range(count)]


async def publish(service: Service, *names: str, key: str | None = None) -> Answer:
    digest = b"".join(texts(*names))
    return await service.publish(0, texts(*names), b"note", key, digest)


async def subscribe(service: Service, subscriber: str = "ann", **fields: Any) -> int:
    [outcome] = await service.change(0, [Change(None, definition(subscriber, **fields))])
    assert not outcome.code
    return outcome.handle


def name_of(event: Rendered) -> str:
    name: str = json.loads(event.body)["data"]["message"]["id"]
    return name


async def matched(service: Service) -> None:
    """Return when everything that was written is matched."""
    [outcome] = await service.change(0, [Change("nobody", None)])
    assert outcome.code == "NOT_FOUND"


async def take(feed: Feed, count: int) -> list[Rendered]:
    events: list[Rendered] = []
    while len(events) < count:
        events += await feed.next()
    assert len(events) == count
    return events


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, 60)

    asyncio.run(bounded())


def published(service: Service) -> list[str]:
    """The ids of all messages in the log."""
    found = []
    for record in service.log.read(service.log.first_seq):
        if record.kind == MESSAGES:
            found += [json.loads(m)["id"] for m in read_messages_body(record).messages]
    return found


# --- publishing ----------------------------------------------------------------------------------


def test_the_same_key_twice_at_once_and_again_after_a_restart(tmp_path: Path) -> None:
    async def first() -> Answer:
        async with running(tmp_path) as service:
            answers = await asyncio.gather(
                *(publish(service, "a", "b", key="k") for _ in range(5)),
                publish(service, "c", key="other"),
                publish(service, "d"),
            )
            assert len({*answers[:5]}) == 1
            assert sorted(published(service)) == ["a", "b", "c", "d"]
            await matched(service)
            assert await publish(service, "a", "b", key="k") == answers[0]
            with pytest.raises(IdempotencyMismatch, match="another request"):
                await publish(service, "x", key="k")
            return answers[0]

    async def second(before: Answer) -> None:
        async with running(tmp_path) as service:
            assert await publish(service, "a", "b", key="k") == before
            with pytest.raises(IdempotencyMismatch, match="another request"):
                await publish(service, "x", key="k")
            assert sorted(published(service)) == ["a", "b", "c", "d"]

    before = asyncio.run(first())
    assert before.stretch is not None
    assert before.stretch.last_seq == before.stretch.first_seq + 1
    assert before.note == b"note"
    run(second(before))


def test_a_client_that_leaves_does_not_publish_twice(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as service:
            gone = asyncio.ensure_future(publish(service, "a", key="k"))
            waits = asyncio.ensure_future(publish(service, "a", key="k"))
            await asyncio.sleep(0)
            gone.cancel()
            answer = await waits
            assert await publish(service, "a", key="k") == answer
            assert published(service) == ["a"]

    run(work())


def test_another_digest_while_the_first_request_waits(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as service:
            first = asyncio.ensure_future(publish(service, "a", key="k"))
            await asyncio.sleep(0)
            with pytest.raises(IdempotencyMismatch):
                await publish(service, "b", key="k")
            await first
            assert published(service) == ["a"]

    run(work())


def test_nothing_to_publish_or_to_change(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as service:
            assert await service.publish(0, [], b"note", "k", b"") == Answer(None, b"note")
            assert await service.change(0, []) == []
            assert await service.move(0, []) == []
            assert service.log.last_seq == 0

    run(work())


def test_changes_are_answered_when_they_are_applied(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as service:
            handle = await subscribe(service, sink=SinkDefinition("https://one.example", ("s",)))
            found = service.state.definition_of(handle)
            assert found is not None
            assert found.external_id == service.registry.id_of(handle) == "sub-0"
            assert len(service.state.sinks()) == 1
            answer = await publish(service, "a")
            await matched(service)
            assert answer.stretch is not None
            assert service.events.reach(answer.stretch.first_seq) == 2  # the sink has it too
            [outcome] = await service.change(0, [Change("sub-0", None)])
            assert outcome == ("", "", handle, "sub-0", outcome.version)
            assert service.registry.find(0, "sub-0") == -1

    run(work())


# --- failures ------------------------------------------------------------------------------------


class FailingDisk(Disk):
    """A disk that can be full, and whose sync can fail."""

    full = broken = False

    def __init__(self) -> None:
        self.syncing = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def allocate(self, file: int, size: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().allocate(file, size)

    def sync(self, file: int) -> None:
        self.syncing.set()
        self.go_on.wait()
        if self.broken:
            raise OSError(errno.EIO, "Input/output error")
        super().sync(file)


def test_a_full_disk_is_told_and_publishing_works_later(tmp_path: Path) -> None:
    async def work() -> None:
        disk = FailingDisk()
        async with running(tmp_path, disk=disk) as service:
            failures: list[BaseException] = []
            service.on_failure = failures.append
            await publish(service, "a")
            disk.full = True
            large = b'{"text":"%s","lon":1.0,"lat":1.0}' % (b"x" * 9000)
            for key in (None, "k"):
                with pytest.raises(NoSpace):
                    await service.publish(0, [large], b"", key, b"d")
            with pytest.raises(NoSpace):
                await service.change(0, [Change(str(n), definition()) for n in range(200)])
            disk.full = False
            answer = await service.publish(0, [large], b"", "k", b"d")
            assert answer.stretch is not None
            assert answer.stretch.first_seq == 2
            await subscribe(service)
            assert not failures

    run(work())


def test_a_failing_sync_is_told_to_everybody_who_waits(tmp_path: Path) -> None:
    async def work() -> None:
        disk = FailingDisk()
        async with running(tmp_path, disk=disk) as service:
            failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
            service.on_failure = failed.set_result
            await publish(service, "a")
            disk.broken = True
            disk.syncing.clear()
            disk.go_on.clear()
            requests: list[Any] = [asyncio.ensure_future(publish(service, "b"))]
            await asyncio.to_thread(disk.syncing.wait)
            requests += [
                asyncio.ensure_future(publish(service, "c")),
                asyncio.ensure_future(publish(service, "d", key="k")),
                asyncio.ensure_future(service.change(0, [Change(None, definition())])),
            ]
            while not service.pipeline._committer._waiting:
                await asyncio.sleep(0)
            disk.go_on.set()
            answers = await asyncio.gather(*requests, return_exceptions=True)
            assert all(isinstance(answer, StorageError) for answer in answers), answers
            assert isinstance(await failed, StorageError)
            with pytest.raises(StorageError):
                await publish(service, "e")
            with pytest.raises(StorageError):
                await subscribe(service)
        disk.broken = False
        async with running(tmp_path) as service:
            assert published(service)[0] == "a"
            await publish(service, "f")

    run(work())


def test_a_failing_matcher_is_told_to_everybody_who_waits(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as service:
            failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
            service.on_failure = failed.set_result
            await subscribe(service)
            service.state._database.close()
            with pytest.raises(StorageError):
                await subscribe(service)
            assert isinstance(await failed, StorageError)
            with pytest.raises(StorageError):
                await subscribe(service)

    run(work())


def test_everything_acknowledged_before_a_close_is_in_the_log(tmp_path: Path) -> None:
    async def work() -> None:
        acknowledged: list[str] = []

        async def publisher(service: Service, number: int) -> None:
            for i in range(10_000):
                try:
                    await publish(service, f"{number}.{i}")
                except Overloaded:
                    return
                acknowledged.append(f"{number}.{i}")

        service = Service.open(tmp_path, seal=SEAL, segment_bytes=8192)
        service.start()
        await subscribe(service)
        publishers = [asyncio.ensure_future(publisher(service, n)) for n in range(8)]
        while len(acknowledged) < 100:
            await asyncio.sleep(0)
        await service.close()
        await asyncio.gather(*publishers)
        async with running(tmp_path) as service:
            assert sorted(published(service)) == sorted(acknowledged)
            assert service.replayed == 0
            channel = await service.channel(0, "ann")
            assert service.pending(channel, Position(0)) == len(acknowledged)

    run(work())


def test_a_crash_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """A copy of the folder of a running server is what a killed one leaves behind."""

    async def read(service: Service, count: int) -> list[Rendered]:
        feed = await service.feed(0, "ann", Position(0))
        events = await take(feed, count)
        feed.close()
        return events

    async def work() -> None:
        policy = CheckpointPolicy(changes=30)
        async with running(tmp_path / "live", policy=policy) as service:
            await subscribe(service)
            for number in range(150):
                await publish(service, str(number), key=str(number))
                await service.change(0, [Change("x", definition("bob"))])
            copy = shutil.copytree(
                tmp_path / "live", tmp_path / "copy", ignore=shutil.ignore_patterns("*.part", "e*")
            )
            expected = await read(service, 150)
        async with running(copy) as service:
            assert await read(service, 150) == expected
            await publish(service, "7", key="7")
            assert len(published(service)) == 150
            [outcome] = await service.change(0, [Change("x", None)])
            assert not outcome.code

    run(work())


# --- time ----------------------------------------------------------------------------------------


def test_time_passes_without_messages(tmp_path: Path) -> None:
    """A subscription expires although nothing else is written; far ones do no harm."""

    async def work() -> None:
        async with running(tmp_path) as service:
            far_us = 253_402_300_799 * 1_000_000
            await subscribe(service, "far", expires_us=far_us)
            feed = await service.feed(0, "ann", Position(0))
            ended = Definition(
                "ann",
                definition().row,
                definition().box,
                "boolean",
                {},
                expires_us=time_of(service.log.find(1)) + 200_000,
            )
            await service.change(0, [Change("short", ended)])
            events = await take(feed, 2)
            assert [event.type for event in events] == [
                b"subscription-started",
                b"subscription-ended",
            ]
            assert b"SUBSCRIPTION_EXPIRED" in events[1].body
            feed.close()

    run(work())


# --- cursors -------------------------------------------------------------------------------------


def test_cursors(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as service:
            await subscribe(service)
            first = await publish(service, "a", "b")
            await matched(service)
            assert first.stretch is not None
            last = service.events.last_seq
            assert service.position("now") == (Position(last), None)
            assert service.position("earliest") == (Position(0), None)
            assert service.position(first.stretch.first_id) == (Position(2, 0), None)
            assert service.position(f"{first.stretch.first_id}.3") == (Position(2, 3), None)
            time_us = time_of(service.log.find(2))
            assert service.position(rfc3339(time_us)) == (Position(1), None)
            assert service.position("2000-01-01T00:00:00Z") == (Position(0), None)
            assert service.position("2100-01-01T00:00:00Z") == (Position(last), None)
            position, gap = service.position(f"5-{first.stretch.first_seq}")
            assert position == Position(0)
            assert gap is not None
            assert gap.after == "5-2"
            for nonsense in ("", "x", "1-", "1-2.x", "-", "1-2-3", "1" * 30 + "-1"):
                with pytest.raises(InvalidInput, match="earliest"):
                    service.position(nonsense)

    run(work())


# --- feeds ---------------------------------------------------------------------------------------


def test_feeds_get_every_event_once_and_in_order(tmp_path: Path) -> None:
    """Slow ones, those that fall behind, and those that begin in the middle."""
    count = 300

    async def reader(feed: Feed, slow: int, expected: int) -> list[str]:
        names: list[str] = []
        while len(names) < expected:
            names += [name_of(event) for event in await feed.next()]
            for _ in range(slow):
                await asyncio.sleep(0)
        return names

    async def work() -> None:
        async with running(tmp_path) as service:
            await subscribe(service)
            readers = []
            for slow in (0, 0, 1, 50, 400):
                feed = await service.feed(0, "ann", Position(0))
                readers.append(asyncio.ensure_future(reader(feed, slow, count)))
            late = await service.feed(0, "ann", Position(0))
            for number in range(count // 2):
                await publish(service, str(number))
            middle = await service.feed(0, "ann", late.position)
            readers.append(asyncio.ensure_future(reader(middle, 3, count)))
            for number in range(count // 2, count):
                await publish(service, str(number))
            expected = [str(number) for number in range(count)]
            for names in await asyncio.gather(*readers):
                assert names == expected
            assert await reader(late, 0, count) == expected
            assert service.feeds.count == 7
            for feed in [*service.feeds._of_channel[late.channel]]:
                feed.close()
            assert service.feeds.count == 0

    run(work())


def test_a_feed_that_falls_behind_by_many_blocks(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as service:
            await subscribe(service)
            feed = await service.feed(0, "ann", Position(0))
            await publish(service, "first")
            assert name_of((await take(feed, 1))[0]) == "first"
            for number in range(100):  # each is a block of its own
                await publish(service, str(number))
                await matched(service)
            assert feed._behind
            events = await take(feed, 100)
            assert [name_of(event) for event in events] == [str(n) for n in range(100)]
            await publish(service, "last")
            assert name_of((await take(feed, 1))[0]) == "last"
            feed.close()

    run(work())


def test_a_feed_that_begins_in_the_middle_of_a_record(tmp_path: Path) -> None:
    """Several messages match because of one change: each is an event of the same seq."""

    async def work() -> None:
        async with running(tmp_path) as service:
            await service.publish(0, living(5), b"", None, b"")
            await subscribe(service, initial=True)
            feed = await service.feed(0, "ann", Position(0))
            events = await take(feed, 5)
            assert [name_of(event) for event in events] == ["0", "1", "2", "3", "4"]
            seq = events[0].position.seq
            assert [event.position.k for event in events] == [0, 1, 2, 3, 4]
            assert events[2].id.endswith(f"-{seq}.2")
            for k in range(5):
                position, gap = service.position(events[k].id)
                assert (position, gap) == (Position(seq, k), None)
                assert service.pending(feed.channel, position) == 4 - k
                again = await service.feed(0, "ann", position)
                rest = await take(again, 4 - k)
                assert rest == events[k + 1 :]
                again.close()
            await publish(service, "more")
            assert name_of((await take(feed, 1))[0]) == "more"
            feed.close()

    run(work())


def test_the_rest_of_a_record_that_was_trimmed(tmp_path: Path) -> None:
    """A reader amid the events of a record hears that the others are gone."""

    async def work() -> None:
        service = Service.open(tmp_path, seal=Seal(5, 1000))
        service.start()
        await service.publish(0, living(5), b"", None, b"")
        await subscribe(service, initial=True)
        feed = await service.feed(0, "ann", Position(0))
        events = await take(feed, 5)
        await publish(service, "more")
        await matched(service)
        service.events.trim(events[0].position.seq + 1)
        for k in range(5):
            position, gap = service.position(events[k].id)
            assert (position, gap) == (events[k].position, None)
            again = await service.feed(0, "ann", position)
            *gaps, last = await again.next()
            assert [json.loads(event.body)["lost"] for event in gaps] == ([4 - k] if k < 4 else [])
            assert name_of(last) == "more"
            again.close()
        feed.close()
        await service.close()

    run(work())


def test_events_are_taken_at_once(tmp_path: Path) -> None:
    """While a reader waits and is free; otherwise it is woken. Each event comes once, in order."""
    count, random = 600, Random(1)

    async def reader(feed: Feed, names: list[str], woken: list[str]) -> None:
        while True:
            events = [name_of(event) for event in await feed.next()]
            names += events
            woken += events
            for _ in range(random.choice([0, 0, 1, 20])):
                await asyncio.sleep(0)

    async def work() -> None:
        async with running(tmp_path) as service:
            await subscribe(service)
            feed = await service.feed(0, "ann", Position(0))
            names: list[str] = []
            woken: list[str] = []
            feed.is_free = lambda: random.random() < 0.7
            feed.take = lambda events: names.extend(map(name_of, events))
            reading = asyncio.ensure_future(reader(feed, names, woken))
            expected = [str(number) for number in range(count)]
            sent = 0
            while sent < count:
                together = random.choice([1, 1, 2, 30, 300])
                await publish(service, *expected[sent : sent + together])
                sent += together
                if random.random() < 0.3:
                    service.feeds.beat()
                if random.random() < 0.3:
                    await matched(service)
            while len(names) < count:
                await asyncio.sleep(0.001)
            reading.cancel()
            assert names == expected
            assert 0 < len(woken) < count
            feed.close()

    run(work())


def test_a_large_block_does_not_come_at_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as service:
            await subscribe(service)
            feed = await service.feed(0, "ann", Position(0))
            await publish(service, "first")
            await take(feed, 1)
            names = [str(number) for number in range(1000)]
            await publish(service, *names)
            read: list[str] = []
            while len(read) < 1000:
                events = await feed.next()
                assert 0 < len(events) <= 256
                read += [name_of(event) for event in events]
            assert read == names
            feed.close()

    run(work())


def test_a_cancelled_reader_misses_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as service:
            await subscribe(service)
            await publish(service, "a", "b")
            await matched(service)
            feed = await service.feed(0, "ann", Position(0))
            for _ in range(3):
                reading = asyncio.ensure_future(feed.next())
                await asyncio.sleep(0)
                service.feeds.beat()
                reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading
            assert [name_of(event) for event in await take(feed, 2)] == ["a", "b"]
            feed.close()

    run(work())


def test_feeds_beat_and_end(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as service:
            feed = await service.feed(0, "bob", Position(0))
            reading = asyncio.ensure_future(feed.next())
            await asyncio.sleep(0)
            service.feeds.beat()
            assert await reading == []
            assert not feed.ended
            reading = asyncio.ensure_future(feed.next())
            await asyncio.sleep(0)
            service.feeds.end()
            assert await reading == []
            assert feed.ended

    run(work())


@pytest.mark.parametrize("damage", ["a bit", "no file", "no checkpoints"])
def test_damaged_events_are_computed_again_in_place(
    tmp_path: Path,
    damage: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logging.getLogger("nearcast").propagate = True

    async def write() -> list[Rendered]:
        policy = CheckpointPolicy(changes=20)
        async with running(tmp_path, policy=policy) as service:
            await subscribe(service)
            for number in range(120):
                await publish(service, str(number))
            await matched(service)
            feed = await service.feed(0, "ann", Position(0))
            return await take(feed, 120)

    def break_it() -> None:
        if damage == "no file":
            path.unlink()
            return
        content = bytearray(path.read_bytes())
        content[-2] ^= 4
        path.write_bytes(content)

    async def damaged(expected: list[Rendered]) -> None:
        async with running(tmp_path) as service:
            failures: list[BaseException] = []
            service.on_failure = failures.append
            gate, rebuild = threading.Event(), service.pipeline.rebuild

            def rebuild_later(damaged: DamagedEvents) -> None:
                assert gate.wait(60)
                rebuild(damaged)

            monkeypatch.setattr(service.pipeline, "rebuild", rebuild_later)
            break_it()
            if damage == "no checkpoints":  # while it runs: the log has everything from the start
                for folder in (tmp_path / "checkpoint").iterdir():
                    shutil.rmtree(folder)
            feeds = [await service.feed(0, "ann", Position(0)) for _ in range(3)]
            for feed in feeds:
                feed.wake()  # as a poll does, which does not wait
                assert await feed.next() == []
                assert "cannot be read" in str(feed.damage)
            await publish(service, "meanwhile")
            gate.set()
            for feed in feeds:
                assert (await take(feed, 121))[:120] == expected
                assert feed.damage is None
                feed.close()
            service.events.flush()
            assert files(segment) == before
            assert not failures

    async def again(expected: list[Rendered]) -> None:
        async with running(tmp_path) as service:
            feed = await service.feed(0, "ann", Position(0))
            assert (await take(feed, 121))[:120] == expected
            feed.close()

    expected = asyncio.run(write())
    segment = sorted((tmp_path / "events").glob("*.post"))[1]
    path, before = segment / "arrays.bin", files(segment)
    with caplog.at_level("WARNING", "nearcast.server"):
        run(damaged(expected))
    assert f"{segment} is damaged, and is computed again from the log" in caplog.text
    assert "are there again" in caplog.text
    assert caplog.text.count("is computed again") == 1
    run(again(expected))


def test_events_that_cannot_be_computed_again_end_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with running(tmp_path) as service:
            failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
            service.on_failure = failed.set_result

            def rebuild(damaged: DamagedEvents) -> None:
                raise StorageError("no checkpoint is whole")

            monkeypatch.setattr(service.pipeline, "rebuild", rebuild)
            service.damaged(DamagedEvents(1, 60, "no such file"))
            text = str(await failed)
            assert "no checkpoint is whole" in text
            assert "start the server again, it computes them" in text

    run(work())


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- retention -----------------------------------------------------------------------------------


def test_retention_by_size(tmp_path: Path) -> None:
    """Log, events and checkpoints stay small; lost events are counted; restarts work."""

    async def work() -> list[str]:
        async with running(tmp_path, retention=Retention(log_bytes=60_000)) as service:
            await subscribe(service)
            await subscribe(service, "other")
            channel = await service.channel(0, "ann")
            slow = await service.feed(0, "ann", Position(0))
            names = [f"{number:04d}" for number in range(1200)]
            ids = {}
            for number, name in enumerate(names):
                answer = await publish(service, name)
                assert answer.stretch is not None
                ids[name] = answer.stretch.first_id
                if number % 60 == 0:
                    await matched(service)
                    await service.retain()
            await matched(service)
            await service.retain()
            assert service.log.first_seq > 300
            assert service.log.size_bytes < 120_000
            first = service.feeds.first_seq
            assert len(service.pipeline.checkpoints.seqs()) <= 8
            oldest = service.pipeline.checkpoints.seqs()[0]
            assert service.log.first_seq <= oldest + 1

            kept = service.pending(channel, Position(first - 1))
            position, gap = service.position(ids[names[0]].replace(names[0], ""), channel)
            assert position == Position(first - 1)
            assert gap is not None
            assert gap.lost is not None
            assert len(names) - kept - 1 <= gap.lost <= len(names) - kept
            _, gap = service.position(f"{service.log.epoch}-0", channel)
            assert gap is not None
            assert gap.lost == len(names) - kept  # exact: nothing had been read
            assert service.position("2000-01-01T00:00:00Z") == (Position(first - 1), None)

            told, *events = await take(slow, kept + 1)
            assert told.type == b"gap"
            assert json.loads(told.body)["lost"] == len(names) - kept
            assert service.position(told.id) == (Position(first - 1), None)
            assert [name_of(event) for event in events] == names[-kept:]
            slow.close()
            return names[-kept:]

    async def again(kept: list[str]) -> None:
        async with running(tmp_path) as service:
            channel = await service.channel(0, "ann")
            feed = await service.feed(0, "ann", Position(service.feeds.first_seq - 1))
            assert [name_of(event) for event in await take(feed, len(kept))] == kept
            _, gap = service.position(f"{service.log.epoch_of(1)}-0", channel)
            assert gap is not None
            assert gap.lost == 1200 - len(kept)
            await publish(service, "new")
            assert name_of((await take(feed, 1))[0]) == "new"
            feed.close()

    kept = asyncio.run(work())
    assert 0 < len(kept) < 1200
    run(again(kept))


def test_retention_by_age(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as service:
            await subscribe(service)
            for number in range(300):
                await publish(service, str(number))
            await matched(service)
            await service.retain()  # nothing is limited
            assert service.log.first_seq == 1
            service.retention = Retention(age_s=3600.0)
            await service.retain()
            assert service.log.first_seq == 1
            service.retention = Retention(age_s=1e-6)
            for _ in range(2):
                await publish(service, "more")
                await matched(service)
                await service.retain()
            assert service.log.first_seq > 150
            assert service.events.first_seq > 150

    run(work())


def test_messages_that_outlive_their_record(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path, retention=Retention(age_s=1e-6)) as service:
            living = b'{"id":"old","text":"tea","lon":1.0,"lat":1.0,"ttl_s":9000.0}'
            answer = await service.publish(0, [living], b"", None, b"")
            assert answer.stretch is not None
            for number in range(300):
                await publish(service, str(number))
            for _ in range(2):
                await matched(service)
                await service.retain()
            assert service.log.first_seq > answer.stretch.first_seq
            feed = await service.feed(0, "ann", Position(service.events.last_seq))
            await subscribe(service, initial=True)
            [event] = await take(feed, 1)
            assert json.loads(event.body)["data"]["message"] is None
            feed.close()

    run(work())
