"""Subscriptions and messages, by requests to a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from running import BERLIN, Running, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

MESSAGE = {"text": "tea", "lon": BERLIN[0], "lat": BERLIN[1]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


SUBSCRIBE: list[tuple[str, str, Any]] = [
    ("POST", "/v1/subscriptions", resource("tea")),
    ("GET", "/v1/subscriptions", None),
    ("GET", "/v1/subscriptions/s", None),
    ("PUT", "/v1/subscriptions/s", resource("tea")),
    ("PATCH", "/v1/subscriptions/s", {"status": "INACTIVE"}),
    ("DELETE", "/v1/subscriptions/s", None),
    ("GET", "/v1/events?poll=1", None),
]
PUBLISH: list[tuple[str, str, Any]] = [
    ("POST", "/v1/messages", MESSAGE),
    ("GET", "/v1/messages", None),
    ("GET", "/v1/messages/1-1", None),
]


@pytest.mark.parametrize(("method", "path", "body"), SUBSCRIBE + PUBLISH)
def test_the_routes_need_their_role(server: Running, method: str, path: str, body: Any) -> None:
    with server.client("") as nobody:
        answer = nobody.request(method, path, json=body)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
    with server.client("nc_000000000000_" + "x" * 43) as forged:
        assert forged.request(method, path, json=body).status_code == 401
    other = "publish" if (method, path, body) in SUBSCRIBE else "subscribe"
    with server.client(server.make_key(other)) as client:
        answer = client.request(method, path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (403, "PERMISSION_DENIED")


@pytest.mark.parametrize(("method", "path", "body"), SUBSCRIBE[2:6])
def test_subscriptions_of_others_are_not_found(
    server: Running, method: str, path: str, body: Any
) -> None:
    owner = server.make_tenant(f"owner {method}")
    stranger = server.make_tenant(f"stranger {method}")
    bob = server.make_key("subscribe", tenant=f"owner {method}", subscriber="bob")
    with server.client(owner) as client:
        made = client.put("/v1/subscriptions/s", json=resource("tea")).raise_for_status()
        for key in (stranger, bob):
            with server.client(key) as other:
                answers = [
                    other.request(method, where, json=body)
                    for where in (path, "/v1/subscriptions/none")
                ]
                found = [{**answer.json(), "instance": ""} for answer in answers if answer.content]
                if method == "PUT":
                    assert answers[1].status_code == 201
                    assert answers[0].status_code == (201 if key == stranger else 409)
                else:
                    assert [answer.status_code for answer in answers] == [404, 404]
                    assert found[0] == found[1]
        headers = {"If-Match": made.headers["etag"]}
        with server.client(bob) as other:
            changed = other.put(path, json=resource("mine"), headers=headers)
            assert changed.status_code == 412
        assert client.get(path).json() == made.json()


def test_a_subscription_lives_and_ends(server: Running) -> None:
    with server.client(server.make_tenant("life")) as client:
        made = client.post("/v1/subscriptions", json=resource("tea"))
        assert made.status_code == 201
        path = made.headers["location"]
        assert client.get(path).json() == made.json()
        etag = made.headers["etag"]
        paused = client.patch(path, json={"status": "INACTIVE"}, headers={"If-Match": etag})
        assert (paused.status_code, paused.json()["status"]) == (200, "INACTIVE")
        late = client.patch(path, json={"status": "ACTIVE"}, headers={"If-Match": etag})
        assert (late.status_code, late.json()["code"]) == (412, "PRECONDITION_FAILED")
        replaced = client.put(path, json=resource("cake"))
        assert (replaced.status_code, replaced.json()["status"]) == (200, "ACTIVE")
        only_new = client.put(path, json=resource("tea"), headers={"If-None-Match": "*"})
        assert only_new.status_code == 409
        assert client.post("/v1/subscriptions", json=resource("a", id="x")).status_code == 201
        assert client.post("/v1/subscriptions", json=resource("a", id="x")).status_code == 409
        listed = client.get("/v1/subscriptions?limit=1").json()
        rest = client.get(f"/v1/subscriptions?limit=1&after={listed['next']}").json()
        assert [one["id"] for one in (*listed["subscriptions"], *rest["subscriptions"])] == [
            made.json()["id"],
            "x",
        ]
        for box, count in (("13,52,14,53", 2), ("0,0,1,1", 0)):
            found = client.get(f"/v1/subscriptions?bbox={box}").json()["subscriptions"]
            assert len(found) == count
        assert client.delete(path).status_code == 204
        assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "INVALID_ARGUMENT"),
        ([], "INVALID_ARGUMENT"),
        ({**resource("tea"), "extra": 1}, "INVALID_ARGUMENT"),
        (resource("tea", sink="http://example.com"), "INVALID_SINK"),
        (resource("tea", sinkCredential={"credentialType": "PLAIN"}), "INVALID_ARGUMENT"),
        (resource("tea", types=["org.nearcast.nothing"]), "INVALID_ARGUMENT"),
    ],
)
def test_wrong_subscriptions_are_refused(server: Running, body: Any, code: str) -> None:
    with server.client() as client:
        answer = client.post("/v1/subscriptions", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, code)
        assert answer.json()["errors"]
        for query in ("limit=0", "bbox=1,2,3", "after=x", "status=ASLEEP"):
            assert client.get(f"/v1/subscriptions?{query}").status_code == 400


def test_messages_are_read_by_their_publisher(server: Running) -> None:
    owner, stranger = server.make_tenant("publisher"), server.make_tenant("reader")
    with server.client(owner) as client, server.client(stranger) as other:
        sent = client.post("/v1/messages", json=[MESSAGE, MESSAGE, {"text": "x"}]).json()
        assert (sent["accepted"], sent["lastSeq"] - sent["firstSeq"]) == (2, 1)
        assert [one["line"] for one in sent["rejected"]] == [3]
        shown = client.get(f"/v1/messages/{sent['firstId']}").json()
        assert shown["message"]["text"] == "tea"
        assert len(client.get("/v1/messages").json()["messages"]) == 2
        assert len(client.get(f"/v1/messages?after={sent['firstId']}").json()["messages"]) == 1
        assert other.get("/v1/messages").json() == {"messages": []}
        hidden = other.get(f"/v1/messages/{sent['firstId']}")
        missing = other.get("/v1/messages/1-1")
        assert hidden.status_code == missing.status_code == 404
        assert {**hidden.json(), "instance": ""} == {**missing.json(), "instance": ""}


def test_a_message_is_published_once(server: Running) -> None:
    with server.client(server.make_tenant("once")) as client:
        headers = {"Idempotency-Key": "k1"}
        first = client.post("/v1/messages", json=MESSAGE, headers=headers)
        again = client.post("/v1/messages", json=MESSAGE, headers=headers)
        assert first.json() == again.json()
        changed = client.post("/v1/messages", json=[MESSAGE, MESSAGE], headers=headers)
        assert (changed.status_code, changed.json()["code"]) == (422, "CONFLICT")
        assert len(client.get("/v1/messages").json()["messages"]) == 1
        strict = {"Prefer": "handling=strict"}
        refused = client.post("/v1/messages", json=[MESSAGE, {}], headers=strict)
        assert refused.status_code == 422
        assert len(client.get("/v1/messages").json()["messages"]) == 1


def test_a_dry_run_tells_the_reach(server: Running) -> None:
    with server.client(server.make_tenant("dry")) as client:
        for subscriber in ("ann", "ann", "bob"):
            body = resource("tea", subscriber=subscriber)
            client.post("/v1/subscriptions", json=body).raise_for_status()
        found = client.post("/v1/messages?dryRun=1", json=MESSAGE).json()
        assert found["reach"] == [{"subscriptions": 3, "subscribers": 2}]
        assert client.get("/v1/messages").json() == {"messages": []}


def problem_of(answer: httpx.Response) -> dict[str, Any]:
    document: dict[str, Any] = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    return document


def test_wrong_bodies_of_messages_are_refused(server: Running) -> None:
    with server.client() as client:
        for content, kind, status in (
            (b"{", "application/json", 400),
            (b"{}", "text/csv", 415),
            (b"nothing", "application/vnd.apache.arrow.stream", 400),
        ):
            answer = client.post("/v1/messages", content=content, headers={"Content-Type": kind})
            assert problem_of(answer)["status"] == answer.status_code == status
        assert problem_of(client.get("/v1/messages?after=soon"))["status"] == 400
        assert problem_of(client.get("/v1/events?cursor=soon"))["status"] == 400
