"""What an engine returns besides matches: what became of a table, and how large it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

    from nearcast.intake import Rejects

__all__ = ["Found", "Moved", "Published", "Removed", "Replaced", "Stats"]


@dataclass(frozen=True, eq=False)
class Published:
    """What became of a table of messages.

    Attributes
    ----------
    matches
        A table with ``message_id``, ``subscription_id`` and ``score`` (null for boolean ones), in
        the order of the messages; and ``owner`` if that was asked for.
    rejects
        The rows that were rejected.
    messages
        How many messages were published.
    examined
        How many candidates had to be verified.
    """

    matches: pa.Table
    rejects: Rejects
    messages: int
    examined: int


@dataclass(frozen=True, eq=False)
class Moved:
    """What became of a table of moves.

    Attributes
    ----------
    updates
        A table with ``time``, ``subscription_id``, ``message_id``, ``sign`` (+1 or -1) and
        ``score``: what began or ended, in the order of the moves.
    rejects
        The rows that were rejected.
    moved
        How many moves there were.
    """

    updates: pa.Table
    rejects: Rejects
    moved: int


@dataclass(frozen=True, eq=False)
class Replaced:
    """What became of a table of new definitions.

    Attributes
    ----------
    updates
        A table as that of `Moved`: what began or ended.
    rejects
        The rows that were rejected.
    replaced, added
        How many subscriptions were replaced, and how many are new.
    """

    updates: pa.Table
    rejects: Rejects
    replaced: int
    added: int


@dataclass(frozen=True, eq=False)
class Removed:
    """What became of a table of subscriptions to remove.

    Attributes
    ----------
    removed
        How many subscriptions were removed.
    rejects
        The rows that named none.
    """

    removed: int
    rejects: Rejects


@dataclass(frozen=True, eq=False)
class Found:
    """The subscriptions that a table named.

    Attributes
    ----------
    subscriptions
        A table with the columns of subscription files, in the order in which they were named.
    rejects
        The rows that named none.
    """

    subscriptions: pa.Table
    rejects: Rejects


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
    weights_version, weighed_subscriptions
        The version of the table of weights that scores depend on, and how many ranked subscriptions
        it was counted over.
    moving
        How many subscriptions have moved, and are in the moving index instead of a segment.
    live_messages
        How many messages are alive.
    pending
        How many updates wait for `advance`.
    nbytes
        The bytes of all of this in memory.
    indexes
        The index of each kind of subscriptions that is registered. It is not the one that was
        chosen if that does not take the kind: then it is the default one of the kind.
    """

    subscriptions: int
    segments: tuple[int, ...]
    tombstones: int
    tokens: int
    weights_version: int
    weighed_subscriptions: int
    moving: int
    live_messages: int
    pending: int
    nbytes: int
    indexes: dict[str, str]
