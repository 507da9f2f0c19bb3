"""Random and adversarial data for ranked indexes, drawn from a seed.

As in `nearcast.testing.cases`, places come from a coarse grid with the poles and the antimeridian,
and tokens from a small vocabulary. Text shares and thresholds are often 0 or 1, or so chosen that
a score lies within 2e-9 of its threshold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import (
    SHARE_UNITS,
    WORLD,
    Clauses,
    Messages,
    Ranked,
    Rankings,
    Scoring,
)
from nearcast.errors import UnknownName
from nearcast.indexes.contract import NoOptions
from nearcast.indexes.ranked_scan import RankedScan
from nearcast.testing import cases
from nearcast.testing.cases import Random, draw_boxes, draw_points, draw_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["RANKED_CASES", "SCORINGS", "RankedCase", "draw_ranked"]

SCORINGS = (
    Scoring("containment", "geodesic"),
    Scoring("overlap", "planar"),
    Scoring("jaccard", "geodesic"),
    Scoring("dice", "planar"),
    Scoring("cosine", "geodesic"),
    Scoring("containment", "planar"),
)
"""Every similarity and every distance."""

_WEIGHT = np.concatenate([[3.0, 0.5, 1.0, 1.0, 2.5, 0.1, 4.0, 1.0], np.linspace(0.2, 5, 1492)])
_UNKNOWN = 6.0


@dataclass(frozen=True)
class RankedCase:
    """One set of ranked subscriptions and the messages to match against it.

    Attributes
    ----------
    name
        One of `RANKED_CASES`.
    ranked
        The subscriptions.
    messages
        The messages.
    """

    name: str
    ranked: Ranked
    messages: Messages


def _weights_of(messages: Messages, scoring: Scoring, unknown: Any) -> Messages:
    """Return messages with the weight of all their words: ``unknown`` ones have no token."""
    token = messages.token
    known = np.where(token < len(_WEIGHT), _WEIGHT[np.minimum(token, len(_WEIGHT) - 1)], _UNKNOWN)
    each = known if scoring.weighs else np.ones(len(token))
    start = messages.token_start
    total = [float(each[a:b].sum()) for a, b in pairwise(start.tolist())]
    missing = np.asarray(unknown) * (_UNKNOWN if scoring.weighs else 1.0)
    return replace(messages, text_weight=np.array(total) + missing)


def _messages(rng: Random, scoring: Scoring, place: Any, tokens: Any = None) -> Messages:
    drawn = draw_tokens(rng, len(place), 0, 9) if tokens is None else tokens
    messages = Messages.of(drawn, place)
    return _weights_of(messages, scoring, rng.integers(0, 3, len(messages)))


def _shares(rng: Random, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw text shares and thresholds: as in the papers, and at the edges."""
    p, q = rng.random(count).round(3), rng.uniform(0.3, 1, count).round(3)
    edges = np.array([0.0, 1.0, 0.5, 1e-9, 1 - 1e-9])
    p = np.where(rng.random(count) < 0.25, rng.choice(edges, count), p)
    q = np.where(rng.random(count) < 0.2, rng.choice(edges, count), q)
    return p, q


def _places(rng: Random, kind: str, count: int) -> NDArray[np.int64]:
    return draw_points(rng, count) if kind == "proximity" else draw_boxes(rng, count)


def _ranked(
    rng: Random, kind: str, scoring: Scoring, tokens: Any, place: Any, **more: Any
) -> Ranked:
    count = len(tokens)
    p, q = _shares(rng, count)
    reach_m = 10 ** rng.uniform(-2, 7.6, count)
    fixed = rng.choice([0.01, 111_195.0797, 6_671_704.0, 20_015_114.0, 42_949_672.95], count)
    given = {
        "p": p,
        "q": q,
        "max_distance_m": np.where(rng.random(count) < 0.5, reach_m, fixed),
        "weight": _WEIGHT,
        "unknown_weight": _UNKNOWN,
        **more,
    }
    if kind != "proximity":
        given["max_distance_m"] = 0.0
    return Ranked.of(tokens, place, kind=kind, scoring=scoring, **given)


def lattice(rng: Random, kind: str, scoring: Scoring) -> RankedCase:
    """Places and messages on the same grid lines."""
    ranked = _ranked(rng, kind, scoring, draw_tokens(rng, 120, 1, 4), _places(rng, kind, 120))
    return RankedCase("lattice", ranked, _messages(rng, scoring, draw_points(rng, 30)))


