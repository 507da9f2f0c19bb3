"""What the indexes of quadtrees have in common: iq-tree, rq-tree and trie-quadtree.

Clauses stand in the cells of quadtrees, placed by the cost model of Chen, Cong and Cao (SIGMOD
2013; see `nearcast.indexes.quadtrees.cells`), and there in the lists that `nearcast.indexes.quadtrees.lists`
describes. The indexes differ in what owns these lists: cells that messages touch, or tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import Clauses, GrowingArray, read_only
from nearcast.compiled.box_lists import Tokens
from nearcast.compiled.ordered_clauses import Ordered
from nearcast.indexes.in_place import InPlaceIndex, check_tokens
from nearcast.indexes.options import check_number, check_whole
from nearcast.indexes.quadtrees import allocation as rooms
from nearcast.indexes.quadtrees.cells import Costs, rate_clauses
from nearcast.indexes.quadtrees.lists import (
    BY_TOKEN,
    CHILD_SIZE,
    DEEPEST,
    DOCUMENTS,
    HELD,
    LIST_SIZE,
    M_WAYS,
    PLANTED,
    REMOVED,
    Quad,
)
from nearcast.indexes.quadtrees.match import match_messages
from nearcast.indexes.statistics import Statistics
from nearcast.indexes.token_order.order import TokenOrder
from nearcast.storage import nested, prefixed
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays
    from nearcast.indexes.boolean import Progress
    from nearcast.indexes.quadtrees.scan import Scratch


__all__ = ["QuadIndex", "QuadOptions", "QuadSettings"]

_MIN_UPDATE_COST = 1e-12
_MIN_CHANGED = 64
_MAX_LIST = 1 << 28


@dataclass(frozen=True)
class QuadSettings:
    """What the arrays of an index are told."""

    by_token: bool
    list_size: int
    child_size: int
    trie_levels: int


@dataclass(frozen=True)
class QuadOptions(ABC):
    """The options of all indexes of quadtrees.

    Parameters
    ----------
    list_size
        A cell that has as many clauses is divided.
    update_cost
        What a clause costs in a cell, whatever comes: as much as so many verifications a message.
        A clause stands in several small cells where that saves more than it costs.
    depth
        The level of the smallest cells: there are ``4 ** depth`` of them in the world.
    parts
        A box is cut, along its longer side, into about as many cells at most.
    statistics
        A folder that ``nearcast spark statistics`` wrote over messages: how often tokens occur and
        where messages come from. Token ids must be those of its vocabulary, as `Builder.vocabulary`
        gives it. Without statistics, the clauses are taken for messages.
    """

    list_size: int = 64
    update_cost: float = 1e-5
    depth: int = 16
    parts: int = 8
    statistics: str = ""

    def __post_init__(self) -> None:
        check_whole("list_size", self.list_size, 1, _MAX_LIST)
        check_number("update_cost", self.update_cost, _MIN_UPDATE_COST, 1)
        check_whole("depth", self.depth, 0, rooms.MAX_LEVELS)
        check_whole("parts", self.parts, 1, rooms.MAX_PARTS)

    @property
    @abstractmethod
    def settings(self) -> QuadSettings:
        """What the arrays are told."""


class QuadIndex(InPlaceIndex):
    """An index of quadtrees; a subclass says how clauses are added to its lists, and removed."""

    _FIELDS = ("slot", "node", "run", "listed", "entry", "state")

    def __init__(
        self,
        clauses: Clauses,
        options: Any,
        order: TokenOrder,
        columns: tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]],
        quad: Quad,
        alive: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(clauses, options, alive)
        self._order = order
        self._tokens: NDArray[np.int32] | GrowingArray = columns[0]
        self._hit: NDArray[np.float32] | GrowingArray = columns[1]
        self._share = columns[2]
        self._quad = quad
        self._work = rooms.work(options.parts)
        self._seen: Quad | None = None

    @classmethod
    def vocabulary(cls, options: Any) -> Vocabulary:
        """Return the vocabulary of the statistics, whose token ids their frequencies go by."""
        if not options.statistics:
            return Vocabulary()
        return Statistics.load(options.statistics).vocabulary

    @classmethod
    def build(cls, clauses: Clauses, options: Any) -> Self:
        """Count tokens and places, and put all clauses into their cells."""
        check_tokens(clauses)
        order, tokens = TokenOrder.count(clauses, "idf", statistics=options.statistics)
        tokens = cls._arranged(options, tokens, clauses.token_start)
        quad, hit = rooms.empty(0), np.empty(len(clauses), np.float32)
        if options.statistics:
            statistics = Statistics.load(options.statistics)
            quad.state[DOCUMENTS] = max(1, statistics.documents)
            share = rooms.shares_in(statistics)
        else:
            share = rooms.shares_of(clauses.box)
        columns = read_only(tokens, np.int32), hit, read_only(share, np.float32)
        index = cls(clauses, options, order, columns, quad)
        index._plant(np.arange(len(clauses), dtype=np.int32))
        return cls.from_arrays(clauses, options, index.arrays())

    @classmethod
    def _arranged(
        cls, options: Any, tokens: NDArray[np.int32], start: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Return the tokens of clauses, of which the rarest come first, in the index's order."""
        return tokens

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index itself."""
        return {
            **rooms.used(self._quad)._asdict(),
            "token": _view(self._tokens),
            "hit": _view(self._hit),
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
        quad = rooms.read_only_quad(Quad(*(arrays[name] for name in cls._FIELDS)))
        return cls(clauses, options, order, columns, quad, arrays["alive"])

    def find_part(
        self,
        messages: MessageArrays,
        part: tuple[int, int],
        scratch: Scratch,
        start: NDArray[np.int64],
        clause: NDArray[np.int32],
    ) -> Progress:
        """Find the clauses of each message in the lists of its tokens and cells."""
        if self._seen is None:
            self._seen = rooms.read_only_quad(self._quad)
        ordered = self._ordered()
        clauses = Tokens(ordered.start, ordered.token)
        return match_messages(self._seen, clauses, messages, part, scratch, start, clause)

    def make_scratch(self, tokens: int) -> Scratch:
        """Return scratch space for messages of at most ``tokens`` tokens."""
        return rooms.scratch(tokens, self.options.settings.trie_levels)

    @abstractmethod
    def _put(self, clauses: NDArray[np.int32]) -> int:
        """Put clauses into their lists; return how many there was room for."""

    @abstractmethod
    def _take(self, clauses: NDArray[np.int64]) -> None:
        """Take clauses out of their lists."""

    def _ready(self) -> None:
        """Do what is left when all clauses have been put."""

    def _ordered(self) -> Ordered:
        return Ordered(self.clauses.token_start, _view(self._tokens), self.clauses.box)

    def _costs(self) -> Costs:
        options = self.options
        fine = options.parts.bit_length() - 1
        share, hit = self._share, read_only(_view(self._hit), np.float32)
        return Costs(share, hit, float(options.update_cost), rooms.LEVELS, options.depth, fine)

    def _begin_changing(self) -> None:
        self._quad = rooms.each(self._quad, np.copy)
        self._tokens = GrowingArray(_view(self._tokens))
        self._hit = GrowingArray(_view(self._hit))

    def _add(self, first: int, last: int) -> None:
        self._seen = None
        assert isinstance(self._tokens, GrowingArray)
        assert isinstance(self._hit, GrowingArray)
        start = self.clauses.token_start[first:]
        tokens = self._order.insert(self.clauses, first)
        self._tokens.append(self._arranged(self.options, tokens, start - start[0]))
        self._hit.extend(last - first)
        state = self._quad.state
        state[HELD] += last - first
        if state[HELD] > 2 * state[PLANTED] + _MIN_CHANGED:
            self._share = self._counted_share()
            self._replant(self._alive_clauses())
            return
        self._rate(first)
        self._insert(np.arange(first, last, dtype=np.int32))

    def _remove(self, clauses: NDArray[np.int64]) -> None:
        """Take clauses out; the trees are planted anew when a third of all were removed since."""
        self._seen = None
        self._order.delete(self.clauses, clauses)
        state = self._quad.state
        state[HELD] -= len(clauses)
        state[REMOVED] += len(clauses)
        if state[REMOVED] > max(_MIN_CHANGED, int(state[HELD]) // 2):
            left = np.setdiff1d(self._alive_clauses(), clauses.astype(np.int32))
            self._replant(left)
            return
        self._take(read_only(clauses, np.int64))

    def _alive_clauses(self) -> NDArray[np.int32]:
        return np.flatnonzero(self.alive[self.clauses.row]).astype(np.int32)

    def _counted_share(self) -> NDArray[np.float32]:
        """Return the shares of cells by the clauses that are there, if there are no statistics."""
        if self._quad.state[DOCUMENTS]:
            return self._share
        return read_only(rooms.shares_of(self.clauses.box[self._alive_clauses()]), np.float32)

    def _replant(self, clauses: NDArray[np.int32]) -> None:
        self._plant(clauses)
        self._quad = rooms.each(self._quad, np.copy)

    def _plant(self, clauses: NDArray[np.int32]) -> None:
        """Put the clauses given, and no others, into new lists."""
        documents = self._quad.state[DOCUMENTS]
        self._quad = rooms.empty(len(clauses))
        settings, state = self.options.settings, self._quad.state
        state[LIST_SIZE], state[CHILD_SIZE] = settings.list_size, settings.child_size
        state[DEEPEST], state[BY_TOKEN] = settings.trie_levels, settings.by_token
        state[DOCUMENTS], state[HELD], state[PLANTED] = documents, len(clauses), len(clauses)
        self._prepare_planting()
        self._rate(0)
        self._insert(clauses)
        self._ready()
        self._quad = rooms.trimmed(self._quad)

    def _prepare_planting(self) -> None:
        """Make the nodes that are there from the beginning."""

    def _rate(self, first: int) -> None:
        """Rate the clauses from a number on by the frequencies of tokens so far."""
        state, ordered = self._quad.state, self._ordered()
        documents = max(1, int(state[DOCUMENTS] or state[HELD]))
        hit = self._hit.writable if isinstance(self._hit, GrowingArray) else self._hit
        frequency = read_only(self._order.arrays()["anywhere"], np.uint64)
        rate_clauses(ordered.start, ordered.token, frequency, documents, hit, first)

    def _insert(self, clauses: NDArray[np.int32]) -> None:
        """Put clauses, with more room wherever something is missing."""
        done = 0
        while True:
            done += self._put(read_only(clauses[done:], np.int32))
            if done == len(clauses):
                return
            missing = self._work.missing.tolist()
            self._work.missing[:] = 0
            self._quad = rooms.enlarged(self._quad, missing)
            if missing[M_WAYS]:
                self._work = rooms.work(self.options.parts, 2 * missing[M_WAYS])


def _view(column: NDArray[Any] | GrowingArray) -> NDArray[Any]:
    return column.view if isinstance(column, GrowingArray) else column
