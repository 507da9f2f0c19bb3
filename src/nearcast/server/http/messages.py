"""Bodies of requests with messages: which media types there are, and how large they may be."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow.lib import string_to_tzinfo

from nearcast.errors import InvalidInput, UnsupportedFile, one_line, shorten
from nearcast.intake.table_checks import TableBounds, check_schema, check_table
from nearcast.server.http.problems import FieldError, Problem, problem_of
from nearcast.server.log.messages import (
    FIELDS,
    MAX_GROWTH,
    MessageLimits,
    ReadMessages,
    TooManyMessages,
    read_array,
    read_lines,
    read_plain,
    read_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ARROW", "JSON", "NDJSON", "media_type", "parse_at_once", "parse_messages"]

JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"

_KINDS = {
    JSON: JSON,
    NDJSON: NDJSON,
    "application/ndjson": NDJSON,
    "application/jsonl": NDJSON,
    ARROW: ARROW,
}
_SLICE_ROWS = 16
_TINY_BYTES, _TINY_LINES, _TINY_MARKS = 2_048, 8, 64
_VALUES_PER_MESSAGE = 32
"""How many cells and elements an Arrow message may have, beside one for each byte of the body."""

_MAX_REASON = 500
_UNREADABLE = (
    *(pa.ArrowException, OSError, struct.error, EOFError, RecursionError),
    *(ValueError, LookupError, TypeError, ArithmeticError),
)
"""What PyArrow raises for streams that were damaged or crafted."""

# Fields of the tables Message and RecordBatch in the flatbuffers of Arrow.
_HEADER, _COMPRESSION = 2, 3


def parse_messages(body: bytes, content_type: str, limits: MessageLimits) -> ReadMessages:
    """Return the messages of a body: canonical bytes of the valid ones, and the rejected ones.

    Parameters
    ----------
    body
        A JSON object or array, lines of JSON, or an Arrow stream.
    content_type
        The header ``Content-Type``.
    limits
        How large the body may be, and how many messages it may have.

    Raises
    ------
    Problem
        If the body as a whole is too large, of another type or unreadable.

    Examples
    --------
    >>> parse_messages(b'{"text": "tea", "lon": 13, "lat": 52.5}', JSON, MessageLimits()).blobs
    [b'{"text":"tea","lon":13.0,"lat":52.5}']
    """
    kind = media_type(content_type)
    if len(body) > limits.body_bytes:
        detail = f"the body has {len(body):,} bytes; at most {limits.body_bytes:,} are allowed"
        raise Problem(413, "CONTENT_TOO_LARGE", detail)
    if kind == NDJSON:
        _check_count(body.count(b"\n") + (not body.endswith(b"\n")), limits)
        return read_lines(body, limits)
    try:
        found = read_array(body, limits) if kind == JSON else _read_arrow(body, limits)
    except TooManyMessages as error:
        raise Problem(413, "CONTENT_TOO_LARGE", f"the body {error.problem}") from None
    except InvalidInput as error:
        raise problem_of(error) from None
    _check_count(len(found.blobs) + len(found.rejected), limits)
    return found


def parse_at_once(body: bytes, content_type: str, limits: MessageLimits) -> ReadMessages | None:
    """Return the messages of a small and simple body; None if reading it may take a millisecond.

    The event loop does this itself. `parse_messages`, which returns the same, is for other threads.

    Examples
    --------
    >>> parse_at_once(b'{"text": "tea", "lon": 13, "lat": 52.5}', JSON, MessageLimits()).rejected
    []
    >>> parse_at_once(b"{},{}" * 1_000, JSON, MessageLimits()) is None
    True
    """
    kind = media_type(content_type)
    if kind == ARROW or len(body) > limits.body_bytes:
        return None
    found = read_plain(body, limits, lines=kind == NDJSON)
    if found is None and len(body) <= _TINY_BYTES and body.count(b"\n") <= _TINY_LINES:
        marks = body.count(b",") + body.count(b"[") + body.count(b"{")
        return parse_messages(body, content_type, limits) if marks <= _TINY_MARKS else None
    return found


def media_type(content_type: str) -> str:
    """Return `JSON`, `NDJSON` or `ARROW`, or raise a problem of status 415.

    Examples
    --------
    >>> media_type("application/JSON; charset=utf-8")
    'application/json'
    """
    name, *parameters = (part.strip().lower() for part in content_type.split(";"))
    kind = _KINDS.get(name)
    charset = next((p[8:].strip('"') for p in parameters if p.startswith("charset=")), "utf-8")
    if kind is None or charset not in ("utf-8", "utf8"):
        detail = f"the Content-Type must be one of: {', '.join((JSON, NDJSON, ARROW))}; in UTF-8"
        raise Problem(415, "UNSUPPORTED_MEDIA_TYPE", detail)
    return kind


def _check_count(count: int, limits: MessageLimits) -> None:
    if count > limits.messages:
        detail = f"the body has {count:,} messages; at most {limits.messages:,} are allowed"
        raise Problem(413, "CONTENT_TOO_LARGE", detail)


def _read_arrow(body: bytes, limits: MessageLimits) -> ReadMessages:
    try:
        _refuse_compressed(body)
        with pa.ipc.open_stream(body) as stream:
            _check_columns(stream.schema)
            table = _checked(stream, limits, len(body))
        return read_records(_rows(table), limits)
    except InvalidInput:
        raise
    except UnsupportedFile as error:
        raise Problem.of_fields([FieldError("body", str(error))]) from None
    except _UNREADABLE as error:
        reason = one_line(f"is not a readable Arrow stream: {error}", _MAX_REASON)
        raise Problem.of_fields([FieldError("body", reason)]) from None


def _check_columns(schema: Any) -> None:
    """Check which columns a stream has, before anything of them is read."""
    for name in dict.fromkeys(schema.names):
        if name not in FIELDS:
            reason = f"is not a column of messages ({', '.join(FIELDS)}); use properties for it"
            raise Problem.of_fields([FieldError(one_line(name, _MAX_REASON), reason)])
        if schema.names.count(name) > 1:
            raise Problem.of_fields([FieldError(name, "occurs twice; leave one out")])
    check_schema(schema, nested_views=False)
    for field in schema:
        for zone in _time_zones(field.type):
            try:
                string_to_tzinfo(zone)
            except (LookupError, ValueError, OSError, pa.ArrowException):
                reason = f"has times of the unknown time zone {shorten(zone)}; use UTC"
                raise Problem.of_fields([FieldError(field.name, reason)]) from None


def _time_zones(kind: Any) -> Iterator[str]:
    """Yield the time zones of a type and of what is inside of it."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        yield kind.tz
    for number in range(kind.num_fields):
        yield from _time_zones(kind.field(number).type)


