"""The ``ap-tree`` index: its options, and the class that owns its arrays."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from nearcast.columns import WORLD, Clauses, GrowingArray, read_only
from nearcast.compiled.clauses import ClauseTokens
from nearcast.errors import UnknownName
from nearcast.indexes.ap_tree.build import (
    SHORT_CLAUSES,
    SHORT_PATHS,
    SHORT_SPLIT,
    SHORT_TASKS,
    SHORT_UNITS,
    TASK_END,
    TASK_WIDTH,
    TASKS,
    build_nodes,
    build_scratch,
)
from nearcast.indexes.ap_tree.check import check_arrays
from nearcast.indexes.ap_tree.cost import HitModel, split_scratch
from nearcast.indexes.ap_tree.layout import (
    END_RANK,
    FANOUT,
    FIRST_RANK,
    KEYWORDS,
    PADDING,
    ROOT_STALE,
    SPACE,
    TOTAL_CLAUSES,
    UNIT,
    UNITS_USED,
    RankedClauses,
    Tree,
    compacted_tree,
    empty_tree,
    enlarged_tree,
)
from nearcast.indexes.ap_tree.match import match_messages, match_scratch
from nearcast.indexes.ap_tree.motion import no_motion
from nearcast.indexes.ap_tree.ranks import (
    enlarged_table,
    ordered_table,
    rank_clauses,
    slot_ranks,
    slot_tokens,
)
from nearcast.indexes.ap_tree.update import RebuildLimits, change_clauses, empty_paths
from nearcast.indexes.in_place import InPlaceIndex, check_tokens, current
from nearcast.indexes.options import check_number, check_whole
from nearcast.indexes.statistics import Statistics
from nearcast.storage import prefixed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays, Output
    from nearcast.indexes.ap_tree.match import MatchScratch
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
        ``keyword`` or ``space``: nodes are split in this way wherever that pays (the paper's
        KPriority and SPriority). By default the cost model decides.
    fanout
        The maximum number of cuts or cells of a node. The paper has 200. With a cut for nearly
        every token, leaves have few clauses of other tokens: over a million tweets, a message is
        compared with a sixth of the clauses.
    leaf
        Nodes with more clauses than this are split.
    divergence
        A node is rebuilt when the distribution of its clauses over its children has diverged this
        far from that when it was built (Kullback-Leibler); ``math.inf`` means never.
    share
        Nodes with less than this share of all clauses are not rebuilt.
    sample
        A folder of statistics of messages, written by ``nearcast spark statistics`` or by
        `Statistics.count` and `Statistics.save`: how often tokens occur in messages, and where
        messages are. It is read when the index is built; the index keeps what it needs. Token ids
        must be those of its vocabulary: `Builder.vocabulary` returns it, and `nearcast.Engine` and
        ``nearcast match`` read subscriptions with it. Without a sample, messages are assumed to
        have the tokens that subscriptions have, and to be anywhere.
    tokens
        How many tokens a message has, if there is no sample. The cost model as printed has 1. With
        more tokens, space is split sooner. The model takes messages for points: over ``places``,
        20 instead of 3 made messages that are boxes five times slower, points with few tokens a
        fifth faster, and points with many tokens twice as fast.
    order
        Which token of a clause comes first: the most ``rare`` one, the most ``frequent`` one as in
        the paper, or the one with the smallest id (``alphabet``).
    """

    partition: str = "heuristic"
    prefer: str | None = None
    fanout: int = 16_000
    leaf: int = 40
    divergence: float = 0.001
    share: float = 0.001
    sample: str | Statistics = ""
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
        # Options are stored as JSON, which has no infinity; no divergence is above this number.
        object.__setattr__(self, "divergence", min(self.divergence, sys.float_info.max))

    @property
    def header(self) -> tuple[int, int, int, int, int]:
        """The fields of the tree's state that follow from the options."""
        optimal, rare = int(self.partition == "optimal"), int(self.order == "rare")
        return self.leaf, self.fanout, PREFERENCES[self.prefer], optimal, rare


