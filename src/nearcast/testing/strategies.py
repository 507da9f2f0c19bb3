"""Hypothesis strategies for small sets of clauses and messages with many equal borders.

>>> from nearcast.testing import strategies
>>> drawn = strategies.clauses()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from nearcast.columns import Clauses, Messages
from nearcast.testing.cases import LATITUDES, LONGITUDES, TOKENS

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["boxes", "clauses", "messages", "tokens"]


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
