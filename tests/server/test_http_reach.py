"""Whom a message has reached: subscriptions and subscribers, by requests to a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from nearcast.server.http import reach
from receiving import receiving
from running import BERLIN, Running, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("server")
    with running_server(folder, allow_sinks=("127.0.0.0/8",)) as running:
        yield running


def publish(client: httpx.Client, *texts: str) -> list[str]:
    messages = [{"text": text, "lon": BERLIN[0], "lat": BERLIN[1]} for text in texts]
    answer = client.post("/v1/messages", json=messages).raise_for_status().json()
    epoch = answer["firstId"].split("-")[0]
    return [f"{epoch}-{seq}" for seq in range(answer["firstSeq"], answer["lastSeq"] + 1)]


def reached(client: httpx.Client, id: str) -> dict[str, Any]:
    """Return the reach of a message, when it is matched."""
    while (found := client.get(f"/v1/messages/{id}").json()["reach"]) is None:
        pass
    return dict(found)


def test_subscriptions_and_subscribers_are_counted(server: Running) -> None:
    with receiving() as receiver, server.client(server.make_tenant("counted")) as client:
        for id, words, subscriber, sink in (
            ("a1", ["tea"], "ann", None),
            ("a2", ["tea", "hot"], "ann", None),
            ("b", ["tea"], "bob", receiver.url),
            ("c", ["cake"], "cleo", None),
        ):
            more = {} if sink is None else {"sink": sink}
            given = resource(*words, subscriber=subscriber, **more)
            client.put(f"/v1/subscriptions/{id}", json=given).raise_for_status()
        paused = resource("tea", subscriber="dan", status="INACTIVE")
        client.put("/v1/subscriptions/d", json=paused).raise_for_status()
        expected = {
            "hot tea": {"subscriptions": 3, "subscribers": 2},
            "tea and cake": {"subscriptions": 3, "subscribers": 3},
            "beer": {"subscriptions": 0, "subscribers": 0},
        }
        ids = publish(client, *expected)
        for id, counts in zip(ids, expected.values(), strict=True):
            assert reached(client, id) == counts
        listed = client.get("/v1/messages").json()["messages"]
        assert [one["reach"] for one in listed] == [*expected.values()]
        tried = client.post(
            "/v1/messages?dryRun=1",
            json=[{"text": text, "lon": BERLIN[0], "lat": BERLIN[1]} for text in expected],
        )
        assert tried.json()["reach"] == [*expected.values()]


def test_other_tenants_do_not_count(server: Running) -> None:
    keys = [server.make_tenant(name) for name in ("one", "two")]
    for key in keys:
        with server.client(key) as client:
            client.put("/v1/subscriptions/s", json=resource("tea")).raise_for_status()
    with server.client(keys[0]) as client, server.client(keys[1]) as other:
        first = publish(client, "tea", "tea")
        publish(other, "tea")
        last = publish(client, "tea")
        reached(client, last[0])
        listed = client.get("/v1/messages").json()["messages"]
        assert [one["id"] for one in listed] == [*first, *last]
        assert {tuple(one["reach"].values()) for one in listed} == {(1, 1)}


def test_many_postings_are_counted_a_few_at_a_time(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.client(server.make_tenant("many")) as client:
        for i in range(5):
            given = resource("tea", subscriber=f"p{i % 2}")
            client.put(f"/v1/subscriptions/s{i}", json=given).raise_for_status()
        reached(client, publish(client, *["tea", "none"] * 10)[-1])
        whole = client.get("/v1/messages").json()
        monkeypatch.setattr(reach, "_MAX_POSTINGS", 7)
        assert client.get("/v1/messages").json() == whole
        assert [one["reach"]["subscriptions"] for one in whole["messages"]] == [5, 0] * 10


def test_a_matching_that_comes_by_a_move_is_not_reach(server: Running) -> None:
    with server.client(server.make_tenant("moved")) as client:
        far = resource("tea")
        box = {"areaType": "BOX", "west": 0, "south": 0, "east": 1, "north": 1}
        far["config"]["subscriptionDetail"]["region"] = box
        client.put("/v1/subscriptions/s", json=far).raise_for_status()
        message = {"text": "tea", "lon": BERLIN[0], "lat": BERLIN[1], "ttl_s": 600}
        id = client.post("/v1/messages", json=message).json()["firstId"]
        near = {"areaType": "BOX", "west": 13, "south": 52, "east": 14, "north": 53}
        headers = {"Content-Type": "application/x-ndjson"}
        client.post(
            "/v1/moves", json={"subscriptionId": "s", "region": near}, headers=headers
        ).raise_for_status()
        assert len(client.get("/v1/events?poll=1&cursor=earliest").json()["events"]) >= 1
        assert reached(client, id) == {"subscriptions": 0, "subscribers": 0}
