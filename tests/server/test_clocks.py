"""Clocks that are set: expiry is compared with the real one, and a lead of the log is repaired."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from nearcast.server.audit import audit
from nearcast.server.log.clocks import LogClock, Stamp, Step
from nearcast.server.log.records import TICK, Change, time_of, timed
from nearcast.server.matching.postings import Position
from nearcast.server.matching.recovery import Seal
from nearcast.server.matching.retention import seq_at
from nearcast.server.service import Service
from nearcast.storage.log import Entry, Log
from running import StandingClock, resource, running_server
from test_service import definition, matched, name_of, publish, run, subscribe, take

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

START = "2026-05-01T12:00:00+00:00"
DAY_S = 86_400
JUMP_S = 400 * DAY_S
HOUR_US = 3_600_000_000


@asynccontextmanager
async def serving(folder: Path, clock: StandingClock) -> AsyncIterator[Service]:
    service = Service.open(folder, seal=Seal(40, 60), segment_bytes=8192, clock=clock)
    service.start()
    try:
        yield service
    finally:
        await service.close()


async def jump_and_return(service: Service, clock: StandingClock) -> None:
    """Let the clock be wrong for a message, 400 days ahead, and right again."""
    clock.move(JUMP_S)
    await publish(service, "from the future")
    clock.move(-JUMP_S)


def move(service: Service, clock: StandingClock, seconds: float) -> None:
    clock.move(seconds)
    with service.pipeline._changed:
        service.pipeline._changed.notify_all()


def status(service: Service, handle: int) -> str:
    found = service.state.definition_of(handle)
    assert found is not None
    return found.status


def last_time(service: Service) -> int:
    return time_of(service.log.find(service.log.last_seq))


def test_expiry_is_that_of_the_real_clock(tmp_path: Path) -> None:
    """The subscription was ended by the next message, stamped 400 days ahead."""

    async def before() -> None:
        async with serving(tmp_path, clock) as service:
            await jump_and_return(service, clock)
            handle = await subscribe(service, expires_us=clock.now_us() + HOUR_US)
            await publish(service, "one")
            await matched(service)
            assert status(service, handle) == "ACTIVE"

    async def after() -> None:
        async with serving(tmp_path, clock) as service:
            handle = await subscribe(service, "bob", expires_us=clock.now_us() + 2 * HOUR_US)
            await publish(service, "two")
            feed = await service.feed(0, "ann", Position(0))
            assert [name_of(event) for event in await take(feed, 2)] == ["one", "two"]
            feed.close()
            clock.move(3600)
            await publish(service, "three")
            await matched(service)
            assert [status(service, one) for one in (0, handle)] == ["EXPIRED", "ACTIVE"]
            assert service.events.count(service.registry.rows["channel"][0], Position(0)) == 2

    clock = StandingClock(START)
    run(before())
    run(after())
    assert audit(tmp_path).difference is None


def test_a_subscription_ends_by_itself_when_the_real_clock_says_so(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, clock) as service:
            await jump_and_return(service, clock)
            handle = await subscribe(service, expires_us=clock.now_us() + HOUR_US)
            seq = service.log.last_seq
            move(service, clock, 3600)
            while status(service, handle) == "ACTIVE":
                await asyncio.sleep(0.01)
            assert status(service, handle) == "EXPIRED"
            assert service.log.find(seq + 1).kind == TICK

    clock = StandingClock(START)
    run(work())


def living_message(id: str, ttl_s: float) -> bytes:
    message = {"id": id, "text": "tea", "lon": 1.0, "lat": 1.0, "ttl_s": ttl_s}
    return json.dumps(message, separators=(",", ":")).encode()


@pytest.mark.parametrize("repaired", [False, True])
def test_what_is_under_way_lasts_as_long_as_it_should(tmp_path: Path, repaired: bool) -> None:
    """Living messages and updates that must last, through a lead, its repair and a restart."""

    async def initial(service: Service, subscriber: str) -> int:
        """How many living messages a new subscription meets."""
        handle = await subscribe(service, subscriber, initial=True)
        await matched(service)
        return service.events.count(service.registry.rows["channel"][handle], Position(0))

    async def before() -> None:
        async with serving(tmp_path, clock) as service:
            await jump_and_return(service, clock)
            long, short = living_message("long", 3600.0), living_message("short", 60.0)
            await service.publish(0, [long, short], b"", None, b"")
            place = {"west": 20.0, "south": 0.0, "east": 30.0, "north": 9.0}
            far = definition("eve", dwell_us=600_000_000)
            await service.change(0, [Change("eve", far)])
            await service.move(0, [("eve", place)])
            await service.move(0, [("eve", {"west": 0.0, "south": 0.0, "east": 9.0, "north": 9.0})])
            if repaired:
                assert await service.repair_clock() > (JUMP_S - 60) * 1_000_000
                assert await service.repair_clock() == 0
            assert await initial(service, "ann") == 2

    async def after() -> None:
        async with serving(tmp_path, clock) as service:
            clock.move(61)
            assert await initial(service, "bob") == 1
            clock.move(3600)
            assert await initial(service, "carl") == 0
            assert (last_time(service) == clock.now_us()) == repaired

    clock = StandingClock(START)
    run(before())
    expected = [path.read_bytes() for path in sorted(tmp_path.glob("events/*.post/*"))]
    assert audit(tmp_path).difference is None
    run(after())
    assert audit(tmp_path).difference is None
    # The log alone gives the same.
    shutil.rmtree(tmp_path / "checkpoint")

    async def again() -> None:
        async with serving(tmp_path, clock) as service:
            assert service.replayed > 5

    run(again())
    report = audit(tmp_path)
    assert (report.difference, report.first_seq) == (None, 1)
    found = [path.read_bytes() for path in sorted(tmp_path.glob("events/*.post/*"))]
    assert found[: len(expected)] == expected


def test_records_have_the_real_time_after_a_repair(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, clock) as service:
            await publish(service, "zero")
            clock.move(1000)
            await jump_and_return(service, clock)
            await publish(service, "one")
            assert last_time(service) - clock.now_us() == JUMP_S * 1_000_000
            clock.move(10)
            await publish(service, "two")
            assert last_time(service) - clock.now_us() == JUMP_S * 1_000_000
            assert await service.repair_clock() == JUMP_S * 1_000_000
            repaired_us = clock.now_us()
            assert last_time(service) == repaired_us
            clock.move(10)
            await publish(service, "three")
            await matched(service)
            assert last_time(service) == clock.now_us()
            # Cursors by time, and retention, find records of before and after.
            last = service.log.last_seq
            assert service.seq_at(repaired_us + 1) == last - 1
            assert service.seq_at(clock.now_us() + 1) == last + 1
            assert service.seq_at(repaired_us - 1_005_000_000) > 1

    clock = StandingClock(START)
    run(work())

    async def after() -> None:
        async with serving(tmp_path, clock) as service:
            clock.move(5)
            await publish(service, "four")
            assert (last_time(service), service.lead_us) == (clock.now_us(), 0)

    run(after())


def test_a_log_of_before_is_ahead_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An older version has stamped its records with the wrong clock, and told nothing."""
    clock = StandingClock(START)
    with Log(tmp_path / "log", segment_bytes=8192) as log:
        log.append([timed(Entry(TICK, b"", 1), clock.now_us() + JUMP_S * 1_000_000)])
    logging.getLogger("nearcast").propagate = True

    async def work() -> None:
        async with serving(tmp_path, clock) as service:
            assert service.lead_us == JUMP_S * 1_000_000
            handle = await subscribe(service, expires_us=clock.now_us() + HOUR_US)
            await publish(service, "one")
            await matched(service)
            assert status(service, handle) == "ACTIVE"

    with caplog.at_level("WARNING", "nearcast.server"):
        run(work())
    assert "400 days, 0:00:00 ahead of the clock of this machine" in caplog.text
    assert "nearcast clock --repair" in caplog.text


