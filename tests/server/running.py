"""A real server on this machine, for tests: uvicorn in a thread, with its own folder."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import uvicorn

from nearcast.server.http.app import create_app
from nearcast.server.http.connections import http_protocol
from nearcast.server.http.context import Settings
from nearcast.server.http.running import WEBSOCKETS, NearcastServer
from nearcast.server.opening import Where, first_key, open_service
from nearcast.server.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["Running", "StandingClock", "circle", "resource", "running_server"]

_START_S = 60
BERLIN = (13.4, 52.5)


class StandingClock:
    """The clock of a server, which stands still until `Running.pass_time` moves it."""

    def __init__(self, start: str) -> None:
        self._now_us = round(datetime.fromisoformat(start).timestamp()) * 1_000_000
        self._sleepers: set[asyncio.Future[None]] = set()

    def now_us(self) -> int:
        """Return the time."""
        return self._now_us

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock is moved, by however much."""
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers.add(sleeper)
        try:
            await sleeper
        finally:
            self._sleepers.discard(sleeper)

    def move(self, seconds: float) -> None:
        """Move the clock; in the thread of the event loop."""
        self._now_us += round(seconds * 1e6)
        for sleeper in self._sleepers:
            if not sleeper.done():
                sleeper.set_result(None)


class Running(NamedTuple):
    """A server: its address, its first key (empty if the folder had one), and its parts."""

    url: str
    key: str
    app: Any
    loop: asyncio.AbstractEventLoop

    def client(self, key: str | None = None, **options: Any) -> httpx.Client:
        """Return a client with a key: the first one, or none if it is empty."""
        key = self.key if key is None else key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, **options)

    def make_key(
        self, *roles: str, tenant: str | None = None, subscriber: str | None = None
    ) -> str:
        """Return a new key, made by the first one."""
        body: dict[str, Any] = {"roles": list(roles)}
        body |= {} if tenant is None else {"tenant": tenant}
        body |= {} if subscriber is None else {"subscriber": subscriber}
        with self.client() as client:
            return str(client.post("/v1/keys", json=body).raise_for_status().json()["key"])

    def pass_time(self, seconds: float) -> None:
        """Move the `StandingClock` of the server, and let everything look at it that waits."""
        service = self.app.state.context.service

        async def pass_time() -> None:
            service.clock.move(seconds)
            service.feeds.beat()
            with service.pipeline._changed:
                service.pipeline._changed.notify_all()

        asyncio.run_coroutine_threadsafe(pass_time(), self.loop).result(_START_S)

    def make_tenant(self, name: str) -> str:
        """Make a tenant, and return a key of it with all roles."""
        with self.client() as client:
            client.post("/v1/tenants", json={"name": name}).raise_for_status()
        return self.make_key("admin", "publish", "subscribe", tenant=name)


@contextmanager
def running_server(
    folder: Path,
    opens: Callable[[], Service] | None = None,
    *,
    clock: StandingClock | None = None,
    **settings: Any,
) -> Iterator[Running]:
    """Run a server over a folder until the end of the block; settings are those of `Settings`."""

    def open_folder() -> Service:
        return Service.open(folder, clock=clock) if clock else open_service(Where(folder))

    opened = Settings(**settings)
    app = create_app(opens or open_folder, opened)
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_level="warning",
        timeout_graceful_shutdown=5,
        http=http_protocol(opened.connections),
        **WEBSOCKETS,
    )
    server = NearcastServer(config, app)
    started = threading.Event()
    found: list[Running | BaseException] = []

    async def run() -> None:
        serving = asyncio.create_task(server.serve())
        while not server.started and not serving.done():
            await asyncio.sleep(0.005)
        if server.started:
            key = await first_key(app.state.context.service)
            port = server.servers[0].sockets[0].getsockname()[1]
            loop = asyncio.get_running_loop()
            found.append(Running(f"http://127.0.0.1:{port}", key or "", app, loop))
            started.set()
        await serving

    def target() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            found.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=target, name="server")
    thread.start()
    try:
        assert started.wait(_START_S)
        running = found[0] if found else RuntimeError("the server did not start")
        if isinstance(running, BaseException):
            raise running
        yield running
    finally:
        server.should_exit = True
        thread.join(_START_S)
        assert not thread.is_alive()
    failures = [one for one in found if isinstance(one, BaseException)]
    if failures:
        raise failures[0]


def circle(
    lon: float = BERLIN[0], lat: float = BERLIN[1], radius_m: float = 1000
) -> dict[str, Any]:
    """Return a region of CAMARA's form."""
    center = {"latitude": lat, "longitude": lon}
    return {"areaType": "CIRCLE", "center": center, "radius": radius_m}


def resource(*keywords: str, subscriber: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a subscription around Berlin, as a client writes it."""
    detail: dict[str, Any] = {"keywords": list(keywords), "region": circle()}
    detail |= {} if subscriber is None else {"subscriber": subscriber}
    return {"config": {"subscriptionDetail": detail}, **more}
