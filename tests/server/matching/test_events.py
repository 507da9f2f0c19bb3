"""The event store against a list of postings and the definition of events."""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from effort import examples
from nearcast.server.matching.events import DamagedEvents, EventStore
from nearcast.server.matching.postings import (
    ALL,
    ENDED_EXPIRED,
    MATCH,
    STARTED,
    UNMATCH,
    EventRef,
    JoinedEvent,
    Position,
    Postings,
)
from nearcast.server.matching.runs import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NAN = float("nan")
SEAL_POSTINGS, SEAL_SEQS = 12, 9


class Posting(NamedTuple):
    seq: int
    channel: int
    handle: int
    message: int
    kind: int
    score: float


def columns(rows: Sequence[Posting]) -> Postings:
    types = (np.int64, np.uint32, np.uint32, np.int64, np.uint8, np.float64)
    arrays = zip(*rows, strict=True) if rows else [()] * 6
    return Postings(*(np.array(a, t) for a, t in zip(arrays, types, strict=True)))


def matches(seq: int, channels: Iterable[int]) -> list[Posting]:
    return [Posting(seq, channel, channel * 10, seq, MATCH, NAN) for channel in channels]


def comparable(events: Sequence[EventRef]) -> list[object]:
    """NaN is not equal to itself."""
    return [
        (seq, k, message, [(h, kind, None if math.isnan(s) else s) for h, kind, s in found])
        for seq, k, message, found in events
    ]


def expected_events(rows: Sequence[Posting], channel: int) -> list[EventRef]:
    """All events of a channel, by definition."""
    events: list[EventRef] = []
    for row in rows:
        if row.channel != channel:
            continue
        match = (row.handle, row.kind, row.score)
        for event in events:
            if row.message > 0 and (event.seq, event.message) == (row.seq, row.message):
                event.matches.append(match)
                break
        else:
            k = sum(event.seq == row.seq for event in events)
            events.append(EventRef(row.seq, k, row.message, [match]))
    return events


def expected_joined(rows: Sequence[Posting], channels: set[int]) -> list[JoinedEvent]:
    """All events of several channels, by definition: those of a message are one."""
    joined: list[JoinedEvent] = []
    alone = [
        (event.seq, channel, event)
        for channel in sorted(channels)
        for event in expected_events(rows, channel)
    ]
    for seq, channel, event in sorted(alone, key=lambda one: one[:2]):
        same = [e for e in joined if event.message and e[:3:2] == (seq, event.message)]
        if not same:
            k = sum(one.seq == seq for one in joined)
            same = [JoinedEvent(seq, k, event.message, [], [])]
            joined += same
        same[0].matches.extend(event.matches)
        same[0].channels.extend([channel] * len(event.matches))
    return joined


def expected_segments(rows: Sequence[Posting], last_seq: int) -> list[tuple[int, int]]:
    """First and last seq of each sealed segment, by walking over the seqs."""
    segments, start, count = [], 1, 0
    for seq in range(1, last_seq + 1):
        count += sum(row.seq == seq for row in rows)
        if count >= SEAL_POSTINGS or seq - start + 1 >= SEAL_SEQS:
            segments.append((start, seq))
            start, count = seq + 1, 0
    return segments


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "first_seq")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def small_store(folder: Path) -> EventStore:
    return EventStore(folder, seal_postings=SEAL_POSTINGS, seal_seqs=SEAL_SEQS)


def reopened(folder: Path, tail: Path | None, last_seq: int) -> EventStore:
    return EventStore.open(folder, tail, last_seq, seal_postings=SEAL_POSTINGS, seal_seqs=SEAL_SEQS)


CHANNELS = st.sampled_from([0, 1, 2, 70_000, 2**32 - 1])


