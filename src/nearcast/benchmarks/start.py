"""How long a process takes to its first answer, with and without compiled kernels.

Each task runs in new processes: first with an empty cache of kernels, then several times with the
cache that a process left which compiled all that it needed. Seconds of CPU are those of the process
and of the processes that it started and waited for; other programs on the machine hardly change
them.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

import nearcast
from nearcast.benchmarks.compare import spread
from nearcast.errors import NearcastError
from nearcast.plots.machine import describe_machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from nearcast.benchmarks.compare import Step

__all__ = ["EXAMPLE", "measure_start"]

EXAMPLE = """\
from nearcast import Circle, Engine, Message, Rect, Subscription
engine = Engine()
engine.subscribe(Subscription("ann", Circle(11.57, 48.14, radius_m=2000), "ipad discount"))
engine.subscribe(Subscription("ben", Rect(10, 47, 13, 50), expression="flood OR (storm NOT drill)"))
message = Message("m1", (11.575, 48.137), "Discount today: iPad Air, at the old market")
print(engine.publish(message))
"""
"""The first example of the README, whose answer is printed."""

ROWS = 1_000

_COMMAND = "import sys; from nearcast.cli import main; sys.argv[0] = 'nearcast'; main()"


class _Spent(NamedTuple):
    """Seconds of CPU, and seconds on the clock."""

    cpu_s: float
    clock_s: float


def measure_start(
    *, rounds: int = 3, step: Step = lambda name, done, total: None
) -> dict[str, Any]:
    """Start new processes and return how long each task takes, cold and warm."""
    with tempfile.TemporaryDirectory(prefix="nearcast-start-") as folder:
        tasks = _tasks(Path(folder))
        total, done = len(tasks) * (rounds + 2), 0
        results = {}
        for name, task in tasks.items():
            runs = []
            for turn in range(-1, rounds + 1):
                step(f"{name}, {_turn(turn)}", done, total)
                done += 1
                cache = Path(
                    folder, f"kernels-{name}{'-cold' if turn < 0 else ''}".replace(" ", "-")
                )
                # The second process fills the cache whatever the size of its arrays.
                runs.append(task(_environment(cache, at_once=turn == 0)))
            cold, _, *warm = runs
            results[name] = {
                "cold": cold._asdict(),
                "warm_cpu_s": spread([run.cpu_s for run in warm]),
                "warm_clock_s": spread([run.clock_s for run in warm]),
            }
    return {
        "experiment": "start",
        "rounds": rounds,
        "tasks": results,
        "machine": describe_machine(),
    }


def _turn(turn: int) -> str:
    return {-1: "nothing compiled", 0: "compiling"}.get(turn, f"compiled, round {turn}")


def _tasks(folder: Path) -> dict[str, Callable[[dict[str, str]], _Spent]]:
    data = folder / "data"
    _run_command(
        {**os.environ},
        *("generate", "--subscriptions", str(ROWS), "--messages", str(ROWS), "--out", str(data)),
    )
    match = (
        *("match", "--subscriptions", str(data / "subscriptions.parquet")),
        *("--messages", str(data / "messages.parquet"), "--out", str(folder / "matches.parquet")),
    )
    return {
        "first example": lambda environment: _run(environment, "-c", EXAMPLE),
        f"match of {ROWS:,} rows": lambda environment: _run_command(environment, *match),
        "serve to its first answer": _serve,
        "indexes": lambda environment: _run_command(environment, "indexes"),
        "--help": lambda environment: _run_command(environment, "--help"),
    }


def _environment(cache: Path, *, at_once: bool) -> dict[str, str]:
    """Return the environment of a new process that imports this package and has this cache."""
    path = [str(Path(nearcast.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "NEARCAST_CACHE_DIR": str(cache),
        "PYTHONPATH": os.pathsep.join(path),
    }
    environment.pop("NEARCAST_COMPILE", None)
    return {**environment, "NEARCAST_COMPILE": "at-once"} if at_once else environment


def _run_command(environment: dict[str, str], *arguments: str) -> _Spent:
    return _run(environment, "-c", _COMMAND, *arguments)


def _run(environment: dict[str, str], *arguments: str) -> _Spent:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ended = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    clock_s = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        raise NearcastError(f"a new process failed: {last}")
    return _Spent(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, clock_s)


def _serve(environment: dict[str, str]) -> _Spent:
    """Start a server, publish a message to it, and end it."""
    with tempfile.TemporaryDirectory(prefix="nearcast-start-") as folder:
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, "serve", folder, "--port", "0"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout is not None
            key = _word(process.stdout.readline(), "once: ")
            url = _word(process.stdout.readline(), "listening on ")
            _publish(url, key)
            clock_s = time.perf_counter() - began
            times = psutil.Process(process.pid).cpu_times()
            return _Spent(sum(times[:4]), clock_s)
        finally:
            process.terminate()
            process.communicate()


def _word(line: str, before: str) -> str:
    _, found, rest = line.partition(before)
    if not found:
        raise NearcastError("a new server did not start; run: nearcast serve")
    return rest.split()[0]


def _publish(url: str, key: str) -> None:
    body = json.dumps({"text": "Fresh coffee", "lon": 13.4, "lat": 52.5}).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/messages", body, headers)):
        pass
