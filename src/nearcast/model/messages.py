"""A message: words at a place, at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nearcast.columns import WORLD
from nearcast.errors import InvalidInput, RegionError
from nearcast.model import checks
from nearcast.model.checks import units
from nearcast.model.regions import Point, Rect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nearcast.model.checks import Id, Time, Tokenize

__all__ = ["Message"]


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """Words at a place, at a time.

    Parameters
    ----------
    id
        A string that is not empty, or an integer of 64 bits; it comes back as given.
    place
        A `Point` or ``(lon, lat)``, or a `Rect`.
    text
        What it says.
    tokens
        Its words, instead of the text. Each goes through the tokenizer too.
    time
        When it was sent: a datetime (naive ones are UTC) or seconds since 1970. None means when it
        is published.
    ttl_s
        How many seconds it lives, from its time on, the end excluded.

    Examples
    --------
    >>> Message("m1", (13.4, 52.5), "Best coffee in town").place
    Point(lon=13.4, lat=52.5)
    """

    id: Id
    place: Point | Rect
    text: str | None
    tokens: tuple[str, ...] | None
    time: Time | None
    ttl_s: float

    def __init__(
        self,
        id: Id,
        place: Point | Rect | tuple[float, float],
        text: str | None = None,
        tokens: Sequence[str] | None = None,
        time: Time | None = None,
        ttl_s: float = 0.0,
    ) -> None:
        if (text is None) == (tokens is None):
            problem = "give either text or tokens; text='' for a message without words"
            raise InvalidInput("text", text, problem)
        put = object.__setattr__
        put(self, "id", checks.identifier("id", id))
        put(self, "place", _place(place))
        put(self, "text", None if text is None else checks.text("text", text))
        put(self, "tokens", None if tokens is None else _tokens(tokens))
        put(self, "time", time)
        put(self, "ttl_s", ttl_s)
        if time is not None:
            checks.time_us("time", time)
        checks.duration_us("ttl_s", ttl_s)

    def words(self, tokenize: Tokenize) -> set[str]:
        """Return the set of tokens of the message.

        Parameters
        ----------
        tokenize
            The tokenizer that subscriptions go through too.
        """
        texts = (self.text,) if self.text is not None else self.tokens or ()
        return {token for text in texts for token in tokenize(text)}

    def box(self) -> tuple[int, int, int, int]:
        """Return west, south, east and north in units; west > east across the antimeridian.

        180 and -180 are one meridian: a box that touches it from one side is made to touch it from
        both.

        Examples
        --------
        >>> Message("m1", (180.0, 0.0), "").box()
        (1800000000, 0, -1800000000, 0)
        """
        place = self.place
        if isinstance(place, Point):
            west, south = units(place.lon), units(place.lat)
            east, north = west, south
        else:
            west, south = units(place.west), units(place.south)
            east, north = units(place.east), units(place.north)
        if east == WORLD[2] and west != WORLD[0]:
            east = WORLD[0]
        elif west == WORLD[0] and east != WORLD[2]:
            west = WORLD[2]
        return west, south, east, north

    @property
    def time_us(self) -> int | None:
        """When it was sent, in microseconds since 1970; None means when it is published."""
        return None if self.time is None else checks.time_us("time", self.time)

    @property
    def ttl_us(self) -> int:
        """How many microseconds it lives."""
        return checks.duration_us("ttl_s", self.ttl_s)


def _place(value: object) -> Point | Rect:
    if isinstance(value, (Point, Rect)):
        return value
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return Point(*value)
    raise RegionError("place", value, "must be a Point, (lon, lat) or a Rect")


def _tokens(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise InvalidInput("tokens", value, "must be a list of strings; use text for a sentence")
    return tuple(checks.text("tokens", token) for token in value)
