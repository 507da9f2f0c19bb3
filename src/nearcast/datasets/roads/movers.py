"""Movers: subscribers that drive on roads, with a box around each."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns import UNITS, read_only
from nearcast.datasets.roads.hashing import (
    GOAL,
    MOBILITY,
    SIDE,
    SPEED,
    START_ARC,
    START_OFFSET,
    draw_all,
    draw_key,
)
from nearcast.datasets.roads.routes import Routes
from nearcast.datasets.roads.speeds import meters_per_tick
from nearcast.datasets.roads.travel import (
    MoverState,
    Pulse,
    Roads,
    Turns,
    advance_movers,
    draw_goals,
    write_boxes,
)
from nearcast.errors import InvalidInput, UnknownName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.datasets.roads.network import RoadNetwork

__all__ = ["ROUTES", "SPEED_FACTORS", "Motion", "Movers", "Moves"]

ROUTES = ("destinations", "wander")
"""How movers choose their way."""

SPEED_FACTORS = (0.6, 0.8, 1.0)
"""A mover drives at one of these shares of the speed of a road."""

_MAX_MOVERS = 2**31 - 1


@dataclass(frozen=True)
class Motion:
    """How movers move.

    Parameters
    ----------
    route
        ``destinations``: the fastest way to a destination, then to the next. ``wander``: at each
        node an arc is drawn, better roads and straight on more often, never back on the same road.
    destinations, goals
        The number of destinations, and how they are drawn: see `Routes.find`.
    speeds
        ``slow``, ``medium``, ``fast``, ``roads`` or km/h by road class: see `meters_per_tick`.
    velocity
        A factor of all speeds.
    mobility
        The share of movers that move in a tick.
    interval
        Movers report every ``interval``-th tick.
    tick_s
        The seconds of a tick.
    box_share
        Smallest and largest area of a mover's box, as a share of the frame of the network. Sides
        are drawn uniformly between those of the two areas.
    capacity_per_km
        Movers that a kilometer of road takes at full speed; with more on an arc, its speed falls in
        proportion. None: roads never congest.
    """

    route: str = "destinations"
    destinations: int = 256
    goals: str = "nodes"
    speeds: str | Sequence[float] = "medium"
    velocity: float = 1.0
    mobility: float = 0.4
    interval: int = 1
    tick_s: float = 30.0
    box_share: tuple[float, float] = (0.0001, 0.01)
    capacity_per_km: float | None = None

    def __post_init__(self) -> None:
        if self.route not in ROUTES:
            raise UnknownName("route", self.route, ROUTES)
        for name in ("velocity", "tick_s", "capacity_per_km"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise InvalidInput(name, value, "must be a number above 0")
        if not 0 <= self.mobility <= 1:
            raise InvalidInput("mobility", self.mobility, "must be from 0 to 1")
        if self.interval < 1:
            raise InvalidInput("interval", self.interval, "must be a whole number of at least 1")
        smallest, largest = self.box_share
        if not 0 <= smallest <= largest <= 1:
            problem = "must be two shares, 0 <= smallest <= largest <= 1"
            raise InvalidInput("box_share", self.box_share, problem)


class Moves(NamedTuple):
    """The movers that reported in a tick, ascending, and their new boxes.

    ``mover`` int32[n] are rows of `Movers`, ``box`` int32[n, 4] is in units of 1e-7 degree.
    """

    mover: NDArray[np.int32]
    box: NDArray[np.int32]


class Movers:
    """Movers on a road network, moved tick by tick.

    Where a mover is after a number of ticks depends on the seed, its number and the `Motion`, but
    not on which other movers there are, nor on their order (without congestion).

    Parameters
    ----------
    network
        The roads.
    movers
        How many movers, numbered from 0; or their numbers.
    seed
        A whole number of at least 0.
    routes
        The routes, if they are known already: finding them takes about a second.
    changes
        Fields of `Motion` to change, such as ``mobility=0.8``.

    Examples
    --------
    >>> from nearcast.datasets.roads import lattice
    >>> movers = Movers(lattice(lines=20, seed=1), 1000, seed=7, mobility=0.5)
    >>> moves = movers.tick()
    >>> len(moves.mover), moves.box.shape, movers.ticks
    (489, (489, 4), 1)
    >>> bool((movers.boxes()[moves.mover] == moves.box).all())
    True
    """

    def __init__(
        self,
        network: RoadNetwork,
        movers: int | NDArray[Any],
        seed: int = 0,
        *,
        routes: Routes | None = None,
        **changes: Any,
    ) -> None:
        valid = [field.name for field in fields(Motion)]
        for name in changes:
            if name not in valid:
                raise UnknownName("option", name, valid, of="movers")
        if seed < 0:
            raise InvalidInput("seed", seed, "must be at least 0")
        self.network = network
        self.seed = seed
        self.motion = motion = Motion(**changes)
        self.number = _numbers(movers)
        self.ticks = 0
        meters = meters_per_tick(network, motion.speeds, motion.tick_s)
        self.routes = _find_routes(network, meters, motion, seed) if routes is None else routes
        self._arc_speed = meters[network.arc_class] * motion.velocity
        self._roads = Roads(
            network.arc_start,
            network.arc_to,
            network.arc_length_m,
            read_only(self._arc_speed, np.float64),
            self.routes.destination,
            self.routes.hop,
            _turns(network),
            network.polylines,
        )
        self._goal_key = draw_key(seed, GOAL)
        self._mobility_key = draw_key(seed, MOBILITY)
        self._state = self._start()

    def __len__(self) -> int:
        return len(self.number)

    @property
    def arc(self) -> NDArray[np.int32]:
        """The arc that each mover is on."""
        return _view(self._state.arc)

    @property
    def offset_m(self) -> NDArray[np.float64]:
        """The meters from the start of the arc to each mover."""
        return _view(self._state.offset_m)

    @property
    def goal(self) -> NDArray[np.int16]:
        """The number of each mover's destination in ``routes.destination``."""
        return _view(self._state.goal)

    @property
    def trip(self) -> NDArray[np.int64]:
        """How many goals each mover has reached; if they wander, how many nodes it has passed."""
        return _view(self._state.trip)

    @property
    def factor(self) -> NDArray[np.float64]:
        """Each mover's share of the speed of roads: one of `SPEED_FACTORS`."""
        return _view(self._state.factor)

    def places(self) -> NDArray[np.int32]:
        """Return longitude and latitude of all movers now, in units: int32[n, 2]."""
        return self.network.places_at(self._state.arc, self._state.offset_m)

    def boxes(self) -> NDArray[np.int32]:
        """Return the boxes of all movers now, reported or not: int32[n, 4]."""
        box = np.empty((len(self), 4), np.int32)
        write_boxes(self.network.polylines, self._state, box)
        return box

    def tick(self) -> Moves:
        """Move everyone for one tick; return the moves of those that report."""
        self.ticks += 1
        motion = self.motion
        pulse = Pulse(
            self.ticks, motion.mobility, motion.interval, self._mobility_key, self._goal_key
        )
        mover, box = np.empty(len(self), np.int32), np.empty((len(self), 4), np.int32)
        roads = self._roads._replace(speed=self._speeds())
        count = advance_movers(roads, self._state, pulse, mover, box)
        return Moves(mover[:count], box[:count])

    def _speeds(self) -> NDArray[np.float64]:
        """Return the speed of each arc, with the load that it has now."""
        if self.motion.capacity_per_km is None:
            return self._roads.speed
        capacity = self.motion.capacity_per_km * self.network.arc_length_m / 1_000
        load = np.bincount(self._state.arc, minlength=self.network.arcs)
        # One mover is never in its own way, however short the arc.
        free = np.minimum(np.maximum(capacity, 1) / np.maximum(load, 1), 1)
        return read_only(self._arc_speed * free, np.float64)

    def _start(self) -> MoverState:
        """Put everyone on the roads, and draw speeds, sides and goals."""
        count, seed, number = len(self.number), self.seed, self.number
        arc, offset_m = self.network.draw_arcs(
            draw_all(seed, START_ARC, number), draw_all(seed, START_OFFSET, number)
        )
        factor = np.array(SPEED_FACTORS)[
            (draw_all(seed, SPEED, number) * len(SPEED_FACTORS)).astype(np.int64)
        ]
        smallest, largest = np.sqrt(self.motion.box_share)
        side = smallest + (largest - smallest) * draw_all(seed, SIDE, number)
        west, south, east, north = self.network.frame
        size = np.rint(side[:, None] * np.array([east - west, north - south])).astype(np.int32)
        state = MoverState(
            number,
            arc,
            offset_m,
            np.zeros(count, np.int16),
            np.zeros(count, np.int64),
            factor,
            size,
            np.zeros(count, np.bool_),
        )
        if len(self.routes.destination):
            draw_goals(self._roads, state, self._goal_key)
        return state


