"""Whether a table of a stranger can be read: its types, its offsets, and how large it becomes.

A few bytes of Arrow can stand for gigabytes: lists whose elements have no bytes, views that all
show the same bytes, lists of such lists. Offsets that were never checked lead kernels out of their
buffers. So every table is checked before its cells are touched, in time linear in its bytes:

1. `check_schema` refuses types that no reader of ours knows: unions, run-ends.
2. `check_table` follows all offsets, and computes how many values and how many bytes of text and
   binary the cells are when each is written out. Both are bounded by the bytes of the table.

Text that is not UTF-8 is no matter for this module: the readers reject such cells row by row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.errors import UnsupportedFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Sizes = NDArray[np.float64]
    """The values and the bytes of each cell, in two rows; one column if all cells are equal."""

__all__ = ["READ_BOUNDS", "TableBounds", "check_schema", "check_table"]

_MAX_DEPTH = 64
_REMEDY = "cast the column to another type, or leave it out"


class TableBounds(NamedTuple):
    """How large a table may be when its cells are written out, beside its own bytes.

    Attributes
    ----------
    values
        Cells and elements, nested ones too, that may be there whatever the bytes.
    values_per_byte
        How many more there may be for each byte of the table.
    content
        Bytes of text and binary that may be there whatever the bytes.
    content_per_byte
        How many more there may be for each byte of the table.
    """

    values: int = 1 << 20
    values_per_byte: int = 16
    content: int = 256 << 20
    content_per_byte: int = 256


READ_BOUNDS = TableBounds()
"""The bounds of the library and of files: far above what tables need that were not crafted."""

_FIXED_WIDTH = frozenset(
    [
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.date32(), pa.date64()),
        *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")),
    ]
)
_PLAIN = {
    pa.string(): pa.binary(),
    pa.binary(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.large_binary(): pa.large_binary(),
}
"""Types whose cells follow each other in one buffer, and the type with the same offsets."""

_NOTHING = np.zeros((2, 1))
_ONE_VALUE = np.array([[1.0], [0.0]])


def check_schema(schema: pa.Schema, *, nested_views: bool = True) -> None:
    """Check that the columns have types that can be read.

    Parameters
    ----------
    schema
        The columns.
    nested_views
        Whether list views may have list views as elements.

    Raises
    ------
    UnsupportedFile
        It names the column.

    Examples
    --------
    >>> check_schema(pa.schema({"id": pa.int64(), "tokens": pa.list_(pa.string())}))
    """
    in_view = None if nested_views else False
    _check_names(schema)
    for field in schema:
        if _is_basic(field.type):
            continue
        problem = _problem_of_type(field.type, _MAX_DEPTH, in_view=in_view, in_list=False)
        if problem:
            raise UnsupportedFile(f"the column {field.name!r} holds {problem}; {_REMEDY}")
        if not _is_readable(field.type):
            problem = f"the type of the column {field.name!r} has text that is not valid UTF-8"
            raise UnsupportedFile(problem)


def check_table(table: pa.Table, bounds: TableBounds = READ_BOUNDS) -> None:
    """Check a table before its cells are read: types, offsets, and the size of what it stands for.

    Raises
    ------
    UnsupportedFile
        It names the column.

    Examples
    --------
    >>> check_table(pa.table({"id": [1, 2], "tokens": [["hot", "tea"], None]}))
    """
    kinds = table.schema.types
    _check_names(table.schema)
    if not all(map(_is_basic, kinds)):
        check_schema(table.schema)
    try:
        table.validate()
    except pa.ArrowException as error:
        raise UnsupportedFile(f"the table is damaged: {error}") from None
    others = []
    for number, kind in enumerate(kinds):
        basic = _is_basic(kind)
        if basic and kind in _FIXED_WIDTH:
            continue
        if basic:
            with _Damage(table, number):
                for chunk in table.column(number).chunks:
                    chunk.view(_PLAIN[kind]).validate(full=True)
        elif not _is_sound_list(table.column(number)):
            others.append(number)
    if others:
        _check_sizes(table, others, bounds)


def _is_readable(kind: pa.DataType) -> bool:
    """Whether the time zones and the names of fields in a type are valid UTF-8."""
    try:
        if pa.types.is_timestamp(kind):
            return isinstance(kind.tz, str | None)
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return all(isinstance(one.name, str) and _is_readable(one.type) for one in fields)
    except UnicodeDecodeError:
        return False


def _is_basic(kind: pa.DataType) -> bool:
    """Whether values of a type cannot be there twice. Nested types are slow to look up."""
    return not kind.num_fields and (kind in _FIXED_WIDTH or kind in _PLAIN)


def _check_names(schema: pa.Schema) -> None:
    try:
        schema.names  # noqa: B018, PyArrow decodes them when it is asked
    except UnicodeDecodeError:
        raise UnsupportedFile("the name of a column is not valid UTF-8") from None


def _check_sizes(table: pa.Table, columns: list[int], bounds: TableBounds) -> None:
    """Check the columns that may become much larger than their bytes."""
    size = _total_bytes(table)
    most = np.array(
        [
            bounds.values + bounds.values_per_byte * size,
            bounds.content + bounds.content_per_byte * size,
        ]
    )
    total = np.array([table.num_rows * (table.num_columns - len(columns)), 0.0])
    for number in columns:
        with _Damage(table, number):
            for chunk in table.column(number).chunks:
                total = total + _sum(_sizes(chunk), len(chunk))
        if not (total <= most).all():
            what = "values" if not total[0] <= most[0] else "bytes"
            found, allowed = (side[0 if what == "values" else 1] for side in (total, most))
            raise UnsupportedFile(
                f"the table stands for {found:,.0f} {what}, with those of the column "
                f"{table.column_names[number]!r}; at most {allowed:,.0f} are read of so few bytes: "
                "give fewer rows at a time, or write each value out"
            )


def _is_sound_list(column: pa.ChunkedArray) -> bool:
    """Whether a column has lists of plain values, of a byte or more each, none of them twice.

    A quick answer for most columns of lists. Those with text that is not UTF-8 get a closer look.
    """
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    inner = kind.value_type
    if pa.types.is_boolean(inner) or not _is_basic(inner):
        return False
    try:
        column.validate(full=True)
    except pa.ArrowException:
        return False
    return True


class _Damage:
    """Turns errors of PyArrow about a column into an `UnsupportedFile` that names it."""

    def __init__(self, table: pa.Table, number: int) -> None:
        self._table, self._number = table, number

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, pa.ArrowException | IndexError | OverflowError):
            name = self._table.column_names[self._number]
            raise UnsupportedFile(f"the column {name!r} is damaged: {error}") from None


def _problem_of_type(kind: pa.DataType, depth: int, *, in_view: bool | None, in_list: bool) -> str:
    """Return what is wrong with a type; empty if it can be read.

    ``in_view`` and ``in_list`` say what the type is inside of; None if that does not matter.
    """
    types = pa.types
    if depth == 0:
        return f"values that are nested more than {_MAX_DEPTH} deep"
    if isinstance(kind, pa.BaseExtensionType):
        return _problem_of_type(kind.storage_type, depth, in_view=in_view, in_list=in_list)
    if types.is_run_end_encoded(kind):
        return "run-end encoded values, which are not read"
    if types.is_union(kind):
        return "a union of several types, which is not read"
    view = types.is_list_view(kind) or types.is_large_list_view(kind)
    if view and in_view:
        return "list views of list views, which are not read"
    if in_list and (
        (types.is_fixed_size_binary(kind) and kind.byte_width == 0)
        or (types.is_fixed_size_list(kind) and kind.list_size == 0)
    ):
        return "lists of values without width, which are not read"
    in_view = None if in_view is None else in_view or view
    in_list = in_list or types.is_nested(kind)
    if types.is_dictionary(kind):
        inside = [kind.value_type]
    else:
        inside = [kind.field(number).type for number in range(kind.num_fields)]
    for inner in inside:
        if _is_basic(inner):
            continue
        problem = _problem_of_type(inner, depth - 1, in_view=in_view, in_list=in_list)
        if problem:
            return problem
    return ""


def _total_bytes(table: pa.Table) -> int:
    """Return the bytes of a table; those that several columns share count once."""
    chunks = [chunk for column in table.columns for chunk in column.chunks]
    spans = sorted(
        (buffer.address, buffer.address + buffer.size)
        for chunk in chunks
        for buffer in _buffers(chunk)
        if buffer is not None
    )
    total = last = 0
    for begin, end in spans:
        total += max(0, end - max(begin, last))
        last = max(last, end)
    return total


def _buffers(array: pa.Array) -> list[pa.Buffer | None]:
    """Return the buffers of an array, and those of its dictionary."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    own: list[pa.Buffer | None] = array.buffers()
    return own + (_buffers(array.dictionary) if pa.types.is_dictionary(array.type) else [])


