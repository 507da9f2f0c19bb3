"""Recordings: events that happen at their own times, whatever the clock on the wall shows.

``nearcast match --moves`` and streams of updates on Spark give recordings to an engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine.moving.updates import UPDATE_COLUMNS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.engine.published import Published

__all__ = ["TIME", "ReplayClock", "begun_updates"]

TIME = pa.timestamp("us", "UTC")
"""The type of the times of updates."""


class ReplayClock:
    """A clock that shows the time of what is replayed."""

    def __init__(self, now_us: int = 0) -> None:
        self.now_us = now_us

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now_us / 1_000_000


def begun_updates(
    published: Published, ids: pa.ChunkedArray, when_us: NDArray[np.int64]
) -> pa.Table:
    """Return the matches of messages as updates.

    Parameters
    ----------
    published
        What `Engine.publish_table` returned.
    ids, when_us
        The ids of the messages, each once, and when they were published.
    """
    matches = published.matches
    found = matches["message_id"].combine_chunks()
    place = pc.index_in(found, ids.combine_chunks().cast(found.type)).to_numpy()
    columns = [
        pa.array(when_us[place], TIME),
        matches["subscription_id"],
        found,
        pa.array(np.ones(len(found), np.int8)),
        matches["score"],
    ]
    return pa.table(columns, names=UPDATE_COLUMNS)
