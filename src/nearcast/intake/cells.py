"""Columns of a table as plain arrays: numbers, texts and lists, whatever types they came in.

Every reader takes the faults of the table: a cell that cannot be read refuses its row, and the
rest of the column is read on. A column that is missing or all null is None.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import starts
from nearcast.errors import InvalidInput
from nearcast.intake.rejects import cell

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nearcast.intake.rejects import Faults

__all__ = [
    "Lists",
    "Numbers",
    "is_text",
    "nowhere",
    "plain",
    "read_lists",
    "read_numbers",
    "read_texts",
    "split_cell",
    "valid",
]

NUMBER = r"^[ \t]*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*$"
"""What counts as a number where it is written as text."""

_INT32_BYTES = 2**31 - 1


class Numbers(NamedTuple):
    """A column of numbers: NaN where a cell is null or unreadable; ``given`` where not null."""

    value: NDArray[np.float64]
    given: NDArray[np.bool_]


class Lists(NamedTuple):
    """A column of lists of texts: row ``i`` has ``value[value_start[i]:value_start[i + 1]]``."""

    value_start: NDArray[np.int64]
    value: pa.Array
    given: NDArray[np.bool_]


def plain(table: pa.Table, name: str) -> pa.Array | None:
    """Return a column as one array without dictionaries, views and extension types."""
    if name not in table.column_names:
        return None
    column = table.column(name)
    if column.null_count == len(column):
        return None
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks])
        kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    wide = _wide(kind, column.nbytes)
    if wide is not None:
        column = column.cast(wide)
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)


def read_numbers(table: pa.Table, name: str, faults: Faults) -> Numbers:
    """Return a column of numbers: integers, floats, decimals, or text that says a number."""
    column = plain(table, name)
    if column is None:
        return Numbers(np.full(table.num_rows, np.nan), nowhere(table.num_rows))
    given = valid(column)
    if is_text(column.type):
        column = read_texts(table, name, faults)
        readable = pc.match_substring_regex(column, NUMBER)
        column = pc.if_else(readable, pc.utf8_trim_whitespace(column), None).cast(pa.float64())
    elif not _is_number(column.type):
        column = pa.nulls(len(column), pa.float64())
    value = _floats(column)
    unreadable = given & ~valid(column)
    faults.explain(unreadable, name, _refusal(table, name, "must be a number"), "must be a number")
    return Numbers(value, given)


def read_texts(table: pa.Table, name: str, faults: Faults, *, integers: bool = False) -> pa.Array:
    """Return a column of text, null where it is missing or unreadable; integers become text."""
    column = plain(table, name)
    if column is None:
        return pa.nulls(table.num_rows, pa.string())
    if integers and pa.types.is_integer(column.type):
        return column.cast(pa.string())
    if not is_text(column.type):
        faults.add(valid(column), name, f"must be text, the column holds {column.type}")
        return pa.nulls(table.num_rows, pa.string())
    text, damaged = _decoded(column)
    faults.add(damaged, name, "must be valid UTF-8")
    return text


def read_lists(table: pa.Table, name: str, faults: Faults) -> Lists | None:
    """Return a column of lists of texts; a cell that is text is a JSON array or split at spaces."""
    column = plain(table, name)
    if column is None:
        return None
    given = valid(column)
    if is_text(column.type):
        column = _split_cells(read_texts(table, name, faults), name, faults)
    elif not _is_list(column.type):
        faults.add(given, name, f"must be a list of texts, the column holds {column.type}")
        column = pa.nulls(len(column), pa.list_(pa.string()))
    length = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    value_start = starts(length)
    row = np.repeat(np.arange(len(column)), length)
    value = _list_values(pc.list_flatten(column))
    if value is None:
        faults.add(given & (length > 0), name, f"must be a list of texts, not {column.type}")
        value = pa.nulls(len(row), pa.string())
    faults.add(_rows(row, ~valid(value), given), name, "must not contain null")
    text, damaged = _decoded(value)
    faults.add(_rows(row, damaged, given), name, "must be valid UTF-8")
    return Lists(value_start, text, given)


def valid(column: pa.Array) -> NDArray[np.bool_]:
    """Return which cells of a column are not null."""
    if column.null_count == 0:
        return np.ones(len(column), np.bool_)
    mask: NDArray[np.bool_] = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return mask


def nowhere(count: int) -> NDArray[np.bool_]:
    """Return a mask of that many rows that chooses none."""
    return np.zeros(count, np.bool_)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _wide(kind: pa.DataType, nbytes: int) -> pa.DataType | None:
    """Return the type to which a column must be cast before its chunks can be joined, if any."""
    large = nbytes > _INT32_BYTES
    if pa.types.is_string_view(kind) or (large and pa.types.is_string(kind)):
        return pa.large_string()
    if pa.types.is_binary_view(kind) or (large and pa.types.is_binary(kind)):
        return pa.large_binary()
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(kind.value_type)
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


def _refusal(table: pa.Table, name: str, problem: str) -> Callable[[int], None]:
    def refuse(row: int) -> None:
        raise InvalidInput(name, cell(table, name, row), problem)

    return refuse


def _list_values(value: pa.Array) -> pa.Array | None:
    """Return the elements of lists as text, or None where they are something else."""
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
    """Return text with null where it is not UTF-8, and where that was."""
    damaged = nowhere(len(text))
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


def _split_cells(text: pa.Array, name: str, faults: Faults) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(text)
    if pc.any(pc.starts_with(trimmed, "[")).as_py():
        return _json_cells(trimmed, name, faults)
    return pc.utf8_split_whitespace(trimmed)


def _json_cells(text: pa.Array, name: str, faults: Faults) -> pa.Array:
    lists: list[list[str | None] | None] = []
    for row, content in enumerate(text.to_pylist()):
        try:
            lists.append(None if content is None else split_cell(content, name))
        except InvalidInput as error:
            faults.refuse(row, error)
            lists.append(None)
    return pa.array(lists, pa.list_(pa.string()))


def split_cell(content: str, name: str) -> list[str | None]:
    """Return the list that a cell of text means: a JSON array, or words between spaces.

    Examples
    --------
    >>> split_cell('["flat white", "cake"]', "keywords"), split_cell("flat white", "keywords")
    (['flat white', 'cake'], ['flat', 'white'])
    """
    if not content.startswith("["):
        return [*content.split()] or [""]
    try:
        found = json.loads(content)
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(e, str | None) for e in found):
        raise InvalidInput(name, content, "must be a JSON array of texts, or words between spaces")
    return found
