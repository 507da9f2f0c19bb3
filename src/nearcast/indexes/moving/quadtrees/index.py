"""The classes of ``iq+-tree`` and ``rq+-tree``; the options are those of the boolean indexes."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nearcast.columns import GrowingArray, read_only
from nearcast.compiled.box_lists import CAPACITY, SIZE, START, TOKEN, clause_at
from nearcast.compiled.clauses import ClauseTokens, Ordered
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.indexes.moving import comparing
from nearcast.indexes.moving.comparing import Moved, collect_changes, new_shift_scratch
from nearcast.indexes.moving.entries import KEY, PLACE
from nearcast.indexes.moving.frequencies import OWN, TokenFrequencies, choose_keys, find_token
from nearcast.indexes.moving.listed import ListedIndex
from nearcast.indexes.moving.lists import MessageLists, new_list
from nearcast.indexes.moving.living import LENGTH, LENGTH_MASK, MIN_STAMPS
from nearcast.indexes.moving.message_tables import sweep_tables
from nearcast.indexes.moving.quadtrees import messages as node_messages
from nearcast.indexes.moving.quadtrees.clauses import keep_matches, move_clauses, rate_entries
from nearcast.indexes.moving.quadtrees.messages import LIST, NO_LIST, POST_ITEMS, ROOT, NodeMessages
from nearcast.indexes.moving.quadtrees.shift import shift_entries
from nearcast.indexes.moving.tables import Tables
from nearcast.indexes.quadtrees import layout, update
from nearcast.indexes.quadtrees.cells import (
    SHARE_LEVELS,
    Costs,
    shares_from_boxes,
    shares_from_statistics,
)
from nearcast.indexes.quadtrees.index import IqTreeOptions, QuadOptions, RqTreeOptions
from nearcast.indexes.quadtrees.layout import CHILD, LEVEL, NODES, OWNER, TREE, Demand
from nearcast.indexes.quadtrees.match import match_messages, new_match_scratch
from nearcast.indexes.quadtrees.split import new_update_scratch
from nearcast.indexes.statistics import Statistics

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays, Output
    from nearcast.indexes.moving.ranges import Shifted

__all__ = ["IqPlusTree", "MovingQuadIndex", "RqPlusTree"]

_MIN_CHANGES = 64
"""An index is not rebuilt for fewer changes."""


class MovingQuadIndex(ListedIndex):
    """A quadtree index of clauses and messages; a subclass says where messages are."""

    _start_kernel: ClassVar[Callable[..., Any]]
    _insert_kernel: ClassVar[Callable[..., Any]]
    _remove_kernel: ClassVar[Callable[..., Any]]
    _post_kernel: ClassVar[Callable[..., Any]]
    _own_columns: ClassVar[int]

    def __init__(self, options: QuadOptions, *, min_stamps: int = MIN_STAMPS) -> None:
        super().__init__(options, min_stamps=min_stamps)
        self._pair = GrowingArray(np.empty((0, 2), np.int32))
        self._pair_start = GrowingArray(np.zeros(1, np.int64))
        self._hit = GrowingArray(np.empty(0, np.float32))
        self._frequencies = TokenFrequencies(self._own_columns)
        self._under_all = False
        self._built = 0
        self._new_scratch(1024)
        self._match_scratch = new_match_scratch(32, options.header.trie_levels)
        self._max_tokens = 32
        self._shift_scratch = new_shift_scratch()
        self._post_items = np.empty((POST_ITEMS, 4), np.int64)
        self._look_at_places()
        self._clear(0)

    def _new_scratch(self, moves: int) -> None:
        self._scratch = new_update_scratch(self.options.parts, moves)
        self._target = np.empty_like(self._scratch.node)

    def _look_at_places(self) -> None:
        """Estimate where messages come from."""
        if self.options.statistics:
            share = shares_from_statistics(Statistics.load(self.options.statistics))
        else:
            entries = self.entries
            share = shares_from_boxes(entries.arrays.record[entries.row >= 0, :4])
        self._share = read_only(share, np.float32)

    def _clear(self, clauses: int) -> None:
        """Make empty arrays for about so many clauses, and drop what finds messages."""
        self._quad = layout.new_arrays(clauses)
        for item, value in self.options.header.state.items():
            self._quad.state[item] = value
        self._start_kernel(self._quad, self._costs())
        self._tables, self._lists = Tables(), MessageLists()
        self._header = GrowingArray(np.empty((0, 2), np.int32))
        self._list_of = GrowingArray(np.empty(0, np.int32))
        self._is_open = GrowingArray(np.empty(0, np.bool_))
        self._frequencies.slot[:, OWN:] = 0
        self._add_nodes()

    @property
    def _messages(self) -> NodeMessages:
        """What kernels see of messages."""
        return NodeMessages(
            self._tables.arrays,
            self._header.writable,
            self._list_of.writable,
            self._is_open.writable,
            self._frequencies.slot,
            self._lists.arrays,
        )

    @property
    def _own_nbytes(self) -> int:
        parts: tuple[Any, ...] = (
            *layout.used_arrays(self._quad),
            self._pair,
            self._pair_start,
            self._hit,
            self._frequencies,
            self._share,
            self._tables,
            self._lists,
            self._header,
            self._list_of,
            self._is_open,
        )
        return sum(part.nbytes for part in parts)

    def _ordered(self) -> Ordered:
        """Return the clauses as the boolean indexes see them: two tokens each."""
        record = read_only(self.entries.arrays.record, np.int32)
        pairs = read_only(self._pair.writable.reshape(-1), np.int32)
        return Ordered(read_only(self._pair_start.writable, np.int64), pairs, record)

    def _costs(self) -> Costs:
        options = self.options
        fine = options.parts.bit_length() - 1
        hit = read_only(self._hit.writable, np.float32)
        cost = float(options.update_cost)
        return Costs(self._share, hit, cost, SHARE_LEVELS, options.depth, fine)

    # --- messages --------------------------------------------------------------------------------

    def _match_part(self, messages: MessageArrays, part: tuple[int, int], output: Output) -> int:
        first, last = part
        tokens = int(np.diff(messages.token_start[first : last + 1]).max(initial=0))
        if tokens > self._max_tokens:
            self._max_tokens = tokens
            self._match_scratch = new_match_scratch(tokens, self.options.header.trie_levels)
        ordered = self._ordered()
        clauses = ClauseTokens(ordered.start, ordered.token)
        quad = layout.read_only_arrays(self._quad)
        done, examined, visited = match_messages(
            quad, clauses, messages, part, self._match_scratch, output
        )
        keep_matches(self.entries.arrays, messages, (first, int(done)), output)
        self.examined += int(examined)
        self.visited += int(visited)
        return int(done)

    def _post(self, first: int, last: int) -> None:
        stamps = np.arange(first, last, dtype=np.int32)
        self._frequencies.count_messages(self.living.arrays, stamps, 1)
        self._store(first, last, by_token=True)

    def _store(self, first: int, last: int, *, by_token: bool) -> None:
        """Store messages, whose tokens are counted already, under their tokens and under all."""
        living = self.living.arrays
        tokens = (last - first) * int(self._under_all)
        if by_token:
            tokens += int((living.record[first:last, LENGTH] & LENGTH_MASK).sum(dtype=np.int64))
        depth = int(self._quad.node[: self._quad.state[NODES], LEVEL].max(initial=0))
        self._reserve(tokens * (depth + 1))
        kinds = (by_token, self._under_all)
        self.copies += self._post_kernel(
            self._quad, self._messages, living, (first, last), kinds, self._post_items
        )

    def _reserve(self, postings: int) -> None:
        """Make room for new postings of messages."""
        self._tables.reserve(postings)
        # A message that was alone under a key goes into a list together with the next one.
        self._lists.reserve(postings, 2 * postings)

    def _drop(self, stamps: NDArray[np.int32]) -> None:
        self._frequencies.count_messages(self.living.arrays, stamps, -1)

    def _sweep(self, new_stamp: NDArray[np.int32]) -> None:
        self._lists.sweep(new_stamp)
        self._sweep_own(new_stamp)
        self._frequencies.drop_unused()
        if self._under_all:
            self._frequencies.add(int(NO_TOKEN))

    @abstractmethod
    def _sweep_own(self, new_stamp: NDArray[np.int32]) -> None:
        """Rewrite what refers to lists, which have been swept."""

    # --- clauses ---------------------------------------------------------------------------------

    def _shift(
        self, entry: NDArray[np.int32], before: NDArray[np.int32], after: NDArray[np.int32]
    ) -> Shifted:
        entry, before, after = (np.ascontiguousarray(part) for part in (entry, before, after))
        comes, goes = before[:, 0] > before[:, 2], after[:, 0] > after[:, 2]
        if comes.any():
            self._admit(entry[comes & ~goes])
        stays = ~comes & ~goes
        if stays.any():
            self._move(entry[stays], after[stays])
            self._follow_clauses()
        changes = self._changes(Moved(entry, before, after))
        if goes.any():
            self._remove(entry[goes & ~comes])
        return changes

    def _admit(self, inserted: NDArray[np.int32]) -> None:
        """Insert entries that come; everything is rebuilt if they are many."""
        missing = self.entries.end - len(self._hit)
        if missing > 0:
            self._hit.extend(missing)
            self._pair.extend(missing)
            first = len(self._pair_start)
            self._pair_start.extend(missing)[:] = 2 * np.arange(first, first + missing)
        entries = self.entries.arrays
        self._frequencies.count_clauses(entries, inserted, 1)
        without = choose_keys(self._frequencies.slot, entries, inserted)
        entries.record[inserted, PLACE] = 1
        if without and not self._under_all:
            self._under_all = True
            self._store(0, self.living.used, by_token=False)
        if self.entries.count > 2 * self._built + _MIN_CHANGES:
            self._rebuild()
        else:
            self._rate(inserted)
            self._insert(inserted)
            self._follow_clauses()

    def _rebuild(self) -> None:
        """Insert all entries, and store all messages, again."""
        record, row = self.entries.arrays.record, self.entries.row
        standing = np.flatnonzero((row >= 0) & (record[:, PLACE] == 1)).astype(np.int32)
        self._look_at_places()
        self._rate(standing)
        self._built = len(standing)
        self._clear(len(standing))
        self._insert(standing)
        self._add_nodes()
        node = self._quad.node[: self._dealt]
        self._is_open.writable[(node[:, SIZE] > 0) | (node[:, CHILD] < 0)] = True
        self._store(0, self.living.used, by_token=True)

    def _rate(self, entry: NDArray[np.int32]) -> None:
        """Set the pairs and hit probabilities of entries."""
        documents = max(1, self.entries.count + self.live_messages)
        rate_entries(
            self._frequencies.slot,
            self.entries.arrays,
            entry,
            documents,
            self._pair.writable,
            self._hit.writable,
        )

    def _insert(self, entry: NDArray[np.int32]) -> None:
        costs, ordered = self._costs(), self._ordered()

        def run(rest: NDArray[np.int32]) -> int:
            return int(self._insert_kernel(self._quad, costs, ordered, rest, self._scratch))

        self._until_done(run, entry)

    def _move(self, entry: NDArray[np.int32], after: NDArray[np.int32]) -> None:
        costs, ordered = self._costs(), self._ordered()
        record = self.entries.arrays.record

        def run(rest: NDArray[np.int32]) -> int:
            boxes = after[len(after) - len(rest) :]
            return int(
                move_clauses(
                    self._quad, costs, ordered, record, rest, boxes, self._scratch, self._target
                )
            )

        self._until_done(run, entry)

    def _until_done(
        self, run: Callable[[NDArray[np.int32]], int], entry: NDArray[np.int32]
    ) -> None:
        """Run a kernel for all entries; enlarge the arrays whenever one runs out."""
        done = 0
        while done < len(entry):
            done += run(read_only(entry[done:], np.int32))
            if done < len(entry):
                *demand, moves = self._scratch.shortage.tolist()
                self._scratch.shortage[:] = 0
                self._quad = layout.enlarge(self._quad, Demand(*demand))
                if moves:
                    self._new_scratch(2 * moves)

    def _remove(self, entry: NDArray[np.int32]) -> None:
        gone = read_only(entry, np.int64)
        self._remove_kernel(self._quad, self._costs(), self._ordered(), gone, self._scratch)
        entries = self.entries.arrays
        self._frequencies.count_clauses(entries, entry, -1)
        entries.record[entry, PLACE] = -1

    def _changes(self, moved: Moved) -> Shifted:
        """Return the messages that clauses gain and lose."""
        scratch, costs = self._shift_scratch, self._costs()
        arrays = self._quad, costs, self._messages, self.entries.arrays, self.living.arrays
        spaces = self._scratch, self._target, scratch

        def write(begin: int, output: Shifted) -> int:
            return int(shift_entries(*arrays, moved, begin, *spaces, output))

        changes = collect_changes(write, len(moved.entry), scratch)
        self.examined += int(scratch.counters[comparing.EXAMINED])
        self.visited += int(scratch.counters[comparing.VISITED])
        return changes

    def _follow_clauses(self) -> None:
        """Let messages be where clauses have come to."""
        if self._quad.state[NODES] > self._dealt:
            self._deal()
        self._open_nodes()

    def _deal(self) -> None:
        """Deal the messages of nodes that were split to their children, in order of the splits."""
        child = self._quad.node[: self._quad.state[NODES], CHILD]
        parents = np.flatnonzero(child >= self._dealt)
        self._add_nodes()
        is_open = self._is_open.writable
        for node in parents[np.argsort(child[parents])].tolist():
            if not is_open[node]:
                continue
            is_open[child[node] : child[node] + 4] = True
            count = int(node_messages.count_in_node(self._quad, self._messages, node))
            if count:
                self._reserve(count)
                self.copies += node_messages.deal_node(
                    self._quad, self._messages, self.living.arrays, node
                )

    def _add_nodes(self) -> None:
        """Have room for the messages of new nodes."""
        self._dealt = int(self._quad.state[NODES])
        self._is_open.extend(self._dealt - len(self._is_open))[:] = False

    def _open_nodes(self) -> None:
        """Let all nodes that have clauses have messages."""
        closed = ~self._is_open.writable
        closed &= self._quad.node[: self._dealt, SIZE] > 0
        for node in np.flatnonzero(closed).tolist():
            self._is_open.writable[node] = True
            if self.live_messages:
                self._open(node)

    @abstractmethod
    def _open(self, node: int) -> None:
        """Store the messages in the cell of a node."""


class IqPlusTree(MovingQuadIndex):
    """A quadtree with lists of clauses and of messages, by token, in its cells.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import moving
    >>> index = moving.create("iq+-tree").build(Clauses.of([[1]], [[0, 0, 9, 9]]))
    >>> numbers, changes = index.publish(Messages.of([[1, 5]], [[20, 20]]))
    >>> index.move([0], np.array([[10, 10, 30, 30]], np.int32)).triples()
    {(0, 0, 1)}
    """

    name = "iq+-tree"
    summary = "quadtree, lists of clauses and messages by token in its cells"

    Options = IqTreeOptions

    _start_kernel = staticmethod(update.start_quadtree)
    _insert_kernel = staticmethod(update.insert_into_quadtree)
    _remove_kernel = staticmethod(update.remove_from_quadtree)
    _post_kernel = staticmethod(node_messages.post_in_cells)
    _own_columns = 0

    def _add_nodes(self) -> None:
        super()._add_nodes()
        self._header.extend(self._dealt - len(self._header))[:] = 0

    def _open(self, node: int) -> None:
        living, used = self.living.arrays, self.living.used
        quad = self._quad
        count = int(node_messages.count_around(quad, self._messages, living, node, used))
        self._reserve(count)
        self.copies += node_messages.open_cell(
            quad, self._messages, living, node, used, self._under_all
        )

    def _sweep_own(self, new_stamp: NDArray[np.int32]) -> None:
        old, self._tables = self._tables, Tables()
        self._tables.reserve(len(old))
        new = self._messages
        sweep_tables(old.arrays, new.tables, new.header, 0, new.lists, new_stamp)


class RqPlusTree(MovingQuadIndex):
    """Lists of clauses and of messages by token; long ones are quadtrees.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import moving
    >>> index = moving.create("rq+-tree").build(Clauses.of([[1]], [[0, 0, 9, 9]]))
    >>> numbers, changes = index.publish(Messages.of([[1, 5]], [[20, 20]]))
    >>> index.move([0], np.array([[10, 10, 30, 30]], np.int32)).triples()
    {(0, 0, 1)}
    """

    name = "rq+-tree"
    summary = "lists of clauses and messages by token, quadtrees where clauses are many"

    Options = RqTreeOptions

    _start_kernel = staticmethod(update.start_trie)
    _insert_kernel = staticmethod(update.insert_into_trie)
    _remove_kernel = staticmethod(update.remove_from_trie)
    _post_kernel = staticmethod(node_messages.post_in_trees)
    _own_columns = 2

    def _add_nodes(self) -> None:
        """Have room for the lists of new nodes; new roots share those of their tokens."""
        first = len(self._list_of)
        super()._add_nodes()
        self._list_of.extend(self._dealt - first)[:] = NO_LIST
        quad, slot = self._quad, self._frequencies.slot
        trees = (quad.slot[:, OWNER] != 0) & (quad.slot[:, CAPACITY] == TREE)
        for token, root in quad.slot[trees & (quad.slot[:, START] >= first)][
            :, [TOKEN, START]
        ].tolist():
            row = slot[find_token(slot, token)]
            if row[LIST] == 0:
                self._lists.reserve(1, 0)
                row[LIST] = new_list(self._lists.arrays) + 1
            row[ROOT] = root + 1
            self._list_of.writable[root] = row[LIST] - 1
            self._is_open.writable[root] = True

    def _open(self, node: int) -> None:
        quad = self._quad
        entry = int(clause_at(quad.entry.reshape(-1), quad.node[node], 0))
        token = int(self.entries.arrays.record[entry, KEY])
        self._lists.reserve(1, len(self.living))
        self.copies += node_messages.open_list(
            quad, self._messages, self.living.arrays, node, token
        )

    def _sweep_own(self, new_stamp: NDArray[np.int32]) -> None:
        node_messages.drop_empty_lists(self._quad, self._messages)
