"""The JSON form of subscriptions, messages, matches and updates.

``from_dict`` and ``to_dict`` of the model use it, and so do the readers of files with one JSON
object per line. The names of the fields are those of the columns in files. A field that is null or
missing is not given; fields with other names are ignored, unless they are nearly ours
(`nearcast.model.close_names`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from numbers import Integral
from typing import TYPE_CHECKING, Any

from nearcast.columns import UNITS, WORLD
from nearcast.errors import InvalidInput, RegionError
from nearcast.model.checks import identifier, moment, number
from nearcast.model.keywords import split_list
from nearcast.model.regions import Circle, Point, Rect, region

if TYPE_CHECKING:
    from collections.abc import Callable

    from nearcast.model.checks import Time
    from nearcast.model.regions import Region

__all__ = [
    "BOX",
    "CIRCLE",
    "FIELDS",
    "MESSAGE_PLACE",
    "POINT",
    "PROXIMITY_PLACE",
    "RADIUS_OF_GEOMETRY",
    "RADIUS_PROBLEM",
    "RANKED",
    "SUBSCRIPTION_PLACE",
    "message_geometry",
    "message_place",
    "place_fields",
    "proximity_place",
    "read_field",
    "read_fields",
    "required",
    "subscription_region",
    "write_time",
]

BOX = ("west", "south", "east", "north")
CIRCLE = ("lon", "lat", "radius_m")
POINT = ("lon", "lat")
RANKED = ("delta", "tau", "max_distance_m", "alpha", "theta")
"""The fields of ranked subscriptions."""

FIELDS = {
    "subscription": (
        "id",
        "keywords",
        "expression",
        *BOX,
        *CIRCLE,
        "geometry",
        "owner",
        "expires_at",
        *RANKED,
        "scope",
    ),
    "message": ("id", "text", "tokens", *POINT, *BOX, "geometry", "time", "ttl_s", "scope"),
    "match": ("message_id", "subscription_id", "score"),
    "update": ("time", "subscription_id", "message_id", "sign", "score"),
}
"""The names of the fields of each kind of record."""

SUBSCRIPTION_PLACE = "give west, south, east, north; or lon, lat, radius_m; or geometry"
PROXIMITY_PLACE = "give lon, lat; or a point as geometry"
RADIUS_PROBLEM = "leave it out: max_distance_m says how far a ranked subscription reaches"
RADIUS_OF_GEOMETRY = "cannot be used with geometry; give lon, lat, radius_m for a circle"
MESSAGE_PLACE = "give lon, lat; or west, south, east, north; or a point as geometry"


def read_fields(record: object, kind: str) -> dict[str, Any]:
    """Return the fields of a record that are given.

    Parameters
    ----------
    record
        A mapping, as ``json.loads`` returns it.
    kind
        One of `FIELDS`.
    """
    if not isinstance(record, Mapping):
        raise InvalidInput(kind, record, "must be a mapping, such as a JSON object")
    given = [name for name in FIELDS[kind] if record.get(name) is not None]
    return {name: read_field(name, record[name]) for name in given}


def read_field(name: str, value: Any) -> Any:
    """Return the value of a field in its Python type, or raise `InvalidInput`.

    Examples
    --------
    >>> read_field("lon", "13.4"), read_field("keywords", "flat white")
    (13.4, ['flat', 'white'])
    """
    return _READERS[name](name, value)


def required(fields: dict[str, Any], name: str) -> Any:
    """Return the value of a field that must be given."""
    if name not in fields:
        raise InvalidInput(name, None, "is missing")
    return fields[name]


def subscription_region(fields: dict[str, Any]) -> Region:
    """Return the region of a subscription."""
    makers: dict[tuple[str, ...], Callable[..., Region]] = {
        BOX: Rect,
        CIRCLE: Circle,
        ("geometry",): region,
    }
    if "geometry" in fields and "radius_m" in fields and not {*POINT} <= {*fields}:
        raise RegionError("radius_m", fields["radius_m"], RADIUS_OF_GEOMETRY)
    place: Region = _only_place(fields, makers, SUBSCRIPTION_PLACE)
    return place


def proximity_place(fields: dict[str, Any]) -> Region:
    """Return the place of a subscription that is ranked by distance."""
    if "radius_m" in fields:
        raise RegionError("radius_m", fields["radius_m"], RADIUS_PROBLEM)
    makers: dict[tuple[str, ...], Callable[..., Region]] = {POINT: Point, ("geometry",): region}
    place: Region = _only_place(fields, makers, PROXIMITY_PLACE)
    return place


def message_place(fields: dict[str, Any]) -> Point | Rect:
    """Return the place of a message; its geometry is only read if it has no other place."""
    makers: dict[tuple[str, ...], Callable[..., Point | Rect]] = {POINT: Point, BOX: Rect}
    if "geometry" in fields and not any(all(n in fields for n in names) for names in makers):
        return message_geometry(fields["geometry"])
    place: Point | Rect = _only_place(fields, makers, MESSAGE_PLACE)
    return place


def message_geometry(value: object) -> Point | Rect:
    """Return the place of a message from a geometry: a point, or a polygon that is a rectangle.

    Examples
    --------
    >>> message_geometry("POINT (13.4 52.5)")
    Point(lon=13.4, lat=52.5)
    >>> message_geometry("POLYGON ((0 0, 1 0, 1 2, 0 2, 0 0))")
    Rect(west=0.0, south=0.0, east=1.0, north=2.0)
    """
    found = region(value)
    if isinstance(found, Point | Rect):
        return found
    boxes = found.boxes() if found.rings() is None else []
    if len(boxes) == 2 and boxes[0][1::2] == boxes[1][1::2]:
        (left, *_), (_, _, right, _) = boxes
        if (left, right) == (WORLD[0], WORLD[2]):  # cut at the antimeridian
            (_, south, east, north), (west, *_) = boxes
            boxes = [(west, south, east, north)]
    if len(boxes) != 1:
        problem = "must be a point, or a rectangle along the axes: a message has one place"
        raise RegionError("geometry", value, problem)
    west, south, east, north = boxes[0]
    return Rect(west / UNITS, south / UNITS, east / UNITS, north / UNITS)


def place_fields(place: Region, *, point: bool = False) -> dict[str, Any]:
    """Return the fields that describe a region; ``point`` if a place is given as lon, lat."""
    if isinstance(place, Rect):
        return {name: getattr(place, name) for name in BOX}
    if isinstance(place, Circle):
        return {name: getattr(place, name) for name in CIRCLE}
    if isinstance(place, Point) and point:
        return {name: getattr(place, name) for name in POINT}
    return {"geometry": place.to_geojson()}


def write_time(time: Time) -> str | float:
    """Return a time as ISO 8601 text if it is a datetime, and as seconds since 1970 otherwise."""
    if isinstance(time, datetime):
        return time.isoformat()
    return int(time) if isinstance(time, Integral) else float(time)


def _only_place(fields: dict[str, Any], makers: dict[tuple[str, ...], Any], wanted: str) -> Any:
    """Return the place of the one group of fields that is complete."""
    complete = [names for names in makers if all(name in fields for name in names)]
    if len(complete) > 1:
        problem = f"is given twice; {wanted}, and only one of them"
        raise RegionError("place", [fields[name] for names in complete for name in names], problem)
    if not complete:
        given = [names for names in makers if any(name in fields for name in names)]
        absent = [name for names in given for name in names if name not in fields]
        raise RegionError(absent[0] if absent else "place", None, f"is missing; {wanted}")
    return makers[complete[0]](*(fields[name] for name in complete[0]))


def _list(name: str, value: Any) -> list[str | None]:
    if isinstance(value, str):
        return split_list(name, value.strip())
    if isinstance(value, (list, tuple)) and all(isinstance(e, str | None) for e in value):
        return list(value)
    raise InvalidInput(name, value, "must be a list of strings")


def _time(name: str, value: Any) -> Time:
    return moment(name, value)


def _duration(name: str, value: Any) -> Any:
    return value if isinstance(value, timedelta) else number(name, value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInput(name, value, "must be text")
    return value


def _name(name: str, value: Any) -> str:
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    return str(value) if is_integer else _text(name, value)


def _geometry(name: str, value: Any) -> Any:
    return value if isinstance(value, (Mapping, bytes)) else _text(name, value)


_READERS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("id", "message_id", "subscription_id"), identifier),
    **dict.fromkeys(("keywords", "tokens"), _list),
    **dict.fromkeys(("text", "expression"), _text),
    **dict.fromkeys(("owner", "scope"), _name),
    "geometry": _geometry,
    **dict.fromkeys(("time", "expires_at"), _time),
    **dict.fromkeys((*BOX, *CIRCLE, *RANKED, "score", "sign"), number),
    "ttl_s": _duration,
    "op": _text,
}
