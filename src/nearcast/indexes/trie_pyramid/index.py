"""``trie-pyramid``, the default index: a keyword trie with a pyramid of boxes in every node.

Clauses stand in the list of their rarest token, and further down a trie of their tokens, rarest
first, where enough of them go the same way. The clauses of a list are a pyramid: neighbours stand
in blocks of 32, blocks in blocks of 32 again, and one vector comparison tells which of 32 boxes
touch a message. An entry is 16 bytes: its box, rounded, its clause, and the next token that must
occur. Beside the token that leads to a list stand 128 bits that say roughly where its clauses are.

`nearcast.indexes.trie_pyramid.arrays` describes the arrays, `nearcast.indexes.trie_pyramid.pyramid` the pyramids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import Clauses, at_cache_line, read_only
from nearcast.compiled.token_filter import FILTER_WORDS
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.errors import InvalidInput
from nearcast.indexes.boolean import BooleanIndex
from nearcast.indexes.options import check_number, check_whole
from nearcast.indexes.trie_pyramid import layout as layouts
from nearcast.indexes.trie_pyramid import trie as trees
from nearcast.indexes.trie_pyramid.arrays import PADDING, WAITING, TriePyramidArrays
from nearcast.indexes.trie_pyramid.match import CHUNK, Scratch, match_messages
from nearcast.indexes.trie_pyramid.places import place_level
from nearcast.indexes.trie_pyramid.pyramid import BLOCK, fill_words
from nearcast.indexes.trie_pyramid.scan import CANDIDATES
from nearcast.indexes.trie_pyramid.tokens import table_bits
from nearcast.indexes.trie_pyramid.verify import Asked, Sifted
from nearcast.indexes.trie_pyramid.walk import Queues

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays
    from nearcast.indexes.boolean import Progress


SIZE_BITS = 27
MAX_CLAUSES = 1 << SIZE_BITS

SLOT_LOAD = 0.34
"""Tokens are looked up more often than anything else: most are found at the first look."""

STORED = TriePyramidArrays._fields[:6]
"""The arrays that are the index's own."""


@dataclass(frozen=True)
class TriePyramidOptions:
    """The thresholds of a trie-pyramid; the defaults are the fastest that were measured.

    Parameters
    ----------
    list_size
        So many clauses are one list, whose boxes are compared at once. More are cut into as many
        parts at most.
    child_size
        Clauses of a list that share their next token get a list of their own, a child, where so
        many of them are expected to touch a message.
    """

    list_size: int = BLOCK
    child_size: float = 4.0

    def __post_init__(self) -> None:
        check_whole("list_size", self.list_size, 2, BLOCK)
        check_number("child_size", self.child_size, 0, 1e18)


class TriePyramid(BooleanIndex):
    """The default index: live through `nearcast.Engine`, immutable by itself.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> clauses = Clauses.of([[1], [1, 2]], [[0, 0, 10, 10], [5, 5, 20, 20]])
    >>> index = TriePyramid.build(clauses, TriePyramidOptions())
    >>> sorted(index.match(Messages.of([[1, 2]], [[7, 7]])).pairs())
    [(0, 0), (0, 1)]
    """

    name = "trie-pyramid"
    summary = "keyword trie, a pyramid of boxes in every node; the default"
    Options = TriePyramidOptions

    def __init__(
        self, clauses: Clauses, options: TriePyramidOptions, arrays: TriePyramidArrays
    ) -> None:
        super().__init__(clauses, options)
        self._arrays = arrays

    @classmethod
    def build(cls, clauses: Clauses, options: TriePyramidOptions) -> Self:
        """Build the index: less than half a microsecond a clause."""
        if len(clauses) > MAX_CLAUSES:
            raise InvalidInput("clauses", len(clauses), f"an index holds {MAX_CLAUSES:,} at most")
        if len(clauses.token) and int(clauses.token.max()) >= NO_TOKEN:
            raise InvalidInput("token", int(NO_TOKEN), f"token ids must be below {NO_TOKEN:,}")
        return cls.from_arrays(clauses, options, _Construction(clauses, options).arrays())

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index itself."""
        return {name: getattr(self._arrays, name) for name in STORED}

    @classmethod
    def from_arrays(
        cls, clauses: Clauses, options: TriePyramidOptions, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the index from its arrays."""
        own = [read_only(arrays[name], arrays[name].dtype) for name in STORED]
        own += [read_only(arrays["pyramid"], np.uint64).view(np.int16)]
        own += [clauses.box, clauses.token_start, clauses.token]
        return cls(clauses, options, TriePyramidArrays(*own))

    def find_part(
        self,
        messages: MessageArrays,
        part: tuple[int, int],
        scratch: Scratch,
        start: NDArray[np.int64],
        clause: NDArray[np.int32],
    ) -> Progress:
        """Look up the tokens of each message, and compare the boxes of their lists."""
        return match_messages(self._arrays, messages, *part, scratch, start, clause)

    def make_scratch(self, tokens: int) -> Scratch:
        """Return scratch space for messages of at most ``tokens`` tokens."""
        return message_scratch(tokens, self._arrays)


def message_scratch(tokens: int, arrays: TriePyramidArrays) -> Scratch:
    """Return room for matching messages of so many tokens."""
    return Scratch(
        queues=(_queues(arrays), _queues(arrays)),
        sifted=(_sifted(), _sifted()),
        candidate=np.empty(CANDIDATES, np.int64),
        window=np.empty(4, np.int16),
        asked=_asked(tokens),
    )


