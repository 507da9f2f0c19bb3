"""Streams end when their reader may not read any more; polls return all that was asked for."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from httpx_sse import connect_sse
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from running import BERLIN, Running, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


class Reading(threading.Thread):
    """A stream in a thread of its own, until it ends."""

    def __init__(self, server: Running, key: str) -> None:
        super().__init__(daemon=True)
        self._server, self._key = server, key
        self.opened = threading.Event()

    def run(self) -> None:
        with (
            self._server.client(self._key) as client,
            client.stream("GET", "/v1/events") as answer,
        ):
            for _ in answer.iter_bytes():
                self.opened.set()


def reading(server: Running, key: str) -> Reading:
    thread = Reading(server, key)
    thread.start()
    assert thread.opened.wait(30)
    return thread


def test_a_stream_ends_when_its_key_is_revoked(server: Running) -> None:
    key = server.make_key("subscribe")
    other = reading(server, server.make_key("subscribe"))
    revoked = reading(server, key)
    with server.client() as client:
        client.delete(f"/v1/keys/{key.split('_')[1]}").raise_for_status()
    revoked.join(30)
    assert not revoked.is_alive()
    assert other.is_alive()


def test_a_stream_ends_when_its_token_expires(server: Running) -> None:
    with server.client() as client:
        body = {"subscriber": "ann", "expiresInS": 1}
        token = client.post("/v1/tokens", json=body).raise_for_status().json()["token"]
    stream = reading(server, token)
    deadline = time.monotonic() + 30
    while stream.is_alive() and time.monotonic() < deadline:
        server.loop.call_soon_threadsafe(server.app.state.context.service.feeds.beat)
        stream.join(0.1)
    assert not stream.is_alive()


def test_a_token_that_expires_ends_its_streams_at_once(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = server.app.state.context.service.feeds
    monkeypatch.setattr(feeds, "beat", lambda: None)  # nobody looks whether they may go on
    with server.client() as client:
        body = {"subscriber": "late", "expiresInS": 1}
        token = client.post("/v1/tokens", json=body).raise_for_status().json()["token"]
    address = server.url.replace("http", "ws") + f"/v1/events?access_token={token}"
    stream = reading(server, token)
    with connect(address) as websocket:
        with suppress(ConnectionClosed):
            for _ in websocket:  # what says that the token expires
                pass
        assert websocket.close_code == 1012
    stream.join(30)
    assert not stream.is_alive()


def test_a_poll_waits_no_longer_than_its_token(server: Running) -> None:
    with server.client() as client:
        body = {"subscriber": "short", "expiresInS": 1}
        token = client.post("/v1/tokens", json=body).raise_for_status().json()["token"]
    with server.client(token) as client:  # which waits for 30 s
        answer = client.get("/v1/events?poll=1&waitS=60").raise_for_status()
        assert answer.json()["events"] == []
        assert client.get("/v1/events?poll=1").status_code == 401


def test_a_poll_returns_as_many_events_as_were_asked_for(server: Running) -> None:
    key = server.make_tenant("polling")
    message = {"text": "tea", "lon": BERLIN[0], "lat": BERLIN[1]}
    with server.client(key) as client:
        client.put("/v1/subscriptions/s", json=resource("tea")).raise_for_status()
        cursor = client.get("/v1/events?poll=1&cursor=now").json()["cursor"]
        done = client.post("/v1/messages", json=[message] * 700).json()
        found: list[str] = []
        while len(found) < 700:
            path = f"/v1/events?poll=1&waitS=10&limit=600&cursor={cursor}"
            answer = client.get(path).raise_for_status().json()
            found += [event["id"] for event in answer["events"]]
            cursor = answer["cursor"]
        assert (found[0], found[-1], len({*found})) == (done["firstId"], done["lastId"], 700)
        path = f"/v1/events?poll=1&limit=600&cursor={done['firstId']}"
        assert len(client.get(path).json()["events"]) == 600


def test_a_record_may_name_its_subscriber(server: Running) -> None:
    key = server.make_tenant("importing")
    place = {"lon": BERLIN[0], "lat": BERLIN[1], "radius_m": 500}
    record = {"id": "r", "subscriber": "imp", "keywords": ["ice"], **place}
    headers = {"Content-Type": "application/x-ndjson"}
    with server.client(key) as client:
        body = json.dumps(record).encode()
        answer = client.post("/v1/subscriptions/import", content=body, headers=headers)
        assert answer.json()["accepted"] == 1
        found = client.get("/v1/subscriptions?subscriber=imp").json()["subscriptions"]
        assert [one["id"] for one in found] == ["r"]


def test_a_quiet_hour_is_a_time_of_day(server: Running) -> None:
    with server.client() as client:
        body = {"quietHours": {"from": "10pm", "to": "07:00"}}
        answer = client.put("/v1/subscribers/ann", json=body)
        assert answer.status_code == 400
        assert "must be a time of day such as 22:00" in answer.json()["detail"]


def test_a_stream_says_that_its_token_expires(server: Running) -> None:
    with server.client() as client:
        body = {"subscriber": "warned", "expiresInS": 6}
        token = client.post("/v1/tokens", json=body).raise_for_status().json()
    address = server.url.replace("http", "ws") + f"/v1/events?access_token={token['token']}"
    with (
        server.client(token["token"]) as client,
        connect_sse(client, "GET", "/v1/events") as source,
        client.stream("GET", "/v1/events", headers={"Accept": "application/x-ndjson"}) as lines,
        connect(address) as socket,
    ):
        event = next(event for event in source.iter_sse() if event.data)
        assert event.event == "expiring"
        assert event.json() == {"expiresAt": token["expiresAt"]}
        poll = client.get("/v1/events", params={"poll": 1, "cursor": event.id})
        assert poll.raise_for_status().json()["events"] == []  # its id is a cursor
        expected = {"expiring": {"expiresAt": token["expiresAt"]}}
        assert json.loads(next(line for line in lines.iter_lines() if line)) == expected
        assert json.loads(socket.recv(timeout=30)) == expected


def test_a_stream_with_a_key_does_not_expire(server: Running) -> None:
    feeds = server.app.state.context.service.feeds
    with server.client() as client, connect_sse(client, "GET", "/v1/events") as source:
        server.loop.call_soon_threadsafe(feeds.beat)
        client.post("/v1/subscriptions", json=resource("tea")).raise_for_status()
        event = next(event for event in source.iter_sse() if event.data)
        assert event.event == "subscription-started"
