"""``ap-tree``: clauses parted by keywords or by space, whichever is expected to cost less.

Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: efficiently support location-aware Publish/Subscribe",
VLDB Journal 2015, section 3. `nearcast.indexes.ap_tree.tree` describes the arrays.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import Clauses, GrowingArray, read_only
from nearcast.errors import UnknownName
from nearcast.indexes.ap_tree import allocation as rooms
from nearcast.indexes.ap_tree import change, grow, ranks
from nearcast.indexes.ap_tree.match import match_messages
from nearcast.indexes.ap_tree.renew import Limits
from nearcast.indexes.ap_tree.tree import (
    HELD,
    HIGH,
    KEYWORDS,
    PADDING,
    SPACE,
    TOP,
    UNIT,
    WORN,
    Ranked,
    Tree,
)
from nearcast.indexes.in_place import InPlaceIndex, check_tokens
from nearcast.indexes.options import check_number, check_whole
from nearcast.indexes.statistics import Statistics
from nearcast.storage import nested, prefixed
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays
    from nearcast.indexes.ap_tree.cost import Hits
    from nearcast.indexes.ap_tree.verify import Scratch
    from nearcast.indexes.boolean import Progress

__all__ = ["ApTree", "ApTreeOptions"]

PARTITIONS = ("heuristic", "optimal")
PREFERENCES = {None: 0, "keyword": KEYWORDS, "space": SPACE}
ORDERS = ("frequent", "rare", "alphabet")

_MAX_FANOUT = 1 << 14


@dataclass(frozen=True)
class ApTreeOptions:
    """The options of an ap-tree; leaves and rebuilding are the paper's by default (section 5.1.1).

    Parameters
    ----------
    partition
        How keywords are cut: ``heuristic`` (algorithm 3) or ``optimal`` (algorithm 2).
    prefer
        ``keyword`` or ``space``: nodes are parted in this way wherever that helps (the paper's
        KPriority and SPriority). Otherwise the cost model decides.
    fanout
        Into how many cuts or cells a node is parted at most. The paper has 200. A keyword node
        that has a cut for nearly every token, and is searched without branches, spares the leaves
        clauses of other tokens: over a million tweets, a message looks at a sixth of them.
    leaf
        Nodes with more clauses than this are parted.
    divergence
        When the numbers of clauses below the children of a node diverge so far from those when it
        was built (Kullback and Leibler, one added to each), it is built anew; ``math.inf``: never.
    share
        Nodes with less than this share of all clauses are not built anew.
    sample
        A folder of statistics of messages, which ``nearcast spark statistics`` or
        `Statistics.count` and `Statistics.save` wrote: how often tokens occur in messages, and
        where these are. Token ids must be those of its vocabulary: `Builder.vocabulary` gives it,
        and `nearcast.Engine` and ``nearcast match`` read subscriptions with it. Without a sample,
        messages are taken to have the tokens that subscriptions have, and to be anywhere.
    tokens
        How many tokens a message has, where there is no sample. The cost model as printed has 1.
        The more there are, the sooner space is parted, and the model takes messages for points:
        with 20, messages that are boxes took five times as long over ``places`` as with 3, points
        a fifth less (of few tokens) and half as long (of many).
    order
        Which token of a clause comes first: the most ``rare`` one, the most ``frequent`` one, as
        in the paper, or that with the smallest number (``alphabet``).
    """

    partition: str = "heuristic"
    prefer: str | None = None
    fanout: int = 16_000
    leaf: int = 40
    divergence: float = 0.001
    share: float = 0.001
    sample: str = ""
    tokens: float = 3.0
    order: str = "rare"

    def __post_init__(self) -> None:
        if self.partition not in PARTITIONS:
            raise UnknownName("partition", self.partition, PARTITIONS)
        if self.prefer not in PREFERENCES:
            raise UnknownName("prefer", str(self.prefer), ["keyword", "space"])
        if self.order not in ORDERS:
            raise UnknownName("order", self.order, ORDERS)
        check_whole("fanout", self.fanout, 2, _MAX_FANOUT)
        check_whole("leaf", self.leaf, 1, 1 << 24)
        check_number("divergence", self.divergence, 0, float("inf"))
        check_number("tokens", self.tokens, 0, 1e9)
        check_number("share", self.share, 0, 1)
        # What is stored are numbers that JSON has; no divergence is above the largest of them.
        object.__setattr__(self, "divergence", min(self.divergence, sys.float_info.max))

    @property
    def settings(self) -> tuple[int, int, int, int, int]:
        """What the arrays are told."""
        optimal, rare = int(self.partition == "optimal"), int(self.order == "rare")
        return self.leaf, self.fanout, PREFERENCES[self.prefer], optimal, rare


class ApTree(InPlaceIndex):
    """An adaptive partition tree.

    ``examined`` counts the clauses in opened leaves, ``visited`` the nodes opened.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> clauses = Clauses.of([[1], [1, 2]], [[0, 0, 10, 10], [5, 5, 20, 20]])
    >>> index = ApTree.build(clauses, ApTreeOptions(leaf=1))
    >>> sorted(index.match(Messages.of([[1, 2]], [[7, 7]])).pairs())
    [(0, 0), (0, 1)]
    """

    name = "ap-tree"
    summary = "parted by keywords or by space, as a cost model says; changes in place"

    Options = ApTreeOptions

    def __init__(
        self,
        clauses: Clauses,
        options: ApTreeOptions,
        tree: Tree,
        table: tuple[NDArray[np.uint64], NDArray[np.int32]],
        sample: rooms.Sample,
        alive: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(clauses, options, alive)
        self._tree = tree
        self._slot, rank = table
        self._rank: NDArray[np.int32] | GrowingArray = rank
        self._sample = sample
        self._used = np.array([np.count_nonzero(self._slot)], np.int64)
        self._kept: rooms.Room | None = None

    @classmethod
    def vocabulary(cls, options: ApTreeOptions) -> Vocabulary:
        """Return the vocabulary of the sample, whose token ids its frequencies go by."""
        return Statistics.load(options.sample).vocabulary if options.sample else Vocabulary()

    @classmethod
    def build(cls, clauses: Clauses, options: ApTreeOptions) -> Self:
        """Order the tokens of all clauses, and part these from the top down."""
        check_tokens(clauses)
        nothing = np.empty(0, np.uint64), np.empty(len(clauses.token), np.int32)
        tree = rooms.planted(options.settings, 0, 0)
        index = cls(clauses, options, tree, nothing, rooms.Sample.load(options.sample))
        index._plant(np.arange(len(clauses), dtype=np.int32))
        return cls.from_arrays(clauses, options, index.arrays())

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index itself."""
        tree = self._tree
        return {
            "nodes": tree.arena[: UNIT * int(tree.state[TOP]) + PADDING],
            "state": tree.state,
            "slot": self._slot,
            "rank": self._ranked().rank,
            "alive": self.alive,
            **prefixed("sample", self._sample._asdict()),
        }

    @classmethod
    def from_arrays(
        cls, clauses: Clauses, options: ApTreeOptions, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the index from its arrays."""
        tree = Tree(read_only(arrays["nodes"], np.int32), read_only(arrays["state"], np.int64))
        table = read_only(arrays["slot"], np.uint64), read_only(arrays["rank"], np.int32)
        return cls(
            clauses, options, tree, table, rooms.Sample(**nested("sample", arrays)), arrays["alive"]
        )

    def find_part(
        self,
        messages: MessageArrays,
        part: tuple[int, int],
        scratch: Scratch,
        start: NDArray[np.int64],
        clause: NDArray[np.int32],
    ) -> Progress:
        """Take every message down the tree."""
        tree = Tree(read_only(self._tree.arena, np.int32), read_only(self._tree.state, np.int64))
        scratch = scratch._replace(walk=scratch.walk._replace(box=messages.box))
        return match_messages(
            tree,
            self._ranked(),
            read_only(self._slot, np.uint64),
            messages,
            part,
            scratch,
            start,
            clause,
        )

    def make_scratch(self, tokens: int) -> Scratch:
        """Return scratch space for messages of at most ``tokens`` tokens."""
        return rooms.scratch(self._tree, self.clauses.box, tokens)

    def _ranked(self) -> Ranked:
        rank = self._rank.view if isinstance(self._rank, GrowingArray) else self._rank
        return Ranked(self.clauses.token_start, read_only(rank, np.int32), self.clauses.box)

    def _begin_changing(self) -> None:
        self._tree = Tree(self._tree.arena.copy(), self._tree.state.copy())
        self._slot = self._slot.copy()
        self._rank = GrowingArray(self._ranked().rank)

    def _add(self, first: int, last: int) -> None:
        assert isinstance(self._rank, GrowingArray)
        self._rank.extend(int(self.clauses.token_start[last]) - len(self._rank))
        self._give_ranks(np.arange(first, last, dtype=np.int32))
        ranked, limits, room = self._ranked(), self._limits(), self._room()
        room.work.state[:] = 0, first, 0
        worn = self._complete(
            lambda: change.insert_clauses(
                self._tree, ranked, last, room.work, room.ways, limits, (room.hits, room.draft)
            )
        )
        if worn:
            self._plant(self._alive_clauses())

    def _remove(self, clauses: NDArray[np.int64]) -> None:
        gone = read_only(clauses, np.int64)
        ranked, limits, room = self._ranked(), self._limits(), self._room()
        room.work.state[:] = 0
        worn = self._complete(
            lambda: change.remove_clauses(
                self._tree, ranked, gone, room.work, room.ways, limits, (room.hits, room.draft)
            )
        )
        if worn:
            self._plant(np.setdiff1d(self._alive_clauses(), clauses.astype(np.int32)))

    def _alive_clauses(self) -> NDArray[np.int32]:
        return np.flatnonzero(self.alive[self.clauses.row]).astype(np.int32)

    def _limits(self) -> Limits:
        return Limits(float(self.options.divergence), float(self.options.share))

    def _hits(self) -> Hits:
        ranked = int(self._tree.state[HIGH])
        return self._sample.hits(self._slot, ranked, float(self.options.tokens))

    def _room(self) -> rooms.Room:
        """Return room for changes, which is kept from one to the next."""
        tree = self._tree
        if self._kept is None or not self._kept.fits(tree):
            hits = self._hits()
            self._kept = rooms.Room.of(tree, 1024, hits)
        return self._kept

    def _plant(self, clauses: NDArray[np.int32]) -> None:
        """Make the tree anew of the clauses with these numbers, in today's order of tokens."""
        tokens = rooms.tokens_of(self.clauses, clauses)
        self._slot = rooms.ordered(rooms.counted(tokens), self.options.order)
        self._used[0] = np.count_nonzero(self._slot)
        self._tree = rooms.planted(self.options.settings, int(self._used[0]), len(clauses))
        self._give_ranks(clauses)
        self._kept = room = rooms.Room.of(self._tree, 2 * len(clauses), self._hits())
        room.begin(clauses)
        ranked = self._ranked()
        self._complete(
            lambda: grow.grow_nodes(self._tree, ranked, room.work, room.hits, room.draft)
        )
        self._tree.state[HELD] = len(clauses)
        self._kept = None

    def _give_ranks(self, clauses: NDArray[np.int32]) -> None:
        """Write the ranks of the tokens of clauses; new tokens come behind all, or before them."""
        rank = self._rank.writable if isinstance(self._rank, GrowingArray) else self._rank
        columns = self.clauses.token_start, self.clauses.token
        growth = self.options.order == "rare", self._used
        while True:
            done = ranks.rank_clauses(self._slot, columns, clauses, rank, self._tree.state, growth)
            clauses = clauses[int(done) :]
            if not len(clauses):
                return
            self._slot = rooms.larger_table(self._slot, 2 * len(self._slot) + 64)

    def _complete(self, run: Callable[[], bool]) -> bool:
        """Run a kernel to its end, with more room wherever something is missing.

        Return whether the tree is worn instead.
        """
        while not run():
            assert self._kept is not None
            if self._tree.state[WORN]:
                return True
            if not self._kept.work.missing.any():  # half of the arena was given back
                self._tree = rooms.compacted(self._tree, len(self._tree.arena) // 4)
            if self._kept.work.missing[grow.M_UNITS]:
                self._tree = rooms.with_units(
                    self._tree, int(self._kept.work.missing[grow.M_UNITS])
                )
            self._kept.enlarge(self._tree)
        return False
