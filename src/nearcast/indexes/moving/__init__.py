"""Indexes for subscriptions that move and messages that live for a while.

>>> from nearcast.indexes import moving
>>> "moving-scan" in moving.names()
True
"""

from nearcast.indexes.moving.contract import BEGINS, ENDS, Changes, MovingIndex, positions_among
from nearcast.indexes.moving.registry import DEFAULT, MovingBuilder, create, get, names

__all__ = [
    "BEGINS",
    "DEFAULT",
    "ENDS",
    "Changes",
    "MovingBuilder",
    "MovingIndex",
    "create",
    "get",
    "names",
    "positions_among",
]
