"""Check the arrays of an ap-tree that were read from disk.

Kernels do not check bounds. What is verified here is all that they rely on, for matching and for
changes: sizes of arrays, ranks and clauses within range, and a tree in which every node lies in the
arena on its own, no deeper than the state says. It takes one pass over the arena.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.ap_tree.build import (
    MAX_DEPTH,
    TASK_LEVEL,
    TASK_LINK,
    TASK_OFFSET,
    TASK_REGION,
    TASK_WIDTH,
    set_child_task,
)
from nearcast.indexes.ap_tree.layout import (
    BOUNDS,
    BUILT_COUNT,
    CAPACITY,
    CHANGES,
    CHILDREN,
    CLAUSE,
    COLUMNS,
    COUNT,
    END_RANK,
    FANOUT,
    FIRST_RANK,
    HEADER,
    KEYWORDS,
    LEAF,
    LEAF_HEADER,
    LENGTH,
    MAX_LEVEL,
    NO_RANK,
    OFFSET,
    OPTIONS,
    PADDING,
    PARTS,
    REGION,
    ROOT,
    ROOT_STALE,
    SECOND_RANK,
    SIZE,
    SPACE,
    STATE_FIELDS,
    TOTAL_CLAUSES,
    TOTAL_ENTRIES,
    UNIT,
    UNITS_FREED,
    UNITS_USED,
    Tree,
    leaf_units,
    tail_position,
    units_of,
)
from nearcast.indexes.ap_tree.ranks import slot_ranks
from nearcast.indexes.damage import require

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from nearcast.columns import Clauses

_require = partial(require, "ap-tree")

_MAX_ARENA = UNIT << 31

_FAULTS = (
    "",
    "link to a node outside of the arena",
    "share units between two nodes",
    "have a node of an unknown kind",
    "have a node below the lowest level",
    "have a leaf of impossible size",
    "have an entry of an unknown clause or rank",
    "have an inner node of impossible size",
    "have an inner node with another offset or region than its place in the tree",
    "have cuts or splits that do not ascend",
    "have negative counts",
)
(
    _NONE,
    _OUTSIDE,
    _SHARED,
    _KIND,
    _TOO_DEEP,
    _LEAF_SIZE,
    _ENTRY,
    _INNER_SIZE,
    _PLACE,
    _ORDER,
    _COUNTS,
) = range(len(_FAULTS))


class CheckScratch(NamedTuple):
    """Scratch of `find_fault`.

    - ``taken`` bool[units]: units that belong to nodes. A node that is reached twice shares its
      units with itself.
    - ``stack`` int64[m, 9]: nodes to visit.
    - ``total`` int64[2]: the units in use, and the entries of all leaves.
    """

    taken: NDArray[np.bool_]
    stack: NDArray[np.int64]
    total: NDArray[np.int64]


def check_arrays(
    clauses: Clauses, header: Sequence[int], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Raise `StorageError` unless the arrays of an ap-tree are safe for every kernel.

    ``header`` are the fields of the state that follow from the options.
    """
    for name in ("nodes", "state", "slot", "rank", "alive", "sample.share"):
        _require(arrays[name].ndim == 1, name, f"must have 1 axis, got {arrays[name].ndim}")
    _check_lengths(clauses, arrays)
    tree = Tree(arrays["nodes"], arrays["state"])
    _check_state(tree, header)
    # Clauses that left keep the ranks of an earlier order: only those in the tree are checked.
    present = arrays["alive"][clauses.row]
    rank = arrays["rank"]
    if not present.all():
        rank = rank[np.repeat(present, np.diff(clauses.token_start))]
    _check_ranks(tree, arrays["slot"], rank)
    _check_sample(arrays["sample.share"], arrays["sample.passed"])
    west, south, east, north = _sample_box(arrays["sample.box"])
    _require(west < east and south < north, "sample.box", "has no width or no height")
    _check_nodes(tree, present)


def _check_lengths(clauses: Clauses, arrays: Mapping[str, NDArray[Any]]) -> None:
    expected = {
        "state": STATE_FIELDS,
        "rank": len(clauses.token),
        "alive": clauses.subscriptions,
    }
    for name, length in expected.items():
        found = len(arrays[name])
        _require(found == length, name, f"must have {length:,} values, got {found:,}")
    _require(len(arrays["nodes"]) <= _MAX_ARENA, "nodes", "are more than node numbers can name")


