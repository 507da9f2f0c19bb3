"""How long it takes to read files of clean rows, here and in another checkout, in turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

import nearcast
from nearcast.benchmarks.compare import spread
from nearcast.errors import NearcastError
from nearcast.plots.machine import describe_machine

if TYPE_CHECKING:
    from nearcast.benchmarks.compare import Step

__all__ = ["EXTENSIONS", "KINDS", "measure_reading", "write_files"]

KINDS = ("messages", "subscriptions")
EXTENSIONS = ("csv", "ndjson", "parquet")

_WORDS = 20_000
_JSON_ROWS = 50_000

# CPU time depends less on what else runs on the machine. Another checkout runs this too, so it
# uses only what every version of the readers has.
_READ = """
import json, sys, time
import nearcast
assert nearcast.__file__.startswith(sys.argv[2]), f"imported {nearcast.__file__} instead"
from nearcast.intake import load_messages, load_subscriptions
from nearcast.text import Vocabulary

def read(path, kind):
    if kind == "subscriptions":
        found, rejects = load_subscriptions(path, Vocabulary())
        return len(found), len(rejects)
    sizes = [(len(batch), len(rejects)) for batch, rejects in load_messages(path, now_us=0)]
    return tuple(map(sum, zip(*sizes)))

spent = {}
for kind, path, warm, rows in json.loads(sys.argv[1]):
    read(warm, kind)
    began = time.process_time()
    accepted, rejected = read(path, kind)
    spent[path] = time.process_time() - began
    assert (accepted, rejected) == (rows, 0), (path, accepted, rejected)
print(json.dumps(spent))
"""


def measure_reading(
    rows: int,
    *,
    rounds: int = 3,
    seed: int = 0,
    against: Path | None = None,
    step: Step = lambda name, done, total: None,
) -> dict[str, Any]:
    """Return the CPU seconds that it takes to read each file, and the ratio to another checkout.

    Parameters
    ----------
    rows
        Number of rows of each file.
    rounds
        How many times each file is read, in a new process each time.
    seed
        Of the rows.
    against
        Another checkout, which reads the same files in turns.
    step
        Is told about the progress.
    """
    sources = {"here": Path(nearcast.__file__).parents[1]}
    if against is not None:
        sources["against"] = against.resolve() / "src"
    with tempfile.TemporaryDirectory(prefix="nearcast-read-") as folder:
        files = write_files(Path(folder), rows, seed)
        few = write_files(Path(folder) / "few", 100, seed)
        spent: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
        total = rounds * len(sources)
        for turn in range(rounds):
            for at, (name, source) in enumerate(sources.items()):
                step(f"reading, round {turn + 1}", turn * len(sources) + at, total)
                jobs = [[k, str(p), str(few[k, e]), rows] for (k, e), p in files.items()]
                spent[name].append(_run(source, jobs))
        results = [
            _result(kind, extension, path, spent) for (kind, extension), path in files.items()
        ]
    return {
        "experiment": "read",
        "rows": rows,
        "rounds": rounds,
        "files": results,
        "machine": describe_machine(),
    }


def write_files(folder: Path, rows: int, seed: int) -> dict[tuple[str, str], Path]:
    """Write messages and subscriptions in all formats; return the files by kind and extension."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    tables = {"messages": _messages(rows, random), "subscriptions": _subscriptions(rows, random)}
    files = {}
    for kind, table in tables.items():
        for extension in EXTENSIONS:
            path = folder / f"{kind}.{extension}"
            files[kind, extension] = path
            if extension == "csv":
                options = csv.WriteOptions(quoting_style="none")
                csv.write_csv(table, path, options)
            elif extension == "parquet":
                parquet.write_table(table, path)
            else:
                _write_lines(table, path)
    return files


def _messages(rows: int, random: np.random.Generator) -> pa.Table:
    return pa.table(
        {
            "id": np.arange(rows),
            "text": _texts(rows, 10, random),
            "lon": random.uniform(-180, 180, rows).round(6),
            "lat": random.uniform(-90, 90, rows).round(6),
            "time": 1_700_000_000 + np.arange(rows),
        }
    )


def _subscriptions(rows: int, random: np.random.Generator) -> pa.Table:
    west, south = random.uniform(-180, 179, rows), random.uniform(-90, 89, rows)
    bounds = {"west": west, "south": south, "east": west + 0.5, "north": south + 0.5}
    return pa.table(
        {
            "id": np.arange(rows),
            "keywords": _texts(rows, 3, random),
            **{name: value.round(6) for name, value in bounds.items()},
        }
    )


def _texts(rows: int, words: int, random: np.random.Generator) -> list[str]:
    vocabulary = np.array([f"word{n}" for n in range(_WORDS)])
    chosen = vocabulary[random.integers(0, _WORDS, (rows, words))]
    return [" ".join(row) for row in chosen.tolist()]


def _write_lines(table: pa.Table, path: Path) -> None:
    with open(path, "w") as file:
        for batch in table.to_batches(_JSON_ROWS):
            for row in batch.to_pylist():
                if "keywords" in row:
                    row["keywords"] = row["keywords"].split()
                file.write(json.dumps(row) + "\n")


def _run(source: Path, jobs: list[list[Any]]) -> dict[str, float]:
    """Read files in a new process with the package of this folder."""
    done = subprocess.run(
        [sys.executable, "-c", _READ, json.dumps(jobs), str(source)],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise NearcastError(f"{source}: the files could not be read: {last}")
    spent: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return spent


def _result(
    kind: str, extension: str, path: Path, spent: dict[str, list[dict[str, float]]]
) -> dict[str, Any]:
    seconds = {name: [run[str(path)] for run in runs] for name, runs in spent.items()}
    result: dict[str, Any] = {
        "kind": kind,
        "format": extension,
        "bytes": path.stat().st_size,
        "seconds": spread(seconds["here"]),
    }
    if "against" in seconds:
        result["seconds_against"] = spread(seconds["against"])
        result["ratio"] = min(seconds["here"]) / min(seconds["against"])
    return result