def _sum(sizes: Sizes, count: int) -> NDArray[np.float64]:
    return sizes[:, 0] * count if sizes.shape[1] == 1 else sizes.sum(axis=1)


def _sizes(array: pa.Array) -> Sizes:
    """Return how many values and bytes each cell is when it is written out.

    Floats, because the true number may be far beyond 64 bits. Offsets that lead out of what they
    refer to are an `IndexError`.
    """
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _sizes(array.storage)
    if _is_basic(kind):
        if kind in _FIXED_WIDTH:
            return _ONE_VALUE
        array.view(_PLAIN[kind]).validate(full=True)
        offsets = _offsets(array, np.int64 if types.is_large_binary(_PLAIN[kind]) else np.int32)
        return _leaves(np.diff(offsets))
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return _leaves(_view_lengths(array))
    if types.is_decimal(kind):
        array.validate(full=True)  # digits that Python's decimals cannot have
        return _ONE_VALUE
    if types.is_fixed_size_binary(kind):
        return np.array([[1.0], [float(kind.byte_width)]])
    if types.is_dictionary(kind):
        return _at(_sizes(array.dictionary), array)
    if types.is_struct(kind):
        inner = [_sizes(array.field(number)) for number in range(kind.num_fields)]
        total: Sizes = sum(inner, _ONE_VALUE)
        return total
    if types.is_fixed_size_list(kind):
        return _ONE_VALUE + _fixed_size_lists(array)
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return _ONE_VALUE + _list_views(array)
    if kind.num_fields:
        wide = types.is_large_list(kind)
        return _ONE_VALUE + _lists(array, _offsets(array, np.int64 if wide else np.int32))
    return _ONE_VALUE


