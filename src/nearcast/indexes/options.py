"""Checks of numeric options, for the option classes of all index families."""

from __future__ import annotations

from nearcast.errors import InvalidInput

__all__ = ["check_number", "check_whole"]


def check_whole(name: str, value: object, minimum: int, maximum: int) -> None:
    """Raise unless an option is a whole number within bounds, both included.

    Examples
    --------
    >>> check_whole("cells", 0, 1, 10)
    Traceback (most recent call last):
    ...
    nearcast.errors.InvalidInput: cells: must be a whole number from 1 to 10 (got 0)
    """
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise InvalidInput(name, value, f"must be a whole number from {minimum:,} to {maximum:,}")


def check_number(name: str, value: object, minimum: float, maximum: float) -> None:
    """Raise unless an option is a number within bounds, both included.

    Examples
    --------
    >>> check_number("push", -1, 0, 10)
    Traceback (most recent call last):
    ...
    nearcast.errors.InvalidInput: push: must be a number from 0 to 10 (got -1)
    """
    within = isinstance(value, int | float) and minimum <= value <= maximum
    if isinstance(value, bool) or not within:
        raise InvalidInput(name, value, f"must be a number from {minimum:,g} to {maximum:,g}")
