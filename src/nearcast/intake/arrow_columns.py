"""Columns of an Arrow table as arrays of numbers, texts and lists, whatever their Arrow types.

Each reader gets the `RowErrors` of the table: it rejects the rows with cells that cannot be read,
and reads the others. A column that is missing is treated like one in which all cells are null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import starts
from nearcast.errors import InvalidInput, UnsupportedFile
from nearcast.intake.rejects import cell_value
from nearcast.model.checks import NUMBER
from nearcast.model.keywords import split_list

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.intake.rejects import RowErrors

__all__ = [
    "Numbers",
    "TextLists",
    "column_array",
    "is_text",
    "no_rows",
    "not_null",
    "read_lists",
    "read_numbers",
    "read_texts",
    "with_column",
]

_INT32_BYTES = 2**31 - 1


class Numbers(NamedTuple):
    """A column of numbers: NaN if a cell is null or unreadable; ``given`` if it is not null."""

    value: NDArray[np.float64]
    given: NDArray[np.bool_]


class TextLists(NamedTuple):
    """A column of lists of texts: row ``i`` has ``value[value_start[i]:value_start[i + 1]]``."""

    value_start: NDArray[np.int64]
    value: pa.Array
    given: NDArray[np.bool_]


def with_column(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    """Return a table with a column, in the place of one that it has.

    Examples
    --------
    >>> with_column(pa.table({"a": [1], "b": [2]}), "a", pa.array([3])).to_pydict()
    {'a': [3], 'b': [2]}
    """
    if name not in table.column_names:
        return table.append_column(name, column)
    return table.set_column(table.column_names.index(name), name, column)


def column_array(table: pa.Table, name: str) -> pa.Array | None:
    """Return a column as one array of a basic type; None if it is missing or all null.

    Dictionaries, views and extension types are converted to the types that they represent.
    """
    names = table.column_names
    if name not in names:
        return None
    if names.count(name) > 1:
        raise UnsupportedFile(f"the column {name} occurs twice; rename one of them")
    column = table.column(name)
    if column.null_count == len(column):
        return None
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks])
        kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = _without_dictionary(column), kind.value_type
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        chunks = [_from_list_view(chunk) for chunk in column.chunks]
        column = pa.chunked_array(chunks)
    wide = _wide(column.type, _nbytes(column))
    if wide is not None:
        column = column.cast(wide)
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)


def _without_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a dictionary column as its values; views as large text, which PyArrow can take."""
    kind, index = column.type.value_type, column.type.index_type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        kind = pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
        column = column.cast(pa.dictionary(index, kind))
    return column.cast(kind)


def read_numbers(table: pa.Table, name: str, errors: RowErrors) -> Numbers:
    """Return a column of numbers: integers, floats, decimals, or numbers written as text."""
    column = column_array(table, name)
    if column is None:
        return Numbers(np.full(table.num_rows, np.nan), no_rows(table.num_rows))
    given = not_null(column)
    if is_text(column.type):
        column = read_texts(table, name, errors)
        readable = pc.match_substring_regex(column, NUMBER)
        column = pc.if_else(readable, pc.utf8_trim_whitespace(column), None).cast(pa.float64())
    elif not _is_number(column.type):
        column = pa.nulls(len(column), pa.float64())
    value = _floats(column)
    unreadable = given & ~not_null(column)
    problem = "must be a number"

    def raise_error(row: int) -> None:
        raise InvalidInput(name, cell_value(table, name, row), problem)

    errors.add_checked(unreadable, name, raise_error, problem)
    return Numbers(value, given)


def read_texts(
    table: pa.Table, name: str, errors: RowErrors, *, integers: bool = False
) -> pa.Array:
    """Return a column of text, null if missing or unreadable; integers may become text."""
    column = column_array(table, name)
    if column is None:
        return pa.nulls(table.num_rows, pa.string())
    if integers and pa.types.is_integer(column.type):
        return column.cast(pa.string())
    if not is_text(column.type):
        errors.add(not_null(column), name, f"must be text, the column holds {column.type}")
        return pa.nulls(table.num_rows, pa.string())
    text, damaged = _decoded(column)
    errors.add(damaged, name, "must be valid UTF-8")
    return text


def read_lists(table: pa.Table, name: str, errors: RowErrors) -> TextLists | None:
    """Return a column of lists of texts. Cells of text are JSON arrays, or are split at spaces."""
    column = column_array(table, name)
    if column is None:
        return None
    given = not_null(column)
    if is_text(column.type):
        column = _split_cells(read_texts(table, name, errors), name, errors)
    elif not _is_list(column.type):
        errors.add(given, name, f"must be a list of strings, the column holds {column.type}")
        column = pa.nulls(len(column), pa.list_(pa.string()))
    length = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    value_start = starts(length)
    row = np.repeat(np.arange(len(column)), length)
    value = _list_values(pc.list_flatten(column))
    if value is None:
        kind = table.schema.field(name).type
        errors.add(given & (length > 0), name, f"must be a list of strings, not of {kind}")
        value = pa.nulls(len(row), pa.string())
    errors.add(_rows(row, ~not_null(value), given), name, "must not contain null")
    text, damaged = _decoded(value)
    errors.add(_rows(row, damaged, given), name, "must be valid UTF-8")
    return TextLists(value_start, text, given)


