"""A reader of a log that somebody else writes: it sees what is whole, and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nearcast.errors import InvalidInput, StorageError, Trimmed
from nearcast.storage.log import Entry, Log, LogReader

if TYPE_CHECKING:
    from pathlib import Path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_reader_sees_what_was_written_until_it_was_opened(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=256) as log:
        for number in range(40):
            log.append([Entry(1, b"%03d" % number, 2)])
        before = contents(tmp_path)
        with LogReader(tmp_path) as reader:
            log.append([Entry(1, b"later")])
            assert (reader.first_seq, reader.last_seq) == (1, 80)
            found = [*reader.read(9)]
            assert [record.body for record in found] == [b"%03d" % n for n in range(4, 40)]
            assert reader.find(14) == log.find(14)
            assert reader.epoch_of(14) == log.epoch
            with pytest.raises(InvalidInput):
                reader.find(81)
        assert LogReader(tmp_path).last_seq == 81
        assert contents(tmp_path).keys() >= before.keys()


def test_a_reader_changes_nothing(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=256) as log:
        log.append([Entry(1, b"one"), Entry(1, b"two")])
    before = contents(tmp_path)
    with LogReader(tmp_path) as reader:
        assert len([*reader.read()]) == 2
        for write in (lambda: reader.append([Entry(1, b"x")]), lambda: reader.trim(2)):
            with pytest.raises(StorageError, match="reading only"):
                write()
        with pytest.raises(StorageError, match="reading only"):
            reader.enqueue([Entry(1, b"x")])
    assert contents(tmp_path) == before


@pytest.mark.parametrize("torn", [1, 8, 30, 40])
def test_a_record_that_is_being_written_is_not_there_yet(tmp_path: Path, torn: int) -> None:
    with Log(tmp_path) as log:
        log.append([Entry(1, b"whole")])
        [segment] = tmp_path.glob("*.log")
        whole = segment.read_bytes()
        log.append([Entry(1, b"being written now")])
        after = segment.read_bytes()
        size = len(after.rstrip(b"\0"))
        with segment.open("r+b") as file:
            file.write(after[: size - torn] + bytes(torn))
        assert segment.read_bytes() != whole
        with LogReader(tmp_path) as reader:
            assert [record.body for record in reader.read()] == [b"whole"]
        assert segment.read_bytes() == after[: size - torn] + bytes(len(after) - size + torn)


def test_damage_is_an_error(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.append([Entry(1, b"first")])
        log.append([Entry(1, b"second")])
    [segment] = tmp_path.glob("*.log")
    with segment.open("r+b") as file:
        file.seek(33)
        file.write(b"X")
    with pytest.raises(StorageError, match="damaged at byte 0"):
        LogReader(tmp_path)


def test_trimmed_records_are_gone(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=128) as log:
        for _ in range(20):
            log.append([Entry(1, b"some bytes")])
        log.trim(10)
        with LogReader(tmp_path) as reader:
            assert reader.first_seq == log.first_seq > 1
            with pytest.raises(Trimmed):
                reader.find(1)


def test_a_folder_without_a_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="has no log"):
        LogReader(tmp_path)
    assert not [*tmp_path.iterdir()]
