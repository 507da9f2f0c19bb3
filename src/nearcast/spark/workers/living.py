"""Subscriptions and living messages of one partition, and what a micro-batch of events changes.

Events happen in the order of their times; at equal times deletes come before inserts, then moves,
then messages. The present only goes forward, from micro-batch to micro-batch. An event happens at
its own time, but not before the present and not after the time of its micro-batch: a recording
replays at its own times, and a row with a wrong time in the future does not end everything. All of
that depends only on the events and on the time that Spark logged, so all partitions, and all
attempts, agree.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine import Engine
from nearcast.engine.opening import open_parts
from nearcast.engine.recording import ReplayClock
from nearcast.spark.workers.events import CHANGE, MESSAGE
from nearcast.spark.workers.happening import Happening
from nearcast.spark.workers.ordering import (
    INSERT,
    GivenRows,
    Ordered,
    read_changes,
    read_living_messages,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from nearcast.segments import Part, Scorer
    from nearcast.spark.workers.happening import Applied

__all__ = ["LivingSet"]

BEGINNING = -(1 << 60)
"""The present before the first event, in microseconds: earlier than any time."""


class LivingSet:
    """The subscriptions and living messages of a partition.

    ``present_us`` is the time until which everything has happened.
    """

    def __init__(self, engine: Engine, clock: ReplayClock, present_us: int) -> None:
        self._engine = engine
        self._clock = clock
        self.present_us = present_us

    @classmethod
    def begin(
        cls, parts: Sequence[Part], scorer: Scorer, at_us: int, tokenizer: str = "words"
    ) -> LivingSet:
        """Return subscriptions before the first event, which happens at a time."""
        clock = ReplayClock(at_us)
        engine = open_parts(Engine, parts, scorer, tokenizer=tokenizer, clock=clock)
        return cls(engine, clock, BEGINNING)

    @classmethod
    def open(cls, folder: Path, meta: dict[str, Any]) -> LivingSet:
        """Return what was saved; ``meta`` as it was then."""
        clock = ReplayClock(int(meta["present_us"]))
        return cls(Engine.open(folder, clock=clock), clock, clock.now_us)

    def save(self, folder: Path) -> None:
        """Write everything but `meta` to a folder."""
        self._engine.save(folder)

    @property
    def meta(self) -> dict[str, Any]:
        """What is to be kept beside the saved folder."""
        return {"present_us": self.present_us}

    @property
    def rows(self) -> int:
        """How many subscriptions and messages there are."""
        stats = self._engine.stats()
        return stats.subscriptions + stats.live_messages

    def close(self) -> None:
        """Stop the threads of the engine."""
        self._engine.close()

    def apply(self, events: pa.Table, ttl_s: float | None, schema: pa.Schema) -> Applied:
        """Let events happen.

        Parameters
        ----------
        events
            Rows from `nearcast.spark.workers.events.RouteEvents`, at least one, in any order.
        ttl_s
            How long messages live that do not say it.
        schema
            The schema of updates.
        """
        now_us = int(pc.max(events["_now"]).cast(pa.int64()).as_py())
        last = pc.max(events["_time"]).as_py()
        run = Happening(self._engine, self._clock, schema)
        changes = run.valid(GivenRows(events, CHANGE), read_changes)
        messages = run.valid(GivenRows(events, MESSAGE), partial(read_living_messages, ttl_s=ttl_s))
        time_us = np.concatenate([changes.time_us, messages.time_us])
        step = np.concatenate([changes.step, messages.step])
        when = np.maximum(np.minimum(time_us, now_us), self.present_us)
        row = np.concatenate([changes.row, messages.row])
        order = np.lexsort((row, time_us, step, when))
        own = np.concatenate([np.arange(len(changes.row)), np.arange(len(messages.row))])
        ordered = Ordered(changes, messages, step[order], own[order], when[order])
        for window in ordered.windows():
            run.window(window)
        if last is not None:
            self.present_us = max(self.present_us, min(int(last), now_us))
            run.advance(self.present_us)
        return run.applied(inserted=bool((step == INSERT).any()))
