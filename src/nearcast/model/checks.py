"""Validation of single values: ids, texts, numbers, coordinates and times.

Each function takes the name of the field, for the error message, and returns the value in the one
form that the rest of the library uses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, date, datetime, timedelta
from numbers import Integral, Real
from typing import Any

from nearcast.columns import UNITS
from nearcast.errors import InvalidInput, RegionError

__all__ = [
    "AnyDuration",
    "AnyTime",
    "Id",
    "Time",
    "Tokenize",
    "identifier",
    "identifiers",
    "reading_stored",
    "stored_before",
    "time_from_us",
    "time_us",
]

Id = str | int
"""The id of a subscription or a message."""

Time = datetime | float
"""A point in time: a datetime (UTC if it has no time zone) or seconds since 1970."""

AnyTime = Time | date | str
"""A point in time as users may give it: also a date (its beginning, UTC), or ISO 8601 text."""

AnyDuration = float | timedelta | str
"""A duration as users may give it: seconds, also as text, or a timedelta."""

Tokenize = Callable[[str], Iterable[str]]
"""A function that splits a text into tokens."""

NUMBER = r"^[ \t]*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*$"
"""The pattern of a number that is written as text."""

MAX_TIME_US = 253_402_300_800 * 1_000_000
"""The year 10000, the first time that is refused: such a time is usually in milliseconds."""

TIME_PROBLEM = "must be a time: ISO 8601 text, a timestamp, or seconds (no milliseconds) since 1970"

_NUMBER = re.compile(NUMBER)
_reading_stored: ContextVar[bool] = ContextVar("reading_stored", default=False)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MIN_DATETIME_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_SECOND_US = 1_000_000


def time_us(field: str, value: object) -> int:
    """Return a time in microseconds since 1970.

    Parameters
    ----------
    field
        The name of the field, for the error message.
    value
        A datetime (UTC if it has no time zone), a number of seconds since 1970, a date, or text:
        ISO 8601 or such a number.

    Examples
    --------
    >>> from datetime import datetime
    >>> time_us("time", datetime(1970, 1, 2)), time_us("time", "1970-01-02")
    (86400000000, 86400000000)
    >>> time_us("time", 1.5)
    1500000
    """
    if isinstance(value, str | date):
        value = _parsed(field, value)
    if isinstance(value, datetime):
        return _datetime_us(field, value)
    return _microseconds(field, value, TIME_PROBLEM)


def moment(field: str, value: Any) -> Time:
    """Return a valid time as a datetime or a number of seconds.

    Examples
    --------
    >>> moment("time", date(1970, 1, 2))
    datetime.datetime(1970, 1, 2, 0, 0, tzinfo=datetime.timezone.utc)
    """
    time: Time = _parsed(field, value) if isinstance(value, str | date) else value
    time_us(field, time)
    return time


def _parsed(field: str, value: str | date) -> Time:
    if isinstance(value, str):
        return parse_time(field, value)
    if isinstance(value, datetime):
        return value
    return datetime(value.year, value.month, value.day, tzinfo=UTC)


def time_from_us(us: int) -> Time:
    """Return the time for which `time_us` returns ``us``: the inverse of `time_us`.

    The result is in seconds if a float is exact, and a datetime in UTC otherwise. Before the year
    1, where there are no datetimes, it is the nearest float.

    Examples
    --------
    >>> time_from_us(1_500_000)
    1.5
    >>> time_from_us(253_402_300_799_999_999)
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=datetime.timezone.utc)
    """
    seconds = us / _SECOND_US
    if round(seconds * _SECOND_US) == us and abs(us) < MAX_TIME_US:
        return seconds
    try:
        return _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        # A time that came as a float is one of these: multiplying may have rounded it.
        nearest = (seconds, math.nextafter(seconds, 0.0), math.nextafter(seconds, -math.inf))
        return next((s for s in nearest if round(s * _SECOND_US) == us), seconds)


def parse_time(field: str, text: str) -> Time:
    """Return a time that is written as text: ISO 8601, or a number of seconds since 1970.

    Examples
    --------
    >>> parse_time("time", "1970-01-01T01:00:01+01:00").timestamp(), parse_time("time", "1.5")
    (1.0, 1.5)
    """
    if _NUMBER.match(text):
        return float(text)
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(field, text, TIME_PROBLEM) from None


def duration_us(field: str, value: object) -> int:
    """Return a duration of 0 or more in microseconds: seconds, also as text, or a timedelta.

    Examples
    --------
    >>> duration_us("ttl_s", timedelta(hours=1)), duration_us("ttl_s", "0.5")
    (3600000000, 500000)
    """
    problem = "must be a finite number of seconds, 0 or more"
    if isinstance(value, timedelta):
        # NaT of pandas is a timedelta, which is not equal to itself.
        duration = value // _MICROSECOND if value == value else -1
    else:
        is_number = isinstance(value, str) and _NUMBER.match(value)
        number = float(value) if is_number else value  # type: ignore[arg-type]
        duration = _microseconds(field, number, problem)
    if not 0 <= duration < MAX_TIME_US:
        raise InvalidInput(field, value, problem)
    return duration


def seconds(field: str, value: Any) -> float:
    """Return a valid duration in seconds.

    Examples
    --------
    >>> seconds("ttl_s", timedelta(minutes=1.5)), seconds("ttl_s", 60)
    (90.0, 60)
    """
    us = duration_us(field, value)
    return us / _SECOND_US if isinstance(value, timedelta | str) else value


def _datetime_us(field: str, value: datetime) -> int:
    if value != value:  # NaT of pandas is a datetime
        raise InvalidInput(field, value, "must be a time, not NaT; leave it out instead")
    moment = value if value.utcoffset() is not None else value.replace(tzinfo=UTC)
    us = (moment - _EPOCH) // _MICROSECOND
    if not _MIN_DATETIME_US <= us < MAX_TIME_US:
        raise InvalidInput(field, value, "must be in the years 1 to 9999, in UTC")
    return us


def _microseconds(field: str, value: object, problem: str) -> int:
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, Real)):
        raise InvalidInput(field, value, problem)
    if type(value) is not float and isinstance(value, Integral):
        microseconds = int(value) * _SECOND_US
    else:
        seconds = float(value)
        if not math.isfinite(seconds):
            raise InvalidInput(field, value, problem)
        in_range = abs(seconds) < MAX_TIME_US
        microseconds = round(seconds * _SECOND_US) if in_range else MAX_TIME_US
    if abs(microseconds) >= MAX_TIME_US:
        problem = "must be in seconds, before the year 10000; is it in milliseconds?"
        raise InvalidInput(field, value, problem)
    return microseconds


def identifier(field: str, value: object) -> Id:
    """Return an id: a non-empty string without NUL, or an integer that fits into 64 bits.

    NumPy integers are integers; booleans of any kind are not.

    Examples
    --------
    >>> import numpy as np
    >>> identifier("id", np.int64(7))
    7
    """
    if isinstance(value, str):
        return name(field, value)
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidInput(field, value, "must be a string or an integer")
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise InvalidInput(field, value, "must fit into 64 bits; give larger ids as strings")
    return number


def identifiers(field: str, values: object) -> list[Id]:
    """Return one id or several as a list; `InvalidInput` names the first that is invalid.

    Parameters
    ----------
    field
        The name of the field, for the error message.
    values
        An id, an iterable of ids, or a PyArrow or NumPy array of ids.

    Examples
    --------
    >>> import numpy as np
    >>> identifiers("id", "ann"), identifiers("id", [1, "ann"]), identifiers("id", np.arange(2))
    (['ann'], [1, 'ann'], [0, 1])
    """
    if isinstance(values, (str, Integral)):
        return [identifier(field, values)]
    problem = "must be a string, an integer or several of them"
    if isinstance(values, (bytes, bytearray, memoryview)):  # iterating these gives integers
        raise InvalidInput(field, values, problem)
    if hasattr(values, "to_pylist"):
        values = values.to_pylist()
    try:
        several = iter(values)  # type: ignore[call-overload]
    except TypeError:
        raise InvalidInput(field, values, problem) from None
    return [identifier(field, value) for value in several]


def name(field: str, value: object) -> str:
    """Return a string that is not empty and has no NUL character."""
    checked = text(field, value)
    if not checked:
        raise InvalidInput(field, value, "must not be empty")
    if "\0" in checked:
        raise InvalidInput(field, value, "must not contain the NUL character")
    return checked


def text(field: str, value: object) -> str:
    """Return a string that can be encoded as UTF-8."""
    if not isinstance(value, str):
        raise InvalidInput(field, value, "must be a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            problem = f"has half a surrogate pair at character {error.start}; decode it properly"
            raise InvalidInput(field, value, problem) from None
    return value


def number(field: str, value: object) -> float:
    """Return a number as a float; text that is written as a number is one too."""
    readable = _NUMBER.match(value) if isinstance(value, str) else not isinstance(value, bool)
    try:
        if readable and isinstance(value, (str, Real)):
            return float(value)
    except OverflowError:
        pass
    raise InvalidInput(field, value, "must be a number")


def longitude(field: str, value: object) -> float:
    """Return a longitude in degrees, rounded to units."""
    degrees = value if type(value) is float else region_number(field, value, "degrees")
    if not -180.0 <= degrees <= 180.0:
        raise RegionError(field, value, "must lie between -180 and 180 degrees")
    return round(degrees * UNITS) / UNITS


def latitude(field: str, value: object) -> float:
    """Return a latitude in degrees, rounded to units."""
    degrees = value if type(value) is float else region_number(field, value, "degrees")
    if not -90.0 <= degrees <= 90.0:
        raise RegionError(
            field, value, "must lie between -90 and 90 degrees; longitude comes first"
        )
    return round(degrees * UNITS) / UNITS


def region_number(field: str, value: object, unit: str) -> float:
    """Return a coordinate or a distance as a float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise RegionError(field, value, f"must be a number of {unit}")
    try:
        return float(value)
    except OverflowError:
        raise RegionError(field, value, f"is too large for a number of {unit}") from None


def units(degrees: float) -> int:
    """Return degrees in units."""
    return round(degrees * UNITS)


@contextmanager
def stored_before() -> Iterator[None]:
    """Read what a journal or a log has: what was valid when it was written stays valid.

    Examples
    --------
    >>> from nearcast.model import parse
    >>> with stored_before():
    ...     len(parse("tea,milk", str.split))
    1
    """
    token = _reading_stored.set(True)
    try:
        yield
    finally:
        _reading_stored.reset(token)


def reading_stored() -> bool:
    """Whether what is read now was stored before, and newer rules do not apply."""
    return _reading_stored.get()
