"""How a Parquet file is read without paying for what a few bytes of it stand for.

Parquet stores a value once and then how often it is repeated: a file of a few kilobytes may be
gigabytes of equal texts, or of empty rows. Its metadata say how many rows there are, and texts are
read as dictionaries, so that `check_table` sees how large they would become before they are
written out.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from nearcast.errors import UnsupportedFile
from nearcast.intake.table_checks import READ_BOUNDS, TableBounds, check_schema, check_table

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ReadPlan", "open_parquet"]

_FREE_ROWS = 1 << 20
_ROWS_PER_BYTE = 1_000
_FREE_BYTES = READ_BOUNDS.content
_FEW_ROWS = 1_000
_BOUNDS = TableBounds(content_per_byte=4_096)
_TEXTS = {
    pa.string(): pa.string(),
    pa.binary(): pa.binary(),
    pa.large_string(): pa.large_string(),
    pa.large_binary(): pa.large_binary(),
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
}
"""The type as which each type of texts is written out, after it was read as a dictionary."""


class ReadPlan(NamedTuple):
    """How a file is read.

    Attributes
    ----------
    schema
        The columns that batches have.
    batch_rows
        The maximum number of rows in a batch.
    dictionaries
        The columns whose texts are read as dictionaries, by their paths in the file.
    """

    schema: pa.Schema
    batch_rows: int
    dictionaries: tuple[str, ...]

    def written_out(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Yield the rows of a batch without the dictionaries that the plan made, after a check.

        Where few long texts are those of many rows, in several parts.
        """
        table = pa.Table.from_batches([batch])
        if not self.dictionaries:
            check_table(table)
            yield table
            return
        check_table(table, _BOUNDS)
        for part in _parts(table):
            yield part.cast(self.schema)


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of a table in as many parts as make each of them small when written out."""
    try:
        check_table(table)
    except UnsupportedFile:
        half = table.num_rows // 2
        if not half:
            raise
        yield from _parts(table.slice(0, half))
        yield from _parts(table.slice(half))
    else:
        yield table


@contextmanager
def open_parquet(opened: Any, batch_rows: int) -> Iterator[tuple[Any, ReadPlan]]:
    """Open a Parquet file, and say how it is to be read.

    Parameters
    ----------
    opened
        The file, opened by PyArrow.
    batch_rows
        The maximum number of rows in a batch that the caller wants.

    Raises
    ------
    UnsupportedFile
        If the file claims far more rows than its bytes can hold, or has columns of types that are
        not read.
    """
    from pyarrow import parquet  # brings file systems and their clients

    try:
        source = parquet.ParquetFile(opened)
        _check_rows(source.metadata, opened.size())
        check_schema(source.schema_arrow)
        plan = _plan(source, batch_rows)
        if plan.dictionaries:
            names, metadata = [*plan.dictionaries], source.metadata
            source = parquet.ParquetFile(opened, metadata=metadata, read_dictionary=names)
    except UnicodeDecodeError:
        raise UnsupportedFile("the name of a column is not valid UTF-8") from None
    with source:
        yield source, plan


def _check_rows(metadata: Any, size: int) -> None:
    """Check that a file has not far more rows than bytes."""
    most = _FREE_ROWS + _ROWS_PER_BYTE * size
    if not 0 <= metadata.num_rows <= most:
        raise UnsupportedFile(
            f"it claims {metadata.num_rows:,} rows in {size:,} bytes; at most {most:,} are read "
            "of so few"
        )


def _plan(source: Any, batch_rows: int) -> ReadPlan:
    """Return how a file is read, whose values may be repeated for next to nothing."""
    metadata, schema = source.metadata, source.schema_arrow
    rows = min(batch_rows, max(metadata.num_rows, 1))
    # No value is longer than all those of its row group. What the metadata say of single columns
    # is not looked at: where it is damaged, PyArrow ends the process.
    longest = max(
        (metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)),
        default=0,
    )
    dictionaries: list[str] = []
    written: dict[str, pa.DataType] = {}
    for number in range(metadata.num_columns):
        leaf = metadata.schema.column(number)
        if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY":
            rows = min(rows, max(1, _FREE_BYTES // max(leaf.length, 1)))
        if leaf.physical_type != "BYTE_ARRAY" or longest * rows <= _FREE_BYTES:
            continue
        name = leaf.path.partition(".")[0]
        own = schema.field(name).type if schema.names.count(name) == 1 else pa.null()
        if pa.types.is_dictionary(own):
            continue
        kind = _written_out(own)
        if kind is None:
            rows = min(rows, max(_FEW_ROWS, _FREE_BYTES // longest))
        else:
            dictionaries.append(leaf.path)
            written[name] = kind
    fields = [field.with_type(written.get(field.name, field.type)) for field in schema]
    return ReadPlan(pa.schema(fields, schema.metadata), rows, tuple(dictionaries))


def _written_out(kind: pa.DataType) -> pa.DataType | None:
    """Return the type to which one with dictionaries in place of texts can be cast, if any."""
    if kind in _TEXTS:
        return _TEXTS[kind]
    if pa.types.is_null(kind) or pa.types.is_dictionary(kind):
        return None
    if pa.types.is_struct(kind):
        inner = [_written_out(field.type) for field in kind]
        if None in inner:
            return None
        return pa.struct([f.with_type(one) for f, one in zip(kind, inner, strict=True)])
    if pa.types.is_map(kind):
        key, item = _written_out(kind.key_type), _written_out(kind.item_type)
        return None if key is None or item is None else pa.map_(key, item, kind.keys_sorted)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        one = _written_out(kind.value_type)
        made = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return None if one is None else made(kind.value_field.with_type(one))
    return None if pa.types.is_nested(kind) else kind
