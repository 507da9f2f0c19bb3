"""The net effect of a set of changes on each id.

The changes of an id are applied in order. A subscription consists of a condition (its keywords,
owner and expiry) and a place: an insert sets both, a move sets the place. The net effect tells
whether the id exists in the end, and which rows of the changes set its condition and its place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import BOOLEAN, KINDS, Regions, Subscriptions, place_conjunctions

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["OPERATIONS", "Effects", "Places", "net_effects", "with_places"]

OPERATIONS = ("insert", "delete", "move")
"""The operations; their numbers are their positions."""

_INSERT, _DELETE, _MOVE = range(3)
_EXISTS = "is registered already; delete it first, or move it"
_UNKNOWN = "is not registered"


class Places(NamedTuple):
    """The kinds of subscriptions, and for which kinds the place of a move is valid.

    Those that are ranked by distance have a point, boolean ones a region, others either.
    ``registered`` has the kind of each id, ``inserted`` that of each row; ``valid`` bool[kinds,
    rows] tells which rows have a valid place for a kind.
    """

    registered: NDArray[np.uint8]
    inserted: NDArray[np.uint8]
    valid: NDArray[np.bool_]

    @classmethod
    def only_regions(cls, ids: int, rows: int) -> Places:
        """Return that all subscriptions are boolean, and that every row has a region."""
        boolean = np.full(max(ids, rows), BOOLEAN, np.uint8)
        return cls(boolean[:ids], boolean[:rows], np.ones((len(KINDS), rows), np.bool_))


@dataclass(frozen=True, eq=False)
class Effects:
    """The net effect on each id, and the changes that could not be applied.

    ``exists`` tells which ids exist in the end. ``condition`` and ``place`` are rows of the
    changes, -1 if the subscription keeps its old one. ``changed`` tells which ids differ, ``kind``
    has their kinds. Of ``misplaced`` moves the place is invalid for the kind that is the value.
    """

    exists: NDArray[np.bool_]
    condition: NDArray[np.int64]
    place: NDArray[np.int64]
    changed: NDArray[np.bool_]
    kind: NDArray[np.uint8]
    rejected: dict[int, str]
    misplaced: dict[int, int]
    taken: dict[str, int]


def net_effects(
    number: NDArray[np.int32],
    operation: NDArray[np.int8],
    order: NDArray[np.int64],
    existed: NDArray[np.bool_],
    places: Places | None = None,
) -> Effects:
    """Apply changes in order.

    Parameters
    ----------
    number
        The number of each row's id.
    operation
        The operation of each row, by its position in `OPERATIONS`.
    order
        The rows in the order in which they are applied.
    existed
        Which ids exist before the changes.
    places
        The kinds of subscriptions, and which places are valid; by default all are boolean and
        valid.

    Examples
    --------
    >>> insert, delete, move = 0, 1, 2
    >>> effects = net_effects(
    ...     np.array([0, 0, 1, 2], np.int32), np.array([insert, move, delete, delete], np.int8),
    ...     np.arange(4), np.array([False, True, False]),
    ... )
    >>> effects.exists.tolist(), effects.condition.tolist(), effects.place.tolist()
    ([True, False, False], [0, -1, -1], [1, -1, -1])
    >>> effects.rejected
    {3: 'is not registered'}
    """
    exists = existed.tolist()
    given = places or Places.only_regions(len(exists), len(number))
    kind, inserted = given.registered.tolist(), given.inserted.tolist()
    valid: list[list[bool]] = given.valid.tolist()
    nowhere = {*np.flatnonzero(~given.valid.any(axis=0)).tolist()}
    misplaced: dict[int, int] = {}
    condition, place = [-1] * len(exists), [-1] * len(exists)
    rejected: dict[int, str] = {}
    taken = dict.fromkeys(OPERATIONS, 0)
    for row, one, what in zip(
        order.tolist(), number[order].tolist(), operation[order].tolist(), strict=True
    ):
        if what == _MOVE and row in nowhere:
            misplaced[row] = kind[one] if exists[one] else BOOLEAN
            continue
        if exists[one] == (what == _INSERT):
            rejected[row] = _EXISTS if exists[one] else _UNKNOWN
            continue
        if what == _MOVE and not valid[kind[one]][row]:
            misplaced[row] = kind[one]
            continue
        taken[OPERATIONS[what]] += 1
        exists[one] = what != _DELETE
        if what == _MOVE:
            place[one] = row
        else:
            condition[one] = place[one] = row if what == _INSERT else -1
            kind[one] = inserted[row] if what == _INSERT else BOOLEAN
    exists_now, new_place = np.array(exists, np.bool_), np.array(place, np.int64)
    changed = (exists_now != existed) | (exists_now & (new_place >= 0))
    return Effects(
        exists_now,
        np.array(condition, np.int64),
        new_place,
        changed,
        np.array(kind, np.uint8),
        rejected,
        misplaced,
        taken,
    )


def with_places(subscriptions: Subscriptions, places: Subscriptions) -> Subscriptions:
    """Return subscriptions with the places of others, row by row.

    The others have no keywords, only one clause for each box of their region.

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
