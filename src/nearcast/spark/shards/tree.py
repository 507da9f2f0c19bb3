"""The arrays of a router, and the kernels that route subscriptions and messages to shards.

The tree is the top of an adaptive partition tree (Wang, Zhang, Zhang, Lin, Wang: AP-Tree, VLDB
Journal 2015, section 3.2). The children of a node are adjacent:

- A *keyword* node has an offset ``l`` and divides the ranks of tokens into cuts. A clause goes to
  the cut of its ``l``-th lowest rank; a clause with fewer ranks goes to the dummy. A message goes
  to each cut that contains one of its ranks, and below it only the ranks after the first one in
  that cut count. It also goes to the dummy.
- A *space* node divides its region into columns and rows of cells. A clause goes to each cell that
  its box overlaps, or to the dummy if its box contains the whole region. A message goes to each
  cell that it overlaps, and to the dummy. Without a dummy, a clause whose box contains the region
  goes to all cells.
- A *leaf* names its shard. The subscriptions of an `EVERYWHERE` leaf are in every shard.

Coordinates are integers: a cell starts at a split and ends one unit before the next one. So a box
and a place that overlap, even at a border, share a cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, kernel
from nearcast.compiled.partition import part_of
from nearcast.compiled.sorting import sort_short

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAF, KEYWORDS, SPACE = 0, 1, 2
"""The kinds of nodes."""

EVERYWHERE = -1
"""The shard of a leaf whose subscriptions are in every shard."""

_COLUMN_MIX = 73_856_093
_ROW_MIX = 19_349_663


class TreeArrays(NamedTuple):
    """The nodes of a tree; node 0 is the root, and children come after their parents.

    ``first`` is the first child of a node, or the shard of a leaf. A node has ``columns * rows``
    cells or (``rows == 1``) cuts, followed by the dummy if ``dummy`` is 1. Its splits are
    ``split[split_start[n]:split_start[n + 1]]``: ``columns - 1`` ranks or longitudes, then
    ``rows - 1`` latitudes. ``region`` is the box that a space node divides, borders included.
    """

    kind: NDArray[np.uint8]
    first: NDArray[np.int32]
    offset: NDArray[np.int32]
    columns: NDArray[np.int32]
    rows: NDArray[np.int32]
    dummy: NDArray[np.uint8]
    split_start: NDArray[np.int64]
    split: NDArray[np.int32]
    region: NDArray[np.int32]


class Pieces(NamedTuple):
    """The input: row ``i`` consists of the pieces ``piece_start[i]:piece_start[i + 1]``.

    A piece is a clause of a subscription, or a message on one side of the antimeridian. It has
    tokens and a box; ``rank`` gives the rank of each token.
    """

    piece_start: NDArray[np.int64]
    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    box: NDArray[np.int32]
    rank: NDArray[np.int32]


class Piece(NamedTuple):
    """One piece: its box as int32[4], and its ascending ranks, empty until a node asks for them."""

    box: NDArray[np.int32]
    ranks: NDArray[np.int32]


class Scratch(NamedTuple):
    """Scratch space: stack int32[nodes, 2], rank int32[longest piece], seen int64[shards]."""

    stack: NDArray[np.int32]
    rank: NDArray[np.int32]
    seen: NDArray[np.int64]


class Routes(NamedTuple):
    """The shards of every row, ascending: ``shard[start[i]:start[i + 1]]``."""

    start: NDArray[np.int64]
    shard: NDArray[np.int32]


@kernel
def ranks_of(pieces: Pieces, piece: Number, ranks: NDArray[np.int32]) -> Number:
    """Write the distinct ranks of a piece in ascending order; return their number."""
    count = 0
    for i in range(pieces.token_start[piece], pieces.token_start[piece + 1]):
        ranks[count] = pieces.rank[pieces.token[i]]
        count += 1
    sort_short(ranks[:count])
    kept = 0
    for i in range(count):
        if kept == 0 or ranks[i] != ranks[kept - 1]:
            ranks[kept] = ranks[i]
            kept += 1
    return kept


@kernel
def push_cells(
    tree: TreeArrays, piece: Piece, node: Number, position: Number, scratch: Scratch, top: Number
) -> Number:
    """Push the cells of a space node that a piece overlaps; return the new top of the stack."""
    box, stack = piece.box, scratch.stack
    middle = tree.split_start[node] + tree.columns[node] - 1
    west = part_of(tree.split, tree.split_start[node], middle, box[0])
    south = part_of(tree.split, middle, tree.split_start[node + 1], box[1])
    east, north = west, south
    if box[2] != box[0] or box[3] != box[1]:
        east = part_of(tree.split, tree.split_start[node], middle, box[2])
        north = part_of(tree.split, middle, tree.split_start[node + 1], box[3])
    for row in range(south, north + 1):
        for column in range(west, east + 1):
            stack[top, 0] = tree.first[node] + row * tree.columns[node] + column
            stack[top, 1] = position
            top += 1
    return top


@kernel
def push_message(
    tree: TreeArrays, piece: Piece, node: Number, position: Number, scratch: Scratch, top: Number
) -> Number:
    """Push the children that a message visits, with the position of its next rank."""
    ranks, stack = piece.ranks, scratch.stack
    if tree.kind[node] == SPACE:
        top = push_cells(tree, piece, node, position, scratch, top)
    else:
        begin, end = tree.split_start[node], tree.split_start[node + 1]
        last = -1
        for i in range(position, len(ranks)):
            cut = part_of(tree.split, begin, end, ranks[i])
            if cut != last:
                stack[top, 0] = tree.first[node] + cut
                stack[top, 1] = i + 1
                top += 1
                last = cut
    if tree.dummy[node]:
        stack[top, 0] = tree.first[node] + tree.columns[node] * tree.rows[node]
        stack[top, 1] = position
        top += 1
    return top


@kernel
def push_clause(
    tree: TreeArrays, piece: Piece, node: Number, position: Number, scratch: Scratch, top: Number
) -> Number:
    """Push the children that contain a clause."""
    box, ranks, stack = piece.box, piece.ranks, scratch.stack
    if tree.kind[node] == SPACE:
        region = tree.region[node]
        inside = (
            box[0] <= region[0]
            and box[1] <= region[1]
            and box[2] >= region[2]
            and box[3] >= region[3]
        )
        if not (inside and tree.dummy[node]):
            return push_cells(tree, piece, node, position, scratch, top)
    elif tree.offset[node] < len(ranks):
        begin, end = tree.split_start[node], tree.split_start[node + 1]
        cut = part_of(tree.split, begin, end, ranks[tree.offset[node]])
        stack[top, 0] = tree.first[node] + cut
        stack[top, 1] = position
        return top + 1
    stack[top, 0] = tree.first[node] + tree.columns[node] * tree.rows[node]
    stack[top, 1] = position
    return top + 1


@kernel
def visit_leaves(
    tree: TreeArrays,
    pieces: Pieces,
    numbers: tuple[Number, Number],
    are_messages: Number,
    scratch: Scratch,
    shard: NDArray[np.int32],
    count: Number,
) -> tuple[Number, Number]:
    """Append the shards of the leaves that a piece reaches, unless its row has them already.

    ``numbers`` are those of the row and of the piece. Returns the number of shards, and whether an
    `EVERYWHERE` leaf was reached.
    """
    row, number = numbers
    everywhere, ranked = False, False
    piece = Piece(pieces.box[number], scratch.rank[:0])
    stack, seen = scratch.stack, scratch.seen
    stack[0, 0] = stack[0, 1] = 0
    top = 1
    while top:
        top -= 1
        node, position = stack[top, 0], stack[top, 1]
        if tree.kind[node] != LEAF:
            if tree.kind[node] == KEYWORDS and not ranked:  # many pieces reach none
                ranks = scratch.rank[: ranks_of(pieces, number, scratch.rank)]
                piece, ranked = Piece(piece.box, ranks), True
            if are_messages:
                top = push_message(tree, piece, node, position, scratch, top)
            else:
                top = push_clause(tree, piece, node, position, scratch, top)
        elif tree.first[node] == EVERYWHERE:
            everywhere = True
        elif seen[tree.first[node]] != row:
            seen[tree.first[node]] = row
            shard[count] = tree.first[node]
            count += 1
    return count, everywhere


@kernel
def route(
    tree: TreeArrays,
    pieces: Pieces,
    are_messages: Number,
    first: Number,
    scratch: Scratch,
    routes: Routes,
) -> Number:
    """Route the rows from ``first`` on, as long as their shards fit into the output.

    Fills ``routes`` (int64[rows + 1], int32[any]). ``scratch.seen`` must not contain a row from
    ``first`` on. Returns the first row that did not fit.

    A message that reaches only `EVERYWHERE` leaves visits one shard, chosen by its place.
    """
    tree, pieces, scratch = borrow(tree), borrow(pieces), borrow(scratch)
    shards = len(scratch.seen)
    shard = borrow(routes.shard)
    for row in range(first, len(pieces.piece_start) - 1):
        begin = routes.start[row]
        if begin + shards > len(shard):
            return row
        count, everywhere = begin, False
        for piece in range(pieces.piece_start[row], pieces.piece_start[row + 1]):
            count, found = visit_leaves(
                tree, pieces, (row, piece), are_messages, scratch, shard, count
            )
            everywhere = everywhere or found
        if everywhere and not are_messages:
            for s in range(shards):
                shard[begin + s] = s
            count = begin + shards
        elif everywhere and count == begin:
            box = pieces.box[pieces.piece_start[row]]
            mixed = np.int64(box[0]) * _COLUMN_MIX ^ np.int64(box[1]) * _ROW_MIX
            shard[count] = (mixed >> 7) % shards
            count += 1
        elif count - begin > 1:
            shard[begin:count].sort()
        routes.start[row + 1] = count
    return len(pieces.piece_start) - 1


@kernel
def first_invalid(tree: TreeArrays, shards: Number, above: NDArray[np.int32]) -> Number:
    """Return the first invalid node, or -1; ``above`` int32[nodes] is filled.

    Children must cover the nodes after the root without gaps, splits must ascend, and offsets must
    grow downwards (``above`` is the offset of the nearest keyword node above, not counting nodes
    whose dummy leads here).
    """
    expected = np.int64(1)
    above[0] = -1
    for node in range(len(tree.kind)):
        kind, first = tree.kind[node], np.int64(tree.first[node])
        begin, end = tree.split_start[node], tree.split_start[node + 1]
        if kind == LEAF:
            if begin != end or first < EVERYWHERE or first >= shards:
                return node
            continue
        columns, rows = np.int64(tree.columns[node]), np.int64(tree.rows[node])
        if kind > SPACE or tree.dummy[node] > 1 or columns < 1 or rows < 1:
            return node
        if kind == KEYWORDS and (rows != 1 or not tree.dummy[node]):
            return node
        children = columns * rows + tree.dummy[node]
        if first != expected or first + children > len(tree.kind):
            return node
        expected += children
        if end - begin != columns + rows - 2:
            return node
        for i in range(begin + 1, end):
            if i != begin + columns - 1 and tree.split[i] <= tree.split[i - 1]:
                return node
        offset = above[node]
        if kind == KEYWORDS:
            if tree.offset[node] <= offset:
                return node
            offset = tree.offset[node]
        for child in range(first, first + columns * rows):
            above[child] = offset
        if tree.dummy[node]:  # a dummy says nothing about the ranks of a message
            above[first + columns * rows] = above[node]
    return -1 if expected == len(tree.kind) else 0
