"""Hypothesis strategies for small sets of subscriptions and messages with many equal borders.

>>> from nearcast.testing import strategies
>>> drawn = strategies.clauses()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.extras import require

require("testing", "nearcast.testing.strategies")

from hypothesis import strategies as st

from nearcast.columns import Clauses, Messages, Ranked, Scoring
from nearcast.testing.cases import LATITUDES, LONGITUDES, TOKENS
from nearcast.testing.ranked_cases import RankedCase

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["boxes", "clauses", "messages", "ranked", "tokens"]


def tokens(max_size: int = 4) -> SearchStrategy[list[int]]:
    """Draw up to ``max_size`` token ids from a small vocabulary."""
    return st.lists(st.sampled_from(TOKENS.tolist()), max_size=max_size, unique=True)


def boxes(*, crossing: bool = False) -> SearchStrategy[list[int]]:
    """Draw boxes between grid lines; with ``crossing``, some cross the antimeridian."""

    def order(sides: tuple[int, int, int, int]) -> list[int]:
        west, south, east, north = sides
        if west > east and not crossing:
            west, east = east, west
        return [west, min(south, north), east, max(south, north)]

    lon, lat = st.sampled_from(LONGITUDES.tolist()), st.sampled_from(LATITUDES.tolist())
    return st.tuples(lon, lat, lon, lat).map(order)


@st.composite
def clauses(draw: Any, max_size: int = 30) -> Clauses:
    """Draw up to ``max_size`` clauses; some share a subscription, some have forbidden tokens."""
    rows = draw(st.lists(st.tuples(tokens(), boxes(), tokens(1), st.booleans()), max_size=max_size))
    row, number = [], -1
    for position, (*_, same) in enumerate(rows):
        number += not (same and position)
        row.append(number)
    return Clauses.of(
        [r[0] for r in rows], [r[1] for r in rows], negatives=[r[2] for r in rows], row=row
    )


@st.composite
def messages(draw: Any, max_size: int = 10) -> Messages:
    """Draw up to ``max_size`` messages: points, and boxes that may cross the antimeridian."""
    rows = draw(
        st.lists(st.tuples(tokens(9), boxes(crossing=True), st.booleans()), max_size=max_size)
    )
    place = [[*box[:2], *box[:2]] if is_point else box for _, box, is_point in rows]
    return Messages.of([r[0] for r in rows], place)


shares = st.sampled_from([0.0, 1.0, 0.5, 1e-9, 1 - 1e-9]) | st.integers(0, 10**9).map(
    lambda units: units / 10**9
)
"""Text shares and thresholds: the edges, and any number of nine decimals."""

_distances = st.sampled_from([0.01, 1.0, 111_195.0797, 20_015_114.0, 42_949_672.95])
_weights = st.lists(st.sampled_from([1.0, 0.5, 2.0, 7.5, 1e-3, 20.0]), min_size=14, max_size=14)


@st.composite
def ranked(draw: Any, kind: str, scoring: Scoring, max_size: int = 20) -> RankedCase:
    """Draw ranked subscriptions of a kind and messages: any shares, thresholds, weights, places.

    Half of the places of proximity subscriptions are a few units from a message.
    """
    sent = draw(messages(max_size=6))
    weight, unknown = draw(_weights), draw(st.sampled_from([1.0, 8.0]))
    one = st.tuples(tokens(), boxes(), shares, shares, _distances, st.integers(-1, 9))
    rows = draw(st.lists(one, min_size=1, max_size=max_size))
    place = [box if kind == "overlap" else box[:2] for _, box, *_ in rows]
    for row, (*_, offset) in enumerate(rows):
        if kind == "proximity" and offset >= 0 and len(sent):
            lon, lat = sent.box[row % len(sent), :2].tolist()
            place[row] = [lon, min(lat + offset, int(LATITUDES[-1]))]
    drawn = Ranked.of(
        [row[0] for row in rows],
        place,
        kind=kind,
        p=[row[2] for row in rows],
        q=[row[3] for row in rows],
        max_distance_m=[row[4] for row in rows] if kind == "proximity" else 0.0,
        weight=weight,
        unknown_weight=unknown,
        scoring=scoring,
    )
    return RankedCase("drawn", drawn, drawn.weigh(sent))