def _check_state(tree: Tree, header: Sequence[int]) -> None:
    state = tree.state.tolist()
    used, freed = state[UNITS_USED], state[UNITS_FREED]
    _require(
        1 <= used and UNIT * used + PADDING <= len(tree.arena),
        "state",
        f"has {used:,} units of nodes, which are not in the array",
    )
    _require(0 <= freed < used, "state", f"has {freed:,} free units of {used:,}")
    _require(
        0 <= state[MAX_LEVEL] <= MAX_DEPTH,
        "state",
        f"has level {state[MAX_LEVEL]:,}, expected at most {MAX_DEPTH}",
    )
    _require(state[OPTIONS:] == list(header), "state", "does not agree with the options")
    _require(state[ROOT_STALE] in (0, 1), "state", "has a flag that is neither 0 nor 1")
    _require(state[TOTAL_CLAUSES] >= 0, "state", "has a negative number of clauses")
    bounds = np.array(state[BOUNDS : BOUNDS + 4], np.int64)
    _require((bounds == bounds.astype(np.int32)).all(), "state", "has bounds outside of the world")
    _require((bounds[:2] <= bounds[2:]).all(), "state", "has bounds that end before they begin")


def _check_ranks(tree: Tree, slot: NDArray[np.uint64], rank: NDArray[np.int32]) -> None:
    first, end = int(tree.state[FIRST_RANK]), int(tree.state[END_RANK])
    used = slot[slot != 0]
    _require(len(used) < len(slot), "slot", "has no free slot")
    _require(
        first <= 0 <= end and end - first == len(used),
        "state",
        f"has ranks from {first:,} to before {end:,} for {len(used):,} tokens",
    )
    for name, ranks in (("slot", slot_ranks(used)), ("rank", rank)):
        inside = not len(ranks) or (first <= int(ranks.min()) and int(ranks.max()) < end)
        _require(inside, name, f"has ranks outside of {first:,} to {end:,}")


def _sample_box(box: NDArray[np.float64]) -> list[float]:
    finite = box.shape == (4,) and bool(np.isfinite(box).all())
    _require(finite, "sample.box", "does not have four numbers")
    sides: list[float] = box.tolist()
    return sides


def _check_sample(share: NDArray[np.float32], passed: NDArray[np.float64]) -> None:
    is_grid = passed.ndim == 2 and (passed.shape == (1, 1) or min(passed.shape) >= 2)
    _require(is_grid, "sample.passed", f"has shape {passed.shape}, expected a grid")
    for name, values in (("sample.share", share), ("sample.passed", passed)):
        usable = bool(np.isfinite(values).all()) and bool((values >= 0).all())
        _require(usable, name, "has values that are negative or not finite")


def _check_nodes(tree: Tree, present: NDArray[np.bool_]) -> None:
    total = np.zeros(2, np.int64)
    pending = int(tree.state[MAX_LEVEL] + 2) * int(tree.state[FANOUT] + 2)
    taken = np.zeros(int(tree.state[UNITS_USED]), np.bool_)
    scratch = CheckScratch(taken, np.empty((pending, TASK_WIDTH), np.int64), total)
    fault = find_fault(tree, present, scratch)
    _require(fault == _NONE, "nodes", _FAULTS[int(fault)])
    units, entries = total.tolist()
    in_use = int(tree.state[UNITS_USED] - tree.state[UNITS_FREED])
    _require(units == in_use, "state", f"has {in_use:,} units in use, but nodes have {units:,}")
    counted = int(tree.state[TOTAL_ENTRIES])
    _require(entries == counted, "state", f"has {counted:,} entries, but leaves have {entries:,}")


@kernel
def find_fault(tree: Tree, present: NDArray[np.bool_], scratch: CheckScratch) -> Number:
    """Walk the tree and return what is wrong with it, or 0.

    ``present`` bool[clauses] tells which clauses may be in the tree.
    """
    taken, stack, total = scratch
    arena, state, top = tree.arena, tree.state, np.int64(1)
    taken[0], total[0] = True, 1
    stack[0, TASK_LINK], stack[0, TASK_LEVEL], stack[0, TASK_OFFSET] = ROOT, 0, 0
    for side in range(4):
        stack[0, TASK_REGION + side] = state[BOUNDS + side]
    while top > 0:
        top -= 1
        node = stack[top]
        number, level = np.int64(arena[node[TASK_LINK]]), node[TASK_LEVEL]
        if number == 0:
            continue
        base = UNIT * number
        if number < 0 or base + HEADER > UNIT * state[UNITS_USED] + PADDING:
            return _OUTSIDE
        if level > state[MAX_LEVEL]:
            return _TOO_DEEP
        kind = arena[base]
        if kind == LEAF:
            fault, units = check_leaf(tree, base, present)
        elif kind == KEYWORDS or kind == SPACE:
            fault, units = check_inner(tree, base, node)
        else:
            return _KIND
        if fault != _NONE:
            return fault
        for unit in range(number, number + units):
            if taken[unit]:
                return _SHARED
            taken[unit] = True
        total[0] += units
        if kind == LEAF:
            total[1] += np.int64(arena[base + SIZE])
            continue
        for child in range(np.int64(arena[base + PARTS]) + 1):
            set_child_task(arena, base, child, level, stack[top])
            top += 1
    return _NONE


