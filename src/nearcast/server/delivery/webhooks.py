"""Delivery of events to webhooks: in order, at least once, with retries that survive restarts.

A sink is a cursor into the events of a subscriber; there is no queue. A task exists only for sinks
that have something to send right now; a sink that waits for its next attempt is an entry of one
heap, and an idle sink is nothing at all.

The event at the cursor is sent until the receiver answers with 2xx. Failed attempts are repeated on
the schedule of Standard Webhooks; then the event becomes a dead letter, and the next one goes on. A
receiver that answers 410 wants nothing any more: its sink is gone.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import logging
import random
import time
import uuid
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from yarl import URL

from nearcast.server.delivery.pacing import Pacing
from nearcast.server.delivery.posting import retry_after_s
from nearcast.server.delivery.signing import decode_secret, signed_headers
from nearcast.server.delivery.sinks import Attempt, RenderedEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from nearcast.server.delivery.posting import Answer, SinkClient
    from nearcast.server.delivery.sinks import Position, Sink, SinkEvents

__all__ = ["SCHEDULE_S", "Clock", "Retries", "SystemClock", "WebhookSender"]

_HOUR_S = 3600.0
SCHEDULE_S: Final = (
    *(5.0, 300.0, 1800.0, 2 * _HOUR_S, 5 * _HOUR_S, 10 * _HOUR_S),
    *(14 * _HOUR_S, 20 * _HOUR_S, 24 * _HOUR_S),
)
"""How long to wait after each failed attempt."""

EVENT_TYPE: Final = "application/cloudevents+json"
BATCH_TYPE: Final = "application/cloudevents-batch+json"
READ_EVENTS: Final = 64
MAX_DIGEST_EVENTS: Final = 1_000
MAX_DIGEST_BYTES: Final = 1 << 20
_TURN_US = 1_000_000
_MAX_SLEEP_S = 60.0
_AFTER_ERROR_US = 5_000_000

log = logging.getLogger("nearcast")


class Clock(Protocol):
    """The time, and waiting for it."""

    def now_us(self) -> int:
        """Return the microseconds since 1970."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The clock of the system."""

    def now_us(self) -> int:
        """Return the microseconds since 1970."""
        return time.time_ns() // 1000

    async def sleep(self, seconds: float) -> None:
        """Wait; at most a minute at once, since the clock of the system may be changed."""
        await asyncio.sleep(min(seconds, _MAX_SLEEP_S))


class Retries(NamedTuple):
    """When failed attempts are repeated.

    Parameters
    ----------
    schedule_s
        How long to wait after each failed attempt. One failure more makes a dead letter.
    jitter
        Waits are longer by up to this fraction, at random.
    max_dead
        A sink is disabled after this many dead letters without a success in between.
    """

    schedule_s: Sequence[float] = SCHEDULE_S
    jitter: float = 0.2
    max_dead: int = 2

    @property
    def tries(self) -> int:
        """How often an event is sent before it is given up."""
        return len(self.schedule_s) + 1

    def wait_s(self, attempts: int, random: float) -> float:
        """Return how long to wait after a number of failed attempts; 0 if the event is given up."""
        number = attempts % self.tries
        return self.schedule_s[number - 1] * (1 + self.jitter * random) if number else 0.0


