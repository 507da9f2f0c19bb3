"""Attacks that need no key: bodies, headers, connections, guesses, and what is hardly HTTP."""

from __future__ import annotations

import selectors
import socket
import time
from contextlib import ExitStack
from itertools import count, cycle
from typing import TYPE_CHECKING

from attack.sending import Attack, Effort, Tally, exchange, head, repeated_up_to, statuses_of
from broken_requests import BROKEN, mutated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attack.measuring import Target

__all__ = ["ATTACKS"]

_MB = 1_000_000
_BODY_MB, _HEADER_MB = 100, 150
_OPEN = 300
_LATEST_S = 15.0
_NO_KEY = "nc_000000000000_00000000000000000000000000000000000"

WITH_BODIES = [
    ("POST", "/v1/sign-in"),
    ("POST", "/v1/preview"),
    ("POST", "/v1/tokens"),
    ("POST", "/v1/keys"),
    ("POST", "/v1/tenants"),
    ("PUT", "/v1/tenants/publisher/limits"),
    ("PUT", "/v1/cursors/a"),
    ("POST", "/v1/sinks/a/replay"),
    ("PUT", "/v1/subscribers/a"),
    ("POST", "/v1/subscriptions"),
    ("POST", "/v1/subscriptions/import"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/moves"),
]


def bodies_without_key(target: Target, effort: Effort, tally: Tally) -> None:
    """Send 100 MB of brackets to every route, with a length and in chunks."""
    for key in (None, _NO_KEY):
        _large_bodies(target, tally, key, _BODY_MB * _MB)


def bodies_with_key(target: Target, effort: Effort, tally: Tally) -> None:
    """Do the same with a valid key: each route has its own limit."""
    _large_bodies(target, tally, target.publisher.key, _BODY_MB * _MB)


def _large_bodies(target: Target, tally: Tally, key: str | None, size: int) -> None:
    for method, path in WITH_BODIES:
        kind = "Content-Type: application/json"
        whole = head(method, path, kind, f"Content-Length: {size}", key=key)
        in_chunks = head(method, path, kind, "Transfer-Encoding: chunked", key=key)
        bodies = [repeated_up_to(b"[[],", size, whole), _chunks(in_chunks, size)]
        for body in bodies:
            answer = exchange(target.address, body)
            tally.count(statuses_of(answer))
            if any(status < 400 for status in statuses_of(answer)):
                tally.wrong.append(f"{method} {path} accepted {size:,} bytes of brackets")


def _chunks(first: bytes, size: int) -> Iterator[bytes]:
    yield first
    block = b"[[]," * 4096
    for _ in range(size // len(block)):
        yield b"%x\r\n%b\r\n" % (len(block), block)
    yield b"0\r\n\r\n"


def headers(target: Target, effort: Effort, tally: Tally) -> None:
    """Send headers of 150 MB: many lines, one line, a name, an address, and after a body."""
    size = _HEADER_MB * _MB
    get = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    trailer = head("POST", "/v1/messages", "Transfer-Encoding: chunked") + b"1\r\n[\r\n0\r\n"
    for first, piece in [
        (get, b"x: y\r\n"),
        (get + b"x: ", b"y"),
        (get, b"x"),
        (b"GET /", b"x"),
        (get, b"\r"),
        (trailer, b"x: y\r\n"),
        (b"", b"\r\n"),
        (b"", b"G"),
    ]:
        tally.count(statuses_of(exchange(target.address, repeated_up_to(piece, size, first))))


def ambiguous(target: Target, effort: Effort, tally: Tally) -> None:
    """Send what two servers could understand in two ways: all of it has to be refused."""
    post = "POST /v1/messages HTTP/1.1\r\n"
    chunked = f"{post}Host: a\r\nTransfer-Encoding: chunked\r\n"
    for text in [
        "GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /healthz HTTP/1.1\r\n\r\n",
        f"{post}Host: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        f"{chunked}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        f"{chunked}Content-Length: 5\r\n\r\n0\r\n\r\n",
        f"{post}Host: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n[]x",
        f"{post}Host: a/b\r\nContent-Length: 2\r\n\r\n[]",
    ]:
        answer = statuses_of(exchange(target.address, [text.encode()]))
        tally.count(answer)
        if answer != [400]:
            tally.wrong.append(f"{text!r} got {answer} instead of 400")


def half_requests(target: Target, effort: Effort, tally: Tally) -> None:
    """Open 300 connections with half a header, and 300 with half a body; and wait."""
    half_head = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nx: "
    length = "Content-Length: 1000"
    key = target.publisher.key
    half_body = head("POST", "/v1/messages", length, key=key) + b"["
    stranger = head("POST", "/v1/sign-in", "Content-Length: 100") + b"{"
    begin = time.monotonic()
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for first, _ in zip(cycle([half_head, half_body, half_head, stranger]), range(2 * _OPEN)):
            one = stack.enter_context(socket.create_connection(target.address, timeout=30))
            one.sendall(first)
            selector.register(one, selectors.EVENT_READ, bytearray())
        closed = 0
        while closed < 2 * _OPEN and time.monotonic() < begin + _LATEST_S:
            for ready, _ in selector.select(0.5):
                connection: socket.socket = ready.fileobj  # type: ignore[assignment]
                try:
                    data = connection.recv(1 << 16)
                except OSError:
                    data = b""
                ready.data.extend(data)
                if not data:
                    selector.unregister(connection)
                    tally.count(statuses_of(bytes(ready.data)))
                    closed += 1
    took_s = time.monotonic() - begin
    tally.notes.append(f"{closed} of {2 * _OPEN} were closed after {took_s:.1f} s")
    if closed < 2 * _OPEN:
        tally.wrong.append(f"{2 * _OPEN - closed} half requests were still open")


def connections(target: Target, effort: Effort, tally: Tally) -> None:
    """Open and close connections as fast as possible, and hold a thousand that say nothing."""
    with ExitStack() as stack:
        for _ in range(1_000):
            stack.enter_context(socket.create_connection(target.address, timeout=30))
            tally.count(())
        for _ in range(effort.repeated(2_000, 20_000)):
            socket.create_connection(target.address, timeout=30).close()
            tally.count(())
    tally.count(statuses_of(exchange(target.address, [head("GET", "/v1/about")])))


def guesses(target: Target, effort: Effort, tally: Tally) -> None:
    """Guess codes of one-time links; somebody at another address has to be heard meanwhile."""
    body = b'{"code": "a wrong one"}'
    kind = "Content-Type: application/json"
    sent = head("POST", "/v1/sign-in", kind, f"Content-Length: {len(body)}") + body
    for _ in range(effort.repeated(500, 5_000)):
        tally.count(statuses_of(exchange(target.address, [sent])))
    with socket.create_connection(target.address, 30, ("127.0.0.2", 0)) as other:
        other.sendall(sent.replace(b"a wrong one", b"another one"))
        heard = statuses_of(other.recv(1 << 16))
    tally.count(heard)
    if heard != [401]:
        tally.wrong.append(f"somebody else's first attempt to sign in got {heard}, not 401")


def raw_http(target: Target, effort: Effort, tally: Tally) -> None:
    """Send bytes that are hardly HTTP, and pipelines of requests."""
    get = head("GET", "/healthz")
    for pipeline in (get * 32, get * 5_000, head("GET", "/v1/about") * 5_000, get * 3 + b"\0"):
        answers = statuses_of(exchange(target.address, [pipeline], end=True))
        tally.count(answers, pipeline.count(b"\r\n\r\n"))
    for number in count():
        if number < len(BROKEN):
            sent = BROKEN[number]
        elif number < effort.repeated(1_000, 10_000):
            chance = effort.chance
            shape = chance.choice(BROKEN)[:4_000]
            sent = chance.choice(
                [
                    mutated(chance, shape),
                    chance.randbytes(chance.randrange(1, 3_000)),
                    shape[: chance.randrange(len(shape))],
                    shape * chance.randrange(2, 5),
                ]
            )
        else:
            return
        tally.count(statuses_of(exchange(target.address, [sent], end=True)))


ATTACKS = [
    Attack("bodies-without-key", "100 MB to every route, without a valid key", bodies_without_key),
    Attack("bodies-with-key", "100 MB to every route, with a key", bodies_with_key),
    Attack("headers", "150 MB of headers, in lines and in one", headers),
    Attack("ambiguous", "two lengths, two hosts, other encodings", ambiguous),
    Attack(
        "half-requests",
        "300 half headers and 300 half bodies, which never end",
        half_requests,
        seams={"connections": {"header_s": 3.0, "body_s": 4.0, "stranger_idle_s": 3.0}},
    ),
    Attack("connections", "1,000 silent connections, thousands opened and closed", connections),
    Attack("guesses", "wrong codes for signing in", guesses),
    Attack("raw-http", "broken, random, cut and repeated requests; pipelines", raw_http),
]
