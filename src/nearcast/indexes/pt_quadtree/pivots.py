"""Choose the pivotal tokens of a list of clauses: a small set of which each clause has one.

Yu, Li and Feng, CIKM 2015, section 4.1: take the token that most clauses have, then the one that
most of the remaining clauses have, and so on (the smallest set is a minimum hitting set, which is
NP-hard). Tokens are kept in stacks by how many clauses they have left; a token whose count has
dropped moves to its new stack when it is popped. So the time is linear in the tokens of all
clauses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.compiled.clauses import Ordered, length_of, token_at
from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.token_table import Tables, claim_slot, new_region, region_size

if TYPE_CHECKING:
    from numpy.typing import NDArray


class PivotScratch(NamedTuple):
    """Scratch for the pivotal tokens of one list.

    A *pair* is a clause with one of its tokens; tokens are numbered in the order of appearance.

    - ``tables`` has one table: token to its number plus one.
    - By pair: ``number`` int32, of the token; ``holder`` int32: the clauses that have each token,
      token by token.
    - By number: ``token``, ``left`` (clauses without a pivotal token), ``size`` (clauses whose
      pivotal token it is), ``below`` (the next token in its stack), all int32; ``start`` int64, of
      its holders.
    - ``head`` int32: the top of the stack of tokens with this many clauses left.
    - By position in the list: ``pair_start`` int64; ``pivot`` int32, number of the pivotal token.
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


def pivot_scratch(pairs: int) -> PivotScratch:
    """Return scratch for a list with fewer than ``pairs`` pairs."""
    slot = np.empty((pairs + pairs // 2 + 3, 2), np.uint64)
    tables = Tables(slot, np.zeros((1, 3), np.int64), np.zeros(1, np.int64))
    wide = {"start", "pair_start"}
    rest: dict[str, NDArray[Any]] = {
        name: np.empty(pairs, np.int64 if name in wide else np.int32)
        for name in PivotScratch._fields[1:]
    }
    return PivotScratch(tables, **rest)


@kernel
def count_pairs(ordered: Ordered, clauses: NDArray[np.int32]) -> Number:
    """Return how many tokens the clauses have in total."""
    pairs = np.int64(0)
    for i in range(len(clauses)):
        pairs += length_of(ordered, clauses[i])
    return pairs


@kernel
def choose_pivots(
    ordered: Ordered, clauses: NDArray[np.int32], pairs: Number, scratch: PivotScratch
) -> Number:
    """Choose the pivotal token of every clause; return how many distinct tokens there are.

    Among tokens with equally many clauses, one that is frequent everywhere comes before a rare one
    of the same clause: siblings are likely to have it too, so that their parent covers it.
    """
    numbers = number_tokens(ordered, clauses, pairs, scratch)
    list_holders(clauses, numbers, scratch)
    maximum = np.int64(0)
    for n in range(numbers):
        maximum = max(maximum, np.int64(scratch.left[n]))
    scratch.head[: maximum + 1] = -1
    for n in range(numbers):
        push_token(scratch, n)
    for i in range(len(clauses)):
        scratch.pivot[i] = -1
    count = maximum
    while count > 0:
        top = np.int64(scratch.head[count])
        if top < 0:
            count -= 1
            continue
        scratch.head[count] = scratch.below[top]
        if scratch.left[top] == count:
            take_token(scratch, top)
        elif scratch.left[top] > 0:
            push_token(scratch, top)
    return numbers


@kernel
def number_tokens(
    ordered: Ordered, clauses: NDArray[np.int32], pairs: Number, scratch: PivotScratch
) -> Number:
    """Assign numbers to the tokens of the clauses; return how many distinct ones there are."""
    scratch.tables.top[0] = 0
    new_region(scratch.tables, 0, region_size(pairs))
    pair, numbers = np.int64(0), np.int64(0)
    for i in range(len(clauses)):
        scratch.pair_start[i] = pair
        for j in range(length_of(ordered, clauses[i])):
            token = token_at(ordered, clauses[i], j)
            at = claim_slot(scratch.tables, 0, token)
            if scratch.tables.slot[at, 1] == np.uint64(0):
                scratch.token[numbers], scratch.left[numbers], scratch.size[numbers] = token, 0, 0
                numbers += 1
                scratch.tables.slot[at, 1] = np.uint64(numbers)
            number = np.int64(scratch.tables.slot[at, 1]) - 1
            scratch.number[pair] = number
            scratch.left[number] += 1
            pair += 1
    scratch.pair_start[len(clauses)] = pair
    return numbers


@kernel
def list_holders(clauses: NDArray[np.int32], numbers: Number, scratch: PivotScratch) -> None:
    """List the clauses that have each token, by their position."""
    scratch.start[0] = 0
    for n in range(numbers):
        scratch.start[n + 1] = scratch.start[n] + scratch.left[n]
    for n in range(numbers):
        scratch.below[n] = 0  # how many holders were listed so far
    for i in range(len(clauses)):
        for pair in range(scratch.pair_start[i], scratch.pair_start[i + 1]):
            n = scratch.number[pair]
            scratch.holder[scratch.start[n] + scratch.below[n]] = i
            scratch.below[n] += 1


@kernel
def push_token(scratch: PivotScratch, n: Number) -> None:
    """Push a token on the stack of those with as many clauses left."""
    scratch.below[n] = scratch.head[scratch.left[n]]
    scratch.head[scratch.left[n]] = n


@kernel
def take_token(scratch: PivotScratch, n: Number) -> None:
    """Make a token the pivotal one of all its clauses that have none yet."""
    for at in range(scratch.start[n], scratch.start[n + 1]):
        i = scratch.holder[at]
        if scratch.pivot[i] < 0:
            scratch.pivot[i] = n
            scratch.size[n] += 1
            for pair in range(scratch.pair_start[i], scratch.pair_start[i + 1]):
                scratch.left[scratch.number[pair]] -= 1
