"""From the resource of a client to the definition that the log stores.

`definition_of` lets `nearcast.Subscription` decide what is valid, so that the server and the
library agree, and names the property that the client wrote. `patched` applies a merge patch
(RFC 7396) to a stored resource.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from pydantic import ValidationError

from nearcast import model
from nearcast.errors import ExpressionError, InvalidInput
from nearcast.model.expressions import MAX_CLAUSES
from nearcast.server.delivery.addresses import SinkNetworks
from nearcast.server.http.models import (
    Box,
    Circle,
    Feature,
    MultiPolygon,
    Point,
    Polygon,
    ProximityRanking,
    SubscriptionRequest,
    parse_timestamp,
    timestamp_text,
)
from nearcast.server.http.problems import FieldError, Problem, validation_problem
from nearcast.server.http.sinks import sink_of
from nearcast.server.matching.tables import bounding_box
from nearcast.text import words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nearcast.model.checks import Tokenize
    from nearcast.server.http.models import Detail

__all__ = [
    "DEFAULT_LIMITS",
    "READ_ONLY",
    "Definition",
    "DefinitionLimits",
    "check_marks",
    "check_texts",
    "definition_of",
    "definition_of_subscription",
    "merge_patch",
    "patched",
    "place_row",
    "region_of",
    "region_resource",
    "request_of",
    "without_read_only",
    "word_length",
]

Definition = dict[str, Any]
"""What the log stores of a subscription."""

_DETAIL = "config.subscriptionDetail."
_REGION = _DETAIL + "region"
_EXPIRES = "config.subscriptionExpireTime"
_PATHS = {
    "id": "id",
    "keywords": _DETAIL + "keywords",
    "expression": _DETAIL + "expression",
    "owner": _DETAIL + "subscriber",
    "expires_at": _EXPIRES,
    "delta": _DETAIL + "ranking.delta",
    "tau": _DETAIL + "ranking.tau",
    "max_distance_m": _DETAIL + "ranking.maxDistanceM",
    "alpha": _DETAIL + "ranking.alpha",
    "theta": _DETAIL + "ranking.theta",
    "west": _REGION + ".west",
    "south": _REGION + ".south",
    "east": _REGION + ".east",
    "north": _REGION + ".north",
    "radius_m": _REGION + ".radius",
}
READ_ONLY = ("startsAt", "expiresAt", "version", "warnings")
_ENDED = ("EXPIRED", "DELETED")
_SPARE_MARKS, _MARKS_OF_VERTEX = 100_000, 8
_SMALL_BYTES = 64 << 10
_BETWEEN_WORDS = re.compile(r'[\s()"\u201c\u201d\u201e\u201f]+')


@dataclass(frozen=True, slots=True)
class DefinitionLimits:
    """What a subscription may be at most.

    Parameters
    ----------
    clauses
        The clauses that its expression expands to.
    vertices
        The positions of its region.
    keywords
        Its keywords.
    expression_length
        The characters of its expression.
    word_length
        The characters of a word of its expression, and of a keyword.
    networks
        The networks in which sinks may be although they are private.
    """

    clauses: int = MAX_CLAUSES
    vertices: int = 10_000
    keywords: int = 1_000
    expression_length: int = 16_384
    word_length: int = 256
    networks: SinkNetworks = field(default_factory=SinkNetworks)

    @property
    def marks(self) -> int:
        """How many brackets and commas its JSON may have: what it takes to read it."""
        return _SPARE_MARKS + _MARKS_OF_VERTEX * self.vertices


DEFAULT_LIMITS = DefinitionLimits()


def check_marks(body: bytes, limits: DefinitionLimits = DEFAULT_LIMITS) -> None:
    """Raise `InvalidInput` if reading JSON would take more than a subscription can be worth.

    Empty arrays take 50 times as much memory as bytes, so they are counted before.

    Examples
    --------
    >>> check_marks(b'{"a":' + b"[[],[]," * 200_000)
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: : has 1,000,001 brackets and commas; at most 180,000...
    """
    if len(body) <= _SMALL_BYTES:
        return
    marks = body.count(b"[") + body.count(b"{") + body.count(b",")
    if marks > limits.marks:
        most = f"at most {limits.marks:,} are allowed, simplify it"
        raise InvalidInput("", None, f"has {marks:,} brackets and commas; {most}")


def check_texts(keywords: object, expression: object, limits: DefinitionLimits) -> None:
    """Raise `InvalidInput` if keywords or an expression are too long to be parsed.

    Examples
    --------
    >>> check_texts(["tea"], "tea " * 5_000, DEFAULT_LIMITS)
    Traceback (most recent call last):
        ...
    nearcast...: expression: has 20,000 characters; at most 16,384 are allowed...
    """
    if isinstance(expression, str):
        _check_length("expression", expression, limits.expression_length)
        for word in _BETWEEN_WORDS.split(expression):
            _check_word("expression", word, limits.word_length, "a word ")
    if isinstance(keywords, str):
        _check_length("keywords", keywords, limits.expression_length)
    elif isinstance(keywords, list):
        if len(keywords) > limits.keywords:
            problem = f"has {len(keywords)} keywords; at most {limits.keywords} are allowed"
            raise _TooLong("keywords", None, problem)
        for keyword in keywords:
            if isinstance(keyword, str):
                _check_word("keywords", keyword, limits.word_length, "a keyword ")


class _TooLong(InvalidInput):
    """A text that is longer than a limit."""


def word_length(word: str) -> int:
    """Return how many characters a word has; one of Unicode may be compared as 18 others.

    Examples
    --------
    >>> word_length("tea"), word_length("\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}")
    (3, 18)
    """
    return len(word) if word.isascii() else max(len(word), len(normalize("NFKC", word)))


def _check_word(field: str, word: str, most: int, what: str) -> None:
    if len(word) <= most:  # otherwise it is refused without a look at it
        length = word_length(word)
        if length > most:
            problem = f"{what}has {length:,} characters as it is compared"
            raise _TooLong(field, None, f"{problem}; at most {most:,} are allowed")
    _check_length(field, word, most, what)


def _check_length(field: str, text: str, most: int, what: str = "") -> None:
    if len(text) > most:
        problem = f"{what}has {len(text):,} characters; at most {most:,} are allowed"
        raise _TooLong(field, None, problem + ", split it into several subscriptions" * (not what))


def request_of(document: object) -> SubscriptionRequest:
    """Return a parsed JSON document as a resource, or raise a `Problem`."""
    try:
        return SubscriptionRequest.model_validate(document)
    except ValidationError as error:
        raise validation_problem(error.errors(include_url=False)) from None


def without_read_only(document: Any) -> Any:
    """Return a resource as a client read it, without what only the server sets.

    Examples
    --------
    >>> without_read_only({"id": "s1", "version": 7, "status": "EXPIRED"})
    {'id': 's1'}
    """
    if not isinstance(document, dict):
        return document
    kept = {name: value for name, value in document.items() if name not in READ_ONLY}
    if kept.get("status") in _ENDED:
        del kept["status"]
    return kept


def definition_of(
    resource: SubscriptionRequest,
    limits: DefinitionLimits = DEFAULT_LIMITS,
    *,
    now_us: int | None = None,
    previous: Definition | None = None,
    tokenize: Tokenize = words,
) -> Definition:
    """Return the definition that a resource describes.

    Parameters
    ----------
    resource
        What the client wrote.
    limits
        What a subscription may be at most.
    now_us
        The time, which an expiry must be after; that of the clock if left out.
    previous
        The definition that this one replaces: the credential of its sink is kept if the resource
        has none, and its access token only for the same address.
    tokenize
        The tokenizer of the messages.

    Raises
    ------
    Problem
        If it is invalid; it names the property.

    Examples
    --------
    >>> box = {"areaType": "BOX", "west": 13, "south": 52, "east": 14, "north": 53}
    >>> config = {"subscriptionDetail": {"region": box, "keywords": ["tea"]}}
    >>> definition_of(request_of({"config": config}))["row"]
    {'keywords': ['tea'], 'west': 13.0, 'south': 52.0, 'east': 14.0, 'north': 53.0}
    """
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    config, detail = resource.config, resource.config.subscriptionDetail
    subscription = _subscription(resource, limits)
    _check_words(subscription, limits, tokenize)
    return {
        "id": resource.id,
        "subscriber": detail.subscriber,
        "row": _row(subscription),
        "kind": _kind(subscription),
        "box": [*bounding_box(_reach(subscription))],
        "sink": sink_of(
            resource,
            now_us=now_us,
            networks=limits.networks,
            before=None if previous is None else previous["sink"],
        ),
        "types": None if resource.types is None else list(resource.types),
        "expires_us": _expiry(subscription, now_us),
        "max_events": config.subscriptionMaxEvents,
        "initial": config.initialEvent,
        "dwell_us": round(detail.dwellS * 1_000_000),
        "active": resource.status == "ACTIVE",
        "given": _shown(resource),
    }


def definition_of_subscription(
    subscription: model.Subscription,
    limits: DefinitionLimits = DEFAULT_LIMITS,
    *,
    now_us: int | None = None,
    tokenize: Tokenize = words,
) -> Definition:
    """Return the definition of a subscription of the library; its owner is the subscriber.

    Raises
    ------
    Problem
        If it is above the limits or has expired.
    """
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    _check_vertices(_positions_of(subscription.region), limits)
    _check_words(subscription, limits, tokenize)
    document = {"id": str(subscription.id), "config": _config_of(subscription)}
    given = request_of(document).model_dump(exclude_unset=True)
    return {
        "id": document["id"],
        "subscriber": subscription.owner or "default",
        "row": _row(subscription),
        "kind": _kind(subscription),
        "box": [*bounding_box(_reach(subscription))],
        "sink": None,
        "types": None,
        "expires_us": _expiry(subscription, now_us),
        "max_events": None,
        "initial": False,
        "dwell_us": 0,
        "active": True,
        "given": given,
    }


def region_of(region: object, limits: DefinitionLimits = DEFAULT_LIMITS) -> model.Region:
    """Return a region of the models as one of the library.

    Raises
    ------
    Problem, RegionError
        If it has too many positions, or is invalid.
    """
    if isinstance(region, Feature):
        region = region.geometry
    if isinstance(region, Circle):
        return model.Circle(region.center.longitude, region.center.latitude, region.radius)
    if isinstance(region, Box):
        return model.Rect(region.west, region.south, region.east, region.north)
    assert isinstance(region, Point | Polygon | MultiPolygon)
    _check_vertices(_count_positions(region.coordinates), limits)
    return model.region({"type": region.type, "coordinates": region.coordinates})


def place_row(region: model.Region, *, point: bool = False) -> dict[str, Any]:
    """Return the columns of a region: sides, a center and radius, or a geometry as WKB.

    Tables cannot have GeoJSON objects of several types in one column, and WKB reads faster.
    """
    if isinstance(region, model.Rect):
        return {side: getattr(region, side) for side in ("west", "south", "east", "north")}
    if isinstance(region, model.Circle):
        return {"lon": region.lon, "lat": region.lat, "radius_m": region.radius_m}
    if isinstance(region, model.Point) and point:
        return {"lon": region.lon, "lat": region.lat}
    return {"geometry": region.to_wkb()}


def merge_patch(target: Any, patch: Any) -> Any:
    """Return a document with a merge patch (RFC 7396) applied; neither is changed.

    Examples
    --------
    >>> merge_patch({"a": 1, "b": {"c": 2, "d": 3}}, {"a": None, "b": {"c": 4}})
    {'b': {'c': 4, 'd': 3}}
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def patched(given: Mapping[str, Any], patch: object) -> SubscriptionRequest:
    """Return a stored resource with a merge patch applied.

    A region or a ranking that the patch has replaces the stored one as a whole: half a polygon and
    half a circle make no region.

    Parameters
    ----------
    given
        The ``given`` of a definition.
    patch
        The parsed JSON of the patch.
    """
    if not isinstance(patch, dict):
        raise Problem.of_fields([FieldError("", "a merge patch must be a JSON object")])
    for name in READ_ONLY:
        if name in patch:
            raise Problem.of_fields([FieldError(name, "is set by the server")])
    if "id" in patch and patch["id"] != given.get("id"):
        raise Problem.of_fields([FieldError("id", "cannot be changed")])
    merged = merge_patch(dict(given), patch)
    changes = _at(patch, "config", "subscriptionDetail")
    for name in ("region", "ranking"):
        if changes.get(name) is not None:
            _at(merged, "config", "subscriptionDetail")[name] = changes[name]
    return request_of(merged)


