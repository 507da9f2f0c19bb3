"""``make run ONCE=1``: what a new user sees, from the first look to the live server."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif("NEARCAST_PACKAGE" not in os.environ, reason="make tests-package runs it")
def test_make_run_ends_with_a_summary_of_the_server() -> None:
    command = ["make", "run", "ONCE=1", "RUN_SECONDS=10", "PORT=0"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "The whole pipeline: with the library, on Spark, and as a stream." in done.stdout
    assert re.search(r"at http://127\.0\.0\.1:\d+ with the key\s+nc_", done.stdout)
    summary = re.search(r"([\d,]+) messages published, ([\d,]+) of them matched", done.stdout)
    assert summary is not None
    assert all(int(number.replace(",", "")) > 0 for number in summary.groups())
    assert done.stdout.endswith("The server has stopped; what was acknowledged is on disk.\n")
