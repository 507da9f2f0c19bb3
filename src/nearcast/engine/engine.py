"""The engine: a live set of subscriptions that messages are matched against."""

from __future__ import annotations

import time as clocks
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast import indexes
from nearcast.columns import Scoring, frozen
from nearcast.engine.arguments import (
    ids_of,
    list_of,
    table_of,
    with_living,
    with_taken,
    with_unknown,
)
from nearcast.engine.directory import living_id
from nearcast.engine.explain import explain_row
from nearcast.engine.moving.live import Live
from nearcast.engine.moving.mover import Mover
from nearcast.engine.opening import open_saved, snapshot_of
from nearcast.engine.published import Moved, Published, Stats
from nearcast.engine.restore import each_subscription, subscription_of
from nearcast.engine.store import Store
from nearcast.errors import InvalidInput, NearcastError, UnknownId
from nearcast.indexes import moving as moving_indexes
from nearcast.intake import (
    is_table,
    messages_from,
    read_messages,
    read_moves,
    read_subscriptions,
    subscriptions_from,
)
from nearcast.model import Match, Message, Subscription, time_us
from nearcast.model.checks import identifier
from nearcast.segments import Part, Scorer, Segment, deliver
from nearcast.text import Vocabulary, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from nearcast.intake import MessageBatch, Rejects
    from nearcast.model import Explanation, Id, Region, Update
    from nearcast.model.checks import AnyTime
    from nearcast.segments import Delivery
    from nearcast.text import Tokenizer

__all__ = ["Engine"]

_REPORTS = ("all", "moves")


