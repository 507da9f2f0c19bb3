"""The log once more, in plain Python: what every record leads to, by the exhaustive scan.

This is a second implementation of what `nearcast.server.matching` does, written for clarity. It
shares the forms of records and postings with it, and nothing else.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from nearcast.columns import NEVER
from nearcast.model.json_form import BOX, CIRCLE
from nearcast.server.audit.scanning import Living, Scanner, Table
from nearcast.server.log.clocks import Clocks
from nearcast.server.log.records import (
    ADMIN,
    CHANGES,
    CLOCK,
    MESSAGES,
    MOVES,
    read_admin,
    read_changes,
    read_messages_body,
    read_moves_body,
    time_of,
)
from nearcast.server.matching.postings import (
    ENDED_DELETED,
    ENDED_EXPIRED,
    ENDED_MAX_EVENTS,
    ENDED_SINK_GONE,
    MATCH,
    STARTED,
    UNMATCH,
    UPDATED,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nearcast.intake import MessageBatch
    from nearcast.server.audit.scanning import Asked, Restored
    from nearcast.server.log.records import Change, Definition
    from nearcast.storage.log import Record

__all__ = ["Posting", "Replay", "Subscription", "Waiting"]

ACTIVE, PAUSED, ENDED, DELETED = "active", "paused", "ended", "deleted"
_GENERATED = re.compile(r"sub-(0|[1-9a-f][0-9a-f]{0,7})")
_PLACES = {*BOX, *CIRCLE, "geometry"}
_RUN_MESSAGES = 2_000
_MIN_COUNTED = 512


class Posting(NamedTuple):
    """What a channel has to get; see `nearcast.server.matching.postings.Postings`."""

    seq: int
    channel: int
    handle: int
    message: int
    kind: int
    score: float


class Waiting(NamedTuple):
    """An update that waits: when it may be posted, its kind and score; when its message expires."""

    due_us: int
    kind: int
    score: float
    ends_us: int


class _Update(NamedTuple):
    """A match that begins or ends at a number of the log."""

    seq: int
    message: int
    handle: int
    kind: int
    score: float


@dataclass(slots=True)
class Subscription:
    """A subscription as it is at a moment.

    ``row`` is that of its definition, at the place it has moved to; ``version`` is the number of
    its last change, and moves are none. It only wants messages after the number ``since``.
    """

    handle: int
    tenant: int
    name: str | None
    definition: Definition
    row: dict[str, Any]
    status: str = ACTIVE
    version: int = 0
    events: int = 0
    since: int = 0
    channel: int = 0
    sink: int = 0
    asked: Asked | None = None

    @property
    def id(self) -> str:
        """The id by which clients know it."""
        return self.name if self.name is not None else f"sub-{self.handle:x}"

    def wants(self, type: str) -> bool:
        """Return whether it wants a type of events."""
        types = self.definition.types
        return types is None or type in types or f"org.nearcast.{type}" in types

    @property
    def over(self) -> bool:
        """Whether it has ended, by itself or because it was deleted."""
        return self.status in (ENDED, DELETED)

    @property
    def limited(self) -> bool:
        """Whether it ends after a number of events."""
        return self.definition.max_events > 0


class Replay:
    """The state of a server after each record, and what has to be posted.

    Attributes
    ----------
    subscriptions
        All subscriptions there ever were, by handle.
    channels
        Tenant, subscriber and URL (None if it is no sink) of the channels, numbered from 1.
    matching
        Whether everything is matched; otherwise only what later events depend on is.
    """

    def __init__(self) -> None:
        self.scanner = Scanner()
        self.subscriptions: list[Subscription] = []
        self.channels: list[tuple[int, str, str | None]] = []
        self._channel_of: dict[tuple[int, str, str | None], int] = {}
        self.matching = True
        self._named: dict[tuple[int, str], int] = {}
        self._tables: dict[tuple[int, bool], Table] = {}
        self._living: dict[int, Living] = {}
        self._expiring: dict[int, int] = {}
        self._next_expiry_us = self._next_waiting_us = NEVER
        self._waiting: dict[tuple[int, int], Waiting] = {}
        self._ranked = self._counted = 0
        self._run: list[tuple[int, int, int, bytes]] = []  # seq, tenant, time, message
        self._posted: list[Posting] = []
        self.clocks = Clocks()

    def resume(
        self,
        subscriptions: list[Subscription],
        waiting: dict[tuple[int, int], Waiting],
        channels: dict[int, tuple[int, str, str | None]],
        counted: int,
    ) -> None:
        """Begin with subscriptions of a later moment, and what was waiting then.

        Parameters
        ----------
        subscriptions
            All of them, by handle.
        waiting
            The updates that wait, by handle and message.
        channels
            Those that get events, by number; ``self.channels`` has all.
        counted
            How many ranked subscriptions there were when weights were counted.
        """
        self.subscriptions = subscriptions
        self._waiting, self._counted = waiting, counted
        self._channel_of = {whose: number for number, whose in channels.items()}
        self._next_waiting_us = min((one.due_us for one in waiting.values()), default=NEVER)
        unended = [one for one in subscriptions if not one.over]
        for one in unended:
            self._ranked += one.definition.kind != "boolean"
            if one.name is not None:
                self._named[one.tenant, one.name] = one.handle
            if one.definition.expires_us is not None:
                self._expiring[one.handle] = one.definition.expires_us
        self._next_expiry_us = min(self._expiring.values(), default=NEVER)
        for tenant in {one.tenant for one in unended}:
            self._read([one for one in unended if one.tenant == tenant and one.status == ACTIVE])

    def restore(self, tenant: int, messages: Restored) -> None:
        """Begin with messages of a tenant that are alive, and that the log does not have."""
        self._living.setdefault(tenant, Living()).restore(messages)

    def remember(self, record: Record) -> None:
        """Keep the messages of an earlier record that stay alive; nothing is posted."""
        if record.kind == MESSAGES:
            self._keep(*_messages(record))
        elif record.kind == CLOCK:
            self.clocks = self.clocks.after(record)

    def process(self, record: Record) -> None:
        """Process the next record; `take` returns what it leads to."""
        if record.kind == CLOCK:
            self._match()
            self.clocks = self.clocks.after(record)
        time_us = time_of(record)
        if record.kind != MESSAGES or len(self._run) >= _RUN_MESSAGES or self._is_due(time_us):
            self._match()
        self._pass_time(record.seq, time_us)
        if record.kind == MESSAGES:
            self._run += _messages(record)[1]
        elif record.kind == CHANGES:
            self._change(record, self.clocks.engine_us(time_us))
        elif record.kind == MOVES:
            self._move(record, self.clocks.engine_us(time_us))
        elif record.kind == ADMIN:
            self._administer(read_admin(record).change, record.seq)

    def take(self) -> list[Posting]:
        """Return what the records so far have to post that was not returned before."""
        self._match()
        posted, self._posted = self._posted, []
        return sorted(posted, key=lambda posting: posting.seq)  # otherwise as they came about

    def find(self, tenant: int, id: str) -> Subscription | None:
        """Return the subscription with an id that has not ended."""
        generated = _GENERATED.fullmatch(id)
        if generated is None:
            handle = self._named.get((tenant, id))
            return None if handle is None else self.subscriptions[handle]
        handle = int(generated[1], 16)
        if handle >= len(self.subscriptions):
            return None
        found = self.subscriptions[handle]
        mine = found.name is None and found.tenant == tenant and not found.over
        return found if mine else None

    # --- messages --------------------------------------------------------------------------------

    def _match(self) -> None:
        """Match the messages that wait."""
        run, self._run = self._run, []
        for tenant in dict.fromkeys(tenant for _, tenant, _, _ in run):
            self._match_of(tenant, [one for one in run if one[1] == tenant])

    def _match_of(self, tenant: int, run: list[tuple[int, int, int, bytes]]) -> None:
        messages = self.scanner.number(self._keep(tenant, run))
        updates = [
            _Update(run[found.message][0], run[found.message][0], found.handle, MATCH, found.score)
            for limited in (True, False)
            if limited or self.matching
            for found in self._table(tenant, limited).match(self.scanner, messages)
        ]
        self._post(updates)

    def _keep(self, tenant: int, run: list[tuple[int, int, int, bytes]]) -> MessageBatch:
        """Return messages of a tenant, and keep those that stay alive."""
        batch = self.scanner.messages([blob for *_, blob in run])
        ttl_us = batch.ttl_us.tolist()
        living = self._living.setdefault(tenant, Living())
        for row, (seq, _, time_us, blob) in enumerate(run):
            if ttl_us[row] > 0:
                ends_us = self.clocks.engine_us(time_us) + ttl_us[row]
                living.add(seq, min(ends_us, NEVER), batch.box[row], blob)
        return batch

    def _post(self, updates: Iterable[_Update]) -> None:
        """Post matches that begin and end, as far as somebody wants them."""
        ended: list[tuple[int, Subscription]] = []
        for seq, message, handle, kind, score in sorted(updates, key=lambda one: one[:3]):
            subscription = self.subscriptions[handle]
            type = "match" if kind == MATCH else "unmatch"
            if subscription.status != ACTIVE or not subscription.wants(type):
                continue
            if subscription.limited:
                if subscription.events == subscription.definition.max_events:
                    continue
                subscription.events += 1
                if subscription.events == subscription.definition.max_events:
                    ended.append((seq, subscription))
            self._put(seq, subscription, message, kind, score)
        for seq, subscription in ended:
            self._end(subscription, seq, ENDED_MAX_EVENTS)

    def _put(
        self, seq: int, subscription: Subscription, message: int, kind: int, score: float
    ) -> None:
        self._posted += _postings(seq, subscription, message, kind, score)

    # --- time ------------------------------------------------------------------------------------

    def _is_due(self, time_us: int) -> bool:
        real_us, engine_us = self.clocks.real_us(time_us), self.clocks.engine_us(time_us)
        return real_us >= self._next_expiry_us or engine_us >= self._next_waiting_us

    def _pass_time(self, seq: int, time_us: int) -> None:
        """Let subscriptions expire, and post what has lasted long enough."""
        if not self._is_due(time_us):
            return
        real_us, engine_us = self.clocks.real_us(time_us), self.clocks.engine_us(time_us)
        expired = sorted((at, handle) for handle, at in self._expiring.items() if at <= real_us)
        for _, handle in expired:
            self._end(self.subscriptions[handle], seq, ENDED_EXPIRED)
        self._next_expiry_us = min(self._expiring.values(), default=NEVER)
        due = [pair for pair, waiting in self._waiting.items() if waiting.due_us <= engine_us]
        updates = []
        for handle, message in due:
            _, kind, score, ends_us = self._waiting.pop((handle, message))
            if kind == UNMATCH or ends_us > engine_us:  # a message that has expired begins nothing
                updates.append(_Update(seq, message, handle, kind, score))
        waiting = (one.due_us for one in self._waiting.values())
        self._next_waiting_us = min(waiting, default=NEVER)
        self._post(updates)

    def _end(self, subscription: Subscription, seq: int, kind: int) -> None:
        self._forget(subscription)
        self._stop_waiting(subscription)
        if subscription.wants("subscription-ended"):
            self._put(seq, subscription, 0, kind, math.nan)

    def _forget(self, subscription: Subscription) -> None:
        """Let a subscription be ended, and its id be free."""
        self._take_out(subscription)
        self._ranked -= subscription.definition.kind != "boolean"
        subscription.status = ENDED
        self._expiring.pop(subscription.handle, None)
        if subscription.name is not None:
            self._named.pop((subscription.tenant, subscription.name), None)

    def _table(self, tenant: int, limited: bool) -> Table:
        return self._tables.setdefault((tenant, limited), Table())

    def _take_out(self, subscription: Subscription) -> None:
        if subscription.asked is not None:
            self._table(subscription.tenant, subscription.limited).remove(subscription.handle)
            subscription.asked = None

    # --- changes ---------------------------------------------------------------------------------

    def _change(self, record: Record, time_us: int) -> None:
        """Apply the changes of a record; of several definitions, only the last one is matched."""
        body = read_changes(record)
        before: dict[int, Asked | None] = {}
        life: list[Posting] = []
        for seq, change in enumerate(body.changes, record.seq):
            self._apply(body.tenant, change, seq, before, life)
        changed = [self.subscriptions[handle] for handle in before]
        refused = self._read([one for one in changed if one.status == ACTIVE])
        self._posted += [posting for posting in life if posting.handle not in refused]
        updates: list[_Update] = []
        for subscription in changed:
            if subscription.asked is not None:
                updates += self._compared(
                    subscription, before[subscription.handle], subscription.version, time_us
                )
        self._update(updates, time_us)
        self._count_weights()

    def _apply(
        self,
        tenant: int,
        change: Change,
        seq: int,
        before: dict[int, Asked | None],
        life: list[Posting],
    ) -> None:
        """Apply one change, unless it is refused; ``before`` gets what was matched until now."""
        id, definition, expected, must_exist = change
        found = None if id is None else self.find(tenant, id)
        ended = None if id is None or found is not None else self._ended(tenant, id)
        if ended is not None and definition is None and not expected:
            ended.status = DELETED
            return
        if found is None and (must_exist or definition is None or expected):
            return
        if found is None and ended is None and id is not None and _GENERATED.fullmatch(id):
            return
        if found is not None and expected is not None and expected != found.version:
            return  # it must not exist, or it was changed meanwhile
        if definition is None:
            assert found is not None
            before.setdefault(found.handle, None)
            self._forget(found)
            found.status = DELETED
            self._stop_waiting(found)
            if found.wants("subscription-ended"):
                life += _postings(seq, found, 0, ENDED_DELETED, math.nan)
            return
        kind, type = UPDATED, "subscription-updated"
        if found is None:
            found = self._new(tenant, id, definition) if ended is None else self._revived(ended)
            kind, type = STARTED, "subscription-started"
        before.setdefault(found.handle, found.asked)
        self._define(found, definition, seq)
        if found.status == PAUSED:
            before[found.handle] = None  # when it is active again, it begins again
            self._stop_waiting(found)
        if found.wants(type):
            life += _postings(seq, found, 0, kind, math.nan)

    def _stop_waiting(self, subscription: Subscription) -> None:
        """Forget the updates of a subscription that wait."""
        for pair in [pair for pair in self._waiting if pair[0] == subscription.handle]:
            del self._waiting[pair]

    def _new(self, tenant: int, id: str | None, definition: Definition) -> Subscription:
        handle = len(self.subscriptions)
        found = Subscription(handle, tenant, id, definition, definition.row)
        self.subscriptions.append(found)
        self._ranked += definition.kind != "boolean"
        if id is not None:
            self._named[tenant, id] = handle
        return found

    def _ended(self, tenant: int, id: str) -> Subscription | None:
        """Return the subscription that ended by itself, if it has an id that nobody can take."""
        generated = _GENERATED.fullmatch(id)
        if generated is None or int(generated[1], 16) >= len(self.subscriptions):
            return None
        found = self.subscriptions[int(generated[1], 16)]
        mine = found.name is None and found.tenant == tenant and found.status == ENDED
        return found if mine else None

    def _revived(self, subscription: Subscription) -> Subscription:
        """Return a subscription that ended by itself, to be defined again."""
        self._ranked += subscription.definition.kind != "boolean"
        subscription.events = 0
        return subscription

    def _define(self, subscription: Subscription, definition: Definition, seq: int) -> None:
        self._take_out(subscription)
        self._ranked += definition.kind != "boolean"
        self._ranked -= subscription.definition.kind != "boolean"
        if definition.max_events != subscription.definition.max_events:
            subscription.events = 0
        subscription.definition, subscription.row = definition, definition.row
        subscription.status = ACTIVE if definition.active else PAUSED
        subscription.version = seq
        tenant, sink = subscription.tenant, definition.sink
        subscription.channel = self._channel(tenant, definition.subscriber, None)
        subscription.sink = 0
        if sink is not None:
            subscription.sink = self._channel(tenant, definition.subscriber, sink.url)
        self._expiring.pop(subscription.handle, None)
        if definition.expires_us is not None:
            self._expiring[subscription.handle] = definition.expires_us
            self._next_expiry_us = min(self._next_expiry_us, definition.expires_us)

    def _channel(self, tenant: int, subscriber: str, url: str | None) -> int:
        whose = tenant, subscriber, url
        if whose not in self._channel_of:
            self.channels.append(whose)
            self._channel_of[whose] = len(self.channels)
        return self._channel_of[whose]

    def _read(self, active: list[Subscription]) -> set[int]:
        """Let active subscriptions be matched; end those that cannot be read, and return them."""
        if not active:
            return set()
        asked = self.scanner.read([subscription.row for subscription in active])
        refused = set()
        for limited in (True, False):
            taken = [
                (subscription.handle, one)
                for subscription, one in zip(active, asked, strict=True)
                if one is not None and subscription.limited == limited
            ]
            table = self._table(active[0].tenant, limited)
            table.add([handle for handle, _ in taken], [one for _, one in taken])
        for subscription, one in zip(active, asked, strict=True):
            subscription.asked = one
            if one is None:
                refused.add(subscription.handle)
                self._forget(subscription)
        return refused

    def _compared(
        self, subscription: Subscription, before: Asked | None, seq: int, time_us: int
    ) -> list[_Update]:
        """Return which living messages match now and did not before, and the other way round."""
        definition, handle = subscription.definition, subscription.handle
        if before is None:
            subscription.since = 0 if definition.initial else seq
        wanted = self.matching or subscription.limited or definition.dwell_us
        living = self._living.get(subscription.tenant)
        if living is None or not wanted or subscription.asked is None:
            return []

        def matching(asked: Asked) -> dict[int, float]:
            return living.matching(self.scanner, asked.alone(), subscription.since, time_us)

        old = {} if before is None else matching(before)
        new = matching(subscription.asked)
        return [
            *(_Update(seq, m, handle, UNMATCH, math.nan) for m in old if m not in new),
            *(_Update(seq, m, handle, MATCH, new[m]) for m in new if m not in old),
        ]

    def _update(self, updates: list[_Update], time_us: int) -> None:
        """Post what begins and ends, or let it wait; opposites that wait cancel each other."""
        now = []
        for update in updates:
            dwell_us = self.subscriptions[update.handle].definition.dwell_us
            pair = update.handle, update.message
            if self._waiting.pop(pair, None) is not None:
                continue
            if not dwell_us:
                now.append(update)
            else:
                tenant = self.subscriptions[update.handle].tenant
                ends_us = self._living[tenant].end_us(update.message)
                due_us = time_us + dwell_us
                self._waiting[pair] = Waiting(due_us, update.kind, update.score, ends_us)
                self._next_waiting_us = min(self._next_waiting_us, time_us + dwell_us)
        self._post(now)

    def _count_weights(self) -> None:
        """Count the weights of tokens at the moments that the number of ranked ones determines."""
        first = self._counted == 0 and self._ranked > 0
        if first or self._ranked >= max(2 * self._counted, _MIN_COUNTED):
            self.scanner.count_weights([*self._tables.values()])
            self._counted = self._ranked

    # --- administration --------------------------------------------------------------------------

    def _administer(self, change: dict[str, Any], seq: int) -> None:
        """Apply what concerns channels: new subscribers, and sinks that are gone or removed."""
        if change["op"] == "subscriber":
            self._channel(change["tenant"], change["name"], None)
        if change["op"] not in ("sink-gone", "remove-sink"):
            return
        channel = int(change["id"].removeprefix("sink-"), 16)
        using = [one for one in self.subscriptions if one.sink == channel and not one.over]
        if change["op"] == "sink-gone":
            for subscription in using:
                self._end(subscription, seq, ENDED_SINK_GONE)
        elif using:
            return
        for whose, number in [*self._channel_of.items()]:
            if number == channel and whose[2] is not None:
                del self._channel_of[whose]  # the next one with this address gets another channel

    # --- moves -----------------------------------------------------------------------------------

    def _move(self, record: Record, time_us: int) -> None:
        """Move subscriptions; of several moves of one, the last one counts."""
        body = read_moves_body(record)
        last: dict[int, tuple[int, dict[str, Any]]] = {}
        for seq, (id, place) in enumerate(body.moves, record.seq):
            found = self.find(body.tenant, id)
            if found is not None and found.status == ACTIVE:
                last[found.handle] = seq, place
        moved = [self.subscriptions[handle] for handle in last]
        if not moved:
            return
        rows = [_placed(one.row, last[one.handle][1]) for one in moved]
        valid = [asked is not None for asked in self.scanner.read(rows)]
        before: dict[int, Asked | None] = {}
        for subscription, row, possible in zip(moved, rows, valid, strict=True):
            if possible:
                before[subscription.handle] = subscription.asked
                self._take_out(subscription)
                subscription.row = row
        self._read([self.subscriptions[handle] for handle in before])
        updates: list[_Update] = []
        for handle, asked in before.items():
            found = self.subscriptions[handle]
            updates += self._compared(found, asked, last[handle][0], time_us)
        self._update(updates, time_us)


def _postings(
    seq: int, subscription: Subscription, message: int, kind: int, score: float
) -> list[Posting]:
    """Return what the subscriber and the sink of a subscription, as it is now, have to get."""
    return [
        Posting(seq, channel, subscription.handle, message, kind, score)
        for channel in (subscription.channel, subscription.sink)
        if channel
    ]


def _messages(record: Record) -> tuple[int, list[tuple[int, int, int, bytes]]]:
    """Return the tenant of messages, and seq, tenant, time and JSON of each."""
    time_us, tenant, blobs, _ = read_messages_body(record)
    return tenant, [(seq, tenant, time_us, blob) for seq, blob in enumerate(blobs, record.seq)]


def _placed(row: dict[str, Any], place: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a subscription at another place."""
    words = {name: value for name, value in row.items() if name not in _PLACES}
    return words | {name: value for name, value in place.items() if name in _PLACES}