def near(rng: Random, kind: str, scoring: Scoring) -> RankedCase:
    """Places a few units to a few kilometers from the messages, also at the poles."""
    count = 150
    center = draw_points(rng, count)
    offset = np.trunc(rng.normal(size=(count, 2)) * 10 ** rng.uniform(0, 6, (count, 1)))
    place = np.clip(center + offset.astype(np.int64), WORLD[:2], WORLD[2:])
    if kind == "overlap":
        place = np.concatenate([np.minimum(center, place), np.maximum(center, place)], axis=1)
    distance = {"max_distance_m": 10 ** rng.uniform(-1, 5.5, count)} if kind == "proximity" else {}
    ranked = _ranked(rng, kind, scoring, draw_tokens(rng, count, 0, 5), place, **distance)
    return RankedCase("near", ranked, _messages(rng, scoring, center[:30]))


def crowd(rng: Random, kind: str, scoring: Scoring) -> RankedCase:
    """Many subscriptions with few tokens: full lists, deep trees."""
    count = 700
    place = _places(rng, kind, count)
    place = np.clip(place + rng.integers(-(10**7), 10**7, (count, 1)), *_limits(place.shape[1]))
    ranked = _ranked(rng, kind, scoring, draw_tokens(rng, count, 0, 4), place)
    return RankedCase("crowd", ranked, _messages(rng, scoring, draw_points(rng, 12)))


