"""How an index found the subscriptions of one message: what it looked up, opened and compared.

Only for people who want to see it: an index that can tell (`Index.trace`) walks over its arrays
once more, in plain Python. Matching itself notes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TracedBox", "TracedNode"]


class TracedBox(NamedTuple):
    """A box that was compared with the message.

    Attributes
    ----------
    box
        West, south, east and north, in units of 1e-7 degree. That of a clause is exact; those above
        may be larger than what they contain, by what an index loses when it rounds.
    level
        0 for the box of a clause, 1 for that of a block of clauses, 2 for a block of blocks, ...
    opened
        Whether it overlaps the message, so that what is inside was looked at as well.
    """

    box: tuple[int, int, int, int]
    level: int
    opened: bool


class TracedNode(NamedTuple):
    """A list of clauses that the message led to.

    Attributes
    ----------
    tokens
        The tokens on the way to it; all of them occur in the message and in its clauses.
    clauses
        How many clauses the list has.
    boxes
        The boxes that were compared, those of a block before those of the blocks below.
    examined
        How many clauses were compared.
    found
        The clauses whose tokens all occur in the message, and whose boxes overlap it.
    """

    tokens: tuple[int, ...]
    clauses: int
    boxes: tuple[TracedBox, ...]
    examined: int
    found: tuple[int, ...]
