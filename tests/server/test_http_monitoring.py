"""Metrics, health, logs and the description of the API, by requests to a real server."""

from __future__ import annotations

import json
import logging
import queue
import time
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nearcast.server.http import monitoring
from nearcast.server.http.logs import JsonFormatter
from receiving import receiving
from running import BERLIN, Running, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("server")
    with running_server(folder, allow_sinks=("127.0.0.0/8",)) as running:
        yield running


def metrics(client: httpx.Client) -> dict[str, float]:
    """Return all samples; labels are part of the name."""
    text = client.get("/metrics").raise_for_status().text
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_health_and_readiness_need_no_key(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with server.client("") as client:
        assert client.get("/healthz").text == "ok\n"
        assert client.get("/readyz").text == "ready\n"
        monkeypatch.setattr(monitoring, "MAX_READY_BACKLOG", -1)
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
        assert answer.headers["content-type"] == "application/problem+json"
        assert client.get("/healthz").status_code == 200


def test_metrics_count_what_happened(server: Running) -> None:
    message = {"text": "tea", "lon": BERLIN[0], "lat": BERLIN[1]}
    matches = ["org.nearcast.match"]
    with receiving() as receiver, server.client() as client:
        before = metrics(client)
        receiver.status = 500
        body = resource("tea", sink=receiver.url, types=matches)
        client.post("/v1/subscriptions", json=body).raise_for_status()
        body = resource("tea", subscriber="bob", types=matches)
        client.post("/v1/subscriptions", json=body).raise_for_status()
        broken = {"text": "tea", "lon": 13}
        answer = client.post("/v1/messages", json=[message, message, broken]).json()
        assert (answer["accepted"], len(answer["rejected"])) == (2, 1)
        path = "/v1/events?poll=1&waitS=10&cursor=earliest&subscriber=bob"
        assert len(client.get(path).json()["events"]) == 2
        receiver.next()
        old = client.get("/v1/events?poll=1&cursor=1-1").json()
        assert old["gap"]["lost"] is None
        give_up_s = time.monotonic() + 30
        while True:  # until the server has heard of the answer
            after = metrics(client)
            if after["nearcast_webhook_retries"] > before["nearcast_webhook_retries"]:
                break
            assert time.monotonic() < give_up_s

    def change(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert change("nearcast_messages_published_total") == 2
    assert change("nearcast_messages_rejected_total") == 1
    assert change("nearcast_matches_total") == 4
    assert change("nearcast_events_recorded_total") == 6  # bob, default, and the sink of default
    assert change("nearcast_events_delivered_total poll") >= 2
    assert change("nearcast_event_gaps_total poll") == 1
    assert change("nearcast_events_pending webhook") == 2
    assert change("nearcast_webhook_retries") == 1
    assert change("nearcast_webhook_attempts_total failed") == 1
    assert change("nearcast_subscriptions") == 2
    assert change("nearcast_publish_to_commit_seconds_count") == 1
    assert change("nearcast_http_requests_total POST /v1/messages 200") == 1
    assert after["nearcast_log_last_seq"] == after["nearcast_matched_seq"]
    assert after["nearcast_log_bytes"] > 0


def test_a_stream_is_counted_while_it_is_open(server: Running) -> None:
    with server.client() as client, server.client() as reader:
        with reader.stream("GET", "/v1/events") as stream:
            lines = stream.iter_lines()
            assert next(lines) == ": open"
            assert metrics(client)["nearcast_streams sse"] == 1
        while metrics(client)["nearcast_streams sse"]:
            pass


def wait_for(client: Any, name: str, value: float) -> None:
    """Ask for a metric until it has a value."""
    while metrics(client)[name] != value:
        pass


def test_events_that_wait_for_cursors_and_streams_are_counted(tmp_path: Path) -> None:
    message = {"text": "tea", "lon": BERLIN[0], "lat": BERLIN[1]}
    cursor, stream = "nearcast_events_pending cursor", "nearcast_events_pending stream"
    with running_server(tmp_path) as server, server.client() as client:
        key = server.key
        body = resource("tea", subscriber="ann", types=["org.nearcast.match"])
        client.post("/v1/subscriptions", json=body).raise_for_status()
        kept = "/v1/cursors/phone?subscriber=ann"
        client.put(kept, json={"cursor": "now"}).raise_for_status()
        assert (metrics(client)[cursor], metrics(client)[stream]) == (0, 0)
        answer = client.post("/v1/messages", json=[message] * 5).json()
        wait_for(client, cursor, 5)
        client.put(kept, json={"cursor": answer["firstId"]}).raise_for_status()
        assert metrics(client)[cursor] == 4
        cap = {"cap": {"events": 2, "periodS": 3600}}
        client.put("/v1/subscribers/ann", json=cap).raise_for_status()
        path = "/v1/events?subscriber=ann&cursor=@phone"
        with server.client() as reader, reader.stream("GET", path) as held:
            lines = held.iter_lines()
            assert sum(line.startswith("id: ") for line in (next(lines) for _ in range(10))) == 2
            wait_for(client, stream, 2)
            client.post("/v1/messages", json=[message] * 3).raise_for_status()
            wait_for(client, stream, 5)
            assert metrics(client)[cursor] == 7
        wait_for(client, stream, 0)
    with running_server(tmp_path) as server, server.client(key) as client:
        assert metrics(client)[cursor] == 7
        client.put(kept, json={"cursor": "now"}).raise_for_status()
        assert metrics(client)[cursor] == 0


def test_requests_are_logged_without_secrets(server: Running) -> None:
    lines: queue.Queue[str] = queue.Queue()
    handler = QueueHandler(lines)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("nearcast.server.requests")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with server.client() as client:
            headers = {"x-correlator": "my-request"}
            client.get("/v1/events?poll=1&access_token=nct_secret", headers=headers)
        text = lines.get(timeout=30)
        while "my-request" not in text:  # the end of an earlier stream
            text = lines.get(timeout=30)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    line = json.loads(text)
    assert (line["method"], line["route"], line["tenant"]) == ("GET", "/v1/events", 0)
    assert (line["status"], line["correlator"]) == (200, "my-request")
    assert "secret" not in text
    assert server.key not in text


class QueueHandler(logging.Handler):
    """Puts formatted lines into a queue."""

    def __init__(self, lines: queue.Queue[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.put(self.format(record))


def test_the_description_is_complete(server: Running) -> None:
    with server.client("") as client:
        document = client.get("/openapi.json").raise_for_status().json()
    operations = {
        (method, path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert ("post", "/v1/messages") in operations
    assert ("get", "/metrics") in operations
    for (method, path), operation in operations.items():
        assert operation["description"], path
        for status, answer in operation["responses"].items():
            assert "x-correlator" in answer["headers"]
            if status[0] in "45":
                schema = answer["content"]["application/problem+json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Problem"}
        assert {"4XX", "5XX"} <= operation["responses"].keys()
        if path.startswith("/v1/"):
            needs_role = path not in ("/v1/about", "/v1/sign-in")
            assert ("Role: `" in operation["description"]) == needs_role, path
            assert operation.get("security") == ([{"HTTPBearer": []}] if needs_role else None)
        if method in ("post", "put", "patch") and "requestBody" not in operation:
            assert path in ("/v1/sinks/{id}/test", "/v1/sinks/{id}/enable")
    for reference in _references(document):
        place: Any = document
        for name in reference.removeprefix("#/").split("/"):
            place = place[name]
    scheme = document["components"]["securitySchemes"]["HTTPBearer"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def test_unknown_paths_and_methods_are_problems(server: Running) -> None:
    with server.client() as client:
        for method, path, status in (
            ("GET", "/v1/nothing", 404),
            ("DELETE", "/v1/messages", 405),
            ("GET", "/nothing", 404),
        ):
            answer = client.request(method, path)
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["status"] == status


def test_open_streams_do_not_keep_the_server_from_ending(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        reader = server.client()
        streaming = reader.stream("GET", "/v1/events")
        lines = streaming.__enter__().iter_lines()
        next(lines)
    assert [line[:4] for line in lines if line] == ["id: "]  # where to go on
    streaming.__exit__(None, None, None)
    reader.close()
