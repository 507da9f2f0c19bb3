"""A wire between the browser and a server, which can be cut and joined again."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Wire", "wired"]


class Wire:
    """Forwards connections to a server; threads end with their sockets.

    Parameters
    ----------
    url
        The address of the server.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_cut = False
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def cut(self) -> None:
        """Break all connections, and every new one at once."""
        with self._lock:
            self._is_cut = True
            for one in self._sockets:
                _shut(one)

    def join(self) -> None:
        """Let connections through again."""
        with self._lock:
            self._is_cut = False

    def close(self) -> None:
        """Break all connections and stop listening."""
        self.cut()
        _shut(self._listener)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    if self._is_cut:
                        client.close()
                        continue
                    server = socket.create_connection(self._target)
                    self._sockets |= {client, server}
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        _shut(target)
        with self._lock:
            self._sockets.discard(source)
        source.close()


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@contextmanager
def wired(url: str) -> Iterator[Wire]:
    """Put a wire before a server until the end of the block."""
    wire = Wire(url)
    try:
        yield wire
    finally:
        wire.close()
