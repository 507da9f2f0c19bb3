"""Running the application: uvicorn, signals, and what is printed at the beginning and the end."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

import uvicorn

from nearcast.server.http.app import create_app
from nearcast.server.opening import first_key, open_service

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from socket import socket

    from fastapi import FastAPI

    from nearcast.server.http.context import Settings
    from nearcast.server.opening import Where

__all__ = ["NearcastServer", "serve"]

_log = logging.getLogger("nearcast.server")
_GRACE_S = 10
FAILED = 70
"""The exit code when nothing can be written or matched any more."""


class NearcastServer(uvicorn.Server):
    """Ends streams before it waits for connections to close."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """End streams, then do what uvicorn does."""
        self._app.state.context.service.feeds.end()
        await super().shutdown(sockets)


def serve(
    where: Where,
    host: str,
    port: int,
    settings: Settings | None = None,
    ready: Callable[[str, str | None, Any], None] | None = None,
) -> None:
    """Run a server until it is stopped by a signal.

    Parameters
    ----------
    where
        Where it keeps what it knows.
    host, port
        What it listens to; 0 chooses a free port.
    settings
        What it allows.
    ready
        Is called when it listens, with the URL, the first key if there was none, and the
        application.
    """
    app = create_app(lambda: open_service(where), settings)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
        timeout_keep_alive=75,
    )
    server = NearcastServer(config, app)

    async def run() -> None:
        serving = asyncio.create_task(server.serve())
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if server.started:
            service = app.state.context.service
            service.on_failure = _fail
            key = await first_key(service)
            if ready is not None:
                ready(_url(server, host), key, app)
        await serving

    _run(run())


def _run(main: Coroutine[Any, Any, None]) -> None:
    """Run the event loop; that of uvloop, where there is one, is twice as fast."""
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        asyncio.run(main)
    else:
        uvloop.run(main)


def _url(server: uvicorn.Server, host: str) -> str:
    port = server.servers[0].sockets[0].getsockname()[1]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _fail(error: BaseException) -> None:
    """End at once: what is on disk is unknown until the log is opened again."""
    _log.critical("the server ends: %s", error)
    os._exit(FAILED)
