"""JSON objects as rows, one by one: each value is converted to the type of its column.

This reads what Arrow cannot: records of differing types, GeoJSON features, and damaged ones.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.errors import InvalidInput, UnsupportedFile
from nearcast.intake.batches import Batch
from nearcast.intake.lines import LineErrors
from nearcast.intake.made_ids import hash_id, row_id
from nearcast.intake.names import check_columns, question, steps
from nearcast.intake.rejects import reason_of
from nearcast.model.checks import time_us
from nearcast.model.close_names import COLUMNS, near, similar
from nearcast.model.json_form import BOX, CIRCLE, read_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from nearcast.intake.names import Step

__all__ = ["IDS", "JsonColumns", "Record", "column_type", "parsed", "read_records"]

IDS = ("id", "subscription_id")
LISTS = ("keywords", "tokens")
TEXTS = ("text", "expression", "owner", "geometry", "op", "scope")
TIMES = ("time", "expires_at")
_PLACE = frozenset((*BOX, *CIRCLE))
_MAX_NAMES = 1_000
_NO_FEATURE = "is not a GeoJSON Feature"


class Record(NamedTuple):
    """A record of a file: its number, its text, and its value or what is wrong with it."""

    number: int
    text: str
    value: dict[str, Any] | InvalidInput


class JsonColumns:
    """Which fields of the objects of a file are our columns.

    Parameters
    ----------
    kind
        One of `COLUMNS`.
    columns
        What the user said about columns.
    ids
        How to make ids where there are none; None if they are not made.
    file
        The name of the file.
    features
        Whether the objects are GeoJSON features: their properties are the fields.
    """

    def __init__(
        self,
        kind: str | None,
        columns: tuple[tuple[str, str], ...] = (),
        ids: str | None = None,
        file: str = "",
        *,
        features: bool = False,
    ) -> None:
        said = check_columns(columns, kind)
        self.kind, self.ids, self.file, self.features = kind, ids, file, features
        self.paths: dict[str, tuple[Step, ...]] = {o: steps(p) for o, p in said.items() if p}
        self.said = said
        self.ours = frozenset(COLUMNS[kind]).difference(said)
        self.taken: dict[str, str] = {}
        self.unused: dict[str, None] = {}
        self.first = True
        self._unlike: set[str] = set()

    @property
    def makes_ids(self) -> bool:
        """Whether records without an id get one."""
        return self.ids is not None and "id" in COLUMNS[self.kind]

    def row(self, record: Record) -> dict[str, Any]:
        """Return the values of our columns, or raise `InvalidInput`."""
        assert isinstance(record.value, dict)
        fields = self._fields(record.value)
        given = {n: v for n, v in fields.items() if v is not None and n in self.ours}
        if len(given) < len(fields) or self.features or self.paths:
            given = self._others(record.value, fields, given)
        row = {name: _cell(name, value) for name, value in given.items()}
        if self.makes_ids and "id" not in row:
            row["id"] = self._made_id(record, fields)
        self.first = False
        return row

    def _others(
        self, value: dict[str, Any], fields: dict[str, Any], given: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the values of our columns, including those that are called differently."""
        used = {*given}
        for ours, path in self.paths.items():
            found = _follow(fields, path)
            if found is None and self.features:
                found = _follow(value, path)
            used.add(str(path[0]))
            if found is not None:
                given[ours] = found
        if self.features and "geometry" in given:  # then that is the place
            given = {n: v for n, v in given.items() if n not in _PLACE or n in self.paths}
        for ours, name in self._similar(fields, given, used).items():
            given[ours] = fields[name]
            used.add(name)
        if len(used) < len(fields):
            self.unused.update((name, None) for name in fields if name not in used)
        return given

    def _fields(self, value: dict[str, Any]) -> dict[str, Any]:
        if not self.features:
            return value
        properties = value.get("properties")
        if value.get("type") != "Feature" or not isinstance(properties, dict | None):
            raise InvalidInput("", value, _NO_FEATURE)
        fields = dict(properties or {})
        for name in ("id", "geometry"):
            if value.get(name) is not None:
                fields[name] = value[name]
        return fields

    def _similar(
        self, fields: Mapping[str, Any], given: Mapping[str, Any], used: set[str]
    ) -> dict[str, str]:
        """Return our columns that are called differently, and their fields."""
        known = used | self._unlike
        names = [n for n, value in fields.items() if n not in known and value is not None]
        if not names:
            return {}
        if len(self._unlike) < _MAX_NAMES:
            self._unlike.update(name for name in names if near(name, self.kind) is None)
        taken, asked = similar(names, given, self.kind, self.said)
        if asked is not None:
            if self.first:
                raise UnsupportedFile(question(*asked))
            raise InvalidInput(asked[1], asked[0], question(*asked))
        self.taken |= taken
        return taken

    def _made_id(self, record: Record, fields: Mapping[str, Any]) -> str:
        return row_id(self.file, record.number) if self.ids == "row" else hash_id(fields)


