"""Structured logs: one JSON object a line, and one line a request.

A line about a request has its method, the template of its route, status, duration, tenant and
correlator. It never has the query (which may have a token), headers or bodies.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import msgspec

from nearcast.errors import one_line
from nearcast.server.http.correlators import correlator_of
from nearcast.server.http.models import timestamp_text

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from nearcast.server.http.metrics import Metrics

__all__ = ["JsonFormatter", "RequestLogMiddleware"]

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_log = logging.getLogger("nearcast.server.requests")


class JsonFormatter(logging.Formatter):
    """Writes records as JSON objects; a record's ``fields`` become its properties.

    Examples
    --------
    >>> record = logging.LogRecord("nearcast", logging.INFO, "", 0, "started", None, None)
    >>> record.created = 0.0
    >>> JsonFormatter().format(record)
    '{"time":"1970-01-01T00:00:00Z","level":"info","logger":"nearcast","message":"started"}'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line."""
        line: dict[str, Any] = {
            "time": timestamp_text(int(record.created * 1_000_000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": one_line(record.getMessage()),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            line |= fields
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode(errors="replace")


class RequestLogMiddleware:
    """Logs and counts requests.

    Parameters
    ----------
    app
        The application.
    metrics
        Where requests are counted.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        self._templates: dict[object, str] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noting_status)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _note(self, scope: Scope, status: int, duration_s: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        route = self._route(scope)
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.request_s.labels(route).observe(duration_s)
        if _log.isEnabledFor(logging.INFO):
            fields = {
                "method": method,
                "route": route,
                "status": status,
                "durationMs": round(duration_s * 1000, 3),
                "tenant": scope.get("state", {}).get("tenant"),
                "correlator": correlator_of(scope),
            }
            _log.info("request", extra={"fields": fields})

    def _route(self, scope: Scope) -> str:
        """Return the template of the route of a request; ``-`` if there is none."""
        if "route" in scope:  # FastAPI's own routes, which do not know the prefix of their router
            path = str(getattr(scope["route"], "path", "-"))
            is_v1 = scope["path"].startswith("/v1/") and not path.startswith("/v1/")
            return f"/v1{path}" if is_v1 else path
        endpoint = scope.get("endpoint")
        if endpoint is None:
            return "-"
        if endpoint not in self._templates:
            routes = scope["router"].routes
            found = [route for route in routes if getattr(route, "endpoint", None) is endpoint]
            self._templates[endpoint] = str(getattr(found[0], "path", "-")) if found else "-"
        return self._templates[endpoint]
