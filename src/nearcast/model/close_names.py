"""Names of fields and columns that are nearly ours.

They are recognized up to case, spaces, ``_`` and ``-`` (``Keywords``), or by a known synonym
(``lng``). Any other name that is close to one of ours is a question to the user, because a field
that is ignored in silence changes what matches: a subscription without keywords gets everything.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from nearcast.errors import InvalidInput
from nearcast.model.json_form import BOX, CIRCLE, FIELDS, POINT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["ASKED", "COLUMNS", "TAKEN", "Near", "near", "own_names", "similar", "wanted"]

COLUMNS: dict[str | None, tuple[str, ...]] = {
    "messages": FIELDS["message"],
    "subscriptions": FIELDS["subscription"],
    "moves": ("subscription_id", "time", *BOX, *CIRCLE, "geometry"),
    "changes": ("op", "subscription_id", "time", *FIELDS["subscription"]),
}
"""The columns of each kind of table; None for a table of any kind, whose names are not changed."""
COLUMNS[None] = tuple(dict.fromkeys(name for names in COLUMNS.values() for name in names))

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
    "words": "keywords",
    "terms": "keywords",
    "query": "expression",
    "timestamp": "time",
    "datetime": "time",
}
_OTHERS = frozenset(["score", "slope"])  # close to scope, but words of their own
_PLACE = frozenset((*BOX, *CIRCLE, "geometry"))
_EITHER = ({"text", "tokens"}, {"keywords", "expression"})
_MIN_LENGTH = 4
_MIN_RATIO = 0.8


class Near(NamedTuple):
    """A column of ours that a name may mean, and whether it is `TAKEN` for it or `ASKED` about."""

    ours: str
    rank: int


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
    if meant not in ours and written not in _OTHERS:
        long = [our for our in plain if len(our) >= _MIN_LENGTH]
        found = difflib.get_close_matches(written, long, 1, _MIN_RATIO)
        meant = plain[found[0]] if found else None
    return None if meant is None else Near(meant, ASKED)


def own_names(record: Any, kind: str) -> Any:
    """Return a record with our names for fields that are nearly ours, or raise `InvalidInput`.

    Examples
    --------
    >>> own_names({"id": 1, "keyword": "tea", "color": "red"}, "subscriptions")
    {'id': 1, 'keyword': 'tea', 'color': 'red', 'keywords': 'tea'}
    >>> own_names({"id": 1, "kewords": "tea"}, "subscriptions")
    Traceback (most recent call last):
    ...
    nearcast.errors.InvalidInput: kewords: is not a field; is it meant as keywords? (got 'tea')
    """
    if not isinstance(record, Mapping):
        return record
    ours = {name for name in COLUMNS[kind] if record.get(name) is not None}
    others = [name for name in record if isinstance(name, str) and name not in COLUMNS[kind]]
    if not others:
        return record
    taken, asked = similar(others, ours, kind, ())
    if asked is not None:
        name, meant = asked
        raise InvalidInput(name, record[name], f"is not a field; is it meant as {meant}?")
    return {**record, **{name: record[theirs] for name, theirs in taken.items()}}


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


def _has_place(there: Collection[str], kind: str | None) -> bool:
    names = {*there}
    point = names.issuperset(POINT) and (kind == "messages" or "max_distance_m" in names)
    return point or "geometry" in names or names.issuperset(BOX) or names.issuperset(CIRCLE)


def _plain(name: str) -> str:
    return re.sub(r"[ _-]+", "", name).lower()