def _at(document: Any, *names: str) -> dict[str, Any]:
    for name in names:
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def _subscription(resource: SubscriptionRequest, limits: DefinitionLimits) -> model.Subscription:
    config, detail = resource.config, resource.config.subscriptionDetail
    try:
        check_texts(detail.keywords, detail.expression, limits)
        region = region_of(detail.region, limits)
        return model.Subscription(
            resource.id or "new",
            region,
            detail.keywords,
            detail.expression,
            detail.subscriber,
            config.subscriptionExpireTime and parse_timestamp(config.subscriptionExpireTime),
            _ranking(detail),
        )
    except InvalidInput as error:
        raise _named(error, detail) from None


def _ranking(detail: Detail) -> model.Proximity | model.Overlap | None:
    ranking = detail.ranking
    if ranking is None:
        return None
    if isinstance(ranking, ProximityRanking):
        return model.Proximity(ranking.delta, ranking.tau, ranking.maxDistanceM)
    return model.Overlap(ranking.alpha, ranking.theta)


def _check_words(
    subscription: model.Subscription, limits: DefinitionLimits, tokenize: Tokenize
) -> None:
    """Check keywords and expression with the tokenizer, and how many clauses they are."""
    try:
        clauses = max(
            len(subscription.clauses(tokenize)), len(subscription.condition(tokenize) or ())
        )
    except InvalidInput as error:
        raise _named(error) from None
    if clauses > limits.clauses:
        problem = (
            f"expands to {clauses:,} clauses; at most {limits.clauses:,} are allowed, "
            "split it into several subscriptions"
        )
        raise _refused("expression", problem, "OUT_OF_RANGE")


