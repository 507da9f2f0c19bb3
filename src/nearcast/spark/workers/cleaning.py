"""Clean raw records: valid rows in one schema, and rejects, as Arrow record batches.

`nearcast.intake` decides which rows are valid. Clean rows have rounded coordinates, timestamps for
times, lists for lists, and text without control characters. Cleaning does not change what a row
matches, and cleaning a clean row changes nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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
from nearcast.intake.ids import read_ids, read_names
from nearcast.intake.lines import LineErrors
from nearcast.intake.places import BOX, POINT
from nearcast.intake.rejects import RowErrors, cell_value
from nearcast.intake.times import read_durations, read_times
from nearcast.model.close_names import COLUMNS as KNOWN_COLUMNS
from nearcast.text import Vocabulary
from nearcast.text import tokenizer as find_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from nearcast.intake import Batch

__all__ = [
    "COLUMNS",
    "DAMAGED",
    "FILE",
    "LINE",
    "ORIGIN",
    "RECORD",
    "REJECTED",
    "REJECTS",
    "Cleaning",
    "clean_rejects",
    "clean_rows",
    "invalid_rows",
    "located",
    "normalized",
    "require_columns",
    "typed_columns",
]

COLUMNS = {"messages": MESSAGE_COLUMNS, "subscriptions": SUBSCRIPTION_COLUMNS}
"""The columns of each kind of row that can be cleaned."""

FILE, LINE, REJECTED, RECORD = "_file", "_line", "_rejected", "_record"
"""Columns that say where a row comes from: its file, its line or row there, why it was rejected
when the file was read, and the whole record."""

_WHY = pa.struct([("field", pa.string()), ("reason", pa.string()), ("record", pa.string())])
ORIGIN = pa.schema([(REJECTED, _WHY), (FILE, pa.string()), (LINE, pa.int64())])
"""The columns that a frame of files has beside those of its rows."""

DAMAGED = "_corrupt_record"
"""The column for lines that Spark could not parse."""

REJECTS = Rejects.empty().to_table().schema
"""The schema of rejects."""

_TIME = pa.timestamp("us", "UTC")
_LIST = pa.list_(pa.string())
_TYPES = {
    **dict.fromkeys(("text", "expression", "owner", "op", "scope"), pa.string()),
    **dict.fromkeys(("tokens", "keywords"), _LIST),
    **dict.fromkeys(("time", "expires_at"), _TIME),
}
_COORDINATES = (*POINT, *BOX)
_IDS = ("id", "subscription_id")
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
    tidy
        Whether text is normalized and coordinates are rounded; otherwise they are only checked.
    """

    kind: str
    schema: pa.Schema
    damaged: str = "cannot be read as a record"
    tokenizer: str = "words"
    tidy: bool = True

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
        tidy: bool = True,
    ) -> Cleaning:
        """Return the cleaning of records with these columns; clean messages always get a time.

        Examples
        --------
        >>> cleaning = Cleaning.of("messages", ["id", "text", "lon", "lat"], integer_ids=True)
        >>> cleaning.schema.names
        ['id', 'text', 'lon', 'lat', 'time']
        """
        if kind not in KNOWN_COLUMNS:
            raise UnknownName("kind", kind, COLUMNS)
        types = _TYPES | {
            **dict.fromkeys(_IDS, pa.int64() if integer_ids else pa.string()),
            "geometry": pa.binary() if binary_geometry else pa.string(),
        }
        there = {*names, "time"} if kind == "messages" else {*names}
        order = COLUMNS.get(kind, KNOWN_COLUMNS[kind])
        fields = [(n, types.get(n, pa.float64())) for n in order if n in there]
        return cls(kind, pa.schema(fields), damaged, tokenizer, tidy)

    @property
    def counted_schema(self) -> pa.Schema:
        """The schema of the output of `clean_rows`."""
        numbers = [pa.field(name, pa.int64()) for name in ("row", "read", "rejected")]
        return pa.schema([*self.schema, *numbers])

    @property
    def frame_schema(self) -> pa.Schema:
        """The schema of a frame of files: also where rows come from."""
        record = [(RECORD, pa.string())] if self.kind == "changes" else []
        return pa.schema([*self.schema, *record, *ORIGIN])

    def counted(
        self, columns: Sequence[pa.Array], rows: NDArray[np.int64], read: int, rejected: int
    ) -> pa.RecordBatch:
        """Return clean rows and one more row with the counts, in the `counted_schema`."""
        numbers = [pa.array(rows, pa.int64()), *[pa.nulls(len(rows), pa.int64())] * 2]
        every = [
            *(pa.concat_arrays([c, pa.nulls(1, c.type)]) for c in columns),
            *(
                pa.concat_arrays([c, pa.array([n], c.type)])
                for c, n in zip(numbers, (None, read, rejected), strict=True)
            ),
        ]
        return pa.record_batch(every, schema=self.counted_schema)


