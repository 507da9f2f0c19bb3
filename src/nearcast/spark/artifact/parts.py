"""Parts: subscriptions that one task read, with a vocabulary of their own, and their union.

Tasks number tokens each in its own way. When parts come together, their tokens are numbered anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.columns import Subscriptions, read_only
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

__all__ = ["Part", "part_arrays", "part_from_arrays", "trimmed", "unite"]

KIND = "part"


class Part(NamedTuple):
    """Subscriptions and the vocabulary that numbers their tokens."""

    subscriptions: Subscriptions
    vocabulary: Vocabulary


def part_arrays(part: Part) -> dict[str, NDArray[Any]]:
    """Return a part as named arrays, to be stored."""
    return {
        **subscriptions_to_arrays(part.subscriptions),
        **prefixed("vocabulary", part.vocabulary.arrays()),
    }


def part_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Part:
    """Return the part that `part_arrays` gave this form to."""
    vocabulary = Vocabulary.from_arrays(nested("vocabulary", arrays))
    return Part(subscriptions_from_arrays(arrays), vocabulary)


def unite(parts: Sequence[Part]) -> Part:
    """Return the subscriptions of all parts end to end, under one vocabulary.

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
    vocabulary = Vocabulary()
    renumbered = [_renumber(part, vocabulary) for part in parts]
    return Part(Subscriptions.concatenate(renumbered), vocabulary)


def trimmed(part: Part) -> Part:
    """Return a part whose vocabulary has only what its subscriptions use.

    Examples
    --------
    >>> trimmed(Part(Subscriptions.empty(), Vocabulary(["tea"]))).vocabulary
    Vocabulary(0 tokens)
    """
    vocabulary = Vocabulary()
    return Part(_renumber(part, vocabulary), vocabulary)


def _renumber(part: Part, vocabulary: Vocabulary) -> Subscriptions:
    """Return the subscriptions of a part with the numbers that another vocabulary gives.

    Tokens that no subscription uses are left behind.
    """
    clauses = part.subscriptions.clauses
    used = np.zeros(len(part.vocabulary), np.bool_)
    used[clauses.token] = True
    used[clauses.negative] = True
    tokens = part.vocabulary.tokens()
    start, byte = string_buffers(tokens if used.all() else tokens.filter(pa.array(used)))
    number = np.full(len(used), -1, np.int32)
    number[used] = vocabulary.add_keys(keys_of(start, byte))
    number = read_only(number, np.int32)
    token, negative = clauses.token.copy(), clauses.negative.copy()
    renumber_tokens(clauses.token_start, number, token)
    renumber_tokens(clauses.negative_start, number, negative)
    return replace(part.subscriptions, clauses=replace(clauses, token=token, negative=negative))
