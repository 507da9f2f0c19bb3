"""The classes and options of ``iq-tree``, ``rq-tree`` and ``trie-quadtree``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from nearcast.columns import Clauses, GrowingArray, read_only
from nearcast.compiled.clauses import ClauseTokens, Ordered
from nearcast.errors import UnknownName
from nearcast.indexes.damage import damaged
from nearcast.indexes.in_place import InPlaceIndex, check_tokens, current
from nearcast.indexes.options import check_number, check_whole
from nearcast.indexes.quadtrees import layout, update
from nearcast.indexes.quadtrees.cells import (
    MAX_DEPTH,
    MAX_PARTS,
    SHARE_CELLS,
    SHARE_LEVELS,
    Costs,
    rate_clauses,
    shares_from_boxes,
    shares_from_statistics,
)
from nearcast.indexes.quadtrees.check import find_damage
from nearcast.indexes.quadtrees.layout import (
    BUILT,
    BY_TOKEN,
    CHILD_SIZE,
    CLAUSES,
    DOCUMENTS,
    LIST_SIZE,
    REMOVED,
    TRIE_LEVELS,
    Demand,
    QuadArrays,
)
from nearcast.indexes.quadtrees.match import MatchScratch, match_messages, new_match_scratch
from nearcast.indexes.quadtrees.split import new_update_scratch
from nearcast.indexes.statistics import Statistics
from nearcast.indexes.token_order.order import TokenOrder
from nearcast.storage import nested, prefixed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays, Output
    from nearcast.indexes.boolean import Progress

__all__ = [
    "ORDERS",
    "IqTree",
    "IqTreeOptions",
    "QuadHeader",
    "QuadIndex",
    "QuadOptions",
    "RqTree",
    "RqTreeOptions",
    "TrieQuadtree",
    "TrieQuadtreeOptions",
]

ORDERS = ("rare", "frequent")
"""Which tokens of a clause come first in a trie."""

_MIN_UPDATE_COST = 1e-12
_MAX_LIST_SIZE = 1 << 28
_MAX_TRIE_LEVELS = 16

_MIN_CHANGES = 64
"""An index is not rebuilt for fewer changes."""


class QuadHeader(NamedTuple):
    """The header fields of the arrays."""

    by_token: bool
    list_size: int
    child_size: int
    trie_levels: int

    @property
    def state(self) -> dict[int, int]:
        """The items of ``state`` that hold the header."""
        items = BY_TOKEN, LIST_SIZE, CHILD_SIZE, TRIE_LEVELS
        return dict(zip(items, map(int, self), strict=True))


@dataclass(frozen=True)
class QuadOptions(ABC):
    """The options of all quadtree indexes.

    Parameters
    ----------
    list_size
        A cell with more clauses than this is split.
    update_cost
        The cost of a clause in a cell, in verifications per message. A clause is in several small
        cells where that saves more than it costs.
    depth
        The level of the smallest cells: the world has ``4 ** depth`` of them.
    parts
        The longer side of a box is cut into about this many cells at most.
    statistics
        A folder that ``nearcast spark statistics`` wrote about messages: how often tokens occur and
        where messages come from. Token ids must be those of its vocabulary, as
        `Builder.vocabulary` returns it. Without statistics, messages are assumed to be like the
        clauses. The folder is read when the index is built, and not needed afterwards.
    """

    list_size: int = 64
    update_cost: float = 1e-5
    depth: int = 16
    parts: int = 8
    statistics: str | Statistics = ""

    def __post_init__(self) -> None:
        check_whole("list_size", self.list_size, 1, _MAX_LIST_SIZE)
        check_number("update_cost", self.update_cost, _MIN_UPDATE_COST, 1)
        check_whole("depth", self.depth, 0, MAX_DEPTH)
        check_whole("parts", self.parts, 1, MAX_PARTS)

    @property
    @abstractmethod
    def header(self) -> QuadHeader:
        """The header fields of the arrays."""


class QuadIndex(InPlaceIndex):
    """A quadtree index; a subclass has the kernels that insert and remove clauses."""

    statistics_option = "statistics"

    _start_kernel: ClassVar[Callable[..., Any]]
    _insert_kernel: ClassVar[Callable[..., Any]]
    _remove_kernel: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        clauses: Clauses,
        options: Any,
        order: TokenOrder,
        columns: tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]],
        quad: QuadArrays,
        alive: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(clauses, options, alive)
        self._order = order
        self._tokens: NDArray[np.int32] | GrowingArray = columns[0]
        self._hit: NDArray[np.float32] | GrowingArray = columns[1]
        self._share = columns[2]
        self._quad = quad
        self._scratch = new_update_scratch(options.parts)
        self._read_only: QuadArrays | None = None

    @classmethod
    def build(cls, clauses: Clauses, options: Any) -> Self:
        """Count tokens and places, and insert all clauses."""
        check_tokens(clauses)
        order, tokens = TokenOrder.count(clauses, "idf", statistics=options.statistics)
        tokens = cls._arrange(options, tokens, clauses.token_start)
        quad, hit = layout.new_arrays(0), np.empty(len(clauses), np.float32)
        if options.statistics:
            statistics = Statistics.load(options.statistics)
            quad.state[DOCUMENTS] = max(1, statistics.documents)
            share = shares_from_statistics(statistics)
        else:
            share = shares_from_boxes(clauses.box)
        columns = read_only(tokens, np.int32), hit, read_only(share, np.float32)
        index = cls(clauses, options, order, columns, quad)
        index._rebuild(np.arange(len(clauses), dtype=np.int32))
        return cls.from_arrays(clauses, options, index.arrays())

    @classmethod
    def _arrange(
        cls, options: Any, tokens: NDArray[np.int32], start: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Return the tokens of clauses, given rarest first, in the order of the index."""
        return tokens

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index itself."""
        return {
            **layout.used_arrays(self._quad)._asdict(),
            "token": current(self._tokens),
            "hit": current(self._hit),
            "share": self._share,
            "alive": self.alive,
            **prefixed("order", self._order.arrays()),
        }

    @classmethod
    def from_arrays(
        cls, clauses: Clauses, options: Any, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the index from its arrays."""
        order = TokenOrder.from_arrays("idf", nested("order", arrays), cells=1, seed=0)
        columns = (
            read_only(arrays["token"], np.int32),
            read_only(arrays["hit"], np.float32),
            read_only(arrays["share"], np.float32),
        )
        quad = layout.read_only_arrays(QuadArrays(*(arrays[name] for name in QuadArrays._fields)))
        return cls(clauses, options, order, columns, quad, arrays["alive"])

    def check_structure(self) -> None:
        """Raise `StorageError` unless all that the arrays refer to is within them."""
        self._order.check_structure(self.name)
        options, count = self.options, len(self.clauses)
        problem = find_damage(self._quad, options.header.state, count, options.depth)
        if problem is None:
            problem = self._check_columns()
        if problem:
            raise damaged(self.name, problem)

    def _check_columns(self) -> str | None:
        """Return what is wrong with the columns of clauses, or nothing."""
        tokens, hit, clauses = current(self._tokens), current(self._hit), self.clauses
        if tokens.shape != clauses.token.shape or tokens.min(initial=0) < 0:
            return "token does not have the tokens of the clauses"
        if hit.shape != (len(clauses),) or not np.isfinite(hit).all():
            return "hit does not have one probability per clause"
        if self._share.shape != (SHARE_CELLS,) or not np.isfinite(self._share).all():
            return "share does not have one probability per cell"
        if self.alive.shape != (clauses.subscriptions,):
            return "alive does not have one item per subscription"
        if self._quad.state[CLAUSES] != len(self._live_clauses()):
            return "state does not count the clauses that are alive"
        return None

    def find_part(
        self, messages: MessageArrays, part: tuple[int, int], scratch: MatchScratch, output: Output
    ) -> Progress:
        """Find the clauses of each message in the lists of its tokens and cells."""
        if self._read_only is None:
            self._read_only = layout.read_only_arrays(self._quad)
        clauses = ClauseTokens(self.clauses.token_start, current(self._tokens))
        return match_messages(self._read_only, clauses, messages, part, scratch, output)

    def make_scratch(self, tokens: int) -> MatchScratch:
        """Return scratch space for messages of at most ``tokens`` tokens."""
        return new_match_scratch(tokens, self.options.header.trie_levels)

    def _ordered(self) -> Ordered:
        return Ordered(self.clauses.token_start, current(self._tokens), self.clauses.box)

    def _costs(self) -> Costs:
        options = self.options
        fine = options.parts.bit_length() - 1
        share, hit = self._share, read_only(current(self._hit), np.float32)
        return Costs(share, hit, float(options.update_cost), SHARE_LEVELS, options.depth, fine)

    def _begin_changing(self) -> None:
        self._quad = layout.writable_copy(self._quad)
        self._tokens = GrowingArray(current(self._tokens))
        self._hit = GrowingArray(current(self._hit))

    def _add(self, first: int, last: int) -> None:
        """Insert clauses; rebuild the index if it has more than doubled since it was built."""
        self._read_only = None
        assert isinstance(self._tokens, GrowingArray)
        assert isinstance(self._hit, GrowingArray)
        start = self.clauses.token_start[first:]
        tokens = self._order.insert(self.clauses, first)
        self._tokens.append(self._arrange(self.options, tokens, start - start[0]))
        self._hit.extend(last - first)
        state = self._quad.state
        state[CLAUSES] += last - first
        if state[CLAUSES] > 2 * state[BUILT] + _MIN_CHANGES:
            alive = self._live_clauses()
            if not state[DOCUMENTS]:
                share = shares_from_boxes(self.clauses.box[alive])
                self._share = read_only(share, np.float32)
            self._rebuild(alive)
            self._quad = layout.writable_copy(self._quad)
            return
        self._rate(first)
        self._insert(np.arange(first, last, dtype=np.int32))

    def _remove(self, clauses: NDArray[np.int64]) -> None:
        """Remove clauses; rebuild the index once a third of its clauses are removed."""
        self._read_only = None
        self._order.delete(self.clauses, clauses)
        state = self._quad.state
        state[CLAUSES] -= len(clauses)
        state[REMOVED] += len(clauses)
        if state[REMOVED] > max(_MIN_CHANGES, int(state[CLAUSES]) // 2):
            self._rebuild(self._live_clauses(clauses))
            self._quad = layout.writable_copy(self._quad)
            return
        gone = read_only(clauses, np.int64)
        self._remove_kernel(self._quad, self._costs(), self._ordered(), gone, self._scratch)

    def _rebuild(self, clauses: NDArray[np.int32]) -> None:
        """Make new arrays that hold the given clauses only."""
        documents = self._quad.state[DOCUMENTS]
        self._quad = layout.new_arrays(len(clauses))
        state = self._quad.state
        for item, value in self.options.header.state.items():
            state[item] = value
        state[DOCUMENTS], state[CLAUSES], state[BUILT] = documents, len(clauses), len(clauses)
        self._start_kernel(self._quad, self._costs())
        self._rate(0)
        self._insert(clauses)
        self._finish_build()
        self._quad = layout.trim(self._quad)

    def _finish_build(self) -> None:
        """Do what is left when all clauses are inserted."""

    def _rate(self, first: int) -> None:
        """Set the hit probability of clauses by the frequencies of tokens so far."""
        state = self._quad.state
        clauses = ClauseTokens(self.clauses.token_start, current(self._tokens))
        documents = max(1, int(state[DOCUMENTS] or state[CLAUSES]))
        hit = self._hit.writable if isinstance(self._hit, GrowingArray) else self._hit
        frequency = read_only(self._order.arrays()["anywhere"], np.uint64)
        rate_clauses(clauses, frequency, documents, hit, first)

    def _insert(self, clauses: NDArray[np.int32]) -> None:
        """Insert clauses, and enlarge the arrays whenever one runs out."""
        costs, ordered, done = self._costs(), self._ordered(), 0
        while True:
            rest = read_only(clauses[done:], np.int32)
            done += int(self._insert_kernel(self._quad, costs, ordered, rest, self._scratch))
            if done == len(clauses):
                return
            *demand, moves = self._scratch.shortage.tolist()
            self._scratch.shortage[:] = 0
            self._quad = layout.enlarge(self._quad, Demand(*demand))
            if moves:
                self._scratch = new_update_scratch(self.options.parts, 2 * moves)


@dataclass(frozen=True)
class IqTreeOptions(QuadOptions):
    """The options of an iq-tree.

    For a million tweets, an update cost of 1e-5 examines a third of what the default does, and
    takes a quarter more memory and time; one of 3e-4 examines twice as much and is a little faster.

    Parameters
    ----------
    list_size
        A cell with more clauses than this, of all tokens, is split.
    update_cost, depth, parts, statistics
        See `QuadOptions`.
    """

    list_size: int = 4000
    update_cost: float = 1e-4

    @property
    def header(self) -> QuadHeader:
        """The header fields of the arrays; there is no trie."""
        return QuadHeader(True, self.list_size, self.list_size, 0)


class IqTree(QuadIndex):
    """A quadtree with lists by rarest token in its cells.

    ``visited`` counts the cells that messages touch.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import create
    >>> clauses = Clauses.of([[1], [1, 2]], [[0, 0, 10, 10], [5, 5, 20, 20]])
    >>> index = create("iq-tree").build(clauses)
    >>> sorted(index.match(Messages.of([[1, 2]], [[7, 7]])).pairs())
    [(0, 0), (0, 1)]
    """

    name = "iq-tree"
    summary = "quadtree, lists by the rarest token in its cells, placed by cost; changes in place"

    Options = IqTreeOptions

    _start_kernel = staticmethod(update.start_quadtree)
    _insert_kernel = staticmethod(update.insert_into_quadtree)
    _remove_kernel = staticmethod(update.remove_from_quadtree)

    def _finish_build(self) -> None:
        update.refresh_directory(self._quad)


class QuadTrie(QuadIndex):
    """A trie, of one level or more, whose long lists are quadtrees."""

    _start_kernel = staticmethod(update.start_trie)
    _insert_kernel = staticmethod(update.insert_into_trie)
    _remove_kernel = staticmethod(update.remove_from_trie)


@dataclass(frozen=True)
class RqTreeOptions(QuadOptions):
    """The options of an rq-tree.

    Parameters
    ----------
    list_size
        A list of more clauses than this becomes a quadtree; a cell with more is split.
    update_cost, depth, parts, statistics
        See `QuadOptions`.
    """

    @property
    def header(self) -> QuadHeader:
        """The header fields of the arrays: a trie of one level."""
        return QuadHeader(False, self.list_size, self.list_size, 1)


class RqTree(QuadTrie):
    """Lists by rarest token; long lists are quadtrees.

    ``visited`` counts the lists and the quadtree nodes that messages reach.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import create
    >>> clauses = Clauses.of([[1], [1, 2]], [[0, 0, 10, 10], [5, 5, 20, 20]])
    >>> index = create("rq-tree", list_size=1).build(clauses)
    >>> sorted(index.match(Messages.of([[1, 2]], [[7, 7]])).pairs())
    [(0, 0), (0, 1)]
    """

    name = "rq-tree"
    summary = "lists by the rarest token, quadtrees where they are long; changes in place"

    Options = RqTreeOptions


@dataclass(frozen=True)
class TrieQuadtreeOptions(QuadOptions):
    """The options of a trie-quadtree.

    Parameters
    ----------
    list_size, update_cost, depth, parts, statistics
        See `RqTreeOptions` and `QuadOptions`.
    order
        ``rare``: the rarest token of a clause first. ``frequent``: the most frequent one first.
    child_size
        A node of the trie gets children once it has this many clauses. Until then, it keeps them
        all, and their other tokens are verified. With 0 it keeps none, as in the paper.
    """

    list_size: int = 256
    order: str = "rare"
    child_size: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order not in ORDERS:
            raise UnknownName("order", self.order, ORDERS)
        check_whole("child_size", self.child_size, 0, _MAX_LIST_SIZE)

    @property
    def header(self) -> QuadHeader:
        """The header fields of the arrays: nodes get children before they become quadtrees."""
        child_size = min(self.child_size, self.list_size)
        return QuadHeader(False, self.list_size, child_size, _MAX_TRIE_LEVELS)


class TrieQuadtree(QuadTrie):
    """A trie of ordered tokens; long lists are quadtrees.

    ``visited`` counts the nodes of the trie and of the quadtrees that messages reach.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import create
    >>> clauses = Clauses.of([[1], [1, 2]], [[0, 0, 10, 10], [5, 5, 20, 20]])
    >>> index = create("trie-quadtree", child_size=0).build(clauses)
    >>> sorted(index.match(Messages.of([[1, 2]], [[7, 7]])).pairs())
    [(0, 0), (0, 1)]
    """

    name = "trie-quadtree"
    summary = "trie of ordered tokens, quadtrees under its token sets; changes in place"

    Options = TrieQuadtreeOptions

    @classmethod
    def _arrange(
        cls, options: Any, tokens: NDArray[np.int32], start: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        if options.order == "rare":
            return tokens
        # Reverse the tokens of each clause.
        last = np.repeat(start[:-1] + start[1:] - 1, np.diff(start))
        return tokens[last - np.arange(len(tokens))]
