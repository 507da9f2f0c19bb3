"""Messages apart from the tree: by token and then by cell, or by cell and then by token.

Wang et al., VLDB Journal 2015, section 5.2.2. Space is cut into 40 columns and 40 rows; what lies
outside counts for the outermost cells. Every message stands under all its tokens and its cell, and
under the token of clauses that have none. *By token* each token has a table from cells to lists;
*by cell* each cell has a table from tokens to lists. A clause reads the lists of its rarest token,
in the cells where its old and its new box may differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, prefetch
from nearcast.compiled.token_table import (
    COUNT,
    LOW32,
    NO_TOKEN,
    SIZE,
    START,
    Tables,
    claim_slot,
    find_slot,
    home,
    reserve_tokens,
)
from nearcast.indexes.ap_tree.ranks import find_token, pack_slot, unpack_rank
from nearcast.indexes.moving.ap_plus.shift import (
    SHORT_CANDIDATES,
    WAITING,
    Moves,
    ShiftScratch,
    is_empty,
    read_list,
    verify_candidates,
)
from nearcast.indexes.moving.ap_plus.store import NO_LIST, PADDING
from nearcast.indexes.moving.ap_plus.ways import BOTH
from nearcast.indexes.moving.entries import FIRST, KEY, EntryArrays
from nearcast.indexes.moving.entries import SIGNATURE as ENTRY_SIGNATURE
from nearcast.indexes.moving.lists import (
    LISTS,
    TOP,
    WIDTH,
    ListArrays,
    append,
    new_list,
    size_of,
    start_of,
)
from nearcast.indexes.moving.lists import SIZE as HEAD_SIZE
from nearcast.indexes.moving.living import SIGNATURE, LivingArrays, X, Y, is_alive, is_range
from nearcast.indexes.moving.living import tokens_of as tokens_of_message

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.moving.ranges import Shifted

GRID = 40
"""Columns, and rows."""

SHORT_TABLES, SHORT_OWNERS, SHORT_LISTS, SHORT_WORDS, SHORT_TOKENS, SHORT_CLAIMED = range(6)
"""Fields of ``shortage``: slots of the pool of tables; owners of tables; heads and words of the
lists; slots of the table of tokens; tokens of one message."""

_CLASS_MASK, _NO_CHUNK = 255, 255


Block: TypeAlias = tuple[Number, Number, Number, Number]
"""The first and last column, and the first and last row, of a rectangle of cells."""


class GridArrays(NamedTuple):
    """Where messages are.

    - ``extent`` int64[4]: what the grid covers.
    - ``tables``: of each token (by its number) the lists by cell, or of each cell those by token.
    - ``token`` uint64[slots] and ``tokens`` int64[1]: the numbers of tokens; unused by cell.
    - ``lists``: the lists. ``shortage`` int64[6]: see above.
    - ``found`` int64[3200]: scratch for the lists of a clause; ``claimed`` int64[m]: for those of a
      message.
    """

    extent: NDArray[np.int64]
    tables: Tables
    token: NDArray[np.uint64]
    tokens: NDArray[np.int64]
    lists: ListArrays
    shortage: NDArray[np.int64]
    found: NDArray[np.int64]
    claimed: NDArray[np.int64]


@inlined_kernel
def _column(extent: NDArray[np.int64], axis: Number, value: Number) -> Number:
    """Return the column (axis 0) or row (1) of a coordinate."""
    low, high = extent[axis], extent[axis + 2]
    return min(max((np.int64(value) - low) * GRID // (high - low + 1), np.int64(0)), GRID - 1)


@kernel
def _token_number(grid: GridArrays, token: Number) -> Number:
    """Return the number of a token, or -1."""
    word = grid.token[find_token(grid.token, np.int64(token))]
    return np.int64(-1) if word == np.uint64(0) else unpack_rank(word)


@kernel
def _claim_list(grid: GridArrays, token: Number, cell: Number, by_token: Number) -> Number:
    """Return the list of a token and a cell, made if it is new, or -1 on a shortage."""
    owner, key, shortage = np.int64(cell), np.int64(token), grid.shortage
    if by_token:
        at = find_token(grid.token, np.int64(token))
        if grid.token[at] == np.uint64(0):
            if 3 * (grid.tokens[0] + 1) >= 2 * len(grid.token):
                shortage[SHORT_TOKENS] = 1
                return np.int64(-1)
            if grid.tokens[0] == len(grid.tables.table):
                shortage[SHORT_OWNERS] = 1
                return np.int64(-1)
            grid.token[at] = pack_slot(np.int64(token), grid.tokens[0])
            grid.tokens[0] += 1
        owner, key = unpack_rank(grid.token[at]), np.int64(cell)
    at = find_slot(grid.tables, owner, key)
    if at < 0:
        lacking = reserve_tokens(grid.tables, owner, 1)
        if lacking > 0:
            shortage[SHORT_TABLES] = lacking
            return np.int64(-1)
        if grid.lists.state[LISTS] == len(grid.lists.head):
            shortage[SHORT_LISTS] = 1
            return np.int64(-1)
        at = claim_slot(grid.tables, owner, key)
        grid.tables.slot[at, 1] = np.uint64(new_list(grid.lists))
    return np.int64(grid.tables.slot[at, 1])


@inlined_kernel
def _words_to_append(lists: ListArrays, number: Number) -> Number:
    """Return how many words of the pool one more message may take."""
    kind = lists.head[number, HEAD_SIZE] & _CLASS_MASK
    if kind == _NO_CHUNK:
        return lists.state[WIDTH]
    return lists.state[WIDTH] << (kind + 1)


@inlined_kernel
def _home(tables: Tables, owner: Number, key: Number) -> Number:
    """Return where the search for a key of an owner begins."""
    return tables.table[owner, START] + home(key, tables.table[owner, SIZE])


@kernel
def _prefetch_slots(
    grid: GridArrays, tokens: NDArray[np.int32], cell: Number, by_token: Number
) -> None:
    """Prefetch the slots of tokens in the tables of a cell, or of a cell in those of tokens."""
    tables = grid.tables
    if not by_token:
        for token in tokens:
            prefetch(tables.slot, _home(tables, cell, np.int64(token)))
        return
    for token in tokens:
        owner = _token_number(grid, np.int64(token))
        if owner >= 0:
            prefetch(tables.table, owner)
    for token in tokens:
        owner = _token_number(grid, np.int64(token))
        if owner >= 0:
            prefetch(tables.slot, _home(tables, owner, cell))


@kernel
def _claim_lists(
    grid: GridArrays, tokens: NDArray[np.int32], cell: Number, by_token: Number
) -> Number:
    """Write the lists of tokens and then of no token, in a cell; return False on a shortage."""
    for i in range(len(tokens) + 1):
        token = np.int64(tokens[i]) if i < len(tokens) else np.int64(NO_TOKEN)
        number = _claim_list(grid, token, cell, by_token)
        if number < 0:
            return False
        grid.claimed[i] = number
        prefetch(grid.lists.head, number)
    return True


@kernel
def _has_room(grid: GridArrays, count: Number) -> Number:
    """Tell whether one message fits into all claimed lists; prefetch where it goes."""
    lists, words = grid.lists, np.int64(PADDING)
    for i in range(count):
        number = grid.claimed[i]
        words += _words_to_append(lists, number)
        kind = lists.head[number, HEAD_SIZE] & _CLASS_MASK
        if kind != _NO_CHUNK:
            at = start_of(lists, number) + size_of(lists, number)
            for column in range(lists.state[WIDTH]):
                prefetch(lists.pool, at + (column << kind))
    if lists.state[TOP] + words > len(lists.pool):
        grid.shortage[SHORT_WORDS] = words
        return False
    return True


@kernel
def post_messages(
    grid: GridArrays,
    living: LivingArrays,
    by_token: Number,
    stamps: tuple[Number, Number],
    copies: NDArray[np.int64],
) -> Number:
    """Store the messages with these stamps that are points and alive.

    Return the first stamp that was not stored, because something is short; the end if all were.
    """
    grid, living = borrow(grid), borrow(living)
    lists, record = grid.lists, living.record
    for stamp in range(stamps[0], stamps[1]):
        if not is_alive(living.alive, stamp) or is_range(record, stamp):
            continue
        tokens, x, y = tokens_of_message(living, stamp), record[stamp, X], record[stamp, Y]
        if len(tokens) >= len(grid.claimed):
            grid.shortage[SHORT_CLAIMED] = len(tokens)
            return np.int64(stamp)
        if by_token and stamp + 1 < stamps[1]:
            for token in tokens_of_message(living, stamp + 1):
                prefetch(grid.token, home(np.int64(token), len(grid.token)))
        cell = _column(grid.extent, 1, y) * GRID + _column(grid.extent, 0, x)
        _prefetch_slots(grid, tokens, cell, by_token)
        claimed = _claim_lists(grid, tokens, cell, by_token)
        if not claimed or not _has_room(grid, len(tokens) + 1):
            return np.int64(stamp)
        for i in range(len(tokens) + 1):
            signature = record[stamp, SIGNATURE]
            append(lists, living.alive, grid.claimed[i], x, y, stamp, signature)
        copies[0] += len(tokens) + 1
    return np.int64(stamps[1])


@kernel
def choose_keys(
    entries: EntryArrays, chosen: NDArray[np.int32], slot: NDArray[np.uint64], rare: Number
) -> None:
    """Write the rarest token of clauses, all of whose tokens have ranks, as their key."""
    record, pool = entries
    for entry in chosen:
        first = record[entry, FIRST]
        key, best = NO_TOKEN, np.int64(0)
        for i in range(first + 1, first + 1 + pool[first]):
            rank = unpack_rank(slot[find_token(slot, np.int64(pool[i]))])
            if key == NO_TOKEN or (rank < best if rare else rank > best):
                key, best = np.int64(pool[i]), rank
        record[entry, KEY] = key


@inlined_kernel
def _block(extent: NDArray[np.int64], box: NDArray[np.int32]) -> Block:
    """Return the cells that a box touches."""
    if is_empty(box):
        return np.int64(0), np.int64(-1), np.int64(0), np.int64(-1)
    return (
        _column(extent, 0, box[0]),
        _column(extent, 0, box[2]),
        _column(extent, 1, box[1]),
        _column(extent, 1, box[3]),
    )


@inlined_kernel
def _inside(block: Block, column: Number, row: Number, margin: Number) -> Number:
    """Tell whether a cell is in a block, at least ``margin`` cells from its border."""
    across = (column >= block[0] + margin) & (column <= block[1] - margin)
    return across & (row >= block[2] + margin) & (row <= block[3] - margin)


@inlined_kernel
def _may_differ(old: Block, new: Block, column: Number, row: Number) -> Number:
    """Tell whether a cell is in one of two blocks, and not strictly inside both.

    A cell strictly inside the block of a box lies in the box.
    """
    touches = _inside(old, column, row, 0) | _inside(new, column, row, 0)
    return touches and not (_inside(old, column, row, 1) & _inside(new, column, row, 1))


@kernel
def _lists_of_token(grid: GridArrays, owner: Number, old: Block, new: Block) -> Number:
    """Write the lists of a token in cells where two boxes may differ, from all its cells."""
    tables, count = grid.tables, np.int64(0)
    start = tables.table[owner, START]
    for at in range(start, start + tables.table[owner, SIZE]):
        cell = np.int64(tables.slot[at, 0] & LOW32) - 1
        if cell >= 0 and _may_differ(old, new, cell % GRID, cell // GRID):
            grid.found[count] = np.int64(tables.slot[at, 1])
            count += 1
    return count


@kernel
def _lists_of(
    grid: GridArrays,
    token: Number,
    boxes: tuple[NDArray[np.int32], NDArray[np.int32]],
    by_token: Number,
) -> Number:
    """Write the lists of a token in cells where two boxes may differ; return how many there are."""
    tables, count, owner = grid.tables, np.int64(0), np.int64(-1)
    old, new = _block(grid.extent, boxes[0]), _block(grid.extent, boxes[1])
    if by_token:
        touched = (old[1] - old[0] + 1) * (old[3] - old[2] + 1)
        touched += (new[1] - new[0] + 1) * (new[3] - new[2] + 1)
        owner = _token_number(grid, token)
        if owner < 0:
            return count
        if tables.table[owner, COUNT] < touched:
            return _lists_of_token(grid, owner, old, new)
    cells = np.int64(0)
    for which in range(2):
        block = old if which == 0 else new
        for row in range(block[2], block[3] + 1):
            for column in range(block[0], block[1] + 1):
                done = which == 1 and _inside(old, column, row, 0)
                if not done and _may_differ(old, new, column, row):
                    cell = row * GRID + column
                    holder, key = (owner, cell) if by_token else (cell, token)
                    prefetch(tables.slot, _home(tables, holder, key))
                    grid.found[cells] = cell
                    cells += 1
    for i in range(cells):
        cell = grid.found[i]
        at = find_slot(tables, owner if by_token else cell, cell if by_token else token)
        if at >= 0:
            grid.found[count] = np.int64(tables.slot[at, 1])
            count += 1
    return count


@kernel
def _look_ahead(grid: GridArrays, entries: EntryArrays, entry: NDArray[np.int32]) -> None:
    """Prefetch for the next clauses, each time something that was found by the time before."""
    if len(entry) < 8:
        return
    prefetch(entries.record, entry[7])
    prefetch(grid.token, home(np.int64(entries.record[entry[5], KEY]), len(grid.token)))
    owner = _token_number(grid, np.int64(entries.record[entry[3], KEY]))
    if owner >= 0:
        prefetch(grid.tables.table, owner)
    owner = _token_number(grid, np.int64(entries.record[entry[1], KEY]))
    if owner >= 0:
        start = grid.tables.table[owner, START]
        for at in range(start, start + min(grid.tables.table[owner, SIZE], np.int64(64)), 4):
            prefetch(grid.tables.slot, at)


@kernel
def shift_in_grid(
    grid: GridArrays,
    entries: EntryArrays,
    living: LivingArrays,
    by_token: Number,
    moves: Moves,
    begin: Number,
    scratch: ShiftScratch,
    output: Shifted,
) -> Number:
    """Write what changes for clauses from ``begin`` on; return where something is short."""
    grid, entries, living = borrow(grid), borrow(entries), borrow(living)
    scratch, output = borrow(scratch), borrow(output)
    lists = grid.lists
    for i in range(begin, len(moves.entry)):
        clause = np.int64(moves.entry[i])
        if by_token:
            _look_ahead(grid, entries, moves.entry[i + 1 : i + 9])
        boxes = moves.before[i], moves.after[i]
        count = _lists_of(grid, np.int64(entries.record[clause, KEY]), boxes, by_token)
        postings = np.int64(0)
        for j in range(count):
            prefetch(lists.head, grid.found[j])
        for j in range(count):
            postings += size_of(lists, grid.found[j])
            prefetch(lists.pool, start_of(lists, grid.found[j]))
        if scratch.counts[WAITING] + postings > len(scratch.candidate):
            if not verify_candidates(entries, living, moves.entry, scratch, output):
                return np.int64(i)
            if postings > len(scratch.candidate):
                scratch.shortage[SHORT_CANDIDATES] = postings
                return np.int64(i)
        wanted = i, entries.record[clause, ENTRY_SIGNATURE]
        for j in range(count):
            if grid.found[j] != NO_LIST:
                read_list(
                    lists, grid.found[j], living.alive, boxes, np.int64(BOTH), wanted, scratch
                )
    verify_candidates(entries, living, moves.entry, scratch, output)
    return np.int64(len(moves.entry))