class Engine:
    """A live set of subscriptions that messages are published to.

    Any number of threads may use an engine. A write is seen as a whole or not at all. Publishing
    never waits for an index to be built or merged; messages that stay alive, and all messages once
    something has moved, take turns with writes. After an error the subscriptions are unchanged.
    Whole tables are taken in and matched many times faster than one object at a time.

    Parameters
    ----------
    index
        The name of an index; see `nearcast.indexes.names`.
    options
        Options of the index.
    tokenizer
        What makes tokens of keywords and texts: any function from a text to its tokens.
    similarity
        How ranked subscriptions compare words: ``containment`` (the share of their keywords that
        occur, weighed by rarity; the default), ``overlap`` (the same, all words equal),
        ``jaccard``, ``dice`` or ``cosine``.
    distance
        How they measure distance: ``geodesic`` (on the sphere; the default) or ``planar``
        (degrees as on a flat map).
    moving, moving_options
        The index of living messages and of subscriptions that have moved, and its options; see
        `nearcast.indexes.moving.names`.
    report
        ``all`` keeps updates that no call returns until `advance` is called; ``moves`` keeps none,
        for those who never call it.
    clock
        The current time, in seconds since 1970. A subscription whose ``expires_at`` has come is no
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
        similarity: str = "containment",
        distance: str = "geodesic",
        moving: str = moving_indexes.DEFAULT,
        moving_options: Mapping[str, Any] | None = None,
        report: str = "all",
        clock: Callable[[], float] = clocks.time,
    ) -> None:
        self._clock = clock
        self._tokenizer = tokenizer
        if index in moving_indexes.names():
            raise InvalidInput("index", index, "is a moving index; give it as moving=")
        builder = indexes.create(index, **(options or {}))
        statistics = builder.statistics()
        vocabulary = Vocabulary()
        if statistics is not None:  # read once: the folder may be gone when segments are merged
            builder = builder.with_statistics(statistics)
            vocabulary = Vocabulary.from_arrays(statistics.vocabulary.arrays())
        if report not in _REPORTS:
            raise InvalidInput("report", report, f"must be one of {', '.join(_REPORTS)}")
        self._live = Live(
            moving_indexes.create(moving, **(moving_options or {})),
            self._now_us,
            lambda: self._store.state,
            reports=report == "all",
        )
        self._store = Store(
            builder,
            vocabulary,
            self._now_us,
            scorer=Scorer.new(Scoring(similarity, distance)),
            live=self._live,
            trims=not len(vocabulary),
        )
        self._mover = Mover(self._store, self._live)
        self._closed = False
        weakref.finalize(self, self._store.worker.stop)

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
            When an id is registered already and has not expired.
        InvalidInput
            When the tokenizer finds no token in a keyword.
        """
        self._check_open()
        given = list_of(subscriptions, Subscription)
        vocabulary = self._store.vocabulary
        columns = subscriptions_from(given, vocabulary, self._tokenizer)
        self._store.add(
            Part(columns, vocabulary), skip=False, time_us=_time_us(time), initial=initial
        )

    def subscribe_table(
        self,
        table: pa.Table | pa.RecordBatch | Any,
        *,
        columns: Mapping[str, str] | None = None,
        initial: bool = True,
        time: AnyTime | None = None,
    ) -> Rejects:
        """Register the subscriptions of a table, and return the rejected rows.

        The accepted ones become visible at the same moment. See
        `nearcast.intake.read_subscriptions` for the columns; ``columns`` tells which of them are
        called differently. A frame of pandas or Polars is a table too.

        Examples
        --------
        >>> import pyarrow as pa
        >>> engine = Engine()
        >>> table = pa.table({"id": [1, 2], "lon": [0, 0], "lat": [0, 95], "radius_m": [5, 5]})
        >>> engine.subscribe_table(table).row.tolist(), len(engine)
        ([1], 1)
        """
        self._check_open()
        given = table_of(table, "subscriptions", columns)
        vocabulary = self._store.vocabulary
        read, rejects = read_subscriptions(
            given.table, vocabulary, self._tokenizer, source=given.source
        )
        taken = self._store.add(
            Part(read, vocabulary), skip=True, time_us=_time_us(time), initial=initial
        )
        return with_taken(given, rejects, taken) if taken.any() else rejects

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
        """
        self._check_open()
        self._store.remove(ids_of(ids), _time_us(time))

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
            only the old one (-1), in the order of publication.

        Examples
        --------
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
        with self._live.lock:
            return self._mover.move(id, region, time_us).to_list()

    def move_table(
        self, table: pa.Table | pa.RecordBatch | Any, *, columns: Mapping[str, str] | None = None
    ) -> Moved:
        """Move the subscriptions of a table; see `nearcast.intake.read_moves` for the columns.

        ``columns`` tells which of them are called differently.

        Rows are taken by time, equal times by row. A subscription that moves twice at one time
        moves once, to the last place.

        Examples
        --------
        >>> import pyarrow as pa
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
        with self._live.lock:
            batch, rejects = read_moves(given.table, self._store.by_distance, source=given.source)
            updates, unknown = self._mover.move_batch(batch)
        if unknown.any():
            rejects = with_unknown(given, rejects, batch.row[unknown])
        return Moved(updates.to_table(), rejects, len(batch) - int(np.count_nonzero(unknown)))

    def replace(self, subscription: Subscription, time: AnyTime | None = None) -> list[Update]:
        """Replace what a registered subscription asks for, and return what begins or ends.

        Parameters
        ----------
        subscription
            The new definition, with the id of one that is registered.
        time
            When that happens; now if left out.

        Examples
        --------
        >>> from nearcast.model import Message, Rect, Subscription
        >>> engine = Engine(clock=lambda: 5.0)
        >>> engine.subscribe(Subscription("s1", Rect(0, 0, 9, 9), ["tea"]))
        >>> _ = engine.publish(Message("m1", (5, 5), "Milk", ttl_s=60.0))
        >>> engine.replace(Subscription("s1", Rect(0, 0, 9, 9), ["milk"]))
        [Update(time=5.0, subscription_id='s1', message_id='m1', sign=1, score=None)]
        """
        self._check_open()
        [given] = list_of(subscription, Subscription)
        time_us = _time_us(time)

        def changed(part: Part) -> Part:
            vocabulary = self._store.vocabulary
            return Part(subscriptions_from([given], vocabulary, self._tokenizer), vocabulary)

        with self._live.lock:
            return self._mover.replace(given.id, changed, time_us).to_list()

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
        >>> from nearcast.model import Message, Rect, Subscription
        >>> engine = Engine()
        >>> engine.subscribe(Subscription("s1", Rect(0, 0, 9, 9), ["tea"]))
        >>> _ = engine.publish(Message("m1", (5, 5), "Tea!", time=100.0, ttl_s=60.0))
        >>> engine.advance(200.0).select(["message_id", "sign"]).to_pylist()
        [{'message_id': 'm1', 'sign': -1}]
        """
        self._check_open()
        time_us = _time_us(time)
        with self._live.lock:
            self._live.begin(time_us)
            return self._live.outbox.take().to_table()

    def publish(
        self, messages: Message | Iterable[Message], *, top: int | None = None
    ) -> list[Match]:
        """Return the matches of one or several messages, in the order of the messages.

        A message whose ``ttl_s`` is more than 0 is kept until it expires, for `move`. Its id names
        it as long as it lives.

        Parameters
        ----------
        messages
            One message or several.
        top
            If given, only that many matches of each message, the best first. Boolean matches have
            no score and come last.

        Examples
        --------
        >>> from nearcast.model import Message, Proximity, Subscription
        >>> engine = Engine()
        >>> for name, lon in (("ann", 0.0), ("bob", 0.01)):
        ...     near = Proximity(delta=0.5, tau=0.5, max_distance_m=10_000)
        ...     engine.subscribe(Subscription(name, (lon, 0), ["tea"], ranking=near))
        >>> engine.publish(Message("m1", (0, 0), "Hot tea"), top=1)
        [Match(message_id='m1', subscription_id='ann', score=1.0)]
        """
        self._check_open()
        given = list_of(messages, Message)
        _check_top(top)
        batch = messages_from(given, self._tokenizer, now_us=self._now_us())
        batch, found, _ = self._publish(batch, skip=False)
        return _matches(found if top is None else found.best(top), batch)

    def publish_table(
        self,
        table: pa.Table | pa.RecordBatch | Any,
        *,
        columns: Mapping[str, str] | None = None,
        threads: int = 1,
        top: int | None = None,
    ) -> Published:
        """Publish a table of messages; see `nearcast.intake.read_messages` for the columns.

        Parameters
        ----------
        table
            The messages; a frame of pandas or Polars is a table too.
        columns
            Where columns are that are called differently, by our name, such as ``{"lon": "x"}``;
            an empty text leaves a column out.
        threads
            How many threads match at the same time.
        top
            If given, only that many matches of each message, as for `publish`.

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
        _check_top(top)
        given = table_of(table, "messages", columns)
        batch, rejects = read_messages(
            given.table, self._tokenizer, now_us=self._now_us(), source=given.source
        )
        batch, found, taken = self._publish(batch, skip=True, threads=threads)
        if taken.any():
            rejects = with_living(given, rejects, taken)
        found = found if top is None else found.best(top)
        return Published(found.to_table(batch.ids), rejects, len(batch), found.examined)

    def preview(
        self, subscription: Subscription, messages: Message | Iterable[Message] | pa.Table | Any
    ) -> list[Match]:
        """Return which of some messages a subscription would match, with their scores.

        Nothing is registered or published. Scores depend on the engine's present weights.

        Parameters
        ----------
        subscription
            Any subscription; its id need not be new.
        messages
            One message or several, or a table or frame of them.

        Examples
        --------
        >>> from nearcast.model import Message, Overlap, Rect, Subscription
        >>> half = Subscription("me", Rect(0, 0, 2, 1), ["tea"], ranking=Overlap(0.5, 0.7))
        >>> Engine().preview(half, [Message(1, Rect(0, 0, 1, 1), "tea"), Message(2, (9, 9), "tea")])
        [Match(message_id=1, subscription_id='me', score=0.75)]
        """
        self._check_open()
        now_us, vocabulary, scorer = self._now_us(), Vocabulary(), self._store.state.scorer
        if is_table(messages):
            table, _ = table_of(messages, "messages")
            batch, _ = read_messages(table, self._tokenizer, now_us=now_us)
        else:
            batch = messages_from(list_of(messages, Message), self._tokenizer, now_us=now_us)
        [given] = list_of(subscription, Subscription)
        columns = subscriptions_from([given], vocabulary, self._tokenizer)
        index = self._store.builder.build_small(scorer.content(columns, vocabulary))
        return _matches(deliver([Segment(columns, index, vocabulary, scorer)], batch), batch)

    def explain(self, message: Message, subscription_id: Id) -> Explanation:
        """Tell why a subscription matches a message, or why not; see `Explanation`.

        Nothing is published.

        Examples
        --------
        >>> from nearcast.model import Message, Rect, Subscription
        >>> engine = Engine()
        >>> engine.subscribe(Subscription("s1", Rect(0, 0, 1, 1), ["hot", "tea"]))
        >>> print(engine.explain(Message("m1", (0.5, 0.5), "Tea and cake"), "s1"))
        The message is inside the region.
        It lacks required words: hot.
        """
        [given] = list_of(message, Message)
        batch = messages_from([given], self._tokenizer, now_us=self._now_us())
        return explain_row(*self._find(subscription_id), batch)

    def _publish(
        self, batch: MessageBatch, *, skip: bool, threads: int = 1
    ) -> tuple[MessageBatch, Delivery, NDArray[np.bool_]]:
        """Match messages, and keep those that stay alive.

        The words of messages are numbered after the state is taken, so no token of its
        subscriptions is unknown. Messages that stay alive are kept and meet their state in one
        step: for every other event they come either before it or after it.

        Parameters
        ----------
        batch
            The messages.
        skip
            Whether to leave out messages whose id is alive; otherwise they are an error.
        threads
            How many threads match at the same time.

        Returns
        -------
        tuple
            The messages that were published, what they match, and which were left out.
        """
        taken = np.zeros(len(batch), np.bool_)
        state = self._store.state
        if not (batch.any_stays or state.moving):
            found = deliver(state.segments, batch, version=state.version, threads=threads)
            return batch, found, taken
        live = self._live
        with live.lock:
            time_us, end_us = live.times(batch)
            taken = live.taken(batch.ids, time_us, end_us)
            if taken.any():
                if not skip:
                    raise living_id(batch.ids, taken)
                rest = np.flatnonzero(~taken)
                batch, time_us, end_us = batch.take(rest), time_us[rest], end_us[rest]
            batch = replace(batch, time_us=frozen(time_us))
            state = self._store.state
            message, moved = live.publish(batch, time_us, end_us)
        found = deliver(state.segments, batch, version=state.version, threads=threads)
        return batch, found.joined(message, moved), taken

    def get(self, id: Id) -> Subscription:
        """Return the subscription with this id; it means the same as the one that was given.

        Keywords and expressions come back as tokens.
        """
        segment, row = self._find(id)
        return subscription_of(segment.subscriptions, row, segment.vocabulary)

    def _find(self, id: Id) -> tuple[Segment, int]:
        place = self._store.find(identifier("id", id))
        if place is None:
            raise UnknownId(f"no subscription with the id {id!r} is registered; subscribe first")
        return place

    def __contains__(self, id: object) -> bool:
        try:
            return self._store.find(identifier("id", id)) is not None
        except InvalidInput:
            return False

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[Subscription]:
        """Yield the subscriptions that are registered now, whatever happens meanwhile."""
        return each_subscription(self._store.with_movers(), self._now_us())

    def __repr__(self) -> str:
        name = self._store.builder.index.name
        return f"Engine({name!r}, {len(self):,} subscriptions)"

    def stats(self) -> Stats:
        """Return the size of the engine."""
        sizes, weights = self._store.sizes(), self._store.state.scorer.weights
        with self._live.lock:
            live, live_bytes = self._live.count_living(), self._live.nbytes
            moving, pending = len(self._live.movers), len(self._live.outbox)
        return Stats(
            len(self),
            tuple(size.rows for size in sizes),
            sum(size.dead for size in sizes),
            len(self._store.vocabulary),
            weights.version,
            weights.subscriptions,
            moving,
            live,
            pending,
            self._store.nbytes + live_bytes,
        )

    def settle(self) -> None:
        """Merge what was written so far into one segment: no message can be matched faster.

        The weights of tokens are counted again, over all ranked subscriptions.
        """
        self._check_open()
        self._store.merge_all()

    def save(self, folder: str | Path) -> None:
        """Write the engine as it is now into a folder, replacing what an engine wrote there."""
        with self._store.merging, self._live.lock:
            snapshot = snapshot_of(self._store, self._live, self._tokenizer)
        snapshot.write(folder)

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
        return open_saved(cls, folder, tokenizer, clock, verify=verify)

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


def _matches(found: Delivery, batch: MessageBatch) -> list[Match]:
    ids = batch.ids.tolist()
    of_message = [ids[row] for row in found.message.tolist()]
    return [*map(Match, of_message, found.subscription.tolist(), found.scores())]


def _time_us(time: AnyTime | None) -> int | None:
    return None if time is None else time_us("time", time)


def _check_top(top: object) -> None:
    whole = isinstance(top, int) and not isinstance(top, bool)
    if top is not None and not (whole and top >= 1):  # type: ignore[operator]
        raise InvalidInput("top", top, "must be a whole number of at least 1, or left out")
