"""Options that say more than one thing: ``6-20``, ``name=value``."""

import json
from typing import Any

import typer

__all__ = ["assignments", "counts", "names_of", "shares"]


def counts(text: str) -> tuple[int, int]:
    """Read ``A-B`` or ``A``, whole numbers.

    Examples
    --------
    >>> counts("6-20"), counts("3")
    ((6, 20), (3, 3))
    """
    try:
        least, most = (int(part) for part in _ends(text))
    except ValueError:
        raise typer.BadParameter(f"expected whole numbers as A-B, got {text!r}") from None
    if not 1 <= least <= most:
        raise typer.BadParameter(f"expected 1 <= A <= B as A-B, got {text!r}")
    return least, most


def shares(text: str) -> tuple[float, float]:
    """Read ``A-B`` or ``A``, shares from 0 to 1.

    Examples
    --------
    >>> shares("0.0001-0.01"), shares("1e-4-1e-2")
    ((0.0001, 0.01), (0.0001, 0.01))
    """
    try:
        least, most = (float(part) for part in _ends(text))
    except ValueError:
        raise typer.BadParameter(f"expected shares as A-B, got {text!r}") from None
    if not 0 <= least <= most <= 1:
        raise typer.BadParameter(f"expected 0 <= A <= B <= 1 as A-B, got {text!r}")
    return least, most


def names_of(text: str) -> list[str]:
    """Read ``A,B,...``.

    Examples
    --------
    >>> names_of("scan, rt-tree,"), names_of("")
    (['scan', 'rt-tree'], [])
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def assignments(texts: list[str]) -> dict[str, Any]:
    """Read ``name=value`` options; numbers and true or false are taken as such.

    Examples
    --------
    >>> assignments(["list_size=32", "mode=fast"])
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


def _ends(text: str) -> tuple[str, str]:
    """Split at the hyphen that is not the sign of an exponent."""
    for i, character in enumerate(text):
        if character == "-" and i and text[i - 1] not in "eE":
            return text[:i], text[i + 1 :]
    return text, text