def _limits(width: int) -> tuple[Any, Any]:
    return WORLD[:2] * (width // 2), WORLD[2:] * (width // 2)


def ties(rng: Random, kind: str, scoring: Scoring) -> RankedCase:
    """Thresholds within 2e-9 of the score of a message."""
    case = lattice(rng, kind, scoring) if rng.random() < 0.3 else near(rng, kind, scoring)
    rankings, messages = case.ranked.rankings, case.messages
    scan = RankedScan.build(case.ranked, NoOptions())
    threshold = rankings.threshold.copy()
    for row in range(len(threshold)):
        score = scan.parts(messages, int(rng.integers(len(messages))), row).score
        units = round(score * SHARE_UNITS) + int(rng.integers(-1, 3))
        threshold[row] = min(max(units, 0), SHARE_UNITS)
    changed = replace(case.ranked, rankings=replace(rankings, threshold=threshold))
    return RankedCase("ties", changed, messages)


def last_unit(rng: Random, kind: str, scoring: Scoring) -> RankedCase:
    """Scores exactly one unit below the threshold, which match, and two, which do not."""
    point = draw_points(rng, 20)
    place = point if kind == "proximity" else np.concatenate([point, point], axis=1)
    ranked = _ranked(rng, kind, scoring, [[5]] * 20, place, p=[1e-9, 2e-9] * 10, q=[1.0, 1.0] * 10)
    return RankedCase("last_unit", ranked, _messages(rng, scoring, point, [[1]] * 20))


def identical(rng: Random, kind: str, scoring: Scoring) -> RankedCase:
    """One subscription, 200 times, with different shares and thresholds."""
    place = np.repeat(_places(rng, kind, 1), 200, axis=0)
    ranked = _ranked(rng, kind, scoring, draw_tokens(rng, 1, 1, 3) * 200, place)
    return RankedCase("identical", ranked, _messages(rng, scoring, draw_points(rng, 12)))


def no_keywords(rng: Random, kind: str, scoring: Scoring) -> RankedCase:
    """Subscriptions without keywords; messages with and without tokens."""
    tokens = [[], [1]] * 40
    ranked = _ranked(rng, kind, scoring, tokens, _places(rng, kind, 80))
    messages = _messages(rng, scoring, draw_points(rng, 30), [[], [1], [7, 9]] * 10)
    return RankedCase("no_keywords", ranked, messages)


def zero_area(rng: Random, kind: str, scoring: Scoring) -> RankedCase:
    """Regions and messages that are points and lines."""
    point = draw_points(rng, 120)
    line = np.concatenate([point, point], axis=1)
    line[::3, 2] = WORLD[2]
    place = point if kind == "proximity" else line
    ranked = _ranked(rng, kind, scoring, draw_tokens(rng, 120, 0, 2), place)
    return RankedCase("zero_area", ranked, _messages(rng, scoring, line[:30]))


def ranges(rng: Random, kind: str, scoring: Scoring) -> RankedCase:
    """Messages with boxes, from a line to the whole world."""
    ranked = _ranked(rng, kind, scoring, draw_tokens(rng, 150, 0, 4), _places(rng, kind, 150))
    box = draw_boxes(rng, 30)
    box[0] = WORLD
    return RankedCase("ranges", ranked, _messages(rng, scoring, box))


def antimeridian(rng: Random, kind: str, scoring: Scoring) -> RankedCase:
    """Messages and regions that cross the antimeridian, or lie on it."""
    count = 100
    place = _places(rng, kind, count)
    row = np.arange(count)
    tokens = draw_tokens(rng, count, 0, 4)
    if kind == "overlap":
        second = np.sort(rng.choice(count, 40, replace=False))
        row = np.sort(np.concatenate([row, second]))
        place, tokens = place[row], [tokens[r] for r in row]
        after = np.flatnonzero(row[1:] == row[:-1])
        place[after, 2], place[after + 1, 0] = WORLD[2], WORLD[0]
        place[after + 1, 1], place[after + 1, 3] = place[after, 1], place[after, 3]
        place[after, 0] = np.maximum(place[after, 0], place[after + 1, 2])
    p, q = _shares(rng, count)
    distance = 10 ** rng.uniform(3, 7.5, count) if kind == "proximity" else 0.0
    ranked = _ranked(rng, kind, scoring, tokens, place, row=row, p=p, q=q, max_distance_m=distance)
    crossing = draw_boxes(rng, 30)[:, [2, 1, 0, 3]]
    crossing[:5, [0, 2]] = WORLD[2], WORLD[0]
    return RankedCase("antimeridian", ranked, _messages(rng, scoring, crossing))


def long_messages(rng: Random, kind: str, scoring: Scoring) -> RankedCase:
    """Messages of a thousand tokens, and subscriptions of many."""
    drawn = rng.integers(0, 1_500, (120, 14))
    tokens = [drawn[i, : 1 + i % 14].tolist() for i in range(120)]
    ranked = _ranked(rng, kind, scoring, tokens, _places(rng, kind, 120))
    texts = [rng.choice(1_500, 1_000, replace=False).tolist() for _ in range(4)]
    texts += [drawn[i, : 5 + i].tolist() for i in range(9)]
    messages = _messages(rng, scoring, draw_points(rng, 13), texts)
    return RankedCase("long_messages", ranked, messages)


def unknown_tokens(rng: Random, kind: str, scoring: Scoring) -> RankedCase:
    """Tokens that have no weight in the table, and messages that share none."""
    tokens = [[int(t) + 1_000_000, 1] for t in range(60)]
    ranked = _ranked(rng, kind, scoring, tokens, _places(rng, kind, 60))
    texts = [[t, t + 1] for t in range(1_000_040, 1_000_070)]
    messages = _messages(rng, scoring, draw_points(rng, 30), texts)
    return RankedCase("unknown_tokens", ranked, messages)


def conditions(rng: Random, kind: str, scoring: Scoring) -> RankedCase:
    """Subscriptions that also ask for words that must, or must not, occur."""
    count = 120
    row = np.sort(np.concatenate([np.arange(count), rng.integers(0, count, 60)]))
    condition = Clauses.of(
        draw_tokens(rng, len(row), 0, 2),
        np.zeros((len(row), 4)),
        negatives=draw_tokens(rng, len(row), 0, 1),
        row=row,
    )
    ranked = _ranked(
        rng,
        kind,
        scoring,
        draw_tokens(rng, count, 0, 4),
        _places(rng, kind, count),
        condition=condition,
    )
    return RankedCase("conditions", ranked, _messages(rng, scoring, draw_points(rng, 30)))


def shapes(rng: Random, kind: str, scoring: Scoring) -> RankedCase:
    """Circles and polygons; for proximity, which has none, the same as `ranges`."""
    if kind == "proximity":
        return ranges(rng, kind, scoring)
    drawn = (cases.circles if rng.random() < 0.5 else cases.polygons)(rng)
    clauses = drawn.clauses
    p, q = _shares(rng, clauses.subscriptions)
    ranked = Ranked(
        clauses=clauses,
        rankings=Rankings.of(kind, clauses.subscriptions, p=p, q=q),
        weight=_WEIGHT,
        unknown_weight=_UNKNOWN,
        scoring=scoring,
    )
    messages = drawn.messages.take(np.arange(0, len(drawn.messages), 4))
    return RankedCase("shapes", ranked, _weights_of(messages, scoring, 0))


RANKED_CASES: dict[str, Callable[[Random, str, Scoring], RankedCase]] = {
    make.__name__: make
    for make in (
        lattice,
        near,
        crowd,
        ties,
        last_unit,
        identical,
        no_keywords,
        zero_area,
        ranges,
        antimeridian,
        long_messages,
        unknown_tokens,
        conditions,
        shapes,
    )
}
"""The cases by name. Each is a function of a random generator, a kind and a scoring."""


def draw_ranked(
    name: str, kind: str = "proximity", scoring: Scoring | None = None, seed: int = 0
) -> RankedCase:
    """Return a case with ranked subscriptions, drawn from a seed.

    Parameters
    ----------
    name
        One of `RANKED_CASES`.
    kind
        ``proximity`` or ``overlap``.
    scoring
        The similarity and the distance; the defaults of an engine if left out.
    seed
        Another seed gives other data.

    Raises
    ------
    UnknownName
        When there is no such case.

    Examples
    --------
    >>> len(draw_ranked("lattice", "overlap", seed=1).ranked)
    120
    """
    if name not in RANKED_CASES:
        raise UnknownName("case", name, RANKED_CASES)
    return RANKED_CASES[name](np.random.default_rng(seed), kind, scoring or SCORINGS[0])
