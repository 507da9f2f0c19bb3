"""Requests to sinks: names of private addresses, certificates, connections that are kept open."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from nearcast.server.delivery.addresses import SinkNetworks
from nearcast.server.delivery.posting import Answer, SinkClient
from webhook_world import raw_receiving, receiving

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = SinkNetworks.of(["127.0.0.0/8"])


class _Names(AbstractResolver):
    """Resolves every name to one address."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=self._address,
                port=port,
                family=socket.AF_INET,
                proto=0,
                flags=0,
            )
        ]

    async def close(self) -> None:
        pass


async def _post(client: SinkClient, url: str) -> Answer:
    try:
        return await client.post(url, {"webhook-id": "7-1"}, b"{}")
    finally:
        await client.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_name_that_resolves_to_a_private_address(scheme: str) -> None:
    async def run() -> None:
        async with receiving() as receiver:
            url = f"{scheme}://hook.example:{receiver.port}/"
            answer = await _post(SinkClient(SinkNetworks(), resolver=_Names("127.0.0.1")), url)
            assert answer.error is not None
            assert "the address of the host is not allowed" in answer.error
            assert "127.0.0.1" not in answer.error  # names of the internal network stay internal
            assert receiver.got == []
            if scheme == "http":
                client = SinkClient(LOCAL, resolver=_Names("127.0.0.1"))
                assert (await _post(client, url)).status == 200
                assert receiver.got[0][1]["host"] == f"hook.example:{receiver.port}"

    asyncio.run(run())


def _certificate(folder: Path, host: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return what a server with a certificate of its own uses, and what trusts it."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "receiver")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName(
        [x509.DNSName(host) if host[0].isalpha() else x509.IPAddress(IPv4Address(host))]
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "both.pem").write_bytes(private + public)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(folder / "both.pem")
    return server, ssl.create_default_context(cadata=public.decode())


def test_certificates_are_checked(tmp_path: Path) -> None:
    server, trusting = _certificate(tmp_path, "127.0.0.1")

    async def run() -> None:
        async with receiving(tls=server) as receiver:
            trusted = await _post(SinkClient(LOCAL, tls=trusting), receiver.url)
            assert (trusted.status, len(receiver.got)) == (200, 1)
            unknown = await _post(SinkClient(LOCAL), receiver.url)
            assert unknown.error is not None
            assert unknown.error.startswith("ClientConnectorCertificateError")
            assert len(receiver.got) == 1

    asyncio.run(run())


def test_a_certificate_of_another_host_is_refused(tmp_path: Path) -> None:
    server, trusting = _certificate(tmp_path, "other.example")

    async def run() -> None:
        async with receiving(tls=server) as receiver:
            answer = await _post(SinkClient(LOCAL, tls=trusting), receiver.url)
            assert answer.error is not None
            assert answer.error.startswith("ClientConnectorCertificateError")
            named = f"https://other.example:{receiver.port}/"
            client = SinkClient(LOCAL, tls=trusting, resolver=_Names("127.0.0.1"))
            assert (await _post(client, named)).status == 200

    asyncio.run(run())


def test_a_connection_is_used_again_and_a_closed_one_is_replaced() -> None:
    async def run() -> None:
        # Each connection answers once, says nothing about closing, and closes.
        async with raw_receiving(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as url:
            client = SinkClient(LOCAL)
            for _ in range(5):
                assert (await client.post(url, {}, b"{}")).status == 200
            await client.close()
        async with receiving() as receiver:
            peers = set()

            async def note(request: web.Request) -> web.StreamResponse:
                assert request.transport is not None
                peers.add(request.transport.get_extra_info("peername"))
                return web.Response(text="x" * 1000)

            receiver.handler = note
            client = SinkClient(LOCAL)
            for _ in range(5):
                assert (await client.post(receiver.url, {}, b"{}")).status == 200
            await client.close()
            assert len(peers) == 1

    asyncio.run(run())


def test_cookies_are_not_kept() -> None:
    async def run() -> None:
        async with receiving() as receiver:
            receiver.headers = {"Set-Cookie": "a=b; Path=/"}
            client = SinkClient(LOCAL)
            for _ in range(2):
                await client.post(receiver.url, {}, b"{}")
            await client.close()
            assert [headers.get("cookie") for _, headers, _ in receiver.got] == [None, None]

    asyncio.run(run())


def test_little_is_read_of_a_long_answer() -> None:
    async def run() -> None:
        written = 0
        ended = asyncio.Event()

        async def flood(request: web.Request) -> web.StreamResponse:
            nonlocal written
            response = web.StreamResponse()
            await response.prepare(request)
            try:
                while True:
                    await response.write(b"x" * 65_536)
                    written += 65_536
            finally:
                ended.set()

        async with receiving() as receiver:
            receiver.handler = flood
            assert (await _post(SinkClient(LOCAL), receiver.url)).status == 200
            await ended.wait()
            assert written < 50_000_000  # what the buffers of the two sockets hold

    asyncio.run(run())