def not_null(column: pa.Array) -> NDArray[np.bool_]:
    """Return a mask of the cells that are not null."""
    if column.null_count == 0:
        return np.ones(len(column), np.bool_)
    mask: NDArray[np.bool_] = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return mask


def no_rows(count: int) -> NDArray[np.bool_]:
    """Return a mask for ``count`` rows in which none is set."""
    return np.zeros(count, np.bool_)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _nbytes(column: pa.ChunkedArray) -> int:
    try:
        return int(column.nbytes)
    except pa.ArrowTypeError:  # views, and lists of them, before PyArrow 24
        return int(column.get_total_buffer_size())


def _wide(kind: pa.DataType, nbytes: int) -> pa.DataType | None:
    """Return the type to which a column must be cast before its chunks are joined, if any."""
    large = nbytes > _INT32_BYTES
    if pa.types.is_string_view(kind) or (large and pa.types.is_string(kind)):
        return pa.large_string()
    if pa.types.is_binary_view(kind) or (large and pa.types.is_binary(kind)):
        return pa.large_binary()
    if large and pa.types.is_list(kind):
        return pa.large_list(pa.large_string()) if is_text(kind.value_type) else None
    return None


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _floats(column: pa.Array) -> NDArray[np.float64]:
    floats = column.cast(pa.float64(), safe=False)
    if floats.null_count:
        floats = pc.fill_null(floats, np.nan)
    value: NDArray[np.float64] = floats.to_numpy()
    return value


def _list_values(value: pa.Array) -> pa.Array | None:
    """Return the elements of lists as text, or None if they have another type."""
    kind = value.type.value_type if pa.types.is_dictionary(value.type) else value.type
    if pa.types.is_null(kind):
        return pa.nulls(len(value), pa.string())
    if is_text(value.type):
        return value
    if is_text(kind) or pa.types.is_string_view(kind):
        return value.cast(pa.large_string())
    return None


def _rows(
    row: NDArray[np.int64], wrong: NDArray[np.bool_], given: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return a mask of the rows that have a wrong element."""
    mask = np.zeros(len(given), np.bool_)
    mask[row[wrong]] = True
    return mask


def _decoded(text: pa.Array) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Return text with null in place of invalid UTF-8, and a mask of the cells with it."""
    damaged = no_rows(len(text))
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        raw = text.cast(pa.binary() if pa.types.is_string(text.type) else pa.large_binary())
        damaged = np.array([not _is_utf8(content) for content in raw.to_pylist()], np.bool_)
        text = pc.if_else(pa.array(~damaged), raw, None).cast(text.type)
    return text, damaged


def _is_utf8(raw: bytes | None) -> bool:
    try:
        return raw is None or raw.decode() is not None
    except UnicodeDecodeError:
        return False


def _from_list_view(lists: pa.Array) -> pa.Array:
    """Return a list view as lists: PyArrow's cast loses the values of the last list."""
    given = not_null(lists)
    length = np.where(given, lists.sizes.to_numpy(zero_copy_only=False), 0).astype(np.int64)
    value_start = starts(length)
    begin = np.where(given, lists.offsets.to_numpy(zero_copy_only=False), 0).astype(np.int64)
    position = np.arange(value_start[-1]) + np.repeat(begin - value_start[:-1], length)
    value = lists.values
    if pa.types.is_string_view(value.type):  # PyArrow cannot take rows of it
        value = value.cast(pa.large_string())
    elif _list_values(value.slice(0, 0)) is None:  # the rows are rejected, whatever the values
        value = pa.array(np.zeros(len(value), np.int8))
    return pa.LargeListArray.from_arrays(
        value_start, value.take(pa.array(position)), mask=pa.array(~given)
    )


def _split_cells(text: pa.Array, name: str, errors: RowErrors) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(text)
    if pc.any(pc.starts_with(trimmed, "[")).as_py():
        return _json_cells(trimmed, name, errors)
    return pc.utf8_split_whitespace(trimmed)


def _json_cells(text: pa.Array, name: str, errors: RowErrors) -> pa.Array:
    lists: list[list[str | None] | None] = []
    for row, content in enumerate(text.to_pylist()):
        try:
            lists.append(None if content is None else split_list(name, content))
        except InvalidInput as error:
            errors.add_error(row, error)
            lists.append(None)
    return pa.array(lists, pa.list_(pa.string()))
