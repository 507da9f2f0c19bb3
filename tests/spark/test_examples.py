"""The examples run, and print the expected output."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples" / "spark"

EXPECTED = {
    "build": "3 shards of 3,000 subscriptions",
    "changes": "rejected: id is not registered",
    "compact": "dropped versions: (1, 2)",
    "match": "message 1 matches ann",
    "moves": "01:08 late no longer matches bob",
    "pipeline": "version 2 is in use",
    "prepare": "'duplicates': 1",
    "ranked": "message 1 matches eve: ",
    "statistics": "tokens",
    "stream": "m2 matches ann",
    "subscriptions": "#0",
}


def test_all_examples_are_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_example(
    name: str,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", [name])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert EXPECTED[name] in capsys.readouterr().out