def read_records(
    records: Iterable[Record], columns: JsonColumns, read: int, total: int
) -> Iterator[Batch]:
    """Yield the rows of records; those with integer ids and those with other ids separately.

    ``read`` of ``total`` bytes of the file have been read.
    """
    errors = LineErrors(columns.file)
    kinds: dict[bool, list[tuple[Record, dict[str, Any]]]] = {True: [], False: []}
    for record in records:
        if isinstance(record.value, InvalidInput):
            errors.add(record.number, "", record.value.problem, record.text)
            continue
        try:
            row = columns.row(record)
        except InvalidInput as error:
            problem = error.problem if not error.field else reason_of(error)
            errors.add_record(record.number, error.field, problem, record.text)
            continue
        kinds[isinstance(row.get("id"), int)].append((record, row))
    for integers, rows in kinds.items():
        if rows:
            kind = pa.int64() if integers else pa.string()
            yield Batch(
                _table([row for _, row in rows], columns.kind, kind),
                np.array([record.number for record, _ in rows], np.int64),
                LineErrors().rejects(),
                read,
                total,
                columns.file,
                dict(columns.taken),
                tuple(columns.unused),
                [record.text.strip() for record, _ in rows],
            )
    rejects = errors.rejects()
    if len(rejects):
        empty = _table([], columns.kind, pa.string()), np.empty(0, np.int64)
        yield Batch(*empty, rejects, read, total, columns.file, original=[])


def parsed(text: bytes | str, invalid: str) -> dict[str, Any] | InvalidInput:
    """Return the object of a text, or the error, which is not raised."""
    try:
        decoded = text if isinstance(text, str) else text.decode()
        value = json.loads(decoded)
        if "\\u" in decoded:
            json.dumps(value, ensure_ascii=False).encode()  # fails for half a surrogate pair
    except UnicodeDecodeError:
        return InvalidInput("", text, invalid)
    except UnicodeEncodeError:
        return InvalidInput("", text, "has half a surrogate pair")
    except RecursionError:
        return InvalidInput("", text, "is not JSON: it is nested too deeply")
    except ValueError as error:
        return InvalidInput("", text, f"is not JSON: {error}")
    return value if isinstance(value, dict) else InvalidInput("", text, "is not a JSON object")


def column_type(name: str) -> pa.DataType:
    """Return the type of a column other than an id."""
    if name in LISTS:
        return pa.list_(pa.string())
    if name in TIMES:
        return pa.timestamp("us", "UTC")
    return pa.string() if name in TEXTS else pa.float64()


def _table(rows: list[dict[str, Any]], kind: str | None, id_type: pa.DataType) -> pa.Table:
    columns = {}
    for name in COLUMNS[kind]:
        values = [row.get(name) for row in rows]
        if name == "subscription_id":
            columns[name] = _mixed_ids(values)
        else:
            columns[name] = pa.array(values, id_type if name == "id" else column_type(name))
    return pa.table(columns)


def _mixed_ids(values: list[Any]) -> pa.Array:
    if not values:
        return pa.array(values, pa.string())
    integers = all(value is None or isinstance(value, int) for value in values)
    return pa.array(values if integers else [None if v is None else str(v) for v in values])


def _follow(value: Any, path: tuple[Step, ...]) -> Any:
    """Return the value at the end of a path; None if it does not lead to one."""
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def _cell(name: str, value: Any) -> Any:
    """Return a value in the type of its column, or raise `InvalidInput`."""
    field = read_field(name, value)
    if name in TIMES:
        return time_us(name, field)
    if isinstance(field, dict):
        return _json(name, field)
    return field


def _json(name: str, value: Any) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        raise InvalidInput(name, value, "is nested too deeply") from None
