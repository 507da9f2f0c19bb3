"""The weights of tokens: one table that is frozen for a while, so that scores are stable.

The weight of a token is ``ln(1 + N / df)``: N is the number of ranked subscriptions, df the
number of those that use the token. A token that is not in the table weighs as one of df 1. An
empty table gives every token the weight 1.

A table has its own vocabulary, or shares that of an engine and knows only its first tokens. So a
table gives the same weights whatever vocabulary numbers the tokens of a segment, and it outlives
vocabularies that are replaced.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from nearcast.columns import frozen, read_only
from nearcast.compiled.jit import kernel
from nearcast.errors import StorageError
from nearcast.text.byte_table import find_keys
from nearcast.text.keys import keys_of, string_buffers
from nearcast.text.scopes import SCOPE_BYTE
from nearcast.text.splitting import distinct_tokens
from nearcast.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from nearcast.text.byte_table import ByteTable, Keys
    from nearcast.text.column import Words

__all__ = ["Weights"]


class Weights:
    """A frozen table of the weights of tokens.

    Parameters
    ----------
    vocabulary
        Numbers the tokens. It may grow; the table knows the first ``len(frequency)`` tokens.
    frequency
        How many ranked subscriptions use each token; those with 0 are not in the table.
    subscriptions
        How many ranked subscriptions were counted.
    version
        The number of the table: 0 for the empty one of a new engine.

    Examples
    --------
    >>> from nearcast.text import Words
    >>> table = Weights(Vocabulary(["tea", "cake"]), [3, 1], subscriptions=3, version=1)
    >>> table.of(Vocabulary(["cake", "milk"])).round(3).tolist(), round(table.unknown, 3)
    ([1.386, 1.386], 1.386)
    >>> table.weigh(Words.of_texts(["Tea, tea and milk"]), by_rarity=True).round(3).tolist()
    [3.466]
    """

    def __init__(
        self, vocabulary: Vocabulary, frequency: Any, *, subscriptions: int, version: int
    ) -> None:
        self.vocabulary = vocabulary
        self.subscriptions = subscriptions
        self.version = version
        self.frequency = read_only(frequency, np.int64)
        self.unknown = float(np.log1p(subscriptions)) if subscriptions else 1.0
        known = np.maximum(self.frequency, 1)
        weight = np.log1p(subscriptions / known) if subscriptions else np.ones(len(known))
        self._weight = frozen(weight)
        self._of: weakref.WeakKeyDictionary[Vocabulary, NDArray[np.float64]]
        self._of = weakref.WeakKeyDictionary()

    @classmethod
    def empty(cls) -> Self:
        """Return the table of a new engine."""
        return cls(Vocabulary(), np.empty(0), subscriptions=0, version=0)

    @classmethod
    def combine(
        cls, counts: Sequence[tuple[Vocabulary, NDArray[Any], int]], *, version: int
    ) -> Self:
        """Return the table of counts that were made apart, each with its own vocabulary.

        A count is a vocabulary, the frequency of its tokens, and the number of subscriptions. The
        result does not depend on the order of the counts.
        """
        total: dict[str, int] = {}
        for vocabulary, frequency, _ in counts:
            tokens = vocabulary.tokens().to_pylist()
            for token, uses in zip(tokens, np.asarray(frequency).tolist(), strict=False):
                if uses:
                    total[token] = total.get(token, 0) + uses
        ordered = sorted(total)
        return cls(
            Vocabulary(ordered),
            np.array([total[token] for token in ordered], np.int64),
            subscriptions=sum(count for _, _, count in counts),
            version=version,
        )

    def __repr__(self) -> str:
        return f"Weights(version {self.version}, {self.subscriptions:,} subscriptions)"

    @property
    def nbytes(self) -> int:
        """The bytes of the table, without its vocabulary."""
        return int(self.frequency.nbytes + self._weight.nbytes)

    def of(self, vocabulary: Vocabulary) -> NDArray[np.float64]:
        """Return the weight of each token of a vocabulary; `unknown` is that of all later ones."""
        if vocabulary is self.vocabulary:
            return self._weight
        done = self._of.get(vocabulary)
        count = len(vocabulary)
        if done is None or len(done) < count:
            first = 0 if done is None else len(done)
            more = self._looked_up(vocabulary, first)
            done = frozen(more if done is None else np.concatenate([done, more]))
            self._of[vocabulary] = done
        return done

    def _looked_up(self, vocabulary: Vocabulary, first: int) -> NDArray[np.float64]:
        keys = keys_of(*string_buffers(vocabulary.tokens().slice(first)))
        number = self.vocabulary.ids_of_keys(keys)
        known = (number >= 0) & (number < len(self._weight))
        weight = np.full(len(number), self.unknown)
        weight[known] = self._weight[number[known]]
        return weight

    def weigh(self, words: Words, *, by_rarity: bool) -> NDArray[np.float64]:
        """Return the weight of all distinct words of each row, unknown ones included.

        Scopes are no words.

        Parameters
        ----------
        words
            The words of messages.
        by_rarity
            Whether words have the weights of the table; otherwise each weighs 1.
        """
        rarity = Rarity(self.frequency, self._weight, self.unknown)
        if not by_rarity:
            rarity = Rarity(self.frequency, frozen(np.ones(len(self._weight))), 1.0)
        total = np.empty(len(words))
        word_start = read_only(words.word_start, np.int64)
        weigh_words(self.vocabulary.snapshot(), words.keys, word_start, rarity, total)
        return frozen(total)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the table as named arrays, without its vocabulary."""
        numbers = np.array([self.subscriptions, self.version], np.int64)
        return {"frequency": self.frequency, "weight": self._weight, "numbers": numbers}

    @classmethod
    def from_arrays(cls, vocabulary: Vocabulary, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the table of `arrays` and the vocabulary that it had.

        Weights are taken as they are: another machine might compute other last bits.
        """
        frequency, weight, numbers = (arrays[name] for name in ("frequency", "weight", "numbers"))
        sound = (
            numbers.shape == (2,)
            and int(numbers[0]) >= 0
            and frequency.shape == weight.shape
            and frequency.ndim == 1
            and len(frequency) <= len(vocabulary)
            and bool((weight > 0).all())
        )
        if not sound:
            raise StorageError(
                f"weights: {frequency.shape} frequencies, {weight.shape} weights and "
                f"{len(vocabulary)} tokens do not belong together; store it again"
            )
        table = cls(vocabulary, frequency, subscriptions=int(numbers[0]), version=int(numbers[1]))
        table._weight = read_only(weight, np.float64)
        return table

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_arrays, (self.vocabulary, self.arrays())


class Rarity(NamedTuple):
    """The frequency and the weight of tokens, and the weight of words that are not in the table."""

    frequency: NDArray[np.int64]
    weight: NDArray[np.float64]
    unknown: float


@kernel
def same_word(words: Keys, i: int, j: int) -> bool:
    """Tell whether two words have the same bytes."""
    begin, other = words.byte_start[i], words.byte_start[j]
    length = words.byte_start[i + 1] - begin
    if words.tag[i] != words.tag[j] or words.byte_start[j + 1] - other != length:
        return False
    for b in range(length):
        if words.byte[begin + b] != words.byte[other + b]:
            return False
    return True


@kernel
def count_distinct(
    words: Keys, place: NDArray[np.int64], count: int, slot: NDArray[np.int64]
) -> int:
    """Count the distinct words among those at the first ``count`` places.

    ``slot`` int64[a power of two, more than ``count``] is scratch: a hash table of places.
    """
    size = 8
    while size < 2 * count:
        size *= 2
    slot[:size] = -1
    distinct = 0
    for i in range(count):
        at = np.int64(words.tag[place[i]]) & (size - 1)
        while slot[at] >= 0 and not same_word(words, slot[at], place[i]):
            at = (at + 1) & (size - 1)
        if slot[at] < 0:
            slot[at] = place[i]
            distinct += 1
    return distinct


@kernel
def weigh_words(
    table: ByteTable,
    words: Keys,
    word_start: NDArray[np.int64],
    rarity: Rarity,
    total: NDArray[np.float64],
) -> None:
    """Write the weight of the distinct words of each row to ``total`` float64[rows].

    Weights are added from the heaviest to the lightest, so that the sum does not depend on the
    numbers of the tokens. Words that are not in the table come first: none is heavier.
    """
    frequency, weight, unknown = rarity
    number = np.empty(len(words.tag), np.int32)
    find_keys(table, words, number)
    longest = 0
    for row in range(len(total)):
        longest = max(longest, word_start[row + 1] - word_start[row])
    slots = 8
    while slots < 2 * longest:
        slots *= 2
    place, slot = np.empty(longest, np.int64), np.empty(slots, np.int64)
    token_start, token = np.empty(2, np.int64), np.empty(longest, np.int32)
    ends = np.zeros(2, np.int64)
    for row in range(len(total)):
        known = strange = 0
        for i in range(word_start[row], word_start[row + 1]):
            if words.byte[words.byte_start[i]] == SCOPE_BYTE:
                continue
            if 0 <= number[i] < len(weight) and frequency[number[i]] > 0:
                token[known] = number[i]
                known += 1
            else:
                place[strange] = i
                strange += 1
        ends[1] = known
        known = distinct_tokens(token[:known], ends, token_start, token)
        each = np.empty(known, np.float64)
        for i in range(known):
            each[i] = -weight[token[i]]
        each.sort()
        weighed = unknown * count_distinct(words, place, strange, slot)
        for i in range(known):
            weighed -= each[i]
        total[row] = weighed
