"""A stream whose process is killed, again and again, at any moment."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from killing import Moment, amid_batch, batch_files, killed, last, read_offsets
from stream_pipeline import StreamPipeline, messages, scanned, subscriptions, written

from effort import repeated
from nearcast.spark.artifact.versions import Artifact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

MOMENTS = [
    Moment("checkpoint/sources/0"),  # a file was seen
    Moment("checkpoint/offsets", amid=True),  # a batch begins
    Moment("out", amid=True),  # matches are written
    Moment("out/_spark_metadata", amid=True),  # they count
    Moment("checkpoint/commits"),  # the batch is done
    Moment("checkpoint/offsets", 1.0),  # any moment in the second after a batch began
]
JOB = "stream_job.py"
KILLS = repeated("NEARCAST_KILLS", 2, len(MOMENTS))


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> StreamPipeline:
    return StreamPipeline(spark, tmp_path)


def batches(checkpoint: Path) -> Iterator[tuple[int, str]]:
    """Yield when the batch of a file began, in milliseconds, and the name of the file."""
    began = {
        batch: head["batchTimestampMs"] for batch, (head, _) in read_offsets(checkpoint).items()
    }
    for batch, files in batch_files(checkpoint).items():
        yield from ((began[batch], name) for name in files)


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
        at = MOMENTS[kills % len(MOMENTS)]
        at = at._replace(wait_s=draw.random() * at.wait_s)
        if killed(JOB, pipeline.folder, at, draw.randint(1, 3)):
            kills += 1
            amid += amid_batch(pipeline.folder)
        # A batch that was begun has to meet what was in force then, when it is tried again.
        artifact.commit(artifact.read(artifact.latest().number - 1))
    assert not killed(JOB, pipeline.folder, Moment("never"))
    assert amid > 0
    matched = {name: began for began, name in batches(checkpoint)}
    assert sorted(matched) == sorted(f"f{number}" for number in range(files))
    parities = {name: artifact.at(began).number % 2 for name, began in matched.items()}
    expected = [scanned(sets[parity], messages(name)) for name, parity in parities.items()]
    assert len(set(parities.values())) == 2
    assert written(pipeline.out) == sum(expected, Counter())