def _check_vertices(count: int, limits: DefinitionLimits) -> None:
    if count > limits.vertices:
        problem = f"has {count:,} positions; at most {limits.vertices:,} are allowed, simplify it"
        raise _refused("region", problem, "OUT_OF_RANGE")


def _count_positions(coordinates: Any) -> int:
    if coordinates and isinstance(coordinates[0], list):
        if coordinates[0] and not isinstance(coordinates[0][0], list):
            return len(coordinates)
        return sum(map(_count_positions, coordinates))
    return 1


def _positions_of(region: model.Region) -> int:
    if not isinstance(region, model.Polygon):
        return 1
    return sum(len(ring) for part in region.coordinates for ring in part)


def _shown(resource: SubscriptionRequest) -> dict[str, Any]:
    """Return the resource for answers: without credential, and with the geometry of a Feature."""
    shown = resource.model_dump(exclude_unset=True, exclude={"sinkCredential"})
    detail = shown["config"]["subscriptionDetail"]
    if isinstance(resource.config.subscriptionDetail.region, Feature):
        detail["region"] = detail["region"]["geometry"]
    return shown


def _kind(subscription: model.Subscription) -> str:
    ranking = subscription.ranking
    if ranking is None:
        return "boolean"
    return "proximity" if isinstance(ranking, model.Proximity) else "overlap"


