"""From columns back to what users say.

A subscription comes back with the same meaning, not letter by letter: keywords and expressions as
tokens, a rectangle that was given as a polygon as a rectangle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import NEVER, UNITS, WORLD
from nearcast.model import (
    Circle,
    Conjunction,
    Point,
    Polygon,
    Rect,
    Subscription,
    time_from_us,
    to_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from nearcast.columns import Clauses, Shapes, Subscriptions
    from nearcast.engine.segment import State
    from nearcast.model import Region, Time
    from nearcast.text import Vocabulary

__all__ = ["conjunctions_of", "each_subscription", "subscription_of"]

_Box = tuple[int, int, int, int]


def each_subscription(state: State, now_us: int, vocabulary: Vocabulary) -> Iterator[Subscription]:
    """Yield the subscriptions of a state that have not expired."""
    for segment in state.segments:
        visible = segment.alive(state.version) & segment.unexpired(now_us)
        for row in np.flatnonzero(visible).tolist():
            yield subscription_of(segment.columns, row, vocabulary)


def subscription_of(columns: Subscriptions, row: int, vocabulary: Vocabulary) -> Subscription:
    """Return the subscription of a row."""
    one = columns.take(np.array([row]))
    [identifier] = one.ids.tolist()
    keywords, expression = _wants(one.clauses, vocabulary)
    return Subscription(
        identifier,
        _region(one.clauses),
        keywords,
        expression,
        None if one.owner is None else one.owner[0].as_py(),
        _time(int(one.expires_us[0])),
    )


def conjunctions_of(clauses: Clauses) -> NDArray[np.int64]:
    """Return, of the clauses of one subscription, one of each conjunction.

    Each conjunction stands there once for every box of the region; those of the first box are it.
    """
    return np.flatnonzero((clauses.box == clauses.box[:1]).all(axis=1))


def _wants(clauses: Clauses, vocabulary: Vocabulary) -> tuple[list[str] | None, str | None]:
    """Return keywords, or an expression, or neither."""

    def tokens(start: NDArray[np.int64], token: NDArray[np.int32], clause: int) -> tuple[str, ...]:
        numbers = token[start[clause] : start[clause + 1]].tolist()
        return tuple(sorted(vocabulary.token(number) for number in numbers))

    wanted = [
        Conjunction(
            tokens(clauses.token_start, clauses.token, clause),
            tokens(clauses.negative_start, clauses.negative, clause),
        )
        for clause in conjunctions_of(clauses).tolist()
    ]
    if len(wanted) > 1 or wanted[0].negative:
        return None, to_text(sorted(wanted))
    return list(wanted[0].positive) or None, None


def _region(clauses: Clauses) -> Region:
    if clauses.shape[0] >= 0:
        return _shape(clauses.shapes, int(clauses.shape[0]))
    boxes: list[_Box] = list(dict.fromkeys(tuple(box) for box in clauses.box.tolist()))
    if len(boxes) == 1:
        return _rect(*boxes[0])
    (west, south, _, north), (_, _, east, _) = sorted(boxes, reverse=True)
    pieces = {(west, south, WORLD[2], north), (WORLD[0], south, east, north)}
    if pieces == set(boxes):
        return _rect(west, south, east, north)
    return Polygon([[_corners(box)] for box in boxes])


def _rect(west: int, south: int, east: int, north: int) -> Region:
    if west == east and south == north:
        return Point(west / UNITS, south / UNITS)
    return Rect(west / UNITS, south / UNITS, east / UNITS, north / UNITS)


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
