"""Bits that change on the disk: what can be computed again is, and nothing is answered wrongly."""

from __future__ import annotations

import http.client
import os
import random
import re
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from effort import repeated
from tested_server import Client, LiveServer, Stream, box, subscription

if TYPE_CHECKING:
    from pathlib import Path

FLIPS = repeated("NEARCAST_SERVER_FLIPS", 1, 2)
SEED = int(os.environ.get("NEARCAST_TEST_SEED", "0"))
SEAMS: dict[str, Any] = {"segment_bytes": 1 << 16, "seal_postings": 100}
MESSAGES, SUBSCRIPTIONS = 300, 8


class Data(NamedTuple):
    """A server that was stopped: its folder, key, and everything it had answered."""

    folder: Path
    key: str | None
    answers: dict[str, Any]


def answers(client: Client) -> dict[str, Any]:
    """Return everything that damage could change."""
    subscriptions = client.patient("/v1/subscriptions?limit=1000").json
    messages = client.patient("/v1/messages?limit=1000").json
    events = {name: client.events(name) for name in ("ann", "bob")}
    return {"subscriptions": subscriptions, "messages": messages, **events}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = tmp_path_factory.mktemp("damage") / "data"
    with LiveServer(folder, **SEAMS) as server:
        client = server.start()
        for number in range(SUBSCRIPTIONS):
            definition = subscription(["ann", "bob"][number % 2], ["tea"], box(0, 0, number + 1, 9))
            client.put(f"s{number}", definition)
        for number in range(0, MESSAGES, 10):
            batch = [
                {"id": n, "text": "tea", "lon": n % 9, "lat": 1, "properties": {"x": "y" * 500}}
                for n in range(number, number + 10)
            ]
            client.publish(*batch, key=f"key-{number}")
        client.request("DELETE", "/v1/subscriptions/s3")
        found = answers(client)
        server.stop()
        assert len([*(folder / "log").glob("0*.log")]) > 2
        assert len([*(folder / "events").glob("*.post")]) > 2
        return Data(folder, server.key, found)


def damaged_copy(data: Data, target: Path, *arguments: str) -> LiveServer:
    """Return a server over a copy of the data."""
    shutil.copytree(data.folder, target)
    server = LiveServer(target, *arguments, **SEAMS)
    server.key = data.key
    return server


def flip(path: Path, rng: random.Random, begin: float = 0.0, end: float = 1.0) -> int:
    """Change a bit of a file, in a part of it; return where."""
    content = bytearray(path.read_bytes())
    at = rng.randrange(int(len(content) * begin), max(int(len(content) * end), 1))
    content[at] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    return at


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


@pytest.mark.parametrize("seed", range(FLIPS))
def test_log(data: Data, tmp_path: Path, seed: int) -> None:
    rng = random.Random(f"log {SEED} {seed}")
    server = damaged_copy(data, tmp_path / "data")
    segments = sorted((server.folder / "log").glob("0*.log"))
    path = rng.choice(segments[:-1])
    flip(path, rng, 0.1, 0.6)
    shutil.rmtree(server.folder / "checkpoint")
    shutil.rmtree(server.folder / "events")
    code, said = server.fails_to_start()
    assert code != 0
    assert re.search(f"{re.escape(path.name)}: damaged at byte [0-9,]+", said), said
    # A repair gives up what cannot be read, and says how many events that may have been.
    server.arguments = ("--repair",)
    with server:
        client = server.start()
        before = data.answers["ann"]
        stream = Stream(client, "ann")
        client.publish({"id": "new", "text": "tea", "lon": 0, "lat": 1})
        with stream._changed:
            assert stream._changed.wait_for(lambda: is_last(stream.events, "new"), 15)
        stream.close()
        known = {event["id"]: event for event in before}
        found = [event for event in stream.events[:-1] if event["id"] in known]
        assert found == stream.events[:-1]
        assert all(known[event["id"]] == event for event in found)
        lost = len(before) - len(found)
        assert lost > 0
        assert len(stream.gaps) == 1
        assert stream.gaps[0]["lost"] is None or stream.gaps[0]["lost"] >= lost
        assert client.events("ann")[-1]["data"]["message"]["id"] == "new"


def is_last(events: list[dict[str, Any]], id: str) -> bool:
    return bool(events) and events[-1]["data"].get("message", {}).get("id") == id


@pytest.mark.parametrize("seed", range(FLIPS))
def test_log_beside_events_and_a_checkpoint(data: Data, tmp_path: Path, seed: int) -> None:
    """The server starts without reading the damaged segment; streams tell what is lost."""
    rng = random.Random(f"both {SEED} {seed}")
    server = damaged_copy(data, tmp_path / "data")
    segments = sorted((server.folder / "log").glob("0*.log"))
    flip(rng.choice(segments[:-1]), rng, 0.1, 0.6)
    server.arguments = ("--repair",)
    with server:
        client = server.start()
        stream = Stream(client, "ann")
        client.publish({"id": "new", "text": "tea", "lon": 0, "lat": 1})
        with stream._changed:
            assert stream._changed.wait_for(lambda: is_last(stream.events, "new"), 15)
        stream.close()
        known = {event["id"]: event for event in data.answers["ann"]}
        assert all(known[event["id"]] == event for event in stream.events[:-1])
        lost = len(known) - len(stream.events) + 1
        assert lost > 0
        assert sum(gap["lost"] for gap in stream.gaps) == lost


@pytest.mark.parametrize("part", ["events", "checkpoint"])
@pytest.mark.parametrize("seed", range(FLIPS))
def test_what_can_be_computed_again(data: Data, tmp_path: Path, part: str, seed: int) -> None:
    rng = random.Random(f"{part} {SEED} {seed}")
    with damaged_copy(data, tmp_path / "data") as server:
        flip(rng.choice(files(server.folder / part)), rng)
        try:
            assert answers(server.start()) == data.answers
            server.kill()
        except (OSError, http.client.HTTPException):
            assert server.wait() == 70
            assert "start the server again, it computes them" in "".join(server.output)
        assert answers(server.start()) == data.answers


@pytest.mark.parametrize("seed", range(FLIPS))
def test_state(data: Data, tmp_path: Path, seed: int) -> None:
    rng = random.Random(f"state {SEED} {seed}")
    with damaged_copy(data, tmp_path / "data") as server:
        flip(server.folder / "state.db", rng)
        try:
            client = server.start()
        except AssertionError:
            assert "state.db" in "".join(server.output), server.output
            return
        listed = client.request("GET", "/v1/subscriptions?limit=1000")
        if listed.status != 200:
            assert listed.status in (401, 500), listed
            return
        assert listed.json == data.answers["subscriptions"]
        for name in ("ann", "bob"):
            assert client.events(name) == data.answers[name]
