"""Calls that change the subscriptions of an engine: register, replace, move and remove them."""

from __future__ import annotations

import warnings
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast.engine.arguments import (
    TAKEN,
    ids_of,
    list_of,
    owner_of,
    table_of,
    with_missing,
    with_rejected,
    with_unknown,
)
from nearcast.engine.directory import ALIKE, alike_id, duplicate_id, unknown_id
from nearcast.engine.durable import Durable
from nearcast.engine.published import Moved, Removed, Replaced
from nearcast.engine.replay import (
    advance_call,
    move_call,
    move_table_call,
    replace_call,
    replace_table_call,
    subscribe_call,
    subscribe_table_call,
    unsubscribe_call,
    unsubscribe_owner_call,
    unsubscribe_table_call,
)
from nearcast.errors import ExpressionWarning, shorten
from nearcast.intake import (
    read_moves,
    read_named,
    read_subscriptions,
    subscriptions_from,
    table_from,
)
from nearcast.model import Subscription, expression_hints, time_us
from nearcast.model.checks import identifier, reading_stored
from nearcast.segments import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nearcast.engine.arguments import GivenTable
    from nearcast.engine.moving.mover import Mover
    from nearcast.intake import Rejects
    from nearcast.model import Id, Region, Update
    from nearcast.model.checks import AnyTime

__all__ = ["Registering"]


