"""From columns back to the objects that users gave.

A subscription comes back with the same meaning, not letter by letter: a rectangle that was given as
a polygon as a rectangle, and keywords and expressions as tokens, if the tokenizer is the default
one. Others may find other tokens in their tokens, so that keywords and expressions are kept.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from nearcast.columns import NEVER, UNITS, WORLD
from nearcast.intake import SUBSCRIPTION_COLUMNS
from nearcast.model import (
    Circle,
    Conjunction,
    Point,
    Polygon,
    Rect,
    Subscription,
    time_from_us,
    time_us,
    to_text,
)
from nearcast.model.derived import is_derived, is_scope
from nearcast.model.rankings import of_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from nearcast.columns import Rankings, Shapes, Subscriptions
    from nearcast.engine.segment import State
    from nearcast.model import Ranking, Region, Time
    from nearcast.text import Vocabulary

__all__ = ["each_subscription", "subscription_of", "table_of_subscriptions"]

_ROWS_AT_A_TIME = 1024
_ALWAYS = ("id", "owner")

_Box = tuple[int, int, int, int]
_T = TypeVar("_T")


def each_subscription(state: State, now_us: int) -> Iterator[Subscription]:
    """Yield the subscriptions of a state that have not expired."""
    for segment in state.segments:
        visible = segment.alive(state.version) & segment.unexpired(now_us)
        tokens = segment.vocabulary.tokens()

        def texts(numbers: list[int], tokens: pa.Array = tokens) -> list[str]:
            found: list[str] = tokens.take(pa.array(numbers, pa.int64())).to_pylist()
            return found

        for first in range(0, len(segment), _ROWS_AT_A_TIME):
            chosen = np.flatnonzero(visible[first : first + _ROWS_AT_A_TIME]).tolist()
            if chosen:
                rows = _Rows(segment.subscriptions, first, first + _ROWS_AT_A_TIME, texts)
                yield from map(rows.subscription, chosen)


def subscription_of(subscriptions: Subscriptions, row: int, vocabulary: Vocabulary) -> Subscription:
    """Return the subscription of a row."""

    def texts(numbers: list[int]) -> list[str]:
        return [vocabulary.token(number) for number in numbers]

    return _Rows(subscriptions, row, row + 1, texts).subscription(0)


def table_of_subscriptions(subscriptions: Sequence[Subscription]) -> pa.Table:
    """Return subscriptions as a table that `nearcast.intake.read_subscriptions` reads.

    Ids are text unless all of them are integers. Columns that nobody uses are left out.
    """
    rows = [one.to_dict() for one in subscriptions]
    columns: dict[str, pa.Array] = {}
    for name in SUBSCRIPTION_COLUMNS:
        values = [row.get(name) for row in rows]
        if name == "id":
            whole = all(isinstance(value, int) for value in values)
            columns[name] = pa.array(values if whole else [*map(str, values)])
        elif name == "geometry":
            values = [None if value is None else json.dumps(value) for value in values]
        elif name == "expires_at":
            times = [one.expires_at for one in subscriptions]
            values = [None if time is None else time_us(name, time) for time in times]
            columns[name] = pa.array(values, pa.timestamp("us", "UTC"))
        columns.setdefault(name, pa.array(values))
    used = [
        name
        for name, column in columns.items()
        if name in _ALWAYS or column.null_count < len(column)
    ]
    return pa.table({name: columns[name] for name in used})


class _Rows:
    """Some rows of subscriptions as Python lists, from which objects are made one by one.

    The values were checked when they came in, so objects are made without checking them again.
    """

    def __init__(
        self,
        subscriptions: Subscriptions,
        first: int,
        last: int,
        texts: Callable[[list[int]], list[str]],
    ) -> None:
        last = min(last, len(subscriptions))
        clauses = subscriptions.clauses
        if last - first == 1:
            low, high = clauses.clause_range(first)
            self._clause_start = [0, high - low]
        else:
            row = clauses.row
            start = np.searchsorted(row, np.arange(first, last + 1, dtype=row.dtype))
            low, high = int(start[0]), int(start[-1])
            self._clause_start = (start - low).tolist()
        self._box: list[_Box] = [tuple(box) for box in clauses.box[low:high].tolist()]
        self._shape = clauses.shape[low:high].tolist()
        self._shapes = clauses.shapes
        self._positive = _lists(clauses.token_start[low : high + 1], clauses.token)
        self._negative = _lists(clauses.negative_start[low : high + 1], clauses.negative)
        numbers = sorted(
            {n for lists in (self._positive, self._negative) for ns in lists for n in ns}
        )
        self._text = dict(zip(numbers, texts(numbers), strict=True))
        self._scope = {n: text[1:] for n, text in self._text.items() if is_scope(text)}
        self._id = subscriptions.ids.slice(first, last).tolist()
        self._expires_us = subscriptions.expires_us[first:last].tolist()
        owner = subscriptions.owner
        self._owner = None if owner is None else owner.slice(first, last - first).to_pylist()
        typed = subscriptions.typed
        self._typed = None if typed is None else typed.slice(first, last - first).to_pylist()
        rankings = _rankings(subscriptions.rankings, first, last, texts)
        self._rankings, self._conditions, self._ranked_scope = rankings

    def subscription(self, number: int) -> Subscription:
        """Return one of the subscriptions."""
        first, last = self._clause_start[number], self._clause_start[number + 1]
        keywords, expression = self._words(first, last)
        ranking = self._rankings[number] if self._rankings else None
        if ranking is not None:
            expression = self._conditions[number]
        typed = None if self._typed is None else self._typed[number]
        if typed is not None:
            given, expression = json.loads(typed)
            keywords = None if given is None else tuple(given)
        return _made(
            Subscription,
            id=self._id[number],
            region=self._region(first, last, boolean=ranking is None),
            keywords=keywords,
            expression=expression,
            owner=None if self._owner is None else self._owner[number],
            expires_at=_time(self._expires_us[number]),
            ranking=ranking,
            scope=self._ranked_scope[number] if ranking is not None else self._scope_of(first),
        )

    def _words(self, first: int, last: int) -> tuple[tuple[str, ...] | None, str | None]:
        """Return keywords, or an expression, or neither.

        A conjunction has a clause for every box of the region; those of the first box are it.
        """
        box = self._box[first]
        wanted = [
            Conjunction(self._tokens(self._positive[c]), self._tokens(self._negative[c]))
            for c in range(first, last)
            if self._box[c] == box
        ]
        if len(wanted) > 1 or wanted[0].negative or any(map(is_derived, wanted[0].positive)):
            return None, to_text(sorted(wanted))
        return wanted[0].positive or None, None

    def _tokens(self, numbers: list[int]) -> tuple[str, ...]:
        """Return the texts of tokens, without that of a scope."""
        if self._scope:
            numbers = [number for number in numbers if number not in self._scope]
        return tuple(sorted([self._text[number] for number in numbers]))

    def _scope_of(self, clause: int) -> str | None:
        if not self._scope:
            return None
        return next((self._scope[n] for n in self._positive[clause] if n in self._scope), None)

    def _region(self, first: int, last: int, *, boolean: bool) -> Region:
        if self._shape[first] >= 0:
            return _shape(self._shapes, self._shape[first])
        boxes = list(dict.fromkeys(self._box[first:last]))
        if len(boxes) == 1:
            return _rect(*boxes[0], boolean=boolean)
        (west, south, _, north), (_, _, east, _) = sorted(boxes, reverse=True)
        pieces = {(west, south, WORLD[2], north), (WORLD[0], south, east, north)}
        if pieces == set(boxes):
            return _rect(west, south, east, north)
        return Polygon([[_corners(box)] for box in boxes])


def _rankings(
    rankings: Rankings | None, first: int, last: int, texts: Callable[[list[int]], list[str]]
) -> tuple[list[Ranking | None], list[str | None], list[str | None]]:
    """Return the rankings of some rows, their conditions and scopes; empty if all are boolean."""
    if rankings is None:
        return [], [], []
    columns = (rankings.kind, rankings.text_share, rankings.threshold, rankings.max_distance_cm)
    rows = zip(*(column[first:last].tolist() for column in columns), strict=True)
    found = [of_columns(*row) for row in rows]
    condition = rankings.condition
    if condition is None:
        return found, [None] * len(found), [None] * len(found)

    conditions: list[str | None] = []
    scopes: list[str | None] = []
    for row in range(first, last):
        wanted = condition.conjunction_lists(row)
        required = [sorted(texts(positive)) for positive, _ in wanted]
        scopes.append(next((text[1:] for text in required[0] if is_scope(text)), None))
        clauses = [
            Conjunction(
                tuple(text for text in own if not is_scope(text)), tuple(sorted(texts(negative)))
            )
            for own, (_, negative) in zip(required, wanted, strict=True)
        ]
        conditions.append(None if clauses == [Conjunction(())] else to_text(sorted(clauses)))
    return found, conditions, scopes


def _lists(start: NDArray[np.int64], token: NDArray[np.int32]) -> list[list[int]]:
    borders = start.tolist()
    base = borders[0]
    flat = token[base : borders[-1]].tolist()
    return [flat[a - base : b - base] for a, b in pairwise(borders)]


def _made(kind: type[_T], **fields: Any) -> _T:
    """Make a frozen object of fields that are known to be right."""
    made = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def _rect(west: int, south: int, east: int, north: int, *, boolean: bool = True) -> Region:
    """Return a box as a rectangle; one without extent is a point if the subscription is ranked."""
    if west == east and south == north and not boolean:
        return _made(Point, lon=west / UNITS, lat=south / UNITS)
    return _made(
        Rect, west=west / UNITS, south=south / UNITS, east=east / UNITS, north=north / UNITS
    )


def _corners(box: _Box) -> list[tuple[float, float]]:
    west, south, east, north = (bound / UNITS for bound in box)
    return [(west, south), (east, south), (east, north), (west, north), (west, south)]


def _shape(shapes: Shapes, shape: int) -> Region:
    rings = [
        shapes.point[shapes.point_start[ring] : shapes.point_start[ring + 1]]
        for ring in range(shapes.ring_start[shape], shapes.ring_start[shape + 1])
    ]
    radius_m = float(shapes.radius_m[shape])
    if radius_m >= 0:
        lon, lat = (rings[0][0] / UNITS).tolist()
        return Circle(lon, lat, radius_m)
    return Polygon.from_rings(rings)


def _time(us: int) -> Time | None:
    return None if us == NEVER else time_from_us(us)
