"""Checks that the options of several indexes share."""

from __future__ import annotations

from nearcast.errors import InvalidInput

__all__ = ["check_number", "check_whole"]


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


def check_number(name: str, value: object, least: float, most: float) -> None:
    """Raise unless an option is a number within these bounds.

    Examples
    --------
    >>> check_number("push", -1, 0, 10)
    Traceback (most recent call last):
    ...
    nearcast.errors.InvalidInput: push: must be a number from 0 to 10 (got -1)
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidInput(name, value, f"must be a number from {least:,g} to {most:,g}")
