"""The subscription resource, as clients write it: the envelope of CAMARA's subscriptions.

The models decide what is allowed where: unknown properties and values of another type are refused.
`nearcast.server.http.definitions` decides whether what they say makes sense. Hot routes do not use
these models.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    field_validator,
)
from pydantic_core import PydanticCustomError

__all__ = [
    "EVENT_TYPES",
    "ID_PATTERN",
    "MAX_RADIUS_M",
    "NAME_PATTERN",
    "AccessToken",
    "Box",
    "Center",
    "Circle",
    "Config",
    "Detail",
    "Feature",
    "MultiPolygon",
    "OverlapRanking",
    "Point",
    "Polygon",
    "ProximityRanking",
    "Region",
    "Resource",
    "Subscription",
    "SubscriptionPage",
    "SubscriptionRequest",
    "WebhookSecret",
    "given_types",
    "in_first",
    "parse_timestamp",
    "timestamp_text",
    "whole_number",
]

EventType = Literal[
    "org.nearcast.match",
    "org.nearcast.unmatch",
    "org.nearcast.subscription-started",
    "org.nearcast.subscription-updated",
    "org.nearcast.subscription-ended",
]
MAX_RADIUS_M = 20_037_509
"""Half of the way around the earth."""

EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)
"""The types of events that a subscription can ask for."""

_PRINTABLE = (
    "[^{}\\u0000-\\u001f\\u007f-\\u00a0\\u00ad\\u1680\\u2000-\\u200f\\u2028-\\u202f"
    "\\u205f-\\u206f\\u3000\\ue000-\\uf8ff\\ufeff]+"
)
"""Printable text, as far as the regular expressions of JSON Schema can say it."""

_PATHS = frozenset({"cells"})
"""What stands where the id of a subscription does: ``/v1/subscriptions/cells``."""

_RFC3339 = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)


def parse_timestamp(text: str) -> datetime:
    """Return the time that RFC 3339 text means, in UTC.

    Raises
    ------
    ValueError
        If the text is something else, or has no time zone.

    Examples
    --------
    >>> parse_timestamp("2026-11-17T19:00:00+01:00")
    datetime.datetime(2026, 11, 17, 18, 0, tzinfo=datetime.timezone.utc)
    """
    problem = "must be a time with a time zone, such as 2026-11-17T18:00:00Z (RFC 3339)"
    if not _RFC3339.fullmatch(text):
        raise ValueError(problem)
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(problem) from None


def timestamp_text(us: int) -> str:
    """Return microseconds since 1970 as RFC 3339 text.

    Examples
    --------
    >>> timestamp_text(1_500_000)
    '1970-01-01T00:00:01.500000Z'
    """
    whole, micros = divmod(us, 1_000_000)
    time = datetime.fromtimestamp(whole, UTC).replace(microsecond=micros, tzinfo=None)
    return time.isoformat(timespec="microseconds" if micros else "seconds") + "Z"


def _timestamp(text: str) -> str:
    try:
        parse_timestamp(text)
    except ValueError as error:
        raise PydanticCustomError("timestamp", str(error)) from None
    return text


def _name(text: str) -> str:
    if not text.isprintable():
        raise PydanticCustomError("name", "must not have control characters")
    return text


def _id(text: str) -> str:
    if "/" in text or text in (".", ".."):
        raise PydanticCustomError("id", "must not have a slash, and must not be a dot or two")
    if text in _PATHS:
        raise PydanticCustomError("id", "must not be the name of a path of the API")
    return _name(text)


def _distinct(values: list[EventType]) -> list[EventType]:
    if len(set(values)) < len(values):
        raise PydanticCustomError("distinct", "must not have the same type twice")
    return values


def whole_number(value: object) -> object:
    """Return a number without a fraction as an integer: to JSON Schema, 5.0 is one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_TIME_PATTERN = (
    "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt ]([01][0-9]|2[0-3])(:[0-5][0-9]){2}"
    "([.][0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
Timestamp = Annotated[
    str,
    AfterValidator(_timestamp),
    Field(
        json_schema_extra={"format": "date-time", "pattern": f"^{_TIME_PATTERN}$"},
        max_length=64,
        examples=["2027-01-01T00:00:00Z"],
    ),
]
"""RFC 3339 text with a time zone."""

GivenTime = Annotated[
    str,
    AfterValidator(_timestamp),
    Field(
        json_schema_extra={"pattern": f"^{_TIME_PATTERN}$"},
        max_length=64,
        examples=["2027-01-01T00:00:00Z"],
    ),
]
"""The same from clients, who may also write a space for the T, which `date-time` does not allow."""

NAME_PATTERN = f"^{_PRINTABLE.format('')}$"
ID_PATTERN = f"^(?![.]{{1,2}}$|({'|'.join(_PATHS)})$){_PRINTABLE.format('/')}$"

Name = Annotated[
    str,
    AfterValidator(_name),
    Field(min_length=1, max_length=256, json_schema_extra={"pattern": NAME_PATTERN}),
]
"""A printable name of up to 256 characters."""

SubscriptionId = Annotated[
    str,
    AfterValidator(_id),
    Field(min_length=1, max_length=256, json_schema_extra={"pattern": ID_PATTERN}),
]
"""A name that can be part of a path."""

Longitude = Annotated[float, Field(ge=-180, le=180, examples=[13.4])]
Latitude = Annotated[float, Field(ge=-90, le=90, examples=[52.5])]
Share = Annotated[float, Field(ge=0, le=1)]
Position = Annotated[
    list[float],
    Field(
        min_length=2,
        max_length=3,
        description="Longitude, latitude; a height is ignored.",
        json_schema_extra={
            "prefixItems": [
                {"type": "number", "minimum": -180, "maximum": 180},
                {"type": "number", "minimum": -90, "maximum": 90},
            ]
        },
    ),
]
Ring = Annotated[list[Position], Field(min_length=3)]


class Resource(BaseModel):
    """The base of all resources: exact types, no unknown properties, only finite numbers."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Center(Resource):
    """The center of a circle."""

    latitude: Latitude
    longitude: Longitude


class Circle(Resource):
    """All places within a distance of a center."""

    areaType: Literal["CIRCLE"]
    center: Center
    radius: float = Field(ge=0, le=MAX_RADIUS_M, description="Meters.", examples=[500])


class Box(Resource):
    """A rectangle along the axes; one whose west is greater than its east crosses 180 degrees."""

    areaType: Literal["BOX"]
    west: Longitude
    south: Latitude
    east: Longitude
    north: Latitude


class Point(Resource):
    """A GeoJSON point."""

    type: Literal["Point"]
    coordinates: Position
    bbox: list[float] | None = Field(default=None, max_length=6)


class Polygon(Resource):
    """A GeoJSON polygon: its outer ring, then its holes."""

    type: Literal["Polygon"]
    coordinates: list[Ring] = Field(min_length=1)
    bbox: list[float] | None = Field(default=None, max_length=6)


class MultiPolygon(Resource):
    """Several GeoJSON polygons as one region."""

    type: Literal["MultiPolygon"]
    coordinates: list[Annotated[list[Ring], Field(min_length=1)]] = Field(min_length=1)
    bbox: list[float] | None = Field(default=None, max_length=6)


def _kind_of_region(value: Any) -> str | None:
    """Return the tag of a region: its ``type`` or ``areaType``."""
    if isinstance(value, dict):
        kind = value.get("type", value.get("areaType"))
    else:
        kind = getattr(value, "type", getattr(value, "areaType", None))
    return f"as:{kind}" if isinstance(kind, str) else None


_REGION_PROBLEM: dict[str, Any] = {
    "custom_error_type": "region",
    "custom_error_message": (
        "must be an object with type Polygon, MultiPolygon, Point or Feature (GeoJSON), "
        "or with areaType CIRCLE or BOX"
    ),
}
Geometry = Annotated[
    Annotated[Point, Tag("as:Point")]
    | Annotated[Polygon, Tag("as:Polygon")]
    | Annotated[MultiPolygon, Tag("as:MultiPolygon")],
    Discriminator(
        _kind_of_region,
        custom_error_type="region",
        custom_error_message="must be a GeoJSON Polygon, MultiPolygon or Point",
    ),
]


class Feature(Resource):
    """A GeoJSON Feature; only its geometry is used and kept."""

    type: Literal["Feature"]
    geometry: Geometry
    properties: dict[str, JsonValue] | None = None
    id: str | int | float | None = None
    bbox: list[float] | None = Field(default=None, max_length=6)


Region = Annotated[
    Annotated[Point, Tag("as:Point")]
    | Annotated[Polygon, Tag("as:Polygon")]
    | Annotated[MultiPolygon, Tag("as:MultiPolygon")]
    | Annotated[Feature, Tag("as:Feature")]
    | Annotated[Circle, Tag("as:CIRCLE")]
    | Annotated[Box, Tag("as:BOX")],
    Discriminator(_kind_of_region, **_REGION_PROBLEM),
]
"""The region of a subscription."""


class ProximityRanking(Resource):
    """Matches by words and distance: score = delta x words + (1 - delta) x nearness."""

    delta: Share = Field(description="How much words matter.", examples=[0.3])
    tau: Share = Field(description="The least score of a match.", examples=[0.6])
    maxDistanceM: float = Field(
        ge=0.01, le=42_949_672.95, description="Where nearness becomes 0.", examples=[2000]
    )


class OverlapRanking(Resource):
    """Matches by words and covered area: score = alpha x area + (1 - alpha) x words."""

    alpha: Share = Field(description="How much place matters.", examples=[0.4])
    theta: Share = Field(description="The least score of a match.", examples=[0.5])


def _kind_of_ranking(value: Any) -> str | None:
    if isinstance(value, ProximityRanking):
        return "as:proximity"
    if isinstance(value, OverlapRanking):
        return "as:overlap"
    if not isinstance(value, dict):
        return None
    overlap = "alpha" in value or "theta" in value
    return "as:overlap" if overlap else "as:proximity"


Ranking = Annotated[
    Annotated[ProximityRanking, Tag("as:proximity")] | Annotated[OverlapRanking, Tag("as:overlap")],
    Discriminator(
        _kind_of_ranking,
        custom_error_type="ranking",
        custom_error_message="must be an object with delta, tau, maxDistanceM or alpha, theta",
    ),
]


def in_first(**more: Any) -> Callable[[dict[str, Any]], None]:
    """Return what adds to the schema of a property that may also be null."""

    def add(schema: dict[str, Any]) -> None:
        schema["anyOf"][0].update(more)

    return add


def given_types(**names: str) -> dict[str, Any]:
    """Return the schema of an object with properties of some types; those of null may be left out.

    Examples
    --------
    >>> given_types(expression="null")
    {'required': [], 'properties': {'expression': {'type': 'null'}}}
    """
    return {
        "required": [name for name, kind in names.items() if kind != "null"],
        "properties": {name: {"type": kind} for name, kind in names.items()},
    }


_WORDS: dict[str, Any] = {  # both only where one is ranked
    "anyOf": [
        given_types(expression="null"),
        given_types(keywords="null"),
        given_types(ranking="object"),
    ]
}
_BY_DISTANCE = {"required": ["delta"]}
_PLACES: dict[str, Any] = {  # ranked by distance: a point; by area: any; not ranked: no point
    "anyOf": [
        {
            "required": ["ranking"],
            "properties": {
                "region": {
                    "properties": {"type": {"enum": ["Point", "Feature"]}},
                    "required": ["type"],
                },
                "ranking": {"type": "object", **_BY_DISTANCE},
            },
        },
        {
            "required": ["ranking"],
            "properties": {"ranking": {"type": "object", "not": _BY_DISTANCE}},
        },
        {
            "properties": {
                "region": {
                    "not": {"properties": {"type": {"const": "Point"}}, "required": ["type"]}
                },
                "ranking": {"type": "null"},
            }
        },
    ]
}


class Detail(Resource):
    """What a subscription asks for: words at a place."""

    model_config = ConfigDict(json_schema_extra={"allOf": [_WORDS, _PLACES]})

    subscriber: Name = Field(
        default="default",
        description="Who receives the events: one stream and one cursor for each name.",
    )
    keywords: list[str] | None = Field(
        default=None,
        min_length=1,
        description="All of these must occur; `flood*` is a word that begins so. At most 1,000.",
        json_schema_extra=in_first(maxItems=1_000, items={"type": "string", "minLength": 1}),
        examples=[["coffee", "flat white"]],
    )
    expression: str | None = Field(
        default=None,
        min_length=1,
        description="Instead of keywords; with a ranking, also a condition beside them.",
        examples=["coffee AND (latte OR mocha) NOT decaf"],
    )
    region: Region = Field(
        description="A GeoJSON geometry or Feature, or an area of CAMARA: CIRCLE, or BOX.",
        examples=[
            {
                "areaType": "CIRCLE",
                "center": {"latitude": 52.5, "longitude": 13.4},
                "radius": 500,
            }
        ],
    )
    ranking: Ranking | None = Field(
        default=None, description="Scores matches; by distance (needs a Point) or by covered area."
    )
    dwellS: float = Field(
        default=0,
        ge=0,
        le=86_400,
        description="How many seconds a moving subscription must stay near before it matches.",
    )


class Config(Resource):
    """What a subscription asks for, and when it ends."""

    subscriptionDetail: Detail
    subscriptionExpireTime: GivenTime | None = Field(default=None, description="When it ends.")
    subscriptionMaxEvents: int | None = Field(
        default=None, ge=1, le=1_000_000, description="It ends after this many events."
    )
    initialEvent: bool = Field(
        default=False, description="Whether messages that are alive now are delivered at once."
    )

    _whole = field_validator("subscriptionMaxEvents", mode="before")(whole_number)


class AccessToken(Resource):
    """A token that webhooks carry as ``Authorization: Bearer``."""

    credentialType: Literal["ACCESSTOKEN"]
    accessToken: str = Field(
        min_length=1,
        max_length=4096,
        examples=["eyJhbGciOi..."],
        json_schema_extra={"pattern": "^[!-~]+$"},
    )
    accessTokenExpiresUtc: GivenTime
    accessTokenType: Literal["bearer"] = "bearer"


_B64 = "[A-Za-z0-9+/]"
_SECRET_PATTERN = (
    f"^whsec_(({_B64}{{4}}){{8,20}}({_B64}{{2}}==|{_B64}{{3}}=|{_B64}{{4}})?"
    f"|({_B64}{{4}}){{21}}{_B64}{{2}}==)$"
)


class WebhookSecret(Resource):
    """The secret that signs webhooks (Standard Webhooks)."""

    credentialType: Literal["WEBHOOKSECRET"]
    secret: str = Field(
        max_length=128,
        examples=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        description="`whsec_` and the base64 of 24 to 64 random bytes.",
        json_schema_extra={"pattern": _SECRET_PATTERN},
    )


def _kind_of_credential(value: Any) -> str | None:
    if isinstance(value, dict):
        given = value.get("credentialType")
    else:
        given = getattr(value, "credentialType", None)
    return f"as:{given}" if isinstance(given, str) else None


Credential = Annotated[
    Annotated[AccessToken, Tag("as:ACCESSTOKEN")]
    | Annotated[WebhookSecret, Tag("as:WEBHOOKSECRET")],
    Discriminator(
        _kind_of_credential,
        custom_error_type="credential",
        custom_error_message="must have credentialType ACCESSTOKEN or WEBHOOKSECRET",
    ),
]

_EXAMPLE: dict[str, Any] = {
    "protocol": "HTTP",
    "sink": "https://example.com/hook",
    "types": ["org.nearcast.match"],
    "config": {
        "subscriptionDetail": {
            "subscriber": "ann",
            "keywords": ["coffee"],
            "region": {
                "areaType": "CIRCLE",
                "center": {"latitude": 52.5, "longitude": 13.4},
                "radius": 500,
            },
        },
        "subscriptionMaxEvents": 100,
    },
}


# An address without user, fragment, spaces and backslashes; http is for allowed networks.
_SINK_PATTERN = '^[Hh][Tt][Tt][Pp][Ss]?://(?![^/?]*@)[!"$-.0->A-\\[\\]-~][!"$-\\[\\]-~]*$'


class _Envelope(Resource):
    """The properties that requests and answers have in common."""

    protocol: Literal["HTTP"] = "HTTP"
    sink: str | None = Field(
        default=None,
        min_length=1,
        max_length=2048,
        description="An https address that receives the events as webhooks.",
        json_schema_extra=in_first(pattern=_SINK_PATTERN),
        examples=["https://example.com/hook"],
    )
    types: Annotated[list[EventType], AfterValidator(_distinct)] | None = Field(
        default=None,
        min_length=1,
        description="The types of events to deliver; all if left out.",
        json_schema_extra=in_first(uniqueItems=True),
    )
    config: Config


class SubscriptionRequest(_Envelope):
    """A subscription as a client creates or replaces it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [_EXAMPLE],
            "anyOf": [given_types(sinkCredential="null"), given_types(sink="string")],
        }
    )

    id: SubscriptionId | None = Field(
        default=None, description="The server makes one if it is left out."
    )
    sinkCredential: Credential | None = Field(
        default=None,
        description="Never part of an answer.",
        json_schema_extra={"writeOnly": True},
    )
    status: Literal["ACTIVE", "INACTIVE"] = Field(
        default="ACTIVE", description="An inactive subscription is kept, and matches nothing."
    )


class Subscription(_Envelope):
    """A subscription as the server answers with it."""

    id: Name
    startsAt: Timestamp
    expiresAt: Timestamp | None = None
    status: Literal["ACTIVE", "INACTIVE", "EXPIRED", "DELETED"]
    version: int = Field(ge=1, description="Raised by every change; also the ETag.")
    sinkCredential: WebhookSecret | None = Field(
        default=None, description="Only in the answer for which the server made the secret."
    )
    warnings: list[str] | None = Field(
        default=None,
        description="Only in answers to changes: what is valid and probably not meant, such as a "
        "lower-case `or`.",
    )


class SubscriptionPage(Resource):
    """A page of a list of subscriptions."""

    subscriptions: list[Subscription]
    next: str | None = Field(
        default=None, description="The cursor of the next page; none at the end."
    )
