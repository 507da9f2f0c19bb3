"""Events as they arrive: each once and in order, through breaks of the connection.

`Following` is the state of a stream: where it is, and what it has seen. `follow` is a generator
that yields what to do next, such as `Open` or `Read`, and gets the result sent back. Both clients
run it, so that streams of both behave in the same way.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from nearcast.client.delivery import cursor as named_cursor
from nearcast.client.errors import ConnectionFailed, EventsLost, InvalidAnswer
from nearcast.client.exchange import (
    Answer,
    Call,
    Document,
    Failure,
    Request,
    Sleep,
    delay_s,
    document,
    path,
    problem_of,
    retry_after_s,
)
from nearcast.client.sse import Frame, FrameParser
from nearcast.errors import InvalidInput, shorten

__all__ = [
    "Ask",
    "Emit",
    "Event",
    "EventMatch",
    "Following",
    "Gap",
    "Open",
    "Polled",
    "Read",
    "Ready",
    "Save",
    "explain",
    "follow",
    "poll",
]

EVENT_STREAM = "text/event-stream"
SILENCE_S = 45.0
"""A stream without a byte for this time is broken: the server writes at least every 15 s."""

SAVE_EVERY_S = 1.0
"""How often a cursor is saved on the server at most."""

_EARLIEST = "earliest"
_ID = re.compile(r"(\d{1,18})-(\d{1,18})(?:\.(\d{1,18}))?", re.ASCII)
_PREFIX = "org.nearcast."
_RETRIED = frozenset({408, 429, 500, 502, 503, 504})


class EventMatch(NamedTuple):
    """A subscription that an event is about.

    ``sign`` is 1 if the message matches it from now on, and -1 if it no longer does. ``score`` is
    None unless the subscription is ranked.
    """

    subscription_id: str
    score: float | None
    sign: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a subscriber.

    Attributes
    ----------
    id
        Its id, which is also a cursor: `Client.events` continues after it.
    type
        ``match``, ``unmatch``, ``subscription-started``, ``subscription-updated``,
        ``subscription-ended`` or ``gap``.
    time
        When it happened; None for a gap.
    message
        The message, as it was published; None if the event is about a subscription.
    matches
        The subscriptions of the subscriber that the message matches.
    raw
        The whole event, a CloudEvent.
    """

    id: str
    type: str
    time: datetime | None = None
    message: Mapping[str, Any] | None = None
    matches: tuple[EventMatch, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def data(self) -> Mapping[str, Any]:
        """The data of the event: of one about a subscription, its id and why it ended."""
        found: Mapping[str, Any] = self.raw.get("data", self.raw)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap(Event):
    """Events that are no longer available: the cursor was too old, or of another server.

    Attributes
    ----------
    after
        The cursor that was asked for.
    to
        The first id that is available.
    lost
        How many events are missing; None if the server does not know.
    """

    after: str
    to: str
    lost: int | None


@dataclass(frozen=True, slots=True)
class Polled:
    """What `Client.poll` returns: events, and the cursor after them."""

    events: tuple[Event, ...]
    cursor: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask for a cursor; the reply is the cursor, or None if there is none of this name."""

    call: Call[str]


@dataclass(frozen=True, slots=True)
class Ready:
    """Note that it is known where the stream starts."""


@dataclass(frozen=True, slots=True)
class Open:
    """Open a stream; the reply is an `Answer` (without a body if it is 200) or a `Failure`."""

    request: Request


@dataclass(frozen=True, slots=True)
class Read:
    """Read from the stream; the reply is some bytes, or None if it has ended or is broken."""


@dataclass(frozen=True, slots=True)
class Emit:
    """Give an event to the user; the reply, None, comes when the user asks for the next one."""

    event: Event


@dataclass(frozen=True, slots=True)
class Save:
    """Save a cursor."""

    cursor: str


Command = Ask | Ready | Open | Read | Emit | Save | Sleep
Reply = Answer | Failure | bytes | str | None
OnGap = Literal["yield", "raise"]
SaveWith = bool | Callable[[str], object]


class Following:
    """Where a stream of events is.

    Parameters
    ----------
    cursor
        Where it starts: an id, ``now``, ``earliest``, a time, or ``@name`` for a cursor that the
        server keeps.
    subscriber
        Whose events; None for the key's own.
    on_gap
        ``yield`` a `Gap` as an event, or ``raise`` `EventsLost`.
    save
        Saves cursors: True on the server, under the name; or a function.

    Attributes
    ----------
    cursor
        After what was received.
    consumed
        After what the user has handled.
    """

    def __init__(
        self,
        cursor: str,
        subscriber: str | None = None,
        on_gap: OnGap = "yield",
        save: SaveWith = False,
    ) -> None:
        if on_gap not in ("yield", "raise"):
            raise InvalidInput("on_gap", on_gap, "must be yield or raise")
        self.name = cursor[1:] if cursor.startswith("@") else None
        if save is True and not self.name:
            raise InvalidInput("save", save, "needs a cursor with a name, such as @phone")
        self.subscriber, self.save = subscriber, save
        self._on_gap = on_gap
        self._parser = FrameParser()
        self._handed: Event | str | None = None
        self.start(cursor)

    def start(self, cursor: str) -> None:
        """Start at a cursor."""
        self.cursor = self.consumed = self._saved = cursor
        self._saved_at = time.monotonic()

    def request(self) -> Request:
        """Return the request that goes on after what was received; a part of a frame is dropped."""
        self._parser = FrameParser()
        query = {"cursor": self.cursor}
        if self.subscriber is not None:
            query["subscriber"] = self.subscriber
        headers = {
            "accept": EVENT_STREAM,
            "accept-encoding": "identity",
            "cache-control": "no-store",
        }
        if _order(self.cursor) is not None:
            headers["last-event-id"] = self.cursor
        return Request("GET", path("events"), query, headers, repeatable=True)

    def take(self, data: bytes) -> Iterator[Event | str]:
        """Yield the new events in some bytes; a bookmark is its id alone."""
        for frame in self._parser.feed(data):
            self._handed = self._new(frame)
            if self._handed is not None:
                yield self._handed

    def consume(self) -> None:
        """Note that the last event was handled."""
        if self._handed is not None:
            self.consumed = _cursor_of(self._handed)

    def unsaved(self, *, now: bool = False) -> str | None:
        """Return the cursor that should be saved; None if that is not needed, or not yet."""
        if self.save is False or self.consumed == self._saved or _order(self.consumed) is None:
            return None
        often = now or self.save is not True
        if not often and time.monotonic() - self._saved_at < SAVE_EVERY_S:
            return None
        return self.consumed

    def saved(self, cursor: str) -> None:
        """Note that a cursor was saved."""
        self._saved, self._saved_at = cursor, time.monotonic()

    def _new(self, frame: Frame) -> Event | str | None:
        """Return what a frame says; None if it was seen before."""
        if frame.event == "gap" and frame.data is not None:
            gap = _gap(_object(frame.data))
            self.cursor = _EARLIEST
            if self._on_gap == "raise":
                raise EventsLost(gap)
            return gap
        if frame.id is not None:
            if not _is_after(frame.id, self.cursor):
                return None
            self.cursor = frame.id
        if frame.data is None or frame.event == "expiring":  # what to do, only the caller knows
            return frame.id
        event = _event(_object(frame.data))
        if event.id != frame.id:
            raise InvalidAnswer(f"an event has the id {event.id!r}, its frame {frame.id!r}")
        return event


def follow(
    state: Following, retry_s: float, clock: Callable[[], float] = time.monotonic
) -> Generator[Command, Reply, None]:
    """Receive events without end.

    Until it was connected for the first time, it gives up after ``retry_s`` seconds; from then on
    it connects again after every break.
    """
    yield from _start(state)
    end: float | None = clock() + retry_s
    attempt = 0
    while True:
        opened = yield Open(state.request())
        if isinstance(opened, Answer) and opened.status == 200:
            _check_type(opened)
            end = None
            attempt = yield from _read(state, attempt)
            wait_s = delay_s(attempt)
        else:
            assert isinstance(opened, Answer | Failure)
            wait_s = _wait_s(opened, attempt)
            if end is not None and clock() + wait_s > end:
                raise _error_of(opened)
        yield Sleep(wait_s)
        attempt += 1


def _start(state: Following) -> Generator[Command, Reply, None]:
    """Find out where a stream starts; ``now`` is a place, so that breaks lose nothing."""
    cursor: Reply = state.cursor
    if state.name is not None:
        cursor = yield Ask(named_cursor(state.name, subscriber=state.subscriber))
    if cursor in ("now", None):
        cursor = yield Ask(_now(state.subscriber))
        if state.save is True:
            assert isinstance(cursor, str)
            yield Save(cursor)
    assert isinstance(cursor, str)
    state.start(cursor)
    yield Ready()


def _read(state: Following, attempt: int) -> Generator[Command, Reply, int]:
    """Read a stream to its end; return how many attempts were in vain."""
    while (data := (yield Read())) is not None:
        assert isinstance(data, bytes)
        attempt = 0
        for one in state.take(data):
            if isinstance(one, Event):
                yield Emit(one)
            state.consume()
            if (cursor := state.unsaved()) is not None:
                yield Save(cursor)
                state.saved(cursor)
    return attempt


def poll(
    cursor: str, *, subscriber: str | None = None, limit: int = 100, wait_s: float = 0.0
) -> Call[Polled]:
    """Return the events after a cursor that are there, without a stream.

    Parameters
    ----------
    cursor
        The id of an event, ``now``, ``earliest`` or a time.
    subscriber
        Whose events; those of the key's own subscriber if left out.
    limit
        How many events at most, up to 1,000.
    wait_s
        How long to wait if there are none, up to 60 s.
    """
    query = {"cursor": cursor, "poll": "1", "limit": str(limit), "waitS": str(wait_s)}
    if subscriber is not None:
        query["subscriber"] = subscriber
    return Call(Request("GET", path("events"), query, repeatable=True), _polled)


def explain(
    id: str, *, subscriber: str | None = None, subscription_id: str | None = None
) -> Call[Document]:
    """Return why an event came, or why a message did not match a subscription.

    Parameters
    ----------
    id
        The id of an event; with ``subscription_id``, that of a message.
    subscriber
        Whose event; the key's own subscriber if left out.
    subscription_id
        Explain this subscription, whether it matched or not.
    """
    given = {"subscriber": subscriber, "subscriptionId": subscription_id}
    query = {name: value for name, value in given.items() if value is not None}
    return Call(Request("GET", path("events", id, "explain"), query, repeatable=True), document)


def _now(subscriber: str | None) -> Call[str]:
    call = poll("now", subscriber=subscriber, limit=1)
    return Call(call.request, lambda answer: call.read(answer).cursor)


def _polled(answer: Answer) -> Polled:
    given = document(answer)
    events = [_event(one) for one in given.get("events", ())]
    if "gap" in given:
        events.insert(0, _gap(given["gap"]))
    return Polled(tuple(events), str(given.get("cursor")))


def _event(given: Mapping[str, Any]) -> Event:
    try:
        data = given["data"]
        return Event(
            id=given["id"],
            type=given["type"].removeprefix(_PREFIX),
            time=datetime.fromisoformat(given["time"]),
            message=data.get("message"),
            matches=tuple(
                EventMatch(one["subscriptionId"], one.get("score"), one["sign"])
                for one in data.get("matches", ())
            ),
            raw=given,
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidAnswer(f"expected an event, got {shorten(given)} ({error!r})") from None


def _gap(given: Mapping[str, Any]) -> Gap:
    try:
        after, to, lost = given["from"], given["to"], given["lost"]
    except (KeyError, TypeError):
        raise InvalidAnswer(f"expected a gap, got {shorten(given)}") from None
    return Gap(id="", type="gap", raw=given, after=after, to=to, lost=lost)


def _object(data: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidAnswer(f"expected a JSON object in a frame, got {shorten(data)}")
    return found


def _order(id: str) -> tuple[int, int, int] | None:
    """Return epoch, number and place of an id, by which ids are ordered; None if it is no id."""
    found = _ID.fullmatch(id)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3] or 0))


def _is_after(id: str, cursor: str) -> bool:
    new, old = _order(id), _order(cursor)
    if new is None:
        raise InvalidAnswer(f"expected the id of an event, got {shorten(id)}")
    return old is None or new > old


def _cursor_of(one: Event | str) -> str:
    if isinstance(one, str):
        return one
    return _EARLIEST if isinstance(one, Gap) else one.id


def _check_type(opened: Answer) -> None:
    found = opened.headers.get("content-type", "")
    if not found.lower().startswith(EVENT_STREAM):
        raise InvalidAnswer(f"expected a stream of events, got {shorten(found)}")


def _wait_s(outcome: Answer | Failure, attempt: int) -> float:
    if isinstance(outcome, Failure):
        return delay_s(attempt)
    if outcome.status not in _RETRIED:
        raise problem_of(outcome)
    return max(delay_s(attempt), retry_after_s(outcome) or 0.0)


def _error_of(outcome: Answer | Failure) -> Exception:
    if isinstance(outcome, Answer):
        return problem_of(outcome)
    return ConnectionFailed(f"GET /v1/events: {outcome.reason}")
