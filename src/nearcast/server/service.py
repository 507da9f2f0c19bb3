"""The service: what the HTTP routes call. It brings the threads and the event loop together."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time as clocks
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from nearcast.errors import InvalidInput, StorageError, Trimmed
from nearcast.server.delivery.feeds import Feed, Feeds
from nearcast.server.delivery.rendering import Renderer, event_id
from nearcast.server.delivery.webhooks import SystemClock
from nearcast.server.log.committer import Written
from nearcast.server.log.records import (
    MESSAGES,
    Change,
    Idempotency,
    admin_body,
    changes_body,
    messages_body,
    moves_body,
)
from nearcast.server.matching.events import DamagedEvents
from nearcast.server.matching.pipeline import CheckpointPolicy, Pipeline
from nearcast.server.matching.postings import ALL, Position
from nearcast.server.matching.recovery import Seal, recover
from nearcast.server.matching.registry import Channel
from nearcast.server.matching.retention import Retention, retain, seq_at
from nearcast.server.matching.segments import segment_path
from nearcast.server.private import close_to_others
from nearcast.server.state import Sqlite, State
from nearcast.storage.log import Log as FileLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from nearcast.server.delivery.webhooks import Clock
    from nearcast.server.log import Log
    from nearcast.server.log.committer import Committed
    from nearcast.server.matching.changes import Outcome
    from nearcast.server.matching.events import Block
    from nearcast.server.matching.matcher import Processed
    from nearcast.server.matching.runs import ChosenChannels, Published
    from nearcast.storage.log import Entry, Record

__all__ = [
    "Answer",
    "Gap",
    "IdempotencyMismatch",
    "Link",
    "Observer",
    "Service",
    "Stretch",
    "digest_of",
    "parse_event_id",
]

_log = logging.getLogger("nearcast.server")
_RETAIN_S = 60.0
_PACKED_HERE, _PACKED_HERE_BYTES = 2_000, 1 << 20
_STALE_S = 5.0
IDEMPOTENCY_S = 24 * 3600
"""How long an idempotency key is remembered, at least."""


class IdempotencyMismatch(InvalidInput):
    """An idempotency key was used again, for another request."""


class Stretch(NamedTuple):
    """Numbers of the log, from the first to the last, with the ids of both."""

    first_seq: int
    last_seq: int
    first_id: str
    last_id: str


class Answer(NamedTuple):
    """The answer to a publisher: what was written, and the note about the rest.

    ``stretch`` is None if nothing was to be written.
    """

    stretch: Stretch | None
    note: bytes


class Gap(NamedTuple):
    """Events that cannot be had any more: after an id, up to an id.

    ``lost`` is how many: exact if all events of a trimmed segment had been read, or none of them,
    otherwise an upper bound; None if nobody knows.
    """

    after: str
    to: str
    lost: int | None


class Observer(Protocol):
    """Counts what happens; called in the thread of the event loop."""

    def committed(self, messages: int, waited_s: float) -> None:
        """Hear that messages were written, and how long they had waited."""

    def matched(self, processed: Processed, block: Block, delay_s: float) -> None:
        """Hear that records were matched, their events, and how long after they were written."""


class Link(Protocol):
    """Connects the server with the system that matches instead of it, by threads of its own."""

    def start(self, pipeline: Pipeline) -> None:
        """Start the threads."""

    def wake(self) -> None:
        """Hear that there are new records, in the thread of the matcher."""

    def stop(self) -> None:
        """End the threads."""


@dataclass(slots=True)
class _Request:
    """Somebody who waits for an entry."""

    future: asyncio.Future[Any]
    messages: int
    started: float = field(default_factory=clocks.perf_counter)


class Service:
    """A server without its HTTP. Used in the thread of the event loop that `start` was called in.

    Parameters
    ----------
    folder
        Where checkpoints and events are.
    log, state
        The log and the state; both are closed by `close`.
    policy
        When checkpoints are made.
    retention
        What is kept; everything if it is None.
    seal
        How long segments of events are.
    remote
        Whether another system matches. ``link`` is the connection to it, to be set before `start`.
    clock
        The time; tests give another one.
    """

    def __init__(
        self,
        folder: Path,
        log: Log,
        state: State,
        policy: CheckpointPolicy | None = None,
        retention: Retention | None = None,
        seal: Seal | None = None,
        *,
        remote: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.folder, self.log, self.state = folder, log, state
        recovered = recover(folder, log, state, seal=seal or Seal(), remote=remote)
        self.remote = remote
        self.clock = clock or SystemClock()
        self.link: Link | None = None
        self._recovered: Any = recovered
        self.replayed = recovered.replayed
        self.registry = recovered.matcher.registry
        self.engine = recovered.matcher.engine
        self.events = recovered.events
        self.renderer = Renderer(log, self.registry)
        self.feeds = Feeds(self.events, self.renderer)
        self.feeds.on_damage = self.damaged
        self._policy = policy
        self.retention = retention or Retention()
        self._retaining: asyncio.Task[None] | None = None
        self._trimming = threading.Lock()
        self._closed = False
        self._failure: StorageError | None = None
        self._rebuilding: set[int] = set()
        self.read_only: str | None = None
        self._ended: Callable[[], object] = lambda: None
        self._applying: dict[int, _Request] = {}
        self._publishing: dict[tuple[int, str], tuple[bytes, asyncio.Task[Answer]]] = {}
        self._unnoted: list[tuple[int, tuple[int, str]]] = []
        self._written_at: list[tuple[int, float]] = []
        self.observer: Observer | None = None
        self.on_failure: Callable[[BaseException], None] = lambda error: None
        self.on_rebuilt: list[Callable[[], object]] = []
        self.on_block: list[Callable[[Block], None]] = [self.feeds.put]

    @classmethod
    def open(
        cls,
        folder: Path,
        policy: CheckpointPolicy | None = None,
        *,
        retention: Retention | None = None,
        seal: Seal | None = None,
        clock: Clock | None = None,
        **log: Any,
    ) -> Service:
        """Open the server in a folder, with its log in files and its state in SQLite."""
        close_to_others(folder)
        files = FileLog(folder / "log", **log)
        try:
            state = State(Sqlite(folder / "state.db"))
            try:
                return cls(folder, files, state, policy, retention, seal, clock=clock)
            except BaseException:
                state.close()
                raise
        except BaseException:
            files.close()
            raise

    def only_read(self, why: str, ended: Callable[[], object]) -> None:
        """Refuse everything that would have to be stored, before `start`.

        Parameters
        ----------
        why
            The reason, for operators.
        ended
            Is called when everything is closed.
        """
        self.read_only, self._ended = why, ended
        self._recovered.checkpoints.read_only = True
        self.state.secret("tokens")  # a server that has never run has none yet
        self.state.freeze(why)

    def start(self) -> None:
        """Start the threads."""
        self._loop = asyncio.get_running_loop()
        self.pipeline = Pipeline(
            self.log, self.state, self._recovered, self, self._policy, self.clock.now_us
        )
        self._recovered = None
        self._retaining = self._loop.create_task(self._retain_every_minute())
        if self.link is not None:
            self.link.start(self.pipeline)

    async def close(self) -> None:
        """Write and match what waits, make a checkpoint, and close everything."""
        self.feeds.end()
        if self._retaining is not None:
            self._retaining.cancel()
        await asyncio.to_thread(self._close_threads)
        self.log.close()
        self.state.close()
        self._ended()

    def _close_threads(self) -> None:
        with self._trimming:
            self._closed = True
            if self.link is not None:
                self.link.stop()
            self.pipeline.close()

    async def retain(self) -> None:
        """Remove what need not be kept."""
        await asyncio.to_thread(self._retain)

    def _retain(self) -> None:
        with self._trimming:
            if not self._closed and self.read_only is None:
                now_us = self.clock.now_us()
                self.state.forget_idempotency(now_us - IDEMPOTENCY_S * 1_000_000)
                retain(self.pipeline, self.retention, now_us)

    async def _retain_every_minute(self) -> None:
        while True:
            await asyncio.sleep(_RETAIN_S)
            try:
                await self.retain()
            except StorageError as error:  # the next time may succeed
                _log.warning("old records could not be removed: %s", error)

    # --- writing ---------------------------------------------------------------------------------

    async def publish(
        self, tenant: int, messages: Sequence[bytes], note: bytes, key: str | None, digest: bytes
    ) -> Answer:
        """Publish messages; return when they are on disk.

        Parameters
        ----------
        tenant
            Whose messages they are.
        messages
            Canonical JSON.
        note
            What the answer says besides the numbers. A request with the same key gets it again.
        key, digest
            An idempotency key, and a digest of the request.

        Raises
        ------
        IdempotencyMismatch
            If the key was used for another request.
        StorageError
            If the disk is full, or the log has failed.
        """
        if not messages:
            return Answer(None, note)
        if key is None:
            entry = await _messages_entry(tenant, messages)
            record = await self._write(entry, len(messages))
            return Answer(self._stretch(record.seq, record.count, record.epoch), note)
        return await self._publish_once(tenant, messages, Idempotency(key, digest, note))

    async def _publish_once(
        self, tenant: int, messages: Sequence[bytes], idempotency: Idempotency
    ) -> Answer:
        """Publish messages unless the key was used before.

        The work is a task of its own: it goes on if the client is gone, so that a repeated request
        gets the same answer.
        """
        name = tenant, idempotency.key
        known = self._publishing.get(name)
        if known is not None:
            _check_digest(idempotency, known[0])
            return await asyncio.shield(known[1])
        task = self._loop.create_task(self._publish_new(name, messages, idempotency))
        task.add_done_callback(_retrieve)
        self._publishing[name] = idempotency.digest, task
        return await asyncio.shield(task)

    async def _publish_new(
        self, name: tuple[int, str], messages: Sequence[bytes], idempotency: Idempotency
    ) -> Answer:
        try:
            stored = await asyncio.to_thread(self.state.idempotent, *name)
            if stored is not None:
                _check_digest(idempotency, stored.fingerprint)
                count = stored.last_seq - stored.first_seq + 1
                epoch = self.log.epoch_of(stored.first_seq)
                del self._publishing[name]
                return Answer(self._stretch(stored.first_seq, count, epoch), stored.response)
            entry = await _messages_entry(name[0], messages, idempotency)
            record = await self._write(entry, len(messages))
        except BaseException:
            self._publishing.pop(name, None)
            raise
        self._unnoted.append((record.seq, name))
        self._note_matched(self.pipeline.matched_seq)
        stretch = self._stretch(record.seq, record.count, record.epoch)
        return Answer(stretch, idempotency.answer)

    async def change(self, tenant: int, changes: Sequence[Change]) -> list[Outcome]:
        """Change subscriptions; return what became of each when it is on disk and applied."""
        if not changes:
            return []
        return await self.write(self.entry_of(tenant, changes))

    def entry_of(self, tenant: int, changes: Sequence[Change]) -> Entry:
        """Return what `write` takes for changes: their secrets are sealed if there is a key."""
        return changes_body(tenant, [self._sealed(change) for change in changes])

    def _sealed(self, change: Change) -> Change:
        """Return a change whose secrets can be read only with the key, if there is one."""
        definition, vault = change.definition, self.state.vault
        if definition is None or definition.sink is None or not vault.has_key:
            return change
        sink = vault.seal_sink(definition.sink)
        return change._replace(definition=msgspec.structs.replace(definition, sink=sink))

    async def move(self, tenant: int, moves: Sequence[tuple[str, dict[str, Any]]]) -> list[Outcome]:
        """Move subscriptions; return what became of each when it is on disk and applied."""
        if not moves:
            return []
        return await self.write(moves_body(tenant, moves))

    async def write(self, entry: Entry) -> list[Outcome]:
        """Write changes or moves that are an entry already; packing many takes milliseconds."""
        outcomes: list[Outcome] = await self._write(entry, 0)
        return outcomes

    async def administer(self, change: dict[str, Any]) -> Outcome:
        """Change a tenant, a key or a subscriber; see `nearcast.server.matching.administration`."""
        [outcome] = await self._write(admin_body(change), 0)
        return outcome  # type: ignore[no-any-return]

    @property
    def lead_us(self) -> int:
        """By how much the last record is ahead of the clock of the machine."""
        return self.pipeline.lead_us

    async def repair_clock(self) -> int:
        """Let new records have the time of the clock; return by how much the log was ahead."""
        lead_us = self.lead_us
        if lead_us:
            written = Written()
            self.pipeline.step_back(written)
            error = (await asyncio.to_thread(written.wait)).error
            if error is not None:
                raise error
        return lead_us

    async def _write(self, entry: Entry, messages: int) -> Any:
        if self._failure is not None:
            raise self._failure
        request = _Request(self._loop.create_future(), messages)
        self.pipeline.submit(request, entry)
        return await request.future

    def _stretch(self, first: int, count: int, epoch: int) -> Stretch:
        last = first + count - 1
        return Stretch(
            first,
            last,
            event_id(epoch, Position(first, 0)),
            event_id(epoch, Position(last, 0)),
        )

    # --- reading ---------------------------------------------------------------------------------

    async def channel(self, tenant: int, subscriber: str) -> int:
        """Return the channel of a subscriber; a new subscriber gets one."""
        number = self.registry.channel_of(Channel(tenant, subscriber))
        if not number:
            change = {"op": "subscriber", "tenant": tenant, "name": subscriber, "settings": None}
            number = (await self.administer(change)).handle
        return number

    def pending(self, channel: int, after: Position) -> int:
        """Return how many events of a channel there are after a position."""
        with self._noticing_damage():
            return self.events.count(channel, after)

    def published(self, seqs: NDArray[np.int64]) -> Published:
        """Return whom messages matched when they were published; any thread may call this."""
        try:
            return self.events.published(seqs)
        except DamagedEvents as error:
            self._loop.call_soon_threadsafe(self.damaged, error)
            raise

    def position(self, cursor: str, channel: int | None = None) -> tuple[Position, Gap | None]:
        """Return the position of a cursor, and what is missing after it.

        Parameters
        ----------
        cursor
            The id of an event, ``now``, ``earliest``, or a time (RFC 3339).
        channel
            The channel whose lost events are counted.

        Raises
        ------
        InvalidInput
            If it is none of them.
        """
        first, last = self.feeds.first_seq, self.events.last_seq
        if cursor == "now":
            return Position(last), None
        if cursor == "earliest":
            return Position(first - 1), None
        parsed = parse_event_id(cursor)
        if parsed is None:
            return Position(self.seq_at(_time_us(cursor)) - 1), None
        epoch, position = parsed
        # A message that is on disk is a cursor, even if it is not matched yet.
        if first - 1 <= position.seq <= self.log.last_seq and (
            position.seq < first or self.log.epoch_of(position.seq) == epoch
        ):
            return position, None
        to = event_id(self.log.epoch_of(first), Position(first, 0)) if first <= last else "now"
        lost = None
        if channel is not None and position.seq < first and self._was(position.seq, epoch):
            with self._noticing_damage():
                lost = self.events.lost(channel, position, first)
        return Position(first - 1), Gap(cursor, to, lost)

    def _was(self, seq: int, epoch: int) -> bool:
        """Return whether a record that was trimmed may have been of an epoch."""
        try:
            return self.log.epoch_of(seq) == epoch
        except Trimmed:
            return epoch <= self.log.epoch_of(self.log.first_seq)

    def seq_at(self, time_us: int) -> int:
        """Return the number of the first record that is not before a time."""
        steps = self.pipeline.matcher.clocks.steps
        return seq_at(self.log, time_us, self.feeds.first_seq, self.events.last_seq, steps)

    def epoch_at(self, position: Position) -> int:
        """Return the epoch in which a position was written."""
        known = self.log.first_seq <= position.seq <= self.log.last_seq
        return self.log.epoch_of(position.seq) if known else self.log.epoch

    def subscribers_of(self, tenant: int) -> ChosenChannels:
        """Return what tells which channels are those of the subscribers of a tenant."""
        return partial(self.registry.is_subscriber_of, tenant)

    async def feed(self, tenant: int, subscriber: str | None, after: Position) -> Feed:
        """Return events after a position: of a subscriber, or of all of the tenant if it is None.

        The feed must be closed.
        """
        if subscriber is None:
            return self.feeds.open_joined(self.subscribers_of(tenant), after)
        return self.feeds.open(await self.channel(tenant, subscriber), subscriber, after)

    # --- what the threads say --------------------------------------------------------------------

    def committed(self, group: list[Committed]) -> None:
        """Hear that a group was written, in the thread of the committer."""
        for outcome in group:
            if isinstance(outcome.tag, Written):
                outcome.tag.hear(outcome)
        self._loop.call_soon_threadsafe(self._on_committed, group)

    def matched(self, processed: Processed, block: Block, records: list[Record]) -> None:
        """Hear that records were matched, in the thread of the matcher."""
        if self.link is not None:
            self.link.wake()
        self.renderer.remember(records)
        self._loop.call_soon_threadsafe(self._on_matched, processed, block)

    def failed(self, error: BaseException) -> None:
        """Hear that the threads cannot go on."""
        self._loop.call_soon_threadsafe(self._on_failed, error)

    def damaged(self, error: DamagedEvents) -> None:
        """Hear that events cannot be read: they are computed again, from the log.

        Whoever reads them meanwhile has to wait. If the log and the checkpoints are not enough, the
        process ends, and the next start makes the best of what there is.
        """
        if error.first_seq in self._rebuilding or self._closed:
            return
        path = segment_path(self.folder / "events", error.first_seq)
        _log.error("%s is damaged, and is computed again from the log: %s", path, error)
        self._rebuilding.add(error.first_seq)
        threading.Thread(target=self._rebuild, args=(error,), name="rebuild", daemon=True).start()

    def _rebuild(self, error: DamagedEvents) -> None:
        failure: Exception | None = None
        try:
            self.pipeline.rebuild(error)
        except Exception as problem:
            failure = problem
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._on_rebuilt, error, failure)

    def _on_rebuilt(self, error: DamagedEvents, failure: Exception | None) -> None:
        if failure is None:
            _log.warning(
                "the events of seqs %d to %d are there again", error.first_seq, error.last_seq
            )
            self.feeds.wake_all()
            for listener in self.on_rebuilt:
                listener()
            self._loop.call_later(_STALE_S, self._forget_rebuilt, error)
        elif not self._closed:
            self.events.discard(error)
            problem = f"{error}; that failed here ({failure})"
            again = "start the server again, it computes them from its log"
            self._on_failed(StorageError(f"{problem}; {again}"))

    def _forget_rebuilt(self, error: DamagedEvents) -> None:
        """Wake those who had begun to read a segment before it was replaced, and met damage."""
        self._rebuilding.discard(error.first_seq)
        self.feeds.wake_all()

    @contextmanager
    def _noticing_damage(self) -> Iterator[None]:
        try:
            yield
        except DamagedEvents as error:
            self.damaged(error)
            raise

    def _on_failed(self, error: BaseException) -> None:
        """Answer everybody who waits for the matcher: it has stopped."""
        if self._failure is None:
            text = f"the server has stopped: {error}"
            self._failure = error if isinstance(error, StorageError) else StorageError(text)
            for request in self._applying.values():
                if not request.future.done():
                    request.future.set_exception(self._failure)
            self._applying.clear()
            self.on_failure(error)

    def _on_committed(self, group: list[Committed]) -> None:
        now = clocks.perf_counter()
        for tag, record, error in group:
            if not isinstance(tag, _Request):
                continue
            if record is None:
                if not tag.future.done():
                    tag.future.set_exception(error or StorageError("not written"))
            elif record.kind == MESSAGES:
                if not tag.future.done():
                    tag.future.set_result(record)
                if self.observer is not None:
                    self.observer.committed(tag.messages, now - tag.started)
            elif self._failure is not None:
                if not tag.future.done():
                    tag.future.set_exception(self._failure)
            else:
                self._applying[record.seq] = tag
            if record is not None:
                self._written_at.append((record.seq, now))

    def _on_matched(self, processed: Processed, block: Block) -> None:
        for seq, outcomes in processed.outcomes.items():
            request = self._applying.pop(seq, None)
            if request is not None and not request.future.done():
                request.future.set_result(outcomes)
        self._note_matched(processed.last_seq)
        for listener in self.on_block:
            listener(block)
        if self.observer is not None:
            written = [at for seq, at in self._written_at if seq <= processed.last_seq]
            delay_s = clocks.perf_counter() - written[0] if written else 0.0
            self.observer.matched(processed, block, delay_s)
        self._written_at = [x for x in self._written_at if x[0] > processed.last_seq]

    def _note_matched(self, seq: int) -> None:
        """Forget idempotency keys that the state knows by now."""
        noted = [name for first, name in self._unnoted if first <= seq]
        self._unnoted = [item for item in self._unnoted if item[0] > seq]
        for name in noted:
            self._publishing.pop(name, None)


async def _messages_entry(
    tenant: int, messages: Sequence[bytes], idempotency: Idempotency | None = None
) -> Entry:
    """Return messages as an entry of the log; joining large ones takes milliseconds."""
    if len(messages) <= _PACKED_HERE and sum(map(len, messages)) <= _PACKED_HERE_BYTES:
        return messages_body(tenant, messages, idempotency)
    return await asyncio.to_thread(messages_body, tenant, messages, idempotency)


def digest_of(body: bytes) -> bytes:
    """Return the digest of a request, to compare it with another one."""
    return hashlib.sha256(body).digest()


def _retrieve(task: asyncio.Task[Answer]) -> None:
    """Take note of an error that perhaps nobody waits for."""
    if not task.cancelled():
        task.exception()


def _check_digest(idempotency: Idempotency, known: bytes) -> None:
    if idempotency.digest != known:
        problem = "was used for another request; choose a new key for every request"
        raise IdempotencyMismatch("Idempotency-Key", idempotency.key, problem)


def parse_event_id(cursor: str) -> tuple[int, Position] | None:
    """Return the epoch and the position of an event id; None if it does not look like one."""
    epoch, dash, rest = cursor.partition("-")
    seq, dot, k = rest.partition(".")
    numbers = [epoch, seq, *([k] if dot else [])]
    if not dash or not all(n.isascii() and n.isdigit() and len(n) <= 18 for n in numbers):
        return None
    return int(epoch), Position(int(seq), min(int(k), ALL) if dot else 0)


def _time_us(cursor: str) -> int:
    from nearcast.model import time_us

    problem = "must be the id of an event, now, earliest or a time such as 2026-01-31T12:00:00Z"
    try:
        return time_us("cursor", cursor)
    except InvalidInput:
        raise InvalidInput("cursor", cursor, problem) from None
