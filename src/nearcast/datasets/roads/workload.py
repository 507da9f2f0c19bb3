"""Moving subscriptions and messages on roads, tick by tick, as columns for benchmarks."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import UNITS, WORLD, Clauses, Messages
from nearcast.compiled.distances import METERS_PER_UNIT
from nearcast.datasets.roads.hashing import (
    MESSAGE_ARC,
    MESSAGE_OFFSET,
    NOISE,
    NOISE_DIRECTION,
    draw_all,
)
from nearcast.datasets.tables import START_US
from nearcast.errors import InvalidInput, UnknownName

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

    from nearcast.datasets.roads.movers import Movers
    from nearcast.datasets.workloads import Workload

__all__ = ["MESSAGE_PLACES", "MovingWorkload", "Tick"]

MESSAGE_PLACES = ("roads", "dataset")
"""Where messages come from."""

_BLOCK = 16_384
"""Words are drawn in blocks of rows, so that a row does not depend on how many are asked for."""

_NOISE_M = 100.0
_LIFE_TICKS = 10


class Tick(NamedTuple):
    """What happens at one time: first the moves, then the messages.

    ``mover`` int32[n] are rows of the subscriptions, ascending, ``box`` int32[n, 4] their new boxes
    in units of 1e-7 degree.
    """

    number: int
    time_us: int
    mover: NDArray[np.int32]
    box: NDArray[np.int32]
    messages: Messages


class MovingWorkload:
    """Subscriptions that move with `Movers`, and messages that arrive and live for a while.

    Parameters
    ----------
    movers
        The movers; each has one subscription.
    words
        The data set that words come from.
    arrivals
        Messages per tick. A fraction f gives floor(f t) messages in the first t ticks.
    ttl_s
        How long messages live; ten ticks unless given.
    tokens
        Minimum and maximum tokens of a message; those of the data set unless given.
    message_places
        ``roads``: on a road, the longer the more often, with normal noise of 100 m. ``dataset``:
        the locations of ``words``, mapped from the world into the frame of the network.

    Examples
    --------
    >>> from nearcast.datasets import Workload
    >>> from nearcast.datasets.roads import Movers, lattice
    >>> movers = Movers(lattice(lines=20, seed=1), 1000, seed=7)
    >>> workload = MovingWorkload(movers, Workload("tweets", seed=7), arrivals=50)
    >>> clauses = workload.subscriptions()
    >>> tick = workload.tick()
    >>> len(clauses), tick.number, len(tick.mover), len(tick.messages)
    (1000, 1, 385, 50)
    """

    def __init__(
        self,
        movers: Movers,
        words: Workload,
        *,
        arrivals: int | Fraction = 50_000,
        ttl_s: float | None = None,
        tokens: tuple[int, int] | None = None,
        message_places: str = "roads",
    ) -> None:
        if arrivals < 0:
            raise InvalidInput("arrivals", arrivals, "must be at least 0")
        if message_places not in MESSAGE_PLACES:
            raise UnknownName("message_places", message_places, MESSAGE_PLACES)
        tick_s = movers.motion.tick_s
        self.movers = movers
        self.words = words
        self.arrivals = arrivals
        self.ttl_s = _LIFE_TICKS * tick_s if ttl_s is None else ttl_s
        if not 0 <= self.ttl_s < np.inf:
            raise InvalidInput("ttl_s", ttl_s, "must be a number of seconds, 0 or more")
        self.message_places = message_places
        self.tokens = tokens or words.profile.message_tokens
        self._block_of_messages = lru_cache(maxsize=1)(self._draw_messages)

    @property
    def ticks(self) -> int:
        """The number of the last tick."""
        return self.movers.ticks

    def time_us(self, tick: int) -> int:
        """Return the time of a tick, in microseconds since 1970; subscriptions begin at tick 0."""
        return START_US + round(tick * self.movers.motion.tick_s * 1_000_000)

    def subscriptions(self, first: int = 0, last: int | None = None) -> Clauses:
        """Return the subscriptions of the movers of these rows, with the boxes that they have now.

        The words of a subscription depend on the seed and the mover's number only.
        """
        box = self.movers.boxes()[first:last]
        block, row = np.divmod(self.movers.number[first:last], _BLOCK)
        order = np.argsort(block, kind="stable")
        parts = [Clauses.empty()]
        for number in np.unique(block).tolist():
            drawn = self.words.subscriptions(_BLOCK, first=number * _BLOCK)
            parts.append(drawn.take(row[order][block[order] == number]))
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return replace(Clauses.concatenate(parts).take(back), box=box)

    def tick(self) -> Tick:
        """Move everyone for one tick, and draw the messages that arrive in it."""
        moves = self.movers.tick()
        first, last = self.arrived(self.ticks - 1), self.arrived(self.ticks)
        time_us = self.time_us(self.ticks)
        messages = self.messages(first, last, time_us)
        return Tick(self.ticks, time_us, moves.mover, moves.box, messages)

    def no_events(self) -> Tick:
        """Return a tick without events, at the time of the last one."""
        none = np.empty(0, np.int32)
        time_us = self.time_us(self.ticks)
        return Tick(self.ticks, time_us, none, none.reshape(0, 4), self.messages(0, 0, time_us))

    def arrived(self, ticks: int) -> int:
        """Return how many messages arrive in the first ``ticks`` ticks."""
        return int(ticks * self.arrivals // 1)

    def messages(self, first: int, last: int, time_us: int) -> Messages:
        """Return the messages with the numbers from ``first`` to ``last``, at one time.

        A message depends on the seed and its number only.
        """
        parts = [Messages.of([], np.empty((0, 4)))]
        for block in range(first // _BLOCK, -(-last // _BLOCK)):
            begin = block * _BLOCK
            rows = np.arange(max(first - begin, 0), min(last - begin, _BLOCK))
            parts.append(self._block_of_messages(block).take(rows))
        count = last - first
        ttl_us = round(self.ttl_s * 1_000_000)
        return replace(
            _concatenate(parts),
            time_us=np.full(count, time_us, np.int64),
            ttl_us=np.full(count, ttl_us, np.int64),
        )

    def _draw_messages(self, block: int) -> Messages:
        """Draw a block of messages: words of the data set, and places."""
        first = block * _BLOCK
        drawn = self.words.messages(_BLOCK, tokens=self.tokens, first=first)
        if self.message_places == "dataset":
            place = self._in_frame(drawn.box[:, :2])
        else:
            place = self._near_roads(np.arange(first, first + _BLOCK))
        return replace(drawn, box=np.concatenate([place, place], axis=1))

    def _near_roads(self, number: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return places on roads, moved by normal noise, inside the world."""
        network, seed = self.movers.network, self.movers.seed
        arc, offset_m = network.draw_arcs(
            draw_all(seed, MESSAGE_ARC, number), draw_all(seed, MESSAGE_OFFSET, number)
        )
        place = network.places_at(arc, offset_m).astype(np.float64)
        # Two uniform numbers give two normal ones (Box and Muller, 1958).
        away = np.sqrt(-2 * np.log1p(-draw_all(seed, NOISE, number))) * _NOISE_M / METERS_PER_UNIT
        angle = draw_all(seed, NOISE_DIRECTION, number) * 2 * np.pi
        narrow = np.cos(np.radians(place[:, 1] / UNITS))
        place[:, 0] += away * np.cos(angle) / np.maximum(narrow, 0.01)
        place[:, 1] += away * np.sin(angle)
        return np.rint(np.clip(place, WORLD[:2], WORLD[2:])).astype(np.int32)

    def _in_frame(self, place: NDArray[np.int32]) -> NDArray[np.int32]:
        """Map places from the world into the frame of the network."""
        west, south, east, north = self.movers.network.frame
        share = (place - np.array(WORLD[:2])) / (np.array(WORLD[2:]) - WORLD[:2])
        mapped = np.array([west, south]) + share * np.array([east - west, north - south])
        inside: NDArray[np.int32] = np.rint(mapped).astype(np.int32)
        return inside


def _concatenate(parts: list[Messages]) -> Messages:
    length = np.concatenate([np.diff(part.token_start) for part in parts])
    return Messages(
        np.concatenate([[0], np.cumsum(length)]),
        np.concatenate([part.token for part in parts]),
        np.concatenate([part.box for part in parts]),
        np.concatenate([part.time_us for part in parts]),
        np.concatenate([part.ttl_us for part in parts]),
    )
