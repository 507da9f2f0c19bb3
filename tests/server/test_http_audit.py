"""``nearcast audit`` over the folder of a server that clients have used, in all ways there are."""

from __future__ import annotations

import json
import random
import shutil
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from nearcast.cli import app
from nearcast.server.audit.stored import StoredEvents
from nearcast.server.matching.postings import MATCH, UNMATCH
from nearcast.server.matching.runs import Run
from nearcast.server.matching.segments import write_run
from receiving import receiving
from running import BERLIN, StandingClock, circle, resource, running_server

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from nearcast.server.matching.postings import Postings

WORDS = ["tea", "cake", "milk", "old", "town"]
ROUNDS = 12


def near(rng: random.Random) -> tuple[float, float]:
    """Return a place of a coarse lattice around Berlin."""
    return BERLIN[0] + rng.randint(-2, 2) * 0.01, BERLIN[1] + rng.randint(-2, 2) * 0.01


def messages(rng: random.Random) -> list[dict[str, Any]]:
    """Return a few messages, of which some live for a while."""
    found = []
    for _ in range(rng.randint(1, 6)):
        lon, lat = near(rng)
        text = " ".join(rng.choices(WORDS, k=rng.randint(1, 4)))
        ttl = {"ttl_s": rng.randint(10, 300)} if rng.random() < 0.6 else {}
        found.append({"text": text, "lon": lon, "lat": lat, **ttl})
    return found


def definitions(sink: str, now_us: int) -> dict[str, dict[str, Any]]:
    """Return subscriptions of every kind, by id."""
    expires = datetime.fromtimestamp(now_us // 1_000_000 + 90, UTC).isoformat()
    found = {
        "boolean": resource("tea", subscriber="ann"),
        "shared": resource("cake", subscriber="ann", sink=sink),
        "ranked": resource("tea", "cake", subscriber="bob"),
        "mover": resource("tea", subscriber="bob", sink=sink),
        "slow mover": resource("milk", subscriber="cem"),
        "expiring": resource("tea", subscriber="cem"),
        "limited": resource("cake", subscriber="dan", sink=sink),
        "pausing": resource("town", subscriber="dan"),
    }
    details = {name: one["config"]["subscriptionDetail"] for name, one in found.items()}
    point = {"type": "Point", "coordinates": [*BERLIN]}
    ranking = {"delta": 0.5, "tau": 0.3, "maxDistanceM": 3000}
    details["ranked"] |= {"region": point, "ranking": ranking}
    details["slow mover"]["dwellS"] = 20
    details["limited"]["region"] = circle(radius_m=3000)
    found["expiring"]["config"]["subscriptionExpireTime"] = expires
    found["limited"]["config"] |= {"subscriptionMaxEvents": 6, "initialEvent": True}
    return found


def use(client: httpx.Client, rng: random.Random) -> None:
    """Publish, move, pause and go on."""
    client.post("/v1/messages", json=messages(rng)).raise_for_status()
    for name in ("mover", "slow mover"):
        region = circle(*near(rng), radius_m=rng.choice([500, 1500]))
        line = json.dumps({"subscriptionId": name, "region": region})
        headers = {"Content-Type": "application/x-ndjson"}
        client.post("/v1/moves", content=line, headers=headers).raise_for_status()
    if rng.random() < 0.5:
        status = {"status": rng.choice(["ACTIVE", "INACTIVE"])}
        client.patch("/v1/subscriptions/pausing", json=status).raise_for_status()


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a server that has ended."""
    folder = tmp_path_factory.mktemp("server")
    rng, now_us = random.Random(5), time.time_ns() // 1000
    clock = StandingClock(datetime.fromtimestamp(now_us // 1_000_000, UTC).isoformat())
    with (
        receiving() as receiver,
        running_server(folder, clock=clock, allow_sinks=("127.0.0.0/8",)) as server,
        server.client() as client,
    ):
        client.post("/v1/messages", json=messages(rng)).raise_for_status()
        for name, definition in definitions(receiver.url, now_us).items():
            client.put(f"/v1/subscriptions/{name}", json=definition).raise_for_status()
        for _ in range(ROUNDS):
            use(client, rng)
            server.pass_time(rng.randint(1, 20))
        client.delete("/v1/subscriptions/shared").raise_for_status()
        server.pass_time(300)
    return folder


def run_audit(folder: Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["audit", str(folder)])
    return done.exit_code, done.output


def stored(folder: Path) -> Postings:
    events = StoredEvents(folder)
    return events.between(events.first_seq, events.last_seq)


def test_all_events_agree(used: Path) -> None:
    code, output = run_audit(used)
    assert code == 0, output
    assert "events agree." in output
    assert "all 0 events" not in output
    postings = stored(used)
    assert {*range(7)} - {*postings.kind.tolist()} == set()  # all that can happen has happened
    assert np.any(~np.isnan(postings.score))


def flipped(postings: Postings, row: int) -> Postings:
    """Return postings in which one match begins instead of ending, or the other way round."""
    kind = postings.kind.copy()
    kind[row] = UNMATCH if kind[row] == MATCH else MATCH
    return postings._replace(kind=kind)


@pytest.mark.parametrize("place", [0.0, 0.3, 0.6, 0.99])
def test_a_posting_that_is_flipped_is_the_first_difference(
    used: Path, tmp_path: Path, place: float
) -> None:
    folder = shutil.copytree(used, tmp_path / "copy")
    events = StoredEvents(folder)
    first, last = events.first_seq, events.last_seq
    postings = events.between(first, last)
    updates = np.flatnonzero(postings.kind <= UNMATCH)
    row = int(updates[int(place * len(updates))])
    tail = max((folder / "checkpoint").glob("*")) / "tail"
    shutil.rmtree(tail)
    runs = [Run.of(flipped(postings, row), first)]
    write_run(tail, first, last, runs, np.zeros(last - first + 1, np.uint32))
    code, output = run_audit(folder)
    assert code == 1, output
    seq, handle = int(postings.seq[row]), int(postings.handle[row])
    assert f"-{seq}.\n" in output
    assert f"(handle {handle})" in output
    assert "The server has an event of another kind." in output
