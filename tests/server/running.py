"""A real server on this machine, for tests: uvicorn in a thread, with its own folder."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import uvicorn

from nearcast.server.http.app import create_app
from nearcast.server.http.context import Settings
from nearcast.server.http.running import NearcastServer
from nearcast.server.opening import Where, first_key, open_service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from nearcast.server.service import Service

__all__ = ["Running", "circle", "resource", "running_server"]

_START_S = 60
BERLIN = (13.4, 52.5)


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

    def make_tenant(self, name: str) -> str:
        """Make a tenant, and return a key of it with all roles."""
        with self.client() as client:
            client.post("/v1/tenants", json={"name": name}).raise_for_status()
        return self.make_key("admin", "publish", "subscribe", tenant=name)


@contextmanager
def running_server(
    folder: Path, opens: Callable[[], Service] | None = None, **settings: Any
) -> Iterator[Running]:
    """Run a server over a folder until the end of the block; settings are those of `Settings`."""
    app = create_app(opens or (lambda: open_service(Where(folder))), Settings(**settings))
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=5
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
