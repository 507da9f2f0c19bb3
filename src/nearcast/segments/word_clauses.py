"""Clauses of words only, for those who know the words of messages but not their order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import starts
from nearcast.intake.keyword_clauses import distinct

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import Clauses
    from nearcast.text import Vocabulary

__all__ = ["has_derived", "word_clauses"]


def word_clauses(clauses: Clauses, vocabulary: Vocabulary) -> Clauses:
    r"""Return clauses without phrases and beginnings of words, true of at least the same messages.

    A phrase becomes its words. Beginnings of words are left out, and so are phrases and beginnings
    that are excluded. If there are none, the clauses are returned as they are.

    Examples
    --------
    >>> from nearcast.columns import Clauses
    >>> from nearcast.text import Vocabulary
    >>> vocabulary = Vocabulary(["old", "town", "\x1fold\x1ftown", "\x1eflood"])
    >>> clauses = Clauses.of([[2, 3], [0]], [[0, 0, 9, 9]] * 2)
    >>> found = word_clauses(clauses, vocabulary)
    >>> found.token_start.tolist(), found.token.tolist()
    ([0, 2, 3], [0, 1, 0])
    """
    derived = vocabulary.is_derived(clauses.token)
    excluded = vocabulary.is_derived(clauses.negative)
    if derived.any():
        used, position = np.unique(clauses.token[derived], return_inverse=True)
        words = [vocabulary.word_ids(token) for token in used.tolist()]
        length = np.ones(len(clauses.token), np.int64)
        length[derived] = np.array([len(ids) for ids in words], np.int64)[position]
        start = starts(length)
        token = np.empty(int(start[-1]), np.int32)
        token[start[:-1][~derived]] = clauses.token[~derived]
        for at, number in zip(start[:-1][derived].tolist(), position.tolist(), strict=True):
            token[at : at + len(words[number])] = words[number]
        token_start, token = distinct(token, start[clauses.token_start])
        clauses = replace(clauses, token_start=token_start, token=token)
    if excluded.any():
        clause = np.repeat(np.arange(len(clauses)), np.diff(clauses.negative_start))
        kept = np.bincount(clause[~excluded], minlength=len(clauses))
        clauses = replace(
            clauses, negative_start=starts(kept), negative=clauses.negative[~excluded]
        )
    return clauses


def has_derived(clauses: Clauses, vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Return which rows have phrases or beginnings of words, excluded ones too."""
    found = np.zeros(clauses.subscriptions, np.bool_)
    if vocabulary.derived is not None:
        for start, token in (
            (clauses.token_start, clauses.token),
            (clauses.negative_start, clauses.negative),
        ):
            row = np.repeat(clauses.row, np.diff(start))
            found[row[vocabulary.is_derived(token)]] = True
    return found