def _reach(subscription: model.Subscription) -> model.Region:
    """Return where messages can match: of one that is ranked by distance, a circle."""
    region, ranking = subscription.region, subscription.ranking
    if isinstance(region, model.Point) and isinstance(ranking, model.Proximity):
        return model.Circle(region.lon, region.lat, ranking.max_distance_m)
    return region


def _row(subscription: model.Subscription) -> dict[str, Any]:
    row: dict[str, Any] = {}
    if subscription.keywords is not None:
        row["keywords"] = list(subscription.keywords)
    if subscription.expression is not None:
        row["expression"] = subscription.expression
    ranking = subscription.ranking
    row |= place_row(subscription.region, point=isinstance(ranking, model.Proximity))
    return row if ranking is None else row | ranking.to_dict()


def _expiry(subscription: model.Subscription, now_us: int) -> int | None:
    expires_us = subscription.expires_us
    if expires_us is not None and expires_us <= now_us:
        raise Problem.of_fields([FieldError(_EXPIRES, "must be in the future")], "OUT_OF_RANGE")
    return expires_us


def _config_of(subscription: model.Subscription) -> dict[str, Any]:
    """Return the ``config`` of the resource that describes a subscription."""
    fields = subscription.to_dict()
    detail: dict[str, Any] = {
        name: fields[name] for name in ("keywords", "expression") if name in fields
    }
    if subscription.owner is not None:
        detail["subscriber"] = subscription.owner
    detail["region"] = region_resource(subscription.region)
    if subscription.ranking is not None:
        ranking = subscription.ranking.to_dict()
        names = {"max_distance_m": "maxDistanceM"}
        detail["ranking"] = {names.get(name, name): value for name, value in ranking.items()}
    config: dict[str, Any] = {"subscriptionDetail": detail}
    if subscription.expires_us is not None:
        config["subscriptionExpireTime"] = timestamp_text(subscription.expires_us)
    return config


