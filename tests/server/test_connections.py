"""What connections may cost: bare requests over real sockets, to a server with short limits."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import uvicorn
from websockets.sync.client import connect

from nearcast.server.http.connections import HttpProtocol, http_protocol
from nearcast.server.http.door import ConnectionLimits, Door, visitor_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Receive, Scope, Send

WAIT_S = 30
HOST = b"Host: test\r\n"
LARGE = b"x" * (8 << 20)
LIMITS = ConnectionLimits(linger_s=0.2)


class Application:
    """Answers with the size of the body, or at once, or when it is let go."""

    def __init__(self) -> None:
        self.seen: list[list[tuple[bytes, bytes]]] = []
        self.disconnected = threading.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            while (await receive())["type"] != "websocket.disconnect":
                pass
            return
        visitor = visitor_of(scope)
        assert visitor is not None
        size = 0
        if scope["path"] == "/known":
            assert visitor.recognize(1)
        if scope["path"] == "/wait":
            await self.go_on.wait()
        while scope["path"] == "/read":
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnected.set()
                return
            size += len(message["body"])
            if not message["more_body"]:
                break
        self.seen.append(list(scope["headers"]))
        body = LARGE if scope["path"] == "/large" else b"%d" % size
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Listening(NamedTuple):
    """A server: where it is, who is there, and what it runs."""

    port: int
    door: Door
    app: Application
    refused: list[int]
    loop: asyncio.AbstractEventLoop

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)

    def send(self, *pieces: bytes) -> bytes:
        """Send something, and return all that comes until the connection is closed."""
        with self.connect() as connection:
            for piece in pieces:
                connection.sendall(piece)
            return read_all(connection)


@contextmanager
def listening(limits: ConnectionLimits = LIMITS) -> Iterator[Listening]:
    """Run a server with limits until the end of the block."""
    started = threading.Event()
    found: list[Any] = []
    refused: list[int] = []
    protocol: type[HttpProtocol] = http_protocol(limits, refused.append)

    async def run() -> None:
        app = Application()
        config = uvicorn.Config(
            app, port=0, lifespan="off", log_config=None, http=protocol, timeout_graceful_shutdown=5
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        found.extend((server, Listening(port, protocol.door, app, refused, loop)))
        started.set()
        await serving

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert started.wait(WAIT_S)
    server, here = found
    try:
        yield here
    finally:
        here.loop.call_soon_threadsafe(here.app.go_on.set)
        server.should_exit = True
        thread.join(WAIT_S)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def usual() -> Iterator[Listening]:
    """A server with the limits of time that users have."""
    with listening() as here:
        yield here


@pytest.fixture(scope="module")
def hasty() -> Iterator[Listening]:
    """A server that does not wait for headers."""
    with listening(ConnectionLimits(header_s=0.3, linger_s=0.2)) as here:
        yield here


@pytest.fixture(scope="module")
def impatient() -> Iterator[Listening]:
    """A server that does not wait for bodies and next requests."""
    limits = ConnectionLimits(body_s=0.3, body_bytes_per_s=1, stranger_idle_s=0.3, linger_s=0.2)
    with listening(limits) as here:
        yield here


def read_all(connection: socket.socket) -> bytes:
    data = b""
    try:
        while more := connection.recv(65536):
            data += more
    except ConnectionResetError:
        pass
    return data


def read_answer(connection: socket.socket) -> bytes:
    """Return one small answer."""
    data = b""
    while not data.endswith((b"\r\n\r\n0", b"\r\n\r\n5")):
        more = connection.recv(65536)
        assert more, data
        data += more
    return data


def until(condition: Any) -> None:
    """Wait until something has happened in the other thread."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def check_problem(answer: bytes, status: int, code: str) -> dict[str, Any]:
    """Check that an answer is one problem document, and the last one."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0].startswith(b"http/1.1 %d " % status), answer[:300]
    assert b"connection: close" in lines
    assert b"x-content-type-options: nosniff" in lines
    assert any(line.startswith(b"x-correlator: ") for line in lines)
    problem: dict[str, Any] = json.loads(body)
    assert (problem["status"], problem["code"]) == (status, code)
    return problem


GET = b"GET / HTTP/1.1\r\n" + HOST
CLOSE = b"Connection: close\r\n\r\n"
POST = b"POST /read HTTP/1.1\r\n" + HOST


# --- headers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        GET + b"x: y\r\n" * 101,
        GET + b"x: " + b"y" * (70 << 10),
        GET + b"x" * (70 << 10),
        GET + b"".join(b"x-%d: %s\r\n" % (n, b"y" * 2_000) for n in range(40)),
        b"GET /" + b"x" * (70 << 10),
    ],
    ids=["many lines", "long value", "long name", "long lines", "long address"],
)
@pytest.mark.parametrize("before", [b"", GET + b"\r\n"], ids=["first", "second"])
def test_large_headers_are_refused_before_they_end(
    usual: Listening, header: bytes, before: bytes
) -> None:
    with usual.connect() as connection:
        if before:
            connection.sendall(before)
            read_answer(connection)
        connection.sendall(header)
        check_problem(read_all(connection), 431, "HEADERS_TOO_LARGE")


def test_a_hundred_headers_and_almost_64_kilobytes_are_allowed(usual: Listening) -> None:
    lines = b"".join(b"x-%02d: %s\r\n" % (n, b"y" * 600) for n in range(98))
    answer = usual.send(GET, lines[:30_000], lines[30_000:], CLOSE)
    assert answer.startswith(b"HTTP/1.1 200 OK")


def test_a_header_is_kept_only_up_to_its_limit(usual: Listening) -> None:
    """What comes after the refusal is thrown away, and soon the connection is closed."""
    sent = 0
    with usual.connect() as connection:
        connection.sendall(GET)
        try:
            while sent < 150 << 20:
                connection.sendall(b"x: y\r\n" * 10_000)
                sent += 60_000
        except OSError:
            pass
    assert sent < 50 << 20


@pytest.mark.parametrize(
    "header",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHOST: b\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a/b@c\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        POST + b"Transfer-Encoding: gzip\r\n\r\n",
        POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n",
        POST + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /read HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
def test_ambiguous_requests_are_refused(usual: Listening, header: bytes) -> None:
    seen = len(usual.app.seen)
    check_problem(usual.send(header), 400, "INVALID_ARGUMENT")
    assert len(usual.app.seen) == seen


@pytest.mark.parametrize(
    "header",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: [::1]:8080\r\n" + CLOSE,
        b"GET / HTTP/1.1\r\nHost: a-b.example.com:80\r\n" + CLOSE,
        b"GET / HTTP/1.1\r\nHost:\r\n" + CLOSE,
        b"GET http://other/ HTTP/1.1\r\nHost: a\r\n" + CLOSE,
    ],
)
def test_usual_requests_are_not(usual: Listening, header: bytes) -> None:
    assert usual.send(header).startswith(b"HTTP/1.1 200 OK")


# --- bodies --------------------------------------------------------------------------------------


def test_what_follows_a_body_does_not_become_a_header(usual: Listening) -> None:
    body = b"5\r\nhello\r\n0\r\nAuthorization: Bearer x\r\n\r\n"
    answer = usual.send(POST + b"Transfer-Encoding: chunked\r\n" + CLOSE + body)
    assert answer.endswith(b"\r\n\r\n5")
    assert b"authorization" not in dict(usual.app.seen[-1])


@pytest.mark.parametrize(
    "body",
    [
        b"5;x=" + b"y" * 400_000,
        b"5\r\nhello\r\n0\r\nx: " + b"y" * 400_000,
        b"1\r\n[\r\n" * 30_000,
    ],
    ids=["extension", "trailer", "tiny chunks"],
)
def test_chunks_without_much_content_are_refused(usual: Listening, body: bytes) -> None:
    with usual.connect() as connection:
        connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n" + body[:1])
        try:
            for at in range(1, len(body), 10_000):
                connection.sendall(body[at : at + 10_000])
        except OSError:
            pass
        answer = read_all(connection)
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))


def test_a_connection_goes_on_after_a_small_body_that_nobody_read(usual: Listening) -> None:
    with usual.connect() as connection:
        head = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n"
        for _ in range(3):
            connection.sendall(head)
            assert b"200 OK" in read_answer(connection)
            connection.sendall(b"x" * 1000)


def test_a_large_body_that_nobody_reads_ends_the_connection(usual: Listening) -> None:
    sent = 0
    with usual.connect() as connection:
        head = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1000000000000\r\n\r\n"
        connection.sendall(head)
        assert b"200 OK" in read_answer(connection)
        try:
            while sent < 150 << 20:
                connection.sendall(b"x" * 100_000)
                sent += 100_000
        except OSError:
            pass
    assert sent < 50 << 20


def test_requests_that_wait_for_others_are_limited(usual: Listening) -> None:
    one = b"GET /wait HTTP/1.1\r\n" + HOST + b"\r\n"
    assert usual.send(one * 1_000) == b""  # closed at once, without any answer


# --- time ----------------------------------------------------------------------------------------


def test_half_a_header_is_refused_after_its_time(hasty: Listening) -> None:
    problem = check_problem(hasty.send(b"GET / HT"), 408, "REQUEST_TIMEOUT")
    assert "within 0.3 s" in problem["detail"]
    answer, end, refusal = hasty.send(GET + b"\r\n" + GET).partition(b"\r\n\r\n0")
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert end
    check_problem(refusal, 408, "REQUEST_TIMEOUT")


def test_a_header_that_trickles_in_is_refused(hasty: Listening) -> None:
    with hasty.connect() as connection:
        connection.settimeout(0.05)
        connection.sendall(GET)
        data = b""
        deadline = time.monotonic() + WAIT_S
        while not data and time.monotonic() < deadline:
            with suppress(OSError):
                connection.sendall(b"x: y\r\n")
            try:
                data = connection.recv(65536)
            except TimeoutError:
                continue
        check_problem(data, 408, "REQUEST_TIMEOUT")


def test_an_unfinished_body_is_refused_after_its_time(impatient: Listening) -> None:
    for framing in (b"Content-Length: 5\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"):
        impatient.app.disconnected.clear()
        check_problem(impatient.send(POST + framing), 408, "REQUEST_TIMEOUT")
        assert impatient.app.disconnected.wait(WAIT_S)


def test_a_body_that_comes_steadily_has_more_time(impatient: Listening) -> None:
    with impatient.connect() as connection:
        connection.sendall(POST + b"Content-Length: 55555\r\n\r\n" + b"x" * 55_000)
        time.sleep(0.7)  # more than it has at first
        connection.sendall(b"x" * 555)
        answer = b""
        while not answer.endswith(b"\r\n\r\n55555"):
            more = connection.recv(65536)
            assert more, answer
            answer += more


@pytest.mark.parametrize("end", [b"\r\n", CLOSE], ids=["stays", "closes"])
def test_who_does_not_take_an_answer_is_given_up(end: bytes) -> None:
    limits = ConnectionLimits(write_s=0.2, linger_s=0.2, stranger_idle_s=0.1)
    with listening(limits) as here, here.connect() as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\n" + HOST + end)
        until(lambda: here.app.seen)
        until(lambda: here.door.open == 0)


def test_who_takes_an_answer_gets_all_of_it(usual: Listening) -> None:
    answer = usual.send(b"GET /large HTTP/1.1\r\n" + HOST + CLOSE)
    assert answer.endswith(b"\r\n\r\n" + LARGE)


def test_who_sends_nothing_is_gone_after_a_while(hasty: Listening, impatient: Listening) -> None:
    assert hasty.send() == b""
    with impatient.connect() as connection, impatient.connect() as known:
        known.sendall(b"GET /known HTTP/1.1\r\n" + HOST + b"\r\n")
        read_answer(known)
        connection.sendall(GET + b"\r\n")
        read_answer(connection)
        assert read_all(connection) == b""
        known.sendall(GET + b"\r\n")  # who has a key may stay
        assert b"200 OK" in read_answer(known)


def test_empty_lines_are_no_sign_of_life(hasty: Listening, impatient: Listening) -> None:
    for here, first in ((hasty, b""), (impatient, GET + b"\r\n")):
        with here.connect() as connection:
            connection.sendall(first)
            ended = False
            deadline = time.monotonic() + WAIT_S
            while not ended and time.monotonic() < deadline:
                try:
                    connection.sendall(b"\r\n")
                    time.sleep(0.05)
                except OSError:
                    ended = True
            assert ended


# --- how many ------------------------------------------------------------------------------------


def test_strangers_of_one_address_are_limited() -> None:
    limits = ConnectionLimits(strangers_per_address=2, linger_s=0.2)
    with listening(limits) as here, here.connect() as first, here.connect() as second:
        until(lambda: here.door.open == 2)
        check_problem(here.send(), 503, "UNAVAILABLE")
        assert here.refused == [503]
        first.sendall(b"GET /known HTTP/1.1\r\n" + HOST + b"\r\n")
        read_answer(first)
        second.close()
        until(lambda: here.door.open == 1)
        with here.connect() as third, here.connect() as fourth:
            for connection in (third, fourth):
                connection.sendall(GET + b"\r\n")
                assert b"200 OK" in read_answer(connection)


def test_all_connections_are_limited() -> None:
    with listening(ConnectionLimits(connections=3, linger_s=0.2)) as here:
        held = [here.connect() for _ in range(3)]
        until(lambda: here.door.open == 3)
        for _ in range(200):  # more than may stay to read it
            with here.connect() as connection:
                assert read_all(connection).startswith(b"HTTP/1.1 503 ")
        for one in held:
            one.close()
        until(lambda: here.door.open == 0)
        assert here.send(GET + CLOSE).startswith(b"HTTP/1.1 200 OK")
        until(lambda: here.door.open == 0)


def test_a_websocket_counts_until_it_is_closed() -> None:
    with listening() as here:
        with connect(f"ws://127.0.0.1:{here.port}/known"):
            until(lambda: here.door.open == 1)
        until(lambda: here.door.open == 0)


def test_no_tenant_can_have_all_connections() -> None:
    door = Door(ConnectionLimits(connections=10))
    visitors = [door.enter(f"192.0.2.{n}") for n in range(10)]
    assert None not in visitors
    allowed = [visitor.recognize(1) for visitor in visitors if visitor]
    assert allowed == [True] * 9 + [False]
    assert visitors[9] is not None
    assert visitors[9].recognize(2)
    assert door.enter("192.0.2.99") is None
    for visitor in visitors:
        if visitor is not None:
            visitor.leave()
    assert (door.open, len(door._strangers), len(door._callers)) == (0, 0, 0)
