"""Move, insert and remove clauses, and report the messages that they gain and lose.

Wang et al., VLDB Journal 2015, algorithms 6 and 7. For every clause: find the slots of its old and
its new box; read the lists of these slots, sixteen messages at a time, for messages that lie in
exactly one of the boxes; then change the leaves, and rebuild what is stale. Messages that were
found wait in a buffer, and their tokens are compared later, all at once, so that none has to wait
for memory.

From the list of a slot that only the old box reaches, messages end; from one that only the new box
reaches, they begin; from one that both reach, either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, lowest_bit, prefetch
from nearcast.compiled.simd_points import LANES, points_inside, with_bits
from nearcast.indexes.ap_tree.build import NEXT_CHANGE, SHORT_UNITS, STALE_NODES, BuildScratch
from nearcast.indexes.ap_tree.layout import (
    ROOT_STALE,
    TOTAL_CLAUSES,
    UNITS_FREED,
    UNITS_USED,
    RankedClauses,
    Tree,
    has_lists,
    has_units,
)
from nearcast.indexes.moving.ap_plus.ahead import AHEAD, look_ahead
from nearcast.indexes.moving.ap_plus.change import (
    Ways,
    change_leaves,
    find_stale,
    units_for_ways,
)
from nearcast.indexes.moving.ap_plus.places import Places, add_old_ways, free_cells, keeps_places
from nearcast.indexes.moving.ap_plus.renew import SHORT_CELLS, RenewScratch, renew_slots
from nearcast.indexes.moving.ap_plus.store import NO_LIST, StoreScratch
from nearcast.indexes.moving.ap_plus.ways import (
    AFTER,
    BASE,
    BEFORE,
    BOTH,
    FLAGS,
    LINK,
    NO_ROOM,
    QUIET,
    find_ways,
    list_position,
)
from nearcast.indexes.moving.entries import SIGNATURE, EntryArrays
from nearcast.indexes.moving.lists import (
    ListArrays,
    capacity_of,
    size_of,
    start_of,
)
from nearcast.indexes.moving.living import FIRST, LivingArrays, is_alive
from nearcast.indexes.moving.ranges import Shifted, has_tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.ap_tree.cost import HitModel, SplitScratch
    from nearcast.indexes.ap_tree.update import RebuildLimits

POSITION, STAMP, SIGN, CANDIDATE_WIDTH = range(4)
"""Columns of a candidate: which of the clauses, the message, and whether it begins or ends."""

WAITING, FOUND, EXAMINED, VISITED = range(4)
"""Fields of ``counts``: candidates that wait; changes that were written; postings that were
compared with boxes; lists that were read."""

SHORT_WAYS, SHORT_CANDIDATES, SHORT_OUTPUT = range(3)
"""Fields of ``shortage``: 1, candidates, changes."""

_ONE = np.uint64(1)


class Moves(NamedTuple):
    """Clauses and their boxes, before and after; a box may be empty."""

    entry: NDArray[np.int32]
    before: NDArray[np.int32]
    after: NDArray[np.int32]


class ShiftScratch(NamedTuple):
    """Scratch of moves.

    - ``candidate`` int32[m, 3]: see above; ``counts`` int64[4]; ``shortage`` int64[3].
    - ``velocity`` float32[clauses, 2]: how far clauses went with their last moves, or empty.
    """

    candidate: NDArray[np.int32]
    counts: NDArray[np.int64]
    shortage: NDArray[np.int64]
    velocity: NDArray[np.float32]


class Subject(NamedTuple):
    """Everything that a move may read or change.

    The table of ranks is ``slot``, with ``used`` int64[1] slots.
    """

    tree: Tree
    ranked: RankedClauses
    entries: EntryArrays
    places: Places
    lists: ListArrays
    living: LivingArrays
    slot: NDArray[np.uint64]
    used: NDArray[np.int64]
    present: NDArray[np.bool_]


class Tools(NamedTuple):
    """Scratch and options of moves; ``limit`` is that on copies."""

    ways: Ways
    build: BuildScratch
    model: HitModel
    split: SplitScratch
    stack: NDArray[np.int64]
    store: StoreScratch
    renew: RenewScratch
    shift: ShiftScratch
    limits: RebuildLimits
    limit: Number


@inlined_kernel
def is_empty(box: NDArray[np.int32]) -> Number:
    """Tell whether a box is that of a clause which is nowhere."""
    return box[0] > box[2]


@kernel
def read_list(
    lists: ListArrays,
    number: Number,
    alive: NDArray[np.uint64],
    boxes: tuple[NDArray[np.int32], NDArray[np.int32]],
    reached: Number,
    wanted: tuple[Number, Number],
    scratch: ShiftScratch,
) -> None:
    """Add the messages of a list that lie in one of two boxes to the candidates.

    ``wanted`` is the position of the clause, and the signature of its tokens. The output is
    large enough.
    """
    pool, candidate, waiting = lists.pool, scratch.candidate, scratch.counts[WAITING]
    start, size = start_of(lists, number), size_of(lists, number)
    capacity = capacity_of(lists, number)
    for i in range(0, size, LANES):
        old = points_inside(pool, start + i, capacity, boxes[0])
        new = points_inside(pool, start + i, capacity, boxes[1])
        found = old ^ new
        if reached == BEFORE:
            found &= old
        elif reached == AFTER:
            found &= new
        if size - i < LANES:
            found &= (_ONE << np.uint64(size - i)) - _ONE
        if found == np.uint64(0):
            continue
        found &= with_bits(pool, start + 3 * capacity + i, np.int32(wanted[1]))
        while found != np.uint64(0):
            lane = lowest_bit(found)
            found &= found - _ONE
            stamp = pool[start + 2 * capacity + i + lane]
            candidate[waiting, POSITION], candidate[waiting, STAMP] = wanted[0], stamp
            candidate[waiting, SIGN] = 1 if (new >> np.uint64(lane)) & _ONE else -1
            waiting += np.int64(is_alive(alive, stamp))
    scratch.counts[WAITING] = waiting
    scratch.counts[EXAMINED] += size
    scratch.counts[VISITED] += 1


@kernel
def verify_candidates(
    entries: EntryArrays,
    living: LivingArrays,
    entry: NDArray[np.int32],
    scratch: ShiftScratch,
    output: Shifted,
) -> Number:
    """Write the candidates that have all tokens; return False if they do not fit."""
    waiting, found = scratch.counts[WAITING], scratch.counts[FOUND]
    candidate = scratch.candidate
    if found + waiting > len(output.stamp):
        scratch.shortage[SHORT_OUTPUT] = waiting
        return False
    for i in range(waiting):
        prefetch(living.record, candidate[i, STAMP])
    for i in range(waiting):
        prefetch(living.pool, living.record[candidate[i, STAMP], FIRST])
    for i in range(waiting):
        position, stamp = candidate[i, POSITION], candidate[i, STAMP]
        output.position[found], output.stamp[found] = position, stamp
        output.sign[found] = candidate[i, SIGN]
        found += np.int64(has_tokens(entries, entry[position], living, stamp))
    scratch.counts[WAITING], scratch.counts[FOUND] = 0, found
    return True


@inlined_kernel
def _read_ways(
    subject: Subject,
    boxes: tuple[NDArray[np.int32], NDArray[np.int32]],
    ways: NDArray[np.int64],
    wanted: tuple[Number, Number],
    scratch: ShiftScratch,
) -> None:
    """Read the lists of all slots where the boxes differ."""
    arena, lists = subject.tree.arena, subject.lists
    for i in range(len(ways)):
        way = ways[i]
        reached = way[FLAGS] & BOTH
        if way[FLAGS] & QUIET or reached == 0:
            continue
        number = np.int64(arena[list_position(arena, way[BASE], way[LINK])])
        if number != NO_LIST:
            read_list(lists, number, subject.living.alive, boxes, reached, wanted, scratch)


@inlined_kernel
def _messages_on_ways(
    arena: NDArray[np.int32], lists: ListArrays, ways: NDArray[np.int64]
) -> Number:
    """Return how many postings the lists of all slots have, and prefetch them."""
    total = np.int64(0)
    for i in range(len(ways)):
        number = np.int64(arena[list_position(arena, ways[i, BASE], ways[i, LINK])])
        if number != NO_LIST and not ways[i, FLAGS] & QUIET:
            total += size_of(lists, number)
            prefetch(lists.pool, start_of(lists, number))
    return total


@inlined_kernel
def _find_all_ways(
    subject: Subject,
    clause: Number,
    boxes: tuple[NDArray[np.int32], NDArray[np.int32]],
    flags: Number,
    ways: Ways,
) -> Number:
    """Find the slots of both boxes; return how many there are, or `NO_ROOM`."""
    tree, ranked, places = subject.tree, subject.ranked, subject.places
    if not keeps_places(places):
        return find_ways(tree, ranked, clause, boxes, flags, ways.row)
    count = find_ways(tree, ranked, clause, boxes, flags & AFTER, ways.row)
    if count == NO_ROOM:
        return count
    return add_old_ways(
        tree, places, subject.entries.record, clause, boxes, ways.row, count, ways.chain
    )


@kernel
def _note_velocity(
    velocity: NDArray[np.float32],
    clause: Number,
    before: NDArray[np.int32],
    after: NDArray[np.int32],
) -> None:
    """Average how far a clause goes with a move."""
    for axis in range(2):
        went = np.float32(
            (np.int64(after[axis]) + after[axis + 2] - before[axis] - before[axis + 2]) * 0.5
        )
        velocity[clause, axis] += np.float32(0.25) * (went - velocity[clause, axis])


@inlined_kernel
def _shift_one(subject: Subject, moves: Moves, i: Number, tools: Tools, output: Shifted) -> Number:
    """Take one clause to its new box; return False on a shortage, before anything has changed."""
    tree, scratch, ways = subject.tree, tools.shift, tools.ways
    record = subject.entries.record
    clause = np.int64(moves.entry[i])
    before, after = moves.before[i], moves.after[i]
    flags = (0 if is_empty(before) else BEFORE) | (0 if is_empty(after) else AFTER)
    count = _find_all_ways(subject, clause, (before, after), np.int64(flags), ways)
    if count == NO_ROOM:
        scratch.shortage[SHORT_WAYS] = 1
        return False
    rows = ways.row[:count]
    if has_lists(tree.state):
        postings = _messages_on_ways(tree.arena, subject.lists, rows)
        if scratch.counts[WAITING] + postings > len(scratch.candidate):
            if not verify_candidates(subject.entries, subject.living, moves.entry, scratch, output):
                return False
            if postings > len(scratch.candidate):
                scratch.shortage[SHORT_CANDIDATES] = postings
                return False
    units = units_for_ways(tree, rows, count)
    if not has_units(tree, units):
        tools.build.shortage[SHORT_UNITS] = units
        return False
    if keeps_places(subject.places) and count > free_cells(subject.places):
        tools.renew.shortage[SHORT_CELLS] = count
        return False
    if has_lists(tree.state):
        wanted = i, record[clause, SIGNATURE]
        _read_ways(subject, (before, after), rows, wanted, scratch)
    for side in range(4):
        record[clause, side] = after[side]
    tree.state[TOTAL_CLAUSES] += np.int64(flags == AFTER) - np.int64(flags == BEFORE)
    subject.present[clause] = (flags & AFTER) != 0
    if len(scratch.velocity) > 0:
        if flags == BOTH:
            _note_velocity(scratch.velocity, clause, before, after)
        else:
            scratch.velocity[clause, 0] = scratch.velocity[clause, 1] = 0.0
    if change_leaves(tree, subject.ranked, subject.places, clause, rows, count):
        stale = find_stale(tree, rows, count, ways.stale, tools.limits)
        tools.build.progress[STALE_NODES] = stale
    return True


@kernel
def shift_clauses(subject: Subject, moves: Moves, tools: Tools, output: Shifted) -> Number:
    """Take clauses to their new boxes, from ``NEXT_CHANGE`` on, and write what that changes.

    Return False on a shortage, if the whole tree is to be rebuilt, or (neither of these) if half of
    the arena is free.
    """
    subject, tools, output = borrow(subject), borrow(tools), borrow(output)
    tree, build = subject.tree, tools.build
    while True:
        if build.progress[STALE_NODES] > 0 and not renew_slots(
            tree,
            subject.ranked,
            subject.places,
            subject.lists,
            subject.living,
            (subject.slot, subject.used),
            tools.ways,
            build,
            (tools.model, tools.split, tools.stack),
            tools.store,
            tools.renew,
            tools.limit,
        ):
            return False
        state = tree.state
        if state[ROOT_STALE] != 0 or 2 * state[UNITS_FREED] > state[UNITS_USED] + (1 << 16):
            return False
        i = build.progress[NEXT_CHANGE]
        if i == len(moves.entry):
            return verify_candidates(
                subject.entries, subject.living, moves.entry, tools.shift, output
            )
        if i % AHEAD == 0:
            some = moves.entry[i : i + AHEAD]
            look_ahead(tree, subject.ranked, subject.lists, some, tools.ways.stale)
        if not _shift_one(subject, moves, i, tools, output):
            return False
        build.progress[NEXT_CHANGE] = i + 1


@kernel
def find_messages(subject: Subject, moves: Moves, tools: Tools, output: Shifted) -> Number:
    """Write the messages of clauses that are in the tree already, from ``NEXT_CHANGE`` on.

    Return False on a shortage.
    """
    subject, tools, output = borrow(subject), borrow(tools), borrow(output)
    scratch, ways, progress = tools.shift, tools.ways, tools.build.progress
    while progress[NEXT_CHANGE] < len(moves.entry):
        i = progress[NEXT_CHANGE]
        clause = np.int64(moves.entry[i])
        boxes = moves.before[i], moves.after[i]
        count = find_ways(subject.tree, subject.ranked, clause, boxes, np.int64(AFTER), ways.row)
        if count == NO_ROOM:
            scratch.shortage[SHORT_WAYS] = 1
            return False
        rows = ways.row[:count]
        postings = _messages_on_ways(subject.tree.arena, subject.lists, rows)
        if scratch.counts[WAITING] + postings > len(scratch.candidate):
            if not verify_candidates(subject.entries, subject.living, moves.entry, scratch, output):
                return False
            if postings > len(scratch.candidate):
                scratch.shortage[SHORT_CANDIDATES] = postings
                return False
        wanted = i, subject.entries.record[clause, SIGNATURE]
        _read_ways(subject, boxes, rows, wanted, scratch)
        progress[NEXT_CHANGE] = i + 1
    return verify_candidates(subject.entries, subject.living, moves.entry, scratch, output)
