"""``nearcast generate --dataset moving``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from nearcast.cli import app, generate
from nearcast.columns import UNITS
from nearcast.datasets import Workload
from nearcast.datasets.roads import Movers, lattice
from nearcast.intake import load_messages, load_subscriptions, open_table
from nearcast.intake.places import read_regions
from nearcast.intake.rejects import RowErrors
from nearcast.intake.times import read_times
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path

run = CliRunner().invoke
SMALL = ["--subscriptions", "90", "--messages", "50", "--seed", "3", "--lattice", "8"]
MOVING = ["generate", "--dataset", "moving", *SMALL]


@pytest.mark.parametrize("format", ["parquet", "csv", "ndjson"])
def test_files_of_each_format_are_read_without_rejects(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "CHUNK_ROWS", 40)
    options = ["--ticks", "4", "--mobility", "0.6", "--format", format, "--out", str(tmp_path)]
    done = run(app, [*MOVING, *options, "--json"])
    assert done.exit_code == 0, done.output
    files = json.loads(done.stdout)["files"]
    movers = Movers(lattice(8, seed=3), 90, 3, mobility=0.6)

    path = tmp_path / files["subscriptions"]["file"]
    subscriptions, rejects = load_subscriptions(path, Vocabulary())
    assert len(rejects) == 0
    assert subscriptions.ids.tolist() == [f"s{i}" for i in range(90)]
    assert (subscriptions.clauses.box == movers.boxes()).all()

    seen = []
    for batch in open_table(tmp_path / files["moves"]["file"], kind="moves"):
        assert len(batch.rejects) == 0
        errors = RowErrors(batch.table.num_rows)
        regions, times = read_regions(batch.table, errors), read_times(batch.table, "time", errors)
        assert errors.valid.all()
        assert len(regions.box) == batch.table.num_rows
        ids = batch.table["subscription_id"].to_pylist()
        seen += list(zip(times.us.tolist(), ids, regions.box.tolist(), strict=True))
    begin = 1_767_225_600_000_000
    expected = []
    for tick in range(1, 5):
        mover, box = movers.tick()
        names = [f"s{row}" for row in mover.tolist()]
        time_us = [begin + 30_000_000 * tick] * len(names)
        expected += list(zip(time_us, names, box.tolist(), strict=True))
    assert seen == expected
    assert len(seen) == files["moves"]["rows"]

    [(messages, rejects)] = load_messages(tmp_path / files["messages"]["file"], now_us=0)
    assert len(rejects) == 0
    assert messages.ids.tolist() == [f"m{i}" for i in range(50)]
    assert set(messages.ttl_us.tolist()) == {300_000_000}
    counts = np.bincount((messages.time_us - begin) // 30_000_000, minlength=5)
    assert counts.tolist() == [0, 12, 13, 12, 13]


def test_the_same_options_give_the_same_bytes_whatever_the_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for chunk in (1_000, 17):
        monkeypatch.setattr(generate, "CHUNK_ROWS", chunk)
        out = ["--format", "csv", "--out", str(tmp_path / str(chunk))]
        assert run(app, [*MOVING, *out]).exit_code == 0
    for name in ("subscriptions.csv", "moves.csv", "messages.csv", "manifest.json"):
        assert (tmp_path / "1000" / name).read_bytes() == (tmp_path / "17" / name).read_bytes()


def test_the_manifest_has_all_options(tmp_path: Path) -> None:
    options = {
        "words": "places",
        "route": "wander",
        "destinations": 9,
        "goals": "density",
        "speeds": "90,45",
        "velocity": 2.5,
        "mobility": 0.25,
        "interval": 3,
        "tick-s": 10.5,
        "ticks": 7,
        "ttl-s": 42.0,
        "message-places": "dataset",
        "capacity-per-km": 80.0,
        "box-share": "0.01-0.04",
        "keywords": "2-2",
        "tokens": "5-6",
    }
    given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    done = run(app, [*MOVING, *given, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "moves.parquet" in done.stdout
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    shown = {name.replace("-", "_"): value for name, value in options.items()}
    shown |= {"speeds": [90.0, 45.0], "box_share": [0.01, 0.04], "keywords": [2, 2]}
    shown |= {"tokens": [5, 6], "roads": "lattice", "dataset": "moving", "seed": 3}
    assert {name: manifest[name] for name in shown} == shown
    network = lattice(8, seed=3)
    assert (manifest["nodes"], manifest["arcs"]) == (network.nodes, network.arcs)
    assert manifest["frame"] == [side / UNITS for side in network.frame]
    moves = parquet.read_table(tmp_path / "moves.parquet")
    assert moves.num_rows == manifest["files"]["moves"]["rows"] > 0
    messages = parquet.read_table(tmp_path / "messages.parquet")
    assert set(messages["ttl_s"].to_pylist()) == {42.0}
    words = set(Workload("places").words().to_pylist())
    assert {word for text in messages["text"].to_pylist() for word in text.split()} <= words


def test_roads_come_from_files(tmp_path: Path) -> None:
    nodes = {"id": [1, 2, 3], "lon": [9.5, 9.51, 9.5], "lat": [47.0, 47.0, 47.01]}
    parquet.write_table(pa.table(nodes), tmp_path / "n.parquet")
    parquet.write_table(pa.table({"u": [1, 2], "v": [2, 3]}), tmp_path / "e.parquet")
    small = ["generate", "--dataset", "moving", "--subscriptions", "20", "--messages", "5"]
    roads = f"{tmp_path}/n.parquet, {tmp_path}/e.parquet"
    done = run(app, [*small, "--roads", roads, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["roads"] == ["n.parquet", "e.parquet"]
    assert manifest["frame"] == [9.5, 47.0, 9.51, 47.01]
    bad = f"{tmp_path}/e.parquet,{tmp_path}/n.parquet"
    done = run(app, [*small, "--roads", bad, "--out", str(tmp_path / "bad")])
    assert done.exit_code == 1
    assert "e.parquet: there is no column 'id'; the columns are: u, v" in done.stderr
    assert not (tmp_path / "bad").exists()


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (["--ranked", "overlap"], 2, "--ranked: cannot be used with --dataset moving"),
        (["--range-share", "0.1"], 2, "--range-share: cannot be used with"),
        (["--lattice", "8", "--roads", "a.csv,b.csv"], 2, "--lattice: cannot be used with --roads"),
        (["--roads", "nodes.csv"], 2, "--roads: must be two files, NODES,EDGES"),
        (["--dataset", "tweets", "--ticks", "3"], 2, "needs --dataset moving"),
        (["--route", "fly"], 1, "choose from: destinations, wander"),
        (["--speeds", "quick"], 1, "choose from: fast, medium, roads, slow"),
        (["--velocity", "-1"], 1, "velocity: must be a number above 0"),
        (["--words", "songs"], 1, "choose from: places, tweets"),
        (["--message-places", "sea"], 1, "choose from: dataset, roads"),
        (["--mobility", "2"], 2, "mobility"),
    ],
)
def test_invalid_options_are_rejected(
    options: list[str], code: int, problem: str, tmp_path: Path
) -> None:
    small = [part for part in MOVING if part not in {"--lattice", "8"}]
    done = run(app, [*small, *options, "--out", str(tmp_path / "out")])
    assert done.exit_code == code
    assert problem in " ".join(done.stderr.replace("│", " ").split())
    assert not (tmp_path / "out").exists()