class WebhookSender:
    """Sends the events of sinks. All methods are called in the event loop.

    Parameters
    ----------
    events
        The sinks and their events.
    client
        Sends the requests. The caller closes it after the sender.
    retries
        When failed attempts are repeated.
    clock, random
        The time and the source of jitter; tests give others.
    delivered
        Is called with the number of events that a receiver accepted.
    """

    def __init__(
        self,
        events: SinkEvents,
        client: SinkClient,
        *,
        retries: Retries | None = None,
        clock: Clock | None = None,
        random: Callable[[], float] = random.random,
        delivered: Callable[[int], None] = lambda events: None,
    ) -> None:
        self._delivered = delivered
        self._events = events
        self._client = client
        self._retries = retries or Retries()
        self._clock = clock or SystemClock()
        self._random = random
        self._workers: dict[str, _Worker] = {}
        self._waiting: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._alarm: asyncio.Task[None] | None = None
        self._pausing = asyncio.Lock()
        self._stopped: set[str] = set()
        self._closed = False

    @property
    def active(self) -> int:
        """How many sinks have a task, because they have something to send now."""
        return len(self._workers)

    @property
    def waiting(self) -> int:
        """How many sinks wait for a retry, or for what their pacing allows."""
        return len(self._waiting)

    def start(self, sinks: Iterable[Sink]) -> None:
        """Go on with sinks that had unsent events or retries when the server stopped."""
        now_us = self._clock.now_us()
        for sink in sinks:
            if sink.attempts and sink.next_try_us > now_us:
                self._wait(sink.id, sink.next_try_us)
            else:
                self.wake([sink.id])

    def wake(self, sink_ids: Iterable[str]) -> None:
        """Tell that there are new events of some sinks."""
        for sink_id in sink_ids:
            worker = self._workers.get(sink_id)
            if worker is not None:
                worker.again = True
            elif not (sink_id in self._waiting or sink_id in self._stopped or self._closed):
                self._spawn(sink_id)

    async def reload(self, sink_id: str) -> None:
        """Go on with a sink as it is stored now: it was changed, or deleted."""
        async with self.paused(sink_id):
            pass

    async def replay(self, sink_id: str, position: Position) -> None:
        """Send everything after a position once more, now; the ids of the events are the same."""
        await self._restart(sink_id, position)

    async def enable(self, sink_id: str) -> None:
        """Go on with a sink that was disabled or waits for a retry, now."""
        await self._restart(sink_id, None)

    async def test(self, sink: Sink) -> Attempt:
        """Send a test event, once. The cursor of the sink and its retries stay as they are."""
        now_us = self._clock.now_us()
        event = _test_event(now_us, sink)
        async with self._client.slots.take(sink.tenant, _host(sink)):
            attempt, _ = await self._send(sink, [event], Pacing(sink.pacing).is_digest)
        return attempt

    async def settled(self) -> None:
        """Return when no sink has anything to send now."""
        while self._workers:
            await asyncio.wait([worker.task for worker in self._workers.values()])

    async def close(self, grace_s: float = 5.0) -> None:
        """Stop: let requests that are in flight end, for a while, and save all cursors."""
        self._closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        workers = list(self._workers.values())
        for worker in workers:
            worker.stopping = True
        if workers:
            await asyncio.wait([worker.task for worker in workers], timeout=grace_s)
        await asyncio.gather(*[worker.stop() for worker in workers])

    async def _restart(self, sink_id: str, position: Position | None) -> None:
        async with self.paused(sink_id):
            sink = await self._events.sink(sink_id)
            if sink is not None:
                await self._events.save(
                    sink_id,
                    sink.position if position is None else position,
                    attempts=0,
                    next_try_us=0,
                    status="ACTIVE",
                    sent=sink.sent,
                )

    @asynccontextmanager
    async def paused(self, sink_id: str) -> AsyncIterator[None]:
        """Stop a sink, let nothing start it, and start it at the end, if it is still there."""
        async with self._pausing:
            self._stopped.add(sink_id)
            try:
                worker = self._workers.get(sink_id)
                if worker is not None:
                    await worker.stop()
                self._waiting.pop(sink_id, None)
                yield
            finally:
                self._stopped.discard(sink_id)
                self.wake([sink_id])

    def _spawn(self, sink_id: str) -> None:
        self._workers[sink_id] = worker = _Worker(self, sink_id)
        worker.task = asyncio.create_task(self._work(worker))

    async def _work(self, worker: _Worker) -> None:
        wait_until_us: int | None = None
        try:
            wait_until_us = await worker.run()
        except Exception:
            log.exception("webhooks of sink %s failed; trying again", worker.sink_id)
            wait_until_us = self._clock.now_us() + _AFTER_ERROR_US
        finally:
            del self._workers[worker.sink_id]
        if wait_until_us is not None and not worker.stopping:
            self._wait(worker.sink_id, wait_until_us)

    def _wait(self, sink_id: str, until_us: int) -> None:
        if self._closed:
            return
        self._waiting[sink_id] = until_us
        heapq.heappush(self._heap, (until_us, sink_id))
        if self._heap[0] == (until_us, sink_id):  # earlier than what the alarm is set to
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = asyncio.create_task(self._ring())

    async def _ring(self) -> None:
        """Wake sinks when their time has come."""
        while self._heap:
            wait_us = self._heap[0][0] - self._clock.now_us()
            if wait_us > 0:
                await self._clock.sleep(wait_us / 1e6)
                continue
            until_us, sink_id = heapq.heappop(self._heap)
            if self._waiting.get(sink_id) == until_us:  # else it was stopped meanwhile
                del self._waiting[sink_id]
                self._spawn(sink_id)
        self._alarm = None

    async def _send(
        self, sink: Sink, events: Sequence[RenderedEvent], as_batch: bool
    ) -> tuple[Attempt, Answer]:
        """Send events in one request, whose id is that of the last one."""
        body = (
            b"[" + b",".join(event.body for event in events) + b"]" if as_batch else events[0].body
        )
        event_id = events[-1].id
        started_us = self._clock.now_us()
        keys = [decode_secret(secret) for secret in sink.secrets]
        headers = {
            **sink.headers,
            "Content-Type": BATCH_TYPE if as_batch else EVENT_TYPE,
            **signed_headers(keys, event_id, started_us // 1_000_000, body),
        }
        answer = await self._client.post(sink.url, headers, body)
        self._client.slots.note(sink.tenant, _host(sink), answered=answer.is_of_receiver)
        duration_us = self._clock.now_us() - started_us
        attempt = Attempt(started_us, event_id, answer.status, answer.error, duration_us)
        await self._events.note_attempt(sink.id, attempt)
        return attempt, answer


class _Turn(NamedTuple):
    """How a turn of a sink ended, with the sink as it is then."""

    sink: Sink
    wait_until_us: int | None = None
    disable: str = ""
    gone: bool = False
    drained: bool = False


class _Worker:
    """Sends the events of one sink until there are no more, or the next one has to wait."""

    task: asyncio.Task[None]

    def __init__(self, sender: WebhookSender, sink_id: str) -> None:
        self.sink_id = sink_id
        self.again = False
        self.stopping = False
        self._interruptible = False
        self._sender = sender
        self._events = sender._events
        self._clock = sender._clock
        self._retries = sender._retries

    async def stop(self) -> None:
        """End after what is being saved; a request in flight is given up."""
        self.stopping = True
        if self._interruptible:
            self.task.cancel()
        await asyncio.wait([self.task])

    async def run(self) -> int | None:
        """Send events. Return when to go on, if the next event has to wait."""
        sink = await self._events.sink(self.sink_id)
        if sink is None or sink.status == "DISABLED":
            return None
        if sink.attempts and sink.next_try_us > self._clock.now_us():
            return sink.next_try_us
        while not self.stopping:
            turn = await self._turn(sink)
            if turn.sink is not sink:
                await self._save(turn.sink)
                sink = turn.sink
            if turn.disable:
                end = self._events.gone if turn.gone else self._events.disable
                await end(sink.id, turn.disable)
                return None
            if turn.wait_until_us is not None:
                return turn.wait_until_us
            if turn.drained and not self.again:
                return None
        return None

    async def _turn(self, sink: Sink) -> _Turn:
        """Send some events of a sink when it has a slot: sinks of one host take turns."""
        self._interruptible = True
        try:
            async with self._sender._client.slots.take(sink.tenant, _host(sink)):
                self._interruptible = False
                return await self._send_some(sink)
        except asyncio.CancelledError:
            if not self.stopping:
                raise
            self._interruptible = False
            return _Turn(sink)

    async def _send_some(self, sink: Sink) -> _Turn:
        pacing = Pacing(sink.pacing)
        limit = MAX_DIGEST_EVENTS if pacing.is_digest else READ_EVENTS
        end_us = self._clock.now_us() + _TURN_US
        self.again = False
        events = await self._events.read(sink, sink.position, limit)
        done = 0
        while done < len(events) and not self.stopping:
            now_us = self._clock.now_us()
            release_us = pacing.next_release(events[done].time_us, now_us, sink.sent)
            if release_us > now_us:
                return _Turn(sink, wait_until_us=release_us)
            batch = _batch(pacing, events[done:], sink.sent) if pacing.is_digest else [events[done]]
            turn = await self._send_once(sink, pacing, batch)
            sink, done = turn.sink, done + len(batch)
            if turn.disable or turn.wait_until_us is not None:
                return turn
            if pacing.is_capped or now_us >= end_us:  # recent sends are saved after each
                return _Turn(sink)
        return _Turn(sink, drained=len(events) < limit)

    async def _send_once(self, sink: Sink, pacing: Pacing, batch: Sequence[RenderedEvent]) -> _Turn:
        self._interruptible = True
        try:
            attempt, answer = await self._sender._send(sink, batch, pacing.is_digest)
        except asyncio.CancelledError:
            if not self.stopping:
                raise
            return _Turn(sink)
        finally:
            self._interruptible = False
        if not attempt.delivered:
            return await self._failed(sink, batch, attempt, answer)
        self._sender._delivered(len(batch))
        sent = pacing.remember(sink.sent, attempt.time_us, len(batch))
        position = batch[-1].position
        return _Turn(
            replace(sink, position=position, attempts=0, next_try_us=0, status="ACTIVE", sent=sent)
        )

    async def _failed(
        self, sink: Sink, batch: Sequence[RenderedEvent], attempt: Attempt, answer: Answer
    ) -> _Turn:
        """Return when to try again, after an event was given up if this was the last attempt."""
        if answer.status == 410:
            return _Turn(sink, disable="the receiver answered 410 Gone", gone=True)
        attempts = sink.attempts + 1
        now_us = self._clock.now_us()
        wait_s = self._retries.wait_s(attempts, self._sender._random())
        wait_s = max(wait_s, retry_after_s(answer.retry_after, now_us))
        wait_until_us = now_us + int(wait_s * 1e6)
        position = sink.position
        if attempts % self._retries.tries == 0:
            for event in batch:
                await self._events.dead(sink.id, event, attempt.outcome)
            position = batch[-1].position
        sink = replace(
            sink, position=position, attempts=attempts, next_try_us=wait_until_us, status="RETRYING"
        )
        if attempts >= self._retries.tries * self._retries.max_dead:
            return _Turn(sink, disable=f"{attempts} attempts failed; the last: {attempt.outcome}")
        return _Turn(sink, wait_until_us=wait_until_us)

    async def _save(self, sink: Sink) -> None:
        await self._events.save(
            sink.id,
            sink.position,
            attempts=sink.attempts,
            next_try_us=sink.next_try_us,
            status=sink.status,
            sent=sink.sent,
        )


def _host(sink: Sink) -> str:
    return (URL(sink.url).host or "").rstrip(".")


def _batch(
    pacing: Pacing, events: Sequence[RenderedEvent], sent: Sequence[int]
) -> Sequence[RenderedEvent]:
    """Return the first events that make one digest; at least one."""
    count = pacing.count_together([event.time_us for event in events], sent)
    size = len(events[0].body)
    for number in range(1, count):
        size += len(events[number].body) + 1
        if size > MAX_DIGEST_BYTES:
            return events[:number]
    return events[:count]


def _test_event(now_us: int, sink: Sink) -> RenderedEvent:
    event_id = f"test-{uuid.uuid4()}"
    moment = datetime.fromtimestamp(now_us // 1_000_000, UTC)
    event = {
        "specversion": "1.0",
        "id": event_id,
        "source": "/v1",
        "type": "org.nearcast.test",
        "time": moment.isoformat().replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "data": {"sink": sink.id},
    }
    return RenderedEvent(sink.position, event_id, json.dumps(event).encode(), now_us)
