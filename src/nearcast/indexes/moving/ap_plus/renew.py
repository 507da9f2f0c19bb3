"""Rebuild a part of the tree together with its messages.

The messages of a stale slot are those in its list and in all lists below, each once. They leave
the tree with its nodes; the nodes are built from their clauses; and the messages walk down again
from the slot. Which ranks of a message count there follows from the cuts above the slot.

A kernel that runs short of something returns, and continues when it is called again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.ap_tree.build import (
    SHORT_CLAUSES,
    SHORT_PATHS,
    STALE_NODES,
    TASK_BEGIN,
    TASK_END,
    TASK_LEVEL,
    TASK_LINK,
    TASK_OFFSET,
    TASK_REGION,
    TASKS,
    BuildScratch,
    build_nodes,
)
from nearcast.indexes.ap_tree.layout import (
    CHILDREN,
    FANOUT,
    HEADER,
    KEYWORDS,
    LEAF,
    MAX_LEVEL,
    OFFSET,
    PARTS,
    SIZE,
    UNIT,
    RankedClauses,
    Tree,
    has_lists,
)
from nearcast.indexes.ap_tree.update import collect_clauses, free_nodes
from nearcast.indexes.ap_tree.walk import first_not_below
from nearcast.indexes.moving.ap_plus.places import (
    Places,
    change_places,
    free_cells,
    keeps_places,
)
from nearcast.indexes.moving.ap_plus.store import NO_LIST, StoreScratch, rank_tokens, store_message
from nearcast.indexes.moving.ap_plus.ways import (
    ABOVE,
    BASE,
    CHILD,
    LEVEL,
    LINK,
    OFFSET_BELOW,
    is_end,
    list_position,
    way_region,
)
from nearcast.indexes.moving.lists import (
    ListArrays,
    capacity_of,
    drop_list,
    size_of,
    start_of,
)
from nearcast.indexes.moving.living import OWN, LivingArrays, is_alive, tokens_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.ap_tree.cost import HitModel, SplitScratch
    from nearcast.indexes.moving.ap_plus.change import Ways

STAGE, MESSAGES, NEXT_MESSAGE = range(3)
"""Fields of ``progress``: see `READY`; the messages of the slot, and the next one to store."""

READY, BUILDING, STORING = range(3)
"""Stages: nothing has begun; nodes are being built; messages are being stored."""

SHORT_MESSAGES, SHORT_CELLS, SHORT_STORE = range(3)
"""Fields of ``shortage``: messages of a slot, cells of node lists, something of the store."""

_SIX, _LOW, _ONE = np.uint64(6), np.uint64(63), np.uint64(1)


class RenewScratch(NamedTuple):
    """What is left to do at a slot that is rebuilt.

    - ``stamp`` int32[m]: its messages; ``seen`` uint64[words]: a bit for each stamp, all 0.
    - ``progress`` int64[3], ``shortage`` int64[3]: see above.
    """

    stamp: NDArray[np.int32]
    seen: NDArray[np.uint64]
    progress: NDArray[np.int64]
    shortage: NDArray[np.int64]


def renew_scratch(stamps: int) -> RenewScratch:
    """Return scratch for this many stamps."""
    return RenewScratch(
        stamp=np.empty(1024, np.int32),
        seen=np.zeros(stamps // 64 + 1, np.uint64),
        progress=np.zeros(3, np.int64),
        shortage=np.zeros(3, np.int64),
    )


@kernel
def _take_messages(
    lists: ListArrays, number: Number, living: LivingArrays, scratch: RenewScratch, count: Number
) -> Number:
    """Write the living messages of a list that were not seen; return how many there are."""
    start = start_of(lists, number) + 2 * capacity_of(lists, number)
    for at in range(start, start + size_of(lists, number)):
        stamp = np.uint64(lists.pool[at])
        seen = (scratch.seen[stamp >> _SIX] >> (stamp & _LOW)) & _ONE
        if not is_alive(living.alive, stamp):
            continue
        living.record[stamp, OWN] -= 1
        if seen == np.uint64(0):
            scratch.seen[stamp >> _SIX] |= _ONE << (stamp & _LOW)
            scratch.stamp[count] = stamp
            count += 1
    return count


@kernel
def _visit_lists(
    arena: NDArray[np.int32],
    lists: ListArrays,
    slot: tuple[Number, Number],
    living: LivingArrays,
    scratch: RenewScratch,
    stack: NDArray[np.int64],
    take: Number,
) -> Number:
    """Count the postings at and below a slot, or take its messages and drop the lists.

    ``slot`` is its link, and where its list is named.
    """
    total, top = np.int64(0), np.int64(0)
    link, name = slot
    number = np.int64(arena[name])
    if number != NO_LIST:
        if take:
            total = _take_messages(lists, number, living, scratch, total)
            drop_list(lists, number)
            arena[name] = NO_LIST
        else:
            total = size_of(lists, number)
    if not is_end(arena, link):
        stack[0, 0] = UNIT * np.int64(arena[link])
        top = np.int64(1)
    while top > 0:
        top -= 1
        base = stack[top, 0]
        children = np.int64(arena[base + PARTS]) + 1
        links = base + np.int64(arena[base + CHILDREN])
        for child in range(links, links + children):
            number = np.int64(arena[child + 3 * children])
            if number != NO_LIST:
                if take:
                    total = _take_messages(lists, number, living, scratch, total)
                    drop_list(lists, number)
                else:
                    total += size_of(lists, number)
            if not is_end(arena, child):
                stack[top, 0] = UNIT * np.int64(arena[child])
                top += 1
    return total


@kernel
def _entries_below(arena: NDArray[np.int32], link: Number, stack: NDArray[np.int64]) -> Number:
    """Return how many entries the leaves at and below a link have."""
    total, top = np.int64(0), np.int64(1)
    stack[0, 0] = link
    while top > 0:
        top -= 1
        base = UNIT * np.int64(arena[stack[top, 0]])
        if base == 0:
            continue
        if arena[base] == LEAF:
            total += np.int64(arena[base + SIZE])
            continue
        links = base + np.int64(arena[base + CHILDREN])
        for child in range(links, links + np.int64(arena[base + PARTS]) + 1):
            stack[top, 0] = child
            top += np.int64(arena[child] != 0)
    return total


@kernel
def _first_rank(
    arena: NDArray[np.int32], ways: NDArray[np.int64], row: Number, ranks: NDArray[np.int32]
) -> Number:
    """Return which of a message's ranks are left at a slot that it has reached."""
    depth, at = np.int64(0), row
    chain = np.empty(128, np.int64)
    while ways[at, ABOVE] >= 0:
        chain[depth] = at
        depth += 1
        at = ways[at, ABOVE]
    first = np.int64(0)
    for i in range(depth - 1, -1, -1):
        base, child = ways[chain[i], BASE], ways[chain[i], CHILD]
        if arena[base] != KEYWORDS or child == arena[base + PARTS]:
            continue
        if child > 0:
            above = np.int64(arena[base + HEADER + child - 1]) + 1
            first = first_not_below(ranks, first, np.int64(len(ranks)), above)
        first += 1
    return first


