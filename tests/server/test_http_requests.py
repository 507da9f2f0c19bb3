"""What requests may say: parameters, media types, credentials and resources that were read."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from nearcast.server.http.answers import accepted_type
from nearcast.server.http.problems import Problem
from running import BERLIN, Running, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGE = {"text": "tea", "lon": BERLIN[0], "lat": BERLIN[1]}
LINES = "application/x-ndjson"
SSE = "text/event-stream"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("server")
    with running_server(folder, allow_sinks=("127.0.0.0/8",)) as running:
        yield running


# --- parameters ----------------------------------------------------------------------------------


def test_every_route_refuses_parameters_that_it_does_not_know(server: Running) -> None:
    with server.client() as client:
        document = client.get("/openapi.json").json()
        paths = [path for path in document["paths"] if path.startswith("/v1/")]
        asked = 0
        for path in paths:
            filled = path.replace("{id}", "x").replace("{name}", "x")
            for method in document["paths"][path]:
                answer = client.request(method, f"{filled}?colour=red", json={})
                problem = answer.json()
                assert (answer.status_code, problem["code"]) == (400, "INVALID_ARGUMENT"), path
                assert problem["errors"][0]["field"] == "colour", (method, path)
                asked += 1
        assert asked > 30


def test_a_misspelled_dry_run_publishes_nothing(server: Running) -> None:
    with server.client() as client:
        last = client.post("/v1/messages", json=MESSAGE).json()["lastSeq"]
        answer = client.post("/v1/messages?dryrun=1", json=MESSAGE)
        assert answer.status_code == 400
        assert "did you mean dryRun?" in answer.json()["detail"]
        assert client.post("/v1/messages", json=MESSAGE).json()["firstSeq"] == last + 1


# --- media types ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", SSE),
        ("*/*", SSE),
        ("text/*", SSE),
        ("application/x-ndjson", LINES),
        ("Application/*", LINES),
        ("text/event-stream;q=0.1, application/x-ndjson", LINES),
        ("text/event-stream;q=0, */*;q=0.1", LINES),
        ("*/*, text/event-stream;q=0.2", LINES),
        ("text/event-stream;q=nonsense", SSE),
        ("application/json", None),
        ("text/event-stream;q=0", None),
        ("image/png, text/html", None),
    ],
)
def test_the_media_type_that_a_client_likes_best(accept: str, chosen: str | None) -> None:
    if chosen is None:
        with pytest.raises(Problem, match="change Accept") as caught:
            accepted_type(accept, [SSE, LINES])
        assert caught.value.status == 406
    else:
        assert accepted_type(accept, [SSE, LINES]) == chosen


def test_events_in_a_form_that_nobody_accepts(server: Running) -> None:
    with server.client() as client:
        answer = client.get("/v1/events", headers={"Accept": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (406, "NOT_ACCEPTABLE")
        assert "poll=1" in answer.json()["detail"]
        headers = {"Accept": "text/html"}
        assert client.get("/v1/events?poll=1", headers=headers).status_code == 406
        headers = {"Accept": "text/html, application/json;q=0.5"}
        assert client.get("/v1/events?poll=1", headers=headers).status_code == 200


# --- WebSockets and tokens -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "with_key", "status", "detail"),
    [
        ("", False, 401, "give a valid key"),
        ("?cursor=nonsense", True, 400, "cursor"),
        ("?cursor=@unknown", True, 404, "no such cursor"),
        ("?poll=1", True, 400, "poll: is not a known parameter"),
    ],
)
def test_a_refused_websocket_says_why(
    server: Running, query: str, with_key: bool, status: int, detail: str
) -> None:
    url = server.url.replace("http", "ws") + "/v1/events" + query
    headers = {"Authorization": f"Bearer {server.key}"} if with_key else {}
    with pytest.raises(InvalidStatus) as caught, connect(url, additional_headers=headers):
        pass
    response = caught.value.response
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-correlator"]
    problem = json.loads(response.body or b"")
    assert problem["status"] == status
    assert detail in problem["detail"]


def test_addresses_take_tokens_and_no_keys(server: Running) -> None:
    with server.client() as client:
        token = client.post("/v1/tokens", json={"subscriber": "ann"}).json()["token"]
    with server.client("") as client:
        for credential, status in ((token, 200), (server.key, 401), ("nct_" + "é", 401)):
            answer = client.get("/v1/events", params={"poll": 1, "access_token": credential})
            assert answer.status_code == status


# --- messages and subscriptions ------------------------------------------------------------------


def test_one_invalid_message_is_an_error(server: Running) -> None:
    broken = {"text": "tea", "lon": 13}
    with server.client() as client:
        answer = client.post("/v1/messages", json=broken)
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_ARGUMENT")
        [error] = answer.json()["errors"]
        assert error["field"] == "lat"
        assert error["reason"].startswith("is missing")
        assert client.post("/v1/messages?dryRun=1", json=broken).status_code == 400
        several = client.post("/v1/messages", json=[broken]).raise_for_status().json()
        assert (several["accepted"], several["rejected"][0]["field"]) == (0, "lat")
        headers = {"Content-Type": LINES}
        line = json.dumps(broken)
        answer = client.post("/v1/messages", content=line, headers=headers)
        assert answer.raise_for_status().json()["accepted"] == 0


def test_what_was_read_can_be_sent_back(server: Running) -> None:
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    body: dict[str, Any] = resource("tea", id="read")
    body["config"]["subscriptionExpireTime"] = later
    with server.client() as client:
        client.post("/v1/subscriptions", json=body).raise_for_status()
        read = client.get("/v1/subscriptions/read").json()
        assert {"startsAt", "expiresAt", "version", "status"} <= read.keys()
        read["config"]["subscriptionDetail"]["keywords"] = ["coffee"]
        etag = {"If-Match": f'"{read["version"]}"'}
        answer = client.put("/v1/subscriptions/read", json=read, headers=etag)
        found = answer.raise_for_status().json()
        assert answer.status_code == 200
        assert found["config"] == read["config"]
        assert found["version"] > read["version"]
        again = client.post("/v1/subscriptions", json=read | {"id": "new"})
        assert again.status_code == 400  # what the server sets is for PUT only


def test_what_has_ended_cannot_be_changed_but_created_again(server: Running) -> None:
    body: dict[str, Any] = resource("once", id="ended")
    body["config"]["subscriptionMaxEvents"] = 1
    with server.client() as client:
        client.post("/v1/subscriptions", json=body).raise_for_status()
        cursor = client.post("/v1/messages", json=MESSAGE | {"text": "once"}).json()["firstId"]
        said = ""
        while "MAX_EVENTS_REACHED" not in said:  # it may come after the event that was the last
            path = f"/v1/events?poll=1&waitS=10&cursor={cursor}"
            answer = client.get(path).raise_for_status()
            said, cursor = answer.text, answer.json()["cursor"]
        read = client.get("/v1/subscriptions/ended").json()
        assert read["status"] == "EXPIRED"
        changed = client.patch("/v1/subscriptions/ended", json={"status": "ACTIVE"})
        assert (changed.status_code, changed.json()["code"]) == (409, "CONFLICT")
        assert "has ended" in changed.json()["detail"]
        found = client.put("/v1/subscriptions/ended", json=read).raise_for_status().json()
        assert found["status"] == "ACTIVE"


@pytest.mark.parametrize(
    "sink",
    [
        "https://10.0.0.1/hook",
        "http://192.168.1.1/hook",
        "https://[::1]/hook",
        "https://169.254.169.254/latest/meta-data",
        "http://8.8.8.8/hook",
        "https://2130706433/",
        "https://example.com/hook#part",
        "ftp://127.0.0.1/hook",
    ],
)
def test_sinks_that_cannot_be_reached_are_refused_at_once(server: Running, sink: str) -> None:
    with server.client() as client:
        answer = client.post("/v1/subscriptions", json=resource("tea", sink=sink))
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_SINK")
        assert answer.json()["errors"][0]["field"] == "sink"


def test_a_name_of_a_private_address_is_refused_unless_it_is_allowed(tmp_path: Any) -> None:
    body = resource("tea", sink="https://localhost/hook")
    with running_server(tmp_path) as strict, strict.client() as client:
        answer = client.post("/v1/subscriptions", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_SINK")
    with (
        running_server(tmp_path / "lenient", allow_sinks=("127.0.0.0/8", "::1/128")) as lenient,
        lenient.client() as client,
    ):
        client.post("/v1/subscriptions", json=body).raise_for_status()
