"""Pairs of a subscription and a living message that match, and how they are found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import indexes
from nearcast.columns import BOOLEAN, distinct
from nearcast.segments import Part, has_derived, known_clauses, routing_clauses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.engine.moving.messages import LiveMessages
    from nearcast.segments import Scorer

__all__ = ["Pairs", "find_pairs"]


class Pairs(NamedTuple):
    """Subscriptions of a part, by position, and the numbers of messages that match them.

    ``position`` int64, ``number`` int32, ``score`` float64, NaN for boolean subscriptions.
    """

    position: NDArray[np.int64]
    number: NDArray[np.int32]
    score: NDArray[np.float64]

    @classmethod
    def none(cls) -> Pairs:
        """Return no pairs."""
        return cls.boolean(np.empty(0, np.int64), np.empty(0, np.int32))

    @classmethod
    def boolean(cls, position: NDArray[np.int64], number: NDArray[np.int32]) -> Pairs:
        """Return pairs without scores."""
        return cls(position, number, np.full(len(number), np.nan))

    @classmethod
    def concatenate(cls, parts: Sequence[Pairs]) -> Pairs:
        """Return the pairs of all parts."""
        return cls(*map(np.concatenate, zip(*parts, strict=True))) if parts else cls.none()

    def take(self, chosen: NDArray[Any]) -> Pairs:
        """Return some of the pairs: a mask, or which of them, in order."""
        return Pairs(self.position[chosen], self.number[chosen], self.score[chosen])

    def without(self, others: Pairs) -> Pairs:
        """Return the pairs that are not among others, whatever their scores."""
        return self.take(~np.isin(self._keys(), others._keys()))

    def _keys(self) -> NDArray[np.int64]:
        keys: NDArray[np.int64] = self.position << 32 | self.number
        return keys


def find_pairs(messages: LiveMessages, part: Part, scorer: Scorer) -> Pairs:
    """Return the living messages that match subscriptions, which need not be registered."""
    rankings = part.subscriptions.rankings
    ranked = rankings is not None and bool((rankings.kind != BOOLEAN).any())
    if ranked or has_derived(part.subscriptions.clauses, part.vocabulary).any():
        return _find_verified(messages, part, scorer)
    clauses = known_clauses(part, messages.vocabulary)
    return Pairs.boolean(*messages.index.find(clauses))


def _find_verified(messages: LiveMessages, part: Part, scorer: Scorer) -> Pairs:
    """Return what matches subscriptions of which some are ranked or have phrases.

    The moving index finds the messages that may match, and a small index decides.
    """
    content = scorer.content(*part)
    routed = routing_clauses(content, part.vocabulary)
    may_match = replace(part.subscriptions, clauses=routed, rankings=None)
    clauses = known_clauses(Part(may_match, part.vocabulary), messages.vocabulary)
    numbers = distinct(messages.index.find(clauses)[1])
    batch = messages.batch(numbers, np.zeros(len(numbers), np.int64))
    text_weight = scorer.text_weight(batch.words)
    index = indexes.create().build_small(content)
    matches = index.match(batch.number(part.vocabulary, text_weight=text_weight))
    found = Pairs.boolean(matches.subscription.astype(np.int64), numbers[matches.message])
    return found if matches.score is None else found._replace(score=matches.score)
