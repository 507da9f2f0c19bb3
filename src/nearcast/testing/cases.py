"""Random and adversarial data for the checks: clauses and messages, drawn from a seed.

Coordinates come from a coarse grid that includes the poles and the antimeridian; some are moved by
one unit. Tokens come from a small Zipf vocabulary. Therefore many boxes share borders, many
messages lie on corners, and most messages match something.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from nearcast.columns import UNITS, WORLD, Clauses, Messages, Shapes
from nearcast.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["CASES", "Case", "draw"]

Random: TypeAlias = np.random.Generator

TOKENS = np.array([0, 1, 2, 3, 5, 8, 13, 70, 4_099, 32_771, 1_000_003, 2_000_000_000])
"""Token ids: small and large, some with equal low bits."""

LONGITUDES = np.array([-180, -179, -120, -60, -1, 0, 1, 59, 60, 120, 179, 180]) * UNITS
LATITUDES = np.array([-90, -60, -30, -1, 0, 1, 29, 30, 60, 90]) * UNITS


@dataclass(frozen=True)
class Case:
    """One set of subscriptions and the messages to match against it.

    Attributes
    ----------
    name
        One of `CASES`.
    clauses
        The clauses of the subscriptions.
    messages
        The messages.
    """

    name: str
    clauses: Clauses
    messages: Messages


def draw_tokens(rng: Random, count: int, minimum: int, maximum: int) -> list[list[int]]:
    weight = 1 / np.arange(1, len(TOKENS) + 1)
    drawn = rng.choice(TOKENS, (count, maximum), p=weight / weight.sum())
    length = rng.integers(minimum, maximum + 1, count)
    return [drawn[i, :n].tolist() for i, n in enumerate(length)]


def draw_boxes(rng: Random, count: int) -> NDArray[np.int64]:
    """Draw boxes between grid lines; a third of them have some sides moved by one unit."""
    lon = np.sort(rng.choice(LONGITUDES, (count, 2)), axis=1)
    lat = np.sort(rng.choice(LATITUDES, (count, 2)), axis=1)
    box = np.stack([lon[:, 0], lat[:, 0], lon[:, 1], lat[:, 1]], axis=1)
    moved = np.clip(box + rng.integers(-1, 2, box.shape), WORLD[:2] * 2, WORLD[2:] * 2)
    ordered = (moved[:, 0] <= moved[:, 2]) & (moved[:, 1] <= moved[:, 3])
    chosen = ordered & (rng.random(count) < 1 / 3)
    return np.where(chosen[:, None], moved, box)


def draw_points(rng: Random, count: int) -> NDArray[np.int64]:
    point = np.stack([rng.choice(LONGITUDES, count), rng.choice(LATITUDES, count)], axis=1)
    moved = np.clip(point + rng.integers(-1, 2, point.shape), WORLD[:2], WORLD[2:])
    return np.where((rng.random(count) < 1 / 3)[:, None], moved, point)


def _messages(rng: Random, count: int = 40) -> Messages:
    return Messages.of(draw_tokens(rng, count, 0, 9), draw_points(rng, count))


def lattice(rng: Random) -> Case:
    """Boxes and points on the same grid lines."""
    clauses = Clauses.of(draw_tokens(rng, 150, 1, 4), draw_boxes(rng, 150))
    return Case("lattice", clauses, _messages(rng))


def crowd(rng: Random) -> Case:
    """Many clauses with few tokens, small and large boxes: deep trees, full cells."""
    count = 2_000
    center = draw_points(rng, count)
    half_side = (10 ** rng.uniform(0, 8.5, (count, 2))).astype(np.int64)
    edges = np.concatenate([center - half_side, center + half_side], axis=1)
    box = np.clip(edges, WORLD[:2] * 2, WORLD[2:] * 2)
    return Case("crowd", Clauses.of(draw_tokens(rng, count, 0, 3), box), _messages(rng, 60))


def identical(rng: Random) -> Case:
    """One clause, 300 times."""
    clauses = Clauses.of(
        draw_tokens(rng, 1, 1, 3) * 300, np.repeat(draw_boxes(rng, 1), 300, axis=0)
    )
    return Case("identical", clauses, _messages(rng))


def no_tokens(rng: Random) -> Case:
    """Clauses without tokens, and messages with and without tokens."""
    clauses = Clauses.of([[]] * 100, draw_boxes(rng, 100))
    messages = Messages.of([[], [1], [7, 9]] * 10, draw_points(rng, 30))
    return Case("no_tokens", clauses, messages)


def zero_area(rng: Random) -> Case:
    """Regions without area (points and lines), and messages exactly on them."""
    point = draw_points(rng, 200)
    box = np.concatenate([point, point], axis=1)
    box[::3, 2] = WORLD[2]
    clauses = Clauses.of(draw_tokens(rng, 200, 0, 2), box)
    messages = Messages.of(draw_tokens(rng, 60, 0, 9), point[:60])
    return Case("zero_area", clauses, messages)


def world(rng: Random) -> Case:
    """Boxes of the whole world, and boxes as small as a street."""
    box = np.tile(np.array(WORLD), (120, 1))
    small = rng.random(120) < 0.5
    corner = draw_points(rng, 120)[small]
    box[small] = np.concatenate([corner, np.minimum(corner + 900, WORLD[2:])], axis=1)
    return Case("world", Clauses.of(draw_tokens(rng, 120, 0, 3), box), _messages(rng))


def ranges(rng: Random) -> Case:
    """Messages with boxes, from a line to the whole world."""
    clauses = crowd(rng).clauses
    box = draw_boxes(rng, 40)
    box[0] = WORLD
    return Case("ranges", clauses, Messages.of(draw_tokens(rng, 40, 0, 9), box))


def antimeridian(rng: Random) -> Case:
    """Messages that cross the antimeridian, or lie on it."""
    clauses = Clauses.of(draw_tokens(rng, 300, 0, 3), draw_boxes(rng, 300))
    box = draw_boxes(rng, 40)
    crossing = box[:, [2, 1, 0, 3]]
    crossing[:5, [0, 2]] = WORLD[2], WORLD[0]
    return Case("antimeridian", clauses, Messages.of(draw_tokens(rng, 40, 0, 9), crossing))


def long_messages(rng: Random) -> Case:
    """Messages of a thousand tokens, and clauses of many."""
    drawn = rng.integers(0, 1_500, (250, 12))
    tokens = [drawn[i, : 1 + i % 12].tolist() for i in range(250)]
    tokens += draw_tokens(rng, 250, 1, 5)
    clauses = Clauses.of(tokens, draw_boxes(rng, 500))
    texts = [rng.choice(1_500, 1_000, replace=False).tolist() + TOKENS.tolist() for _ in range(6)]
    return Case("long_messages", clauses, Messages.of(texts, draw_points(rng, 6)))


def unknown_tokens(rng: Random) -> Case:
    """Messages whose tokens no clause has, and clauses whose tokens no message has."""
    clauses = Clauses.of([[int(t) + 1_000_000] for t in range(50)], draw_boxes(rng, 50))
    messages = Messages.of([[t] for t in range(1_000_020, 1_000_080)], draw_points(rng, 60))
    return Case("unknown_tokens", clauses, messages)


def negatives(rng: Random) -> Case:
    """Clauses with forbidden tokens."""
    clauses = Clauses.of(
        draw_tokens(rng, 200, 0, 3), draw_boxes(rng, 200), negatives=draw_tokens(rng, 200, 0, 2)
    )
    return Case("negatives", clauses, _messages(rng))


def alternatives(rng: Random) -> Case:
    """Subscriptions of several clauses with overlapping boxes."""
    row = np.sort(rng.integers(0, 60, 240))
    row = np.unique(row, return_inverse=True)[1]
    clauses = Clauses.of(
        draw_tokens(rng, 240, 0, 2),
        draw_boxes(rng, 240),
        row=row,
        negatives=draw_tokens(rng, 240, 0, 1),
    )
    box = draw_boxes(rng, 40)
    return Case("alternatives", clauses, Messages.of(draw_tokens(rng, 40, 0, 9), box))


def circles(rng: Random) -> Case:
    """Circles whose borders pass through grid points; messages are points and boxes."""
    count = 120
    center = draw_points(rng, count)
    radius_m = rng.choice([0.0, 1.0, 111_195.0797, 6_671_704.0, 15_000_000.0, 20_015_114.0], count)
    shapes = Shapes(radius_m, np.arange(count + 1), np.arange(count + 1), center.astype(np.int32))
    return _case_with_shapes("circles", rng, shapes, np.tile(np.array(WORLD), (count, 1)))


def polygons(rng: Random) -> Case:
    """Triangles and rectangles on the grid, some with holes."""
    rings: list[NDArray[np.int64]] = []
    ring_start = [0]
    for _ in range(120):
        box = draw_boxes(rng, 1)[0]
        rings.append(_ring(box, triangle=bool(rng.random() < 0.5)))
        inner = (box[:2] + (box[2:] - box[:2]) // 3, box[2:] - (box[2:] - box[:2]) // 3)
        if rng.random() < 0.5:
            rings.append(_ring(np.concatenate(inner), triangle=False))
        ring_start.append(len(rings))
    point_start = np.cumsum([0, *(len(r) for r in rings)])
    point = np.concatenate(rings).astype(np.int32)
    shapes = Shapes(np.full(120, -1.0), np.array(ring_start), point_start, point)
    bounds = [
        np.concatenate([part.min(axis=0), part.max(axis=0)])
        for part in np.split(point, point_start[ring_start[1:-1]])
    ]
    return _case_with_shapes("polygons", rng, shapes, np.array(bounds))


def _ring(box: NDArray[np.int64], *, triangle: bool) -> NDArray[np.int64]:
    west, south, east, north = box.tolist()
    corners = [(west, south), (east, south), (east, north), (west, north), (west, south)]
    if triangle:
        del corners[2]
    return np.array(corners)


def _case_with_shapes(name: str, rng: Random, shapes: Shapes, box: NDArray[Any]) -> Case:
    clauses = Clauses.of(
        draw_tokens(rng, len(shapes), 0, 1), box, shape=np.arange(len(shapes)), shapes=shapes
    )
    points, ranges = draw_points(rng, 30), draw_boxes(rng, 30)
    message_box = np.concatenate([np.concatenate([points, points], axis=1), ranges])
    return Case(name, clauses, Messages.of(draw_tokens(rng, 60, 0, 9), message_box))


CASES: dict[str, Callable[[Random], Case]] = {
    make.__name__: make
    for make in (
        lattice,
        crowd,
        identical,
        no_tokens,
        zero_area,
        world,
        ranges,
        antimeridian,
        long_messages,
        unknown_tokens,
        negatives,
        alternatives,
        circles,
        polygons,
    )
}
"""The cases by name. Each is a function of a random generator."""


def draw(name: str, seed: int = 0) -> Case:
    """Return a case, drawn from a seed.

    Parameters
    ----------
    name
        One of `CASES`.
    seed
        Another seed gives other data.

    Raises
    ------
    UnknownName
        When there is no such case.

    Examples
    --------
    >>> len(draw("lattice", seed=1).clauses)
    150
    """
    if name not in CASES:
        raise UnknownName("case", name, CASES)
    return CASES[name](np.random.default_rng(seed))
