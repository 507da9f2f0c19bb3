"""A server with its log and state in a real PostgreSQL, which is killed under load."""

from __future__ import annotations

import http.client
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from effort import repeated
from tested_server import Client, LiveServer, Stream, box, subscription

if TYPE_CHECKING:
    from pathlib import Path

    from postgres import Postgres

KILLS = repeated("NEARCAST_POSTGRES_KILLS", 1, 4)
WORLD = box(-180, -90, 180, 90)
PATIENCE_S = 60


def message(id: str) -> dict[str, Any]:
    return {"id": id, "text": "tea", "lon": 1, "lat": 1}


def ids(events: list[dict[str, Any]]) -> list[str]:
    return [event["data"]["message"]["id"] for event in events]


def test_contract(database: str, tmp_path: Path) -> None:
    with LiveServer(tmp_path / "data", "--database", database) as server:
        client = server.start()
        client.put("s", subscription("ann", ["tea"], WORLD))
        stream = Stream(client, "ann")
        first = client.publish(message("a"), message("b"), key="one")
        assert client.publish(message("a"), message("b"), key="one") == first
        assert ids(stream.wait_for(2)) == ["a", "b"]
        stream.close()
        expected = client.events("ann")
        server.kill()
        client = server.start()
        assert client.events("ann") == expected
        assert client.publish(message("a"), message("b"), key="one") == first
        client.publish(message("c"))
        assert ids(client.wait_for_events("ann", 3)) == ["a", "b", "c"]
        server.stop()
        assert ids(server.start().events("ann", expected[-1]["id"])) == ["c"]


def publish_until(client: Client, name: str, done: threading.Event, acknowledged: set[str]) -> None:
    """Publish, each message until it is acknowledged or the server is gone."""
    number = 0
    while not done.is_set():
        id = f"{name}-{number}"
        headers = {"Idempotency-Key": id}
        answer = client.request("POST", "/v1/messages", [message(id)], headers)
        if answer.status == 200:
            acknowledged.add(id)
            number += 1
        else:
            assert answer.status == 503, answer
            assert answer.problem()["code"] == "UNAVAILABLE"


def test_postgres_that_is_killed(postgres: Postgres, database: str, tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    with LiveServer(tmp_path / "data", "--database", database) as server:
        client = server.start()
        client.put("s", subscription("ann", ["tea"], WORLD))
        for kill in range(KILLS):
            done = threading.Event()

            def publish(name: str, client: Client = client, done: threading.Event = done) -> None:
                with suppress(OSError, http.client.HTTPException):
                    publish_until(client, name, done, acknowledged)

            threads = [
                threading.Thread(target=publish, args=(f"{kill}-{number}",)) for number in range(3)
            ]
            for thread in threads:
                thread.start()
            wait_for_more(acknowledged, 30)
            postgres.kill()
            postgres.start()
            if lives(server, client, f"again-{kill}"):
                acknowledged.add(f"again-{kill}")
            done.set()
            for thread in threads:
                thread.join()
            if server.process is None:
                client = server.start()
        client.publish(message("end"))
        acknowledged.add("end")
        assert client.wait_for_events("ann", len(acknowledged))
        found = ids(client.events("ann"))
        assert len(found) == len(set(found))
        assert acknowledged <= set(found)
        server.stop()
        assert ids(server.start().events("ann")) == found


def wait_for_more(acknowledged: set[str], count: int) -> None:
    """Wait until more messages were acknowledged."""
    wanted, deadline = len(acknowledged) + count, time.monotonic() + PATIENCE_S
    while len(acknowledged) < wanted:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lives(server: LiveServer, client: Client, id: str) -> bool:
    """Return True when the server works again, False when it has ended with a clear message."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert server.process is not None
        if server.process.poll() is not None:
            assert server.wait() == 70
            assert "the server ends" in "".join(server.output)
            return False
        with suppress(OSError, http.client.HTTPException):
            if client.request("POST", "/v1/messages", [message(id)]).status == 200:
                return True
    raise AssertionError("the server neither works nor ends")