def clean_rows(batches: Iterable[pa.RecordBatch], cleaning: Cleaning) -> Iterator[pa.RecordBatch]:
    r"""Return the clean rows of each batch, and one more row with the counts of the batch.

    That row has only the numbers of rows ``read`` and ``rejected``, which are null in clean rows.
    So every batch gives a row, even if all records are invalid, and Spark does not skip counting.

    Parameters
    ----------
    batches
        Records with columns as `nearcast.intake` reads them, unparsed lines in `DAMAGED`, the
        columns of `ORIGIN` if they come from files, and ``row``: the number of the first row of
        this task.
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
        columns = typed_columns(kept, cleaning, RowErrors(len(kept)))  # no errors: all are valid
        yield cleaning.counted(columns, rows[valid], len(rows), len(rejects))


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
    for table, rows, rejects in _checked(batches, cleaning):
        if len(rejects):
            numbered = replace(rejects, row=rows[rejects.row])
            found = located(numbered, table.take(pa.array(rejects.row)))
            yield from found.to_table().combine_chunks().to_batches()


def located(rejects: Rejects, table: pa.Table, prefix: str = "") -> Rejects:
    """Return rejects with their files, lines and whole records, as far as a table says so.

    Row ``i`` of the table is what reject ``i`` was; ``prefix`` begins the names of its columns.
    """
    names = [name for name in (*ORIGIN.names, RECORD) if f"{prefix}{name}" in table.column_names]
    if not names or not len(rejects):
        return rejects
    rows = []
    chosen = table.select([f"{prefix}{name}" for name in names]).rename_columns(names)
    for at, origin in enumerate(chosen.to_pylist()):
        why = origin.get(REJECTED) or {
            "field": rejects.field[at],
            "reason": rejects.reason[at],
            "record": origin.get(RECORD) or rejects.record[at],
        }
        line = origin.get(LINE)
        number = int(rejects.row[at]) if line is None else line
        rows.append((number, origin.get(FILE) or "", *why.values()))
    row, *texts = zip(*rows, strict=True)
    return Rejects(np.array(row, np.int64), *texts)


def require_columns(kind: str, names: Sequence[str]) -> None:
    """Raise an error unless these columns can have rows of this kind.

    Raises
    ------
    UnsupportedFile
        When there is no column for the id, the words or the place, or a name occurs twice.
    """
    table = pa.Table.from_arrays([pa.nulls(0) for _ in names], names=list(names))
    invalid_rows(kind, table, Vocabulary())


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
    """Return the invalid rows by position."""
    origin = [name for name in (DAMAGED, *ORIGIN.names, RECORD) if name in table.column_names]
    own = table.drop_columns(origin)
    unreadable = [name for name in (DAMAGED, REJECTED) if name in origin]
    if not unreadable:
        return invalid_rows(cleaning.kind, own, vocabulary, tokenizer=cleaning.tokenizer)
    readable = np.ones(table.num_rows, np.bool_)
    for name in unreadable:
        readable &= table.column(name).is_null().to_numpy()
    damaged = LineErrors()
    for row in np.flatnonzero(~readable).tolist():
        text = cell_value(table, DAMAGED, row) if DAMAGED in origin else ""
        damaged.add(row, "", cleaning.damaged, text or "")
    records = own.filter(pa.array(readable))
    invalid = invalid_rows(cleaning.kind, records, vocabulary, tokenizer=cleaning.tokenizer)
    numbered = replace(invalid, row=np.flatnonzero(readable)[invalid.row])
    return Rejects.concatenate([damaged.rejects(), numbered])


def invalid_rows(
    kind: str,
    table: pa.Table,
    vocabulary: Vocabulary,
    source: Batch | None = None,
    *,
    tokenizer: str = "words",
) -> Rejects:
    """Return the invalid rows of a table of messages or subscriptions.

    ``source`` is what it was read from; without it, ``row`` is the position in the table.
    """
    if kind == "messages":  # no message is invalid because of its tokens
        return read_messages(table, now_us=0, source=source, unique=False)[1]
    split = find_tokenizer(tokenizer)
    return read_subscriptions(table, vocabulary, split, source=source, unique=False)[1]


def typed_columns(table: pa.Table, cleaning: Cleaning, errors: RowErrors) -> list[pa.Array]:
    """Return the columns of a table in the schema of a cleaning.

    Cells that cannot be converted are noted as errors.
    """
    if not table.num_rows:
        return [pa.nulls(0, field.type) for field in cleaning.schema]
    return [_column(table, field, cleaning, errors) for field in cleaning.schema]


def _column(table: pa.Table, field: pa.Field, cleaning: Cleaning, errors: RowErrors) -> pa.Array:
    name, kind = field.name, field.type
    if name not in table.column_names:
        return pa.nulls(table.num_rows, kind)
    if name in _IDS:
        return _ids(table, field, errors)
    if name in ("owner", "scope"):
        names = read_names(table, name, errors)
        return pa.nulls(table.num_rows, kind) if names is None else names
    if name == "geometry":
        return _geometries(table, kind)
    if kind == pa.string():
        text = read_texts(table, name, errors)
        return normalized(text) if cleaning.tidy else text.cast(kind)
    if kind == _LIST:
        return _lists(table, name, cleaning, errors)
    if kind == _TIME:
        time = read_times(table, name, errors)
        return pa.array(time.us, mask=~time.given).cast(kind)
    if name == "ttl_s":
        length = read_durations(table, name, errors)
        return pa.array(length.us / 1_000_000, mask=~length.given)
    number = read_numbers(table, name, errors)
    rounded = cleaning.tidy and name in _COORDINATES
    value = _rounded(number.value) if rounded else number.value
    return pa.array(value, mask=~number.given)


def _ids(table: pa.Table, field: pa.Field, errors: RowErrors) -> pa.Array:
    ids = read_ids(table, field.name, errors).to_arrow()
    if pa.types.is_integer(field.type) and not pa.types.is_integer(ids.type):
        every = np.ones(table.num_rows, np.bool_)
        errors.add(every, field.name, "must be an integer, as the ids of the first files are")
        return pa.nulls(table.num_rows, field.type)
    return ids.cast(field.type)


def _rounded(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round degrees to units, as intake does; this is idempotent."""
    with np.errstate(over="ignore"):
        return np.rint(degrees * UNITS) / UNITS + 0.0  # no negative zero


def _lists(table: pa.Table, name: str, cleaning: Cleaning, errors: RowErrors) -> pa.Array:
    lists = read_lists(table, name, errors)
    if lists is None:
        return pa.nulls(table.num_rows, _LIST)
    start = pa.array(lists.value_start.astype(np.int32))
    value = normalized(lists.value) if cleaning.tidy else lists.value.cast(pa.string())
    return pa.ListArray.from_arrays(start, value, mask=pa.array(~lists.given, pa.bool_()))


def _geometries(table: pa.Table, kind: pa.DataType) -> pa.Array:
    """Return WKB or text as it is, WKB as hexadecimal text where text is wanted.

    GeoJSON structures become text.
    """
    column = column_array(table, "geometry")
    if column is None:
        return pa.nulls(table.num_rows, kind)
    if pa.types.is_nested(column.type):
        cells: Any = (cell_value(table, "geometry", row) for row in range(table.num_rows))
        return pa.array([None if v is None else json.dumps(v) for v in cells], pa.string())
    is_binary = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    if is_binary and kind == pa.string():
        cells = column.to_pylist()
        return pa.array([None if value is None else value.hex() for value in cells], kind)
    return column.cast(kind)
