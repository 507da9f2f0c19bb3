"""The running example of the pages about boolean indexes, and the options that show a structure."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearcast.columns import UNITS, Clauses, Messages

__all__ = ["BOXES", "MESSAGES", "OPTIONS", "SUBSCRIPTIONS", "WORDS", "example_clauses"]

WORDS = ("coffee", "cake", "jazz", "rain")
"""The words; the id of a token is its place here."""

COFFEE, CAKE, JAZZ, RAIN = range(4)

SUBSCRIPTIONS: tuple[tuple[int, ...], ...] = (
    (COFFEE,),
    (COFFEE, CAKE),
    (COFFEE, JAZZ),
    (CAKE,),
    (RAIN,),
    (COFFEE, CAKE, JAZZ),
    (COFFEE,),
    (CAKE,),
)
"""The tokens of each subscription."""

BOXES = (
    (4, 4, 44, 30),
    (32, 18, 60, 46),
    (8, 10, 26, 24),
    (64, 6, 96, 24),
    (4, 36, 24, 48),
    (68, 20, 98, 47),
    (50, 4, 60, 14),
    (74, 28, 90, 40),
)
"""West, south, east and north of each subscription, in degrees."""

MESSAGES: tuple[tuple[tuple[int, ...], tuple[int, int]], ...] = (
    ((COFFEE, CAKE), (40, 25)),
    ((COFFEE, JAZZ), (16, 16)),
    ((COFFEE, CAKE, JAZZ), (84, 32)),
    ((COFFEE,), (80, 44)),
)
"""Tokens and place of each message."""

_SMALL_NODES = {"least": 2, "most": 3}

OPTIONS: dict[str, dict[str, Any]] = {
    "scan": {},
    "trie-pyramid": {"list_size": 2},
    "keyword-first": {},
    "spatial-first": _SMALL_NODES,
    "ir-tree": _SMALL_NODES,
    "rt-tree": _SMALL_NODES,
    "rt+-tree": _SMALL_NODES,
    "rt++-tree": _SMALL_NODES,
    "mbr-trie": {},
    "pt-quadtree": {"list_size": 2, "push": 0.0},
    "lfilter": {"list_size": 2, "push": 0.0},
    "ap-tree": {"leaf": 1, "fanout": 4, "tokens": 1.0},
    "iq-tree": {"list_size": 3, "update_cost": 0.1},
    "rq-tree": {"list_size": 2, "update_cost": 0.1},
    "trie-quadtree": {"list_size": 1, "child_size": 0, "depth": 3},
}
"""Options so small that eight subscriptions are split."""


def example_clauses() -> Clauses:
    """Return the subscriptions as columns.

    Examples
    --------
    >>> len(example_clauses())
    8
    """
    return Clauses.of([list(tokens) for tokens in SUBSCRIPTIONS], np.array(BOXES) * UNITS)


def example_messages() -> Messages:
    """Return the messages as columns."""
    places = np.array([place for _, place in MESSAGES])
    return Messages.of([list(tokens) for tokens, _ in MESSAGES], places * UNITS)