class Registering(Durable):
    """The part of an engine that registers, replaces, moves and removes subscriptions."""

    _mover: Mover

    def subscribe(
        self,
        subscriptions: Subscription | Iterable[Subscription],
        *,
        initial: bool = True,
        time: AnyTime | None = None,
    ) -> None:
        """Register one or several subscriptions: all of them, or none if one is invalid.

        Parameters
        ----------
        subscriptions
            One subscription or several.
        initial
            Whether they match messages that are alive already (`advance` then tells), or only
            messages from now on.
        time
            When they are registered; now if left out.

        Raises
        ------
        DuplicateId
            When an id is registered already and has not expired, or one that is written alike:
            7 and ``"7"``.
        InvalidInput
            When the tokenizer finds no token in a keyword.

        Examples
        --------
        >>> from nearcast.engine import Engine
        >>> from nearcast.model import Circle, Subscription
        >>> engine = Engine()
        >>> engine.subscribe(Subscription("ann", Circle(11.57, 48.14, 2000), "ipad discount"))
        >>> len(engine)
        1
        """
        self._check_open()
        given = list_of(subscriptions, Subscription)
        _warn(one.expression for one in given)
        vocabulary = self._store.vocabulary
        part = Part(
            subscriptions_from(given, vocabulary, self._tokenizer, keep_words=self._keep_words),
            vocabulary,
        )
        time_us = _time_us(time)
        with self._event(lambda: subscribe_call(given, time_us, initial=initial)) as event:
            self._store.add(part, skip=False, time_us=time_us, initial=initial, event=event)

    def subscribe_table(
        self,
        table: pa.Table | pa.RecordBatch | Any,
        *,
        columns: Mapping[str, str] | None = None,
        initial: bool = True,
        time: AnyTime | None = None,
    ) -> Rejects:
        """Register the subscriptions of a table, and return the rejected rows.

        The accepted ones become visible at the same moment.

        Parameters
        ----------
        table
            The subscriptions; see `nearcast.intake.read_subscriptions` for the columns. A frame of
            pandas or Polars is a table too.
        columns
            Where columns are that are called differently, by our name, such as ``{"lon": "x"}``;
            an empty text leaves a column out.
        initial, time
            As for `subscribe`.

        Returns
        -------
        Rejects
            The rows that were rejected, with field and reason.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from nearcast.engine import Engine
        >>> engine = Engine()
        >>> table = pa.table({"id": [1, 2], "lon": [0, 0], "lat": [0, 95], "radius_m": [5, 5]})
        >>> engine.subscribe_table(table).row.tolist(), len(engine)
        ([1], 1)
        """
        self._check_open()
        given, part, rejects = self._read_table(table, columns)
        time_us = _time_us(time)
        call = partial(subscribe_table_call, given.table, time_us, initial=initial)
        with self._event(call) as event:
            taken, alike = self._store.add(
                part, skip=True, time_us=time_us, initial=initial, event=event
            )
        return with_rejected(given, rejects, [(taken, TAKEN), (alike, ALIKE)])

    def _read_table(
        self, table: Any, columns: Mapping[str, str] | None
    ) -> tuple[GivenTable, Part, Rejects]:
        """Read a table of subscriptions; return it with our names, what it has, and rejects."""
        given = table_of(table, "subscriptions", columns)
        if "expression" in given.table.column_names:
            texts = given.table["expression"]
            if pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type):
                _warn(texts.unique().to_pylist(), calls=4, at_most=1)
        vocabulary = self._store.vocabulary
        read, rejects = read_subscriptions(
            given.table,
            vocabulary,
            self._tokenizer,
            source=given.source,
            keep_words=self._keep_words,
        )
        return given, Part(read, vocabulary), rejects

    def unsubscribe(self, ids: Id | Iterable[Id], *, time: AnyTime | None = None) -> None:
        """Remove one or several subscriptions: all of them, or none if one is unknown.

        Parameters
        ----------
        ids
            The ids.
        time
            When they are removed; now if left out.

        Raises
        ------
        UnknownId
            When an id is not registered, or has expired.

        Examples
        --------
        >>> from nearcast.engine import Engine
        >>> from nearcast.model import Rect, Subscription
        >>> engine = Engine()
        >>> engine.subscribe(Subscription("s1", Rect(0, 0, 1, 1), ["tea"]))
        >>> engine.unsubscribe("s1")
        >>> len(engine)
        0
        """
        self._check_open()
        given, time_us = ids_of(ids), _time_us(time)
        with self._event(lambda: unsubscribe_call(given, time_us)) as event:
            self._store.remove(given, time_us, event)

    def unsubscribe_owner(self, owner: str, *, time: AnyTime | None = None) -> int:
        """Remove all subscriptions of an owner, and return how many there were.

        Parameters
        ----------
        owner
            The owner.
        time
            When they are removed; now if left out.

        Examples
        --------
        >>> from nearcast.engine import Engine
        >>> from nearcast.model import Rect, Subscription
        >>> engine = Engine()
        >>> engine.subscribe(Subscription("s1", Rect(0, 0, 1, 1), ["tea"], owner="ann"))
        >>> engine.unsubscribe_owner("ann"), len(engine)
        (1, 0)
        """
        self._check_open()
        owner, time_us = owner_of(owner), _time_us(time)
        with self._event(lambda: unsubscribe_owner_call(owner, time_us)) as event:
            return self._store.remove_owned([owner], time_us, event)[0]

    def unsubscribe_table(
        self, table: pa.Table | pa.RecordBatch | Any, *, time: AnyTime | None = None
    ) -> Removed:
        """Remove the subscriptions that a table names, by ``id`` or by ``owner``.

        A row that names no subscription is rejected, and the others are removed at the same moment.

        Parameters
        ----------
        table
            A table or frame with a column ``id`` or ``owner``.
        time
            When they are removed; now if left out.

        Returns
        -------
        Removed
            How many were removed, and the rows that name none.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from nearcast.engine import Engine
        >>> from nearcast.model import Rect, Subscription
        >>> engine = Engine()
        >>> engine.subscribe(Subscription("s1", Rect(0, 0, 1, 1), ["tea"]))
        >>> removed = engine.unsubscribe_table(pa.table({"id": ["s1", "s2"]}))
        >>> removed.removed, removed.rejects.reason
        (1, ('is not registered, or has expired',))
        """
        self._check_open()
        table, time_us = table_from(table), _time_us(time)
        named, rejects = read_named(table)
        with self._event(lambda: unsubscribe_table_call(table, time_us)) as event:
            if named.owners is not None:
                counts = np.array(self._store.remove_owned(named.owners, time_us, event), np.int64)
            else:
                counts = 1 - self._store.remove_known(named.ids, time_us, event).astype(np.int64)
        rejects = with_missing(table, rejects, named, named.row[counts == 0])
        return Removed(int(counts.sum()), rejects)

    def move(self, id: Id, region: Region | Any, time: AnyTime | None = None) -> list[Update]:
        """Move a subscription to another region, and return the matches that begin or end.

        Parameters
        ----------
        id
            The id of the subscription.
        region
            A `Region`, or anything that `nearcast.region` takes; a `Point` or ``(lon, lat)`` if
            the subscription is ranked by distance.
        time
            When it moves; now if left out.

        Returns
        -------
        list of Update
            One for every message alive at that time which matches only the new region (sign +1) or
            only the old one (-1), in the order of publication; before them, updates of the same
            messages that wait for `advance`.

        Examples
        --------
        >>> from nearcast.engine import Engine
        >>> from nearcast.model import Message, Rect, Subscription
        >>> engine = Engine()
        >>> engine.subscribe(Subscription("s1", Rect(0, 0, 1, 1), ["tea"]))
        >>> engine.publish(Message("m1", (5, 5), "Tea!", time=100.0, ttl_s=60.0))
        []
        >>> engine.move("s1", Rect(4, 4, 6, 6), time=159.0)
        [Update(time=159.0, subscription_id='s1', message_id='m1', sign=1, score=None)]
        """
        self._check_open()
        id = identifier("id", id)
        time_us = _time_us(time)
        with self._event(lambda: move_call(id, region, time_us)) as event, self._live.lock:
            event.begin()
            updates = self._mover.move(id, region, time_us)
            event.happened()
        return updates.to_list()

    def move_table(
        self, table: pa.Table | pa.RecordBatch | Any, *, columns: Mapping[str, str] | None = None
    ) -> Moved:
        """Move the subscriptions of a table, and return the matches that begin or end.

        Rows are taken by time, equal times by row. A subscription that moves twice at one time
        moves once, to the last place. Late rows all happen now: the one with the latest time
        counts.

        Parameters
        ----------
        table
            The moves; see `nearcast.intake.read_moves` for the columns.
        columns
            Where columns are that are called differently, as for `subscribe_table`.

        Returns
        -------
        Moved
            The updates as a table, and the rows that were rejected.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from nearcast.engine import Engine
        >>> from nearcast.model import Message, Rect, Subscription
        >>> engine = Engine()
        >>> engine.subscribe(Subscription(7, Rect(0, 0, 1, 1), ["tea"]))
        >>> _ = engine.publish(Message("m1", (5, 5), "Tea!", ttl_s=60.0))
        >>> columns = {"subscription_id": [7, 8], "west": [4, 4], "south": [4, 4]}
        >>> moved = engine.move_table(pa.table({**columns, "east": [6, 6], "north": [6, 6]}))
        >>> moved.moved, moved.updates["sign"].to_pylist(), moved.rejects.reason
        (1, [1], ('is not registered, or has expired',))
        """
        self._check_open()
        given = table_of(table, "moves", columns)
        with self._event(lambda: move_table_call(given.table)) as event, self._live.lock:
            event.begin()
            batch, rejects = read_moves(given.table, self._store.kinds_of, source=given.source)
            updates, unknown = self._mover.move_batch(batch)
            event.happened()
        if unknown.any():
            rejects = with_unknown(given, rejects, batch.row[unknown])
        return Moved(updates.to_table(), rejects, len(batch) - int(np.count_nonzero(unknown)))

    def replace(
        self, subscription: Subscription, time: AnyTime | None = None, *, upsert: bool = False
    ) -> list[Update]:
        """Replace what a registered subscription asks for, and return what begins or ends.

        Parameters
        ----------
        subscription
            The new definition, with the id of one that is registered.
        time
            When that happens; now if left out.
        upsert
            Whether to register it if its id is not registered; otherwise that is an error.

        Returns
        -------
        list of Update
            As for `move`.

        Raises
        ------
        UnknownId
            When the id is not registered, or has expired.

        Examples
        --------
        >>> from nearcast.engine import Engine
        >>> from nearcast.model import Message, Rect, Subscription
        >>> engine = Engine(clock=lambda: 5.0)
        >>> engine.subscribe(Subscription("s1", Rect(0, 0, 9, 9), ["tea"]))
        >>> _ = engine.publish(Message("m1", (5, 5), "Milk", ttl_s=60.0))
        >>> engine.replace(Subscription("s1", Rect(0, 0, 9, 9), ["milk"]))
        [Update(time=5.0, subscription_id='s1', message_id='m1', sign=1, score=None)]
        """
        self._check_open()
        [given] = list_of(subscription, Subscription)
        _warn([given.expression])
        time_us, vocabulary = _time_us(time), self._store.vocabulary
        part = Part(
            subscriptions_from([given], vocabulary, self._tokenizer, keep_words=self._keep_words),
            vocabulary,
        )
        with self._event(lambda: replace_call(given, time_us, upsert=upsert)) as event:
            done = self._store.replace_all(part, upsert=upsert, time_us=time_us, event=event)
        if done.busy[0]:
            raise duplicate_id(part.subscriptions.ids, done.busy)
        if done.alike[0]:
            raise alike_id(part.subscriptions.ids, done.alike)
        if done.unknown[0]:
            raise unknown_id(part.subscriptions.ids, done.unknown)
        return done.updates.to_list()

    def replace_table(
        self,
        table: pa.Table | pa.RecordBatch | Any,
        *,
        columns: Mapping[str, str] | None = None,
        upsert: bool = False,
        time: AnyTime | None = None,
    ) -> Replaced:
        """Replace the subscriptions of a table by new definitions, all at the same moment.

        Parameters
        ----------
        table
            The new definitions; see `nearcast.intake.read_subscriptions` for the columns.
        columns
            Which of them are called differently, as for `subscribe_table`.
        upsert
            Whether to register those whose id is not registered; otherwise they are rejected.
        time
            When that happens; now if left out.

        Returns
        -------
        Replaced
            The updates as a table, how many subscriptions were replaced and added, and the rows
            that were rejected.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from nearcast.engine import Engine
        >>> from nearcast.model import Rect, Subscription
        >>> engine = Engine()
        >>> engine.subscribe(Subscription(1, Rect(0, 0, 1, 1), ["tea"]))
        >>> table = pa.table({"id": [1, 2], "lon": [0, 0], "lat": [0, 5], "radius_m": [5, 5]})
        >>> done = engine.replace_table(table, upsert=True)
        >>> done.replaced, done.added, len(done.rejects)
        (1, 1, 0)
        """
        self._check_open()
        given, part, rejects = self._read_table(table, columns)
        time_us = _time_us(time)
        with self._event(lambda: replace_table_call(given.table, time_us, upsert=upsert)) as event:
            done = self._store.replace_all(part, upsert=upsert, time_us=time_us, event=event)
        count = int(np.count_nonzero(~(done.busy | done.alike | done.unknown)))
        busy = "is being registered by another call; try again"
        rejects = with_rejected(
            given,
            rejects,
            [
                (done.unknown, "is not registered, or has expired"),
                (done.busy, busy),
                (done.alike, ALIKE),
            ],
        )
        return Replaced(done.updates.to_table(), rejects, count - done.added, done.added)

    def advance(self, time: AnyTime | None = None) -> pa.Table:
        """Let everything expire until a time, and return all updates that no call returned.

        These are the ends of messages and subscriptions that expired, and what began and ended
        when subscriptions came and went.

        Parameters
        ----------
        time
            Until when; now if left out.

        Returns
        -------
        pyarrow.Table
            ``time``, ``subscription_id``, ``message_id``, ``sign`` (+1 or -1) and ``score``, in
            the order of time.

        Examples
        --------
        >>> from nearcast.engine import Engine
        >>> from nearcast.model import Message, Rect, Subscription
        >>> engine = Engine()
        >>> engine.subscribe(Subscription("s1", Rect(0, 0, 9, 9), ["tea"]))
        >>> _ = engine.publish(Message("m1", (5, 5), "Tea!", time=100.0, ttl_s=60.0))
        >>> engine.advance(200.0).select(["message_id", "sign"]).to_pylist()
        [{'message_id': 'm1', 'sign': -1}]
        """
        self._check_open()
        time_us = _time_us(time)
        with self._event(lambda: advance_call(time_us)) as event, self._live.lock:
            event.begin()
            when = self._live.begin(time_us)
            self._live.hear(when)
            updates = self._live.outbox.take()
            event.happened()
        return updates.to_table()


def _time_us(time: AnyTime | None) -> int | None:
    return None if time is None else time_us("time", time)


def _warn(expressions: Iterable[str | None], calls: int = 3, at_most: int | None = None) -> None:
    """Warn the caller of a method about expressions that are valid and probably not meant."""
    given = [text for text in expressions if text is not None]
    if not given or reading_stored():
        return
    hints = ((text, hint) for text in given for hint in expression_hints(text))
    for text, hint in islice(hints, at_most):
        warnings.warn(f"{shorten(text)}: {hint}", ExpressionWarning, stacklevel=calls)
