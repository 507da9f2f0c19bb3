"""What tests of webhooks run against: sinks in memory, a clock, and receivers on 127.0.0.1."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from aiohttp import web

from nearcast.server.delivery.sinks import Attempt, RenderedEvent, Sink

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from nearcast.server.delivery.sinks import Position, SinkStatus

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW_US = 1_800_000_000_000_000


class MemoryEvents:
    """`SinkEvents` in memory; what `save` stored outlives a sender."""

    def __init__(self) -> None:
        self.sinks: dict[str, Sink] = {}
        self.events: dict[str, list[RenderedEvent]] = defaultdict(list)
        self.dead_letters: list[tuple[str, str, str]] = []
        self.disabled: dict[str, str] = {}
        self.ended: list[str] = []
        self.attempts: list[tuple[str, Attempt]] = []
        self.saves = 0
        self.reads = 0
        self._noted = asyncio.Condition()

    def add(self, sink: Sink, events: int = 0) -> Sink:
        self.sinks[sink.id] = sink
        for _ in range(events):
            self.publish(sink.id)
        return sink

    def publish(self, sink_id: str, time_us: int = NOW_US) -> RenderedEvent:
        seq = len(self.events[sink_id]) + 1
        event_id = f"7-{seq}"
        body = f'{{"specversion":"1.0","id":"{event_id}","source":"/v1","type":"t","data":"ü"}}'
        event = RenderedEvent((seq, 0), event_id, body.encode(), time_us)
        self.events[sink_id].append(event)
        return event

    async def attempted(self, count: int) -> None:
        """Return when at least ``count`` attempts were made."""
        async with self._noted:
            await self._noted.wait_for(lambda: len(self.attempts) >= count)

    async def sink(self, sink_id: str) -> Sink | None:
        return self.sinks.get(sink_id)

    async def read(self, sink: Sink, after: Position, limit: int) -> list[RenderedEvent]:
        self.reads += 1
        await asyncio.sleep(0)
        later = [event for event in self.events[sink.id] if event.position > after]
        return later[:limit]

    async def save(
        self,
        sink_id: str,
        position: Position,
        *,
        attempts: int,
        next_try_us: int,
        status: SinkStatus,
        sent: tuple[int, ...],
    ) -> None:
        await asyncio.sleep(0)
        self.saves += 1
        self.sinks[sink_id] = replace(
            self.sinks[sink_id],
            position=position,
            attempts=attempts,
            next_try_us=next_try_us,
            status=status,
            sent=sent,
        )

    async def dead(self, sink_id: str, event: RenderedEvent, reason: str) -> None:
        self.dead_letters.append((sink_id, event.id, reason))

    async def disable(self, sink_id: str, reason: str) -> None:
        self.disabled[sink_id] = reason
        self.sinks[sink_id] = replace(self.sinks[sink_id], status="DISABLED")

    async def gone(self, sink_id: str, reason: str) -> None:
        self.ended.append(sink_id)
        await self.disable(sink_id, reason)

    async def note_attempt(self, sink_id: str, attempt: Attempt) -> None:
        async with self._noted:
            self.attempts.append((sink_id, attempt))
            self._noted.notify_all()


class VirtualClock:
    """A clock that a test moves on."""

    def __init__(self, now_us: int = NOW_US) -> None:
        self.now = now_us
        self._sleepers: list[tuple[int, asyncio.Future[None]]] = []
        self._changed = asyncio.Event()

    def now_us(self) -> int:
        return self.now

    async def sleep(self, seconds: float) -> None:
        sleeper = (self.now + round(seconds * 1e6), asyncio.get_running_loop().create_future())
        self._sleepers.append(sleeper)
        self._changed.set()
        try:
            await sleeper[1]
        finally:
            if sleeper in self._sleepers:  # it was cancelled
                self._sleepers.remove(sleeper)

    async def skip(self) -> float:
        """Go on to the time that the first sleeper waits for, and return how long that was."""
        while not self._sleepers:
            self._changed.clear()
            await self._changed.wait()
        due_us = min(due for due, _ in self._sleepers)
        waited_s, self.now = (due_us - self.now) / 1e6, due_us
        for sleeper in [sleeper for sleeper in self._sleepers if sleeper[0] <= self.now]:
            self._sleepers.remove(sleeper)
            sleeper[1].set_result(None)
        return waited_s


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Receiver:
    """An HTTP server that keeps what it gets and answers as a test wants."""

    def __init__(self) -> None:
        self.url = ""
        self.port = 0
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        self.headers: dict[str, str] = {}
        self.handler: Handler | None = None
        self.in_flight = 0
        self.max_in_flight = 0

    @property
    def ids(self) -> list[str]:
        return [headers["webhook-id"] for _, headers, _ in self.got]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.got.append((request.path, headers, body))
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            if self.handler is not None:
                return await self.handler(request)
            status = self.statuses.pop(0) if self.statuses else 200
            return web.Response(status=status, headers=self.headers)
        finally:
            self.in_flight -= 1


@asynccontextmanager
async def receiving(
    host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    """Run a receiver."""
    receiver = Receiver()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", receiver.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, 0, ssl_context=tls).start()
        receiver.port = runner.addresses[0][1]
        receiver.url = f"{'https' if tls else 'http'}://{host}:{receiver.port}/hook"
        yield receiver
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_receiving(*answers: bytes) -> AsyncIterator[str]:
    """Run a server that reads a request, writes the next of some bytes and closes; yield its URL.

    The last answer is repeated. Nothing is written and nothing closed if there are none.
    """
    left = list(answers)
    writers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readuntil(b"}")
        if left:
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()
        for writer in writers:
            writer.close()
