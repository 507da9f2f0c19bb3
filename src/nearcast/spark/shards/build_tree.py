"""Build the tree of a router from samples: each node is divided by keywords or by space.

Follows algorithm 4 of AP-Tree (Wang, Zhang, Zhang, Lin, Wang, VLDB Journal 2015, section 3.3.4).
The cost has two more terms: visiting a part costs something, because the message is sent there, and
so does each copy of a clause in several parts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns import WORLD, Clauses, Messages, distinct, starts
from nearcast.indexes.cost_model import (
    SpaceCuts,
    cell_shares,
    cut_keywords,
    cut_space,
    keyword_hits,
    smoothed,
)
from nearcast.spark.shards.router import Router
from nearcast.spark.shards.tree import KEYWORDS, LEAF, SPACE
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Sample", "build_tree"]

MAX_PARTS = 8
ROUNDS = 3
MAX_DEPTH = 24

VISIT = 0.25
"""The cost of visiting a part, as a share of examining a full leaf."""

MEMORY = 0.1
"""The cost of storing a clause, compared with examining it for every message."""

SHRINK = 0.9
"""A node is divided only if its largest part has at most this share of its clauses."""

SWELL = 1.8
"""A node is divided only if its parts have at most this many times its clauses in all."""

SPREAD = 0.05
"""Clauses that contain a region are copied to all its cells if that adds at most this share."""


class Ranks(NamedTuple):
    """The distinct ranks of each row, ascending."""

    start: NDArray[np.int64]
    rank: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sample:
    """Samples of clauses and messages (cut at the antimeridian), with ranks instead of tokens."""

    vocabulary: Vocabulary
    clause: Ranks
    clause_box: NDArray[np.int32]
    message: Ranks
    message_box: NDArray[np.int32]

    @classmethod
    def of(cls, clauses: Clauses, messages: Messages, vocabulary: Vocabulary) -> Sample:
        """Rank the tokens that occur at least twice, rarest first; hash the others."""
        size = len(vocabulary)
        frequency = np.bincount(clauses.token, minlength=size)
        frequency += np.bincount(messages.token, minlength=size)
        known = np.flatnonzero(frequency > 1)
        tokens = vocabulary.tokens().take(known).to_pylist()
        ordered = sorted(zip(frequency[known].tolist(), tokens, strict=True))
        own = Vocabulary([token for _, token in ordered])
        rank = replace(Router.single(), vocabulary=own).ranks(vocabulary)
        pieces, _ = messages.cut()
        return cls(
            own,
            _sorted(clauses.token_start, rank[clauses.token]),
            clauses.box,
            _sorted(pieces.token_start, rank[pieces.token]),
            pieces.box,
        )


class Node(NamedTuple):
    """The clauses and messages of a node; ``position`` is the first rank that counts."""

    clause: NDArray[np.int64]
    message: NDArray[np.int64]
    position: NDArray[np.int64]
    region: tuple[int, int, int, int]
    offset: int
    depth: int


class Split(NamedTuple):
    """A way to divide a node: its parts, the dummy last if there is one, and the cost."""

    kind: int
    columns: int
    rows: int
    dummy: int
    split: list[int]
    parts: list[Node]
    cost: float


def build_tree(sample: Sample, leaf_size: float) -> Router:
    """Return a router whose leaves are shards.

    A leaf has at most ``leaf_size`` clauses of the sample, unless they cannot be separated.
    """
    every = np.arange(len(sample.clause_box))
    messages = np.arange(len(sample.message_box))
    root = Node(every, messages, np.zeros(len(messages), np.int64), WORLD, 0, 0)
    queue = deque([root])
    columns: dict[str, list[Any]] = {
        name: [] for name in ("kind", "first", "offset", "columns", "rows", "dummy", "region")
    }
    splits: list[list[int]] = []
    count, leaves = 1, 0
    while queue:
        node = queue.popleft()
        split = _best_split(sample, node, leaf_size)
        if split is None:
            split = Split(LEAF, 0, 0, 0, [], [], 0.0)
        leaf = split.kind == LEAF
        record = (split.kind, leaves if leaf else count, node.offset, *split[1:4], node.region)
        for column, value in zip(columns.values(), record, strict=True):
            column.append(value)
        splits.append(split.split)
        leaves += leaf
        count += len(split.parts)
        queue.extend(split.parts)
    arrays = {name: np.array(values) for name, values in columns.items()}
    return Router(
        **arrays,
        split_start=starts(np.array([len(s) for s in splits])),
        split=np.array([v for s in splits for v in s], np.int32),
        shards=leaves,
        vocabulary=sample.vocabulary,
    )


def _best_split(sample: Sample, node: Node, leaf_size: float) -> Split | None:
    """Return the cheapest way to divide a node; None if it is small or cannot be divided."""
    count = len(node.clause)
    if count <= leaf_size or node.depth >= MAX_DEPTH:
        return None
    wanted = int(min(max(np.ceil(count / leaf_size), 2), MAX_PARTS))
    for parts in sorted({wanted, min(wanted, 4), 2}, reverse=True):
        tried = [
            _by_keywords(sample, node, parts, VISIT * leaf_size),
            _by_space(sample, node, parts, VISIT * leaf_size),
        ]
        able = [split for split in tried if split is not None and _helps(split, count)]
        if able:
            return min(able, key=lambda split: split.cost)
    return None


def _helps(split: Split, count: int) -> bool:
    size = [len(part.clause) for part in split.parts]
    return max(size) <= SHRINK * count and sum(size) <= SWELL * count


def _by_keywords(sample: Sample, node: Node, parts: int, visit: float) -> Split | None:
    """Divide the ranks of the clauses at the node's offset."""
    start = sample.clause.start
    long = start[node.clause + 1] - start[node.clause] > node.offset
    clause = node.clause[long]
    rank = sample.clause.rank[start[clause] + node.offset]
    keyword, weight = np.unique(rank, return_counts=True)
    if len(keyword) < 2:
        return None
    owner, at = _tails(sample.message, node)
    tail = sample.message.rank[at]
    # A rank that no clause has here belongs to the cut of the keyword before it.
    near = np.maximum(np.searchsorted(keyword, tail, "right") - 1, 0)
    occurrences = np.bincount(near, minlength=len(keyword))
    hit = keyword_hits(weight, occurrences, len(node.message))
    cut = cut_keywords(weight, hit, parts, rounds=ROUNDS).cut
    split = keyword[cut[1:-1]]
    cut_of_clause = np.searchsorted(split, rank, "right")
    cut_of_tail = np.searchsorted(split, tail, "right")
    first = np.flatnonzero(np.diff(owner * (len(split) + 1) + cut_of_tail, prepend=-1))
    made = []
    for i in range(len(split) + 1):
        chosen = first[cut_of_tail[first] == i]
        message = node.message[owner[chosen]]
        position = at[chosen] - sample.message.start[message] + 1
        mine = clause[cut_of_clause == i]
        made.append(Node(mine, message, position, node.region, node.offset + 1, node.depth + 1))
    share = np.add.reduceat(weight, cut[:-1]) / weight.sum()
    made.append(node._replace(clause=node.clause[~long], depth=node.depth + 1))
    cost = _cost(made, len(node.message), np.append(share, 1.0), visit)
    return Split(KEYWORDS, len(split) + 1, 1, 1, split.tolist(), made, cost)