@kernel
def _begin(
    tree: Tree,
    places: Places,
    record: NDArray[np.int32],
    lists: ListArrays,
    living: LivingArrays,
    way: NDArray[np.int64],
    build: BuildScratch,
    scratch: RenewScratch,
    stack: NDArray[np.int64],
) -> Number:
    """Take clauses and messages out of a slot, and make its nodes a task.

    Return False on a shortage, before anything has changed.
    """
    arena, link = tree.arena, way[LINK]
    name = list_position(arena, way[BASE], link)
    if has_lists(tree.state):
        postings = _visit_lists(arena, lists, (link, name), living, scratch, stack, False)
        if postings > len(scratch.stamp):
            scratch.shortage[SHORT_MESSAGES] = postings
            return False
    task = build.task[0]
    task[TASK_LINK], task[TASK_LEVEL], task[TASK_OFFSET] = link, way[LEVEL], way[OFFSET_BELOW]
    if not is_end(arena, link):
        task[TASK_OFFSET] = np.int64(arena[UNIT * np.int64(arena[link]) + OFFSET])
    way_region(tree, way, task[TASK_REGION : TASK_REGION + 4])
    count = collect_clauses(tree, task, stack, build.clause)
    if count > len(build.clause):
        build.shortage[SHORT_CLAUSES] = count
        return False
    if keeps_places(places):
        change_places(tree, places, record, (link, way[BASE], way[CHILD]), stack, -1)
    scratch.progress[MESSAGES] = scratch.progress[NEXT_MESSAGE] = 0
    if has_lists(tree.state):
        taken = _visit_lists(arena, lists, (link, name), living, scratch, stack, True)
        for i in range(taken):
            scratch.seen[np.uint64(scratch.stamp[i]) >> _SIX] = np.uint64(0)
        scratch.progress[MESSAGES] = taken
    free_nodes(tree, link, stack)
    task[TASK_BEGIN], task[TASK_END] = 0, count
    build.progress[TASKS] = np.int64(count > 0)
    return True


