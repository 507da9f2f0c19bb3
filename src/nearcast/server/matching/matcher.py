"""From the log to events: a message meets every subscription as it is at that moment.

Matching is a function of the log. What it returns does not depend on how many records are
processed at a time, on the time of day or on what other threads do: so events can be computed
again, byte by byte, whenever they are needed.

- Records of messages that follow each other are matched by one call of the engine.
- Before a record with a later time, subscriptions expire, and updates that waited are released.
- Engine calls that change something are made per record, and weights of tokens are counted at
  moments that depend on the number of ranked subscriptions only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from nearcast.columns import NEVER, Ids
from nearcast.engine import Engine
from nearcast.intake.json_records import column_type
from nearcast.server.log.clocks import Clocks
from nearcast.server.log.messages import columns_of
from nearcast.server.log.records import (
    ADMIN,
    CHANGES,
    CLOCK,
    MATCHES,
    MESSAGES,
    MOVES,
    read_admin,
    read_changes,
    read_matches,
    read_messages_body,
    read_moves_body,
    time_of,
)
from nearcast.server.matching.administration import administer
from nearcast.server.matching.changes import Changes, Lifecycle, Outcome, channel_of_sink
from nearcast.server.matching.dwell import Dwelling, Waiting
from nearcast.server.matching.postings import (
    ENDED_EXPIRED,
    ENDED_MAX_EVENTS,
    ENDED_SINK_GONE,
    MATCH,
    UNMATCH,
    Postings,
)
from nearcast.server.matching.registry import ACTIVE, ENDED, PAUSED, WANTS, Registry
from nearcast.server.matching.remote import RemoteEngine
from nearcast.server.matching.tables import move_table, place_box
from nearcast.server.state.changes import EXPIRED, PutIdempotency, PutPlace, SetStatus
from nearcast.server.state.tables import Idempotency

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from nearcast.server.log.records import MessagesBody
    from nearcast.storage.log import Record

__all__ = ["Matcher", "Processed", "new_engine"]

MAX_MESSAGES = 20_000
"""The number of messages after which a call of the engine is made."""

_pack = msgspec.msgpack.Encoder().encode
_MIN_COUNTED = 512
"""Below this number of ranked subscriptions, weights are counted only once."""


class Processed(NamedTuple):
    """What some records led to.

    Attributes
    ----------
    postings, last_seq
        The postings of all of them, and the number of the last one.
    outcomes
        What became of changes and moves, by the number of their record.
    changes
        What has to be written to the state.
    messages, matches, examined
        How many there were, and how many candidates had to be verified.
    """

    postings: Postings
    last_seq: int
    outcomes: dict[int, list[Outcome]]
    changes: list[Any]
    messages: int
    matches: int
    examined: int


def new_engine(**settings: Any) -> Engine:
    """Return an engine as matching needs it: it does nothing by itself that can be noticed."""
    return Engine(report="moves", weights="manual", **settings)


class _Pieces:
    """Postings in the order in which they come about."""

    def __init__(self) -> None:
        self._pieces: list[Postings] = []

    def add(
        self,
        registry: Registry,
        seq: NDArray[np.int64],
        handle: NDArray[np.int64],
        message: NDArray[np.int64],
        kind: NDArray[np.uint8],
        score: NDArray[np.float64],
    ) -> None:
        """Add postings for the subscribers, and those for sinks."""
        rows = registry.rows
        channel, sink = rows["channel"][handle], rows["sink"][handle]
        own = Postings(seq, channel, handle.astype(np.uint32), message, kind, score)
        self._pieces.append(own)
        sent = np.flatnonzero(sink)
        if len(sent):
            self._pieces.append(own.take(sent)._replace(channel=sink[sent]))

    def add_lifecycle(self, events: Sequence[Lifecycle]) -> None:
        """Add events in the life of subscriptions."""
        if not events:
            return
        columns = (np.array(column, np.int64) for column in zip(*events, strict=True))
        seq, handle, kind, channel, sink = columns
        own = Postings(
            seq,
            channel.astype(np.uint32),
            handle.astype(np.uint32),
            np.zeros(len(seq), np.int64),
            kind.astype(np.uint8),
            np.full(len(seq), math.nan),
        )
        self._pieces.append(own)
        sent = np.flatnonzero(sink)
        if len(sent):
            self._pieces.append(own.take(sent)._replace(channel=sink[sent].astype(np.uint32)))

    def joined(self) -> Postings:
        """Return all postings, by seq."""
        if not self._pieces:
            return Postings.empty()
        postings = Postings.concatenate(self._pieces)
        if (postings.seq[1:] >= postings.seq[:-1]).all():
            return postings
        return postings.take(np.argsort(postings.seq, kind="stable"))


class Matcher:
    """Turns records into postings. One thread uses it.

    Parameters
    ----------
    engine
        The engine, made by `new_engine` or opened from a checkpoint.
    registry, dwelling
        What else is known of the subscriptions.
    tenants
        The numbers of tenants, by name.
    counted
        How many ranked subscriptions there were when weights were counted.
    clocks
        What the log has told of its time.
    """

    def __init__(
        self,
        engine: Engine,
        registry: Registry | None = None,
        dwelling: Dwelling | None = None,
        tenants: dict[str, int] | None = None,
        counted: int = 0,
        clocks: Clocks | None = None,
    ) -> None:
        self.engine = engine
        self.registry = registry if registry is not None else Registry()
        self.dwelling = dwelling if dwelling is not None else Dwelling()
        self.tenants = tenants if tenants is not None else {"default": 0}
        self.counted = counted
        self.clocks = clocks if clocks is not None else Clocks()
        self._pieces = _Pieces()
        self._outcomes: dict[int, list[Outcome]] = {}
        self._changes: list[Any] = []
        self._messages = self._matches = self._examined = 0
        rows = self.registry.rows
        gone = rows["in_engine"] & (rows["status"] >= ENDED)
        self._ended: list[int] = np.flatnonzero(gone).tolist()

    @property
    def next_us(self) -> int:
        """When something happens by itself, by the clock of the machine: a tick is needed then."""
        due_us = self.dwelling.next_us
        if due_us != NEVER:
            due_us = self.clocks.real_of_engine(due_us)
        return min(self.registry.next_expiry_us, due_us)

    def process(self, records: Iterable[Record]) -> Processed:
        """Process records in their order."""
        self._pieces, self._outcomes, self._changes = _Pieces(), {}, []
        self._messages = self._matches = self._examined = 0
        run: list[Record] = []
        waiting = last = 0
        for record in records:
            if record.kind == CLOCK:
                if run:
                    self._match(run)
                    run, waiting = [], 0
                self.clocks = self.clocks.after(record)
            time_us, last = time_of(record), record.seq + record.count - 1
            passing = self.clocks.real_us(time_us) >= self.next_us
            if run and (record.kind != MESSAGES or passing or waiting >= MAX_MESSAGES):
                self._match(run)
                run, waiting = [], 0
            if passing:
                self._pass_time(record.seq, time_us)
            if record.kind == MESSAGES:
                run.append(record)
                waiting += record.count
            elif record.kind == CHANGES:
                self._change(record)
            elif record.kind == MOVES:
                self._move(record)
            elif record.kind == ADMIN:
                self._administer(record)
            elif record.kind == MATCHES:
                self._receive(record)
        if run:
            self._match(run)
        return Processed(
            self._pieces.joined(),
            last,
            self._outcomes,
            self._changes,
            self._messages,
            self._matches,
            self._examined,
        )

    # --- messages --------------------------------------------------------------------------------

    def _match(self, run: list[Record]) -> None:
        """Match the messages of several records by one call."""
        bodies = [read_messages_body(record) for record in run]
        blobs = [blob for body in bodies for blob in body.messages]
        columns = {
            name: pa.array(values, column_type(name)) for name, values in columns_of(blobs).items()
        }
        counts = [record.count for record in run]
        seq = np.concatenate([np.arange(r.seq, r.seq + r.count) for r in run])
        columns["id"] = pa.array(seq, pa.int64())
        time_us = np.repeat(np.array([body.time_us for body in bodies], np.int64), counts)
        engine_us = time_us + self.clocks.stepped_us
        columns["time"] = pa.array(engine_us, pa.timestamp("us", "UTC"))
        tenants = pa.array([str(body.tenant) for body in bodies], pa.string())
        columns["scope"] = tenants.take(pa.array(np.repeat(np.arange(len(run)), counts)))
        self.engine._clock.set(self.clocks.engine_us(bodies[-1].time_us))
        published = self.engine.publish_table(pa.table(columns))
        if len(published.rejects):
            raise RuntimeError(f"a message of the log was rejected: {published.rejects.reason[0]}")
        for record, body in zip(run, bodies, strict=True):
            if body.idempotency is not None:
                self._changes.append(_idempotency(record, body))
        self._messages += len(blobs)
        self._examined += published.examined
        matches = published.matches
        message = matches["message_id"].to_numpy()
        handle = matches["subscription_id"].to_numpy().astype(np.int64)
        score = matches["score"].to_numpy().astype(np.float64)
        kind = np.full(len(message), MATCH, np.uint8)
        self._matches += len(message)
        for at, one in self._post(message, handle, message, kind, score):
            self._end([one], at, int(time_us[seq.searchsorted(at)]), ENDED_MAX_EVENTS)

    def _post(
        self,
        seq: NDArray[np.int64],
        handle: NDArray[np.int64],
        message: NDArray[np.int64],
        kind: NDArray[np.uint8],
        score: NDArray[np.float64],
    ) -> list[tuple[int, int]]:
        """Post matches that begin and end, in an order that does not depend on the index.

        Returns the subscriptions that had their last event, each after the number of the event.
        """
        rows = self.registry.rows
        wanted = np.where(kind == MATCH, WANTS["match"], WANTS["unmatch"])
        kept = (rows["status"][handle] == ACTIVE) & ((rows["wants"][handle] & wanted) != 0)
        if not kept.any():
            return []
        if message is seq:  # several times as fast as by three columns
            order = np.argsort((seq - seq[0]) << 32 | handle, kind="stable")
        else:
            order = np.lexsort((handle, message, seq))
        order = order[kept[order]]
        seq, handle, message = seq[order], handle[order], message[order]
        kind, score = kind[order], score[order]
        limited = np.flatnonzero(rows["max_events"][handle])
        ended: list[tuple[int, int]] = []
        if len(limited):
            over = []
            for at in limited.tolist():
                row = rows[handle[at]]
                if row["events"] == row["max_events"]:
                    over.append(at)
                    continue
                row["events"] += 1
                if row["events"] == row["max_events"]:
                    ended.append((int(seq[at]), int(handle[at])))
            if over:
                left = np.ones(len(seq), np.bool_)
                left[over] = False
                seq, handle, message = seq[left], handle[left], message[left]
                kind, score = kind[left], score[left]
        self._pieces.add(self.registry, seq, handle, message, kind, score)
        return ended

    def _post_now(self, time_us: int, *columns: Any) -> None:
        """Post matches of one time."""
        for seq, handle in self._post(*columns):
            self._end([handle], seq, time_us, ENDED_MAX_EVENTS)

    def _receive(self, record: Record) -> None:
        """Post matches that another system found; their events are those of this record."""
        if not isinstance(self.engine, RemoteEngine):
            raise RuntimeError("the log has matches of another system; start with --matches again")
        body = read_matches(record)
        self.engine.offsets = body.offsets
        known = body.handle < len(self.registry)
        counts = self.engine.count_for(body.message, body.handle, body.version)
        kept = np.flatnonzero(known & counts)
        self._matches += len(kept)
        seq = np.full(len(kept), record.seq, np.int64)
        kind = np.full(len(kept), MATCH, np.uint8)
        handle, message, score = body.handle[kept], body.message[kept], body.score[kept]
        self._post_now(body.time_us, seq, handle, message, kind, score)

    # --- time ------------------------------------------------------------------------------------

    def _pass_time(self, seq: int, time_us: int) -> None:
        """Let everything happen that is due, before the record with this number."""
        expired = self.registry.take_expired(self.clocks.real_us(time_us))
        self._end(expired, seq, time_us, ENDED_EXPIRED)
        due = self.dwelling.take(self.clocks.engine_us(time_us))
        if due:
            self._post_now(
                time_us,
                np.full(len(due), seq, np.int64),
                np.array([update.handle for update in due], np.int64),
                np.array([update.message for update in due], np.int64),
                np.array([MATCH if u.sign > 0 else UNMATCH for u in due], np.uint8),
                np.array([update.score for update in due], np.float64),
            )

    def _end(self, handles: Sequence[int], seq: int, time_us: int, kind: int) -> None:
        """End subscriptions; the engine forgets them at the next change."""
        events = []
        for handle in handles:
            self.registry.end(handle)
            self.dwelling.forget(handle)
            row = self.registry.rows[handle]
            if row["in_engine"]:
                self._ended.append(handle)
            if row["wants"] & WANTS["subscription-ended"]:
                channels = int(row["channel"]), int(row["sink"])
                events.append(Lifecycle(seq, handle, kind, *channels))
            self._changes.append(SetStatus(seq, handle, EXPIRED, time_us))
        self._pieces.add_lifecycle(events)

    # --- changes of subscriptions ----------------------------------------------------------------

    def _change(self, record: Record) -> None:
        """Apply the changes of a record, in their order."""
        body = read_changes(record)
        self.engine._clock.set(self.clocks.engine_us(body.time_us))
        self._forget_ended()
        changes = Changes(self.engine, self.registry, self.dwelling, body.tenant, body.time_us)
        outcomes = changes.apply(body.changes, record.seq)
        self._pieces.add_lifecycle(changes.lifecycle)
        self._changes += changes.stored  # first: an initial event may be the last one that it has
        self._update(changes.updates, changes.seq_of, body.time_us)
        self._outcomes[record.seq] = outcomes
        self._count_weights()

    def _forget_ended(self) -> None:
        """Let the engine forget subscriptions that have ended."""
        if self._ended:
            self.engine.unsubscribe(self._ended)
            self.registry.rows["in_engine"][self._ended] = False
            self._ended = []

    def _count_weights(self) -> None:
        """Count the weights of tokens when the number of ranked subscriptions has doubled."""
        ranked = self.registry.ranked_count
        first = self.counted == 0 and ranked > 0
        if first or ranked >= max(2 * self.counted, _MIN_COUNTED):
            self._forget_ended()
            self.engine.count_weights()
            self.counted = ranked

    # --- moves -----------------------------------------------------------------------------------

    def _move(self, record: Record) -> None:
        """Move subscriptions, in their order; of several moves of one, the last one counts."""
        body = read_moves_body(record)
        engine_us = self.clocks.engine_us(body.time_us)
        self.engine._clock.set(engine_us)
        rows = self.registry.rows
        outcomes: list[Outcome] = []
        last: dict[int, tuple[int, dict[str, Any]]] = {}
        for seq, (id, place) in enumerate(body.moves, record.seq):
            handle = self.registry.find(body.tenant, id)
            if handle < 0:
                outcomes.append(Outcome("NOT_FOUND", "there is no such subscription"))
            elif rows["status"][handle] == PAUSED:
                outcomes.append(Outcome("CONFLICT", "it is paused; activate it first"))
            else:
                outcomes.append(Outcome("", "", handle, id, seq))
                last[handle] = seq, place
        if last:
            places = [place for _, place in last.values()]
            moved = self.engine.move_table(move_table([*last], places, engine_us))
            refused = {[*last][row]: i for i, row in enumerate(moved.rejects.row.tolist())}
            for at, outcome in enumerate(outcomes):
                if outcome.handle in refused:
                    i = refused[outcome.handle]
                    reason = f"{moved.rejects.field[i]} {moved.rejects.reason[i]}".strip()
                    outcomes[at] = Outcome("INVALID_ARGUMENT", reason)
            for handle, (seq, place) in last.items():
                if handle not in refused:
                    box = place_box(place)
                    self.registry.place(handle, box)
                    self._changes.append(PutPlace(seq, handle, _pack(place), body.time_us, box))
            self._update(moved.updates, {h: seq for h, (seq, _) in last.items()}, body.time_us)
        self._outcomes[record.seq] = outcomes

    def _update(self, updates: pa.Table, seq_of: dict[int, int], time_us: int) -> None:
        """Post matches that begin or end because subscriptions change; some have to last first."""
        if not updates.num_rows:
            return
        handle = updates["subscription_id"].to_numpy().astype(np.int64)
        message = updates["message_id"].to_numpy().astype(np.int64)
        sign = updates["sign"].to_numpy()
        score = updates["score"].to_numpy().astype(np.float64)
        dwell_us = self.registry.rows["dwell_us"][handle]
        waits = dwell_us > 0
        if waits.any() or self.dwelling:
            engine_us = self.clocks.engine_us(time_us)
            waits = self._wait(dwell_us, handle, message, sign, score, engine_us)
        now = np.flatnonzero(~waits)
        seq = np.array([seq_of[one] for one in handle[now].tolist()], np.int64)
        kind = np.where(sign[now] > 0, MATCH, UNMATCH).astype(np.uint8)
        self._post_now(time_us, seq, handle[now], message[now], kind, score[now])

    def _wait(
        self,
        dwell_us: NDArray[np.int64],
        handle: NDArray[np.int64],
        message: NDArray[np.int64],
        sign: NDArray[np.int8],
        score: NDArray[np.float64],
        time_us: int,
    ) -> NDArray[np.bool_]:
        """Let updates wait, or cancel those that wait; return which are not posted now."""
        waits = dwell_us > 0
        columns = (dwell_us, handle, message, sign, score, self._ends_us(message))
        for at, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            lasts_us, one, about, *rest = row
            if self.dwelling.cancel(one, about):
                waits[at] = True
            elif lasts_us:
                self.dwelling.add(Waiting(time_us + lasts_us, one, about, *rest))
        return waits

    def _ends_us(self, message: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return when living messages expire."""
        living = self.engine._live.messages
        return living.end_us(living.find(Ids(message)))

    # --- tenants, keys, subscribers, sinks -------------------------------------------------------

    def _administer(self, record: Record) -> None:
        """Apply a change of a tenant, a key, a subscriber or a sink."""
        body = read_admin(record)
        if body.change["op"] == "sink-gone":
            handles = self.registry.sending_to(channel_of_sink(body.change["id"]))
            self._end(handles, record.seq, body.time_us, ENDED_SINK_GONE)
        outcome, changes = administer(
            body.change, record.seq, body.time_us, self.tenants, self.registry
        )
        self._changes += changes
        self._outcomes[record.seq] = [outcome]


def _idempotency(record: Record, body: MessagesBody) -> PutIdempotency:
    assert body.idempotency is not None
    key, digest, answer = body.idempotency
    last = record.seq + record.count - 1
    row = Idempotency(body.tenant, key, digest, record.seq, last, answer, body.time_us)
    return PutIdempotency(last, row)
