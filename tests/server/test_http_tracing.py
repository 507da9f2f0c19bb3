"""How a message is found, by requests to a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from nearcast.engine import NodeTrace, SegmentTrace, Trace
from nearcast.indexes.tracing import TracedBox
from nearcast.server.http.tracing import MAX_BOXES, MAX_NODES, shown_trace
from running import BERLIN, Running, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

NDJSON = {"Content-Type": "application/x-ndjson"}
COUNT = 1_500


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


def publish(client: httpx.Client, text: str, **more: Any) -> str:
    message = {"text": text, "lon": BERLIN[0], "lat": BERLIN[1], **more}
    return str(client.post("/v1/messages", json=message).raise_for_status().json()["firstId"])


@pytest.fixture(scope="module")
def many(server: Running) -> str:
    """Import enough subscriptions for an index, and return the id of a message."""
    with server.client() as client:
        lines = [
            {
                "id": f"s{i}",
                "keywords": ["tea"] if i % 3 else ["tea", f"word{i % 5}"],
                "west": BERLIN[0] - 1 + (i % 40) / 10,
                "south": 52.0,
                "east": BERLIN[0] - 0.5 + (i % 40) / 10,
                "north": 53.0,
            }
            for i in range(COUNT)
        ]
        body = "\n".join(map(json.dumps, lines))
        answer = client.post("/v1/subscriptions/import", content=body, headers=NDJSON)
        assert answer.raise_for_status().json()["accepted"] == COUNT
        return publish(client, "Hot tea word1", properties={"n": 1})


def test_words_nodes_and_boxes_are_shown(server: Running, many: str) -> None:
    with server.client() as client:
        answer = client.get(f"/v1/messages/{many}/trace")
        assert answer.status_code == 200
        found = answer.json()
        while (reach := client.get(f"/v1/messages/{many}").json()["reach"]) is None:
            pass
    assert found["id"] == many
    assert found["message"]["properties"] == {"n": 1}
    assert found["tokens"] == ["hot", "tea", "word1"]
    assert found["matches"] == reach["subscriptions"] > 10
    traced = [segment for segment in found["segments"] if segment["index"] == "trie-pyramid"]
    assert traced
    nodes = [node for segment in traced for node in segment["nodes"]]
    assert {word for node in nodes for word in node["path"]} <= {"tea", "word1"}
    assert sum(node["matched"] for node in nodes) == found["matches"]
    boxes = [box for node in nodes for box in node["boxes"]]
    assert {box["level"] for box in boxes} >= {0, 1}
    assert found["truncated"] == (len(boxes) == MAX_BOXES)
    for box in boxes:
        meets = (
            box["west"] <= BERLIN[0] <= box["east"] and box["south"] <= BERLIN[1] <= box["north"]
        )
        assert box["opened"] or not meets
        assert -180 <= box["west"] <= box["east"] <= 180
    assert "\\u001d" not in answer.text


def test_segments_that_cannot_be_traced_say_why(server: Running) -> None:
    ranked = resource("tea")
    ranked["config"]["subscriptionDetail"] |= {
        "region": {"type": "Point", "coordinates": [*BERLIN]},
        "ranking": {"delta": 0.5, "tau": 0.1, "maxDistanceM": 1000},
    }
    with server.client() as client:
        client.put("/v1/subscriptions/ranked", json=ranked).raise_for_status()
        id = publish(client, "tea")
        found = client.get(f"/v1/messages/{id}/trace").json()
    silent = [segment for segment in found["segments"] if segment["untraced"] is not None]
    assert {segment["kind"] for segment in silent} >= {"proximity"}
    assert all(segment["nodes"] == [] and segment["untraced"] for segment in silent)


def test_only_admins_of_the_first_tenant_may_see_it(server: Running, many: str) -> None:
    path = f"/v1/messages/{many}/trace"
    with server.client("") as nobody:
        assert nobody.get(path).status_code == 401
    with server.client(server.make_key("publish", "subscribe")) as client:
        assert client.get(path).status_code == 403
    with server.client(server.make_tenant("curious")) as stranger:
        own = publish(stranger, "tea")
        for id in (many, own):
            answer = stranger.get(f"/v1/messages/{id}/trace")
            assert (answer.status_code, answer.json()["code"]) == (403, "PERMISSION_DENIED")
    with server.client() as client:
        assert client.get(f"/v1/messages/{own}/trace").status_code == 404


@pytest.mark.parametrize("id", ["nonsense", "1-1", "1-1.2", "0", "1795888800-99999999999"])
def test_a_message_that_does_not_exist(server: Running, id: str) -> None:
    with server.client() as client:
        answer = client.get(f"/v1/messages/{id}/trace")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def traced(nodes: int, boxes: int) -> Trace:
    box = TracedBox((-1_800_000_000, 0, 2_000_000_000, 900_000_001), 1, True)
    node = NodeTrace(("tea",), False, 9, 9, 1, (box,) * boxes)
    return Trace(("tea",), (SegmentTrace("trie-pyramid", "boolean", 9, 9, 1, (node,) * nodes),))


def test_there_are_not_too_many_nodes_and_boxes() -> None:
    [segment] = shown_trace(traced(MAX_NODES, MAX_BOXES // MAX_NODES))["segments"]
    assert len(segment["nodes"]) == MAX_NODES
    assert not shown_trace(traced(MAX_NODES, MAX_BOXES // MAX_NODES))["truncated"]
    found = shown_trace(traced(MAX_NODES + 1, 1))
    assert (len(found["segments"][0]["nodes"]), found["truncated"]) == (MAX_NODES, True)
    found = shown_trace(traced(2, MAX_BOXES))
    boxes = [len(node["boxes"]) for node in found["segments"][0]["nodes"]]
    assert (boxes, found["truncated"]) == ([MAX_BOXES, 0], True)
    first = found["segments"][0]["nodes"][0]["boxes"][0]
    assert (first["west"], first["east"], first["north"]) == (-180, 180, 90)
