"""Messages as the log stores them: one compact JSON object each.

Publishing is the hottest path of the server, so there are three ways to read a message, and each
accepts a part of what the next one does:

1. as a `PointMessage`: text at a point, decoded and checked by msgspec alone;
2. as an `AnyMessage`: also tokens, boxes and GeoJSON points;
3. as an object, with the checks of `nearcast.Message`: the rest, and the reasons of refusals.

All three give the same canonical bytes. A message that is refused never affects the others.

What a body may contain: UTF-8 with or without a byte order mark; lines that end with LF or CRLF, of
which empty ones are skipped; null for a field that is not given. Of a repeated name the last value
counts. NaN, Infinity, numbers that are no finite floats, half a surrogate pair and invalid UTF-8
are refused. Integers in ``properties`` may have any size.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NoReturn

import msgspec
from msgspec import Meta, Struct

from nearcast.errors import InvalidInput
from nearcast.model import Message, Point, Rect
from nearcast.model.checks import MAX_TIME_US

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = [
    "FIELDS",
    "MAX_GROWTH",
    "AnyMessage",
    "MessageLimits",
    "PointMessage",
    "ReadMessages",
    "Rejected",
    "TooManyMessages",
    "canonical",
    "columns_of",
    "read_array",
    "read_lines",
    "read_plain",
    "read_records",
]

_MAX_SECONDS = MAX_TIME_US // 1_000_000
_MAX_ID_BYTES = 256

_Id = (
    Annotated[str, Meta(min_length=1, max_length=_MAX_ID_BYTES // 4)]
    | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
)
_Longitude = Annotated[float, Meta(ge=-180, le=180)]
_Latitude = Annotated[float, Meta(ge=-90, le=90)]
_Time = (
    Annotated[datetime, Meta(tz=True)] | Annotated[float, Meta(gt=-_MAX_SECONDS, lt=_MAX_SECONDS)]
)
_Seconds = Annotated[float, Meta(ge=0, lt=_MAX_SECONDS)]


class PointMessage(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Text at a point: what most messages are."""

    id: _Id | None = None
    text: str
    lon: _Longitude
    lat: _Latitude
    time: _Time | None = None
    ttl_s: _Seconds | None = None
    properties: dict[str, Any] | None = None