@st.composite
def postings_of_seq(draw: st.DrawFn, seq: int) -> list[Posting]:
    """A message that is published, a move, or changes of subscriptions."""
    handle = st.integers(0, 2**32 - 1)
    kind = draw(st.sampled_from(["published", "moved", "mixed"]))
    rows = []
    for channel in draw(st.lists(CHANNELS, max_size=7)):
        if kind == "published":
            rows.append(Posting(seq, channel, draw(handle), seq, MATCH, NAN))
        elif kind == "moved":
            message = draw(st.integers(1, min(seq, 3)))
            score = draw(st.sampled_from([NAN, 0.5]))
            sign = draw(st.sampled_from([MATCH, UNMATCH]))
            rows.append(Posting(seq, channel, draw(handle), message, sign, score))
        else:
            change = draw(st.sampled_from([MATCH, STARTED, ENDED_EXPIRED]))
            message = draw(st.integers(1, seq)) if change == MATCH else 0
            rows.append(Posting(seq, channel, draw(handle), message, change, NAN))
    return rows


class EventStoreMachine(RuleBasedStateMachine):
    """Appends, reads, checkpoints, trims and crashes, beside a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.folder = self.root / "events"
        self.store = small_store(self.folder)
        self.rows: list[Posting] = []
        self.last_seq = 0
        self.first_seq = 1
        self.checkpoints: list[tuple[Path | None, int]] = [(None, 0)]

    def kept(self) -> list[Posting]:
        return [row for row in self.rows if row.seq >= self.first_seq]

    def append_again(self) -> None:
        """Replay the log from where the store is."""
        after = self.store.last_seq
        rows = [row for row in self.rows if row.seq > after]
        self.store.append(columns(rows), self.last_seq)

    @rule(data=st.data(), seqs=st.integers(0, 25))
    def append(self, data: st.DataObject, seqs: int) -> None:
        rows: list[Posting] = []
        for seq in range(self.last_seq + 1, self.last_seq + seqs + 1):
            rows += data.draw(postings_of_seq(seq))
        self.last_seq += seqs
        self.rows += rows
        block = self.store.append(columns(rows), self.last_seq)
        assert block.channels.tolist() == sorted({row.channel for row in rows})
        for channel in (0, 1, 70_000, 2**32 - 1, 55):
            expected = expected_events(rows, channel)
            assert comparable(block.events(channel)) == comparable(expected)
        joined = block.joined_events(lambda some: some < 3)
        assert [e[:3] for e in joined] == [e[:3] for e in expected_joined(rows, {0, 1, 2})]

    @rule(channel=CHANNELS, limit=st.integers(0, 12), data=st.data())
    def read(self, channel: int, limit: int, data: st.DataObject) -> None:
        seq = data.draw(st.integers(0, self.last_seq + 2))
        after = Position(seq, data.draw(st.sampled_from([-1, 0, 1, 2, 3, 4, ALL])))
        until = data.draw(st.none() | st.integers(0, self.last_seq + 2))
        events = [e for e in expected_events(self.kept(), channel) if e.position > after]
        assert self.store.count(channel, after) == len(events)
        events = [e for e in events if until is None or e.seq <= until][:limit]
        assert comparable(self.store.read(channel, after, limit, until)) == comparable(events)

    @rule(channels=st.sets(CHANNELS), limit=st.integers(0, 12), data=st.data())
    def read_joined(self, channels: set[int], limit: int, data: st.DataObject) -> None:
        seq = data.draw(st.integers(0, self.last_seq + 2))
        after = Position(seq, data.draw(st.sampled_from([-1, 0, 1, 2, 3, 4, ALL])))
        until = data.draw(st.none() | st.integers(0, self.last_seq + 2))
        events = [e for e in expected_joined(self.kept(), channels) if e.position > after]
        events = [e for e in events if until is None or e.seq <= until][:limit]
        found = self.store.read_joined(lambda some: np.isin(some, [*channels]), after, limit, until)
        assert comparable([EventRef(*e[:4]) for e in found]) == comparable(
            [EventRef(*e[:4]) for e in events]
        )
        assert [e.channels for e in found] == [e.channels for e in events]

    @rule(channel=CHANNELS, limit=st.integers(1, 5))
    def page(self, channel: int, limit: int) -> None:
        after, found = Position(0), []
        while events := self.store.read(channel, after, limit):
            assert len(events) <= limit
            found += events
            after = events[-1].position
        assert comparable(found) == comparable(expected_events(self.kept(), channel))

    @rule()
    def checkpoint(self) -> None:
        tail = self.root / f"tail-{len(self.checkpoints)}"
        self.store.save_tail(tail)
        self.checkpoints.append((tail, self.last_seq))

    @rule(data=st.data())
    def reopen(self, data: st.DataObject) -> None:
        """A crash: the store continues from a checkpoint and gets the rest of the log again."""
        tail, last_seq = data.draw(st.sampled_from(self.checkpoints))
        self.store.flush()
        before = content(self.folder)
        self.store.close()
        if last_seq < self.first_seq - 1:  # trimmed since then
            tail, last_seq = None, self.last_seq
        self.store = reopened(self.folder, tail, last_seq)
        assert tail is None or self.store.last_seq == last_seq
        self.append_again()
        self.store.flush()
        assert content(self.folder) == before

    @rule(data=st.data())
    def lose_a_file(self, data: st.DataObject) -> None:
        self.store.save_tail(self.root / "tail-lost")
        self.store.flush()
        self.store.close()
        before = content(self.folder)
        paths = sorted(self.folder.glob("*.post"))
        if paths:
            shutil.rmtree(data.draw(st.sampled_from(paths)))
            with pytest.raises(DamagedEvents) as caught:
                reopened(self.folder, self.root / "tail-lost", self.last_seq)
            assert f"{caught.value.first_seq:020d}.post" in {path.name for path in paths}
            self.store = reopened(self.folder, None, caught.value.first_seq - 1)
        else:
            self.store = reopened(self.folder, None, self.last_seq)
        self.append_again()
        self.store.flush()
        assert content(self.folder) == before

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        before_seq = data.draw(st.integers(0, self.last_seq + 1))
        self.store.trim(before_seq)
        for _, last in expected_segments(self.rows, self.last_seq):
            if last < before_seq:
                self.first_seq = max(self.first_seq, last + 1)

    @invariant()
    def sizes(self) -> None:
        assert (self.store.first_seq, self.store.last_seq) == (self.first_seq, self.last_seq)

    @invariant()
    def reach(self) -> None:
        for seq in range(self.last_seq + 3):
            own = (row.seq == row.message == seq and row.kind == MATCH for row in self.kept())
            assert self.store.reach(seq) == sum(own)

    def teardown(self) -> None:
        self.store.flush()
        segments = expected_segments(self.rows, self.last_seq)
        names = [f"{first:020d}.post" for first, last in segments if first >= self.first_seq]
        assert sorted(path.name for path in self.folder.glob("*.post")) == names
        self.store.close()
        shutil.rmtree(self.root)


EventStoreMachine.TestCase.settings = settings(
    max_examples=examples(25), stateful_step_count=25, deadline=None
)
TestEventStore = EventStoreMachine.TestCase


_ROWS = st.tuples(
    st.integers(1, 3), st.integers(1, 2), st.integers(0, 3), st.integers(0, 2)
)  # seq, channel, handle, message


@given(st.lists(_ROWS, min_size=1, max_size=12))
def test_events_of_a_block_are_counted(rows: list[tuple[int, int, int, int]]) -> None:
    ordered = sorted(rows, key=lambda row: row[0])
    seq, channel, handle, message = (
        np.array([row[at] for row in ordered], np.int64) for at in range(4)
    )
    kind, score = np.zeros(len(ordered), np.uint8), np.zeros(len(ordered))
    wide = channel.astype(np.uint32), handle.astype(np.uint32)
    run = Run.of(Postings(seq, wide[0], wide[1], message, kind, score), 1)
    for at, count in zip(run.channels.tolist(), run.counts.tolist(), strict=True):
        own = [(s, m) for s, c, _, m in ordered if c == at]
        lifecycle = sum(m == 0 for _, m in own)  # each is an event
        assert count == lifecycle + len({one for one in own if one[1]})
        for wanted in (1, 2, 3):
            of_seq = [m for s, m in own if s == wanted]
            expected = of_seq.count(0) + len({m for m in of_seq if m})
            assert run.counts_at(wanted)[run.channels.tolist().index(at)] == expected
