"""Delivery settings and cursors of subscribers, by requests to a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from cloudevents.core.formats.json import JSONFormat
from httpx_sse import connect_sse
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from running import BERLIN, Running, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

HOUR_S = 3600


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


def publish(client: httpx.Client, count: int) -> list[str]:
    """Publish messages and return the ids of their events."""
    messages = [{"text": f"tea {n}", "lon": BERLIN[0], "lat": BERLIN[1]} for n in range(count)]
    answer = client.post("/v1/messages", json=messages).raise_for_status().json()
    epoch = answer["firstId"].split("-")[0]
    return [f"{epoch}-{seq}" for seq in range(answer["firstSeq"], answer["lastSeq"] + 1)]


def poll(client: httpx.Client, cursor: str, subscriber: str, wait_s: int = 0) -> dict[str, Any]:
    path = f"/v1/events?poll=1&waitS={wait_s}&cursor={cursor}&subscriber={subscriber}"
    answer: dict[str, Any] = client.get(path).raise_for_status().json()
    return answer


def subscribe(client: httpx.Client, subscriber: str) -> None:
    """Make a subscription of a subscriber, who only wants matches."""
    body = resource("tea", subscriber=subscriber, types=["org.nearcast.match"])
    client.post("/v1/subscriptions", json=body).raise_for_status()


ROUTES: list[tuple[str, str, Any]] = [
    ("GET", "/v1/subscribers/ann", None),
    ("PUT", "/v1/subscribers/ann", {}),
    ("GET", "/v1/cursors/phone", None),
    ("PUT", "/v1/cursors/phone", {"cursor": "now"}),
]


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
def test_the_routes_need_the_role(server: Running, method: str, path: str, body: Any) -> None:
    with server.client("") as nobody:
        assert nobody.request(method, path, json=body).status_code == 401
    with server.client(server.make_key("publish")) as client:
        assert client.request(method, path, json=body).status_code == 403
    with server.client(server.make_key("subscribe", subscriber="bob")) as bob:
        path = f"{path}?subscriber=ann" if "cursors" in path else path
        assert bob.request(method, path, json=body).status_code == 403


def test_a_cursor_is_kept(server: Running) -> None:
    other = server.make_tenant("cursors")
    with server.client() as client, server.client(other) as stranger:
        assert client.get("/v1/cursors/kept").status_code == 404
        subscribe(client, "default")
        first, second, third = publish(client, 3)
        saved = client.put("/v1/cursors/kept", json={"cursor": first})
        assert saved.status_code == 200
        assert client.get("/v1/cursors/kept").json() == saved.json()
        assert saved.json()["cursor"] == first
        events = poll(client, "@kept", "default", wait_s=10)["events"]
        assert [event["id"] for event in events] == [second, third]
        hidden, missing = stranger.get("/v1/cursors/kept"), stranger.get("/v1/cursors/none")
        assert hidden.status_code == missing.status_code == 404
        assert {**hidden.json(), "instance": ""} == {**missing.json(), "instance": ""}
        assert stranger.get("/v1/events?poll=1&cursor=@kept").status_code == 404
        assert client.put("/v1/cursors/kept", json={"cursor": "soon"}).status_code == 400
        assert client.put("/v1/cursors/kept", json={}).status_code == 400
        now = client.put("/v1/cursors/kept", json={"cursor": "now"}).json()["cursor"]
        assert poll(client, now, "default") == poll(client, "@kept", "default")
        assert poll(client, now, "default")["events"] == []


def test_settings_are_kept_and_checked(server: Running) -> None:
    settings = {
        "cap": {"events": 3, "periodS": 60},
        "digest": {"everyS": 900},
        "quietHours": {"from": "22:00", "to": "07:00", "timeZone": "Europe/Berlin"},
    }
    wrong: list[dict[str, Any]] = [
        {"cap": {"events": 0, "periodS": 60}},
        {"cap": {"events": 1}},
        {"digest": {"everyS": 0}},
        {"quietHours": {"from": "22:00", "to": "22:00"}},
        {"quietHours": {"from": "22:00", "to": "25:00"}},
        {"quietHours": {"from": "22:00", "to": "07:00", "timeZone": "Atlantis"}},
        {"cup": {}},
    ]
    with server.client() as client:
        assert client.get("/v1/subscribers/carl").status_code == 404
        changed = client.put("/v1/subscribers/carl", json=settings)
        assert changed.status_code == 200
        assert changed.json()["delivery"] == settings
        for one in wrong:
            answer = client.put("/v1/subscribers/carl", json=one)
            assert (answer.status_code, answer.json()["code"]) in {
                (400, "INVALID_ARGUMENT"),
                (400, "OUT_OF_RANGE"),
            }
        assert client.get("/v1/subscribers/carl").json() == changed.json()
    with server.client(server.make_tenant("settings")) as stranger:
        assert stranger.get("/v1/subscribers/carl").status_code == 404


def test_a_cap_holds_events_back_and_drops_none(server: Running) -> None:
    with server.client() as client:
        subscribe(client, "dora")
        cap = {"cap": {"events": 2, "periodS": HOUR_S}}
        client.put("/v1/subscribers/dora", json=cap).raise_for_status()
        ids = publish(client, 5)
        found = poll(client, "earliest", "dora", wait_s=10)
        assert [event["id"] for event in found["events"]] == ids[:2]
        held = poll(client, found["cursor"], "dora")
        assert held == {"events": [], "cursor": found["cursor"]}
        again = poll(client, "earliest", "dora")
        assert [event["id"] for event in again["events"]] == ids[:2]
        counts = client.get(f"/v1/subscribers/dora?cursor={found['cursor']}").json()
        assert (counts["recorded"], counts["pending"], counts["lost"]) == (5, 3, 0)
        client.put("/v1/subscribers/dora", json={}).raise_for_status()
        rest = poll(client, found["cursor"], "dora", wait_s=10)
        assert [event["id"] for event in rest["events"]] == ids[2:]


def test_an_open_stream_follows_new_settings(server: Running) -> None:
    with server.client() as client, server.client() as settings:
        subscribe(client, "emil")
        cap = {"cap": {"events": 1, "periodS": HOUR_S}}
        settings.put("/v1/subscribers/emil", json=cap).raise_for_status()
        ids = publish(client, 3)
        path = "/v1/events?cursor=earliest&subscriber=emil"
        with connect_sse(client, "GET", path) as stream:
            received = []
            for event in stream.iter_sse():
                if event.event != "match":
                    continue
                received.append(event.id)
                JSONFormat().read(None, event.data)
                if len(received) == 1:
                    settings.put("/v1/subscribers/emil", json={}).raise_for_status()
                if len(received) == 3:
                    break
        assert received == ids


def test_a_held_stream_ends_with_its_client_and_with_the_server(tmp_path: Any) -> None:
    with running_server(tmp_path) as server, server.client() as client:
        subscribe(client, "default")
        cap = {"cap": {"events": 1, "periodS": HOUR_S}}
        client.put("/v1/subscribers/default", json=cap).raise_for_status()
        first, *_ = publish(client, 3)
        path = "/v1/events?cursor=earliest"
        with server.client() as reader, connect_sse(reader, "GET", path) as stream:
            assert next(e for e in stream.iter_sse() if e.event == "match").id == first
        url = server.url.replace("http", "ws") + path
        headers = {"Authorization": f"Bearer {server.key}"}
        with connect(url, additional_headers=headers) as socket:
            assert f'"id":"{first}"' in str(socket.recv(timeout=30))
        reader = server.client()
        streaming = reader.stream("GET", path)
        lines = streaming.__enter__().iter_lines()
        while first not in next(lines):
            pass
    assert list(lines)[-1:] == [""]
    streaming.__exit__(None, None, None)
    reader.close()


def test_a_cap_knows_what_was_sent_before_a_restart(tmp_path: Any) -> None:
    with running_server(tmp_path) as server, server.client() as client:
        key = server.key
        subscribe(client, "dora")
        cap = {"cap": {"events": 3, "periodS": HOUR_S}}
        client.put("/v1/subscribers/dora", json=cap).raise_for_status()
        ids = publish(client, 5)
        found = poll(client, "earliest", "dora", wait_s=10)
        assert [event["id"] for event in found["events"]] == ids[:3]
    for _ in range(2):
        with running_server(tmp_path) as server, server.client(key) as client:
            assert poll(client, found["cursor"], "dora")["events"] == []
            again = poll(client, "earliest", "dora")  # what was sent may be sent to others too
            assert [event["id"] for event in again["events"]] == ids[:3]
            client.get("/v1/events?poll=1&subscriber=nobody").raise_for_status()
    with running_server(tmp_path) as server, server.client(key) as client:
        client.put("/v1/subscribers/dora", json={}).raise_for_status()
        rest = poll(client, found["cursor"], "dora", wait_s=10)
        assert [event["id"] for event in rest["events"]] == ids[3:]


def everyone(client: httpx.Client, cursor: str, **more: Any) -> dict[str, Any]:
    parameters = {"poll": 1, "all": 1, "cursor": cursor, "waitS": 30, **more}
    answer: dict[str, Any] = client.get("/v1/events", params=parameters).raise_for_status().json()
    return answer


def test_all_subscribers_of_a_tenant_are_read_at_once(server: Running) -> None:
    with server.client(server.make_tenant("whole")) as client:
        subscribe(client, "ann")
        subscribe(client, "ann")
        subscribe(client, "ben")
        ids = publish(client, 3)
        read = everyone(client, "earliest")
        assert [event["id"] for event in read["events"]] == ids
        for event in read["events"]:
            assert "subject" not in event
            assert JSONFormat().read(None, json.dumps(event)).get_id() == event["id"]
            names = [match["subscriber"] for match in event["data"]["matches"]]
            assert names == ["ann", "ann", "ben"]
        assert everyone(client, read["cursor"], waitS=0)["events"] == []
        again = everyone(client, ids[0], limit=1)
        assert [event["id"] for event in again["events"]] == [ids[1]]
        why = client.get(f"/v1/events/{ids[0]}/explain?all=1").raise_for_status().json()
        assert len({one["subscriptionId"] for one in why["explanations"]}) == 3


def test_the_stream_of_a_tenant_follows_new_subscribers(server: Running) -> None:
    key = server.make_tenant("growing")
    with server.client(key) as client:
        address = f"{server.url.replace('http', 'ws')}/v1/events?all=1"
        headers = {"Authorization": f"Bearer {key}"}
        with (
            connect(address, additional_headers=headers) as socket,
            connect_sse(client, "GET", "/v1/events?all=1") as source,
        ):
            client.put("/v1/subscribers/held", json={"digest": {"everyS": 3600}})
            for name in ("held", "late"):
                subscribe(client, name)
            [id] = publish(client, 1)
            event = next(event for event in source.iter_sse() if event.event == "match")
            assert event.id == id
            assert json.loads(socket.recv(timeout=30)) == event.json()
            names = [match["subscriber"] for match in event.json()["data"]["matches"]]
            assert names == ["held", "late"]


def test_what_a_websocket_says_is_short_never_inflated_and_ignored(server: Running) -> None:
    key = server.make_tenant("talking")
    headers = {"Authorization": f"Bearer {key}"}
    address = f"{server.url.replace('http', 'ws')}/v1/events"
    with server.client(key) as client:
        with connect(address, additional_headers=headers, compression="deflate") as socket:
            assert socket.protocol.extensions == []
            socket.send("x" * 4_096)
            socket.send(b"\0" * 4_096)
            subscribe(client, "default")
            [id] = publish(client, 1)
            while json.loads(socket.recv(timeout=30))["id"] != id:
                pass
            socket.send("x" * 4_097)
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(timeout=30)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009
        # The stream of a client that went away after bytes has ended.
        with connect(address, additional_headers=headers) as socket:
            socket.send(b"bytes")
        metrics = ""
        while 'nearcast_streams{kind="websocket"} 0.0' not in metrics:
            metrics = client.get("/metrics").text


def test_an_event_of_a_tenant_names_who_started(server: Running) -> None:
    with server.client(server.make_tenant("lifecycle")) as client:
        made = client.post("/v1/subscriptions", json=resource("tea", subscriber="ann")).json()
        [event] = everyone(client, "earliest")["events"]
        assert event["type"] == "org.nearcast.subscription-started"
        assert event["data"] == {"subscriptionId": made["id"], "subscriber": "ann"}


def test_a_tenant_never_reads_the_events_of_another(server: Running) -> None:
    ours, theirs = server.make_tenant("ours"), server.make_tenant("theirs")
    with server.client(ours) as our, server.client(theirs) as their:
        subscribe(our, "ann")
        subscribe(their, "ann")
        [first], [second] = publish(our, 1), publish(their, 1)
        assert [event["id"] for event in everyone(our, "earliest")["events"]] == [first]
        assert [event["id"] for event in everyone(their, "earliest")["events"]] == [second]
        assert our.get(f"/v1/events/{second}/explain?all=1").status_code == 404


@pytest.mark.parametrize("path", ["/v1/events?poll=1&all=1", "/v1/events/1-1/explain?all=1"])
def test_a_key_of_one_subscriber_does_not_read_all(server: Running, path: str) -> None:
    key = server.make_key("subscribe", subscriber="bob")
    with server.client(key) as bob:
        answer = bob.get(path)
        assert answer.status_code == 403
        assert "only for the subscriber 'bob'" in answer.json()["detail"]
    with server.client(server.make_key("publish")) as publisher:
        assert publisher.get(path).status_code == 403


@pytest.mark.parametrize("more", ["subscriber=ann", "cursor=@phone"])
def test_all_subscribers_have_no_name_and_no_kept_cursor(server: Running, more: str) -> None:
    with server.client() as client:
        answer = client.get(f"/v1/events?poll=1&all=1&{more}")
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["field"] == more.split("=")[0]


def test_an_event_of_a_tenant_lists_some_matches_and_counts_the_others(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearcast.server.delivery.rendering.MAX_JOINED_MATCHES", 2)
    with server.client(server.make_tenant("crowd")) as client:
        for number in range(5):
            subscribe(client, f"reader {number}")
        publish(client, 1)
        [event] = everyone(client, "earliest")["events"]
        assert len(event["data"]["matches"]) == 2
        assert event["data"]["omitted"] == 3
