"""Ids from a column: text or integers, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import Ids
from nearcast.intake.arrow_columns import column_array, is_text, not_null, read_texts
from nearcast.intake.rejects import cell_value
from nearcast.model.checks import identifier, name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.intake.rejects import RowErrors
    from nearcast.text import IdTable

__all__ = ["read_ids", "read_names", "read_scopes", "refuse_repeated"]

_LONGEST_BYTES = 1_000_000


def read_ids(table: pa.Table, field: str, errors: RowErrors) -> Ids:
    """Return the ids of all rows; those of refused rows mean nothing."""
    column = column_array(table, field)
    if column is None:
        errors.add(np.ones(table.num_rows, np.bool_), field, "is missing")
        return Ids(np.zeros(table.num_rows, np.int64))
    errors.add(~not_null(column), field, "is missing")
    if is_text(column.type):
        text = read_texts(table, field, errors)
        _check_names(table, field, text, errors)
        return Ids(np.zeros(len(text), np.int64), pc.fill_null(text, "").cast(pa.string()))
    return Ids(_integers(table, field, column, errors))


def read_names(table: pa.Table, field: str, errors: RowErrors) -> pa.StringArray | None:
    """Return the names of owners or scopes, null in rows without; None if no row has one."""
    if column_array(table, field) is None:
        return None
    names = read_texts(table, field, errors, integers=True)
    _check_names(table, field, names, errors)
    return names.cast(pa.string())


def read_scopes(table: pa.Table, errors: RowErrors) -> pa.DictionaryArray | None:
    """Return the scopes of all rows as `read_names` does, but faster if few are distinct."""
    if column_array(table, "scope") is None:
        return None
    names = read_texts(table, "scope", errors, integers=True)
    coded = names.dictionary_encode()
    if pc.any(_wrong_names(coded.dictionary)).as_py():
        _check_names(table, "scope", names, errors)
    return coded if coded.null_count < len(coded) else None


def refuse_repeated(ids: Ids, field: str, errors: RowErrors, seen: IdTable | None = None) -> None:
    """Refuse the rows whose id another sound row had before, or that are seen already."""
    reason = "is a duplicate; an earlier row has the same id"
    if seen is not None:
        errors.add(seen.find(ids) >= 0, field, reason)
        alike = "is written like the id of another row, of another type (7 and '7')"
        errors.add(seen.find_alike(ids) >= 0, field, f"{alike}; use another id")
    rows = np.flatnonzero(errors.valid)
    number = ids.number if ids.text is None else _codes(ids.text)
    chosen = number[rows] if len(rows) < len(number) else number
    order = np.argsort(chosen, kind="stable")
    ordered = chosen[order]
    again = order[1:][ordered[1:] == ordered[:-1]]
    repeated = np.zeros(len(number), np.bool_)
    repeated[rows[again]] = True
    errors.add(repeated, field, reason)
    if seen is not None:
        seen.add(ids if errors.valid.all() else ids.take(np.flatnonzero(errors.valid)))


def _codes(text: pa.Array) -> NDArray[np.int32]:
    codes: NDArray[np.int32] = text.dictionary_encode().indices.to_numpy()
    return codes


def _check_names(table: pa.Table, field: str, text: pa.Array, errors: RowErrors) -> None:
    mask = _wrong_names(text).to_numpy(zero_copy_only=False)
    too_long = f"must have at most {_LONGEST_BYTES} bytes"
    errors.add_checked(
        mask, field, lambda row: name(field, cell_value(table, field, row)), too_long
    )


def _wrong_names(text: pa.Array) -> pa.BooleanArray:
    length = pc.binary_length(text)
    size = pc.or_(pc.equal(length, 0), pc.greater(length, _LONGEST_BYTES))
    return pc.fill_null(pc.or_(size, pc.match_substring(text, "\0")), False)


def _integers(
    table: pa.Table, field: str, column: pa.Array, errors: RowErrors
) -> NDArray[np.int64]:
    given = not_null(column)
    wrong = given
    number = np.zeros(len(column), np.int64)
    whole = pa.types.is_decimal(column.type) and column.type.scale == 0  # integers of databases
    if whole:
        values = [int(value or 0) for value in column.to_pylist()]
        fits = np.array([-(2**63) <= value < 2**63 for value in values], np.bool_)
        wrong = given & ~fits
        number[fits] = [value for value, fit in zip(values, fits, strict=True) if fit]
    elif pa.types.is_integer(column.type):
        filled = pc.fill_null(column, 0).to_numpy()
        wrong = given & (filled > np.iinfo(np.int64).max)
        number = filled.astype(np.int64)

    def check(row: int) -> None:
        value = cell_value(table, field, row)
        identifier(field, int(value) if whole else value)

    errors.add_checked(wrong, field, check, "must be a string or an integer")
    return number
