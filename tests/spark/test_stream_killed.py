"""A stream whose process is killed, again and again, at any moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stream_pipeline import PATIENCE_S, StreamPipeline, messages, scanned, subscriptions, written

from nearcast.spark.artifact.versions import Artifact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

MOMENTS = [
    ("checkpoint/sources/0", 0.0),  # a file was seen
    ("checkpoint/offsets", 0.0),  # a batch begins
    ("out", 0.0),  # matches are written
    ("out/_spark_metadata", 0.0),  # they count
    ("checkpoint/commits", 0.0),  # the batch is done
    ("checkpoint/offsets", 1.0),  # any moment in the second after a batch began
]
KILLS = int(os.environ.get("NEARCAST_KILLS", len(MOMENTS)))


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> StreamPipeline:
    return StreamPipeline(spark, tmp_path)


def names(folder: Path) -> set[str]:
    return set(os.listdir(folder)) if folder.exists() else set()


def last(log: Path) -> int:
    return max((int(name) for name in names(log) if name.isdecimal()), default=-1)


def killed(folder: Path, watched: Path, news: int, wait_s: float) -> bool:
    """Start the job and kill it when something is new in a folder; False where it ended before."""
    before = names(watched)
    job = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("stream_job.py")), str(folder)],
        start_new_session=True,  # so that Java, its child, dies at the same moment
        stderr=subprocess.PIPE,
        text=True,
    )
    patience = time.monotonic() + PATIENCE_S
    moment = patience
    try:
        while job.poll() is None and time.monotonic() < moment:
            if moment == patience and len(names(watched) - before) >= news:
                moment = time.monotonic() + wait_s
            time.sleep(0.001)
    finally:
        if job.returncode is None:
            os.killpg(job.pid, signal.SIGKILL)
        _, said = job.communicate()  # the end of its words is that of Java
    assert moment < patience or job.returncode == 0, said
    assert job.returncode in (0, -signal.SIGKILL), said
    return job.returncode != 0


def batches(checkpoint: Path) -> Iterator[tuple[int, str]]:
    """Yield when the batch of a file began, in milliseconds, and the name of the file."""
    began: dict[int, int] = {}
    for number in range(last(checkpoint / "offsets") + 1):
        _, head, offset = (checkpoint / "offsets" / str(number)).read_text().splitlines()
        began[json.loads(offset)["logOffset"]] = json.loads(head)["batchTimestampMs"]
    logs = (checkpoint / "sources" / "0").glob("[0-9]*")
    lines = {text for log in logs for text in log.read_text().splitlines()[1:]}
    for entry in map(json.loads, lines):
        # Killed between its two logs, Spark takes the next file into the same batch.
        batch = min(offset for offset in began if offset >= entry["batchId"])
        yield began[batch], Path(entry["path"]).stem


def test_kills_lose_nothing_and_repeat_nothing(pipeline: StreamPipeline) -> None:
    draw = random.Random(int(os.environ.get("NEARCAST_TEST_SEED", "0")))
    sets = {parity: subscriptions(parity, prefix=f"{parity}s") for parity in (1, 0)}
    for table in sets.values():
        pipeline.build(table)
    artifact = Artifact(pipeline.index)
    kills, amid, files = 0, 0, 0
    checkpoint = pipeline.folder / "checkpoint"
    while kills < KILLS:
        while files < last(checkpoint / "commits") + 6:
            pipeline.put(f"f{files}")
            files += 1
        watched, wait_s = MOMENTS[kills % len(MOMENTS)]
        if killed(
            pipeline.folder, pipeline.folder / watched, draw.randint(1, 3), draw.random() * wait_s
        ):
            kills += 1
            amid += last(checkpoint / "offsets") > last(checkpoint / "commits")
        # A batch that was begun has to meet what was in force then, when it is tried again.
        artifact.commit(artifact.read(artifact.latest().number - 1))
    assert not killed(pipeline.folder, pipeline.folder / "never", 1, 0.0)
    assert amid > 0
    matched = {name: began for began, name in batches(checkpoint)}
    assert sorted(matched) == sorted(f"f{number}" for number in range(files))
    parities = {name: artifact.at(began).number % 2 for name, began in matched.items()}
    expected = [scanned(sets[parity], messages(name)) for name, parity in parities.items()]
    assert len(set(parities.values())) == 2
    assert written(pipeline.out) == sum(expected, Counter())
