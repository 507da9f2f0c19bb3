"""The pivotal tokens of a list of clauses: a small set of tokens of which each clause has one.

Yu, Li and Feng, CIKM 2015, section 4.1: the token that most clauses have is taken, then the one
that most of the rest have, and so on (the smallest set is a minimum hitting set, which is NP-hard).
Tokens are kept in stacks by the clauses that they have left; one whose number has fallen since goes
to its stack when it is met, so that all of it takes time in proportion to the tokens of all
clauses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.ordered_clauses import Ordered, length_of, token_at
from nearcast.compiled.token_table import Tables, claim_slot, new_region, region_size

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Cover(NamedTuple):
    """Room for the cover of one list.

    A *pair* is a clause with one of its tokens; tokens are numbered as they are met.

    - ``tables`` has one table: the number of a token, plus one.
    - By pair: ``number`` int32; ``holder`` int32, the clauses of all tokens, token by token.
    - By number: ``token``, ``left`` (clauses that are not covered), ``size`` (clauses that it
      covers), ``below`` (the token under it in its stack), all int32; ``start`` int64 of holders.
    - ``head`` int32, by a number of clauses: the top of the stack of tokens with so many.
    - By place in the list: ``pair_start`` int64; ``pivot`` int32, the number of the pivotal token.
    """

    tables: Tables
    number: NDArray[np.int32]
    holder: NDArray[np.int32]
    token: NDArray[np.int32]
    left: NDArray[np.int32]
    size: NDArray[np.int32]
    below: NDArray[np.int32]
    start: NDArray[np.int64]
    head: NDArray[np.int32]
    pair_start: NDArray[np.int64]
    pivot: NDArray[np.int32]


@kernel
def count_pairs(ordered: Ordered, clauses: NDArray[np.int32]) -> Number:
    """Return how many tokens clauses have together."""
    pairs = np.int64(0)
    for i in range(len(clauses)):
        pairs += length_of(ordered, clauses[i])
    return pairs


@kernel
def number_tokens(
    ordered: Ordered, clauses: NDArray[np.int32], pairs: Number, cover: Cover
) -> Number:
    """Give numbers to the tokens of clauses; return how many different ones there are."""
    cover.tables.top[0] = 0
    new_region(cover.tables, 0, region_size(pairs))
    pair, numbers = np.int64(0), np.int64(0)
    for i in range(len(clauses)):
        cover.pair_start[i] = pair
        for j in range(length_of(ordered, clauses[i])):
            token = token_at(ordered, clauses[i], j)
            at = claim_slot(cover.tables, 0, token)
            if cover.tables.slot[at, 1] == np.uint64(0):
                cover.token[numbers], cover.left[numbers], cover.size[numbers] = token, 0, 0
                numbers += 1
                cover.tables.slot[at, 1] = np.uint64(numbers)
            number = np.int64(cover.tables.slot[at, 1]) - 1
            cover.number[pair] = number
            cover.left[number] += 1
            pair += 1
    cover.pair_start[len(clauses)] = pair
    return numbers


@kernel
def list_holders(clauses: NDArray[np.int32], numbers: Number, cover: Cover) -> None:
    """List the places of the clauses of every token."""
    cover.start[0] = 0
    for n in range(numbers):
        cover.start[n + 1] = cover.start[n] + cover.left[n]
    for n in range(numbers):
        cover.below[n] = 0
    for i in range(len(clauses)):
        for pair in range(cover.pair_start[i], cover.pair_start[i + 1]):
            n = cover.number[pair]
            cover.holder[cover.start[n] + cover.below[n]] = i
            cover.below[n] += 1


@kernel
def push_token(cover: Cover, n: Number) -> None:
    """Put a token on the stack of those that have as many clauses left."""
    cover.below[n] = cover.head[cover.left[n]]
    cover.head[cover.left[n]] = n


@kernel
def take_token(cover: Cover, n: Number) -> None:
    """Make a token the pivotal one of all its clauses that have none yet."""
    for at in range(cover.start[n], cover.start[n + 1]):
        i = cover.holder[at]
        if cover.pivot[i] < 0:
            cover.pivot[i] = n
            cover.size[n] += 1
            for pair in range(cover.pair_start[i], cover.pair_start[i + 1]):
                cover.left[cover.number[pair]] -= 1


@kernel
def cover_list(ordered: Ordered, clauses: NDArray[np.int32], pairs: Number, cover: Cover) -> Number:
    """Choose the pivotal tokens of clauses; return how many tokens were numbered.

    Of tokens with equally many clauses, one that is frequent everywhere comes before a rare one of
    the same clause: siblings are likely to have it too, so that their parent covers it.
    """
    numbers = number_tokens(ordered, clauses, pairs, cover)
    list_holders(clauses, numbers, cover)
    most = np.int64(0)
    for n in range(numbers):
        most = max(most, np.int64(cover.left[n]))
    for count in range(most + 1):
        cover.head[count] = -1
    for n in range(numbers):
        push_token(cover, n)
    for i in range(len(clauses)):
        cover.pivot[i] = -1
    high = most
    while high > 0:
        top = np.int64(cover.head[high])
        if top < 0:
            high -= 1
            continue
        cover.head[high] = cover.below[top]
        if cover.left[top] == high:
            take_token(cover, top)
        elif cover.left[top] > 0:
            push_token(cover, top)
    return numbers
