"""Caps, digests and quiet hours, by a real server: events wait, in every channel, and none is lost.

For every subscriber and every sink, recorded = delivered + pending + lost, at each step. The clock
of the server stands still between steps.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from standardwebhooks import Webhook

from effort import repeated
from receiving import Received, Receiver, receiving
from running import BERLIN, Running, StandingClock, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

STEPS = repeated("NEARCAST_PACING_STEPS", 20, 100)
SEED = int(os.environ.get("NEARCAST_TEST_SEED", "0"))
LOCAL = ("127.0.0.0/8",)
MATCHES = ["org.nearcast.match"]
NOON = "2030-06-03T12:00:00+00:00"
MINUTE_S, HOUR_S = 60, 3600
WAIT_S = 60

CAP = {"cap": {"events": 2, "periodS": MINUTE_S}}
DIGEST = {"digest": {"everyS": HOUR_S}}
NIGHT = {"quietHours": {"from": "22:00", "to": "07:00", "timeZone": "Europe/Berlin"}}


class Reader:
    """Somebody who polls, and knows how many events there must be."""

    name = "poll"

    def __init__(self, server: Running, subscriber: str) -> None:
        self._client = server.client()
        self._subscriber = subscriber
        self._cursor = "earliest"
        self.ids: list[str] = []

    def read(self, expected: int) -> None:
        """Poll until there is nothing more; there must be this many new events."""
        before = len(self.ids)
        while self.take():
            pass
        assert len(self.ids) - before == expected

    def take(self) -> int:
        """Poll once; return how many events that gave."""
        query = f"poll=1&limit=3&cursor={self._cursor}&subscriber={self._subscriber}"
        page = self._client.get(f"/v1/events?{query}").raise_for_status().json()
        assert "gap" not in page
        self._cursor = page["cursor"]
        self.ids += [event["id"] for event in page["events"]]
        return len(page["events"])

    def check(self) -> None:
        """Check the sum of the subscriber's events."""
        path = f"/v1/subscribers/{self._subscriber}?cursor={self._cursor}"
        counts = self._client.get(path).raise_for_status().json()
        assert counts["recorded"] == len(self.ids) + counts["pending"] + counts["lost"]
        assert counts["lost"] == 0

    def close(self) -> None:
        """End."""
        self._client.close()


class Streamer:
    """A stream that stays open."""

    name = "stream"

    def __init__(self, server: Running, subscriber: str) -> None:
        self._client, self._asking = server.client(), server.client()
        self._subscriber = subscriber
        headers = {"Accept": "application/x-ndjson"}
        path = f"/v1/events?cursor=earliest&subscriber={subscriber}"
        self._stream = ExitStack()
        answer = self._stream.enter_context(self._client.stream("GET", path, headers=headers))
        self._lines = answer.iter_lines()
        self.ids: list[str] = []

    def read(self, expected: int) -> None:
        """Read this many events; the server must have sent no more."""
        while expected:
            line = next(self._lines)
            if line:
                self.ids.append(json.loads(line)["id"])
                expected -= 1
        assert metric(self._asking, 'events_delivered_total{channel="ndjson"}') == len(self.ids)

    def check(self) -> None:
        """Check the sum of the subscriber's events."""
        path = f"/v1/subscribers/{self._subscriber}?cursor={(self.ids or ['earliest'])[-1]}"
        counts = self._asking.get(path).raise_for_status().json()
        assert counts["recorded"] == len(self.ids) + counts["pending"] + counts["lost"]
        assert counts["lost"] == 0

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._client.close()
        self._asking.close()


class Hook:
    """A sink of the subscriber, and its receiver."""

    name = "webhook"

    def __init__(self, server: Running, subscriber: str, receiver: Receiver) -> None:
        self._client = server.client()
        self._subscriber, self._receiver = subscriber, receiver
        body = resource("tea", subscriber=subscriber, sink=receiver.url, types=MATCHES)
        made = self._client.put(f"/v1/subscriptions/{subscriber}", json=body).raise_for_status()
        self.secret = made.json()["sinkCredential"]["secret"]
        self.ids: list[str] = []
        self.requests: list[Received] = []

    def read(self, expected: int) -> None:
        """Take this many events from the receiver; it must have got no more."""
        target = len(self.ids) + expected
        while len(self.ids) < target:
            self.accept()
        assert len(self.ids) == target
        self.check()
        assert self._receiver.waiting == 0

    @property
    def distinct(self) -> list[str]:
        """The ids without those that came again: a request that is in flight may be given up."""
        return [*dict.fromkeys(self.ids)]

    def take(self) -> None:
        """Take what the receiver has got by now, however much that is."""
        while self._receiver.waiting:
            self.accept()

    def accept(self) -> None:
        """Take the next request, and check its signature."""
        received = self._receiver.next()
        headers = {name.lower(): value for name, value in received.headers.items()}
        # Not by `verify`, which compares the time of the request with that of the system.
        at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
        signature = Webhook(self.secret).sign(headers["webhook-id"], at, received.body.decode())
        assert headers["webhook-signature"] == signature
        found = json.loads(received.body)
        events = found if isinstance(found, list) else [found]
        self.ids += [event["id"] for event in events]
        assert headers["webhook-id"] == self.ids[-1]
        self.requests.append(received)

    def check(self) -> None:
        """Check the sum of the sink's events, when the server has heard of the last answer."""
        recorded = self._client.get(f"/v1/subscribers/{self._subscriber}").json()["recorded"]
        give_up_s = time.monotonic() + WAIT_S
        while True:
            sinks = self._client.get("/v1/sinks").raise_for_status().json()["sinks"]
            [sink] = [sink for sink in sinks if sink["subscriber"] == self._subscriber]
            assert (sink["status"], sink["failures"]) == ("ACTIVE", 0)
            if recorded == len(self.distinct) + sink["pending"]:
                return
            assert time.monotonic() < give_up_s, (recorded, len(self.ids), sink)

    def close(self) -> None:
        """End."""
        self._client.close()


