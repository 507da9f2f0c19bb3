"""Which addresses sinks may have, and that the checked address is the one that is used."""

import asyncio
import socket
import struct
from ipaddress import ip_address

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import InvalidInput
from nearcast.server.delivery.addresses import SinkNetworks, check_sink_url, system_resolver

LOCAL = SinkNetworks.of(["127.0.0.0/8", "::1/128"])

REFUSED = [
    *("0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254"),
    *("172.16.0.1", "172.31.255.255", "192.0.0.1", "192.168.1.1", "198.18.0.1", "203.0.113.9"),
    *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::8.8.8.8", "64:ff9b::808:808"),
    *("64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "fc00::1", "fd12::1"),
    *("fe80::1", "fec0::1", "ff02::1", "5f00::1", "3fff::1", "4000::1"),
]
PUBLIC = ["8.8.8.8", "1.1.1.1", "172.32.0.1", "2606:4700:4700::1111", "2a00:1450:4001::1"]


@pytest.mark.parametrize("address", REFUSED)
def test_special_addresses_are_refused(address: str) -> None:
    assert not SinkNetworks().permits(address, "https")
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(InvalidInput, match="public address"):
        check_sink_url(f"https://{host}:8443/hook")


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_for_https_only(address: str) -> None:
    assert SinkNetworks().permits(address, "https")
    assert not LOCAL.permits(address, "http")
    host = f"[{address}]" if ":" in address else address
    check_sink_url(f"https://{host}:1/hook?a=b")
    with pytest.raises(InvalidInput, match="https"):
        check_sink_url(f"http://{host}/hook", LOCAL)


@given(st.ip_addresses())
def test_nothing_is_permitted_that_python_calls_special(address: object) -> None:
    parsed = ip_address(str(address))
    special = (
        parsed.is_private
        or parsed.is_loopback
        or parsed.is_link_local
        or parsed.is_multicast
        or parsed.is_reserved
        or parsed.is_unspecified
        or (parsed.version == 6 and parsed.ipv4_mapped is not None)
    )
    assert not (special and SinkNetworks().permits(str(parsed), "https"))


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://example.com:65535/a?b=c#d",
        "https://bücher.example/hook",
        "https://10.example.com/",
        "https://0xab.example/",
    ],
)
def test_valid_urls(url: str) -> None:
    check_sink_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "//example.com",
        "https://",
        "https:///hook",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://example.com/",
        "https://user@example.com/",
        "https://user:password@example.com/",
        "https://@example.com/",
        "https://:@example.com/",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://example.com:x/",
        "https://exa mple.com/",
        "https://example.com/\n",
        "https://example.com\\@127.0.0.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0x7f.1/",
        "https://0177.0.0.1/",
        "https://127.1/",
        "https://127.0.0.1./",
        "https://[::1/",
        "https://[fe80::1%25eth0]/",
        "https://example.com/" + "x" * 2_048,
    ],
)
def test_invalid_urls(url: str) -> None:
    with pytest.raises(InvalidInput, match="sink: must"):
        check_sink_url(url)


def test_allowed_networks() -> None:
    for url in ("http://127.0.0.1:80/", "https://[::1]/", "http://name.example/"):
        check_sink_url(url, LOCAL)
    with pytest.raises(InvalidInput, match="public address"):
        check_sink_url("http://10.0.0.1/", LOCAL)
    with pytest.raises(InvalidInput, match="must be a network"):
        SinkNetworks.of(["10.0.0.1/8"])


def test_a_password_is_not_quoted() -> None:
    with pytest.raises(InvalidInput) as caught:
        check_sink_url("https://user:secret@example.com/")
    assert "secret" not in str(caught.value)


