"""Boxes in the query of a request."""

from __future__ import annotations

from nearcast.errors import InvalidInput
from nearcast.server.state import Box

__all__ = ["parse_bbox"]


def parse_bbox(text: str) -> Box:
    """Return the box of a parameter ``bbox``.

    Raises
    ------
    InvalidInput
        If it is none.

    Examples
    --------
    >>> parse_bbox("170,-20,-170,0")
    Box(west=170.0, south=-20.0, east=-170.0, north=0.0)
    """
    problem = "must be west,south,east,north in degrees"
    try:
        west, south, east, north = map(float, text.split(","))
    except ValueError:
        raise InvalidInput("bbox", text, problem) from None
    if not (abs(west) <= 180 and abs(east) <= 180 and -90 <= south <= north <= 90):
        raise InvalidInput("bbox", text, problem)
    return Box(west, south, east, north)
