"""Signing in with a browser, by requests to a real server: one-time links, the demo, who one is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from nearcast import __version__
from nearcast.server.http.one_time import VALID_S, OneTimeCode
from running import Running, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROLES = ["publish", "subscribe", "admin"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


def new_code(server: Running) -> str:
    return str(server.app.state.context.one_time_code.make())


def shown(problem: httpx.Response) -> dict[str, Any]:
    """Return a problem document without what differs from request to request."""
    return {**problem.json(), "instance": ""}


def test_about_needs_no_key(server: Running) -> None:
    with server.client("") as client:
        found = client.get("/v1/about").json()
    epoch = server.app.state.context.service.log.epoch
    expected = {"name": "Nearcast", "version": __version__, "demo": False, "tiles": None}
    assert found == {**expected, "epoch": epoch}


def test_a_code_is_valid_once(server: Running) -> None:
    code = new_code(server)
    with server.client("") as client:
        answer = client.post("/v1/sign-in", json={"code": code})
        assert answer.status_code == 200
        found = answer.json()
        assert {name: found[name] for name in ("roles", "tenant", "subscriber")} == {
            "roles": ROLES,
            "tenant": "default",
            "subscriber": None,
        }
        assert client.post("/v1/sign-in", json={"code": code}).status_code == 401
    with server.client(found["token"]) as signed_in:
        me = signed_in.get("/v1/me").json()
        assert me == {name: value for name, value in found.items() if name != "token"}
        assert signed_in.get("/v1/keys").status_code == 200
        message = {"text": "tea", "lon": 1, "lat": 1}
        assert signed_in.post("/v1/messages", json=message).status_code == 200
        assert signed_in.get("/v1/subscriptions").status_code == 200


def test_whatever_is_wrong_with_a_code_the_answer_is_the_same(server: Running) -> None:
    used, replaced = new_code(server), ""
    with server.client("") as client:
        assert client.post("/v1/sign-in", json={"code": used}).status_code == 200
        replaced, _ = new_code(server), new_code(server)
        bodies = [{"code": used}, {"code": replaced}, {"code": "x"}, {"code": server.key}, {}]
        answers = [client.post("/v1/sign-in", json=body) for body in bodies]
    assert {answer.status_code for answer in answers} == {401}
    assert len({json.dumps(shown(answer)) for answer in answers}) == 1
    assert all(answer.headers["www-authenticate"].startswith("Bearer") for answer in answers)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"code": 1}', b'{"code": ""}', b'{"key": "x"}'])
def test_a_malformed_request_is_refused(server: Running, body: bytes) -> None:
    with server.client("") as client:
        headers = {"Content-Type": "application/json"}
        answer = client.post("/v1/sign-in", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"


def test_codes_expire() -> None:
    now = [0.0]
    codes = OneTimeCode(lambda: now[0])
    code = codes.make()
    now[0] = VALID_S - 0.1
    assert not codes.take("wrong")
    assert codes.take(code)
    code = codes.make()
    now[0] += VALID_S
    assert not codes.take(code)
    assert not OneTimeCode().take("")


def test_attempts_are_limited(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, server.client("") as client:
        code = new_code(server)
        answers = [client.post("/v1/sign-in", json={"code": "guess"}) for _ in range(400)]
        limited = [answer for answer in answers if answer.status_code == 429]
        assert limited
        assert {answer.status_code for answer in answers} == {401, 429}
        assert int(limited[-1].headers["retry-after"]) >= 1
        assert limited[-1].json()["code"] == "TOO_MANY_REQUESTS"
        elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(base_url=server.url, transport=elsewhere, timeout=30) as other:
            assert other.post("/v1/sign-in", json={"code": code}).status_code == 200


def test_in_the_demo_this_machine_needs_no_code(tmp_path: Path) -> None:
    with running_server(tmp_path, demo=True) as server, server.client("") as client:
        assert client.get("/v1/about").json()["demo"] is True
        found = client.post("/v1/sign-in", json={}).raise_for_status().json()
        with server.client(found["token"]) as signed_in:
            assert signed_in.get("/v1/me").json()["roles"] == ROLES
        assert client.post("/v1/sign-in", json={"code": "x"}).status_code == 401
        # A page of elsewhere whose name leads to this machine.
        rebound = client.post("/v1/sign-in", json={}, headers={"Host": "evil.example.com"})
        assert rebound.status_code == 401
        named = client.post("/v1/sign-in", json={}, headers={"Host": "localhost:8080"})
        assert named.status_code == 200


def test_who_a_key_or_a_token_is(server: Running) -> None:
    tenant = server.make_tenant("who")
    with server.client(server.make_key("publish", "subscribe", tenant="who")) as client:
        assert client.get("/v1/me").json() == {
            "tenant": "who",
            "roles": ["publish", "subscribe"],
            "subscriber": None,
            "expiresAt": None,
        }
    with server.client(tenant) as client:
        made = client.post("/v1/tokens", json={"subscriber": "ann"}).json()
    with server.client(made["token"]) as client:
        assert client.get("/v1/me").json() == {
            "tenant": "who",
            "roles": ["subscribe"],
            "subscriber": "ann",
            "expiresAt": made["expiresAt"],
        }
    with server.client(server.make_key("subscribe", tenant="who", subscriber="bo")) as client:
        assert client.get("/v1/me").json()["subscriber"] == "bo"
    with server.client("") as nobody:
        assert nobody.get("/v1/me").status_code == 401
