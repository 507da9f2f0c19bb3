"""A message: text at a place and a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from nearcast.columns import WORLD
from nearcast.errors import InvalidInput, RegionError
from nearcast.model import checks
from nearcast.model.checks import units
from nearcast.model.close_names import own_names
from nearcast.model.derived import scope_token
from nearcast.model.json_form import (
    message_place,
    place_fields,
    read_fields,
    required,
    write_time,
)
from nearcast.model.regions import Point, Rect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nearcast.model.checks import AnyDuration, AnyTime, Id, Time, Tokenize

__all__ = ["Message"]


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """Text at a place and a time.

    Parameters
    ----------
    id
        A non-empty string or a 64-bit integer.
    place
        A `Point` or ``(lon, lat)``, or a `Rect`.
    text
        The text of the message.
    tokens
        The words of the message, instead of a text. Each goes through the tokenizer too.
    time
        When it was sent: a datetime or date (UTC if it has no time zone), ISO 8601 text, or seconds
        since 1970. None means the time at which it is published.
    ttl_s
        How many seconds it lives from its time on, the end excluded; also as a timedelta.
    scope
        The name of its scope, such as a tenant. Subscriptions of other scopes do not match it.

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
    scope: str | None

    def __init__(
        self,
        id: Id,
        place: Point | Rect | tuple[float, float],
        text: str | None = None,
        tokens: Sequence[str] | None = None,
        time: AnyTime | None = None,
        ttl_s: AnyDuration = 0.0,
        scope: str | None = None,
    ) -> None:
        if (text is None) == (tokens is None):
            problem = "give either text or tokens; text='' if there are no words"
            raise InvalidInput("text", text, problem)
        put = object.__setattr__
        put(self, "id", checks.identifier("id", id))
        put(self, "place", _place(place))
        put(self, "text", None if text is None else checks.text("text", text))
        put(self, "tokens", None if tokens is None else _tokens(tokens))
        put(self, "time", None if time is None else checks.moment("time", time))
        put(self, "ttl_s", checks.seconds("ttl_s", ttl_s))
        put(self, "scope", None if scope is None else checks.name("scope", scope))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Return the message that a JSON object describes.

        Parameters
        ----------
        fields
            The columns of a file of messages: ``id``; ``text`` or ``tokens``; ``lon, lat`` or
            ``west, south, east, north``, or a point as ``geometry``; optionally ``time`` (ISO 8601
            text or seconds since 1970), ``ttl_s`` and ``scope``. Other fields are ignored.

        Examples
        --------
        >>> record = {"id": 7, "text": "Hot tea", "lon": 13.4, "lat": 52.5, "ttl_s": 60}
        >>> Message.from_dict(record).place
        Point(lon=13.4, lat=52.5)
        """
        given = read_fields(own_names(fields, "messages"), "message")
        return cls(
            required(given, "id"),
            message_place(given),
            given.get("text"),
            given.get("tokens"),
            given.get("time"),
            given.get("ttl_s", 0.0),
            given.get("scope"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the message as an object for JSON, of which `from_dict` makes the same message.

        Examples
        --------
        >>> Message(7, (13.4, 52.5), "Hot tea", time=1.5).to_dict()
        {'id': 7, 'text': 'Hot tea', 'lon': 13.4, 'lat': 52.5, 'time': 1.5}
        """
        fields: dict[str, Any] = {"id": self.id}
        if self.text is not None:
            fields["text"] = self.text
        if self.tokens is not None:
            fields["tokens"] = list(self.tokens)
        fields |= place_fields(self.place, point=True)
        if self.time is not None:
            fields["time"] = write_time(self.time)
        if self.ttl_s:
            fields["ttl_s"] = float(self.ttl_s)
        if self.scope is not None:
            fields["scope"] = self.scope
        return fields

    def words(self, tokenize: Tokenize) -> set[str]:
        """Return the set of tokens of the message, that of its scope too.

        Parameters
        ----------
        tokenize
            The tokenizer of the subscriptions.
        """
        texts = (self.text,) if self.text is not None else self.tokens or ()
        found = {token for text in texts for token in tokenize(text)}
        return found if self.scope is None else found | {scope_token(self.scope)}

    def box(self) -> tuple[int, int, int, int]:
        """Return west, south, east and north in units; west > east across the antimeridian.

        180 and -180 are the same meridian: a box that touches it on one side is extended to touch
        it on both.

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
        """The time in microseconds since 1970; None means the time at which it is published."""
        return None if self.time is None else checks.time_us("time", self.time)

    @property
    def ttl_us(self) -> int:
        """The time to live in microseconds."""
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
