"""The ranked indexes over R-trees: ``ir-tree-1``, ``ir-tree-100``, and the ranked rt-trees."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from nearcast.columns import KINDS, OVERLAP, PROXIMITY, SHARE_UNITS, GrowingArray, read_only
from nearcast.compiled.clauses import Ordered
from nearcast.compiled.token_table import Tables
from nearcast.indexes.array_tuples import map_arrays, read_only_views
from nearcast.indexes.in_place import check_tokens, current
from nearcast.indexes.ranked_in_place import RankedInPlaceIndex
from nearcast.indexes.rtree.balance import with_capacity
from nearcast.indexes.rtree.build import TreeOptions
from nearcast.indexes.rtree.forest import build_forest, condense_forest, insert_into_forest
from nearcast.indexes.rtree.maintain import TokenTree, clear_marks, marked_nodes
from nearcast.indexes.rtree.nodes import NODES, RTree
from nearcast.indexes.rtree.ranked_bounds import FIELDS, refresh_bounds, widen_bounds
from nearcast.indexes.rtree.ranked_check import (
    check_forest,
    check_shape,
    check_token_tables,
)
from nearcast.indexes.rtree.ranked_keys import ordered_tokens, prefixes
from nearcast.indexes.rtree.ranked_match import (
    BoundArrays,
    PrefixArrays,
    WalkScratch,
    find_by_bounds,
    find_by_prefixes,
    make_walk_scratch,
)
from nearcast.indexes.rtree.tokens import (
    INVERTED_FILES,
    IndexArrays,
    Postings,
    make_pools,
)
from nearcast.indexes.rtree.update import add_clauses, delete_clauses
from nearcast.storage import prefixed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.columns import Ranked
    from nearcast.compiled.messages import Output
    from nearcast.compiled.scoring import RankedMessages
    from nearcast.indexes.batches import Progress

__all__ = [
    "IrTree1",
    "IrTree100",
    "RankedRtPlusTree",
    "RankedRtTree",
    "RankedTree",
]

STORED = {
    "box": np.int32,
    "entry": np.int32,
    "key": np.int32,
    "used": np.uint64,
    "level": np.int32,
    "parent": np.int32,
    "place": np.int32,
    "leaf_of": np.int32,
    "state": np.int64,
}
"""The stored arrays of a tree, and their types."""

_PARTS = 10
"""``ir-tree-100`` divides shares and thresholds into this number of parts each."""


class RankedTree(RankedInPlaceIndex):
    """A ranked index over one or several R-trees of clauses. The key of an item is its row."""

    Options = TreeOptions
    trees: ClassVar[int] = 1
    """The number of trees."""

    _tree: RTree
    _root: NDArray[np.int64]
    _tables: Tables

    def __init__(
        self,
        ranked: Ranked,
        options: Any,
        tree: RTree,
        root: NDArray[np.int64],
        tables: Tables,
        alive: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(ranked, options, alive)
        self._tree, self._root, self._tables = tree, root, tables
        self._readable: Any = None

    @property
    def height(self) -> int:
        """The number of levels above the leaves, in the highest tree."""
        return int(self._tree.level[self._root].max())

    def _tree_of(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Return which tree rows belong into."""
        return np.zeros(len(rows), np.int64)

    @classmethod
    def build(cls, content: Ranked, options: Any) -> Self:
        """Build the trees, then what their nodes know."""
        check_tokens(content.clauses)
        index = cls._with_tree(content, options)
        index._build_nodes()
        clear_marks(index._tree)
        return cls.from_arrays(content, options, index.arrays())._with_columns(index)

    @classmethod
    @abstractmethod
    def _with_tree(cls, content: Ranked, options: Any) -> Self:
        """Return an index with trees over the subscriptions, whose nodes know nothing yet."""

    def _with_columns(self, other: Self) -> Self:
        """Take columns that another index over the same subscriptions has made."""
        self._columns = other._columns
        return self

    @abstractmethod
    def _build_nodes(self) -> None:
        """Build what the nodes know."""

    def _forest(self) -> tuple[RTree, NDArray[np.int64]]:
        """Build trees over all clauses."""
        row = self.clauses.row
        return build_forest(self.clauses.box, row, self._tree_of(row), self.trees, self.options)

    def _tree_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the stored arrays that all ranked trees have."""
        tree, nodes = self._tree, int(self._tree.state[NODES])
        ends = {"leaf_of": len(self.clauses), "state": len(tree.state)}
        return {
            **prefixed("tree", {n: getattr(tree, n)[: ends.get(n, nodes)] for n in STORED}),
            "root": self._root,
            "table": self._tables.table[:nodes],
            "slot": self._tables.slot[: int(self._tables.top[0])],
            "alive": self.alive,
        }

    @property
    def _nodes(self) -> int:
        return int(self._tree.state[NODES])

    def _insert_items(self, first: int) -> None:
        """Insert the clauses from number ``first`` on into the trees."""
        row = self.clauses.row[first:].copy()
        self._tree = insert_into_forest(
            self._tree,
            self._root,
            self.clauses.box,
            row,
            self._tree_of(row),
            self.options.least,
        )

    def _condense(self, clauses: NDArray[np.int64], leaf: NDArray[np.int64]) -> None:
        """Merge nodes that have too few entries after clauses left their leaves."""
        tree_of = self._tree_of(self.clauses.row[clauses])
        condense_forest(self._tree, self._root, leaf, tree_of, self.options.least)

    def _check_trees(self) -> None:
        """Raise `StorageError` unless the trees are sound."""
        row = self.clauses.row
        check_shape(self.name, "root", self._root, (self.trees,))
        check_forest(
            self.name, self._tree, self._root, self.options, self.alive, row, self._tree_of(row)
        )


def stored_tree(arrays: Mapping[str, NDArray[Any]]) -> RTree:
    """Return the trees of stored arrays."""
    stored = {name: read_only(arrays[f"tree.{name}"], STORED[name]) for name in STORED}
    nodes = len(stored["used"])
    return RTree(
        **stored,
        mark=read_only(np.zeros(nodes), np.uint8),
        marked=read_only(np.zeros(nodes), np.int32),
    )


def stored_tables(table: NDArray[Any], slot: NDArray[Any]) -> Tables:
    """Return the tables of stored arrays."""
    return Tables(
        read_only(slot, np.uint64), read_only(table, np.int64), read_only([len(slot)], np.int64)
    )


class SetTree(TokenTree, RankedTree):
    """A ranked tree whose nodes have token sets or inverted files, as the boolean ones do."""

    def __init__(
        self,
        ranked: Ranked,
        options: Any,
        tree: RTree,
        root: NDArray[np.int64],
        tables: Tables,
        alive: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(ranked, options, tree, root, tables, alive)
        self._postings = Postings(np.empty(0, np.int32), np.zeros(1, np.int64))

    @property
    def height(self) -> int:
        """The number of levels above the leaves, in the highest tree."""
        return RankedTree.height.fget(self)  # type: ignore[attr-defined, no-any-return]

    @classmethod
    def _with_tree(cls, content: Ranked, options: Any) -> Self:
        index = cls(content, options, *NO_TREE)
        index._tree, index._root = index._forest()
        return index

    def _build_nodes(self) -> None:
        tokens = len(self._index_arrays().ordered.token) + len(self.clauses)
        self._tables, _ = make_pools(self._nodes, tokens, self.height)
        self._rebuild(np.arange(self._nodes))

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index itself."""
        return self._tree_arrays()

    @classmethod
    def from_arrays(cls, content: Ranked, options: Any, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Make the index from its arrays."""
        tables = stored_tables(arrays["table"], arrays["slot"])
        root = read_only(arrays["root"], np.int64)
        return cls(content, options, stored_tree(arrays), root, tables, arrays["alive"])

    def check_structure(self) -> None:
        """Raise `StorageError` unless no kernel can leave the arrays or run in circles."""
        self._check_trees()
        check_token_tables(self.name, self._index_arrays(), self.kind)

    def make_find_scratch(self, tokens: int) -> WalkScratch:
        """Return scratch for walking down the trees."""
        return make_walk_scratch(self.height, self.trees, tokens)

    def _begin_changing(self) -> None:
        self._tree = map_arrays(self._tree, np.copy)
        self._tables = map_arrays(self._tables, np.copy)
        self._root = self._root.copy()

    def _add(self, first: int, last: int) -> None:
        self._readable = None
        self._insert_items(first)
        self._rebuild_marked()
        self._run(first, last, lambda at: add_clauses(self._index_arrays(), self.kind, at, last))
        self._follow_tree(first, last)
        clear_marks(self._tree)

    def _remove(self, clauses: NDArray[np.int64]) -> None:
        self._readable = None
        leaf = np.empty(len(clauses), np.int64)
        delete_clauses(self._index_arrays(), self.kind, clauses, leaf)
        self._condense(clauses, leaf)
        self._rebuild_marked()
        self._follow_tree(0, 0)
        clear_marks(self._tree)

    def _follow_tree(self, first: int, last: int) -> None:
        """Bring what else nodes know up to date; clauses ``first`` to ``last`` are new."""


NO_TREE: tuple[Any, Any, Any] = (None, None, None)


class BoundTree(SetTree):
    """A ranked tree whose entries have bounds of shares, thresholds, weights and sizes."""

    _bound: NDArray[np.float32]
    _token: NDArray[np.int32] | GrowingArray | None = None

    def _build_nodes(self) -> None:
        super()._build_nodes()
        self._bound = np.zeros((self._nodes, FIELDS, self.options.most), np.float32)
        nodes = np.argsort(self._tree.level[: self._nodes], kind="stable")
        refresh_bounds(self.codes, self._tree, self._bound, self.columns, nodes)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index itself."""
        return {**self._tree_arrays(), "bound": self._bound[: self._nodes]}

    @classmethod
    def from_arrays(cls, content: Ranked, options: Any, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Make the index from its arrays."""
        index = super().from_arrays(content, options, arrays)
        index._bound = read_only(arrays["bound"], np.float32)
        return index

    def check_structure(self) -> None:
        """Raise `StorageError` unless no kernel can leave the arrays or run in circles."""
        super().check_structure()
        shape = (len(self._tree.used), FIELDS, self.options.most)
        check_shape(self.name, "bound", self._bound, shape)

    def find_part(
        self,
        messages: RankedMessages,
        part: tuple[int, int],
        scratch: WalkScratch,
        output: Output,
    ) -> Progress:
        """Walk every message down the trees, and collect what may score enough."""
        if self._readable is None:
            weighs, ranked = self.ranked.scoring.weighs, self.ranked
            self._readable = read_only_views(
                BoundArrays(
                    self._tree,
                    self._tables,
                    self._root,
                    self._bound,
                    ranked.weight if weighs else np.empty(0),
                    np.array([ranked.unknown_weight if weighs else 1.0]),
                )
            )
        return find_by_bounds(self._readable, self.codes, messages, part, scratch, output)

    def _index_arrays(self) -> IndexArrays:
        clauses, columns = self.clauses, self.columns
        if len(clauses) == len(self.ranked):
            token = columns.token
        else:
            if self._token is None:
                self._token = ordered_tokens(columns, clauses)
            token = current(self._token)
        ordered = Ordered(clauses.token_start, token, clauses.box)
        return IndexArrays(self._tree, self._tables, self._postings, ordered)

    def _begin_changing(self) -> None:
        super()._begin_changing()
        self._bound = self._bound.copy()

    def _add(self, first: int, last: int) -> None:
        if self._token is not None:
            if not isinstance(self._token, GrowingArray):
                self._token = GrowingArray(self._token)
            self._token.append(ordered_tokens(self.columns, self.clauses, first))
        super()._add(first, last)

    def _follow_tree(self, first: int, last: int) -> None:
        tree = self._tree
        self._bound = with_capacity(self._bound, len(tree.used))
        # First: a node that is refreshed reads the bounds of all clauses below it.
        widen_bounds(self.codes, tree, self._bound, self.columns, (first, last))
        nodes = marked_nodes(tree)
        nodes = nodes[np.argsort(tree.level[nodes], kind="stable")]
        refresh_bounds(self.codes, tree, self._bound, self.columns, nodes)


class IrTree1(BoundTree):
    """``ir-tree-1``: an R-tree with an inverted file and bounds in every node.

    The basic baseline of Hu et al., ICDE 2015, section VII: an entry is opened if the weights of
    the message's tokens below it and the distance to its box can be enough for the shares,
    thresholds, weights and distances below it. ``examined`` counts the subscriptions that
    may score enough, ``visited`` the nodes opened.

    Examples
    --------
    >>> from nearcast.columns import Messages, Ranked
    >>> from nearcast.indexes import create
    >>> near = Ranked.of([[1], [2]], [[0, 0]] * 2, kind="proximity", p=0.5, q=0.9, max_distance_m=9)
    >>> matches = create("ir-tree-1").build(near).match(Messages.of([[1]], [[0, 0]]))
    >>> matches.pairs(), matches.examined
    ({(0, 0)}, 1)
    """

    name = "ir-tree-1"
    summary = "R-tree with inverted files and bounds of scores; a baseline"
    kinds = (KINDS[PROXIMITY],)
    kind = INVERTED_FILES


class IrTree100(IrTree1):
    """``ir-tree-100``: a hundred trees like that of ``ir-tree-1``, by text share and threshold.

    Hu et al., ICDE 2015, section VII: ten parts of each, so bounds are tighter. Trees without
    subscriptions are skipped.

    Examples
    --------
    >>> from nearcast.columns import Messages, Ranked
    >>> from nearcast.indexes import create
    >>> near = Ranked.of([[1]], [[0, 0]], kind="proximity", p=0.5, q=0.9, max_distance_m=9)
    >>> create("ir-tree-100").build(near).match(Messages.of([[1]], [[0, 0]])).pairs()
    {(0, 0)}
    """

    name = "ir-tree-100"
    summary = "ir-tree-1 with a tree for each tenth of text shares and thresholds; a baseline"
    trees = _PARTS * _PARTS

    def _tree_of(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        rankings = self.ranked.rankings
        tenth = SHARE_UNITS // _PARTS
        by_share = np.minimum(rankings.text_share[rows] // tenth, _PARTS - 1)
        by_threshold = np.minimum(rankings.threshold[rows] // tenth, _PARTS - 1)
        tree_of: NDArray[np.int64] = _PARTS * by_share.astype(np.int64) + by_threshold
        return tree_of


class RankedRtTree(BoundTree):
    """``rt-tree`` for overlap: an R-tree whose nodes know tokens, areas, shares and thresholds.

    Yu et al., TKDE 2014, section 6.1. An entry is opened if the area that it has in common with the
    message, and the weights of the message's tokens below it, can be enough. ``examined`` counts
    the subscriptions of opened leaves that may score enough, ``visited`` the nodes opened.

    Examples
    --------
    >>> from nearcast.columns import Messages, Ranked
    >>> from nearcast.indexes import create
    >>> ranked = Ranked.of([[1], [2]], [[0, 0, 9, 9]] * 2, kind="overlap", p=0.5, q=0.9)
    >>> create("rt-tree").build(ranked).match(Messages.of([[1]], [[5, 5]])).pairs()
    {(0, 0)}
    """

    name = "rt-tree"
    summary = "R-tree with token sets and bounds of scores"
    kinds = (KINDS[OVERLAP],)
    kind = INVERTED_FILES


class RankedRtPlusTree(SetTree):
    """``rt+-tree`` for overlap: an R-tree whose nodes know prefixes of the subscriptions below.

    Yu et al., TKDE 2014, section 6.2. An entry is opened if it meets the message and has a token of
    it that can be the first shared one of a match, or one that is enough wherever the message is.
    ``examined`` counts the subscriptions of which the same holds, ``visited`` the nodes opened.

    Examples
    --------
    >>> from nearcast.columns import Messages, Ranked
    >>> from nearcast.indexes import create
    >>> ranked = Ranked.of([[1], [2]], [[0, 0, 9, 9]] * 2, kind="overlap", p=0.5, q=0.9)
    >>> create("rt+-tree").build(ranked).match(Messages.of([[1]], [[5, 5]])).pairs()
    {(0, 0)}
    """

    name = "rt+-tree"
    summary = "R-tree with the prefix tokens of the subscriptions below"
    kinds = (KINDS[OVERLAP],)
    kind = INVERTED_FILES
    _keys: tuple[Any, Any] | None = None

    def find_part(
        self,
        messages: RankedMessages,
        part: tuple[int, int],
        scratch: WalkScratch,
        output: Output,
    ) -> Progress:
        """Walk every message down the tree, and collect subscriptions by their prefixes."""
        if self._readable is None:
            self._readable = read_only_views(PrefixArrays(self._tree, self._tables, self._root))
        return find_by_prefixes(self._readable, messages, part, scratch, output)

    def _index_arrays(self) -> IndexArrays:
        if self._keys is None:
            keys = prefixes(self.codes, self.columns, self.clauses)
            self._keys = read_only(keys.start, np.int64), read_only(keys.token, np.uint32)
        start, token = map(current, self._keys)
        ordered = Ordered(start, token, self.clauses.box)
        return IndexArrays(self._tree, self._tables, self._postings, ordered)

    def _begin_changing(self) -> None:
        super()._begin_changing()
        self._index_arrays()
        assert self._keys is not None
        self._keys = GrowingArray(self._keys[0]), GrowingArray(self._keys[1])

    def _add(self, first: int, last: int) -> None:
        keys = prefixes(self.codes, self.columns, self.clauses, first)
        assert self._keys is not None
        start, token = self._keys
        start.append(keys.start[1:] + start.last)
        token.append(keys.token)
        super()._add(first, last)
