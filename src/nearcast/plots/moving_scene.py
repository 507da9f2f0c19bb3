"""A small town with subscribers who drive, told by an engine: the story of the moving picture.

Roads, drivers and the places of messages come from `nearcast.datasets.roads`; which matches begin
and end is what an `Engine` says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.columns import UNITS
from nearcast.datasets import Workload
from nearcast.datasets.roads import Movers, MovingWorkload, lattice, move_table
from nearcast.engine import Engine
from nearcast.model import Message, Rect, Subscription

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from nearcast.datasets.roads import RoadNetwork, Tick
    from nearcast.model import Match

__all__ = ["SUBSCRIBERS", "TEXTS", "Living", "Moment", "Scene", "SceneUpdate", "play_scene"]

SUBSCRIBERS = {"ann": "coffee", "ben": "jazz", "cid": "bikes", "dan": "coffee"}
"""Who drives around, and the word that each wants."""

TEXTS = {
    "coffee": ("free coffee", "coffee for two", "iced coffee", "coffee to go"),
    "jazz": ("jazz tonight", "street jazz", "jazz trio", "free jazz"),
    "bikes": ("used bikes", "bikes to rent", "bikes fixed", "lost bikes"),
}
"""What messages say."""

PUBLISHED, EXPIRED, CAME_NEAR, DROVE_ON = "published", "expired", "came near", "drove on"
"""Why a match begins or ends."""

_LINES, _SIDE_KM = 14, 5.0
_TICK_S = 4.0
_TTL_S = 160.0
_ARRIVALS = Fraction(1, 2)
_SPEEDS_KMH = (60.0, 50.0, 40.0)
_BOX_SHARE = (0.06, 0.09)


class Living(NamedTuple):
    """A message that is alive: its id, word and text, where it is, and its share of life left."""

    id: str
    word: str
    text: str
    place: tuple[float, float]
    left: float


class SceneUpdate(NamedTuple):
    """A match that begins (sign +1) or ends (-1), and why."""

    time_s: float
    name: str
    message: str
    sign: int
    cause: str


@dataclass(frozen=True)
class Moment:
    """What is there after one tick, and what has changed in it.

    Attributes
    ----------
    time_s
        Seconds since the scene began.
    place, box
        Where the subscribers are, and their regions, in degrees, in the order of `SUBSCRIBERS`.
    messages
        The messages that are alive.
    updates
        What the engine reported in this tick.
    near
        Which messages match whom: the sum of all updates until now.
    """

    time_s: float
    place: NDArray[np.float64]
    box: NDArray[np.float64]
    messages: tuple[Living, ...]
    updates: tuple[SceneUpdate, ...]
    near: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Scene:
    """The roads, the texts and places of all messages by their ids, and all moments."""

    roads: RoadNetwork
    texts: dict[str, str]
    places: dict[str, tuple[float, float]]
    moments: tuple[Moment, ...]


def play_scene(ticks: int = 120, seed: int = 0) -> Scene:
    """Let subscribers drive and messages come and go, and note what an engine reports.

    Parameters
    ----------
    ticks
        The number of moments.
    seed
        The same seed gives the same scene.

    Examples
    --------
    >>> scene = play_scene(ticks=30, seed=1)
    >>> len(scene.moments), sorted({u.sign for m in scene.moments for u in m.updates})
    (30, [-1, 1])
    """
    return _Play(seed).run(ticks)


class _Play:
    """The engine, the drivers, and what is alive."""

    def __init__(self, seed: int) -> None:
        self.movers = Movers(
            lattice(_LINES, seed, side_km=_SIDE_KM),
            len(SUBSCRIBERS),
            seed,
            speeds=_SPEEDS_KMH,
            tick_s=_TICK_S,
            mobility=1.0,
            box_share=_BOX_SHARE,
            destinations=32,
        )
        words = Workload("places", seed)
        self.traffic = MovingWorkload(self.movers, words, arrivals=_ARRIVALS, ttl_s=_TTL_S)
        self.start_us = self.now_us = self.traffic.time_us(0)
        self.engine = Engine(clock=lambda: self.now_us / 1_000_000)
        self.engine.subscribe(
            Subscription(name, Rect(*box.tolist()), [word])
            for (name, word), box in zip(SUBSCRIBERS.items(), self._boxes(), strict=True)
        )
        self.alive: dict[str, tuple[str, float]] = {}
        self.texts: dict[str, str] = {}
        self.places: dict[str, tuple[float, float]] = {}
        self.sums: Counter[tuple[str, str]] = Counter()
        self.rng = np.random.default_rng([seed, 11])

    def run(self, ticks: int) -> Scene:
        """Play all ticks; at one time, messages expire, then drivers move, then messages come."""
        with self.engine:
            moments = tuple(self._moment(self.traffic.tick()) for _ in range(ticks))
        return Scene(self.movers.network, self.texts, self.places, moments)

    def _moment(self, tick: Tick) -> Moment:
        self.now_us = tick.time_us
        now_s = tick.time_us / 1_000_000
        ended = self._reported(self.engine.advance(now_s), {-1: EXPIRED})
        moved = self.engine.move_table(self._moves(tick)).updates
        begun = self._published(self.engine.publish(self._arrivals(tick, now_s)))
        updates = (*ended, *self._reported(moved, {1: CAME_NEAR, -1: DROVE_ON}), *begun)
        for update in updates:
            self.sums[update.name, update.message] += update.sign
        self.alive = {id: one for id, one in self.alive.items() if one[1] > now_s}
        return Moment(
            self._since(now_s),
            self.movers.places() / UNITS,
            self._boxes(),
            tuple(
                Living(id, word, self.texts[id], self.places[id], (end - now_s) / _TTL_S)
                for id, (word, end) in self.alive.items()
            ),
            updates,
            frozenset(pair for pair, total in self.sums.items() if total),
        )

    def _moves(self, tick: Tick) -> pa.Table:
        table = move_table(self.traffic, tick)
        names = pa.array([[*SUBSCRIBERS][row] for row in tick.mover.tolist()], pa.string())
        return table.set_column(0, "subscription_id", names)

    def _arrivals(self, tick: Tick, now_s: float) -> list[Message]:
        """Return the messages of a tick, with words of the town."""
        arrived = []
        for box in (tick.messages.box / UNITS).tolist():
            word = [*TEXTS][int(self.rng.integers(len(TEXTS)))]
            text = TEXTS[word][int(self.rng.integers(len(TEXTS[word])))]
            id, place = f"m{len(self.texts)}", (box[0], box[1])
            self.texts[id], self.places[id] = text, place
            self.alive[id] = word, now_s + _TTL_S
            arrived.append(Message(id, place, text, time=now_s, ttl_s=_TTL_S))
        return arrived

    def _reported(self, table: pa.Table, cause: dict[int, str]) -> list[SceneUpdate]:
        return [
            SceneUpdate(
                self._since(row["time"].timestamp()),
                row["subscription_id"],
                row["message_id"],
                row["sign"],
                cause[row["sign"]],
            )
            for row in table.to_pylist()
        ]

    def _published(self, matches: Iterable[Match]) -> list[SceneUpdate]:
        now = self._since(self.now_us / 1_000_000)
        return [
            SceneUpdate(now, str(match.subscription_id), str(match.message_id), 1, PUBLISHED)
            for match in matches
        ]

    def _boxes(self) -> NDArray[np.float64]:
        box: NDArray[np.float64] = self.movers.boxes() / UNITS
        return box

    def _since(self, time_s: float) -> float:
        return round(time_s - self.start_us / 1_000_000, 6)
