"""The application: all routes under /v1, problem documents, and what surrounds them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.responses import PlainTextResponse

from nearcast import __version__
from nearcast.server.http import (
    administration,
    events,
    explaining,
    importing,
    openapi,
    pages,
    problems,
    publishing,
    subscribers,
    subscriptions,
    webhooks,
)
from nearcast.server.http.context import Context, Settings
from nearcast.server.http.correlators import CorrelatorMiddleware

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from nearcast.server.service import Service

__all__ = ["create_app"]

_BEAT_S = 15.0
_ROUTERS = (
    publishing.router,
    events.router,
    importing.router,
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

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = await asyncio.to_thread(open_service)
        service.start()
        context = app.state.context = Context(service, settings or Settings())
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
    )
    problems.install(app)
    app.add_middleware(CorrelatorMiddleware)
    for router in _ROUTERS:
        app.include_router(router, prefix="/v1")
    app.include_router(pages.router)

    @app.get("/healthz", response_class=PlainTextResponse, include_in_schema=False)
    async def health() -> str:
        return "ok\n"

    del health
    openapi.install(app)
    return app


async def _beat(service: Service) -> None:
    """Wake quiet streams from time to time, so that connections stay alive."""
    while True:
        await asyncio.sleep(_BEAT_S)
        service.feeds.beat()
