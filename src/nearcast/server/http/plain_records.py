"""Records of an import that need no conversion: many are checked at once, as tables.

Nearly all records of large imports are words in a circle or a box. Those whose values have their
types already are read by `nearcast.intake.read_subscriptions`, the reader of files and tables,
which decides what is valid. This only decides which records it can read: all others, and those that
are refused, are left to `definition_of_subscription`, which says why.
"""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from nearcast.columns import UNITS
from nearcast.intake import read_subscriptions
from nearcast.intake.json_records import column_type
from nearcast.model.json_form import BOX, CIRCLE
from nearcast.server.http.models import MAX_RADIUS_M, Name, Resource, SubscriptionId
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nearcast.server.http.definitions import Definition

__all__ = ["plain_definitions"]

_NUMBERS = {int, float}
_numbers_of: dict[tuple[str, ...], Callable[[Any], tuple[Any, ...]]] = {
    names: itemgetter(*names) for names in (CIRCLE, BOX)
}
_check_ids = TypeAdapter(list[SubscriptionId], config=Resource.model_config).validate_python
_check_name = TypeAdapter(Name, config=Resource.model_config).validate_python


def plain_definitions(records: Sequence[object]) -> list[Definition | None]:
    """Return the definitions of records; None for those that have to be read one by one.

    Examples
    --------
    >>> record = {"id": "s1", "keywords": ["tea"], "lon": 13, "lat": 52.5, "radius_m": 500}
    >>> [found, other] = plain_definitions([record, record | {"lat": 95}])
    >>> found["row"], other
    ({'keywords': ['tea'], 'lon': 13.0, 'lat': 52.5, 'radius_m': 500.0}, None)
    """
    found: list[Definition | None] = [None] * len(records)
    rows: dict[tuple[str, ...], list[int]] = {CIRCLE: [], BOX: []}
    for at, record in enumerate(records):
        if type(record) is dict and (place := _place_of(record)) is not None:
            rows[place].append(at)
    for names, chosen in rows.items():
        plain: list[Any] = _with_allowed_ids([(at, records[at]) for at in chosen])
        for number, degrees, box in _places([record for _, record in plain], names):
            at, given = plain[number]
            found[at] = _definition(given, dict(zip(names, degrees, strict=True)), box)
    return found


def _place_of(record: dict[str, Any]) -> tuple[str, ...] | None:
    """Return the columns of the place of a record; None if it has to be read by itself.

    A plain record has words and a place, each value has its type, and its owner is allowed.
    """
    place = _shape(tuple(record))
    if place is None:
        return None
    words, owner = record["keywords"], record.get("owner", "default")
    numbers = _numbers_of[place](record)
    plain = (
        type(words) is list
        and {*map(type, words)} == {str}
        and {*map(type, numbers)} <= _NUMBERS
        and max(numbers) <= MAX_RADIUS_M
        and min(numbers) >= -MAX_RADIUS_M
        and type(owner) is str
        and _is_name(owner)
    )
    return place if plain else None


@lru_cache(1_000)
def _shape(names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the columns of the place of records with these fields; None if there are others."""
    rest = {*names} - {"owner"}
    return next((p for p in (CIRCLE, BOX) if rest == {"id", "keywords", *p}), None)


@lru_cache(10_000)
def _is_name(text: str) -> bool:
    try:
        _check_name(text)
    except ValidationError:
        return False
    return True


def _with_allowed_ids(records: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Return the numbered records whose ids are texts or integers that are allowed."""
    ids = [record["id"] for _, record in records]
    texts = [str(id) if type(id) is int and id.bit_length() < 64 else id for id in ids]
    try:
        _check_ids(texts)
    except ValidationError as error:
        wrong = {problem["loc"][0] for problem in error.errors(include_url=False)}
        return [one for at, one in enumerate(records) if at not in wrong]
    return records


def _places(
    records: Sequence[dict[str, Any]], names: tuple[str, ...]
) -> Iterable[tuple[int, list[float], list[float]]]:
    """Return the numbers of valid records that have one box, their places and boxes in degrees."""
    if not records:
        return []
    columns = {
        name: pa.array([record[name] for record in records], column_type(name))
        for name in ("keywords", *names)
    }
    places = np.stack([columns[name].to_numpy() for name in names], axis=1)
    columns["id"] = pa.array(range(len(records)), pa.int64())
    read, _ = read_subscriptions(pa.table(columns), Vocabulary())
    clauses = read.clauses
    valid = np.flatnonzero(np.bincount(clauses.row, minlength=len(read.ids)) == 1)
    rows = read.ids.number[valid]
    boxes = clauses.box[clauses.row.searchsorted(valid)] / UNITS
    degrees = [at for at, name in enumerate(names) if name != "radius_m"]
    places[:, degrees] = np.rint(places[:, degrees] * UNITS) / UNITS + 0.0  # never -0.0
    return zip(rows.tolist(), places[rows].tolist(), boxes.tolist(), strict=True)


def _definition(record: dict[str, Any], place: dict[str, float], box: list[float]) -> Definition:
    """Return the definition of a plain record, as `definition_of_subscription` does."""
    id, words = str(record["id"]), record["keywords"]
    detail: dict[str, Any] = {"subscriber": record["owner"]} if "owner" in record else {}
    detail["keywords"] = words
    if "radius_m" in place:
        center = {"latitude": place["lat"], "longitude": place["lon"]}
        detail["region"] = {"areaType": "CIRCLE", "center": center, "radius": place["radius_m"]}
    else:
        detail["region"] = {"areaType": "BOX", **place}
    return {
        "id": id,
        "subscriber": record.get("owner", "default"),
        "row": {"keywords": words, **place},
        "kind": "boolean",
        "box": box,
        "sink": None,
        "types": None,
        "expires_us": None,
        "max_events": None,
        "initial": False,
        "dwell_us": 0,
        "active": True,
        "given": {"config": {"subscriptionDetail": detail}, "id": id},
    }
