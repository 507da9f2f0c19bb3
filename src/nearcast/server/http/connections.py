"""Connections of HTTP/1.1: what uvicorn does, bounded, and with a way to write at once.

What a client can make the server keep is counted here, while bytes arrive: the header of a request
in bytes, lines and seconds, the time of a body, and connections. Whoever goes beyond a limit gets a
problem document, and the connection ends.
"""

from __future__ import annotations

import re
from socket import SO_SNDBUF, SOL_SOCKET
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from nearcast.server.http.correlators import new_correlator
from nearcast.server.http.door import VISITOR, Door
from nearcast.server.http.problems import Problem

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from starlette.types import Scope
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from nearcast.server.http.door import ConnectionLimits, Visitor

__all__ = ["Connection", "HttpProtocol", "connection_of", "http_protocol"]

_SEND_BUFFER_BYTES = 256 << 10
_NAME = "nearcast.connection"
_BETWEEN, _HEADER, _BODY = range(3)  # what of a request is still to come; between two, nothing is

_UNREAD_BYTES = 1 << 20
_UNREAD_KNOWN_BYTES = 256 << 20
"""How much is thrown away, of what nobody reads any more, before a connection is closed: of
strangers, and of those with a valid key. Many clients read the answer only when all is sent."""

_FRAMING_BYTES, _CHUNK_HEADER_BYTES = 64 << 10, 32
"""What a body in chunks may have beside its content: in all, and for each chunk."""

_MIN_CHUNK_BYTES, _SMALL_CHUNKS = 16, 10_000
"""The mean size that the chunks of a body must have, and from which number of them on."""

_PIPELINED = 32
"""How many requests may wait for the answers of those before them."""

