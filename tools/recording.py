"""A plugin of pytest: writes what happens as lines of JSON, for `tools/suites.py`.

``{"tests": n}`` when tests are collected, then for each phase of a test ``{"test", "phase",
"outcome", "seconds"}``, with ``"why"`` for a failure or a skip.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

__all__: list[str] = []

_RECORD = os.environ.get("NEARCAST_RECORD")


def _write(**line: Any) -> None:
    if _RECORD and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(_RECORD, "a") as file:
            file.write(json.dumps(line) + "\n")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note how many tests there are, without workers."""
    if session.items:
        _write(tests=len(session.items))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(ids: list[str]) -> None:
    """Note how many tests there are, of a worker: each has all of them."""
    _write(tests=len(ids))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how a phase of a test ended."""
    line = {"test": report.nodeid, "phase": report.when, "outcome": report.outcome}
    if report.failed:
        line["why"] = report.longreprtext
    elif report.skipped and isinstance(report.longrepr, tuple):
        line["why"] = report.longrepr[2]
    _write(**line, seconds=round(report.duration, 3))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a file that cannot be loaded."""
    if report.failed:
        line = {"test": report.nodeid, "phase": "collect", "outcome": "failed"}
        _write(**line, seconds=0.0, why=report.longreprtext)
