"""Jobs in processes of their own, that are killed when something happens in a folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from stream_pipeline import PATIENCE_S


def names(folder: Path) -> set[str]:
    return set(os.listdir(folder)) if folder.exists() else set()


def last(log: Path) -> int:
    return max((int(name) for name in names(log) if name.isdecimal()), default=-1)


class Moment(NamedTuple):
    """When to kill a job: so long after something is new in a folder.

    With ``amid``, only after a batch began and before it is done: the job is stopped, looked at,
    and goes on until it is there.
    """

    watched: str
    wait_s: float = 0.0
    amid: bool = False


def amid_batch(folder: Path) -> bool:
    """Whether a batch has begun that is not done."""
    checkpoint = folder / "checkpoint"
    return last(checkpoint / "offsets") > last(checkpoint / "commits")


def killed(job: str, folder: Path, at: Moment, news: int = 1) -> bool:
    """Start the job and kill it at a moment; False where it ended before."""
    watched = folder / at.watched
    before = names(watched)
    running = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name(job)), str(folder)],
        start_new_session=True,  # so that Java, its child, dies at the same moment
        stderr=subprocess.PIPE,
        text=True,
    )
    patience = time.monotonic() + PATIENCE_S
    moment = patience
    try:
        while running.poll() is None and time.monotonic() < moment:
            if moment == patience and len(names(watched) - before) >= news:
                moment = time.monotonic() + at.wait_s
            time.sleep(0.001)
            if at.amid and time.monotonic() >= moment:
                os.killpg(running.pid, signal.SIGSTOP)
                if not amid_batch(folder):
                    os.killpg(running.pid, signal.SIGCONT)
                    before, moment = names(watched), patience
    finally:
        if running.returncode is None:
            os.killpg(running.pid, signal.SIGKILL)
        _, said = running.communicate()  # the end of its words is that of Java
    assert moment < patience or running.returncode == 0, said
    assert running.returncode in (0, -signal.SIGKILL), said
    return running.returncode != 0


def batch_files(checkpoint: Path, source: int = 0) -> dict[int, list[str]]:
    """Return the names of the files that each batch took from a source."""
    offsets = {
        batch: offset["logOffset"]
        for batch, (_, *found) in read_offsets(checkpoint).items()
        if (offset := found[source]) is not None
    }
    files: dict[int, list[str]] = {batch: [] for batch in offsets}
    logs = (checkpoint / "sources" / str(source)).glob("[0-9]*")
    lines = {text for log in logs for text in log.read_text().splitlines()[1:]}
    for entry in map(json.loads, lines):
        # Killed between its two logs, Spark takes the next file into the same batch.
        batch = min(batch for batch, end in offsets.items() if end >= entry["batchId"])
        files[batch].append(Path(entry["path"]).stem)
    return files


def read_offsets(checkpoint: Path) -> dict[int, list[Any]]:
    """Return what Spark noted when each batch began: its time, and the offset of each source."""
    found = {}
    for number in range(last(checkpoint / "offsets") + 1):
        _, *lines = (checkpoint / "offsets" / str(number)).read_text().splitlines()
        found[number] = [None if line == "-" else json.loads(line) for line in lines]
    return found