def _by_space(sample: Sample, node: Node, parts: int, visit: float) -> Split | None:
    """Divide the region of the node into the cheapest grid."""
    box, places = sample.clause_box[node.clause], sample.message_box[node.message]
    grid = min(_grids(box, node.region, parts, places), key=lambda cuts: cuts.cost)
    columns, rows = len(grid.column) + 1, len(grid.row) + 1
    if columns * rows < 2:
        return None
    west, south, east, north = node.region
    whole = (box[:, :2] <= (west, south)).all(axis=1) & (box[:, 2:] >= (east, north)).all(axis=1)
    dummy = int(whole.sum() * (columns * rows - 1) > SPREAD * len(box))
    parted = ~whole if dummy else np.ones(len(box), np.bool_)
    x = [west, *grid.column.tolist(), east + 1]
    y = [south, *grid.row.tolist(), north + 1]
    made = []
    for j in range(rows):
        for i in range(columns):
            cell = (x[i], y[j], x[i + 1] - 1, y[j + 1] - 1)
            here = _overlaps(places, cell)
            made.append(
                Node(
                    node.clause[_overlaps(box, cell) & parted],
                    node.message[here],
                    node.position[here],
                    cell,
                    node.offset,
                    node.depth + 1,
                )
            )
    share = cell_shares(node.region, grid.column, grid.row).ravel()
    if dummy:
        made.append(node._replace(clause=node.clause[whole], depth=node.depth + 1))
        share = np.append(share, 1.0)
    cost = _cost(made, len(node.message), share, visit)
    split = [*grid.column.tolist(), *grid.row.tolist()]
    return Split(SPACE, columns, rows, dummy, split, made, cost)


def _grids(
    box: NDArray[np.int32], region: tuple[int, int, int, int], parts: int, places: NDArray[np.int32]
) -> list[SpaceCuts]:
    side = int(np.sqrt(parts))
    shapes = sorted({(parts, 1), (1, parts), (parts // side, side), (side, parts // side)})
    return [cut_space(box, region, c, r, places, rounds=ROUNDS) for c, r in shapes]


def _cost(parts: list[Node], messages: int, prior: NDArray[Any], visit: float) -> float:
    """Return the cost of the clauses that a message examines, of its visits, and of memory."""
    weight = np.array([len(part.clause) for part in parts], np.float64)
    hit = smoothed([len(part.message) for part in parts], messages, prior)
    # A part without clauses in the sample has hardly any, so nobody visits it.
    entered = np.where(weight > 0, weight + visit, 0.0)
    return float((hit * entered).sum() + MEMORY * weight.sum())


def _tails(ranks: Ranks, node: Node) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ranks of messages that count at a node: the message and position of each."""
    begin = ranks.start[node.message] + node.position
    length = ranks.start[node.message + 1] - begin
    tail_start = starts(length)
    at = np.arange(tail_start[-1]) + np.repeat(begin - tail_start[:-1], length)
    return np.repeat(np.arange(len(node.message)), length), at


def _overlaps(box: NDArray[np.int32], cell: tuple[int, int, int, int]) -> NDArray[np.bool_]:
    west, south, east, north = cell
    overlaps: NDArray[np.bool_] = (
        (box[:, 0] <= east) & (box[:, 2] >= west) & (box[:, 1] <= north) & (box[:, 3] >= south)
    )
    return overlaps


def _sorted(start: NDArray[np.int64], rank: NDArray[np.int32]) -> Ranks:
    """Return the distinct ranks of each row, sorted."""
    row = np.repeat(np.arange(len(start) - 1), np.diff(start))
    key = distinct((row << 32) | rank.astype(np.int64))
    length = np.bincount(key >> 32, minlength=len(start) - 1)
    return Ranks(starts(length), key & 0xFFFFFFFF)
