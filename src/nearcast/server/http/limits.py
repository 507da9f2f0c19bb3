"""Limits of what a tenant may send: requests and messages a second, and the size of bodies."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nearcast.server.http.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

__all__ = ["RateLimiter", "Rates", "TokenBucket", "read_body"]

_MAX_RETRY_S = 86_400
"""Nobody is told to wait longer than a day: limits may be changed meanwhile."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What a tenant may send a second.

    Parameters
    ----------
    requests_per_s, messages_per_s
        The rates, over a longer time.
    burst_s
        How many seconds' worth may be sent at once after a pause.
    """

    requests_per_s: float = 20_000.0
    messages_per_s: float = 1_000_000.0
    burst_s: float = 5.0


class TokenBucket:
    """A bucket that fills at a rate, up to a capacity, and from which every use takes.

    Parameters
    ----------
    rate, capacity
        How much it gains a second, and holds at most. It is full at first.
    now
        The time in seconds.

    Examples
    --------
    >>> bucket = TokenBucket(rate=2.0, capacity=4.0, now=0.0)
    >>> bucket.take(4, now=0.0), bucket.take(1, now=0.0), bucket.take(1, now=0.5)
    (0.0, 0.5, 0.0)
    """

    __slots__ = ("_capacity", "_level", "_rate", "_time")

    def __init__(self, rate: float, capacity: float, now: float) -> None:
        self._rate = rate
        self._capacity = capacity
        self._level = capacity
        self._time = now

    def take(self, amount: float, now: float) -> float:
        """Take an amount and return 0, or take nothing and return how many seconds to wait.

        An amount above the capacity is given when the bucket is full; then it must fill up from
        below zero. So a request of any size passes at some time, and the rate holds.
        """
        self._level = min(self._capacity, self._level + (now - self._time) * self._rate)
        self._time = now
        missing = min(amount, self._capacity) - self._level
        if missing > 1e-9 * self._capacity:
            return missing / self._rate
        self._level -= amount
        return 0.0


class RateLimiter:
    """The buckets of all tenants.

    Parameters
    ----------
    rates_of
        Returns the rates of a tenant; asked for again after `forget`.
    monotonic
        Seconds of a clock that never jumps.
    """

    def __init__(
        self,
        rates_of: Callable[[int], Rates],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rates_of = rates_of
        self._monotonic = monotonic
        self._buckets: dict[int, tuple[TokenBucket, TokenBucket]] = {}

    def check_request(self, tenant: int) -> None:
        """Count a request, or raise a problem of status 429 that says when to try again."""
        _refuse(self._of(tenant)[0].take(1, self._monotonic()), "requests")

    def check_messages(self, tenant: int, count: int) -> None:
        """Count messages, or raise a problem of status 429 that says when to try again."""
        _refuse(self._of(tenant)[1].take(count, self._monotonic()), "messages")

    def forget(self, tenant: int) -> None:
        """Read the rates of a tenant again; to be called when they change."""
        self._buckets.pop(tenant, None)

    def _of(self, tenant: int) -> tuple[TokenBucket, TokenBucket]:
        found = self._buckets.get(tenant)
        if found is None:
            rates, now = self._rates_of(tenant), self._monotonic()
            requests, messages = rates.requests_per_s, rates.messages_per_s
            found = (
                TokenBucket(requests, max(1.0, requests * rates.burst_s), now),
                TokenBucket(messages, max(1.0, messages * rates.burst_s), now),
            )
            self._buckets[tenant] = found
        return found


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """Return the body of a request, or raise a problem of status 413 as soon as it is too large."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > limit_bytes):
        raise _too_large(limit_bytes)
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _refuse(wait_s: float, what: str) -> None:
    if wait_s > 0:
        seconds = str(math.ceil(min(wait_s, _MAX_RETRY_S)))  # tiny rates: it may be infinite
        detail = f"too many {what}; try again in {seconds} s"
        raise Problem(429, "TOO_MANY_REQUESTS", detail, headers={"Retry-After": seconds})


def _too_large(limit_bytes: int) -> Problem:
    detail = f"the body is too large; at most {limit_bytes:,} bytes are allowed"
    return Problem(413, "CONTENT_TOO_LARGE", detail)
