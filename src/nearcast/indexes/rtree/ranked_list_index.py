"""``rt++-tree`` for ranked subscriptions: lists by token and level, and of matches anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import GrowingArray, read_only
from nearcast.errors import UnknownName
from nearcast.indexes.array_tuples import map_arrays, read_only_views
from nearcast.indexes.damage import require
from nearcast.indexes.in_place import current
from nearcast.indexes.rtree.balance import with_capacity
from nearcast.indexes.rtree.build import TreeOptions
from nearcast.indexes.rtree.maintain import clear_marks, marked_nodes, with_tables
from nearcast.indexes.rtree.nodes import CONTENT_CHANGED, ROOT, ROOT_CHANGED
from nearcast.indexes.rtree.ranked_check import (
    check_list_arrays,
    check_signatures,
)
from nearcast.indexes.rtree.ranked_keys import Keys, signatures
from nearcast.indexes.rtree.ranked_list_match import (
    ListScratch,
    find_by_lists,
    make_list_scratch,
)
from nearcast.indexes.rtree.ranked_lists import (
    ListArrays,
    ListPool,
    add_far,
    add_to_nodes,
    delete_from_lists,
    grow_lists,
    make_list_pool,
    rebuild_far,
    rebuild_list_nodes,
)
from nearcast.indexes.rtree.tokens import (
    grow_tables,
    make_gather_scratch,
    make_pools,
)
from nearcast.storage import prefixed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from nearcast.columns import Ranked
    from nearcast.compiled.messages import Output
    from nearcast.compiled.scoring import RankedMessages
    from nearcast.compiled.token_table import Tables
    from nearcast.indexes.batches import Progress
    from nearcast.indexes.rtree.update import Shortage
from nearcast.indexes.rtree.ranked_index import NO_TREE, RankedTree, stored_tables, stored_tree

__all__ = ["ListOptions", "RankedRtPlusPlusTree"]


@dataclass(frozen=True)
class ListOptions(TreeOptions):
    """Options of the R-tree, and of its token lists.

    Parameters
    ----------
    least, most, load
        See `TreeOptions`.
    anywhere
        Where tokens are listed that are enough wherever the message is: in lists of the whole
        index (``index``), or like all others on the way to the leaf (``nodes``, as in the papers),
        which opens nearly all nodes for every message.
    """

    anywhere: str = "index"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.anywhere not in _PLACES:
            raise UnknownName("anywhere", self.anywhere, _PLACES)


_PLACES = ("index", "nodes")


class RankedRtPlusPlusTree(RankedTree):
    """``rt++-tree`` for proximity and overlap: another token of each subscription at every level.

    Yu et al., TKDE 2014, section 6.3; Hu et al., ICDE 2015, section VII. The i-th token of a
    subscription is in a list of its ancestor at depth ``i``, with the largest distance of a match
    whose first shared token it is. A child is opened if it is as near as one of its lists, or of
    those below it, allows. ``examined`` counts the postings whose place is near enough and whose
    token is the first shared one, ``visited`` the nodes opened.

    Examples
    --------
    >>> from nearcast.columns import Messages, Ranked
    >>> from nearcast.indexes import create
    >>> near = Ranked.of([[1], [2]], [[0, 0]] * 2, kind="proximity", p=0.5, q=0.9, max_distance_m=9)
    >>> create("rt++-tree").build(near).match(Messages.of([[1]], [[0, 0]])).pairs()
    {(0, 0)}
    """

    name = "rt++-tree"
    summary = "R-tree with a token a level, and how near a match must be"
    Options = ListOptions

    _lists: ListPool
    _far_tables: Tables
    _far_lists: ListPool
    _limit: NDArray[np.float32]
    _node_limit: NDArray[np.float32]
    _keys: tuple[Any, Any, Any]

    @classmethod
    def _with_tree(cls, content: Ranked, options: Any) -> Self:
        index = cls(content, options, *NO_TREE)
        index._tree, index._root = index._forest()
        index._tree.state[ROOT] = index._root[0]
        index._keys = read_only_views(signatures(index.codes, index.columns, index.clauses))
        return index

    def _build_nodes(self) -> None:
        nodes, keys = self._nodes, len(self._keys[1])
        self._tables, _ = make_pools(nodes, keys, 0)
        self._far_tables, _ = make_pools(1, keys // 4, 0)
        self._lists = make_list_pool(1024 + keys, self._sides)
        self._far_lists = make_list_pool(1024 + keys // 2, 0)
        self._limit = np.full((nodes, self.options.most), -1, np.float32)
        self._node_limit = np.full(nodes, -1, np.float32)
        self._tree.mark[:] = CONTENT_CHANGED
        scratch = make_gather_scratch(1024 + keys // 4, 0)

        def rebuild(first: int) -> Shortage:
            nonlocal scratch
            shortage = rebuild_far(self._list_arrays(), scratch)
            if shortage.scratch_slots:
                scratch = make_gather_scratch(int(shortage.scratch_slots), 0)
            return shortage

        self._run_far(0, 1, rebuild)
        self._rebuild(np.arange(nodes))
        self._tree.mark[:] = 0

    @property
    def _sides(self) -> int:
        """The numbers of a place in a posting."""
        return 2 if self.codes.proximity else 4

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index itself."""
        start, token, limit = map(current, self._keys)
        far = self._far_tables
        return {
            **self._tree_arrays(),
            **prefixed("list", _pool_arrays(self._lists)),
            "far.table": far.table,
            "far.slot": far.slot[: int(far.top[0])],
            "far.clause": self._far_lists.clause[: int(self._far_lists.top[0])],
            "limit": self._limit[: self._nodes],
            "node_limit": self._node_limit[: self._nodes],
            "key_start": start,
            "key": token,
            "key_limit": limit,
        }

    @classmethod
    def from_arrays(cls, content: Ranked, options: Any, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Make the index from its arrays."""
        tables = stored_tables(arrays["table"], arrays["slot"])
        root = read_only(arrays["root"], np.int64)
        index = cls(content, options, stored_tree(arrays), root, tables, arrays["alive"])
        index._lists = _stored_pool(
            arrays["list.clause"], arrays["list.limit"], arrays["list.place"]
        )
        index._far_tables = stored_tables(arrays["far.table"], arrays["far.slot"])
        clause = arrays["far.clause"]
        no_place = np.empty((len(clause), 0), np.int32)
        index._far_lists = _stored_pool(clause, np.full(len(clause), np.inf), no_place)
        index._limit = read_only(arrays["limit"], np.float32)
        index._node_limit = read_only(arrays["node_limit"], np.float32)
        index._keys = (
            read_only(arrays["key_start"], np.int64),
            read_only(arrays["key"], np.int32),
            read_only(arrays["key_limit"], np.float32),
        )
        return index

    def check_structure(self) -> None:
        """Raise `StorageError` unless no kernel can leave the arrays or run in circles."""
        self._check_trees()
        require(self.name, self._tree.state[ROOT] == self._root[0], "root", "is not the root")
        check_signatures(self.name, Keys(*self._keys), self.codes, self.columns, self.clauses)
        check_list_arrays(self.name, self._list_arrays(), self._sides)

    def make_find_scratch(self, tokens: int) -> ListScratch:
        """Return scratch for walking down the tree."""
        return make_list_scratch(self.height, tokens)

    def find_part(
        self,
        messages: RankedMessages,
        part: tuple[int, int],
        scratch: ListScratch,
        output: Output,
    ) -> Progress:
        """Walk every message down the tree, and collect the near ones of the lists it finds."""
        if self._readable is None:
            self._readable = read_only_views(self._list_arrays())
        return find_by_lists(self._readable, self.codes, messages, part, scratch, output)

    def _list_arrays(self) -> ListArrays:
        return ListArrays(
            self._tree,
            self._tables,
            self._lists,
            self._far_tables,
            self._far_lists,
            np.array([self.options.anywhere == "index", not self.may_repeat], np.int64),
            Keys(*map(current, self._keys)),
            self._limit,
            self._node_limit,
            self.clauses.row,
            self.clauses.box,
        )

    def _begin_changing(self) -> None:
        for name in ("_tree", "_tables", "_lists", "_far_tables", "_far_lists"):
            setattr(self, name, map_arrays(getattr(self, name), np.copy))
        self._root = self._root.copy()
        self._limit, self._node_limit = self._limit.copy(), self._node_limit.copy()
        start, token, limit = self._keys
        self._keys = GrowingArray(start), GrowingArray(token), GrowingArray(limit)

    def _add(self, first: int, last: int) -> None:
        self._readable = None
        keys = signatures(self.codes, self.columns, self.clauses, first)
        start, token, limit = self._keys
        start.append(keys.start[1:] + start.last)
        token.append(keys.token)
        limit.append(keys.limit)
        self._insert_items(first)
        self._rebuild_marked()
        self._run_far(first, last, lambda at: add_far(self._list_arrays(), at, last))
        self._run(first, last, lambda at: add_to_nodes(self._list_arrays(), at, last))
        clear_marks(self._tree)

    def _remove(self, clauses: NDArray[np.int64]) -> None:
        self._readable = None
        leaf = np.empty(len(clauses), np.int64)
        self._tree.state[ROOT] = self._root[0]
        delete_from_lists(self._list_arrays(), clauses, leaf)
        self._condense(clauses, leaf)
        self._rebuild_marked()
        clear_marks(self._tree)

    def _rebuild_marked(self) -> None:
        """Rebuild what marked nodes know; lists of all nodes if the depths changed."""
        tree = self._tree
        self._tables = with_tables(self._tables, len(tree.used))
        self._limit = with_capacity(self._limit, len(tree.used))
        self._node_limit = with_capacity(self._node_limit, len(tree.used))
        nodes = marked_nodes(tree)
        if tree.state[ROOT_CHANGED]:
            nodes = np.arange(self._nodes)
            tree.mark[nodes] |= CONTENT_CHANGED
        self._rebuild(nodes)

    def _rebuild(self, nodes: NDArray[np.int64]) -> None:
        """Rebuild what nodes know, children before parents, and drop what free nodes knew."""
        level = self._tree.level[nodes]
        self._tables.table[nodes[level < 0]] = 0
        nodes = nodes[level >= 0][np.argsort(level[level >= 0], kind="stable")]
        scratch = make_gather_scratch(4096, self.height)

        def rebuild(first: int) -> Shortage:
            nonlocal scratch
            shortage = rebuild_list_nodes(self._list_arrays(), nodes, first, scratch)
            if shortage.scratch_slots:
                scratch = make_gather_scratch(int(shortage.scratch_slots), self.height)
            return shortage

        self._run(0, len(nodes), rebuild)

    def _run(self, first: int, last: int, kernel: Callable[[int], Shortage]) -> None:
        """Run a kernel to its end; enlarge the pools of nodes that it finds full."""
        while first < last:
            shortage = kernel(first)
            first = int(shortage.reached)
            if shortage.slots:
                self._tables = grow_tables(self._tables, int(shortage.slots))
            if shortage.postings:
                self._lists = grow_lists(
                    self._tables, self._tree.level, self._lists, int(shortage.postings)
                )

    def _run_far(self, first: int, last: int, kernel: Callable[[int], Shortage]) -> None:
        """Run a kernel to its end; enlarge the pools of the whole index that it finds full."""
        inner = np.ones(1, np.int32)
        while first < last:
            shortage = kernel(first)
            first = int(shortage.reached)
            if shortage.slots:
                self._far_tables = grow_tables(self._far_tables, int(shortage.slots))
            if shortage.postings:
                more = int(shortage.postings)
                self._far_lists = grow_lists(self._far_tables, inner, self._far_lists, more)


def _pool_arrays(lists: ListPool) -> dict[str, NDArray[Any]]:
    end = int(lists.top[0])
    return {
        "clause": lists.clause[:end],
        "limit": lists.limit[:end],
        "place": lists.place[:end],
    }


def _stored_pool(clause: NDArray[Any], limit: NDArray[Any], place: NDArray[Any]) -> ListPool:
    return ListPool(
        read_only(clause, np.int32),
        read_only(limit, np.float32),
        read_only(place, np.int32),
        read_only([len(clause)], np.int64),
    )
