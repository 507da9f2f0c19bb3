"""Malformed requests: each is answered by a problem document, or the connection is closed."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broken_requests import BROKEN, mutated
from effort import repeated
from tested_server import Answer, Client, LiveServer, box, subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REQUESTS = repeated("NEARCAST_MALFORMED_REQUESTS", 1000, 3000)
SEED = int(os.environ.get("NEARCAST_TEST_SEED", "0"))
HERE = Path(__file__).parent

DEEP = b"[" * 100_000 + b"]" * 100_000
DEEP_OBJECT = b'{"a":' * 50_000 + b"1" + b"}" * 50_000
JSON_BODIES = [
    b"",
    b"\0",
    b"\xff\xfe{}",
    b'{"text": "\xed\xa0\x80", "lon": 1, "lat": 1}',
    b'{"text": "\\ud800", "lon": 1, "lat": 1}',
    b'{"text": "a", "lon": NaN, "lat": 1}',
    b'{"text": "a", "lon": 1e999, "lat": 1}',
    b'{"text": "a", "lon": 1, "lat": 1} trailing',
    b'{"id": 123456789012345678901234567890, "text": "a", "lon": 1, "lat": 1}',
    b'{"lon": 1' + b"0" * 5000 + b', "text": "a", "lat": 1}',
    b'{"ttl_s": 1e308, "text": "a", "lon": 1, "lat": 1}',
    b'{"time": "9999-12-31T23:59:59Z", "ttl_s": 1e10, "text": "a", "lon": 1, "lat": 1}',
    b'{"time": -1e300, "text": "a", "lon": 1, "lat": 1}',
    b'{"text": null, "tokens": null, "geometry": {"type": "Point"}}',
    b'{"geometry": {"type": "Point", "coordinates": [1, 1, 1, 1]}, "text": "a"}',
    b'{"geometry": {"type": "Point", "coordinates": [[1, 1]]}, "text": "a"}',
    b'{"west": 3, "south": 1, "east": 2, "north": 0, "text": "a"}',
    b'{"tokens": [["a"]], "lon": 1, "lat": 1}',
    b'{"text": "a", "text": {"b": 1}, "lon": 1, "lat": 1}',
    b'{"properties": ' + DEEP + b', "text": "a", "lon": 1, "lat": 1}',
    b"[[[]]]",
    b"[" + b"null," * 2000 + b"null]",
    DEEP,
    DEEP_OBJECT,
    b'"text"',
    b"1",
    b"true",
    b"{" + b'"a":1,' * 1000 + b'"a":1}',
]
MEDIA_TYPES = [
    "application/json",
    "application/x-ndjson",
    "application/vnd.apache.arrow.stream",
    "application/merge-patch+json",
    "application/geo+json",
    "text/html",
    "application/json; charset=utf-16",
    "multipart/form-data; boundary=x",
    "\xff/;;;=",
    "",
]
HEADERS: list[dict[str, str]] = [
    {},
    {"If-Match": '"' + "9" * 40 + '"'},
    {"If-Match": "W/garbage"},
    {"Idempotency-Key": "k" * 5000},
    {"Idempotency-Key": "\xff\x01"},
    {"Last-Event-ID": "18446744073709551616-99999999999999999999.1"},
    {"Last-Event-ID": "\xe9"},
    {"x-correlator": "a" * 1000},
    {"Prefer": "handling=strict, " * 50},
    {"Accept": "application/xml"},
    {"Content-Encoding": "gzip"},
    {"Expect": "200-ok"},
    {"Authorization": "Bearer nc_x_y"},
    {"Authorization": "Basic AAAA"},
    {"Authorization": "Bearer nct_" + "A" * 3000},
    {"Range": "bytes=0-1"},
    {"Host": ""},
]
IDS = ["", "a", "%00", "%ff", "..", "%2e%2e%2f", "a%2fb", "sub-ffffffff", "sub-0", "1-1", "1-1.1"]
IDS += ["x" * 5000, "%F0%9F%98%80", "9" * 30 + "-" + "9" * 30, "0-0", "sink-1", "%0d%0aX:1"]
QUERIES = ["", "?", "?limit=0", "?limit=1e3", "?limit=" + "9" * 400, "?poll=1&waitS=nan"]
QUERIES += ["?poll=1&cursor=%00", "?poll=1&cursor=0-0", "?poll=1&cursor=" + "9" * 64, "?poll=maybe"]
QUERIES += ["?poll=1&subscriber=%00", "?poll=1&subscriber=" + "s" * 300, "?poll=1&limit=1&limit=2"]
QUERIES += ["?poll=1&cursor=9999-12-31T23:59:59.999999Z", "?poll=1&cursor=0001-01-01T00:00:00Z"]
QUERIES += ["?after=%ff", "?bbox=nan,nan,nan,nan", "?bbox=1,2,3", "?status=NONE", "?dryRun=2"]
QUERIES += ["?access_token=%ff&poll=1", "?" + "a=b&" * 1000, "?after=earliest&limit=1"]
WRONG: list[object] = [
    *(None, True, -1, 1e308, "", "x" * 10_000, [], {}, [[]], ["\ud800"], "\0", {"type": "Point"}),
    *("a AND", "NOT a", "(" * 5000, "a OR " * 3000 + "a", "*", '"', "9999-12-31T23:59:59+23:59"),
    {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [0, 0]]]},
    {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [0, 1], [1, 0], [0, 0]]]},
    {"type": "MultiPolygon", "coordinates": [[[[0, 0]] * 4]]},
    {"type": "Feature", "geometry": None},
    {"areaType": "CIRCLE", "radius": -1},
    {"areaType": "BOX", "west": 1, "south": 5, "east": 0, "north": -5},
]
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "PROPFIND"]
PATHS = ["/v1/messages", "/v1/messages/{}", "/v1/subscriptions", "/v1/subscriptions/{}"]
PATHS += ["/v1/about", "/v1/sign-in", "/v1/me", "/v1/history", "/v1/messages/{}/trace"]
PATHS += ["/v1/subscriptions/cells"]
PATHS += ["/v1/subscriptions/import", "/v1/moves", "/v1/preview", "/v1/events/{}/explain"]
PATHS += ["/v1/cursors/{}", "/v1/sinks/{}", "/v1/sinks/{}/attempts", "/v1/sinks/{}/replay"]
PATHS += ["/v1/tokens", "/v1/tenants", "/v1/keys", "/v1/keys/{}", "/v1/limits", "/v1/tenants/{}"]
PATHS += ["/v1/{}", "/{}", "/v1/../{}", "//v1/messages", "/v1/messages/", "/v2/messages"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(tmp_path_factory.mktemp("server")) as live:
        live.start()
        yield live
        assert live.process is not None
        assert live.process.poll() is None, live.output
        still_works(live)


def still_works(live: LiveServer) -> None:
    client = live.client()
    id = f"s-{random.randrange(1 << 40)}"
    client.put(id, subscription(id, ["tea"], box(0, 0, 10, 10)))
    client.publish({"id": id, "text": "tea", "lon": 1, "lat": 1})
    [event] = client.wait_for_events(id, 1)
    assert event["data"]["message"]["id"] == id


def check(answer: Answer, request: object) -> None:
    """Check that an answer is a success, or a problem document of the client's doing."""
    assert answer.status < 500, (answer, request)
    if answer.status >= 400 and answer.body:  # HEAD has none
        answer.problem()
    assert answer.headers.get("x-correlator"), (answer, request)


