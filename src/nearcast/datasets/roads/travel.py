"""Kernels that move movers along arcs for one tick, and write where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import WORLD
from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel
from nearcast.datasets.roads.hashing import uniform
from nearcast.datasets.roads.network import Polylines, point_on_arc

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MoverState", "Roads", "Turns", "advance_movers", "draw_goals", "write_boxes"]

WEST, SOUTH, EAST, NORTH = (np.int64(side) for side in WORLD)

_TURN_BACK = np.float64(0.05)
"""The weight of a turn by 180 degrees; straight on has 2 more."""


class Roads(NamedTuple):
    """The arcs, how fast they are, and where they lead.

    - ``arc_start`` int64[nodes + 1], ``arc_to`` int32[arcs], ``length_m`` float64[arcs].
    - ``speed`` float64[arcs]: meters per tick of a mover of factor 1.
    - ``destination`` int32[K], ``hop`` uint8[K, nodes]: see `Routes`; without destinations movers
      wander.
    - ``turns``, ``polylines``.
    """

    arc_start: NDArray[np.int64]
    arc_to: NDArray[np.int32]
    length_m: NDArray[np.float64]
    speed: NDArray[np.float64]
    destination: NDArray[np.int32]
    hop: NDArray[np.uint8]
    turns: Turns
    polylines: Polylines


class Turns(NamedTuple):
    """What movers that wander choose by.

    - ``arc_back`` int32[arcs]: the arc of the other direction, or -1.
    - ``weight`` float64[arcs]: how often an arc is chosen, by its class.
    - ``leaving``, ``arriving`` float64[arcs, 2]: the direction (length 1) of the first and of the
      last step of an arc.
    """

    arc_back: NDArray[np.int32]
    weight: NDArray[np.float64]
    leaving: NDArray[np.float64]
    arriving: NDArray[np.float64]


class MoverState(NamedTuple):
    """Where movers are and what they want; one row per mover.

    - ``number`` int64: the mover, which decides all its draws.
    - ``arc`` int32, ``offset_m`` float64: meters from the start of its arc.
    - ``goal`` int16: its destination. ``trip`` int64: the goals reached, or for movers that wander
      the nodes passed.
    - ``factor`` float64: its share of the speed of a road.
    - ``size`` int32[n, 2]: width and height of its box, in units.
    - ``unreported`` bool: whether it moved since its last report.
    """

    number: NDArray[np.int64]
    arc: NDArray[np.int32]
    offset_m: NDArray[np.float64]
    goal: NDArray[np.int16]
    trip: NDArray[np.int64]
    factor: NDArray[np.float64]
    size: NDArray[np.int32]
    unreported: NDArray[np.bool_]


class Pulse(NamedTuple):
    """A tick: its number, who moves in it and who reports.

    A mover moves if its draw with ``mobility_key`` is below ``mobility``. It reports in every
    ``interval``-th tick. ``goal_key`` is the key of goals and turns.
    """

    tick: int
    mobility: float
    interval: int
    mobility_key: np.uint64
    goal_key: np.uint64


@kernel
def advance_movers(
    roads: Roads,
    state: MoverState,
    pulse: Pulse,
    mover: NDArray[np.int32],
    box: NDArray[np.int32],
) -> Number:
    """Move everyone for one tick; write rows and boxes of those that report, return how many.

    ``mover`` int32[n] and ``box`` int32[n, 4] have a row for each mover.
    """
    roads, state, box = borrow(roads), borrow(state), borrow(box)
    reports = 0
    for row in range(len(state.number)):
        number = state.number[row]
        if uniform(pulse.mobility_key, number, pulse.tick) < pulse.mobility:
            drive(roads, state, row, pulse.goal_key)
            state.unreported[row] = True
        if state.unreported[row] and (pulse.tick - number) % pulse.interval == 0:
            state.unreported[row] = False
            mover[reports] = row
            write_box(roads.polylines, state, row, box, reports)
            reports += 1
    return reports


@inlined_kernel
def drive(roads: Roads, state: MoverState, row: Number, goal_key: Number) -> None:
    """Move one mover for one tick, over as many arcs as it takes."""
    arc, factor = state.arc[row], state.factor[row]
    offset_m: Number = state.offset_m[row]
    left: Number = 1.0
    # In a `while True` with a break, Numba 0.68 loses the assignment of 0 to `offset_m`.
    speed = roads.speed[arc] * factor
    while offset_m + speed * left >= roads.length_m[arc]:
        left = max(left - (roads.length_m[arc] - offset_m) / speed, 0.0)
        arc = next_arc(roads, state, row, arc, goal_key)
        offset_m = 0.0
        speed = roads.speed[arc] * factor
    state.arc[row] = arc
    state.offset_m[row] = offset_m + speed * left


@inlined_kernel
def next_arc(roads: Roads, state: MoverState, row: Number, arc: Number, goal_key: Number) -> Number:
    """Return the arc to take at the end of an arc; draw the next goal if this one is reached."""
    node = roads.arc_to[arc]
    if len(roads.destination) == 0:
        state.trip[row] += 1
        drawn = uniform(goal_key, state.number[row], state.trip[row])
        return choose_turn(roads, arc, node, drawn)
    goal = state.goal[row]
    if roads.destination[goal] == node:
        state.trip[row] += 1
        goal = goal_of_trip(roads.destination, state, row, node, goal_key)
        state.goal[row] = goal
    return np.int32(roads.arc_start[node] + roads.hop[goal, node])


@kernel
def goal_of_trip(
    destination: NDArray[np.int32], state: MoverState, row: Number, node: Number, goal_key: Number
) -> Number:
    """Draw the goal of a mover's trip from ``node``; a goal is never where the trip begins."""
    drawn = uniform(goal_key, state.number[row], state.trip[row])
    goal = np.int64(drawn * len(destination))
    if destination[goal] == node:
        goal = (goal + 1) % len(destination)
    return np.int16(goal)


