"""What is decided before a body is read: the key, the size, the encoding; for every route."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from nearcast.server.http.gate import DOCUMENT_BYTES, SIGN_IN_BYTES
from nearcast.server.http.one_time import OneTimeCode
from nearcast.server.http.parameters import check_names
from nearcast.server.http.problems import Problem
from running import BERLIN, Running, resource, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGE = {"text": "tea", "lon": BERLIN[0], "lat": BERLIN[1]}
WAIT_S = 30
HUGE = 10**12
METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


class Answer(NamedTuple):
    """What came over a bare connection."""

    status: int
    head: str
    body: bytes

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["code"])


def read_answer(connection: socket.socket) -> Answer:
    """Return the answer on a connection, as far as its length says."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        assert more, "the connection was closed without an answer"
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").lower().split("\r\n")
    [length] = [line.split(":")[1] for line in lines if line.startswith("content-length:")]
    while len(body) < int(length):
        body += connection.recv(65536)
    return Answer(int(head.split()[1]), "\n".join(lines), body)


def ask(server: Running, method: str, path: str, *headers: str, body: bytes = b"") -> Answer:
    """Send the header of a request, and a beginning of its body; return the answer to that."""
    url = urlsplit(server.url)
    with socket.create_connection((url.hostname, url.port), timeout=WAIT_S) as connection:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {url.netloc}", *headers, "", ""]
        connection.sendall("\r\n".join(lines).encode() + body)
        return read_answer(connection)


def operations_with_bodies(server: Running) -> list[tuple[str, str]]:
    with server.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    found = [
        (method.upper(), path.replace("{id}", "x").replace("{name}", "x"))
        for path, operations in paths.items()
        for method, operation in operations.items()
        if "requestBody" in operation
    ]
    assert len(found) > 12
    return found


# --- bodies --------------------------------------------------------------------------------------


def test_no_route_reads_a_body_before_it_knows_the_key(server: Running) -> None:
    for method, path in operations_with_bodies(server):
        if path == "/v1/sign-in":
            continue
        for framing in ("Content-Length: 100000000", "Transfer-Encoding: chunked"):
            answer = ask(server, method, path, "Content-Type: application/json", framing)
            assert (answer.status, answer.code) == (401, "UNAUTHENTICATED"), (method, path)


def test_no_route_reads_a_body_that_says_it_is_too_large(server: Running) -> None:
    key = f"Authorization: Bearer {server.key}"
    for method, path in operations_with_bodies(server):
        length = f"Content-Length: {HUGE}"
        answer = ask(server, method, path, key, "Content-Type: application/json", length)
        assert (answer.status, answer.code) == (413, "CONTENT_TOO_LARGE"), (method, path)


