"""Files of JSON: one object per line, an array of objects, or GeoJSON.

Arrow reads blocks of lines in which all rows have the types of the first row. Other blocks, and
GeoJSON, are read record by record.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from nearcast.errors import UnsupportedFile
from nearcast.intake.arrow_columns import with_column
from nearcast.intake.batches import Batch, RawRecords
from nearcast.intake.json_documents import document_records, is_document
from nearcast.intake.json_records import (
    IDS,
    LISTS,
    TIMES,
    JsonColumns,
    Record,
    column_type,
    parsed,
    read_records,
)
from nearcast.intake.lines import LineErrors, is_utf8, nonempty_lines
from nearcast.intake.made_ids import row_ids
from nearcast.intake.nested import follow, nested_type
from nearcast.intake.rejects import Rejects
from nearcast.model.close_names import ASKED, COLUMNS, TAKEN, near, wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from nearcast.intake.lines import Block, LineSource
    from nearcast.intake.reading import Reading

__all__ = ["read_json"]

_RECORDS_PER_BATCH = 20_000
_FIELD = re.compile(rb'"([^"\\]{1,100})"\s*:')
_MAX_FIELDS = 2_000
_Lines = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.int64]"]


def read_json(
    source: LineSource,
    reading: Reading,
    kind: str | None,
    file: str = "",
    *,
    lines_only: bool = False,
) -> Iterator[Batch]:
    """Yield the batches of a JSON file.

    Parameters
    ----------
    source
        The lines of the file.
    reading
        The format, which columns are ours, and how ids are made. Unless the format is ``json``,
        GeoJSON features are recognized; if it is ``geojson``, they are required.
    kind
        The kind of table.
    file
        The name of the file in rejects.
    lines_only
        Whether the file has one object per line whatever it begins with.
    """
    features = reading.format == "geojson"
    columns = JsonColumns(
        kind, tuple(dict(reading.columns).items()), reading.ids, file, features=features
    )
    recognized = reading.format is None
    if lines_only and source.peek().lstrip()[:1] == b"[":
        raise UnsupportedFile("is one JSON array; write one object per line, or name it .json")
    if not lines_only and is_document(source.peek()):
        yield from _read_document(source, columns, recognized)
        return
    for block in source.blocks():
        if recognized and block.content.strip():
            columns.features = _begins_with_feature(block.content)
            recognized = False
        yield from _read_block(source, block, columns)


def _read_document(source: LineSource, columns: JsonColumns, recognized: bool) -> Iterator[Batch]:
    records = document_records(source)
    while chunk := list(islice(records, _RECORDS_PER_BATCH)):
        if recognized:
            first = chunk[0].value
            columns.features = isinstance(first, dict) and _is_feature(first)
            recognized = False
        yield from read_records(chunk, columns, source.bytes_read, source.bytes_total)


def _begins_with_feature(content: bytes) -> bool:
    first = next(line for line in content.splitlines() if line.strip())
    value = parsed(first, "")
    return isinstance(value, dict) and _is_feature(value)


def _is_feature(value: dict[str, Any]) -> bool:
    return value.get("type") == "Feature" and ("geometry" in value or "properties" in value)


def _read_block(source: LineSource, block: Block, columns: JsonColumns) -> Iterator[Batch]:
    lines = nonempty_lines(block)
    progress = source.bytes_read, source.bytes_total
    fast = None if columns.features else _read_fast(block, lines, columns)
    if fast is not None:
        number, begin, end = lines
        yield Batch(
            fast,
            number,
            Rejects.empty(),
            *progress,
            columns.file,
            dict(columns.taken),
            tuple(columns.unused),
            RawRecords(block.content, begin, end),
        )
    else:
        yield from read_records(_records(block, lines, source.invalid), columns, *progress)
    if block.too_long is not None:
        errors = LineErrors(columns.file)
        errors.add_too_long(block.next_line, block.too_long)
        empty = pa.table({name: pa.array([], column_type(name)) for name in columns.ours})
        yield Batch(
            empty, np.empty(0, np.int64), errors.rejects(), *progress, columns.file, original=[]
        )


def _records(block: Block, lines: _Lines, invalid: str) -> Iterator[Record]:
    for line, begin, end in zip(*(part.tolist() for part in lines), strict=True):
        raw = block.content[begin:end]
        if not raw.isspace():
            yield Record(line, raw.decode(errors="replace"), parsed(raw, invalid))


def _read_fast(block: Block, lines: _Lines, columns: JsonColumns) -> pa.Table | None:
    """Read a block with Arrow; None if that is not possible."""
    _, begin, end = lines
    content = np.frombuffer(block.content, np.uint8)
    # Then no object spans two lines, and if two share a line, the number of rows is wrong.
    if not len(begin) or (content[begin] != ord("{")).any() or (content[end - 1] != ord("}")).any():
        return None
    if columns.ids == "hash" or not is_utf8(block.content):
        return None
    first = parsed(block.content[begin[0] : end[0]], "")
    if not isinstance(first, dict):
        return None
    schema = _schema(first, columns)
    table = _arrow_table(block.content, schema, "infer")
    if table is None and not _has_similar_names(block.content, columns):
        # A column that nobody uses may have any types; it is only known by the first record.
        table = _arrow_table(block.content, schema, "ignore")
        columns.unused |= dict.fromkeys(name for name in first if name not in schema.names)
    if table is None or table.num_rows != len(begin):
        return None
    return _ours(table, columns, schema, lines[0])


def _arrow_table(content: bytes, schema: pa.Schema, unexpected: str) -> pa.Table | None:
    try:
        return arrow_json.read_json(
            pa.BufferReader(content),
            arrow_json.ReadOptions(use_threads=False, block_size=len(content) + 1),
            arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
        )
    except pa.ArrowException:
        return None


def _has_similar_names(content: bytes, columns: JsonColumns) -> bool:
    """Whether a field somewhere in the records, or what looks like one, is nearly ours."""
    names = set(_FIELD.findall(content))
    if len(names) > _MAX_FIELDS:
        return True
    found = (near(name.decode(errors="replace"), columns.kind) for name in names)
    return any(meant is not None and meant.ours not in columns.said for meant in found)


def _schema(first: dict[str, Any], columns: JsonColumns) -> pa.Schema:
    """Return the types of our columns, and of what the user or their names say is one of ours."""
    fields = {
        name: _arrow_type(name, first.get(name))
        for name in columns.ours
        if name != "geometry" or not isinstance(first.get(name), dict)
    }
    for name, value in first.items():
        meant = near(name, columns.kind)
        if meant is not None and meant.rank == TAKEN and meant.ours not in columns.said:
            fields.setdefault(name, _arrow_type(meant.ours, value))
    roots = {str(path[0]) for path in columns.paths.values()}
    for root in roots:
        inside = {o: p[1:] for o, p in columns.paths.items() if p[0] == root}
        fields[root] = nested_type(inside, first.get(root), _arrow_type)
    return pa.schema(list(fields.items()))


def _ours(
    table: pa.Table, columns: JsonColumns, schema: pa.Schema, number: NDArray[np.int64]
) -> pa.Table | None:
    """Return the table with our columns; None if records must be looked at one by one."""
    others = [name for name in table.column_names if name not in columns.ours]
    given = {name for name in columns.ours if table.column(name).null_count < table.num_rows}
    given.update(columns.paths)
    close = {name: meant for name in others if (meant := near(name, columns.kind)) is not None}
    whole = {name for name in given if name in columns.paths or not table.column(name).null_count}
    missing = wanted(whole, columns.kind).difference(columns.said)
    asked = [n for n, meant in close.items() if meant.rank == ASKED or n not in schema.names]
    if any(close[name].ours in missing for name in asked):
        return None
    found = table
    for ours, path in columns.paths.items():
        column = follow(table.column(str(path[0])), path[1:])
        found = with_column(found, ours, column)
    taken: dict[str, str] = {}
    for name, meant in close.items():
        if meant.ours not in missing:
            continue
        if meant.ours in taken or meant.ours in given:  # each record decides
            return None
        taken[meant.ours] = name
        found = with_column(found.drop_columns(name), meant.ours, table.column(name))
    columns.taken |= taken
    roots = {str(path[0]) for path in columns.paths.values()}
    used = {*taken.values(), *roots}
    columns.unused |= dict.fromkeys(name for name in others if name not in used)
    columns.first = False
    # Without the others: what Arrow infers for a list with null and text is damaged (PyArrow 26).
    known = [name for name in found.column_names if name in COLUMNS[columns.kind]]
    return _with_ids(found.select(known), columns, number)


def _with_ids(table: pa.Table, columns: JsonColumns, number: NDArray[np.int64]) -> pa.Table | None:
    """Return the table with ids for the records that have none."""
    if not columns.makes_ids or not table.column("id").null_count:
        return table
    ids = table.column("id")
    if ids.null_count < len(ids) and not pa.types.is_string(ids.type):
        return None
    made = row_ids(columns.file, number)
    filled = made if ids.null_count == len(ids) else pc.coalesce(ids, made)
    return with_column(table, "id", filled)


def _arrow_type(name: str, example: object) -> pa.DataType:
    if name in IDS:
        return pa.int64() if isinstance(example, int) else pa.string()
    if name in TIMES:
        return pa.float64() if isinstance(example, int | float) else pa.string()
    if name in LISTS and isinstance(example, str):
        return pa.string()
    return column_type(name)
