"""``nearcast bench read``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nearcast.benchmarks import reading
from nearcast.cli import app
from nearcast.errors import NearcastError
from nearcast.intake import load_messages, load_subscriptions
from nearcast.text import Vocabulary

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_files_are_read_here_and_in_another_checkout(tmp_path: Path) -> None:
    options = ["--rows", "50", "--rounds", "2", "--out", str(tmp_path), "--against", str(ROOT)]
    done = CliRunner().invoke(app, ["bench", "read", *options, "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert json.loads((tmp_path / "read.json").read_text()) == result
    named = [(file["kind"], file["format"]) for file in result["files"]]
    assert named == [(k, e) for k in reading.KINDS for e in reading.EXTENSIONS]
    assert all(file["ratio"] > 0 and file["seconds"]["least"] > 0 for file in result["files"])


def test_the_files_are_clean_and_the_same_in_all_formats(tmp_path: Path) -> None:
    files = reading.write_files(tmp_path, 20, 1)
    found = set()
    for extension in reading.EXTENSIONS:
        [(messages, rejects)] = load_messages(files["messages", extension], now_us=0)
        read, rejected = load_subscriptions(files["subscriptions", extension], Vocabulary())
        assert len(rejects) == len(rejected) == 0
        tokens = read.clauses.token.tolist()
        found.add((str(messages.box.tolist()), str(messages.time_us.tolist()), str(tokens)))
    assert len(found) == 1


def test_a_checkout_that_cannot_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NearcastError, match="the files could not be read"):
        reading.measure_reading(5, rounds=1, against=tmp_path / "nothing")
