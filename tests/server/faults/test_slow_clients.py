"""Clients that do not read: the others get everything, and the server's memory does not grow."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest

from effort import repeated
from tested_server import Client, LiveServer, box, subscription

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLIENTS = repeated("NEARCAST_SERVER_CLIENTS", 50, 200)
MESSAGES, BATCH, PADDING = 300, 25, 20_000
WORLD = box(-180, -90, 180, 90)
MIB = 1 << 20


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    """Let this process, and the server that it starts, have a socket for every client."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, min(hard, 2 * CLIENTS + 500))
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(client: Client, buffer_bytes: int | None = None) -> socket.socket:
    """Ask for the stream of everything, and read nothing."""
    connection = socket.socket()
    if buffer_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    connection.connect(client.address)
    connection.sendall(
        b"GET /v1/events?subscriber=ann&cursor=earliest HTTP/1.1\r\nHost: localhost\r\n"
        b"Authorization: Bearer %s\r\n\r\n" % str(client.key).encode()
    )
    return connection


async def receive(client: Client, count: int) -> list[int]:
    """Read the stream until there are this many messages; return their ids."""
    reader, writer = await asyncio.open_connection(*client.address, limit=MIB)
    writer.write(
        b"GET /v1/events?subscriber=ann&cursor=earliest HTTP/1.1\r\nHost: localhost\r\n"
        b"Authorization: Bearer %s\r\n\r\n" % str(client.key).encode()
    )
    found: list[int] = []
    while len(found) < count:
        line = await reader.readline()
        assert line
        if line.startswith(b"data: "):
            found.append(int(line.partition(b'"message":{"id":')[2].partition(b",")[0]))
    writer.close()
    return found


def publish(client: Client, first: int) -> None:
    batch: list[dict[str, Any]] = [
        {"id": n, "text": "tea", "lon": 1, "lat": 1, "properties": {"x": "y" * PADDING}}
        for n in range(first, first + BATCH)
    ]
    client.publish(*batch)


async def publish_and_receive(server: LiveServer, count: int) -> list[int]:
    """Publish to clients that read, check that all get everything; return the server's memory."""
    client = server.client()
    reading = [asyncio.create_task(receive(client, MESSAGES)) for _ in range(count)]
    sizes = []
    for first in range(0, MESSAGES, BATCH):
        await asyncio.to_thread(publish, client, first)
        sizes.append(server.resident_bytes())
    async with asyncio.timeout(300):
        for received in await asyncio.gather(*reading):
            assert received == [*range(MESSAGES)]
    return [*sizes, server.resident_bytes()]


def test_a_client_that_never_reads(tmp_path: Path) -> None:
    with LiveServer(tmp_path / "data", stuck_s=2, beat_s=0.5) as server:
        client = server.start()
        client.put("s", subscription("ann", ["tea"], WORLD))
        idle = idle_sockets(server)
        with connect(client, 4096) as silent:
            silent.settimeout(60)
            sizes = asyncio.run(publish_and_receive(server, CLIENTS))
            # All events would be 6 MB for each; what a connection may keep is 128 KiB.
            assert max(sizes) < sizes[0] + CLIENTS * MIB + 100 * MIB, sizes
            # It is given up, with everything that it has not read.
            asyncio.run(until_closed(server, idle))
            received = 0
            with suppress(ConnectionResetError):
                while piece := silent.recv(1 << 16):
                    received += len(piece)
            assert received < MESSAGES * PADDING


def test_clients_that_vanish(tmp_path: Path) -> None:
    """Connections that nobody reads and nobody closes: what they hold is bounded, then freed."""
    with LiveServer(tmp_path / "data", stuck_s=2, beat_s=0.5) as server:
        client = server.start()
        client.put("s", subscription("ann", ["tea"], WORLD))
        for first in range(0, MESSAGES, BATCH):
            publish(client, first)
        client.wait_for_events("ann", MESSAGES)
        before, idle = server.resident_bytes(), idle_sockets(server)
        with ExitStack() as vanished:
            for _ in range(CLIENTS):
                vanished.enter_context(connect(client, 4096))
            client.wait_for_events("ann", MESSAGES)
            assert server.resident_bytes() < before + CLIENTS * MIB + 50 * MIB
            asyncio.run(until_closed(server, idle))
        assert client.events("ann")[-1]["data"]["message"]["id"] == MESSAGES - 1


def open_sockets(server: LiveServer) -> int:
    """Return how many sockets the server has open."""
    assert server.process is not None
    folder = f"/proc/{server.process.pid}/fd"
    found = 0
    for name in os.listdir(folder):
        try:
            found += os.readlink(f"{folder}/{name}").startswith("socket:")
        except FileNotFoundError:
            continue
    return found


def idle_sockets(server: LiveServer) -> int:
    """Return how many sockets the server has open when connections that end have ended."""
    counts = [open_sockets(server)]
    while len(counts) < 10 or len({*counts[-10:]}) > 1:
        time.sleep(0.1)
        counts.append(open_sockets(server))
    return counts[-1]


async def until_closed(server: LiveServer, count: int) -> None:
    """Wait until the server has no more sockets than this."""
    async with asyncio.timeout(60):
        while open_sockets(server) > count:
            await asyncio.sleep(0.1)
