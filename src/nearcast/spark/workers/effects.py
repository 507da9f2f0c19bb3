"""What a set of changes comes to, id by id.

Changes of one id are taken in order. A subscription consists of what it wants and of its place:
an insert gives both, a move gives another place. At the end it is known for every id whether it is
there, and which rows of the changes gave its wants and its place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import Regions, Subscriptions, place_conjunctions

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["OPERATIONS", "Effects", "net_effects", "with_places"]

OPERATIONS = ("insert", "delete", "move")
"""What a change can be; their numbers are their positions."""

_INSERT, _DELETE, _MOVE = range(3)
_THERE = "is registered already; delete it first, or move it"
_UNKNOWN = "is not registered"


@dataclass(frozen=True, eq=False)
class Effects:
    """What became of every id, and which changes could not be taken.

    ``wants`` and ``place`` are rows of the changes, -1 where the subscription that was there before
    has kept its own. ``changed`` tells which ids are not as they were.
    """

    there: NDArray[np.bool_]
    wants: NDArray[np.int64]
    place: NDArray[np.int64]
    changed: NDArray[np.bool_]
    refused: dict[int, str]
    taken: dict[str, int]


def net_effects(
    number: NDArray[np.int32],
    operation: NDArray[np.int8],
    order: NDArray[np.int64],
    existed: NDArray[np.bool_],
) -> Effects:
    """Take changes in order.

    Parameters
    ----------
    number
        The number of the id of every row.
    operation
        What the row asks for, by its position in `OPERATIONS`.
    order
        The rows in the order in which they are taken.
    existed
        Which ids were there before.

    Examples
    --------
    >>> insert, delete, move = 0, 1, 2
    >>> effects = net_effects(
    ...     np.array([0, 0, 1, 2], np.int32), np.array([insert, move, delete, delete], np.int8),
    ...     np.arange(4), np.array([False, True, False]),
    ... )
    >>> effects.there.tolist(), effects.wants.tolist(), effects.place.tolist(), effects.refused
    ([True, False, False], [0, -1, -1], [1, -1, -1], {3: 'is not registered'})
    """
    there = existed.tolist()
    wants, place = [-1] * len(there), [-1] * len(there)
    refused: dict[int, str] = {}
    taken = dict.fromkeys(OPERATIONS, 0)
    for row, one, what in zip(
        order.tolist(), number[order].tolist(), operation[order].tolist(), strict=True
    ):
        if there[one] == (what == _INSERT):
            refused[row] = _THERE if there[one] else _UNKNOWN
            continue
        taken[OPERATIONS[what]] += 1
        there[one] = what != _DELETE
        if what == _MOVE:
            place[one] = row
        else:
            wants[one] = place[one] = row if what == _INSERT else -1
    is_there, new_place = np.array(there, np.bool_), np.array(place, np.int64)
    changed = (is_there != existed) | (is_there & (new_place >= 0))
    return Effects(is_there, np.array(wants, np.int64), new_place, changed, refused, taken)


def with_places(subscriptions: Subscriptions, places: Subscriptions) -> Subscriptions:
    """Return subscriptions with the places of others, row by row.

    The others ask for no words: they have one clause for each box of their region.

    Examples
    --------
    >>> from nearcast.intake import subscriptions_from
    >>> from nearcast.model import Rect, Subscription
    >>> from nearcast.text import Vocabulary
    >>> def one(place, **what):
    ...     return subscriptions_from([Subscription("a", place, **what)], Vocabulary())
    >>> old = one(Rect(0, 0, 1, 1), expression="tea OR milk")
    >>> moved = with_places(old, one(Rect(170, 0, -170, 1)))
    >>> len(moved.clauses), moved.clauses.token.tolist()
    (4, [0, 0, 1, 1])
    """
    other = places.clauses
    box_start = np.searchsorted(other.row, np.arange(len(places) + 1))
    regions = Regions(box_start, other.box, other.shape[box_start[:-1]], other.shapes)
    clauses = place_conjunctions(subscriptions.clauses.conjunctions(), regions)
    return replace(subscriptions, clauses=clauses)