class AnyMessage(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Any message in its canonical form; a geometry has become a point or a box."""

    id: _Id | None = None
    text: str | None = None
    tokens: list[str] | None = None
    lon: _Longitude | None = None
    lat: _Latitude | None = None
    west: _Longitude | None = None
    south: _Latitude | None = None
    east: _Longitude | None = None
    north: _Latitude | None = None
    time: _Time | None = None
    ttl_s: _Seconds | None = None
    properties: dict[str, Any] | None = None


class _PointGeometry(Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["Point"]
    coordinates: tuple[_Longitude, _Latitude]


class _GivenMessage(AnyMessage, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    geometry: _PointGeometry | None = None


class _StoredMessage(Struct, kw_only=True, gc=False):
    """A canonical message, which was checked when it was stored; without what matching ignores."""

    text: str | None = None
    tokens: list[str] | None = None
    lon: float | None = None
    lat: float | None = None
    west: float | None = None
    south: float | None = None
    east: float | None = None
    north: float | None = None
    ttl_s: float | None = None


class _StoredPoint(Struct, kw_only=True, gc=False):
    text: str
    lon: float
    lat: float
    ttl_s: float | None = None


class Rejected(NamedTuple):
    """A message that was refused; lines, or places in an array, count from 1."""

    line: int
    field: str
    reason: str


class TooManyMessages(InvalidInput):
    """A body has more messages than a request may have; reading stopped at the first of them."""


class ReadMessages(NamedTuple):
    """The canonical bytes of the valid messages, in their order, and the others."""

    blobs: list[bytes]
    rejected: list[Rejected]


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """What a request with messages may be at most.

    Parameters
    ----------
    body_bytes
        The size of the body.
    messages
        The lines, or the elements of the array.
    message_bytes
        The size of one message in its canonical form.
    nesting
        How deep objects and arrays in ``properties`` may be nested.
    """

    body_bytes: int = 8 << 20
    messages: int = 10_000
    message_bytes: int = 64 << 10
    nesting: int = 32

    @property
    def given_bytes(self) -> int:
        """The size of one message as it is written, with spaces and escapes; never decoded above.

        Nothing is known of a message before it is decoded, and its objects take ten times as much.
        """
        return _MAX_WRITTEN * self.message_bytes


_DEFAULT_LIMITS = MessageLimits()
_BOM = b"\xef\xbb\xbf"
_BOX = ("west", "south", "east", "north")
_NUMBERS = ("lon", "lat", *_BOX, "ttl_s")
FIELDS = ("id", "text", "tokens", "lon", "lat", *_BOX, "geometry", "time", "ttl_s", "properties")
MAX_GROWTH = 4
"""How many times as large as a body may be its messages as JSON."""

_MAX_WRITTEN = 8
_STRETCH_BYTES = 128 << 10
_PLAIN_BYTES = 32 << 10
_PLAIN_VALUES = 4
# What is left out in the canonical form: fields that are null, and the brackets of a geometry.
_SPARE_MARKS = 64
_EDGE_YEARS = (1, 9999)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder().decode
_decode_point = msgspec.json.Decoder(PointMessage).decode
_decode_points = msgspec.json.Decoder(list[PointMessage]).decode
_decode_given = msgspec.json.Decoder(_GivenMessage).decode
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode
_decode_stored = msgspec.json.Decoder(list[_StoredMessage]).decode
_decode_stored_points = msgspec.json.Decoder(list[_StoredPoint]).decode
_rfc3339 = Annotated[datetime, Meta(tz=True)]


def read_lines(body: bytes, limits: MessageLimits = _DEFAULT_LIMITS) -> ReadMessages:
    r"""Return the messages of NDJSON.

    Examples
    --------
    >>> read_lines(b'{"text": "tea", "lon": 13, "lat": 52.5}\n{"text": "tea", "lat": 0}')
    ReadMessages(blobs=[b'{"text":"tea","lon":13.0,"lat":52.5}'],
     rejected=[Rejected(line=2, field='lon', reason='is missing; ...')])
    """
    lines = body.removeprefix(_BOM).split(b"\n")
    if len(body) > _STRETCH_BYTES:
        return _read_stretches(lines, limits)
    try:
        messages = [_decode_point(line) for line in lines if line]
    except _UNREADABLE:
        return _read_each(lines, limits)
    if b"\\u0000" in body:
        return _read_each(lines, limits)
    blobs = _encode_points(messages, limits)
    return ReadMessages(blobs, []) if blobs is not None else _read_each(lines, limits)


def read_array(body: bytes, limits: MessageLimits = _DEFAULT_LIMITS) -> ReadMessages:
    """Return the messages of a JSON array, or of one JSON object.

    Raises
    ------
    InvalidInput
        If the body is neither.
    TooManyMessages
        If the array has more elements than a request may have messages.
    """
    body = body.removeprefix(_BOM).strip()
    if body.startswith(b"{"):
        return _read_each([_one_value(body, limits)], limits)
    # All that is decoded at once are as many objects as there are messages, and they are small.
    if len(body) > _STRETCH_BYTES or body.count(b"{") > limits.messages:
        return _read_stretches(_elements(body, limits), limits)
    if b"\\u0000" not in body:
        try:
            blobs = _encode_points(_decode_points(body), limits)
        except _UNREADABLE:
            blobs = None
        if blobs is not None:
            return ReadMessages(blobs, [])
    return _read_each(map(bytes, _elements(body, limits)), limits)


def read_plain(
    body: bytes, limits: MessageLimits = _DEFAULT_LIMITS, *, lines: bool
) -> ReadMessages | None:
    """Return the messages of a small body of points; None if reading it may take a millisecond.

    Parameters
    ----------
    body
        A JSON object or array, or lines of JSON, of any size.
    limits
        What is allowed.
    lines
        Whether these are lines.

    Examples
    --------
    >>> read_plain(b'{"text": "tea", "lon": 13, "lat": 52.5}', lines=True).blobs
    [b'{"text":"tea","lon":13.0,"lat":52.5}']
    >>> read_plain(b"{}", lines=True) is None
    True
    """
    if len(body) > _PLAIN_BYTES or b"\\u0000" in body:
        return None
    messages_at_most = 1 + body.count(b"\n" if lines else b'"lat"')
    # Empty objects and arrays in properties take longer than their bytes let one think.
    if (
        messages_at_most > limits.messages
        or body.count(b"{") + body.count(b"[") > _PLAIN_VALUES * messages_at_most
    ):
        return None
    try:
        if lines:
            messages = [_decode_point(line) for line in body.split(b"\n") if line]
        else:
            messages = _decode_points(body) if body.startswith(b"[") else [_decode_point(body)]
    except _UNREADABLE:
        return None
    blobs = _encode_points(messages, limits)
    return None if blobs is None else ReadMessages(blobs, [])


def read_records(
    records: Iterable[Mapping[str, Any]], limits: MessageLimits = _DEFAULT_LIMITS
) -> ReadMessages:
    """Return the messages of objects, such as the rows of a table; times may be datetimes.

    Raises
    ------
    InvalidInput
        If their JSON is more than four times as large as a body may be.
    """
    found = ReadMessages([], [])
    size = 0
    for number, record in enumerate(records, 1):
        try:
            found.blobs.append(canonical(record, limits))
        except InvalidInput as error:
            found.rejected.append(_rejected(number, error))
        else:
            size += len(found.blobs[-1])
        if size > MAX_GROWTH * limits.body_bytes:
            raise InvalidInput("body", None, "is too large as JSON; send fewer messages at a time")
    return found


def canonical(fields: object, limits: MessageLimits = _DEFAULT_LIMITS) -> bytes:
    """Return the canonical bytes of a message, or raise `InvalidInput` with the reason.

    Examples
    --------
    >>> canonical({"text": "tea", "geometry": {"type": "Point", "coordinates": [13, 52]}})
    b'{"text":"tea","lon":13.0,"lat":52.0}'
    """
    if not isinstance(fields, dict):
        raise InvalidInput("", fields, "a message must be a JSON object")
    for name in fields:
        if name not in FIELDS:
            problem = f"is not a field of a message ({', '.join(FIELDS)}); use properties for it"
            raise InvalidInput(name, fields[name], problem)
    given = {name: value for name, value in fields.items() if value is not None}
    _check_types(given, limits)
    message = Message.from_dict({"id": 0, **given})
    time, ttl_s = given.get("time"), given.get("ttl_s")
    stored = AnyMessage(
        id=given.get("id"),
        text=message.text,
        tokens=None if message.tokens is None else list(message.tokens),
        time=_time(time) if isinstance(time, str | datetime) or time is None else float(time),
        ttl_s=None if ttl_s is None else float(ttl_s),
        properties=given.get("properties"),
        **_place(given, message.place),
    )
    try:
        blob = _encode(stored)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput("properties", "...", f"cannot be written as JSON: {error}") from None
    if len(blob) > limits.message_bytes:
        problem = f"has {len(blob):,} bytes; at most {limits.message_bytes:,} are allowed"
        raise InvalidInput("", None, problem)
    return blob


def columns_of(blobs: Sequence[bytes]) -> dict[str, list[Any]]:
    """Return the columns of canonical messages that matching needs.

    Columns in which nothing is given are left out: without ``tokens`` all messages have a text,
    and without ``west`` all are points. Where a value is not given it is None.

    Parameters
    ----------
    blobs
        The canonical bytes of messages.

    Examples
    --------
    >>> columns_of([b'{"text":"tea","lon":13.0,"lat":52.0}'])
    {'text': ['tea'], 'lon': [13.0], 'lat': [52.0]}
    """
    joined = b"[" + b",".join(blobs) + b"]"
    try:
        points = _decode_stored_points(joined)
    except msgspec.ValidationError:
        return _all_columns(_decode_stored(joined))
    columns: dict[str, list[Any]] = {
        "text": [message.text for message in points],
        "lon": [message.lon for message in points],
        "lat": [message.lat for message in points],
    }
    ttl_s = [message.ttl_s for message in points]
    if any(ttl_s):
        columns["ttl_s"] = ttl_s
    return columns


def _all_columns(messages: list[_StoredMessage]) -> dict[str, list[Any]]:
    columns = {
        name: [getattr(message, name) for message in messages]
        for name in _StoredMessage.__struct_fields__
    }
    return {name: column for name, column in columns.items() if any(v is not None for v in column)}


def _encode_points(messages: list[PointMessage], limits: MessageLimits) -> list[bytes] | None:
    """Return the canonical bytes; None if one of the messages needs a closer look."""
    for message in messages:
        time, properties = message.time, message.properties
        if time is not None and type(time) is datetime and time.year in _EDGE_YEARS:
            return None
        if properties is not None:
            nested = [v for v in properties.values() if type(v) is dict or type(v) is list]
            if nested and not _is_shallow(nested, limits.nesting):
                return None
    blobs = [_encode(message) for message in messages]
    return blobs if max(map(len, blobs), default=0) <= limits.message_bytes else None


def _elements(body: bytes, limits: MessageLimits) -> list[msgspec.Raw]:
    """Return the elements of an array as they are written, or stop at the first that is too many.

    Raises
    ------
    InvalidInput
        If the body is no array.
    """
    try:
        found = _decoder_of_few(limits.messages)(body)
    except _UNREADABLE as error:
        if isinstance(error, msgspec.ValidationError) and body.startswith(b"["):
            problem = f"has more than {limits.messages:,} messages; send fewer at a time"
            raise TooManyMessages("body", None, problem) from None
        _refuse_body(error)
    return [value for value in msgspec.structs.astuple(found) if value is not None]


@lru_cache(16)
def _decoder_of_few(count: int) -> Callable[[bytes], Struct]:
    """Return a decoder of arrays with at most ``count`` elements: it counts while it reads.

    The length of a list would only be looked at when all of it is in memory.
    """
    fields = [(f"element_{number}", msgspec.Raw, None) for number in range(count)]
    few = msgspec.defstruct("Few", fields, array_like=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(few).decode


def _read_stretches(
    values: Sequence[bytes] | Sequence[msgspec.Raw], limits: MessageLimits
) -> ReadMessages:
    """Return the messages of a large body, of which only a small part is decoded at a time.

    So memory does not depend on what the body has, and other threads go on meanwhile.
    """
    found = ReadMessages([], [])
    number = 1
    for stretch in _stretches(values):
        blobs = _plain_blobs(stretch, limits)
        if blobs is not None:
            found.blobs.extend(blobs)
        else:
            read = _read_each(stretch, limits, number)
            found.blobs.extend(read.blobs)
            found.rejected.extend(read.rejected)
        number += len(stretch)
    return found


def _stretches(values: Iterable[bytes] | Iterable[msgspec.Raw]) -> Iterator[list[bytes]]:
    """Yield values in lists of some size."""
    stretch: list[bytes] = []
    size = 0
    for value in values:
        stretch.append(bytes(value))
        size += len(stretch[-1]) + 1
        if size >= _STRETCH_BYTES:
            yield stretch
            stretch, size = [], 0
    if stretch:
        yield stretch


def _plain_blobs(lines: list[bytes], limits: MessageLimits) -> list[bytes] | None:
    """Return the canonical bytes of points; None if one of the lines is something else."""
    if any(b"\\u0000" in line or _is_too_large(line, limits) for line in lines):
        return None
    try:
        return _encode_points([_decode_point(line) for line in lines if line], limits)
    except _UNREADABLE:
        return None


def _read_each(lines: Iterable[bytes], limits: MessageLimits, first: int = 1) -> ReadMessages:
    found = ReadMessages([], [])
    for number, line in enumerate(lines, first):
        if not line or line.isspace():
            continue
        try:
            found.blobs.append(_read_one(line, limits))
        except InvalidInput as error:
            found.rejected.append(_rejected(number, error))
    return found


def _read_one(line: bytes, limits: MessageLimits) -> bytes:
    if len(line) > limits.message_bytes and _is_too_large(line, limits):
        most = f"{limits.message_bytes:,} are allowed, and {limits.given_bytes:,} as it is written"
        raise InvalidInput("", None, f"has {len(line):,} bytes; at most {most}")
    try:
        message = _decode_given(line)
    except _UNREADABLE:
        message = None
    if message is not None and _is_complete(message, limits):
        blob = _encode(message)
        if len(blob) <= limits.message_bytes:
            return blob
    try:
        fields = _decode_object(line)
    except _UNREADABLE as error:
        raise InvalidInput("", None, _json_problem(error)) from None
    return canonical(fields, limits)


def _is_too_large(line: bytes, limits: MessageLimits) -> bool:
    """Whether a message is certainly too large: its values alone are, or all of it is.

    Brackets and commas are in the canonical form too, however the message is written.
    """
    if len(line) <= limits.message_bytes:
        return False
    marks = line.count(b",") + line.count(b"[") + line.count(b"{")
    return len(line) > limits.given_bytes or marks > limits.message_bytes + _SPARE_MARKS


def _is_complete(message: _GivenMessage, limits: MessageLimits) -> bool:
    """Whether a message has words and a place, each given once, and needs no closer look.

    A point that is given as a geometry becomes its ``lon`` and ``lat``.
    """
    if (message.text is None) == (message.tokens is None):
        return False
    if message.geometry is not None and message.lon is message.lat is None:
        message.lon, message.lat = message.geometry.coordinates
        message.geometry = None
    west, south, east, north = message.west, message.south, message.east, message.north
    if message.lon is not None and message.lat is not None:
        if not west is south is east is north is None:
            return False
    elif (
        (message.lon is not None or message.lat is not None)
        or (west is None or south is None or east is None or north is None)
        or south > north
    ):
        return False
    if message.geometry is not None or (isinstance(message.id, str) and "\0" in message.id):
        return False
    if isinstance(message.time, datetime) and message.time.year in _EDGE_YEARS:
        return False
    return message.properties is None or _is_shallow(message.properties, limits.nesting)


def _check_types(given: dict[str, Any], limits: MessageLimits) -> None:
    """Check what `nearcast.Message` is more generous with: it also reads files of other formats."""
    for name in _NUMBERS:
        if name in given and not _is_number(given[name]):
            raise InvalidInput(name, given[name], "must be a number")
    identifier = given.get("id")
    if isinstance(identifier, str) and len(identifier.encode(errors="replace")) > _MAX_ID_BYTES:
        raise InvalidInput("id", identifier, f"must have at most {_MAX_ID_BYTES} bytes")
    time = given.get("time")
    if time is not None and not isinstance(time, datetime):
        _check_time(time)
    if "tokens" in given and not (
        isinstance(given["tokens"], list) and all(isinstance(t, str) for t in given["tokens"])
    ):
        raise InvalidInput("tokens", given["tokens"], "must be an array of strings")
    geometry = given.get("geometry")
    if geometry is not None:
        if not isinstance(geometry, dict):
            raise InvalidInput("geometry", geometry, "must be a GeoJSON object")
        if any(name in given for name in ("lon", "lat", *_BOX)):
            raise InvalidInput("geometry", geometry, "is a second place; give only one")
    properties = given.get("properties")
    if properties is not None:
        if not isinstance(properties, dict):
            raise InvalidInput("properties", properties, "must be a JSON object")
        if not _is_shallow(properties, limits.nesting):
            problem = f"must not be nested more than {limits.nesting} deep"
            raise InvalidInput("properties", properties, problem)


def _place(given: dict[str, Any], place: Point | Rect) -> dict[str, float]:
    """Return a place as it was given, without the rounding of the library."""
    geometry = given.get("geometry")
    if geometry is None:
        return {name: float(given[name]) for name in ("lon", "lat", *_BOX) if name in given}
    if geometry.get("type") == "Point":
        lon, lat, *_ = geometry["coordinates"]
        return {"lon": float(lon), "lat": float(lat)}
    names = ("lon", "lat") if isinstance(place, Point) else _BOX
    return {name: getattr(place, name) for name in names}


def _check_time(value: object) -> None:
    problem = (
        "must be a time with a time zone, such as 2026-11-17T18:00:00Z (RFC 3339), "
        "or seconds since 1970"
    )
    if isinstance(value, str):
        try:
            msgspec.convert(value, _rfc3339)
        except msgspec.ValidationError:
            raise InvalidInput("time", value, problem) from None
    elif not _is_number(value):
        raise InvalidInput("time", value, problem)


def _time(value: str | datetime | None) -> datetime | None:
    if value is None:
        return None
    if isinstance(value, str):
        return msgspec.convert(value, datetime)
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_shallow(value: Any, depth: int) -> bool:
    """Whether objects and arrays are nested at most ``depth`` deep."""
    level = [value] if type(value) is dict or type(value) is list else []
    for _ in range(depth):
        if not level:
            return True
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
    return not level


def _one_value(body: bytes, limits: MessageLimits) -> bytes:
    """Return a body that is one JSON value, or raise `InvalidInput`."""
    try:
        if len(body) > limits.message_bytes:
            _decode_raw(body)
        else:
            _decode_object(body)
    except _UNREADABLE as error:
        _refuse_body(error)
    return body


def _refuse_body(error: Exception) -> NoReturn:
    if isinstance(error, msgspec.ValidationError) and "array" in str(error):
        raise InvalidInput("body", None, "must be a JSON object or an array of objects") from None
    raise InvalidInput("body", None, _json_problem(error)) from None


def _json_problem(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "is not valid UTF-8"
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    return f"is not valid JSON: {error}"


def _rejected(number: int, error: InvalidInput) -> Rejected:
    shown = error.problem if error.value is None else error.problem + error.got()
    return Rejected(number, error.field, shown)