def _leaves(length: NDArray[np.integer]) -> Sizes:
    return np.stack([np.ones(len(length)), length.astype(np.float64)])


def _offsets(array: pa.Array, kind: type[np.integer]) -> NDArray[np.integer]:
    """Return the offsets of texts or lists: one more than there are cells."""
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None or buffer.size == 0:
        return np.zeros(len(array) + 1, kind)
    width = np.dtype(kind).itemsize
    return np.frombuffer(buffer, kind, len(array) + 1, array.offset * width)


def _view_lengths(array: pa.Array) -> NDArray[np.int32]:
    """Return the lengths of views, after a check that each is inside of its buffer."""
    bare = pa.Array.from_buffers(pa.binary_view(), len(array), array.buffers(), offset=array.offset)
    bare.validate(full=True)
    if len(array) == 0:
        return np.zeros(0, np.int32)
    views = np.frombuffer(array.buffers()[1], np.int32, 4 * len(array), 16 * array.offset)
    return np.where(_given(array), views[::4], 0)


def _lists(array: pa.Array, offsets: NDArray[np.integer]) -> Sizes:
    values = array.values
    if offsets[0] < 0 or offsets[-1] > len(values) or (np.diff(offsets) < 0).any():
        raise IndexError("offsets of lists must rise, and stay within the elements")
    return _between(_sizes(values), offsets[:-1], offsets[1:])


def _list_views(array: pa.Array) -> Sizes:
    given, values = _given(array), array.values
    begin = np.where(given, array.offsets.to_numpy(zero_copy_only=False), 0).astype(np.int64)
    length = np.where(given, array.sizes.to_numpy(zero_copy_only=False), 0).astype(np.int64)
    if (begin < 0).any() or (length < 0).any() or (begin > len(values) - length).any():
        raise IndexError("list views must stay within the elements")
    return _between(_sizes(values), begin, begin + length)


def _fixed_size_lists(array: pa.Array) -> Sizes:
    size = array.type.list_size
    inner = _sizes(array.values.slice(array.offset * size, len(array) * size))
    constant = inner.shape[1] == 1
    total: Sizes = inner * size if constant else inner.reshape(2, len(array), size).sum(axis=2)
    return total


def _at(sizes: Sizes, array: pa.DictionaryArray) -> Sizes:
    """Return the sizes of the values that the indices of a dictionary choose."""
    index = array.indices
    given = _given(index)
    row = np.where(given, index.fill_null(0).to_numpy(zero_copy_only=False), 0).astype(np.int64)
    if given.any() and not (0 <= row[given].min() and row[given].max() < len(array.dictionary)):
        raise IndexError("indices must be those of values of the dictionary")
    if sizes.shape[1] == 1:
        return sizes
    return np.where(given, sizes[:, np.where(given, row, 0)] if sizes.size else 0.0, _ONE_VALUE)


def _between(
    sizes: Sizes, begin: NDArray[np.integer], end: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Return the sums of the sizes of elements from ``begin`` to before ``end``."""
    if sizes.shape[1] == 1:
        total: Sizes = sizes * (end - begin)
        return total
    before = np.concatenate([_NOTHING, np.cumsum(sizes, axis=1)], axis=1)
    found: Sizes = before[:, end] - before[:, begin]
    return found


def _given(array: pa.Array) -> NDArray[np.bool_]:
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    mask: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return mask
