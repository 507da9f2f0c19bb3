"""``nearcast match`` over ranked subscriptions, alone and among boolean ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from nearcast import Engine, indexes
from nearcast.cli import app

if TYPE_CHECKING:
    from pathlib import Path

run = CliRunner().invoke


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("mixed")
    options = ["--ranked", "mixed", "--subscriptions", "900", "--messages", "60"]
    far = ["--max-distance-m", "1e5-1e7", "--tau", "0.2-0.9", "--theta", "0.1-0.9"]
    done = run(app, ["generate", *options, *far, "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def match(data: Path, out: Path, *options: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    files = ["--subscriptions", str(data / "subscriptions.parquet")]
    files += ["--messages", str(data / "messages.parquet"), "--out", str(out)]
    done = run(app, ["match", *files, *options, "--json"])
    assert done.exit_code == 0, done.output
    return parquet.read_table(out).to_pylist(), json.loads(done.stdout)


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["message_id"], row["subscription_id"]))


@pytest.mark.parametrize("similarity", ["containment", "overlap", "jaccard", "dice", "cosine"])
@pytest.mark.parametrize("distance", ["geodesic", "planar"])
def test_scores_have_the_bits_of_the_engine(
    similarity: str, distance: str, data: Path, tmp_path: Path
) -> None:
    rows, summary = match(
        data, tmp_path / "m.parquet", "--similarity", similarity, "--distance", distance
    )
    engine = Engine(similarity=similarity, distance=distance)
    assert len(engine.subscribe_table(parquet.read_table(data / "subscriptions.parquet"))) == 0
    published = engine.publish_table(parquet.read_table(data / "messages.parquet"))
    assert in_order(rows) == in_order(published.matches.to_pylist())
    kinds = {row["score"] is None for row in rows}
    assert kinds == {True, False}
    assert summary["matches"] == len(rows) > 100
    assert summary["similarity"] == similarity


@pytest.mark.parametrize(
    "index", sorted({*indexes.names("proximity"), *indexes.names("overlap")} - {"scan"})
)
def test_every_index_gives_the_same_bits(index: str, data: Path, tmp_path: Path) -> None:
    rows, _ = match(data, tmp_path / "a.parquet", "--index", index)
    expected, _ = match(data, tmp_path / "b.parquet")
    assert in_order(rows) == in_order(expected)


def test_the_best_come_first(data: Path, tmp_path: Path) -> None:
    everything, _ = match(data, tmp_path / "a.parquet")
    best, _ = match(data, tmp_path / "b.parquet", "--top", "3")
    of_message: dict[str, list[Any]] = {}
    for row in everything:
        of_message.setdefault(row["message_id"], []).append(row)
    for message, rows in of_message.items():
        rows.sort(key=lambda r: (r["score"] is None, -(r["score"] or 0), r["subscription_id"]))
        assert [row for row in best if row["message_id"] == message] == rows[:3]


@pytest.mark.parametrize("kind", ["csv", "ndjson"])
def test_text_files_mean_the_same(kind: str, data: Path, tmp_path: Path) -> None:
    options = ["--ranked", "mixed", "--subscriptions", "900", "--messages", "60"]
    far = ["--max-distance-m", "1e5-1e7", "--tau", "0.2-0.9", "--theta", "0.1-0.9"]
    done = run(app, ["generate", *options, *far, "--format", kind, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    expected, _ = match(data, tmp_path / "a.parquet")
    files = ["--subscriptions", str(tmp_path / f"subscriptions.{kind}")]
    files += ["--messages", str(tmp_path / f"messages.{kind}")]
    done = run(app, ["match", *files, "--out", str(tmp_path / "b.parquet"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["subscriptions"]["rejected"] == 0
    found = parquet.read_table(tmp_path / "b.parquet").to_pylist()
    assert in_order(found) == in_order(expected)


def test_bad_rankings_are_rejected_with_their_reason(tmp_path: Path) -> None:
    rows = [
        {"id": "good", "keywords": "tea", "lon": 0, "lat": 0, "delta": 0.5, "tau": 0.5},
        {"id": "bad", "keywords": "tea", "lon": 0, "lat": 0, "delta": 5, "tau": 0.5},
    ]
    for row in rows:
        row["max_distance_m"] = 1000
    (tmp_path / "s.ndjson").write_text("\n".join(map(json.dumps, rows)))
    message = {"id": "m", "text": "tea", "lon": 0, "lat": 0}
    (tmp_path / "m.ndjson").write_text(json.dumps(message))
    files = [
        "--subscriptions",
        str(tmp_path / "s.ndjson"),
        "--messages",
        str(tmp_path / "m.ndjson"),
    ]
    done = run(app, ["match", *files, "--out", str(tmp_path / "out.ndjson"), "--strict", "--json"])
    assert done.exit_code == 3
    summary = json.loads(done.stdout)
    assert summary["rejects"][0]["field"] == "delta"
    matches = [json.loads(line) for line in (tmp_path / "out.ndjson").read_text().splitlines()]
    assert matches == [{"message_id": "m", "subscription_id": "good", "score": 1.0}]


def test_unknown_similarities_are_one_line(data: Path, tmp_path: Path) -> None:
    files = ["--subscriptions", "x", "--messages", "y", "--out", str(tmp_path / "o.csv")]
    done = run(app, ["match", *files, "--similarity", "bm25"])
    assert done.exit_code == 1
    assert "choose from: containment, cosine, dice, jaccard, overlap" in done.stderr
