r"""Many subscriptions, or many moves, in one body; each line stands for itself.

An import is lines of JSON, or a GeoJSON FeatureCollection. A line is a resource as
`POST /v1/subscriptions` takes it, or a record of Nearcast's files::

    {"id": "s1", "keywords": ["tea"], "lon": 13.4, "lat": 52.5, "radius_m": 500, "owner": "ann"}

The properties of a Feature are such a record, and its geometry is the place; a point with
``radius_m`` is a circle. The owner of a record is the subscriber.
"""

from __future__ import annotations

import io
import re
import time
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from nearcast import model
from nearcast.errors import InvalidInput
from nearcast.model.checks import time_us
from nearcast.model.close_names import own_names
from nearcast.model.json_form import read_fields, subscription_region
from nearcast.server.http.definitions import (
    DEFAULT_LIMITS,
    check_marks,
    check_texts,
    definition_of,
    definition_of_subscription,
    place_row,
    region_of,
    request_of,
    word_length,
)
from nearcast.server.http.models import Name, Region, Resource, parse_timestamp
from nearcast.server.http.plain_records import plain_definitions
from nearcast.server.http.problems import FieldError, Problem, validation_problem
from nearcast.server.log.messages import Rejected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nearcast.server.http.definitions import Definition, DefinitionLimits

__all__ = [
    "GEOJSON",
    "MAX_REJECTED",
    "Imported",
    "Move",
    "MoveRequest",
    "Moves",
    "read_import",
    "read_moves",
]

GEOJSON = "application/geo+json"

MAX_REJECTED = 10_000
"""How many lines more than those that are taken may be refused until reading stops."""

_RECORDS_AT_ONCE = 10_000
_WIDEST = 18
_BOM = b"\xef\xbb\xbf"
_PLACE = ("lon", "lat", "radius_m", "west", "south", "east", "north", "geometry")
_COLUMNS = {
    "config.subscriptionExpireTime": "expires_at",
    "config.subscriptionDetail.subscriber": "owner",
    "config.subscriptionDetail.region": "geometry",
    "config.subscriptionDetail.region.radius": "radius_m",
}
"""The columns of records whose properties in a resource have other names."""

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode = msgspec.json.Decoder().decode
_MARK = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{},]', re.DOTALL)


class _Collection(msgspec.Struct):
    """A FeatureCollection whose features are not read yet."""

    type: msgspec.Raw = msgspec.Raw(b"null")
    features: msgspec.Raw = msgspec.Raw(b"null")


_decode_collection = msgspec.json.Decoder(_Collection).decode


class Imported(NamedTuple):
    """The lines and definitions that can be stored, and the lines that were refused."""

    lines: list[int]
    definitions: list[Definition]
    rejected: list[Rejected]


class Move(NamedTuple):
    """Where a subscription is from a time on; ``row`` has the columns of the place."""

    subscription_id: str
    time_us: int | None
    row: dict[str, Any]


class Moves(NamedTuple):
    """The moves that can be stored, their lines, and the lines that were refused."""

    lines: list[int]
    moves: list[Move]
    rejected: list[Rejected]


def _check_time(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise PydanticCustomError("time", "must be RFC 3339 text or seconds since 1970")
    return value


_MoveTime = Annotated[
    Any,
    AfterValidator(_check_time),
    WithJsonSchema({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "number"}]}),
]


class MoveRequest(Resource):
    """A line of ``POST /v1/moves``: a region, or the columns of one."""

    subscriptionId: Name
    time: _MoveTime | None = Field(
        default=None, description="RFC 3339 or seconds since 1970; the time of arrival if left out."
    )
    region: Region | None = None
    lon: float | None = None
    lat: float | None = None
    radius_m: float | None = None
    west: float | None = None
    south: float | None = None
    east: float | None = None
    north: float | None = None


_move_lines = TypeAdapter(MoveRequest)


