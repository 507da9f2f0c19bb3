"""Dwell of moving subscriptions, by a real server: what has lasted is sent, once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from receiving import Receiver, receiving
from running import BERLIN, Running, StandingClock, circle, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

PARIS = (2.35, 48.86)
DWELL_S = 60
LOCAL = ("127.0.0.0/8",)
NOON = "2030-06-03T12:00:00+00:00"


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock(NOON)


@pytest.fixture
def server(tmp_path: Path, clock: StandingClock) -> Iterator[Running]:
    with running_server(tmp_path, clock=clock, allow_sinks=LOCAL) as running:
        yield running


def subscribe(client: httpx.Client, place: tuple[float, float], **more: Any) -> None:
    """Make the subscription `ann`, somewhere."""
    body = resource("tea", types=["org.nearcast.match", "org.nearcast.unmatch"], **more)
    body["config"]["subscriptionDetail"] |= {"region": circle(*place), "dwellS": DWELL_S}
    client.put("/v1/subscriptions/ann", json=body).raise_for_status()


def publish(client: httpx.Client, id: str, place: tuple[float, float] = BERLIN) -> None:
    """Publish a message that lives, and wait until it is matched."""
    message = {"id": id, "text": "tea", "lon": place[0], "lat": place[1], "ttl_s": 86_400}
    last = client.post("/v1/messages", json=message).raise_for_status().json()["lastId"]
    while client.get(f"/v1/messages/{last}").json()["reach"] is None:
        pass


def move(client: httpx.Client, place: tuple[float, float]) -> None:
    line = json.dumps({"subscriptionId": "ann", "region": circle(*place)})
    headers = {"Content-Type": "application/x-ndjson"}
    answer = client.post("/v1/moves", content=line, headers=headers).raise_for_status()
    assert answer.json()["moved"] == 1


def events(client: httpx.Client) -> list[tuple[str, int]]:
    """Return the messages that events are about, and whether a match begins (1) or ends (-1).

    Everything that had to happen before has happened: a record is written and matched first.
    """
    publish(client, "elsewhere", (0.0, 0.0))
    page = client.get("/v1/events?poll=1&cursor=earliest&limit=1000").raise_for_status().json()
    ids = [event["id"] for event in page["events"]]
    assert len(set(ids)) == len(ids)
    return [
        (event["data"]["message"]["id"], match["sign"])
        for event in page["events"]
        for match in event["data"]["matches"]
    ]


def test_an_update_is_sent_when_it_has_lasted(server: Running) -> None:
    with server.client() as client:
        subscribe(client, PARIS)
        publish(client, "m")
        move(client, BERLIN)
        assert events(client) == []
        server.pass_time(DWELL_S - 1)
        assert events(client) == []
        server.pass_time(1)
        assert events(client) == [("m", 1)]
        move(client, PARIS)
        server.pass_time(DWELL_S - 1)
        assert events(client) == [("m", 1)]
        server.pass_time(1)
        assert events(client) == [("m", 1), ("m", -1)]
        server.pass_time(10 * DWELL_S)
        assert events(client) == [("m", 1), ("m", -1)]


def test_time_passes_by_itself(server: Running) -> None:
    """Nothing is published when the time has come, and the event is sent all the same."""
    with server.client() as client:
        subscribe(client, PARIS)
        publish(client, "m")
        move(client, BERLIN)
        server.pass_time(DWELL_S)
        page = client.get("/v1/events?poll=1&cursor=earliest&waitS=30").raise_for_status().json()
        assert [event["data"]["message"]["id"] for event in page["events"]] == ["m"]


def test_an_update_that_is_undone_is_not_sent(server: Running) -> None:
    with server.client() as client:
        subscribe(client, PARIS)
        publish(client, "m")
        for _ in range(3):
            move(client, BERLIN)
            server.pass_time(DWELL_S / 2)
            move(client, PARIS)
            server.pass_time(DWELL_S / 2)
        server.pass_time(2 * DWELL_S)
        assert events(client) == []
        move(client, BERLIN)
        server.pass_time(DWELL_S)
        assert events(client) == [("m", 1)]
        move(client, PARIS)
        server.pass_time(DWELL_S - 1)
        move(client, BERLIN)
        server.pass_time(2 * DWELL_S)
        assert events(client) == [("m", 1)]


def test_who_stays_is_not_asked_to_wait_again(server: Running) -> None:
    """Moves inside of the region change nothing; a new message that matches is sent at once."""
    with server.client() as client:
        subscribe(client, PARIS)
        publish(client, "first")
        move(client, BERLIN)
        server.pass_time(DWELL_S / 2)
        move(client, (BERLIN[0] + 0.001, BERLIN[1]))
        publish(client, "second")
        assert events(client) == [("second", 1)]
        server.pass_time(DWELL_S / 2)
        assert events(client) == [("second", 1), ("first", 1)]


def test_a_pause_ends_the_wait(server: Running) -> None:
    with server.client() as client:
        subscribe(client, PARIS)
        publish(client, "m")
        move(client, BERLIN)
        pause = {"status": "INACTIVE"}
        client.patch("/v1/subscriptions/ann", json=pause).raise_for_status()
        server.pass_time(2 * DWELL_S)
        assert events(client) == []


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


def test_a_restart_in_between_repeats_nothing(
    tmp_path: Path, clock: StandingClock, receiver: Receiver
) -> None:
    """A match that waits, one that was undone and one that was sent: each through restarts."""
    with running_server(tmp_path, clock=clock, allow_sinks=LOCAL) as server:
        key = server.key
        with server.client() as client:
            subscribe(client, PARIS, sink=receiver.url)
            publish(client, "m")
            move(client, BERLIN)
    steps: list[tuple[float, tuple[float, float] | None, int]] = [
        (DWELL_S / 2, None, 0),
        (DWELL_S / 2, None, 1),
        (DWELL_S, PARIS, 1),
        (DWELL_S / 2, BERLIN, 1),
        (2 * DWELL_S, PARIS, 1),
        (DWELL_S, None, 2),
        (2 * DWELL_S, None, 2),
    ]
    expected = [("m", 1), ("m", -1)]
    for seconds, place, count in steps:
        with running_server(tmp_path, clock=clock, allow_sinks=LOCAL) as server:
            server.pass_time(seconds)
            with server.client(key) as client:
                assert events(client) == expected[:count]
                if place is not None:
                    move(client, place)
    sent = [json.loads(receiver.next().body) for _ in range(2)]
    assert receiver.waiting == 0
    assert [
        (event["data"]["message"]["id"], match["sign"])
        for event in sent
        for match in event["data"]["matches"]
    ] == expected
