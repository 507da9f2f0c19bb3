"""Publishers and subscribers that cost little: HTTP by hand over asyncio protocols.

Each runs in a process of its own, on uvloop, and talks to 127.0.0.1 only. A publisher sends one
request after the other on a connection that stays open. A subscriber reads its stream and looks at
nothing but ids and times. The time at which a batch was due travels in the messages, as
``"properties": {"t": <nanoseconds>}`` of the monotonic clock, which processes on Linux share.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import uvloop

from nearcast.errors import NearcastError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from multiprocessing.connection import Connection

__all__ = [
    "CatchResult",
    "Catching",
    "Latencies",
    "PublishResult",
    "Publishing",
    "StreamResult",
    "Streaming",
    "catch_up",
    "publish",
    "stream",
    "stream_name",
]

HOST = "127.0.0.1"
DUE = b"@T"
"""Stands in bodies for the time at which they are due."""

_BUCKET_NS = 100_000
_BUCKETS = 300_000
_QUIET_S = 20.0
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_ACCEPTED = re.compile(rb'"accepted":(\d+),"firstSeq":(\d+),"lastSeq":(\d+)')
_EVENT = re.compile(rb'id: \d+-(\d+)(?:\.\d+)?\nevent: match\ndata: [^\n]*?"t":(\d+)')
_ANY_EVENT = re.compile(rb"id: \d+-(\d+)(?:\.\d+)?\nevent: match\n")


def stream_name(number: int) -> str:
    """Return the name of the subscriber of a stream."""
    return f"stream-{number}"


class Latencies:
    """A histogram of latencies, in steps of 0.1 ms up to 30 s; its size does not grow.

    Examples
    --------
    >>> latencies = Latencies()
    >>> latencies.add(2_000_000)
    >>> latencies.quantile_ms(0.5)
    2.1
    """

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS

    def add(self, ns: int) -> None:
        """Count a latency."""
        self._counts[min(ns // _BUCKET_NS, _BUCKETS - 1)] += 1

    def quantile_ms(self, share: float) -> float:
        """Return a quantile in milliseconds, rounded up to the next step; 0 if there is none."""
        total = np.cumsum(self._counts)
        if not total[-1]:
            return 0.0
        place = int(np.searchsorted(total, share * total[-1]))
        return (place + 1) * _BUCKET_NS / 1e6


# --- publishers ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Publishing:
    """What publishers do.

    Parameters
    ----------
    port, key
        The server.
    connections
        How many requests are under way at most.
    bodies, batch
        The bodies of requests, which are sent in turn, and the number of messages of each.
    tags
        How many tags the messages have in turn; 0 for none.
    seconds
        How long they publish.
    rate
        How many messages a second are due in all; None for as many as the server takes.
    """

    port: int
    key: str
    connections: int
    bodies: list[bytes]
    batch: int
    tags: int
    seconds: float
    rate: float | None = None


class PublishResult(NamedTuple):
    """What became of requests: messages that were acknowledged, in all and by tag.

    ``first_seq`` and ``last_seq`` are those of all answers; ``refused`` is the number of requests
    with another status than 200.
    """

    messages: int
    by_tag: list[int]
    seconds: float
    p50_ms: float
    p99_ms: float
    first_seq: int
    last_seq: int
    refused: int
    late: int


class _Connection(asyncio.Protocol):
    """A connection that stays open; ``answered`` is called with each answer."""

    def __init__(self, answered: Callable[[_Connection, bytes], None]) -> None:
        self._answered = answered
        self._data = b""
        self.body = 0
        self.since_ns = 0
        self.lost = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def send(self, request: bytes, body: int, since_ns: int) -> None:
        """Send a request; remember which body it has, and when it was due."""
        self.body, self.since_ns = body, since_ns
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        data = self._data + data
        head = data.find(b"\r\n\r\n")
        length = _LENGTH.search(data, 0, head + 2) if head >= 0 else None
        if length is None or len(data) < head + 4 + int(length[1]):
            self._data = data
            return
        self._data = b""
        self._answered(self, data)


class _Publishers:
    """All publishers of a process."""

    def __init__(self, job: Publishing) -> None:
        self._job = job
        self._tags = job.tags
        self._requests = [_request(job, body) for body in job.bodies]
        self._next = 0
        self._free: deque[_Connection] = deque()
        self._due: deque[int] = deque()
        self._acknowledged = np.zeros(len(job.bodies), np.int64)
        self._latencies = Latencies()
        self._refused = self._late = self._under_way = 0
        self._first_seq, self._last_seq = 1 << 62, 0
        self._end_ns = 0
        self._idle = asyncio.Event()

    async def run(self) -> PublishResult:
        """Publish, and wait for the last answers."""
        loop = asyncio.get_running_loop()
        for _ in range(self._job.connections):
            _, connection = await loop.create_connection(
                lambda: _Connection(self._answered), HOST, self._job.port
            )
            self._free.append(connection)
        began_ns = time.monotonic_ns()
        self._end_ns = began_ns + int(self._job.seconds * 1e9)
        if self._job.rate is None:
            while self._free:
                self._send(time.monotonic_ns())
        else:
            await self._pace(began_ns, self._job.rate)
        while self._under_way or self._due:
            self._idle.clear()
            await asyncio.wait_for(self._idle.wait(), 60)
        seconds = max(time.monotonic_ns(), self._end_ns) - began_ns
        return self._result(seconds / 1e9)

    async def _pace(self, began_ns: int, rate: float) -> None:
        """Let batches be due at a rate, however long the answers take."""
        every_ns = int(self._job.batch / rate * 1e9)
        for due_ns in range(began_ns, self._end_ns, every_ns):
            wait_ns = due_ns - time.monotonic_ns()
            if wait_ns > 0:
                await asyncio.sleep(wait_ns / 1e9)
            if self._free:
                self._send(due_ns)
            else:
                self._late += 1
                self._due.append(due_ns)

    def _send(self, due_ns: int) -> None:
        connection, body = self._free.popleft(), self._next
        self._next = (self._next + 1) % len(self._requests)
        head, messages = self._requests[body]
        digits = b"%020d" % due_ns
        self._under_way += 1
        # The length was counted with 20 characters; leading zeros are no JSON.
        request = head + messages.replace(DUE, digits.lstrip(b"0").rjust(20))
        connection.send(request, body, due_ns)

    def _answered(self, connection: _Connection, answer: bytes) -> None:
        now_ns = time.monotonic_ns()
        self._under_way -= 1
        self._latencies.add(now_ns - connection.since_ns)
        found = _ACCEPTED.search(answer) if answer.startswith(b"HTTP/1.1 200 ") else None
        if found is not None and int(found[1]) == self._job.batch:
            self._acknowledged[connection.body] += 1
            self._first_seq = min(self._first_seq, int(found[2]))
            self._last_seq = max(self._last_seq, int(found[3]))
        else:
            self._refused += 1
        self._free.append(connection)
        if self._due:
            self._send(self._due.popleft())
        elif self._job.rate is None and now_ns < self._end_ns:
            self._send(now_ns)
        else:
            self._idle.set()

    def _result(self, seconds: float) -> PublishResult:
        batch, tags = self._job.batch, max(self._tags, 1)
        number = np.arange(len(self._requests) * batch)
        weights = np.repeat(self._acknowledged, batch)
        by_tag = np.bincount(number % tags, weights, tags).astype(np.int64).tolist()
        return PublishResult(
            int(self._acknowledged.sum()) * batch,
            by_tag,
            seconds,
            self._latencies.quantile_ms(0.5),
            self._latencies.quantile_ms(0.99),
            self._first_seq,
            self._last_seq,
            self._refused,
            self._late,
        )


def _request(job: Publishing, body: bytes) -> tuple[bytes, bytes]:
    """Return the head and the body of a request; the time takes 20 characters of it."""
    size = len(body) + (20 - len(DUE)) * body.count(DUE)
    head = (
        f"POST /v1/messages HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {job.key}\r\n"
        f"Content-Type: application/x-ndjson\r\nContent-Length: {size}\r\n\r\n"
    )
    return head.encode(), body


def publish(job: Publishing, report: Connection) -> None:
    """Publish in this process; wait for the word to begin, and report the result."""

    async def run() -> PublishResult:
        publishers = _Publishers(job)
        report.send("ready")
        await asyncio.to_thread(report.recv)
        return await publishers.run()

    _report(run(), report)


# --- subscribers ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Streaming:
    """What subscribers do: ``connections`` streams, each of a subscriber of its own."""

    port: int
    key: str
    connections: int


class StreamResult(NamedTuple):
    """Events that were received, by stream; and how many came twice or in the wrong order."""

    received: list[int]
    disordered: int
    lost_connections: int
    p50_ms: float
    p99_ms: float
    last_ns: int


class _Stream(asyncio.Protocol):
    """One stream of events."""

    def __init__(self, latencies: Latencies) -> None:
        self._latencies = latencies
        self._data = b""
        self._last_seq = -1
        self.received = self.disordered = 0
        self.open = self.lost = False
        self.last_ns = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        data = self._data + data if self._data else data
        end = data.rfind(b"\n\n") + 2
        if end == 1:
            self._data = data
            return
        self._data = data[end:]
        if not self.open:
            self.open = data.startswith(b"HTTP/1.1 200 ")
        events = _EVENT.findall(data, 0, end)
        if not events:
            return
        self.received += len(events)
        self.last_ns = now_ns
        last, add = self._last_seq, self._latencies.add
        for seq, due_ns in events:
            number = int(seq)
            if number <= last:
                self.disordered += 1
            last = number
            add(now_ns - int(due_ns))
        self._last_seq = last


def _events_request(key: str, subscriber: str, cursor: str) -> bytes:
    return (
        f"GET /v1/events?subscriber={subscriber}&cursor={cursor} HTTP/1.1\r\nHost: {HOST}\r\n"
        f"Authorization: Bearer {key}\r\nAccept: text/event-stream\r\n\r\n"
    ).encode()


def stream(job: Streaming, report: Connection) -> None:
    """Receive events in this process.

    It reports when all streams are open. Then it gets the number of events that each stream should
    have, waits until they are there or nothing comes any more, and reports the result.
    """

    async def run() -> StreamResult:
        loop, latencies = asyncio.get_running_loop(), Latencies()
        streams = []
        for number in range(job.connections):
            transport, one = await loop.create_connection(
                lambda: _Stream(latencies), HOST, job.port
            )
            transport.write(_events_request(job.key, stream_name(number), "now"))
            streams.append(one)
        await _until(lambda: all(one.open for one in streams), _QUIET_S)
        report.send("ready")
        expected: list[int] = await asyncio.to_thread(report.recv)

        def complete() -> bool:
            pairs = zip(streams, expected, strict=True)
            return all(one.received >= count for one, count in pairs)

        def progress() -> int:
            return sum(one.received for one in streams)

        await _until(complete, _QUIET_S, progress)
        await asyncio.sleep(0.2)  # one that comes twice would come now
        return StreamResult(
            [one.received for one in streams],
            sum(one.disordered for one in streams),
            sum(one.lost or not one.open for one in streams),
            latencies.quantile_ms(0.5),
            latencies.quantile_ms(0.99),
            max(one.last_ns for one in streams),
        )

    _report(run(), report)


# --- subscribers that come back ------------------------------------------------------------------


@dataclass(frozen=True)
class Catching:
    """Subscribers that come back with an old cursor, one after the other.

    The last of the ``streams`` is read until it has all of its ``expected`` events.
    """

    port: int
    key: str
    cursor: str
    streams: list[int]
    expected: int


class CatchResult(NamedTuple):
    """Seconds to the first event, each time; seconds to all of them, how many, how many wrong."""

    first_s: list[float]
    all_s: float
    received: int
    disordered: int


class _Returning(asyncio.Protocol):
    """A stream that notes when its first event came."""

    def __init__(self) -> None:
        self._data = b""
        self._last_seq = -1
        self.received = self.disordered = 0
        self.first = asyncio.Event()
        self.first_at = 0.0

    def data_received(self, data: bytes) -> None:
        data = self._data + data
        end = data.rfind(b"\n\n") + 2
        if end == 1:
            self._data = data
            return
        self._data = data[end:]
        for seq in _ANY_EVENT.findall(data, 0, end):
            number = int(seq)
            self.disordered += number <= self._last_seq
            self._last_seq = number
            self.received += 1
        if self.received and not self.first.is_set():
            self.first_at = time.monotonic()
            self.first.set()


def catch_up(job: Catching, report: Connection) -> None:
    """Come back with an old cursor in this process, and report the result."""

    async def run() -> CatchResult:
        loop, first_s = asyncio.get_running_loop(), []
        for number in job.streams:
            transport, one = await loop.create_connection(_Returning, HOST, job.port)
            began = time.monotonic()
            transport.write(_events_request(job.key, stream_name(number), job.cursor))
            await asyncio.wait_for(one.first.wait(), 60)
            first_s.append(one.first_at - began)
            if number != job.streams[-1]:
                transport.close()
        await _until(lambda: one.received >= job.expected, _QUIET_S, lambda: one.received)
        all_s = time.monotonic() - began
        transport.close()
        return CatchResult(first_s, all_s, one.received, one.disordered)

    _report(run(), report)


async def _until(
    done: Callable[[], bool], quiet_s: float, progress: Callable[[], int] = lambda: 0
) -> None:
    """Wait until something is done, or there was no progress for a while."""
    seen, since = progress(), time.monotonic()
    while not done():
        await asyncio.sleep(0.02)
        now = progress()
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > quiet_s:
            return


def _report(work: Coroutine[Any, Any, Any], report: Connection) -> None:
    try:
        result = uvloop.run(work)
    except Exception as error:
        result = NearcastError(f"a load generator failed: {error!r}")
    report.send(result)