def read_import(
    body: bytes,
    limits: DefinitionLimits = DEFAULT_LIMITS,
    *,
    now_us: int | None = None,
    max_rejected: int = MAX_REJECTED,
) -> Imported:
    r"""Return the definitions of an import, and what was refused, by line.

    Parameters
    ----------
    body
        Lines of JSON, or a GeoJSON FeatureCollection, whose features count as lines from 1.
    limits
        What each subscription may be at most.
    now_us
        The time, which an expiry must be after; that of the clock if left out.
    max_rejected
        How many lines more than those that are taken may be refused; then reading stops.

    Examples
    --------
    >>> body = b'{"id": 1, "lon": 13, "lat": 52, "radius_m": 500}\n{"id": 2, "lon": 13}\n'
    >>> imported = read_import(body)
    >>> imported.lines, [one.field for one in imported.rejected]
    ([1], ['lat'])
    """
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    found = Imported([], [], [])
    records = _records(body, limits, found, max_rejected)
    # A few at a time: a body of 4 MB can have a million records.
    while numbered := [*islice(records, _RECORDS_AT_ONCE)]:
        plain = plain_definitions([_if_short(record, limits) for _, record in numbered])
        for (line, record), known in zip(numbered, plain, strict=True):
            try:
                definition = _definition(record, limits, now_us) if known is None else known
            except (InvalidInput, Problem) as error:
                found.rejected.append(_rejected(line, error))
            else:
                found.lines.append(line)
                found.definitions.append(definition)
    found.rejected.sort(key=lambda one: one.line)
    return found


def _if_short(record: object, limits: DefinitionLimits) -> object:
    """Return a record; None if its keywords are too many or too long to be read with others."""
    words = record.get("keywords") if type(record) is dict else None
    if type(words) is not list:
        return record
    longest = max((len(word) for word in words if type(word) is str), default=0)
    if len(words) > limits.keywords or longest > limits.word_length:
        return None
    # One character may be compared as 18 others, and nearly all words are much shorter.
    if longest * _WIDEST > limits.word_length:
        longest = max(word_length(word) for word in words if type(word) is str)
    return record if longest <= limits.word_length else None


def read_moves(
    body: bytes, limits: DefinitionLimits = DEFAULT_LIMITS, *, max_rejected: int = MAX_REJECTED
) -> Moves:
    r"""Return the moves of lines of JSON, and what was refused, by line.

    If ``max_rejected`` lines more are refused than are taken, reading stops.

    Examples
    --------
    >>> read_moves(b'{"subscriptionId": "s1", "lon": 13, "lat": 52}\n').moves
    [Move(subscription_id='s1', time_us=None, row={'lon': 13.0, 'lat': 52.0})]
    """
    found = Moves([], [], [])
    for line, record in _lines(body, limits, found, max_rejected):
        try:
            move = _move(record, limits)
        except (InvalidInput, Problem) as error:
            found.rejected.append(_rejected(line, error))
        else:
            found.lines.append(line)
            found.moves.append(move)
    return found


def _records(
    body: bytes, limits: DefinitionLimits, found: Imported | Moves, max_rejected: int
) -> Iterator[tuple[int, object]]:
    """Yield numbered records: of the features of a collection, or of lines."""
    features = _features(body)
    if features is None:
        yield from _lines(body, limits, found, max_rejected)
        return
    if bytes(features[:1]) != b"[":
        raise Problem.of_fields([FieldError("features", "must be an array of features")])
    for number, feature in enumerate(_elements(features), 1):
        if len(found.rejected) > max_rejected + len(found.lines):
            return
        try:
            check_marks(feature, limits)
            record = _record_of_feature(_decode(feature))
        except InvalidInput as error:
            found.rejected.append(_rejected(number, error))
        except _UNREADABLE as error:
            found.rejected.append(Rejected(number, "", f"is not valid JSON: {error}"))
        else:
            yield number, record


def _features(body: bytes) -> memoryview | None:
    """Return the features of a FeatureCollection as they are written; None if it is none."""
    if b'"FeatureCollection"' not in body:
        return None
    try:
        document = _decode_collection(body.removeprefix(_BOM))
    except _UNREADABLE:
        return None
    is_one = bytes(document.type).strip() == b'"FeatureCollection"'
    return memoryview(document.features) if is_one else None


def _elements(array: memoryview) -> Iterator[bytes]:
    """Yield the elements of a JSON array as they are written, one after the other."""
    begin, depth = 1, 0
    for mark in _MARK.finditer(array):
        found = mark[0]
        if found in (b"[", b"{"):
            depth += 1
        elif found in (b"]", b"}"):
            depth -= 1
        if (depth == 1 and found == b",") or not depth:
            element = bytes(array[begin : mark.start()])
            if begin > 1 or depth or (not element.isspace() and element):
                yield element
            begin = mark.end()


