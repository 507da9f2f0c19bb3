"""What a server answers before it is ready."""

from __future__ import annotations

import http.client
import socket

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
