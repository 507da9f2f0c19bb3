"""The arrays of twin-lists: headers, the table of tokens, two pools of chunks, and the frame.

Chunks. A pool is cut into chunks of half a cache line, one, two, three, four, six, eight, twelve
... lines (*classes*). Free chunks of a class are chained by their first word.

Frame. All places are kept a second time as int16, ``(v - origin) >> shift`` within a frame around
subscriptions and messages. Beyond the frame they are clamped. Rounding and clamping keep the order,
so what is strictly between two rounded values is strictly between the exact ones: too small or too
large a frame costs time, never an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import at_cache_line
from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.token_table import mixed
from nearcast.indexes.moving.twin_lists.lanes import EMPTY_WINDOW, pack_window

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLAUSES, SIZE, CLASS, DEBT, WANTED = 0, 1, 2, 3, 4
"""Fields of ``header``, clauses: the chunk of the list, its number of clauses, the class of its
chunk; how many leaves were opened in vain since it was sorted; and how many clauses have the token,
whether or not it is their key."""

LIST, LIST_SIZE, DIRECTORY, GRID, TOTAL, BUILT, TOKEN = 5, 6, 7, 8, 9, 10, 11
"""Fields of ``header``, messages: the chunk of a flat list and ``size << 8 | class``; the chunk of
the directory (`NOTHING` for a flat list) and its number of columns; all postings, and how many
there were when the directory was built; the token."""

HEADER_WORDS = 16
NOTHING = -1
EVERY = 0
"""The header of clauses without tokens. Its list has all messages, once such a clause exists."""

EVERY_TOKEN, FREE_TOKEN = -1, -2
"""In ``header[:, TOKEN]``."""

TOP, FREE_WORDS = 0, 1
"""Fields of a pool's ``state``: the first word that was never used, and words of free chunks."""

(
    HEADERS,
    FREE_HEADER,
    TOKENS,
    ORIGIN_X,
    ORIGIN_Y,
    SHIFT_X,
    SHIFT_Y,
    EVERY_POSTED,
    REBUILDS,
    ARRIVED,
    CLAMPED,
    EXAMINED,
    VISITED,
    COPIES,
    SORTED,
    REKEYED,
) = range(16)
"""Fields of ``state``: headers ever used, the first free one, tokens in the table; the frame;
whether messages are posted under `EVERY`; how often a directory was built or freed; places that
arrived since the frame was chosen, and how many of them were outside of it; counters."""

LEAF_BITS, FLAT, TILE, REGRET = range(4)
"""Fields of ``option``: the base-2 logarithm of the clauses in a leaf, the longest flat list, the
postings of a tile, and how many leaves are opened in vain, per clause, before a list is sorted."""

CLASSES = 64
LINE = 16
"""Words of a cache line."""

NO_CHUNK = 255
CLASS_MASK = 255
SINGLE = np.int64(1) << 30
"""In a leaf's entry: the clause has at most one token."""

ENTRY_MASK = SINGLE - 1
EMPTY_LOW, EMPTY_HIGH = 32767, -32768
"""The sides of a box that nothing touches: west and south, east and north."""

HALF_MAX = 32766
_TABLE_MIN = 64


class Pool(NamedTuple):
    """Chunks: the words, the same seen as int16, the first free chunk of each class, and `TOP`."""

    word: NDArray[np.int32]
    half: NDArray[np.int16]
    free: NDArray[np.int32]
    state: NDArray[np.int64]


class TwinArrays(NamedTuple):
    """All arrays of the index.

    - ``header`` int32[headers, 16], a cache line for each token: see `CLAUSES` and `LIST`.
    - ``header_word`` int32[headers * 16]: the same, seen as words.
    - ``table`` int32[slots, 2], a hash table: token (-1 if free) and header.
    - ``clauses``, ``messages``: the pools.
    - ``state`` int64: see `HEADERS`; ``option`` int64: see `LEAF_BITS`.
    """

    header: NDArray[np.int32]
    header_word: NDArray[np.int32]
    table: NDArray[np.int32]
    clauses: Pool
    messages: Pool
    state: NDArray[np.int64]
    option: NDArray[np.int64]


# --- the frame -----------------------------------------------------------------------------------


@inlined_kernel
def rounded(value: Number, origin: Number, shift: Number) -> Number:
    """Return a coordinate as a number of 16 bits."""
    half = (np.int64(value) - origin) >> shift
    return min(max(half, np.int64(-HALF_MAX)), np.int64(HALF_MAX))


@inlined_kernel
def window_of(state: NDArray[np.int64], box: NDArray[np.int32]) -> Number:
    """Return the window of a box, which may be empty."""
    window = EMPTY_WINDOW
    if box[0] <= box[2]:
        window = pack_window(
            rounded(box[0], state[ORIGIN_X], state[SHIFT_X]),
            rounded(box[1], state[ORIGIN_Y], state[SHIFT_Y]),
            rounded(box[2], state[ORIGIN_X], state[SHIFT_X]),
            rounded(box[3], state[ORIGIN_Y], state[SHIFT_Y]),
        )
    return window


# --- chunks --------------------------------------------------------------------------------------


