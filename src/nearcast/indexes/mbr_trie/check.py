"""Check the arrays of an mbr-trie that were read from disk.

Kernels do not check bounds. These checks make sure that matching and updating stay inside the
arrays and end: the nodes are a tree of the depth that scratch is made for, lists do not overlap,
and every live clause is in the list at the end of its path.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.clauses import ClauseColumns, clause_columns
from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.sorting import sort_short
from nearcast.indexes.damage import require
from nearcast.indexes.mbr_trie.build import next_in_preorder
from nearcast.indexes.mbr_trie.layout import (
    ADDED,
    BUILT,
    CHILD_CAPACITY,
    CHILD_COUNT,
    CLAUSES_BELOW,
    DEAD_CLAUSE,
    DEPTH,
    DROPPED,
    ENTRIES,
    FIRST_CHILD,
    FIRST_RANK,
    FREQUENCY,
    HIGH,
    LABEL_BITS,
    LIST,
    LIST_CAPACITY,
    LIST_DEAD,
    LIST_SIZE,
    LOW,
    NEXT_RANK,
    NO_TOKENS,
    NODE_WIDTH,
    NODES,
    NOWHERE,
    PADDING,
    RANK,
    ROOT_CHILD,
    SLOT_WIDTH,
    STATE_WIDTH,
    TOKEN,
    TOKENS,
    Trie,
    box_at,
    clause_at,
    find_slot,
    list_place,
    round_capacity,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import Clauses

_require = partial(require, "mbr-trie")

SOUND, BAD_CHILDREN, BAD_DEPTH, BAD_RANK, BAD_LABEL, BAD_LIST, BAD_ENTRY, BAD_CLAUSE = range(8)

_PROBLEMS = {
    BAD_CHILDREN: "node has children that are out of range or belong to two nodes",
    BAD_DEPTH: "node is deeper than the longest clause",
    BAD_RANK: "rank has a token that is not in the table",
    BAD_LABEL: "label does not follow the rank of the first token",
    BAD_LIST: "node has a list that is out of range",
    BAD_ENTRY: "entry has a clause that is out of range, dead, or listed twice",
    BAD_CLAUSE: "entry has a clause with other tokens than its path",
}


class Expected(NamedTuple):
    """What nodes must agree with: the clauses, and the tokens by rank unless ranks are tokens."""

    columns: ClauseColumns
    token_of_rank: NDArray[np.int64]
    ranks_are_tokens: Number


class CheckScratch(NamedTuple):
    """Scratch of `find_problem`.

    - ``owned`` bool[nodes]: nodes that are the child, or spare capacity, of a node visited before.
    - ``unlisted`` bool[clauses]: live clauses that were in no list so far.
    - ``list_start``, ``list_capacity`` int64[nodes + 1]: the lists found; their number is last.
    - ``stack`` int64[depth + 2, 2]; ``path``, ``ordered`` int64[depth + 1]: tokens of a path.
    """

    owned: NDArray[np.bool_]
    unlisted: NDArray[np.bool_]
    list_start: NDArray[np.int64]
    list_capacity: NDArray[np.int64]
    stack: NDArray[np.int64]
    path: NDArray[np.int64]
    ordered: NDArray[np.int64]


def check_trie(
    trie: Trie, clauses: Clauses, alive: NDArray[np.bool_], ranks_are_tokens: bool, labeled: bool
) -> None:
    """Raise `StorageError` unless the trie is sound and holds the live clauses."""
    _require(alive.shape == (clauses.subscriptions,), "alive must have one value per subscription")
    live = alive[clauses.row]
    _check_shapes(trie, len(clauses), labeled)
    _check_state(trie, clauses, int(live.sum()))
    token_of_rank = _check_slots(trie, ranks_are_tokens)
    _check_nodes(trie, clauses, live, token_of_rank)


def _check_shapes(trie: Trie, clauses: int, labeled: bool) -> None:
    nodes = len(trie.rank)
    widths = {"slot": SLOT_WIDTH, "node": NODE_WIDTH, "label": 2}
    for name, array in trie._asdict().items():
        shape = (len(array), widths[name]) if name in widths else (len(array),)
        _require(array.shape == shape, f"{name} must have the shape {shape}, got {array.shape}")
    for name in ("outline", "node", "label"):
        _require(len(getattr(trie, name)) == nodes, f"{name} must have one row per node")
    _require(len(trie.state) == STATE_WIDTH, f"state must have {STATE_WIDTH} values")
    labels = clauses if labeled else 0
    enough = len(trie.clause_label) >= labels and (labeled or not len(trie.clause_label))
    _require(enough, f"clause_label must have {labels} values")


def _check_state(trie: Trie, clauses: Clauses, live: int) -> None:
    state = trie.state.tolist()
    longest = int(np.diff(clauses.token_start).max(initial=0))
    bounds = {
        "nodes": (state[NODES], 1, len(trie.rank)),
        "entries": (state[ENTRIES], 0, len(trie.entry) - PADDING),
        "tokens": (state[TOKENS], 0, len(trie.slot) - 1),
        "depth": (state[DEPTH], 0, longest),
        "built": (state[BUILT], 0, len(clauses)),
        "added": (state[ADDED], 0, len(clauses)),
        "dropped": (state[DROPPED], 0, len(clauses)),
    }
    for name, (value, minimum, maximum) in bounds.items():
        expectation = f"state: {name} must be from {minimum} to {maximum}, got {value}"
        _require(minimum <= value <= maximum, expectation)
    counted = state[BUILT] + state[ADDED] - state[DROPPED]
    _require(counted == live, f"state counts {counted} clauses, but {live} are alive")


def _check_slots(trie: Trie, ranks_are_tokens: bool) -> NDArray[np.int64] | None:
    """Check the table of tokens; return the tokens by rank unless ranks are tokens."""
    slot, tokens = trie.slot, int(trie.state[TOKENS])
    next_rank = int(trie.state[NEXT_RANK])
    used = slot[:, TOKEN] != 0
    token = slot[used, TOKEN].astype(np.int64) - 1
    rank = slot[used, RANK].astype(np.int64)
    child = slot[:, ROOT_CHILD]
    _require((token >= 0).all() and len(token) == tokens, "slot must have the tokens of the state")
    _require((slot[:, FREQUENCY] >= 0).all(), "slot must have frequencies of at least 0")
    inside = (child >= 0) & (child < trie.state[NODES]) & (used | (child == 0))
    _require(inside.all(), "slot has a child that is out of range")
    _require(slots_are_found(slot), "slot has a token twice, or where it is not found")
    if ranks_are_tokens:
        _require(next_rank == -1 and (rank == token).all(), "slot must have token ids as ranks")
        return None
    # Ranks ascend from the first one without gaps; new tokens are ranked before it.
    first = next_rank + 1
    in_range = 0 < first <= FIRST_RANK <= first + tokens
    _require(in_range, f"state: next rank must be below {FIRST_RANK}, got {next_rank}")
    position = rank - first
    _require(((position >= 0) & (position < tokens)).all(), "slot has a rank that is out of range")
    token_of_rank = np.full(tokens, -1, np.int64)
    token_of_rank[position] = token
    _require((token_of_rank >= 0).all(), "slot has a rank twice")
    return token_of_rank


def _check_nodes(
    trie: Trie, clauses: Clauses, live: NDArray[np.bool_], token_of_rank: NDArray[np.int64] | None
) -> None:
    nodes, depth = int(trie.state[NODES]), int(trie.state[DEPTH])
    below = trie.node[:nodes, CLAUSES_BELOW]
    _require(((below >= 0) & (below <= len(clauses))).all(), "node counts too many clauses")
    scratch = CheckScratch(
        np.zeros(nodes, np.bool_),
        live.copy(),
        np.empty(nodes + 1, np.int64),
        np.empty(nodes + 1, np.int64),
        np.empty((depth + 2, 2), np.int64),
        np.empty(depth + 1, np.int64),
        np.empty(depth + 1, np.int64),
    )
    tokens = np.empty(0, np.int64) if token_of_rank is None else token_of_rank
    expected = Expected(clause_columns(clauses), tokens, token_of_rank is None)
    problem = find_problem(trie, expected, scratch)
    _require(problem == SOUND, _PROBLEMS.get(int(problem), ""))
    _require(not scratch.unlisted.any(), "entry does not have all clauses that are alive")
    lists = int(scratch.list_start[-1])
    start, capacity = scratch.list_start[:lists], scratch.list_capacity[:lists]
    order = np.argsort(start, kind="stable")
    apart = start[order][1:] >= (start + 5 * capacity)[order][:-1]
    _require(apart.all(), "node has a list that overlaps another")


@kernel
def slots_are_found(slot: NDArray[np.int32]) -> Number:
    """Tell whether a lookup finds every slot in use; the table has a free one."""
    for at in range(len(slot)):
        token = np.int64(slot[at, TOKEN])
        if token != 0 and find_slot(slot, token - 1) != at:
            return False
    return True


@kernel
def find_problem(trie: Trie, expected: Expected, scratch: CheckScratch) -> Number:
    """Visit all nodes from the root; return the first problem, or `SOUND`."""
    nodes, children = trie.state[NODES], np.int64(0)
    scratch.list_start[nodes] = 0
    scratch.owned[0] = True
    problem = check_list(trie, expected, np.int64(0), np.int64(0), NO_TOKENS, scratch)
    for slot in range(len(trie.slot)):
        child = np.int64(trie.slot[slot, ROOT_CHILD])
        if problem != SOUND:
            return problem
        if child != 0:
            children += 1
            if scratch.owned[child] or trie.rank[child] != trie.slot[slot, RANK]:
                return BAD_CHILDREN
            scratch.owned[child] = True
            problem = check_subtree(trie, expected, child, scratch)
    if problem == SOUND and trie.node[0, CHILD_COUNT] != children:
        return BAD_CHILDREN
    return problem


@kernel
def check_subtree(trie: Trie, expected: Expected, child: Number, scratch: CheckScratch) -> Number:
    """Check all nodes at and below a child of the root."""
    stack, top, first_rank = scratch.stack, np.int64(0), np.int64(trie.rank[child])
    stack[0, 0], stack[0, 1] = child, 0
    while top >= 0:
        if stack[top, 1] == 0:
            at = stack[top, 0]
            if top >= trie.state[DEPTH]:
                return BAD_DEPTH
            token = node_token(trie, at, expected)
            if token < 0:
                return BAD_RANK
            scratch.path[top] = token
            if not own_children(trie, at, scratch.owned):
                return BAD_CHILDREN
            low, high = trie.label[at, LOW], trie.label[at, HIGH]
            ranks = low >> LABEL_BITS, high >> LABEL_BITS
            if low > high or ranks[0] != first_rank or ranks[1] != first_rank:
                return BAD_LABEL
            problem = check_list(trie, expected, at, top + 1, low, scratch)
            if problem != SOUND:
                return problem
        top = next_in_preorder(trie, stack, top)
    return SOUND


@kernel
def node_token(trie: Trie, at: Number, expected: Expected) -> Number:
    """Return the token of a node, or -1 if its rank belongs to none."""
    rank = np.int64(trie.rank[at])
    if expected.ranks_are_tokens:
        if rank < 0 or trie.slot[find_slot(trie.slot, rank), TOKEN] == 0:
            return np.int64(-1)
        return rank
    position = rank - trie.state[NEXT_RANK] - 1
    if position < 0 or position >= len(expected.token_of_rank):
        return np.int64(-1)
    return expected.token_of_rank[position]


@kernel
def own_children(trie: Trie, at: Number, owned: NDArray[np.bool_]) -> Number:
    """Mark the children of a node, and the capacity for more; tell whether no other has them."""
    first = np.int64(trie.node[at, FIRST_CHILD])
    count = np.int64(trie.node[at, CHILD_COUNT])
    capacity = np.int64(trie.node[at, CHILD_CAPACITY])
    if count < 0 or capacity < count or first < 0 or first + capacity > len(owned):
        return False
    for child in range(first, first + capacity):
        if owned[child]:
            return False
        owned[child] = True
        if child > first and child < first + count and trie.rank[child] <= trie.rank[child - 1]:
            return False
    return True


@kernel
def check_list(
    trie: Trie, expected: Expected, at: Number, depth: Number, label: Number, scratch: CheckScratch
) -> Number:
    """Check the list of a node at this depth, whose tokens are in ``scratch.path``."""
    start, size = np.int64(trie.node[at, LIST]), np.int64(trie.node[at, LIST_SIZE])
    capacity = np.int64(trie.node[at, LIST_CAPACITY])
    dead = np.int64(trie.node[at, LIST_DEAD])
    ordered = scratch.ordered
    for i in range(depth):
        ordered[i] = scratch.path[i]
    sort_short(ordered[:depth])
    if capacity == 0:
        if size < 0 or size > 1 or dead != 0:
            return BAD_LIST
        return check_clause(trie, expected, start, depth, label, scratch) if size == 1 else SOUND
    inside = 0 <= start and start + 5 * capacity <= trie.state[ENTRIES]
    if capacity < 0 or size < 0 or size > capacity or not inside:
        return BAD_LIST
    if capacity != round_capacity(capacity):
        return BAD_LIST
    lists = scratch.list_start[-1]
    scratch.list_start[lists], scratch.list_capacity[lists] = start, capacity
    scratch.list_start[-1] = lists + 1
    place = list_place(trie, at)
    for number in range(size):
        clause = np.int64(clause_at(trie, place, np.int64(number)))
        if clause == DEAD_CLAUSE:
            dead -= 1
            if box_at(trie, place, np.int64(number)) != NOWHERE:
                return BAD_ENTRY
            continue
        problem = check_clause(trie, expected, clause, depth, label, scratch)
        if problem != SOUND:
            return problem
    return SOUND if dead == 0 else BAD_LIST


@kernel
def check_clause(
    trie: Trie,
    expected: Expected,
    clause: Number,
    depth: Number,
    label: Number,
    scratch: CheckScratch,
) -> Number:
    """Check a clause of a list: it is alive, listed once, and has the tokens of the path."""
    if clause < 0 or clause >= len(scratch.unlisted) or not scratch.unlisted[clause]:
        return BAD_ENTRY
    scratch.unlisted[clause] = False
    columns = expected.columns
    begin = columns.token_start[clause]
    if columns.token_start[clause + 1] - begin != depth:
        return BAD_CLAUSE
    for i in range(depth):
        if columns.token[begin + i] != scratch.ordered[i]:
            return BAD_CLAUSE
    if len(trie.clause_label) > 0 and trie.clause_label[clause] != label:
        return BAD_LABEL
    return SOUND
