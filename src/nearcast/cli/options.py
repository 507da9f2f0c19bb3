"""Options that several commands share, and parsers for values such as ``6-20``, ``name=value``."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any, get_type_hints

import typer

from nearcast.cli.commands import OUTPUT
from nearcast.errors import InvalidInput, shorten

__all__ = [
    "Owners",
    "misuse",
    "parse_assignments",
    "parse_counts",
    "parse_distances",
    "parse_index_options",
    "parse_names",
    "parse_shares",
]


Owners = Annotated[
    bool,
    typer.Option(
        "--owners",
        rich_help_panel=OUTPUT,
        help="Add a column with the owner of each matching subscription.",
    ),
]


def misuse(option: str | None, problem: str, *got: object) -> typer.BadParameter:
    """Return the error for an option with a wrong value, or beside a wrong option.

    Examples
    --------
    >>> print(misuse("--top", "must be at least 1", 0).format_message())
    Invalid value for --top: must be at least 1 (got 0)
    """
    found = f" (got {shorten(got[0])})" if got else ""
    return typer.BadParameter(f"{problem}{found}", param_hint=option)


def parse_counts(text: str, option: str | None = None) -> tuple[int, int]:
    """Parse a range of whole numbers, ``A-B`` or ``A``; ``option`` is named in errors.

    Examples
    --------
    >>> parse_counts("6-20"), parse_counts("3")
    ((6, 20), (3, 3))
    """
    try:
        minimum, maximum = (int(part) for part in _split_range(text))
    except ValueError:
        problem = "must be a whole number or a range of them, such as 3 or 6-20"
        raise misuse(option, problem, text) from None
    if not 1 <= minimum <= maximum:
        raise misuse(option, "must be a range A-B with 1 <= A <= B, such as 6-20", text)
    return minimum, maximum


def parse_shares(text: str, option: str | None = None) -> tuple[float, float]:
    """Parse a range of shares from 0 to 1, ``A-B`` or ``A``; ``option`` is named in errors.

    Examples
    --------
    >>> parse_shares("0.0001-0.01"), parse_shares("1e-4-1e-2")
    ((0.0001, 0.01), (0.0001, 0.01))
    """
    try:
        minimum, maximum = (float(part) for part in _split_range(text))
    except ValueError:
        problem = "must be a share from 0 to 1 or a range of them, such as 0.5 or 0.2-0.8"
        raise misuse(option, problem, text) from None
    if not 0 <= minimum <= maximum <= 1:
        raise misuse(option, "must be a range A-B with 0 <= A <= B <= 1, such as 0.2-0.8", text)
    return minimum, maximum


def parse_distances(text: str, option: str | None = None) -> tuple[float, float]:
    """Parse a range of distances in meters, ``A-B`` or ``A``; ``option`` is named in errors.

    Examples
    --------
    >>> parse_distances("100000"), parse_distances("5e3-5e5")
    ((100000.0, 100000.0), (5000.0, 500000.0))
    """
    from nearcast.model.rankings import MAX_DISTANCE_M, MIN_DISTANCE_M

    try:
        minimum, maximum = (float(part) for part in _split_range(text))
    except ValueError:
        problem = "must be a number of meters or a range, such as 5000 or 1000-5000"
        raise misuse(option, problem, text) from None
    if not MIN_DISTANCE_M <= minimum <= maximum <= MAX_DISTANCE_M:
        limits = f"{MIN_DISTANCE_M:g} <= A <= B <= {MAX_DISTANCE_M:,.2f}"
        raise misuse(option, f"must be A-B in meters, {limits}", text)
    return minimum, maximum


def parse_names(text: str) -> list[str]:
    """Parse names separated by commas.

    Examples
    --------
    >>> parse_names("scan, rt-tree,"), parse_names("")
    (['scan', 'rt-tree'], [])
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_assignments(
    texts: list[str], option: str = "--option", form: str = "NAME=VALUE"
) -> dict[str, Any]:
    """Parse ``name=value`` options; values that are valid JSON are converted.

    ``option`` and ``form`` are named in errors.

    Examples
    --------
    >>> parse_assignments(["list_size=32", "mode=fast"])
    {'list_size': 32, 'mode': 'fast'}
    """
    return {name: _from_json(text) for name, text in _split_assignments(texts, option, form)}


def parse_index_options(
    texts: list[str],
    options: Sequence[type],
    option: str = "--option",
    form: str = "NAME=VALUE",
) -> dict[str, Any]:
    """Parse ``name=value`` options of an index by the annotations of their fields.

    Fields with other annotations than int, float, str and bool, and names that no field has, get
    values as in `parse_assignments`.

    Parameters
    ----------
    texts
        The options.
    options
        The dataclasses that have the options as fields.
    option, form
        What errors call it.

    Examples
    --------
    >>> from dataclasses import make_dataclass
    >>> grid = make_dataclass("GridOptions", [("cells", int), ("name", str)])
    >>> parse_index_options(["cells=32", "name=1e3"], [grid])
    {'cells': 32, 'name': '1e3'}
    >>> parse_index_options(["cells=many"], [grid])
    Traceback (most recent call last):
    ...
    nearcast.errors.InvalidInput: cells: must be a whole number (got 'many')
    """
    types: dict[str, Any] = {}
    for one in options:
        with suppress(NameError, TypeError):  # annotations that cannot be resolved
            types = get_type_hints(one) | types
    return {
        name: _convert(name, text, types.get(name))
        for name, text in _split_assignments(texts, option, form)
    }


def _convert(name: str, text: str, wanted: Any) -> Any:
    """Return the value of an option as its field wants it."""
    value = _from_json(text)
    if wanted is str:
        return value if isinstance(value, str) else text
    if wanted is bool:
        if text.strip().lower() not in ("true", "false"):
            raise InvalidInput(name, text, "must be true or false")
        return text.strip().lower() == "true"
    if wanted in (int, float):
        try:
            return wanted(text)
        except ValueError:
            problem = "must be a whole number" if wanted is int else "must be a number"
            raise InvalidInput(name, text, problem) from None
    return value


def _split_assignments(texts: list[str], option: str, form: str) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise misuse(option, f"must be {form}", text)
        yield name.strip(), value


def _from_json(text: str) -> Any:
    """Return the value of a text that is JSON, or the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _split_range(text: str) -> tuple[str, str]:
    """Split at the first hyphen that is not the sign of an exponent."""
    for i, character in enumerate(text):
        if character == "-" and i and text[i - 1] not in "eE":
            return text[:i], text[i + 1 :]
    return text, text
