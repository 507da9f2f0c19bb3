"""Names of columns: which column of a source is which of ours.

A source may call a column differently. `--column` says so, and names that are nearly ours are
recognized: up to case, spaces, ``_`` and ``-`` (``Keywords``), or by a known synonym (``lng``). Any
other name that is close to one of ours is a question to the user, because a column that is ignored
in silence changes what matches: a subscription without keywords gets everything.
"""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from nearcast.errors import UnknownName, UnsupportedFile
from nearcast.model.json_form import BOX, CIRCLE, FIELDS, POINT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = [
    "COLUMNS",
    "HOW_TO_NAME",
    "Names",
    "Near",
    "Step",
    "near",
    "question",
    "resolve",
    "similar",
    "steps",
    "wanted",
]

COLUMNS: dict[str | None, tuple[str, ...]] = {
    "messages": FIELDS["message"],
    "subscriptions": FIELDS["subscription"],
    "moves": ("subscription_id", "time", *BOX, *CIRCLE, "geometry"),
    "changes": ("op", "subscription_id", "time", *FIELDS["subscription"]),
}
"""The columns of each kind of table; None for a table of any kind, whose names are not changed."""
COLUMNS[None] = tuple(dict.fromkeys(name for names in COLUMNS.values() for name in names))

HOW_TO_NAME = (
    "use --column NAME=COLUMN for other names (in Python: columns={NAME: COLUMN}), "
    "--id row or --id hash if there are no ids"
)

TAKEN, ASKED = 1, 2

_SYNONYMS = {
    "lng": "lon",
    "long": "lon",
    "longitude": "lon",
    "latitude": "lat",
    "keyword": "keywords",
}
_QUESTIONS = {
    "msg": "text",
    "message": "text",
    "body": "text",
    "timestamp": "time",
    "datetime": "time",
}
_PLACE = frozenset((*BOX, *CIRCLE, "geometry"))
_EITHER = ({"text", "tokens"}, {"keywords", "expression"})
_MIN_LENGTH = 4
_MIN_RATIO = 0.8

Step = str | int
"""A step of a path into nested values: the name of a field, or a position in a list."""

_PATH = re.compile(r"[^.\[\]]+(?:\.[^.\[\]]+|\[[0-9]+\])*")
_STEP = re.compile(r"\[([0-9]+)\]|([^.\[\]]+)")


class Near(NamedTuple):
    """A column of ours that a name may mean, and whether it is `TAKEN` for it or `ASKED` about."""

    ours: str
    rank: int


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


@lru_cache(maxsize=10_000)
def near(name: str, kind: str | None) -> Near | None:
    """Return the column that a name may mean; None if it is one of ours, or close to none.

    Examples
    --------
    >>> near("Key-Words", "subscriptions"), near("lng", "messages"), near("color", "messages")
    (Near(ours='keywords', rank=1), Near(ours='lon', rank=1), None)
    >>> near("radius", "subscriptions")
    Near(ours='radius_m', rank=2)
    """
    ours = COLUMNS[kind]
    if kind is None or name in ours or len(name) > 100:
        return None
    plain = {_plain(our): our for our in ours}
    written = _plain(name)
    meant = plain.get(written) or _SYNONYMS.get(written)
    if meant in ours:
        return Near(meant, TAKEN)
    meant = _QUESTIONS.get(written)
    if meant not in ours:
        long = [our for our in plain if len(our) >= _MIN_LENGTH]
        found = difflib.get_close_matches(written, long, 1, _MIN_RATIO)
        meant = plain[found[0]] if found else None
    return None if meant is None else Near(meant, ASKED)


def wanted(there: Collection[str], kind: str | None) -> set[str]:
    """Return the columns of ours for which similar names are looked for.

    Not those that are there, nor those that a row with these has no use for: a second place, or
    keywords beside an expression.
    """
    missing = {*COLUMNS[kind]}.difference(there)
    if _has_place(there, kind):
        missing -= _PLACE
    for either in _EITHER:
        if either.intersection(there):
            missing -= either
    return missing


def similar(
    names: Iterable[str], there: Collection[str], kind: str | None, said: Collection[str]
) -> tuple[dict[str, str], tuple[str, str] | None]:
    """Return which of some names are taken for columns of ours, and a name that is a question.

    Parameters
    ----------
    names
        The columns that are none of ours.
    there, said
        The columns of ours that are there, and those about which the user said something.
    kind
        One of `COLUMNS`.

    Examples
    --------
    >>> similar(["lng", "Lat", "radius", "color"], {"id"}, "subscriptions", ())
    ({'lon': 'lng', 'lat': 'Lat'}, ('radius', 'radius_m'))
    """
    taken: dict[str, str] = {}
    close = [(name, found) for name in names if (found := near(name, kind)) is not None]
    for rank in (TAKEN, ASKED) if close else ():
        missing = wanted({*there, *taken}, kind).difference(said)
        for name, found in close:
            if found.rank == rank and found.ours in missing:
                if rank == ASKED or found.ours in taken:
                    return taken, (name, found.ours)
                taken[found.ours] = name
    return taken, None


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


def _has_place(there: Collection[str], kind: str | None) -> bool:
    names = {*there}
    point = names.issuperset(POINT) and (kind == "messages" or "max_distance_m" in names)
    return point or "geometry" in names or names.issuperset(BOX) or names.issuperset(CIRCLE)


def _plain(name: str) -> str:
    return re.sub(r"[ _-]+", "", name).lower()
