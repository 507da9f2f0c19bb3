"""Who may be connected: how many in all, strangers of one address, and callers of one tenant.

A connection is a stranger's until a valid key or token was seen on it. What a stranger can make the
server keep is small for each connection, so it is enough to limit their number for each address.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Scope

__all__ = ["VISITOR", "ConnectionLimits", "Door", "Visitor", "source_of", "visitor_of"]

VISITOR = "nearcast.visitor"
"""Where the state of a request has its `Visitor`."""

_MAX_HOST = 64  # a proxy may pass on anything
_FILES_KEPT = 128
"""Open files that connections leave to the log, the database and webhooks."""

_REFUSED = 64
"""How many clients for whom there is no place may stay a moment, to read that."""

_TENANT_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What connections may cost.

    Parameters
    ----------
    connections
        How many there may be; never more than the limit of open files allows. One tenant gets at
        most nine tenths of them.
    strangers_per_address
        How many connections of one address may be open on which no valid key was seen yet. For
        IPv6, an address is a network of 64 bits.
    header_bytes, headers
        The size of a request line with all headers, and how many headers there may be.
    header_s
        How long it may take until a request line and all headers are there.
    body_s, body_bytes_per_s
        How long a body may take, and how many bytes give it a second more.
    write_s
        How long an answer may wait for a client to take ``body_bytes_per_s`` of it.
    idle_s, stranger_idle_s
        How long a connection may stay open between two requests, with and without a valid key.
    linger_s
        How long a refused client may read the reason before the connection is closed.
    """

    connections: int = 20_000
    strangers_per_address: int = 2_000
    header_bytes: int = 64 << 10
    headers: int = 100
    header_s: float = 10.0
    body_s: float = 20.0
    body_bytes_per_s: float = 1_000.0
    write_s: float = 30.0
    idle_s: float = 75.0
    stranger_idle_s: float = 15.0
    linger_s: float = 1.0


class Door:
    """Counts who is connected.

    Parameters
    ----------
    limits
        How many may be.

    Examples
    --------
    >>> door = Door(ConnectionLimits(connections=100, strangers_per_address=1))
    >>> first = door.enter("192.0.2.1")
    >>> door.enter("192.0.2.1") is None, door.enter("192.0.2.2") is None
    (True, False)
    >>> first.recognize(0), door.enter("192.0.2.1") is None
    (True, False)
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.most = min(limits.connections, _files_allowed())
        self.open = 0
        self._refused = 0
        self._strangers: Counter[str] = Counter()
        self._callers: Counter[int] = Counter()

    def enter(self, host: str) -> Visitor | None:
        """Let somebody in who has connected; None if there are too many."""
        source = source_of(host)
        if self.open >= self.most or (self._strangers[source] >= self.limits.strangers_per_address):
            return None
        self.open += 1
        self._strangers[source] += 1
        return Visitor(self, source)

    def stays_refused(self) -> bool:
        """Return whether a refused client may stay until it has read why: not if many do."""
        self._refused += 1
        return self._refused <= _REFUSED

    def left_refused(self) -> None:
        """Note that the connection of a refused client is gone."""
        self._refused -= 1

    def _may_recognize(self, tenant: int) -> bool:
        return self._callers[tenant] < self.most * _TENANT_SHARE

    def _recognized(self, source: str, tenant: int) -> None:
        self._callers[tenant] += 1
        _take(self._strangers, source)

    def _left(self, source: str, tenant: int | None) -> None:
        self.open -= 1
        if tenant is None:
            _take(self._strangers, source)
        else:
            _take(self._callers, tenant)


class Visitor:
    """Who is at the other end of a connection: a stranger at first."""

    __slots__ = ("_door", "_source", "tenant")

    def __init__(self, door: Door, source: str) -> None:
        self._door, self._source = door, source
        self.tenant: int | None = None
        """Whose first valid key or token came over the connection; None for a stranger."""

    def recognize(self, tenant: int) -> bool:
        """Note that a valid key or token came; return False if its tenant has too many already."""
        if self.tenant is None:
            if not self._door._may_recognize(tenant):
                return False
            self._door._recognized(self._source, tenant)
            self.tenant = tenant
        return True

    def leave(self) -> None:
        """Note that the connection is gone; to be called once."""
        self._door._left(self._source, self.tenant)


def visitor_of(scope: Scope) -> Visitor | None:
    """Return who is at the other end of a request; None if another server runs the application."""
    found: Visitor | None = scope.get("state", {}).get(VISITOR)
    return found


def source_of(host: str) -> str:
    """Return what is one address for limits: of IPv6 a whole network, which one customer gets.

    Examples
    --------
    >>> source_of("192.0.2.7"), source_of("2001:db8::1:2"), source_of("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8::/64', '192.0.2.7')
    """
    if ":" not in host:
        return host[:_MAX_HOST]
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host[:_MAX_HOST]
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))


def _take(counter: Counter[str] | Counter[int], key: str | int) -> None:
    """Count one less, and forget who has none."""
    counts: Counter[str | int] = counter  # type: ignore[assignment]
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]


def _files_allowed() -> int:
    """Return how many connections the limit of open files allows."""
    with suppress(ImportError):  # there is no such limit on Windows
        import resource

        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if allowed != resource.RLIM_INFINITY:
            return max(allowed - _FILES_KEPT, allowed // 2)
    return 1 << 30