def _record_of_feature(feature: object) -> dict[str, Any]:
    if not isinstance(feature, dict) or feature.get("type") != "Feature":
        raise InvalidInput("type", None, "is missing; it must be Feature")
    properties, geometry = feature.get("properties") or {}, feature.get("geometry")
    if not isinstance(properties, dict):
        raise InvalidInput("properties", properties, "must be an object")
    if not isinstance(geometry, dict):
        raise InvalidInput("geometry", geometry, "must be a GeoJSON geometry")
    record = {name: value for name, value in properties.items() if name not in _PLACE}
    if record.get("id") is None and feature.get("id") is not None:
        record["id"] = feature["id"]
    radius_m, coordinates = properties.get("radius_m"), geometry.get("coordinates")
    if radius_m is None:
        return record | {"geometry": geometry}
    if geometry.get("type") != "Point" or not isinstance(coordinates, list) or len(coordinates) < 2:
        raise InvalidInput("radius_m", radius_m, "needs a Point as geometry")
    return record | {"lon": coordinates[0], "lat": coordinates[1], "radius_m": radius_m}


def _lines(
    body: bytes, limits: DefinitionLimits, found: Imported | Moves, max_rejected: int
) -> Iterator[tuple[int, object]]:
    """Yield numbered records of lines, until too many were refused."""
    for number, line in enumerate(io.BytesIO(body.removeprefix(_BOM)), 1):
        if line.isspace():
            continue
        if len(found.rejected) > max_rejected + len(found.lines):
            return
        try:
            check_marks(line, limits)
            yield number, _decode(line)
        except InvalidInput as error:
            found.rejected.append(_rejected(number, error))
        except _UNREADABLE as error:
            found.rejected.append(Rejected(number, "", f"is not valid JSON: {error}"))


def _definition(record: object, limits: DefinitionLimits, now_us: int) -> Definition:
    if not isinstance(record, dict):
        raise InvalidInput("", record, "must be a JSON object")
    if "config" in record:
        return definition_of(request_of(record), limits, now_us=now_us)
    if "subscriber" in record and "owner" not in record:
        record = {**record, "owner": record["subscriber"]}
    named: dict[str, Any] = own_names(record, "subscriptions")
    check_texts(named.get("keywords"), named.get("expression"), limits)
    subscription = model.Subscription.from_dict(named)
    try:
        return definition_of_subscription(subscription, limits, now_us=now_us)
    except Problem as problem:
        first = problem.errors[0]
        field = _COLUMNS.get(first.field, first.field.rpartition(".")[2])
        raise Problem.of_fields([first._replace(field=field)], problem.code) from None


def _move(record: object, limits: DefinitionLimits) -> Move:
    try:
        given = _move_lines.validate_python(record)
    except ValidationError as error:
        raise validation_problem(error.errors(include_url=False)) from None
    moment = None if given.time is None else _time_us(given.time)
    columns = given.model_dump(
        exclude_none=True, exclude={"subscriptionId": True, "time": True, "region": True}
    )
    if given.region is not None:
        if columns:
            raise InvalidInput(next(iter(columns)), None, "is a second place beside the region")
        place = region_of(given.region, limits)
    elif "radius_m" not in columns and {"lon", "lat"} == columns.keys():
        place = model.Point(given.lon, given.lat)  # type: ignore[arg-type]
    else:
        place = subscription_region(read_fields(columns, "subscription"))
    return Move(given.subscriptionId, moment, place_row(place, point=True))


def _time_us(value: str | float) -> int:
    if not isinstance(value, str):
        return time_us("time", value)
    try:
        return time_us("time", parse_timestamp(value))
    except InvalidInput:
        raise
    except ValueError as error:
        raise InvalidInput("time", value, str(error)) from None


def _rejected(line: int, error: InvalidInput | Problem) -> Rejected:
    if isinstance(error, Problem):
        first = error.errors[0]
        return Rejected(line, first.field, first.reason)
    shown = error.problem if error.value is None else error.problem + error.got()
    return Rejected(line, error.field, shown)
