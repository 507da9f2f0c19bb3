"""Ids from a column: text or integers, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import Ids
from nearcast.intake.cells import is_text, plain, read_texts, valid
from nearcast.intake.rejects import cell
from nearcast.model.checks import identifier, name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.intake.rejects import Faults
    from nearcast.text import IdTable

__all__ = ["read_ids", "read_owners", "refuse_repeated"]

_LONGEST_BYTES = 1_000_000


def read_ids(table: pa.Table, field: str, faults: Faults) -> Ids:
    """Return the ids of all rows; those of refused rows mean nothing."""
    column = plain(table, field)
    if column is None:
        faults.add(np.ones(table.num_rows, np.bool_), field, "is missing")
        return Ids(np.zeros(table.num_rows, np.int64))
    faults.add(~valid(column), field, "is missing")
    if is_text(column.type):
        text = read_texts(table, field, faults)
        _check_names(table, field, text, faults)
        return Ids(np.zeros(len(text), np.int64), pc.fill_null(text, "").cast(pa.string()))
    return Ids(_integers(table, field, column, faults))


def read_owners(table: pa.Table, field: str, faults: Faults) -> pa.StringArray | None:
    """Return the owners of all rows, null where nobody is named; None where that is so of all."""
    if plain(table, field) is None:
        return None
    owner = read_texts(table, field, faults, integers=True)
    _check_names(table, field, owner, faults)
    return owner.cast(pa.string())


def refuse_repeated(ids: Ids, field: str, faults: Faults, seen: IdTable | None = None) -> None:
    """Refuse the rows whose id another sound row had before, or that are seen already."""
    reason = "occurs again; an earlier row has the same id"
    if seen is not None:
        faults.add(seen.find(ids) >= 0, field, reason)
    rows = np.flatnonzero(faults.sound)
    number = ids.number if ids.text is None else _codes(ids.text)
    chosen = number[rows] if len(rows) < len(number) else number
    order = np.argsort(chosen, kind="stable")
    ordered = chosen[order]
    again = order[1:][ordered[1:] == ordered[:-1]]
    repeated = np.zeros(len(number), np.bool_)
    repeated[rows[again]] = True
    faults.add(repeated, field, reason)
    if seen is not None:
        seen.add(ids if faults.sound.all() else ids.take(np.flatnonzero(faults.sound)))


def _codes(text: pa.Array) -> NDArray[np.int32]:
    codes: NDArray[np.int32] = text.dictionary_encode().indices.to_numpy()
    return codes


def _check_names(table: pa.Table, field: str, text: pa.Array, faults: Faults) -> None:
    length = pc.binary_length(text)
    size = pc.or_(pc.equal(length, 0), pc.greater(length, _LONGEST_BYTES))
    mask = pc.fill_null(pc.or_(size, pc.match_substring(text, "\0")), False).to_numpy(
        zero_copy_only=False
    )
    too_long = f"must have at most {_LONGEST_BYTES} bytes"
    faults.explain(mask, field, lambda row: name(field, cell(table, field, row)), too_long)


def _integers(table: pa.Table, field: str, column: pa.Array, faults: Faults) -> NDArray[np.int64]:
    given = valid(column)
    wrong = given
    number = np.zeros(len(column), np.int64)
    if pa.types.is_integer(column.type):
        filled = pc.fill_null(column, 0).to_numpy()
        wrong = given & (filled > np.iinfo(np.int64).max)
        number = filled.astype(np.int64)
    problem = "must be a string or an integer"
    faults.explain(wrong, field, lambda row: identifier(field, cell(table, field, row)), problem)
    return number
