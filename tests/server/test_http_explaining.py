"""Previews and explanations, by requests to a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from running import BERLIN, Running, circle, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


def ranked(*keywords: str, tau: float = 0.5) -> dict[str, Any]:
    detail = {
        "keywords": list(keywords),
        "region": {"type": "Point", "coordinates": [*BERLIN]},
        "ranking": {"delta": 0.5, "tau": tau, "maxDistanceM": 10_000},
    }
    return {"config": {"subscriptionDetail": detail}}


def publish(client: httpx.Client, *texts: str, lon: float = BERLIN[0], **more: Any) -> list[str]:
    """Publish messages in Berlin and return their ids."""
    messages = [{"text": text, "lon": lon, "lat": BERLIN[1], **more} for text in texts]
    answer = client.post("/v1/messages", json=messages).raise_for_status().json()
    epoch = answer["firstId"].split("-")[0]
    return [f"{epoch}-{seq}" for seq in range(answer["firstSeq"], answer["lastSeq"] + 1)]


def wait_for(client: httpx.Client, id: str) -> None:
    """Wait until an event has come."""
    cursor = "earliest"
    while True:
        path = f"/v1/events?poll=1&waitS=10&limit=1000&cursor={cursor}"
        answer = client.get(path).raise_for_status().json()
        if id in [event["id"] for event in answer["events"]]:
            return
        cursor = answer["cursor"]


def test_the_routes_need_the_role(server: Running) -> None:
    body = {"subscription": resource("tea")}
    with server.client("") as nobody:
        assert nobody.post("/v1/preview", json=body).status_code == 401
        assert nobody.get("/v1/events/1-1/explain").status_code == 401
    with server.client(server.make_key("publish")) as client:
        assert client.post("/v1/preview", json=body).status_code == 403
        assert client.get("/v1/events/1-1/explain").status_code == 403


def test_a_preview_tells_matches_and_why_not(server: Running) -> None:
    with server.client(server.make_tenant("preview")) as client:
        ids = publish(client, "hot tea", "cake", "tea and cake")
        body = {"subscription": resource("tea"), "messages": 10}
        answer = client.post("/v1/preview", json=body)
        assert answer.status_code == 200
        found = answer.json()
        assert [one["id"] for one in found["messages"]] == ids
        assert [one["matches"] for one in found["messages"]] == [True, False, True]
        assert found["matched"] == 2
        assert found["messages"][0]["message"]["text"] == "hot tea"
        assert any("lacks" in reason for reason in found["messages"][1]["reasons"])
        last = client.post("/v1/preview", json={**body, "messages": 2}).json()
        assert [one["id"] for one in last["messages"]] == ids[1:]
        assert client.get("/v1/subscriptions").json()["subscriptions"] == []


def test_operators_in_lower_case_give_warnings(server: Running) -> None:
    with server.client(server.make_tenant("warnings")) as client:
        asked = resource("tea")
        asked["id"] = "s"
        detail = asked["config"]["subscriptionDetail"]
        del detail["keywords"]
        detail["expression"] = "tea or milk"
        [hint] = client.post("/v1/preview", json={"subscription": asked}).json()["warnings"]
        assert hint.startswith("or is a word here")
        assert hint.endswith("(at character 5)")
        made = client.post("/v1/subscriptions", json=asked).json()
        assert made["warnings"] == [hint]
        assert "warnings" not in client.get("/v1/subscriptions/s").json()
        assert client.put("/v1/subscriptions/s", json=made).json()["warnings"] == [hint]
        change = {"config": {"subscriptionDetail": {"expression": "tea OR milk"}}}
        headers = {"content-type": "application/merge-patch+json"}
        patch = client.patch("/v1/subscriptions/s", content=json.dumps(change), headers=headers)
        assert "warnings" not in patch.raise_for_status().json()
        detail["expression"] = "tea OR milk"
        assert client.post("/v1/preview", json={"subscription": asked}).json()["warnings"] == []
        detail["expression"] = "tea price<100"
        refused = client.post("/v1/subscriptions", json=asked)
        assert refused.status_code == 400
        assert "< is no part of a word" in refused.text


def test_a_preview_of_another_tenant_sees_nothing(server: Running) -> None:
    with server.client() as client, server.client(server.make_tenant("blind")) as stranger:
        publish(client, "secret tea")
        found = stranger.post("/v1/preview", json={"subscription": resource("tea")}).json()
        assert found["messages"] == []


def test_a_preview_splits_the_score(server: Running) -> None:
    message = {"text": "tea", "lon": BERLIN[0], "lat": BERLIN[1] + 0.01}
    body = {"subscription": ranked("tea", tau=0.99), "message": message}
    with server.client() as client:
        [one] = client.post("/v1/preview", json=body).json()["messages"]
    assert one["parts"]["words"] == 0.5
    assert 0 < one["parts"]["place"] < 0.5
    assert one["score"] == pytest.approx(one["parts"]["words"] + one["parts"]["place"])
    assert one["margin"] == pytest.approx(one["score"] - 0.99)
    assert one["distanceM"] == pytest.approx(1112, rel=0.01)
    assert one["matches"] is False


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"subscription": {}},
        {"subscription": resource("tea"), "messages": 0},
        {"subscription": resource("tea"), "messages": 1_001},
        {"subscription": resource("tea"), "messages": 1, "message": {"text": "a"}},
        {"subscription": resource("tea"), "message": {"text": "tea", "lon": 13}},
        {"subscription": {"config": {"subscriptionDetail": {"region": {"type": "Line"}}}}},
    ],
)
def test_a_wrong_preview_is_refused(server: Running, body: dict[str, Any]) -> None:
    with server.client() as client:
        answer = client.post("/v1/preview", json=body)
    assert answer.status_code == 400
    assert answer.json()["errors"]


def test_an_event_is_explained_with_the_subscription_as_it_was(server: Running) -> None:
    with server.client(server.make_tenant("then")) as client:
        client.put("/v1/subscriptions/s", json=ranked("tea", "hot")).raise_for_status()
        [id] = publish(client, "hot tea")
        wait_for(client, id)
        client.put("/v1/subscriptions/s", json=ranked("beer")).raise_for_status()
        answer = client.get(f"/v1/events/{id}/explain")
        assert answer.status_code == 200
        [why] = answer.json()["explanations"]
        assert (why["subscriptionId"], why["sign"], why["matches"]) == ("s", 1, True)
        assert {word["word"] for word in why["shared"]} == {"hot", "tea"}
        assert why["score"] == pytest.approx(why["scoreThen"])
        assert answer.json()["message"]["text"] == "hot tea"


def test_a_message_that_did_not_match_is_explained(server: Running) -> None:
    with server.client(server.make_tenant("not")) as client:
        client.put("/v1/subscriptions/s", json=resource("tea")).raise_for_status()
        far, near = publish(client, "tea", lon=15.0)[0], publish(client, "tea")[0]
        wait_for(client, near)
        assert client.get(f"/v1/events/{far}/explain").status_code == 404
        found = client.get(f"/v1/events/{far}/explain?subscriptionId=s").json()
        [why] = found["explanations"]
        assert (why["matches"], why["inside"]) == (False, False)
        assert client.get(f"/v1/events/{far}/explain?subscriptionId=none").status_code == 404


def test_moves_are_part_of_what_was(server: Running) -> None:
    paris = (2.35, 48.85)
    with server.client(server.make_tenant("moved")) as client:
        client.put("/v1/subscriptions/s", json=resource("tea")).raise_for_status()
        [alive] = publish(client, "old tea", lon=13.5, ttl_s=3600)
        for lon, lat in (BERLIN, (13.5, BERLIN[1]), BERLIN, paris):
            move = {"subscriptionId": "s", "region": circle(lon, lat)}
            client.post("/v1/moves", content=json.dumps(move), headers=NDJSON).raise_for_status()
            publish(client, "tea", lon=lon if lat == BERLIN[1] else 0.0)
        ids = [event for event in events(client) if event["type"].endswith("match")]
        assert {event["type"] for event in ids} == {"org.nearcast.match", "org.nearcast.unmatch"}
        assert alive not in [event["id"] for event in ids]
        for event in ids:
            [why] = client.get(f"/v1/events/{event['id']}/explain").json()["explanations"]
            assert why["matches"] is (event["type"] == "org.nearcast.match")


def events(client: httpx.Client) -> list[dict[str, Any]]:
    """Return all events until a last one."""
    client.put("/v1/subscriptions/last", json=resource("thelast")).raise_for_status()
    [id] = publish(client, "thelast")
    wait_for(client, id)
    path = "/v1/events?poll=1&limit=1000&cursor=earliest"
    found: list[dict[str, Any]] = client.get(path).raise_for_status().json()["events"]
    return [event for event in found if event["id"] != id]


def test_another_tenants_event_is_not_found(server: Running) -> None:
    with server.client() as client, server.client(server.make_tenant("nosy")) as stranger:
        client.put("/v1/subscriptions/own", json=resource("tea")).raise_for_status()
        [id] = publish(client, "tea")
        wait_for(client, id)
        assert client.get(f"/v1/events/{id}/explain").status_code == 200
        stranger.put("/v1/subscriptions/own", json=resource("tea")).raise_for_status()
        paths = [
            f"/v1/events/{id}/explain",
            "/v1/events/1-1/explain",
            f"/v1/events/{id}/explain?subscriptionId=own",
            "/v1/events/nonsense/explain",
        ]
        problems = [stranger.get(path) for path in paths]
    assert {problem.status_code for problem in problems} == {404}
    assert len({json.dumps({**p.json(), "instance": ""}) for p in problems}) == 1


def test_a_subscriber_explains_only_what_it_was_or_would_be_sent(server: Running) -> None:
    tenant = server.make_tenant("shared")
    ann = server.make_key("subscribe", tenant="shared", subscriber="ann")
    with server.client(tenant) as client, server.client(ann) as reader:
        [before] = publish(client, "milk before there was a subscription")
        for name, word in (("a", "tea"), ("b", "milk"), ("c", "tea")):
            body = resource(word, subscriber="bob" if name == "b" else "ann")
            client.put(f"/v1/subscriptions/{name}", json=body).raise_for_status()
        secret, sent = publish(client, "secret milk for bob", "tea for ann")
        reader.put("/v1/subscriptions/new", json=resource("milk")).raise_for_status()
        wait_for(reader, sent)
        nothing = [
            *(f"{id}/explain?subscriptionId={name}" for id in (before, secret) for name in "abc"),
            f"{secret}/explain?subscriptionId=new",
            f"{before}/explain?subscriptionId=new",
            f"{secret}/explain",
        ]
        problems = [reader.get(f"/v1/events/{path}") for path in nothing]
        assert [(one.status_code, "milk" in one.text) for one in problems] == [(404, False)] * 9
        assert len({json.dumps({**one.json(), "instance": ""}) for one in problems}) == 1
        for name in "ac":
            found = reader.get(f"/v1/events/{sent}/explain?subscriptionId={name}").json()
            assert found["message"]["text"] == "tea for ann"
            assert found["explanations"][0]["matches"]
        # Also why another subscription of the subscriber did not match what it was sent.
        assert reader.get(f"/v1/events/{sent}/explain?subscriptionId=new").status_code == 200
        # Who reads for the whole tenant finds everything, as before.
        found = client.get(f"/v1/events/{secret}/explain?subscriptionId=a").json()
        assert found["explanations"][0]["matches"] is False
