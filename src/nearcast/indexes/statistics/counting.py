"""Count tokens and documents by grid cell, in a hash table of pairs.

A pair is a cell and a token. Its key is ``(cell + 1) << 32 | (token + 1)``, where -1 stands for
"anywhere" and "any token". So one table holds document frequencies, the number of documents per
cell, and document frequencies per cell.

The table is ``slot``, uint64[slots, 2], of a power of two slots. A slot is a key and a word: the
count in the upper half (0 in a free slot) and, in the lower half, the last document that counted.
So a document counts once per cell, whatever number of its pieces lie there. Counting a pair touches
one cache line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Pieces", "count_pieces", "move_pairs"]

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONCE = np.uint64(1 << 32)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_SHIFT = np.uint64(29)


class Pieces(NamedTuple):
    """Pieces of documents, each with tokens and a box; the pieces of a document are adjacent.

    Piece ``p`` belongs to ``document[p]`` (below 2**32), has the tokens
    ``token[token_start[p]:token_start[p + 1]]`` and lies in the columns and rows of the grid from
    ``cell[p, :2]`` to ``cell[p, 2:]``.
    """

    document: NDArray[np.int64]
    cell: NDArray[np.int32]
    token_start: NDArray[np.int64]
    token: NDArray[np.int32]


@kernel
def _place_of(slot: NDArray[np.uint64], key: Number) -> Number:
    """Return the slot of a key, or the free slot where it would go."""
    mask = np.uint64(len(slot) - 1)
    mixed = (key ^ (key >> _HALF)) * _MIX
    place = (mixed ^ (mixed >> _SHIFT)) & mask
    while slot[place, 1] != 0 and slot[place, 0] != key:
        place = (place + np.uint64(1)) & mask
    return place


@kernel
def _count_one(slot: NDArray[np.uint64], cell: Number, token: Number, document: Number) -> Number:
    """Count a pair for a document, once; return 1 if the pair is new to the table, else 0."""
    key = (np.uint64(cell + 1) << _HALF) | np.uint64(token + 1)
    place = _place_of(slot, key)
    counted = slot[place, 1]
    if counted == 0:
        slot[place, 0] = key
        slot[place, 1] = _ONCE | np.uint64(document)
        return 1
    if counted & _LOW != np.uint64(document):
        slot[place, 1] = ((counted >> _HALF) + np.uint64(1)) << _HALF | np.uint64(document)
    return 0


@kernel
def _cells_of(cell: NDArray[np.int32], piece: Number) -> Number:
    width = np.int64(cell[piece, 2]) - cell[piece, 0] + 1
    height = np.int64(cell[piece, 3]) - cell[piece, 1] + 1
    return width * height


@kernel
def _count_piece(pieces: Pieces, piece: Number, across: int, slot: NDArray[np.uint64]) -> Number:
    """Count all pairs of one piece; return the number of pairs that are new to the table."""
    document = pieces.document[piece]
    begin, end = pieces.token_start[piece], pieces.token_start[piece + 1]
    new = np.int64(0)
    for i in range(begin, end):
        new += _count_one(slot, np.int64(-1), np.int64(pieces.token[i]), document)
    for row in range(pieces.cell[piece, 1], pieces.cell[piece, 3] + 1):
        for column in range(pieces.cell[piece, 0], pieces.cell[piece, 2] + 1):
            cell = np.int64(row) * across + column
            new += _count_one(slot, cell, np.int64(-1), document)
            for i in range(begin, end):
                new += _count_one(slot, cell, np.int64(pieces.token[i]), document)
    return new


@kernel
def count_pieces(
    pieces: Pieces, first: int, across: int, slot: NDArray[np.uint64], used: int
) -> tuple[Number, Number, Number]:
    """Count the pairs of pieces from ``first`` on, document by document, while they fit.

    The table is never more than half full. Return the piece at which it stopped, the number of
    slots in use, and the number of pairs that the next document may need.
    """
    count = len(pieces.document)
    capacity = len(slot) // 2
    piece = np.int64(first)
    taken = np.int64(used)
    while piece < count:
        end = piece
        need = np.int64(0)
        while end < count and pieces.document[end] == pieces.document[piece]:
            tokens = pieces.token_start[end + 1] - pieces.token_start[end]
            need += (_cells_of(pieces.cell, end) + 1) * (tokens + 1)
            end += 1
        if taken + need > capacity:
            return piece, taken, need
        for i in range(piece, end):
            taken += _count_piece(pieces, i, across, slot)
        piece = end
    return piece, taken, np.int64(0)


@kernel
def move_pairs(old: NDArray[np.uint64], new: NDArray[np.uint64]) -> None:
    """Copy the pairs of a table into another one, which is empty and large enough."""
    for i in range(len(old)):
        if old[i, 1] != 0:
            place = _place_of(new, old[i, 0])
            new[place, 0] = old[i, 0]
            new[place, 1] = old[i, 1]
