"""The configuration of nginx in the documentation, with the real nginx in front of a server."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import httpx
import pytest
from websockets.sync.client import connect

from running import BERLIN, Running, resource, running_server
from test_posting import _certificate

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "on-the-internet.md"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
HOST = "nearcast.example.com"

pytestmark = pytest.mark.skipif(
    NGINX is None, reason="nginx is not installed (Debian: apt-get install nginx-light)"
)

_MAIN = """
daemon off; master_process off;
pid {folder}/nginx.pid; error_log {folder}/error.log notice;
events {{ worker_connections 256; }}
http {{
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {configuration}
}}
"""


class Proxied(NamedTuple):
    """A server, what is in front of it, and the folder of that."""

    server: Running
    port: int
    plain_port: int
    tls: ssl.SSLContext
    folder: Path

    def client(self, key: str | None = None) -> httpx.Client:
        """Return a client that comes through the proxy."""
        headers = {"Host": HOST, "Authorization": f"Bearer {key or self.server.key}"}
        url = f"https://127.0.0.1:{self.port}"
        limits = httpx.Limits(max_connections=None)
        return httpx.Client(
            base_url=url, headers=headers, verify=self.tls, timeout=30, limits=limits
        )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def _proxying(server: Running, folder: Path) -> Iterator[Proxied]:
    """Run nginx with the configuration of the page; only paths and ports are other ones."""
    _, trusting = _certificate(folder, "127.0.0.1")
    found = re.search(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    configuration, port, plain = found[1], _free_port(), _free_port()
    for old, new in {
        "127.0.0.1:8080": server.url.removeprefix("http://"),
        "listen 80;": f"listen 127.0.0.1:{plain};",
        "listen 443 ": f"listen 127.0.0.1:{port} ",
        "/etc/ssl/nearcast.pem": f"{folder}/both.pem",
        "/etc/ssl/nearcast.key": f"{folder}/both.pem",
        "/var/log/nginx/nearcast.log": f"{folder}/access.log",
    }.items():
        assert configuration.count(old) == 1, old
        configuration = configuration.replace(old, new)
    file = folder / "nginx.conf"
    file.write_text(_MAIN.format(folder=folder, configuration=configuration))
    command = [str(NGINX), "-p", str(folder), "-c", str(file), "-e", str(folder / "error.log")]
    tried = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stderr
    assert "warn" not in tried.stderr
    process = subprocess.Popen(command)
    try:
        for _ in range(3000):  # it listens by and by
            with socket.socket() as connection:
                connection.settimeout(0.01)
                if connection.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, (folder / "error.log").read_text()
        yield Proxied(server, port, plain, trusting, folder)
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    pytest.importorskip("cryptography")
    folder = tmp_path_factory.mktemp("nginx")
    with (
        running_server(tmp_path_factory.mktemp("server")) as server,
        _proxying(server, folder) as found,
    ):
        yield found


def publish(client: httpx.Client, text: str) -> str:
    message = {"text": text, "lon": BERLIN[0], "lat": BERLIN[1]}
    answer = client.post("/v1/messages", json=message).raise_for_status().json()
    return str(answer["firstId"])


def test_events_come_through_at_once(proxied: Proxied) -> None:
    with proxied.client() as client, proxied.client() as reader:
        client.put("/v1/subscriptions/tea", json=resource("tea")).raise_for_status()
        with reader.stream("GET", "/v1/events") as stream:
            lines = stream.iter_lines()
            assert next(lines) == ": open"
            for number in range(3):
                id = publish(client, f"tea {number}")
                while (line := next(lines)) != f"id: {id}":
                    assert not line.startswith("id: ") or "-" in line
        url = f"wss://127.0.0.1:{proxied.port}/v1/events"
        headers = {"Authorization": f"Bearer {proxied.server.key}"}
        with connect(url, ssl=proxied.tls, additional_headers=headers) as websocket:
            assert websocket.protocol.extensions == []
            id = publish(client, "tea for all")
            while json.loads(websocket.recv(timeout=30)).get("id") != id:
                pass


def test_plain_http_is_sent_to_tls(proxied: Proxied) -> None:
    url = f"http://127.0.0.1:{proxied.plain_port}/v1/about?a=b"
    answer = httpx.get(url, headers={"Host": HOST})
    assert answer.status_code == 308
    assert answer.headers["location"] == f"https://{HOST}/v1/about?a=b"


def test_bodies_are_as_large_as_their_routes_allow(proxied: Proxied) -> None:
    with proxied.client() as client:
        assert client.post("/elsewhere", content=b"x" * 70_000).status_code == 413
        assert client.post("/v1/sign-in", content=b"x" * 2_000).status_code == 413
        line = b'{"text":"milk","lon":1,"lat":1}\n'
        ndjson = {"Content-Type": "application/x-ndjson"}
        answer = client.post("/v1/messages", content=line * 5_000, headers=ndjson)
        assert answer.json()["accepted"] == 5_000
        large = client.post("/v1/messages", content=b"x" * (17 << 20), headers=ndjson)
        assert large.status_code == 413
        assert "nginx" in large.text  # the server did not see it
        imported = client.post(
            "/v1/subscriptions/import", content=(b" " * 1023 + b"\n") * (17 << 10), headers=ndjson
        )
        assert imported.status_code == 200


def test_headers_are_bounded(proxied: Proxied) -> None:
    with proxied.client() as client:
        assert client.get("/v1/me", headers={"x": "y" * 20_000}).status_code == 400
        many = {f"x-{number}": "y" * 4_000 for number in range(20)}
        assert client.get("/v1/me", headers=many).status_code == 400
        assert client.get("/v1/me", headers={"x": "y" * 2_000}).status_code == 200


def test_what_operators_see_stays_inside_and_queries_are_not_logged(proxied: Proxied) -> None:
    with proxied.client() as client:
        for path in ("/metrics", "/readyz"):
            assert client.get(path).status_code == 404
        answer = client.get("/healthz?access_token=nct_secret")
        assert answer.status_code == 200
        assert "max-age" in answer.headers["strict-transport-security"]
    log = (proxied.folder / "access.log").read_text()
    assert '"GET /healthz" 200' in log
    assert "nct_secret" not in log


def test_guesses_of_codes_are_few(proxied: Proxied) -> None:
    with proxied.client() as client:
        codes = [client.post("/v1/sign-in", json={"code": "x"}).status_code for _ in range(12)]
    assert 429 in codes


def test_connections_of_an_address_are_few(proxied: Proxied) -> None:
    with proxied.client() as client:
        streams = []
        try:
            for _ in range(110):
                request = client.build_request("GET", "/v1/events")
                streams.append(client.send(request, stream=True))
                if streams[-1].status_code == 429:
                    break
            assert 90 <= len(streams) <= 101
        finally:
            for stream in streams:
                stream.close()
