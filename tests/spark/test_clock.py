"""One time has one version, for ever: whoever asks, and whatever is committed meanwhile."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from nearcast.errors import StorageError
from nearcast.spark.artifact import clock as clock_module
from nearcast.spark.artifact.clock import now_ms, wait_until
from nearcast.spark.artifact.versions import Artifact, Version, version_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = Version("scan", {}, "integer", ())
COMMITS = 60
PLACES = ["{}", "local://{}"]


@pytest.fixture(params=PLACES, ids=["locks", "no locks"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return an artifact whose files can be locked, and one whose files cannot."""
    place: str = request.param.format(tmp_path)
    assert Artifact(place).clock.lockable == ("local:" not in place)
    return place


def ask(uri: str, stop: threading.Event, ahead_ms: int) -> Iterator[tuple[int, int]]:
    """Ask for the version of this moment, again and again."""
    moment = 0
    while not stop.is_set():
        wait_until(moment - ahead_ms + 3)
        moment = now_ms() + ahead_ms
        yield moment, Artifact(uri).at(moment).number


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Let threads take turns often: a commit has many steps, and none should take long."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("ahead_ms", [0, 15, -15])
def test_one_time_has_one_version_while_versions_are_committed(uri: str, ahead_ms: int) -> None:
    """Readers whose clock is ahead of that of the committer, or behind, get one answer as well."""
    artifact = Artifact(uri)
    artifact.commit(SMALL)
    stop = threading.Event()

    def answers() -> list[tuple[int, int]]:
        return list(ask(uri, stop, ahead_ms))

    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(answers) for _ in range(2)]
        try:
            for _ in range(COMMITS):
                artifact.commit(SMALL)
        finally:
            stop.set()
        first = [answer for one in asked for answer in one.result()]
    assert len({number for _, number in first}) > 4
    wrong = [(at, was, now) for at, was in first if (now := Artifact(uri).at(at).number) != was]
    assert wrong == []
    created = [artifact.read(number).created_ms for number in artifact.numbers()]
    assert all(one < next_one for one, next_one in pairwise(created))


def test_a_time_that_was_asked_about_is_before_the_next_version(uri: str) -> None:
    artifact = Artifact(uri)
    artifact.commit(SMALL)
    soon = now_ms() + 200
    assert artifact.at(soon).number == 1
    assert artifact.commit(SMALL).created_ms > soon
    assert now_ms() > soon, "a commit returns when its time has come"
    assert Artifact(uri).at(soon).number == 1
    assert Artifact(uri).at(now_ms()).number == 2


def test_only_the_latest_time_is_kept(uri: str) -> None:
    artifact = Artifact(uri)
    artifact.commit(SMALL)
    began = now_ms()
    for moment in (began + 1, began + 3, began + 2):
        artifact.at(moment)
    assert [n for n in artifact.folder.names("clock") if n.isdecimal()] == [f"{began + 3:015d}"]


def test_a_clock_that_is_set_back_changes_no_answer(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = Artifact(uri)
    real = time.time_ns
    first = artifact.commit(SMALL)
    asked = now_ms()
    assert artifact.at(asked).number == 1
    monkeypatch.setattr(time, "time_ns", lambda: real() - 100_000_000)
    second = artifact.commit(SMALL)
    assert second.created_ms > asked >= first.created_ms
    assert Artifact(uri).at(asked).number == 1
    assert Artifact(uri).at(second.created_ms).number == 2


def test_a_clock_that_is_far_ahead_is_an_error_and_commits_nothing(uri: str) -> None:
    artifact = Artifact(uri)
    artifact.commit(SMALL)
    later = now_ms() + 3_600_000
    assert artifact.at(later).number == 1
    with pytest.raises(StorageError, match=r"clock/0\d+: a stream has asked .* correct the clock"):
        artifact.commit(SMALL)
    assert artifact.numbers() == [1]
    artifact.folder.remove(f"clock/{later:015d}")
    assert artifact.commit(SMALL).number == 2
    artifact.folder.create(version_file(3), replace(SMALL, number=3, created_ms=later).render())
    with pytest.raises(StorageError, match=r"is dated .* or build into a new folder"):
        artifact.commit(SMALL)


def test_a_damaged_version_can_be_replaced(uri: str, tmp_path: Path) -> None:
    artifact = Artifact(uri)
    artifact.commit(SMALL)
    (tmp_path / version_file(1)).write_bytes(b"{}")
    assert artifact.commit(SMALL).number == 2


def test_a_dead_commit_is_waited_for_once_where_files_cannot_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock_module, "COMMIT_S", 0.2)
    artifact = Artifact(f"local://{tmp_path}")
    artifact.commit(SMALL)
    artifact.folder.create("clock/commit-dead", b"")
    assert artifact.at(now_ms()).number == 1
    assert "commit-dead" not in artifact.folder.names("clock")


def test_a_commit_that_runs_is_waited_for(uri: str) -> None:
    artifact = Artifact(uri)
    artifact.commit(SMALL)
    with ThreadPoolExecutor(1) as pool:
        with artifact.clock.committing():
            created_ms = artifact.clock.next_time(0)
            asked = pool.submit(Artifact(uri).at, created_ms)
            second = replace(SMALL, number=2, created_ms=created_ms)
            while f"{created_ms:015d}" not in artifact.folder.names("clock"):
                time.sleep(0.001)
            artifact.folder.create(version_file(2), second.render())
        assert asked.result(timeout=60).number == 2


def test_who_may_not_write_can_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = Artifact(tmp_path)
    artifact.commit(SMALL)

    def refuse(name: str, content: bytes) -> None:
        raise PermissionError(name)

    reader = Artifact(tmp_path)
    monkeypatch.setattr(reader.folder, "create", refuse)
    soon = now_ms() + 50
    assert reader.at(soon).number == 1
    assert now_ms() > soon
    assert artifact.commit(SMALL).created_ms > soon