def _asked(tokens: int) -> Asked:
    """Return room for so many tokens."""
    return Asked(
        token_filter=np.zeros(FILTER_WORDS, np.uint64),
        table=np.empty(1 << table_bits(tokens), np.int32),
        bits=np.zeros(1, np.int64),
    )


def _sifted() -> Sifted:
    """Return room for what is left of candidates."""
    sure, aside = np.empty(CANDIDATES, np.int32), np.empty(CANDIDATES, np.uint64)
    return Sifted(sure, aside, np.zeros(2, np.int64))


def _queues(arrays: TriePyramidArrays) -> Queues:
    """Return room for all that can be waiting. Most of it stays untouched and costs nothing."""
    most = CHUNK + 2 + int(arrays.setting[WAITING])
    return Queues(
        leaf=np.empty(most, np.uint64),
        head=np.empty(most, np.uint64),
        node=np.empty(CHUNK + 2 + len(arrays.node), np.uint64),
        counts=np.zeros(4, np.int64),
    )


class _Construction:
    """The steps of a build, in order, and the arrays that go from one to the next."""

    def __init__(self, clauses: Clauses, options: TriePyramidOptions) -> None:
        self.clauses = clauses
        self.options = options

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Do all steps and return the arrays of the index."""
        ranked = self._rank()
        trie = self._grow(ranked)
        layout = self._room(trie)
        layouts.write_lists(ranked, trie, layout)
        layouts.write_children(ranked, trie, layout)
        return {name: getattr(layout, name) for name in STORED}

    def _rank(self) -> trees.Ranked:
        """Give every token its rank, rarest first, and sort the tokens of every clause by it."""
        clauses = self.clauses
        token, distinct = clauses.token, None
        if len(token) and int(token.max()) > 4 * len(token) + 1024:
            distinct, inverse = np.unique(token, return_inverse=True)
            token = inverse.astype(np.int32)
        frequency = np.bincount(token)
        present = np.flatnonzero(frequency)
        by_rank = present[np.argsort(frequency[present], kind="stable")].astype(np.int32)
        rank_of = np.empty(len(frequency), np.int32)
        rank_of[by_rank] = np.arange(len(by_rank), dtype=np.int32)
        rank = np.empty(len(token), np.int32)
        trees.rank_tokens(clauses.token_start, read_only(token, np.int32), rank_of, rank)
        token_of_rank = by_rank if distinct is None else distinct[by_rank]
        return trees.Ranked(clauses.token_start, rank, clauses.box, token_of_rank)

    def _grow(self, ranked: trees.Ranked) -> trees.Trie:
        """Group the clauses by their first tokens, and further where that pays."""
        ranks, box = len(ranked.token_of_rank), self.clauses.box
        order = np.empty(len(box), np.int32)
        group_start = np.zeros(ranks + 3, np.int64)
        touching = np.zeros(ranks + 1, np.float64)
        area = _area(box)
        trees.group_by_first(ranked, area, group_start, touching, order)
        group_start = group_start[:-1]
        below = len(ranked.rank)
        if self.options.child_size > 0:  # a child has so many, and of every depth there are no more
            most = float(touching.sum()) / self.options.child_size + 1
            below = int(min(below, trees.MAX_DEPTH * most))
        room = ranks + 1 + below
        trie = trees.Trie(
            order=order,
            low=np.empty(room, np.int64),
            kept=np.empty(room, np.int64),
            high=np.empty(room, np.int64),
            rank=np.empty(room, np.int32),
            depth=np.empty(room, np.int32),
            parent=np.empty(room, np.int32),
            node=np.empty(room, np.int32),
            first_child=np.empty(room, np.int64),
            children=np.empty(room, np.int64),
            state=np.zeros(2, np.int64),
        )
        trees.start_trie(group_start, trie)
        trees.grow_trie(ranked, trie, area, float(self.options.child_size), touching)
        return trie

    def _room(self, trie: trees.Trie) -> layouts.Layout:
        """Make room for all arrays."""
        block, box = self.options.list_size, self.clauses.box
        lists, nodes = trie.state.tolist()
        roots = int((trie.parent[:lists] == 0).sum())
        shape = np.zeros((2, len(_part_bits(block))), np.int64)
        shape[0] = _part_bits(block)
        fill_words(shape, block)
        tokenless = int(lists > 0 and trie.rank[0] < 0)
        setting = np.array([block, place_level(box), tokenless, 0], np.int64)
        words = layouts.count_words(trie, shape, block)
        pool = at_cache_line(words + PADDING, np.uint64)
        slots = 16 + int(lists / SLOT_LOAD)
        return layouts.Layout(
            slot=at_cache_line(4 * slots, np.uint64).reshape(-1, 4),
            pyramid=pool,
            node=np.zeros((nodes + 1, 4), np.uint64),
            child=np.zeros(lists - roots, np.uint64),
            shape=shape,
            setting=setting,
            half=pool.view(np.int16),
        )


def _part_bits(block: int) -> list[int]:
    """Return the logarithms of the sizes of parts."""
    step = block.bit_length() - 1
    return list(range(step, SIZE_BITS + step, step))


def _area(box: NDArray[np.int32]) -> float:
    """Return the area of the bounds of all boxes, at least 1."""
    if not len(box):
        return 1.0
    bounds = np.concatenate([box[:, :2].min(axis=0), box[:, 2:].max(axis=0)]).astype(np.float64)
    return max(1.0, float((bounds[2] - bounds[0]) * (bounds[3] - bounds[1])))
