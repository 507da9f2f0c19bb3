"""A stream of updates whose process is killed, again and again, at any moment."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import TYPE_CHECKING

from generated import NOW_US, build_locally
from killing import Moment, amid_batch, batch_files, killed, last, read_offsets
from moving_events import SECOND, Batch, Recording, Truth, Update, record
from updates_pipeline import put_batch, updates_in

from effort import repeated
from nearcast.spark.artifact.versions import Artifact

if TYPE_CHECKING:
    from pathlib import Path

JOB = "updates_job.py"
STATE = "checkpoint/nearcast/0001"
MOMENTS = [
    Moment(STATE, amid=True),  # the state of a batch is being written, or has been
    Moment("out", amid=True),  # its updates are written
    Moment("out/_spark_metadata", amid=True),  # they count, and the batch is not done yet
    Moment("checkpoint/offsets", 1.0),  # any moment in the second after a batch began
    Moment("checkpoint/commits"),  # the batch is done
    Moment(STATE, 0.2),  # some time after the state of a batch
]
KILLS = repeated("NEARCAST_KILLS", 1, 3)


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
        at = MOMENTS[kills % len(MOMENTS)]
        at = at._replace(wait_s=draw.random() * at.wait_s)
        if killed(JOB, tmp_path, at, draw.randint(1, 3)):
            kills += 1
            amid += amid_batch(tmp_path)
        elif put == len(names):
            break
    for name in names[put:]:
        put_batch(tmp_path, name, batches[name])
    assert not killed(JOB, tmp_path, Moment("never"))
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
