"""What an engine gives back: from the matches of all segments to ids, and how large it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.columns import Ids
from nearcast.text import gather_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import Messages
    from nearcast.engine.segment import State
    from nearcast.intake import Rejects

__all__ = ["Delivery", "Published", "Stats", "deliver", "matches_table"]


class Delivery(NamedTuple):
    """Matches: the row of the message (ascending) and the id of the subscription of each."""

    message: NDArray[np.int64]
    subscription: Ids
    examined: int


@dataclass(frozen=True, eq=False)
class Published:
    """What became of a table of messages.

    Attributes
    ----------
    matches
        A table with ``message_id``, ``subscription_id`` and ``score`` (null here), in the order of
        the messages.
    rejects
        The rows that are no messages.
    messages
        How many messages were published.
    examined
        How many candidates had to be verified.
    """

    matches: pa.Table
    rejects: Rejects
    messages: int
    examined: int


class Stats(NamedTuple):
    """The size of an engine.

    Attributes
    ----------
    subscriptions
        How many are registered and have not expired.
    segments
        How many rows each segment has, dead ones included.
    tombstones
        How many rows are dead or expired.
    tokens
        How many tokens are known.
    live_messages
        How many messages are kept for subscriptions that move.
    nbytes
        The bytes of all of this in memory.
    """

    subscriptions: int
    segments: tuple[int, ...]
    tombstones: int
    tokens: int
    live_messages: int
    nbytes: int


def deliver(state: State, messages: Messages, threads: int) -> Delivery:
    """Match messages against all segments of a state."""
    examined = 0
    rows: list[NDArray[np.int64]] = []
    ids: list[Ids] = []
    for segment in state.segments:
        matches = segment.match(messages, state.version, threads)
        examined += matches.examined
        if len(matches):
            rows.append(matches.message)
            ids.append(gather_ids(segment.columns.ids, matches.subscription))
    if not rows:
        return Delivery(np.empty(0, np.int64), Ids.of([]), examined)
    if len(rows) == 1:
        return Delivery(rows[0], ids[0], examined)
    row = np.concatenate(rows)
    order = np.argsort(row, kind="stable")
    return Delivery(row[order], Ids.concatenate(ids).take(order), examined)


def matches_table(message_ids: Ids, delivery: Delivery) -> pa.Table:
    """Return matches as a table."""
    columns = {
        "message_id": gather_ids(message_ids, delivery.message).to_arrow(),
        "subscription_id": delivery.subscription.to_arrow(),
        "score": pa.nulls(len(delivery.message), pa.float64()),
    }
    return pa.table(columns)
