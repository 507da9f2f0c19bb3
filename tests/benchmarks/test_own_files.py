"""``nearcast bench compare`` on one's own files, and with an index of one's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from nearcast import indexes
from nearcast.benchmarks.compare import Comparison, compare
from nearcast.benchmarks.own_files import OwnFiles
from nearcast.benchmarks.report import tables_block
from nearcast.cli import app
from nearcast.columns import Scoring
from nearcast.errors import UnsupportedFile

if TYPE_CHECKING:
    from pathlib import Path


def write_files(folder: Path, **ranked: list[float]) -> tuple[Path, Path]:
    count = 400
    subscriptions = {
        "id": [*range(count)],
        "keywords": [["tea"] if i % 2 else ["tea", f"word{i % 20}"] for i in range(count)],
        "west": [i % 40 for i in range(count)],
        "south": [-10.0] * count,
        "east": [i % 40 + 5.5 for i in range(count)],
        "north": [95.0 if i == 3 else 10.0 for i in range(count)],
        **{name: values * (count // len(values)) for name, values in ranked.items()},
    }
    messages = {
        "id": [*range(50)],
        "text": [f"Tea and word{i % 20} unknown{i}" for i in range(50)],
        "lon": [float(i % 40) for i in range(50)],
        "lat": [0.0 if i else 95.0 for i in range(50)],
    }
    parquet.write_table(pa.table(subscriptions), folder / "mine.parquet")
    with open(folder / "said.ndjson", "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in pa.table(messages).to_pylist())
    return folder / "mine.parquet", folder / "said.ndjson"


def test_indexes_are_compared_on_files(tmp_path: Path) -> None:
    loaded = OwnFiles(*write_files(tmp_path)).load()
    assert loaded.rejected == {"subscriptions": 1, "messages": 1}
    builders = {name: indexes.create(name) for name in ("trie-pyramid", "scan", "rt-tree")}
    [result] = compare(Comparison.of_files("mine", loaded, builders, rounds=2))
    fast, scan, tree = result["results"]
    assert fast["matches_per_message"] == scan["matches_per_message"] > 10
    assert tree["verified_messages"] == 20
    assert (result["subscriptions"], result["messages"], result["kind"]) == (399, 49, "boolean")
    assert "--subscriptions-file" in tables_block([result])


@pytest.mark.parametrize("similarity", ["containment", "cosine"])
def test_ranked_files(tmp_path: Path, similarity: str) -> None:
    files = write_files(tmp_path, alpha=[0.5, 0.9], theta=[0.1, 0.4])
    loaded = OwnFiles(*files, 200, 30, Scoring(similarity)).load()
    builders = {name: indexes.create(name) for name in ("ranked-pyramid", "rt-tree")}
    [result] = compare(Comparison.of_files("mine", loaded, builders, rounds=1))
    assert (result["kind"], result["subscriptions"], result["messages"]) == ("overlap", 200, 30)
    assert result["ranking"] == {"similarity": similarity}
    assert result["results"][0]["matches_per_message"] > 1


def test_files_of_which_nothing_is_left(tmp_path: Path) -> None:
    subscriptions, messages = write_files(tmp_path)
    (tmp_path / "none.ndjson").write_text('{"id": 1, "text": "x", "lon": 0, "lat": 99}\n')
    with pytest.raises(UnsupportedFile, match="has no valid message; 1 were rejected"):
        OwnFiles(subscriptions, tmp_path / "none.ndjson").load()
    mixed = parquet.read_table(subscriptions)
    for name in ("alpha", "theta"):
        some = [None if i % 2 else 0.5 for i in range(len(mixed))]
        mixed = mixed.append_column(name, pa.array(some))
    parquet.write_table(mixed, tmp_path / "mixed.parquet")
    with pytest.raises(UnsupportedFile, match="boolean and overlap subscriptions"):
        OwnFiles(tmp_path / "mixed.parquet", messages).load()


def test_the_command_takes_files(tmp_path: Path) -> None:
    subscriptions, messages = write_files(tmp_path)
    given = ["bench", "compare", "--subscriptions-file", str(subscriptions)]
    given += ["--index", "scan,trie-pyramid", "--rounds", "1", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*given, "--messages-file", str(messages)])
    assert done.exit_code == 0, done.output
    assert "1 subscriptions, 1 messages" in " ".join(done.output.split())
    result = json.loads((tmp_path / "out" / "compare-mine-399-own.json").read_text())
    assert result["command"].startswith("nearcast bench compare --subscriptions-file ")
    assert "checked against the scan:" in done.output
    alone = CliRunner().invoke(app, given)
    assert alone.exit_code == 2
    assert "is missing; give both" in alone.output
    drawn = CliRunner().invoke(app, [*given, "--messages-file", str(messages), "--tau", "0.5"])
    assert drawn.exit_code == 2
    assert "is for generated data, not for files" in " ".join(drawn.output.split())


def test_columns_of_files_may_have_other_names(tmp_path: Path) -> None:
    subscriptions, messages = write_files(tmp_path)
    messages.write_text(messages.read_text().replace('"text"', '"body"'))
    given = ["bench", "compare", "--index", "trie-pyramid", "--rounds", "1"]
    given += ["--out", str(tmp_path / "out"), "--subscriptions-file", str(subscriptions)]
    given += ["--messages-file", str(messages)]
    asked = CliRunner().invoke(app, given)
    assert "Use --column text=body" in " ".join(asked.output.split())
    done = CliRunner().invoke(app, [*given, "--column", "text=body"])
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "out" / "compare-mine-399-own.json").read_text())
    assert " --column text=body " in result["command"]
    assert result["results"][0]["matches_per_message"] > 10
    drawn = CliRunner().invoke(app, ["bench", "compare", "--column", "text=body"])
    assert drawn.exit_code == 2
    assert "--column: is for files, not for generated data" in " ".join(drawn.output.split())


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        (["--kind", "boolean"], "is read from --subscriptions-file"),
        (["--dataset", "places"], "is for generated data, not for files"),
        (["--seed", "0"], "is for generated data, not for files"),
    ],
)
def test_options_without_effect_on_files_are_refused(
    tmp_path: Path, option: list[str], problem: str
) -> None:
    subscriptions, messages = write_files(tmp_path)
    given = ["bench", "compare", "--subscriptions-file", str(subscriptions)]
    done = CliRunner().invoke(app, [*given, "--messages-file", str(messages), *option])
    assert done.exit_code == 2
    assert f"{option[0]}: {problem}" in " ".join(done.output.split())
