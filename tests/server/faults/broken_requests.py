"""Requests that HTTP does not allow, and changes of those that it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

__all__ = ["BROKEN", "mutated"]

BROKEN = [
    b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\nHost: a\n\n",
    b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /v1/messages HTTP/1.1\r\n" + b"a: " + b"b" * 200_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: v\r\n" % i for i in range(5000)) + b"\r\n",
    b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
    b"GET / HTTP/1.1\r\n: empty\r\n\r\n",
    b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n{}",
    b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n{}",
    b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{}",
    b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n{}",
    b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n{}",
    b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n",
    b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"F" * 16
    + b"\r\nab",
    b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nab\r\n",
    b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\nab",
    b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /v1/events HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"GET /v1/events HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: x\r\nSec-WebSocket-Version: 99\r\n\r\n",
    b"GET /v1/messages HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://other/v1/messages HTTP/1.1\r\nHost: a\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]


def mutated(rng: random.Random, text: bytes) -> bytes:
    """Return bytes of which a few were changed."""
    changed = bytearray(text)
    for _ in range(rng.randrange(1, 4)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)
