"""An engine with a journal is killed again and again; nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

from effort import repeated
from nearcast.engine import Engine
from nearcast.model import Rect

KILLS = repeated("NEARCAST_KILLS", 4, 20)
SEED = int(os.environ.get("NEARCAST_TEST_SEED", "0"))
CHILD = Path(__file__).with_name("journal_child.py")


def run_until_killed(folder: Path, seed: int, rng: random.Random) -> list[list[str]]:
    """Run a process until it has said a few lines, kill it a moment later, return what it said."""
    command = [sys.executable, str(CHILD), str(folder), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        first = child.stdout.readline()
        assert first == "open\n"
        lines = [child.stdout.readline() for _ in range(rng.randrange(100))]
        timer = threading.Timer(rng.uniform(0.0, 0.1), child.kill)
        timer.start()
        lines += child.stdout.read().splitlines(keepends=True)
        timer.join()
    return [line.split() for line in lines if line.endswith("\n")]


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    known: dict[int, int] = {}
    events = 0
    for kill in range(KILLS):
        trying: dict[int, int] = {}
        for word, number, *west in run_until_killed(tmp_path, kill, rng):
            events += 1
            if word == "try":
                trying[int(number)] = int(west[0])
            else:
                known[int(number)] = trying.pop(int(number))
        with Engine.open(tmp_path, journal=True) as engine:
            found = {}
            for subscription in engine:
                assert isinstance(subscription.region, Rect)
                found[int(subscription.id)] = int(subscription.region.west)
        for id in {*known, *found, *trying}:
            # What was not acknowledged has happened, or has not.
            possible = {known.get(id, -1), trying.get(id, known.get(id, -1))}
            assert found.get(id, -1) in possible, (kill, id)
            known[id] = found.get(id, -1)
    assert events > 3 * KILLS
