"""An index of your own: checked against the scan, then used by an engine.

Run it with ``python examples/own_index.py``, or compare it with the others from the folder
``examples``: ``nearcast bench compare --index own_index:WestToEast,trie-pyramid``.
"""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nearcast import Engine, Message, Rect, Subscription, indexes
from nearcast.columns import Clauses, Messages
from nearcast.indexes import BooleanIndex, Found
from nearcast.testing import check_index


@indexes.register
class WestToEast(BooleanIndex):
    """Clauses sorted by their western border: those that begin east of a message are skipped."""

    name = "west-to-east"
    summary = "clauses by their western border"
    order: NDArray[np.int32]

    @classmethod
    def build(cls, clauses: Clauses, options: Any) -> Self:
        """Sort the clauses."""
        order = np.argsort(clauses.box[:, 0], kind="stable").astype(np.int32)
        return cls.from_arrays(clauses, options, {"order": order})

    def find(self, messages: Messages, threads: int = 1) -> Found:
        """Return the clauses that have all their tokens in, and a box that overlaps, each message.

        The base class does the rest: forbidden tokens, exact shapes, the antimeridian, duplicates.
        """
        west = self.clauses.box[self.order, 0]
        found: list[list[int]] = []
        examined = 0
        for m in range(len(messages)):
            box = messages.box[m]
            candidates = self.order[: np.searchsorted(west, box[2], side="right")]
            examined += len(candidates)
            b = self.clauses.box[candidates]
            overlaps = (b[:, 2] >= box[0]) & (b[:, 1] <= box[3]) & (b[:, 3] >= box[1])
            tokens = messages.token[messages.token_start[m] : messages.token_start[m + 1]]
            found.append([c for c in candidates[overlaps].tolist() if self.asks_for(c, tokens)])
        start = np.cumsum([0, *map(len, found)])
        return Found(start, np.array([c for cs in found for c in cs], np.int32), examined)

    def asks_for(self, clause: int, tokens: NDArray[np.int32]) -> bool:
        """Return whether all tokens of a clause are among those of a message."""
        first, last = self.clauses.token_start[clause : clause + 2]
        return bool(np.isin(self.clauses.token[first:last], tokens).all())

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return what is saved besides the clauses."""
        return {"order": self.order}

    @classmethod
    def from_arrays(
        cls, clauses: Clauses, options: Any, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the index from what `arrays` gave."""
        index = cls(clauses, options)
        index.order = arrays["order"]
        return index

    def check_structure(self) -> None:
        """Accept: NumPy would notice a damaged order by itself."""


if __name__ == "__main__":
    check_index("west-to-east", rounds=1)
    print("agrees with the scan")
    engine = Engine("west-to-east")
    engine.subscribe([Subscription(i, Rect(i, 0, i + 2, 1), "tea") for i in range(170)])
    engine.settle()
    matches = engine.publish(Message("m1", (7, 0.5), "Hot tea"))
    print("matches:", sorted(match.subscription_id for match in matches))
