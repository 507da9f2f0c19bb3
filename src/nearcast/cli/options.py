"""Options that several commands share, and parsers for values such as ``6-20``, ``name=value``."""

import json
from typing import Annotated, Any

import typer

__all__ = [
    "Owners",
    "parse_assignments",
    "parse_counts",
    "parse_distances",
    "parse_names",
    "parse_shares",
]


Owners = Annotated[bool, typer.Option("--owners", help="Write the owner of the subscription too.")]


def parse_counts(text: str) -> tuple[int, int]:
    """Parse a range of whole numbers, ``A-B`` or ``A``.

    Examples
    --------
    >>> parse_counts("6-20"), parse_counts("3")
    ((6, 20), (3, 3))
    """
    try:
        minimum, maximum = (int(part) for part in _split_range(text))
    except ValueError:
        raise typer.BadParameter(f"expected whole numbers as A-B, got {text!r}") from None
    if not 1 <= minimum <= maximum:
        raise typer.BadParameter(f"expected 1 <= A <= B as A-B, got {text!r}")
    return minimum, maximum


def parse_shares(text: str) -> tuple[float, float]:
    """Parse a range of shares from 0 to 1, ``A-B`` or ``A``.

    Examples
    --------
    >>> parse_shares("0.0001-0.01"), parse_shares("1e-4-1e-2")
    ((0.0001, 0.01), (0.0001, 0.01))
    """
    try:
        minimum, maximum = (float(part) for part in _split_range(text))
    except ValueError:
        raise typer.BadParameter(f"expected shares as A-B, got {text!r}") from None
    if not 0 <= minimum <= maximum <= 1:
        raise typer.BadParameter(f"expected 0 <= A <= B <= 1 as A-B, got {text!r}")
    return minimum, maximum


def parse_distances(text: str) -> tuple[float, float]:
    """Parse a range of distances in meters, ``A-B`` or ``A``.

    Examples
    --------
    >>> parse_distances("100000"), parse_distances("5e3-5e5")
    ((100000.0, 100000.0), (5000.0, 500000.0))
    """
    from nearcast.model.rankings import MAX_DISTANCE_M, MIN_DISTANCE_M

    try:
        minimum, maximum = (float(part) for part in _split_range(text))
    except ValueError:
        raise typer.BadParameter(f"expected meters as A or A-B, got {text!r}") from None
    if not MIN_DISTANCE_M <= minimum <= maximum <= MAX_DISTANCE_M:
        limits = f"{MIN_DISTANCE_M:g} <= A <= B <= {MAX_DISTANCE_M:,.2f}"
        raise typer.BadParameter(f"expected {limits} as A-B, got {text!r}")
    return minimum, maximum


def parse_names(text: str) -> list[str]:
    """Parse names separated by commas.

    Examples
    --------
    >>> parse_names("scan, rt-tree,"), parse_names("")
    (['scan', 'rt-tree'], [])
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_assignments(texts: list[str]) -> dict[str, Any]:
    """Parse ``name=value`` options; values that are valid JSON are converted.

    Examples
    --------
    >>> parse_assignments(["list_size=32", "mode=fast"])
    {'list_size': 32, 'mode': 'fast'}
    """
    values: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise typer.BadParameter(f"expected name=value, got {text!r}")
        try:
            values[name.strip()] = json.loads(value)
        except ValueError:
            values[name.strip()] = value
    return values


def _split_range(text: str) -> tuple[str, str]:
    """Split at the first hyphen that is not the sign of an exponent."""
    for i, character in enumerate(text):
        if character == "-" and i and text[i - 1] not in "eE":
            return text[:i], text[i + 1 :]
    return text, text
