"""Columns of times and durations, in microseconds.

A time is a timestamp, a date, a number of seconds since 1970, or text: ISO 8601 or such a number.
Times without a time zone are UTC. A duration is a duration, or a number of seconds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import InvalidInput
from nearcast.intake.arrow_columns import (
    column_array,
    is_text,
    no_rows,
    not_null,
    read_numbers,
    read_texts,
)
from nearcast.intake.rejects import cell_value
from nearcast.model.checks import (
    MAX_TIME_US,
    NUMBER,
    TIME_PROBLEM,
    duration_us,
    parse_time,
    time_us,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.intake.rejects import RowErrors

__all__ = ["Times", "read_durations", "read_times"]

_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US
_UNIT_US = {"s": _SECOND_US, "ms": 1000, "us": 1, "ns": 0}


class Times(NamedTuple):
    """Microseconds by row, and a mask of the rows in which they are given."""

    us: NDArray[np.int64]
    given: NDArray[np.bool_]


def read_times(table: pa.Table, field: str, errors: RowErrors) -> Times:
    """Return a column of times in microseconds since 1970, UTC."""
    column = column_array(table, field)
    if column is None:
        return Times(np.zeros(table.num_rows, np.int64), no_rows(table.num_rows))
    if is_text(column.type):
        return _from_text(table, field, column, errors)
    if pa.types.is_temporal(column.type):
        us, wrong = _from_timestamps(column)
    else:
        us, wrong = _from_seconds(column)
    given = not_null(column)
    errors.add_checked(
        given & wrong,
        field,
        lambda row: time_us(field, cell_value(table, field, row)),
        TIME_PROBLEM,
    )
    return Times(us, given)


def read_durations(table: pa.Table, field: str, errors: RowErrors) -> Times:
    """Return a column of durations or of seconds, 0 or more, in microseconds; 0 if not given."""
    column = column_array(table, field)
    if column is not None and pa.types.is_duration(column.type):
        return _from_durations(table, field, column, errors)
    seconds = read_numbers(table, field, errors)
    us, wrong = _microseconds(seconds.value)
    wrong = seconds.given & (wrong | (us < 0))
    errors.add_checked(
        wrong,
        field,
        lambda row: duration_us(field, float(seconds.value[row])),
        "must be a finite number of seconds, 0 or more",
    )
    return Times(us, seconds.given)


def _from_durations(table: pa.Table, field: str, column: pa.Array, errors: RowErrors) -> Times:
    us, wrong = _scaled(_int64(column), _UNIT_US[column.type.unit])
    given = not_null(column)
    errors.add_checked(
        given & (wrong | (us < 0)),
        field,
        lambda row: duration_us(field, cell_value(table, field, row)),
        "must be a finite number of seconds, 0 or more",
    )
    return Times(us, given)


def _from_text(table: pa.Table, field: str, column: pa.Array, errors: RowErrors) -> Times:
    given = not_null(column)
    column = read_texts(table, field, errors)
    us = None if _begins_with_number(column) else _from_iso(column)
    if us is not None:
        return Times(us, given)
    written = pc.fill_null(pc.match_substring_regex(column, NUMBER), False)
    numbers = pc.if_else(written, pc.utf8_trim_whitespace(column), "0").cast(pa.float64())
    us, wrong = _microseconds(numbers.to_numpy())
    read = written.to_numpy(zero_copy_only=False) & ~wrong
    for row in np.flatnonzero(not_null(column) & ~read).tolist():
        try:
            us[row] = time_us(field, parse_time(field, column[row].as_py()))
        except InvalidInput as error:
            errors.add_error(row, error)
    return Times(us, given)


def _begins_with_number(column: pa.Array) -> bool:
    """Whether the first text is a number; Arrow is slow to find out that it is not ISO 8601."""
    first = next((text for text in column.slice(0, 100).to_pylist() if text is not None), "")
    return re.match(NUMBER, first) is not None


def _from_iso(column: pa.Array) -> NDArray[np.int64] | None:
    """Return ISO 8601 texts as microseconds; None if one of them is something else."""
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            us = _int64(column.cast(kind))
        except pa.ArrowInvalid:
            continue
        if (np.abs(us) < MAX_TIME_US).all():
            return us
    return None


def _from_timestamps(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return timestamps or dates in microseconds, and a mask of those out of range."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        factor = _UNIT_US[kind.unit]
    elif pa.types.is_date(kind):
        factor = _DAY_US if pa.types.is_date32(kind) else 1000
    else:
        return np.zeros(len(column), np.int64), np.ones(len(column), np.bool_)
    return _scaled(_int64(column), factor)


def _scaled(raw: NDArray[np.int64], factor: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return times in microseconds; ``factor`` is that of their unit, 0 for nanoseconds."""
    if factor == 0:
        return raw // 1000, no_rows(len(raw))
    wrong = (raw >= MAX_TIME_US // factor) | (raw <= -MAX_TIME_US // factor)
    return np.where(wrong, 0, raw) * factor, wrong


def _from_seconds(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    kind = column.type
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        raw = _int64(column)
        limit = MAX_TIME_US // _SECOND_US
        wrong = (raw >= limit) | (raw <= -limit)
        return np.where(wrong, 0, raw) * _SECOND_US, wrong
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        floats = pc.fill_null(column.cast(pa.float64(), safe=False), 0.0)
        return _microseconds(floats.to_numpy())
    return np.zeros(len(column), np.int64), np.ones(len(column), np.bool_)


def _microseconds(seconds: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    with np.errstate(invalid="ignore", over="ignore"):
        us = np.rint(seconds * _SECOND_US)
        wrong = ~(np.abs(us) < MAX_TIME_US)
    return np.where(wrong, 0, us).astype(np.int64), wrong


def _int64(column: pa.Array) -> NDArray[np.int64]:
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    whole = pc.fill_null(column.cast(pa.int64()), 0)
    values: NDArray[np.int64] = whole.to_numpy()
    return values