@kernel
def check_leaf(tree: Tree, base: Number, present: NDArray[np.bool_]) -> tuple[Number, Number]:
    """Return what is wrong with a leaf, or 0, and its units."""
    arena, state = tree.arena, tree.state
    first, end = state[FIRST_RANK], state[END_RANK]
    size, capacity = np.int64(arena[base + SIZE]), np.int64(arena[base + CAPACITY])
    units = np.int64(leaf_units(capacity))
    if size < 1 or size > capacity:
        return _LEAF_SIZE, units
    if base // UNIT + units > state[UNITS_USED]:
        return _LEAF_SIZE, units
    for i in range(size):
        key, tail = np.int64(arena[base + LEAF_HEADER + i]), tail_position(base, capacity, i)
        second, clause = np.int64(arena[tail + SECOND_RANK]) >> 1, np.int64(arena[tail + CLAUSE])
        known = first <= key < end and first <= second < end
        if not known and key != NO_RANK:
            return _ENTRY, units
        if clause < 0 or clause >= len(present) or not present[clause]:
            return _ENTRY, units
    return _NONE, units


@kernel
def check_inner(tree: Tree, base: Number, task: NDArray[np.int64]) -> tuple[Number, Number]:
    """Return what is wrong with an inner node, or 0, and its units."""
    arena, state = tree.arena, tree.state
    parts, columns = np.int64(arena[base + PARTS]), np.int64(arena[base + COLUMNS])
    length = np.int64(arena[base + LENGTH])
    units = np.int64(units_of(length))
    if parts < 1 or parts > state[FANOUT]:
        return _INNER_SIZE, units
    splits = 2 * parts
    if arena[base] == SPACE:
        if columns < 1 or columns > parts or parts % columns != 0:
            return _INNER_SIZE, units
        splits = columns + parts // columns - 2
    if arena[base + CHILDREN] != HEADER + splits or length != HEADER + splits + 3 * (parts + 1):
        return _INNER_SIZE, units
    if base // UNIT + units > state[UNITS_USED]:
        return _INNER_SIZE, units
    if arena[base + OFFSET] != task[TASK_OFFSET]:
        return _PLACE, units
    for side in range(4):
        if arena[base + REGION + side] != task[TASK_REGION + side]:
            return _PLACE, units
    first = base + HEADER
    if arena[base] == KEYWORDS:
        if not cuts_ascend(arena, first, parts):
            return _ORDER, units
    else:
        rows = first + columns - 1
        if not splits_ascend(arena, first, columns - 1, task[TASK_REGION], task[TASK_REGION + 2]):
            return _ORDER, units
        if not splits_ascend(
            arena, rows, splits - columns + 1, task[TASK_REGION + 1], task[TASK_REGION + 3]
        ):
            return _ORDER, units
    if min(arena[base + COUNT], arena[base + BUILT_COUNT], arena[base + CHANGES]) < 0:
        return _COUNTS, units
    counts = base + np.int64(arena[base + CHILDREN]) + parts + 1
    for i in range(counts, counts + 2 * (parts + 1)):
        if arena[i] < 0:
            return _COUNTS, units
    return _NONE, units


@kernel
def cuts_ascend(arena: NDArray[np.int32], highest: Number, parts: Number) -> Number:
    """Tell whether every cut ends where it begins or later, and before the next one begins."""
    lowest = highest + parts
    for i in range(parts):
        if arena[lowest + i] > arena[highest + i]:
            return False
        if i > 0 and arena[highest + i - 1] >= arena[lowest + i]:
            return False
    return True


@kernel
def splits_ascend(
    arena: NDArray[np.int32], begin: Number, splits: Number, low: Number, high: Number
) -> Number:
    """Tell whether splits ascend strictly, above ``low`` and up to ``high``."""
    before = low
    for i in range(begin, begin + splits):
        if arena[i] <= before or arena[i] > high:
            return False
        before = np.int64(arena[i])
    return True
