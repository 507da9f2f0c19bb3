"""Webhooks and the routes of sinks, by a real server and a real receiver."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from cloudevents.core.formats.json import JSONFormat
from standardwebhooks import Webhook

from nearcast.server.state import DeadLetter
from receiving import Received, Receiver, receiving
from running import BERLIN, Running, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

LOCAL = ("127.0.0.0/8",)
MATCHES = ["org.nearcast.match"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server"), allow_sinks=LOCAL) as running:
        yield running


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


def subscribe(client: httpx.Client, receiver: Receiver, **more: Any) -> dict[str, Any]:
    """Make a subscription with the receiver as its sink; return it."""
    body = resource("tea", sink=receiver.url, types=MATCHES, **more)
    found: dict[str, Any] = client.post("/v1/subscriptions", json=body).raise_for_status().json()
    return found


def publish(client: httpx.Client, *texts: str) -> list[str]:
    messages = [{"text": text, "lon": BERLIN[0], "lat": BERLIN[1]} for text in texts]
    answer = client.post("/v1/messages", json=messages).raise_for_status().json()
    epoch = answer["firstId"].split("-")[0]
    return [f"{epoch}-{seq}" for seq in range(answer["firstSeq"], answer["lastSeq"] + 1)]


def only_sink(client: httpx.Client) -> str:
    [sink] = client.get("/v1/sinks").json()["sinks"]
    return f"/v1/sinks/{sink['id']}"


def wait_until(client: httpx.Client, path: str, **wanted: Any) -> dict[str, Any]:
    """Return a sink when it has some values; the server is asked again until then."""
    while True:
        sink: dict[str, Any] = client.get(path).raise_for_status().json()
        if all(sink.get(name) == value for name, value in wanted.items()):
            return sink


def check(received: Received, secret: str) -> dict[str, Any]:
    """Return an event after judges have looked at it."""
    Webhook(secret).verify(received.body, {k.lower(): v for k, v in received.headers.items()})
    event = JSONFormat().read(None, received.body)
    assert event.get_id() == received.headers["webhook-id"]
    assert event.get_type() == "org.nearcast.match"
    found: dict[str, Any] = json.loads(received.body)
    return found


def test_events_are_signed_and_in_order(server: Running, receiver: Receiver) -> None:
    with server.client(server.make_tenant("signed")) as client:
        made = subscribe(client, receiver)
        secret = made["sinkCredential"]["secret"]
        ids = publish(client, "tea 1", "cake", "tea 2")
        ids += publish(client, "tea 3")
        events = [check(receiver.next(), secret) for _ in range(3)]
        assert [event["id"] for event in events] == [ids[0], ids[2], ids[3]]
        assert events[0]["data"]["matches"][0]["subscriptionId"] == made["id"]
        path = only_sink(client)
        sink = wait_until(client, path, pending=0)
        assert (sink["status"], sink["failures"], sink["cursor"]) == ("ACTIVE", 0, ids[3])
        attempts = client.get(f"{path}/attempts").json()["attempts"]
        assert [one["eventId"] for one in attempts] == [ids[3], ids[2], ids[0]]
        assert {one["status"] for one in attempts} == {200}
        for shown in (path, f"{path}/attempts", f"{path}/dead", "/v1/sinks", "/v1/subscriptions"):
            text = client.get(shown).text
            assert secret not in text
            assert "secret" not in text.lower()


def test_subscriptions_share_a_sink_and_its_secret(server: Running, receiver: Receiver) -> None:
    with server.client(server.make_tenant("shared")) as client:
        secret = subscribe(client, receiver)["sinkCredential"]["secret"]
        assert "sinkCredential" not in subscribe(client, receiver)
        [id] = publish(client, "tea")
        event = check(receiver.next(), secret)
        assert event["id"] == id
        assert len(event["data"]["matches"]) == 2
        body = json.dumps({**resource("cake"), "sink": receiver.url})
        lines = f"{body}\n{json.dumps({**resource('cake'), 'sink': receiver.url + '2'})}\n"
        headers = {"Content-Type": "application/x-ndjson"}
        found = client.post("/v1/subscriptions/import", content=lines, headers=headers).json()
        assert found["accepted"] == 1
        assert [(r["line"], r["field"]) for r in found["rejected"]] == [(2, "sinkCredential")]


def test_a_change_without_a_secret_keeps_that_of_the_sink(
    server: Running, receiver: Receiver
) -> None:
    with server.client(server.make_tenant("kept")) as client:
        first = subscribe(client, receiver)
        secret = "whsec_" + "QUJD" * 10
        credential = {"credentialType": "WEBHOOKSECRET", "secret": secret}
        assert "sinkCredential" not in subscribe(client, receiver, sinkCredential=credential)
        patch = {"config": {"subscriptionMaxEvents": 1000}}
        changed = client.patch(f"/v1/subscriptions/{first['id']}", json=patch).raise_for_status()
        assert "sinkCredential" not in changed.json()
        publish(client, "tea")
        check(receiver.next(), secret)


def test_events_that_were_given_up_are_listed(server: Running, receiver: Receiver) -> None:
    receiver.status = 500
    with server.client(server.make_tenant("dead")) as client:
        subscribe(client, receiver)
        path = only_sink(client)
        id = path.rpartition("/")[2]
        letters = [DeadLetter(id, seq, 0, f"7-{seq}", "status 500", 1_000_000) for seq in (3, 4, 5)]
        server.app.state.context.service.state.add_dead(letters)
        first = client.get(f"{path}/dead?limit=2").json()
        assert [one["eventId"] for one in first["dead"]] == ["7-3", "7-4"]
        assert first["dead"][0]["reason"] == "status 500"
        second = client.get(f"{path}/dead?limit=2&after={first['next']}").json()
        assert [one["eventId"] for one in second["dead"]] == ["7-5"]
        assert "next" not in second


def delivered(client: httpx.Client) -> float:
    """Return how many events of webhooks the metrics count."""
    [line] = [
        line
        for line in client.get("/metrics").text.splitlines()
        if line.startswith('nearcast_events_delivered_total{channel="webhook"}')
    ]
    return float(line.split()[-1])


def test_a_failed_event_is_sent_again(server: Running, receiver: Receiver) -> None:
    receiver.status = 500
    with server.client(server.make_tenant("failing")) as client:
        before = delivered(client)
        secret = subscribe(client, receiver)["sinkCredential"]["secret"]
        ids = publish(client, "tea 1", "tea 2")
        assert check(receiver.next(), secret)["id"] == ids[0]
        path = only_sink(client)
        sink = wait_until(client, path, failures=1)
        assert delivered(client) == before
        assert sink["status"] == "ACTIVE"
        assert sink["nextAttemptAt"]
        assert sink["pending"] == 2
        receiver.status = 204
        assert client.post(f"{path}/enable").status_code == 200
        assert [check(receiver.next(), secret)["id"] for _ in ids] == ids
        wait_until(client, path, failures=0, pending=0)
        assert delivered(client) == before + 2


def test_gone_disables_and_replay_goes_on(server: Running, receiver: Receiver) -> None:
    receiver.status = 410
    with server.client(server.make_tenant("gone")) as client:
        secret = subscribe(client, receiver)["sinkCredential"]["secret"]
        ids = publish(client, "tea 1", "tea 2")
        assert receiver.next().status == 410
        path = only_sink(client)
        sink = wait_until(client, path, status="DISABLED")
        assert "410" in sink["reason"]
        receiver.status = 200
        publish(client, "tea 3")  # nobody wants it
        tested = client.post(f"{path}/test").json()
        assert tested["status"] == 200
        test = receiver.next()
        Webhook(secret).verify(test.body, {k.lower(): v for k, v in test.headers.items()})
        assert json.loads(test.body)["type"] == "org.nearcast.test"
        assert receiver.waiting == 0
        assert client.post(f"{path}/replay", json={"cursor": "earliest"}).status_code == 200
        assert [check(receiver.next(), secret)["id"] for _ in ids] == ids
        wait_until(client, path, status="ACTIVE", pending=0)
        assert client.post(f"{path}/replay", json={"cursor": ids[0]}).status_code == 200
        assert check(receiver.next(), secret)["id"] == ids[1]
        assert client.post(f"{path}/replay", json={"cursor": "soon"}).status_code == 400
        assert client.get(f"{path}/dead").json() == {"dead": []}
        assert client.get(f"{path}/dead?after=nonsense").status_code == 400


def test_attempts_are_shown_while_they_are_being_saved(
    server: Running, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = server.app.state.context.service.state
    saving, go_on = threading.Event(), threading.Event()
    save = state.note_attempts

    def save_slowly(attempts: Any) -> None:
        saving.set()
        assert go_on.wait(30)
        save(attempts)

    with (
        server.client(server.make_tenant("saving")) as client,
        server.client() as other,
        ThreadPoolExecutor() as threads,
    ):
        subscribe(client, receiver)
        path = only_sink(client)
        monkeypatch.setattr(state, "note_attempts", save_slowly)
        [id] = publish(client, "tea")
        assert saving.wait(30)
        reading = threads.submit(client.get, f"{path}/attempts")
        for _ in range(10):  # time enough for an answer that does not wait
            other.get("/healthz")
        go_on.set()
        assert [one["eventId"] for one in reading.result(30).json()["attempts"]] == [id]


ENDS = [*MATCHES, "org.nearcast.subscription-ended"]


def test_gone_ends_the_subscriptions_of_the_sink(server: Running, receiver: Receiver) -> None:
    receiver.status = 410
    with server.client(server.make_tenant("ending")) as client, receiving() as other:
        first, second = (
            client.post("/v1/subscriptions", json=resource("tea", sink=receiver.url, types=ENDS))
            .raise_for_status()
            .json()
            for _ in range(2)
        )
        kept = subscribe(client, other)
        [id] = publish(client, "tea 1")
        assert receiver.next().status == 410
        old = f"/v1/sinks/{gone_sink(client)}"
        wait_until(client, old, status="DISABLED")
        for made, status in ((first, "EXPIRED"), (second, "EXPIRED"), (kept, "ACTIVE")):
            assert client.get(f"/v1/subscriptions/{made['id']}").json()["status"] == status
        cursor = f"/v1/events?poll=1&cursor={id}"
        found = [event["data"] for event in client.get(cursor).json()["events"]]
        ended = {"terminationReason": "SINK_GONE"}
        assert found == [{"subscriptionId": one["id"], **ended} for one in (first, second)]
        receiver.status = 200
        body = resource("tea", sink=receiver.url, types=MATCHES)
        again = client.put(f"/v1/subscriptions/{first['id']}", json=body).raise_for_status().json()
        secret = again["sinkCredential"]["secret"]
        assert secret != first["sinkCredential"]["secret"]
        body = resource("tea", sink=other.url, types=MATCHES)
        client.put(f"/v1/subscriptions/{second['id']}", json=body).raise_for_status()
        assert json.loads(other.next().body)["id"] == id
        ids = publish(client, "tea 2")
        event = check(receiver.next(), secret)
        assert event["id"] == ids[0]
        assert [one["subscriptionId"] for one in event["data"]["matches"]] == [first["id"]]
        assert len(json.loads(other.next().body)["data"]["matches"]) == 2
        assert client.get(old).json()["status"] == "DISABLED"
        assert receiver.waiting == 0


def gone_sink(client: httpx.Client) -> str:
    """Return the first sink of a tenant."""
    return str(client.get("/v1/sinks").json()["sinks"][0]["id"])


def test_a_sink_is_removed_when_no_subscription_has_it(tmp_path: Path, receiver: Receiver) -> None:
    with running_server(tmp_path, allow_sinks=LOCAL) as server, server.client() as client:
        key = server.key
        made = subscribe(client, receiver)
        publish(client, "tea 1")
        receiver.next()
        path = only_sink(client)
        wait_until(client, path, pending=0)
        refused = client.delete(path)
        assert (refused.status_code, refused.json()["code"]) == (409, "CONFLICT")
        publish(client, "tea 2")  # it is not stopped by this
        receiver.next()
        receiver.status = 500
        publish(client, "tea 3")
        receiver.next()
        wait_until(client, path, failures=1)
        client.delete(f"/v1/subscriptions/{made['id']}").raise_for_status()
        assert only_sink(client) == path  # it has an event to send
        receiver.status = 200
        client.post(f"{path}/enable").raise_for_status()
        receiver.next()
        wait_until(client, path, pending=0)
        assert client.get("/v1/sinks").json() == {"sinks": []}
        [hidden] = client.get("/v1/sinks?unused=1").json()["sinks"]
        assert path.endswith(hidden["id"])
        assert client.delete(path).status_code == 204
        assert client.get("/v1/sinks?unused=1").json() == {"sinks": []}
        for method, route in ROUTES:
            body = {"cursor": "earliest"} if route == "/replay" else None
            assert client.request(method, path + route, json=body).status_code == 404
    with running_server(tmp_path, allow_sinks=LOCAL) as server, server.client(key) as client:
        new = subscribe(client, receiver)
        assert new["sinkCredential"]["secret"] != made["sinkCredential"]["secret"]
        ids = publish(client, "tea 4")
        assert check(receiver.next(), new["sinkCredential"]["secret"])["id"] == ids[0]
        assert only_sink(client) != path
        assert receiver.waiting == 0


def test_a_sink_that_fails_can_be_removed(server: Running, receiver: Receiver) -> None:
    receiver.status = 500
    with server.client(server.make_tenant("removed")) as client:
        made = subscribe(client, receiver)
        publish(client, "tea 1", "tea 2")
        receiver.next()
        path = only_sink(client)
        wait_until(client, path, failures=1)
        client.delete(f"/v1/subscriptions/{made['id']}").raise_for_status()
        before = waiting(client)
        assert client.delete(path).status_code == 204
        after = waiting(client)
        assert [before[one] - after[one] for one in after] == [2, 1]
        assert client.get(f"{path}/attempts").status_code == 404


def waiting(client: httpx.Client) -> dict[str, float]:
    """Return what the metrics say of events that wait for webhooks."""
    names = ('nearcast_events_pending{reader="webhook"}', "nearcast_webhook_retries")
    found = [line.rpartition(" ") for line in client.get("/metrics").text.splitlines()]
    return {name: float(value) for name, _, value in found if name in names}


def test_pacing_holds_webhooks_too(server: Running, receiver: Receiver) -> None:
    with server.client(server.make_tenant("paced")) as client:
        cap = {"cap": {"events": 1, "periodS": 3600}}
        client.put("/v1/subscribers/default", json=cap).raise_for_status()
        secret = subscribe(client, receiver)["sinkCredential"]["secret"]
        ids = publish(client, "tea 1", "tea 2", "tea 3")
        assert check(receiver.next(), secret)["id"] == ids[0]
        path = only_sink(client)
        wait_until(client, path, pending=2)
        assert receiver.waiting == 0
        client.put("/v1/subscribers/default", json={}).raise_for_status()
        assert [check(receiver.next(), secret)["id"] for _ in ids[1:]] == ids[1:]


def test_what_was_not_sent_is_sent_after_a_restart(tmp_path: Path, receiver: Receiver) -> None:
    receiver.status = 503
    with running_server(tmp_path, allow_sinks=LOCAL) as server, server.client() as client:
        key = server.key
        secret = subscribe(client, receiver)["sinkCredential"]["secret"]
        ids = publish(client, "tea 1", "tea 2")
        assert check(receiver.next(), secret)["id"] == ids[0]
        wait_until(client, only_sink(client), failures=1)
    receiver.status = 200
    with running_server(tmp_path, allow_sinks=LOCAL) as server, server.client(key) as client:
        path = only_sink(client)
        assert len(client.get(f"{path}/attempts").json()["attempts"]) == 1
        client.post(f"{path}/enable").raise_for_status()
        assert [check(receiver.next(), secret)["id"] for _ in ids] == ids
        ids = publish(client, "tea 3")
        assert check(receiver.next(), secret)["id"] == ids[0]


def test_private_addresses_are_refused(tmp_path: Path, receiver: Receiver) -> None:
    with running_server(tmp_path) as server, server.client() as client:
        body = resource("tea", sink=receiver.url)
        answer = client.post("/v1/subscriptions", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_SINK")


def test_private_addresses_are_refused_on_delivery(tmp_path: Path, receiver: Receiver) -> None:
    with running_server(tmp_path, allow_sinks=LOCAL) as server, server.client() as client:
        key = server.key
        body = resource("tea", sink=receiver.url, types=MATCHES)
        client.post("/v1/subscriptions", json=body).raise_for_status()
        assert client.post(f"{only_sink(client)}/test").json()["status"] == 200
    with running_server(tmp_path) as server, server.client(key) as client:
        tested = client.post(f"{only_sink(client)}/test").json()
        assert "status" not in tested
        assert "not allowed" in tested["error"]


ROUTES = [
    ("GET", ""),
    ("DELETE", ""),
    ("GET", "/attempts"),
    ("GET", "/dead"),
    ("POST", "/test"),
    ("POST", "/replay"),
    ("POST", "/enable"),
]


@pytest.mark.parametrize(("method", "route"), ROUTES)
def test_sinks_of_others_are_not_found(server: Running, method: str, route: str) -> None:
    body = {"cursor": "earliest"} if route == "/replay" else None
    name = f"owner{method}{route}"
    owner, stranger = server.make_tenant(name), server.make_tenant(f"other{name}")
    with receiving() as receiver, server.client(owner) as client:
        subscribe(client, receiver)
        path = only_sink(client)
        with server.client("") as nobody:
            assert nobody.request(method, path + route, json=body).status_code == 401
        wrong = server.make_key("publish", tenant=name)
        bob = server.make_key("subscribe", tenant=name, subscriber="bob")
        with server.client(wrong) as publisher:
            assert publisher.request(method, path + route, json=body).status_code == 403
        found = []
        for key in (stranger, bob):
            with server.client(key) as other:
                assert other.get("/v1/sinks").json() == {"sinks": []}
                for whose in (path, "/v1/sinks/none"):
                    answer = other.request(method, whose + route, json=body)
                    assert answer.status_code == 404
                    found.append({**answer.json(), "instance": ""})
        assert all(one == found[0] for one in found)
        status = client.request(method, path + route, json=body).status_code
        assert status == (409 if method == "DELETE" else 200)
