"""How much tests do: little in `make test`, much in `make test-all`.

Both forms have the same tests, but for those marked ``long`` and for the suites that
`tools/suites.py` marks so. What the short form does less of are
repetitions: examples that Hypothesis draws, kills, malformed rows.
"""

from __future__ import annotations

import os

__all__ = ["LONG", "examples", "repeated"]

LONG = "NEARCAST_LONG" in os.environ


def examples(most: int) -> int:
    """Return how many examples Hypothesis draws; all of them in the long form."""
    return most if LONG else min(most, max(10, most // 6))


def repeated(variable: str, short: int, long: int) -> int:
    """Return how often to repeat something, unless an environment variable says it."""
    return int(os.environ.get(variable, long if LONG else short))
