"""Files with one JSON object a line.

Blocks whose rows agree with the types of their first row are read by Arrow; the others line by
line, where each cell is checked and brought to the type of its column.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from nearcast.errors import InvalidInput, UnsupportedFile
from nearcast.intake.cells import NUMBER, split_cell
from nearcast.intake.lines import Batch, LineFaults, filled_lines, is_utf8
from nearcast.intake.messages import MESSAGE_COLUMNS
from nearcast.intake.rejects import Rejects, reason_of
from nearcast.intake.subscriptions import RANKED, SUBSCRIPTION_COLUMNS
from nearcast.intake.times import parse_time
from nearcast.model.checks import identifier, time_us

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from nearcast.intake.lines import Block, Source

__all__ = ["read_json_lines"]

_IDS = ("id", "subscription_id")
_LISTS = ("keywords", "tokens")
_TEXTS = ("text", "expression", "owner", "geometry")
_TIMES = ("time", "expires_at")
_NUMBER = re.compile(NUMBER)
_COLUMNS = tuple(dict.fromkeys((*SUBSCRIPTION_COLUMNS, *MESSAGE_COLUMNS, *_IDS)))


def read_json_lines(source: Source) -> Iterator[Batch]:
    """Return the batches of a file with one JSON object a line."""
    for block in source.blocks():
        if block.first_line == 1 and block.content.lstrip()[:1] == b"[":
            raise UnsupportedFile("is one JSON array; write one object a line")
        quick = _read_quickly(block)
        faults = LineFaults()
        parts = [quick] if quick else _read_slowly(block, faults)
        for table, lines in parts:
            yield Batch(table, lines, Rejects.empty(), source.bytes_read, source.bytes_total)
        if len(faults.rejects()):
            nothing = _table([], pa.string()), np.empty(0, np.int64)
            yield Batch(*nothing, faults.rejects(), source.bytes_read, source.bytes_total)


def _read_quickly(block: Block) -> tuple[pa.Table, NDArray[np.int64]] | None:
    """Read a block with Arrow; None where it needs more care."""
    lines, begin, end = filled_lines(block)
    content = np.frombuffer(block.content, np.uint8)
    # So no object is on two lines, and none shares its line with another unless rows are missing.
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


def _parsed(line: bytes) -> Any:
    """Return what a line says; an error is returned, not raised."""
    try:
        value = json.loads(line.decode())
        json.dumps(value, ensure_ascii=False).encode()  # fails for half a surrogate pair
    except UnicodeDecodeError:
        return InvalidInput("", line, "is not valid UTF-8")
    except UnicodeEncodeError:
        return InvalidInput("", line, "has half a surrogate pair")
    except (ValueError, RecursionError) as error:
        return InvalidInput("", line, f"is not JSON: {error}")
    return value if isinstance(value, dict) else InvalidInput("", line, "is no JSON object")


def _read_slowly(block: Block, faults: LineFaults) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
    """Read a block line by line; rows whose ids are integers and others make two tables."""
    kinds: dict[bool, list[tuple[int, dict[str, Any]]]] = {True: [], False: []}
    for line, begin, end in zip(*(part.tolist() for part in filled_lines(block)), strict=True):
        raw = block.content[begin:end]
        if raw.isspace():
            continue
        value = _parsed(raw)
        if isinstance(value, InvalidInput):
            faults.add(line, "", value.problem, raw)
            continue
        try:
            row = {name: _cell(name, value[name]) for name in _COLUMNS if name in value}
        except InvalidInput as error:
            faults.add(line, error.field, reason_of(error), raw)
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
        elif name in RANKED:
            columns[name] = pa.array(values, pa.string())
        else:
            columns[name] = pa.array(values, id_type if name == "id" else _column_type(name))
    return pa.table(columns)


def _mixed_ids(values: list[Any]) -> pa.Array:
    integers = all(value is None or isinstance(value, int) for value in values)
    return pa.array(values if integers else [None if v is None else str(v) for v in values])


def _cell(name: str, value: Any) -> Any:
    """Return a value in the type of its column, or refuse it."""
    if value is None:
        return None
    if name in _IDS:
        return identifier(name, value)
    if name in RANKED:
        return json.dumps(value)
    take: Callable[[str, Any], Any] = _number
    if name in _LISTS:
        take = _list
    elif name in _TIMES:
        take = _time
    elif name in _TEXTS:
        take = _text
    return take(name, value)


def _number(name: str, value: Any) -> float:
    readable = _NUMBER.match(value) if isinstance(value, str) else not isinstance(value, bool)
    try:
        if readable and isinstance(value, int | float | str):
            return float(value)
    except OverflowError:
        pass
    raise InvalidInput(name, value, "must be a number")


def _list(name: str, value: Any) -> list[str | None]:
    if isinstance(value, str):
        return split_cell(value.strip(), name)
    if isinstance(value, list) and all(isinstance(element, str | None) for element in value):
        return value
    raise InvalidInput(name, value, "must be a list of texts")


def _time(name: str, value: Any) -> int:
    return parse_time(name, value) if isinstance(value, str) else time_us(name, value)


def _text(name: str, value: Any) -> str:
    if name == "geometry" and isinstance(value, dict):
        return json.dumps(value)
    if name == "owner" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise InvalidInput(name, value, "must be text")
    return value
