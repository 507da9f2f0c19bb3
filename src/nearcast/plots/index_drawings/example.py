"""The running examples of the pages about indexes, and the options that show a structure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nearcast.columns import UNITS, Clauses, Messages

__all__ = ["BOOLEAN", "MOVING", "MOVING_OPTIONS", "OPTIONS", "Scene"]


@dataclass(frozen=True)
class Scene:
    """Subscriptions and messages of an example.

    Parameters
    ----------
    words
        The words; the id of a token is its place here.
    subscriptions
        The tokens of each subscription.
    boxes
        West, south, east and north of each subscription, in degrees.
    messages
        Tokens and place of each message.
    extent
        West, east, south and north of the map.
    """

    words: tuple[str, ...]
    subscriptions: tuple[tuple[int, ...], ...]
    boxes: tuple[tuple[int, int, int, int], ...]
    messages: tuple[tuple[tuple[int, ...], tuple[int, int]], ...]
    extent: tuple[float, float, float, float]

    def clauses(self) -> Clauses:
        """Return the subscriptions as columns.

        Examples
        --------
        >>> len(BOOLEAN.clauses())
        8
        """
        tokens = [list(tokens) for tokens in self.subscriptions]
        return Clauses.of(tokens, np.array(self.boxes) * UNITS)

    def message_columns(self) -> Messages:
        """Return the messages as columns."""
        places = np.array([place for _, place in self.messages])
        return Messages.of([list(tokens) for tokens, _ in self.messages], places * UNITS)


_COFFEE, _CAKE, _JAZZ, _RAIN = range(4)

BOOLEAN = Scene(
    words=("coffee", "cake", "jazz", "rain"),
    subscriptions=(
        (_COFFEE,),
        (_COFFEE, _CAKE),
        (_COFFEE, _JAZZ),
        (_CAKE,),
        (_RAIN,),
        (_COFFEE, _CAKE, _JAZZ),
        (_COFFEE,),
        (_CAKE,),
    ),
    boxes=(
        (4, 4, 44, 30),
        (32, 18, 60, 46),
        (8, 10, 26, 24),
        (64, 6, 96, 24),
        (4, 36, 24, 48),
        (68, 20, 98, 47),
        (50, 4, 60, 14),
        (74, 28, 90, 40),
    ),
    messages=(
        ((_COFFEE, _CAKE), (40, 25)),
        ((_COFFEE, _JAZZ), (16, 16)),
        ((_COFFEE, _CAKE, _JAZZ), (84, 32)),
        ((_COFFEE,), (80, 44)),
    ),
    extent=(-2.0, 110.0, -2.0, 55.0),
)
"""The example of the boolean indexes."""

_TEA, _MILK, _TART = range(3)

MOVING = Scene(
    words=("tea", "milk", "cake"),
    subscriptions=((_TEA,), (_TEA, _MILK), (_TART,), (_MILK,)),
    boxes=((0, 0, 40, 40), (32, 32, 58, 58), (0, 50, 40, 90), (50, 0, 90, 40)),
    messages=(((_TEA, _MILK), (35, 35)), ((_TART,), (20, 70)), ((_TEA,), (80, 20))),
    extent=(-3.0, 110.0, -3.0, 110.0),
)
"""The example of the moving indexes."""

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


MOVING_OPTIONS: dict[str, dict[str, Any]] = {
    "twin-lists": {},
    "ap+-tree": {"leaf": 1, "fanout": 4, "tokens": 1.0},
    "ss-index": {"size": 3},
    "kk-index": {"size": 3},
    "iq+-tree": {"list_size": 1, "update_cost": 0.01, "depth": 4},
}
"""The same for moving indexes."""
