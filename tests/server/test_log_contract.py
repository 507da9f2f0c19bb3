"""What every log of the server does, in files and in PostgreSQL."""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest

from nearcast.errors import InvalidInput, StorageError, Trimmed
from nearcast.server.log import Entry
from nearcast.server.log.postgres import MAX_GROUP_BYTES, PostgresLog
from nearcast.storage.log import Log as FileLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nearcast.server.log import Log, Record

    Open = Callable[[], Log]


@pytest.fixture(params=["files", "postgres"])
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Return what opens one log, again and again."""
    if request.param == "files":
        return partial(FileLog, tmp_path, segment_bytes=4096)
    return partial(PostgresLog, request.getfixturevalue("database"))


def entry(seq: int) -> Entry:
    return Entry(seq % 7, b"%d " % seq * (seq % 90), 1 + seq * 5 % 4)


def append(log: Log, records: int) -> int:
    entries, seq = [], log.last_seq + 1
    for _ in range(records):
        entries.append(entry(seq))
        seq += entries[-1].count
    assert log.append(entries) == seq - 1
    return log.last_seq


def check(log: Log, first: int) -> list[Record]:
    """Compare all records with what was written, by `read` and by `find`."""
    found, seq = [*log.read(first)], first
    for record in found:
        assert (record.seq, record.kind, record.body, record.count) == (seq, *entry(seq))
        for number in range(seq, seq + record.count):
            assert log.find(number) == record
            assert log.epoch_of(number) == record.epoch
        seq += record.count
    assert seq == log.last_seq + 1
    return found


def test_records_are_there_after_openings(open_log: Open) -> None:
    before = int(time.time())
    epochs, last = [], 0
    for groups in ([1, 3], [], [20, 2, 5]):
        log = open_log()
        epochs.append(log.epoch)
        assert (log.first_seq, log.last_seq) == (1, last)
        for records in groups:
            last = append(log, records)
        assert log.append([]) == last
        assert log.epoch_of(last + 1) == log.epoch
        found = check(log, 1)
        assert log.size_bytes > sum(len(record.body) for record in found)
        assert log.lost == []
        log.close()
    assert epochs == sorted(set(epochs))
    assert epochs[0] >= before
    assert {record.epoch for record in found} == {epochs[0], epochs[2]}


def test_reading_begins_with_the_record_that_has_the_number(open_log: Open) -> None:
    log = open_log()
    assert [*log.read(1)] == []
    for records in (1, 7, 30, 2):
        append(log, records)
    found = check(log, 1)
    for seq in range(1, log.last_seq + 1):
        assert [*log.read(seq)] == [record for record in found if record.last_seq >= seq]
    assert [*log.read(log.last_seq + 1)] == []
    with pytest.raises(InvalidInput, match="must be at most"):
        log.find(log.last_seq + 1)
    log.close()


def test_invalid_entries_leave_the_log_as_it_was(open_log: Open) -> None:
    log = open_log()
    for wrong in (Entry(1 << 16, b""), Entry(-1, b""), Entry(1, b"", 0), Entry(1, b"", 65_537)):
        with pytest.raises(InvalidInput):
            log.append([Entry(1, b"right"), wrong])
    assert log.append([Entry(65_535, bytes(range(256)), 65_536)]) == 65_536
    assert log.find(40_000).body == bytes(range(256))
    log.close()


def test_trimming_removes_what_is_older(open_log: Open) -> None:
    log = open_log()
    for _ in range(60):
        append(log, 6)
    log.trim(400)
    first = log.first_seq
    assert 1 < first <= 400
    check(log, first)
    for gone in (1, first - 1):
        with pytest.raises(Trimmed, match="is gone"):
            log.find(gone)
        with pytest.raises(Trimmed, match="is gone"):
            next(iter(log.read(gone)))
    log.trim(10**9)
    last, first = log.last_seq, log.first_seq
    assert first <= last
    log.close()
    log = open_log()
    assert (log.first_seq, log.last_seq) == (first, last)
    append(log, 3)
    check(log, first)
    log.close()


def test_one_writer(open_log: Open) -> None:
    log = open_log()
    with pytest.raises(StorageError, match="already open for writing"):
        open_log()
    log.close()
    with pytest.raises(StorageError, match="is closed"):
        log.append([Entry(1, b"")])
    open_log().close()


def test_threads_append_find_and_trim(open_log: Open) -> None:
    log = open_log()
    failed: list[BaseException] = []
    written: list[tuple[int, bytes]] = []
    done = threading.Event()

    def write(number: int) -> None:
        try:
            for i in range(25):
                body = b"%d %d" % (number, i) * 40
                written.append((log.append([Entry(number, body, 2)]), body))
        except BaseException as error:
            failed.append(error)

    def look(seed: int) -> None:
        rng = random.Random(seed)
        try:
            while not done.is_set():
                seq = rng.randint(log.first_seq, max(log.last_seq, log.first_seq))
                try:
                    if seq <= log.last_seq:
                        record = log.find(seq)
                        assert record.seq <= seq <= record.last_seq
                    for record in log.read(seq):
                        assert record.last_seq >= seq
                except Trimmed:
                    assert seq < log.first_seq
                log.trim(log.last_seq - 150)
        except BaseException as error:
            failed.append(error)

    readers = [threading.Thread(target=look, args=(seed,)) for seed in range(2)]
    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert not failed
    assert sorted(last for last, _ in written) == [*range(2, 201, 2)]
    bodies = dict(written)
    found = [*log.read(log.first_seq)]
    assert len(found) >= 75
    assert all(bodies[record.last_seq] == record.body for record in found)
    log.close()


def test_a_group_too_large_for_a_row(database: str) -> None:
    with PostgresLog(database) as log:
        body = bytes(MAX_GROUP_BYTES // 4)
        with pytest.raises(InvalidInput, match="268,435,456 bytes at most"):
            log.append([Entry(1, body)] * 4)
        assert log.append([Entry(1, b"small")]) == 1


def test_a_damaged_row_is_named(database: str) -> None:
    with PostgresLog(database) as log:
        append(log, 3)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("UPDATE nearcast_log SET data = set_byte(data, 40, 9)")
        with pytest.raises(StorageError, match="row 1 of nearcast_log is damaged at byte"):
            [*log.read(1)]


def test_a_database_that_is_not_there() -> None:
    with pytest.raises(StorageError, match=r"nothing on 127\.0\.0\.1: cannot be opened"):
        PostgresLog("postgresql://nobody:secret@127.0.0.1:1/nothing")
    with pytest.raises(InvalidInput, match="dsn: must look like") as caught:
        PostgresLog("postgres of mine, password=secret")
    assert "secret" not in str(caught.value)
