"""Who sends a request: keys and tokens, and what they may do.

A request has ``Authorization: Bearer <key or token>``. Only ``GET /v1/events`` also takes
``?access_token=``, because browsers' EventSource cannot set headers: a token, which expires, and
never a key, because addresses end up in histories and logs.

Whatever is wrong with a key, the answer is the same.
"""

from __future__ import annotations

import hashlib
import re
import time
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs

from nearcast.server.http.problems import Problem
from nearcast.server.state.keys import parse_key, verify_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Scope

__all__ = [
    "EVENTS_PATH",
    "Authenticator",
    "Principal",
    "principal_of",
    "remember",
    "unauthenticated",
]

EVENTS_PATH = "/v1/events"
"""The only path that takes a token in its query."""

_BEARER = re.compile(rb"bearer +([\x21-\x7e]+)", re.IGNORECASE)
_TOKEN = "nct_"
_PRINCIPAL = "nearcast.principal"
_MAX_CACHED = 4_096
_CACHED_S = 5.0


class Principal(NamedTuple):
    """Who sends a request.

    ``key_id`` is empty for a token; ``subscriber`` is None if all subscribers of the tenant may be
    used; ``expires_s`` is when a token ends, in seconds since 1970.
    """

    tenant: int
    key_id: str
    roles: frozenset[str]
    subscriber: str | None = None
    expires_s: int | None = None

    def require(self, *roles: str) -> None:
        """Raise a problem of status 403 if there is none of the roles."""
        if self.roles.isdisjoint(roles):
            needed, own = " or ".join(roles), ", ".join(sorted(self.roles))
            detail = f"this needs the role {needed}; the key has {own}"
            raise Problem(403, "PERMISSION_DENIED", detail)

    def require_subscriber(self, name: str | None) -> None:
        """Raise a problem of status 403 if a subscriber, or None for all, may not be used."""
        if self.subscriber is not None and self.subscriber != name:
            detail = f"this key or token is only for the subscriber {self.subscriber!r}"
            raise Problem(403, "PERMISSION_DENIED", detail)


class Authenticator:
    """Finds out who sends a request.

    Parameters
    ----------
    authenticate
        Returns who has a key, given its id and the SHA-256 of its secret; None if there is no such
        key or it was revoked. It compares hashes with `nearcast.server.state.keys.same_hash`.
    token_secret
        What the tokens of this server are signed with.
    clock, monotonic
        Seconds since 1970, and seconds of a clock that never jumps.
    """

    def __init__(
        self,
        authenticate: Callable[[str, bytes], Principal | None],
        token_secret: bytes,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._authenticate = authenticate
        self._token_secret = token_secret
        self._clock = clock
        self._monotonic = monotonic
        self._cached: dict[bytes, tuple[Principal, float]] = {}

    def principal(self, scope: Scope) -> Principal:
        """Return who sends a request, and remember the tenant for the log of requests.

        Raises
        ------
        Problem
            Of status 401, always the same, if there is no valid key or token.
        """
        found = self._of_request(scope)
        if found is None:
            raise unauthenticated("give a valid key or token as Authorization: Bearer ...")
        scope.setdefault("state", {})["tenant"] = found.tenant
        return found

    def allows(self, scope: Scope) -> bool:
        """Return whether whoever sent a request would still be known."""
        return self._of_request(scope) is not None

    def forget(self) -> None:
        """Forget all keys that were valid a moment ago; to be called when one is revoked."""
        self._cached.clear()

    def _of_request(self, scope: Scope) -> Principal | None:
        credential = _credential(scope)
        return None if credential is None else self._find(credential)

    def _find(self, credential: str) -> Principal | None:
        if credential.startswith(_TOKEN):
            return self._of_token(credential)
        digest = hashlib.sha256(credential.encode()).digest()
        now = self._monotonic()
        principal, until = self._cached.get(digest, (None, 0.0))
        if principal is not None and now < until:
            return principal
        parts = parse_key(credential)
        principal = None if parts is None else self._authenticate(parts.id, parts.hash)
        if principal is None:
            self._cached.pop(digest, None)
            return None
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        self._cached[digest] = (principal, now + _CACHED_S)
        return principal

    def _of_token(self, token: str) -> Principal | None:
        claims = verify_token(token, self._token_secret, now_s=self._clock())
        if claims is None:
            return None
        roles = frozenset(claims.roles)
        return Principal(claims.tenant, "", roles, claims.subscriber, claims.expires_s)


def remember(scope: Scope, principal: Principal) -> None:
    """Note who sends a request, for the route."""
    scope["state"][_PRINCIPAL] = principal


def principal_of(scope: Scope) -> Principal:
    """Return who sends a request that was let in."""
    found: Principal = scope["state"][_PRINCIPAL]
    return found


def unauthenticated(detail: str) -> Problem:
    """Return the problem of status 401 that says what is missing."""
    headers = {"WWW-Authenticate": 'Bearer realm="nearcast"'}
    return Problem(401, "UNAUTHENTICATED", detail, headers=headers)


def _credential(scope: Scope) -> str | None:
    """Return the key or token of a request; None if there is none, or more than one."""
    headers = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(headers) > 1:
        return None
    if headers:
        match = _BEARER.fullmatch(headers[0])
        return None if match is None else match[1].decode()
    is_get = scope["type"] == "websocket" or scope["method"] == "GET"
    if not is_get or scope["path"] != EVENTS_PATH:
        return None
    given = parse_qs(scope["query_string"].decode("latin-1")).get("access_token", [])
    return given[0] if len(given) == 1 and given[0].startswith(_TOKEN) else None
