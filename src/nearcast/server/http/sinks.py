"""The sink of a subscription: whether its address and its credential can be used."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nearcast.model.checks import time_us
from nearcast.server.http.models import AccessToken, parse_timestamp
from nearcast.server.http.problems import FieldError, Problem

if TYPE_CHECKING:
    from nearcast.server.http.models import SubscriptionRequest, WebhookSecret

__all__ = ["sink_of"]

_MIN_SECRET_BYTES, _MAX_SECRET_BYTES = 24, 64


def sink_of(
    resource: SubscriptionRequest,
    *,
    now_us: int,
    http: bool = False,
    before: dict[str, Any] | None = None,
) -> dict[str, Any] | None:
    """Return the sink of a definition: its address, its secret and the headers of its requests.

    Parameters
    ----------
    resource
        What the client wrote.
    now_us
        The time, which the end of an access token must be after.
    http
        Whether http addresses are allowed: only for tests on the same machine.
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
    _check_address(resource.sink, http)
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


def _check_address(url: str, http: bool) -> None:
    """Check an address as far as its text goes; where it leads is checked on delivery."""
    schemes = ("https", "http") if http else ("https",)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _refused("sink", "is not a valid address") from None
    if not url.isascii() or not url.isprintable() or " " in url:
        raise _refused("sink", "must be ASCII without spaces; encode other characters")
    if parts.scheme not in schemes or not host:
        raise _refused("sink", f"must begin with {schemes[0]}:// and a host")
    if port == 0:
        raise _refused("sink", "must not have port 0")
    if parts.username is not None or parts.password is not None:
        raise _refused("sink", "must not have a user or password; use sinkCredential")
    if parts.fragment:
        raise _refused("sink", "must not have a fragment")


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