class Names(AbstractResolver):
    """Resolves any name to the next of some addresses."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        address = self.addresses[min(len(self.asked), len(self.addresses)) - 1]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
        ]

    async def close(self) -> None:
        pass


class Requests:
    """A receiver that counts."""

    def __init__(self) -> None:
        self.count = 0
        self.port = 0

    async def __aenter__(self) -> "Requests":
        application = web.Application()
        application.router.add_get("/", self._answer)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, _: web.Request) -> web.Response:
        self.count += 1
        return web.Response()


async def _get(networks: SinkNetworks, resolver: AbstractResolver, url: str) -> int:
    connector = networks.connector(url.partition(":")[0], resolver)
    try:
        async with aiohttp.ClientSession(connector=connector) as session:
            async with session.get(url) as response:
                return response.status
    finally:
        await resolver.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_a_name_of_a_private_address_is_refused(address: str) -> None:
    async def run() -> None:
        async with Requests() as receiver:
            with pytest.raises(aiohttp.ClientConnectorError, match="not allowed"):
                await _get(SinkNetworks(), Names(address), f"http://a.example:{receiver.port}/")
            assert receiver.count == 0

    asyncio.run(run())


def test_an_address_in_the_url_is_refused_without_resolution() -> None:
    async def run() -> None:
        async with Requests() as receiver:
            names = Names("127.0.0.1")
            with pytest.raises(aiohttp.ClientConnectorError, match="not allowed"):
                await _get(SinkNetworks(), names, f"http://127.0.0.1:{receiver.port}/")
            assert (receiver.count, names.asked) == (0, [])

    asyncio.run(run())


def test_a_name_is_resolved_once_and_the_checked_address_is_used() -> None:
    async def run() -> None:
        async with Requests() as receiver:
            # The second answer would be refused: a second resolution fails the request.
            names = Names("127.0.0.1", "10.0.0.1")
            assert await _get(LOCAL, names, f"http://a.example:{receiver.port}/") == 200
            assert (receiver.count, names.asked) == (1, ["a.example"])

    asyncio.run(run())


def test_the_resolver_of_the_system() -> None:
    async def run() -> None:
        async with Requests() as receiver:
            url = f"http://localhost:{receiver.port}/"
            assert await _get(LOCAL, system_resolver(), url) == 200
            with pytest.raises(aiohttp.ClientConnectorError, match="not allowed"):
                await _get(SinkNetworks(), system_resolver(), url)

    asyncio.run(run())


class NameServer(asyncio.DatagramProtocol):
    """A name server on this machine that knows one name, and never answers for others."""

    def __init__(self, known: str) -> None:
        self.known, self.port = known, 0
        self.asked: set[str] = set()
        self.changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "NameServer":
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, ("127.0.0.1", 0))
        self.port = self._transport.get_extra_info("sockname")[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transport.close()

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        name, at = [], 12
        while data[at]:
            name.append(data[at + 1 : at + 1 + data[at]].decode().lower())
            at += 1 + data[at]
        kind = struct.unpack_from("!H", data, at + 1)[0]
        question = data[12 : at + 5]
        if ".".join(name) != self.known:
            task = asyncio.ensure_future(self._note(".".join(name)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        has_answer = kind == 1  # an IPv4 address
        head = data[:2] + struct.pack("!HHHHH", 0x8180, 1, has_answer, 0, 0)
        answer = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + bytes([127, 0, 0, 1])
        self._transport.sendto(head + question + answer * has_answer, address)

    async def _note(self, name: str) -> None:
        async with self.changed:
            self.asked.add(name)
            self.changed.notify_all()


def test_names_whose_servers_do_not_answer_delay_no_other() -> None:
    async def run() -> None:
        async with NameServer("good.example") as names:
            resolver = system_resolver(
                nameservers=["127.0.0.1"], udp_port=names.port, timeout=600.0, tries=1
            )
            slow: list[asyncio.Future[object]] = []
            while len(slow) < 200:  # more at once than fit into the buffer of a socket are lost
                for _ in range(20):
                    asked = resolver.resolve(f"slow-{len(slow)}.example", 0, socket.AF_UNSPEC)
                    slow.append(asyncio.ensure_future(asked))
                async with names.changed:
                    await names.changed.wait_for(lambda: len(names.asked) == len(slow))
            assert not any(task.done() for task in slow)
            found = await resolver.resolve("good.example", 443, socket.AF_UNSPEC)
            assert [one["host"] for one in found] == ["127.0.0.1"]
            assert not any(task.done() for task in slow)
            # Its address is checked as any other is.
            async with Requests() as receiver:
                url = f"http://good.example:{receiver.port}/"
                with pytest.raises(aiohttp.ClientConnectorError, match="not allowed"):
                    await _get(SinkNetworks(), resolver, url)
                assert receiver.count == 0
            for task in slow:
                task.cancel()
            await asyncio.gather(*slow, return_exceptions=True)

    asyncio.run(asyncio.wait_for(run(), 60))
