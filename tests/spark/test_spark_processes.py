"""Commands of the pipeline in processes of their own: what they start, say, and how they end."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING

import pytest
from malformed import run
from stream_pipeline import PATIENCE_S
from typer.testing import CliRunner

from nearcast.cli import app
from nearcast.spark import build, read_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COMMANDS = ("prepare", "statistics", "subscriptions", "build", "match", "stream", "changes")


@pytest.fixture
def data(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.csv").write_text("id,text,lon,lat\na,tea,1,2\n")
    (tmp_path / "s.csv").write_text("id,keywords,west,south,east,north\ns,tea,0,0,9,9\n")
    (tmp_path / "c.csv").write_text("op,id\ndelete,s\n")
    (tmp_path / "there").mkdir()
    build(read_files(spark, "s.csv", "subscriptions"), "index")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("prepare --kind tweets --input m.csv --out o", "unknown kind 'tweets'"),
        ("prepare --kind messages --input none.csv --out o", "there is no such file"),
        (
            "prepare --kind messages --input m.csv --out there",
            "choose another folder, or add --overwrite",
        ),
        ("prepare --kind messages --input m.csv --out o --rejects there", "--rejects"),
        ("prepare --kind subscriptions --input m.csv --out o", "not a table of subscriptions"),
        ("prepare --kind messages --input m.csv --out o --format xml", "unknown format 'xml'"),
        ("prepare --kind messages --input m.csv --out o --column text=b", "no column 'b'"),
        ("statistics --kind messages --input s.csv --out o", "not a table of messages"),
        ("statistics --kind messages --input m.csv --out o --box 1,2,3", "WEST,SOUTH,EAST,NORTH"),
        ("subscriptions --messages none --out o", "there is no such file"),
        ("subscriptions --messages m.csv --out there", "exists already"),
        ("build --subscriptions m.csv --out o", "not a table of subscriptions"),
        ("build --subscriptions s.csv --out o --index trie", "unknown index 'trie'"),
        ("build --subscriptions s.csv --out o --mode both", "unknown mode 'both'"),
        ("build --subscriptions s.csv --messages none --out o", "there is no such file"),
        ("match --index-path nowhere --messages m.csv --out o", "contains no index"),
        ("match --index-path index --messages s.csv --out o", "not a table of messages"),
        ("match --index-path index --messages m.csv --out there", "exists already"),
        ("match --index-path index --messages m.csv --out o --mode both", "unknown mode"),
        ("match --index-path index --messages m.csv --out o --version 9", "version"),
        (
            "stream --index-path nowhere --messages there --out o --checkpoint c",
            "contains no index",
        ),
        ("stream --index-path index --messages none --out o --checkpoint c", "existing folder"),
        ("stream --index-path index --messages kafka://a --out o --checkpoint c", "must be kafka"),
        ("changes --index-path nowhere --changes c.csv", "contains no index"),
        ("changes --index-path index --changes m.csv", "not a table of changes"),
    ],
)
def test_mistakes_are_found_before_java_starts(
    data: Path, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    def no_session(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    for name in COMMANDS:
        monkeypatch.setattr(import_module(f"nearcast.cli.spark.{name}"), "open_session", no_session)
    done = CliRunner().invoke(app, ["spark", *command.split()])
    assert done.exit_code == 1, done.output
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_goes_wrong_in_a_worker_is_one_line(tmp_path: Path) -> None:
    """Also Java, which has much to say, says nothing else."""
    lines = "".join(f"m{i},tea,1,2\n" for i in range(200_000))
    whole = gzip.compress(f"id,text,lon,lat\n{lines}".encode())
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    done = run(
        *("spark", "prepare", "--kind", "messages", "--input", tmp_path / "cut.csv.gz"),
        *("--out", tmp_path / "out"),
    )
    assert done.code == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "cut.csv.gz: cannot be read as csv" in done.stderr
    assert done.stdout == ""


def test_ctrl_c_ends_a_stream_quietly(data: Path) -> None:
    arriving = data / "arriving"
    arriving.mkdir()
    (arriving / "1.csv").write_text("id,text,lon,lat\na,tea,1,2\nb,tea,east,2\n")
    command = [
        *(sys.executable, "-m", "nearcast.cli", "spark", "stream", "--index-path", "index"),
        *("--messages", "arriving", "--out", "out", "--checkpoint", "progress"),
    ]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy()
    )
    assert running.stdout is not None
    first = running.stdout.readline()
    assert first.startswith("batch 0: 1 messages, 1 matches"), first
    running.send_signal(signal.SIGINT)
    began = time.monotonic()
    stdout, stderr = running.communicate(timeout=PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S
    assert running.returncode == 0
    assert stderr == ""
    assert "streamed" in stdout
    assert "rejected 1" in " ".join(stdout.split())
