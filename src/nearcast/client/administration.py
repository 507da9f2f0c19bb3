"""Calls of administrators: keys, tokens, tenants; the answers are returned as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.client.exchange import (
    Call,
    Document,
    Request,
    document,
    items,
    nothing,
    path,
    post,
    put,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "create_key",
    "create_tenant",
    "create_token",
    "keys",
    "limits",
    "revoke_key",
    "set_limits",
    "tenants",
]


def create_token(
    subscriber: str, *, roles: Sequence[str] = ("subscribe",), expires_in_s: int = 900
) -> Call[str]:
    """Return a token for a browser or a phone, which expires by itself.

    Parameters
    ----------
    subscriber
        The only subscriber that it is for.
    roles
        What it may do: ``subscribe`` or ``publish``.
    expires_in_s
        How long it is valid, up to a day.
    """
    given = {"subscriber": subscriber, "roles": list(roles), "expiresInS": expires_in_s}
    return Call(post(path("tokens"), given), lambda answer: str(document(answer)["token"]))


def create_key(
    roles: Sequence[str],
    *,
    name: str | None = None,
    subscriber: str | None = None,
    tenant: str | None = None,
) -> Call[Document]:
    """Make a key; ``key`` in the answer is the only time that it is shown.

    Parameters
    ----------
    roles
        What it may do: ``publish``, ``subscribe``, ``admin``.
    name
        What it is for.
    subscriber
        If given, it only reaches what belongs to this subscriber.
    tenant
        Whose it is; that of the client's own key if left out.
    """
    given = {"roles": list(roles), "name": name, "subscriber": subscriber, "tenant": tenant}
    return Call(post(path("keys"), given), document)


def keys() -> Call[tuple[Document, ...]]:
    """Return all keys, without their secrets."""
    return items(path("keys"), "keys")


def revoke_key(id: str) -> Call[None]:
    """Revoke a key, by its id."""
    return Call(Request("DELETE", path("keys", id)), nothing)


def create_tenant(name: str, *, limits: Mapping[str, Any] | None = None) -> Call[Document]:
    """Make a tenant, whose messages and subscriptions are invisible to all others.

    Parameters
    ----------
    name
        Its name.
    limits
        Its limits, such as ``{"messagesPerS": 100}``; the server's defaults if left out.
    """
    return Call(post(path("tenants"), {"name": name, "limits": limits}), document)


def tenants() -> Call[tuple[Document, ...]]:
    """Return all tenants."""
    return items(path("tenants"), "tenants")


def limits(tenant: str) -> Call[Document]:
    """Return the limits that a tenant has of its own."""
    return Call(Request("GET", path("tenants", tenant, "limits"), repeatable=True), document)


def set_limits(tenant: str, limits: Mapping[str, Any]) -> Call[Document]:
    """Replace the limits of a tenant."""
    return Call(put(path("tenants", tenant, "limits"), limits), document)
