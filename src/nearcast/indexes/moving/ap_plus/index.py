"""The ``ap+-tree``, and the tree of clauses that all ap+-trees have."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nearcast.columns import GrowingArray, read_only
from nearcast.indexes.ap_tree.build import NEXT_CHANGE, SHORT_UNITS, build_nodes
from nearcast.indexes.ap_tree.index import ChangeScratch, Sample
from nearcast.indexes.ap_tree.layout import (
    END_RANK,
    FIRST_RANK,
    MAX_LEVEL,
    ROOT,
    ROOT_STALE,
    TOTAL_CLAUSES,
    TOTAL_ENTRIES,
    UNIT,
    UNITS_USED,
    Tree,
    compacted_tree,
    empty_tree,
    enlarged_tree,
    max_pending,
)
from nearcast.indexes.ap_tree.match import match_messages, match_scratch
from nearcast.indexes.ap_tree.motion import Motion, no_motion
from nearcast.indexes.ap_tree.update import RebuildLimits
from nearcast.indexes.moving.ap_plus.change import make_ways
from nearcast.indexes.moving.ap_plus.options import ApPlusOptions
from nearcast.indexes.moving.ap_plus.places import (
    NO_CELL,
    change_places,
    empty_places,
    enlarged_places,
)
from nearcast.indexes.moving.ap_plus.ranks import Ranks
from nearcast.indexes.moving.ap_plus.renew import SHORT_CELLS, SHORT_MESSAGES, renew_scratch
from nearcast.indexes.moving.ap_plus.shift import (
    CANDIDATE_WIDTH,
    EXAMINED,
    FOUND,
    SHORT_CANDIDATES,
    SHORT_OUTPUT,
    SHORT_WAYS,
    VISITED,
    Moves,
    ShiftScratch,
    Subject,
    Tools,
    find_messages,
    shift_clauses,
)
from nearcast.indexes.moving.ap_plus.store import (
    PADDING,
    SHORT_LISTS,
    SHORT_RANKS,
    SHORT_TOKENS,
    SHORT_WORDS,
    store_messages,
    store_scratch,
)
from nearcast.indexes.moving.entries import PLACE
from nearcast.indexes.moving.listed import ListedIndex
from nearcast.indexes.moving.lists import MessageLists, new_list
from nearcast.indexes.moving.living import MIN_STAMPS, OWN
from nearcast.indexes.moving.ranges import Shifted

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nearcast.columns import Messages
    from nearcast.compiled.messages import MessageArrays, Output
    from nearcast.indexes.ap_tree.cost import HitModel
    from nearcast.indexes.ap_tree.match import MatchScratch
    from nearcast.indexes.moving.contract import Changes

__all__ = ["ApPlusTree", "TreeOfClauses", "new_message_lists", "shift_scratch"]

_COLUMNS = 4
_MIN_BULK = 64
_MIN_NEW_RANKS = 4096
_MIN_CANDIDATES = 4096


class TreeOfClauses(ListedIndex):
    """Clauses that move in an ap-tree; subclasses say where messages are.

    ``examined`` counts clauses in opened leaves and postings that were compared, ``visited`` nodes
    and lists.
    """

    Options: ClassVar[type[Any]] = ApPlusOptions
    lists_in_tree: ClassVar[bool]

    def __init__(self, options: ApPlusOptions, *, min_stamps: int = MIN_STAMPS) -> None:
        super().__init__(options, min_stamps=min_stamps)
        self._tree = self._empty_tree(0, 0)
        self._ranks = Ranks()
        self._present = GrowingArray(np.empty(0, np.bool_))
        self._velocity = GrowingArray(np.empty((0, 2), np.float32))
        self._places = empty_places(1024 if options.node_lists else 0)
        self._lists = new_message_lists()
        self._ways = make_ways(4096)
        self._store = store_scratch(options.copies, 64)
        self._renew = renew_scratch(self.living.capacity)
        self._shifting = shift_scratch(_MIN_CANDIDATES)
        self._change_scratch: ChangeScratch | None = None
        self._match_scratch: tuple[tuple[int, ...], MatchScratch] | None = None
        self._ranks_built = 0
        self._published = self._moves = 0

    # --- messages --------------------------------------------------------------------------------

    def _match_part(self, messages: MessageArrays, part: tuple[int, int], output: Output) -> int:
        """Take every message down the tree."""
        tree = Tree(read_only(self._tree.arena, np.int32), read_only(self._tree.state, np.int64))
        scratch = self._scratch_for(messages)
        slot = read_only(self._ranks.slot, np.uint64)
        ranked = self._ranks.ranked(read_only(self.entries.arrays.record, np.int32))
        done, examined, visited = match_messages(
            tree, ranked, slot, messages, part, scratch, output
        )
        self.examined += int(examined)
        self.visited += int(visited)
        return int(done)

    def publish(self, messages: Messages) -> tuple[NDArray[np.int32], Changes]:
        """Take messages; return their numbers and all matches."""
        self._published += len(messages)
        return super().publish(messages)

    def _scratch_for(self, messages: MessageArrays) -> MatchScratch:
        """Return scratch that fits the tree as it is, and these messages."""
        state, tokens = self._tree.state, int(np.diff(messages.token_start).max(initial=0))
        ranks = int(state[END_RANK] - state[FIRST_RANK])
        key = ranks // 64, int(state[MAX_LEVEL])
        if self._match_scratch is None or self._match_scratch[0][:2] != key:
            self._match_scratch = None
        if self._match_scratch is None or self._match_scratch[0][2] < tokens:
            self._match_scratch = (*key, tokens), match_scratch(self._tree, messages.box, tokens)
        scratch = self._match_scratch[1]
        return scratch._replace(walk=scratch.walk._replace(box=messages.box))

    @abstractmethod
    def _store_all(self) -> None:
        """Store all living messages; the tree was just built, and has none."""

    # --- clauses ---------------------------------------------------------------------------------

    def _shift(
        self, entry: NDArray[np.int32], before: NDArray[np.int32], after: NDArray[np.int32]
    ) -> Shifted:
        """Take clauses from one box to another; return what that changes."""
        if not len(entry):
            return Shifted.none()
        moves = Moves(
            *(np.ascontiguousarray(column, np.int32) for column in (entry, before, after))
        )
        inserted = entry[before[:, 0] > before[:, 2]]
        gone = entry[after[:, 0] > after[:, 2]]
        self._moves += len(entry) - len(inserted) - len(gone)
        self._fit()
        self._ranks.add(self.entries.arrays, inserted, self._tree.state)
        if len(inserted) == len(entry) >= max(_MIN_BULK, int(self._tree.state[TOTAL_CLAUSES])):
            shifted = self._insert_all(moves)
        else:
            self._renew_order_if_worn()
            shifted = self._run(shift_clauses, moves)
        if len(gone):
            self._ranks.drop(gone, self._present.writable)
        return shifted

    def _insert_all(self, moves: Moves) -> Shifted:
        """Insert many clauses: build the tree once, then ask for the messages of each."""
        self._present.writable[moves.entry] = True
        self._build_tree()
        if not self.lists_in_tree or not len(self.living):
            return Shifted.none()
        return self._run(find_messages, moves)

    def _fit(self) -> None:
        """Enlarge all arrays for all entries and stamps."""
        end = self.entries.end
        self._ranks.fit(end)
        if len(self._present) < end:
            self._present.extend(end - len(self._present))[:] = False
        if self.options.moving_costs and len(self._velocity) < end:
            self._velocity.extend(end - len(self._velocity))[:] = 0
        if 64 * len(self._renew.seen) <= self.living.capacity:
            self._renew = renew_scratch(self.living.capacity)

    def _run(self, kernel: Callable[..., Any], moves: Moves) -> Shifted:
        """Run a kernel over moves until it is done, enlarging whatever it runs short of."""
        self._scratch().build.progress[:] = 0
        self._shifting.counts[:] = 0
        output = Shifted.with_capacity(1024)
        while not kernel(self._subject(), moves, self._tools(), output):
            if self._tree.state[ROOT_STALE]:
                done = int(self._scratch().build.progress[NEXT_CHANGE])
                self._build_tree()
                self._scratch().build.progress[NEXT_CHANGE] = done
            else:
                output = self._enlarge(output)
        count = self._shifting.counts
        self.examined += int(count[EXAMINED])
        self.visited += int(count[VISITED])
        return output.first(int(count[FOUND]))

    def _scratch(self) -> ChangeScratch:
        """Return scratch for building nodes that fits the tree as it is."""
        if self._change_scratch is None or not self._change_scratch.fits(self._tree):
            before = self._change_scratch
            self._change_scratch = ChangeScratch(self._tree, 1024, self._hit_model())
            if before is not None:
                self._change_scratch.build.progress[:] = before.build.progress
        return self._change_scratch

    def _subject(self) -> Subject:
        entries = self.entries.arrays
        return Subject(
            self._tree,
            self._ranks.ranked(entries.record),
            entries,
            self._places,
            self._lists.arrays,
            self.living.arrays,
            self._ranks.slot,
            self._ranks.used,
            self._present.writable,
        )

    def _tools(self) -> Tools:
        scratch = self._scratch()
        return Tools(
            self._ways,
            scratch.build,
            scratch.model._replace(motion=self._motion()),
            scratch.split,
            scratch.paths.stack,
            self._store,
            self._renew,
            self._shifting._replace(velocity=self._velocity.writable),
            RebuildLimits(float(self.options.kl), float(self.options.share)),
            self.options.copies,
        )

    def _enlarge(self, output: Shifted) -> Shifted:
        """Enlarge what a kernel ran short of; return the output, enlarged if it was that."""
        scratch, shifting = self._scratch(), self._shifting
        short = scratch.build.shortage, self._renew.shortage, self._store.shortage
        if not any(part.any() for part in (*short, shifting.shortage)):
            self._compact()
            return output
        if scratch.build.shortage[SHORT_UNITS]:
            self._tree = enlarged_tree(self._tree, int(scratch.build.shortage[SHORT_UNITS]))
        scratch.enlarge(self._tree)
        if shifting.shortage[SHORT_WAYS]:
            self._ways = make_ways(2 * len(self._ways.row))
        if shifting.shortage[SHORT_CANDIDATES]:
            self._shifting = shift_scratch(2 * int(shifting.shortage[SHORT_CANDIDATES]))
            self._shifting.counts[:] = shifting.counts
        if shifting.shortage[SHORT_OUTPUT]:
            needed = int(shifting.counts[FOUND] + shifting.shortage[SHORT_OUTPUT])
            while len(output.stamp) < needed:
                output = output.doubled()
        if self._renew.shortage[SHORT_MESSAGES]:
            needed = int(self._renew.shortage[SHORT_MESSAGES])
            self._renew = self._renew._replace(stamp=np.empty(2 * needed, np.int32))
        if self._renew.shortage[SHORT_CELLS]:
            needed = int(self._renew.shortage[SHORT_CELLS])
            self._places = enlarged_places(self._places, needed)
        self._enlarge_store()
        self._renew.shortage[:] = 0
        shifting.shortage[:] = 0
        return output

    def _enlarge_store(self) -> None:
        """Enlarge what the store ran short of."""
        short = self._store.shortage
        if short[SHORT_LISTS] or short[SHORT_WORDS]:
            self._lists.reserve(int(short[SHORT_LISTS]), int(short[SHORT_WORDS]) // 8 + PADDING)
        if short[SHORT_RANKS]:
            self._ranks.enlarge(int(short[SHORT_RANKS]))
        if short[SHORT_TOKENS]:
            copies, tokens = self._store.copies, 2 * int(short[SHORT_TOKENS])
            self._store = store_scratch(self.options.copies, tokens)._replace(copies=copies)
        short[:] = 0

    # --- the whole tree --------------------------------------------------------------------------

    def _empty_tree(self, ranks: int, entries: int) -> Tree:
        return empty_tree(self.options.header, ranks, entries, lists=self.lists_in_tree)

    def _build_tree(self) -> None:
        """Build the tree of all clauses that are present, with a new order of tokens."""
        entries = self.entries.arrays
        present = np.flatnonzero(self._present.view).astype(np.int32)
        used = np.flatnonzero(self.entries.row >= 0).astype(np.int32)
        self._ranks.order(entries, present, self.entries.end, self.options.order)
        self._tree = self._empty_tree(int(self._ranks.used[0]), len(present))
        self._tree.state[TOTAL_CLAUSES] = len(present)
        self._ranks.add(entries, used, self._tree.state)
        scratch = ChangeScratch(self._tree, 2 * len(present) + 64, self._hit_model())
        scratch.start_build(present)
        ranked = self._ranks.ranked(entries.record)
        while not build_nodes(self._tree, ranked, scratch.build, scratch.model, scratch.split):
            if scratch.build.shortage[SHORT_UNITS]:
                self._tree = enlarged_tree(self._tree, int(scratch.build.shortage[SHORT_UNITS]))
            scratch.enlarge(self._tree)
        self._change_scratch = self._match_scratch = None
        self._write_places()
        self._store_all()
        self._ranks_built = int(self._ranks.used[0])

    def _renew_order_if_worn(self) -> bool:
        """Build the tree again if most of the tokens with ranks are new since it was built."""
        worn = bool(self._ranks.used[0] > 2 * self._ranks_built + _MIN_NEW_RANKS)
        if worn:
            self._build_tree()
        return worn

    def _compact(self) -> None:
        self._tree = compacted_tree(self._tree, len(self._tree.arena) // 4)
        self._write_places()

    def _write_places(self) -> None:
        """Write the node lists of all clauses, if they are kept."""
        if not self.options.node_lists:
            return
        record = self.entries.arrays.record
        record[:, PLACE] = NO_CELL
        self._places = empty_places(int(self._tree.state[TOTAL_ENTRIES]) * 3 // 2 + 1024)
        stack = np.empty((max_pending(self._tree), 1), np.int64)
        change_places(self._tree, self._places, record, (ROOT, 0, 0), stack, 1)

    def _hit_model(self) -> HitModel:
        """Return what is known of messages and moves."""
        model = Sample.load("").hit_model(self._ranks.slot, 0, float(self.options.tokens))
        return model._replace(motion=self._motion())

    def _motion(self) -> Motion:
        """Return how clauses have moved so far, and how often."""
        if not self.options.moving_costs or not self._moves or not self._published:
            return no_motion()
        clauses = max(int(self._tree.state[TOTAL_CLAUSES]), 1)
        rate = self._moves / self._published / clauses
        velocity, tokens = self._velocity.writable, float(self.options.tokens)
        return Motion(velocity, rate, tokens, float(self.options.kl))

    @property
    def _own_nbytes(self) -> int:
        tree = 4 * UNIT * int(self._tree.state[UNITS_USED])
        kept = (self._ranks, self._present, self._velocity, self._places.cell)
        return tree + self._lists.nbytes + sum(part.nbytes for part in kept)


class ApPlusTree(TreeOfClauses):
    """An adaptive partition tree of moving subscriptions, with lists of messages in its slots.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> clauses = Clauses.of([[1], [1, 2]], [[0, 0, 10, 10], [5, 5, 20, 20]])
    >>> index = ApPlusTree.build(clauses, ApPlusOptions())
    >>> numbers, changes = index.publish(Messages.of([[1, 2]], [[7, 7]]))
    >>> sorted(changes.triples())
    [(0, 0, 1), (1, 0, 1)]
    >>> index.move([0], np.array([[8, 8, 9, 9]], np.int32)).triples()
    {(0, 0, -1)}
    """

    name = "ap+-tree"
    summary = "splits by keywords or by space; messages in the leaves"
    lists_in_tree = True

    def _post(self, first: int, last: int) -> None:
        self._store.copies[0] = 0
        if not self._renew_order_if_worn():  # which stores all messages
            self._store_part(first, last)
        self.copies += int(self._store.copies[0])

    def _store_part(self, first: int, last: int) -> None:
        while True:
            first = store_messages(
                self._tree,
                self._lists.arrays,
                self.living.arrays,
                (self._ranks.slot, self._ranks.used),
                (first, last),
                self.options.copies,
                self._store,
            )
            if first == last:
                return
            self._enlarge_store()

    def _store_all(self) -> None:
        self._lists = new_message_lists()
        self.living.arrays.record[:, OWN] = 0
        self._store_part(0, self.living.used)

    def _sweep(self, new_stamp: NDArray[np.int32]) -> None:
        self._lists.sweep(new_stamp)
        self._lists.reserve(0, PADDING)


def new_message_lists() -> MessageLists:
    """Return lists of which the first is never used, with some words behind the last chunk."""
    lists = MessageLists(_COLUMNS)
    lists.reserve(1, PADDING)
    new_list(lists.arrays)
    return lists


def shift_scratch(candidates: int) -> ShiftScratch:
    """Return scratch for moves."""
    return ShiftScratch(
        candidate=np.empty((candidates, CANDIDATE_WIDTH), np.int32),
        counts=np.zeros(4, np.int64),
        shortage=np.zeros(3, np.int64),
        velocity=np.empty((0, 2), np.float32),
    )
