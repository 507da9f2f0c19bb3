"""Words without their endings, by the Snowball stemmers.

Texts are split by the kernels of the default tokenizer, and each distinct word is stemmed once:
a table has the stems of all words so far.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns import GrowingArray, frozen, read_only
from nearcast.compiled.jit import kernel
from nearcast.errors import InvalidInput, UnknownName
from nearcast.model.folding import unicode_words
from nearcast.text.byte_table import Keys
from nearcast.text.keys import strings_as_keys
from nearcast.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Stems"]

MAX_WORD_BYTES = 64
"""Longer words have no stem: they stay as they are."""

MAX_WORDS = 1_000_000
"""How many distinct words are remembered; after that the table begins again."""


class Stems:
    """A tokenizer: the default one, and a Snowball stemmer for its words.

    Parameters
    ----------
    language
        The name of a Snowball stemmer, such as ``english``.

    Examples
    --------
    >>> Stems("english")("Flooded streets, flooding")
    ['flood', 'street', 'flood']
    """

    stems = True
    """Each word has one token: beginnings of words are looked up in the words themselves."""

    def __init__(self, language: str) -> None:
        self.name = f"stem:{language}"
        self._stemmer = _stemmer(language)
        self._stemming = threading.Lock()
        self._known = _KnownStems()

    def __call__(self, text: str, /) -> list[str]:
        """Return the stems of the words of a text, in order."""
        with self._stemming:
            return self._stem(unicode_words(text))

    def __repr__(self) -> str:
        return f"Stems({self.name[5:]!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name[5:],)

    def refine(self, word_start: NDArray[np.int64], words: Keys) -> tuple[NDArray[np.int64], Keys]:
        """Return the stems of words that the default tokenizer found."""
        known = self._known
        number = known.vocabulary.ids_of_keys(words)
        if number.min(initial=0) < 0:
            missing = np.flatnonzero((number < 0) & _are_short(words))
            if len(missing):
                known = self._learn(words, missing)
                number = known.vocabulary.ids_of_keys(words)
        return word_start, _replaced(words, frozen(number), known.stems())

    def _learn(self, words: Keys, missing: NDArray[np.int64]) -> _KnownStems:
        """Stem words that are new; return a table that has these."""
        with self._stemming:
            if len(self._known.vocabulary) > MAX_WORDS:
                self._known = _KnownStems()
                missing = np.flatnonzero(_are_short(words))
            known = self._known
            start, byte = words.byte_start.tolist(), words.byte.tobytes()
            texts = {byte[start[i] : start[i + 1]].decode(): None for i in missing.tolist()}
            fresh = [text for text in texts if text not in known.seen]
            known.add(fresh, self._stem(fresh))
            return known

    def _stem(self, words: Sequence[str]) -> list[str]:
        """Return the stem of each word; a word that would have none is its own."""
        stems: list[str] = self._stemmer.stemWords(words)
        return [
            stem if stem and len(word.encode()) <= MAX_WORD_BYTES else word
            for word, stem in zip(words, stems, strict=True)
        ]


def _are_short(words: Keys) -> NDArray[np.bool_]:
    short: NDArray[np.bool_] = np.diff(words.byte_start) <= MAX_WORD_BYTES
    return short


class _KnownStems:
    """Distinct words and their stems; one thread adds while others read."""

    def __init__(self) -> None:
        self.vocabulary = Vocabulary()
        self.seen: set[str] = set()
        self._start = GrowingArray(np.zeros(1, np.int64))
        self._byte = GrowingArray(np.empty(0, np.uint8))
        self._tag = GrowingArray(np.empty(0, np.uint32))

    def add(self, words: list[str], stems: list[str]) -> None:
        """Add words, all of them new, with their stems."""
        if not words:
            return
        keys = strings_as_keys(stems, "token")
        # Stems first: readers expect that a word with a number has a stem.
        self._byte.append(keys.byte)
        self._start.append(keys.byte_start[1:] + self._start.last)
        self._tag.append(keys.tag)
        self.vocabulary.add(words)
        self.seen.update(words)

    def stems(self) -> Keys:
        """Return the stems by the numbers of their words."""
        tag = self._tag.view
        start = self._start.view[: len(tag) + 1]
        return Keys(
            read_only(start, np.int64),
            read_only(self._byte.view, np.uint8),
            read_only(tag, np.uint32),
        )


class _Written(NamedTuple):
    byte_start: NDArray[np.int64]
    byte: NDArray[np.uint8]
    tag: NDArray[np.uint32]


def _replaced(words: Keys, number: NDArray[np.int32], stem: Keys) -> Keys:
    """Return the stem of every word that has a number, and the other words as they are."""
    start = np.empty(len(number) + 1, np.int64)
    size = measure_stems(words, number, stem, start)
    out = _Written(start, np.empty(size, np.uint8), np.empty(len(number), np.uint32))
    write_stems(words, number, stem, out)
    return Keys(frozen(out.byte_start), frozen(out.byte), frozen(out.tag))


@kernel
def measure_stems(
    words: Keys, number: NDArray[np.int32], stem: Keys, start: NDArray[np.int64]
) -> int:
    """Write where the stem of each word begins to ``start`` int64[words + 1]; return the end."""
    size = np.int64(0)
    for i in range(len(number)):
        start[i] = size
        if number[i] >= 0:
            size += stem.byte_start[number[i] + 1] - stem.byte_start[number[i]]
        else:
            size += words.byte_start[i + 1] - words.byte_start[i]
    start[len(number)] = size
    return size  # type: ignore[return-value]


@kernel
def write_stems(words: Keys, number: NDArray[np.int32], stem: Keys, out: _Written) -> None:
    """Write the bytes and the tag of the stem of each word, or of the word if it has no number."""
    for i in range(len(number)):
        at = out.byte_start[i]
        size = out.byte_start[i + 1] - at
        if number[i] >= 0:
            begin = stem.byte_start[number[i]]
            out.tag[i] = stem.tag[number[i]]
            for b in range(size):
                out.byte[at + b] = stem.byte[begin + b]
        else:
            begin = words.byte_start[i]
            out.tag[i] = words.tag[i]
            for b in range(size):
                out.byte[at + b] = words.byte[begin + b]


def _stemmer(language: str) -> Any:
    name = f"stem:{language}"
    try:
        import Stemmer
    except ImportError:
        problem = "needs the package PyStemmer; install it with: pip install 'nearcast[stem]'"
        raise InvalidInput("tokenizer", name, problem) from None
    if language not in Stemmer.algorithms():
        raise UnknownName("tokenizer", name, [f"stem:{known}" for known in Stemmer.algorithms()])
    return Stemmer.Stemmer(language, 0)