def _numbers(movers: int | NDArray[Any]) -> NDArray[np.int64]:
    """Return the numbers of movers, which are counted or given."""
    if isinstance(movers, np.ndarray):
        number = movers.astype(np.int64)
        if number.ndim != 1 or (number < 0).any():
            raise InvalidInput("movers", movers.shape, "must be a row of whole numbers, 0 or more")
        return number
    if not 0 <= movers <= _MAX_MOVERS:
        raise InvalidInput("movers", movers, f"must be from 0 to {_MAX_MOVERS:,}")
    return np.arange(movers, dtype=np.int64)


def _find_routes(
    network: RoadNetwork, meters: NDArray[np.float64], motion: Motion, seed: int
) -> Routes:
    if motion.route == "wander":
        return Routes.none()
    return Routes.find(
        network, meters, destinations=motion.destinations, goals=motion.goals, seed=seed
    )


def _turns(network: RoadNetwork) -> Turns:
    """Return what movers that wander choose by: directions of arcs on the map, and their class."""
    first, last = network.point_start[:-1], network.point_start[1:] - 1
    weight = 0.5 ** network.arc_class.astype(np.float64)
    leaving = _directions(network, first, first + 1)
    arriving = _directions(network, last - 1, last)
    arrays = (weight, leaving, arriving)
    return Turns(network.arc_back, *(read_only(array, np.float64) for array in arrays))


def _directions(
    network: RoadNetwork, begin: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the directions from points to points, of length 1; or 0 where they coincide."""
    _, south, _, north = network.frame
    step = (network.point[end].astype(np.int64) - network.point[begin]).astype(np.float64)
    step[:, 0] *= np.cos(np.radians((south + north) / 2 / UNITS))
    length = np.hypot(step[:, 0], step[:, 1])
    directions: NDArray[np.float64] = step / np.maximum(length, 1e-9)[:, None]
    return directions


def _view(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view."""
    view = array.view()
    view.setflags(write=False)
    return view
