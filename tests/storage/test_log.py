"""The log: what was acknowledged is there, whatever the disk did in between."""

from __future__ import annotations

import errno
import random
import shutil
import threading
from itertools import product
from typing import TYPE_CHECKING

import pytest

from nearcast.errors import StorageError
from nearcast.storage.log import Entry, Log
from nearcast.storage.log.disk import Disk
from nearcast.storage.log.records import encode, records_after

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


def fill(log: Log, groups: int, acknowledged: list[int]) -> None:
    number = log.last_seq
    for group in range(groups):
        entries = [(number + i + 1, body(number + i + 1)) for i in range(1 + group % 3)]
        number += len(entries)
        acknowledged.append(log.append(entries))


def check(folder: Path, acknowledged: int) -> None:
    """Open a log after a crash: nothing acknowledged is lost, and it goes on."""
    with Log(folder, segment_bytes=SEGMENT) as log:
        found = contents(log)
        assert found == [(n, n, body(n)) for n in range(1, len(found) + 1)]
        assert acknowledged <= log.last_seq == len(found)
        after = log.append([(7, b"after")])
    with Log(folder, segment_bytes=SEGMENT) as log:
        assert contents(log) == [*found, (after, 7, b"after")]


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


def fill_up(log: Log) -> int:
    last = 0
    for _ in range(100):
        try:
            last = log.append([(1, b"x" * 50)])
        except StorageError as error:
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
        assert [seq for seq, _, _ in contents(log)] == [*range(first, last + 1)]
        with pytest.raises(StorageError, match="is gone"):
            next(log.read(first - 1))
    with Log(tmp_path, segment_bytes=SEGMENT) as log:
        assert (log.first_seq, log.last_seq) == (first, last)


def test_a_record_larger_than_a_segment(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=SEGMENT) as log:
        log.append([(1, b"a")])
        log.append([(2, b"b" * 5000)])
        log.append([(3, b"c")])
    with Log(tmp_path, segment_bytes=SEGMENT) as log:
        assert [len(record.body) for record in log.read()] == [1, 5000, 1]
