"""Changes of subscriptions: what each leads to, in the registry, the engine and the state."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa

from nearcast.columns import NEVER
from nearcast.model.checks import stored_before
from nearcast.server.matching.postings import ENDED_DELETED, STARTED, UPDATED
from nearcast.server.matching.registry import ACTIVE, ENDED, NEW, PAUSED, WANTS, Channel, Row
from nearcast.server.matching.tables import subscription_table
from nearcast.server.state import changes as stored
from nearcast.server.state.cells import Box
from nearcast.server.state.tables import Channel as StoredChannel
from nearcast.server.state.tables import Sink, Subscriber

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nearcast.engine import Engine
    from nearcast.intake import Rejects
    from nearcast.server.log.records import Change, Definition
    from nearcast.server.matching.dwell import Dwelling
    from nearcast.server.matching.registry import Registry

__all__ = ["Changes", "Lifecycle", "Outcome", "channel_of_sink", "sink_id"]

_ALL_WANTED = sum(WANTS.values())
_pack = msgspec.msgpack.Encoder().encode


class Outcome(NamedTuple):
    """What became of a change or a move: the subscription, or a code and a reason.

    ``code`` is empty if it was done, otherwise ``NOT_FOUND``, ``CONFLICT``, ``PRECONDITION_FAILED``
    or ``INVALID_ARGUMENT``.
    """

    code: str = ""
    reason: str = ""
    handle: int = -1
    id: str = ""
    version: int = 0


class Lifecycle(NamedTuple):
    """An event in the life of a subscription: at which number, for which channels, of what kind."""

    seq: int
    handle: int
    kind: int
    channel: int
    sink: int


class _Put(NamedTuple):
    """A definition that the engine has to take, at which number, and whether it is new there."""

    seq: int
    definition: Definition
    new: bool


class Changes:
    """The changes of one record.

    The registry is changed one by one. The engine gets what is left at the end, in at most three
    calls: nothing can happen between changes of one record.

    Attributes
    ----------
    lifecycle
        Events in the life of subscriptions.
    updates, seq_of
        Matches that begin and end, and the number of the change of each handle.
    stored
        What has to be written to the state.
    """

    def __init__(
        self, engine: Engine, registry: Registry, dwelling: Dwelling, tenant: int, time_us: int
    ) -> None:
        self._engine, self._registry, self._dwelling = engine, registry, dwelling
        self._tenant, self._time_us = tenant, time_us
        self._channels: dict[str, int] = {}
        self._put: dict[int, _Put] = {}
        self._removed: list[int] = []
        self.lifecycle: list[Lifecycle] = []
        self.updates: pa.Table = pa.table({})
        self.seq_of: dict[int, int] = {}
        self.stored: list[stored.Change] = []

    def apply(self, changes: Sequence[Change], first_seq: int) -> list[Outcome]:
        """Apply changes, numbered from ``first_seq`` on; return what became of each."""
        outcomes = [self._apply(change, seq) for seq, change in enumerate(changes, first_seq)]
        refused = self._change_engine()
        if refused:
            self._undo(refused, outcomes)
        return outcomes

    def _apply(self, change: Change, seq: int) -> Outcome:
        registry, tenant = self._registry, self._tenant
        known = -1 if change.id is None else registry.known(tenant, change.id)
        ended = known >= 0 and registry.rows["status"][known] >= ENDED
        handle = -1 if ended else known
        if ended and change.definition is None and not change.expected:
            return self._delete_ended(known, seq)
        if handle < 0 and (change.must_exist or change.definition is None):
            return Outcome("NOT_FOUND", "there is no such subscription")
        reserved = change.id is not None and registry.is_reserved(change.id)
        if known < 0 and reserved:
            return Outcome("NOT_FOUND", "ids of this form are chosen by the server")
        if handle >= 0 and change.expected == 0:
            return Outcome("CONFLICT", "a subscription with this id exists already")
        if change.expected and (handle < 0 or registry.rows["version"][handle] != change.expected):
            return Outcome("PRECONDITION_FAILED", "it was changed meanwhile; read it again")
        if change.definition is None:
            return self._delete(handle, seq)
        if ended and reserved:  # no other subscription can have its id
            return self._define(known, change.id, change.definition, seq)
        if ended:
            self._delete_ended(known, seq)
        return self._define(handle, change.id, change.definition, seq)

    def _delete(self, handle: int, seq: int) -> Outcome:
        registry = self._registry
        id = registry.id_of(handle)
        put = self._put.pop(handle, None)
        if registry.rows["in_engine"][handle] and (put is None or not put.new):
            self._removed.append(handle)
        registry.rows["in_engine"][handle] = False
        registry.delete(handle)
        self._dwelling.forget(handle)
        row = registry.row(handle)
        if row.wants & WANTS["subscription-ended"]:
            self.lifecycle.append(Lifecycle(seq, handle, ENDED_DELETED, row.channel, row.sink))
        self.stored.append(stored.SetStatus(seq, handle, stored.DELETED, self._time_us))
        return Outcome("", "", handle, id, seq)

    def _delete_ended(self, handle: int, seq: int) -> Outcome:
        """Delete a subscription that ended by itself: its id is free."""
        self._registry.delete(handle)
        self.stored.append(stored.SetStatus(seq, handle, stored.DELETED, self._time_us))
        return Outcome("", "", handle, self._registry.id_of(handle), seq)

    def _define(self, handle: int, id: str | None, definition: Definition, seq: int) -> Outcome:
        registry = self._registry
        ended = handle >= 0 and registry.rows["status"][handle] >= ENDED
        new = handle < 0 or ended
        old = NEW if new else registry.row(handle)
        row = self._row(definition, old, seq)
        box = Box(*definition.box)
        if handle < 0:
            handle = registry.add(id, row, box)
        else:
            if ended:
                registry.revive(handle)
            registry.place(handle, box)
            registry.put(handle, old, row)
        before = self._put.pop(handle, None)
        if definition.active:
            fresh = not old.in_engine or (before is not None and before.new)
            self._put[handle] = _Put(seq, definition, fresh)
        else:
            self._dwelling.forget(handle)
            if old.in_engine and (before is None or not before.new):
                self._removed.append(handle)
        kind, name = (STARTED, "started") if new else (UPDATED, "updated")
        if row.wants & WANTS[f"subscription-{name}"]:
            self.lifecycle.append(Lifecycle(seq, handle, kind, row.channel, row.sink))
        id = registry.id_of(handle)
        self.stored.append(self._stored(seq, handle, id, row.sink, definition))
        return Outcome("", "", handle, id, seq)

    def _row(self, definition: Definition, old: Row, seq: int) -> Row:
        """Return what the registry has to know; another limit of events starts a new count."""
        return Row(
            self._tenant,
            self._channel(definition, seq),
            self._sink_channel(definition, seq),
            definition.max_events,
            old.events if definition.max_events == old.max_events else 0,
            ACTIVE if definition.active else PAUSED,
            _wanted(definition),
            definition.kind != "boolean",
            definition.active,
            NEVER if definition.expires_us is None else definition.expires_us,
            definition.dwell_us,
            seq,
        )

    def _channel(self, definition: Definition, seq: int) -> int:
        """Return the channel of the subscriber."""
        subscriber = definition.subscriber
        known = self._channels.get(subscriber)
        if known is not None:
            return known
        number, new = self._registry.add_channel(Channel(self._tenant, subscriber))
        if new:
            row = StoredChannel(number, self._tenant, subscriber)
            self.stored.append(stored.PutChannel(seq, row))
            settings = Subscriber(self._tenant, subscriber, number, {})
            self.stored.append(stored.PutSubscriber(seq, settings))
        self._channels[subscriber] = number
        return number

    def _sink_channel(self, definition: Definition, seq: int) -> int:
        """Return the channel of the sink; 0 if there is none."""
        sink, subscriber = definition.sink, definition.subscriber
        if sink is None:
            return 0
        number, new = self._registry.add_channel(Channel(self._tenant, subscriber, sink.url))
        id = sink_id(number)
        if new:
            row = StoredChannel(number, self._tenant, subscriber, id)
            self.stored.append(stored.PutChannel(seq, row))
        given = Sink(
            id,
            self._tenant,
            subscriber,
            sink.url,
            sink.secrets,
            sink.headers,
            number,
            seq - 1,
            (1 << 31) - 1,
            self._time_us,
        )
        self.stored.append(stored.PutSink(seq, given))
        return number

    def _stored(
        self, seq: int, handle: int, id: str, sink: int, definition: Definition
    ) -> stored.PutDefinition:
        return stored.PutDefinition(
            seq,
            handle,
            self._tenant,
            id,
            definition.subscriber,
            sink_id(sink) if sink else None,
            _pack(definition),
            stored.ACTIVE if definition.active else stored.INACTIVE,
            self._time_us,
            definition.expires_us,
            Box(*definition.box),
            definition.kind,
        )

    # --- the engine ------------------------------------------------------------------------------

    def _change_engine(self) -> dict[int, str]:
        """Make the calls; return the handles that the engine refuses, with the reasons."""
        if self._removed:
            self._engine.unsubscribe(self._removed)
        plain = {h: p for h, p in self._put.items() if p.new and not p.definition.initial}
        others = {h: p for h, p in self._put.items() if h not in plain}
        refused: dict[int, str] = {}
        if plain:
            with stored_before():
                rejects = self._engine.subscribe_table(self._table(plain), initial=False)
            refused |= _reasons([*plain], rejects)
        if others:
            with stored_before():
                replaced = self._engine.replace_table(self._table(others), upsert=True)
            refused |= _reasons([*others], replaced.rejects)
            self.updates = replaced.updates
            self.seq_of = {handle: put.seq for handle, put in others.items()}
        return refused

    def _table(self, puts: dict[int, _Put]) -> pa.Table:
        rows = [put.definition.row for put in puts.values()]
        return subscription_table([*puts], rows, [str(self._tenant)] * len(rows))

    def _undo(self, refused: dict[int, str], outcomes: list[Outcome]) -> None:
        """End subscriptions that the engine refuses, which those who submit changes prevent."""
        for at, outcome in enumerate(outcomes):
            reason = refused.get(outcome.handle)
            if reason is not None and not outcome.code:
                outcomes[at] = Outcome("INVALID_ARGUMENT", reason)
        for handle in refused:
            if handle in self._engine:
                self._engine.unsubscribe(handle)
            self._registry.rows["in_engine"][handle] = False
            self._registry.delete(handle)
            seq = self._put[handle].seq
            self.stored.append(stored.SetStatus(seq, handle, stored.DELETED, self._time_us))
        self.lifecycle = [event for event in self.lifecycle if event.handle not in refused]


def sink_id(channel: int) -> str:
    """Return the id of the sink of a channel."""
    return f"sink-{channel:x}"


def channel_of_sink(id: str) -> int:
    """Return the channel of the sink with an id; 0 if it is no such id."""
    try:
        number = int(id.removeprefix("sink-"), 16)
    except ValueError:
        return 0
    return number if sink_id(number) == id else 0


def _wanted(definition: Definition) -> int:
    if definition.types is None:
        return _ALL_WANTED
    names = {name.removeprefix("org.nearcast.") for name in definition.types}
    return sum(bit for name, bit in WANTS.items() if name in names)


def _reasons(handles: list[int], rejects: Rejects) -> dict[int, str]:
    return {
        handles[row]: f"{field} {reason}".strip()
        for row, field, reason in zip(
            rejects.row.tolist(), rejects.field, rejects.reason, strict=True
        )
    }
