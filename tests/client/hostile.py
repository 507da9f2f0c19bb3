"""Servers that misbehave: raw sockets with a script, and a proxy that cuts connections."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

__all__ = ["HANG", "answer", "cutting", "event", "scripted", "stream_head"]

HANG = object()
"""In a script: say nothing until the client is gone."""

_START_S = 30


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """Return a whole answer."""
    lines = [f"HTTP/1.1 {status}", "content-type: application/json", *headers]
    lines.append(f"content-length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def stream_head(content_type: str = "text/event-stream") -> bytes:
    """Return the head of a stream, which the end of the connection ends."""
    return f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\nconnection: close\r\n\r\n".encode()


def event(id: str, text: str = "tea", kind: str = "match") -> bytes:
    """Return the frame of an event."""
    body = {
        "specversion": "1.0",
        "id": id,
        "type": f"org.nearcast.{kind}",
        "time": "2026-01-31T12:00:00Z",
        "data": {"message": {"text": text}, "matches": [{"subscriptionId": "s1", "sign": 1}]},
    }
    written = json.dumps(body, ensure_ascii=False)
    return f"id: {id}\nevent: {kind}\ndata: {written}\n\n".encode()


class Requests(list[bytes]):
    """The requests that a server got, head and body."""

    def header(self, number: int, name: str) -> str | None:
        """Return a header of a request."""
        for line in self[number].partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]:
            found, _, value = line.partition(":")
            if found.lower() == name:
                return value.strip()
        return None


@contextmanager
def scripted(*script: Sequence[object]) -> Iterator[tuple[str, Requests]]:
    """Run a server that answers each request with the next part of a script, then disconnects."""
    requests = Requests()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            requests.append(await _request(reader))
            for part in script[min(len(requests), len(script)) - 1]:
                if part is HANG:
                    await reader.read()
                else:
                    assert isinstance(part, bytes)
                    writer.write(part)
                    await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    with _running(serve) as port:
        yield f"http://127.0.0.1:{port}", requests


@contextmanager
def cutting(
    urls: str | list[str], allowed: Callable[[int], int | None] = lambda n: None
) -> Iterator[str]:
    """Run a proxy that ends connection number n after ``allowed(n)`` bytes of answers.

    The request reaches the server as a whole, and so does its answer the proxy: only the client
    sees a broken connection. None means that a connection is left alone. Connections go to the
    address that a list has at that moment.
    """
    count = iter(range(1 << 30))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = urlsplit(urls if isinstance(urls, str) else urls[0])
        left = allowed(next(count))
        upstream = None
        try:
            there, upstream = await asyncio.open_connection(target.hostname, target.port)
            forward = asyncio.create_task(_copy(reader, upstream))
            async for data in _chunks(there):
                writer.write(data if left is None else data[:left])
                await writer.drain()
                if left is not None:
                    left -= len(data)
                    if left <= 0:
                        break
            forward.cancel()
        except OSError:
            pass
        finally:
            writer.close()
            if upstream is not None:
                upstream.close()

    with _running(serve) as port:
        yield f"http://127.0.0.1:{port}"


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        async for data in _chunks(reader):
            writer.write(data)
            await writer.drain()


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while data := await reader.read(65_536):
        yield data


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.decode().lower().split("\r\n"):
        if line.startswith("content-length:"):
            length = int(line.partition(":")[2])
    return head + await reader.readexactly(length)


@contextmanager
def _running(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> Iterator[int]:
    """Run a server of raw connections in a thread; yield its port."""
    started = threading.Event()
    ports: list[int] = []
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    async def serve_quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError):
            await serve(reader, writer)

    async def run() -> None:
        server = await asyncio.start_server(serve_quietly, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        started.set()
        await ended.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), name="hostile")
    thread.start()
    try:
        assert started.wait(_START_S)
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(_START_S)
        assert not thread.is_alive()
        loop.close()
