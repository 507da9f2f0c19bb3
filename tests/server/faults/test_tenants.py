"""Tenants: what belongs to another one does not exist, and its messages never arrive."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tested_server import Answer, Client, LiveServer, box, subscription

if TYPE_CHECKING:
    from collections.abc import Iterator

WORLD = box(-180, -90, 180, 90)
BERLIN = {"type": "Point", "coordinates": [13.4, 52.5]}
RANKING = {"delta": 0.3, "tau": 0.1, "maxDistanceM": 50_000}
DELIVERED = {"org.nearcast.match", "org.nearcast.unmatch"}


class World(NamedTuple):
    """Two tenants, and ids of what the first one has."""

    ann: Client
    bob: Client
    message: str
    event: str
    sink: str


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("tenants") / "data"
    with LiveServer(folder, "--allow-sink", "127.0.0.0/8") as server:
        ann, bob = (server.make_key(name, "publish", "subscribe") for name in ("ann", "bob"))
        server.start()
        yield populated(server.client(ann), server.client(bob))


def subscriptions() -> dict[str, dict[str, Any]]:
    """Return subscriptions of every kind, by id; all of them match a message in Berlin."""
    plain = subscription("s", ["tea"], WORLD)
    without_words = subscription("s", ["tea"], WORLD)
    del without_words["config"]["subscriptionDetail"]["keywords"]
    ranked = subscription("s", ["tea"], BERLIN)
    ranked["config"]["subscriptionDetail"]["ranking"] = RANKING
    alternatives = subscription("s", ["tea"], WORLD)
    del alternatives["config"]["subscriptionDetail"]["keywords"]
    alternatives["config"]["subscriptionDetail"]["expression"] = "tea OR coffee"
    moving = subscription("s", ["tea"], box(0, 0, 1, 1), "match", "unmatch")
    return {
        "plain": plain,
        "without-words": without_words,
        "ranked": ranked,
        "alternatives": alternatives,
        "moving": moving,
    }


def tea(id: str) -> dict[str, Any]:
    return {"id": id, "text": "tea", "lon": 13.4, "lat": 52.5, "ttl_s": 3600}


def move(client: Client, id: str) -> Answer:
    body = {"subscriptionId": id, "region": WORLD}
    return client.request("POST", "/v1/moves", json.dumps(body).encode())


def populated(ann: Client, bob: Client) -> World:
    """Return a world in which both have the same ids of subscriptions, and messages."""
    for client in (ann, bob):
        for id, definition in subscriptions().items():
            client.put(id, definition)
    sink = subscription("s", ["tea"], WORLD) | {"sink": "http://127.0.0.1:9/hook"}
    ann.put("ann-only", sink)
    published = ann.publish(tea("of ann"))
    bob.publish(tea("of bob"))
    for client in (ann, bob):
        assert move(client, "moving").json["moved"] == 1
    event = ann.wait_for_events("s", 2)[0]
    assert ann.request("PUT", "/v1/cursors/mine", {"cursor": event["id"]}).status in (200, 201)
    row = ann.request("GET", "/v1/sinks").json
    return World(ann, bob, published["firstId"], event["id"], row["sinks"][0]["id"])


def test_messages_stay_with_their_tenant(world: World) -> None:
    for client, own in ((world.ann, "of ann"), (world.bob, "of bob")):
        events = client.wait_for_events("s", 2)
        events = client.events("s")
        assert {event["type"] for event in events} <= DELIVERED
        assert {event["data"]["message"]["id"] for event in events} == {own}
        matched = {m["subscriptionId"] for e in events for m in e["data"]["matches"]}
        assert matched - {"ann-only"} == set(subscriptions())


def same_as_unknown(world: World, method: str, path: str, known: str, body: object = None) -> None:
    """Check that the id of another tenant is answered as an id that nobody has."""
    unknown = {
        "ann-only": "bob-only",
        world.message: "1-1",
        world.event: "1-1",
        world.sink: "sink-ffffff",
        "mine": "yours",
    }[known]
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
    found = world.bob.request(method, path.format(known), body, headers)
    expected = world.bob.request(method, path.format(unknown), body, headers)
    assert found.status == expected.status == 404, (found, expected)
    assert found.problem() == expected.problem()
    assert set(found.headers) == set(expected.headers)
    shown = {name: value for name, value in found.headers.items() if name == "content-length"}
    assert shown == {"content-length": expected.headers["content-length"]}


def test_ids_of_subscriptions(world: World) -> None:
    for method, body in (
        ("GET", None),
        ("PATCH", {"status": "INACTIVE"}),
        ("DELETE", None),
    ):
        same_as_unknown(world, method, "/v1/subscriptions/{}", "ann-only", body)
    assert world.ann.request("GET", "/v1/subscriptions/ann-only").json["status"] == "ACTIVE"
    # The id is free for everybody else.
    assert world.bob.put("ann-only", subscription("t", ["x"], WORLD))["version"]
    assert world.bob.request("DELETE", "/v1/subscriptions/ann-only").status == 204
    assert world.ann.request("GET", "/v1/subscriptions/ann-only").status == 200


def test_ids_of_messages_events_sinks_and_cursors(world: World) -> None:
    same_as_unknown(world, "GET", "/v1/messages/{}", world.message)
    same_as_unknown(world, "GET", "/v1/events/{}/explain?subscriber=s", world.event)
    same_as_unknown(world, "GET", "/v1/cursors/{}", "mine")
    same_as_unknown(world, "GET", "/v1/sinks/{}", world.sink)
    for path in ("attempts", "dead"):
        same_as_unknown(world, "GET", f"/v1/sinks/{{}}/{path}", world.sink)
    for path in ("test", "enable"):
        same_as_unknown(world, "POST", f"/v1/sinks/{{}}/{path}", world.sink)
    assert world.ann.request("GET", f"/v1/sinks/{world.sink}").status == 200
    assert world.ann.request("GET", "/v1/cursors/mine").status == 200
    assert world.ann.request("GET", f"/v1/messages/{world.message}").status == 200


def test_moves(world: World) -> None:
    found, expected = move(world.bob, "ann-only"), move(world.bob, "nobody's")
    assert found.json == expected.json
    assert found.json["moved"] == 0


def test_lists(world: World) -> None:
    listed = world.bob.request("GET", "/v1/subscriptions?limit=1000").json["subscriptions"]
    assert {item["id"] for item in listed} == set(subscriptions())
    boxed = world.bob.request("GET", "/v1/subscriptions?bbox=-180,-90,180,90&limit=1000").json
    assert {item["id"] for item in boxed["subscriptions"]} == set(subscriptions())
    messages = world.bob.request("GET", "/v1/messages").json["messages"]
    assert [item["message"]["id"] for item in messages] == ["of bob"]
    assert world.bob.request("GET", "/v1/sinks").json["sinks"] == []


def test_previews_and_dry_runs(world: World) -> None:
    answer = world.bob.request(
        "POST", "/v1/preview", {"subscription": subscription("s", ["tea"], WORLD)}
    )
    assert answer.status == 200, answer
    assert b"of bob" in answer.body
    assert b"of ann" not in answer.body
    reach = world.bob.request("POST", "/v1/messages?dryRun=1", [tea("new")]).json["reach"]
    assert reach == [{"subscriptions": len(subscriptions()), "subscribers": 1}]


def test_cursors_of_another_tenant_tell_nothing(world: World) -> None:
    """An event id is a position in one log: from there on, everybody gets only their own events."""
    events = world.bob.events("s", world.event)
    assert {event["data"]["message"]["id"] for event in events} == {"of bob"}
