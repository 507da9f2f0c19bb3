"""The load: moving subscriptions and living messages, recorded tick by tick."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.columns import UNITS, place_conjunctions
from nearcast.compiled.distances import METERS_PER_UNIT
from nearcast.datasets import Workload
from nearcast.datasets.roads import Movers, MovingWorkload, lattice, load_roads
from nearcast.errors import InvalidInput
from nearcast.intake.places import read_regions
from nearcast.intake.rejects import RowErrors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from nearcast.columns import Clauses, Messages
    from nearcast.datasets.roads import Moves, RoadNetwork

__all__ = ["CITY", "COUNTY", "MovingLoad", "RecordedTick", "Recording", "Roads", "in_circles"]

_TICKS_OF_LIFE = 10


@dataclass(frozen=True)
class Roads:
    """A road network: files of nodes and edges, or a generated one of some lines."""

    lines: int
    side_km: float
    files: tuple[Path, Path] | None = None

    def network(self) -> RoadNetwork:
        """Return the network, which is read or generated once."""
        return _network(self)


CITY, COUNTY = Roads(82, 30.0), Roads(142, 100.0)
"""Generated networks of about 6,000 and 18,000 nodes."""


@cache
def _network(roads: Roads) -> RoadNetwork:
    if roads.files is not None:
        return load_roads(*roads.files)
    return lattice(roads.lines, 1, side_km=roads.side_km)


@dataclass(frozen=True)
class MovingLoad:
    """How many subscriptions and messages there are, and how they change in a tick.

    Parameters
    ----------
    subscriptions
        Number of subscriptions.
    messages, arrivals
        Number of living messages, and how many arrive and expire in a tick; a tenth if left out.
    dataset, changes
        The data set that words come from, and parameters of its profile to change.
    tokens
        Minimum and maximum tokens of a message; those of the data set if left out.
    roads
        The road network.
    velocity, mobility, box_share
        See `nearcast.datasets.roads.Motion`.
    circles
        Whether subscriptions are circles instead of boxes; a circle is as wide as its box.
    seed
        The same seed gives the same load.

    Examples
    --------
    >>> load = MovingLoad(subscriptions=500, messages=100)
    >>> recording = load.record(ticks=2)
    >>> len(recording.clauses), [len(part) for part in recording.fill][:3], len(recording.ticks)
    (500, [10, 10, 10], 2)
    """

    subscriptions: int = 1_000_000
    messages: int = 500_000
    arrivals: int | None = None
    dataset: str = "tweets"
    changes: Mapping[str, Any] = field(default_factory=dict)
    tokens: tuple[int, int] | None = None
    roads: Roads = CITY
    velocity: float = 1.0
    mobility: float = 0.4
    box_share: tuple[float, float] = (0.0001, 0.01)
    circles: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("subscriptions", "messages"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, getattr(self, name), "must be at least 1")
        if self.arrivals is not None and not 1 <= self.arrivals <= self.messages:
            problem = f"must be from 1 to the number of messages, {self.messages:,}"
            raise InvalidInput("arrivals", self.arrivals, problem)

    @property
    def arriving(self) -> int:
        """How many messages arrive in a tick."""
        return self.arrivals or max(1, self.messages // _TICKS_OF_LIFE)

    @property
    def ticks_of_life(self) -> int:
        """How many ticks a message lives."""
        return max(1, round(self.messages / self.arriving))

    def workload(self) -> MovingWorkload:
        """Return the movers at their first places, and their messages."""
        network = self.roads.network()
        movers = Movers(
            network,
            self.subscriptions,
            self.seed,
            velocity=self.velocity,
            mobility=self.mobility,
            box_share=self.box_share,
        )
        words = Workload(self.dataset, self.seed, **self.changes)
        tick_s = movers.motion.tick_s
        return MovingWorkload(
            movers,
            words,
            arrivals=self.arriving,
            ttl_s=self.ticks_of_life * tick_s,
            tokens=self.tokens,
        )

    def record(self, ticks: int, still: int = 0) -> Recording:
        """Draw the load: first ``still`` ticks of moves without messages, then ``ticks`` of all."""
        workload = self.workload()
        clauses = workload.subscriptions()
        if self.circles:
            clauses = in_circles(clauses, clauses.box)
        before = workload.movers.boxes()
        moves = [workload.movers.tick() for _ in range(still + ticks)]
        batches = self.ticks_of_life + ticks
        messages = [
            workload.messages(batch * self.arriving, (batch + 1) * self.arriving, 0)
            for batch in range(batches)
        ]
        return Recording(
            self,
            clauses,
            moves[:still],
            messages[: self.ticks_of_life],
            [
                RecordedTick(part, arriving, self._placed(clauses, part))
                for part, arriving in zip(
                    moves[still:], messages[self.ticks_of_life :], strict=True
                )
            ],
            _mean_step(before, moves, workload.movers.network.frame),
        )

    def _placed(self, clauses: Clauses, moves: Moves) -> Clauses | None:
        return in_circles(clauses.take(moves.mover), moves.box) if self.circles else None

    def to_dict(self) -> dict[str, Any]:
        """Return the load for JSON."""
        network = self.roads.network()
        roads = {"nodes": network.nodes, "arcs": network.arcs}
        values = asdict(self) | {"arrivals": self.arriving, "roads": roads}
        values |= {name: list(values[name]) for name in ("tokens", "box_share") if values[name]}
        values["changes"] = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self.changes.items()
        }
        return values


class RecordedTick(NamedTuple):
    """What happens in a tick: the oldest messages expire, subscriptions move, messages arrive.

    ``placed`` has the subscriptions that move, if they are circles.
    """

    moves: Moves
    messages: Messages
    placed: Clauses | None = None


@dataclass(frozen=True)
class Recording:
    """A load that was drawn: the same events for every index.

    ``step`` is the mean distance of a move, as a share of the side of the network.
    """

    load: MovingLoad
    clauses: Clauses
    still: list[Moves]
    fill: list[Messages]
    ticks: list[RecordedTick]
    step: float

    @cached_property
    def messages(self) -> int:
        """The number of living messages."""
        return sum(len(batch) for batch in self.fill)


def in_circles(clauses: Clauses, box: NDArray[np.int32]) -> Clauses:
    """Return subscriptions with the circles inside of boxes, one each, as their regions.

    Examples
    --------
    >>> from nearcast.columns import Clauses
    >>> box = np.array([[0, 0, 1000, 1000]], np.int32)
    >>> in_circles(Clauses.of([[1]], box), box).shape.tolist()
    [0]
    """
    middle = (box[:, :2].astype(np.int64) + box[:, 2:]) / 2 / UNITS
    radius_m = (box[:, 3].astype(np.int64) - box[:, 1]) / 2 * METERS_PER_UNIT
    table = pa.table({"lon": middle[:, 0], "lat": middle[:, 1], "radius_m": radius_m})
    regions = read_regions(table, RowErrors(table.num_rows))
    return place_conjunctions(clauses.conjunctions(), regions)


def _mean_step(
    before: NDArray[np.int32], moves: list[Moves], frame: tuple[int, int, int, int]
) -> float:
    """Return how far movers get in the first tick, as a share of the sides of the network."""
    if not moves or not len(moves[0].mover):
        return 0.0
    west, south, east, north = frame
    # Half of the sum of both corners: boxes keep their size.
    step = (moves[0].box.astype(np.int64) - before[moves[0].mover]).reshape(-1, 2, 2).mean(axis=1)
    return float(np.hypot(step[:, 0] / (east - west), step[:, 1] / (north - south)).mean())
