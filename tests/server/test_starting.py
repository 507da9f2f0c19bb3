"""What a server answers before it is ready."""

from __future__ import annotations

import http.client
import socket
import threading
from contextlib import ExitStack, suppress

from nearcast.server.http.starting import answering_while_starting


def ask(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_health_is_answered_while_a_server_starts_and_the_rest_is_refused() -> None:
    with socket.socket() as address:
        address.bind(("127.0.0.1", 0))
        port = address.getsockname()[1]
        with answering_while_starting(address):
            assert ask(port, "GET", "/healthz") == (200, b"ok")
            for method, path in (("GET", "/readyz"), ("GET", "/"), ("POST", "/v1/messages")):
                status, body = ask(port, method, path, b"{}" if method == "POST" else None)
                assert status == 503
                assert b"starting" in body
        # Whoever connects now is served by the server itself: the socket is still listening.
        with socket.create_connection(("127.0.0.1", port), timeout=30) as late:
            accepted, _ = address.accept()
            with accepted:
                late.sendall(b"hello")
                assert accepted.recv(5) == b"hello"


def test_one_who_sends_nothing_keeps_nobody_waiting() -> None:
    with socket.socket() as address:
        address.bind(("127.0.0.1", 0))
        port = address.getsockname()[1]
        with answering_while_starting(address), socket.create_connection(("127.0.0.1", port)):
            assert ask(port, "GET", "/healthz")[0] == 200


def test_who_does_not_end_a_request_is_gone_after_a_while() -> None:
    with socket.socket() as address:
        address.bind(("127.0.0.1", 0))
        port = address.getsockname()[1]
        with answering_while_starting(address, request_s=0.2):
            for begun in (b"", b"GET /healthz HTTP/1.1\r\nHost: a\r\n"):
                with socket.create_connection(("127.0.0.1", port), timeout=30) as slow:
                    slow.sendall(begun)
                    assert slow.recv(1) == b""
            with socket.create_connection(("127.0.0.1", port), timeout=30) as large:
                large.sendall(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 5_000)
                with suppress(ConnectionResetError):
                    assert large.recv(1) == b""


def test_connections_while_starting_need_no_threads() -> None:
    with socket.socket() as address, ExitStack() as stack:
        address.bind(("127.0.0.1", 0))
        port = address.getsockname()[1]
        with answering_while_starting(address):
            before = threading.active_count()
            for _ in range(100):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            assert ask(port, "GET", "/healthz") == (200, b"ok")
            assert threading.active_count() <= before
