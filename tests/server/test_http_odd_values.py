"""Values that are odd and possible: names beyond Latin-1, half characters, tiny numbers."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pytest

from crafted_tables import CRAFTED, stream_of
from nearcast.server.http.messages import parse_messages
from running import BERLIN, Running, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


def refused(answer: httpx.Response, field: str) -> bool:
    """Whether an answer is a problem that names a field."""
    problem = answer.json()
    fields = [one["field"] for one in problem.get("errors", [])]
    assert (answer.status_code, problem["code"]) == (400, "INVALID_ARGUMENT")
    assert fields == [field]
    return True


@pytest.mark.parametrize(
    "id", ["€", "ß", "猫", "a b", "a?b=c", "100%", "a;b,c", "\N{TRIDENT EMBLEM}"]
)
def test_the_location_of_a_subscription_can_be_followed(server: Running, id: str) -> None:
    with server.client() as client:
        path = f"/v1/subscriptions/{quote(id, safe='')}"
        made = client.put(path, json=resource("tea"))
        assert (made.status_code, made.json()["id"]) == (201, id)
        assert made.headers["Location"] == path
        assert client.get(made.headers["Location"]).json()["id"] == id
        again = client.put(path, json=resource("cake"))
        assert (again.status_code, client.delete(path).status_code) == (200, 204)
        given = client.post("/v1/subscriptions", json={**resource("tea"), "id": id})
        assert (given.status_code, given.headers["Location"]) == (201, path)
        assert client.delete(given.headers["Location"]).status_code == 204


HALF = '"\\ud800"'
"""Half of a character, as JSON can write it and UTF-8 cannot."""


@pytest.mark.parametrize(
    "words",
    [
        f'"text": {HALF}',
        f'"tokens": ["a", {HALF}]',
        f'"text": "a", "properties": {{"a": {{"b": {HALF}}}}}',
        f'"text": "a", "properties": {{{HALF}: 1}}',
        f'"text": "a", {HALF}: 1',
    ],
)
def test_a_preview_with_half_a_character(server: Running, words: str) -> None:
    message = f'{{{words}, "lon": 1, "lat": 1}}'
    with server.client() as client:
        body = f'{{"subscription": {json.dumps(resource("tea"))}, "message": {message}}}'
        answer = client.post("/v1/preview", content=body, headers=JSON)
        assert refused(answer, "message")


def test_a_preview_takes_integers_of_any_size(server: Running) -> None:
    with server.client() as client:
        message = {"text": "tea", "lon": BERLIN[0], "lat": BERLIN[1], "properties": {"n": 10**40}}
        body = {"subscription": resource("tea"), "message": message}
        answer = client.post("/v1/preview", json=body)
        [shown] = answer.raise_for_status().json()["messages"]
        assert shown["message"]["properties"] == {"n": 10**40}


@pytest.mark.parametrize("place", ["keyword", "expression", "subscriber", "id"])
def test_a_subscription_with_half_a_character(server: Running, place: str) -> None:
    given = resource("tea")
    detail = given["config"]["subscriptionDetail"]
    if place == "keyword":
        detail["keywords"] = ["tea", "\ud800"]
    elif place == "expression":
        del detail["keywords"]
        detail["expression"] = "tea \ud800"
    elif place == "subscriber":
        detail["subscriber"] = "\ud800"
    else:
        given["id"] = "\ud800"
    with server.client() as client:
        for path, body in [
            ("/v1/subscriptions", given),
            ("/v1/preview", {"subscription": given}),
        ]:
            answer = client.post(path, content=json.dumps(body), headers=JSON)
            assert answer.status_code == 400, path


@pytest.mark.parametrize("limit", [1e-320, 5e-324, 1e-300])
@pytest.mark.parametrize("name", ["requestsPerS", "messagesPerS"])
def test_tiny_limits_are_limits(server: Running, name: str, limit: float) -> None:
    tenant = f"{name}-{limit}"
    with server.client() as admin, server.client(server.make_tenant(tenant)) as client:
        path = f"/v1/tenants/{tenant}/limits"
        admin.put(path, json={name: limit}).raise_for_status()
        message = {"text": "tea", "lon": 1, "lat": 1}
        first, second = (client.post("/v1/messages", json=message) for _ in range(2))
        assert first.status_code == 200
        assert second.status_code == 429
        assert second.headers["Retry-After"] == "86400"
        assert "try again in 86400 s" in second.json()["detail"]
        admin.put(path, json={}).raise_for_status()
        assert client.post("/v1/messages", json=message).status_code == 200


@pytest.mark.parametrize(
    "bbox",
    [
        "0,0,5e-324,1",
        "0,0,1e-320,90",
        "0,-90,5e-324,90",
        "13.4,52.5,13.400000000000002,53",
        "-180,0,-179.99999999999997,1",
        "0,0,1,5e-324",
        "0,0,5e-324,5e-324",
        "180,0,-180,1",
        "1,1,1,1",
    ],
)
def test_cells_of_tiny_boxes(server: Running, bbox: str) -> None:
    with server.client(server.make_tenant(f"cells-{bbox}".translate({44: "-", 46: "-"}))) as client:
        given = resource("tea")
        given["config"]["subscriptionDetail"]["region"] = {
            "areaType": "BOX",
            "west": -180,
            "south": -90,
            "east": 180,
            "north": 90,
        }
        client.put("/v1/subscriptions/all", json=given).raise_for_status()
        for columns in (1, 256):
            query = {"bbox": bbox, "columns": columns}
            answer = client.get("/v1/subscriptions/cells", params=query)
            assert answer.raise_for_status().json()["total"] == 1


def test_an_unknown_time_zone_of_arrow(server: Running) -> None:
    zone = pa.timestamp("us", "Foo/Bar")
    nested = pa.struct([("a", pa.list_(zone))])
    point = {"text": ["tea"], "lon": [1.0], "lat": [1.0]}
    with server.client() as client:
        for field, kind in [("time", zone), ("properties", nested)]:
            table = pa.table({**point, field: pa.nulls(1, kind)})
            body = stream_of(table)
            assert refused(client.post("/v1/messages", content=body, headers=ARROW), field)


def test_streams_of_arrow_are_never_parsed_on_the_loop(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def parse_noted(*given: Any) -> Any:
        threads.append(threading.get_ident())
        return parse_messages(*given)

    async def loop_thread() -> int:
        return threading.get_ident()

    loop = asyncio.run_coroutine_threadsafe(loop_thread(), server.loop).result()
    monkeypatch.setattr("nearcast.server.http.publishing.parse_messages", parse_noted)
    table = pa.table({"text": ["tea"], "lon": [1.0], "lat": [1.0]})
    with server.client() as client:
        for kind in ("application/vnd.apache.arrow.stream", "Application/vnd.Apache.Arrow.stream"):
            answer = client.post(
                "/v1/messages", content=stream_of(table), headers={"Content-Type": kind}
            )
            assert answer.raise_for_status().json()["accepted"] == 1
            assert threads.pop() != loop
        client.post("/v1/messages", json={"text": "tea", "lon": 1, "lat": 1}).raise_for_status()
        assert not threads  # a small message is read at once


def test_crafted_streams_of_arrow_are_bad_requests(server: Running) -> None:
    with server.client() as client:
        for make in CRAFTED.values():
            body = stream_of(pa.table({"tokens": make()}))
            assert refused(client.post("/v1/messages", content=body, headers=ARROW), "body")
