"""A receiver of webhooks on this machine, in a thread of its own."""

from __future__ import annotations

import asyncio
import queue
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Received", "Receiver", "receiving"]

_WAIT_S = 30


class Received(NamedTuple):
    """A request as it came, and what was answered."""

    headers: Mapping[str, str]
    body: bytes
    status: int


class Receiver:
    """Answers with ``status`` and keeps what came.

    Attributes
    ----------
    url
        Where to send.
    status
        The status of the next answers.
    """

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self._came: queue.Queue[Received] = queue.Queue()

    def next(self) -> Received:
        """Return the next request; wait for it."""
        return self._came.get(timeout=_WAIT_S)

    @property
    def waiting(self) -> int:
        """How many requests came that nobody has looked at."""
        return self._came.qsize()

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request."""
        status = self.status
        self._came.put(Received(dict(request.headers), await request.read(), status))
        return web.Response(status=status)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver until the end of the block."""
    receiver, started = Receiver(), threading.Event()
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def run() -> None:
        app = web.Application()
        app.router.add_post("/hook", receiver.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        receiver.url = f"http://{host}:{port}/hook"
        stop = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stop))
        started.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="receiver")
    thread.start()
    assert started.wait(_WAIT_S)
    loop, stop = loops[0]
    try:
        yield receiver
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_WAIT_S)
