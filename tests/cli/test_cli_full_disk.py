"""An output file is complete or does not exist, whatever happens while it is written."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import nearcast
from nearcast.cli.writers import open_writer, write_atomically

TABLE = pa.table({"id": [f"id-{i * i}" for i in range(20_000)]})
EXTENSIONS = ["parquet", "csv", "ndjson"]

WRITE_SCRIPT = """
import sys
import pyarrow as pa
from nearcast.cli.writers import open_writer

numbers = pa.table({{"id": list(range(20_000))}})
texts = pa.table({{"id": [f"id-{{i * i}}" for i in range(20_000)]}})
for path in sys.argv[1:]:
    try:
        with open_writer(path, numbers.schema) as writer:
            for table in (numbers, texts, texts):
                writer.write(table)
{last}
    except OSError as error:
        print(error)
"""


def run(command: list[str], limit: int) -> subprocess.CompletedProcess[str]:
    """Run a command that cannot write files larger than ``limit`` bytes, as on a full disk."""
    source = Path(nearcast.__file__).parents[1]
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": str(source), "NUMBA_DISABLE_JIT": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("limit", [0, 3, 50_000, 150_000])
def test_a_full_disk_leaves_no_file(tmp_path: Path, limit: int) -> None:
    paths = [str(tmp_path / f"table.{extension}") for extension in EXTENSIONS]
    done = run(["-c", WRITE_SCRIPT.format(last=""), *paths], limit)
    assert done.stderr == ""
    assert done.stdout.count("File too large") == len(EXTENSIONS)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_a_match_on_a_full_disk_leaves_no_file(tmp_path: Path, extension: str) -> None:
    location = {"lon": 1.0, "lat": 2.0}
    subscriptions = [
        {"id": f"s{i}", "keywords": ["tea"], **location, "radius_m": 9} for i in range(60)
    ]
    messages = [{"id": f"m{i * i}", "text": "tea", **location} for i in range(60)]
    for name, rows in {"subscriptions": subscriptions, "messages": messages}.items():
        lines = "\n".join(json.dumps(row) for row in rows)
        (tmp_path / f"{name}.ndjson").write_text(lines)
    out = tmp_path / "out"
    given = [f"--{n}={tmp_path / n}.ndjson" for n in ("subscriptions", "messages")]
    command = ["-m", "nearcast.cli", "match", *given, f"--out={out}/matches.{extension}"]
    done = run(command, 500)
    assert done.returncode == 1, done.stderr
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(out) == []
    done = run(command, 1 << 30)
    assert done.returncode == 0, done.stderr
    assert f"matches.{extension}" in os.listdir(out)


def fail(*arguments: object) -> None:
    raise OSError(28, "No space left on device")


def write_table(path: Path) -> None:
    with open_writer(path, TABLE.schema) as writer:
        writer.write(TABLE)


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_an_error_of_fsync_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extension: str
) -> None:
    path = tmp_path / f"table.{extension}"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_table(path)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_the_first_error_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extension: str
) -> None:
    writer = open_writer(tmp_path / f"table.{extension}", TABLE.schema)
    real = writer._close

    def close() -> None:
        real()
        fail()

    monkeypatch.setattr(writer, "_close", close)
    writer.__enter__()
    writer.write(TABLE)
    # The error of closing would be raised from here.
    writer.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert os.listdir(tmp_path) == []


def test_the_next_job_removes_the_files_of_a_killed_job(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    kill = " " * 12 + f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})"
    done = run(["-c", WRITE_SCRIPT.format(last=kill), str(path)], 1 << 30)
    assert done.returncode == -signal.SIGKILL
    [left] = os.listdir(tmp_path)
    assert left.startswith(".table.parquet.")
    with open_writer(path, TABLE.schema) as running:
        running.write(TABLE)
        assert left not in os.listdir(tmp_path)
        # The temporary file of a running job is kept.
        write_table(path)
    assert os.listdir(tmp_path) == [path.name]
