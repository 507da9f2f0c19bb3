"""How many events wait for readers, against counting them one by one."""

from __future__ import annotations

import asyncio
import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.server.delivery.readers import KINDS, Readers
from nearcast.server.matching.events import EventStore
from nearcast.server.matching.postings import ALL, Position, Postings
from nearcast.server.matching.segments import DamagedEvents

if TYPE_CHECKING:
    from nearcast.server.delivery.readers import Reader, ReaderKind

CHANNELS = 5
_positions = st.tuples(st.floats(0, 1), st.sampled_from([0, 1, ALL]))
_steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"),
            st.lists(st.tuples(st.integers(0, 2), st.integers(1, CHANNELS)), max_size=8),
            st.booleans(),
        ),
        st.tuples(st.just("add"), st.sampled_from(KINDS), st.integers(1, CHANNELS), _positions),
        st.tuples(st.just("move"), st.integers(0, 9), _positions),
        st.tuples(st.just("read"), st.integers(0, 9), st.integers(1, 4)),
        st.tuples(st.just("remove"), st.integers(0, 9)),
        st.tuples(st.just("trim"), st.floats(0, 1)),
    ),
    max_size=25,
)


class World:
    """A store, readers, and where each of them is."""

    def __init__(self, folder: str) -> None:
        self.store = EventStore(folder, seal_postings=6, seal_seqs=5)
        self.readers = Readers(self.store, lambda: self.store.first_seq)
        self.places: dict[Reader, tuple[ReaderKind, Position]] = {}
        self.unseen: list[Any] = []

    def append(self, rows: list[tuple[int, int]], seen: bool) -> None:
        """Append two events of a channel at each seq; the readers hear of it now, or later."""
        first = self.store.last_seq + 1
        given = sorted({(first + at, channel) for at, channel in rows})
        seq = np.repeat(np.array([one for one, _ in given], np.int64), 2)
        channel = np.repeat(np.array([one for _, one in given], np.uint32), 2)
        message = np.tile(np.array([1, 2], np.int64), len(given))
        kind, score = np.zeros(len(seq), np.uint8), np.full(len(seq), np.nan)
        postings = Postings(seq, channel, channel, message, kind, score)
        self.unseen.append(self.store.append(postings, first + 2))
        if seen:
            self.hear()

    def hear(self) -> None:
        for block in self.unseen:
            self.readers.put(block)
        self.unseen = []

    def position(self, given: tuple[float, int]) -> Position:
        return Position(round(given[0] * self.store.last_seq), given[1])

    def reader(self, number: int) -> Reader | None:
        return [*self.places][number % len(self.places)] if self.places else None

    async def step(self, what: str, *given: Any) -> None:
        if what == "append":
            self.append(*given)
        elif what == "add":
            kind, channel, place = given
            made = await self.readers.add(kind, channel, self.position(place))
            self.places[made] = kind, self.position(place)
        elif what == "trim":
            self.hear()  # what is old enough to be trimmed has been heard of
            self.store.trim(round(given[0] * self.store.last_seq))
        elif (reader := self.reader(given[0])) is not None:
            await self.change(what, reader, *given[1:])

    async def change(self, what: str, reader: Reader, *given: Any) -> None:
        kind, position = self.places[reader]
        if what == "remove":
            self.readers.remove(reader)
            del self.places[reader]
        elif what == "move":
            self.places[reader] = kind, self.position(given[0])
            await self.readers.move(reader, self.position(given[0]))
        else:
            await self.readers.pending()  # after trimming, a stream hears of the gap first
            position = max(position, Position(self.store.first_seq - 1))
            events = self.store.read(reader.channel, position, given[0])
            if events:
                self.places[reader] = kind, events[-1].position
                self.readers.advance(reader, len(events), events[-1].position)

    async def check(self) -> None:
        self.hear()
        expected = dict.fromkeys(KINDS, 0)
        for reader, (kind, position) in self.places.items():
            expected[kind] += self.store.count(reader.channel, position)
        assert await self.readers.pending() == expected


@settings(deadline=None, max_examples=examples(150))
@given(_steps)
def test_what_waits_is_what_the_store_counts(steps: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            world = World(folder)
            for step in steps:
                await world.step(*step)
            await world.check()
            world.append([(0, 1), (1, 2), (1, 3)], seen=True)
            await world.check()
            world.store.close()

    asyncio.run(run())


@settings(deadline=None, max_examples=examples(100))
@given(_steps, st.lists(st.tuples(st.integers(0, CHANNELS + 1), _positions), max_size=6))
def test_many_channels_are_counted_as_one_by_one(
    steps: list[tuple[Any, ...]], asked: list[tuple[int, tuple[float, int]]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder)
        for step in steps:
            if step[0] == "append":
                world.append(*step[1:])
        channels = np.array([channel for channel, _ in asked], np.uint32)
        after = [world.position(place) for _, place in asked]
        found = world.store.counts(channels, after, world.store.last_seq)
        pairs = zip(channels.tolist(), after, strict=True)
        assert found.tolist() == [world.store.count(*pair) for pair in pairs]
        world.store.close()


def test_a_position_that_readers_have_not_heard_of_counts_once(tmp_path: Any) -> None:
    async def run() -> None:
        world = World(str(tmp_path))
        world.append([(0, 1), (2, 1)], seen=False)
        reader = await world.readers.add("stream", 1, Position(world.store.last_seq))
        world.hear()
        assert (await world.readers.pending())["stream"] == 0
        world.append([(0, 1)], seen=True)
        assert (await world.readers.pending())["stream"] == 2
        world.readers.remove(reader)
        assert (await world.readers.pending())["stream"] == 0
        world.store.close()

    asyncio.run(run())


def test_readers_of_damaged_events_are_counted_when_these_are_there_again() -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            world = World(folder)
            for _ in range(4):
                world.append([(0, 1), (1, 1), (2, 2)], seen=True)
            store: Any = world.store
            counts = store.counts
            found: list[DamagedEvents] = []

            def damaged(*given: Any) -> Any:
                raise DamagedEvents(1, 3, "no such file")

            world.readers.on_damage = found.append
            store.counts = damaged
            await world.step("add", "stream", 1, (0, 0))
            await world.step("add", "webhook", 2, (0.5, ALL))
            await world.step("add", "cursor", 1, (0, 0))
            await world.step("read", 0, 2)
            await world.step("remove", 2)
            assert len(found) == 3
            store.counts = counts
            await world.readers.recount()
            await world.check()
            await world.readers.recount()
            await world.check()
            world.store.close()

    asyncio.run(run())
