"""Calls about keys, tokens, tenants, cursors and sinks; the answers are returned as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.client.exchange import JSON, Answer, Call, Request, document, json_body, nothing, path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "create_key",
    "create_tenant",
    "create_token",
    "cursor",
    "keys",
    "limits",
    "revoke_key",
    "save_cursor",
    "set_limits",
    "tenants",
]

Document = dict[str, Any]


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
    return Call(_post("tokens", given), lambda answer: str(document(answer)["token"]))


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
    return Call(_post("keys", given), document)


def keys() -> Call[tuple[Document, ...]]:
    """Return all keys, without their secrets."""
    return _items("keys")


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
    return Call(_post("tenants", {"name": name, "limits": limits}), document)


def tenants() -> Call[tuple[Document, ...]]:
    """Return all tenants."""
    return _items("tenants")


def limits(tenant: str) -> Call[Document]:
    """Return the limits that a tenant has of its own."""
    return Call(Request("GET", path("tenants", tenant, "limits"), repeatable=True), document)


def set_limits(tenant: str, limits: Mapping[str, Any]) -> Call[Document]:
    """Replace the limits of a tenant."""
    return Call(_put(path("tenants", tenant, "limits"), limits), document)


def cursor(name: str, *, subscriber: str | None = None) -> Call[str]:
    """Return a cursor that the server keeps.

    Parameters
    ----------
    name
        Its name.
    subscriber
        Whose it is; that of the key if left out.
    """
    request = Request("GET", path("cursors", name), _of(subscriber), repeatable=True)
    return Call(request, lambda answer: str(document(answer)["cursor"]))


def save_cursor(name: str, cursor: str, *, subscriber: str | None = None) -> Call[None]:
    """Let the server keep a cursor.

    Parameters
    ----------
    name
        Its name.
    cursor
        The id of an event.
    subscriber
        Whose it is; that of the key if left out.
    """
    return Call(_put(path("cursors", name), {"cursor": cursor}, _of(subscriber)), nothing)


def _of(subscriber: str | None) -> dict[str, str]:
    return {} if subscriber is None else {"subscriber": subscriber}


def _items(name: str) -> Call[tuple[Document, ...]]:
    def read(answer: Answer) -> tuple[Document, ...]:
        return tuple(document(answer)[name])

    return Call(Request("GET", path(name), repeatable=True), read)


def _post(name: str, given: Mapping[str, Any]) -> Request:
    body = json_body({key: value for key, value in given.items() if value is not None})
    return Request("POST", path(name), headers={"content-type": JSON}, body=body)


def _put(where: str, given: Mapping[str, Any], query: Mapping[str, str] | None = None) -> Request:
    headers = {"content-type": JSON}
    return Request("PUT", where, query or {}, headers, json_body(given), repeatable=True)
