"""``trie-pyramid``, the default index: a keyword trie with a pyramid of grids in every node.

Clauses go down a trie of their tokens, rarest first, as long as enough of them go the same way. In
a node, they lie in a pyramid of grids: a clause stands in the (at most four) cells that its box
touches on the level whose cells are just larger than the box, so that a point message opens one
cell per level. An entry is 16 bytes: its box inside the cell, its clause, and the next token that
must occur; entries of a cell lie side by side. Few clauses are kept as one flat list instead.

`nearcast.kernels.trie_pyramid` describes the arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import Clauses, Messages, at_cache_line, frozen
from nearcast.errors import InvalidInput
from nearcast.indexes.contract import Found, Index, message_arrays
from nearcast.indexes.options import check_whole
from nearcast.indexes.parts import find_in_parts
from nearcast.kernels import trie_pyramid_layout as layout
from nearcast.kernels import trie_pyramid_trie as trees
from nearcast.kernels.pyramid import LEVELS
from nearcast.kernels.token_filter import FILTER_WORDS
from nearcast.kernels.trie_pyramid import ANY, FREE, TriePyramidArrays
from nearcast.kernels.trie_pyramid_match import LONG, match_messages
from nearcast.kernels.trie_pyramid_scan import ScanScratch
from nearcast.kernels.trie_pyramid_walk import GROUP, WAVE, WalkScratch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from nearcast.indexes.parts import Run
    from nearcast.kernels.messages import MessageArrays

MOST_CLAUSES = 1 << layout.LOCAL_BITS
SLOT_LOAD = 0.6


@dataclass(frozen=True)
class TriePyramidOptions:
    """The thresholds of a trie-pyramid; the defaults are the fastest that were measured.

    Parameters
    ----------
    list_size
        A first token with at most this many clauses gets one flat list instead of a node.
    child_size
        A node hands clauses down to a child when at least this many share their next token.
    level_size
        A level of a node's pyramid has at least this many clauses; the rest go to a coarser one.
    """

    list_size: int = 64
    child_size: int = 200
    level_size: int = 64

    def __post_init__(self) -> None:
        for field in fields(self):
            check_whole(field.name, getattr(self, field.name), 1, (1 << 31) - 1)


class TriePyramid(Index):
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
    summary = "keyword trie, a pyramid of grids in every node; the default"
    Options = TriePyramidOptions

    def __init__(
        self, clauses: Clauses, options: TriePyramidOptions, arrays: TriePyramidArrays
    ) -> None:
        self.clauses = clauses
        self.options = options
        self._arrays = arrays

    @classmethod
    def build(cls, clauses: Clauses, options: TriePyramidOptions) -> Self:
        """Build the index: about half a microsecond a clause."""
        if len(clauses) > MOST_CLAUSES:
            raise InvalidInput("clauses", len(clauses), f"an index holds {MOST_CLAUSES:,} at most")
        if len(clauses.token) and int(clauses.token.max()) >= ANY:
            raise InvalidInput("token", int(ANY), f"token ids must be below {ANY:,}")
        return cls.from_arrays(clauses, options, _Construction(clauses, options).arrays())

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index itself."""
        own = self._arrays._asdict()
        return {name: own[name] for name in TriePyramidArrays._fields[:6]}

    @classmethod
    def from_arrays(
        cls, clauses: Clauses, options: TriePyramidOptions, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the index from its arrays."""
        own = [frozen(arrays[name], np.uint64) for name in TriePyramidArrays._fields[:6]]
        own += [clauses.token_start, clauses.token, clauses.box]
        return cls(clauses, options, TriePyramidArrays(*own))

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[Any, ...]]:
        return type(self).from_arrays, (self.clauses, self.options, self.arrays())

    def find(self, messages: Messages, threads: int) -> Found:
        """Find the clauses of each message; several threads take a part of the batch each."""
        return find_in_parts(messages, threads, self._prepare)

    def _prepare(self, messages: Messages, first: int, last: int) -> Run:
        """Make room for walking the messages of a part."""
        arrays: MessageArrays = message_arrays(messages)
        most = int(np.diff(messages.token_start[first : last + 1]).max(initial=0))
        walk, scan = walk_scratch(most, int(self._arrays.setting[2])), scan_scratch()

        def run(
            done: int, start: NDArray[np.int64], clause: NDArray[np.int32]
        ) -> tuple[int, int, int]:
            done, examined = match_messages(
                self._arrays, arrays, done, last, walk, scan, start, clause
            )
            return done, examined, 0

        return run


def walk_scratch(tokens: int, depth: int) -> WalkScratch:
    """Return room for walking messages of so many tokens down a trie of this depth.

    The stack is sorted by depth, and a wave takes its end: of every depth there are never more
    nodes on it than the children of one wave.
    """
    tokens = max(1, tokens)
    short = GROUP * min(tokens, LONG)
    started = GROUP + max(short, tokens)
    return WalkScratch(
        token_key=np.empty((GROUP, tokens), np.uint64),
        token=np.empty((GROUP, tokens), np.uint64),
        token_count=np.zeros(GROUP, np.int64),
        signature=np.zeros(GROUP, np.uint64),
        window=np.zeros((GROUP, 4), np.int64),
        stack=np.empty((started + WAVE * tokens * (depth + 1), 2), np.uint64),
        child=np.empty((WAVE * tokens, 3), np.uint64),
        cell=np.empty((WAVE * LEVELS, 3), np.uint64),
        lists=np.empty((GROUP, tokens + 3 * WAVE * (LEVELS + 1), 2), np.uint64),
        list_count=np.zeros(GROUP, np.int64),
    )


def scan_scratch() -> ScanScratch:
    """Return room for scanning lists."""
    return ScanScratch(
        token_filter=np.zeros(FILTER_WORDS, np.uint64),
        candidate=np.empty(256, np.int64),
        unsure=np.empty(1024, np.int32),
    )


class _Construction:
    """The steps of a build, in order, and the arrays that go from one to the next."""

    def __init__(self, clauses: Clauses, options: TriePyramidOptions) -> None:
        self.clauses = clauses
        self.options = options

    def arrays(self) -> dict[str, NDArray[np.uint64]]:
        """Do all steps and return the arrays of the index."""
        ranked = self._rank()
        group_start, order = self._group(ranked)
        trie, nodes, reference = self._grow(ranked, group_start, order)
        node, entry = self._lay_out(ranked, trie, nodes, group_start, reference)
        token_slot = _token_slots(ranked.token_of_rank, reference)
        depth = int(trie.depth[:nodes].max())
        del trie, ranked, order, group_start
        cells = int((node[:, 6] & np.uint64(0xFFFFFFFF)).sum())
        child_slot, child_seed = _tag_slots(
            nodes, lambda slot, seed: layout.fill_child_slots(node, slot, seed)
        )
        cell_slot, cell_seed = _tag_slots(
            cells, lambda slot, seed: layout.fill_cell_slots(node, entry, slot, seed)
        )
        setting = np.array([child_seed, cell_seed, depth], np.uint64)
        return {
            "token_slot": token_slot,
            "node": node,
            "child_slot": child_slot,
            "cell_slot": cell_slot,
            "entry": entry,
            "setting": setting,
        }

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
        trees.rank_tokens(clauses.token_start, frozen(token, np.int32), rank_of, rank)
        token_of_rank = by_rank if distinct is None else distinct[by_rank]
        return trees.Ranked(clauses.token_start, rank, clauses.box, token_of_rank)

    def _group(self, ranked: trees.Ranked) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Order the clauses by their first token."""
        group_start = np.zeros(len(ranked.token_of_rank) + 3, np.int64)
        order = np.empty(len(self.clauses), np.int32)
        trees.group_by_first(ranked.token_start, ranked.rank, group_start, order)
        return group_start[:-1], order

    def _grow(
        self, ranked: trees.Ranked, group_start: NDArray[np.int64], order: NDArray[np.int32]
    ) -> tuple[trees.Trie, int, NDArray[np.uint64]]:
        """Make a node of every first token that has enough clauses, and the nodes below."""
        size = np.diff(group_start)[1:]
        root = np.flatnonzero(size > self.options.list_size)
        room = 2 + len(root) + len(order) // self.options.child_size * trees.MOST_DEPTH
        trie = trees.Trie(
            order=order,
            low=np.zeros(room, np.int64),
            kept=np.zeros(room, np.int64),
            high=np.zeros(room, np.int64),
            rank=np.full(room, -1, np.int32),
            depth=np.zeros(room, np.int32),
            first_child=np.zeros(room, np.int64),
            children=np.zeros(room, np.int64),
        )
        trie.high[0] = trie.kept[0] = group_start[1]
        roots = slice(1, 1 + len(root))
        trie.low[roots], trie.high[roots] = group_start[root + 1], group_start[root + 2]
        trie.kept[roots] = trie.high[roots]
        trie.rank[roots], trie.depth[roots] = root, 1
        nodes = trees.grow_trie(ranked, trie, 1 + len(root), self.options.child_size)
        reference = np.zeros(len(size), np.uint64)
        reference[root] = np.arange(1, 1 + len(root))
        return trie, nodes, reference

    def _lay_out(
        self,
        ranked: trees.Ranked,
        trie: trees.Trie,
        nodes: int,
        group_start: NDArray[np.int64],
        reference: NDArray[np.uint64],
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Write node records and lists. Room is reserved amply: untouched, it costs nothing."""
        options = self.options
        node = at_cache_line(8 * nodes, np.uint64).reshape(nodes, 8)
        room = 2 + 8 * len(self.clauses) + 2 * nodes + len(reference)
        entry = np.empty((room, 2), np.uint64)
        entry[0] = 0
        end = layout.write_short_lists(
            ranked, group_start, trie.order, options.list_size, reference, entry, 1
        )
        end = layout.write_nodes(ranked, trie, options.level_size, node, entry, end)
        layout.bound_nodes(ranked, trie, node)
        entry.resize((end, 2), refcheck=False)
        return node, entry


def _tag_slots(
    count: int, fill: Callable[[NDArray[np.uint64], np.uint64], bool]
) -> tuple[NDArray[np.uint64], int]:
    """Fill a table of tags under the first seed with which no chain has the same tag twice."""
    seed = 1
    while True:
        slot = np.zeros(16 + int(count / SLOT_LOAD), np.uint64)
        if fill(slot, np.uint64(seed)):
            return slot, seed
        seed += 1


def _token_slots(
    token_of_rank: NDArray[np.int32], reference: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    size = 16
    while size < 2 * len(token_of_rank):
        size *= 2
    slot = np.full((size, 2), FREE, np.uint64)
    layout.fill_token_slots(token_of_rank, reference, slot)
    return slot
