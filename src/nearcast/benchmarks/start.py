"""The start of a process: the import, and the first match with and without cached kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nearcast
from nearcast.benchmarks.compare import spread
from nearcast.errors import NearcastError
from nearcast.plots.machine import describe_machine

if TYPE_CHECKING:
    from nearcast.benchmarks.compare import Step

__all__ = ["measure_start"]

_FIRST_MATCH = """
import json, time
began = time.perf_counter()
from nearcast import Engine, Message, Rect, Subscription
imported = time.perf_counter() - began
engine = Engine()
engine.subscribe(Subscription(i, Rect(0, 0, 1, 1), ["tea"]) for i in range(600))
matches = engine.publish(Message("m", (0.5, 0.5), "hot tea"))
assert len(matches) == 600, len(matches)
print(json.dumps({"import_s": imported, "first_match_s": time.perf_counter() - began}))
"""


def measure_start(
    *, rounds: int = 3, step: Step = lambda name, done, total: None
) -> dict[str, Any]:
    """Start new processes and return the time to the first match.

    The first process has an empty cache and compiles all kernels; the others load them.
    """
    with tempfile.TemporaryDirectory(prefix="nearcast-start-") as cache:
        step("first process, empty cache", 0, rounds + 1)
        cold = _run(cache)
        warm = []
        for turn in range(rounds):
            step(f"later process {turn + 1}", turn + 1, rounds + 1)
            warm.append(_run(cache))
    return {
        "experiment": "start",
        "rounds": rounds,
        "import_s": spread([run["import_s"] for run in warm]),
        "first_match_empty_cache_s": cold["first_match_s"],
        "first_match_s": spread([run["first_match_s"] for run in warm]),
        "process_s": spread([run["process_s"] for run in warm]),
        "machine": describe_machine(),
    }


def _run(cache: str) -> dict[str, float]:
    """Run the first match in a new process with this kernel cache."""
    source = str(Path(nearcast.__file__).parents[1])
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([source, inherited] if inherited else [source])
    environment = {**os.environ, "NEARCAST_CACHE_DIR": cache, "PYTHONPATH": path}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_MATCH],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    taken = time.perf_counter() - began
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise NearcastError(f"a new process could not match a message: {last}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {**figures, "process_s": taken}
