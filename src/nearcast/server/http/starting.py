"""What a server answers before it can serve: `/healthz`, and 503 for everything else.

The first start on a machine compiles kernels for about three minutes. Whoever watches the process
must not take that for its death.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from socket import socket

__all__ = ["answering_while_starting"]


class _Answers(BaseHTTPRequestHandler):
    timeout = 5.0  # for a whole request: nobody who waits longer learns more

    def _answer(self) -> None:
        healthy = self.path == "/healthz"
        body = b"ok" if healthy else b"The server is starting. Try again in a few seconds."
        self.send_response_only(HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if not healthy:
            self.send_header("Retry-After", "2")
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: these requests have not reached the server."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


@contextmanager
def answering_while_starting(address: socket) -> Iterator[None]:
    """Listen on a bound socket, and answer until the end; the socket stays open and listening."""
    server = _Server(address.getsockname(), _Answers, bind_and_activate=False)
    server.socket.close()
    server.socket = address
    server.server_activate()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
