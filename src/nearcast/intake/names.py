"""Names of columns: which column of a source is which of ours.

A source may call a column differently. `--column` says so, and names that are nearly ours are
recognized or asked about, see `nearcast.model.close_names`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from nearcast.errors import UnknownName, UnsupportedFile
from nearcast.model.close_names import COLUMNS, similar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = [
    "HOW_TO_NAME",
    "Names",
    "Step",
    "question",
    "resolve",
    "steps",
]

HOW_TO_NAME = (
    "use --column NAME=COLUMN for other names (in Python: columns={NAME: COLUMN}), "
    "--id row or --id hash if there are no ids"
)

Step = str | int
"""A step of a path into nested values: the name of a field, or a position in a list."""

_PATH = re.compile(r"[^.\[\]]+(?:\.[^.\[\]]+|\[[0-9]+\])*")
_STEP = re.compile(r"\[([0-9]+)\]|([^.\[\]]+)")


class Names(NamedTuple):
    """Where our columns are in a source.

    ``path`` has the path of each of ours that the source has; ``taken`` has those that were
    recognized by a similar name, and ``unused`` the columns that are none of ours. ``as_it_is``
    tells that the source has our names already, and no column that was left out.
    """

    path: dict[str, str]
    taken: dict[str, str]
    unused: tuple[str, ...]
    as_it_is: bool


def question(name: str, ours: str) -> str:
    """Return what to ask about a column whose name is close to one of ours."""
    return (
        f"is {name!r} meant as {ours}? Use --column {ours}={name} to read it, --column {ours}= to "
        f"ignore it (in Python: columns={{{ours!r}: {name!r}}}, or '')"
    )


@lru_cache(maxsize=1_000)
def resolve(
    names: tuple[str, ...], kind: str | None, columns: tuple[tuple[str, str], ...] = ()
) -> Names:
    """Return which columns of a source are ours.

    Parameters
    ----------
    names
        The columns of the source.
    kind
        One of `COLUMNS`.
    columns
        What the user said: our names, and paths in the source; an empty path leaves a column out.

    Raises
    ------
    UnsupportedFile
        If a column that the user named is missing, or a name is close to one of ours.

    Examples
    --------
    >>> found = resolve(("ID", "lng", "lat", "body", "color"), "messages", (("text", "body"),))
    >>> found.path, found.taken, found.unused
    ({'text': 'body', 'lat': 'lat', 'id': 'ID', 'lon': 'lng'}, {'id': 'ID', 'lon': 'lng'},
     ('color',))
    """
    said = check_columns(columns, kind)
    path = {ours: source for ours, source in said.items() if source}
    for name, source in path.items():
        if root_of(source, names) not in names:
            raise UnsupportedFile(
                f"there is no column {root_of(source, names)!r} for --column {name}={source}; "
                f"the columns are: {', '.join(names) or 'none'}"
            )
    path |= {name: name for name in COLUMNS[kind] if name in names and name not in said}
    used = {root_of(source, names) for source in path.values()}
    for name in names:
        if name in used and names.count(name) > 1:
            raise UnsupportedFile(f"the column {name} occurs twice; rename one of them")
    taken, asked = similar([n for n in dict.fromkeys(names) if n not in used], path, kind, said)
    if asked is not None:
        raise UnsupportedFile(question(*asked))
    used.update(taken.values())
    unused = tuple(name for name in dict.fromkeys(names) if name not in used)
    ours = path | taken
    left_out = any(name in COLUMNS[kind] for name in unused)
    as_it_is = not left_out and all(name == source for name, source in ours.items())
    return Names(ours, taken, unused, as_it_is)


def check_columns(columns: Iterable[tuple[str, str]], kind: str | None) -> dict[str, str]:
    """Return what the user said about columns, or raise an error if it cannot be."""
    said = dict(columns)
    for ours in said:
        if ours not in COLUMNS[kind]:
            raise UnknownName("column", ours, COLUMNS[kind])
    return said


def root_of(path: str, names: Collection[str] = ()) -> str:
    """Return the column in which a path begins.

    Examples
    --------
    >>> root_of("geometry.coordinates[0]"), root_of("a.b", ["a.b"])
    ('geometry', 'a.b')
    """
    return path if path in names else str(steps(path)[0])


def steps(path: str) -> tuple[Step, ...]:
    """Return the steps of a path: the column first.

    Examples
    --------
    >>> steps("geometry.coordinates[0]")
    ('geometry', 'coordinates', 0)
    """
    if not _PATH.fullmatch(path):
        return (path,)
    return tuple(name or int(number) for number, name in _STEP.findall(path))
