"""From what a client wrote to what the log stores, and back to what clients read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nearcast.server.delivery.rendering import TYPE_PREFIX, rfc3339
from nearcast.server.http.definitions import region_resource
from nearcast.server.log.records import Definition, SinkDefinition
from nearcast.server.matching.tables import place_region

if TYPE_CHECKING:
    from nearcast.server.state import Definition as Row

__all__ = [
    "as_given",
    "definition_in",
    "given_now",
    "resource_of",
    "stored_definition",
]

_decode = msgspec.msgpack.Decoder(Definition).decode
_decode_place = msgspec.msgpack.Decoder(dict[str, Any]).decode


def stored_definition(given: dict[str, Any]) -> Definition:
    """Return the definition for the log, of one that `definition_of` made."""
    sink = given["sink"]
    return Definition(
        subscriber=given["subscriber"],
        row=given["row"],
        box=tuple(given["box"]),
        kind=given["kind"],
        given=given["given"],
        sink=None
        if sink is None
        else SinkDefinition(sink["url"], (sink["secret"],), sink.get("headers") or {}),
        types=None
        if given["types"] is None
        else tuple(name.removeprefix(TYPE_PREFIX) for name in given["types"]),
        expires_us=given["expires_us"],
        max_events=given["max_events"] or 0,
        initial=bool(given["initial"]),
        dwell_us=given["dwell_us"],
        active=given["active"],
    )


def as_given(definition: Definition) -> dict[str, Any]:
    """Return a stored definition in the form of `definition_of`."""
    sink = definition.sink
    return {
        "sink": None
        if sink is None
        else {"url": sink.url, "secret": sink.secrets[0], "headers": sink.headers},
        "given": definition.given,
    }


def definition_in(row: Row) -> Definition:
    """Return the definition in a row of the state."""
    return _decode(row.definition)


def given_now(row: Row) -> dict[str, Any]:
    """Return the resource as it was given, at the place where the subscription is now."""
    given = definition_in(row).given
    if row.place is not None:
        region = region_resource(place_region(_decode_place(row.place)))
        given["config"]["subscriptionDetail"]["region"] = region
    return given


def resource_of(row: Row) -> dict[str, Any]:
    """Return a row of the state as clients read it."""
    resource = {"protocol": "HTTP", **given_now(row)}
    resource |= {"id": row.external_id, "startsAt": rfc3339(row.created_us)}
    if row.expires_us is not None:
        resource["expiresAt"] = rfc3339(row.expires_us)
    return resource | {"status": row.status, "version": row.version}
