"""The exceptions of the client; the tree is in the docstring of `nearcast.client`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.errors import NearcastError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nearcast.client.events import Gap
    from nearcast.client.publishing import Published

__all__ = [
    "ConnectionFailed",
    "EventsLost",
    "InvalidAnswer",
    "NearcastClientError",
    "ProblemError",
]


class NearcastClientError(NearcastError):
    """The base class of what the client raises about a server.

    Attributes
    ----------
    published
        If publishing failed in the middle: what the server had acknowledged until then.
    """

    published: Published | None = None


class ProblemError(NearcastClientError):
    """The server refused a request.

    Parameters
    ----------
    status
        The HTTP status.
    code
        Which kind of problem it is, such as ``NOT_FOUND``.
    detail
        What is wrong, in plain English.
    errors
        The fields that are wrong: mappings with ``field`` and ``reason``.
    """

    def __init__(
        self, status: int, code: str, detail: str, errors: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self.status, self.code, self.detail = status, code, detail
        self.errors = tuple(errors)
        super().__init__(f"{status} {code}: {detail}")

    def __reduce__(self) -> tuple[type[ProblemError], tuple[Any, ...]]:
        return type(self), (self.status, self.code, self.detail, self.errors)


class ConnectionFailed(NearcastClientError, ConnectionError):
    """There was no answer, however often the request was sent.

    A request that changes something may have reached the server. `Client.publish` sends a key with
    each batch, so that it can be repeated; `Client.replace` is safe to call again as well.
    """


class InvalidAnswer(NearcastClientError):
    """The answer is not one of a Nearcast server: a proxy's page, or another service."""


class EventsLost(NearcastClientError):
    """Events are no longer available, and the stream was opened with ``on_gap="raise"``.

    Parameters
    ----------
    gap
        What is missing.
    """

    def __init__(self, gap: Gap) -> None:
        self.gap = gap
        lost = "events" if gap.lost is None else f"{gap.lost:,} events"
        super().__init__(f"{lost} after {gap.after} are no longer available; continue at {gap.to}")

    def __reduce__(self) -> tuple[type[EventsLost], tuple[Gap]]:
        return type(self), (self.gap,)
