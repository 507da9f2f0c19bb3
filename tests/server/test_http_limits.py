"""Limits of what a tenant may have and ask for, by requests to a real server."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from nearcast.server.http import context as context_module
from nearcast.server.http import importing, imports, publishing, subscriptions
from nearcast.server.http.fair_pool import TENANT
from nearcast.server.http.messages import parse_messages
from nearcast.server.http.quotas import Quotas
from running import BERLIN, Running, circle, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

NDJSON = {"Content-Type": "application/x-ndjson"}
_WAIT_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


def limited(server: Running, name: str, **limits: int) -> str:
    """Make a tenant with limits; return a key of it with all roles."""
    key = server.make_tenant(name)
    with server.client() as admin:
        admin.put(f"/v1/tenants/{name}/limits", json=limits).raise_for_status()
    return key


def record(id: str, **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "keywords": ["tea"],
        "lon": BERLIN[0],
        "lat": BERLIN[1],
        "radius_m": 5,
        **more,
    }


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in records)


def with_expression(expression: str) -> dict[str, Any]:
    detail = {"expression": expression, "region": circle()}
    return {"config": {"subscriptionDetail": detail}}


def at_once(
    count: int, send: Callable[[httpx.Client, int], httpx.Response], key: str, server: Running
) -> list[int]:
    """Send requests at the same time, each by a connection of its own; return their statuses."""
    barrier = threading.Barrier(count)

    def one(number: int) -> int:
        with server.client(key) as client:
            client.get("/v1/me")
            barrier.wait(_WAIT_S)
            return send(client, number).status_code

    with ThreadPoolExecutor(count) as pool:
        return sorted(pool.map(one, range(count)))


# --- how much there may be --------------------------------------------------------------------


def test_the_limit_of_subscriptions_holds_for_requests_at_the_same_time(server: Running) -> None:
    key = limited(server, "five", subscriptions=5)
    found = at_once(30, lambda c, n: c.post("/v1/subscriptions", json=resource("tea")), key, server)
    assert found == [201] * 5 + [403] * 25
    with server.client(key) as client:
        [first, *_] = kept = client.get("/v1/subscriptions").json()["subscriptions"]
        assert len(kept) == 5
        client.delete(f"/v1/subscriptions/{first['id']}").raise_for_status()
    found = at_once(
        10, lambda c, n: c.put(f"/v1/subscriptions/s{n}", json=resource("tea")), key, server
    )
    assert found == [201] + [403] * 9


def test_the_limit_holds_for_imports_at_the_same_time(server: Running) -> None:
    key = limited(server, "imports", subscriptions=50)

    def send(client: httpx.Client, number: int) -> httpx.Response:
        body = lines(*[record(f"{number}-{line}") for line in range(20)])
        return client.post("/v1/subscriptions/import", content=body, headers=NDJSON)

    assert at_once(6, send, key, server) == [200] * 6
    with server.client(key) as client:
        assert len(client.get("/v1/subscriptions?limit=1000").json()["subscriptions"]) == 50


def test_a_subscription_that_ended_counts_again_when_it_begins_again(server: Running) -> None:
    key = limited(server, "again", subscriptions=1)
    ending = resource("tea")
    ending["config"]["subscriptionMaxEvents"] = 1
    with server.client(key) as client:
        client.put("/v1/subscriptions/one", json=ending).raise_for_status()
        message = {"text": "tea", "lon": BERLIN[0], "lat": BERLIN[1]}
        client.post("/v1/messages", json=message).raise_for_status()
        while client.get("/v1/subscriptions/one").json()["status"] != "EXPIRED":
            pass
        client.post("/v1/subscriptions", json=resource("tea")).raise_for_status()
        assert client.put("/v1/subscriptions/one", json=resource("tea")).status_code == 403


class _Registry:
    def __init__(self) -> None:
        self.per_tenant: dict[int, int] = {}
        self.subscribers_per_tenant: dict[int, int] = {}


class _Limits:
    subscriptions = subscribers = 5


def test_what_is_applied_before_it_is_given_back_counts_once() -> None:
    registry = _Registry()
    quotas = Quotas(registry, lambda tenant: _Limits())  # type: ignore[arg-type, return-value]
    granted: list[int] = []

    async def one(number: int, applied: asyncio.Event) -> None:
        async with quotas.new_subscriptions(7, 1) as count:
            granted.append(count)
            registry.per_tenant[7] = registry.per_tenant.get(7, 0) + count
            if number < 3:
                await applied.wait()  # it is there, and still reserved

    async def nine() -> None:
        applied = asyncio.Event()
        tasks = [asyncio.create_task(one(number, applied)) for number in range(9)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert granted == [1, 1, 1]  # there is room for two more, as nobody can know yet
        applied.set()
        await asyncio.gather(*tasks)

    asyncio.run(nine())
    assert sorted(granted) == [0] * 4 + [1] * 5


def test_subscribers_count_however_they_are_made(server: Running) -> None:
    key = limited(server, "names", subscribers=3)
    with server.client(key) as client:
        found = at_once(
            12,
            lambda c, n: c.post("/v1/subscriptions", json=resource("tea", subscriber=f"s{n}")),
            key,
            server,
        )
        assert found == [201] * 3 + [403] * 9
        kept = client.get("/v1/subscriptions").json()["subscriptions"]
        names = {one["config"]["subscriptionDetail"]["subscriber"] for one in kept}
        again = resource("cake", subscriber=min(names))
        assert client.post("/v1/subscriptions", json=again).status_code == 201
        patch = {"config": {"subscriptionDetail": {"subscriber": "another"}}}
        for answer in (
            client.put("/v1/subscribers/another", json={}),
            client.put("/v1/cursors/c?subscriber=another", json={"cursor": "now"}),
            client.get("/v1/events?poll=1&subscriber=another"),
            client.patch(f"/v1/subscriptions/{kept[0]['id']}", json=patch),
        ):
            assert answer.status_code == 403
            assert "3 subscribers" in answer.json()["detail"]
        body = lines(record("a", owner="another"), record("b", owner=min(names)))
        found = client.post("/v1/subscriptions/import", content=body, headers=NDJSON).json()
        assert found["accepted"] == 1
        assert [(one["line"], one["field"]) for one in found["rejected"]] == [(1, "subscriber")]


def test_cursors_of_a_subscriber_have_a_limit(server: Running) -> None:
    key = limited(server, "cursors", cursors=4)
    put = "/v1/cursors/{}?subscriber={}"
    found = at_once(
        15, lambda c, n: c.put(put.format(f"c{n}", "ann"), json={"cursor": "now"}), key, server
    )
    assert found == [200] * 4 + [403] * 11
    with server.client(key) as client:
        known = [n for n in range(15) if client.get(put.format(f"c{n}", "ann")).status_code == 200]
        assert len(known) == 4
        again = put.format(f"c{known[0]}", "ann")
        assert client.put(again, json={"cursor": "earliest"}).status_code == 200
        assert client.put(put.format("c0", "bob"), json={"cursor": "now"}).status_code == 200


# --- how long expressions and lists may be ----------------------------------------------------


def test_a_long_expression_is_refused_before_it_is_parsed(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(*_: Any) -> None:
        raise AssertionError("it was parsed")

    key = server.make_tenant("long")
    with server.client(key) as client:
        assert client.post("/v1/subscriptions", json=with_expression("tea " * 4_096)).is_success
        with monkeypatch.context() as patch:
            patch.setattr("nearcast.model.expressions.tree_of", parse)
            for expression in ("tea " * 4_097, "a " * 500_000, "a" * 257, f'tea "{"b" * 300}"'):
                for answer in (
                    client.post("/v1/subscriptions", json=with_expression(expression)),
                    client.put("/v1/subscriptions/s", json=with_expression(expression)),
                    client.post("/v1/preview", json={"subscription": with_expression(expression)}),
                ):
                    assert (answer.status_code, answer.json()["code"]) == (400, "OUT_OF_RANGE")
                    [error] = answer.json()["errors"]
                    assert error["field"] == "config.subscriptionDetail.expression"
                    assert "characters; at most" in error["reason"]
                place = {"lon": 1, "lat": 2, "radius_m": 3}
                body = lines({"id": 1, "expression": expression, **place})
                found = client.post("/v1/subscriptions/import", content=body, headers=NDJSON).json()
                assert found["accepted"] == 0
                assert found["rejected"][0]["field"] == "expression"


def test_limits_of_texts_are_those_of_the_tenant(server: Running) -> None:
    key = limited(server, "texts", expressionLength=20, wordLength=5, keywords=2)
    with server.client(key) as client:
        assert client.post("/v1/subscriptions", json=with_expression("tea OR milk")).is_success
        assert client.post("/v1/subscriptions", json=resource("tea", "milk")).is_success
        for wrong in (
            with_expression("tea OR milk OR cakes"[:20] + "x"),
            with_expression("coffee"),
            resource("tea", "milk", "cake"),
            resource("coffee"),
        ):
            answer = client.post("/v1/subscriptions", json=wrong)
            assert (answer.status_code, answer.json()["code"]) == (400, "OUT_OF_RANGE")
        body = lines(*[record(f"i{n}", keywords=w) for n, w in enumerate((["a"] * 3, ["coffee"]))])
        found = client.post("/v1/subscriptions/import", content=body, headers=NDJSON).json()
        assert [one["field"] for one in found["rejected"]] == ["keywords", "keywords"]


def test_words_are_as_long_as_they_are_compared(server: Running) -> None:
    wide = "\N{SQUARE CORPORATION}"  # it is compared as four characters
    key = server.make_tenant("wide")
    with server.client(key) as client:
        assert client.post("/v1/subscriptions", json=resource(wide * 64)).is_success
        assert client.post(
            "/v1/subscriptions", json=with_expression(f"tea OR {wide * 64}")
        ).is_success
        for wrong in (resource("tea", wide * 65), with_expression(f"tea OR {wide * 65}")):
            answer = client.post("/v1/subscriptions", json=wrong)
            assert (answer.status_code, answer.json()["code"]) == (400, "OUT_OF_RANGE")
            [error] = answer.json()["errors"]
            assert "has 260 characters as it is compared; at most 256" in error["reason"]
        body = lines(*[record(f"w{n}", keywords=["tea", wide * n]) for n in (64, 65)])
        found = client.post("/v1/subscriptions/import", content=body, headers=NDJSON).json()
        assert (found["accepted"], [one["line"] for one in found["rejected"]]) == (1, [2])


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_a_body_of_empty_arrays_is_refused_before_it_is_read(
    server: Running, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.client() as client:
        client.put("/v1/subscriptions/empty", json=resource("tea")).raise_for_status()
        path = "/v1/subscriptions" + ("" if method == "POST" else "/empty")
        monkeypatch.setattr(subscriptions, "json", None)  # nothing is read with it
        answer = client.request(method, path, content=b"[" + b"[]," * 2_000_000 + b"1]")
        assert (answer.status_code, answer.json()["code"]) == (413, "CONTENT_TOO_LARGE")


def test_an_import_stops_when_too_many_lines_are_invalid(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[object] = []
    judge = imports._definition

    def counted(record: object, *given: Any) -> Any:
        judged.append(record)
        return judge(record, *given)

    monkeypatch.setattr(imports, "_definition", counted)
    monkeypatch.setattr(imports, "_RECORDS_AT_ONCE", 50)
    monkeypatch.setattr(importing, "_PIECE_BYTES", 1_000)
    for module in (imports, importing):
        monkeypatch.setattr(module, "MAX_REJECTED", 100)
    body = lines(record("good")) + b"{}\n" * 1_000_000 + lines(record("late"))
    with server.client(server.make_tenant("invalid")) as client:
        answer = client.post("/v1/subscriptions/import", content=body, headers=NDJSON)
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_ARGUMENT")
        assert (
            "more than 100 lines are invalid: 1 valid lines were stored"
            in (answer.json()["detail"])
        )
        assert answer.json()["errors"][0]["field"].startswith("line 2")
        assert len(judged) < 1_000
        assert client.get("/v1/subscriptions/good").status_code == 200
        assert client.get("/v1/subscriptions/late").status_code == 404
        collection = b'{"type":"FeatureCollection","features":[' + b"[]," * 500_000 + b"1]}"
        headers = {"Content-Type": "application/geo+json"}
        answer = client.post("/v1/subscriptions/import", content=collection, headers=headers)
        assert answer.status_code == 400


# --- whose turn it is -------------------------------------------------------------------------


@contextmanager
def blocked_parsing(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let messages of a tenant be parsed for ever; yields what is set when the first one is."""
    begun, may_end = threading.Event(), threading.Event()
    parse = parse_messages

    def slow(body: bytes, *given: Any) -> Any:
        if b"blocked" in body:
            begun.set()
            assert may_end.wait(_WAIT_S)
        return parse(body, *given)

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "parse_messages", slow)
        try:
            yield begun
        finally:
            may_end.set()


