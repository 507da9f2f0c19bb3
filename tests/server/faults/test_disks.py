"""Disks that are full, and disks that fail."""

from __future__ import annotations

import http.client
import os
import subprocess
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from tested_server import Client, LiveServer, Stream, box, subscription

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEAMS = {"segment_bytes": 1 << 20, "min_free_bytes": 1 << 20}
WORLD = box(-180, -90, 180, 90)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs root, to mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def message(number: int, size: int = 10) -> dict[str, Any]:
    properties = {"padding": "x" * size}
    return {"id": number, "text": "tea", "lon": 1, "lat": 1, "properties": properties}


def ids(events: list[dict[str, Any]]) -> list[int]:
    return [event["data"]["message"]["id"] for event in events]


def publish_until_full(client: Client, first: int) -> int:
    """Publish messages until one is refused; return its number."""
    for number in range(first, first + 1000):
        key = {"Idempotency-Key": f"key-{number}"}
        answer = client.request("POST", "/v1/messages", message(number, 50_000), key)
        if answer.status != 200:
            assert answer.status == 507
            assert answer.problem()["code"] == "NO_SPACE"
            return number
        assert answer.json["accepted"] == 1
    raise AssertionError("the disk is never full")


def test_full_disk(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with LiveServer(small_disk / "data", **SEAMS) as server:
        client = server.start()
        ballast.write_bytes(bytes(4 << 20))
        client.put("s", subscription("ann", ["tea"], WORLD))
        stream = Stream(client, "ann")
        refused = publish_until_full(client, 0)
        assert refused > 5
        assert ids(stream.wait_for(refused)) == [*range(refused)]
        # Everything else goes on.
        assert ids(client.events("ann")) == [*range(refused)]
        assert client.request("GET", "/v1/subscriptions/s").status == 200
        # With space, the refused request succeeds, once.
        ballast.unlink()
        for _ in range(2):
            client.publish(message(refused, 50_000), key=f"key-{refused}")
        assert ids(stream.wait_for(refused + 1)) == [*range(refused + 1)]
        assert publish_until_full(client, refused + 1) > refused + 1
        stream.close()
        expected = client.events("ann")
        server.kill()
        assert server.start().events("ann") == expected


def test_disk_without_a_single_byte(small_disk: Path) -> None:
    """The log has its place on the disk, but what follows from its records has none."""
    ballast = small_disk / "ballast"
    with LiveServer(small_disk / "data", **SEAMS) as server:
        client = server.start()
        client.put("s", subscription("ann", ["tea"], WORLD))
        client.publish(message(0), key="key-0")
        stream = Stream(client, "ann")
        stream.wait_for(1)
        with suppress(OSError), open(ballast, "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        acknowledged = [0]
        for number in range(1, 20):
            key = {"Idempotency-Key": f"key-{number}"}
            answer = client.request("POST", "/v1/messages", message(number), key)
            if answer.status == 200:
                acknowledged.append(number)
            else:
                assert answer.status == 507, answer
                assert answer.problem()["code"] == "NO_SPACE"
        ballast.unlink()
        client.publish(message(20), key="key-20")
        acknowledged.append(20)
        assert ids(stream.wait_for(len(acknowledged))) == acknowledged
        stream.close()
        expected = client.events("ann")
        server.kill()
        assert server.start().events("ann") == expected


def test_a_disk_that_fails_ends_the_process(tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    acknowledged: set[int] = set()
    sent: set[int] = set()
    with LiveServer(tmp_path / "data", failing_sync=str(sign)) as server:
        client = server.start()
        client.put("s", subscription("ann", ["tea"], WORLD))

        def publish(first: int) -> None:
            with suppress(OSError, http.client.HTTPException):
                for number in range(first, first + 10_000):
                    sent.add(number)
                    answer = client.request("POST", "/v1/messages", message(number))
                    if answer.status != 200:
                        assert answer.status in (500, 503), answer
                        answer.problem()
                        return
                    acknowledged.add(number)
                    if len(acknowledged) == 100:
                        sign.touch()

        threads = [threading.Thread(target=publish, args=(n * 10_000,)) for n in range(4)]
        for thread in threads:
            thread.start()
        assert server.wait() == 70
        for thread in threads:
            thread.join()
        assert "the server ends" in "".join(server.output)
        sign.unlink()
        found = ids(server.start().events("ann"))
        assert len(found) == len(set(found))
        assert acknowledged <= set(found) <= sent
        assert len(acknowledged) >= 100
        client = server.client()
        client.publish(message(-1))
        assert ids(client.wait_for_events("ann", len(found) + 1))[-1] == -1