@inlined_kernel
def class_words(kind: Number) -> Number:
    """Return the words of a chunk of a class."""
    words = np.int64(8) << kind
    if kind >= 2:
        words = (np.int64(2) + (kind & 1)) * LINE << ((kind >> 1) - 1)
    return words


@kernel
def class_for(words: Number) -> Number:
    """Return the class of the smallest chunk with at least so many words."""
    kind = np.int64(0)
    while class_words(kind) < words:
        kind += 1
    return kind


@inlined_kernel
def has_room(pool: Pool, words: Number) -> Number:
    """Tell whether chunks of so many words can be had, even if none is free."""
    return pool.state[TOP] + words + 2 * LINE <= len(pool.word)


@kernel
def new_chunk(pool: Pool, kind: Number) -> Number:
    """Return a chunk of a class; the caller has asked `has_room`."""
    start = np.int64(pool.free[kind])
    words = class_words(kind)
    if start != NOTHING:
        pool.free[kind] = pool.word[start]
        pool.state[FREE_WORDS] -= words
        return start
    start = pool.state[TOP]
    pool.state[TOP] += max(words, np.int64(LINE))
    if kind == 0:  # the other half of the line
        pool.word[start + 8] = NOTHING
        pool.free[0] = start + 8
        pool.state[FREE_WORDS] += 8
    return start


@kernel
def free_chunk(pool: Pool, start: Number, kind: Number) -> None:
    """Give a chunk back."""
    pool.word[start] = pool.free[kind]
    pool.free[kind] = start
    pool.state[FREE_WORDS] += class_words(kind)


# --- headers -------------------------------------------------------------------------------------


@inlined_kernel
def home_of(table: NDArray[np.int32], token: Number) -> Number:
    """Return the slot at which the search for a token begins."""
    return np.int64(mixed(np.int64(token))) & np.int64(len(table) - 1)


@inlined_kernel
def find_header(table: NDArray[np.int32], token: Number) -> Number:
    """Return the header of a token, or `NOTHING`."""
    mask = np.int64(len(table) - 1)
    at = home_of(table, token)
    while table[at, 0] != token and table[at, 0] != NOTHING:
        at = (at + 1) & mask
    return np.int64(table[at, 1])


@kernel
def add_header(arrays: TwinArrays, token: Number) -> Number:
    """Return the header of a token, which may be new; there must be room for one."""
    header, table, state = arrays.header, arrays.table, arrays.state
    mask = np.int64(len(table) - 1)
    at = home_of(table, token)
    while table[at, 0] != token and table[at, 0] != NOTHING:
        at = (at + 1) & mask
    if table[at, 0] == token:
        return np.int64(table[at, 1])
    number = state[FREE_HEADER]
    if number != NOTHING:
        state[FREE_HEADER] = header[number, LIST]
    else:
        number = state[HEADERS]
        state[HEADERS] += 1
    table[at, 0], table[at, 1] = token, number
    state[TOKENS] += 1
    clear_header(header, number)
    header[number, TOKEN] = token
    return number


@kernel
def clear_header(header: NDArray[np.int32], number: Number) -> None:
    """Let a header have no clauses and no messages."""
    for field in range(HEADER_WORDS):
        header[number, field] = 0
    header[number, CLAUSES] = NOTHING
    header[number, CLASS] = NO_CHUNK
    header[number, LIST_SIZE] = NO_CHUNK
    header[number, DIRECTORY] = NOTHING


@inlined_kernel
def lacks_headers(arrays: TwinArrays, count: Number) -> Number:
    """Tell whether there is no room for so many new headers."""
    state = arrays.state
    lacks = state[HEADERS] + count > len(arrays.header)
    return lacks or 2 * (state[TOKENS] + count) > len(arrays.table)


@kernel
def fill_table(header: NDArray[np.int32], used: Number, table: NDArray[np.int32]) -> None:
    """Write the tokens of headers to an empty table."""
    mask = np.int64(len(table) - 1)
    for number in range(used):
        token = header[number, TOKEN]
        if token < 0:
            continue
        at = home_of(table, token)
        while table[at, 0] != NOTHING:
            at = (at + 1) & mask
        table[at, 0], table[at, 1] = token, number


def new_table(tokens: int) -> NDArray[np.int32]:
    """Return an empty table with room for twice as many tokens."""
    slots = _TABLE_MIN
    while slots < 4 * tokens:
        slots *= 2
    table: NDArray[np.int32] = at_cache_line(2 * slots, np.int32).reshape(-1, 2)
    table[:] = NOTHING
    return table


def new_pool(words: int) -> Pool:
    """Return a pool without chunks."""
    word = at_cache_line(words, np.int32)
    free = np.full(CLASSES, NOTHING, np.int32)
    return Pool(word, word.view(np.int16), free, np.zeros(2, np.int64))


def larger_pool(pool: Pool, words: int) -> Pool:
    """Return the same chunks, with room for more words."""
    top = int(pool.state[TOP])
    larger = new_pool(top + words + top // 2 + 1024)
    larger.word[:top] = pool.word[:top]
    return larger._replace(free=pool.free, state=pool.state)
