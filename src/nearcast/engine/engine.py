"""The engine: a live set of subscriptions that messages are matched against."""

from __future__ import annotations

import time as clocks
import weakref
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast import indexes
from nearcast.engine.arguments import ids_of, list_of, table_of, with_taken
from nearcast.engine.live_messages import LiveMessages, joined
from nearcast.engine.moving import moved, updates_of
from nearcast.engine.published import Published, Stats
from nearcast.engine.restore import each_subscription, subscription_of
from nearcast.engine.snapshot import Snapshot, stored
from nearcast.engine.store import Store
from nearcast.errors import InvalidInput, NearcastError, StorageError, UnknownId
from nearcast.intake import messages_from, read_messages, read_subscriptions, subscriptions_from
from nearcast.model import Match, Message, Subscription, time_us
from nearcast.model import region as region_of
from nearcast.model.checks import identifier
from nearcast.segments import Part, deliver
from nearcast.text import UnicodeWords, Vocabulary, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from nearcast.engine.segment import State
    from nearcast.intake import MessageBatch, Rejects
    from nearcast.model import Id, Region, Time, Update
    from nearcast.text import Tokenizer

__all__ = ["Engine"]


class Engine:
    """A live set of subscriptions that messages are published to.

    Any number of threads may use an engine. A write is seen as a whole or not at all; publishing
    never waits for one. After an error the engine is unchanged.
    Whole tables are taken in and matched many times faster than one object at a time.

    Parameters
    ----------
    index
        The name of an index; see `nearcast.indexes.names`.
    options
        Options of the index.
    tokenizer
        What makes tokens of keywords and texts: any function from a text to its tokens.
    clock
        The present, in seconds since 1970. A subscription whose ``expires_at`` has come is no
        longer registered. It gets no message of that time or later; an earlier one may still
        reach it.

    Examples
    --------
    >>> from nearcast.model import Message, Rect, Subscription
    >>> engine = Engine()
    >>> berlin = Rect(13.0, 52.3, 13.8, 52.7)
    >>> engine.subscribe(Subscription("s1", berlin, ["coffee"]))
    >>> engine.publish(Message("m1", (13.4, 52.5), "The best coffee in town"))
    [Match(message_id='m1', subscription_id='s1', score=None)]
    >>> "s1" in engine, len(engine)
    (True, 1)
    """

    def __init__(
        self,
        index: str = indexes.DEFAULT,
        *,
        options: Mapping[str, Any] | None = None,
        tokenizer: Tokenizer = words,
        clock: Callable[[], float] = clocks.time,
    ) -> None:
        self._clock = clock
        self._tokenizer = tokenizer
        builder = indexes.create(index, **(options or {}))
        statistics = builder.statistics()
        vocabulary = Vocabulary()
        if statistics is not None:  # read once: the folder may be gone when segments are merged
            builder = builder.with_statistics(statistics)
            vocabulary = Vocabulary.from_arrays(statistics.vocabulary.arrays())
        self._live = LiveMessages()
        self._store = Store(builder, vocabulary, self._now_us, trims=not len(vocabulary))
        self._closed = False
        weakref.finalize(self, self._store.worker.stop)

    def subscribe(self, subscriptions: Subscription | Iterable[Subscription]) -> None:
        """Register one or several subscriptions: all of them, or none if one is invalid.

        Raises
        ------
        DuplicateId
            When an id is registered already and has not expired.
        InvalidInput
            When the tokenizer finds no token in a keyword.
        """
        self._check_open()
        given = list_of(subscriptions, Subscription)
        vocabulary = self._store.vocabulary
        columns = subscriptions_from(given, vocabulary, self._tokenizer)
        self._store.add(Part(columns, vocabulary), skip=False)

    def subscribe_table(self, table: pa.Table | pa.RecordBatch) -> Rejects:
        """Register the subscriptions of a table, and return the rejected rows.

        The accepted ones become visible at the same moment. See
        `nearcast.intake.read_subscriptions` for the columns.

        Examples
        --------
        >>> import pyarrow as pa
        >>> engine = Engine()
        >>> table = pa.table({"id": [1, 2], "lon": [0, 0], "lat": [0, 95], "radius_m": [5, 5]})
        >>> engine.subscribe_table(table).row.tolist(), len(engine)
        ([1], 1)
        """
        self._check_open()
        table = table_of(table)
        vocabulary = self._store.vocabulary
        columns, rejects = read_subscriptions(table, vocabulary, self._tokenizer)
        taken = self._store.add(Part(columns, vocabulary), skip=True)
        return with_taken(table, rejects, taken) if taken.any() else rejects

    def unsubscribe(self, ids: Id | Iterable[Id]) -> None:
        """Remove one or several subscriptions: all of them, or none if one is unknown.

        Raises
        ------
        UnknownId
            When an id is not registered, or has expired.
        """
        self._check_open()
        self._store.remove(ids_of(ids))

    def move(self, id: Id, region: Region | Any, time: Time | None = None) -> list[Update]:
        """Move a subscription to another region, and return the matches that begin or end.

        Parameters
        ----------
        id
            The id of the subscription.
        region
            A `Region`, or anything that `nearcast.region` takes.
        time
            When it moves; now if left out.

        Returns
        -------
        list of Update
            One for every message alive at that time which matches only the new region (sign +1) or
            only the old one (-1), in the order of the messages' times.

        Examples
        --------
        >>> from nearcast.model import Message, Rect, Subscription
        >>> engine = Engine()
        >>> engine.subscribe(Subscription("s1", Rect(0, 0, 1, 1), ["tea"]))
        >>> engine.publish(Message("m1", (5, 5), "Tea!", time=100.0, ttl_s=60.0))
        []
        >>> engine.move("s1", Rect(4, 4, 6, 6), time=159.0)
        [Update(time=159.0, subscription_id='s1', message_id='m1', sign=1)]
        """
        self._check_open()
        id, place = identifier("id", id), region_of(region)
        when = self._clock() if time is None else time
        when_us = time_us("time", when)
        # A message is published before the move or after it, never half and half.
        with self._live.lock:
            (segment, row), after = self._store.replace(id, lambda old, row: moved(old, row, place))
            self._live.tick(when_us)
            if not len(self._live):
                return []
            live = self._live.snapshot()
        before = Part(segment.subscriptions.take(np.array([row])), segment.vocabulary)
        return updates_of(before, after, live, when, when_us)

    def publish(self, messages: Message | Iterable[Message]) -> list[Match]:
        """Return the matches of one or several messages, in the order of the messages.

        A message whose ``ttl_s`` is more than 0 is kept until it expires, for `move`.
        """
        self._check_open()
        given = list_of(messages, Message)
        batch = messages_from(given, self._tokenizer, now_us=self._now_us())
        state = self._admit(batch)
        found = deliver(state.segments, batch, version=state.version)
        of_message = [given[row].id for row in found.message.tolist()]
        return [*map(Match, of_message, found.subscription.tolist(), found.scores())]

    def publish_table(self, table: pa.Table | pa.RecordBatch, *, threads: int = 1) -> Published:
        """Publish a table of messages; see `nearcast.intake.read_messages` for the columns.

        Parameters
        ----------
        table
            The messages.
        threads
            How many threads match at the same time.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from nearcast.model import Rect, Subscription
        >>> engine = Engine()
        >>> engine.subscribe(Subscription(7, Rect(0, 0, 1, 1), ["tea"]))
        >>> columns = {"id": ["a", "b"], "text": ["Tea", "Cake"], "lon": [0, 1], "lat": [0, 1]}
        >>> table = pa.table(columns)
        >>> engine.publish_table(table).matches.to_pylist()
        [{'message_id': 'a', 'subscription_id': 7, 'score': None}]
        """
        self._check_open()
        if not isinstance(threads, int) or threads < 1:
            raise InvalidInput("threads", threads, "must be a whole number of at least 1")
        batch, rejects = read_messages(table_of(table), self._tokenizer, now_us=self._now_us())
        state = self._admit(batch)
        found = deliver(state.segments, batch, version=state.version, threads=threads)
        return Published(found.to_table(batch.ids), rejects, len(batch), found.examined)

    def _admit(self, batch: MessageBatch) -> State:
        """Keep the messages that stay alive, and return the state that all of them meet.

        The words of messages are numbered after the state is taken, so no token of its
        subscriptions is unknown. Messages that stay alive are kept and meet their state in one
        step: for a subscription that moves they come either before the move or after it.
        """
        if not batch.any_stays:
            return self._store.state
        kept = batch.take(np.flatnonzero(batch.ttl_us > 0))
        with self._live.lock:
            self._live.add(kept, self._now_us())
            return self._store.state

    def get(self, id: Id) -> Subscription:
        """Return the subscription with this id; it means the same as the one that was given.

        Keywords and expressions come back as tokens.
        """
        place = self._store.find(identifier("id", id))
        if place is None:
            raise UnknownId(f"no subscription with the id {id!r} is registered; subscribe first")
        segment, row = place
        return subscription_of(segment.subscriptions, row, segment.vocabulary)

    def __contains__(self, id: object) -> bool:
        try:
            return self._store.find(identifier("id", id)) is not None
        except InvalidInput:
            return False

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[Subscription]:
        """Yield the subscriptions that are registered now, whatever happens meanwhile."""
        return each_subscription(self._store.state, self._now_us())

    def __repr__(self) -> str:
        name = self._store.builder.index.name
        return f"Engine({name!r}, {len(self):,} subscriptions)"

    def stats(self) -> Stats:
        """Return the size of the engine."""
        sizes = self._store.sizes()
        with self._live.lock:
            live, live_bytes = len(self._live), self._live.nbytes
        return Stats(
            sum(size.alive for size in sizes),
            tuple(size.rows for size in sizes),
            sum(size.dead for size in sizes),
            len(self._store.vocabulary),
            live,
            self._store.nbytes + live_bytes,
        )

    def settle(self) -> None:
        """Merge what was written so far into one segment: no message can be matched faster."""
        self._check_open()
        self._store.merge_all()

    def save(self, folder: str | Path) -> None:
        """Write the engine as it is now into a folder, replacing what an engine wrote there."""
        with self._live.lock:
            state = self._store.merge_vocabularies()
            vocabulary, live = self._store.vocabulary.arrays(), self._live.snapshot()
        Snapshot(
            self._store.builder,
            [stored(segment, state) for segment in state.segments],
            vocabulary,
            joined(live.batches),
            live.vocabulary.arrays(),
            _tokenizer_name(self._tokenizer),
        ).write(folder)

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        tokenizer: Tokenizer = words,
        clock: Callable[[], float] = clocks.time,
        verify: bool = True,
    ) -> Self:
        """Open a saved engine; its arrays are memory-mapped, changes stay in memory.

        Parameters
        ----------
        folder
            What `save` wrote.
        tokenizer
            The same as when it was saved; it cannot be stored if it is not the default one.
        clock
            As for a new engine.
        verify
            Whether to compare every byte with its checksum first.
        """
        snapshot = Snapshot.read(folder, verify=verify)
        if snapshot.tokenizer != _tokenizer_name(tokenizer):
            raise StorageError(
                f"{folder}: was saved with the tokenizer {snapshot.tokenizer!r}, "
                f"not {_tokenizer_name(tokenizer)!r}; open it with the same one"
            )
        builder = snapshot.builder
        engine = cls(
            builder.index.name, options=vars(builder.options), tokenizer=tokenizer, clock=clock
        )
        engine._store.vocabulary = Vocabulary.from_arrays(snapshot.vocabulary)
        engine._live.install(snapshot.live, Vocabulary.from_arrays(snapshot.live_vocabulary))
        engine._store.restore(snapshot.segments)
        return engine

    def close(self) -> None:
        """Stop merging in the background; the engine takes no more calls that change it."""
        self._closed = True
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _now_us(self) -> int:
        return round(self._clock() * 1_000_000)

    def _check_open(self) -> None:
        if self._closed:
            raise NearcastError("the engine is closed; make another one, or open a saved one")


def _tokenizer_name(tokenizer: Tokenizer) -> str:
    return "words" if type(tokenizer) is UnicodeWords else "custom"
