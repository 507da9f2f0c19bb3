"""The arrays of an adaptive partition tree: made, enlarged, and what is known of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from nearcast.columns import WORLD, Clauses, at_cache_line, read_only
from nearcast.compiled.token_filter import FILTER_WORDS
from nearcast.indexes.ap_tree import ranks
from nearcast.indexes.ap_tree.cost import SAMPLE, Draft, Hits
from nearcast.indexes.ap_tree.grow import (
    END,
    M_CLAUSES,
    M_DRAFT,
    M_PLACES,
    M_STEPS,
    STEP_WIDTH,
    STEPS,
    Work,
)
from nearcast.indexes.ap_tree.match import GROUP, GROUP_TOKENS
from nearcast.indexes.ap_tree.renew import move_nodes
from nearcast.indexes.ap_tree.tree import (
    DEAD,
    DEPTH,
    FANOUT,
    HIGH,
    LOW,
    PADDING,
    SETTINGS,
    STATES,
    TOP,
    UNIT,
    Tree,
)
from nearcast.indexes.ap_tree.verify import CANDIDATE_WIDTH, Scratch
from nearcast.indexes.ap_tree.walk import GROUP_WIDTH, STACK_WIDTH, TOGETHER, Walk
from nearcast.indexes.ap_tree.ways import WAY_WIDTH, Ways
from nearcast.indexes.statistics import Statistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_MIN_SLOTS = 64

_LEAVES = 2048
"""So many leaves wait at most, before their keys are scanned."""

_CANDIDATES = 2048
"""So many entries wait at most, before they are verified."""


class Sample(NamedTuple):
    """What is known of messages; both are empty where nothing is.

    - ``share`` float32[tokens]: the share of messages that have a token, by its number.
    - ``passed`` float64[up + 1, across + 1]: the messages to the west and south of a grid's lines.
    """

    share: NDArray[np.float32]
    passed: NDArray[np.float64]

    @classmethod
    def load(cls, folder: str) -> Sample:
        """Read the statistics of messages, if there are any."""
        if not folder:
            return cls(np.empty(0, np.float32), np.zeros((1, 1)))
        found = Statistics.load(folder)
        share = found.vocabulary.frequency / max(found.documents, 1)
        density = found.density.reshape(found.grid.up, found.grid.across)
        passed = np.zeros((found.grid.up + 1, found.grid.across + 1))
        passed[1:, 1:] = density.cumsum(axis=0).cumsum(axis=1)
        return cls(share.astype(np.float32), passed)

    def hits(self, slot: NDArray[np.uint64], ranked: int, tokens: float) -> Hits:
        """Return hit probabilities by the ranks of a table, which are below a number.

        All tokens that no message of the sample has are together as probable as those that one has
        (Good and Turing), and each as any other: with 0 they would all be put into one cut.
        """
        share = np.zeros(ranked if len(self.share) else 0, np.float32)
        if len(self.share):
            token = (slot >> np.uint64(32)).astype(np.int64) - 1
            rank = (slot & np.uint64(0xFFFFFFFF)).astype(np.int64) - (1 << 31)
            known = (token >= 0) & (token < len(self.share)) & (rank >= 0) & (rank < ranked)
            share[rank[known]] = self.share[token[known]]
            messages, unseen = max(float(self.passed[-1, -1]), 1.0), share == 0
            once = int(np.sum((self.share > 0) & (self.share * messages < 1.5)))
            share[unseen] = max(once, 1) / messages / max(int(np.sum(unseen)), 1)
        world = np.array(WORLD, np.float64)
        return Hits(share, self.passed, world, tokens)


def counted(token: NDArray[np.int32]) -> NDArray[np.uint64]:
    """Return a table with the frequencies of tokens."""
    slot, used, done = np.zeros(_MIN_SLOTS, np.uint64), np.zeros(1, np.int64), 0
    while True:
        done = int(ranks.count_tokens(slot, token, done, used))
        if done == len(token):
            return larger_table(slot, _MIN_SLOTS + 2 * int(used[0]))
        slot = larger_table(slot, 4 * len(slot))


def larger_table(slot: NDArray[np.uint64], slots: int) -> NDArray[np.uint64]:
    """Return a table of so many slots with the same content."""
    larger = np.zeros(slots, np.uint64)
    ranks.move_slots(slot, larger)
    return larger


def ordered(slot: NDArray[np.uint64], order: str) -> NDArray[np.uint64]:
    """Return the table with ranks instead of frequencies."""
    used = np.flatnonzero(slot)
    token = (slot[used] >> np.uint64(32)).astype(np.int64)
    times = (slot[used] & np.uint64(0xFFFFFFFF)).astype(np.int64)
    key = {"frequent": -times, "rare": times, "alphabet": np.zeros_like(times)}[order]
    ranks.give_ranks(slot, used[np.lexsort((token, key))])
    return slot


def planted(settings: Sequence[int], known: int, entries: int) -> Tree:
    """Return a tree without nodes. Room is reserved amply: untouched, it costs nothing."""
    state = np.zeros(STATES, np.int64)
    state[TOP], state[HIGH] = 1, known
    state[SETTINGS:] = settings
    return Tree(at_cache_line(24 * entries + 1024, np.int32), state)


def with_units(tree: Tree, more: int) -> Tree:
    """Return the tree with room for more units."""
    used = UNIT * int(tree.state[TOP])
    arena = at_cache_line(used + used // 2 + UNIT * more + 1024, np.int32)
    arena[:used] = tree.arena[:used]
    return tree._replace(arena=arena)


def compacted(tree: Tree, spare: int = 0) -> Tree:
    """Return the tree in an arena without gaps; every node stands before those below it."""
    used = UNIT * int(tree.state[TOP] - tree.state[DEAD])
    arena = at_cache_line(used + spare + PADDING, np.int32)
    stack = np.empty((_waiting(tree), WAY_WIDTH), np.int64)
    move_nodes(tree, arena, stack)
    return tree._replace(arena=arena)


def _waiting(tree: Tree) -> int:
    """Return how many nodes may wait while one goes down the tree, and a few levels more."""
    return int(tree.state[DEPTH] + 8) * int(tree.state[FANOUT] + 2)


def scratch(tree: Tree, box: NDArray[np.int32], most: int) -> Scratch:
    """Return room to match messages with these boxes, and so many tokens at most."""
    words = int(tree.state[HIGH] - tree.state[LOW]) // 64 + 1
    nodes = _waiting(tree) + TOGETHER * int(tree.state[FANOUT] + 2)
    walk = Walk(
        np.empty(max(most, GROUP_TOKENS), np.int32),
        np.zeros((GROUP, GROUP_WIDTH), np.int64),
        box,
        np.empty((nodes, STACK_WIDTH), np.int64),
        np.empty((TOGETHER, STACK_WIDTH), np.int64),
        np.empty((_LEAVES, 2), np.int64),
    )
    return Scratch(
        walk,
        ranks.Bits(np.zeros(GROUP * words, np.uint64), np.zeros(words // 64 + 1, np.uint64)),
        np.zeros(FILTER_WORDS, np.uint64),
        np.empty(_LEAVES, np.int64),
        np.empty(GROUP + 2, np.int64),
        np.empty((_CANDIDATES, CANDIDATE_WIDTH), np.int64),
        np.empty((GROUP + 1, 2), np.int64),
        np.empty((_CANDIDATES, 2), np.int32),
    )


class Room:
    """Room for making and changing nodes, which grows where something is missing."""

    def __init__(self, hits: Hits, work: Work, draft: Draft, ways: Ways) -> None:
        self.hits = hits
        self.work = work
        self.draft = draft
        self.ways = ways

    @classmethod
    def of(cls, tree: Tree, clauses: int, hits: Hits) -> Self:
        """Return room for about so many clauses."""
        fanout = int(tree.state[FANOUT])
        return cls(hits, _work(clauses, fanout), _draft(tree, clauses // 2 + 1), _ways(tree, 0))

    def fits(self, tree: Tree) -> bool:
        """Tell whether there is room for all ranks."""
        return len(self.draft.times) >= int(tree.state[HIGH] - tree.state[LOW])

    def begin(self, clauses: NDArray[np.int32]) -> None:
        """Let the root be made of clauses."""
        work = self.work
        work.clause[: len(clauses)] = clauses
        work.step[0] = 0
        work.step[0, END] = len(clauses)
        work.state[:] = 0
        work.state[STEPS] = 1

    def enlarge(self, tree: Tree) -> None:
        """Make room for what is missing."""
        work = self.work
        missing = work.missing.tolist()
        if missing[M_STEPS]:
            more = np.empty((len(work.step) + missing[M_STEPS], STEP_WIDTH), np.int64)
            work = work._replace(step=np.concatenate([work.step, more]))
        if missing[M_CLAUSES]:
            clause = np.empty(missing[M_CLAUSES] + missing[M_CLAUSES] // 4, np.int32)
            clause[: len(work.clause)] = work.clause
            work = work._replace(clause=clause)
        if missing[M_DRAFT]:
            self.draft = _draft(tree, missing[M_DRAFT] + missing[M_DRAFT] // 4)
        if missing[M_PLACES]:
            self._more_ways(tree)
        work.missing[:] = 0
        self.work = work

    def _more_ways(self, tree: Tree) -> None:
        ways = _ways(tree, 2 * len(self.ways.leaf))
        ways.due[: len(self.ways.due)] = self.ways.due
        self.ways = ways


def _ways(tree: Tree, many: int) -> Ways:
    """Return room for the ways of a clause that goes to so many places."""
    many = max(many, _waiting(tree))
    leaf, stack, inner = np.empty((3, many, WAY_WIDTH), np.int64)
    return Ways(
        leaf, stack, inner, np.empty((2 * many, WAY_WIDTH), np.int64), np.zeros(2, np.int64)
    )


def _work(clauses: int, fanout: int) -> Work:
    """Return work with nothing to do, and room for so many clauses."""
    return Work(
        np.empty((2 * fanout + 64, STEP_WIDTH), np.int64),
        np.empty(clauses, np.int32),
        np.empty(fanout + 3, np.int64),
        np.zeros(3, np.int64),
        np.zeros(5, np.int64),
    )


def _draft(tree: Tree, clauses: int) -> Draft:
    """Return room for parting so many clauses."""
    ranked, fanout = int(tree.state[HIGH] - tree.state[LOW]), int(tree.state[FANOUT])
    boxes = min(clauses, 2 * SAMPLE)
    return Draft(
        np.empty(clauses, np.int32),
        np.empty(clauses, np.int32),
        np.empty(clauses + 1),
        np.empty(clauses + 1),
        np.empty(ranked + ranked // 4 + 64, np.int32),
        np.empty(fanout + 2, np.int64),
        np.empty((2, 3, boxes), np.int64),
        np.empty((2, 2 * boxes + 2), np.int64),
        np.empty((2, 4, 2 * boxes + 2)),
        np.empty((2, fanout + 1), np.int64),
        np.empty((2, fanout + 1), np.int64),
        np.empty(4 * (fanout + 2)),
    )


def tokens_of(clauses: Clauses, numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the tokens of clauses with these numbers."""
    if len(numbers) == len(clauses):
        return clauses.token
    chosen = np.zeros(len(clauses), np.bool_)
    chosen[numbers] = True
    return read_only(clauses.token[np.repeat(chosen, np.diff(clauses.token_start))], np.int32)
