"""Subscriptions in friendly terms, and the documents that the server reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from nearcast.errors import InvalidInput, RegionError
from nearcast.model import (
    Circle,
    Overlap,
    Point,
    Proximity,
    Rect,
    Region,
    Subscription,
    region,
    time_us,
)

if TYPE_CHECKING:
    from nearcast.model.checks import AnyTime

__all__ = ["Terms", "region_document", "subscription_document"]

_START = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS: dict[frozenset[str], type[Circle] | type[Rect] | type[Point]] = {
    frozenset({"lon", "lat", "radius_m"}): Circle,
    frozenset({"west", "south", "east", "north"}): Rect,
    frozenset({"lon", "lat"}): Point,
}


class Terms(TypedDict, total=False):
    """What a subscription asks for.

    Attributes
    ----------
    id
        An id of your choice; the server makes one if it is left out.
    keywords
        Words that must all occur. A single string is one keyword.
    expression
        Instead of keywords, such as ``coffee AND (latte OR mocha) NOT decaf``.
    region
        A `nearcast.Region`, anything that `nearcast.region` accepts, or a mapping with the columns
        of one: ``lon, lat, radius_m`` or ``west, south, east, north``.
    ranking
        A `nearcast.Proximity` or a `nearcast.Overlap`.
    subscriber
        Who receives the events: one stream for each name.
    sink
        An https address that receives the events as webhooks.
    secret
        The secret that signs webhooks (``whsec_...``); the server makes one if it is left out.
    types
        The types of events to deliver, such as ``match``; all if left out.
    expires_at
        When it ends: a datetime, ISO 8601 text or seconds since 1970.
    max_events
        It ends after this many events.
    initial_event
        Whether messages that are alive now are delivered at once.
    dwell_s
        How many seconds a moving subscription must stay near before it matches.
    """

    id: str
    keywords: str | Sequence[str]
    expression: str
    region: Region | Mapping[str, Any] | Any
    ranking: Proximity | Overlap
    subscriber: str
    sink: str
    secret: str
    types: Sequence[str]
    expires_at: AnyTime
    max_events: int
    initial_event: bool
    dwell_s: float


def subscription_document(subscription: Subscription | None, terms: Terms) -> dict[str, Any]:
    """Return the resource that a subscription or terms describe.

    Parameters
    ----------
    subscription
        A subscription of the library; terms that are given as well replace its parts.
    terms
        What is asked for.

    Examples
    --------
    >>> subscription_document(None, {"keywords": "tea", "region": Circle(13.4, 52.5, 500)})
    {'config': {'subscriptionDetail': {'keywords': ['tea'], 'region': {'areaType': 'CIRCLE',
     'center': {'latitude': 52.5, 'longitude': 13.4}, 'radius': 500.0}}}}
    """
    unknown = sorted({*terms} - {*Terms.__annotations__})
    if unknown:
        known = ", ".join(Terms.__annotations__)
        raise InvalidInput(unknown[0], None, f"is missing in what subscriptions have: {known}")
    given: dict[str, Any] = {**_terms_of(subscription), **terms}
    given = {name: value for name, value in given.items() if value is not None}
    if "region" not in given:
        raise InvalidInput(
            "region", None, "is missing; the whole world is Rect(-180, -90, 180, 90)"
        )
    detail = {
        "subscriber": given.get("subscriber"),
        "keywords": _words(given.get("keywords")),
        "expression": given.get("expression"),
        "region": region_document(given["region"]),
        "ranking": _ranking(given.get("ranking")),
        "dwellS": given.get("dwell_s"),
    }
    config = {
        "subscriptionDetail": _given(detail),
        "subscriptionExpireTime": _time(given.get("expires_at")),
        "subscriptionMaxEvents": given.get("max_events"),
        "initialEvent": given.get("initial_event"),
    }
    secret = given.get("secret")
    return _given(
        {
            "id": given.get("id"),
            "sink": given.get("sink"),
            "sinkCredential": secret and {"credentialType": "WEBHOOKSECRET", "secret": secret},
            "types": _types(given.get("types")),
            "config": _given(config),
        }
    )


def region_document(value: Any) -> dict[str, Any]:
    """Return a region as the server reads it.

    Examples
    --------
    >>> region_document({"west": 13, "south": 52, "east": 14, "north": 53})
    {'areaType': 'BOX', 'west': 13.0, 'south': 52.0, 'east': 14.0, 'north': 53.0}
    """
    if isinstance(value, Mapping):
        if "type" in value or "areaType" in value:
            return dict(value)
        make = _COLUMNS.get(frozenset(value))
        if make is None:
            columns = " or ".join(", ".join(sorted(names)) for names in _COLUMNS)
            raise RegionError("region", value, f"must be GeoJSON or have {columns}")
        value = make(**value)
    place = value if isinstance(value, Region) else region(value)
    if isinstance(place, Circle):
        center = {"latitude": place.lat, "longitude": place.lon}
        return {"areaType": "CIRCLE", "center": center, "radius": place.radius_m}
    if isinstance(place, Rect):
        sides = (place.west, place.south, place.east, place.north)
        return {
            "areaType": "BOX",
            **dict(zip(("west", "south", "east", "north"), sides, strict=True)),
        }
    return place.to_geojson()


def _terms_of(subscription: Subscription | None) -> dict[str, Any]:
    if subscription is None:
        return {}
    if subscription.scope is not None:
        problem = "must be left out: on a server, every tenant is a scope of its own"
        raise InvalidInput("scope", subscription.scope, problem)
    return {
        "id": str(subscription.id),
        "keywords": subscription.keywords,
        "expression": subscription.expression,
        "region": subscription.region,
        "ranking": subscription.ranking,
        "subscriber": subscription.owner,
        "expires_at": subscription.expires_at,
    }


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _words(keywords: str | Sequence[str] | None) -> list[str] | None:
    if keywords is None:
        return None
    return [keywords] if isinstance(keywords, str) else list(keywords)


def _ranking(ranking: Proximity | Overlap | None) -> dict[str, float] | None:
    if ranking is None:
        return None
    if isinstance(ranking, Proximity):
        distance_m = ranking.max_distance_m
        return {"delta": ranking.delta, "tau": ranking.tau, "maxDistanceM": distance_m}
    if isinstance(ranking, Overlap):
        return {"alpha": ranking.alpha, "theta": ranking.theta}
    raise InvalidInput("ranking", ranking, "must be a Proximity or an Overlap")


def _time(value: AnyTime | None) -> str | None:
    if value is None:
        return None
    moment = _START + timedelta(microseconds=time_us("expires_at", value))
    return moment.isoformat().replace("+00:00", "Z")


def _types(types: Sequence[str] | None) -> list[str] | None:
    if types is None:
        return None
    if isinstance(types, str):
        raise InvalidInput("types", types, "must be a list of types, such as ['match']")
    prefix = "org.nearcast."
    return [prefix + one.removeprefix(prefix) for one in types]
