"""The resources around subscriptions: subscribers, tenants, keys, limits, tokens and sinks."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from nearcast.server.http.models import Name, Resource, Timestamp, given_types, whole_number

__all__ = [
    "Cap",
    "Cursor",
    "CursorRequest",
    "DeadEvent",
    "DeadEvents",
    "DeliverySettings",
    "Digest",
    "Key",
    "KeyList",
    "KeyRequest",
    "Limits",
    "NewKey",
    "QuietHours",
    "ReplayRequest",
    "Role",
    "Sink",
    "SinkAttempt",
    "SinkAttempts",
    "SinkList",
    "Subscriber",
    "Tenant",
    "TenantList",
    "TenantRequest",
    "Token",
    "TokenRequest",
]

Role = Literal["publish", "subscribe", "admin"]
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")


def _clock_time(text: str) -> str:
    if not _CLOCK.fullmatch(text):
        raise PydanticCustomError("clock_time", "must be a time of day such as 22:00")
    return text


CURSOR_PATTERN = "^(now|earliest|[-+]?[0-9][0-9TtWZz:.,eE+ -]*)$"
"""An id, ``now``, ``earliest``, or a time in one of the forms of ISO 8601 or in seconds."""

ClockTime = Annotated[
    str,
    AfterValidator(_clock_time),
    Field(examples=["22:00", "07:00"], json_schema_extra={"pattern": f"^{_CLOCK.pattern}$"}),
]


def _time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        problem = "must be a time zone of the IANA database, such as Europe/Berlin"
        raise PydanticCustomError("time_zone", problem) from None
    return name


def _distinct_roles(roles: list[Role]) -> list[Role]:
    return sorted(set(roles))


Roles = Annotated[
    list[Role], AfterValidator(_distinct_roles), Field(min_length=1, examples=[["subscribe"]])
]


class Cap(Resource):
    """At most this many events in any period; later ones wait."""

    events: int = Field(ge=1, le=1_000, examples=[10])
    periodS: float = Field(ge=1, le=86_400 * 31, examples=[3600])

    _whole = field_validator("events", mode="before")(whole_number)


class Digest(Resource):
    """Events are collected and delivered together."""

    everyS: float = Field(ge=1, le=86_400 * 31, examples=[900])


class QuietHours(Resource):
    """Between these times of day nothing is delivered; events wait. They may cross midnight."""

    from_: ClockTime = Field(alias="from", description="The first quiet minute.")
    to: ClockTime = Field(description="The first minute that is not quiet.")
    timeZone: Annotated[str, AfterValidator(_time_zone)] = Field(
        default="UTC",
        max_length=64,
        examples=["Europe/Berlin"],
        json_schema_extra={"pattern": "^[A-Za-z0-9+_-]+(/[A-Za-z0-9+_-]+){0,2}$"},
    )


class DeliverySettings(Resource):
    """When a subscriber wants events. Nothing is dropped: what may not be sent yet, waits."""

    cap: Cap | None = None
    digest: Digest | None = None
    quietHours: QuietHours | None = None


class Subscriber(Resource):
    """A subscriber: when it wants events, and how many it has."""

    name: Name
    delivery: DeliverySettings
    recorded: int = Field(ge=0, description="Events that are kept.")
    pending: int = Field(ge=0, description="Events after the cursor of the request.")
    lost: int | None = Field(description="Events after the cursor that are no longer kept.")


class Limits(Resource):
    """The limits of a tenant; what is left out has the server's default."""

    requestsPerS: float | None = Field(default=None, gt=0, le=1_000_000)
    messagesPerS: float | None = Field(default=None, gt=0, le=10_000_000)
    burstS: float | None = Field(
        default=None,
        ge=0.1,
        le=3600,
        description="How many seconds of each rate may be used at once.",
    )
    bodyBytes: int | None = Field(default=None, ge=1024, le=1 << 30)
    messagesPerRequest: int | None = Field(default=None, ge=1, le=10_000)
    subscriptions: int | None = Field(default=None, ge=0, le=100_000_000)
    clauses: int | None = Field(default=None, ge=1, le=1000, description="Of one expression.")
    vertices: int | None = Field(default=None, ge=3, le=1_000_000, description="Of one region.")
    expressionLength: int | None = Field(
        default=None, ge=1, le=1 << 20, description="Characters of one expression."
    )
    wordLength: int | None = Field(
        default=None, ge=1, le=1 << 16, description="Characters of one word or keyword."
    )
    keywords: int | None = Field(default=None, ge=1, le=10_000, description="Of one subscription.")
    subscribers: int | None = Field(default=None, ge=1, le=100_000_000)
    cursors: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Kept for one subscriber."
    )

    _whole = field_validator(
        "bodyBytes", "messagesPerRequest", "subscriptions", "clauses", "vertices", mode="before"
    )(whole_number)


