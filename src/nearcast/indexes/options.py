"""Checks that the options of several indexes share."""

from __future__ import annotations

from nearcast.errors import InvalidInput

__all__ = ["check_whole"]


def check_whole(name: str, value: object, least: int, most: int) -> None:
    """Raise unless an option is a whole number within these bounds.

    Examples
    --------
    >>> check_whole("cells", 0, 1, 10)
    Traceback (most recent call last):
    ...
    nearcast.errors.InvalidInput: cells: must be a whole number from 1 to 10 (got 0)
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidInput(name, value, f"must be a whole number from {least:,} to {most:,}")
