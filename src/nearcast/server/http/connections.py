"""Connections of HTTP/1.1: what uvicorn does, bounded, and with a way to write at once."""

from __future__ import annotations

from socket import SO_SNDBUF, SOL_SOCKET
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

    from starlette.types import Scope
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

__all__ = ["Connection", "HttpProtocol", "connection_of"]

_SEND_BUFFER_BYTES = 256 << 10
_NAME = "nearcast.connection"


class Connection:
    """The way to a client while a request is answered."""

    __slots__ = ("_answer", "abort")

    def __init__(self, answer: RequestResponseCycle) -> None:
        self._answer = answer
        self.abort = answer.transport.abort
        """Gives the client up, without waiting for what was written."""

    def is_free(self) -> bool:
        """Return whether the client takes what is written now."""
        answer = self._answer
        return not (answer.flow.write_paused or answer.disconnected or answer.response_complete)

    def write(self, data: bytes) -> None:
        """Write a part of an answer whose length is not known, as `send` of ASGI would.

        That is a coroutine, and each piece of middleware around it another one, for every event of
        a stream that sends each on its own.
        """
        if self._answer.chunked_encoding:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._answer.transport.write(data)


def connection_of(scope: Scope) -> Connection | None:
    """Return the connection of a request; None if another server runs the application."""
    found: Connection | None = scope.get("state", {}).get(_NAME)
    return found


class HttpProtocol(HttpToolsProtocol):
    """Bounds what the system keeps for a client that does not read, and hands connections over."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take note of a new connection."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        connection.setsockopt(SOL_SOCKET, SO_SNDBUF, _SEND_BUFFER_BYTES)

    def on_headers_complete(self) -> None:
        """Begin to answer a request."""
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope is self.scope:
            self.scope["state"][_NAME] = Connection(self.cycle)
