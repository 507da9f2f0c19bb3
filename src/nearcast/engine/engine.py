"""The engine: a live set of subscriptions that messages are matched against."""

from __future__ import annotations

import inspect
import time as clocks
import weakref
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np

from nearcast import indexes
from nearcast.columns import Scoring, frozen
from nearcast.engine.arguments import (
    list_of,
    owner_of,
    table_of,
    with_living,
    with_missing,
)
from nearcast.engine.clock import EngineClock
from nearcast.engine.directory import living_id
from nearcast.engine.explain import explain_row
from nearcast.engine.journal import UNNOTED, has_journal
from nearcast.engine.moving.live import BEGINNING, Live
from nearcast.engine.moving.mover import Mover
from nearcast.engine.opening import open_journal, open_saved
from nearcast.engine.published import Found, Published, Stats
from nearcast.engine.registering import Registering
from nearcast.engine.replay import publish_call, publish_table_call
from nearcast.engine.restore import each_subscription, subscription_of, table_of_subscriptions
from nearcast.engine.store import Store
from nearcast.engine.trace import Trace, trace_batch
from nearcast.errors import InvalidInput, StorageError, UnknownId, UnknownName
from nearcast.indexes import moving as moving_indexes
from nearcast.intake import (
    is_table,
    messages_from,
    read_messages,
    read_named,
    subscriptions_from,
    table_from,
)
from nearcast.model import Match, Message, OwnedMatch, Subscription
from nearcast.model.checks import identifier
from nearcast.segments import Scorer, Segment, deliver
from nearcast.text import Vocabulary, words
from nearcast.text import tokenizer as find_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from nearcast.engine.journal import Call
    from nearcast.intake import MessageBatch
    from nearcast.model import Explanation, Id
    from nearcast.segments import Delivery
    from nearcast.text import Tokenizer

__all__ = ["Engine"]

_REPORTS = ("all", "moves")
_WEIGHTS = ("auto", "manual")