@kernel
def renew_slots(
    tree: Tree,
    ranked: RankedClauses,
    places: Places,
    lists: ListArrays,
    living: LivingArrays,
    table: tuple[NDArray[np.uint64], NDArray[np.int64]],
    ways: Ways,
    build: BuildScratch,
    partition: tuple[HitModel, SplitScratch, NDArray[np.int64]],
    store: StoreScratch,
    scratch: RenewScratch,
    limit: Number,
) -> Number:
    """Rebuild all stale slots; return False on a shortage.

    ``partition`` is the model of costs, its scratch, and a stack.
    """
    progress, stack = scratch.progress, partition[2]
    while build.progress[STALE_NODES] > 0:
        row = ways.stale[build.progress[STALE_NODES] - 1]
        way = ways.row[row]
        link, base = way[LINK], way[BASE]
        if (tree.state[MAX_LEVEL] + 3) * (tree.state[FANOUT] + 2) > len(stack):
            build.shortage[SHORT_PATHS] = 1
            return False
        if progress[STAGE] == READY:
            if not _begin(tree, places, ranked.box, lists, living, way, build, scratch, stack):
                return False
            progress[STAGE] = BUILDING
        if progress[STAGE] == BUILDING:
            if not build_nodes(tree, ranked, build, partition[0], partition[1]):
                return False
            if (tree.state[MAX_LEVEL] + 3) * (tree.state[FANOUT] + 2) > len(stack):
                build.shortage[SHORT_PATHS] = 1
                return False
            if keeps_places(places):
                needed = _entries_below(tree.arena, link, stack)
                if needed > free_cells(places):
                    scratch.shortage[SHORT_CELLS] = needed
                    return False
                change_places(tree, places, ranked.box, (link, base, way[CHILD]), stack, 1)
            progress[STAGE] = STORING
        name = list_position(tree.arena, base, link)
        while progress[NEXT_MESSAGE] < progress[MESSAGES]:
            stamp = np.int64(scratch.stamp[progress[NEXT_MESSAGE]])
            tokens = tokens_of(living, stamp)
            rank_tokens(table[0], tree.state, tokens, table[1], store.rank)
            ranks = store.rank[: len(tokens)]
            start = link, name, _first_rank(tree.arena, ways.row, row, ranks)
            if not store_message(tree.arena, lists, living, stamp, ranks, start, limit, store):
                scratch.shortage[SHORT_STORE] = 1
                return False
            progress[NEXT_MESSAGE] += 1
        build.progress[STALE_NODES] -= 1
        progress[STAGE] = READY
    return True
