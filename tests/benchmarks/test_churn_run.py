"""Runbooks, and engines that run them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from nearcast.benchmarks import churn as experiment
from nearcast.benchmarks.churn import churn
from nearcast.benchmarks.plot_churn import plot_churn
from nearcast.benchmarks.runbook import Runbook, RunbookStep, mixed_load, read_runbook
from nearcast.errors import InvalidInput, NearcastError, UnknownName, UnsupportedFile

if TYPE_CHECKING:
    from pathlib import Path


def test_a_mixed_load_is_measured_and_plotted(tmp_path: Path) -> None:
    steps_seen: list[tuple[int, int]] = []
    result = churn(
        mixed_load(3_000, 2_000, batch=100), step=lambda name, *done: steps_seen.append(done)
    )
    insert, _, _, mix, settle, after = result["steps"]
    assert insert["insert"]["operations"] == insert["subscriptions"] == 3_000
    assert mix["insert"]["operations"] == mix["delete"]["operations"] == 200
    assert mix["search"]["operations"] == 1_600
    assert sum(mix["batches"]["size"]) == 2_000
    assert len(settle["segments"]) == 1 or settle["tombstones"] <= 300
    assert after["search"]["operations"] == 200
    assert result["subscriptions"] == after["subscriptions"] == 3_000
    assert result["fresh"]["verified_messages"] == 200
    assert steps_seen[0] == (0, 8)
    assert json.loads(json.dumps(result)) == result
    plot_churn(result, tmp_path / "churn.png")
    assert (tmp_path / "churn.png").read_bytes()[:4] == b"\x89PNG"


def test_a_runbook_from_a_file_is_run(tmp_path: Path) -> None:
    path = tmp_path / "book.json"
    steps = [
        {"do": "insert", "count": 700},
        {"do": "delete", "count": 300},
        {"do": "search", "count": 50},
        {"do": "mix", "count": 100, "insert": 0.5, "delete": 0.0},
    ]
    path.write_text(json.dumps({"dataset": "places", "batch": 64, "steps": steps}))
    book = read_runbook(path)
    assert book.to_dict()["steps"] == steps
    result = churn(book, index="scan", seed=5)
    assert [step["subscriptions"] for step in result["steps"]] == [700, 400, 400, 450]
    assert result["steps"][3]["insert"]["operations"] == 50


def test_a_runbook_without_searches_that_deletes_everything() -> None:
    steps = (RunbookStep("insert", 600), RunbookStep("delete", 600))
    result = churn(Runbook(steps))
    assert result["subscriptions"] == 0
    assert result["fresh"]["search"] is None


def test_different_matches_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    run: Any = experiment._Run
    one = pa.table({"message_id": ["m"], "subscription_id": ["s"]})
    monkeypatch.setattr(run, "last_matches", lambda self: one)
    with pytest.raises(NearcastError, match="1 matches are wrong"):
        churn(Runbook((RunbookStep("insert", 1),)))


def test_more_deletes_than_subscriptions_are_rejected() -> None:
    with pytest.raises(InvalidInput, match="at most the 5 existing subscriptions"):
        churn(Runbook((RunbookStep("insert", 5), RunbookStep("delete", 6))))


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ("{", UnsupportedFile, "not JSON"),
        ("[]", UnsupportedFile, "steps"),
        ('{"steps": []}', InvalidInput, "at least one step"),
        ('{"steps": [{"do": "jump"}]}', UnknownName, "'jump'; choose from: delete, insert"),
        ('{"steps": [3]}', UnknownName, "unknown step 3"),
        ('{"steps": [{"do": "insert"}]}', InvalidInput, "count"),
        ('{"steps": [{"do": "settle", "count": 3}]}', UnknownName, "count"),
        ('{"steps": [{"do": "mix", "count": 5, "insert": 0.7, "delete": 0.7}]}', InvalidInput, "1"),
        ('{"steps": [{"do": "mix", "count": 5, "insert": "x"}]}', InvalidInput, "share"),
        ('{"steps": [{"do": "settle"}], "batch": 0}', InvalidInput, "batch"),
        ('{"steps": [{"do": "settle"}], "size": 0}', UnknownName, "size"),
    ],
)
def test_invalid_runbooks_are_rejected(
    content: str, error: type[Exception], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "book.json"
    path.write_text(content)
    with pytest.raises(error, match=message):
        read_runbook(path)
    with pytest.raises(UnsupportedFile, match="no such file"):
        read_runbook(tmp_path / "other.json")
