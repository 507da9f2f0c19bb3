"""Subscriptions of several kinds behind one index: one for each kind, and which rows it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import BOOLEAN, KINDS, Matches, Ranked, read_only
from nearcast.compiled.jit import kernel
from nearcast.compiled.scoring import ScoredOutput
from nearcast.indexes.contract import Index
from nearcast.storage import prefixed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.columns import Messages
    from nearcast.indexes.builder import Builder

__all__ = ["Mixed", "MixedPart"]

_NO_SCORES = read_only(np.empty(0), np.float64)


@kernel
def put_matches(
    found: ScoredOutput,
    row_of: NDArray[np.int32],
    place: NDArray[np.int64],
    row: NDArray[np.int32],
    score: NDArray[np.float64],
) -> None:
    """Copy the matches of one part to their places among those of all parts.

    ``place`` int64[messages] says where the next match of each message goes, and moves on. Without
    scores (boolean matches), NaN is written.
    """
    for message in range(len(place)):
        at = place[message]
        for i in range(found.start[message], found.start[message + 1]):
            row[at] = row_of[found.row[i]]
            score[at] = found.score[i] if len(found.score) > 0 else np.nan
            at += 1
        place[message] = at


@dataclass(frozen=True, eq=False)
class MixedPart:
    """The index of one kind of subscriptions, and which rows of the whole they are."""

    kind: str
    row: NDArray[np.int32]
    index: Index


class Mixed(Index):
    """Subscriptions of several kinds: an index for each kind, and which rows are in it."""

    name = "mixed"
    summary = "one index for each kind of subscription"
    kinds = KINDS

    def __init__(self, builder: Builder, content: Ranked, parts: list[MixedPart]) -> None:
        self.name = builder.index.name  # type: ignore[misc]
        self.options = builder.options
        self.clauses = content.clauses
        self._builder = builder
        self._content = content
        self._parts = parts

    @property
    def content(self) -> Ranked:
        """All subscriptions."""
        return self._content

    @classmethod
    def build(cls, content: Any, options: Any) -> Self:
        """Refuse: only a builder knows which index each kind gets."""
        raise TypeError("a mixed index is made by Builder.build")

    @classmethod
    def build_small(cls, content: Any) -> Index:
        """Refuse: only a builder knows which index each kind gets."""
        raise TypeError("a mixed index is made by Builder.build_small")

    @classmethod
    def from_arrays(cls, content: Any, options: Any, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Refuse: only a builder knows which index each kind gets."""
        raise TypeError("a mixed index is made by Builder.restore")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._builder, self._content, dict(self.arrays()))

    def match(self, messages: Messages, *, threads: int = 1) -> Matches:
        """Return the subscriptions of all kinds that match each message."""
        found = [part.index.match(messages, threads=threads) for part in self._parts]
        start = np.sum([matches.start for matches in found], axis=0)
        row, score = np.empty(start[-1], np.int32), np.empty(start[-1])
        place = start[:-1].copy()
        for part, matches in zip(self._parts, found, strict=True):
            scores = _NO_SCORES if matches.score is None else matches.score
            own = ScoredOutput(
                read_only(matches.start, np.int64),
                read_only(matches.subscription, np.int32),
                read_only(scores, np.float64),
            )
            put_matches(own, part.row, place, row, score)
        examined, visited = sum(m.examined for m in found), sum(m.visited for m in found)
        return Matches(start, row, examined, score, visited)

    @property
    def parts(self) -> list[MixedPart]:
        """The index of each kind, and which rows it has."""
        return self._parts

    @property
    def boolean_part(self) -> Index | None:
        """The index of the boolean subscriptions, if there are some."""
        return next((p.index for p in self._parts if p.kind == KINDS[BOOLEAN]), None)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of all parts."""
        named = [prefixed(part.kind, part.index.arrays()) for part in self._parts]
        return {name: array for arrays in named for name, array in arrays.items()}

    def check_structure(self) -> None:
        """Check the arrays of all parts."""
        for part in self._parts:
            part.index.check_structure()


def _restored(builder: Builder, content: Ranked, arrays: Mapping[str, NDArray[Any]]) -> Index:
    return builder.restore(content, arrays)
