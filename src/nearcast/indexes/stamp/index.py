"""The class of the ``stamp`` index, its options, and the explanation of its work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import KINDS, PROXIMITY, GrowingArray, Messages, Ranked, read_only
from nearcast.compiled.scoring import RankedMessages, ScoredOutput
from nearcast.errors import InvalidInput, UnknownName
from nearcast.indexes.array_tuples import read_only_views
from nearcast.indexes.contract import UpdatableIndex
from nearcast.indexes.in_place import check_tokens, present_rows
from nearcast.indexes.options import check_whole
from nearcast.indexes.ranked import RankedIndex, ranked_messages
from nearcast.indexes.ranked_in_place import GrowingRanked
from nearcast.indexes.stamp import match, update
from nearcast.indexes.stamp.bounds import make_plan
from nearcast.indexes.stamp.build import build_arrays, fill_records
from nearcast.indexes.stamp.check import check_arrays
from nearcast.indexes.stamp.layout import (
    CHANGES,
    DELETED,
    LAST_CHILD,
    LAT,
    LON,
    LONG_TOKENS,
    MEMBERS,
    NEVER_MET,
    NEXT_SIBLING,
    PARENT,
    RECORD_TOKENS,
    RECORDS,
    REGIONS,
    ROW,
    THRESHOLD,
    Filters,
    StampArrays,
    move_slots,
    trimmed,
    with_room,
    writable_copy,
)
from nearcast.indexes.stamp.match import (
    TALLY_WIDTH,
    Index,
    MatchScratch,
    Trace,
    Weights,
    match_messages,
)
from nearcast.indexes.stamp.sets import LEAF_COLUMNS, SetScratch, match_by_sets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from nearcast.indexes.batches import Progress

__all__ = ["FILTERS", "Explanation", "Stamp", "StampOptions"]

FILTERS = {
    "sp": Filters(0, 0, 0, 0),
    "sp+hi": Filters(1, 0, 0, 0),
    "sp+rp+hi": Filters(1, 1, 0, 0),
    "sp+st+hi": Filters(1, 0, 1, 0),
    "sp+rp+st+hi": Filters(1, 1, 1, 0),
    "cost": Filters(1, 1, 1, 1),
}
"""The filters of the paper, as they are combined in its experiments."""

_RUNS, _CANDIDATES, _HITS = 1024, 4096, 4096

_DELETED_SHARE = 4
"""A leaf is packed again when one in this many of its members is deleted."""

_MIN_CHANGES = 4096
"""At least this many changes go by before the whole index is built again."""


@dataclass(frozen=True)
class StampOptions:
    """Options of ``stamp``.

    Parameters
    ----------
    filters
        The paper's filters: lists by token with reaches (sp), in a hierarchy of regions (hi), with
        marks for messages outside a region (rp), and further signature sets (st). ``cost``: all
        of them, where each leaf region uses the next signature set only if that is expected to
        cost less than verifying.
    leaf
        The most subscriptions of a leaf region; the paper tries 100 to 50,000.
    """

    filters: str = "sp+rp+hi"
    leaf: int = 5000

    def __post_init__(self) -> None:
        if self.filters not in FILTERS:
            raise UnknownName("filters", self.filters, FILTERS)
        check_whole("leaf", self.leaf, 1, 1 << 24)


@dataclass(frozen=True)
class Explanation:
    """What matching messages took; every array has one value per message.

    Parameters
    ----------
    matches, candidates
        How many subscriptions match, conditions aside, and how many had to be verified.
    accessed
        How many postings were read.
    visited, leaves
        How many regions were opened; how many of them were leaves, where signature sets are used.
    sets
        How many further signature sets were used, in all leaves together.
    verify_cost, filter_cost
        What the paper's model expects verifying, and using the second signature set, to cost.
    """

    matches: NDArray[np.int64]
    candidates: NDArray[np.int64]
    accessed: NDArray[np.int64]
    visited: NDArray[np.int64]
    leaves: NDArray[np.int64]
    sets: NDArray[np.int64]
    verify_cost: NDArray[np.float64]
    filter_cost: NDArray[np.float64]

    def __str__(self) -> str:
        if not len(self.matches):
            return "no messages"
        return (
            f"{len(self.matches):,} messages: {self.matches.sum():,} matches, "
            f"{self.candidates.sum():,} candidates, {self.accessed.sum():,} postings read, "
            f"{self.visited.sum():,} regions opened, {self.sets.sum():,} further sets used"
        )


class Stamp(RankedIndex, UpdatableIndex):
    """Lists by token and region, with how far away a match can be.

    Examples
    --------
    >>> from nearcast.columns import Messages
    >>> near = Ranked.of([[1]], [[0, 0]], kind="proximity", p=0.5, q=0.9, max_distance_m=1000)
    >>> index = Stamp.build(near, StampOptions())
    >>> messages = Messages.of([[1, 5], [5]], [[0, 0], [0, 0]])
    >>> index.match(messages).pairs()
    {(0, 0)}
    >>> index.explain(messages).accessed.tolist()
    [1, 0]
    """

    name = "stamp"
    summary = "lists by token and region with reaches; changes in place"
    kinds = (KINDS[PROXIMITY],)
    Options = StampOptions

    def __init__(
        self,
        ranked: Ranked,
        options: StampOptions,
        arrays: StampArrays | None = None,
        alive: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(ranked, options)
        check_tokens(ranked.clauses)
        self._filters = FILTERS[options.filters]
        if alive is None:
            alive = np.ones(len(ranked), np.bool_)
        self._fixed_alive = read_only(alive, np.bool_)
        self._growing: _Growing | None = None
        self._view: Index | None = None
        if arrays is None:
            arrays = self._built()
            self._columns = None
        self._arrays = arrays

    @classmethod
    def build(cls, content: Ranked, options: StampOptions) -> Self:
        """Pack regions, and make the lists of all tokens."""
        return cls(content, options)

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Which subscription rows are in the index."""
        return self._fixed_alive if self._growing is None else self._growing.alive.view

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index, and which rows are alive."""
        return {**trimmed(self._arrays)._asdict(), "alive": self.alive}

    @classmethod
    def from_arrays(
        cls, content: Ranked, options: StampOptions, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the index from its arrays."""
        given = {
            name: read_only(arrays[name], np.int64 if name == "state" else np.int32)
            for name in StampArrays._fields
        }
        return cls(content, options, StampArrays(**given), arrays["alive"])

    def check_structure(self) -> None:
        """Raise `StorageError` unless kernels can follow the arrays safely."""
        check_arrays(self._arrays, self._filters, self.alive, len(self.ranked))

    def _built(self) -> StampArrays:
        live = np.flatnonzero(self.alive)
        return build_arrays(self.codes, self.columns, live, self._filters, self.options.leaf)

    # --- matching ---

    def make_scratch(self, tokens: int) -> list[Any]:
        """Return scratch for messages of at most ``tokens`` tokens."""
        # Few tokens meet in one slot: see `nearcast.indexes.stamp.match.shared_at_once`.
        size = 1 << max(8, (16 * tokens - 1).bit_length())
        regions = len(self._arrays.region)
        scratch = MatchScratch(
            np.full(size, -1, np.int32),
            np.empty(size),
            np.empty(regions),
            np.zeros(regions, np.int64),
            np.empty(tokens + 1, np.int64),
            np.empty((_RUNS, 3), np.int64),
            np.empty(_RUNS),
            np.empty((_CANDIDATES, 2), np.int32),
            np.empty(_CANDIDATES),
            np.zeros(TALLY_WIDTH, np.int64),
        )
        if not self._filters.sets:
            return [scratch]
        sets = SetScratch(
            np.empty(tokens + 1, np.int64),
            np.empty(tokens),
            np.empty((_HITS, 3), np.int64),
            np.full((regions, LEAF_COLUMNS), -1, np.int64),
            np.empty(regions, np.int64),
            np.empty((_CANDIDATES, 4), np.int32),
            np.empty(_CANDIDATES),
            np.zeros(len(self._arrays.record), np.int32),
            np.zeros(3, np.int64),
        )
        return [scratch, sets]

    def match_part(
        self,
        messages: RankedMessages,
        part: tuple[int, int],
        scratch: list[Any],
        output: ScoredOutput,
    ) -> Progress:
        """Read the lists of every message in regions that are near enough, and score."""
        return self._match_traced(_trace(0), messages, part, scratch, output)

    def explain(self, messages: Messages) -> Explanation:
        """Match messages, and tell what each of them took."""
        trace = _trace(len(messages))
        start = np.zeros(len(messages) + 1, np.int64)
        if len(messages):
            seen = ranked_messages(messages, self.ranked)
            scratch = self.make_scratch(max(1, messages.max_tokens(0, len(messages))))
            room, done = 1 << 16, 0
            while done < len(messages):
                # Matches of earlier messages are counted, not kept.
                output = ScoredOutput(np.zeros(len(start), np.int64), *_output_columns(room))
                first, part = done, (done, len(messages))
                done, _, _ = self._match_traced(trace, seen, part, scratch, output)
                start[first + 1 : done + 1] = start[first] + output.start[first + 1 : done + 1]
                room *= 2
        tally = trace.tally
        return Explanation(
            np.diff(start),
            tally[:, match.EXAMINED],
            tally[:, match.ACCESSED],
            tally[:, match.VISITED],
            tally[:, match.LEAVES],
            tally[:, match.SETS_USED],
            trace.cost[:, 0],
            trace.cost[:, 1],
        )

    def _match_traced(
        self,
        trace: Trace,
        messages: RankedMessages,
        part: tuple[int, int],
        scratch: list[Any],
        output: ScoredOutput,
    ) -> Progress:
        """Match messages, and write what was counted to a trace that is not empty."""
        index = self._index()
        if not self._filters.sets:
            done, examined, visited = match_messages(
                index, messages, part, scratch[0], trace, output
            )
            return int(done), int(examined), int(visited)
        done, examined, visited = part[0], 0, 0
        while True:
            done, more_examined, more_visited = match_by_sets(
                index, messages, (done, part[1]), scratch[0], scratch[1], trace, output
            )
            examined += more_examined
            visited += more_visited
            if done == part[1] or not scratch[0].tally[match.SHORT]:
                return int(done), int(examined), int(visited)
            sets = scratch[1]
            scratch[1] = sets._replace(
                hit=np.empty((2 * len(sets.hit), 3), np.int64),
                chosen=np.empty((2 * len(sets.chosen), 4), np.int32),
                distance=np.empty(2 * len(sets.chosen)),
            )

    def _index(self) -> Index:
        if self._view is None:
            ranked = self.ranked
            weights = Weights(ranked.weight, ranked.unknown_weight, int(ranked.scoring.weighs))
            self._view = Index(read_only_views(self._arrays), self.codes, self._filters, weights)
        return self._view

    # --- changes ---

    def insert(self, content: Ranked) -> None:
        """Add subscriptions; their rows follow those that are there.

        They must be of the same kind, with the same weights and scoring.
        """
        self._check_alike(content)
        check_tokens(content.clauses)
        growing = self._changeable()
        first, count = len(self.ranked), len(content)
        growing.ranked.append(content)
        growing.alive.append(np.ones(count, np.bool_))
        growing.record.append(np.full(count, -1, np.int32))
        self._follow(growing)
        if not count or self._renewed(count):
            return
        rows = np.arange(first, first + count)
        state = self._arrays.state
        record = int(state[RECORDS])
        length = np.diff(self.columns.token_start[first:])
        self._reserve("record", record + count)
        self._reserve("long_token", int(state[LONG_TOKENS] + length[length > RECORD_TOKENS].sum()))
        fill_records(self.columns, rows, record, self._arrays)
        state[RECORDS] += count
        growing.record.writable[rows] = np.arange(record, record + count)
        limits = record + count, self.options.leaf
        plan, progress = make_plan(int(length.max())), np.array([record, 0, -1, -1])
        insert = update.insert_records
        while self._run(insert, limits, plan, progress) == update.FULL_LEAF:
            self._settle(int(progress[update.FULL]))

    def delete(self, rows: NDArray[Any]) -> None:
        """Drop the subscriptions of these rows; the other rows keep their numbers."""
        gone = present_rows(self.alive, np.asarray(rows).reshape(-1))
        growing = self._changeable()
        growing.alive.writable[gone] = False
        self._follow(growing)
        if not len(gone) or self._renewed(len(gone)):
            return
        arrays, record = self._arrays, growing.record.view[gone]
        arrays.record[record, THRESHOLD] = NEVER_MET
        leaves, count = np.unique(arrays.leaf[record], return_counts=True)
        arrays.region[leaves, DELETED] += count.astype(np.int32)
        region = arrays.region[leaves]
        for leaf in leaves[_DELETED_SHARE * region[:, DELETED] > region[:, MEMBERS]].tolist():
            if not self._filters.regions:
                self._renew()
                return
            self._settle(leaf)

    def _check_alike(self, content: Ranked) -> None:
        mine = self.ranked
        if len(content) and content.kind not in self.kinds:
            raise InvalidInput("kind", content.kind, f"must be {self.kinds[0]}, as in the index")
        alike = content.scoring == mine.scoring and content.unknown_weight == mine.unknown_weight
        same = content.weight is mine.weight or np.array_equal(content.weight, mine.weight)
        if not (alike and same):
            problem = "must have the weights and the scoring of the index"
            raise InvalidInput("content", content.scoring, problem)

    def _renewed(self, changes: int) -> bool:
        """Count changes, and build all again once there were as many as there are rows."""
        self._arrays.state[CHANGES] += changes
        live = int(np.count_nonzero(self.alive))
        if self._arrays.state[CHANGES] <= max(_MIN_CHANGES, live):
            return False
        self._renew()
        return True

    def _renew(self) -> None:
        self._arrays = self._built()
        assert self._growing is not None
        self._growing.record = GrowingArray(_record_of(self._arrays, len(self.ranked)))

    def _settle(self, leaf: int) -> None:
        """Make the lists of a leaf again, without deleted members; split it if it is full."""
        region, columns = self._arrays.region, self.columns
        members = np.empty(int(region[leaf, MEMBERS]), np.int64)
        update.members_of(self._arrays, leaf, members)
        rows = self._arrays.record[members, ROW]
        plan = make_plan(int(np.diff(columns.token_start)[rows].max(initial=0)))
        update.clear_leaf(self.codes, self._filters, columns, self._arrays, leaf, members, plan)
        live = members[self.alive[rows]]
        halves = [live]
        if len(live) > self.options.leaf:
            place = self._arrays.record[live][:, [LON, LAT]].astype(np.int64)
            axis = int(np.argmax(place.max(0) - place.min(0)))
            by_place = live[np.argsort(place[:, axis], kind="stable")]
            halves = [np.sort(half) for half in np.array_split(by_place, 2)]
        for number, half in enumerate(halves):
            target = leaf if number == 0 else self._new_leaf(leaf)  # may enlarge the arrays
            update.settle_leaf(self._arrays, target, half)
        self._run(update.add_records, np.concatenate(halves), plan, np.array([0, 0, -1, -1]))

    def _new_leaf(self, sibling: int) -> int:
        """Add an empty leaf below the same region as another one."""
        state = self._arrays.state
        number = int(state[REGIONS])
        self._reserve("region", number + 1)
        arrays = self._arrays
        parent = int(arrays.region[sibling, PARENT])
        arrays.region[number] = -1
        arrays.region[number, PARENT] = parent
        arrays.region[number, [MEMBERS, DELETED]] = 0
        arrays.set_total[number] = 0
        arrays.region[arrays.region[parent, LAST_CHILD], NEXT_SIBLING] = number
        arrays.region[parent, LAST_CHILD] = number
        state[REGIONS] += 1
        return number

    def _run(self, operation: Callable[..., int], what: Any, plan: Any, progress: Any) -> int:
        """Call a kernel until it is done, or a leaf is full, enlarging whatever is short."""
        while True:
            status = operation(
                self.codes, self._filters, self.columns, self._arrays, what, plan, progress
            )
            if status in (update.DONE, update.FULL_LEAF):
                return status
            if status == update.NO_SLOTS:
                larger = np.full((2 * len(self._arrays.slot), 4), -1, np.int32)
                move_slots(self._arrays.slot, larger)
                self._arrays = self._arrays._replace(slot=larger)
            elif status == update.NO_ENTRIES:
                self._reserve("entry", len(self._arrays.entry) + len(self._arrays.region) + 64)
            else:
                self._reserve("posting", len(self._arrays.posting) + len(self._arrays.record) + 64)

    def _reserve(self, name: str, count: int) -> None:
        self._arrays = with_room(self._arrays, name, count, bool(self._filters.sets))

    def _changeable(self) -> _Growing:
        self._drop_scratch()
        self._view = None
        if self._growing is None:
            self._arrays = writable_copy(self._arrays)
            self._growing = _Growing(
                GrowingRanked(self.ranked, self.columns),
                GrowingArray(self._fixed_alive),
                GrowingArray(_record_of(self._arrays, len(self.ranked))),
            )
        return self._growing

    def _follow(self, growing: _Growing) -> None:
        """Refer to the subscriptions as they are now."""
        self.ranked = growing.ranked.ranked
        self.clauses = self.ranked.clauses
        self._columns = growing.ranked.columns
        self._conditions = growing.ranked.conditions


@dataclass
class _Growing:
    """What grows with inserts: subscriptions, which rows are alive, and the record of each."""

    ranked: GrowingRanked
    alive: GrowingArray
    record: GrowingArray


def _record_of(arrays: StampArrays, rows: int) -> NDArray[np.int32]:
    """Return the record of every row; -1 for rows that have none."""
    found = np.full(rows, -1, np.int32)
    used = int(arrays.state[RECORDS])
    found[arrays.record[:used, ROW]] = np.arange(used)
    return found


def _trace(messages: int) -> Trace:
    """Return a trace of messages that are not matched yet."""
    return Trace(np.zeros((messages, TALLY_WIDTH), np.int64), np.zeros((messages, 2)))


def _output_columns(room: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    return np.empty(room, np.int32), np.empty(room)
