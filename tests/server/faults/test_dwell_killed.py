"""A server is killed while updates have to last: none is forgotten, and none is sent twice.

The clock of the server that is started again is ahead, so that nobody has to wait.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tested_server import LiveServer, box, subscription

if TYPE_CHECKING:
    from pathlib import Path

    from tested_server import Client

HERE, AWAY = box(0, 0, 1, 1), box(50, 50, 51, 51)
DWELL_S = 3600.0


def move(client: Client, id: str, region: dict[str, Any]) -> None:
    line = json.dumps({"subscriptionId": id, "region": region}).encode()
    answer = client.request("POST", "/v1/moves", line, {"Content-Type": "application/x-ndjson"})
    assert (answer.status, answer.json["moved"]) == (200, 1), answer


def signs(client: Client, subscriber: str) -> list[int]:
    """Return whether matches begin or end, when all that had to happen before has happened."""
    last = client.publish({"text": "other", "lon": 0, "lat": 0})["lastId"]
    while client.request("GET", f"/v1/messages/{last}").json["reach"] is None:
        pass
    events = client.events(subscriber)
    assert len({event["id"] for event in events}) == len(events)
    return [match["sign"] for event in events for match in event["data"]["matches"]]


def test_a_kill_repeats_nothing(tmp_path: Path) -> None:
    with LiveServer(tmp_path / "data", shifted_s=0, checkpoint_bytes=1) as server:

        def restarted(shifted_s: float) -> Client:
            server.kill()
            server.seams["shifted_s"] = shifted_s
            return server.start()

        client = server.start()
        names = ["stays", "leaves", "passes"]
        for name in names:
            definition = subscription(name, ["tea"], AWAY, "match", "unmatch")
            definition["config"]["subscriptionDetail"]["dwellS"] = DWELL_S
            client.put(name, definition)
        client.publish({"text": "tea", "lon": 0.5, "lat": 0.5, "ttl_s": 30 * DWELL_S})
        for name in names:
            move(client, name, HERE)

        client = restarted(0.5 * DWELL_S)
        assert [signs(client, name) for name in names] == [[], [], []]
        move(client, "passes", AWAY)
        client = restarted(1.5 * DWELL_S)
        assert [signs(client, name) for name in names] == [[1], [1], []]
        move(client, "leaves", AWAY)
        client = restarted(1.9 * DWELL_S)
        assert [signs(client, name) for name in names] == [[1], [1], []]
        client = restarted(3 * DWELL_S)
        assert [signs(client, name) for name in names] == [[1], [1, -1], []]
        client = restarted(9 * DWELL_S)
        assert [signs(client, name) for name in names] == [[1], [1, -1], []]
