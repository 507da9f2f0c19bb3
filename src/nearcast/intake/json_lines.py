"""Files with one JSON object per line.

Arrow reads blocks in which all rows have the types of the first row. Other blocks are read line by
line, and each value is converted to the type of its column.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from nearcast.errors import InvalidInput, UnsupportedFile
from nearcast.intake.lines import Batch, LineErrors, is_utf8, nonempty_lines
from nearcast.intake.messages import MESSAGE_COLUMNS
from nearcast.intake.rejects import reason_of
from nearcast.intake.subscriptions import SUBSCRIPTION_COLUMNS
from nearcast.model.checks import time_us
from nearcast.model.json_form import read_field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from nearcast.intake.lines import Block, LineSource

__all__ = ["read_json_lines"]

_IDS = ("id", "subscription_id")
_LISTS = ("keywords", "tokens")
_TEXTS = ("text", "expression", "owner", "geometry")
_TIMES = ("time", "expires_at")
_COLUMNS = tuple(dict.fromkeys((*SUBSCRIPTION_COLUMNS, *MESSAGE_COLUMNS, *_IDS)))


def read_json_lines(source: LineSource) -> Iterator[Batch]:
    """Yield the batches of a file with one JSON object per line."""
    for block in source.blocks():
        if block.first_line == 1 and block.content.lstrip()[:1] == b"[":
            raise UnsupportedFile("is one JSON array; write one object per line")
        errors = LineErrors()
        fast = _read_fast(block)
        for table, lines in [fast] if fast else _read_slowly(block, errors):
            yield Batch(table, lines, LineErrors().rejects(), source.bytes_read, source.bytes_total)
        if block.too_long is not None:
            errors.add_too_long(block.next_line, block.too_long)
        if len(errors.rejects()):
            empty = _table([], pa.string()), np.empty(0, np.int64)
            yield Batch(*empty, errors.rejects(), source.bytes_read, source.bytes_total)


def _read_fast(block: Block) -> tuple[pa.Table, NDArray[np.int64]] | None:
    """Read a block with Arrow; None if that is not possible."""
    lines, begin, end = nonempty_lines(block)
    content = np.frombuffer(block.content, np.uint8)
    # Then no object spans two lines, and if two share a line, the number of rows is wrong.
    if not len(lines) or (content[begin] != ord("{")).any() or (content[end - 1] != ord("}")).any():
        return None
    if not is_utf8(block.content):
        return None
    first = _parsed(block.content[begin[0] : end[0]])
    if not isinstance(first, dict):
        return None
    schema = pa.schema([(name, _arrow_type(name, first.get(name))) for name in _COLUMNS])
    try:
        table = arrow_json.read_json(
            pa.BufferReader(block.content),
            arrow_json.ReadOptions(use_threads=False, block_size=len(block.content) + 1),
            arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowException:
        return None
    return (table, lines) if table.num_rows == len(lines) else None


def _arrow_type(name: str, example: object) -> pa.DataType:
    if name in _IDS:
        return pa.int64() if isinstance(example, int) else pa.string()
    if name in _TIMES:
        return pa.float64() if isinstance(example, int | float) else pa.string()
    return _column_type(name)


def _column_type(name: str) -> pa.DataType:
    if name in _LISTS:
        return pa.list_(pa.string())
    if name in _TIMES:
        return pa.timestamp("us", "UTC")
    return pa.string() if name in _TEXTS else pa.float64()


def _parsed(line: bytes) -> dict[str, Any] | InvalidInput:
    """Return the object on a line, or the error, which is not raised."""
    try:
        value = json.loads(line.decode())
        json.dumps(value, ensure_ascii=False).encode()  # fails for half a surrogate pair
    except UnicodeDecodeError:
        return InvalidInput("", line, "is not valid UTF-8")
    except UnicodeEncodeError:
        return InvalidInput("", line, "has half a surrogate pair")
    except RecursionError:
        return InvalidInput("", line, "is not JSON: it is nested too deep")
    except ValueError as error:
        return InvalidInput("", line, f"is not JSON: {error}")
    return value if isinstance(value, dict) else InvalidInput("", line, "is not a JSON object")


def _read_slowly(block: Block, errors: LineErrors) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
    """Read a block line by line; rows with integer ids and rows with other ids make two tables."""
    kinds: dict[bool, list[tuple[int, dict[str, Any]]]] = {True: [], False: []}
    for line, begin, end in zip(*(part.tolist() for part in nonempty_lines(block)), strict=True):
        raw = block.content[begin:end]
        if raw.isspace():
            continue
        value = _parsed(raw)
        if isinstance(value, InvalidInput):
            errors.add(line, "", value.problem, raw)
            continue
        try:
            row = {name: _cell(name, value[name]) for name in _COLUMNS if name in value}
        except InvalidInput as error:
            errors.add(line, error.field, reason_of(error), raw)
            continue
        kinds[isinstance(row.get("id"), int)].append((line, row))
    for integers, rows in kinds.items():
        if rows:
            kind = pa.int64() if integers else pa.string()
            yield _table([row for _, row in rows], kind), np.array([n for n, _ in rows], np.int64)


def _table(rows: list[dict[str, Any]], id_type: pa.DataType) -> pa.Table:
    columns = {}
    for name in _COLUMNS:
        values = [row.get(name) for row in rows]
        if name == "subscription_id":
            columns[name] = _mixed_ids(values)
        else:
            columns[name] = pa.array(values, id_type if name == "id" else _column_type(name))
    return pa.table(columns)


def _mixed_ids(values: list[Any]) -> pa.Array:
    integers = all(value is None or isinstance(value, int) for value in values)
    return pa.array(values if integers else [None if v is None else str(v) for v in values])


def _cell(name: str, value: Any) -> Any:
    """Return a value in the type of its column, or raise `InvalidInput`."""
    if value is None:
        return None
    field = read_field(name, value)
    if name in _TIMES:
        return time_us(name, field)
    if isinstance(field, dict):
        return _json(name, field)
    return field


def _json(name: str, value: Any) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        raise InvalidInput(name, value, "is nested too deep") from None
