"""``nearcast bench web``: a tiny run, and its table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from map_page import missing
from nearcast.benchmarks.web import web_table
from nearcast.cli import app

if TYPE_CHECKING:
    from pathlib import Path


def test_a_tiny_run_measures_everything(tmp_path: Path) -> None:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    command = ["bench", "web", "--subscriptions", "10", "--events-per-s", "50", "--seconds", "1"]
    command += ["--minutes", "0", "--rounds", "1", "--out", str(tmp_path), "--json"]
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 0, ran.output
    result = json.loads((tmp_path / "web.json").read_text())
    assert result["shown"] == result["published"] > 0
    assert 200_000 < result["bundle_bytes"] < 700_000
    assert result["idle_bytes"] > 300_000
    assert result["longest_task_ms"] >= result["longest_task_cpu_ms"] > 0
    assert all(size > 1 for size in result["heap_mb"])
    assert web_table(result)[0][0] == "shell painted"
    assert [path.name for path in tmp_path.iterdir()] == ["web.json"]
