"""The event store with much of something, damaged files, and readers beside the writer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nearcast.errors import InvalidInput, StorageError
from nearcast.server.matching.events import DamagedEvents, EventStore
from nearcast.server.matching.postings import MATCH, STARTED, Position, Postings

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import ArrayLike


def postings(
    seq: ArrayLike, channel: ArrayLike, handle: ArrayLike, message: int | None = None
) -> Postings:
    seq = np.asarray(seq, np.int64)
    size = len(seq)
    return Postings(
        seq,
        np.broadcast_to(np.asarray(channel, np.uint32), size),
        np.broadcast_to(np.asarray(handle, np.uint32), size),
        seq if message is None else np.full(size, message),
        np.full(size, STARTED if message == 0 else MATCH, np.uint8),
        np.full(size, np.nan),
    )


def test_one_channel_with_a_million_postings(tmp_path: Path) -> None:
    seq = np.arange(1, 1_000_001)
    with EventStore(tmp_path, seal_postings=300_000) as store:
        for part in np.array_split(seq, 7):
            store.append(postings(part, 5, part % 1000), int(part[-1]))
        store.flush()
        assert store.count(5, Position(0)) == 1_000_000
        assert store.count(5, Position(299_999)) == 700_001
        assert store.count(5, Position(999_999)) == 1
        after = [event.seq for event in store.read(5, Position(599_990), 20)]
        assert after == list(range(599_991, 600_011))  # the end of a segment is between
        assert store.read(4, Position(0), 10) == store.read(6, Position(0), 10) == []
        assert store.reach(1_000_000) == store.reach(300_000) == 1


@pytest.mark.parametrize("seals", [1_000, 10_000_000])
def test_seq_with_many_postings_is_never_split(tmp_path: Path, seals: int) -> None:
    handles = np.arange(100_000)
    with EventStore(tmp_path, seal_postings=seals) as store:
        block = store.append(postings(np.full(100_000, 3), handles % 7, handles), 4)
        store.flush()
        names = [path.name for path in tmp_path.glob("*.post")]
        assert names == (["00000000000000000001.post"] if seals == 1_000 else [])
        (event,) = store.read(2, Position(2), 10)
        assert [handle for handle, _, _ in event.matches] == handles[handles % 7 == 2].tolist()
        assert str(block.events(2)) == str([event])
        assert store.reach(3) == 100_000


def test_position_amid_many_events_of_a_seq(tmp_path: Path) -> None:
    """A seq with lifecycle events, of which each is an event of its own, is read page by page."""
    size = 100_000
    with EventStore(tmp_path, seal_postings=1_000) as store:
        store.append(postings(np.full(size, 1), 9, np.arange(size), 0), 1)
        after, handles = Position(0), []
        while events := store.read(9, after, 9_999):
            after = events[-1].position
            assert store.count(9, after) == size - after.k - 1
            handles += [handle for event in events for handle, _, _ in event.matches]
        assert handles == list(range(size))
        assert store.read(9, Position(1, size - 2), 5)[0].k == size - 1


def test_merges_keep_few_runs_in_memory(tmp_path: Path) -> None:
    with EventStore(tmp_path) as store:
        for seq in range(1, 3_001):
            store.append(postings([seq], seq % 3, seq), seq)
        assert len(list(store._view.runs_between(Position(0)))) < 40
        events = store.read(1, Position(0), 2_000)
        assert [event.seq for event in events] == list(range(1, 3_001, 3))


def test_plain_matches_take_about_eight_bytes(tmp_path: Path) -> None:
    seq = np.repeat(np.arange(1, 10_001), 10)
    with EventStore(tmp_path, seal_postings=100_000) as store:
        store.append(postings(seq, np.arange(100_000) % 50, 1), 10_000)
        store.flush()
    size = sum(path.stat().st_size for path in tmp_path.glob("*.post/arrays.bin"))
    assert size < 100_000 * 8 + 10_000 + 5_000  # a byte of reach for each seq


def sealed_store(folder: Path) -> EventStore:
    store = EventStore(folder, seal_postings=100)
    seq = np.arange(1, 251)
    store.append(postings(seq, seq % 2, seq), 250)
    store.flush()
    return store


@pytest.mark.parametrize("column", ["seq", "handle", "channels", "start"])
def test_damage_is_found_when_it_is_read(tmp_path: Path, column: str) -> None:
    folder, tail = tmp_path / "events", tmp_path / "tail"
    with sealed_store(folder) as store:
        store.save_tail(tail)
        segment = store._view.segments[1].runs()[0]
        victim = segment.arrays()[column].tobytes()
    path = folder / "00000000000000000101.post" / "arrays.bin"
    content = bytearray(path.read_bytes())
    content[content.index(victim) + 5] ^= 1
    path.write_bytes(content)
    with EventStore.open(folder, tail, 250, seal_postings=100) as store:
        assert len(store.read(1, Position(0), 50)) == 50
        with pytest.raises(DamagedEvents, match="seqs 101 to 200") as caught:
            store.read(1, Position(0), 51)
        assert (caught.value.first_seq, caught.value.last_seq) == (101, 200)
        assert len(store.read(1, Position(200), 50)) == 25


def test_damaged_manifest_is_found_when_the_store_is_opened(tmp_path: Path) -> None:
    folder, tail = tmp_path / "events", tmp_path / "tail"
    with sealed_store(folder) as store:
        store.save_tail(tail)
    (folder / "00000000000000000101.post" / "manifest.json").write_text("{")
    with pytest.raises(DamagedEvents, match="seqs 101 to 200"):
        EventStore.open(folder, tail, 250, seal_postings=100)
    with EventStore.open(folder, None, 100, seal_postings=100) as store:
        assert store.last_seq == 100


def test_tail_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    folder, tail = tmp_path / "events", tmp_path / "tail"
    with sealed_store(folder) as store:
        store.save_tail(tail)
    with pytest.raises(StorageError, match="up to seq 250, expected 240"):
        EventStore.open(folder, tail, 240, seal_postings=100)
    with pytest.raises(StorageError, match="has segments"):
        EventStore(folder)


def test_tail_is_as_of_the_moment_it_was_taken(tmp_path: Path) -> None:
    folder, tail = tmp_path / "events", tmp_path / "tail"
    with sealed_store(folder) as store:
        checkpoint = store.tail()
        later = np.arange(251, 401)
        store.append(postings(later, later % 2, later), 400)
        checkpoint.save(tail)
        expected = store.read(1, Position(0), 1_000, until=250)
    assert checkpoint.last_seq == 250
    with EventStore.open(folder, tail, 250, seal_postings=100) as store:
        assert str(store.read(1, Position(0), 1_000)) == str(expected)
        assert store.reach(250) == 1
        assert len(list(folder.glob("*.post"))) == 2


def test_segment_that_cannot_be_written_stays_in_memory(tmp_path: Path) -> None:
    seq = np.arange(1, 151)
    with EventStore(tmp_path, seal_postings=100) as store:
        obstacle = tmp_path / "00000000000000000001.post"
        obstacle.write_text("a file where the folder should be")
        store.append(postings(seq, 1, seq), 150)
        with pytest.raises(StorageError):
            store.flush()
        assert len(store.read(1, Position(0), 200)) == 150
        obstacle.unlink()
        store.flush()
        assert obstacle.is_dir()
        assert len(store.read(1, Position(0), 200)) == 150


@pytest.mark.parametrize(
    ("seq", "last_seq"), [([5], 10), ([11], 10), ([12, 11], 12), ([], 9)], ids=str
)
def test_postings_out_of_order_are_refused(tmp_path: Path, seq: list[int], last_seq: int) -> None:
    with EventStore(tmp_path) as store:
        store.append(Postings.empty(), 10)
        with pytest.raises(InvalidInput):
            store.append(postings(seq, 1, 1), last_seq)
        assert store.last_seq == 10


def test_empty_postings(tmp_path: Path) -> None:
    with EventStore(tmp_path, first_seq=7) as store:
        block = store.append(Postings.empty(), 9)
        assert (store.first_seq, store.last_seq, block.last_seq) == (7, 9, 9)
        assert block.events(1) == block.channels.tolist() == []
    parts = [postings([1, 2], 1, 1), Postings.empty(), postings([3], 2, 2)]
    assert Postings.concatenate(parts).take(np.array([2, 0])).seq.tolist() == [3, 1]
    assert Postings.concatenate([]).rows == 0


def test_readers_beside_the_writer(tmp_path: Path) -> None:
    """Each reader sees every event once, in order, while segments are sealed."""
    total, wrong = 4_000, []

    def follow(channel: int, store: EventStore) -> None:
        after, seen = Position(0), 0
        while after.seq < total - 3:
            for event in store.read(channel, after, 50):
                if event.seq != 3 * seen + channel + 1 or event.matches[0][0] != event.seq:
                    wrong.append((channel, event))
                seen += 1
                after = event.position

    with EventStore(tmp_path, seal_postings=250) as store:
        readers = [threading.Thread(target=follow, args=(c, store), daemon=True) for c in range(3)]
        for reader in readers:
            reader.start()
        for seq in range(1, total + 1):
            store.append(postings([seq], (seq - 1) % 3, seq), seq)
        for reader in readers:
            reader.join(60)
        assert not any(reader.is_alive() for reader in readers)
    assert not wrong


def test_trim_while_another_thread_reads(tmp_path: Path) -> None:
    """A reader gets what is kept, whatever else it gets."""

    def trim_often(store: EventStore) -> None:
        for seq in range(0, 4_900, 60):
            store.trim(seq)

    with EventStore(tmp_path / "events", seal_seqs=50) as store:
        seq = np.arange(1, 5_001)
        store.append(postings(seq, 1, seq), 5_000)
        store.save_tail(tmp_path / "tail")
    with EventStore.open(tmp_path / "events", tmp_path / "tail", 5_000, seal_seqs=50) as store:
        trims = threading.Thread(target=trim_often, args=(store,))
        trims.start()
        while True:
            done = not trims.is_alive()
            seqs = [event.seq for event in store.read(1, Position(0), 10_000)]
            assert seqs[-150:] == list(range(4_851, 5_001))
            assert seqs == sorted(seqs)
            if done:
                break
        assert store.first_seq == 4_851
    assert len(list((tmp_path / "events").glob("*.post"))) == 3