def large(text: str) -> bytes:
    message = {"text": text, "lon": 1, "lat": 2}
    return lines(*[message] * 2_000)


def test_a_tenant_that_publishes_much_stops_nobody_else(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    greedy, other = server.make_tenant("greedy"), server.make_tenant("other")

    def send(_: int) -> int:
        with server.client(greedy) as client:
            body = large("blocked")
            return client.post("/v1/messages", content=body, headers=NDJSON).status_code

    with ThreadPoolExecutor(8) as pool:
        with blocked_parsing(monkeypatch) as begun:
            waiting = [pool.submit(send, number) for number in range(8)]
            assert begun.wait(_WAIT_S)
            with server.client(other) as client:
                answer = client.post("/v1/messages", content=large("tea"), headers=NDJSON)
                assert answer.json()["accepted"] == 2_000
                assert client.post("/v1/subscriptions", json=resource("tea")).is_success
            # Reading does not wait, not even that of the same tenant.
            with server.client(greedy) as client:
                assert client.get("/v1/subscriptions").is_success
                assert client.get("/v1/messages").is_success
            assert not any(one.done() for one in waiting)
        assert [one.result(_WAIT_S) for one in waiting] == [200] * 8


def test_what_waits_to_be_parsed_has_a_limit(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = server.app.state.context
    key = server.make_tenant("waiting")
    monkeypatch.setattr(context.parsing, "waiting", lambda tenant: 64)
    with server.client(key) as client:
        answer = client.post("/v1/messages", content=large("tea"), headers=NDJSON)
        assert (answer.status_code, answer.json()["code"]) == (429, "TOO_MANY_REQUESTS")
        assert answer.headers["retry-after"] == "1"
        monkeypatch.setattr(context.parsing, "waiting", lambda tenant: 0)
        monkeypatch.setattr(context_module, "_MAX_HELD_BYTES", 100_000)
        assert client.post("/v1/messages", content=large("tea"), headers=NDJSON).is_success
        with ThreadPoolExecutor(1) as pool, blocked_parsing(monkeypatch) as begun:

            def send() -> httpx.Response:
                with server.client(key) as another:
                    return another.post("/v1/messages", content=large("blocked"), headers=NDJSON)

            first = pool.submit(send)
            assert begun.wait(_WAIT_S)
            answer = client.post("/v1/messages", content=large("tea"), headers=NDJSON)
            assert answer.status_code == 429
        assert first.result(_WAIT_S).is_success
        assert not context._held_bytes
        small = client.post("/v1/messages", json={"text": "tea", "lon": 1, "lat": 2})
        assert small.status_code == 200


def test_nothing_is_parsed_of_a_tenant_above_its_rate(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = limited(server, "rate", messagesPerS=1)
    with server.client(key) as client:
        body = large("tea")
        assert client.post("/v1/messages", content=body, headers=NDJSON).status_code == 200
        parsed: list[int] = []
        monkeypatch.setattr(publishing, "parse_messages", lambda *given: parsed.append(1))
        monkeypatch.setattr(publishing, "parse_at_once", lambda *given: parsed.append(1))
        assert client.post("/v1/messages", content=body, headers=NDJSON).status_code == 429
        assert not parsed


def test_large_bodies_are_parsed_for_their_tenant_and_not_by_the_loop(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    parse, define = parse_messages, subscriptions._created

    def noted(work: Any) -> Any:
        def run(*given: Any) -> Any:
            threads.append(threading.current_thread().name)
            return work(*given)

        return run

    monkeypatch.setattr(publishing, "parse_messages", noted(parse))
    monkeypatch.setattr(subscriptions, "_created", noted(define))
    with server.client() as client:
        for body in (large("tea"), b"{}\n" * 5_000):
            client.post("/v1/messages", content=body, headers=NDJSON).raise_for_status()
        client.post("/v1/subscriptions", json=resource("tea")).raise_for_status()
    assert len(threads) == 3
    assert all(name.startswith("parsing") for name in threads)
    assert TENANT.get() is None  # which requests set, is theirs
