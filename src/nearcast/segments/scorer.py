"""What the scores of ranked subscriptions depend on: one table of weights, and how to compare."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import BOOLEAN, NO_WEIGHTS, Ranked, Scoring
from nearcast.text import Weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.columns import Clauses, Subscriptions
    from nearcast.segments.parts import Part
    from nearcast.text import Vocabulary, Words

__all__ = ["Scorer", "count_tokens"]


@dataclass(frozen=True, eq=False)
class Scorer:
    """The frozen table of weights, and the similarity and distance, of a set of subscriptions.

    An engine has one, and so has a version on Spark. It is replaced as a whole. One that is
    ``fixed`` is not replaced because of what is written: weights are counted again only when
    somebody asks for it, and the next one is fixed too.
    """

    weights: Weights
    scoring: Scoring
    fixed: bool = field(default=False, kw_only=True)

    @classmethod
    def new(cls, scoring: Scoring | None = None) -> Scorer:
        """Return a scorer with an empty table of weights."""
        return cls(Weights.empty(), scoring or Scoring())

    @classmethod
    def counted(cls, part: Part, scoring: Scoring | None = None) -> Scorer:
        """Return a scorer whose table was counted over the ranked subscriptions of a part."""
        return cls.new(scoring).recounted([part], part.vocabulary)

    def recounted(self, parts: Sequence[Part], vocabulary: Vocabulary) -> Scorer:
        """Return a scorer of the next version, its table counted over all parts together.

        Tokens of the parts are added to the vocabulary, which becomes that of the table. If all
        counts are what they were, this scorer is returned.
        """
        frequency, count = np.zeros(len(vocabulary), np.int64), 0
        for part in parts:
            own, rows = count_tokens(part)
            number: NDArray[Any] = np.arange(len(own))
            if part.vocabulary is not vocabulary:
                used = np.flatnonzero(own)
                tokens = [part.vocabulary.token(token) for token in used.tolist()]
                own, number = own[used], vocabulary.add(tokens)
            frequency = np.pad(frequency, (0, max(0, len(vocabulary) - len(frequency))))
            np.add.at(frequency, number, own)
            count += rows
        if self._was_counted(vocabulary, frequency, count):
            return self
        weights = Weights(
            vocabulary, frequency, subscriptions=count, version=self.weights.version + 1
        )
        return Scorer(weights, self.scoring, fixed=self.fixed)

    def _was_counted(
        self, vocabulary: Vocabulary, frequency: NDArray[np.int64], count: int
    ) -> bool:
        before = self.weights
        if count != before.subscriptions:
            return False
        used, known = np.flatnonzero(frequency), np.flatnonzero(before.frequency)
        return count == 0 or (
            before.vocabulary is vocabulary
            and np.array_equal(used, known)
            and np.array_equal(frequency[used], before.frequency[used])
        )

    def content(self, subscriptions: Subscriptions, vocabulary: Vocabulary) -> Clauses | Ranked:
        """Return what an index over subscriptions is built over."""
        if subscriptions.rankings is None:
            return subscriptions.clauses
        return Ranked(
            clauses=subscriptions.clauses,
            rankings=subscriptions.rankings,
            weight=self.weights.of(vocabulary),
            unknown_weight=self.weights.unknown,
            scoring=self.scoring,
        )

    def text_weight(self, words: Words) -> NDArray[np.float64]:
        """Return the weights of the texts of messages, if the similarity needs them."""
        if not self.scoring.needs_message_weight:
            return NO_WEIGHTS
        return self.weights.weigh(words, by_rarity=self.scoring.weighs)


def count_tokens(part: Part) -> tuple[NDArray[np.int64], int]:
    """Return how many ranked subscriptions of a part use each token, and how many there are."""
    subscriptions, vocabulary = part
    rankings, clauses = subscriptions.rankings, subscriptions.clauses
    if rankings is None:
        return np.zeros(0, np.int64), 0
    ranked = rankings.kind != BOOLEAN
    first = np.diff(clauses.row, prepend=-1) != 0
    counted = np.repeat(first & ranked[clauses.row], np.diff(clauses.token_start))
    frequency = np.bincount(clauses.token[counted], minlength=len(vocabulary))
    return frequency, int(np.count_nonzero(ranked))