@kernel
def choose_turn(roads: Roads, arc: Number, node: Number, drawn: Number) -> Number:
    """Draw one of the arcs that leave a node, better roads and straight on more often.

    Nobody turns back on the same road, except at its end.
    """
    turns = roads.turns
    first, last = roads.arc_start[node], roads.arc_start[node + 1]
    total = 0.0
    for onward in range(first, last):
        if onward != turns.arc_back[arc]:
            total += turn_weight(turns, arc, onward)
    rest = drawn * total
    chosen: Number = turns.arc_back[arc]
    for onward in range(first, last):
        if onward != turns.arc_back[arc]:
            chosen = np.int32(onward)
            rest -= turn_weight(turns, arc, onward)
            if rest < 0.0:
                break
    return chosen


@kernel
def turn_weight(turns: Turns, arc: Number, onward: Number) -> Number:
    """Return the weight of going from one arc to another."""
    cosine = (
        turns.arriving[arc, 0] * turns.leaving[onward, 0]
        + turns.arriving[arc, 1] * turns.leaving[onward, 1]
    )
    return turns.weight[onward] * (1.0 + _TURN_BACK + cosine)


@kernel
def draw_goals(roads: Roads, state: MoverState, goal_key: Number) -> None:
    """Draw the goal of each mover's first trip, which begins at the end of its arc."""
    for row in range(len(state.number)):
        node = roads.arc_to[state.arc[row]]
        state.goal[row] = goal_of_trip(roads.destination, state, row, node, goal_key)


@kernel
def write_boxes(polylines: Polylines, state: MoverState, box: NDArray[np.int32]) -> None:
    """Write the boxes of all movers to ``box`` int32[n, 4]."""
    for row in range(len(state.number)):
        write_box(polylines, state, row, box, row)


@inlined_kernel
def write_box(
    polylines: Polylines, state: MoverState, row: Number, box: NDArray[np.int32], at: Number
) -> None:
    """Write the box around a mover to ``box[at]``, moved inside the world where it leaves it."""
    x, y = point_on_arc(polylines, state.arc[row], state.offset_m[row])
    width, height = np.int64(state.size[row, 0]), np.int64(state.size[row, 1])
    west = min(max(x - (width >> 1), WEST), EAST - width)
    south = min(max(y - (height >> 1), SOUTH), NORTH - height)
    box[at, 0], box[at, 1] = west, south
    box[at, 2], box[at, 3] = west + width, south + height
