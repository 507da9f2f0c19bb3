"""The examples of the library run, and print what they should. Those of Spark: tests/spark."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from nearcast.indexes import registry

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
OVERVIEW = (ROOT / "docs/guides/examples.md").read_text()


def test_all_examples_are_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "library.py",
        "live_engine.py",
        "live_server.py",  # tests/server/test_sample_stream.py runs it
        "own_index.py",
        "own_tokenizer.py",
        "ranking.py",
        "who_is_near.py",
    }


def test_the_overview_lists_every_example() -> None:
    rows = re.findall(r"^\| \[`(.+?)`\]\((.+?)\)", OVERVIEW, re.MULTILINE)
    assert all(link == f"../../{name}" for name, link in rows)
    files = [*EXAMPLES.rglob("*.py"), *EXAMPLES.rglob("*.ipynb")]
    assert sorted(name for name, _ in rows) == sorted(
        f"examples/{f.relative_to(EXAMPLES)}" for f in files
    )


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.stem)
def test_an_example_says_how_to_run_it(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert f"python examples/{path.relative_to(EXAMPLES)}" in docstring


def test_who_is_near(capsys: pytest.CaptureFixture[str]) -> None:
    found = runpy.run_path(str(EXAMPLES / "who_is_near.py"), run_name="__main__")
    printed = capsys.readouterr().out
    for line in (
        "5 min  + ann: Parcel at the old market (came near)",
        "20 min  + ben: Letter and parcel at the theater (published)",
        "40 min  - ben: Parcel at the old market (expired)",
        "40 min  - ben: Letter and parcel at the theater (rode on)",
        "near ann at the end: Heavy parcel, ring twice",
        "near ben at the end: nothing",
    ):
        assert line in printed
    # What is near by the updates is what matches now: messages that live, asked once more.
    engine, minute = found["engine"], found["minute"]
    for at, life, place, text in found["MESSAGES"]:
        matches = engine.publish(found["Message"](f"again: {text}", place, text))
        expected = {name for name, messages in found["near"].items() if text in messages}
        if at + life > minute:
            assert {match.subscription_id for match in matches} == expected
        else:
            assert not expected


def test_library(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["library.py", str(tmp_path / "out")])
    runpy.run_path(str(EXAMPLES / "library.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == [
        "rejected subscription row 3: lat must lie between -90 and 90 degrees; "
        "longitude comes first (got 95.0)",
        "rejected message row 5: text is missing; give text or tokens",
        "5 messages, 4 matches",
        "ann gets 101: Flood warning for the old town",
        "ann gets 102: Stormy night, stay at home",
        "ben gets 103: Storm: the ferries stay in port",
        "cid gets 105: Sun, and free ice cream",
        "ann has 2",
        "ben has 1",
        "cid has 1",
        "matches.parquet has message_id (int64), subscription_id (string), score (double)",
    ]
    matches = parquet.read_table(tmp_path / "out" / "matches.parquet")
    assert matches["message_id"].to_pylist() == [101, 102, 103, 105]
    rejects = parquet.read_table(tmp_path / "out" / "rejects.parquet")
    assert [json.loads(record) for record in rejects["record"].to_pylist()] == [
        {"id": "dan", "expression": "flood", "lon": 13.4, "lat": 95.0, "radius_m": 5000.0},
        {"post": 106, "x": 11.57, "y": 48.14},
    ]


def test_live_engine(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "live_engine.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == [
        "400 messages reached all 100 subscriptions that nobody changed",
        "delivered twice: 0",
        "matches per message after the changes:",
        "  old: 0",
        "  kept: 100",
        "  edited: 0",
        "  new: 100",
        "matches by owner: shop 0: 68, shop 1: 66, shop 2: 66",
        "shop 0 leaves with 68 subscriptions",
        "left: 232",
        "delay: ['always', 'tonight']",
        "closed: ['always', 'tonight']",
        "30 min: delay ends for always",
        "30 min: delay ends for tonight",
        "60 min: closed ends for tonight",
        "opened again: the same 233 subscriptions: True",
        "segments: (233,), dead rows: 0",
        "tokens: 4, living messages: 1",
    ]


def test_ranking(capsys: pytest.CaptureFixture[str]) -> None:
    found = runpy.run_path(str(EXAMPLES / "ranking.py"), run_name="__main__")
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[1:4] == ["  near: ann 0.961", "  far: cid 0.911", "  parade: ben 0.850"]
    assert lines[5:7] == ["  ann 0.961", "  cid 0.596"]
    for line in (
        "The score 0.5000 falls short of 0.6000 (0.1000 below).",
        "Overlap: 0.7500 x 0.6 = 0.4500.",
        "ben does not get works: its score is 0.475 of 0.7",
        "cid does not get decaf: it has cake, coffee, but the condition is False",
    ):
        assert line in lines
    assert "\n".join(lines[-4:]) in OVERVIEW
    # The sliders by the formula: nearness falls from 1 to 0 over 5,000 m, one word of two is 0.5.
    for delta, line in zip(found["DELTAS"], lines[-len(found["DELTAS"]) :], strict=True):
        expected = [
            sum(
                delta * (0.5 if i % 2 else 1) + (1 - delta) * max(0, 1 - 450 * i / 5000) >= tau
                for i in range(20)
            )
            for tau in found["TAUS"]
        ]
        assert [float(cell) for cell in line.split()] == [delta, *expected]


def test_own_index(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    runpy.run_path(str(EXAMPLES / "own_index.py"), run_name="__main__")
    assert capsys.readouterr().out == "agrees with the scan\nmatches: [5, 6, 7]\n"
    command = "bench compare --index own_index:WestToEast,scan --subscriptions 500 --messages 20"
    command += f" --rounds 1 --out {tmp_path}"
    done = subprocess.run(
        [sys.executable, "-c", "from nearcast.cli import main; main()", *command.split()],
        cwd=EXAMPLES,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "own_index:WestToEast" in done.stdout


def test_own_tokenizer(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "own_tokenizer.py"), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    assert "words: keywords: '++' would be ignored" in printed[0]
    found = ["Senior C++ engineer, remote: ann", "We teach c# and Java: ben"]
    found.append("Vitamin C, 100 tablets: nobody")
    assert printed[1:4] == printed[5:8] == found
    assert "was created with the tokenizer '__main__:languages', not 'words'" in printed[4]
