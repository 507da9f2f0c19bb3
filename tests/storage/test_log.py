"""The log: what was acknowledged is there, whatever the disk did in between."""

from __future__ import annotations

import errno
import random
import shutil
import threading
from itertools import product
from typing import TYPE_CHECKING

import pytest

from nearcast.errors import InvalidInput, NoSpace, StorageError, Trimmed
from nearcast.storage.log import Entry, Log
from nearcast.storage.log.disk import Disk
from nearcast.storage.log.records import MAX_COUNT, encode, records_after

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nearcast.storage.log import Record

SECTOR = 64
"""Small, so that records lie in several sectors."""

SEGMENT = 512


class Crash(BaseException):
    """The machine has stopped."""


class LosingDisk(Disk):
    """A disk that crashes before an operation, and knows what it had not synced."""

    def __init__(self, operations: int = 10**9) -> None:
        self.left = operations
        self.files: dict[int, Path] = {}
        self.unsynced: list[tuple[Path, int, bytes, bytes]] = []

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Crash

    def create(self, path: Path, size: int) -> int:
        self._step()
        return super().create(path, size)

    def open(self, path: Path) -> int:
        file = super().open(path)
        self.files[file] = path
        return file

    def write(self, file: int, data: bytes, at: int) -> None:
        self._step()
        before = self.read(file, len(data), at)
        super().write(file, data, at)
        self.unsynced.append((self.files[file], at, before, data))
        self._step()

    def sync(self, file: int) -> None:
        self._step()
        self.unsynced = []
        self._step()

    def cut(self, file: int, size: int, capacity: int) -> None:
        self._step()
        super().cut(file, size, capacity)

    def rename(self, path: Path, target: Path) -> None:
        self._step()
        super().rename(path, target)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)

    def crash_states(self, rng: random.Random) -> Iterator[list[tuple[Path, int, bytes]]]:
        """Yield what the disk may have after the crash: each sector old, new or torn."""
        sectors = []
        for path, at, before, after in self.unsynced:
            edges = [at, *range((at // SECTOR + 1) * SECTOR, at + len(after), SECTOR)]
            for begin, end in zip(edges, [*edges[1:], at + len(after)], strict=True):
                old, new = before[begin - at : end - at], after[begin - at : end - at]
                half = len(new) // 2
                sectors.append((path, begin, [old, new, new[:half] + old[half:]]))
        choices = [*product(range(3), repeat=len(sectors))] if len(sectors) <= 3 else []
        choices = choices or [tuple(rng.choices(range(3), k=len(sectors))) for _ in range(30)]
        for chosen in choices:
            pairs = zip(sectors, chosen, strict=True)
            yield [(path, at, contents[which]) for (path, at, contents), which in pairs]


def body(number: int) -> bytes:
    return bytes([number % 251]) * (number * 37 % 150)


def contents(log: Log) -> list[tuple[int, int, bytes]]:
    return [(record.seq, record.kind, record.body) for record in log.read(log.first_seq)]


def entry(seq: int) -> Entry:
    """Return what tests write as the record that begins with a number."""
    return Entry(seq, body(seq), 1 + seq * 7 % 4)


def entries_from(seq: int, number: int) -> list[Entry]:
    entries = []
    for _ in range(number):
        entries.append(entry(seq))
        seq += entries[-1].count
    return entries


def fill(log: Log, groups: int, acknowledged: list[int]) -> None:
    for group in range(groups):
        acknowledged.append(log.append(entries_from(log.last_seq + 1, 1 + group % 3)))


def check_chain(log: Log) -> None:
    """Every record is what `fill` wrote, one after the other, wherever one begins to read."""
    found, seq = [*log.read(log.first_seq)], log.first_seq
    for record in found:
        assert (record.seq, record.kind, record.body, record.count) == (seq, *entry(seq))
        for number in range(record.seq, record.seq + record.count):
            assert log.find(number) == record
            assert log.epoch_of(number) == record.epoch
        seq += record.count
    assert seq == log.last_seq + 1
    for number in range(log.first_seq, log.last_seq + 1, 3):
        assert [*log.read(number)] == [one for one in found if one.last_seq >= number]


def check(folder: Path, acknowledged: int) -> None:
    """Open a log after a crash: nothing acknowledged is lost, and it goes on."""
    with Log(folder, segment_bytes=SEGMENT) as log:
        assert acknowledged <= log.last_seq
        check_chain(log)
        after = log.append(entries_from(log.last_seq + 1, 2))
    with Log(folder, segment_bytes=SEGMENT) as log:
        assert log.last_seq == after
        check_chain(log)


def test_every_crash_state_has_what_was_acknowledged(tmp_path: Path) -> None:
    rng = random.Random(0)
    crashes = states = 0
    for operations in range(200):
        folder, disk = tmp_path / "log", LosingDisk(operations)
        acknowledged: list[int] = []
        log = None
        try:
            log = Log(folder, segment_bytes=SEGMENT, disk=disk)
            fill(log, 6, acknowledged)
        except Crash:
            crashes += 1
        if log is not None:
            log.close()
        for state in disk.crash_states(rng):
            copy = tmp_path / "copy"
            shutil.copytree(folder, copy)
            for path, at, data in state:
                name = copy / path.name
                name = name if name.exists() else copy / "spare"
                with open(name, "r+b") as file:
                    file.seek(at)
                    file.write(data)
            check(copy, acknowledged[-1] if acknowledged else 0)
            shutil.rmtree(copy)
            states += 1
        shutil.rmtree(folder)
        if disk.left >= 0:
            break
    assert crashes > 25
    assert states > 200


def test_a_log_can_be_opened_after_a_crash_while_it_was_opened(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with Log(source, segment_bytes=SEGMENT) as log:
        fill(log, 6, [])
        last = log.last_seq
    path = max(source.glob("*.log"))
    with open(path, "r+b") as file:  # a torn group at the end
        file.seek(log._end)
        file.write(encode([Entry(9, b"x" * 40), Entry(9, b"y" * 40)], last + 1, 1).data[:60])
    for operations in range(20):
        copy, disk = tmp_path / "copy", LosingDisk(operations)
        shutil.copytree(source, copy)
        try:
            Log(copy, segment_bytes=SEGMENT, disk=disk).close()
        except Crash:
            pass
        check(copy, last)
        shutil.rmtree(copy)
        if disk.left >= 0:
            break
    assert 0 < operations < 19


def test_damage_is_named_and_never_cut(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=SEGMENT) as log:
        fill(log, 12, [])
        while log._end < 100 or log._end > SEGMENT - 100:
            log.append([(1, b"x")])
        log.append([(1, b"y")])
    segments = sorted(tmp_path.glob("*.log"))
    assert len(segments) > 2
    for path in (segments[0], segments[-1]):
        whole = path.read_bytes()
        assert len([*records_after(whole, 0)]) > 1
        broken = bytearray(whole)
        broken[10] ^= 1
        path.write_bytes(broken)
        with pytest.raises(StorageError, match=rf"{path.name}: damaged at byte 0"):
            with Log(tmp_path, segment_bytes=SEGMENT) as log:
                contents(log)
        assert path.read_bytes() == broken
        path.write_bytes(whole)
    segments[1].unlink()
    with Log(tmp_path, segment_bytes=SEGMENT) as log, pytest.raises(StorageError, match="damaged"):
        contents(log)


def test_threads_share_syncs(tmp_path: Path) -> None:
    class CountingDisk(Disk):
        syncs = 0

        def sync(self, file: int) -> None:
            super().sync(file)
            self.syncs += 1
            threading.Event().wait(0.002)

    disk, seqs = CountingDisk(), []

    def work(number: int) -> None:
        for i in range(25):
            seqs.append((log.append([(number, b"%d" % i)]), number, i))

    with Log(tmp_path, segment_bytes=4096, disk=disk) as log:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(seq for seq, _, _ in seqs) == [*range(1, 201)]
        assert contents(log) == [(seq, n, b"%d" % i) for seq, n, i in sorted(seqs)]
        assert disk.syncs < 100


def test_threads_that_reserve_while_another_begins_a_segment(tmp_path: Path) -> None:
    class SlowDisk(Disk):
        """A disk on which nothing is synced, and the next segment takes its time."""

        def create(self, path: Path, size: int) -> int:
            threading.Event().wait(0.001)
            return super().create(path, size)

        def rename(self, path: Path, target: Path) -> None:
            threading.Event().wait(0.002)
            path.rename(target)

        def sync(self, file: int) -> None:
            pass

    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(40):
                log.append([(number, b"x" * (40 + 90 * (i % 4)))])
        except BaseException as error:
            failed.append(error)

    with Log(tmp_path, segment_bytes=SEGMENT, disk=SlowDisk()) as log:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert [seq for seq, _, _ in contents(log)] == [*range(1, 241)]


def test_who_cannot_sync_never_does_again(tmp_path: Path) -> None:
    class BrokenDisk(Disk):
        broken = False
        syncs = 0

        def sync(self, file: int) -> None:
            self.syncs += 1
            if self.broken:
                raise OSError(errno.EIO, "Input/output error")
            super().sync(file)

    disk = BrokenDisk()
    with Log(tmp_path, disk=disk) as log:
        log.append([(1, b"a")])
        disk.broken = True
        with pytest.raises(StorageError, match="writing failed"):
            log.append([(1, b"b")])
        disk.broken = False
        with pytest.raises(StorageError, match="writing failed"):
            log.append([(1, b"c")])
        assert disk.syncs == 2
        assert [record.body for record in log.read()] == [b"a"]
    with Log(tmp_path) as log:
        assert [record.body for record in log.read()] in ([b"a"], [b"a", b"b"])


class FailingDisk(LosingDisk):
    """A disk on which an operation, and all after it, fail."""

    def _step(self) -> None:
        try:
            super()._step()
        except Crash:
            raise OSError(errno.EIO, "Input/output error") from None


def test_an_error_at_any_operation_fails_the_log_for_good(tmp_path: Path) -> None:
    failures = 0
    for operations in range(200):
        folder, disk = tmp_path / "log", FailingDisk(operations)
        acknowledged: list[int] = [0]
        try:
            log = Log(folder, segment_bytes=SEGMENT, disk=disk)
        except StorageError as error:
            assert "cannot be opened: Input/output error" in str(error)  # noqa: PT017
            continue
        try:
            fill(log, 6, acknowledged)
        except StorageError as error:
            assert "writing failed (Input/output error)" in str(error)  # noqa: PT017
            failures += 1
            disk.left = 10**9
            with pytest.raises(StorageError, match="writing failed"):
                log.append([entry(log.last_seq + 1)])
            assert log.last_seq == acknowledged[-1]
            check_chain(log)
        log.close()
        check(folder, acknowledged[-1])
        shutil.rmtree(folder)
        if disk.left < 10**8 and disk.left >= 0:
            break
    assert failures > 20


def fill_up(log: Log) -> int:
    last = 0
    for _ in range(100):
        try:
            last = log.append([(1, b"x" * 50)])
        except NoSpace as error:
            assert "No space left" in str(error)  # noqa: PT017
            return last
    raise AssertionError("the disk was never full")


def test_a_full_disk_is_an_error_before_anything_happens(tmp_path: Path) -> None:
    class FullDisk(Disk):
        full = False

        def create(self, path: Path, size: int) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().create(path, size)

    disk = FullDisk()
    with Log(tmp_path, segment_bytes=SEGMENT, disk=disk) as log:
        disk.full = True
        last = fill_up(log)
        assert log.last_seq == last > 0
        disk.full = False
        assert log.append([(1, b"y")]) == last + 1
    with Log(tmp_path, segment_bytes=SEGMENT) as log:
        assert len(contents(log)) == last + 1


def test_one_process_writes(tmp_path: Path) -> None:
    with Log(tmp_path) as log, pytest.raises(StorageError, match="is already open for writing"):
        Log(tmp_path)
    first = log.epoch
    with Log(tmp_path) as log:
        assert log.epoch > first >= 1_700_000_000


def test_old_segments_are_let_go(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=SEGMENT) as log:
        fill(log, 20, [])
        last = log.last_seq
        log.trim(last - 3)
        first = log.first_seq
        assert 1 < first <= last - 3
        check_chain(log)
        with pytest.raises(Trimmed, match="is gone"):
            next(log.read(first - 1))
        with pytest.raises(Trimmed, match="is gone"):
            log.find(first - 1)
    with Log(tmp_path, segment_bytes=SEGMENT) as log:
        assert (log.first_seq, log.last_seq) == (first, last)


def test_a_record_larger_than_a_segment(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=SEGMENT) as log:
        log.append([(1, b"a")])
        log.append([(2, b"b" * 5000)])
        log.append([(3, b"c")])
    with Log(tmp_path, segment_bytes=SEGMENT) as log:
        assert [len(record.body) for record in log.read()] == [1, 5000, 1]


def test_counts_have_bounds(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        for count in (0, MAX_COUNT + 1):
            with pytest.raises(InvalidInput, match="must be from 1 to 65,536"):
                log.append([Entry(1, b"x", count)])
        assert log.append([Entry(1, b"x", MAX_COUNT)]) == MAX_COUNT
        assert log.append([(1, b"y")]) == MAX_COUNT + 1
        assert log.find(MAX_COUNT) == log.find(1)
        assert log.find(MAX_COUNT + 1).body == b"y"
        with pytest.raises(InvalidInput, match="must be at most 65537"):
            log.find(MAX_COUNT + 2)


def test_a_log_of_an_older_version_can_be_read(tmp_path: Path) -> None:
    """The last field of a header was zero, and the file of the epoch held a number."""
    old = encode([Entry(7, b"old"), Entry(7, b"older")], 1, 3).data
    (tmp_path / f"{1:020d}.log").write_bytes(old + bytes(SEGMENT - len(old)))
    (tmp_path / "epoch").write_text("3\n")
    with Log(tmp_path, segment_bytes=SEGMENT) as log:
        assert log.append([(8, b"new")]) == 3
        assert contents(log) == [(1, 7, b"old"), (2, 7, b"older"), (3, 8, b"new")]
        assert [log.epoch_of(seq) for seq in (1, 2, 3)] == [3, 3, log.epoch]


def test_epochs_of_records_survive_openings(tmp_path: Path) -> None:
    epochs = {}
    for groups in (3, 0, 2, 0, 0, 4):
        with Log(tmp_path, segment_bytes=SEGMENT) as log:
            begin = log.last_seq + 1
            fill(log, groups, [])
            epochs.update(dict.fromkeys(range(begin, log.last_seq + 1), log.epoch))
            assert log.epoch_of(log.last_seq + 1) == log.epoch
            check_chain(log)
            assert {seq: log.epoch_of(seq) for seq in epochs} == epochs
    assert len(set(epochs.values())) == 3
    assert (tmp_path / "epoch").read_text().count("epoch") == 3


def test_opening_reads_the_last_segment_only(tmp_path: Path) -> None:
    class CountingDisk(Disk):
        read_bytes = 0

        def read(self, file: int, size: int, at: int) -> bytes:
            self.read_bytes += size
            return super().read(file, size, at)

    with Log(tmp_path, segment_bytes=SEGMENT) as log:
        fill(log, 40, [])
        size_bytes = log.size_bytes
    disk = CountingDisk()
    with Log(tmp_path, segment_bytes=SEGMENT, disk=disk) as log:
        assert disk.read_bytes <= SEGMENT < size_bytes // 8
        check_chain(log)


def test_readers_while_others_append_and_trim(tmp_path: Path) -> None:
    failed: list[BaseException] = []
    done = threading.Event()

    def look(seed: int) -> None:
        rng = random.Random(seed)
        try:
            while not done.is_set():
                first, last = log.first_seq, log.last_seq
                seq = rng.randint(first, max(last, first))
                try:
                    for record in log.read(seq):
                        assert (record.kind, record.body, record.count) == entry(record.seq)
                    if seq <= last:
                        record = log.find(seq)
                        assert record.seq <= seq <= record.last_seq
                        assert (record.kind, record.body, record.count) == entry(record.seq)
                except Trimmed:
                    assert seq < log.first_seq or first < log.first_seq
        except BaseException as error:
            failed.append(error)

    class QuickDisk(Disk):
        def sync(self, file: int) -> None:
            pass

    with Log(tmp_path, segment_bytes=4 * SEGMENT, disk=QuickDisk()) as log:
        threads = [threading.Thread(target=look, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(60):
            fill(log, 5, [])
            log.trim(log.last_seq - 300)
        done.set()
        for thread in threads:
            thread.join()
        assert not failed
        assert log.first_seq > 1
        check_chain(log)


def damaged_copies(source: Path, target: Path, step: int) -> Iterator[tuple[Path, int]]:
    """Yield a copy of a log for each bit that is flipped in it: the file, and the byte."""
    rng = random.Random(1)
    for path in sorted([*source.glob("*.log"), source / "epoch"]):
        data = path.read_bytes()
        for at in range(0, len(data.rstrip(b"\0")), step):
            shutil.copytree(source, target)
            flipped = bytearray(data)
            flipped[at] ^= 1 << rng.randrange(8)
            (target / path.name).write_bytes(flipped)
            yield target / path.name, at
            shutil.rmtree(target)


@pytest.mark.parametrize("closed", [True, False])
def test_a_flipped_bit_is_reported_and_a_repair_says_what_it_lost(
    tmp_path: Path, closed: bool
) -> None:
    source = tmp_path / "source"
    with Log(source, segment_bytes=SEGMENT) as log:
        acknowledged: list[int] = []
        fill(log, 10, acknowledged)
        records = {record.seq: record for record in log.read()}
        if not closed:
            shutil.copytree(source, tmp_path / "killed")
    source = source if closed else tmp_path / "killed"
    reported = cut = 0
    for path, _ in damaged_copies(source, tmp_path / "copy", 5):
        try:
            with Log(path.parent, segment_bytes=SEGMENT) as log:
                found = [*log.read()]
        except StorageError as error:
            assert path.name in str(error)  # noqa: PT017
            reported += 1
        else:  # padding, which means nothing, or the last group, which may have been torn
            assert found == [records[record.seq] for record in found]
            assert len(found) == len(records) or (not closed and log.last_seq >= acknowledged[-2])
            cut += len(found) < len(records)
            continue
        with Log(path.parent, segment_bytes=SEGMENT, repair=True) as log:
            check_repaired(log, records)
            assert bool(log.lost) == (path.suffix == ".log")
            lost = log.lost
            after = log.append([(9, b"after")])
        with Log(path.parent, segment_bytes=SEGMENT) as log:
            assert log.lost == lost
            check_repaired(log, {**records, after: log.find(after)})
    assert reported > 150
    assert bool(cut) != closed


def check_repaired(log: Log, records: dict[int, Record]) -> None:
    lost = {seq for first, last in log.lost for seq in range(first, last + 1)}
    kept = [record for record in records.values() if record.seq not in lost]
    assert [*log.read()] == kept
    assert len(kept) >= len(records) - 1
    assert log.last_seq == max(record.last_seq for record in records.values())
    for seq in range(1, log.last_seq + 1):
        if seq in lost:
            with pytest.raises(Trimmed, match="given up by a repair"):
                log.find(seq)
        else:
            assert log.find(seq).seq <= seq <= log.find(seq).last_seq


def test_a_segment_that_is_cut_short_or_gone(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    with Log(source, segment_bytes=SEGMENT) as log:
        fill(log, 14, [])
        last = log.last_seq
        records = [*log.read()]
    names = sorted(path.name for path in source.glob("*.log"))
    assert len(names) > 3
    for name, size in product(names, [None, *range(0, SEGMENT, 40)]):
        shutil.copytree(source, copy)
        path = copy / name
        data = path.read_bytes()
        if size is None:
            path.unlink()
        else:
            path.write_bytes(data[:size])
        whole = size is not None and not data[size:].rstrip(b"\0")
        if not whole and (size is not None or name != names[0]):  # else it could be trimmed
            with pytest.raises(StorageError, match=r"damaged at byte"):
                with Log(copy, segment_bytes=SEGMENT) as log:
                    [*log.read()]
        with Log(copy, segment_bytes=SEGMENT, repair=True) as log:
            lost = log.lost
            first = log.first_seq
            assert log.last_seq == last
            expected = [
                record
                for record in records
                if record.seq >= first and not any(a <= record.seq <= b for a, b in lost)
            ]
            assert [*log.read(first)] == expected
            assert whole == (not lost and first == 1)
            after = log.append([(9, b"after")])
        with Log(copy, segment_bytes=SEGMENT) as log:
            assert [*log.read(first)] == [*expected, log.find(after)]
        shutil.rmtree(copy)


def test_a_log_whose_segments_are_all_gone_is_no_new_log(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        last = log.append([(1, b"x"), (1, b"y")])
    for path in tmp_path.glob("*.log"):
        path.unlink()
    with pytest.raises(StorageError, match="has no segment, but had 2 records"):
        Log(tmp_path)
    with Log(tmp_path, repair=True) as log:
        assert log.append([(1, b"z")]) == last + 1 == log.first_seq
