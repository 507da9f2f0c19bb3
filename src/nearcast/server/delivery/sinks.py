"""What a sender of webhooks knows of sinks, their events and the attempts to deliver them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from nearcast.errors import InvalidInput
from nearcast.server.delivery.pacing import PacingSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    Position = tuple[int, int]
    SinkStatus = Literal["ACTIVE", "RETRYING", "DISABLED"]

__all__ = ["Attempt", "RenderedEvent", "Sink", "SinkEvents", "check_sink_headers"]

_OWN_HEADERS = {"connection", "content-length", "content-type", "host", "transfer-encoding"}
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")


@dataclass(frozen=True, slots=True)
class Sink:
    """A receiver of webhooks, with its cursor and the state of its retries.

    Parameters
    ----------
    id, url
        As in the subscription; `addresses.check_sink_url` accepts the URL.
    secrets
        Secrets as ``whsec_<base64>``, the newest first; none for unsigned requests.
    position
        The cursor: everything up to here was delivered or given up.
    headers
        Headers of every request, such as ``Authorization``.
    attempts, next_try_us
        Failed attempts since the last success, and the time of the next one.
    status
        ``DISABLED`` sinks get nothing.
    pacing, sent
        Caps, digest and quiet hours, and the recent sends that `Pacing.remember` returned.
    tenant
        Whose sink it is; tenants share what is in flight.
    """

    id: str
    url: str
    secrets: tuple[str, ...]
    position: Position
    headers: Mapping[str, str] = field(default_factory=dict)
    attempts: int = 0
    next_try_us: int = 0
    status: SinkStatus = "ACTIVE"
    pacing: PacingSettings = field(default_factory=PacingSettings)
    sent: tuple[int, ...] = ()
    tenant: int = 0


class RenderedEvent(NamedTuple):
    """An event as it is sent: ``body`` is a CloudEvent in JSON, ``time_us`` its time."""

    position: Position
    id: str
    body: bytes
    time_us: int


class Attempt(NamedTuple):
    """One request: either ``status`` or ``error`` is given."""

    time_us: int
    event_id: str
    status: int | None
    error: str | None
    duration_us: int

    @property
    def delivered(self) -> bool:
        """Whether the receiver accepted the event."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def outcome(self) -> str:
        """The status or the error, as a text."""
        return self.error or f"status {self.status}"


class SinkEvents(Protocol):
    """Where a sender finds sinks and events, and keeps what has become of them."""

    async def sink(self, sink_id: str) -> Sink | None:
        """Return a sink as it was saved last, or nothing if it was deleted."""

    async def read(self, sink: Sink, after: Position, limit: int) -> list[RenderedEvent]:
        """Return the first events after a position, in order."""

    async def save(
        self,
        sink_id: str,
        position: Position,
        *,
        attempts: int,
        next_try_us: int,
        status: SinkStatus,
        sent: tuple[int, ...],
    ) -> None:
        """Store the cursor and the state of retries; they are durable on return."""

    async def dead(self, sink_id: str, event: RenderedEvent, reason: str) -> None:
        """Store an event that is given up; possibly again, if the server died before `save`."""

    async def disable(self, sink_id: str, reason: str) -> None:
        """Store that a sink gets nothing until it is enabled."""

    async def gone(self, sink_id: str, reason: str) -> None:
        """Store that the receiver of a sink wants nothing any more: its subscriptions end."""

    async def note_attempt(self, sink_id: str, attempt: Attempt) -> None:
        """Note an attempt, for the owner of the sink to see."""


def check_sink_headers(headers: Mapping[str, str]) -> None:
    """Raise an error if headers cannot be those of every request to a sink.

    Raises
    ------
    InvalidInput
        When a name or value is not valid in HTTP, or the server sets the header itself.

    Examples
    --------
    >>> check_sink_headers({"Authorization": "Bearer abc"})
    """
    for name, value in headers.items():
        lower = name.lower()
        if not name or not _TOKEN.issuperset(lower):
            raise InvalidInput("headers", name, "must have names of letters, digits and hyphens")
        if lower in _OWN_HEADERS or lower.startswith("webhook-"):
            raise InvalidInput("headers", name, "must not contain headers that the server sets")
        if not (value.isascii() and value.isprintable()):
            problem = f"must have a value of printable ASCII characters for {name}"
            raise InvalidInput("headers", "another value", problem)
