"""The application: all routes under /v1, problem documents, and what surrounds them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from nearcast import __version__
from nearcast.server.http import (
    about,
    administration,
    cells,
    events,
    explaining,
    history,
    importing,
    openapi,
    pages,
    problems,
    publishing,
    signing_in,
    subscribers,
    subscriptions,
    tracing,
    webhooks,
)
from nearcast.server.http.context import Context, Settings
from nearcast.server.http.correlators import CorrelatorMiddleware
from nearcast.server.http.description import complete_description
from nearcast.server.http.gate import GateMiddleware
from nearcast.server.http.logs import RequestLogMiddleware
from nearcast.server.http.metrics import Metrics
from nearcast.server.http.monitoring import MetricsObserver
from nearcast.server.http.monitoring import router as monitoring

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from nearcast.server.service import Service

__all__ = ["create_app"]

_BEAT_S = 15.0
_REQUEST_HEADERS = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "Last-Event-ID",
    "Prefer",
    "x-correlator",
)
_ROUTERS = (
    about.router,
    signing_in.router,
    publishing.router,
    tracing.router,
    history.router,
    events.router,
    importing.router,
    cells.router,  # before /subscriptions/{id}
    subscriptions.router,
    subscribers.router,
    explaining.router,
    webhooks.router,
    administration.router,
)


def create_app(open_service: Callable[[], Service], settings: Settings | None = None) -> FastAPI:
    """Return the application.

    Parameters
    ----------
    open_service
        Opens the service; called when the application starts.
    settings
        How the server was started.
    """
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = await asyncio.to_thread(open_service)
        complete_description(app, _ROUTERS, "/v1")
        service.observer = MetricsObserver(metrics)
        service.start()
        context = app.state.context = Context(service, settings or Settings(), metrics)
        await context.start()
        beating = asyncio.create_task(_beat(service))
        try:
            yield
        finally:
            beating.cancel()
            await context.close()
            await service.close()

    app = FastAPI(
        title="Nearcast",
        version=__version__,
        description="Location-aware publish/subscribe.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # the address would come from the header Host
    )
    app.include_router(monitoring)
    problems.install(app)
    # From the inside to the outside.
    app.add_middleware(GateMiddleware)
    app.add_middleware(RequestLogMiddleware, metrics=metrics)
    if settings is not None and settings.allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allow_origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=_REQUEST_HEADERS,
            expose_headers=["ETag", "Location", "Retry-After", "x-correlator"],
        )
    app.add_middleware(CorrelatorMiddleware)
    for router in _ROUTERS:
        app.include_router(router, prefix="/v1")
    app.include_router(pages.router)
    openapi.install(app)
    return app


async def _beat(service: Service) -> None:
    """Wake quiet streams from time to time, so that connections stay alive."""
    while True:
        await asyncio.sleep(_BEAT_S)
        service.feeds.beat()
