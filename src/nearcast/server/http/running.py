"""Running the application: uvicorn, signals, and what is printed at the beginning and the end."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
from contextlib import suppress
from socket import AF_INET, AF_INET6, SO_REUSEADDR, SOL_SOCKET, socket
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import uvicorn

from nearcast.compiled.first_calls import compile_at_once
from nearcast.errors import NearcastError
from nearcast.server.http.app import create_app
from nearcast.server.http.connections import http_protocol
from nearcast.server.http.context import Context, Settings
from nearcast.server.http.logs import JsonFormatter
from nearcast.server.http.starting import answering_while_starting
from nearcast.server.http.watchdog import Watchdog
from nearcast.server.opening import first_key, open_service
from nearcast.server.warming import compile_kernels
from nearcast.storage.scarce import is_scarce

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fastapi import FastAPI

    from nearcast.server.opening import Where
    from nearcast.server.service import Service

__all__ = ["WEBSOCKETS", "NearcastServer", "Ready", "serve"]

_log = logging.getLogger("nearcast.server")
_GRACE_S = 10
WEBSOCKETS: Final[Any] = {"ws_per_message_deflate": False, "ws_max_size": 4 << 10}
"""What clients say is ignored: it may be short, and nothing inflates it."""

_COLLECT_AFTER = 50_000
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 8 << 20
FAILED = 70
"""The exit code when nothing can be written or matched any more."""


class NearcastServer(uvicorn.Server):
    """Ends streams, and what runs beside it, before it waits for connections to close."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app
        self.beside: asyncio.Task[None] | None = None

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """End streams and what runs beside, then do what uvicorn does."""
        if self.beside is not None:
            self.beside.cancel()
            await asyncio.wait([self.beside])
        context = self._app.state.context
        context.stopping = True
        context.service.feeds.end()
        await super().shutdown(sockets)


class Ready(NamedTuple):
    """What there is to tell when a server listens.

    ``key`` is the first key, if there was none; ``link`` lets a browser sign in, once.
    """

    url: str
    key: str | None
    link: str


def serve(
    where: Where,
    host: str,
    port: int,
    settings: Settings | None = None,
    ready: Callable[[Ready], None] | None = None,
    beside: Callable[[Service], Coroutine[Any, Any, None]] | None = None,
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
        Is called when it listens.
    beside
        What else happens in the event loop while it runs; it is cancelled at the end.
    """
    # Who watches the demo need not see every request.
    _log_to_stderr(logging.WARNING if settings is not None and settings.demo else logging.INFO)
    address = _bound(host, port)
    _free_at_once()
    compile_at_once()
    with answering_while_starting(address):
        compile_kernels()
        service = open_service(where)  # here, where what goes wrong is the caller's to tell
    app = create_app(lambda: service, settings)

    def refused(status: int) -> None:
        context: Context = app.state.context
        context.metrics.connections_refused.labels(str(status)).inc()

    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
        http=http_protocol((settings or Settings()).connections, refused),
        **WEBSOCKETS,
    )
    server = NearcastServer(config, app)

    async def run() -> None:
        serving = asyncio.create_task(server.serve([address]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if server.started:
            service.on_failure = _fail
            watchdog = Watchdog(asyncio.get_running_loop(), _fail)
            watchdog.start()
            _collect_less()
            key = await first_key(service)
            if ready is not None:
                url = _url(server, host)
                link = f"{url}/#code={app.state.context.one_time_code.make()}"
                ready(Ready(url, key, link))
            if beside is not None:
                server.beside = asyncio.create_task(_watched(beside(service)))
        await serving

    _run(run())


async def _watched(work: Coroutine[Any, Any, None]) -> None:
    """Do some work; if it fails, say so, and let the server go on."""
    try:
        await work
    except Exception as error:
        _log.error("what runs beside the server has failed", exc_info=error)


def _bound(host: str, port: int) -> socket:
    """Return a socket with an address of its own, which does not listen yet."""
    found = socket(AF_INET6 if ":" in host else AF_INET)
    found.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        problem = f"cannot listen on {host}, port {port}: {error.strerror}"
        raise NearcastError(f"{problem}; choose another one with --host and --port") from None
    return found


def _run(main: Coroutine[Any, Any, None]) -> None:
    """Run the event loop; that of uvloop, where there is one, is twice as fast."""
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        asyncio.run(main)
    else:
        uvloop.run(main)


def _collect_less() -> None:
    """Let the garbage collector skip what was loaded, and run less often.

    It would go through every subscription again and again, a third of the time of a busy server.
    Nearly all objects of requests and events are freed by their reference counts.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)


def _free_at_once() -> None:
    """Let large arrays go back to the system when they are freed, where the C library is glibc.

    It would learn to keep them in its heaps, of which every thread has one: between small objects
    that live longer, each segment of events left some megabytes that nothing fitted into.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def _url(server: uvicorn.Server, host: str) -> str:
    port = server.servers[0].sockets[0].getsockname()[1]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _fail(error: BaseException) -> None:
    """End at once: what is on disk is unknown until the log is opened again."""
    scarce = "out of files or memory: " if is_scarce(error) else ""
    _log.critical("the server ends: %s%s", scarce, str(error) or repr(error))
    os._exit(FAILED)


def _log_to_stderr(level: int) -> None:
    """Write logs from a level on as lines of JSON to the standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    for name, own_level in (("nearcast", level), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(own_level)
