"""The class and the options of ``trie-pyramid``, and the allocation of its arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import Clauses, at_cache_line, read_only
from nearcast.compiled.clauses import ClauseTokens
from nearcast.compiled.pyramids import (
    BLOCK,
    MAX_QUEUED,
    PADDING,
    SIZE_BITS,
    choose_grid_level,
    make_part_sizes,
)
from nearcast.compiled.token_filter import FILTER_WORDS
from nearcast.errors import InvalidInput
from nearcast.indexes.boolean import BooleanIndex
from nearcast.indexes.in_place import check_tokens
from nearcast.indexes.options import check_number, check_whole
from nearcast.indexes.trie_pyramid.build import (
    LISTS,
    MAX_DEPTH,
    NODES,
    RankedClauses,
    Trie,
    count_words,
    group_by_first,
    rank_tokens,
    split_lists,
    start_trie,
    write_children,
    write_lists,
)
from nearcast.indexes.trie_pyramid.check import check_arrays
from nearcast.indexes.trie_pyramid.layout import TriePyramidArrays
from nearcast.indexes.trie_pyramid.match import (
    CHUNK,
    Candidates,
    MessageTokens,
    Scratch,
    match_messages,
    table_bits,
)
from nearcast.indexes.trie_pyramid.search import MAX_CANDIDATES, Queues
from nearcast.indexes.trie_pyramid.trace import trace_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.columns import Messages
    from nearcast.compiled.messages import MessageArrays, Output
    from nearcast.indexes.boolean import Progress
    from nearcast.indexes.tracing import TracedNode

MAX_CLAUSES = (1 << SIZE_BITS) - 1

SLOT_LOAD = 0.34
"""The share of slots in use. Lookups are the most frequent step; most end at the first slot."""

SAVED = {
    "slot": ("slot", np.uint64),
    "pyramid": ("pyramid", np.uint64),
    "node": ("node", np.uint64),
    "child": ("child", np.uint64),
    "part_sizes": ("shape", np.int64),
    "header": ("setting", np.int64),
}
"""For each array of the index, its name and type in a saved index."""


@dataclass(frozen=True)
class TriePyramidOptions:
    """The thresholds of a trie-pyramid; the defaults are the fastest that were measured.

    Parameters
    ----------
    list_size
        Boxes per block: the largest leaf, and the number of parts of a longer list.
    child_size
        Clauses of a list that share their next token get a list of their own, a child, if at
        least this many of them are expected to overlap a message.
    """

    list_size: int = BLOCK
    child_size: float = 4.0

    def __post_init__(self) -> None:
        check_whole("list_size", self.list_size, 2, BLOCK)
        check_number("child_size", self.child_size, 0, 1e18)


class TriePyramid(BooleanIndex):
    """The default index. It is immutable; `nearcast.Engine` makes it live.

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
        """Build the index: less than half a microsecond per clause."""
        if len(clauses) > MAX_CLAUSES:
            raise InvalidInput("clauses", len(clauses), f"an index holds {MAX_CLAUSES:,} at most")
        check_tokens(clauses)
        ranked = _rank_clauses(clauses)
        trie = _build_trie(ranked, float(options.child_size))
        arrays = _allocate(clauses, trie, options.list_size)
        write_lists(ranked, trie, arrays)
        write_children(ranked, trie, arrays)
        return cls.from_arrays(clauses, options, _saved(arrays))

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index itself."""
        return _saved(self._arrays)

    @classmethod
    def from_arrays(
        cls, clauses: Clauses, options: TriePyramidOptions, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the index from its arrays."""
        own = {field: read_only(arrays[name], dtype) for field, (name, dtype) in SAVED.items()}
        own["rounded_boxes"] = own["pyramid"].view(np.int16)
        columns = {name: getattr(clauses, name) for name in ("box", "token_start", "token")}
        return cls(clauses, options, TriePyramidArrays(**own, **columns))

    def check_structure(self) -> None:
        """Raise `StorageError` unless the arrays are safe for every kernel."""
        check_arrays(self._arrays)

    def find_part(
        self, messages: MessageArrays, part: tuple[int, int], scratch: Scratch, output: Output
    ) -> Progress:
        """Look up the tokens of each message, and compare the boxes of their lists."""
        return match_messages(self._arrays, messages, part, scratch, output)

    def trace(self, messages: Messages) -> list[TracedNode]:
        """Return the lists that a message leads to, and the boxes that are compared there."""
        pieces, _ = messages.cut()
        return [
            node
            for piece in range(len(pieces))
            for node in trace_message(
                self._arrays,
                pieces.token[pieces.token_start[piece] : pieces.token_start[piece + 1]],
                pieces.box[piece],
            )
        ]

    def make_scratch(self, tokens: int) -> Scratch:
        """Return scratch space for messages of at most ``tokens`` tokens."""
        arrays = self._arrays
        return Scratch(
            queues=(_queues(arrays), _queues(arrays)),
            candidates=(_candidates(), _candidates()),
            candidate=np.empty(MAX_CANDIDATES, np.int64),
            window=np.empty(4, np.int16),
            tokens=MessageTokens(
                token_filter=np.zeros(FILTER_WORDS, np.uint64),
                table=np.empty(1 << table_bits(tokens), np.int32),
                table_bits=np.zeros(1, np.int64),
            ),
        )


def _saved(arrays: TriePyramidArrays) -> dict[str, NDArray[Any]]:
    """Return the arrays under the names of a saved index."""
    return {name: getattr(arrays, field) for field, (name, _) in SAVED.items()}


def _queues(arrays: TriePyramidArrays) -> Queues:
    """Allocate queues for everything below a chunk; pages that stay untouched cost nothing."""
    capacity = CHUNK + 2 + int(arrays.header[MAX_QUEUED])
    return Queues(
        leaf=np.empty(capacity, np.uint64),
        inner=np.empty(capacity, np.uint64),
        node=np.empty(CHUNK + 2 + len(arrays.node), np.uint64),
        counts=np.zeros(4, np.int64),
    )


def _candidates() -> Candidates:
    """Allocate the candidates of a chunk."""
    return Candidates(
        certain=np.empty(MAX_CANDIDATES, np.int32),
        undecided=np.empty(MAX_CANDIDATES, np.uint64),
        counts=np.zeros(2, np.int64),
    )


def _rank_clauses(clauses: Clauses) -> RankedClauses:
    """Rank the tokens, rarest first, and sort the tokens of every clause by rank."""
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
    rank_tokens(ClauseTokens(clauses.token_start, read_only(token, np.int32)), rank_of, rank)
    token_of_rank = by_rank if distinct is None else distinct[by_rank]
    return RankedClauses(clauses.token_start, rank, clauses.box, token_of_rank, _area(clauses.box))


def _build_trie(ranked: RankedClauses, child_size: float) -> Trie:
    """Group the clauses by their first tokens, and by further tokens where that pays."""
    ranks = len(ranked.token_of_rank)
    order = np.empty(len(ranked.box), np.int32)
    group_start = np.zeros(ranks + 3, np.int64)
    overlaps = np.zeros(ranks + 1, np.float64)
    group_by_first(ranked, group_start, overlaps, order)
    children = len(ranked.rank)
    if child_size > 0:  # at each depth, children share the expected overlaps of all clauses
        per_depth = float(overlaps.sum()) / child_size + 1
        children = int(min(children, MAX_DEPTH * per_depth))
    lists = ranks + 1 + children
    trie = Trie(
        order=order,
        low=np.empty(lists, np.int64),
        kept=np.empty(lists, np.int64),
        high=np.empty(lists, np.int64),
        rank=np.empty(lists, np.int32),
        depth=np.empty(lists, np.int32),
        parent=np.empty(lists, np.int32),
        node=np.empty(lists, np.int32),
        first_child=np.empty(lists, np.int64),
        child_count=np.empty(lists, np.int64),
        counts=np.zeros(2, np.int64),
    )
    start_trie(group_start[:-1], trie)
    split_lists(ranked, trie, child_size, overlaps)
    return trie


def _allocate(clauses: Clauses, trie: Trie, block: int) -> TriePyramidArrays:
    """Allocate the arrays of the index."""
    lists, nodes = int(trie.counts[LISTS]), int(trie.counts[NODES])
    children = int((trie.parent[:lists] != 0).sum())
    tokenless = int(lists > 0 and trie.rank[0] < 0)
    part_sizes = make_part_sizes(block)
    pyramid = at_cache_line(count_words(trie, part_sizes, block) + PADDING, np.uint64)
    slots = 16 + int(lists / SLOT_LOAD)
    return TriePyramidArrays(
        slot=at_cache_line(4 * slots, np.uint64).reshape(-1, 4),
        pyramid=pyramid,
        node=np.zeros((nodes + 1, 4), np.uint64),
        child=np.zeros(children, np.uint64),
        part_sizes=part_sizes,
        header=np.array([block, choose_grid_level(clauses.box), tokenless, 0], np.int64),
        rounded_boxes=pyramid.view(np.int16),
        box=clauses.box,
        token_start=clauses.token_start,
        token=clauses.token,
    )


def _area(box: NDArray[np.int32]) -> float:
    """Return the area of the bounding box of all boxes, at least 1."""
    if not len(box):
        return 1.0
    bounds = np.concatenate([box[:, :2].min(axis=0), box[:, 2:].max(axis=0)]).astype(np.float64)
    return max(1.0, float((bounds[2] - bounds[0]) * (bounds[3] - bounds[1])))