def region_resource(region: model.Region) -> dict[str, Any]:
    """Return a region as clients write it."""
    if isinstance(region, model.Circle):
        center = {"latitude": region.lat, "longitude": region.lon}
        return {"areaType": "CIRCLE", "center": center, "radius": region.radius_m}
    if isinstance(region, model.Rect):
        return {"areaType": "BOX", **place_row(region)}
    shown: dict[str, Any] = _lists(region.to_geojson())
    return shown


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lists(inner) for name, inner in value.items()}
    return [_lists(inner) for inner in value] if isinstance(value, tuple | list) else value


def _refused(name: str, problem: str, code: str = "INVALID_ARGUMENT") -> Problem:
    return Problem.of_fields([FieldError(_DETAIL + name, problem)], code)


def _named(error: InvalidInput, detail: Detail | None = None) -> Problem:
    """Return an error of the library as a problem with the property that the client wrote."""
    field = _PATHS.get(error.field, _REGION)
    if error.field in ("lon", "lat") and detail is not None and isinstance(detail.region, Circle):
        axis = "longitude" if error.field == "lon" else "latitude"
        field = f"{_REGION}.center.{axis}"
    if field == _REGION and detail is not None and isinstance(detail.region, Feature):
        field = f"{_REGION}.geometry"
    if isinstance(error, _TooLong):
        return Problem.of_fields([FieldError(field, error.problem)], "OUT_OF_RANGE")
    if isinstance(error, ExpressionError):
        return Problem.of_fields([FieldError(field, error.problem, error.position)])
    reason = error.problem if field.startswith(_REGION) else error.problem + error.got()
    return Problem.of_fields([FieldError(field, reason)])
