"""Tenants, limits, keys and tokens, by requests to a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from running import Running, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def other(server: Running) -> str:
    """Return a key of another tenant, with all roles."""
    return server.make_tenant("other")


ROUTES: list[tuple[str, str, Any]] = [
    ("POST", "/v1/tokens", {"subscriber": "ann"}),
    ("POST", "/v1/tenants", {"name": "third"}),
    ("GET", "/v1/tenants", None),
    ("GET", "/v1/tenants/default/limits", None),
    ("PUT", "/v1/tenants/default/limits", {}),
    ("POST", "/v1/keys", {"roles": ["publish"]}),
    ("GET", "/v1/keys", None),
    ("DELETE", "/v1/keys/nothing", None),
]


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
def test_admin_routes_need_an_admin_key(server: Running, method: str, path: str, body: Any) -> None:
    with server.client("") as nobody:
        assert nobody.request(method, path, json=body).status_code == 401
    with server.client(server.make_key("publish", "subscribe")) as client:
        answer = client.request(method, path, json=body)
    assert answer.status_code == 403
    assert answer.json()["code"] == "PERMISSION_DENIED"


def test_tenants_are_made_once(server: Running) -> None:
    with server.client() as client:
        made = client.post("/v1/tenants", json={"name": "acme", "limits": {"subscriptions": 1}})
        assert made.status_code == 201
        assert made.json()["limits"] == {"subscriptions": 1}
        assert client.post("/v1/tenants", json={"name": "acme"}).status_code == 409
        assert client.post("/v1/tenants", json={"name": ""}).status_code == 400
        assert client.post("/v1/tenants", json={"name": "x", "size": 1}).status_code == 400
        names = [tenant["name"] for tenant in client.get("/v1/tenants").json()["tenants"]]
    assert {"default", "acme"} <= set(names)


def test_limits_hold_at_once_and_the_creation_stays(server: Running) -> None:
    key = server.make_tenant("limited")
    path = "/v1/tenants/limited/limits"
    with server.client() as admin, server.client(key) as client:
        before = [t for t in admin.get("/v1/tenants").json()["tenants"] if t["name"] == "limited"]
        assert client.post("/v1/subscriptions", json=resource("tea")).status_code == 201
        assert admin.put(path, json={"subscriptions": 1}).json() == {"subscriptions": 1}
        assert admin.get(path).json() == {"subscriptions": 1}
        assert client.post("/v1/subscriptions", json=resource("tea")).status_code == 403
        assert admin.put(path, json={}).status_code == 200
        assert client.post("/v1/subscriptions", json=resource("tea")).status_code == 201
        assert admin.put(path, json={"subscriptions": -1}).status_code == 400
        after = [t for t in admin.get("/v1/tenants").json()["tenants"] if t["name"] == "limited"]
    assert before == after


def test_another_tenant_sees_only_itself(server: Running, other: str) -> None:
    with server.client(other) as client:
        assert [t["name"] for t in client.get("/v1/tenants").json()["tenants"]] == ["other"]
        assert {k["tenant"] for k in client.get("/v1/keys").json()["keys"]} == {"other"}
        assert client.get("/v1/tenants/other/limits").json() == {}
        assert client.put("/v1/tenants/other/limits", json={}).status_code == 403
        assert client.post("/v1/tenants", json={"name": "mine"}).status_code == 403
        same = [
            _problem(client.get("/v1/tenants/default/limits")),
            _problem(client.get("/v1/tenants/none/limits")),
            _problem(client.post("/v1/keys", json={"roles": ["publish"], "tenant": "default"})),
            _problem(client.post("/v1/keys", json={"roles": ["publish"], "tenant": "none"})),
        ]
    assert {one["status"] for one in same} == {404}
    assert all(one == same[0] for one in same)


def test_keys_are_shown_once_and_revoked_at_once(server: Running, other: str) -> None:
    with server.client() as admin:
        body = {"roles": ["publish"], "name": "shop", "subscriber": "ann"}
        made = admin.post("/v1/keys", json=body)
        assert made.status_code == 201
        key, id = made.json()["key"], made.json()["id"]
        assert key not in admin.get("/v1/keys").text
        with server.client(key) as client:
            assert client.get("/v1/messages").status_code == 200
            with server.client(other) as stranger:
                hidden = _problem(stranger.delete(f"/v1/keys/{id}"))
                assert hidden == _problem(stranger.delete("/v1/keys/none"))
                assert hidden["status"] == 404
            assert client.get("/v1/messages").status_code == 200
            assert admin.delete(f"/v1/keys/{id}").status_code == 204
            assert client.get("/v1/messages").status_code == 401
        assert admin.delete(f"/v1/keys/{id}").status_code == 404
        [shown] = [one for one in admin.get("/v1/keys").json()["keys"] if one["id"] == id]
        assert shown["revokedAt"]
        assert admin.post("/v1/keys", json={"roles": []}).status_code == 400
        assert admin.post("/v1/keys", json={"roles": ["king"]}).status_code == 400
        bound = {"roles": ["admin"], "subscriber": "ann"}
        assert admin.post("/v1/keys", json=bound).status_code == 400


def test_tokens_are_for_one_subscriber(server: Running) -> None:
    with server.client() as admin:
        made = admin.post("/v1/tokens", json={"subscriber": "ann", "expiresInS": 60})
        assert made.status_code == 201
        assert (
            admin.post("/v1/tokens", json={"subscriber": "a", "expiresInS": 0}).status_code == 400
        )
        assert admin.post("/v1/tokens", json={}).status_code == 400
    token = made.json()["token"]
    with server.client(token) as client:
        assert client.get("/v1/subscriptions").status_code == 200
        assert client.get("/v1/subscriptions?subscriber=bob").status_code == 403
        assert client.get("/v1/keys").status_code == 403
        assert client.get("/v1/messages").status_code == 403
    with server.client("") as browser:
        path = f"/v1/events?poll=1&access_token={token}"
        assert browser.get(path).status_code == 200


def _problem(answer: httpx.Response) -> dict[str, Any]:
    """Return a problem without the correlator."""
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document.pop("instance") == f"urn:correlator:{answer.headers['x-correlator']}"
    return document
