"""Events that are no longer kept: every way to receive events says how many are lost."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from nearcast.server.matching.recovery import Seal
from nearcast.server.matching.retention import Retention
from nearcast.server.service import Service
from receiving import receiving
from running import BERLIN, Running, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

COUNT = 300
SEGMENT = 60
"""Of a segment that was read in part, lost events are counted from its beginning."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("server")

    def opens() -> Service:
        retention = Retention(age_s=1e-6)
        return Service.open(folder, seal=Seal(40, SEGMENT), segment_bytes=8192, retention=retention)

    with running_server(folder, opens, allow_sinks=("127.0.0.0/8",)) as running:
        yield running


def publish(client: httpx.Client, count: int) -> str:
    """Publish messages one by one; return the id of the last one, which is matched."""
    message = {"text": "tea", "lon": BERLIN[0], "lat": BERLIN[1]}
    for _ in range(count):
        id = client.post("/v1/messages", json=message).raise_for_status().json()["lastId"]
    while client.get(f"/v1/messages/{id}").json()["reach"] is None:
        pass
    return str(id)


def trim(server: Running, client: httpx.Client) -> None:
    """Remove what need not be kept; twice, since what was just sealed is kept once."""
    service = server.app.state.context.service
    for _ in range(2):
        publish(client, 1)
        asyncio.run_coroutine_threadsafe(service.retain(), server.loop).result(30)
    assert service.feeds.first_seq > COUNT // 2


def metric(client: httpx.Client, start: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(start))


def test_lost_events_are_counted(server: Running) -> None:
    with receiving() as receiver, server.client() as client:
        receiver.status = 500
        matches = ["org.nearcast.match"]
        client.post("/v1/subscriptions", json=resource("tea", types=matches)).raise_for_status()
        body = resource("tea", subscriber="hooked", sink=receiver.url, types=matches)
        made = client.post("/v1/subscriptions", json=body).raise_for_status().json()
        first = publish(client, 1)
        receiver.next()
        publish(client, COUNT)
        trim(server, client)
        kept = client.get("/v1/subscribers/default").json()["recorded"]
        exact = COUNT + 3 - kept - 1  # those after the first one that are gone

        polled = client.get(f"/v1/events?poll=1&cursor={first}").json()
        lost = polled["gap"]["lost"]
        assert exact <= lost < exact + SEGMENT
        assert polled["gap"]["from"] == first
        counts = client.get(f"/v1/subscribers/default?cursor={first}").json()
        assert (counts["pending"], counts["lost"]) == (kept, lost)

        headers = {"Accept": "application/x-ndjson"}
        path = f"/v1/events?cursor={first}"
        with client.stream("GET", path, headers=headers) as stream:
            lines = stream.iter_lines()
            gap = json.loads(next(lines))
            assert gap["gap"]["lost"] == lost
            events = [json.loads(next(lines)) for _ in range(kept)]
            assert len({event["id"] for event in events}) == kept
        assert metric(client, 'nearcast_events_lost_total{channel="poll"}') == lost
        assert metric(client, 'nearcast_events_lost_total{channel="ndjson"}') == lost

        receiver.status = 200
        [sink] = client.get("/v1/sinks").json()["sinks"]
        client.post(f"/v1/sinks/{sink['id']}/enable").raise_for_status()
        sent = {_id(receiver.next().body) for _ in range(kept)}
        assert sent == {event["id"] for event in events}
        assert metric(client, 'nearcast_events_lost_total{channel="webhook"}') == exact + 1
        # Its receiver ends here; the next tests count the losses of their own sinks.
        client.delete(f"/v1/subscriptions/{made['id']}").raise_for_status()
        client.delete(f"/v1/sinks/{sink['id']}").raise_for_status()


def test_a_stream_that_falls_behind_says_so(server: Running) -> None:
    """A held stream reads on after its events were trimmed."""
    with server.client() as client, server.client() as reader:
        matches = ["org.nearcast.match"]
        body = resource("tea", subscriber="slow", types=matches)
        client.post("/v1/subscriptions", json=body).raise_for_status()
        cap = {"cap": {"events": 1, "periodS": 3600}}
        client.put("/v1/subscribers/slow", json=cap).raise_for_status()
        headers = {"Accept": "application/x-ndjson"}
        path = "/v1/events?cursor=now&subscriber=slow"
        with reader.stream("GET", path, headers=headers) as stream:
            lines = stream.iter_lines()
            publish(client, 1)
            received: list[dict[str, Any]] = []
            while not received:
                with suppress(json.JSONDecodeError):
                    received.append(json.loads(next(lines)))
            publish(client, 2 * COUNT)
            trim(server, client)
            last = publish(client, 1)
            client.put("/v1/subscribers/slow", json={}).raise_for_status()
            while received[-1].get("id") != last:
                with suppress(json.JSONDecodeError):
                    received.append(json.loads(next(lines)))
    gaps = [one["gap"]["lost"] for one in received if "gap" in one]
    events = [one["id"] for one in received if "id" in one]
    assert len(set(events)) == len(events)
    assert len(gaps) == 1
    published = 1 + 2 * COUNT + 2 + 1
    assert published <= len(events) + gaps[0] < published + SEGMENT


def test_a_held_sink_counts_what_was_trimmed(server: Running) -> None:
    """recorded = delivered + pending + lost, before and after events that wait are trimmed."""
    with receiving() as receiver, server.client() as client:
        counter = 'nearcast_events_lost_total{channel="webhook"}'
        before = metric(client, counter)
        cap = {"cap": {"events": 1, "periodS": 3600}}
        client.put("/v1/subscribers/held", json=cap).raise_for_status()
        matches = ["org.nearcast.match"]
        body = resource("tea", subscriber="held", sink=receiver.url, types=matches)
        client.post("/v1/subscriptions", json=body).raise_for_status()
        publish(client, 2 * COUNT)
        ids = [_id(receiver.next().body)]
        [sink] = [s for s in client.get("/v1/sinks").json()["sinks"] if s["subscriber"] == "held"]
        while client.get(f"/v1/sinks/{sink['id']}").json()["pending"] == 2 * COUNT:
            pass  # the server has not heard of the answer yet
        assert client.get(f"/v1/sinks/{sink['id']}").json()["pending"] == 2 * COUNT - 1
        trim(server, client)
        last = publish(client, 1)
        client.put("/v1/subscribers/held", json={}).raise_for_status()
        while ids[-1] != last:
            ids.append(_id(receiver.next().body))
        assert len({*ids}) == len(ids)
        lost = metric(client, counter) - before
        published = 2 * COUNT + 2 + 1
        assert 0 < lost
        assert published <= len(ids) + lost < published + SEGMENT
        while client.get(f"/v1/sinks/{sink['id']}").json()["pending"]:
            pass
        assert receiver.waiting == 0


def _id(body: bytes) -> str:
    return str(json.loads(body)["id"])
