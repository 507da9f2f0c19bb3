"""The class of the ``pt-quadtree`` index and its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import Clauses, GrowingArray, read_only, starts
from nearcast.compiled.clauses import Ordered
from nearcast.compiled.token_filter import FILTER_WORDS
from nearcast.errors import UnknownName
from nearcast.indexes.array_tuples import map_arrays, read_only_views
from nearcast.indexes.in_place import InPlaceIndex, check_tokens, current
from nearcast.indexes.options import check_number, check_whole
from nearcast.indexes.pt_quadtree import layout
from nearcast.indexes.pt_quadtree.build import (
    TASKS,
    NodeClauses,
    Pushing,
    build_scratch,
    choose_pushing,
    make_all_lists,
    place_clauses,
    run_tasks,
    weigh_nodes,
)
from nearcast.indexes.pt_quadtree.check import check_quadtree
from nearcast.indexes.pt_quadtree.layout import CLAUSES, ENTRIES, NODES, REMOVED, Header, Quadtree
from nearcast.indexes.pt_quadtree.match import MatchScratch, match_messages
from nearcast.indexes.pt_quadtree.pivots import pivot_scratch
from nearcast.indexes.pt_quadtree.update import insert_clauses, remove_clauses
from nearcast.indexes.token_order.order import TokenOrder
from nearcast.storage import nested, prefixed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays, Output
    from nearcast.indexes.boolean import Progress

__all__ = ["PLACES", "PtQuadtree", "PtQuadtreeOptions"]

PLACES = ("leaf", "mx-cif")
"""Where clauses are listed: in all leaves they overlap, or in the smallest region around them."""

_MIN_AREA_SHARE = 1e-12
_MAX_PUSH = 1e6
_MIN_REMOVED = 64
_CANDIDATES = 512


@dataclass(frozen=True)
class PtQuadtreeOptions:
    """Options of ``pt-quadtree``.

    The defaults were the fastest of those tried on a million tweets, at less than 200 bytes each.

    Parameters
    ----------
    list_size
        Regions with more clauses than this are split, unless that would double their lists.
    area_share
        Regions smaller than this share of the whole are not split.
    place
        ``leaf``: a clause is listed in every leaf that its box overlaps. ``mx-cif``: once, in the
        smallest region that contains its box.
    push
        With ``mx-cif``: how many extra entries, as a share of the clauses, a build may spend on
        pushing the lists of inner nodes down to the leaves; those with the largest gain come first.
    """

    list_size: int = 4000
    area_share: float = 1e-6
    place: str = "mx-cif"
    push: float = 3.0

    def __post_init__(self) -> None:
        check_whole("list_size", self.list_size, 1, 1 << 28)
        check_number("area_share", self.area_share, _MIN_AREA_SHARE, 1)
        check_number("push", self.push, 0, _MAX_PUSH)
        if self.place not in PLACES:
            raise UnknownName("place", self.place, PLACES)

    @property
    def header(self) -> Header:
        """The header of the arrays: a region at depth ``d`` has the area share ``4 ** -d``."""
        depth = 0
        while 0.25**depth >= self.area_share:
            depth += 1
        return Header(self.list_size, depth, self.place == "leaf")


class PtQuadtree(InPlaceIndex):
    """A quadtree with pivotal tokens.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> clauses = Clauses.of([[1], [1, 2]], [[0, 0, 10, 10], [5, 5, 20, 20]])
    >>> index = PtQuadtree.build(clauses, PtQuadtreeOptions(list_size=1))
    >>> sorted(index.match(Messages.of([[1, 2]], [[7, 7]])).pairs())
    [(0, 0), (0, 1)]
    """

    name = "pt-quadtree"
    summary = "quadtree with pivotal tokens of what is below each node; changes in place"
    Options = PtQuadtreeOptions

    def __init__(
        self,
        clauses: Clauses,
        options: PtQuadtreeOptions,
        order: TokenOrder,
        tokens: NDArray[np.int32],
        tree: Quadtree,
        alive: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(clauses, options, alive)
        self._order = order
        self._tokens: NDArray[np.int32] | GrowingArray = tokens
        self._tree = tree
        self._scratch, self._pivots = build_scratch(0), pivot_scratch(0)
        self._view: tuple[Quadtree, Ordered] | None = None

    @classmethod
    def build(
        cls,
        clauses: Clauses,
        options: PtQuadtreeOptions,
        clause_label: NDArray[np.int64] | None = None,
    ) -> Self:
        """Order the tokens of all clauses and build the tree; labels, if any, order its lists."""
        check_tokens(clauses)
        order, tokens = TokenOrder.count(clauses, "idf")
        region = layout.region_around(clauses.box, options.header.max_depth)
        tree = layout.empty_tree(region, options.header, len(clauses), clause_label)
        index = cls(clauses, options, order, read_only(tokens, np.int32), tree)
        index._fill(np.arange(len(clauses), dtype=np.int32))
        built = cls.from_arrays(clauses, options, index.arrays())
        built.set_labels(index._tree.clause_label)
        return built

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the tree and of the token order, and which rows are alive."""
        tree = self._tree
        nodes, entries = int(tree.state[NODES]), int(tree.state[ENTRIES])
        return {
            "node": tree.node[:nodes],
            "entry": tree.entry[:entries],
            "entry_rank": tree.entry_rank[:entries],
            "state": tree.state,
            **prefixed("sets", layout.stored_tables(tree.sets, nodes)),
            **prefixed("lists", layout.stored_tables(tree.lists, nodes)),
            "token": self._ordered().token,
            "alive": self.alive,
            **prefixed("order", self._order.arrays()),
        }

    @classmethod
    def from_arrays(
        cls, clauses: Clauses, options: PtQuadtreeOptions, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the index from its arrays."""
        tree = Quadtree(
            read_only(arrays["node"], np.int32),
            layout.loaded_tables(nested("sets", arrays)),
            layout.loaded_tables(nested("lists", arrays)),
            read_only(arrays["entry"], np.int32),
            read_only(arrays["entry_rank"], np.int32),
            np.empty(0, np.int64),
            read_only(arrays["state"], np.int64),
        )
        order = TokenOrder.from_arrays("idf", nested("order", arrays), cells=1, seed=0)
        tokens = read_only(arrays["token"], np.int32)
        return cls(clauses, options, order, tokens, tree, arrays["alive"])

    def check_structure(self) -> None:
        """Raise `StorageError` unless kernels can follow the arrays safely."""
        tokens = self._ordered().token
        check_quadtree(self._tree, self.options.header, self.clauses, tokens, self.alive)
        self._order.check_structure(self.name)

    def find_part(
        self, messages: MessageArrays, part: tuple[int, int], scratch: MatchScratch, output: Output
    ) -> Progress:
        """Filter the nodes for every message, and verify their lists."""
        tree, ordered = self.view()
        return match_messages(tree, ordered, messages, part, scratch, output)

    def make_scratch(self, tokens: int) -> MatchScratch:
        """Return scratch for messages of at most ``tokens`` tokens."""
        return MatchScratch(
            np.zeros(FILTER_WORDS, np.uint64),
            np.empty(layout.STACK, np.int64),
            np.empty((64 + 4 * (tokens + 1), 3), np.int64),
            np.empty(_CANDIDATES, np.int64),
        )

    def view(self) -> tuple[Quadtree, Ordered]:
        """Return read-only views of the tree, and of tokens and boxes, for matching."""
        if self._view is None:
            self._view = read_only_views(self._tree), self._ordered()
        return self._view

    def set_labels(self, clause_label: NDArray[np.int64]) -> None:
        """Replace the labels of clauses; their order is that of before."""
        self._view = None
        self._tree = self._tree._replace(clause_label=clause_label)

    def reorder(
        self, clause_label: NDArray[np.int64], removed: NDArray[np.int64] | None = None
    ) -> None:
        """Build the tree again with labels in another order, without the removed clauses."""
        self.set_labels(clause_label)
        self._rebuild(self._live_clauses(removed), self._tree.node[0, :4])

    def _ordered(self) -> Ordered:
        return Ordered(self.clauses.token_start, current(self._tokens), self.clauses.box)

    def _begin_changing(self) -> None:
        self._tree = map_arrays(self._tree, np.copy)
        self._tokens = GrowingArray(self._ordered().token)

    def _add(self, first: int, last: int) -> None:
        self._view = None
        assert isinstance(self._tokens, GrowingArray)
        self._tokens.append(self._order.insert(self.clauses, first))
        box = self.clauses.box[first:last]
        region = self._tree.node[0, :4]
        if (box[:, :2] < region[:2]).any() or (box[:, 2:] > region[2:]).any():
            self._rebuild(self._live_clauses(), layout.enlarged_region(region, box))
            return
        ordered = self._ordered()
        self._scratch.progress[:] = 0, first, 0
        self._run(lambda: insert_clauses(self._tree, ordered, last, self._scratch, self._pivots))
        self._tree.state[CLAUSES] += last - first

    def _remove(self, clauses: NDArray[np.int64]) -> None:
        """Remove clauses; build the tree again if a third of all were removed since it was."""
        self._view = None
        self._order.delete(self.clauses, clauses)
        state = self._tree.state
        state[CLAUSES] -= len(clauses)
        state[REMOVED] += len(clauses)
        if state[REMOVED] > max(_MIN_REMOVED, int(state[CLAUSES]) // 2):
            self._rebuild(self._live_clauses(clauses), self._tree.node[0, :4])
            return
        removed = read_only(clauses, np.int64)
        remove_clauses(self._tree, self._ordered(), removed, self._scratch.stack)

    def _rebuild(self, clauses: NDArray[np.int32], region: NDArray[np.int32]) -> None:
        label = self._tree.clause_label if len(self._tree.clause_label) else None
        self._tree = layout.empty_tree(region, self.options.header, len(clauses), label)
        self._fill(clauses)

    def _fill(self, clauses: NDArray[np.int32]) -> None:
        """Split the tree, which is an empty leaf, and make the lists of the given clauses."""
        ordered, label = self._ordered(), self._tree.clause_label
        if len(label):  # lists are filled in this order
            clauses = clauses[np.argsort(label[clauses], kind="stable")]
        self._scratch = build_scratch(2 * len(clauses))
        self._scratch.clause[: len(clauses)] = clauses
        self._scratch.task[0] = 0, 0, len(clauses)
        self._scratch.progress[TASKS] = 1
        self._run(lambda: run_tasks(self._tree, ordered, self._scratch, self._pivots))
        if self.options.push > 0 and self.options.place == "mx-cif":
            self._push_down(clauses, ordered)
        self._tree.state[CLAUSES] = len(clauses)
        self._scratch, self._pivots = build_scratch(0), pivot_scratch(0)
        tree = self._tree
        self._tree = tree._replace(
            sets=layout.compacted_tables(tree.sets, 0), lists=layout.compacted_tables(tree.lists, 0)
        )

    def _push_down(self, clauses: NDArray[np.int32], ordered: Ordered) -> None:
        """Push the lists of inner nodes down as far as the options allow; make all lists again."""
        tree, stack, box = self._tree, self._scratch.stack, ordered.box
        nodes = int(tree.state[NODES])
        more, gain = pushing = Pushing(np.empty(nodes, np.int64), np.empty(nodes, np.float64))
        weigh_nodes(tree, box, stack, pushing)
        useful = np.flatnonzero(gain > 0)
        best = useful[np.argsort(-gain[useful] / np.maximum(more[useful], 1), kind="stable")]
        choose_pushing(best, more, int(self.options.push * len(clauses)), tree.node)
        tree.sets.table[:], tree.lists.table[:] = 0, 0
        tree.sets.top[0], tree.lists.top[0] = 0, 0
        tree.state[[ENTRIES, layout.FREED]] = 0
        count = np.zeros(nodes, np.int64)
        place_clauses(tree, box, clauses, stack, NodeClauses(count, np.empty(0, np.int32)))
        start = starts(count)
        listed = NodeClauses(start, np.empty(int(start[-1]), np.int32))
        place_clauses(tree, box, clauses, stack, listed._replace(start=start[:-1].copy()))
        self._scratch.progress[:] = 0
        self._run(lambda: make_all_lists(self._tree, ordered, listed, self._scratch, self._pivots))

    def _run(self, operation: Callable[[], bool]) -> None:
        """Call a kernel until it is done, enlarging whatever is short."""
        while not operation():
            tree, scratch = self._tree, self._scratch
            nodes, entries, list_slots, set_slots, clauses, pairs = scratch.shortage.tolist()
            if nodes:
                tree = layout.with_nodes(tree, 64 + 2 * len(tree.node))
            if entries:
                tree = layout.with_entries(tree, entries)
            if list_slots:
                tree = tree._replace(lists=layout.compacted_tables(tree.lists, list_slots))
            if set_slots:
                tree = tree._replace(sets=layout.compacted_tables(tree.sets, set_slots))
            if clauses:
                more = np.empty(clauses, np.int32)
                scratch = scratch._replace(clause=np.concatenate([scratch.clause, more]))
            if pairs:
                self._pivots = pivot_scratch(2 * pairs)
            scratch.shortage[:] = 0
            self._tree, self._scratch = tree, scratch