class Sample(NamedTuple):
    """What a sample says of messages; empty arrays if there is none.

    - ``share`` float32[tokens]: the share of messages that have a token, by token id.
    - ``passed`` float64[up + 1, across + 1]: for the crossings of a grid, the messages to the west
      and south; float64[1, 1] without a sample.
    - ``box`` float64[4]: the box of the grid, in units.
    """

    share: NDArray[np.float32]
    passed: NDArray[np.float64]
    box: NDArray[np.float64]

    @classmethod
    def load(cls, folder: str | Statistics) -> Sample:
        """Read statistics of messages; without a folder, return an empty sample."""
        if not folder:
            return cls(np.empty(0, np.float32), np.zeros((1, 1)), np.array(WORLD, np.float64))
        found = Statistics.load(folder)
        share = found.vocabulary.frequency / max(found.documents, 1)
        density = found.density.reshape(found.grid.up, found.grid.across)
        passed = np.zeros((found.grid.up + 1, found.grid.across + 1))
        passed[1:, 1:] = density.cumsum(axis=0).cumsum(axis=1)
        west, south, east, north = found.grid.box
        # A box without width or height would be divided by.
        box = np.array([west, south, max(east, west + 1), max(north, south + 1)], np.float64)
        return cls(share.astype(np.float32), passed, box)

    def hit_model(self, slot: NDArray[np.uint64], ranks: int, tokens: float) -> HitModel:
        """Return hit probabilities by rank, for the ranks from 0 to before ``ranks`` of a table.

        Tokens that no message of the sample has are together as probable as those that exactly one
        has (Good-Turing), each as any other: with probability 0, all would end up in one cut.
        """
        share = np.zeros(ranks if len(self.share) else 0, np.float32)
        if len(self.share):
            token, rank = slot_tokens(slot), slot_ranks(slot)
            known = (token >= 0) & (token < len(self.share)) & (rank >= 0) & (rank < ranks)
            share[rank[known]] = self.share[token[known]]
            messages, unseen = max(float(self.passed[-1, -1]), 1.0), share == 0
            once = int(np.sum((self.share > 0) & (self.share * messages < 1.5)))
            share[unseen] = max(once, 1) / messages / max(int(np.sum(unseen)), 1)
        passed = read_only(self.passed, np.float64)
        return HitModel(share, passed, read_only(self.box, np.float64), tokens, no_motion())


