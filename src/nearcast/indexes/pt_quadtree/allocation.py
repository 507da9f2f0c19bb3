"""The arrays of a pivotal-token quadtree: made, enlarged, and the regions that they begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns import WORLD, read_only
from nearcast.compiled.token_table import SIZE, Tables, move_tables
from nearcast.indexes.pt_quadtree.change import move_entries
from nearcast.indexes.pt_quadtree.cover import Cover
from nearcast.indexes.pt_quadtree.grow import Work
from nearcast.indexes.pt_quadtree.tree import (
    DEPTH,
    LEFT,
    LIST_SIZE,
    NODES,
    PUSH,
    TOP,
    WIDTH,
    Quadtree,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

STACK = 128
"""Nodes that may wait while one goes down the tree: three a level, and there are 21 at most."""


class Settings(NamedTuple):
    """When leaves are split, and whether all inner nodes push clauses down to them."""

    list_size: int
    depth: int
    push: bool


def around(box: NDArray[np.int32], depth: int) -> NDArray[np.int32]:
    """Return the region around boxes, with a unit at least for each of the smallest regions."""
    if not len(box):
        box = np.zeros((1, 4), np.int32)
    low, high = box[:, :2].min(axis=0).astype(np.int64), box[:, 2:].max(axis=0).astype(np.int64)
    high = np.maximum(high, low + (1 << depth))
    over = np.maximum(high - np.iinfo(np.int32).max, 0)
    return np.concatenate([low - over, high - over]).astype(np.int32)


def enlarged(region: NDArray[np.int32], box: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return a region around another and boxes, half as large again on every side.

    So it grows but a few times, whatever comes, until it is the world.
    """
    low = np.minimum(region[:2], box[:, :2].min(axis=0)).astype(np.int64)
    high = np.maximum(region[2:], box[:, 2:].max(axis=0)).astype(np.int64)
    half = (high - low + 1) // 2
    wider_low = np.minimum(low, np.maximum(low - half, WORLD[:2]))
    wider_high = np.maximum(high, np.minimum(high + half, WORLD[2:]))
    return np.concatenate([wider_low, wider_high]).astype(np.int32)


def planted(
    region: NDArray[np.int32],
    settings: Settings,
    clauses: int,
    clause_label: NDArray[np.int64] | None,
) -> Quadtree:
    """Return a leaf without clauses. Room is reserved amply: untouched, it costs nothing."""
    nodes = 64 + 4 * clauses // settings.list_size
    node = np.zeros((nodes, 8), np.int32)
    node[0] = *region.tolist(), -1, -1, 0, settings.list_size
    state = np.zeros(8, np.int64)
    state[[NODES, LIST_SIZE, DEPTH, PUSH]] = 1, *settings
    entry = np.empty((16 + clauses + clauses // 4, WIDTH), np.int32)
    tables = _no_tables(nodes, clauses), _no_tables(nodes, clauses)
    rank = np.empty(0 if clause_label is None else len(entry), np.int32)
    label = np.empty(0, np.int64) if clause_label is None else clause_label
    return Quadtree(node, *tables, entry, rank, label, state)


def _no_tables(owners: int, tokens: int) -> Tables:
    slot = np.empty((64 + tokens, 2), np.uint64)
    return Tables(slot, np.zeros((owners, 3), np.int64), np.zeros(1, np.int64))


def moved(tables: Tables, more: int) -> Tables:
    """Return the tables in a pool without gaps that has room for more slots, if any are wanted."""
    used = int(tables.table[:, SIZE].sum())
    slot = np.empty((used + (more + used // 2 if more else 0), 2), np.uint64)
    move_tables(tables, slot)
    return tables._replace(slot=slot)


def with_nodes(tree: Quadtree, count: int) -> Quadtree:
    """Return the tree with room for so many nodes."""

    def grown(array: NDArray[Any]) -> NDArray[Any]:
        more = np.zeros((count, array.shape[1]), array.dtype)
        more[: len(array)] = array
        return more

    sets, lists = tree.sets, tree.lists
    return tree._replace(
        node=grown(tree.node),
        sets=sets._replace(table=grown(sets.table)),
        lists=lists._replace(table=grown(lists.table)),
    )


def with_entries(tree: Quadtree, more: int) -> Quadtree:
    """Return the tree with room for more entries, its lists without gaps between them."""
    used = int(tree.state[TOP] - tree.state[LEFT])
    entry = np.empty((64 + more + used + used // 2, WIDTH), np.int32)
    rank = np.empty(len(entry) if len(tree.clause_label) else 0, np.int32)
    move_entries(tree, entry, rank)
    return tree._replace(entry=entry, entry_rank=rank)


def work(clauses: int) -> Work:
    """Return work with nothing to do, and room for so many clauses."""
    return Work(
        np.empty((2 * STACK, 3), np.int64),
        np.empty(clauses, np.int32),
        np.zeros(3, np.int64),
        np.zeros(6, np.int64),
        np.empty(STACK, np.int64),
    )


def cover(pairs: int) -> Cover:
    """Return room for covering a list of so many pairs of a clause and a token."""
    slot = np.empty((pairs + pairs // 2 + 3, 2), np.uint64)
    own = Tables(slot, np.zeros((1, 3), np.int64), np.zeros(1, np.int64))
    wide = {"start", "pair_start"}
    rest: dict[str, NDArray[Any]] = {
        name: np.empty(pairs, np.int64 if name in wide else np.int32) for name in Cover._fields[1:]
    }
    return Cover(own, **rest)


def used(tables: Tables, nodes: int) -> dict[str, NDArray[Any]]:
    """Return the part of tables that is in use, to be stored."""
    return {"slot": tables.slot[: int(tables.top[0])], "table": tables.table[:nodes]}


def tables(arrays: Mapping[str, NDArray[Any]]) -> Tables:
    """Make tables from what was stored."""
    slot = read_only(arrays["slot"], np.uint64)
    return Tables(slot, read_only(arrays["table"], np.int64), read_only([len(slot)], np.int64))


def each(tree: Quadtree, make: Callable[[NDArray[Any]], NDArray[Any]]) -> Quadtree:
    """Return what a function makes of each of the arrays."""
    return Quadtree(
        make(tree.node),
        Tables(*(make(array) for array in tree.sets)),
        Tables(*(make(array) for array in tree.lists)),
        make(tree.entry),
        make(tree.entry_rank),
        make(tree.clause_label),
        make(tree.state),
    )
