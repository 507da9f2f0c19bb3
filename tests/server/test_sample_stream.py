"""The example with which ``make run`` ends: a server, a sample stream and a subscriber."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "live_server.py"


def test_the_sample_stream_ends_with_a_summary(tmp_path: Path) -> None:
    generate = ["generate", "--dataset", "places", "--subscriptions", "500", "--messages", "500"]
    nearcast = [sys.executable, "-m", "nearcast.cli"]
    subprocess.run([*nearcast, *generate, "--out", tmp_path], check=True, capture_output=True)
    done = subprocess.run(
        [sys.executable, EXAMPLE, tmp_path, "--seconds", "5", "--port", "0"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "500 subscriptions are registered" in done.stdout
    found = re.search(r"([\d,]+) messages published, ([\d,]+) of them", done.stdout)
    assert found is not None
    published, matched = (int(number.replace(",", "")) for number in found.groups())
    assert published >= 500
    assert 0 < matched < published
    assert "The server has stopped; what was acknowledged is on disk." in done.stdout
