"""The examples of the library run, and print what they should. Those of Spark: tests/spark."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nearcast.indexes import registry

if TYPE_CHECKING:
    import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_all_examples_are_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "own_index.py",
        "own_tokenizer.py",
        "who_is_near.py",
    }


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


def test_own_index(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(registry, "_INDEXES", dict(registry._INDEXES))
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
