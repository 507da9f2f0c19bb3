"""Malformed records by the thousand: all of them are accounted for, by both readers alike."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from malformed import KINDS, run, write_malformed
from typer.testing import CliRunner

from effort import repeated
from nearcast.cli import app

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ROWS = repeated("NEARCAST_MALFORMED_ROWS", 5_000, 20_000)
SEED = int(os.environ.get("NEARCAST_TEST_SEED", "0"))
MANY = 500_000  # about the rows of one block of a file; memory is that of a block
MORE = 3
GROWTH_MB = 300


@pytest.fixture(scope="module", params=KINDS)
def malformed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of malformed messages, beside one of subscriptions."""
    folder = tmp_path_factory.mktemp(request.param)
    ending = "csv" if request.param == "csv" else "json"
    path = folder / f"rows.{ending}"
    write_malformed(path, request.param, ROWS, SEED)
    (folder / "subscriptions.csv").write_text(
        "id,keywords,west,south,east,north\nall,tea,-180,-90,180,90\n"
    )
    return path


def matched(path: Path) -> tuple[dict[str, Any], float]:
    """Return the summary of ``nearcast match``, and its memory."""
    done = run(
        *("match", "--subscriptions", path.with_name("subscriptions.csv"), "--messages", path),
        *("--out", path.with_suffix(".matches.parquet"), "--json"),
    )
    assert done.code == 0, done.stderr
    assert done.stderr == ""
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary, done.peak_mb


def test_both_readers_account_for_all_rows_alike(
    spark: SparkSession, malformed: Path, tmp_path: Path
) -> None:
    summary, _ = matched(malformed)
    counts = summary["messages"]
    assert counts["read"] == counts["accepted"] + counts["rejected"]
    assert counts["accepted"] > ROWS // 3
    assert counts["rejected"] > ROWS // 5
    given = ["--kind", "messages", "--input", str(malformed), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["spark", "prepare", *given, "--json"])
    assert done.exit_code == 0, done.output
    prepared = json.loads(done.stdout)
    assert [prepared[name] for name in ("read", "clean", "rejected", "duplicates")] == [
        counts["read"],
        counts["accepted"],
        counts["rejected"],
        0,
    ]
    own = malformed.with_suffix(".matches.parquet.rejects.ndjson")
    assert rejects_in(sorted((tmp_path / "out.rejects").glob("*.json"))) == rejects_in([own])


def rejects_in(paths: list[Path]) -> list[tuple[int, str, str, str]]:
    """Return the rejects in files, in order."""
    rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return sorted((row["row"], row["field"], row["reason"], row["record"]) for row in rows)


@pytest.mark.skipif(ROWS < MANY, reason="a few rows say nothing about memory; see make soak")
def test_memory_does_not_grow_with_the_rows(malformed: Path, tmp_path: Path) -> None:
    header, *lines = malformed.read_bytes().partition(b"\n")
    more = malformed.with_name(f"more{malformed.suffix}")
    with more.open("wb") as file:
        file.write(header)
        for _ in range(MORE):  # ids need not be unique: messages are only compared with a batch
            file.write(b"".join(lines))
    peaks = [matched(path)[1] for path in (malformed, more)]
    assert peaks[1] < peaks[0] + GROWTH_MB
    peaks = []
    for path in (malformed, more):
        done = run(
            *("spark", "prepare", "--kind", "messages", "--input", path),
            *("--out", tmp_path / path.stem, "--json"),
        )
        assert done.code == 0, done.stderr
        assert done.stderr == ""
        peaks.append(done.peak_mb)
    assert peaks[1] < peaks[0] + GROWTH_MB
