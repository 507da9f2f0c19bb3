"""The history of a few figures: one record per commit, in one JSON file.

`measure_checkout` measures a checkout (see `nearcast.benchmarks.history_figures`), `add_record`
keeps the record, and `compare_with_earlier` compares a commit with the commits before it. Records
are compared only if they are of the same machine and of equally many subscriptions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import nearcast
from nearcast.benchmarks import history_figures
from nearcast.benchmarks.report import write_result
from nearcast.errors import NearcastError, UnsupportedFile
from nearcast.plots.machine import describe_machine

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Comparison",
    "add_record",
    "compare_with_earlier",
    "measure_checkout",
    "own_checkout",
    "read_history",
    "series",
]

MAX_SLOWDOWN = 1.15
"""A figure is slow if it exceeds that of earlier commits by this factor, and by the spread."""

EARLIER_RECORDS = 5
"""How many earlier records a record is compared with."""

_BUSY_LOAD = 0.5
"""A machine with a higher load average before the measurement is recorded as shared."""

_MACHINE_KEYS = ("processor", "cores", "system")
"""What makes two machines the same one. Versions of packages are left out: a slow one is seen."""


class Comparison(NamedTuple):
    """One figure of a record and of the records before it."""

    name: str
    unit: str
    value: float
    compared: float
    """The ratio to the reference; the value itself if the figure has no reference."""
    earlier: float | None
    """The median of `compared` of earlier records; None if there are none."""
    slow: bool

    @property
    def change(self) -> float | None:
        """The figure relative to earlier records; None if there are none."""
        return self.compared / self.earlier if self.earlier else None


def own_checkout() -> Path:
    """Return the folder of the checkout that this module was imported from."""
    return Path(nearcast.__file__).resolve().parents[2]


def measure_checkout(folder: Path, subscriptions: int, rounds: int) -> dict[str, Any]:
    """Measure the figures of a checkout in a new process; return its record.

    Parameters
    ----------
    folder
        The root of a git checkout of this project, of this or of an older commit.
    subscriptions
        Number of subscriptions of the indexes and engines.
    rounds
        How often each figure is measured; the record has medians and quartiles.
    """
    folder = folder.resolve()
    commit = _describe_commit(folder)
    load = os.getloadavg()[0]
    figures = _run_script(folder / "src", subscriptions, rounds)
    machine = describe_machine()
    return {
        **commit,
        "subscriptions": subscriptions,
        "rounds": rounds,
        "machine": {**machine, "load": round(load, 2), "shared": load > _BUSY_LOAD},
        **figures,
    }


def read_history(path: Path) -> list[dict[str, Any]]:
    """Read the records of a file, the oldest commit first; none if there is no such file."""
    if not path.exists():
        return []
    try:
        history = json.loads(path.read_text())
    except ValueError as error:
        raise UnsupportedFile(f"{path}: is not JSON: {error}") from None
    if not isinstance(history, dict) or history.get("experiment") != "history":
        raise UnsupportedFile(f"{path}: is not a file of nearcast bench history")
    records: list[dict[str, Any]] = history["records"]
    return records


def add_record(path: Path, record: dict[str, Any]) -> list[dict[str, Any]]:
    """Add a record to a file, and return all records.

    A record of the same commit, machine and number of subscriptions is replaced.
    """
    others = [other for other in read_history(path) if _key(other) != _key(record)]
    records = sorted([*others, record], key=lambda each: str(each["date"]))
    write_result({"experiment": "history", "records": records}, path)
    return records


def series(records: Sequence[dict[str, Any]], last: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the records that can be compared with one, up to and including it."""
    key = _key(last)[1:]
    same = [record for record in records if _key(record)[1:] == key]
    return same[: [_key(record) for record in same].index(_key(last)) + 1]


def compare_with_earlier(
    records: Sequence[dict[str, Any]], record: dict[str, Any]
) -> list[Comparison]:
    """Compare each figure of a record with the median of the records before it.

    A figure is slow if it is more than 15 % above that median, and if the difference is larger than
    the spread: the range between the quartiles of the measurements, of this record or, as a median,
    of earlier records.
    """
    earlier = series(records, record)[:-1][-EARLIER_RECORDS:]
    return [
        _compare(name, figure, [e["figures"][name] for e in earlier if name in e["figures"]])
        for name, figure in record["figures"].items()
    ]


def _compare(name: str, figure: dict[str, Any], earlier: list[dict[str, Any]]) -> Comparison:
    value = figure["value"] if "ratio" not in figure else figure["value"]["median"]
    now, spread = _median_and_spread(figure)
    if not earlier:
        return Comparison(name, figure["unit"], value, now, None, slow=False)
    measured = np.array([_median_and_spread(each) for each in earlier])
    before, spread_before = np.median(measured, axis=0).tolist()
    slow = now > MAX_SLOWDOWN * before and now - before > max(spread, spread_before)
    return Comparison(name, figure["unit"], value, now, before, slow=slow)


def _median_and_spread(figure: dict[str, Any]) -> tuple[float, float]:
    ratio = figure.get("ratio")
    if ratio is None:
        return figure["value"], 0.0
    return ratio["median"], ratio["high"] - ratio["low"]


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    machine = record["machine"]
    return (record["commit"], record["subscriptions"], *(machine[key] for key in _MACHINE_KEYS))


def _describe_commit(folder: Path) -> dict[str, Any]:
    """Return the short hash, the date and the subject of the commit, and if sources differ."""
    log = _git(folder, "log", "-1", "--abbrev=9", "--format=%h%n%cI%n%s")
    commit, date, subject = log.split("\n")[:3]
    changed = _git(folder, "status", "--porcelain", "--", "src")
    return {"commit": commit, "date": date, "subject": subject, "dirty": bool(changed)}


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        raise NearcastError("the history needs git, which was not found") from None
    except subprocess.CalledProcessError as error:
        raise NearcastError(f"{folder}: is not a git checkout: {error.stderr.strip()}") from None
    return done.stdout.strip()


def _run_script(source: Path, subscriptions: int, rounds: int) -> dict[str, Any]:
    if not (source / "nearcast").is_dir():
        raise NearcastError(f"{source}: has no package nearcast; give the root of a checkout")
    # -P: modules beside the script must not hide others of the same name.
    script = [sys.executable, "-P", history_figures.__file__]
    command = [*script, str(source), str(subscriptions), str(rounds)]
    environment = {**os.environ, "PYTHONPATH": str(source), "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise NearcastError(f"the figures of {source.parent} could not be measured: {last}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures
