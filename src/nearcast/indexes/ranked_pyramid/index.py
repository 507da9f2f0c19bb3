"""The class and the options of ``ranked-pyramid``, and the allocation of its arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import KINDS, PROXIMITY, Ranked, at_cache_line, read_only
from nearcast.compiled.pyramid_build import WIDTH
from nearcast.compiled.pyramids import (
    BLOCK,
    BLOCK_SIZE,
    GRID_LEVEL,
    MAX_QUEUED,
    PADDING,
    choose_grid_level,
    make_part_sizes,
)
from nearcast.compiled.scoring import ScoringCodes
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.errors import InvalidInput
from nearcast.indexes.damage import require
from nearcast.indexes.in_place import check_tokens
from nearcast.indexes.options import check_whole
from nearcast.indexes.ranked import RankedIndex, ranked_columns
from nearcast.indexes.ranked_pyramid.build import (
    BOXED,
    LOOSE,
    SOLES,
    Lists,
    RowScratch,
    count_entries,
    count_words,
    number_records,
    order_lists,
    place_entries,
    sort_rarest_first,
    write_lists,
    write_records,
)
from nearcast.indexes.ranked_pyramid.check import check_arrays
from nearcast.indexes.ranked_pyramid.entries import Reduction, new_row_entries
from nearcast.indexes.ranked_pyramid.layout import (
    EVERYWHERE,
    HEADER_FIELDS,
    MAX_LIST,
    MAX_TOKENS,
    RECORD_FIELDS,
    RankedPyramidArrays,
)
from nearcast.indexes.ranked_pyramid.match import Matcher, Queues, Scratch, match_messages
from nearcast.indexes.ranked_pyramid.score import CANDIDATES, new_pending
from nearcast.indexes.ranked_pyramid.tokens import Weighing, new_token_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.compiled.scoring import RankedColumns, RankedMessages, ScoredOutput
    from nearcast.indexes.batches import Progress

SLOT_LOAD = 0.5
"""The share of slots in use."""

SAVED = {
    "slot": np.uint64,
    "pyramid": np.uint64,
    "record": np.int32,
    "sole": np.int32,
    "part_sizes": np.int64,
    "header": np.int64,
}
"""The arrays of a saved index, and their types."""


@dataclass(frozen=True)
class RankedPyramidOptions:
    """The options of a ranked-pyramid.

    Parameters
    ----------
    list_size
        Boxes per block: the largest leaf, and the number of parts of a longer list.
    """

    list_size: int = BLOCK

    def __post_init__(self) -> None:
        check_whole("list_size", self.list_size, 2, BLOCK)


class RankedPyramid(RankedIndex):
    """The default index of ranked subscriptions. It is immutable; `nearcast.Engine` makes it live.

    Examples
    --------
    >>> from nearcast.columns import Messages
    >>> near = Ranked.of([[1]], [[0, 0]], kind="proximity", p=0.5, q=0.9, max_distance_m=1000)
    >>> index = RankedPyramid.build(near, RankedPyramidOptions())
    >>> matches = index.match(Messages.of([[1, 5], [5]], [[0, 0], [0, 0]]))
    >>> matches.pairs(), matches.score.tolist()
    ({(0, 0)}, [1.0])
    """

    name = "ranked-pyramid"
    summary = "lists by first shared token, pyramids of how far each reaches; the default"
    Options = RankedPyramidOptions

    def __init__(
        self, ranked: Ranked, options: RankedPyramidOptions, arrays: RankedPyramidArrays
    ) -> None:
        super().__init__(ranked, options)
        self._arrays = arrays
        chosen = special_rows(ranked)
        self._special = ranked_columns(ranked.take(chosen)) if len(chosen) else None
        weighing = Weighing(arrays.weight, float(ranked.unknown_weight), int(ranked.scoring.weighs))
        self._matcher = Matcher(self.codes, arrays, weighing)

    @classmethod
    def build(cls, content: Ranked, options: RankedPyramidOptions) -> Self:
        """Build the index: about two microseconds per subscription."""
        check_tokens(content.clauses)
        arrays = _build(content, options.list_size)
        return cls.from_arrays(content, options, {name: getattr(arrays, name) for name in SAVED})

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index itself."""
        return {name: getattr(self._arrays, name) for name in SAVED}

    @property
    def nbytes(self) -> int:
        """The bytes of the index itself, with the columns of subscriptions without a record."""
        return super().nbytes + (0 if self._special is None else _bytes_of(self._special))

    @classmethod
    def from_arrays(
        cls, content: Ranked, options: RankedPyramidOptions, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the index from its arrays."""
        own = {name: read_only(arrays[name], dtype) for name, dtype in SAVED.items()}
        own["rounded_boxes"] = own["pyramid"].view(np.int16)
        whole = own["record"].size % RECORD_FIELDS == 0
        require(cls.name, whole, f"record must have {RECORD_FIELDS} values per subscription")
        own["own_weight"] = own["record"].reshape(-1).view(np.float64)
        return cls(content, options, RankedPyramidArrays(**own, weight=content.weight))

    def check_structure(self) -> None:
        """Raise `StorageError` unless the arrays are safe for every kernel."""
        special = 0 if self._special is None else len(self._special.text_weight)
        check_arrays(self._arrays, len(self.ranked), special)

    def match_part(
        self, messages: RankedMessages, part: tuple[int, int], scratch: Any, output: ScoredOutput
    ) -> Progress:
        """Look up the tokens of each message, and score what their lists reach it with."""
        return match_messages(self._matcher, self._special, messages, part, scratch, output)

    def make_scratch(self, tokens: int) -> Scratch:
        """Return scratch space; pages that stay untouched cost nothing."""
        lists, records = tokens + 1, len(self._arrays.record) // RECORD_FIELDS
        queued = lists + int(self._arrays.header[MAX_QUEUED])
        return Scratch(
            targets=(np.empty(lists, np.uint64), np.empty(lists, np.uint64)),
            loose=np.empty((lists + 1, 2), np.int64),
            pyramids=np.empty(lists, np.uint64),
            queues=Queues(
                np.empty(queued + 1, np.uint64),
                np.empty(queued + 1, np.uint64),
                np.zeros(2, np.int64),
            ),
            tokens=new_token_table(tokens),
            candidate=np.empty(CANDIDATES + 1, np.uint64),
            position=np.empty(CANDIDATES, np.uint64),
            special=np.empty(CANDIDATES, np.int64),
            pending=new_pending(),
            windows=(np.empty(4, np.int16), np.empty(4, np.int16)),
            seen=np.zeros(records // 64 + 1, np.uint64),
            touched=np.empty(records, np.int32),
            counts=np.zeros(2, np.int64),
        )


def special_rows(ranked: Ranked) -> NDArray[np.int64]:
    """Return the subscriptions that do not fit a record: many tokens, shapes, several boxes."""
    clauses, count = ranked.clauses, len(ranked)
    special = np.zeros(count, np.bool_)
    special[clauses.row[np.diff(clauses.token_start) > MAX_TOKENS]] = True
    special[clauses.row[clauses.shape >= 0]] = True
    if len(clauses) != count:
        special |= np.bincount(clauses.row, minlength=count) > 1
    return np.flatnonzero(special)


def _bytes_of(columns: Any) -> int:
    """Return the bytes of all arrays in a tuple and in the tuples within."""
    if isinstance(columns, tuple):
        return sum(_bytes_of(member) for member in columns)
    return int(columns.nbytes)


def _rarest_first(columns: RankedColumns, weighs: bool) -> RankedColumns:
    """Return columns with rare tokens first among tokens of the same weight.

    Weights by rarity order tokens like that already. If all weigh 1, sums do not depend on the
    order, and lists of rare tokens are short.
    """
    if weighs or not len(columns.token):
        return columns
    distinct, number = np.unique(columns.token, return_inverse=True)
    token = number.astype(np.int32)
    sort_rarest_first(columns.token_start, token, np.bincount(token))
    return columns._replace(token=read_only(distinct[token], np.int32))


def _number_lists(columns: RankedColumns) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the list of every token of the columns, and the token of every list."""
    token = columns.token
    if len(token) and int(token.max()) > 4 * len(token) + 1024:
        distinct, inverse = np.unique(token, return_inverse=True)
        return read_only(inverse, np.int32), np.append(distinct, NO_TOKEN).astype(np.int64)
    lists = int(token.max()) + 1 if len(token) else 0
    return token, np.append(np.arange(lists), NO_TOKEN)


def _build(ranked: Ranked, block: int) -> RankedPyramidArrays:
    """Reduce, order and write all subscriptions."""
    columns = _rarest_first(ranked_columns(ranked), ranked.scoring.weighs)
    special, chosen = np.full(len(ranked), -1, np.int32), special_rows(ranked)
    special[chosen] = np.arange(len(chosen))
    proximity = int(ranked.kind == KINDS[PROXIMITY])
    reduction = Reduction(ScoringCodes(*ranked.scoring.codes, proximity), columns, special)
    scratch = RowScratch(
        new_row_entries(int(np.diff(columns.token_start).max(initial=0))),
        np.empty((max(2, int(np.diff(columns.box_start).max(initial=0))), 4), np.int32),
    )
    lists = _place(reduction, scratch)
    part_sizes = make_part_sizes(block)
    order_lists(lists, part_sizes, block)
    record_of, row_of = np.full(len(ranked), -1, np.int32), np.empty(len(ranked), np.int32)
    row_of = row_of[: number_records(lists, record_of, row_of)]
    arrays = _allocate(lists, len(row_of), part_sizes, block)
    write_records(reduction, row_of, arrays)
    write_lists(reduction, lists, record_of, arrays, scratch)
    return arrays


def _place(reduction: Reduction, scratch: RowScratch) -> Lists:
    """Count the entries of every list, then write them."""
    list_of, key = _number_lists(reduction.rows)
    count = np.zeros((len(key), 3), np.int64)
    count_entries(reduction, list_of, scratch, count)
    largest = int(count[:, BOXED].max())
    if largest > MAX_LIST:
        raise InvalidInput("subscriptions", largest, f"a list holds {MAX_LIST:,} at most")
    end = np.cumsum(count, axis=0)
    lists = Lists(
        list_of=list_of,
        key=key,
        start=np.concatenate([end - count, end[-1:]]),
        sole=np.empty(end[-1, SOLES], np.int32),
        loose=np.empty((end[-1, LOOSE], 2), np.int32),
        boxed=np.empty((end[-1, BOXED], WIDTH), np.int32),
    )
    place_entries(reduction, lists, scratch)
    return lists._replace(start=np.concatenate([end - count, end[-1:]]))


def _allocate(
    lists: Lists, records: int, part_sizes: NDArray[np.int64], block: int
) -> RankedPyramidArrays:
    """Allocate the arrays of the index."""
    pyramid = at_cache_line(count_words(lists.start, part_sizes, block) + PADDING, np.uint64)
    size = np.diff(lists.start, axis=0)
    slots = 16 + int(np.count_nonzero(size.any(axis=1)) / SLOT_LOAD)
    record = at_cache_line(RECORD_FIELDS * records, np.int32)
    header = np.zeros(HEADER_FIELDS, np.int64)
    header[BLOCK_SIZE], header[GRID_LEVEL] = block, choose_grid_level(lists.boxed)
    header[EVERYWHERE] = size[-1].any()
    return RankedPyramidArrays(
        slot=at_cache_line(4 * slots, np.uint64).reshape(-1, 4),
        pyramid=pyramid,
        rounded_boxes=pyramid.view(np.int16),
        record=record,
        own_weight=record.view(np.float64),
        sole=np.zeros(4 * len(lists.sole), np.int32),
        part_sizes=part_sizes,
        header=header,
        weight=np.empty(0),
    )
