"""Delivery to webhooks: order, retries on a virtual clock, restarts, limits of hosts, pacing."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from cloudevents.core.bindings.http import HTTPMessage, from_structured_event
from cloudevents.core.formats.json import JSONFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook

from effort import examples
from nearcast.errors import InvalidInput
from nearcast.server.delivery.addresses import SinkNetworks
from nearcast.server.delivery.pacing import Cap, Digest, PacingSettings, QuietHours
from nearcast.server.delivery.posting import SinkClient
from nearcast.server.delivery.signing import new_secret
from nearcast.server.delivery.sinks import Sink, check_sink_headers
from nearcast.server.delivery.webhooks import SCHEDULE_S, Clock, Retries, WebhookSender
from webhook_world import (
    NOW_US,
    SECRET,
    MemoryEvents,
    VirtualClock,
    raw_receiving,
    receiving,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LOCAL = SinkNetworks.of(["127.0.0.0/8"])
EXACT = Retries(jitter=0.0)
HOUR_US = 3_600_000_000


def _sink(url: str, sink_id: str = "a", pacing: PacingSettings | None = None) -> Sink:
    return Sink(sink_id, url, (SECRET,), (0, 0), pacing=pacing or PacingSettings())


@asynccontextmanager
async def sending(
    events: MemoryEvents,
    clock: Clock | None = None,
    retries: Retries = EXACT,
    timeout_s: float = 15.0,
) -> AsyncIterator[WebhookSender]:
    client = SinkClient(LOCAL, timeout_s=timeout_s)
    sender = WebhookSender(events, client, clock=clock, retries=retries)
    try:
        yield sender
    finally:
        await sender.close(grace_s=0.0)
        await client.close()


def test_events_arrive_signed_and_in_order() -> None:
    async def run() -> None:
        events = MemoryEvents()
        async with receiving() as receiver, sending(events) as sender:
            second = new_secret()
            sink = replace(
                _sink(receiver.url), secrets=(second, SECRET), headers={"Authorization": "Bearer x"}
            )
            events.add(sink, events=150)
            sender.wake(["a"])
            await sender.settled()
            assert receiver.ids == [f"7-{seq}" for seq in range(1, 151)]
            assert events.sinks["a"].position == (150, 0)
            for path, headers, body in receiver.got[:3]:
                for secret in (second, SECRET):
                    assert Webhook(secret).verify(body, headers)["id"] == headers["webhook-id"]
                message = HTTPMessage(headers, body)
                event = from_structured_event(message, JSONFormat())
                assert event.get_id() == headers["webhook-id"]
                assert headers["content-type"] == "application/cloudevents+json"
                assert (path, headers["authorization"]) == ("/hook", "Bearer x")
            assert events.saves < 20  # not one for every event
            assert (sender.active, sender.waiting) == (0, 0)

    asyncio.run(run())


def test_the_schedule_dead_letters_and_the_end() -> None:
    async def run() -> None:
        events, clock = MemoryEvents(), VirtualClock()
        async with receiving() as receiver, sending(events, clock) as sender:
            receiver.statuses = [500] * 100
            events.add(_sink(receiver.url), events=3)
            sender.wake(["a"])
            for event in (1, 2):
                waits = []
                for _ in SCHEDULE_S:
                    assert events.sinks["a"].position == (event - 1, 0)
                    waits.append(await clock.skip())
                    await events.attempted(10 * (event - 1) + len(waits) + 1)
                    await sender.settled()
                assert waits == list(SCHEDULE_S)
                if event == 1:
                    await events.attempted(11)  # the next event is tried at once
                    await sender.settled()
            assert receiver.ids == ["7-1"] * 10 + ["7-2"] * 10
            assert events.dead_letters == [("a", "7-1", "status 500"), ("a", "7-2", "status 500")]
            assert events.disabled == {"a": "20 attempts failed; the last: status 500"}
            sender.wake(["a"])
            await sender.settled()
            assert len(receiver.got) == 20
            # Enabled, it goes on after the dead letters.
            receiver.statuses = []
            await sender.enable("a")
            await sender.settled()
            assert receiver.ids[20:] == ["7-3"]

    asyncio.run(run())


@given(st.integers(1, 30), st.floats(0, 1, exclude_max=True), st.floats(0, 2))
def test_jitter_only_makes_waits_longer(attempts: int, random: float, jitter: float) -> None:
    wait_s = Retries(jitter=jitter).wait_s(attempts, random)
    if attempts % 10 == 0:
        assert wait_s == 0
    else:
        planned = SCHEDULE_S[attempts % 10 - 1]
        assert planned <= wait_s <= planned * (1 + jitter)


@settings(max_examples=examples(25))
@given(st.lists(st.sampled_from([200, 204, 299, 300, 302, 400, 404, 429, 500, 503]), max_size=25))
def test_every_event_is_delivered_or_a_dead_letter_in_order(statuses: list[int]) -> None:
    expected, dead, delivered = [], [], []
    answers = iter(statuses)
    for seq in range(1, 7):  # three attempts an event
        for number in (1, 2, 3):
            expected.append(f"7-{seq}")
            if 200 <= next(answers, 200) < 300:
                delivered.append(f"7-{seq}")
                break
            if number == 3:
                dead.append(f"7-{seq}")

    async def run() -> None:
        events, clock = MemoryEvents(), VirtualClock()
        retries = Retries(schedule_s=(5.0, 60.0), max_dead=100)
        async with receiving() as receiver, sending(events, clock, retries) as sender:
            receiver.statuses = list(statuses)
            events.add(_sink(receiver.url), events=6)
            sender.wake(["a"])
            await sender.settled()
            while sender.waiting:
                before = len(events.attempts)
                await clock.skip()
                await events.attempted(before + 1)
                await sender.settled()
            assert receiver.ids == expected
            assert [event for _, event, _ in events.dead_letters] == dead
            accepted = [attempt.event_id for _, attempt in events.attempts if attempt.delivered]
            assert accepted == delivered
            assert events.sinks["a"].position == (6, 0)

    asyncio.run(run())


def test_410_ends_a_sink_and_disables_it_until_it_is_enabled() -> None:
    async def run() -> None:
        events = MemoryEvents()
        async with receiving() as receiver, sending(events) as sender:
            receiver.statuses = [200, 410]
            events.add(_sink(receiver.url), events=3)
            sender.wake(["a"])
            await sender.settled()
            assert events.disabled == {"a": "the receiver answered 410 Gone"}
            assert events.ended == ["a"]
            assert events.sinks["a"].position == (1, 0)
            sender.wake(["a"])
            sender.start([events.sinks["a"]])
            await sender.settled()
            assert receiver.ids == ["7-1", "7-2"]
            await sender.enable("a")
            await sender.settled()
            assert receiver.ids == ["7-1", "7-2", "7-2", "7-3"]

    asyncio.run(run())


@pytest.mark.parametrize("status", [429, 502, 503, 504])
@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("90", 90.0),
        ("1", 5.0),  # never earlier than the schedule
        ("Fri, 15 Jan 2027 08:02:00 GMT", 120.0),
        ("Fri, 15 Jan 2020 08:00:00 GMT", 5.0),
        ("999999999", 86_400.0),
        ("later", 5.0),
    ],
)
def test_retry_after(status: int, header: str, wait_s: float) -> None:
    async def run() -> None:
        events, clock = MemoryEvents(), VirtualClock()
        async with receiving() as receiver, sending(events, clock) as sender:
            receiver.statuses, receiver.headers = [status], {"Retry-After": header}
            events.add(_sink(receiver.url), events=1)
            sender.wake(["a"])
            await sender.settled()
            assert events.sinks["a"].next_try_us == NOW_US + wait_s * 1e6
            assert await clock.skip() == wait_s
            await events.attempted(2)
            await sender.settled()
            assert receiver.ids == ["7-1", "7-1"]

    asyncio.run(run())


def test_a_redirect_is_a_failure_and_is_not_followed() -> None:
    async def run() -> None:
        events, clock = MemoryEvents(), VirtualClock()
        async with receiving() as target, receiving() as receiver, sending(events, clock) as sender:
            receiver.statuses, receiver.headers = [307], {"Location": target.url}
            events.add(_sink(receiver.url), events=1)
            sender.wake(["a"])
            await sender.settled()
            assert (events.attempts[0][1].status, len(target.got)) == (307, 0)
            assert events.sinks["a"].status == "RETRYING"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", "the receiver closed the connection"),
        (b"HTTP/1.1 20", "the receiver closed the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "the receiver closed the connection"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n", "Bad"),
        (b"\x00\xff\x16\x03\r\n\r\n", "Bad"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "chunk size"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 100_000 + b"\r\n\r\n", ""),
    ],
)
def test_broken_answers_are_failures(answer: bytes, error: str) -> None:
    async def run() -> None:
        events, clock = MemoryEvents(), VirtualClock()
        async with raw_receiving(answer) as url, sending(events, clock) as sender:
            events.add(_sink(url), events=1)
            sender.wake(["a"])
            await sender.settled()
            [(_, attempt)] = events.attempts
            assert attempt.status is None
            assert attempt.error is not None
            assert error in attempt.error
            assert len(attempt.error) <= 250
            assert events.sinks["a"].attempts == 1

    asyncio.run(run())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n" + b"x" * 1_000_000,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nxxxx",
    ],
)
def test_the_status_decides_whatever_follows_it(answer: bytes) -> None:
    async def run() -> None:
        events = MemoryEvents()
        async with raw_receiving(answer) as url, sending(events) as sender:
            events.add(_sink(url), events=2)
            sender.wake(["a"])
            await sender.settled()
            assert [attempt.outcome for _, attempt in events.attempts] == [
                f"status {answer[9:12].decode()}"
            ] * 2

    asyncio.run(run())


def test_an_answer_that_never_comes_times_out() -> None:
    async def run() -> None:
        events, clock = MemoryEvents(), VirtualClock()
        async with raw_receiving() as url, sending(events, clock, timeout_s=0.2) as sender:
            events.add(_sink(url), events=1)
            sender.wake(["a"])
            await sender.settled()
            assert events.attempts[0][1].error == "no answer within 0.2 s"
            assert await clock.skip() == 5.0

    asyncio.run(run())


def test_an_answer_that_drips_ends_with_the_timeout() -> None:
    async def run() -> None:
        events = MemoryEvents()
        stopped = asyncio.Event()

        async def drip(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            try:
                while True:
                    await response.write(b"x")
                    await asyncio.sleep(0.01)
            finally:
                stopped.set()

        async with receiving() as receiver, sending(events, timeout_s=0.3) as sender:
            receiver.handler = drip
            events.add(_sink(receiver.url), events=1)
            sender.wake(["a"])
            await sender.settled()
            assert events.attempts[0][1].status == 200
            await stopped.wait()  # the connection was closed

    asyncio.run(run())


def test_a_host_gets_eight_requests_at_once_and_a_hanging_host_delays_no_other() -> None:
    async def run() -> None:
        events = MemoryEvents()
        go_on = asyncio.Event()
        full = asyncio.Event()

        async def hang(_: web.Request) -> web.StreamResponse:
            if hanging.in_flight == 8:
                full.set()
            await go_on.wait()
            return web.Response()

        async with (
            receiving("127.0.0.2") as hanging,
            receiving("127.0.0.3") as quick,
            sending(events) as sender,
        ):
            hanging.handler = hang
            slow = [events.add(_sink(hanging.url, f"slow-{n}"), events=2).id for n in range(50)]
            fast = [events.add(_sink(quick.url, f"fast-{n}"), events=2).id for n in range(50)]
            sender.wake(slow)
            await full.wait()
            sender.wake(fast)
            await events.attempted(100)
            assert {sink for sink, _ in events.attempts} == set(fast)
            assert hanging.in_flight == 8
            assert sender.active >= 50
            go_on.set()
            await sender.settled()
            assert len(hanging.got) == 100
            assert hanging.max_in_flight == 8
            assert (sender._client.slots.in_flight, sender._client.slots.waiting) == (0, 0)

    asyncio.run(run())


class _NoSave(MemoryEvents):
    """Events whose `save` never returns: the process dies before."""

    async def save(self, *_: object, **__: object) -> None:
        self.saving = True
        await asyncio.Event().wait()


def test_after_a_crash_before_the_save_the_same_id_comes_again() -> None:
    async def run() -> None:
        events = _NoSave()
        async with receiving() as receiver:
            client = SinkClient(LOCAL)
            dying = WebhookSender(events, client)
            events.add(_sink(receiver.url), events=2)
            dying.wake(["a"])
            await events.attempted(2)
            dying._workers["a"].task.cancel()
            await dying.settled()
            await client.close()

            after = MemoryEvents()
            after.sinks, after.events = events.sinks, events.events
            async with sending(after) as sender:
                sender.start([after.sinks["a"]])
                await sender.settled()
            assert receiver.ids == ["7-1", "7-2", "7-1", "7-2"]
            assert after.sinks["a"].position == (2, 0)

    asyncio.run(run())


def test_a_restart_goes_on_with_retries_at_their_time() -> None:
    async def run() -> None:
        events, clock = MemoryEvents(), VirtualClock()
        async with receiving() as receiver:
            async with sending(events, clock) as sender:
                receiver.statuses = [500, 500]
                events.add(_sink(receiver.url), events=1)
                sender.wake(["a"])
                await clock.skip()
                await events.attempted(2)
                await sender.settled()
            clock.now += 100_000_000
            async with sending(events, clock) as sender:
                sender.start([events.sinks["a"]])
                sender.wake(["a"])  # new events do not make the retry earlier
                await sender.settled()
                assert len(receiver.got) == 2
                assert await clock.skip() == 200.0
                await events.attempted(3)
                await sender.settled()
                assert events.sinks["a"].attempts == 0

    asyncio.run(run())


def test_idle_sinks_cost_nothing() -> None:
    async def run() -> None:
        events = MemoryEvents()
        async with receiving() as receiver, sending(events) as sender:
            for number in range(10_000):
                events.add(_sink(receiver.url, f"s{number}"))
            events.publish("s77")
            before = len(asyncio.all_tasks())
            sender.wake(["s77"])
            assert len(asyncio.all_tasks()) == before + 1
            await sender.settled()
            assert (sender.active, sender.waiting, events.reads) == (0, 0, 1)

    asyncio.run(run())


class _LateEvent(MemoryEvents):
    """Events of which one is published just after a read that did not find it."""

    sender: WebhookSender

    async def read(self, *arguments: object) -> list[object]:  # type: ignore[override]
        found = await super().read(*arguments)  # type: ignore[arg-type]
        if self.reads == 1:
            self.publish("a")
            self.sender.wake(["a"])
        return found  # type: ignore[return-value]


def test_an_event_that_comes_while_a_sink_ends_is_not_forgotten() -> None:
    async def run() -> None:
        events = _LateEvent()
        async with receiving() as receiver, sending(events) as sender:
            events.sender = sender
            events.add(_sink(receiver.url))
            sender.wake(["a"])
            await sender.settled()
            assert receiver.ids == ["7-1"]

    asyncio.run(run())


class _FailingOnce(MemoryEvents):
    async def read(self, *arguments: object) -> list[object]:  # type: ignore[override]
        found = await super().read(*arguments)  # type: ignore[arg-type]
        if self.reads == 1:
            raise OSError("the disk is gone")
        return found  # type: ignore[return-value]


def test_an_error_of_the_storage_is_logged_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        events, clock = _FailingOnce(), VirtualClock()
        async with receiving() as receiver, sending(events, clock) as sender:
            events.add(_sink(receiver.url), events=1)
            sender.wake(["a"])
            assert await clock.skip() == 5.0
            await events.attempted(1)
            await sender.settled()
            assert receiver.ids == ["7-1"]

    with caplog.at_level(logging.ERROR, "nearcast"):
        asyncio.run(run())
    assert "the disk is gone" in caplog.text


def test_replay_while_a_request_is_in_flight_and_new_events_come() -> None:
    async def run() -> None:
        events = MemoryEvents()
        arrived, go_on = asyncio.Event(), asyncio.Event()

        async def hold_the_third(request: web.Request) -> web.StreamResponse:
            if receiver.ids.count("7-3") == 1 and request.headers["webhook-id"] == "7-3":
                arrived.set()
                await go_on.wait()
            return web.Response()

        # The replay does not wait for an answer that never comes.
        async with receiving() as receiver, sending(events, timeout_s=3600) as sender:
            receiver.handler = hold_the_third
            events.add(_sink(receiver.url), events=3)
            sender.wake(["a"])
            await arrived.wait()
            replay = asyncio.create_task(sender.replay("a", (1, 0)))
            for _ in range(5):
                events.publish("a")
                sender.wake(["a"])
                await asyncio.sleep(0)
            async with asyncio.timeout(30):
                await replay
                await sender.settled()
            go_on.set()
            assert receiver.ids[:3] == ["7-1", "7-2", "7-3"]
            assert receiver.ids[3:] == [f"7-{seq}" for seq in range(2, 9)]
            assert events.sinks["a"].position == (8, 0)

    asyncio.run(run())


def test_the_time_of_a_retry_means_nothing_after_the_sink_was_enabled() -> None:
    async def run() -> None:
        events, clock = MemoryEvents(), VirtualClock()
        arrived, go_on = asyncio.Event(), asyncio.Event()

        async def hold_the_second(request: web.Request) -> web.StreamResponse:
            if request.path != "/a":
                return web.Response(status=500)
            if receiver.ids.count("7-1") == 1:
                return web.Response(status=500)
            arrived.set()
            await go_on.wait()
            return web.Response()

        async with receiving() as receiver, sending(events, clock) as sender:
            receiver.handler = hold_the_second
            base = receiver.url.removesuffix("hook")
            events.add(_sink(base + "a"), events=1)
            sender.wake(["a"])
            await sender.settled()
            await sender.enable("a")
            await arrived.wait()
            events.add(_sink(base + "b", "b"), events=1)
            sender.wake(["b"])
            while not sender.waiting:
                await asyncio.sleep(0)
            assert await clock.skip() == 5  # the times of both sinks have come
            await events.attempted(3)
            assert [path for path, _, _ in receiver.got] == ["/a", "/a", "/b", "/b"]
            go_on.set()

    asyncio.run(run())


def test_reload_takes_the_new_url_and_a_deleted_sink_ends() -> None:
    async def run() -> None:
        events = MemoryEvents()
        async with receiving() as old, receiving() as new, sending(events) as sender:
            old.statuses = [500]
            events.add(_sink(old.url), events=2)
            sender.wake(["a"])
            await sender.settled()
            assert sender.waiting == 1
            events.sinks["a"] = replace(events.sinks["a"], url=new.url, attempts=0)
            await sender.reload("a")
            await sender.settled()
            assert (old.ids, new.ids, sender.waiting) == (["7-1"], ["7-1", "7-2"], 0)
            del events.sinks["a"]
            await sender.reload("a")
            await sender.settled()
            assert (sender.active, sender.waiting) == (0, 0)

    asyncio.run(run())


def test_closing_lets_requests_end_and_saves_the_cursor() -> None:
    async def run() -> None:
        events = MemoryEvents()
        arrived, go_on = asyncio.Event(), asyncio.Event()

        async def hold(request: web.Request) -> web.StreamResponse:
            if request.headers["webhook-id"] == "7-2":
                arrived.set()
                await go_on.wait()
            return web.Response()

        async with receiving() as receiver, sending(events) as sender:
            receiver.handler = hold
            events.add(_sink(receiver.url), events=9)
            sender.wake(["a"])
            await arrived.wait()
            closing = asyncio.create_task(sender.close(grace_s=60))
            await asyncio.sleep(0)
            go_on.set()
            await closing
            assert receiver.ids == ["7-1", "7-2"]
            assert events.sinks["a"].position == (2, 0)

        go_on.clear()
        arrived.clear()
        async with receiving() as receiver:
            receiver.handler = hold
            events.add(replace(_sink(receiver.url), position=(0, 0)))
            async with sending(events) as sender:
                sender.wake(["a"])
                await arrived.wait()
            # The request in flight was given up; what came before it is saved.
            assert events.sinks["a"].position == (1, 0)

    asyncio.run(run())


def test_the_test_event() -> None:
    async def run() -> None:
        events = MemoryEvents()
        async with receiving() as receiver, sending(events) as sender:
            receiver.statuses = [200, 500]
            sink = events.add(_sink(receiver.url), events=1)
            assert (await sender.test(sink)).delivered
            assert (await sender.test(sink)).outcome == "status 500"
            for _, headers, body in receiver.got:
                assert Webhook(SECRET).verify(body, headers)["type"] == "org.nearcast.test"
            assert len(set(receiver.ids)) == 2
            assert events.sinks["a"] == sink  # cursor and retries are as before
            assert len(events.attempts) == 2

    asyncio.run(run())


def test_a_digest_is_one_request_with_the_events_of_a_mark() -> None:
    async def run() -> None:
        events, clock = MemoryEvents(), VirtualClock()
        pacing = PacingSettings(digest=Digest(HOUR_US, origin_us=NOW_US))
        async with receiving() as receiver, sending(events, clock) as sender:
            receiver.statuses = [500]
            events.add(_sink(receiver.url, pacing=pacing))
            for minute in (1, 30, 60, 61, 90):
                events.publish("a", NOW_US + minute * 60_000_000)
            clock.now += 60_000_000
            sender.wake(["a"])
            await sender.settled()
            sender.wake(["a"])  # a sink that waits reads nothing
            await sender.settled()
            assert (events.reads, sender.waiting) == (1, 1)
            waits = [await clock.skip()]
            await events.attempted(1)
            waits.append(await clock.skip())  # the digest failed, and comes again
            await events.attempted(2)
            waits.append(await clock.skip())
            await events.attempted(3)
            await sender.settled()
            assert waits == [59 * 60, 5, 3595]
            got = [[event["id"] for event in json.loads(body)] for _, _, body in receiver.got]
            assert got == [["7-1", "7-2", "7-3"]] * 2 + [["7-4", "7-5"]]
            assert receiver.ids == ["7-3", "7-3", "7-5"]
            types = {headers["content-type"] for _, headers, _ in receiver.got}
            assert types == {"application/cloudevents-batch+json"}

    asyncio.run(run())


def test_caps_survive_a_restart() -> None:
    async def run() -> None:
        events, clock = MemoryEvents(), VirtualClock()
        pacing = PacingSettings(caps=(Cap(2, HOUR_US),))
        async with receiving() as receiver:
            events.add(_sink(receiver.url, pacing=pacing), events=5)
            for expected in (2, 4, 5):
                async with sending(events, clock) as sender:
                    sender.start([events.sinks["a"]])
                    await events.attempted(expected)
                    await sender.settled()
                    assert len(receiver.got) == expected
                    if expected < 5:
                        assert await clock.skip() == 3600
            assert receiver.ids == [f"7-{seq}" for seq in range(1, 6)]

    asyncio.run(run())


def test_with_a_cap_each_send_is_saved_before_the_next() -> None:
    async def run() -> None:
        events = MemoryEvents()
        arrived, go_on = asyncio.Event(), asyncio.Event()

        async def hold_the_second(request: web.Request) -> web.StreamResponse:
            if request.headers["webhook-id"] == "7-2":
                arrived.set()
                await go_on.wait()
            return web.Response()

        async with receiving() as receiver, sending(events) as sender:
            receiver.handler = hold_the_second
            events.add(_sink(receiver.url, pacing=PacingSettings(caps=(Cap(9, HOUR_US),))), 2)
            sender.wake(["a"])
            await arrived.wait()
            assert len(events.sinks["a"].sent) == 1
            go_on.set()
            await sender.settled()
            assert len(events.sinks["a"].sent) == 2

    asyncio.run(run())


def test_quiet_hours_hold_events_and_retries() -> None:
    async def run() -> None:
        # It is 08:00 in UTC. Quiet from 08:00 to 09:00, then from 09:00 on nothing holds.
        events, clock = MemoryEvents(), VirtualClock()
        pacing = PacingSettings(quiet_hours=QuietHours(8 * 60, 9 * 60, "UTC"))
        async with receiving() as receiver, sending(events, clock) as sender:
            events.add(_sink(receiver.url, pacing=pacing), events=2)
            sender.wake(["a"])
            assert await clock.skip() == 3600
            await events.attempted(2)
            await sender.settled()
            assert receiver.ids == ["7-1", "7-2"]
            # A retry whose time comes in the quiet hours of the next day waits for their end.
            clock.now += 23 * HOUR_US - 2_000_000
            receiver.statuses = [500]
            events.publish("a", clock.now)
            sender.wake(["a"])
            assert await clock.skip() == 5
            assert await clock.skip() == 3597
            await events.attempted(4)
            await sender.settled()
            assert receiver.ids[2:] == ["7-3", "7-3"]

    asyncio.run(run())


@pytest.mark.parametrize(
    "headers",
    [
        {"webhook-id": "1"},
        {"Host": "a"},
        {"Content-Type": "a"},
        {"": "a"},
        {"a b": "c"},
        {"a": "b\r\nc: d"},
        {"a": "ü"},
    ],
)
def test_headers_that_a_sink_may_not_have(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="headers: must"):
        check_sink_headers(headers)