def test_readiness_and_metrics_show_the_lead(tmp_path: Path) -> None:
    clock = StandingClock(START)
    with running_server(tmp_path / "data", clock=clock) as server, server.client() as client:
        assert client.get("/readyz").text == "ready\n"
        server.pass_time(JUMP_S)
        client.post("/v1/messages", json={"text": "tea", "lon": 1, "lat": 1}).raise_for_status()
        server.pass_time(-JUMP_S)
        answer = client.get("/readyz")
        assert answer.status_code == 200
        assert answer.text.startswith("ready\nthe log is 400 days, 0:00:00 ahead of the clock")
        assert (
            f"\nnearcast_log_clock_lead_seconds {JUMP_S}.0\n".replace("34560000.0", "3.456e+07")
            in client.get("/metrics").text
        )
        client.post("/v1/subscriptions", json=resource("tea")).raise_for_status()


def test_the_command_shows_and_repairs(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        far = StandingClock("2126-05-01T12:00:00+00:00").now_us()
        log.append([timed(Entry(TICK, b"", 1), far)])

    def clock(*options: str) -> str:
        command = [sys.executable, "-m", "nearcast.cli", "clock", str(tmp_path), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "ahead of this machine's clock. If the clock is right: nearcast clock" in clock()
    assert clock("--repair").startswith("Repaired: the log was ")
    assert clock() == "The last record of the log is not ahead of the clock of this machine.\n"


def test_times_of_groups() -> None:
    now = [1_000_000_000]
    minute = 60_000_000

    def stamp(at: int, *, step: bool = False) -> Stamp:
        now[0] = at
        made = clock.stamp(step=step)
        clock.keep(made)
        return made

    clock = LogClock(lambda: now[0])
    assert stamp(10 * minute) == (10 * minute, 0, 0)
    assert stamp(9 * minute) == (10 * minute, 0, 0)  # it stands still
    assert stamp(8 * minute) == (10 * minute, 2 * minute, 0)
    assert stamp(8 * minute + 5) == (10 * minute + 5, 2 * minute, 0)
    assert stamp(5 * minute) == (10 * minute + 5, 5 * minute + 5, 0)  # set back once more
    assert stamp(20 * minute) == (20 * minute, 0, 0)  # it has caught up
    assert stamp(20 * minute, step=True) == (20 * minute, 0, 0)
    assert stamp(15 * minute) == (20 * minute, 5 * minute, 0)
    assert stamp(16 * minute, step=True) == (16 * minute, 0, 4 * minute)
    assert stamp(16 * minute + 1) == (16 * minute + 1, 0, 0)


def test_what_was_not_written_was_not_told() -> None:
    clock = LogClock(lambda: 0, 120_000_000)
    assert clock.stamp() == clock.stamp() == (120_000_000, 120_000_000, 0)


def test_records_before_a_step_are_found_by_the_time_of_the_step(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=4096) as log:
        times = [10, 20, 9_000, 9_001, 9_002, 9_003, 30, 40, 50]
        log.append([timed(Entry(TICK, b"", 1), time_us) for time_us in times])
        steps = (Step(7, 30, 8_973),)
        found = [seq_at(log, time_us, 1, 9, steps) for time_us in (5, 15, 25, 30, 31, 45, 60)]
        assert found == [1, 2, 3, 3, 8, 9, 10]
