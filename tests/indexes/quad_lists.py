"""Read the arrays of the quadtree indexes as plain numbers, and say what must hold of them.

It shares nothing with the kernels: where a clause must be is computed again, with the
cost model of the papers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from nearcast.indexes.quadtrees.index import QuadIndex

NO_TOKEN = 2**31 - 1
TREE = -1

SOUTH_WEST = (0, -(1 << 31), -(1 << 30))
"""The cell of level 0: its level and corner."""


def touched(cell: Any, box: Any) -> list[int]:
    """Return the children of a cell that a box touches."""
    level, west, south = cell
    x, y = west + (1 << (31 - level)), south + (1 << (30 - level))
    across = [0] * (box[0] < x) + [1] * (box[2] >= x)
    up = [0] * (box[1] < y) + [2] * (box[3] >= y)
    return [a + b for b in up for a in across]


def below(cell: Any, child: int) -> Any:
    """Return a child of a cell."""
    level, west, south = cell
    return level + 1, west + ((child & 1) << (31 - level)), south + ((child >> 1) << (30 - level))


class Model:
    """The clauses as the index has them, and the cost model: where each is best placed."""

    def __init__(self, index: QuadIndex) -> None:
        arrays = index.arrays()
        self.share, self.hit = arrays["share"], arrays["hit"]
        self.options, self.box = index.options, index.clauses.box.tolist()
        self.tokens = ordered_tokens(index)

    def share_of(self, cell: Any) -> float:
        level, west, south = cell
        known = min(level, 7)
        column, row = (west + (1 << 31)) >> (32 - known), (south + (1 << 30)) >> (31 - known)
        number = (4**known - 1) // 3 + (row << known) + column
        share: float = self.share[number].item() / 4 ** (level - known)
        return share

    def deepest(self, box: Any) -> int:
        wide = max(box[2] - box[0], 2 * (box[3] - box[1])) + 1
        level = 0
        while level < self.options.depth and (1 << (31 - level)) >= wide:
            level += 1
        return int(min(level + self.options.parts.bit_length() - 1, self.options.depth))

    def costs(self, clause: int, cell: Any) -> tuple[float, float]:
        """Return what a clause costs in a cell if it stays, and if it is best divided."""
        level, west, south = cell
        box, price = self.box[clause], float(self.options.update_cost)
        expected = self.share_of(cell) * float(self.hit[clause])
        east, north = west + (1 << (32 - level)) - 1, south + (1 << (31 - level)) - 1
        inside = box[0] <= west and box[2] >= east and box[1] <= south and box[3] >= north
        stay = expected + price
        if expected <= price or level >= self.deepest(box) or inside:
            return stay, np.inf
        divided = 0.0
        for child in touched(cell, box):
            if divided < stay:
                divided += min(self.costs(clause, below(cell, child)))
        return stay, divided


class Plain:
    """The arrays of an index as plain Python."""

    def __init__(self, index: QuadIndex) -> None:
        arrays = {name: array.tolist() for name, array in index.arrays().items()}
        self.arrays = arrays
        self.flat = [number for entry in arrays["entry"] for number in entry]
        self.rows = {(row[4] - 1, row[0]): row for row in arrays["slot"] if row[4]}
        self.nodes = arrays["node"]
        self.state = arrays["state"]
        assert len(self.rows) == sum(row[4] > 0 for row in arrays["slot"]) == self.state[0]

    def cell(self, node: int) -> Any:
        west, south, level = self.nodes[node][5:]
        return level, west, south

    def children(self, node: int) -> list[int]:
        first = self.nodes[node][4]
        return [] if first < 0 else list(range(first, first + 4))

    def run(self, owner: int) -> list[int]:
        start, count, capacity = self.arrays["run"][owner]
        assert count <= capacity
        tokens: list[int] = self.arrays["listed"][start : start + count]
        assert len(set(tokens)) == count
        return tokens

    def entries(self, row: list[int]) -> list[tuple[list[int], int, int]]:
        """Return box, clause and next token of the entries of a list."""
        _, start, size, capacity = row[:4]
        assert size <= capacity
        stride, found = min(capacity, 16), []
        for number in range(size):
            block = number - number % 16
            place = 6 * start + 4 * block + number % 16
            box = [self.flat[place + side * stride] for side in range(4)]
            tail = 6 * start + 4 * capacity + 2 * number
            found.append((box, *self.flat[tail : tail + 2]))
        return found

    def below(self, node: int) -> list[int]:
        """Return a node and all below it."""
        return [node, *(n for child in self.children(node) for n in self.below(child))]


def places(plain: Plain, model: Model, clause: int, node: int) -> list[int]:
    """Return the nodes of a tree where a clause must be."""
    stay, divided = model.costs(clause, plain.cell(node))
    if not plain.children(node) or divided >= stay:
        return [node]
    below = touched(plain.cell(node), model.box[clause])
    return [n for child in below for n in places(plain, model, clause, plain.children(node)[child])]


def ordered_tokens(index: QuadIndex) -> list[list[int]]:
    token, start = index.arrays()["token"].tolist(), index.clauses.token_start.tolist()
    tokens = [token[a:b] or [NO_TOKEN] for a, b in pairwise(start)]
    given = index.clauses.token.tolist()
    assert all(sorted(t) in ([NO_TOKEN], sorted(given[a:b])) for t, (a, b) in _zip(tokens, start))
    return tokens


def _zip(tokens: list[list[int]], start: list[int]) -> Any:
    return zip(tokens, pairwise(start), strict=True)


def alive_clauses(index: QuadIndex) -> list[int]:
    row = index.clauses.row
    return np.flatnonzero(index.alive[row]).tolist() if len(row) else []


def check_entries(model: Model, plain: Plain, row: list[int], known: int) -> list[int]:
    """Assert that entries say what their clauses do; return the clauses."""
    found = plain.entries(row)
    for box, clause, after in found:
        assert box == model.box[clause]
        rest = model.tokens[clause][known:]
        if not rest:
            assert after == NO_TOKEN
        else:
            assert after == (rest[0] if len(rest) == 1 else ~rest[0])
    return [clause for _, clause, _ in found]


def check_state(index: QuadIndex, plain: Plain) -> None:
    """Assert the invariants of all quadtree indexes."""
    state = plain.state
    assert state[9] == len(alive_clauses(index))
    rows = [*plain.rows.values(), *plain.nodes] if not state[12] else list(plain.rows.values())
    capacities = sum(row[3] for row in rows if row[3] > 0)
    assert state[4] - state[5] >= capacities
    spans = sorted((row[1], row[1] + row[3]) for row in rows if row[3] > 0)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    for node in range(len(plain.nodes)):
        for number, child in enumerate(plain.children(node)):
            assert plain.cell(child) == below(plain.cell(node), number)
