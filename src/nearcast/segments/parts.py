"""Parts: subscriptions with the vocabulary of their token ids, and their union.

Every task of Spark has its own token ids, and an engine replaces its vocabulary when most of it is
unused. Joining parts with different vocabularies renumbers their tokens.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.columns import Clauses, Subscriptions, gather, read_only, starts
from nearcast.segments.renumber import renumber_tokens
from nearcast.storage import (
    nested,
    prefixed,
    subscriptions_from_arrays,
    subscriptions_to_arrays,
)
from nearcast.text import Vocabulary
from nearcast.text.keys import keys_of, string_buffers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = [
    "Part",
    "known_clauses",
    "part_arrays",
    "part_from_arrays",
    "renumber",
    "trimmed",
    "unite",
]

KIND = "part"


class Part(NamedTuple):
    """Subscriptions and the vocabulary of their token ids."""

    subscriptions: Subscriptions
    vocabulary: Vocabulary


def part_arrays(part: Part) -> dict[str, NDArray[Any]]:
    """Return a part as named arrays for storage."""
    return {
        **subscriptions_to_arrays(part.subscriptions),
        **prefixed("vocabulary", part.vocabulary.arrays()),
    }


def part_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Part:
    """Return the part of these arrays, the inverse of `part_arrays`."""
    vocabulary = Vocabulary.from_arrays(nested("vocabulary", arrays))
    return Part(subscriptions_from_arrays(arrays), vocabulary)


def unite(parts: Sequence[Part], vocabulary: Vocabulary | None = None) -> Part:
    """Return the subscriptions of all parts in order, with one vocabulary.

    Parameters
    ----------
    parts
        The parts. If all of them share a vocabulary, it is kept.
    vocabulary
        The vocabulary of the result if theirs differ; a new one by default.

    Examples
    --------
    >>> from nearcast.intake import subscriptions_from
    >>> from nearcast.model import Rect, Subscription
    >>> def part(id, words):
    ...     vocabulary = Vocabulary()
    ...     one = Subscription(id, Rect(0, 0, 1, 1), words)
    ...     return Part(subscriptions_from([one], vocabulary), vocabulary)
    >>> both = unite([part("a", ["tea"]), part("b", ["hot", "tea"])])
    >>> both.subscriptions.clauses.token.tolist(), both.vocabulary.tokens().to_pylist()
    ([0, 0, 1], ['tea', 'hot'])
    """
    if not parts:
        return Part(Subscriptions.empty(), Vocabulary())
    if len(parts) == 1:
        return parts[0]
    first = parts[0].vocabulary
    if all(part.vocabulary is first for part in parts):
        return Part(Subscriptions.concatenate([part.subscriptions for part in parts]), first)
    target = Vocabulary() if vocabulary is None else vocabulary
    renumbered = [
        part.subscriptions if part.vocabulary is target else renumber(part, target)
        for part in parts
    ]
    return Part(Subscriptions.concatenate(renumbered), target)


def trimmed(part: Part) -> Part:
    """Return a part whose vocabulary has only the tokens of its subscriptions.

    Examples
    --------
    >>> trimmed(Part(Subscriptions.empty(), Vocabulary(["tea"]))).vocabulary
    Vocabulary(0 tokens)
    """
    vocabulary = Vocabulary()
    return Part(renumber(part, vocabulary), vocabulary)


def renumber(part: Part, vocabulary: Vocabulary) -> Subscriptions:
    """Return the subscriptions of a part with the token ids of another vocabulary.

    Tokens that the other vocabulary does not have are added to it; tokens that no subscription
    uses are left behind.
    """
    clauses, rankings = part.subscriptions.clauses, part.subscriptions.rankings
    several = [clauses]
    if rankings is not None and rankings.condition is not None:
        several.append(rankings.condition)
    columns = [column.copy() for one in several for column in (one.token, one.negative)]
    if 8 * sum(map(len, columns)) < len(part.vocabulary):
        used, position = np.unique(np.concatenate(columns), return_inverse=True)
        columns = np.split(position.astype(np.int32), np.cumsum([len(c) for c in columns])[:-1])
        number = vocabulary.add([part.vocabulary.token(one) for one in used.tolist()])
    else:
        tokens = part.vocabulary.tokens()  # others may add to it meanwhile
        marked = np.zeros(len(tokens), np.bool_)
        for column in columns:
            marked[column] = True
        start, byte = string_buffers(tokens if marked.all() else tokens.filter(pa.array(marked)))
        number = np.full(len(marked), -1, np.int32)
        number[marked] = vocabulary.add_keys(keys_of(start, byte))
    number = read_only(number, np.int32)
    renumbered = []
    for one, (token, negative) in zip(
        several, zip(columns[::2], columns[1::2], strict=True), strict=True
    ):
        renumber_tokens(one.token_start, number, token)
        renumber_tokens(one.negative_start, number, negative)
        renumbered.append(replace(one, token=token, negative=negative))
    if rankings is not None and len(renumbered) > 1:
        rankings = replace(rankings, condition=renumbered[1])
    return replace(part.subscriptions, clauses=renumbered[0], rankings=rankings)


def known_clauses(part: Part, vocabulary: Vocabulary) -> Clauses:
    """Return what can match messages whose words a vocabulary has, with its token ids.

    Nothing is added to the vocabulary. Clauses that ask for a word which it does not have are left
    out, and so are forbidden words. All rows stay, some of them without clauses.
    """
    clauses = part.subscriptions.clauses
    used, position = np.unique(
        np.concatenate([clauses.token, clauses.negative]), return_inverse=True
    )
    number = vocabulary.ids_of_keys(part.vocabulary.keys(used.astype(np.int32)))
    numbered: NDArray[np.int32] = position.astype(np.int32)
    token, negative = numbered[: len(clauses.token)], numbered[len(clauses.token) :]
    asks = np.repeat(np.arange(len(clauses)), np.diff(clauses.token_start))
    chosen = np.ones(len(clauses), np.bool_)
    chosen[asks[number[token] < 0]] = False
    kept = np.flatnonzero(chosen)
    token_start, at = gather(clauses.token_start, kept)
    token = token[at]
    forbids = np.repeat(np.arange(len(clauses)), np.diff(clauses.negative_start))
    stays = chosen[forbids] & (number[negative] >= 0)
    negative = negative[stays]
    length = np.bincount(forbids[stays], minlength=len(clauses))[kept]
    negative_start = starts(length)
    number = read_only(number, np.int32)
    renumber_tokens(read_only(token_start, np.int64), number, token)
    renumber_tokens(read_only(negative_start, np.int64), number, negative)
    return Clauses(
        token_start=token_start,
        token=token,
        negative_start=negative_start,
        negative=negative,
        box=clauses.box[kept],
        row=clauses.row[kept],
        shape=clauses.shape[kept],
        shapes=clauses.shapes,
        subscriptions=clauses.subscriptions,
    )