_LOOK_S = 0.001
_HOST = re.compile(rb"[\w.~!$&'()*+,;=%:\[\]-]*", re.ASCII)


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
    """Bounds what a client can make the server keep, and hands connections over.

    `http_protocol` returns the class for one server.
    """

    door: Door
    refused: Callable[[int], None]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = self.door.limits
        self._visitor: Visitor | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._phase = _BETWEEN
        self._begun = 0
        self._data_bytes = 0
        self._raw_bytes = 0
        self._body_bytes = 0
        self._body_began = 0.0
        self._chunks = 0
        self._unread_bytes = 0
        self._host = b""
        self._problem: Problem | None = None
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take note of a new connection, or refuse it if there are too many."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        connection.setsockopt(SOL_SOCKET, SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._visitor = self.door.enter(self.client[0] if self.client else "")
        if self._visitor is None:
            detail = "too many connections are open; close some, or try again in a few seconds"
            self._refuse(Problem(503, "UNAVAILABLE", detail, headers={"Retry-After": "5"}))
            return
        self.app_state = {**self.app_state, VISITOR: self._visitor}
        self._call_when_late(self._limits.header_s, self._header_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that a connection is gone."""
        self._stop_timer()
        self._unset_keepalive_if_required()
        if self._writing is not None:
            self._writing.cancel()
        self._leave()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection to the protocol of WebSockets; it counts until it is lost."""
        super().handle_websocket_upgrade()
        protocol: Any = self.transport.get_protocol()
        lost = protocol.connection_lost

        def connection_lost(exc: Exception | None) -> None:
            self._leave()
            lost(exc)

        protocol.connection_lost = connection_lost

    def _leave(self) -> None:
        visitor, self._visitor = self._visitor, None
        if visitor is not None:
            visitor.leave()
        elif self._refused:
            self.door.left_refused()

    # --- what arrives ---

    def data_received(self, data: bytes) -> None:
        """Parse what came, and see how far the request is."""
        if self._refused:
            self._throw_away(len(data))
            return
        phase, begun, self._data_bytes = self._phase, self._begun, len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            return  # of other upgrades there are none: the request was answered as it is
        except httptools.HttpParserError:
            detail = "the request is not valid HTTP/1.1; the connection is closed"
            self._refuse(self._problem or Problem(400, "INVALID_ARGUMENT", detail))
            return
        if self._phase == _HEADER:
            if self._begun == begun + (phase == _BETWEEN):  # of this request, and of no other
                self._raw_bytes += len(data)
            self._watch_header()
        elif self._phase == _BODY:
            if phase == _BODY and self._begun == begun:
                self._raw_bytes += len(data)
            self._watch_body(len(data))

    def on_message_begin(self) -> None:
        """Begin to read a request."""
        if len(self.pipeline) >= _PIPELINED:
            self._stop(Problem(400, "INVALID_ARGUMENT", "too many requests wait for their answers"))
        self._unset_keepalive_if_required()
        super().on_message_begin()
        self._phase = _HEADER
        self._begun += 1
        self._raw_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Read a header; those after a body are thrown away."""
        headers = self.headers
        if self._phase == _BODY:
            return
        if len(headers) >= self._limits.headers:
            detail = f"at most {self._limits.headers} headers are allowed"
            self._stop(Problem(431, "HEADERS_TOO_LARGE", detail))
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Check what an answer depends on, and begin to answer."""
        self._stop_timer()
        self._unset_keepalive_if_required()
        self._check_headers()
        self._phase = _BODY
        self._raw_bytes = self._body_bytes = self._chunks = self._unread_bytes = 0
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope is self.scope:
            self.scope["state"][_NAME] = Connection(self.cycle)

    def on_chunk_header(self) -> None:
        """Count a chunk: many small ones are much work for little content."""
        self._chunks += 1
        if self._chunks > _SMALL_CHUNKS + self._body_bytes // _MIN_CHUNK_BYTES:
            detail = f"the chunks of the body are too small; send {_MIN_CHUNK_BYTES} bytes or more"
            self._stop(Problem(400, "INVALID_ARGUMENT", detail))

    def on_body(self, body: bytes) -> None:
        """Read a part of a body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that a request is there as a whole."""
        self._stop_timer()
        self._phase = _BETWEEN
        super().on_message_complete()
        cycle = self.cycle
        if cycle is not None and cycle.scope is self.scope and cycle.response_complete:
            self._wait_for_next()  # its body was of no interest, and came after the answer

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of this one."""
        waiting = self.transport.get_write_buffer_size()
        if waiting:
            self._watch_writing(waiting)
        visitor, limits = self._visitor, self._limits
        known = visitor is not None and visitor.tenant is not None
        self.timeout_keep_alive = limits.idle_s if known else limits.stranger_idle_s  # type: ignore[assignment]
        super().on_response_complete()
        if self._phase != _BETWEEN:  # the timer of what is to come runs already
            self._unset_keepalive_if_required()

    def _watch_writing(self, waiting: int) -> None:
        """Give up a client that does not take the rest of an answer; closing would wait for it."""
        limits = self._limits

        def look() -> None:
            self._writing = None
            left = self.transport.get_write_buffer_size()
            if left > max(0.0, waiting - limits.write_s * limits.body_bytes_per_s):
                self.transport.abort()
            elif left:
                self._watch_writing(left)

        if self._writing is not None:
            self._writing.cancel()
        self._writing = self.loop.call_later(limits.write_s, look)

    def _wait_for_next(self) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    # --- limits ---

    def _watch_header(self) -> None:
        """See to a header that is not complete: its size so far, and its time."""
        if self._raw_bytes > self._limits.header_bytes:
            self._refuse(self._header_too_large())
        elif self._timer is None:
            self._call_when_late(self._limits.header_s, self._header_is_late)

    def _watch_body(self, size: int) -> None:
        """See to a body that is not complete: its time, and what it has beside its content."""
        framing = _FRAMING_BYTES + _CHUNK_HEADER_BYTES * self._chunks
        if self._raw_bytes > self._body_bytes + framing:
            detail = "the body has more around its content than chunks need"
            self._refuse(Problem(400, "INVALID_ARGUMENT", detail))
        elif self.cycle is not None and self.cycle.response_complete:
            self._throw_away(size)
        if self._timer is None and not self._refused:
            self._body_began = self.loop.time()
            self._call_when_late(self._limits.body_s, self._body_is_late)

    def _throw_away(self, size: int) -> None:
        self._unread_bytes += size
        known = self._visitor is not None and self._visitor.tenant is not None
        if self._unread_bytes > (_UNREAD_KNOWN_BYTES if known else _UNREAD_BYTES):
            self.transport.close()

    def _call_when_late(self, seconds: float, late: Callable[[], None]) -> None:
        """Call something after some time, and after one more look at what has come.

        The bytes may be there, and the loop was too busy to read them.
        """

        def look_again() -> None:
            self._timer = self.loop.call_later(_LOOK_S, late)

        self._timer = self.loop.call_later(seconds, look_again)

    def _header_is_late(self) -> None:
        self._timer = None
        if self._phase == _BETWEEN:
            self.transport.close()
        else:
            detail = f"a request line and all headers must come within {self._limits.header_s:g} s"
            self._refuse(Problem(408, "REQUEST_TIMEOUT", detail))

    def _body_is_late(self) -> None:
        limits = self._limits
        allowed_s = limits.body_s + self._body_bytes / limits.body_bytes_per_s
        left_s = self._body_began + allowed_s - self.loop.time()
        if left_s > 0:
            self._call_when_late(left_s, self._body_is_late)
            return
        self._timer = None
        detail = (
            f"the body did not come within {limits.body_s:g} s, and a second more for each "
            f"{limits.body_bytes_per_s:,.0f} bytes; send it faster, or in smaller requests"
        )
        self._refuse(Problem(408, "REQUEST_TIMEOUT", detail))

    def _header_too_large(self) -> Problem:
        limit = self._limits.header_bytes
        detail = f"the request line and all headers may have {limit:,} bytes at most"
        return Problem(431, "HEADERS_TOO_LARGE", detail)

    def _check_headers(self) -> None:
        """Refuse a large header, and what another server may understand in another way."""
        if self._raw_bytes + self._data_bytes > self._limits.header_bytes:
            # It may be large, or there is more than the header.
            sizes = [len(name) + len(value) + 4 for name, value in self.headers]
            if len(self.url) + sum(sizes) > self._limits.header_bytes:
                self._stop(self._header_too_large())
        names = [name for name, _ in self.headers]
        version = self.parser.get_http_version()
        count = names.count(b"host")
        if count != 1 and (count or version != "1.0"):
            self._stop_for(f"a request needs one Host header, got {count}")
        if count:
            host = self.headers[names.index(b"host")][1]
            if host != self._host and _HOST.fullmatch(host) is None:
                self._stop_for("the Host header must be a name or an address, and a port")
            self._host = host
        if version not in ("1.1", "1.0"):
            self._stop_for(f"the version must be HTTP/1.1, got HTTP/{version}")
        if b"transfer-encoding" in names:
            encodings = [v.strip().lower() for n, v in self.headers if n == b"transfer-encoding"]
            if version == "1.0" or encodings != [b"chunked"]:
                self._stop_for("the only Transfer-Encoding is chunked, of HTTP/1.1, and once")
            if b"content-length" in names:
                self._stop_for("Content-Length and Transfer-Encoding cannot both be given")

    def _stop_for(self, detail: str) -> None:
        self._stop(Problem(400, "INVALID_ARGUMENT", detail))

    def _stop(self, problem: Problem) -> None:
        """End parsing; the parser raises an error of its own in place of the problem."""
        self._problem = problem
        raise problem

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, problem: Problem) -> None:
        """Answer with a problem if nothing else was answered, and close the connection.

        What was sent meanwhile is read for a moment: otherwise the client would lose the answer.
        """
        self._refused = True
        self.refused(problem.status)
        self._stop_timer()
        self._unset_keepalive_if_required()
        cycle, transport, correlator = self.cycle, self.transport, ""
        if cycle is not None and not cycle.response_complete:
            if cycle.scope is not self.scope or cycle.response_started or self.pipeline:
                transport.close()  # in the middle of an answer
                return
            correlator = str(cycle.scope["state"].get("correlator", ""))
            cycle.disconnected = True
            cycle.message_event.set()
        answer = problem.response(correlator or new_correlator().decode())
        lines = [STATUS_LINE[problem.status]]
        for name, value in answer.raw_headers:
            lines += [name, b": ", value, b"\r\n"]
        transport.write(b"".join([*lines, b"connection: close\r\n\r\n", bytes(answer.body)]))
        if self._visitor is None and not self.door.stays_refused():
            transport.close()
            return
        if transport.can_write_eof():
            transport.write_eof()
        self._timer = self.loop.call_later(self._limits.linger_s, transport.close)


def http_protocol(
    limits: ConnectionLimits, refused: Callable[[int], None] = lambda status: None
) -> type[HttpProtocol]:
    """Return the protocol of a server with limits of its own.

    Parameters
    ----------
    limits
        What connections may cost.
    refused
        Is called with the status when a connection is refused.
    """

    class Bounded(HttpProtocol):
        door = Door(limits)

    Bounded.refused = staticmethod(refused)

    return Bounded