class ChangeScratch:
    """Scratch for building and changing nodes; it grows where a kernel ran short of something."""

    def __init__(self, tree: Tree, clauses: int, model: HitModel) -> None:
        self.model = model
        self.build = build_scratch(clauses, int(tree.state[FANOUT]))
        self.split = split_scratch(tree, clauses // 2 + 1)
        self.paths = empty_paths(tree, 0)

    def fits(self, tree: Tree) -> bool:
        """Tell whether there is space for all ranks."""
        ranks = int(tree.state[END_RANK] - tree.state[FIRST_RANK])
        return len(self.split.frequency) >= ranks

    def start_build(self, clauses: NDArray[np.int32]) -> None:
        """Make building the root from these clauses the only task."""
        build = self.build
        build.clause[: len(clauses)] = clauses
        build.task[0] = 0
        build.task[0, TASK_END] = len(clauses)
        build.progress[:] = 0
        build.progress[TASKS] = 1

    def enlarge(self, tree: Tree) -> None:
        """Enlarge what there is a shortage of, except the arena."""
        build = self.build
        shortage = build.shortage.tolist()
        if shortage[SHORT_TASKS]:
            more = np.empty((len(build.task) + shortage[SHORT_TASKS], TASK_WIDTH), np.int64)
            build = build._replace(task=np.concatenate([build.task, more]))
        if shortage[SHORT_CLAUSES]:
            clause = np.empty(shortage[SHORT_CLAUSES] + shortage[SHORT_CLAUSES] // 4, np.int32)
            clause[: len(build.clause)] = build.clause
            build = build._replace(clause=clause)
        if shortage[SHORT_SPLIT]:
            needed = shortage[SHORT_SPLIT]
            self.split = split_scratch(tree, needed + needed // 4)
        if shortage[SHORT_PATHS]:
            paths = empty_paths(tree, 2 * len(self.paths.leaf))
            paths.stale[: len(self.paths.stale)] = self.paths.stale
            self.paths = paths
        build.shortage[:] = 0
        self.build = build


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
    summary = "splits by keywords or by space, as a cost model decides; changes in place"

    Options = ApTreeOptions
    statistics_option = "sample"

    def __init__(
        self,
        clauses: Clauses,
        options: ApTreeOptions,
        tree: Tree,
        table: tuple[NDArray[np.uint64], NDArray[np.int32]],
        sample: Sample,
        alive: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(clauses, options, alive)
        self._tree = tree
        self._slot, rank = table
        self._rank: NDArray[np.int32] | GrowingArray = rank
        self._sample = sample
        self._used_slots = np.array([np.count_nonzero(self._slot)], np.int64)
        self._change_scratch: ChangeScratch | None = None

    @classmethod
    def build(cls, clauses: Clauses, options: ApTreeOptions) -> Self:
        """Order the tokens of all clauses, and split the clauses from the top down."""
        check_tokens(clauses)
        table = np.empty(0, np.uint64), np.empty(len(clauses.token), np.int32)
        tree = empty_tree(options.header, 0, 0)
        index = cls(clauses, options, tree, table, Sample.load(options.sample))
        index._build_tree(np.arange(len(clauses), dtype=np.int32))
        return cls.from_arrays(clauses, options, index.arrays())

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index itself."""
        used = UNIT * int(self._tree.state[UNITS_USED]) + PADDING
        return self._all_arrays() | {"nodes": self._tree.arena[:used]}

    @classmethod
    def from_arrays(
        cls, clauses: Clauses, options: ApTreeOptions, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the index from its arrays; ``options.sample`` is not read again."""
        tree = Tree(read_only(arrays["nodes"], np.int32), read_only(arrays["state"], np.int64))
        table = read_only(arrays["slot"], np.uint64), read_only(arrays["rank"], np.int32)
        sample = Sample(
            read_only(arrays["sample.share"], np.float32),
            read_only(arrays["sample.passed"], np.float64),
            # The grids of earlier versions covered the world.
            read_only(arrays.get("sample.box", WORLD), np.float64),
        )
        return cls(clauses, options, tree, table, sample, arrays["alive"])

    def check_structure(self) -> None:
        """Raise `StorageError` unless the arrays are safe for every kernel."""
        check_arrays(self.clauses, self.options.header, self._all_arrays())

    def find_part(
        self, messages: MessageArrays, part: tuple[int, int], scratch: MatchScratch, output: Output
    ) -> Progress:
        """Take every message down the tree."""
        tree = Tree(read_only(self._tree.arena, np.int32), read_only(self._tree.state, np.int64))
        scratch = scratch._replace(walk=scratch.walk._replace(box=messages.box))
        slot = read_only(self._slot, np.uint64)
        return match_messages(tree, self._ranked(), slot, messages, part, scratch, output)

    def make_scratch(self, tokens: int) -> MatchScratch:
        """Return scratch space for messages of at most ``tokens`` tokens."""
        return match_scratch(self._tree, self.clauses.box, tokens)

    def _all_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays as they are; the arena may have space after its last node."""
        return {
            "nodes": self._tree.arena,
            "state": self._tree.state,
            "slot": self._slot,
            "rank": self._ranked().rank,
            "alive": self.alive,
            **prefixed("sample", self._sample._asdict()),
        }

    def _ranked(self) -> RankedClauses:
        rank = read_only(current(self._rank), np.int32)
        start = self.clauses.token_start
        return RankedClauses(start, start[1:], rank, self.clauses.box)

    def _begin_changing(self) -> None:
        self._tree = Tree(self._tree.arena.copy(), self._tree.state.copy())
        self._slot = self._slot.copy()
        self._rank = GrowingArray(self._ranked().rank)

    def _add(self, first: int, last: int) -> None:
        assert isinstance(self._rank, GrowingArray)
        self._rank.extend(int(self.clauses.token_start[last]) - len(self._rank))
        self._assign_ranks(np.arange(first, last, dtype=np.int32))
        if not self._change(np.arange(first, last), 1):
            self._build_tree(self._live_clauses())

    def _remove(self, clauses: NDArray[np.int64]) -> None:
        if not self._change(clauses, -1):
            self._build_tree(self._live_clauses(clauses))

    def _change(self, clauses: NDArray[np.int64], sign: int) -> bool:
        """Insert (1) or delete (-1) clauses; return False if the tree is to be rebuilt instead."""
        if self._change_scratch is None or not self._change_scratch.fits(self._tree):
            self._change_scratch = ChangeScratch(self._tree, 1024, self._hit_model())
        scratch, ranked = self._change_scratch, self._ranked()
        scratch.build.progress[:] = 0
        limits = RebuildLimits(float(self.options.divergence), float(self.options.share))
        changed = read_only(clauses, np.int64), sign
        return self._complete(
            scratch,
            lambda: change_clauses(
                self._tree,
                ranked,
                changed,
                scratch.build,
                scratch.paths,
                limits,
                (scratch.model, scratch.split),
            ),
        )

    def _build_tree(self, clauses: NDArray[np.int32]) -> None:
        """Build the tree of these clauses, with a new order of tokens."""
        self._slot = ordered_table(self.clauses, clauses, self.options.order)
        self._used_slots[0] = np.count_nonzero(self._slot)
        self._tree = empty_tree(self.options.header, int(self._used_slots[0]), len(clauses))
        self._assign_ranks(clauses)
        scratch = ChangeScratch(self._tree, 2 * len(clauses), self._hit_model())
        scratch.start_build(clauses)
        ranked = self._ranked()
        self._complete(
            scratch,
            lambda: build_nodes(self._tree, ranked, scratch.build, scratch.model, scratch.split),
        )
        self._tree.state[TOTAL_CLAUSES] = len(clauses)
        self._change_scratch = None

    def _hit_model(self) -> HitModel:
        ranks = int(self._tree.state[END_RANK])
        return self._sample.hit_model(self._slot, ranks, float(self.options.tokens))

    def _assign_ranks(self, clauses: NDArray[np.int32]) -> None:
        """Write the ranks of the tokens of clauses; new tokens get ranks before or after all."""
        rank = self._rank.writable if isinstance(self._rank, GrowingArray) else self._rank
        columns = ClauseTokens(self.clauses.token_start, self.clauses.token)
        growth = self.options.order == "rare", self._used_slots
        while True:
            done = rank_clauses(self._slot, columns, clauses, rank, self._tree.state, growth)
            clauses = clauses[int(done) :]
            if not len(clauses):
                return
            self._slot = enlarged_table(self._slot, 2 * len(self._slot) + 64)

    def _complete(self, scratch: ChangeScratch, run: Callable[[], bool]) -> bool:
        """Run a kernel until it is done, enlarging whatever it runs short of.

        Return False if it found that the whole tree is to be rebuilt.
        """
        while not run():
            if self._tree.state[ROOT_STALE]:
                return False
            shortage = scratch.build.shortage
            if not shortage.any():  # half of the arena is free
                self._tree = compacted_tree(self._tree, len(self._tree.arena) // 4)
            if shortage[SHORT_UNITS]:
                self._tree = enlarged_tree(self._tree, int(shortage[SHORT_UNITS]))
            scratch.enlarge(self._tree)
        return True
