"""What the scores of ranked subscriptions depend on: one table of weights, and how to compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import BOOLEAN, NO_WEIGHTS, Ranked, Scoring
from nearcast.text import Weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import Clauses, Subscriptions
    from nearcast.segments.parts import Part
    from nearcast.text import Vocabulary, Words

__all__ = ["Scorer", "count_tokens"]


@dataclass(frozen=True, eq=False)
class Scorer:
    """The frozen table of weights, and the similarity and distance, of a set of subscriptions.

    An engine has one, and so has a version on Spark. It is replaced as a whole.
    """

    weights: Weights
    scoring: Scoring

    @classmethod
    def new(cls, scoring: Scoring | None = None) -> Scorer:
        """Return a scorer with an empty table of weights."""
        return cls(Weights.empty(), scoring or Scoring())

    @classmethod
    def counted(cls, part: Part, scoring: Scoring | None = None) -> Scorer:
        """Return a scorer whose table was counted over the ranked subscriptions of a part."""
        return cls.new(scoring).recounted(part)

    def recounted(self, part: Part) -> Scorer:
        """Return the scorer of the next version, its table counted over a part."""
        frequency, count = count_tokens(part)
        weights = Weights(
            part.vocabulary, frequency, subscriptions=count, version=self.weights.version + 1
        )
        return Scorer(weights, self.scoring)

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
