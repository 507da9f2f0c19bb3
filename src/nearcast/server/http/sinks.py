"""The sink of a subscription: whether its address and its credential can be used."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from nearcast.errors import InvalidInput
from nearcast.model.checks import time_us
from nearcast.server.delivery.addresses import check_sink_url
from nearcast.server.http.models import AccessToken, parse_timestamp
from nearcast.server.http.problems import FieldError, Problem

if TYPE_CHECKING:
    from nearcast.server.delivery.addresses import SinkNetworks
    from nearcast.server.http.models import SubscriptionRequest, WebhookSecret

__all__ = ["sink_of"]

_MIN_SECRET_BYTES, _MAX_SECRET_BYTES = 24, 64


def sink_of(
    resource: SubscriptionRequest,
    *,
    now_us: int,
    networks: SinkNetworks,
    before: dict[str, Any] | None = None,
) -> dict[str, Any] | None:
    """Return the sink of a definition: its address, its secret and the headers of its requests.

    Parameters
    ----------
    resource
        What the client wrote.
    now_us
        The time, which the end of an access token must be after.
    networks
        The networks in which the address may be although they are private.
    before
        The sink that this one replaces. Its secret is kept if the resource has no other, and its
        headers if the resource has no credential and the same address.

    Raises
    ------
    Problem
        If the address or the credential cannot be used.
    """
    credential = resource.sinkCredential
    if resource.sink is None:
        if credential is not None:
            raise _refused("sinkCredential", "needs a sink", "INVALID_CREDENTIAL")
        return None
    if not resource.sink.isascii() or "#" in resource.sink:
        raise _refused("sink", "must be ASCII without a fragment; encode other characters")
    try:
        check_sink_url(resource.sink, networks)
    except InvalidInput as error:
        raise _refused("sink", error.problem) from None
    before = before or {}
    sink: dict[str, Any] = {"url": resource.sink, "secret": before.get("secret")}
    if credential is None:
        if before.get("headers") and before.get("url") == resource.sink:
            sink["headers"] = before["headers"]
    elif isinstance(credential, AccessToken):
        sink["headers"] = {"authorization": f"Bearer {_token(credential, now_us)}"}
    else:
        sink["secret"] = _secret(credential)
    return sink


def _token(credential: AccessToken, now_us: int) -> str:
    token = credential.accessToken
    if not token.isascii() or not token.isprintable() or " " in token:
        problem = "must be ASCII without spaces"
        raise _refused("sinkCredential.accessToken", problem, "INVALID_CREDENTIAL")
    expires = parse_timestamp(credential.accessTokenExpiresUtc)
    if time_us("accessTokenExpiresUtc", expires) <= now_us:
        field = "sinkCredential.accessTokenExpiresUtc"
        raise _refused(field, "must be in the future", "INVALID_CREDENTIAL")
    return token


def _secret(credential: WebhookSecret) -> str:
    encoded = credential.secret.removeprefix("whsec_")
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if encoded == credential.secret or not _MIN_SECRET_BYTES <= len(raw) <= _MAX_SECRET_BYTES:
        problem = (
            f"must be whsec_ and the base64 of {_MIN_SECRET_BYTES} to {_MAX_SECRET_BYTES} "
            "random bytes"
        )
        raise _refused("sinkCredential.secret", problem, "INVALID_CREDENTIAL")
    return credential.secret


def _refused(field: str, problem: str, code: str = "INVALID_SINK") -> Problem:
    return Problem.of_fields([FieldError(field, problem)], code)
