"""What a server answers before it can serve: `/healthz`, and 503 for everything else.

The first start on a machine compiles kernels for about three minutes. Whoever watches the process
must not take that for its death.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from socket import socket

__all__ = ["answering_while_starting"]

_REQUEST_S = 5.0
"""For a whole request and its answer: nobody who waits longer learns more."""

_HEADER_BYTES = 16 << 10
_CONNECTIONS = 256
_PAUSE_S = 0.05


class _Answers:
    """Reads the header of each request, answers it and closes the connection."""

    def __init__(self, request_s: float) -> None:
        self._request_s = request_s
        self._open = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a connection; not at all if there are too many, or its request is too long."""
        self._open += 1
        try:
            if self._open <= _CONNECTIONS:
                with suppress(TimeoutError, OSError, EOFError, ValueError):
                    async with asyncio.timeout(self._request_s):
                        await _answer(reader, writer)
        finally:
            self._open -= 1
            writer.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    method, path, *_ = (await reader.readline()).decode("latin-1").split(" ")
    size = 0
    while (line := await reader.readline()) not in (b"\r\n", b"\n"):
        size += len(line)
        if not line or size > _HEADER_BYTES:
            return
    healthy = path == "/healthz"
    body = b"ok" if healthy else b"The server is starting. Try again in a few seconds."
    lines = [
        f"HTTP/1.1 {'200 OK' if healthy else '503 Service Unavailable'}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        *([] if healthy else ["Retry-After: 2"]),
    ]
    head = "\r\n".join([*lines, "", ""])
    writer.write(head.encode() + (b"" if method == "HEAD" else body))
    writer.write_eof()
    while len(await reader.read(_HEADER_BYTES)):  # otherwise the client may lose the answer
        size += _HEADER_BYTES
        if size > 64 * _HEADER_BYTES:
            return


@contextmanager
def answering_while_starting(address: socket, request_s: float = _REQUEST_S) -> Iterator[None]:
    """Listen on a bound socket, and answer until the end; the socket stays open and listening."""
    address.listen()
    own = address.dup()  # it is closed at the end, and the other one is not
    ended = threading.Event()

    async def serve() -> None:
        answers = _Answers(request_s)
        server = await asyncio.start_server(answers.answer, sock=own, limit=_HEADER_BYTES)
        while not ended.is_set():
            await asyncio.sleep(_PAUSE_S)
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        address.setblocking(True)  # both sockets share that
