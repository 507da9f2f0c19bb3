"""Problems, correlators, limits, logs and metrics, by way of a real application."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nearcast.errors import (
    DuplicateId,
    ExpressionError,
    InvalidInput,
    NearcastError,
    NoSpace,
    RegionError,
    StorageError,
    UnknownId,
)
from nearcast.server.http import problems
from nearcast.server.http.correlators import CorrelatorMiddleware
from nearcast.server.http.limits import RateLimiter, Rates, TokenBucket, read_body
from nearcast.server.http.logs import JsonFormatter, RequestLogMiddleware
from nearcast.server.http.metrics import Metrics
from nearcast.server.http.models import SubscriptionRequest  # noqa: TC001 (FastAPI reads it)
from nearcast.server.http.problems import CODES, PROBLEM_SCHEMA, Problem
from nearcast.server.http.settings_models import DeliverySettings, KeyRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import Request


ERRORS: dict[str, Exception] = {
    "input": InvalidInput("ttl_s", -1, "must be 0 or more"),
    "region": RegionError("lon", 181, "must lie between -180 and 180 degrees"),
    "expression": ExpressionError("tea OR", 4, "OR needs a word or a parenthesis after it"),
    "duplicate": DuplicateId("s1 exists"),
    "unknown": UnknownId("there is no subscription s1"),
    "full": NoSpace("disk full"),
    "storage": StorageError("secret path /data/log is damaged"),
    "other": RuntimeError("secret detail"),
    "problem": Problem(412, "PRECONDITION_FAILED", "it has another version"),
}


async def _fail(request: Request) -> Response:
    raise ERRORS[request.path_params["name"]]


async def _take(request: Request) -> Response:
    return JSONResponse({"size": len(await read_body(request, 10))})


async def _answer_wrongly(request: Request) -> Response:
    return JSONResponse(DeliverySettings.model_validate({"secret": 1}).model_dump())


def application(metrics: Metrics) -> FastAPI:
    app = FastAPI(
        routes=[
            Route("/v1/fail/{name}", _fail),
            Route("/v1/wrong", _answer_wrongly),
            Route("/v1/take", _take, methods=["POST"]),
        ]
    )

    @app.post("/v1/subscriptions")
    async def subscribe(resource: SubscriptionRequest) -> dict[str, str]:
        return {"protocol": resource.protocol}

    problems.install(app)
    app.add_middleware(RequestLogMiddleware, metrics=metrics)
    app.add_middleware(CorrelatorMiddleware)
    return app


def ask(method: str, path: str, metrics: Metrics | None = None, **options: Any) -> httpx.Response:
    async def answer() -> httpx.Response:
        transport = httpx.ASGITransport(
            application(metrics or Metrics()), raise_app_exceptions=False
        )
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, **options)

    return asyncio.run(answer())


def document(response: httpx.Response) -> Any:
    assert response.headers["content-type"] == "application/problem+json"
    found = response.json()
    assert found["status"] == response.status_code
    assert set(PROBLEM_SCHEMA["required"]) <= set(found) <= set(PROBLEM_SCHEMA["properties"])
    assert found["code"] in CODES
    correlator = response.headers["x-correlator"]
    assert found["instance"] == f"urn:correlator:{correlator}"
    assert len(response.headers.get_list("x-correlator")) == 1
    return found


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("input", 400, "INVALID_ARGUMENT"),
        ("region", 400, "INVALID_ARGUMENT"),
        ("expression", 400, "INVALID_ARGUMENT"),
        ("duplicate", 409, "CONFLICT"),
        ("unknown", 404, "NOT_FOUND"),
        ("full", 507, "NO_SPACE"),
        ("problem", 412, "PRECONDITION_FAILED"),
        ("storage", 500, "INTERNAL"),
        ("other", 500, "INTERNAL"),
    ],
)
def test_exceptions_are_problem_documents(name: str, status: int, code: str) -> None:
    found = document(ask("GET", f"/v1/fail/{name}"))
    assert (found["status"], found["code"]) == (status, code)
    assert "secret" not in str(found)


def test_an_invalid_answer_is_an_error_of_the_server() -> None:
    found = document(ask("GET", "/v1/wrong"))
    assert (found["status"], "errors" in found) == (500, False)


def test_an_expression_error_has_its_position() -> None:
    [error] = document(ask("GET", "/v1/fail/expression"))["errors"]
    assert (error["field"], error["position"]) == ("expression", 4)


def test_unexpected_errors_are_logged_under_their_correlator(
    caplog: pytest.LogCaptureFixture,
) -> None:
    response = ask("GET", "/v1/fail/other", headers={"x-correlator": "abc-1"})
    assert document(response)["instance"] == "urn:correlator:abc-1"
    [record] = [one for one in caplog.records if one.name == "nearcast.server"]
    line = json.loads(JsonFormatter().format(record))
    assert line["correlator"] == "abc-1"
    assert "secret detail" in line["exception"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "NOT_FOUND"),
        ("DELETE", "/v1/take", 405, "METHOD_NOT_ALLOWED"),
        ("DELETE", "/v1/subscriptions", 405, "METHOD_NOT_ALLOWED"),
    ],
)
def test_errors_of_the_framework(method: str, path: str, status: int, code: str) -> None:
    found = document(ask(method, path))
    assert (found["status"], found["code"]) == (status, code)


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        (b"{", "", "INVALID_ARGUMENT"),
        (b"", "", "INVALID_ARGUMENT"),
        (b"[]", "", "INVALID_ARGUMENT"),
        (b"{}", "config", "INVALID_ARGUMENT"),
        (b'{"config": {}}', "config.subscriptionDetail", "INVALID_ARGUMENT"),
        (
            b'{"config": {"subscriptionDetail": {"region": '
            b'{"type": "Point", "coordinates": [1, 2]}, "dwellS": -1}}}',
            "config.subscriptionDetail.dwellS",
            "OUT_OF_RANGE",
        ),
    ],
)
def test_bodies_that_the_models_refuse(body: bytes, field: str, code: str) -> None:
    headers = {"content-type": "application/json"}
    found = document(ask("POST", "/v1/subscriptions", content=body, headers=headers))
    assert (found["status"], found["code"], found["errors"][0]["field"]) == (400, code, field)


def test_correlators_are_echoed_made_and_replaced() -> None:
    for given_one, kept in [("abc-1", True), ("a b", False), ("x" * 129, False), ("<a>", False)]:
        response = ask("POST", "/v1/take", headers={"x-correlator": given_one})
        assert response.status_code == 200
        assert (response.headers["x-correlator"] == given_one) == kept
    made = {ask("POST", "/v1/take").headers["x-correlator"] for _ in range(2)}
    assert len(made) == 2


def test_bodies_may_not_be_too_large() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"12345"

    assert ask("POST", "/v1/take", content=b"1234567890").json() == {"size": 10}
    assert ask("POST", "/v1/take").json() == {"size": 0}
    for content in (b"12345678901", pieces()):
        found = document(ask("POST", "/v1/take", content=content))
        assert (found["status"], found["code"]) == (413, "CONTENT_TOO_LARGE")
    digits = document(ask("POST", "/v1/take", headers={"content-length": "9" * 5000}))
    assert digits["status"] == 413


@pytest.fixture
def request_lines() -> Iterator[list[str]]:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    logger, handler = logging.getLogger("nearcast.server.requests"), Keep()
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_a_line_a_request_without_secrets(request_lines: list[str]) -> None:
    metrics = Metrics()
    headers = {"authorization": "Bearer nc_secret", "x-correlator": "c1"}
    ask(
        "POST",
        "/v1/take?access_token=nct_secret",
        metrics,
        headers=headers,
        content=b"secret",
    )
    ask("GET", "/v1/fail/unknown?access_token=nct_secret", metrics)
    ask("POST", "/v1/subscriptions", metrics, json={})
    ask("GET", "/secret", metrics)
    lines = [json.loads(line) for line in request_lines]
    found = [(line["method"], line["route"], line["status"]) for line in lines]
    assert found == [
        ("POST", "/v1/take", 200),
        ("GET", "/v1/fail/{name}", 404),
        ("POST", "/v1/subscriptions", 400),
        ("GET", "-", 404),
    ]
    assert lines[0]["correlator"] == "c1"
    assert lines[0]["tenant"] is None
    assert "secret" not in "".join(request_lines)
    rendered = metrics.render().decode()
    counted = 'nearcast_http_requests_total{method="POST",route="/v1/take",status="200"} 1.0'
    assert counted in rendered
    assert "secret" not in rendered


def test_two_servers_have_metrics_of_their_own() -> None:
    one, other = Metrics(), Metrics()
    one.delivered.labels("sse").inc(2)
    assert b'nearcast_events_delivered_total{channel="sse"} 2.0' in one.render()
    assert b'nearcast_events_delivered_total{channel="sse"}' not in other.render()


@given(
    st.floats(0.5, 100),
    st.floats(1, 50),
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 100)), max_size=30),
)
def test_a_bucket_never_gives_more_than_its_rate(
    rate: float, capacity: float, uses: list[tuple[float, int]]
) -> None:
    bucket = TokenBucket(rate, capacity, 0.0)
    now, given_out, last = 0.0, 0.0, 0.0
    for pause, amount in uses:
        now += pause
        wait = bucket.take(amount, now)
        if wait == 0.0:
            given_out, last = given_out + amount, float(amount)
            # Only the last use may go beyond: it was given when the bucket was full.
            assert given_out - last <= capacity + now * rate + 1e-6
        else:
            assert bucket.take(amount, now) == pytest.approx(wait)
            assert bucket.take(amount, now + wait + 1e-6) == 0.0
            now += wait + 1e-6
            given_out += amount


def test_limits_are_by_tenant_and_say_when_to_try_again() -> None:
    now = 0.0
    rates = {0: Rates(2, 10, 1), 1: Rates(1000, 1000, 1)}
    limiter = RateLimiter(rates.__getitem__, lambda: now)
    limiter.check_request(0)
    limiter.check_request(0)
    limiter.check_request(1)
    with pytest.raises(Problem) as caught:
        limiter.check_request(0)
    assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "1"})
    now = 0.5
    limiter.check_request(0)
    limiter.check_messages(0, 40)
    with pytest.raises(Problem) as caught:
        limiter.check_messages(0, 1)
    assert caught.value.headers == {"Retry-After": "4"}
    rates[0] = Rates(2, 1000, 1)
    limiter.forget(0)
    limiter.check_messages(0, 1)


def test_settings_of_delivery() -> None:
    given_settings = {
        "cap": {"events": 10, "periodS": 3600},
        "digest": {"everyS": 900},
        "quietHours": {"from": "22:00", "to": "07:00", "timeZone": "Europe/Berlin"},
    }
    settings = DeliverySettings.model_validate(given_settings)
    assert settings.model_dump(by_alias=True) == given_settings
    for wrong in [
        {"cap": {"events": 0, "periodS": 1}},
        {"cap": {"events": 1}},
        {"quietHours": {"from": "24:00", "to": "07:00"}},
        {"quietHours": {"from": "22:00", "to": "07:00", "timeZone": "Mars/Olympus"}},
        {"quietHours": {"from": "22:00", "to": "07:00", "timeZone": "../etc/passwd"}},
        {"quietHours": {"from": "22:00", "to": "07:00\n"}},
        {"often": True},
    ]:
        with pytest.raises(ValidationError):
            DeliverySettings.model_validate(wrong)
    assert KeyRequest(roles=["subscribe", "publish", "publish"]).roles == ["publish", "subscribe"]


def test_the_documents_of_the_interface_have_descriptions_and_examples() -> None:
    async def schema() -> Any:
        return application(Metrics()).openapi()

    found = asyncio.run(schema())
    models = found["components"]["schemas"]
    assert models["SubscriptionRequest"]["examples"]
    assert models["SubscriptionRequest"]["additionalProperties"] is False
    for name, code in CODES.items():
        assert code[0] in range(400, 600), name


def test_library_errors_without_a_meaning_for_clients_are_not_answered_as_theirs() -> None:
    with pytest.raises(NearcastError):
        problems.problem_of(NearcastError("internal"))