class Engine(Registering):
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
        What makes tokens of keywords and texts: ``words`` (the default), ``stem:<language>``,
        ``cjk``, ``module:function``, or any function from a text to its tokens.
    similarity
        How ranked subscriptions compare words: ``containment`` (the share of their keywords that
        occur, weighed by rarity; the default), ``overlap`` (the same, all words equal),
        ``jaccard``, ``dice`` or ``cosine``.
    distance
        How they measure distance: ``geodesic`` (on the sphere; the default) or ``planar``
        (degrees as on a flat map).
    weights
        When the weights of tokens are counted: ``auto`` (when there are twice as many ranked
        subscriptions as at the last time, and by `settle`) or ``manual`` (by `count_weights` only,
        so that scores change at moments of your choice).
    moving, moving_options
        The index of living messages and of subscriptions that have moved, and its options; see
        `nearcast.indexes.moving.names`.
    report
        ``all`` keeps updates that no call returns until `advance` is called; ``moves`` keeps none,
        for those who never call it.
    keep_words
        Whether `get` returns keywords and expressions as they were given, with a tokenizer that
        changes its own tokens, such as a stemmer. It takes about 50 bytes a subscription; the
        default tokenizer needs none.
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
        tokenizer: str | Tokenizer = words,
        similarity: str = "containment",
        distance: str = "geodesic",
        weights: str = "auto",
        moving: str = moving_indexes.DEFAULT,
        moving_options: Mapping[str, Any] | None = None,
        report: str = "all",
        keep_words: bool = True,
        clock: Callable[[], float] = clocks.time,
    ) -> None:
        super().__init__()
        self._clock = EngineClock(clock)
        self._tokenizer = find_tokenizer(tokenizer)
        self._keep_words = keep_words
        if index in moving_indexes.names():
            raise InvalidInput("index", index, "is a moving index; pass it as moving=")
        builder = indexes.create(index, **(options or {}))
        statistics = builder.statistics()
        vocabulary = Vocabulary()
        if statistics is not None:  # read once: the folder may be gone when segments are merged
            builder = builder.with_statistics(statistics)
            vocabulary = Vocabulary.from_arrays(statistics.vocabulary.arrays())
        if report not in _REPORTS:
            raise InvalidInput("report", report, f"must be one of {', '.join(_REPORTS)}")
        if weights not in _WEIGHTS:
            raise InvalidInput("weights", weights, f"must be one of {', '.join(_WEIGHTS)}")
        self._live = Live(
            moving_indexes.create(moving, **(moving_options or {})),
            self._clock.now_us,
            lambda: self._store.state,
            reports=report == "all",
        )
        self._store = Store(
            builder,
            vocabulary,
            self._clock.now_us,
            scorer=replace(Scorer.new(Scoring(similarity, distance)), fixed=weights == "manual"),
            live=self._live,
            trims=not len(vocabulary),
        )
        self._mover = Mover(self._store, self._live)
        weakref.finalize(self, self._store.worker.stop)

    @overload
    def publish(
        self,
        messages: Message | Iterable[Message],
        *,
        top: int | None = None,
        owners: Literal[False] = False,
    ) -> list[Match]: ...

    @overload
    def publish(
        self,
        messages: Message | Iterable[Message],
        *,
        top: int | None = None,
        owners: Literal[True],
    ) -> list[OwnedMatch]: ...

    def publish(
        self,
        messages: Message | Iterable[Message],
        *,
        top: int | None = None,
        owners: bool = False,
    ) -> list[Match] | list[OwnedMatch]:
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
        owners
            Whether matches name the owner of the subscription too; see `nearcast.OwnedMatch`.

        Raises
        ------
        DuplicateId
            When a message with ``ttl_s`` has the id of a message that is alive.

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
        now_us = self._clock.now_us()
        batch = messages_from(given, self._tokenizer, now_us=now_us)
        batch, found, _ = self._publish(
            batch, now_us, lambda: publish_call(given, now_us), skip=False, owners=owners
        )
        found = found if top is None else found.best(top)
        matches = _matches(found, batch)
        if found.owner is None:
            return matches
        return [
            OwnedMatch(*match, owner)
            for match, owner in zip(matches, found.owner.to_pylist(), strict=True)
        ]

    def publish_table(
        self,
        table: pa.Table | pa.RecordBatch | Any,
        *,
        columns: Mapping[str, str] | None = None,
        threads: int = 1,
        top: int | None = None,
        owners: bool = False,
    ) -> Published:
        """Publish a table of messages; see `nearcast.intake.read_messages` for the columns.

        As with `publish`, an id may occur again unless a message with that id is alive.

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
        owners
            Whether the matches have a column ``owner``.

        Returns
        -------
        Published
            The matches as a table, and the rows that were rejected.

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
        now_us = self._clock.now_us()
        batch, rejects = read_messages(
            given.table, self._tokenizer, now_us=now_us, source=given.source, unique=False
        )
        batch, found, taken = self._publish(
            batch,
            now_us,
            lambda: publish_table_call(given.table, now_us),
            skip=True,
            threads=threads,
            owners=owners,
        )
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
        now_us = self._clock.now_us()
        if is_table(messages):
            table, _ = table_of(messages, "messages")
            batch, _ = read_messages(table, self._tokenizer, now_us=now_us, unique=False)
        else:
            batch = messages_from(list_of(messages, Message), self._tokenizer, now_us=now_us)
        return _matches(deliver([self._segment_of(subscription)], batch), batch)

    def _segment_of(self, subscription: Subscription) -> Segment:
        """Return a segment of one subscription, which is not registered."""
        vocabulary, scorer = Vocabulary(), self._store.state.scorer
        [given] = list_of(subscription, Subscription)
        columns = subscriptions_from([given], vocabulary, self._tokenizer)
        index = self._store.builder.build_small(scorer.content(columns, vocabulary))
        return Segment(columns, index, vocabulary, scorer)

    def explain(self, message: Message, subscription_id: Id | Subscription) -> Explanation:
        """Return why a subscription matches a message, or why not.

        Nothing is published.

        Parameters
        ----------
        message
            Any message.
        subscription_id
            The id of a registered subscription, or any subscription.

        Raises
        ------
        UnknownId
            When the id is not registered, or has expired.

        Examples
        --------
        >>> from nearcast.model import Message, Rect, Subscription
        >>> engine = Engine()
        >>> engine.subscribe(Subscription("s1", Rect(0, 0, 1, 1), ["hot", "tea"]))
        >>> print(engine.explain(Message("m1", (0.5, 0.5), "Tea and cake"), "s1"))
        The message is inside the region.
        It lacks required words: hot.
        >>> engine.explain(Message(1, (0, 0), "Tea"), Subscription(2, Rect(0, 0, 1, 1))).matches
        True
        """
        [given] = list_of(message, Message)
        batch = messages_from([given], self._tokenizer, now_us=self._clock.now_us())
        if isinstance(subscription_id, Subscription):
            return explain_row(self._segment_of(subscription_id), 0, batch)
        return explain_row(*self._find(subscription_id), batch)

    def trace(self, message: Message) -> Trace:
        """Return how the subscriptions that match a message are found, for people who want to see.

        Nothing is published. Boolean subscriptions in a ``trie-pyramid``, and the newest ones, are
        traced list by list and box by box; of others, it is known how many were compared. It takes
        much longer than publishing.

        Parameters
        ----------
        message
            Any message.

        Examples
        --------
        >>> from nearcast.model import Message, Rect, Subscription
        >>> engine = Engine()
        >>> engine.subscribe(Subscription("s1", Rect(0, 0, 1, 1), ["tea"]))
        >>> found = engine.trace(Message("m1", (0.5, 0.5), "Tea and cake"))
        >>> found.tokens, found.examined, found.matches
        (('tea', 'and', 'cake'), 1, 1)
        """
        self._check_open()
        [given] = list_of(message, Message)
        state = self._store.with_movers()
        batch = messages_from([given], self._tokenizer, now_us=self._clock.now_us())
        return trace_batch(state, batch, self._live.builder.index.name)

    def _publish(
        self,
        batch: MessageBatch,
        now_us: int,
        call: Callable[[], Call] | None = None,
        *,
        skip: bool,
        threads: int = 1,
        owners: bool = False,
    ) -> tuple[MessageBatch, Delivery, NDArray[np.bool_]]:
        """Match messages, and keep those that stay alive.

        The words of messages are numbered after the state is taken, so no token of its
        subscriptions is unknown. Messages that stay alive are kept and meet their state in one
        step: for every other event they come either before it or after it.

        Parameters
        ----------
        batch, now_us
            The messages, and the time when they were read.
        call
            How a journal calls this; None if it has it already.
        skip
            Whether to leave out messages whose id is alive; otherwise they are an error.
        threads
            How many threads match at the same time.
        owners
            Whether to return the owners of the subscriptions.

        Returns
        -------
        tuple
            The messages that were published, what they match, and which were left out.
        """
        taken = np.zeros(len(batch), np.bool_)
        state, live = self._store.state, self._live
        # Subscriptions that expire among these messages are still there for the earlier ones.
        expires_us = state.first_expiry_us
        lapses = expires_us <= now_us <= batch.time_us.max(initial=BEGINNING)
        if not (batch.any_stays or state.moving):
            batch = _not_before(batch, expires_us, live.lapse_us)
            found = deliver(
                state.segments, batch, version=state.version, threads=threads, owners=owners
            )
            if lapses:
                live.hear(now_us)
            return batch, found, taken
        with (
            (
                self._event(call) if call is not None and batch.any_stays else nullcontext(UNNOTED)
            ) as event,
            live.lock,
        ):
            event.begin()
            time_us, end_us = live.times(batch)
            taken = live.taken(batch.ids, time_us, end_us)
            if taken.any():
                if not skip:
                    raise living_id(batch.ids, taken)
                rest = np.flatnonzero(~taken)
                batch, time_us, end_us = batch.take(rest), time_us[rest], end_us[rest]
            batch = replace(batch, time_us=frozen(time_us))
            state = self._store.state
            batch = _not_before(batch, state.first_expiry_us, live.lapse_us)
            message, moved = live.publish(batch, time_us, end_us)
            owner = self._store.owners(moved) if owners else None
            if lapses:
                live.hear(now_us)
            event.happened()
        found = deliver(
            state.segments, batch, version=state.version, threads=threads, owners=owners
        )
        return batch, found.joined(message, moved, owner), taken

    def get(self, id: Id) -> Subscription:
        """Return the subscription with this id; it means the same as the one that was given.

        With the default tokenizer, keywords and expressions come back as tokens. With another one,
        they come back as they were given, because a stem may have another stem; with
        ``keep_words=False`` they come back as tokens, too.

        Parameters
        ----------
        id
            The id.

        Raises
        ------
        UnknownId
            When the id is not registered, or has expired.

        Examples
        --------
        >>> from nearcast.model import Rect, Subscription
        >>> engine = Engine()
        >>> engine.subscribe(Subscription("s1", Rect(0, 0, 1, 1), "Hot tea", owner="ann"))
        >>> engine.get("s1").keywords, engine.get("s1").owner
        (('hot', 'tea'), 'ann')
        """
        segment, row = self._find(id)
        return subscription_of(segment.subscriptions, row, segment.vocabulary)

    def by_owner(self, owner: str) -> list[Subscription]:
        """Return the subscriptions of an owner; an empty list if there are none.

        Parameters
        ----------
        owner
            The owner.

        Examples
        --------
        >>> from nearcast.model import Rect, Subscription
        >>> engine = Engine()
        >>> engine.subscribe(Subscription("s1", Rect(0, 0, 1, 1), ["tea"], owner="ann"))
        >>> [subscription.id for subscription in engine.by_owner("ann")], engine.by_owner("bob")
        (['s1'], [])
        """
        places = self._store.found_owned(owner_of(owner))
        return [subscription_of(s.subscriptions, row, s.vocabulary) for s, row in places]

    def get_table(self, table: pa.Table | pa.RecordBatch | Any) -> Found:
        """Return the subscriptions that a table names, by ``id`` or by ``owner``.

        Parameters
        ----------
        table
            A table or frame with a column ``id`` or ``owner``.

        Returns
        -------
        Found
            The subscriptions as a table, and the rows that name none.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from nearcast.model import Rect, Subscription
        >>> engine = Engine()
        >>> engine.subscribe(Subscription(7, Rect(0, 0, 1, 1), ["tea"], owner="ann"))
        >>> found = engine.get_table(pa.table({"id": [7, 8]}))
        >>> found.subscriptions.select(["id", "owner"]).to_pylist(), found.rejects.row.tolist()
        ([{'id': 7, 'owner': 'ann'}], [1])
        """
        self._check_open()
        table = table_from(table)
        named, rejects = read_named(table)
        found, missing = [], []
        for row, name in zip(named.row.tolist(), named.values(), strict=True):
            if named.owners is None:
                place = self._store.find(name)
                places = [] if place is None else [place]
            else:
                places = self._store.found_owned(str(name))
            found += [subscription_of(s.subscriptions, at, s.vocabulary) for s, at in places]
            missing += [] if places else [row]
        rejects = with_missing(table, rejects, named, missing)
        return Found(table_of_subscriptions(found), rejects)

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
        return each_subscription(self._store.with_movers(), self._clock.now_us())

    def __repr__(self) -> str:
        name = self._store.builder.index.name
        return f"Engine({name!r}, {len(self):,} subscriptions)"

    def stats(self) -> Stats:
        """Return the size of the engine.

        Examples
        --------
        >>> Engine().stats().subscriptions
        0
        """
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
            self._store.indexes(),
        )

    def settle(self) -> None:
        """Merge what was written so far into one segment: no message can be matched faster.

        Call it after a large load and before you measure. The weights of tokens are counted again,
        over all ranked subscriptions.

        Examples
        --------
        >>> from nearcast.model import Rect, Subscription
        >>> engine = Engine()
        >>> for id in range(3):
        ...     engine.subscribe(Subscription(id, Rect(0, 0, 1, 1), ["tea"]))
        >>> engine.settle()
        >>> engine.stats().segments
        (3,)
        """
        self._check_open()
        self._store.merge_all()

    def count_weights(self) -> None:
        """Count the weights of tokens again, over all ranked subscriptions.

        Scores are compared with the new weights from one moment on. Only an engine with
        ``weights="manual"`` needs this.

        Examples
        --------
        >>> from nearcast.model import Proximity, Subscription
        >>> engine = Engine(weights="manual")
        >>> near = Proximity(delta=0.5, tau=0.5, max_distance_m=1000)
        >>> engine.subscribe(Subscription("s1", (0, 0), ["tea"], ranking=near))
        >>> engine.stats().weighed_subscriptions
        0
        >>> engine.count_weights()
        >>> engine.stats().weighed_subscriptions
        1
        """
        self._check_open()
        self._store.count_weights()

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        tokenizer: str | Tokenizer | None = None,
        clock: Callable[[], float] = clocks.time,
        verify: bool = True,
        journal: bool = False,
        **settings: Any,
    ) -> Self:
        """Open a saved engine; its arrays are memory-mapped.

        Parameters
        ----------
        folder
            What `save` wrote, or the folder of an engine with a journal.
        tokenizer
            By default the one that it was saved with, by its name. It must be given if that one
            has no name that can be loaded (a lambda); another one is an error.
        clock
            As for a new engine.
        verify
            Whether to compare every byte with its checksum first.
        journal
            Whether every call that changes the engine is on disk before it returns, and is there
            after a crash. Without a journal, changes stay in memory until `save`. One process at
            a time can open an engine with a journal. A folder that is not there is made.
        settings
            For a folder that is not there: parameters of the new engine, such as ``index``.

        Returns
        -------
        Engine
            The engine. Close it, or use it in a ``with`` statement.

        Raises
        ------
        StorageError
            When the folder is damaged, of another version, or holds no engine.

        Examples
        --------
        >>> import tempfile
        >>> from nearcast.model import Rect, Subscription
        >>> folder = tempfile.mkdtemp()
        >>> with Engine.open(folder, journal=True) as engine:
        ...     engine.subscribe(Subscription("s1", Rect(0, 0, 1, 1), ["tea"]))
        >>> with Engine.open(folder, journal=True) as engine:
        ...     "s1" in engine
        True
        """
        choices = inspect.signature(cls).parameters
        for name in settings:
            if name not in choices:
                raise UnknownName("setting", name, choices)
        if journal:
            return open_journal(cls, Path(folder), tokenizer, clock, verify, settings)
        if has_journal(folder):
            raise StorageError(f"{folder}: has a journal; open it with journal=True")
        if settings:
            problem = "only applies to new engines; leave it out to open a saved one"
            raise InvalidInput(next(iter(settings)), next(iter(settings.values())), problem)
        return open_saved(cls, folder, tokenizer, clock, verify=verify)


def _not_before(batch: MessageBatch, expires_us: int, lapse_us: int) -> MessageBatch:
    """Return messages that do not meet subscriptions which have expired for all of them."""
    if expires_us > lapse_us:
        return batch
    return replace(batch, time_us=frozen(np.maximum(batch.time_us, lapse_us)))


def _matches(found: Delivery, batch: MessageBatch) -> list[Match]:
    ids = batch.ids.tolist()
    of_message = [ids[row] for row in found.message.tolist()]
    return [*map(Match, of_message, found.subscription.tolist(), found.scores())]


def _check_top(top: object) -> None:
    whole = isinstance(top, int) and not isinstance(top, bool)
    if top is not None and not (whole and top >= 1):  # type: ignore[operator]
        raise InvalidInput("top", top, "must be a whole number of at least 1, or left out")
