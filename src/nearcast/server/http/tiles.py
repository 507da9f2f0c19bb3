"""The background of the map: tiles of another server, if the operator wants some."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from nearcast.errors import InvalidInput

__all__ = ["tile_origin"]

_ORIGIN = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?", re.ASCII)


def tile_origin(url: str) -> str:
    """Return the origin of tiles, for the content policy of the page.

    Parameters
    ----------
    url
        The address of a tile, with ``{z}``, ``{x}`` and ``{y}`` for its place.

    Raises
    ------
    InvalidInput
        If it is no such address.

    Examples
    --------
    >>> tile_origin("https://Tiles.example.com/light/{z}/{x}/{y}.png")
    'https://tiles.example.com'
    """
    problem = (
        "must be an address with {z}, {x} and {y}, such as https://example.com/{z}/{x}/{y}.png"
    )
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidInput("--tiles", url, problem) from None
    origin = f"{parts.scheme}://{parts.netloc}".lower()
    # The origin becomes a part of a header, so nothing but a host and a port may be in it.
    places = all(place in parts.path + parts.query for place in ("{z}", "{x}", "{y}"))
    if not (places and url.isprintable() and _ORIGIN.fullmatch(origin)):
        raise InvalidInput("--tiles", url, problem)
    return origin
