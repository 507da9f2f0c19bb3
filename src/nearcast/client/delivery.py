"""Calls about delivery: cursors, when subscribers want events, and webhook sinks."""

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
    from collections.abc import Mapping

__all__ = [
    "cursor",
    "enable_sink",
    "remove_sink",
    "replay_sink",
    "save_cursor",
    "set_delivery",
    "sink",
    "sink_attempts",
    "sink_dead",
    "sinks",
    "subscriber",
    "test_sink",
]


def cursor(name: str, *, subscriber: str | None = None) -> Call[str]:
    """Return a cursor that the server keeps.

    Parameters
    ----------
    name
        Its name.
    subscriber
        Whose it is; the key's own subscriber if left out.
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
        The id of an event, ``now``, ``earliest`` or a time.
    subscriber
        Whose it is; the key's own subscriber if left out.
    """
    return Call(put(path("cursors", name), {"cursor": cursor}, _of(subscriber)), nothing)


def subscriber(name: str, *, cursor: str = "earliest") -> Call[Document]:
    """Return the delivery settings of a subscriber, and how many events it has.

    Parameters
    ----------
    name
        Its name.
    cursor
        ``pending`` counts the events after it.
    """
    request = Request("GET", path("subscribers", name), {"cursor": cursor}, repeatable=True)
    return Call(request, document)


def set_delivery(name: str, settings: Mapping[str, Any]) -> Call[Document]:
    """Set when a subscriber wants events; what may not be sent yet waits.

    Parameters
    ----------
    name
        Its name.
    settings
        Any of ``cap``, ``digest`` and ``quietHours``, such as
        ``{"cap": {"events": 10, "periodS": 3600}}``.
    """
    return Call(put(path("subscribers", name), settings), document)


def sinks() -> Call[tuple[Document, ...]]:
    """Return the webhook sinks: where their cursors are, and whether attempts fail."""
    return items(path("sinks"), "sinks")


def sink(id: str) -> Call[Document]:
    """Return a webhook sink."""
    return Call(Request("GET", path("sinks", id), repeatable=True), document)


def remove_sink(id: str) -> Call[None]:
    """Remove a sink that no subscription has, with the events that it did not get."""
    return Call(Request("DELETE", path("sinks", id)), nothing)


def sink_attempts(id: str) -> Call[tuple[Document, ...]]:
    """Return the last 100 attempts of a sink, the newest first."""
    return items(path("sinks", id, "attempts"), "attempts")


def sink_dead(
    id: str, *, after: str | None = None, limit: int = 1_000
) -> Call[tuple[Document, ...]]:
    """Return events that were given up, in their order.

    Parameters
    ----------
    id
        The id of the sink.
    after
        Only events after this one.
    limit
        How many at most, up to 1,000.
    """
    call = items(path("sinks", id, "dead"), "dead")
    query = {"limit": str(limit)} if after is None else {"limit": str(limit), "after": after}
    return Call(Request("GET", call.request.path, query, repeatable=True), call.read)


def test_sink(id: str) -> Call[Document]:
    """Send a test event to a sink, once, and return what became of it."""
    return Call(post(path("sinks", id, "test"), {}), document)


def replay_sink(id: str, cursor: str) -> Call[Document]:
    """Send everything after a cursor to a sink once more; ids stay the same.

    Parameters
    ----------
    id
        The id of the sink, which is enabled by this.
    cursor
        The id of an event, ``earliest`` or a time.
    """
    return Call(post(path("sinks", id, "replay"), {"cursor": cursor}), document)


def enable_sink(id: str) -> Call[Document]:
    """Go on with a sink that was disabled or waits for another attempt, now."""
    return Call(post(path("sinks", id, "enable"), {}, repeatable=True), document)


def _of(subscriber: str | None) -> dict[str, str]:
    return {} if subscriber is None else {"subscriber": subscriber}
