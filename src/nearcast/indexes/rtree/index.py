"""What all indexes over an R-tree have in common; they differ in what its nodes know of tokens.

See `nearcast.indexes.rtree.token_tree` for the kinds, `rtree_walk` for the one way in which messages go
down all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from nearcast.columns import Clauses, GrowingArray, read_only
from nearcast.compiled.ordered_clauses import Ordered
from nearcast.compiled.token_filter import FILTER_WORDS
from nearcast.compiled.token_table import NO_TOKEN, SIZE, Tables, move_tables
from nearcast.indexes.in_place import InPlaceIndex, check_tokens
from nearcast.indexes.rtree.change import condense
from nearcast.indexes.rtree.loading import (
    TreeOptions,
    grown,
    insert_into_tree,
    load_tree,
    split_scratch,
)
from nearcast.indexes.rtree.nodes import CHANGED, CONTENT, MOVED, ROOT, TOP, RTree
from nearcast.indexes.rtree.token_lists import move_postings
from nearcast.indexes.rtree.token_tree import FILES, LISTS, NOTHING, Postings, Room
from nearcast.indexes.rtree.tree_arrays import TreeArrays, TreeScratch
from nearcast.indexes.rtree.tree_change import Missing, add_clauses, erase_clauses, renew_nodes
from nearcast.indexes.rtree.walk import walk_messages
from nearcast.indexes.token_order.order import TokenOrder
from nearcast.storage import nested, prefixed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays
    from nearcast.indexes.boolean import Progress


__all__ = ["TreeIndex"]


class _Known(NamedTuple):
    """What the nodes know of tokens."""

    tables: Tables
    postings: Postings


class _Stamps(NamedTuple):
    """How deep each clause was met, and by which message."""

    stamp: NDArray[np.uint32]
    epoch: NDArray[np.int64]

    @classmethod
    def zeros(cls, clauses: int) -> _Stamps:
        """Return stamps of clauses that no message met yet."""
        return cls(np.zeros(clauses, np.uint32), np.zeros(1, np.int64))


class TreeIndex(InPlaceIndex):
    """An index over an R-tree: build, find, insert, delete and store."""

    kind: ClassVar[int]
    """What the nodes know of tokens: one of the kinds of `nearcast.indexes.rtree.token_tree`."""

    Options = TreeOptions

    def __init__(
        self,
        clauses: Clauses,
        options: Any,
        order: TokenOrder,
        tokens: NDArray[np.int32],
        tree: RTree,
        known: _Known,
        alive: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(clauses, options, alive)
        self._order = order
        self._tokens: NDArray[np.int32] | GrowingArray = tokens
        self._tree = tree
        self._known = known
        self._stamps: list[_Stamps] = []
        self._seen: TreeArrays | None = None

    @classmethod
    def build(cls, clauses: Clauses, options: Any) -> Self:
        """Order the tokens of all clauses, load the tree, and tell its nodes what is below them."""
        check_tokens(clauses)
        order, tokens = cls._count(clauses, options)
        tokens = read_only(tokens, np.int32)
        tree = load_tree(clauses.box, _keys(clauses.token_start, tokens), options)
        height = int(tree.level[tree.state[ROOT]])
        known = _nothing_known(len(tree.used), len(tokens) + len(clauses), height)
        index = cls(clauses, options, order, tokens, tree, known)
        index._renew(np.arange(int(tree.state[TOP])))
        index._clear_marks()
        return cls.from_arrays(clauses, options, index.arrays())

    @classmethod
    def _count(cls, clauses: Clauses, options: Any) -> tuple[TokenOrder, NDArray[np.int32]]:
        """Order the tokens of clauses: the rarest first, which is checked first."""
        return TokenOrder.count(clauses, "idf")

    @classmethod
    def _restore_order(cls, options: Any, arrays: Mapping[str, NDArray[Any]]) -> TokenOrder:
        return TokenOrder.from_arrays("idf", arrays, cells=1, seed=0)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index itself."""
        tree, (tables, postings) = self._tree, self._known
        nodes = int(tree.state[TOP])
        by_node = {name: getattr(tree, name)[:nodes] for name in RTree._fields[:7]}
        by_clause = {"leaf_of": tree.leaf_of[: len(self.clauses)]}
        return {
            **prefixed("tree", {**by_node, **by_clause, "state": tree.state}),
            "table": tables.table[:nodes],
            "slot": tables.slot[: int(tables.top[0])],
            "posting": postings.posting[: int(postings.top[0])],
            "token": self._ordered().token,
            "alive": self.alive,
            **prefixed("order", self._order.arrays()),
        }

    @classmethod
    def from_arrays(
        cls, clauses: Clauses, options: Any, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the index from its arrays."""
        own = dict(nested("tree", arrays))
        own["mark"] = np.zeros(len(own["used"]), np.uint8)
        own["marked"] = np.zeros(len(own["used"]), np.int32)
        tree = RTree(**{name: read_only(array, array.dtype) for name, array in own.items()})
        slot, posting = arrays["slot"], arrays["posting"]
        known = _Known(
            Tables(
                read_only(slot, np.uint64),
                read_only(arrays["table"], np.int64),
                _frozen_top(len(slot)),
            ),
            Postings(read_only(posting, np.int32), _frozen_top(len(posting))),
        )
        order = cls._restore_order(options, nested("order", arrays))
        tokens = read_only(arrays["token"], np.int32)
        return cls(clauses, options, order, tokens, tree, known, arrays["alive"])

    @property
    def height(self) -> int:
        """The levels of the tree above its leaves."""
        return int(self._tree.level[self._tree.state[ROOT]])

    def find_part(
        self,
        messages: MessageArrays,
        part: tuple[int, int],
        scratch: TreeScratch,
        start: NDArray[np.int64],
        clause: NDArray[np.int32],
    ) -> Progress:
        """Walk every message down the tree."""
        if self._seen is None:
            self._seen = _each(self._arrays(), lambda array: read_only(array, array.dtype))
        return walk_messages(self._seen, self.kind, messages, part, scratch, start, clause)

    def make_scratch(self, tokens: int) -> TreeScratch:
        """Return scratch space for messages of at most ``tokens`` tokens."""
        needed = len(self.clauses) if self.kind == LISTS else 0
        stamps = self._stamps.pop() if self._stamps else _Stamps.zeros(0)
        if len(stamps.stamp) < needed:
            stamps = _Stamps.zeros(needed + needed // 8)
        return _scratch(self.height + 2, tokens + 1, stamps)

    def _drop_scratch(self) -> None:
        # Stamps stay valid while the tree changes, and clearing new ones costs as much as a batch.
        self._stamps += [_Stamps(scratch.stamp, scratch.epoch) for _, scratch in self._idle]
        super()._drop_scratch()

    def _ordered(self) -> Ordered:
        tokens = self._tokens.view if isinstance(self._tokens, GrowingArray) else self._tokens
        return Ordered(self.clauses.token_start, tokens, self.clauses.box)

    def _arrays(self) -> TreeArrays:
        return TreeArrays(self._tree, *self._known, self._ordered())

    def _begin_changing(self) -> None:
        own = _each(self._arrays(), np.copy)
        self._tree, self._known = own.tree, _Known(own.tables, own.postings)
        self._tokens = GrowingArray(own.ordered.token)

    def _add(self, first: int, last: int) -> None:
        self._seen = None
        assert isinstance(self._tokens, GrowingArray)
        self._tokens.append(self._order.insert(self.clauses, first))
        ordered = self._ordered()
        keys = _keys(ordered.start[first:], ordered.token)
        self._tree = insert_into_tree(self._tree, ordered.box, keys, self.options.least)
        self._bring_up_to_date()
        if self.kind != NOTHING:
            self._complete(first, last, lambda at: add_clauses(self._arrays(), self.kind, at, last))
        self._clear_marks()

    def _remove(self, clauses: NDArray[np.int64]) -> None:
        self._seen = None
        self._order.delete(self.clauses, clauses)
        leaf = np.empty(len(clauses), np.int64)
        erase_clauses(self._arrays(), self.kind, clauses, leaf)
        scratch = split_scratch(self.options.most)
        condense(self._tree, np.unique(leaf), self.options.least, scratch)
        self._bring_up_to_date()
        self._clear_marks()

    def _bring_up_to_date(self) -> None:
        """Make what marked nodes know anew; in a tree with lists, all if the depths changed."""
        tree, (tables, postings) = self._tree, self._known
        tables = tables._replace(table=grown(tables.table, len(tree.used)))
        tables.table[len(self._known.tables.table) :] = 0
        self._known = _Known(tables, postings)
        if self.kind == LISTS and tree.state[MOVED]:
            tree.mark[: int(tree.state[TOP])] |= CONTENT
            self._renew(np.arange(int(tree.state[TOP])))
            return
        nodes = tree.marked[: int(tree.state[CHANGED])].astype(np.int64)
        if self.kind == LISTS:
            nodes = nodes[(tree.level[nodes] <= 0) | (tree.mark[nodes] & CONTENT != 0)]
        self._renew(nodes)

    def _renew(self, nodes: NDArray[np.int64]) -> None:
        """Make what nodes know anew, children before parents; those that keep nothing forget."""
        if self.kind == NOTHING:
            return
        level = self._tree.level[nodes]
        # What was known of a node that was given back means nothing for the node that it is now.
        forget = (level < 0) | (self._tree.mark[nodes] & CONTENT != 0)
        self._known.tables.table[nodes[forget]] = 0
        keep = level >= (0 if self.kind in (FILES, LISTS) else 1)
        if self.kind == LISTS and self.height > 0:
            keep &= level < self.height
        nodes = nodes[keep][np.argsort(level[keep], kind="stable")]
        room = [_room(4096, self.height)]

        def run(at: int) -> Missing:
            missing = renew_nodes(self._arrays(), self.kind, nodes, at, room[0])
            if missing.room:
                room[0] = _room(int(missing.room), self.height)
            return missing

        self._complete(0, len(nodes), run)

    def _complete(self, first: int, last: int, run: Callable[[int], Missing]) -> None:
        """Run a kernel to its end, with larger pools whenever one is full."""
        while first < last:
            missing = run(first)
            first = int(missing.reached)
            tables, postings = self._known
            if missing.slots:
                tables = _larger_tables(tables, int(missing.slots))
            if missing.postings:
                postings = _larger_postings(self._tree, tables, postings, int(missing.postings))
            self._known = _Known(tables, postings)

    def _clear_marks(self) -> None:
        tree = self._tree
        marks = slice(None) if tree.state[MOVED] else tree.marked[: int(tree.state[CHANGED])]
        tree.mark[marks] = 0
        tree.state[[MOVED, CHANGED]] = 0


def _keys(start: NDArray[np.int64], token: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the first token of every clause."""
    key = np.full(len(start) - 1, NO_TOKEN, np.int32)
    some = start[1:] > start[:-1]
    key[some] = token[start[:-1][some]]
    return key


def _frozen_top(top: int) -> NDArray[np.int64]:
    return read_only([top], np.int64)


def _each(arrays: TreeArrays, change: Callable[[NDArray[Any]], NDArray[Any]]) -> TreeArrays:
    """Return what a function makes of each of the arrays."""
    parts: list[Any] = [type(part)(*(change(array) for array in part)) for part in arrays]
    return TreeArrays(*parts)


def _nothing_known(nodes: int, tokens: int, height: int) -> _Known:
    """Return empty pools. Room is reserved amply: untouched, it costs nothing."""
    slots = 1024 + 2 * tokens * (height + 1)
    tables = Tables(
        np.empty((slots, 2), np.uint64), np.zeros((nodes, 3), np.int64), np.zeros(1, np.int64)
    )
    return _Known(tables, Postings(np.empty(1024 + tokens, np.int32), np.zeros(1, np.int64)))


def _room(slots: int, height: int) -> Room:
    tables = Tables(
        np.empty((slots, 2), np.uint64), np.zeros((1, 3), np.int64), np.zeros(1, np.int64)
    )
    return Room(tables, np.empty(64 * (height + 2), np.int64))


def _larger_tables(tables: Tables, more: int) -> Tables:
    """Return the tables in a larger pool, without what they left behind."""
    used = int(tables.table[:, SIZE].sum())
    slot = np.empty((more + used + used // 2, 2), np.uint64)
    move_tables(tables, slot)
    return tables._replace(slot=slot)


def _larger_postings(tree: RTree, tables: Tables, postings: Postings, more: int) -> Postings:
    """Return the lists in a larger pool, without what they left behind."""
    used = int(postings.top[0])
    posting = np.empty(more + used + used // 2, np.int32)
    move_postings(tree, tables, postings, posting)
    return postings._replace(posting=posting)


def _scratch(levels: int, tokens: int, stamps: _Stamps) -> TreeScratch:
    return TreeScratch(
        stack=np.empty(64 * levels, np.int64),
        token=np.empty((levels, tokens), np.uint64),
        entries=np.empty((levels, tokens), np.uint64),
        size=np.zeros(levels, np.int64),
        token_filter=np.zeros(FILTER_WORDS, np.uint64),
        hits=np.zeros(64, np.int64),
        candidate=np.empty(64, np.int64),
        lists=np.empty((tokens, 2), np.int64),
        posting=np.empty(1024, np.int32),
        stamp=stamps.stamp,
        epoch=stamps.epoch,
    )
