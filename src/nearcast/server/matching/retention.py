"""Retention: which records are old enough, or too many, to be kept.

Records, events and superseded definitions are removed up to a checkpoint, because whatever follows
a checkpoint can be computed again. So there has to be one near the place where the log is to begin:
checkpoints are made at least every quarter of what is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nearcast.columns import NEVER
from nearcast.errors import Trimmed
from nearcast.server.log.records import time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nearcast.server.log import Log
    from nearcast.server.log.clocks import Step
    from nearcast.server.matching.pipeline import Pipeline

__all__ = ["Retention", "retain", "seq_at"]

_PARTS = 4


class Retention(NamedTuple):
    """What is kept at least: records of the last seconds, and about this many bytes of the log.

    A limit that is None does not count; with both, the smaller part is kept.
    """

    age_s: float | None = None
    log_bytes: int | None = None

    def cutoff(self, log: Log, now_us: int, part: float = 1.0, steps: Sequence[Step] = ()) -> int:
        """Return the first record that is to be kept, if only a part of all is kept."""
        first, last = log.first_seq, log.last_seq
        cutoff = first
        if self.age_s is not None:
            since_us = now_us - round(self.age_s * part * 1e6)
            cutoff = seq_at(log, since_us, first, last, steps)
        if self.log_bytes is not None and log.size_bytes > self.log_bytes * part:
            kept = self.log_bytes * part / log.size_bytes  # records are about the same size
            cutoff = max(cutoff, last + 1 - int((last + 1 - first) * kept))
        return cutoff


def seq_at(log: Log, time_us: int, first: int, last: int, steps: Sequence[Step] = ()) -> int:
    """Return the number of the first record from ``first`` to ``last`` that is not before a time.

    It is ``last + 1`` if all are before. Records before a step, at which the time of records went
    back, count as not later than the step.
    """
    low, high = first, last + 1
    while low < high:
        middle = (low + high) // 2
        try:
            record = log.find(middle)
        except Trimmed:  # meanwhile, or given up by a repair
            low = middle + 1
            continue
        later = (step.time_us for step in steps if step.seq > record.seq)
        if min(time_of(record), *later, NEVER) < time_us:
            low = record.seq + record.count
        else:
            high = record.seq
    return max(low, first)


def retain(pipeline: Pipeline, retention: Retention, now_us: int) -> int:
    """Make a checkpoint if one is missing, and trim log, events and state.

    Parameters
    ----------
    pipeline
        What is running.
    retention
        What is kept.
    now_us
        The current time.

    Returns
    -------
    int
        The first record that is kept.
    """
    log, checkpoints = pipeline.log, pipeline.checkpoints
    steps = pipeline.matcher.clocks.steps
    newest = max(checkpoints.seqs(), default=log.first_seq - 1)
    if (
        newest + 1 < retention.cutoff(log, now_us, 1 / _PARTS, steps)
        and newest < pipeline.matched_seq
    ):
        pipeline.checkpoint()
    cutoff = retention.cutoff(log, now_us, steps=steps)
    before = [seq for seq in checkpoints.seqs() if seq < cutoff]
    if not before:
        return log.first_seq
    first_seq = before[-1] + 1
    if first_seq > max(log.first_seq, pipeline.events.first_seq):
        log.trim(first_seq)
        pipeline.events.trim(first_seq)
        pipeline.state.forget_before(first_seq)
    checkpoints.keep(first_seq)
    return first_seq