def _checked(stream: Any, limits: MessageLimits, size: int) -> Any:
    """Return the rows of a stream, of which nothing stands for more than the limits allow."""
    batches, rows = [], 0
    for batch in stream:
        rows += batch.num_rows
        _check_count(rows, limits)
        if batch.num_rows:
            batches.append(batch)
    table = pa.Table.from_batches(batches, stream.schema)
    values = _VALUES_PER_MESSAGE * limits.messages + size
    check_table(table, TableBounds(values, 0, MAX_GROWTH * limits.body_bytes, 0))
    table.validate(full=True)
    return _microseconds(table)


def _rows(table: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, a few at a time: Python's values are larger than Arrow's."""
    for batch in table.to_batches():
        for first in range(0, batch.num_rows, _SLICE_ROWS):
            yield from batch.slice(first, _SLICE_ROWS).to_pylist()


def _refuse_compressed(body: bytes) -> None:
    """Refuse compressed and dictionary batches: a small body of them can fill the memory."""
    for message in pa.ipc.MessageReader.open_stream(body):
        metadata = message.metadata.to_pybytes()
        header = _table_field(metadata, _table_at(metadata, 0), _HEADER)
        compressed = (
            message.type == "record batch"
            and header is not None
            and _table_field(metadata, _table_at(metadata, header), _COMPRESSION) is not None
        )
        if compressed or message.type == "dictionary":
            reason = "must not be compressed, nor have dictionary columns"
            raise Problem.of_fields([FieldError("body", reason)])


def _table_at(metadata: bytes, place: int) -> int:
    """Return where the table begins that the offset at a place of a flatbuffer points to."""
    return place + int(struct.unpack_from("<I", metadata, place)[0])


def _table_field(metadata: bytes, table: int, number: int) -> int | None:
    """Return the place of a field of a table; None if it is not given."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    size = struct.unpack_from("<H", metadata, vtable)[0]
    if 4 + 2 * number >= size:
        return None
    offset = int(struct.unpack_from("<H", metadata, vtable + 4 + 2 * number)[0])
    return table + offset if offset else None


def _microseconds(table: Any) -> Any:
    """Return a table with timestamps in microseconds: Python has no finer ones."""
    fields = [
        pa.field(field.name, pa.timestamp("us", field.type.tz))
        if pa.types.is_timestamp(field.type)
        else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields), safe=False)
