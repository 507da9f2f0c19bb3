"""The header ``x-correlator``: one id that client, answer and log have in common."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["CorrelatorMiddleware", "correlator_of", "new_correlator"]

_HEADER = b"x-correlator"
_NOSNIFF = (b"x-content-type-options", b"nosniff")  # browsers must believe the media type
_random = random.Random().getrandbits  # no secret; the system's source lets go of the GIL
_VALID = re.compile(rb"[A-Za-z0-9._:~/+=-]{1,128}")


class CorrelatorMiddleware:
    """Gives every request a correlator, and answers with it and with ``nosniff``.

    A client may send its own: up to 128 letters, digits and ``._:~/+=-``. One that is missing or
    invalid is replaced.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == _HEADER), b"")
        correlator = given if _VALID.fullmatch(given) else new_correlator()
        scope.setdefault("state", {})["correlator"] = correlator.decode()

        async def send_with_correlator(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                names = [name for name, _ in headers]
                if _HEADER not in names:
                    headers.append((_HEADER, correlator))
                if _NOSNIFF[0] not in names:
                    headers.append(_NOSNIFF)
                message["headers"] = headers
            await send(message)

        await self._app(scope, receive, send_with_correlator)


def new_correlator() -> bytes:
    """Return a correlator for a request that has none."""
    return b"%032x" % _random(128)


def correlator_of(scope: Scope) -> str:
    """Return the correlator of a request; empty if the middleware has not seen it."""
    return str(scope.get("state", {}).get("correlator", ""))
