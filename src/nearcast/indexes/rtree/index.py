"""The five indexes over an R-tree, and what they share: building, finding, changing, storing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import Clauses, GrowingArray, read_only
from nearcast.compiled.clauses import Ordered
from nearcast.compiled.token_table import NO_TOKEN, Tables
from nearcast.indexes.array_tuples import map_arrays, read_only_views
from nearcast.indexes.damage import require
from nearcast.indexes.in_place import InPlaceIndex, check_tokens, current
from nearcast.indexes.options import check_whole
from nearcast.indexes.rtree.balance import condense, insert_into_tree, make_split_scratch
from nearcast.indexes.rtree.build import TreeOptions, build_tree
from nearcast.indexes.rtree.check import check_tables, check_tree
from nearcast.indexes.rtree.maintain import TokenTree
from nearcast.indexes.rtree.match import (
    MatchScratch,
    Stamps,
    make_match_scratch,
    make_stamps,
    match_messages,
)
from nearcast.indexes.rtree.nodes import NODES, ROOT, RTree
from nearcast.indexes.rtree.ranked_index import (
    RankedRtPlusTree,
    RankedRtTree,
)
from nearcast.indexes.rtree.ranked_list_index import RankedRtPlusPlusTree
from nearcast.indexes.rtree.tokens import (
    FIRST_TOKENS,
    INVERTED_FILES,
    NO_TOKENS,
    TOKEN_LISTS,
    TOKEN_SETS,
    IndexArrays,
    Postings,
    make_pools,
)
from nearcast.indexes.rtree.update import add_clauses, delete_clauses
from nearcast.indexes.token_order.order import TokenOrder, check_kind
from nearcast.storage import nested, prefixed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays, Output
    from nearcast.indexes.boolean import Progress
    from nearcast.indexes.statistics import Statistics


__all__ = [
    "IrTree",
    "RTreeIndex",
    "RtPlusPlusTree",
    "RtPlusTree",
    "RtTree",
    "SpatialFirst",
    "TokenOptions",
]

_MAX_CELLS = 1 << 30
_MAX_SEED = (1 << 63) - 1

_STORED = {
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


class RTreeIndex(TokenTree, InPlaceIndex):
    """An index over an R-tree. Subclasses differ in what its nodes know about tokens."""

    Options = TreeOptions

    def __init__(
        self,
        clauses: Clauses,
        options: Any,
        order: TokenOrder,
        tokens: NDArray[np.int32],
        tree: RTree,
        pools: tuple[Tables, Postings],
        alive: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(clauses, options, alive)
        self._order = order
        self._tokens: NDArray[np.int32] | GrowingArray = tokens
        self._tree = tree
        self._tables, self._postings = pools
        self._stamps: list[Stamps] = []
        self._readable: IndexArrays | None = None

    @classmethod
    def build(cls, clauses: Clauses, options: Any) -> Self:
        """Order the tokens of all clauses, build the tree, then what its nodes know."""
        check_tokens(clauses)
        order, tokens = cls._count(clauses, options)
        tokens = read_only(tokens, np.int32)
        tree = build_tree(clauses.box, _first_tokens(clauses.token_start, tokens), options)
        height = int(tree.level[tree.state[ROOT]])
        pools = make_pools(len(tree.used), len(tokens) + len(clauses), height)
        index = cls(clauses, options, order, tokens, tree, pools)
        index._rebuild(np.arange(int(tree.state[NODES])))
        index._clear_marks()
        return cls.from_arrays(clauses, options, index.arrays())

    @classmethod
    def _count(cls, clauses: Clauses, options: Any) -> tuple[TokenOrder, NDArray[np.int32]]:
        """Order the tokens of clauses: the rarest first, since that one is verified first."""
        return TokenOrder.count(clauses, "idf")

    @classmethod
    def _restore_order(cls, options: Any, arrays: Mapping[str, NDArray[Any]]) -> TokenOrder:
        """Return the order of stored arrays; statistics named in the options are not read again."""
        return TokenOrder.from_arrays("idf", arrays, cells=1, seed=0)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index itself."""
        tree, tables, postings, ordered = self._index_arrays()
        nodes = int(tree.state[NODES])
        ends = {"leaf_of": len(self.clauses), "state": len(tree.state)}
        return {
            **prefixed("tree", {n: getattr(tree, n)[: ends.get(n, nodes)] for n in _STORED}),
            "table": tables.table[:nodes],
            "slot": tables.slot[: int(tables.top[0])],
            "posting": postings.posting[: int(postings.top[0])],
            "token": ordered.token,
            "alive": self.alive,
            **prefixed("order", self._order.arrays()),
        }

    @classmethod
    def from_arrays(
        cls, clauses: Clauses, options: Any, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the index from its arrays."""
        stored = {name: read_only(arrays[f"tree.{name}"], _STORED[name]) for name in _STORED}
        nodes = len(stored["used"])
        tree = RTree(
            **stored,
            mark=read_only(np.zeros(nodes), np.uint8),
            marked=read_only(np.zeros(nodes), np.int32),
        )
        slot, posting = arrays["slot"], arrays["posting"]
        tables = Tables(
            read_only(slot, np.uint64),
            read_only(arrays["table"], np.int64),
            read_only([len(slot)], np.int64),
        )
        postings = Postings(read_only(posting, np.int32), read_only([len(posting)], np.int64))
        order = cls._restore_order(options, nested("order", arrays))
        tokens = read_only(arrays["token"], np.int32)
        return cls(clauses, options, order, tokens, tree, (tables, postings), arrays["alive"])

    def check_structure(self) -> None:
        """Raise `StorageError` unless no kernel can leave the arrays or run in circles."""
        shape = (self.clauses.subscriptions,)
        require(self.name, self.alive.shape == shape, "alive", f"must have the shape {shape}")
        check_tree(self.name, self._tree, self.options, self.alive[self.clauses.row])
        check_tables(self.name, self._index_arrays(), self.kind)
        self._order.check_structure(self.name)

    @property
    def height(self) -> int:
        """The number of levels above the leaves."""
        return int(self._tree.level[self._tree.state[ROOT]])

    def find_part(
        self, messages: MessageArrays, part: tuple[int, int], scratch: MatchScratch, output: Output
    ) -> Progress:
        """Walk every message down the tree."""
        if self._readable is None:
            # Always read-only, also while the tree changes: for other types Numba compiles again.
            self._readable = read_only_views(self._index_arrays())
        return match_messages(self._readable, self.kind, messages, part, scratch, output)

    def make_scratch(self, tokens: int) -> MatchScratch:
        """Return scratch space for messages of at most ``tokens`` tokens."""
        needed = len(self.clauses) if self.kind == TOKEN_LISTS else 0
        stamps = self._stamps.pop() if self._stamps else make_stamps(0)
        if len(stamps.stamp) < needed:
            stamps = make_stamps(needed + needed // 8)
        return make_match_scratch(self.height, tokens, stamps)

    def _drop_scratch(self) -> None:
        # Stamps stay valid while the tree changes, and clearing new ones costs as much as a batch.
        self._stamps += [Stamps(scratch.stamp, scratch.epoch) for _, scratch in self._idle]
        super()._drop_scratch()

    def _index_arrays(self) -> IndexArrays:
        ordered = Ordered(self.clauses.token_start, current(self._tokens), self.clauses.box)
        return IndexArrays(self._tree, self._tables, self._postings, ordered)

    def _begin_changing(self) -> None:
        arrays = map_arrays(self._index_arrays(), np.copy)
        self._tree, self._tables, self._postings, ordered = arrays
        self._tokens = GrowingArray(ordered.token)

    def _add(self, first: int, last: int) -> None:
        self._readable = None
        assert isinstance(self._tokens, GrowingArray)
        self._tokens.append(self._order.insert(self.clauses, first))
        ordered = self._index_arrays().ordered
        keys = _first_tokens(ordered.start[first:], ordered.token)
        self._tree = insert_into_tree(self._tree, ordered.box, keys, self.options.least)
        self._rebuild_marked()
        if self.kind != NO_TOKENS:
            self._run(
                first, last, lambda at: add_clauses(self._index_arrays(), self.kind, at, last)
            )
        self._clear_marks()

    def _remove(self, clauses: NDArray[np.int64]) -> None:
        self._readable = None
        self._order.delete(self.clauses, clauses)
        leaf = np.empty(len(clauses), np.int64)
        delete_clauses(self._index_arrays(), self.kind, clauses, leaf)
        scratch = make_split_scratch(self.options.most)
        condense(self._tree, np.unique(leaf), self.options.least, scratch)
        self._rebuild_marked()
        self._clear_marks()


def _first_tokens(start: NDArray[np.int64], token: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the first token of every clause; `NO_TOKEN` for a clause without tokens."""
    first = np.full(len(start) - 1, NO_TOKEN, np.int32)
    some = start[1:] > start[:-1]
    first[some] = token[start[:-1][some]]
    return first


class SpatialFirst(RTreeIndex):
    """``spatial-first``: an R-tree finds the clauses whose box overlaps, then tokens are verified.

    A baseline of Li et al., KDD 2013, section 2.2. ``examined`` counts the clauses whose box
    overlaps the message, ``visited`` the nodes opened.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import create
    >>> clauses = Clauses.of([[1], [2]], [[0, 0, 10, 10], [5, 5, 20, 20]])
    >>> index = create("spatial-first").build(clauses)
    >>> matches = index.match(Messages.of([[1]], [[7, 7]]))
    >>> matches.pairs(), matches.examined
    ({(0, 0)}, 2)
    """

    name = "spatial-first"
    summary = "R-tree, then the keywords are checked; a baseline"
    kind = NO_TOKENS


class IrTree(RTreeIndex):
    """``ir-tree``: an R-tree with an inverted file in every node.

    Cong et al., VLDB 2009, extended to filtering as in Li et al., KDD 2013, section 2.2. A node is
    opened if its box overlaps the message and its file has one of the message's tokens. The file of
    a leaf gives the number of tokens of each clause that occur. ``examined`` counts the clauses
    found in the files of leaves, ``visited`` the nodes opened.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import create
    >>> clauses = Clauses.of([[1], [1, 2], [3]], [[0, 0, 10, 10]] * 3)
    >>> matches = create("ir-tree").build(clauses).match(Messages.of([[1]], [[7, 7]]))
    >>> matches.pairs(), matches.examined
    ({(0, 0)}, 2)
    """

    name = "ir-tree"
    summary = "R-tree with an inverted file in every node; a baseline"
    kind = INVERTED_FILES


class RtTree(RTreeIndex):
    """``rt-tree``: an R-tree whose nodes know the tokens below them.

    Li et al., KDD 2013, section 3. A node is opened if its box overlaps the message and its token
    set has one of the message's tokens; the clauses of a leaf are verified. ``examined`` counts
    the clauses of opened leaves whose box overlaps the message, ``visited`` the nodes opened (the
    paper's candidate nodes).

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import create
    >>> clauses = Clauses.of([[1, 2], [1]], [[0, 0, 10, 10]] * 2)
    >>> create("rt-tree").build(clauses).match(Messages.of([[1, 3]], [[7, 7]])).pairs()
    {(0, 1)}
    """

    name = "rt-tree"
    summary = "R-tree, every node holds the tokens below it"
    kind = TOKEN_SETS
    ranked_form = RankedRtTree


@dataclass(frozen=True)
class TokenOptions(TreeOptions):
    """Options of the R-tree, and of the choice of representative tokens.

    Parameters
    ----------
    least, most, load
        See `TreeOptions`.
    tokens
        The order of the tokens of a clause: ``random``, ``df``, ``idf``, ``local-df`` or
        ``local-idf``, see `TokenOrder`.
    cells
        The number of grid cells of a local order.
    statistics
        A folder that ``nearcast spark statistics`` wrote; its frequencies are used instead of
        counting. Read when the index is built, never again. Token ids must be those of its
        vocabulary: `Builder.vocabulary` returns it, and `nearcast.Engine` and ``nearcast match``
        read subscriptions with it.
    seed
        The seed of the random order.
    """

    tokens: str = "local-idf"
    cells: int = 10_000
    statistics: str | Statistics = ""
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kind(self.tokens)
        check_whole("cells", self.cells, 1, _MAX_CELLS)
        check_whole("seed", self.seed, 0, _MAX_SEED)


class RepresentativeTree(RTreeIndex):
    """A tree whose options say how the tokens of a clause are ordered."""

    Options = TokenOptions
    statistics_option = "statistics"

    @classmethod
    def _count(cls, clauses: Clauses, options: Any) -> tuple[TokenOrder, NDArray[np.int32]]:
        return TokenOrder.count(
            clauses,
            options.tokens,
            cells=options.cells,
            statistics=options.statistics,
            seed=options.seed,
        )

    @classmethod
    def _restore_order(cls, options: Any, arrays: Mapping[str, NDArray[Any]]) -> TokenOrder:
        return TokenOrder.from_arrays(
            options.tokens, arrays, cells=options.cells, seed=options.seed
        )


class RtPlusTree(RepresentativeTree):
    """``rt+-tree``: an R-tree whose nodes know one representative token of each clause below them.

    Li et al., KDD 2013, section 4: token sets are smaller, and fewer nodes are opened. ``examined``
    counts the clauses of opened leaves whose box overlaps the message, ``visited`` the nodes
    opened.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import create
    >>> clauses = Clauses.of([[1, 2], [1]], [[0, 0, 10, 10]] * 2)
    >>> index = create("rt+-tree", tokens="idf").build(clauses)
    >>> index.match(Messages.of([[1, 3]], [[7, 7]])).pairs()
    {(0, 1)}
    """

    name = "rt+-tree"
    summary = "rt-tree with one representative token a subscription"
    kind = FIRST_TOKENS
    ranked_form = RankedRtPlusTree


class RtPlusPlusTree(RepresentativeTree):
    """``rt++-tree``: an R-tree with another token of each clause at every level.

    Li et al., KDD 2013, section 5. The node at depth ``i`` above a clause has it in the list of its
    ``i``-th token; the leaf keeps the tokens of longer clauses. A message that finds a clause at
    every depth has all its tokens, so only its box is compared. ``examined`` counts the clauses
    found in lists, ``visited`` the nodes whose box and tokens occur in the message.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import create
    >>> clauses = Clauses.of([[1, 2], [1]], [[0, 0, 10, 10]] * 2)
    >>> create("rt++-tree").build(clauses).match(Messages.of([[1, 3]], [[7, 7]])).pairs()
    {(0, 1)}
    """

    name = "rt++-tree"
    summary = "rt-tree with a token a level, found by counting"
    kind = TOKEN_LISTS
    ranked_form = RankedRtPlusPlusTree