Way = Reader | Streamer | Hook


def metric(client: httpx.Client, name: str) -> float:
    """Return a metric; 0 if it was not counted yet."""
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"nearcast_{name}"))


@contextmanager
def three_ways(server: Running, receiver: Receiver, subscriber: str = "ann") -> Iterator[list[Way]]:
    """Receive the events of a subscriber in three ways."""
    hook = Hook(server, subscriber, receiver)
    ways: list[Way] = [hook, Reader(server, subscriber), Streamer(server, subscriber)]
    try:
        yield ways
    finally:
        for way in ways:
            way.close()


def read(ways: list[Way], expected: int) -> None:
    """Let everybody receive this many events, and check all sums."""
    for way in ways:
        way.read(expected)
        way.check()


def publish(client: httpx.Client, count: int = 1) -> list[str]:
    """Publish messages, and return the ids of their events when those are there."""
    messages = [{"text": f"tea {n}", "lon": BERLIN[0], "lat": BERLIN[1]} for n in range(count)]
    answer = client.post("/v1/messages", json=messages).raise_for_status().json()
    while client.get(f"/v1/messages/{answer['lastId']}").json()["reach"] is None:
        pass
    epoch = answer["firstId"].split("-")[0]
    return [f"{epoch}-{seq}" for seq in range(answer["firstSeq"], answer["lastSeq"] + 1)]


def set_pace(client: httpx.Client, settings: dict[str, Any]) -> None:
    client.put("/v1/subscribers/ann", json=settings).raise_for_status()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    clock = StandingClock(NOON)
    with running_server(tmp_path, clock=clock, allow_sinks=LOCAL) as running:
        yield running


def test_a_cap_is_a_window_that_slides(server: Running, receiver: Receiver) -> None:
    with server.client() as client, three_ways(server, receiver) as ways:
        set_pace(client, CAP)
        ids = publish(client, 5)
        read(ways, 2)
        server.pass_time(MINUTE_S - 1)
        read(ways, 0)
        server.pass_time(1)
        read(ways, 2)
        ids += publish(client, 2)
        read(ways, 0)
        server.pass_time(MINUTE_S)
        read(ways, 2)
        server.pass_time(MINUTE_S / 2)
        read(ways, 0)
        server.pass_time(MINUTE_S / 2)
        read(ways, 1)
        ids += publish(client)  # one more is free in this minute
        read(ways, 1)
        assert [way.ids for way in ways] == [ids] * 3


def test_a_digest_comes_at_its_mark(server: Running, receiver: Receiver) -> None:
    with server.client() as client, three_ways(server, receiver) as ways:
        set_pace(client, DIGEST)
        server.pass_time(10 * MINUTE_S)
        ids = publish(client, 2)
        read(ways, 0)
        server.pass_time(49 * MINUTE_S)
        ids += publish(client)
        read(ways, 0)
        server.pass_time(MINUTE_S)
        read(ways, 3)
        ids += publish(client)  # the mark itself belongs to it
        read(ways, 1)
        server.pass_time(1)
        ids += publish(client)
        read(ways, 0)
        server.pass_time(HOUR_S - 1)
        read(ways, 1)
        assert [way.ids for way in ways] == [ids] * 3
        requests = ways[0].requests if isinstance(ways[0], Hook) else []
        assert [len(json.loads(request.body)) for request in requests] == [3, 1, 1]
        types = {request.headers["Content-Type"] for request in requests}
        assert types == {"application/cloudevents-batch+json"}


def test_quiet_hours_hold_until_the_morning(server: Running, receiver: Receiver) -> None:
    with server.client() as client, three_ways(server, receiver) as ways:
        set_pace(client, NIGHT)
        server.pass_time(8 * HOUR_S - 1)  # 21:59:59 in Berlin
        ids = publish(client)
        read(ways, 1)
        server.pass_time(1)
        ids += publish(client, 2)
        read(ways, 0)
        server.pass_time(9 * HOUR_S - 1)
        ids += publish(client)
        read(ways, 0)
        server.pass_time(1)
        read(ways, 3)
        ids += publish(client)
        read(ways, 1)
        assert [way.ids for way in ways] == [ids] * 3


