"""The gate: what is decided about a request before anything of its body is read.

For every route under ``/v1``, the key or token comes first, then the rate of its tenant. What is
left of the body is bounded: by the few bytes that signing in needs, by 64 KB for routes that take a
small document, and for the others, which read in pieces, by the limits of the tenant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.websockets import WebSocket

from nearcast.server.http.auth import remember
from nearcast.server.http.correlators import correlator_of
from nearcast.server.http.door import visitor_of
from nearcast.server.http.fair_pool import TENANT
from nearcast.server.http.problems import Problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from nearcast.server.http.context import Context

__all__ = ["DOCUMENT_BYTES", "MAX_PARAMETERS", "SIGN_IN_BYTES", "GateMiddleware"]

DOCUMENT_BYTES = 64 << 10
"""The size of a body, unless the route reads larger ones itself."""

SIGN_IN_BYTES = 512
"""The size of a body with the code of a one-time link."""

MAX_PARAMETERS = 100
"""How many parameters an address may have; all routes know fewer."""

_SIGN_IN = "/v1/sign-in"
_NEEDS_NO_KEY = frozenset({"/v1/about", _SIGN_IN})
_PREVIEW = "/v1/preview"
_READ_IN_PIECES = frozenset({"/v1/messages", "/v1/moves"})
_READ_IN_PIECES_BELOW = "/v1/subscriptions"


class GateMiddleware:
    """Lets requests in: with a valid key, at the rate of its tenant, and with a bounded body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            limit = _enter(scope)
            if limit is not None:
                receive = _bounded(scope, receive, limit)
        except Problem as problem:
            answer = problem.response(correlator_of(scope))
            if scope["type"] == "websocket":
                await WebSocket(scope, receive, send).send_denial_response(answer)
            else:
                await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _enter(scope: Scope) -> int | None:
    """Return how large a body may be, or raise why a request is refused; None: the route says."""
    path: str = scope["path"]
    if scope["query_string"].count(b"&") >= MAX_PARAMETERS:
        detail = f"at most {MAX_PARAMETERS} parameters are allowed"
        raise Problem(400, "INVALID_ARGUMENT", detail)
    if not path.startswith("/v1/") or path in _NEEDS_NO_KEY:
        _check_encoding(scope)
        return SIGN_IN_BYTES if path == _SIGN_IN else DOCUMENT_BYTES
    context: Context = scope["app"].state.context
    principal = context.authenticator.principal(scope)
    visitor = visitor_of(scope)
    if visitor is not None and not visitor.recognize(principal.tenant):
        detail = "the tenant has too many connections; close some, or try again later"
        raise Problem(429, "TOO_MANY_REQUESTS", detail, headers={"Retry-After": "5"})
    context.limiter.check_request(principal.tenant)
    remember(scope, principal)
    TENANT.set(principal.tenant)
    _check_encoding(scope)
    if path in _READ_IN_PIECES or path.startswith(_READ_IN_PIECES_BELOW):
        return None
    return context.limits(principal.tenant).document_bytes if path == _PREVIEW else DOCUMENT_BYTES


def _check_encoding(scope: Scope) -> None:
    """Refuse a body that would have to be decompressed: it may be larger than all limits."""
    for name, value in scope["headers"]:
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            given = value.decode("latin-1")[:40]
            detail = f"Content-Encoding is not supported, got {given!r}; send the body as it is"
            headers = {"Accept-Encoding": "identity"}
            raise Problem(415, "UNSUPPORTED_MEDIA_TYPE", detail, headers=headers)


def _bounded(scope: Scope, receive: Receive, limit: int) -> Receive:
    """Return a way to read a body up to a limit; one that says it is larger is not read at all."""
    detail = f"the body is too large; at most {limit:,} bytes are allowed"
    for name, value in scope["headers"]:
        if name == b"content-length" and (len(value) > 18 or int(value) > limit):
            raise Problem(413, "CONTENT_TOO_LARGE", detail)
    size = 0

    async def receive_bounded() -> Message:
        nonlocal size
        message = await receive()
        if message["type"] == "http.request":
            size += len(message["body"])
            if size > limit:  # FastAPI lets no other exception pass while it reads a body
                raise HTTPException(413, detail)
        return message

    return receive_bounded
