"""The examples run, and say what they should."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples" / "spark"

SAID = {
    "build": "3 shards of 3,000 subscriptions",
    "changes": "rejected: id is not registered",
    "compact": "dropped the versions (1, 2)",
    "match": "message 1 goes to ann",
    "pipeline": "version 2 is in force",
    "prepare": "'duplicates': 1",
    "statistics": "tokens",
    "stream": "m2 goes to ann",
    "subscriptions": "#0",
}


def test_every_example_is_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == SAID.keys()


@pytest.mark.parametrize("name", SAID)
def test_example(
    name: str,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", [name])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert SAID[name] in capsys.readouterr().out
