"""``pt-quadtree``: a quadtree whose nodes know a pivotal token of every clause below them.

Yu, Li and Feng, CIKM 2015, section 4. `nearcast.indexes.pt_quadtree.tree` describes the arrays,
`nearcast.indexes.pt_quadtree.match` how messages are filtered and candidates verified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import Clauses, GrowingArray, read_only, starts
from nearcast.compiled.ordered_clauses import Ordered
from nearcast.compiled.token_filter import FILTER_WORDS
from nearcast.errors import UnknownName
from nearcast.indexes.in_place import InPlaceIndex, check_tokens
from nearcast.indexes.options import check_number, check_whole
from nearcast.indexes.pt_quadtree import allocation as rooms
from nearcast.indexes.pt_quadtree import change, grow, push
from nearcast.indexes.pt_quadtree.match import match_messages
from nearcast.indexes.pt_quadtree.tree import HELD, LEFT, NODES, REMOVED, TOP, Quadtree
from nearcast.indexes.pt_quadtree.verify import Scratch
from nearcast.indexes.token_order.order import TokenOrder
from nearcast.storage import nested, prefixed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays
    from nearcast.indexes.boolean import Progress


__all__ = ["PLACES", "PtQuadtree", "PtQuadtreeOptions"]

PLACES = ("leaf", "mx-cif")
"""Where clauses may stand: in all leaves that they touch, or in the smallest region around them."""

_MIN_AREA_SHARE = 1e-12
_MAX_PUSH = 1e6
_MIN_REMOVED = 64
_CANDIDATES = 512


@dataclass(frozen=True)
class PtQuadtreeOptions:
    """The options of a pt-quadtree.

    The defaults were the fastest of those tried over a million tweets, at less than 200 bytes each.

    Parameters
    ----------
    list_size
        Regions with more clauses than this are split, unless that would double their lists.
    area_share
        Regions smaller than this share of the whole are not split.
    place
        ``leaf``: a clause stands in every leaf that its box touches. ``mx-cif``: once, in the
        smallest region that contains its box.
    push
        With ``mx-cif``: how many entries more, as a share of the clauses, a build may spend on
        pushing the lists of inner nodes down to the leaves, those with the largest gain first.
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
    def settings(self) -> rooms.Settings:
        """What the arrays are told: a region of depth ``d`` has a share of ``4 ** -d``."""
        depth = 0
        while 0.25**depth >= self.area_share:
            depth += 1
        return rooms.Settings(self.list_size, depth, self.place == "leaf")


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
        self._work = rooms.work(0)
        self._cover = rooms.cover(0)
        self._seen: tuple[Quadtree, Ordered] | None = None

    @classmethod
    def build(
        cls,
        clauses: Clauses,
        options: PtQuadtreeOptions,
        clause_label: NDArray[np.int64] | None = None,
    ) -> Self:
        """Order the tokens of all clauses, split the region around them, and make the lists.

        Clauses may have labels, by which their lists are ordered then.
        """
        check_tokens(clauses)
        order, tokens = TokenOrder.count(clauses, "idf")
        region = rooms.around(clauses.box, options.settings.depth)
        tree = rooms.planted(region, options.settings, len(clauses), clause_label)
        index = cls(clauses, options, order, read_only(tokens, np.int32), tree)
        index._plant(np.arange(len(clauses), dtype=np.int32))
        built = cls.from_arrays(clauses, options, index.arrays())
        built.label(index._tree.clause_label)
        return built

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index itself."""
        tree = self._tree
        nodes = int(tree.state[NODES])
        return {
            "node": tree.node[:nodes],
            "entry": tree.entry[: int(tree.state[TOP])],
            "entry_rank": tree.entry_rank[: int(tree.state[TOP])],
            "state": tree.state,
            **prefixed("sets", rooms.used(tree.sets, nodes)),
            **prefixed("lists", rooms.used(tree.lists, nodes)),
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
            rooms.tables(nested("sets", arrays)),
            rooms.tables(nested("lists", arrays)),
            read_only(arrays["entry"], np.int32),
            read_only(arrays["entry_rank"], np.int32),
            np.empty(0, np.int64),
            read_only(arrays["state"], np.int64),
        )
        order = TokenOrder.from_arrays("idf", nested("order", arrays), cells=1, seed=0)
        tokens = read_only(arrays["token"], np.int32)
        return cls(clauses, options, order, tokens, tree, arrays["alive"])

    def find_part(
        self,
        messages: MessageArrays,
        part: tuple[int, int],
        scratch: Scratch,
        start: NDArray[np.int64],
        clause: NDArray[np.int32],
    ) -> Progress:
        """Filter and verify every message."""
        tree, ordered = self.seen()
        return match_messages(tree, ordered, messages, part, scratch, start, clause)

    def make_scratch(self, tokens: int) -> Scratch:
        """Return room for messages of so many tokens at most."""
        return Scratch(
            np.zeros(FILTER_WORDS, np.uint64),
            np.empty(rooms.STACK, np.int64),
            np.empty((64 + 4 * (tokens + 1), 3), np.int64),
            np.empty(_CANDIDATES, np.int64),
        )

    def seen(self) -> tuple[Quadtree, Ordered]:
        """Return what matching sees: the arrays of the tree, and tokens and boxes of clauses."""
        if self._seen is None:
            self._seen = rooms.each(self._tree, lambda a: read_only(a, a.dtype)), self._ordered()
        return self._seen

    def label(self, clause_label: NDArray[np.int64]) -> None:
        """Take the labels of clauses, in whose order all lists are."""
        self._seen = None
        self._tree = self._tree._replace(clause_label=clause_label)

    @property
    def _labelled(self) -> bool:
        return len(self._tree.clause_label) > 0

    def relabel(
        self, clause_label: NDArray[np.int64], gone: NDArray[np.int64] | None = None
    ) -> None:
        """Take labels in another order, and plant the tree anew, without the clauses gone."""
        self.label(clause_label)
        left = self._alive_clauses()
        if gone is not None:
            left = np.setdiff1d(left, gone.astype(np.int32))
        self._replant(left, self._tree.node[0, :4])

    def _ordered(self) -> Ordered:
        tokens = self._tokens.view if isinstance(self._tokens, GrowingArray) else self._tokens
        return Ordered(self.clauses.token_start, tokens, self.clauses.box)

    def _begin_changing(self) -> None:
        self._tree = rooms.each(self._tree, np.copy)
        self._tokens = GrowingArray(self._ordered().token)

    def _add(self, first: int, last: int) -> None:
        self._seen = None
        assert isinstance(self._tokens, GrowingArray)
        self._tokens.append(self._order.insert(self.clauses, first))
        box = self.clauses.box[first:last]
        region = self._tree.node[0, :4]
        if (box[:, :2] < region[:2]).any() or (box[:, 2:] > region[2:]).any():
            self._replant(self._alive_clauses(), rooms.enlarged(region, box))
            return
        ordered, work = self._ordered(), self._work
        work.state[:] = 0, first, 0
        self._complete(
            lambda: change.insert_clauses(self._tree, ordered, last, self._work, self._cover)
        )
        self._tree.state[HELD] += last - first

    def _remove(self, clauses: NDArray[np.int64]) -> None:
        """Take clauses out; the tree is planted anew when a third of all were removed since."""
        self._seen = None
        self._order.delete(self.clauses, clauses)
        state = self._tree.state
        state[HELD] -= len(clauses)
        state[REMOVED] += len(clauses)
        if state[REMOVED] > max(_MIN_REMOVED, int(state[HELD]) // 2):
            left = np.setdiff1d(self._alive_clauses(), clauses.astype(np.int32))
            self._replant(left, self._tree.node[0, :4])
            return
        gone = read_only(clauses, np.int64)
        change.remove_clauses(self._tree, self._ordered(), gone, self._work.stack)

    def _alive_clauses(self) -> NDArray[np.int32]:
        return np.flatnonzero(self.alive[self.clauses.row]).astype(np.int32)

    def _replant(self, clauses: NDArray[np.int32], region: NDArray[np.int32]) -> None:
        label = self._tree.clause_label if self._labelled else None
        self._tree = rooms.planted(region, self.options.settings, len(clauses), label)
        self._plant(clauses)

    def _plant(self, clauses: NDArray[np.int32]) -> None:
        """Grow the tree, which is a leaf without clauses, to one of the clauses given."""
        ordered, label = self._ordered(), self._tree.clause_label
        if self._labelled:  # lists are filled in this order
            clauses = clauses[np.argsort(label[clauses], kind="stable")]
        self._work = rooms.work(2 * len(clauses))
        self._work.clause[: len(clauses)] = clauses
        self._work.step[0] = 0, 0, len(clauses)
        self._work.state[grow.STEPS] = 1
        self._complete(lambda: grow.grow_nodes(self._tree, ordered, self._work, self._cover))
        if self.options.push > 0 and self.options.place == "mx-cif":
            self._push_down(clauses, ordered)
        self._tree.state[HELD] = len(clauses)
        self._work, self._cover = rooms.work(0), rooms.cover(0)
        tree = self._tree
        self._tree = tree._replace(sets=rooms.moved(tree.sets, 0), lists=rooms.moved(tree.lists, 0))

    def _push_down(self, clauses: NDArray[np.int32], ordered: Ordered) -> None:
        """Push the lists of inner nodes down as far as there is space for that."""
        tree, stack, box = self._tree, self._work.stack, ordered.box
        nodes = int(tree.state[NODES])
        more, gain = np.empty(nodes, np.int64), np.empty(nodes, np.float64)
        push.weigh_nodes(tree, box, stack, more, gain)
        useful = np.flatnonzero(gain > 0)
        best = useful[np.argsort(-gain[useful] / np.maximum(more[useful], 1), kind="stable")]
        push.choose_nodes(best, more, int(self.options.push * len(clauses)), tree.node)
        tree.sets.table[:], tree.lists.table[:] = 0, 0
        tree.sets.top[0], tree.lists.top[0], tree.state[[TOP, LEFT]] = 0, 0, 0
        count = np.zeros(nodes, np.int64)
        push.count_places(tree, box, clauses, stack, count)
        start = starts(count)
        placed = np.empty(int(start[-1]), np.int32)
        push.fill_places(tree, box, clauses, stack, start[:-1].copy(), placed)
        self._work.state[:] = 0
        self._complete(
            lambda: change.relist_nodes(self._tree, ordered, start, placed, self._work, self._cover)
        )

    def _complete(self, run: Callable[[], bool]) -> None:
        """Run a kernel to its end, with more room wherever something is missing."""
        while not run():
            tree, work = self._tree, self._work
            missing = work.missing.tolist()
            if missing[grow.M_NODES]:
                tree = rooms.with_nodes(tree, 64 + 2 * len(tree.node))
            if missing[grow.M_ENTRIES]:
                tree = rooms.with_entries(tree, missing[grow.M_ENTRIES])
            if missing[grow.M_LISTS]:
                tree = tree._replace(lists=rooms.moved(tree.lists, missing[grow.M_LISTS]))
            if missing[grow.M_SETS]:
                tree = tree._replace(sets=rooms.moved(tree.sets, missing[grow.M_SETS]))
            if missing[grow.M_CLAUSES]:
                room = np.empty(missing[grow.M_CLAUSES], np.int32)
                work = work._replace(clause=np.concatenate([work.clause, room]))
            if missing[grow.M_PAIRS]:
                self._cover = rooms.cover(2 * missing[grow.M_PAIRS])
            work.missing[:] = 0
            self._tree, self._work = tree, work
