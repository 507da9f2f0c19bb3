"""Times and durations from a column, as microseconds.

A time may be a timestamp or a date, a number of seconds since 1970, or text: an ISO 8601 time or a
number again. Times without a zone are UTC.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import InvalidInput
from nearcast.intake.cells import NUMBER, is_text, nowhere, plain, read_numbers, read_texts, valid
from nearcast.intake.rejects import cell
from nearcast.model.checks import LIMIT_US, duration_us, time_us

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.intake.rejects import Faults

__all__ = ["Times", "parse_time", "read_durations", "read_times"]

_NUMBER = re.compile(NUMBER)
_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US
_UNIT_US = {"s": _SECOND_US, "ms": 1000, "us": 1, "ns": 0}
_PROBLEM = "must be a time: ISO 8601 text, a timestamp, or seconds (no milliseconds) since 1970"


class Times(NamedTuple):
    """Microseconds by row, and which rows gave any."""

    us: NDArray[np.int64]
    given: NDArray[np.bool_]


def read_times(table: pa.Table, field: str, faults: Faults) -> Times:
    """Return a column of times in microseconds since 1970, UTC."""
    column = plain(table, field)
    if column is None:
        return Times(np.zeros(table.num_rows, np.int64), nowhere(table.num_rows))
    if is_text(column.type):
        return _from_text(table, field, column, faults)
    if pa.types.is_temporal(column.type):
        us, wrong = _from_timestamps(column)
    else:
        us, wrong = _from_seconds(column)
    given = valid(column)
    faults.explain(
        given & wrong, field, lambda row: time_us(field, cell(table, field, row)), _PROBLEM
    )
    return Times(us, given)


def read_durations(table: pa.Table, field: str, faults: Faults) -> Times:
    """Return a column of seconds, 0 or more, in microseconds; 0 where none is given."""
    seconds = read_numbers(table, field, faults)
    us, wrong = _microseconds(seconds.value)
    wrong = seconds.given & (wrong | (us < 0))
    faults.explain(
        wrong,
        field,
        lambda row: duration_us(field, float(seconds.value[row])),
        "must be a finite number of seconds, 0 or more",
    )
    return Times(us, seconds.given)


def _from_text(table: pa.Table, field: str, column: pa.Array, faults: Faults) -> Times:
    given = valid(column)
    column = read_texts(table, field, faults)
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return Times(_int64(column.cast(kind)), given)
        except pa.ArrowInvalid:
            continue
    us = np.zeros(len(column), np.int64)
    for row in np.flatnonzero(valid(column)).tolist():
        try:
            us[row] = parse_time(field, column[row].as_py())
        except InvalidInput as error:
            faults.refuse(row, error)
    return Times(us, given)


def parse_time(field: str, text: str) -> int:
    """Return a time that is written as text, in microseconds since 1970.

    Examples
    --------
    >>> parse_time("time", "1970-01-01T01:00:01+01:00"), parse_time("time", "1.5")
    (1000000, 1500000)
    """
    if _NUMBER.match(text):
        return time_us(field, float(text))
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(field, text, _PROBLEM) from None
    return time_us(field, moment)


def _from_timestamps(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return timestamps or dates in microseconds, and where that is impossible."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        factor = _UNIT_US[kind.unit]
    elif pa.types.is_date(kind):
        factor = _DAY_US if pa.types.is_date32(kind) else 1000
    else:
        return np.zeros(len(column), np.int64), np.ones(len(column), np.bool_)
    raw = _int64(column)
    if factor == 0:
        return raw // 1000, nowhere(len(raw))
    wrong = (raw >= LIMIT_US // factor) | (raw <= -LIMIT_US // factor)
    return np.where(wrong, 0, raw) * factor, wrong


def _from_seconds(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    kind = column.type
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        raw = _int64(column)
        limit = LIMIT_US // _SECOND_US
        wrong = (raw > limit) | (raw < -limit)
        return np.where(wrong, 0, raw) * _SECOND_US, wrong
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        floats = pc.fill_null(column.cast(pa.float64(), safe=False), 0.0)
        return _microseconds(floats.to_numpy())
    return np.zeros(len(column), np.int64), np.ones(len(column), np.bool_)


def _microseconds(seconds: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    with np.errstate(invalid="ignore", over="ignore"):
        us = np.rint(seconds * _SECOND_US)
        wrong = ~(np.abs(us) < LIMIT_US)
    return np.where(wrong, 0, us).astype(np.int64), wrong


def _int64(column: pa.Array) -> NDArray[np.int64]:
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    whole = pc.fill_null(column.cast(pa.int64()), 0)
    values: NDArray[np.int64] = whole.to_numpy()
    return values
