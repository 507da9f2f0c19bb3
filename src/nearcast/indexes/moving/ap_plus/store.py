"""Where messages are stored in the tree.

A message walks down the tree as in matching, but through every part that could ever hold a clause
which it matches: under the cuts of all its ranks (cuts tile the ranks without gaps) and the dummy,
under its cell and the dummy, whether or not there is a clause. It is stored in the list of every
slot where its walk ends. The walk goes level by level. Where the slots would become more than the
limit on copies, it ends earlier: the message stays in the list of a slot with an inner node.

Along the ways of a clause that it matches, a message is in exactly one list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, prefetch
from nearcast.compiled.sorting import sort_short
from nearcast.compiled.token_table import home
from nearcast.indexes.ap_tree.layout import (
    CHILDREN,
    COLUMNS,
    END_RANK,
    FIRST_RANK,
    HEADER,
    KEYWORDS,
    PARTS,
    RARE,
    ROOT_LIST,
    UNIT,
    Tree,
)
from nearcast.indexes.ap_tree.ranks import find_token, pack_slot, unpack_rank
from nearcast.indexes.ap_tree.walk import first_not_below
from nearcast.indexes.moving.ap_plus.ways import cut_of, is_end
from nearcast.indexes.moving.lists import (
    LISTS,
    POSTINGS,
    SIZE,
    START,
    TOP,
    WIDTH,
    ListArrays,
    append,
    capacity_of,
    new_list,
    size_of,
    start_of,
)
from nearcast.indexes.moving.living import (
    OWN,
    SIGNATURE,
    LivingArrays,
    X,
    Y,
    is_alive,
    is_range,
    tokens_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

NO_LIST = 0
"""The list of a slot that never had messages; list 0 of the tree is not used."""

PADDING = 64
"""Values behind the last chunk of a pool: lists are read sixteen messages at a time."""

SHORT_LISTS, SHORT_WORDS, SHORT_RANKS, SHORT_TOKENS = range(4)
"""Fields of ``shortage``: heads and words of the lists, free slots of the table of ranks, ranks of
one message."""

NODE_LINK, NODE_LIST, NEXT_RANK, FRONT_WIDTH = range(4)
"""Columns of ``front``: the link of a slot; where its list is named; the first rank that counts."""

GROUP = 8
"""How many messages are stored together."""

_NO_CHUNK = 255
_CLASS_MASK = 255


class StoreScratch(NamedTuple):
    """Where a message is.

    - ``rank`` int32[m]: its ranks, ascending.
    - ``front`` int64[2, m, 3]: slots of this level and of the next.
    - ``end`` int64[8, limit + 1]: where the lists of the slots of messages are named; ``placed``
      int64[8]: how many these are.
    - ``shortage`` int64[4]: see above.
    - ``copies`` int64[1]: places where messages were stored.
    """

    rank: NDArray[np.int32]
    front: NDArray[np.int64]
    end: NDArray[np.int64]
    placed: NDArray[np.int64]
    shortage: NDArray[np.int64]
    copies: NDArray[np.int64]


def store_scratch(limit: int, tokens: int) -> StoreScratch:
    """Return scratch for messages of at most this many tokens."""
    return StoreScratch(
        rank=np.empty(tokens + 1, np.int32),
        front=np.empty((2, limit + tokens + 4, FRONT_WIDTH), np.int64),
        end=np.empty((GROUP, limit + 1), np.int64),
        placed=np.zeros(GROUP, np.int64),
        shortage=np.zeros(4, np.int64),
        copies=np.zeros(1, np.int64),
    )


@kernel
def rank_tokens(
    slot: NDArray[np.uint64],
    state: NDArray[np.int64],
    tokens: NDArray[np.int32],
    used: NDArray[np.int64],
    rank: NDArray[np.int32],
) -> None:
    """Write the ranks of tokens, ascending.

    A new token gets a rank before all others if rare tokens come first, else after all. There are
    free slots enough.
    """
    for i in range(len(tokens)):
        at = find_token(slot, np.int64(tokens[i]))
        if slot[at] == np.uint64(0):
            used[0] += 1
            new = state[FIRST_RANK] - 1 if state[RARE] != 0 else state[END_RANK]
            slot[at] = pack_slot(np.int64(tokens[i]), new)
            state[FIRST_RANK] = min(state[FIRST_RANK], new)
            state[END_RANK] = max(state[END_RANK], new + 1)
        rank[i] = unpack_rank(slot[at])
    sort_short(rank[: len(tokens)])


@inlined_kernel
def _add_slot(
    front: NDArray[np.int64], count: Number, link: Number, name: Number, next_rank: Number
) -> None:
    front[count, NODE_LINK], front[count, NODE_LIST] = link, name
    front[count, NEXT_RANK] = next_rank


@kernel
def _open(
    arena: NDArray[np.int32],
    base: Number,
    message: tuple[NDArray[np.int32], Number, Number],
    first: Number,
    front: NDArray[np.int64],
    count: Number,
) -> Number:
    """Add the children of an inner node that a message goes to; return how many slots there are.

    ``message`` is its ranks and its place; the ranks from ``first`` on count.
    """
    rank, x, y = message
    parts, links = np.int64(arena[base + PARTS]), base + np.int64(arena[base + CHILDREN])
    names = 3 * (parts + 1)
    _add_slot(front, count, links + parts, links + parts + names, first)
    count += 1
    if arena[base] == KEYWORDS:
        opened = np.int64(-1)
        for i in range(first, len(rank)):
            cut = cut_of(arena, base, rank[i])
            if cut != opened:
                prefetch(arena, links + cut)
                prefetch(arena, links + cut + names)
                _add_slot(front, count, links + cut, links + cut + names, i + 1)
                count += 1
                opened = cut
        return count
    columns = np.int64(arena[base + COLUMNS])
    middle = base + HEADER + columns - 1
    column = first_not_below(arena, base + HEADER, middle, np.int64(x) + 1) - base - HEADER
    row = first_not_below(arena, middle, links, np.int64(y) + 1) - middle
    cell = links + row * columns + column
    _add_slot(front, count, cell, cell + names, first)
    return count + 1


@kernel
def find_ends(
    arena: NDArray[np.int32],
    message: tuple[NDArray[np.int32], Number, Number],
    start: tuple[Number, Number, Number],
    limit: Number,
    front: NDArray[np.int64],
    end: NDArray[np.int64],
) -> Number:
    """Write where the walk of a message ends; return in how many slots.

    ``start`` is a link, where the list of its slot is named, and the first rank that counts there.
    """
    placed = np.int64(0)
    this, waiting = np.int64(0), np.int64(1)
    _add_slot(front[0], 0, start[0], start[1], start[2])
    while waiting > 0:
        here, below, opened = front[this], front[1 - this], np.int64(0)
        for i in range(waiting):
            link = here[i, NODE_LINK]
            if not is_end(arena, link):
                base = UNIT * np.int64(arena[link])
                more = _open(arena, base, message, here[i, NEXT_RANK], below, opened)
                if placed + waiting - 1 - i + more <= limit:
                    opened = more
                    continue
            end[placed] = here[i, NODE_LIST]
            placed += 1
        for i in range(opened):
            prefetch(arena, UNIT * np.int64(arena[below[i, NODE_LINK]]))
        this, waiting = 1 - this, opened
    return placed


@kernel
def _has_room(
    arena: NDArray[np.int32],
    lists: ListArrays,
    ends: NDArray[np.int64],
    shortage: NDArray[np.int64],
) -> Number:
    """Tell whether one message more fits into the lists of all these slots; note what is short."""
    fresh, words = np.int64(0), np.int64(PADDING)
    width = lists.state[WIDTH]
    for i in range(len(ends)):
        number = arena[ends[i]]
        if number == NO_LIST:
            fresh += 1
            words += width
            continue
        kind = lists.head[number, SIZE] & _CLASS_MASK
        if kind == _NO_CHUNK:
            words += width
        elif np.int64(lists.head[number, SIZE] >> 8) == np.int64(1) << kind:
            words += width << (kind + 1)
    if lists.state[LISTS] + fresh <= len(lists.head) and lists.state[TOP] + words <= len(
        lists.pool
    ):
        return True
    shortage[SHORT_LISTS], shortage[SHORT_WORDS] = fresh, words
    return False


@kernel
def _prefetch_lists(arena: NDArray[np.int32], lists: ListArrays, ends: NDArray[np.int64]) -> None:
    """Prefetch where the next message of lists goes, whose heads have been prefetched."""
    for i in range(len(ends)):
        number = arena[ends[i]]
        kind = lists.head[number, SIZE] & _CLASS_MASK
        if kind == _NO_CHUNK or number == NO_LIST:
            continue
        at = np.int64(lists.head[number, START]) + np.int64(lists.head[number, SIZE] >> 8)
        for column in range(lists.state[WIDTH]):
            prefetch(lists.pool, at + (column << kind))


@kernel
def _append_to(
    arena: NDArray[np.int32],
    lists: ListArrays,
    living: LivingArrays,
    stamp: Number,
    ends: NDArray[np.int64],
) -> None:
    """Append a message to the lists of slots, for which space is reserved.

    A record's ``own`` counts the copies of its message, wherever they are.
    """
    record, pool, head = living.record, lists.pool, lists.head
    x, y, signature = record[stamp, X], record[stamp, Y], record[stamp, SIGNATURE]
    for i in range(len(ends)):
        number = np.int64(arena[ends[i]])
        if number == NO_LIST:
            number = new_list(lists)
            arena[ends[i]] = number
        capacity, size = capacity_of(lists, number), size_of(lists, number)
        if size == capacity or (head[number, SIZE] & _CLASS_MASK) == _NO_CHUNK:
            append(lists, living.alive, number, x, y, stamp, signature)
            continue
        at = start_of(lists, number) + size
        pool[at], pool[at + capacity] = x, y
        pool[at + 2 * capacity], pool[at + 3 * capacity] = stamp, signature
        head[number, SIZE] += 1 << 8
        lists.state[POSTINGS] += 1
    record[stamp, OWN] += len(ends)


@kernel
def store_message(
    arena: NDArray[np.int32],
    lists: ListArrays,
    living: LivingArrays,
    stamp: Number,
    ranks: NDArray[np.int32],
    start: tuple[Number, Number, Number],
    limit: Number,
    scratch: StoreScratch,
) -> Number:
    """Store a message in the slots at and below a slot; return False on a shortage."""
    record = living.record
    left = max(limit - np.int64(record[stamp, OWN]), np.int64(1))
    message = ranks, record[stamp, X], record[stamp, Y]
    placed = find_ends(arena, message, start, left, scratch.front, scratch.end[0])
    ends = scratch.end[0, :placed]
    if not _has_room(arena, lists, ends, scratch.shortage):
        return False
    _append_to(arena, lists, living, stamp, ends)
    return True


@kernel
def _find_group(
    tree: Tree,
    living: LivingArrays,
    table: tuple[NDArray[np.uint64], NDArray[np.int64]],
    stamps: tuple[Number, Number],
    limit: Number,
    scratch: StoreScratch,
) -> Number:
    """Find where the walks of some messages end; return how many messages were done.

    Messages that are dead or not points have no ends.
    """
    slot, used = table
    start = np.int64(0), np.int64(ROOT_LIST), np.int64(0)
    for stamp in range(stamps[0], stamps[1]):
        member = stamp - stamps[0]
        scratch.placed[member] = 0
        if not is_alive(living.alive, stamp) or is_range(living.record, stamp):
            continue
        tokens = tokens_of(living, stamp)
        if len(tokens) > len(scratch.rank):
            scratch.shortage[SHORT_TOKENS] = len(tokens)
            return member
        if 3 * (used[0] + len(tokens)) >= 2 * len(slot):
            scratch.shortage[SHORT_RANKS] = len(tokens)
            return member
        rank_tokens(slot, tree.state, tokens, used, scratch.rank)
        x, y = living.record[stamp, X], living.record[stamp, Y]
        message = scratch.rank[: len(tokens)], x, y
        end = scratch.end[member]
        scratch.placed[member] = find_ends(tree.arena, message, start, limit, scratch.front, end)
        for i in range(scratch.placed[member]):
            prefetch(tree.arena, end[i])
    return stamps[1] - stamps[0]


@kernel
def store_messages(
    tree: Tree,
    lists: ListArrays,
    living: LivingArrays,
    table: tuple[NDArray[np.uint64], NDArray[np.int64]],
    stamps: tuple[Number, Number],
    limit: Number,
    scratch: StoreScratch,
) -> Number:
    """Store the messages with these stamps that are points and alive, some at a time.

    ``table`` has the ranks of tokens, and how many slots are used. Return the first stamp that was
    not stored, because something is short; the end if all were.
    """
    tree, lists, living = borrow(tree), borrow(lists), borrow(living)
    table, scratch = borrow(table), borrow(scratch)
    slot, arena, first = table[0], tree.arena, stamps[0]
    while first < stamps[1]:
        last = min(first + GROUP, stamps[1])
        for stamp in range(last, min(last + GROUP, stamps[1])):
            for token in tokens_of(living, stamp):
                prefetch(slot, home(np.int64(token), len(slot)))
        done = _find_group(tree, living, table, (first, last), limit, scratch)
        for member in range(done):
            for i in range(scratch.placed[member]):
                prefetch(lists.head, arena[scratch.end[member, i]])
        for member in range(done):
            _prefetch_lists(arena, lists, scratch.end[member, : scratch.placed[member]])
        for member in range(done):
            ends = scratch.end[member, : scratch.placed[member]]
            if not _has_room(arena, lists, ends, scratch.shortage):
                return first + member
            _append_to(arena, lists, living, first + member, ends)
            scratch.copies[0] += len(ends)
        first += done
        if first < last:
            return first
    return stamps[1]
