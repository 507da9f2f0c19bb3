"""Receivers of webhooks that misbehave: each keeps what it gets, and answers as a test wants."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Behavior = Callable[["Request"], None]

__all__ = [
    "Receiver",
    "Request",
    "answer",
    "break_off_answer",
    "break_off_head",
    "endless",
    "hang",
    "receiving",
]

_WAIT_S = 60


class Received(NamedTuple):
    """A request as it came."""

    method: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        """The id of the event."""
        return self.headers["webhook-id"]


class Receiver:
    """What came to a receiver, and what it does next.

    Attributes
    ----------
    url
        Where to send.
    behavior
        How requests are answered.
    """

    def __init__(self, behavior: Behavior) -> None:
        self.url = ""
        self.behavior = behavior
        self.received: list[Received] = []
        self.cut_off = 0
        self.ending = threading.Event()
        self._changed = threading.Condition()

    def note(self, received: Received) -> None:
        """Take note of a request."""
        with self._changed:
            self.received.append(received)
            self._changed.notify_all()

    def note_cut_off(self) -> None:
        """Take note of a client that closed its connection before the answer had ended."""
        with self._changed:
            self.cut_off += 1
            self._changed.notify_all()

    def wait_for(self, count: int) -> list[Received]:
        """Return the first requests when there are this many."""
        with self._changed:
            while len(self.received) < count:
                assert self._changed.wait(_WAIT_S), (len(self.received), count)
            return self.received[:count]

    def wait_for_cut_off(self, count: int) -> None:
        """Return when this many clients have closed their connections early."""
        with self._changed:
            while self.cut_off < count:
                assert self._changed.wait(_WAIT_S), (self.cut_off, count)


class Request(BaseHTTPRequestHandler):
    """A request to a receiver."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        """Keep the request, and answer it."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        receiver = self.server.receiver
        receiver.note(Received(self.command, headers, body))
        receiver.behavior(self)

    do_GET = do_POST

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    receiver: Receiver
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: that clients close connections is expected."""


def answer(status: int, **headers: str) -> Behavior:
    """Answer with a status; underscores in the names of headers are hyphens."""

    def behave(request: Request) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", "0")
        request.end_headers()

    return behave


def hang(request: Request) -> None:
    """Never answer."""
    request.server.receiver.ending.wait()
    request.close_connection = True


def endless(piece: bytes, pause_s: float) -> Behavior:
    """Accept the event, with an answer that goes on until the client closes the connection."""

    def behave(request: Request) -> None:
        receiver = request.server.receiver
        request.send_response(200)
        request.end_headers()
        request.close_connection = True
        try:
            while not receiver.ending.wait(pause_s):
                request.wfile.write(piece)
        except OSError:
            receiver.note_cut_off()

    return behave


def break_off_head(request: Request) -> None:
    """Close the connection in the middle of a header."""
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Le")
    request.close_connection = True


def break_off_answer(request: Request) -> None:
    """Close the connection after the headers, in the middle of what they announced."""
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nthank")
    request.close_connection = True


@contextmanager
def receiving(behavior: Behavior | None = None, host: str = "127.0.0.1") -> Iterator[Receiver]:
    """Run a receiver until the end of the block; by default it accepts everything."""
    receiver = Receiver(behavior or answer(204))
    server = _Server((host, 0), Request)
    server.receiver = receiver
    receiver.url = f"http://{host}:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="receiver")
    thread.start()
    try:
        yield receiver
    finally:
        receiver.ending.set()
        server.shutdown()
        thread.join()
        server.server_close()
