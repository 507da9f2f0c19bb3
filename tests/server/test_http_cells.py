"""Counts of subscriptions per cell, by requests to a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from running import Running, circle, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

NDJSON = {"Content-Type": "application/x-ndjson"}
EVERYWHERE = "-180,-90,180,90"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


def box(west: float, south: float, east: float, north: float) -> dict[str, Any]:
    return {"areaType": "BOX", "west": west, "south": south, "east": east, "north": north}


def put(client: httpx.Client, id: str, region: dict[str, Any], **more: Any) -> None:
    given = resource("tea", **more)
    given["config"]["subscriptionDetail"]["region"] = region
    client.put(f"/v1/subscriptions/{id}", json=given).raise_for_status()


def cells(client: httpx.Client, bbox: str, **more: Any) -> dict[str, Any]:
    answer = client.get("/v1/subscriptions/cells", params={"bbox": bbox, **more})
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def listed(client: httpx.Client, bbox: str) -> int:
    """Return how many live subscriptions the list has."""
    page = client.get("/v1/subscriptions", params={"bbox": bbox, "limit": 1000}).json()
    return sum(one["status"] in ("ACTIVE", "INACTIVE") for one in page["subscriptions"])


def test_totals_are_those_of_the_list(server: Running) -> None:
    with server.client(server.make_tenant("totals")) as client:
        put(client, "small", box(1, 1, 2, 2))
        put(client, "paused", box(3, 1, 4, 2), status="INACTIVE")
        put(client, "large", box(-100, -50, 100, 50))
        put(client, "across", box(178, 0, -178, 2))
        put(client, "round", circle(3.5, 1.5, 1000))
        put(client, "gone", box(1, 1, 2, 2))
        client.delete("/v1/subscriptions/gone").raise_for_status()
        windows = (
            EVERYWHERE,
            "0,0,5,5",
            "179,0,180,1",
            "-180,0,-179,1",
            "170,-5,-170,5",
            "2,2,3,3",
        )
        for bbox in windows:
            assert cells(client, bbox)["total"] == listed(client, bbox)
        found = cells(client, "0,0,5,5", columns=5)
        assert found["total"] == 4
        one = {"west": 1.0, "south": 1.0, "east": 2.0, "north": 2.0, "count": 1}
        two = {"west": 3.0, "south": 1.0, "east": 4.0, "north": 2.0, "count": 2}
        corner = {"west": 0.0, "south": 0.0, "east": 1.0, "north": 1.0, "count": 1}
        assert found["cells"] == [corner, one, two]


def test_moves_changes_and_ends_count(server: Running) -> None:
    with server.client(server.make_tenant("changes")) as client:
        put(client, "s", box(1, 1, 2, 2))
        assert cells(client, "0,0,5,5")["total"] == 1
        move = {"subscriptionId": "s", "region": box(11, 1, 12, 2)}
        client.post("/v1/moves", content=json.dumps(move), headers=NDJSON).raise_for_status()
        assert (cells(client, "0,0,5,5")["total"], cells(client, "10,0,15,5")["total"]) == (0, 1)
        put(client, "s", box(21, 1, 22, 2))
        assert (cells(client, "10,0,15,5")["total"], cells(client, "20,0,25,5")["total"]) == (0, 1)
        put(client, "once", box(1, 1, 2, 2))
        patch = {"config": {"subscriptionMaxEvents": 1}}
        client.patch("/v1/subscriptions/once", json=patch).raise_for_status()
        assert cells(client, "0,0,5,5")["total"] == 1
        client.post("/v1/messages", json={"text": "tea", "lon": 1.5, "lat": 1.5}).raise_for_status()
        put(client, "later", box(50, 50, 51, 51))  # when this is applied, the message is as well
        assert client.get("/v1/subscriptions/once").json()["status"] == "EXPIRED"
        assert cells(client, "0,0,5,5")["total"] == 0


def test_tenants_and_subscribers_see_their_own(server: Running) -> None:
    with server.client(server.make_tenant("mine")) as mine:
        put(mine, "s", box(1, 1, 2, 2), subscriber="ann")
        put(mine, "t", box(1, 1, 2, 2), subscriber="bob")
        assert cells(mine, EVERYWHERE)["total"] == 2
        assert cells(mine, EVERYWHERE, subscriber="ann")["total"] == 1
    with server.client(server.make_tenant("theirs")) as stranger:
        assert cells(stranger, EVERYWHERE) == {"total": 0, "cells": []}
    with server.client(server.make_key("subscribe", tenant="mine", subscriber="ann")) as ann:
        assert cells(ann, EVERYWHERE)["total"] == 1
        answer = ann.get(
            "/v1/subscriptions/cells", params={"bbox": EVERYWHERE, "subscriber": "bob"}
        )
        assert answer.status_code == 403
    with server.client(server.make_key("publish")) as publisher:
        answer = publisher.get("/v1/subscriptions/cells", params={"bbox": EVERYWHERE})
        assert answer.status_code == 403
    with server.client("") as nobody:
        assert nobody.get("/v1/subscriptions/cells?bbox=0,0,1,1").status_code == 401


@pytest.mark.parametrize(
    "query",
    [
        "",
        "bbox=1,2,3",
        "bbox=a,b,c,d",
        "bbox=0,5,1,4",
        "bbox=-181,0,1,1",
        "bbox=nan,0,1,1",
        "bbox=0,0,1,1&columns=0",
        "bbox=0,0,1,1&columns=257",
        "bbox=0,0,1,1&columns=x",
    ],
)
def test_wrong_parameters_are_refused(server: Running, query: str) -> None:
    with server.client() as client:
        answer = client.get(f"/v1/subscriptions/cells?{query}")
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["errors"]


def test_no_subscription_can_have_the_name_of_the_path(server: Running) -> None:
    with server.client() as client:
        answer = client.post("/v1/subscriptions", json=resource("tea", id="cells"))
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "id")
        for method in ("PUT", "PATCH", "DELETE", "POST", "OPTIONS"):
            answer = client.request(method, "/v1/subscriptions/cells", json=resource("tea"))
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
            assert answer.headers["content-type"] == "application/problem+json"


def test_counts_survive_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("restart")
    with running_server(folder) as server, server.client() as client:
        put(client, "s", box(1, 1, 2, 2))
        put(client, "t", box(170, 1, -170, 2))
        move = {"subscriptionId": "s", "region": box(11, 1, 12, 2)}
        client.post("/v1/moves", content=json.dumps(move), headers=NDJSON).raise_for_status()
        before, key = cells(client, EVERYWHERE), server.key
    with running_server(folder) as server, server.client(key) as client:
        assert cells(client, EVERYWHERE) == before
        assert cells(client, "10,0,15,5")["total"] == 1