def test_all_three_together(server: Running, receiver: Receiver) -> None:
    """A digest whose mark is in the night comes in the morning, as far as the cap allows."""
    with server.client() as client, three_ways(server, receiver) as ways:
        set_pace(client, {**CAP, **DIGEST, **NIGHT})
        server.pass_time(9.5 * HOUR_S)  # 23:30 in Berlin
        ids = publish(client, 5)
        read(ways, 0)
        server.pass_time(0.5 * HOUR_S)
        read(ways, 0)
        server.pass_time(7 * HOUR_S)
        read(ways, 2)
        server.pass_time(MINUTE_S)
        read(ways, 0)  # the next mark is at 8
        server.pass_time(HOUR_S - MINUTE_S)
        read(ways, 2)
        server.pass_time(HOUR_S)
        read(ways, 1)
        assert [way.ids for way in ways] == [ids] * 3


def test_other_settings_hold_from_then_on(server: Running, receiver: Receiver) -> None:
    with server.client() as client, three_ways(server, receiver) as ways:
        set_pace(client, DIGEST)
        server.pass_time(1)
        ids = publish(client, 4)
        read(ways, 0)
        set_pace(client, CAP)
        read(ways, 2)
        set_pace(client, {"cap": {"events": 3, "periodS": MINUTE_S}})
        read(ways, 1)
        set_pace(client, NIGHT)
        read(ways, 1)
        assert [way.ids for way in ways] == [ids] * 3


def test_what_is_held_is_held_after_a_restart(tmp_path: Path, receiver: Receiver) -> None:
    """Sinks remember what they have sent; `test_paced` is about streams and polls."""
    clock = StandingClock(NOON)
    with running_server(tmp_path, clock=clock, allow_sinks=LOCAL) as server:
        key = server.key
        hook = Hook(server, "ann", receiver)
        with server.client() as client:
            set_pace(client, {"cap": {"events": 1, "periodS": HOUR_S}})
            ids = publish(client, 3)
            hook.read(1)
        hook.close()
    for expected in (2, 3):
        with running_server(tmp_path, clock=clock, allow_sinks=LOCAL) as server:
            server = server._replace(key=key)
            hook._client = server.client()
            hook.read(0)
            server.pass_time(HOUR_S - 1)
            hook.read(0)
            server.pass_time(1)
            hook.read(1)
            assert hook.ids == ids[:expected]
            hook.close()


def test_settings_that_come_while_a_stream_opens_hold(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream has read the settings from before, and opens after they were changed."""
    state = server.app.state.context.service.state
    has_read, changed = threading.Event(), threading.Event()
    original = state.subscriber

    def read_slowly(tenant: int, name: str) -> Any:
        found = original(tenant, name)
        if not has_read.is_set():
            has_read.set()
            assert changed.wait(WAIT_S)
        return found

    with server.client() as client, ThreadPoolExecutor() as threads:
        body = resource("tea", subscriber="ann", types=MATCHES)
        client.post("/v1/subscriptions", json=body).raise_for_status()
        ids = publish(client, 3)
        monkeypatch.setattr(state, "subscriber", read_slowly)
        reader = Reader(server, "ann")
        reading = threads.submit(reader.take)
        assert has_read.wait(WAIT_S)
        set_pace(client, {"cap": {"events": 1, "periodS": MINUTE_S}})
        changed.set()
        assert reading.result(WAIT_S) == 1
        assert reader.ids == ids[:1]
        reader.check()
        reader.close()


def random_settings(rng: random.Random) -> dict[str, Any]:
    """Return some settings, or none."""
    some: dict[str, Any] = {}
    if rng.random() < 0.5:
        cap = {"events": rng.randint(1, 4), "periodS": rng.choice([30, MINUTE_S, HOUR_S])}
        some["cap"] = cap
    if rng.random() < 0.4:
        some["digest"] = {"everyS": rng.choice([MINUTE_S, 900, HOUR_S])}
    if rng.random() < 0.4:
        some["quietHours"] = {"from": "22:00", "to": "07:00", "timeZone": "Europe/Berlin"}
    return some


def test_nothing_is_dropped_whatever_is_asked_for(server: Running, receiver: Receiver) -> None:
    rng = random.Random(SEED)
    published: list[str] = []
    hook, reader = Hook(server, "ann", receiver), Reader(server, "ann")
    with server.client() as client:
        for _ in range(STEPS):
            pick = rng.random()
            if pick < 0.4:
                published += publish(client, rng.randint(1, 5))
            elif pick < 0.8:
                server.pass_time(rng.choice([1, 29, MINUTE_S, 900, HOUR_S, 5 * HOUR_S]))
            else:
                set_pace(client, random_settings(rng))
            reader.take()
            reader.check()
            hook.take()
            assert reader.ids == published[: len(reader.ids)]
            assert hook.distinct == published[: len(hook.distinct)]
        set_pace(client, {})
        reader.read(len(published) - len(reader.ids))
        while len(hook.distinct) < len(published):
            hook.accept()
        assert reader.ids == hook.distinct == published
        for way in (hook, reader):
            way.check()
            way.close()
