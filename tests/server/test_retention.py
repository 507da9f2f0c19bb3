"""What is kept: checkpoints, counts of trimmed events, and where a log is cut."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.server.log.records import TICK, timed
from nearcast.server.matching.checkpoint import Checkpoints
from nearcast.server.matching.events import EventStore
from nearcast.server.matching.lost import Stretch, Trimmings
from nearcast.server.matching.postings import ALL, MATCH, Position, Postings
from nearcast.server.matching.retention import Retention, seq_at
from nearcast.storage.log import Entry, Log

if TYPE_CHECKING:
    from pathlib import Path


def checkpoints(folder: Path, seqs: list[int]) -> Checkpoints:
    made = Checkpoints(folder)
    for seq in seqs:
        made._path(seq).mkdir()
    return made


@pytest.mark.parametrize(
    ("seqs", "first_seq", "kept"),
    [
        ([], 1, []),
        ([5], 1, [5]),
        ([5, 9], 1, [5, 9]),
        ([5, 9, 12], 10, [9, 12]),
        ([5, 9, 12], 1, [5, 9, 12]),
        ([500, 600, 700, 800], 480, [500, 600, 700, 800]),
        ([*range(100, 1001, 10)], 301, [300, 480, 660, 840, 990, 1000]),
        ([100, 200, 990, 1000], 1, [100, 990, 1000]),
    ],
)
def test_checkpoints_that_stay(
    seqs: list[int], first_seq: int, kept: list[int], tmp_path: Path
) -> None:
    made = checkpoints(tmp_path, seqs)
    made.keep(first_seq)
    assert made.seqs() == kept


@settings(deadline=None, max_examples=examples(40))
@given(seqs=st.sets(st.integers(1, 10_000), max_size=60), first_seq=st.integers(1, 10_000))
def test_what_is_needed_stays_and_few_others(
    tmp_path_factory: pytest.TempPathFactory, seqs: set[int], first_seq: int
) -> None:
    made = checkpoints(tmp_path_factory.mktemp("checkpoint"), sorted(seqs))
    made.keep(first_seq)
    kept = made.seqs()
    assert len(kept) <= 7
    assert kept[-2:] == sorted(seqs)[-2:]
    before = [seq for seq in seqs if seq < first_seq]
    assert not before or max(before) in kept


def test_the_first_record_of_a_time(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=4096) as log:
        times = [10, 10, 20, 20, 20, 35]
        log.append([timed(Entry(TICK, b"", 3), time_us) for time_us in times])
        first = {5: 1, 10: 1, 11: 7, 20: 7, 21: 16, 35: 16, 36: 19}
        assert {time_us: seq_at(log, time_us, 1, 18) for time_us in first} == first
        assert seq_at(log, 5, 8, 18) == 8


def test_cutoffs(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=4096) as log:
        for second in range(100):
            log.append([timed(Entry(TICK, b"x" * 100, 1), second * 1_000_000)])
        now_us = 100 * 1_000_000
        assert Retention().cutoff(log, now_us) == 1
        assert Retention(age_s=30).cutoff(log, now_us) == 71
        assert Retention(age_s=30).cutoff(log, now_us, 0.5) == 86
        size = log.size_bytes
        assert Retention(log_bytes=size).cutoff(log, now_us) == 1
        assert Retention(log_bytes=size // 2).cutoff(log, now_us) == pytest.approx(51, abs=1)
        assert Retention(30, size // 2).cutoff(log, now_us) == 71
        assert Retention(80, size // 2).cutoff(log, now_us) == pytest.approx(51, abs=1)


def postings(rows: list[tuple[int, int, int]]) -> Postings:
    """Matches of (seq, channel, k): of the message of the seq, and of others if k is not 0."""
    seq = np.array([row[0] for row in rows], np.int64)
    channel = np.array([row[1] for row in rows], np.uint32)
    message = seq + np.array([1000 * row[2] for row in rows], np.int64)
    kind, score = np.full(len(rows), MATCH, np.uint8), np.full(len(rows), np.nan)
    return Postings(seq, channel, channel, message, kind, score)


@settings(deadline=None, max_examples=examples(60))
@given(
    drawn=st.lists(
        st.dictionaries(st.integers(1, 4), st.sampled_from([1, 1, 1, 2, 3])),
        min_size=1,
        max_size=40,
    ),
    cuts=st.lists(st.integers(1, 45), min_size=1, max_size=4),
    reopen=st.booleans(),
)
def test_trimmed_events_are_counted(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[dict[int, int]],
    cuts: list[int],
    reopen: bool,
) -> None:
    """Exact at the ends of trimmed segments, never too small elsewhere; also after a restart.

    A position may be amid the events of a seq.
    """
    folder: Any = tmp_path_factory.mktemp("events")
    rows = [
        (seq, channel, k)
        for seq, found in enumerate(drawn, 1)
        for channel, events in sorted(found.items())
        for k in range(events)
    ]
    store = EventStore(folder / "events", seal_postings=6, seal_seqs=5)
    store.append(postings(rows), len(drawn))
    ends = {0, *(segment.last_seq for segment in store._view.segments)}
    for cut in cuts:
        store.trim(cut)
    if reopen:
        store.save_tail(folder / "tail")
        store.close()
        store = EventStore.open(
            folder / "events", folder / "tail", len(drawn), seal_postings=6, seal_seqs=5
        )
    first = store.first_seq
    for channel in (1, 2, 3, 4, 5):
        events = [Position(seq, k) for seq, c, k in rows if channel == c]
        for seq, k in product(range(len(drawn) + 1), (0, 1, 2, ALL)):
            after = Position(seq, k)
            lost = sum(after < event < Position(first, 0) for event in events)
            counted = store.lost(channel, after)
            assert counted == lost if seq in ends else counted >= lost
            before = min(first + 2, len(drawn) + 1)
            gone = sum(after < event < Position(before, 0) for event in events)
            counted = store.lost(channel, after, before)
            assert counted == gone if seq in ends else counted >= gone
    store.close()


def test_old_counts_are_joined(tmp_path: Path) -> None:
    trimmings = Trimmings(tmp_path, max_rows=5)
    one = np.ones(2, np.int64)
    for number in range(6):
        channel = np.array([1, 2 + number % 2], np.uint32)
        stretch = Stretch(10 * number + 1, 10 * number + 10, channel, 3 * one, 2 * one)
        trimmings.add([stretch])
        trimmings.add([stretch])  # known
    for kept in (trimmings, Trimmings(tmp_path, max_rows=5)):
        assert [kept.count(1, Position(50), 61), kept.count(3, Position(50), 61)] == [3, 3]
        assert kept.count(1, Position(0), 61) == 18
        assert kept.count(2, Position(0), 61) == kept.count(3, Position(0), 61) == 9
        assert kept.count(1, Position(60, ALL), 61) == 0
        assert [kept.count(1, Position(60, k), 61) for k in (0, 1, 2)] == [1, 0, 0]
        assert [kept.count(2, Position(50, k), 51) for k in (0, 1)] == [1, 0]
        assert kept.count(9, Position(0), 61) == 0
    content = bytearray((tmp_path / "trimmed" / "arrays.bin").read_bytes())
    content[-1] ^= 1
    (tmp_path / "trimmed" / "arrays.bin").write_bytes(content)
    assert Trimmings(tmp_path).count(1, Position(0), 61) == 0
