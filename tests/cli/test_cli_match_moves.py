"""``nearcast match --moves``: a recording of moves and messages becomes updates."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

from nearcast.cli import app, event_files
from nearcast.intake import Reading, open_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nearcast.intake import Batch

SIDES = ("west", "south", "east", "north")
Box = tuple[int, int, int, int]


def box(rng: random.Random) -> Box:
    west, south = rng.randrange(8), rng.randrange(8)
    return west, south, west + rng.randrange(4), south + rng.randrange(4)


def inside(region: Box, place: tuple[int, int]) -> bool:
    return region[0] <= place[0] <= region[2] and region[1] <= place[1] <= region[3]


def recording(seed: int) -> dict[str, list[dict[str, Any]]]:
    """Draw subscriptions, moves and messages, the last two in any order."""
    rng = random.Random(seed)

    def placed(fields: dict[str, Any]) -> dict[str, Any]:
        return fields | dict(zip(SIDES, box(rng), strict=True))

    words = ["tea", "milk"]
    subscriptions = [
        placed({"id": i, "keywords": rng.sample(words, rng.randrange(1, 3))}) for i in range(30)
    ]
    moves = [
        placed({"subscription_id": rng.randrange(30), "time": float(rng.randrange(60))})
        for _ in range(200)
    ]
    messages = [
        {
            "id": i,
            "text": " ".join(rng.sample([*words, "cake"], 2)),
            "lon": rng.randrange(12),
            "lat": rng.randrange(12),
            "time": float(rng.randrange(60)),
            "ttl_s": rng.choice([1.0, 5.0, 30.0, None]),
        }
        for i in range(80)
    ]
    return {"subscriptions": subscriptions, "moves": moves, "messages": messages}


def expected(given: dict[str, list[dict[str, Any]]], ttl_s: float) -> set[tuple[Any, ...]]:
    """Return all updates, from what matches after every second."""
    subscriptions = {s["id"]: {*s["keywords"]} for s in given["subscriptions"]}
    region = {s["id"]: tuple(s[side] for side in SIDES) for s in given["subscriptions"]}
    before: set[tuple[int, int]] = set()
    updates = set()
    last = max(event["time"] for event in given["moves"] + given["messages"])
    for now in range(int(last) + 1):
        for move in given["moves"]:
            if move["time"] == now:
                region[move["subscription_id"]] = tuple(move[side] for side in SIDES)
        after = {
            (s, message["id"])
            for s, keywords in subscriptions.items()
            for message in given["messages"]
            if message["time"] <= now < message["time"] + (message["ttl_s"] or ttl_s)
            and keywords <= {*message["text"].split()}
            and inside(region[s], (message["lon"], message["lat"]))
        }
        updates |= {(now, *pair, -1) for pair in before - after}
        updates |= {(now, *pair, 1) for pair in after - before}
        before = after
    return updates


def run(folder: Path, *more: str) -> Any:
    files = [f"--{name}={folder / name}.parquet" for name in ("subscriptions", "messages", "moves")]
    arguments = ["match", *files, f"--out={folder / 'updates.csv'}", "--json", *more]
    return CliRunner().invoke(app, arguments)


def write(folder: Path, given: dict[str, list[dict[str, Any]]]) -> None:
    for name, rows in given.items():
        parquet.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")


@pytest.mark.parametrize("index", ["twin-lists", "kk-index", "moving-scan"])
def test_a_replay_writes_all_differences(tmp_path: Path, index: str) -> None:
    given = recording(3)
    write(tmp_path, given)
    result = run(tmp_path, "--ttl=7", f"--index={index}")
    assert result.exit_code == 0, result.output
    table = csv.read_csv(tmp_path / "updates.csv")
    times = [time.timestamp() for time in table["time"].to_pylist()]
    assert times == sorted(times)
    columns = [table[name].to_pylist() for name in ("subscription_id", "message_id", "sign")]
    found = [*zip(times, *columns, strict=True)]
    assert {*found} == expected(given, 7.0)
    assert len({*found}) == len(found) == json.loads(result.output)["updates"] > 50


def test_sorted_files_are_read_as_they_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def small_batches(path: Path, reading: Reading, *, kind: str) -> Iterator[Batch]:
        for batch in open_table(path, reading, kind=kind, batch_rows=7):
            read.append(batch.table.num_rows)
            yield batch

    monkeypatch.setattr(event_files, "open_table", small_batches)
    monkeypatch.setattr(event_files, "ROWS_PER_CALL", 3)
    given = recording(6)
    for name in ("moves", "messages"):
        given[name].sort(key=lambda row: row["time"])
    write(tmp_path, given)
    assert run(tmp_path, "--ttl=7").exit_code == 0
    table = csv.read_csv(tmp_path / "updates.csv")
    times = [time.timestamp() for time in table["time"].to_pylist()]
    assert times == sorted(times)
    columns = [table[name].to_pylist() for name in ("subscription_id", "message_id", "sign")]
    found = [*zip(times, *columns, strict=True)]
    # Two moves at one time are one, wherever the batches are cut.
    assert {*found} == expected(given, 7.0)
    assert len({*found}) == len(found) > 50
    path = tmp_path / "moves.parquet"
    moves = event_files.EventFile(
        path, Reading(), "moves", lambda rejects: None, seen=lambda batch: None
    )
    assert len(moves.take(10**18)) < 20
    read.clear()
    moves.take(10**18)
    assert sum(read) < 50, "a sorted file was read as a whole"


def test_a_message_must_say_how_long_it_lives(tmp_path: Path) -> None:
    given = recording(4)
    write(tmp_path, given)
    result = run(tmp_path)
    assert result.exit_code == 0, result.output
    missing = sum(message["ttl_s"] is None for message in given["messages"])
    assert json.loads(result.output)["messages"]["rejected"] == missing > 0
    for message in given["messages"]:
        del message["ttl_s"]
    write(tmp_path, given)
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "--ttl" in result.stderr


def test_what_cannot_be_replayed_is_rejected(tmp_path: Path) -> None:
    given = recording(5)
    given["moves"][0]["subscription_id"] = 99
    given["moves"][1]["time"] = None
    given["moves"][2]["north"] = 95.0
    given["messages"][0]["time"] = None
    write(tmp_path, given)
    result = run(tmp_path, "--ttl=5", "--strict")
    assert result.exit_code == 3
    summary = json.loads(result.output)
    assert (summary["moves"]["rejected"], summary["messages"]["rejected"]) == (3, 1)
    lines = (tmp_path / "updates.csv.rejects.ndjson").read_text().splitlines()
    rejects = [json.loads(line) for line in lines]
    rows = sorted((r["source"], r["row"], r["field"]) for r in rejects)
    assert rows == [
        ("messages", 0, "time"),
        ("moves", 0, "subscription_id"),
        ("moves", 1, "time"),
        ("moves", 2, "north"),
    ]


@pytest.mark.parametrize("option", ["--top=3", "--threads=2", "--map=map.png"])
def test_options_that_a_replay_does_not_have_are_refused(tmp_path: Path, option: str) -> None:
    write(tmp_path, recording(6))
    result = run(tmp_path, "--ttl=5", option)
    assert result.exit_code == 2
    assert option.split("=")[0] in result.stderr
    assert not (tmp_path / "updates.csv").exists()


@pytest.mark.parametrize("option", ["--ttl=5", "--index=twin-lists"])
def test_options_of_a_replay_need_moves(tmp_path: Path, option: str) -> None:
    write(tmp_path, recording(6))
    files = [f"--{name}={tmp_path / name}.parquet" for name in ("subscriptions", "messages")]
    out = f"--out={tmp_path / 'matches.csv'}"
    result = CliRunner().invoke(app, ["match", *files, out, option])
    assert result.exit_code == 2
    assert "--moves" in result.stderr
