"""``keyword-first``: ranked-key inverted lists, then a check of the place.

The keyword-first method of the rt-tree paper (KDD 2013, section 2.2) over the lists of Yan and
Garcia-Molina (TODS 1994): a clause stands in the list of its rarest token only. A message looks
through the lists of its tokens, wherever their clauses are; what it finds there is checked by its
box, its second-rarest token, and then by the others.

`nearcast.indexes.keyword_first.lists` describes the arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import Clauses, GrowingArray, at_cache_line, read_only
from nearcast.compiled.box_lists import CAPACITY, PADDING, WIDTH, Tokens
from nearcast.compiled.token_filter import FILTER_WORDS
from nearcast.indexes.contract import NoOptions
from nearcast.indexes.in_place import InPlaceIndex, check_tokens
from nearcast.indexes.keyword_first import lists as kernels
from nearcast.indexes.keyword_first.lists import LEFT, LISTS, TOP, Lists, Ordered
from nearcast.indexes.keyword_first.match import Scratch, match_messages
from nearcast.indexes.token_order.order import TokenOrder
from nearcast.storage import nested, prefixed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays
    from nearcast.indexes.boolean import Progress


SLOT_LOAD = 0.5
CANDIDATES = 1024


class KeywordFirst(InPlaceIndex):
    """Lists of clauses by their rarest token.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> clauses = Clauses.of([[1], [1, 2]], [[0, 0, 10, 10], [5, 5, 20, 20]])
    >>> index = KeywordFirst.build(clauses, NoOptions())
    >>> sorted(index.match(Messages.of([[1, 2]], [[7, 7]])).pairs())
    [(0, 0), (0, 1)]
    """

    name = "keyword-first"
    summary = "lists by the rarest token, then the place; changes in place"

    def __init__(
        self,
        clauses: Clauses,
        lists: Lists,
        order: TokenOrder,
        alive: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(clauses, NoOptions(), alive)
        self._lists = lists
        self._order = order
        self._first: GrowingArray | None = None

    @classmethod
    def build(cls, clauses: Clauses, options: NoOptions) -> Self:
        """Build the index: about a third of a microsecond a clause."""
        check_tokens(clauses)
        order, ordered = TokenOrder.count(clauses, "idf")
        distinct = min(len(clauses), int(order.arrays()["used"][0])) + 1
        lists = Lists(
            _slots(distinct),
            np.empty((0, WIDTH), np.int32),
            np.empty(len(clauses), np.int32),
            np.zeros(3, np.int64),
        )
        columns = _ordered(clauses, ordered, 0)
        kernels.count_lists(columns, lists)
        lists = _with_slots(lists, int(lists.state[LISTS]))
        kernels.lay_out(lists)
        lists = lists._replace(entry=_pool(int(lists.state[TOP])))
        kernels.fill_lists(columns, lists)
        return cls(clauses, lists, order)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the lists, the frequencies of tokens, and which subscriptions are alive."""
        lists = self._lists
        used = lists._replace(entry=lists.entry[: lists.state[TOP] + PADDING])
        return {
            **used._asdict(),
            **prefixed("order", self._order.arrays()),
            "alive": self.alive,
        }

    @classmethod
    def from_arrays(
        cls, clauses: Clauses, options: NoOptions, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the index from its arrays."""
        lists = _read_only(Lists(*(arrays[name] for name in Lists._fields)))
        order = TokenOrder.from_arrays("idf", nested("order", arrays), cells=1, seed=0)
        return cls(clauses, lists, order, arrays["alive"])

    def find_part(
        self,
        messages: MessageArrays,
        part: tuple[int, int],
        scratch: Scratch,
        start: NDArray[np.int64],
        clause: NDArray[np.int32],
    ) -> Progress:
        """Scan the lists of the tokens of each message."""
        clauses = Tokens(self.clauses.token_start, self.clauses.token)
        done, examined = match_messages(
            _read_only(self._lists), clauses, messages, *part, scratch, start, clause
        )
        return done, examined, 0

    def make_scratch(self, tokens: int) -> Scratch:
        """Return scratch space for messages of at most ``tokens`` tokens."""
        return Scratch(
            np.zeros(FILTER_WORDS, np.uint64),
            np.empty((tokens + 1, 3), np.int64),
            np.empty(CANDIDATES, np.int64),
            np.empty(CANDIDATES, np.int32),
        )

    def _begin_changing(self) -> None:
        slot, entry, first, state = self._lists
        self._first = GrowingArray(first)
        pool = _pool(64 + 2 * len(entry))
        pool[: len(entry)] = entry
        self._lists = Lists(slot.copy(), pool, self._first.writable, state.copy())

    def _add(self, first: int, last: int) -> None:
        assert self._first is not None
        ordered = self._order.insert(self.clauses, first)
        self._first.extend(last - first)
        self._lists = self._lists._replace(first=self._first.writable)
        columns = _ordered(self.clauses, ordered, int(self.clauses.token_start[first]))
        done = first
        while done < last:
            done = kernels.insert_clauses(columns, done, self._lists)
            if done < last:
                self._make_room()

    def _remove(self, clauses: NDArray[np.int64]) -> None:
        kernels.remove_clauses(read_only(clauses, np.int64), self._lists)
        self._order.delete(self.clauses, clauses)

    def _make_room(self) -> None:
        """Let the table grow if it is filling up, else the pool, which then has no holes."""
        lists = self._lists
        if 5 * (lists.state[LISTS] + 1) > 3 * len(lists.slot):
            self._lists = _with_slots(lists, 2 * int(lists.state[LISTS]))
            return
        largest = int(lists.slot[:, CAPACITY].max())
        pool = _pool(64 + 2 * int(lists.state[TOP] - lists.state[LEFT] + largest))
        kernels.move_lists(lists, pool)
        self._lists = lists._replace(entry=pool)


def _ordered(clauses: Clauses, ordered: NDArray[np.int32], base: int) -> Ordered:
    return Ordered(clauses.token_start, read_only(ordered, np.int32), clauses.box, base)


def _read_only(lists: Lists) -> Lists:
    """Return read-only views: one type, whether the arrays were just made or memory-mapped."""
    return Lists(
        read_only(lists.slot, np.int32),
        read_only(lists.entry, np.int32),
        read_only(lists.first, np.int32),
        read_only(lists.state, np.int64),
    )


def _slots(lists: int) -> NDArray[np.int32]:
    return np.zeros((16 + int(lists / SLOT_LOAD), 4), np.int32)


def _with_slots(lists: Lists, count: int) -> Lists:
    """Return the lists with a table that has room for so many."""
    slot = _slots(count)
    kernels.move_slots(lists.slot, slot)
    return lists._replace(slot=slot)


def _pool(entries: int) -> NDArray[np.int32]:
    """Return room for so many entries, and to spare, beginning at a cache line."""
    return at_cache_line(WIDTH * (entries + PADDING), np.int32).reshape(-1, WIDTH)
