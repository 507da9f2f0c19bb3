"""Checks of single fields: coordinates, numbers, ids, texts and times.

Each takes the name of the field, so that an error names what the user wrote, and returns the value
in the one form that the rest of the library sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from numbers import Integral, Real

from nearcast.columns import UNITS
from nearcast.errors import InvalidInput, RegionError

__all__ = ["Id", "Time", "Tokenize", "time_us"]

Id = str | int
"""What names a subscription or a message."""

Time = datetime | float
"""A moment: a datetime (naive ones are UTC) or seconds since 1970."""

Tokenize = Callable[[str], Iterable[str]]
"""Any function that takes a text apart into tokens."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SECOND_US = 1_000_000

LIMIT_US = 253_402_300_800 * _SECOND_US
"""The year 10000: a time beyond it is one in milliseconds, taken for seconds."""


def time_us(field: str, value: object) -> int:
    """Return a moment in microseconds since 1970.

    Parameters
    ----------
    field
        The name of the field, for the error.
    value
        A datetime (naive ones are UTC) or a number of seconds since 1970.

    Examples
    --------
    >>> from datetime import datetime
    >>> time_us("time", datetime(1970, 1, 2))
    86400000000
    >>> time_us("time", 1.5)
    1500000
    """
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (moment - _EPOCH) // _MICROSECOND
    problem = "must be a datetime or a number of seconds since 1970"
    return _microseconds(field, value, problem)


def duration_us(field: str, value: object) -> int:
    """Return a number of seconds, 0 or more, in microseconds."""
    problem = "must be a finite number of seconds, 0 or more"
    duration = _microseconds(field, value, problem)
    if duration < 0:
        raise InvalidInput(field, value, problem)
    return duration


def _microseconds(field: str, value: object, problem: str) -> int:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidInput(field, value, problem)
    if isinstance(value, Integral):
        microseconds = int(value) * _SECOND_US
    else:
        seconds = float(value)
        if not math.isfinite(seconds):
            raise InvalidInput(field, value, problem)
        microseconds = round(seconds * _SECOND_US) if abs(seconds) < LIMIT_US else LIMIT_US
    if abs(microseconds) >= LIMIT_US:
        problem = "must be in seconds, before the year 10000; is it in milliseconds?"
        raise InvalidInput(field, value, problem)
    return microseconds


def identifier(field: str, value: object) -> Id:
    """Return an id: a string that is not empty and has no NUL, or an integer of 64 bits."""
    if isinstance(value, str):
        return name(field, value)
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidInput(field, value, "must be a string or an integer")
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise InvalidInput(field, value, "must fit into 64 bits; give larger ids as strings")
    return number


def name(field: str, value: object) -> str:
    """Return a string that is not empty and has no NUL character."""
    checked = text(field, value)
    if not checked:
        raise InvalidInput(field, value, "must not be empty")
    if "\0" in checked:
        raise InvalidInput(field, value, "must not contain the NUL character")
    return checked


def text(field: str, value: object) -> str:
    """Return a string that can be written as UTF-8."""
    if not isinstance(value, str):
        raise InvalidInput(field, value, "must be a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            problem = f"has half a surrogate pair at character {error.start}; decode it properly"
            raise InvalidInput(field, value, problem) from None
    return value


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
    """Return a number of a region as a float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise RegionError(field, value, f"must be a number of {unit}")
    try:
        return float(value)
    except OverflowError:
        raise RegionError(field, value, f"is too large for a number of {unit}") from None


def units(degrees: float) -> int:
    """Return degrees in units."""
    return round(degrees * UNITS)
