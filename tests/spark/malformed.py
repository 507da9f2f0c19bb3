"""Files of malformed records, and commands that read them in processes of their own."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

KINDS = ("csv", "json", "types")
POLL_S = 0.1


def write_malformed(path: Path, kind: str, rows: int, seed: int) -> None:
    """Write a file in which about half of the records are malformed.

    ``csv`` has broken lines, ``json`` has broken objects, and ``types`` has objects whose values
    have wrong types.
    """
    draw = random.Random(seed)
    line = {"csv": _csv_line, "json": _json_line, "types": _wrong_types}[kind]
    with path.open("wb") as file:
        if kind == "csv":
            file.write(b"id,text,lon,lat,time\n")
        for number in range(rows):
            file.write(line(number, draw) + b"\n")


def _csv_line(number: int, draw: random.Random) -> bytes:
    good = f"m{number},tea and milk,{draw.uniform(-180, 180):.6f},{draw.uniform(-90, 90):.6f},5"
    if draw.random() < 0.5:
        return good.encode()
    return draw.choice(
        [
            good.encode() + b",more",
            f"m{number},tea".encode(),
            f'm{number},"an open quote,1,2,5'.encode(),
            f'm{number},"a quoted\nline, ""twice""",1,2,5'.encode(),
            f'm{number},a "stray" quote,1,2,5'.encode(),
            f"m{number},caf\xe9,1,2,5".encode("latin-1"),
            f"m{number},tea,east,2,5".encode(),
            f"m{number},tea,1,91,5".encode(),
            f"m{number},tea,1,2,noon".encode(),
            f",tea,{number},2,5".encode(),
            f"m{number},te\0a,1,nan,5".encode(),
            b"\xff\xfe" * 20,
        ]
    )


def _json_line(number: int, draw: random.Random) -> bytes:
    good = json.dumps({"id": f"m{number}", "text": "tea", "lon": 1, "lat": 2}).encode()
    if draw.random() < 0.5:
        return good
    return draw.choice(
        [
            good[: draw.randrange(len(good))],
            good + good,
            b"[" + good + b"]",
            b'"' + good,
            good.replace(b"tea", b"\xff"),
            good.replace(b"tea", b"\\ud800"),
            b"null",
            b"{" * 2000,
            good.replace(b"lon", b"l\x00n"),
            b'{"id": "\\u0000", "text": "tea", "lon": 1, "lat": 2}',
        ]
    )


def _wrong_types(number: int, draw: random.Random) -> bytes:
    record: dict[str, Any] = {"id": f"m{number}", "text": "tea", "lon": 1, "lat": 2}
    wrong = [True, [], {}, [1], {"a": 1}, "east", 1e300, -1e5, None, "", 2**70, [["x"]]]
    if draw.random() < 0.5:
        name = draw.choice(["id", "text", "lon", "lat", "time", "tokens", "ttl_s", "west"])
        # A text is no wrong id, but one that occurs again.
        record[name] = draw.choice([one for one in wrong if name != "id" or one != "east"])
    return json.dumps(record).encode()


class Done(NamedTuple):
    """What a command said, and the most memory that one of its Python processes used."""

    code: int
    stdout: str
    stderr: str
    peak_mb: float


def run(*arguments: object) -> Done:
    """Run ``nearcast`` in a process of its own, and watch the memory of its Python processes."""
    command = [sys.executable, "-m", "nearcast.cli", *map(str, arguments)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peaks: dict[int, float] = {}
    watching = threading.Thread(target=_watch, args=(running, peaks))
    watching.start()
    stdout, stderr = running.communicate()
    watching.join()
    return Done(running.returncode, stdout, stderr, max(peaks.values(), default=0.0))


def _watch(running: subprocess.Popen[str], peaks: dict[int, float]) -> None:
    while running.poll() is None:
        for process in _descendants(running.pid):
            status = _fields(Path(f"/proc/{process}/status"))
            if status.get("Name", "").startswith("python") and "VmHWM" in status:
                peaks[process] = int(status["VmHWM"].split()[0]) / 1024
        time.sleep(POLL_S)


def _descendants(process: int) -> list[int]:
    found, at = [process], 0
    while at < len(found):
        for task in Path(f"/proc/{found[at]}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
        at += 1
    return found


def _fields(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
