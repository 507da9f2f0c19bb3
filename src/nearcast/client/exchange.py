"""Requests and answers as data, and when a request is sent again.

Nothing here sends anything. `retrying` is a generator that yields what to do next, an `Attempt` or
a `Sleep`, and gets the result sent back; both clients run it.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote

from nearcast.client.errors import ConnectionFailed, InvalidAnswer, ProblemError
from nearcast.errors import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

__all__ = [
    "FIRST_CONTACT_S",
    "GEOJSON",
    "JSON",
    "NDJSON",
    "Answer",
    "Attempt",
    "Call",
    "Document",
    "Failure",
    "Request",
    "Sleep",
    "delay_s",
    "document",
    "items",
    "json_body",
    "nothing",
    "path",
    "post",
    "problem_of",
    "put",
    "read_answer",
    "retry_after_s",
    "retrying",
]

T = TypeVar("T")

Document = dict[str, Any]
"""A JSON object."""

JSON = "application/json"
NDJSON = "application/x-ndjson"
GEOJSON = "application/geo+json"

FIRST_CONTACT_S = 5.0
"""How long a server that never answered is tried to be reached."""

_FIRST_DELAY_S = 0.2
_MAX_DELAY_S = 10.0
_BUSY = frozenset({429, 503})
_LOST = frozenset({408, 502, 504})


@dataclass(frozen=True, slots=True)
class Request:
    """A request, without the address and the key of the server.

    ``repeatable`` says that sending it twice is the same as sending it once.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """There was no whole answer; ``sent`` says whether the server may have got the request."""

    reason: str
    sent: bool


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and how its answer is read."""

    request: Request
    read: Callable[[Answer], T]


@dataclass(frozen=True, slots=True)
class Attempt:
    """Send a request once; the reply is an `Answer` or a `Failure`."""

    request: Request


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait."""

    seconds: float


def retrying(
    request: Request,
    retry_s: float,
    clock: Callable[[], float] = time.monotonic,
    *,
    reached: bool = True,
) -> Generator[Attempt | Sleep, Answer | Failure | None, Answer]:
    """Send a request until it is answered; return the answer, which is a success.

    A repeatable request is sent again after every failure that may pass. Others only if the
    server cannot have acted: it was not reached, or it answered that there is too much to do.

    Parameters
    ----------
    request
        The request.
    retry_s
        How long it is sent again.
    clock
        The time in seconds.
    reached
        Whether there was an answer of the server before. If there never was one, the address is
        probably wrong, so a connection that fails is tried again for a few seconds only.

    Raises
    ------
    ProblemError
        If the server refuses the request.
    ConnectionFailed
        If there is no answer within ``retry_s`` seconds.
    """
    end = clock() + retry_s
    first_end = end if reached else min(end, clock() + FIRST_CONTACT_S)
    attempt = 0
    while True:
        outcome = yield Attempt(request)
        assert outcome is not None
        if isinstance(outcome, Answer) and 200 <= outcome.status < 300:
            return outcome
        wait_s = _wait_s(request, outcome, attempt)
        if isinstance(outcome, Answer) or outcome.sent:
            first_end = end
        if wait_s is None or clock() + wait_s > first_end:
            raise _error_of(request, outcome)
        yield Sleep(wait_s)
        attempt += 1


def delay_s(attempt: int) -> float:
    """Return how long to wait before another attempt: doubling, with jitter."""
    longest = min(_MAX_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(attempt, 30))
    return longest * random.uniform(0.5, 1.0)


def retry_after_s(answer: Answer) -> float | None:
    """Return what ``Retry-After`` says in seconds; None if it says nothing."""
    given = answer.headers.get("retry-after", "").strip()
    if given.isascii() and given.isdigit():
        return float(min(int(given[:9]), 86_400))
    try:
        moment = parsedate_to_datetime(given)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def problem_of(answer: Answer) -> ProblemError:
    """Return the error that an answer describes, a problem document or anything else."""
    try:
        given = json.loads(answer.body)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        shown = shorten(answer.body[:200].decode(errors="replace"))
        return ProblemError(answer.status, "UNKNOWN", f"the server answered {shown}")
    errors = given.get("errors")
    return ProblemError(
        answer.status,
        str(given.get("code", "UNKNOWN")),
        str(given.get("detail", given.get("title", ""))),
        [one for one in errors if isinstance(one, dict)] if isinstance(errors, list) else (),
    )


def document(answer: Answer) -> Document:
    """Return the JSON object of an answer."""
    try:
        found = json.loads(answer.body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        shown = shorten(answer.body[:200].decode(errors="replace"))
        raise InvalidAnswer(f"expected a JSON object of a Nearcast server, got {shown}")
    return found


def read_answer(call: Call[T], answer: Answer) -> T:
    """Return what an answer says, or raise `InvalidAnswer` if it is not what was expected."""
    try:
        return call.read(answer)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        where = f"{call.request.method} {call.request.path}"
        shown = shorten(answer.body[:200].decode(errors="replace"))
        raise InvalidAnswer(f"{where}: unexpected answer {shown} ({error!r})") from None


def nothing(answer: Answer) -> None:
    """Return None: the answer has nothing to say."""


def json_body(value: object) -> bytes:
    """Return a value as JSON; times become RFC 3339 text."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)
        return text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair: the server says which field it is
        return json.dumps(value, separators=(",", ":"), default=_plain).encode()


def items(where: str, name: str) -> Call[tuple[Document, ...]]:
    """Return a call for the objects that a list of an answer has."""

    def read(answer: Answer) -> tuple[Document, ...]:
        return tuple(document(answer)[name])

    return Call(Request("GET", where, repeatable=True), read)


def post(where: str, given: Mapping[str, Any], *, repeatable: bool = False) -> Request:
    """Return a request with an object; parts that are None are left out."""
    body = json_body({key: value for key, value in given.items() if value is not None})
    return Request("POST", where, {}, {"content-type": JSON}, body, repeatable)


def put(where: str, given: Mapping[str, Any], query: Mapping[str, str] | None = None) -> Request:
    """Return a request that replaces an object."""
    headers = {"content-type": JSON}
    return Request("PUT", where, query or {}, headers, json_body(given), repeatable=True)


def path(*parts: str) -> str:
    """Return the path of a resource.

    Examples
    --------
    >>> path("subscriptions", "a/b c")
    '/v1/subscriptions/a%2Fb%20c'
    """
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return moment.isoformat()
    if hasattr(value, "item"):  # a number of NumPy
        return value.item()
    raise TypeError(f"{shorten(value)} has no form in JSON")


def _wait_s(request: Request, outcome: Answer | Failure, attempt: int) -> float | None:
    """Return how long to wait before the next attempt; None if there must not be one."""
    if isinstance(outcome, Failure):
        again = request.repeatable or not outcome.sent
        return delay_s(attempt) if again else None
    if outcome.status == 429 or (request.repeatable and outcome.status in _BUSY | _LOST):
        return max(delay_s(attempt), retry_after_s(outcome) or 0.0)
    return None


def _error_of(request: Request, outcome: Answer | Failure) -> ProblemError | ConnectionFailed:
    if isinstance(outcome, Answer):
        return problem_of(outcome)
    doubt = "" if request.repeatable or not outcome.sent else "; the server may have acted on it"
    return ConnectionFailed(f"{request.method} {request.path}: {outcome.reason}{doubt}")
