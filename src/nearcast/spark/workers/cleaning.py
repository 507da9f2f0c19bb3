"""Clean raw records: valid rows in one schema, and rejects, as Arrow record batches.

`nearcast.intake` decides which rows are valid. Clean rows have rounded coordinates, timestamps for
times, lists for lists, and text without control characters. Cleaning does not change what a row
matches, and cleaning a clean row changes nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import UNITS
from nearcast.errors import UnknownName
from nearcast.intake import (
    MESSAGE_COLUMNS,
    SUBSCRIPTION_COLUMNS,
    Rejects,
    read_messages,
    read_subscriptions,
)
from nearcast.intake.arrow_columns import column_array, read_lists, read_numbers, read_texts
from nearcast.intake.ids import read_ids, read_owners
from nearcast.intake.lines import LineErrors
from nearcast.intake.places import BOX, POINT
from nearcast.intake.rejects import RowErrors, cell_value
from nearcast.intake.times import read_times
from nearcast.text import Vocabulary
from nearcast.text import tokenizer as find_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

__all__ = [
    "COLUMNS",
    "DAMAGED",
    "REJECTS",
    "Cleaning",
    "clean_rejects",
    "clean_rows",
    "normalized",
    "require_columns",
]

COLUMNS = {"messages": MESSAGE_COLUMNS, "subscriptions": SUBSCRIPTION_COLUMNS}
"""The columns of each kind of row."""

DAMAGED = "_corrupt_record"
"""The column for lines that Spark could not parse."""

REJECTS = Rejects.empty().to_table().schema
"""The schema of rejects."""

_TIME = pa.timestamp("us", "UTC")
_LIST = pa.list_(pa.string())
_TYPES = {
    **dict.fromkeys(("id", "text", "expression", "owner", "geometry"), pa.string()),
    **dict.fromkeys(("tokens", "keywords"), _LIST),
    **dict.fromkeys(("time", "expires_at"), _TIME),
}
_COORDINATES = (*POINT, *BOX)
_MAX_TOKENS = 1_000_000
# Single spaces are left alone: they are everywhere, and replacing them would be slow.
_UNTIDY = r"[\p{Cc}\p{Z}]{2,}|[^\PZ ]|\p{Cc}"


@dataclass(frozen=True)
class Cleaning:
    """How to clean records.

    Parameters
    ----------
    kind
        ``messages`` or ``subscriptions``.
    schema
        The schema of clean rows; see `Cleaning.of`.
    damaged
        The reason for rejecting lines in the column `DAMAGED`.
    tokenizer
        The name of the tokenizer of keywords.
    """

    kind: str
    schema: pa.Schema
    damaged: str = "cannot be read as a record"
    tokenizer: str = "words"

    @classmethod
    def of(
        cls,
        kind: str,
        names: Iterable[str],
        *,
        integer_ids: bool = False,
        binary_geometry: bool = False,
        damaged: str = damaged,
        tokenizer: str = tokenizer,
    ) -> Cleaning:
        """Return the cleaning of records with these columns; messages always get a time.

        Examples
        --------
        >>> cleaning = Cleaning.of("messages", ["id", "text", "lon", "lat"], integer_ids=True)
        >>> cleaning.schema.names
        ['id', 'text', 'lon', 'lat', 'time']
        """
        if kind not in COLUMNS:
            raise UnknownName("kind", kind, COLUMNS)
        types = _TYPES | {
            "id": pa.int64() if integer_ids else pa.string(),
            "geometry": pa.binary() if binary_geometry else pa.string(),
        }
        there = {*names, "time"} if kind == "messages" else {*names}
        fields = [(n, types.get(n, pa.float64())) for n in COLUMNS[kind] if n in there]
        return cls(kind, pa.schema(fields), damaged, tokenizer)

    @property
    def counted_schema(self) -> pa.Schema:
        """The schema of the output of `clean_rows`."""
        numbers = [pa.field(name, pa.int64()) for name in ("row", "read", "rejected")]
        return pa.schema([*self.schema, *numbers])


def clean_rows(batches: Iterable[pa.RecordBatch], cleaning: Cleaning) -> Iterator[pa.RecordBatch]:
    r"""Return the clean rows of each batch, and one more row with the counts of the batch.

    That row has only the numbers of rows ``read`` and ``rejected``, which are null in clean rows.
    So every batch gives a row, even if all records are invalid, and Spark does not skip counting.

    Parameters
    ----------
    batches
        Records with columns as `nearcast.intake` reads them, unparsed lines in `DAMAGED`, and
        ``row``: the number of the first row of this task.
    cleaning
        How to clean them.

    Examples
    --------
    >>> cleaning = Cleaning.of("messages", ["id", "text", "lon", "lat"])
    >>> batch = pa.record_batch({
    ...     "id": ["a", "b"], "text": [" Hot\ttea ", "x"], "lon": ["13.4", "east"],
    ...     "lat": ["52.5", "0"], "row": [40, 40],
    ... })
    >>> [clean] = clean_rows([batch], cleaning)
    >>> clean.column("text").to_pylist(), clean.column("rejected").to_pylist()
    (['Hot tea', None], [None, 1])
    """
    for table, rows, rejects in _checked(batches, cleaning):
        valid = np.ones(len(rows), np.bool_)
        valid[rejects.row] = False
        kept = table.filter(pa.array(valid)) if len(rejects) else table
        numbers = [pa.array(rows[valid]), *[pa.nulls(kept.num_rows, pa.int64())] * 2]
        counts = [None, len(rows), len(rejects)]
        columns = [
            *(pa.concat_arrays([c, pa.nulls(1, c.type)]) for c in _columns(kept, cleaning.schema)),
            *(
                pa.concat_arrays([c, pa.array([n], c.type)])
                for c, n in zip(numbers, counts, strict=True)
            ),
        ]
        yield pa.record_batch(columns, schema=cleaning.counted_schema)


def clean_rejects(
    batches: Iterable[pa.RecordBatch], cleaning: Cleaning
) -> Iterator[pa.RecordBatch]:
    """Return the invalid rows with reasons; the parameters are those of `clean_rows`.

    Examples
    --------
    >>> cleaning = Cleaning.of("messages", ["id", "text", "lon", "lat"])
    >>> batch = pa.record_batch({
    ...     "id": ["a", "b"], "text": ["x", "y"], "lon": [0, 181], "lat": [0, 0], "row": [40, 40],
    ... })
    >>> [rejects] = clean_rejects([batch], cleaning)
    >>> rejects.to_pylist()[0]["row"], rejects.to_pylist()[0]["field"]
    (41, 'lon')
    """
    for _, rows, rejects in _checked(batches, cleaning):
        if len(rejects):
            numbered = replace(rejects, row=rows[rejects.row])
            yield from numbered.to_table().combine_chunks().to_batches()


def require_columns(kind: str, names: Sequence[str]) -> None:
    """Raise an error unless these columns can have rows of this kind.

    Raises
    ------
    UnsupportedFile
        When there is no column for the id, the words or the place, or a name occurs twice.
    """
    table = pa.Table.from_arrays([pa.nulls(0) for _ in names], names=list(names))
    _invalid_rows(kind, table, Vocabulary(), "words")


def normalized(text: pa.Array) -> pa.Array:
    r"""Return texts in Unicode form NFC, with runs of spaces and control characters as one space.

    This does not change the words of a text.

    Examples
    --------
    >>> normalized(pa.array(["  Cafe\u0301\t\n Rio\x00", None])).to_pylist()
    ['Café Rio', None]
    """
    spaced = pc.replace_substring_regex(text, _UNTIDY, " ")
    return pc.utf8_normalize(pc.utf8_trim(spaced, " "), "NFC").cast(pa.string())


def _checked(
    batches: Iterable[pa.RecordBatch], cleaning: Cleaning
) -> Iterator[tuple[pa.Table, NDArray[np.int64], Rejects]]:
    """Return the records of each batch, their numbers, and the invalid ones by position."""
    vocabulary, done = Vocabulary(), 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if len(vocabulary) > _MAX_TOKENS:
            vocabulary = Vocabulary()
        table = _without_views(pa.Table.from_batches([batch]))
        rows = table.column("row").to_numpy() + np.arange(done, done + len(table))
        done += len(table)
        table = table.drop_columns("row")
        yield table, rows, _rejects_of(table, cleaning, vocabulary)


def _without_views(table: pa.Table) -> pa.Table:
    """Return the table without string and binary views, whose rows Arrow cannot select."""
    plain_types = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    fields = [field.with_type(plain_types.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def _rejects_of(table: pa.Table, cleaning: Cleaning, vocabulary: Vocabulary) -> Rejects:
    if DAMAGED not in table.column_names:
        return _invalid_rows(cleaning.kind, table, vocabulary, cleaning.tokenizer)
    readable = table.column(DAMAGED).is_null().to_numpy()
    errors = LineErrors()
    for row in np.flatnonzero(~readable).tolist():
        errors.add(row, "", cleaning.damaged, cell_value(table, DAMAGED, row))
    records = table.drop_columns(DAMAGED).filter(pa.array(readable))
    invalid = _invalid_rows(cleaning.kind, records, vocabulary, cleaning.tokenizer)
    position = np.flatnonzero(readable)[invalid.row]
    numbered = replace(invalid, row=position)
    return Rejects.concatenate([errors.rejects(), numbered])


def _invalid_rows(kind: str, table: pa.Table, vocabulary: Vocabulary, tokenizer: str) -> Rejects:
    """Return the invalid rows by position."""
    if kind == "messages":  # no message is invalid because of its tokens
        return read_messages(table, now_us=0, unique=False)[1]
    return read_subscriptions(table, vocabulary, find_tokenizer(tokenizer), unique=False)[1]


def _columns(table: pa.Table, schema: pa.Schema) -> list[pa.Array]:
    """Return the columns of valid rows in this schema."""
    if not table.num_rows:
        return [pa.nulls(0, field.type) for field in schema]
    return [_column(table, field).cast(field.type) for field in schema]


def _column(table: pa.Table, field: pa.Field) -> pa.Array:
    name, kind = field.name, field.type
    errors = RowErrors(table.num_rows)  # stays empty: the rows are valid
    if name == "id":
        return read_ids(table, name, errors).to_arrow()
    if name == "owner":
        owner = read_owners(table, name, errors)
        return pa.nulls(table.num_rows, kind) if owner is None else owner
    if name == "geometry":
        return _geometries(table, kind)
    if kind == pa.string():
        return normalized(read_texts(table, name, errors))
    if kind == _LIST:
        return _lists(table, name, errors)
    if kind == _TIME:
        time = read_times(table, name, errors)
        return pa.array(time.us, mask=~time.given)
    number = read_numbers(table, name, errors)
    value = _rounded(number.value) if name in _COORDINATES else number.value
    return pa.array(value, mask=~number.given)


def _rounded(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round degrees to units, as intake does; this is idempotent."""
    with np.errstate(over="ignore"):
        return np.rint(degrees * UNITS) / UNITS + 0.0  # no negative zero


def _lists(table: pa.Table, name: str, errors: RowErrors) -> pa.Array:
    lists = read_lists(table, name, errors)
    if lists is None:
        return pa.nulls(table.num_rows, _LIST)
    start = pa.array(lists.value_start.astype(np.int32))
    return pa.ListArray.from_arrays(
        start, normalized(lists.value), mask=pa.array(~lists.given, pa.bool_())
    )


def _geometries(table: pa.Table, kind: pa.DataType) -> pa.Array:
    """Return WKB or text as it is; GeoJSON structures become text."""
    column = column_array(table, "geometry")
    if column is None:
        return pa.nulls(table.num_rows, kind)
    if not pa.types.is_nested(column.type):
        return column
    cells = (cell_value(table, "geometry", row) for row in range(table.num_rows))
    return pa.array([None if value is None else json.dumps(value) for value in cells], pa.string())
