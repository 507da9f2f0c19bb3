"""``nearcast generate``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from nearcast.cli import app, generate
from nearcast.intake import open_table

if TYPE_CHECKING:
    from pathlib import Path

run = CliRunner().invoke


@pytest.mark.parametrize("dataset", ["tweets", "places"])
@pytest.mark.parametrize("format", ["parquet", "csv", "ndjson"])
def test_files_of_each_format_contain_all_rows(
    dataset: str, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "CHUNK_ROWS", 40)
    sizes = ["--subscriptions", "90", "--messages", "50", "--seed", "3"]
    where = ["--dataset", dataset, "--format", format, "--out", str(tmp_path)]
    done = run(app, ["generate", *sizes, *where, "--json"])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["files"]["subscriptions"]["rows"] == 90
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["seed"] == 3
    assert manifest["keywords"] == ([1, 5] if dataset == "tweets" else [1, 3])
    for name, rows in (("subscriptions", 90), ("messages", 50)):
        path = tmp_path / f"{name}.{format}"
        assert path.stat().st_size == summary["files"][name]["bytes"]
        batches = list(open_table(path))
        assert sum(batch.table.num_rows for batch in batches) == rows
        assert not any(len(batch.rejects) for batch in batches)
    assert sorted(file.suffix for file in tmp_path.iterdir()) == sorted(
        [".json", f".{format}", f".{format}"]
    )


def test_the_same_options_give_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        sizes = ["--subscriptions", "70", "--messages", "30", "--seed", "11"]
        assert run(app, ["generate", *sizes, "--out", str(tmp_path / folder)]).exit_code == 0
    for name in ("subscriptions.parquet", "messages.parquet", "manifest.json"):
        same = [(tmp_path / folder / name).read_bytes() for folder in ("one", "other")]
        assert same[0] == same[1]


def test_options_change_the_rows(tmp_path: Path) -> None:
    options = ["--tokens", "30-40", "--range-share", "0.01", "--keywords", "2", "--box-share"]
    counts = ["--subscriptions", "50", "--messages", "50", "--out", str(tmp_path)]
    done = run(app, ["generate", *counts, *options, "1e-4-1e-4"])
    assert done.exit_code == 0, done.output
    assert "subscriptions.parquet" in done.stdout
    messages = parquet.read_table(tmp_path / "messages.parquet")
    assert {"west", "north"} <= set(messages.column_names)
    assert "lon" not in messages.column_names
    assert max(len(text.split()) for text in messages["text"].to_pylist()) > 20
    subscriptions = parquet.read_table(tmp_path / "subscriptions.parquet").to_pylist()
    assert max(len(row["keywords"]) for row in subscriptions) == 2
    assert all(row["east"] - row["west"] == pytest.approx(3.6, abs=1e-6) for row in subscriptions)


NEAR = ["lon", "lat", "delta", "tau", "max_distance_m"]
BOX = ["west", "south", "east", "north"]
COLUMNS = {
    "proximity": NEAR,
    "overlap": [*BOX, "alpha", "theta"],
    "mixed": [*BOX, *NEAR, "alpha", "theta"],
}


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("format", ["parquet", "csv", "ndjson"])
def test_ranked_files_have_the_columns_of_their_kind(
    kind: str, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "CHUNK_ROWS", 40)
    sizes = ["--subscriptions", "82", "--messages", "5", "--format", format]
    done = run(app, ["generate", "--ranked", kind, *sizes, "--out", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "manifest.json").read_text())["ranked"] == kind
    path = tmp_path / f"subscriptions.{format}"
    assert sum(batch.table.num_rows for batch in open_table(path)) == 82
    if format == "ndjson":
        names = [list(json.loads(line)) for line in path.read_text().splitlines()]
    else:
        names = [batch.table.column_names for batch in open_table(path)]
    assert all(found == ["id", "keywords", *COLUMNS[kind]] for found in names)


def test_a_third_of_mixed_rows_is_of_each_kind(tmp_path: Path) -> None:
    options = ["--ranked", "mixed", "--delta", "0.2-0.4", "--alpha", "0.7", "--theta", "0.9-1"]
    more = ["--max-distance-m", "1e3-1e5", "--subscriptions", "90", "--messages", "1"]
    done = run(app, ["generate", *options, *more, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    rows = parquet.read_table(tmp_path / "subscriptions.parquet").to_pylist()
    boolean, near, cover = (rows[kind::3] for kind in range(3))
    for row in boolean + cover:
        assert all(row[name] is None for name in NEAR)
    assert all(row["west"] < row["east"] for row in boolean + cover)
    assert all(row["alpha"] is row["theta"] is None for row in boolean + near)
    assert all(row["west"] is None and -180 <= row["lon"] <= 180 for row in near)
    assert all(0.2 <= row["delta"] <= 0.4 and 0.5 <= row["tau"] <= 1 for row in near)
    assert all(row["alpha"] == 0.7 and 0.9 <= row["theta"] <= 1 for row in cover)
    distances = [row["max_distance_m"] for row in near]
    assert 1e3 <= min(distances) < 5e3 < 2e4 < max(distances) <= 1e5
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert (manifest["delta"], manifest["alpha"]) == ([0.2, 0.4], [0.7, 0.7])
    assert (manifest["tau"], manifest["max_distance_m"]) == ([0.5, 1.0], [1e3, 1e5])


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--ranked", "nearest"], 2, "ranked"),
        (["--delta", "0.5"], 2, "--delta: needs --ranked proximity"),
        (["--ranked", "overlap", "--tau", "0.5"], 2, "--tau: needs --ranked proximity"),
        (["--ranked", "proximity", "--theta", "0.5"], 2, "--theta: needs --ranked overlap"),
        (["--ranked", "mixed", "--delta", "0.5-1.5"], 2, "<= 1"),
        (["--ranked", "mixed", "--max-distance-m", "0"], 2, "0.01 <="),
        (["--ranked", "mixed", "--max-distance-m", "far"], 2, "meters"),
        (["--dataset", "songs"], 1, "choose from: moving, places, tweets"),
        (["--tokens", "few"], 2, "--tokens: must be a whole number or a range"),
        (["--tokens", "9-3"], 2, "A <= B"),
        (["--keywords", "0-3"], 2, "1 <= A"),
        (["--box-share", "0.1-2"], 2, "<= 1"),
        (["--subscriptions", "-1"], 2, "subscriptions"),
        (["--format", "xml"], 2, "format"),
    ],
)
def test_invalid_options_are_rejected(
    options: list[str], code: int, message: str, tmp_path: Path
) -> None:
    done = run(app, ["generate", "--out", str(tmp_path / "new"), *options])
    assert done.exit_code == code
    assert message in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_created_is_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(app, ["generate", "--messages", "1", "--out", str(tmp_path / "file" / "x")])
    assert done.exit_code == 1
    assert done.stderr.startswith("nearcast: ")
    assert done.stderr.count("\n") == 1
