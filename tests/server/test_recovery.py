"""Opening the server: checkpoints, events and state are rebuilt from the log, byte by byte."""

from __future__ import annotations

import logging
import random
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from matching_oracle import random_records
from nearcast.errors import StorageError
from nearcast.server.matching.postings import EventRef, Position
from nearcast.server.matching.recovery import Recovered, Seal, advance, recover
from nearcast.server.matching.segments import DamagedEvents
from nearcast.server.state import Sqlite, State
from nearcast.storage.log import Entry, Log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nearcast.storage.log import Record

SEAL = Seal(12, 15)


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return random_records(4, 120)


@pytest.fixture(scope="module")
def made(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the whole log, and checkpoints after a third and two thirds of it."""
    folder = tmp_path_factory.mktemp("made")
    with Log(folder / "log", segment_bytes=4096) as log:
        for record in records:
            log.append([Entry(record.kind, record.body, record.count)])
    with opened(folder) as recovered:
        copy_of_state(folder, 0)
        recovered.events.flush()
    shutil.rmtree(folder / "events")
    (folder / "state.db").unlink()
    third = len(records) // 3
    with opened(folder, records[:third]) as recovered:
        checkpoint(folder, recovered)
    copy_of_state(folder, 1)
    with opened(folder, records[third : 2 * third]) as recovered:
        checkpoint(folder, recovered)
    with opened(folder):
        pass
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "copy")


class Prefix:
    """A log that ends after some of its records."""

    def __init__(self, log: Log, last_seq: int) -> None:
        self._log, self.last_seq, self.epoch = log, last_seq, log.epoch

    @property
    def first_seq(self) -> int:
        return self._log.first_seq

    def read(self, first: int = 1) -> Iterator[Record]:
        return (r for r in self._log.read(first) if r.seq <= self.last_seq)


@contextmanager
def opened(folder: Path, only: list[Record] | None = None) -> Iterator[Recovered]:
    with Log(folder / "log", segment_bytes=4096) as log:
        state = State(Sqlite(folder / "state.db"))
        last = log.last_seq if only is None else only[-1].seq + only[-1].count - 1
        recovered = recover(folder, Prefix(log, last), state, seal=SEAL)  # type: ignore[arg-type]
        try:
            yield recovered
            recovered.events.flush()
            state.apply([], recovered.seq)
        finally:
            recovered.events.close()
            recovered.matcher.engine.close()
            state.close()


def checkpoint(folder: Path, recovered: Recovered) -> None:
    state = State(Sqlite(folder / "state.db"))
    state.apply([], recovered.seq, durable=True)
    state.close()
    matcher, events = recovered.matcher, recovered.events
    recovered.checkpoints.take(matcher, events, recovered.seq, recovered.time_us)()


def copy_of_state(folder: Path, number: int) -> None:
    state = State(Sqlite(folder / "state.db"))
    state.close()
    shutil.copy(folder / "state.db", folder / f"state.{number}")


def files(folder: Path) -> dict[str, bytes]:
    inside = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in inside}


def events_of(recovered: Recovered) -> dict[int, str]:
    """All events of all channels; as text, because NaN is not equal to itself."""
    numbers = range(len(recovered.matcher.registry._channel_keys))
    read = recovered.events.read
    return {number: repr(read(number, Position(0), 10**6)) for number in numbers}


def definitions(folder: Path) -> list[Any]:
    state = State(Sqlite(folder / "state.db"))
    try:
        state.check()
        return [*state.each_definition(), state.sinks(), state.channels(), state.subscribers()]
    finally:
        state.close()


@pytest.fixture(scope="module")
def expected(made: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    """Events, files and definitions of a folder that has nothing but the log."""
    folder = tmp_path_factory.mktemp("expected")
    shutil.copytree(made / "log", folder / "log")
    with opened(folder) as recovered:
        events = events_of(recovered)
        assert recovered.replayed == recovered.seq
    assert sum(len(text) for text in events.values()) > 5000
    return events, files(folder / "events"), definitions(folder)


def check(folder: Path, expected: tuple[Any, Any, Any]) -> int:
    with opened(folder) as recovered:
        assert events_of(recovered) == expected[0]
    assert files(folder / "events") == expected[1]
    assert definitions(folder) == expected[2]
    return recovered.replayed


def test_checkpoint_and_log(folder: Path, expected: tuple[Any, Any, Any]) -> None:
    newest = max(int(path.name) for path in (folder / "checkpoint").iterdir())
    with Log(folder / "log") as log:
        last_seq = log.last_seq
    assert 0 < check(folder, expected) == last_seq - newest


def test_without_checkpoints_and_events(folder: Path, expected: tuple[Any, Any, Any]) -> None:
    shutil.rmtree(folder / "checkpoint")
    shutil.rmtree(folder / "events")
    check(folder, expected)


def test_without_events(folder: Path, expected: tuple[Any, Any, Any]) -> None:
    shutil.rmtree(folder / "events")
    check(folder, expected)


@pytest.mark.parametrize("number", [0, 1])
def test_an_older_state(number: int, folder: Path, expected: tuple[Any, Any, Any]) -> None:
    for path in folder.glob("state.db*"):
        path.unlink()
    shutil.copy(folder / f"state.{number}", folder / "state.db")
    check(folder, expected)


def test_any_damage_of_a_checkpoint(
    folder: Path,
    expected: tuple[Any, Any, Any],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    """A flipped bit in any file: the older checkpoint is used, and a warning says so."""
    rng = random.Random(5)
    newest = max((folder / "checkpoint").iterdir())
    paths = [path for path in sorted(newest.rglob("*")) if path.is_file()]
    assert len(paths) > 5
    for path in paths:
        content = bytearray(path.read_bytes())
        if not content:
            continue
        copy = shutil.copytree(folder, tmp_path / "damaged")
        at = rng.randrange(len(content))
        content[at] ^= 1 << rng.randrange(8)
        (copy / path.relative_to(folder)).write_bytes(content)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "nearcast.server"):
            check(copy, expected)
        assert "an older checkpoint is used" in caplog.text, path
        shutil.rmtree(copy)


@pytest.mark.parametrize("number", [0, 1])
def test_damaged_events_are_rebuilt_by_the_next_start(
    number: int, folder: Path, expected: tuple[Any, Any, Any]
) -> None:
    path = sorted((folder / "events").glob("*.post"))[number] / "arrays.bin"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with opened(folder) as recovered:
        with pytest.raises(DamagedEvents) as caught:
            events_of(recovered)
        recovered.events.discard(caught.value)
    check(folder, expected)


def test_a_missing_segment_is_rebuilt(folder: Path, expected: tuple[Any, Any, Any]) -> None:
    for segment in sorted((folder / "events").glob("*.post"))[1:3]:
        shutil.rmtree(segment)
    check(folder, expected)


def test_a_state_that_is_ahead_of_the_log(folder: Path) -> None:
    state = State(Sqlite(folder / "state.db"))
    state.apply([], 10**6)
    state.close()
    with pytest.raises(StorageError, match="restore both from the same backup"), opened(folder):
        pass
    assert len([*(folder / "checkpoint").iterdir()]) == 2


def test_a_trimmed_log_needs_a_checkpoint(folder: Path) -> None:
    with Log(folder / "log", segment_bytes=4096) as log:
        log.trim(log.last_seq // 2)
        assert log.first_seq > 1
    moved = (folder / "checkpoint").rename(folder / "away")
    with pytest.raises(StorageError, match="restore the folder 'checkpoint'"), opened(folder):
        pass
    moved.rename(folder / "checkpoint")


def test_events_that_can_no_longer_be_computed_are_given_up(
    folder: Path, expected: tuple[Any, Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The server starts nevertheless: what the checkpoint and the log have is there."""
    newest = max(int(path.name) for path in (folder / "checkpoint").iterdir())
    with Log(folder / "log", segment_bytes=4096) as log:
        log.trim(newest + 1)
        first_seq = log.first_seq
        assert 1 < first_seq <= newest + 1
    shutil.rmtree(folder / "events")
    with caplog.at_level(logging.WARNING, "nearcast.server"), opened(folder) as recovered:
        kept = recovered.events.first_seq
        assert kept <= newest + 1
        assert f"events before record {kept} are lost" in caplog.text
        found = events_of(recovered)
    with opened(folder) as recovered:
        assert events_of(recovered) == found
    full: list[EventRef] = eval(expected[0][1], {"nan": float("nan"), "EventRef": EventRef})
    assert found[1] == repr([event for event in full if event.seq >= kept])


def test_recovery_goes_on_where_the_live_server_was(folder: Path, records: list[Record]) -> None:
    """`advance` appends what `recover` would compute."""
    half = len(records) // 2
    for name in ("checkpoint", "events"):
        shutil.rmtree(folder / name)
    for path in folder.glob("state.db*"):
        path.unlink()
    with opened(folder, records[:half]) as recovered:
        state = State(Sqlite(folder / "state.db"))
        for record in records[half:]:
            _, block = advance(recovered.matcher, recovered.events, state, [record])
            assert block is not None
            assert block.last_seq == record.seq + record.count - 1
        state.close()
        live = events_of(recovered)
        recovered = recovered._replace(seq=records[-1].seq)
    shutil.rmtree(folder / "events")
    with opened(folder) as again:
        assert events_of(again) == live
