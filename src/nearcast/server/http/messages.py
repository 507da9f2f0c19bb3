"""Bodies of requests with messages: which media types there are, and how large they may be."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nearcast.errors import InvalidInput
from nearcast.server.http.problems import FieldError, Problem, problem_of
from nearcast.server.log.messages import (
    MessageLimits,
    ReadMessages,
    read_array,
    read_lines,
    read_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ARROW", "JSON", "NDJSON", "media_type", "parse_messages"]

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
    except InvalidInput as error:
        raise problem_of(error) from None
    _check_count(len(found.blobs) + len(found.rejected), limits)
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
            return read_records(_rows(stream, limits), limits)
    except InvalidInput:
        raise
    except (pa.ArrowException, OSError, struct.error, EOFError, ValueError, OverflowError) as error:
        reason = f"is not a readable Arrow stream: {error}"
        raise Problem.of_fields([FieldError("body", reason)]) from None


def _rows(stream: Any, limits: MessageLimits) -> Iterator[dict[str, Any]]:
    """Yield the rows of a stream, a few at a time: columns can repeat one large value."""
    rows = 0
    for batch in stream:
        batch.validate(full=True)
        rows += batch.num_rows
        _check_count(rows, limits)
        table = _microseconds(batch)
        for first in range(0, table.num_rows, _SLICE_ROWS):
            yield from table.slice(first, _SLICE_ROWS).to_pylist()


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


def _microseconds(batch: Any) -> Any:
    """Return a batch with timestamps in microseconds: Python has no finer ones."""
    fields = [
        pa.field(field.name, pa.timestamp("us", field.type.tz))
        if pa.types.is_timestamp(field.type)
        else field
        for field in batch.schema
    ]
    return pa.Table.from_batches([batch]).cast(pa.schema(fields), safe=False)