def test_no_route_reads_on_when_a_body_in_chunks_is_too_large(server: Running) -> None:
    key = f"Authorization: Bearer {server.key}"
    chunks = b"1000\r\n" + b"[" * 0x1000 + b"\r\n"
    for method, path in operations_with_bodies(server):
        if path.startswith(("/v1/messages", "/v1/moves", "/v1/subscriptions", "/v1/preview")):
            continue  # up to the limits of the tenant
        limit = SIGN_IN_BYTES if path == "/v1/sign-in" else DOCUMENT_BYTES
        body = chunks * (limit // 0x1000 + 1)  # and no end
        headers = (key, "Content-Type: application/json", "Transfer-Encoding: chunked")
        answer = ask(server, method, path, *headers, body=body)
        assert (answer.status, answer.code) == (413, "CONTENT_TOO_LARGE"), (method, path)


def test_definitions_are_bounded_by_the_vertices_that_they_may_have(server: Running) -> None:
    key = server.make_tenant("small")
    with server.client() as admin, server.client(key) as client:
        limits = {"vertices": 10}
        admin.put("/v1/tenants/small/limits", json=limits).raise_for_status()
        text = json.dumps(resource("tea"))
        padded = text.encode() + b" " * 60_000
        kind = {"Content-Type": "application/json"}
        assert client.post("/v1/subscriptions", content=padded, headers=kind).status_code == 201
        assert client.post("/v1/messages", json=[MESSAGE] * 2_000).status_code == 200
        padded += b" " * 10_000
        preview = b'{"subscription": %s}' % padded
        for path, body in (("/v1/subscriptions", padded), ("/v1/preview", preview)):
            assert client.post(path, content=body, headers=kind).status_code == 413


def test_requests_are_counted_before_their_bodies_are_read(server: Running) -> None:
    key = server.make_tenant("slow")
    with server.client() as admin:
        limits = {"requestsPerS": 0.001, "burstS": 1}
        admin.put("/v1/tenants/slow/limits", json=limits).raise_for_status()
    header = f"Authorization: Bearer {key}"
    first = ask(server, "POST", "/v1/keys", header, "Content-Length: 10000000")
    second = ask(server, "POST", "/v1/keys", header, "Content-Length: 50000")
    assert (first.status, second.status) == (413, 429)


def test_addresses_with_many_parameters_are_refused(server: Running) -> None:
    many = "&".join(f"a{n}=1" for n in range(101))
    for path in ("/v1/events", "/v1/about", "/healthz"):
        answer = ask(server, "GET", f"{path}?{many}")
        assert (answer.status, answer.code) == (400, "INVALID_ARGUMENT")
        assert "at most 100 parameters" in answer.body.decode()


def test_few_of_many_unknown_names_are_listed() -> None:
    with pytest.raises(Problem) as caught:
        check_names([f"{'x' * 1_000}{n}" for n in range(1_000)], ["cursor"])
    assert len(caught.value.errors) == 20
    assert {len(error.field) for error in caught.value.errors} == {64}


def test_compressed_bodies_are_refused(server: Running) -> None:
    with server.client() as client:
        for path in ("/v1/messages", "/v1/subscriptions", "/v1/keys"):
            headers = {"Content-Encoding": "gzip"}
            answer = client.post(path, content=b"\x1f\x8b", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
            assert answer.headers["accept-encoding"] == "identity"
        headers = {"Content-Encoding": "identity"}
        assert client.post("/v1/messages", json=MESSAGE, headers=headers).status_code == 200


def test_a_websocket_without_a_key_is_refused_for_every_path(server: Running) -> None:
    for path in ("/v1/events", "/v1/nothing"):
        url = server.url.replace("http", "ws") + path
        with pytest.raises(InvalidStatus) as caught, connect(url):
            pass
        assert caught.value.response.status_code == 401
        assert caught.value.response.headers["x-content-type-options"] == "nosniff"


# --- answers -------------------------------------------------------------------------------------


def test_nothing_redirects(server: Running) -> None:
    with server.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
        for path in [*paths, "/plain", "/assets/x.js"]:
            answer = client.get(path.replace("{id}", "x").replace("{name}", "x") + "/")
            assert answer.status_code in (404, 405), path
            assert "location" not in answer.headers


def test_every_answer_says_nosniff_once(server: Running) -> None:
    with server.client() as client:
        paths = ("/", "/plain", "/page.css", "/healthz", "/metrics", "/openapi.json", "/v1/keys")
        for path in (*paths, "/v1/nothing", "/nothing", "/assets/none.js"):
            assert client.get(path).headers.get_list("x-content-type-options") == ["nosniff"], path
        refused = ask(server, "GET", "/healthz", "Host: again")
        assert "x-content-type-options: nosniff" in refused.head


def test_answers_to_other_origins_say_nosniff(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("origins")
    with running_server(folder, allow_origins=("https://example.com",)) as server:
        headers = {"Origin": "https://example.com", "Access-Control-Request-Method": "POST"}
        with server.client("") as client:
            answer = client.options("/v1/messages", headers=headers)
        assert answer.status_code == 200
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_allow_names_what_is_allowed(server: Running) -> None:
    with server.client() as client:
        paths = [*client.get("/openapi.json").json()["paths"], "/openapi.json", "/plain"]
        for path in paths:
            filled = path.replace("{id}", "x").replace("{name}", "x")
            allowed, named = set(), set()
            for method in METHODS:
                with client.stream(method, filled) as answer:
                    if answer.status_code == 405:
                        named.add(answer.headers["allow"])
                    else:
                        allowed.add(method)
            assert named == {", ".join(sorted(allowed))}, path


# --- signing in ----------------------------------------------------------------------------------


def test_guesses_are_counted_for_each_address_and_each_code() -> None:
    now = [0.0]
    codes = OneTimeCode(lambda: now[0])
    waits = [codes.wait_s("192.0.2.1", f"guess {n}") for n in range(30)]
    assert waits.count(0.0) == 20
    assert codes.wait_s("192.0.2.1", None) > 0
    assert codes.wait_s("192.0.2.2", "the right one") == 0  # whatever others try
    waits = [codes.wait_s(f"198.51.100.{n}", "one code") for n in range(30)]
    assert waits.count(0.0) == 20
    waits = [codes.wait_s(f"2001:db8::{n}", f"other {n}") for n in range(30)]
    assert waits.count(0.0) == 20  # one network
    now[0] = 1.0
    assert codes.wait_s("192.0.2.1", "another") == 0


def test_the_counts_of_guesses_do_not_grow() -> None:
    codes = OneTimeCode(lambda: 0.0)
    for n in range(10_000):
        codes.wait_s(f"{n >> 8}.{n & 255}.0.1", f"guess {n}")
    assert len(codes._attempts) <= 4_096
