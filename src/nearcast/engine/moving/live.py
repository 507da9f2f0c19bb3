"""What happens over time: living messages, subscriptions that move, and what that changes.

Truth is a set of pairs: a registered subscription and a living message that match. Updates are its
differences. The engine has a *present*, which only goes forward. An event happens at its own time,
but not before the present and not after the clock: a recording replays at its own times, late and
future events happen now. Before an event, everything that expires until then expires, in the order
of time and with the subscriptions of that moment: a message is matched once more, and what it
matches ends. So no pair is stored anywhere.

One lock orders all events that change the set.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import NEVER, Ids, distinct, place_conjunctions
from nearcast.engine.moving.messages import LiveMessages
from nearcast.engine.moving.movers import Movers
from nearcast.engine.moving.ordering import ranks_within
from nearcast.engine.moving.pairs import Pairs, find_pairs
from nearcast.engine.moving.since import Since
from nearcast.engine.moving.updates import Outbox, Updates
from nearcast.indexes.moving import positions_among
from nearcast.segments import Part, deliver, renumber

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nearcast.columns import Regions
    from nearcast.engine.segment import LiveSegment, State
    from nearcast.indexes.moving import Changes, MovingBuilder
    from nearcast.intake import MessageBatch

__all__ = ["BEGINNING", "Live"]

BEGINNING = int(np.iinfo(np.int64).min)
"""The present of an engine without living messages."""

MIN_WORDS = 1024
"""With fewer words, the vocabulary of living messages keeps those that are not used any more."""


class Live:
    """The present, living messages, subscriptions that have moved, and what waits for `advance`.

    Callers hold ``lock`` for everything.

    Parameters
    ----------
    builder
        The moving index.
    clock_us
        The current time.
    state
        Returns the segments.
    reports
        Whether updates that no call returns are kept for `advance`.
    """

    def __init__(
        self,
        builder: MovingBuilder,
        clock_us: Callable[[], int],
        state: Callable[[], State],
        *,
        reports: bool = True,
    ) -> None:
        self.lock = threading.RLock()
        self.builder = builder
        self.messages = LiveMessages(builder.build())
        self.movers = Movers()
        self.outbox = Outbox()
        self.reports = reports
        self.present_us = BEGINNING
        self._heard_us = BEGINNING
        self.stands = False
        self.since = Since()
        self._state = state
        self._clock_us = clock_us
        self._renew_at = MIN_WORDS
        self.handles: Callable[[Ids], NDArray[np.int32]]
        self.released: Callable[[NDArray[np.int32]], None]
        self.relocated: Callable[[NDArray[np.int32], NDArray[np.int32]], None]

    @property
    def nbytes(self) -> int:
        """The bytes of all of this."""
        parts = (self.messages.index, self.messages, self.movers, self.outbox)
        return sum(part.nbytes for part in parts)

    @property
    def lapse_us(self) -> int:
        """The time until which subscriptions have expired for every event, late ones too.

        Only what happens moves it: a recording may be older than the clock, and must give the same
        whenever segments are merged.
        """
        return max(self.present_us, self._heard_us)

    def hear(self, time_us: int) -> None:
        """Something happens at a time of the clock: subscriptions expire until then."""
        # With living messages, the present has to tell what ends by that.
        if not len(self.messages):
            self._heard_us = max(self._heard_us, time_us)

    # --- time ------------------------------------------------------------------------------------

    def moment(self, time_us: int | None) -> int:
        """Return when an event happens, given its time, if it has one."""
        now_us = self._clock_us()
        return max(self.present_us, now_us if time_us is None else min(time_us, now_us))

    def effective_us(self, time_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return when events happen: not before the present, and not after the clock."""
        return np.maximum(np.minimum(time_us, self._clock_us()), self.present_us)

    @property
    def next_expiry_us(self) -> int:
        """When something expires next: a message, or a subscription."""
        if self.stands:
            return NEVER
        return min(self.messages.first_end_us, self.next_lapse_us)

    @property
    def next_lapse_us(self) -> int:
        """When a subscription expires next."""
        first = self.movers.first_expiry_us
        for segment in self._state().segments:
            if segment.first_expiry_us < first:
                first = min(first, segment.next_expiry_us(self.lapse_us))
        return first

    def begin(self, time_us: int | None) -> int:
        """Let everything expire until an event; return when the event happens.

        Parameters
        ----------
        time_us
            The time of the event; now if it has none.
        """
        when = self.moment(time_us)
        # While nothing depends on it, the clock does not move the present: a recording that is
        # replayed after this may be older.
        if time_us is not None or len(self.messages):
            self.advance_to(when)
        else:
            self._drop_movers(*self.movers.due(when))
        return when

    def advance_to(self, until_us: int) -> None:
        """Let everything expire until a time, and make that the present, unless time stands."""
        if until_us <= self.present_us or self.stands:
            return
        mover_us, mover = self.movers.due(until_us)
        lapsing = self._lapsing(until_us) if len(self.messages) else []
        times = {*mover_us.tolist(), *(time for time, _, _ in lapsing)}
        for time_us in sorted(times):
            self._expire_messages(time_us)
            for _, segment, row in [one for one in lapsing if one[0] == time_us]:
                self._lapse(segment, row, time_us)
            due = mover_us == time_us
            self._drop_movers(mover_us[due], mover[due])
        self._expire_messages(until_us)
        self.present_us = until_us
        if len(self.messages.vocabulary) > self._renew_at:
            self._renew_vocabulary()

    def _drop_movers(self, time_us: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        """Let movers expire, all at one time unless no message lives."""
        if len(rows):
            self.released(self.movers.handle(rows))
            self.remove_movers(rows, int(time_us[-1]), before=True)

    def count_living(self) -> int:
        """Return how many messages are alive now."""
        numbers = self.messages.numbers
        now_us = max(self.present_us, self._clock_us())
        return int(np.count_nonzero(self.messages.end_us(numbers) > now_us))

    def _lapsing(self, until_us: int) -> list[tuple[int, LiveSegment, int]]:
        """Return the rows of segments that expire until a time, and when."""
        return [
            (int(segment.subscriptions.expires_us[row]), segment, row)
            for segment in self._state().segments
            if segment.first_expiry_us <= until_us
            for row in segment.expiring(self.lapse_us, until_us).tolist()
        ]

    def _expire_messages(self, until_us: int) -> None:
        """Let messages expire: what matches them at that moment, ends."""
        messages = self.messages
        end_us, number = messages.due(until_us)
        if not len(number):
            return
        ids, order, state = messages.ids(number), messages.order(number), self._state()
        reports = self.reports and bool(state.segments)
        # A subscription that expires at the same time is still there.
        last_us = np.maximum(end_us - 1, self.lapse_us)
        batch = messages.batch(number, last_us) if reports else None
        changes = messages.index.expire(number)
        messages.drop(number)
        if not self.reports:
            self.since.forget_before(messages.first_order)
            return
        at = positions_among(number, changes.message)
        seen = self.since.wanted(self.movers.handle(changes.row), order[at])
        at, subscription = at[seen], self.movers.ids(changes.row[seen])
        if batch is not None:
            found = deliver(state.segments, batch, version=state.version)
            message, ids_found = found.message, found.subscription
            if self.since and len(message):
                seen = self.since.wanted(self.handles(ids_found), order[message])
                message, ids_found = message[seen], ids_found.take(np.flatnonzero(seen))
            at = np.concatenate([at, message])
            subscription = Ids.concatenate([subscription, ids_found])
        rank = np.lexsort((order[at], end_us[at]))
        at, sign = at[rank], np.full(len(at), -1, np.int8)
        self.outbox.add(Updates(end_us[at], subscription.take(rank), ids.take(at), sign))
        self.since.forget_before(messages.first_order)

    def _lapse(self, segment: LiveSegment, row: int, time_us: int) -> None:
        """Let the subscription of a row expire; it is not removed from its segment."""
        if not self.reports:
            return
        part = Part(segment.subscriptions.take(np.array([row])), segment.vocabulary)
        found = self.find(part, segment.handle[row : row + 1])
        self.report(part.subscriptions.ids, self._before(found, time_us), -1, time_us)

    def _before(self, found: Pairs, time_us: int) -> Pairs:
        """Return the pairs of messages that were published before a time."""
        return found.take(self.messages.start_us(found.number) < time_us)

    # --- messages --------------------------------------------------------------------------------

    def times(self, batch: MessageBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return when messages are published and when they expire.

        Messages that nobody keeps expire when they are published.
        """
        stays = batch.ttl_us > 0
        end_us = np.where(batch.ttl_us < NEVER - np.abs(batch.time_us), 0, NEVER)
        end_us = np.where(end_us == 0, batch.time_us + batch.ttl_us, NEVER)
        published = np.where(stays, self.effective_us(batch.time_us), BEGINNING)
        published = np.maximum.accumulate(published)
        time_us = np.where(stays, published, batch.time_us)
        return time_us, np.where(stays, np.maximum(end_us, time_us), time_us)

    def taken(
        self, ids: Ids, time_us: NDArray[np.int64], end_us: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Return which messages cannot be kept, because a message with their id is alive then."""
        stays = end_us > time_us
        number = self.messages.find(ids)
        known = stays & (number >= 0)
        taken = known.copy()
        taken[known] = self.messages.end_us(number[known]) > time_us[known]
        values = ids.tolist()
        if len({*values}) < len(values):
            alive: dict[str | int, int] = {}
            for row in np.flatnonzero(stays).tolist():
                until = alive.get(values[row], BEGINNING)
                if until > time_us[row]:
                    taken[row] = True
                elif not taken[row]:
                    alive[values[row]] = int(end_us[row])
        return taken

    def publish(
        self, batch: MessageBatch, time_us: NDArray[np.int64], end_us: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Ids]:
        """Keep messages of which none is taken; return the ids of movers that all messages match.

        Messages that nobody keeps are matched only. The result is pairs, by message.
        """
        kept, stays = np.flatnonzero(end_us > time_us), np.flatnonzero(batch.ttl_us > 0)
        if len(stays) and stays[0]:  # those before meet subscriptions that expire until then
            return self._publish_in_two(batch, time_us, end_us, int(stays[0]))
        if len(stays):
            self.advance_to(int(time_us[stays[0]]))
        messages = self.messages
        ids = batch.ids.take(kept)
        again = np.flatnonzero(_repeats(ids.tolist()) | (messages.find(ids) >= 0))
        if len(again):  # an id that is free by then
            return self._publish_in_two(batch, time_us, end_us, int(kept[again[0]]))
        message, row = self._match_only(batch, np.flatnonzero(end_us <= time_us))
        if len(kept):
            numbers, changes = messages.add(batch.take(kept), time_us[kept], end_us[kept])
            message = np.concatenate([message, kept[positions_among(numbers, changes.message)]])
            row = np.concatenate([row, changes.row])
            order = np.argsort(message, kind="stable")
            message, row = message[order], row[order]
        unexpired = self.movers.expires_us(row) > time_us[message]
        found = message[unexpired], self.movers.ids(row[unexpired])
        if len(stays):
            self.advance_to(int(time_us[stays[-1]]))
        return found

    def _publish_in_two(
        self,
        batch: MessageBatch,
        time_us: NDArray[np.int64],
        end_us: NDArray[np.int64],
        cut: int,
    ) -> tuple[NDArray[np.int64], Ids]:
        """Publish the messages before a row, and then the others."""
        parts = [
            self.publish(batch.take(rows), time_us[rows], end_us[rows])
            for rows in (np.arange(cut), np.arange(cut, len(batch)))
        ]
        (message, ids), (more, more_ids) = parts
        return np.concatenate([message, more + cut]), Ids.concatenate([ids, more_ids])

    def _match_only(
        self, batch: MessageBatch, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        if not len(rows) or not len(self.movers):
            return np.empty(0, np.int64), np.empty(0, np.int32)
        chosen = batch if len(rows) == len(batch) else batch.take(rows)
        message, row = self.messages.index.match(chosen.number(self.messages.vocabulary))
        return rows[message], row

    # --- pairs -----------------------------------------------------------------------------------

    def find(self, part: Part, handle: NDArray[np.int32]) -> Pairs:
        """Return the living messages that match subscriptions, by position and publication.

        Parameters
        ----------
        part, handle
            The subscriptions and their handles; they need not be registered.
        """
        if not len(self.messages):
            return Pairs.none()
        found = find_pairs(self.messages, part, self._state().scorer)
        # One that has expired is not registered.
        registered = part.subscriptions.expires_us[found.position] > self.lapse_us
        return self._in_order(found.take(registered), handle)

    def _in_order(self, found: Pairs, handle: NDArray[np.int32]) -> Pairs:
        """Return pairs by position and publication, without what a subscription does not want."""
        order = self.messages.order(found.number)
        rank = ranks_within(found.position, order)
        return found.take(rank[self.since.wanted(handle[found.position[rank]], order[rank])])

    def report(self, ids: Ids, found: Pairs, sign: int, time_us: int) -> None:
        """Put pairs that begin or end into the outbox."""
        if self.reports and len(found.number):
            self.outbox.add(self.updates(ids, found, sign, time_us))

    def updates(self, ids: Ids, found: Pairs, sign: int, time_us: int) -> Updates:
        """Return pairs that begin or end as updates."""
        count = len(found.number)
        return Updates(
            np.full(count, time_us),
            ids.take(found.position),
            self.messages.ids(found.number),
            np.full(count, sign, np.int8),
            found.score if sign > 0 and not np.isnan(found.score).all() else None,
        )

    def returned(self, updates: Updates) -> Updates:
        """Return what a call returns, given what it changes at present.

        What waits of the same pairs comes first: whoever applies updates as they come must never
        see the end of a match before its beginning.
        """
        return Updates.concatenate([self.outbox.take_pairs(updates), updates])

    def difference(self, ids: Ids, before: Pairs, after: Pairs, time_us: int) -> Updates:
        """Return what ends and what begins, by position and publication."""
        ended, begun = before.without(after), after.without(before)
        both = Updates.concatenate(
            [self.updates(ids, ended, -1, time_us), self.updates(ids, begun, 1, time_us)]
        )
        position = np.concatenate([ended.position, begun.position])
        number = np.concatenate([ended.number, begun.number])
        return both.take(ranks_within(position, self.messages.order(number)))

    # --- subscriptions ---------------------------------------------------------------------------

    def entered(
        self, part: Part, handle: NDArray[np.int32], time_us: int, *, initial: bool
    ) -> None:
        """Subscriptions have come: what they match, begins, unless they only want what follows."""
        # Somebody else may have had the handle.
        self.since.forget(handle)
        if not len(self.messages):
            return
        if not initial:
            self.since.put(handle, self.messages.next_order)
            return
        if self.reports:
            self.report(part.subscriptions.ids, self.find(part, handle), 1, time_us)

    def leaving(self, segment: LiveSegment, rows: NDArray[Any], time_us: int) -> None:
        """Subscriptions of a segment are about to go: what they match, ends."""
        handle = segment.handle[rows]
        if len(self.messages) and self.reports:
            ascending = np.sort(rows)
            part = Part(segment.subscriptions.take(ascending), segment.vocabulary)
            found = self.find(part, segment.handle[ascending])
            self.report(part.subscriptions.ids, found, -1, time_us)
        self.since.forget(handle)

    def remove_movers(self, rows: NDArray[np.int32], time_us: int, *, before: bool = False) -> None:
        """Movers go: what they match, ends.

        Parameters
        ----------
        rows, time_us
            Which, and when.
        before
            Whether messages that are published at this time come later.
        """
        changes = self.messages.index.delete(rows)
        handle, ids = self.movers.handle(rows), self.movers.ids(rows)
        if self.reports and len(changes):
            found = Pairs.boolean(positions_among(rows, changes.row), changes.message)
            found = self._in_order(found, handle)
            found = self._before(found, time_us) if before else found
            self.report(ids, found, -1, time_us)
        self.movers.drop(rows)
        self.since.forget(handle)

    def take_in(self, part: Part, handle: NDArray[np.int32]) -> NDArray[np.int32]:
        """Put subscriptions into the moving index; return their rows.

        Nothing begins or ends by that.
        """
        clauses = renumber(part, self.messages.vocabulary).clauses
        rows, _ = self.messages.index.insert(clauses)
        self.movers.put(rows, handle, part.subscriptions)
        self.movers.note_clauses(rows, clauses)
        return rows

    def forget_movers(self, rows: NDArray[np.int32]) -> None:
        """Take subscriptions out of the moving index again; nothing begins or ends by that."""
        self.messages.index.delete(rows)
        self.movers.drop(rows)

    def move_boxes(
        self, rows: NDArray[np.int32], box: NDArray[np.int32], time_us: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Updates]:
        """Give plain movers other boxes; return what that changes, and which row each is of."""
        return self._moved(rows, self.messages.index.move(rows, box), time_us)

    def move_regions(
        self, rows: NDArray[np.int32], regions: Regions, time_us: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Updates]:
        """Give movers other regions; return what that changes, and which row each is of."""
        wanted = self.messages.index.clauses(rows).conjunctions()
        clauses = place_conjunctions(wanted, regions)
        changes = self.messages.index.replace(rows, clauses)
        self.movers.note_clauses(rows, clauses)
        return self._moved(rows, changes, time_us)

    def _moved(
        self, rows: NDArray[np.int32], changes: Changes, time_us: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Updates]:
        if not len(changes):
            return np.empty(0, np.int64), Updates.none()
        position = positions_among(rows, changes.row)
        order = self.messages.order(changes.message)
        rank = ranks_within(position, order)
        rank = rank[self.since.wanted(self.movers.handle(changes.row[rank]), order[rank])]
        updates = Updates(
            time_us[position[rank]],
            self.movers.ids(changes.row[rank]),
            self.messages.ids(changes.message[rank]),
            changes.sign[rank],
        )
        return position[rank], updates

    def rescored(self, before: State) -> None:
        """Weights have been counted again: report which ranked matches begin or end by that."""
        numbers = self.messages.numbers
        if not len(numbers) or not self.reports:
            return
        batch = self.messages.batch(numbers, np.full(len(numbers), self.present_us))
        found = []
        for state in (before, self._state()):
            ranked = [segment for segment in state.segments if segment.ranked]
            matches = deliver(ranked, batch, version=state.version)
            columns = (matches.message.tolist(), matches.subscription.tolist(), matches.scores())
            found.append({(m, s): score for m, s, score in zip(*columns, strict=True)})
        for sign, here, there in ((-1, found[0], found[1]), (1, found[1], found[0])):
            pairs = [pair for pair in here if pair not in there]
            ids = Ids.of([subscription for _, subscription in pairs])
            number = numbers[np.array([message for message, _ in pairs], np.int64)]
            score = np.array([here[pair] for pair in pairs], np.float64)
            part = Pairs(np.arange(len(pairs)), number, score)
            if self.since and len(pairs):
                part = part.take(self.since.wanted(self.handles(ids), self.messages.order(number)))
            self.report(ids, part, sign, self.present_us)

    def _renew_vocabulary(self) -> None:
        """Forget words that nobody uses any more, if these are most: everything is built again."""
        messages, movers, index = self.messages, self.movers, self.messages.index
        numbers, rows = messages.numbers, movers.rows
        columns, clauses = index.messages(numbers), index.clauses(rows)
        typed = messages.words(numbers).typed
        used = distinct(np.concatenate([columns.token, clauses.token, clauses.negative, typed]))
        self._renew_at = max(MIN_WORDS, 2 * len(messages.vocabulary))
        if 2 * len(used) > len(messages.vocabulary):
            return

        def numbered(token: NDArray[np.int32]) -> NDArray[np.int32]:
            return np.searchsorted(used, token).astype(np.int32)

        subscriptions = movers.subscriptions(rows, index)
        clauses = replace(
            clauses, token=numbered(clauses.token), negative=numbered(clauses.negative)
        )
        self.messages = messages.renewed(
            self.builder.build(clauses), replace(columns, token=numbered(columns.token)), used
        )
        handle, self.movers = movers.handle(rows), Movers()
        rows = np.arange(len(rows), dtype=np.int32)
        self.movers.put(rows, handle, subscriptions)
        self.movers.note_clauses(rows, clauses)
        self.relocated(handle, rows)
        self._renew_at = max(MIN_WORDS, 2 * len(used))


def _repeats(values: list[str | int]) -> NDArray[np.bool_]:
    """Return which values were there before."""
    again = np.zeros(len(values), np.bool_)
    if len({*values}) < len(values):
        seen: set[str | int] = set()
        for i, value in enumerate(values):
            again[i] = value in seen
            seen.add(value)
    return again