class TenantRequest(Resource):
    """A tenant to be made or renamed."""

    name: Name
    limits: Limits | None = None


class Tenant(TenantRequest):
    """A tenant: its subscriptions, messages and keys are invisible to all others."""

    createdAt: Timestamp


class TenantList(Resource):
    """Tenants."""

    tenants: list[Tenant]


class KeyRequest(Resource):
    """A key to be made."""

    # Admin keys manage whole tenants.
    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                given_types(subscriber="null"),
                {"properties": {"roles": {"items": {"enum": ["publish", "subscribe"]}}}},
            ]
        }
    )

    roles: Roles
    name: Name | None = Field(default=None, description="What the key is for.")
    subscriber: Name | None = Field(
        default=None, description="If given, the key only reaches this subscriber's resources."
    )
    tenant: Name | None = Field(default=None, description="Its own tenant if left out.")


class Key(KeyRequest):
    """A key without its secret, which the server does not know."""

    id: str
    createdAt: Timestamp
    revokedAt: Timestamp | None = None


class NewKey(Key):
    """A key, the only time that it is shown."""

    key: str = Field(examples=["nc_4f6k0a9d2mxq_..."])


class KeyList(Resource):
    """Keys without their secrets."""

    keys: list[Key]


class TokenRequest(Resource):
    """A token to be made, for a browser or a phone."""

    subscriber: Name
    roles: list[Literal["subscribe", "publish"]] = Field(default=["subscribe"], min_length=1)
    expiresInS: int = Field(default=900, ge=1, le=86_400)

    _whole = field_validator("expiresInS", mode="before")(whole_number)


class Token(Resource):
    """A token that expires by itself."""

    token: str = Field(examples=["nct_..."])
    expiresAt: Timestamp


class CursorRequest(Resource):
    """Where a subscriber continues."""

    cursor: str = Field(
        min_length=1,
        max_length=128,
        examples=["1795888800-42"],
        json_schema_extra={"pattern": CURSOR_PATTERN},
    )


class Cursor(CursorRequest):
    """A cursor that the server keeps."""

    name: Name
    updatedAt: Timestamp


class Sink(Resource):
    """A webhook sink and its state."""

    id: str
    url: str = Field(max_length=2048)
    subscriber: Name
    status: Literal["ACTIVE", "DISABLED"]
    reason: str | None = Field(default=None, description="Why it is disabled.")
    cursor: str | None = None
    failures: int = Field(ge=0, description="Failed attempts since the last success.")
    pending: int = Field(ge=0, description="Events after its cursor.")
    nextAttemptAt: Timestamp | None = None


class SinkList(Resource):
    """Sinks."""

    sinks: list[Sink]


class SinkAttempt(Resource):
    """An attempt to deliver an event to a sink."""

    eventId: str
    at: Timestamp
    status: int | None = Field(
        default=None, description="The HTTP status; none if there was no answer."
    )
    error: str | None = None
    durationMs: float = Field(ge=0)


class SinkAttempts(Resource):
    """The last attempts of a sink, the newest first."""

    attempts: list[SinkAttempt]


class DeadEvent(Resource):
    """An event that was given up."""

    eventId: str
    at: Timestamp
    reason: str


class DeadEvents(Resource):
    """A page of events that were given up, in their order."""

    dead: list[DeadEvent]
    next: str | None = Field(default=None, description="`after` of the next page.")


class ReplayRequest(Resource):
    """From where on events are sent once more."""

    cursor: str = Field(
        min_length=1,
        max_length=128,
        description="The id of an event, `earliest` or a time; what comes after it is sent.",
        json_schema_extra={"pattern": CURSOR_PATTERN},
        examples=["1795888800-42"],
    )
