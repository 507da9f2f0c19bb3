"""A stream of updates whose process is killed, again and again, at any moment."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import TYPE_CHECKING

from generated import NOW_US, build_locally
from killing import batch_files, killed, last, read_offsets
from moving_events import SECOND, Batch, Recording, Truth, Update, record
from updates_pipeline import put_batch, updates_in

from nearcast.spark.artifact.versions import Artifact

if TYPE_CHECKING:
    from pathlib import Path

JOB = "updates_job.py"
STATE = "checkpoint/nearcast/0001"
MOMENTS = [
    (STATE, 0.0),  # the state of a batch is being written, or has been
    ("out", 0.0),  # its updates are written
    ("out/_spark_metadata", 0.0),  # they count, and the batch is not done yet
    ("checkpoint/offsets", 1.0),  # any moment in the second after a batch began
    ("checkpoint/commits", 0.0),  # the batch is done
    (STATE, 0.2),  # some time after the state of a batch
]
KILLS = int(os.environ.get("NEARCAST_KILLS", "3"))


def recorded(seed: int) -> Recording:
    """Draw a recording in which every message lives, and no id is used twice."""
    drawn = record(seed, events=160, seconds=60)
    messages = [row for row in {row["id"]: row for row in drawn.messages}.values() if row["ttl_s"]]
    return Recording(drawn.subscriptions, drawn.changes, messages)


def taken(folder: Path, batches: dict[str, Batch]) -> list[Batch]:
    """Return the rows of the batches that Spark made of the files."""
    checkpoint = folder / "checkpoint"
    messages, changes = (batch_files(checkpoint, source) for source in (0, 1))
    found = []
    for number, (head, *_) in read_offsets(checkpoint).items():
        rows = (
            [row for name in sorted(changes.get(number, ())) for row in batches[name].changes],
            [row for name in sorted(messages.get(number, ())) for row in batches[name].messages],
        )
        found.append(Batch(*rows, head["batchTimestampMs"] * 1000))
    return found


def test_kills_lose_no_update_and_repeat_none(tmp_path: Path) -> None:
    draw = random.Random(int(os.environ.get("NEARCAST_TEST_SEED", "0")))
    recording = recorded(draw.randrange(1000))
    build_locally(Artifact(tmp_path / "index"), recording.subscriptions)
    cuts = [NOW_US + second * SECOND for second in range(0, 60, max(1, 60 // (6 * KILLS)))]
    batches = {f"{n:03d}": batch for n, batch in enumerate(recording.cut(cuts))}
    names = list(batches)
    kills, amid, put = 0, 0, 0
    checkpoint = tmp_path / "checkpoint"
    while kills < KILLS:
        end = max(put, last(checkpoint / "commits") + 6)
        for name in names[put:end]:
            put_batch(tmp_path, name, batches[name])
        put = min(max(put, end), len(names))
        watched, wait_s = MOMENTS[kills % len(MOMENTS)]
        if killed(JOB, tmp_path, tmp_path / watched, draw.randint(1, 3), draw.random() * wait_s):
            kills += 1
            amid += last(checkpoint / "offsets") > last(checkpoint / "commits")
        elif put == len(names):
            break
    for name in names[put:]:
        put_batch(tmp_path, name, batches[name])
    assert not killed(JOB, tmp_path, tmp_path / "never", 1, 0.0)
    assert amid > 0
    truth = Truth(recording.subscriptions)
    expected: Counter[Update] = Counter()
    for batch in taken(tmp_path, batches):
        expected += truth.apply(batch)
    found = updates_in(tmp_path / "out")
    assert found == expected
    sums: Counter[tuple[str, str]] = Counter()
    for _, subscription, message, sign, _ in found.elements():
        sums[subscription, message] += sign
    assert {*sums.values()} <= {0, 1}
    assert {pair for pair, total in sums.items() if total} == {pair[:2] for pair in truth.pairs}