def resources(rng: random.Random) -> object:
    """Return a subscription that is wrong somewhere."""
    good: dict[str, Any] = subscription("a", ["tea"], box(0, 0, 1, 1))
    detail = good["config"]["subscriptionDetail"]
    names = ["keywords", "expression", "region", "ranking", "dwellS", "subscriber", "unknown"]
    names += ["types", "sink", "sinkCredential", "protocol", "id", "status", "config"]
    names += ["subscriptionExpireTime", "subscriptionMaxEvents", "initialEvent"]
    name = rng.choice(names)
    where = detail if name in names[:7] else good["config"] if name in names[-3:] else good
    where[name] = rng.choice(WRONG)
    return good


def bodies(rng: random.Random) -> bytes:
    made: list[Callable[[], bytes]] = [
        lambda: rng.choice(JSON_BODIES),
        lambda: json.dumps(resources(rng)).encode(),
        lambda: json.dumps([resources(rng)] * 3).encode(),
        lambda: b"\n".join(rng.choices(JSON_BODIES[:18], k=5)),
        lambda: rng.randbytes(rng.randrange(2000)),
        lambda: mutated(rng, json.dumps(resources(rng)).encode()),
    ]
    return rng.choice(made)()


def test_requests_that_http_allows(server: LiveServer) -> None:
    rng = random.Random(SEED)
    client = server.client()
    statuses: dict[int, int] = {}
    sizes = []
    for number in range(REQUESTS):
        path = rng.choice(PATHS).format(rng.choice(IDS))
        path += rng.choice(QUERIES) if rng.random() < 0.3 else ""  # most routes know none of them
        if rng.random() < 0.1:
            path = "/v1/events" + rng.choice([query for query in QUERIES if "poll=1" in query])
        method = rng.choice(METHODS[:5] if rng.random() < 0.9 else METHODS)
        headers = {"Content-Type": rng.choice(MEDIA_TYPES[: 10 if rng.random() < 0.4 else 2])}
        headers |= rng.choice(HEADERS) if rng.random() < 0.5 else {}
        body = bodies(rng) if method != "GET" or rng.random() < 0.1 else None
        answer = client.request(method, path, body, headers)
        check(answer, (method, path[:200], headers, (body or b"")[:500]))
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
        if number % (REQUESTS // 10) == 0:
            sizes.append(server.resident_bytes())
    assert {400, 401, 404, 405, 415} <= set(statuses), statuses
    assert sizes[-1] < sizes[1] + (64 << 20), sizes


def exchange(client: Client, data: bytes) -> bytes:
    """Send bytes, and return what comes back until the server closes or says nothing."""
    with socket.create_connection(client.address, timeout=30) as connection:
        received = b""
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(1 << 16):
                received += piece
        except (BrokenPipeError, ConnectionResetError):
            pass
    return received


def test_requests_that_http_does_not_allow(server: LiveServer) -> None:
    rng = random.Random(SEED)
    client = server.client()
    good = (
        b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer %s\r\nContent-Length: 2\r\n\r\n[]" % (client.key or "").encode()
    )
    assert exchange(client, good).startswith(b"HTTP/1.1 200")
    before = server.resident_bytes()
    statuses = []
    for number in itertools.count():
        if number < len(BROKEN):
            sent = BROKEN[number]
        elif number < max(len(BROKEN) * 2, REQUESTS // 3):
            sent = rng.choice(
                [mutated(rng, good), rng.randbytes(rng.randrange(1, 3000)), good[: number % 150]]
            )
        else:
            break
        for status in re.findall(rb"^HTTP/1.1 (\d+)", exchange(client, sent), re.MULTILINE):
            assert int(status) < 500, (sent[:500], status)
            statuses.append(int(status))
    assert statuses.count(400) > number // 4, statuses
    assert server.resident_bytes() < before + (64 << 20)


def test_requests_that_schemathesis_makes(server: LiveServer, tmp_path: Path) -> None:
    """All checks over /openapi.json; schemathesis.toml says which of them do not apply, and why.

    Streams have no end, and its own key must not be revoked.
    """
    command = [sys.executable, "-m", "schemathesis.cli"]
    command += ["--config-file", str(HERE / "schemathesis.toml"), "run", "--no-color"]
    command += ["--header", f"Authorization: Bearer {server.key}", "--seed", str(SEED)]
    command += [
        "--exclude-path",
        "/v1/events",
        "--exclude-path",
        "/v1/keys/{id}",
        "--request-timeout",
        "30",
    ]
    command += ["--max-examples", str(max(REQUESTS // 300, 1)), f"{server.url}/openapi.json"]
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {"SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": path}
    before = server.resident_bytes()
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert "passed" in done.stdout
    assert server.resident_bytes() < before + (64 << 20)
