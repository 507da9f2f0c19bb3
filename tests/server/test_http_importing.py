"""Imports and moves, by requests to a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from nearcast.server.http import importing
from running import BERLIN, Running, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def record(id: str, **more: Any) -> dict[str, Any]:
    place = {"lon": BERLIN[0], "lat": BERLIN[1], "radius_m": 500}
    return {"id": id, "keywords": ["tea"], **place, **more}


def test_imports_and_moves_need_the_role(server: Running) -> None:
    for path in ("/v1/subscriptions/import", "/v1/moves"):
        with server.client("") as nobody:
            assert nobody.post(path, content=b"").status_code == 401
        with server.client(server.make_key("publish")) as client:
            assert client.post(path, content=b"").status_code == 403


def test_lines_stand_for_themselves(server: Running) -> None:
    body = lines(
        record("a", owner="ann"), {"id": "b"}, resource("cake", id="c"), record("d", lat=95)
    )
    with server.client() as client:
        answer = client.post(
            "/v1/subscriptions/import", content=body + b"no json\n\n", headers=NDJSON
        )
        assert answer.status_code == 200
        found = answer.json()
        assert found["accepted"] == 2
        assert [one["line"] for one in found["rejected"]] == [2, 4, 5]
        assert found["rejectedCount"] == 3
        assert all(one["reason"] for one in found["rejected"])
        shown = client.get("/v1/subscriptions/a").json()
        assert shown["config"]["subscriptionDetail"]["subscriber"] == "ann"
        assert client.get("/v1/subscriptions/c").status_code == 200


def test_an_id_is_replaced_only_if_asked_for(server: Running) -> None:
    with server.client() as client:
        for upsert, accepted in ((0, 1), (0, 0), (1, 1)):
            path = f"/v1/subscriptions/import?upsert={upsert}"
            words = record("again", keywords=[f"v{upsert}"])
            found = client.post(path, content=lines(words), headers=NDJSON).json()
            assert found["accepted"] == accepted
            if not accepted:
                [rejected] = found["rejected"]
                assert rejected["line"] == 1
                assert "exists already" in rejected["reason"]
        shown = client.get("/v1/subscriptions/again").json()
        assert shown["config"]["subscriptionDetail"]["keywords"] == ["v1"]


def test_a_feature_collection_is_imported(server: Running) -> None:
    feature = {
        "type": "Feature",
        "id": "f1",
        "properties": {"keywords": ["tea"], "radius_m": 100},
        "geometry": {"type": "Point", "coordinates": [*BERLIN]},
    }
    broken = {**feature, "id": "f2", "geometry": None}
    body = {"type": "FeatureCollection", "features": [feature, broken]}
    with server.client() as client:
        headers = {"Content-Type": "application/geo+json"}
        content = json.dumps(body, indent=1)
        found = client.post("/v1/subscriptions/import", content=content, headers=headers).json()
        assert found["accepted"] == 1
        assert [(one["line"], one["field"]) for one in found["rejected"]] == [(2, "geometry")]
        region = client.get("/v1/subscriptions/f1").json()["config"]["subscriptionDetail"]["region"]
        assert region["radius"] == 100


def test_a_large_body_is_read_in_pieces(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "_PIECE_BYTES", 1_000)
    monkeypatch.setattr(importing, "_MAX_RECORD", 7)
    records = [record(f"p{number}") for number in range(500)]
    records[250] = {"id": "wrong"}
    key = server.make_tenant("pieces")

    def chunks() -> Iterator[bytes]:
        body = lines(*records)
        yield from (body[at : at + 333] for at in range(0, len(body), 333))

    with server.client(key) as client:
        found = client.post("/v1/subscriptions/import", content=chunks(), headers=NDJSON).json()
        assert found["accepted"] == 499
        assert [one["line"] for one in found["rejected"]] == [251]
        monkeypatch.setattr(importing, "MAX_IMPORT_BYTES", 1_000)
        for content in (chunks(), lines(*records)):
            answer = client.post("/v1/subscriptions/import", content=content, headers=NDJSON)
            assert answer.status_code == 413
        monkeypatch.setattr(importing, "MAX_IMPORT_BYTES", 1 << 20)
        monkeypatch.setattr(importing, "_MAX_LINE_BYTES", 1_000)
        content = iter([b" " * 900, b" " * 900])
        answer = client.post("/v1/subscriptions/import", content=content, headers=NDJSON)
        assert answer.status_code == 413
        assert "line 1" in answer.json()["detail"]


def test_the_limit_of_a_tenant_holds(server: Running) -> None:
    key = server.make_tenant("few")
    with server.client() as admin, server.client(key) as client:
        admin.put("/v1/tenants/few/limits", json={"subscriptions": 2}).raise_for_status()
        body = lines(*[record(f"l{number}") for number in range(4)])
        found = client.post("/v1/subscriptions/import", content=body, headers=NDJSON).json()
        assert found["accepted"] == 2
        assert [one["line"] for one in found["rejected"]] == [3, 4]
        path = "/v1/subscriptions/import?upsert=1"
        found = client.post(path, content=body, headers=NDJSON).json()
        assert found["accepted"] == 2


def test_a_key_for_one_subscriber_touches_only_its_own(server: Running) -> None:
    tenant = server.make_tenant("shared")
    with server.client(tenant) as client:
        body = {"roles": ["subscribe"], "subscriber": "ann"}
        bound = client.post("/v1/keys", json=body).json()["key"]
        path = "/v1/subscriptions/import?upsert=1"
        client.post(path, content=lines(record("bobs", owner="bob")), headers=NDJSON)
        with server.client(bound) as ann:
            given = lines(record("bobs"), record("x", owner="bob"), record("anns"))
            found = ann.post(path, content=given, headers=NDJSON).json()
            assert found["accepted"] == 1
            assert [(r["line"], r["field"]) for r in found["rejected"]] == [
                (1, "id"),
                (2, "subscriber"),
            ]
            assert ann.put("/v1/subscriptions/bobs", json=resource("mine")).status_code == 409
            again = ann.post(path, content=lines(record("anns", owner="ann")), headers=NDJSON)
            assert again.json()["accepted"] == 1
            place = {"lon": 1.0, "lat": 1.0, "radius_m": 5}
            moves = lines(
                {"subscriptionId": "bobs", **place},
                {"subscriptionId": "anns", **place},
                {"subscriptionId": "none", **place},
            )
            found = ann.post("/v1/moves", content=moves, headers=NDJSON).json()
            assert found["moved"] == 1
            assert [one["line"] for one in found["rejected"]] == [1, 3]
            assert found["rejected"][0]["reason"] == found["rejected"][1]["reason"]
        shown = client.get("/v1/subscriptions/bobs").json()["config"]["subscriptionDetail"]
        assert (shown["subscriber"], shown["keywords"]) == ("bob", ["tea"])


def test_another_tenants_subscriptions_do_not_move(server: Running) -> None:
    stranger = server.make_tenant("stranger")
    with server.client() as client, server.client(stranger) as other:
        client.put("/v1/subscriptions/still", json=resource("tea")).raise_for_status()
        move = {"subscriptionId": "still", "lon": 0, "lat": 0, "radius_m": 5}
        body = lines(move, {**move, "subscriptionId": "none"})
        found = other.post("/v1/moves", content=body, headers=NDJSON).json()
        assert found["moved"] == 0
        first, second = found["rejected"]
        assert {**first, "line": 2} == second


def test_moves_change_what_is_delivered(server: Running) -> None:
    key = server.make_tenant("moving")
    with server.client(key) as client:
        client.put("/v1/subscriptions/m", json=resource("tea")).raise_for_status()
        far = {"subscriptionId": "m", "lon": 2.35, "lat": 48.85, "radius_m": 500, "time": 2}
        near = {
            "subscriptionId": "m",
            "region": resource()["config"]["subscriptionDetail"]["region"],
        }
        body = lines(far, {**near, "time": 1}, {"subscriptionId": "m"}, {"lon": 1, "lat": 1})
        found = client.post("/v1/moves", content=body, headers=NDJSON).json()
        assert found["moved"] == 2
        assert [one["line"] for one in found["rejected"]] == [3, 4]
        messages = [
            {"text": "tea", "lon": 2.35, "lat": 48.85},
            {"text": "tea", "lon": BERLIN[0], "lat": BERLIN[1]},
        ]
        client.post("/v1/messages", json=messages).raise_for_status()
        matched = [e["data"]["message"]["lat"] for e in events(client) if "message" in e["data"]]
    assert matched == [48.85]


def test_a_patch_leaves_a_subscription_where_it_has_moved(server: Running) -> None:
    key = server.make_tenant("patched")
    with server.client(key) as client:
        client.put("/v1/subscriptions/m", json=resource("tea")).raise_for_status()
        paris = {"lon": 2.35, "lat": 48.85}
        body = lines({"subscriptionId": "m", **paris, "radius_m": 500})
        assert client.post("/v1/moves", content=body, headers=NDJSON).json()["moved"] == 1
        patch = {"Content-Type": "application/merge-patch+json"}
        for status in ("INACTIVE", "ACTIVE"):
            content = json.dumps({"status": status})
            answer = client.patch("/v1/subscriptions/m", content=content, headers=patch)
            detail = answer.raise_for_status().json()["config"]["subscriptionDetail"]
            assert detail["region"]["center"] == {"latitude": 48.85, "longitude": 2.35}
        client.post("/v1/messages", json={"text": "tea", **paris}).raise_for_status()
        matched = [e["data"]["message"]["lat"] for e in events(client) if "message" in e["data"]]
    assert matched == [48.85]


def events(client: httpx.Client) -> list[dict[str, Any]]:
    """Return all events of the default subscriber: those until a last message of this call."""
    client.put("/v1/subscriptions/last", json=resource("thelast")).raise_for_status()
    last = {"text": "thelast", "lon": BERLIN[0], "lat": BERLIN[1]}
    id = client.post("/v1/messages", json=last).json()["lastId"]
    found: list[dict[str, Any]] = []
    cursor = "earliest"
    while not found or found[-1]["id"] != id:
        path = f"/v1/events?poll=1&waitS=10&limit=1000&cursor={cursor}"
        answer = client.get(path).raise_for_status().json()
        found += answer["events"]
        cursor = answer["cursor"]
    return found[:-1]
