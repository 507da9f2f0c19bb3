"""Public checks for indexes: compare an index of your own with the exhaustive scan.

`check_index` runs all `CHECKS` on an index, given by name or as a `Builder`, and `RANKED_CHECKS` if
it takes ranked subscriptions; `check_moving_index` runs `MOVING_CHECKS` on an index for what moves.
A failed check raises `AssertionError` with the first difference. `nearcast.testing.cases` and
`nearcast.testing.ranked_cases` draw the data. Coordinates come from a coarse grid, so that equal
and touching borders are common.
`nearcast.testing.strategies` has Hypothesis strategies for such data (needs ``hypothesis``).

>>> from nearcast.testing import check_index
>>> check_index("scan", rounds=1)
"""

from nearcast.testing.cases import CASES, Case, draw
from nearcast.testing.checks import CHECKS, check_index
from nearcast.testing.moving_checks import MOVING_CHECKS, check_moving_index
from nearcast.testing.ranked_cases import RANKED_CASES, RankedCase, draw_ranked
from nearcast.testing.ranked_checks import RANKED_CHECKS

__all__ = [
    "CASES",
    "CHECKS",
    "MOVING_CHECKS",
    "RANKED_CASES",
    "RANKED_CHECKS",
    "Case",
    "RankedCase",
    "check_index",
    "check_moving_index",
    "draw",
    "draw_ranked",
]
