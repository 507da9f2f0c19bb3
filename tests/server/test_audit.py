"""The audit: it agrees with a server that is right, and finds every kind of damage."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from nearcast.cli import app
from nearcast.errors import InvalidInput, StorageError
from nearcast.model import region
from nearcast.server.audit import audit
from nearcast.server.audit.stored import StoredEvents
from nearcast.server.log.records import (
    TICK,
    Change,
    Definition,
    SinkDefinition,
    admin_body,
    changes_body,
    messages_body,
    moves_body,
    timed,
)
from nearcast.server.matching.matcher import Matcher
from nearcast.server.matching.postings import MATCH, STARTED, UNMATCH, Postings
from nearcast.server.matching.runs import Run
from nearcast.server.matching.segments import write_run
from nearcast.server.service import Service
from nearcast.storage.log import Entry, Log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WORDS = ["tea", "cake", "milk", "old", "town", "fire"]
START_US = 1_790_000_000_000_000
SECOND = 1_000_000


def blob(text: str, lon: float = 1, lat: float = 1, **more: Any) -> bytes:
    return json.dumps({"text": text, "lon": lon, "lat": lat, **more}).encode()


def definition(keywords: str, subscriber: str = "ann", **more: Any) -> Definition:
    row = more.pop("row", None) or {"keywords": [keywords], **box(0, 0, 2, 2)}
    values: dict[str, Any] = {"kind": "boolean", "given": {}, "box": (0.0, 0.0, 2.0, 2.0)}
    return Definition(subscriber=subscriber, row=row, **(values | more))


def box(west: float, south: float, east: float, north: float) -> dict[str, float]:
    return {"west": west, "south": south, "east": east, "north": north}


class Content:
    """Random records, with all that a server can do, on a coarse lattice of places."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.time_us = START_US
        self.seq = 0
        self.max_ttl_s = 60
        self.ending: list[str] = []  # ids of subscriptions that may end by themselves

    def place(self, kind: str) -> dict[str, Any]:
        x, y = self.random.randint(0, 5), self.random.randint(0, 5)
        if kind == "proximity":
            return {"lon": x, "lat": y}
        shape = self.random.random()
        if shape < 0.5:
            return box(x, y, x + self.random.randint(1, 3), y + self.random.randint(1, 3))
        if shape < 0.8:
            return {"lon": x, "lat": y, "radius_m": self.random.choice([1000, 111_000, 250_000])}
        ring = [[x, y], [x + 3, y], [x, y + 3], [x, y]]
        return {"geometry": region({"type": "Polygon", "coordinates": [ring]}).to_wkb()}

    def row(self, kind: str) -> dict[str, Any]:
        words = self.random.sample(WORDS, self.random.randint(1, 2))
        row: dict[str, Any] = self.place(kind)
        if kind == "boolean" and self.random.random() < 0.3:
            first, second = words[0], words[-1]
            row["expression"] = self.random.choice(
                [f"{first} OR {second}", f"{first} AND NOT fire", '"old town"', "to*"]
            )
        else:
            row["keywords"] = words
        if kind == "proximity":
            row |= {"delta": 0.5, "tau": self.random.choice([0.4, 0.7]), "max_distance_m": 300_000}
        if kind == "overlap":
            row |= {"alpha": 0.5, "theta": self.random.choice([0.2, 0.6])}
        return row

    def definition(self) -> Definition:
        pick, chance = self.random.choice, self.random.random
        kind = pick(["boolean", "boolean", "proximity", "overlap"])
        types = None
        if chance() < 0.3:
            types = tuple(self.random.sample(["match", "unmatch", "subscription-ended"], 2))
        return Definition(
            subscriber=pick(["ann", "bob", "eve"]),
            row=self.row(kind),
            box=(0.0, 0.0, 6.0, 6.0),
            kind=kind,
            given={},
            sink=SinkDefinition(f"https://example.com/{pick('xy')}") if chance() < 0.3 else None,
            types=types,
            expires_us=self.time_us + self.random.randint(-2, 40) * SECOND
            if chance() < 0.3
            else None,
            max_events=self.random.randint(1, 5) if chance() < 0.2 else 0,
            initial=chance() < 0.5,
            dwell_us=self.random.randint(1, 9) * SECOND if chance() < 0.3 else 0,
            active=chance() < 0.85,
        )

    def change(self) -> Change:
        chance = self.random.random
        given = None if chance() < 0.2 else self.definition()
        expected = None
        if chance() < 0.2:
            expected = self.random.choice([0, self.random.randint(1, self.seq + 1)])
        if given is None or not (given.expires_us or given.max_events):
            id = None if chance() < 0.3 else self.random.choice([*"abcdef", "sub-1", "sub-a"])
            return Change(id, given, expected, chance() < 0.2)
        if self.ending and chance() < 0.5:
            return Change(self.random.choice(self.ending), given, expected, must_exist=True)
        self.ending.append(f"ending {len(self.ending)}")
        return Change(self.random.choice([None, self.ending[-1]]), given)

    def message(self) -> bytes:
        chance = self.random.random
        text = " ".join(self.random.choices([*WORDS, "other"], k=self.random.randint(1, 6)))
        x, y = self.random.randint(0, 7), self.random.randint(0, 7)
        place: dict[str, Any] = {"lon": x, "lat": y}
        if chance() < 0.3:
            place = box(x, y, x + 1, y + 2)
        ttl = {"ttl_s": self.random.randint(1, self.max_ttl_s)} if chance() < 0.5 else {}
        return json.dumps({"text": text, **place, **ttl}).encode()

    def entry(self) -> Entry:
        chance = self.random.random()
        tenant = int(self.random.random() < 0.2)
        several = range(self.random.randint(1, 4))
        self.time_us += self.random.choice([0, 0, 1, 3]) * SECOND
        if chance < 0.5:
            entry = messages_body(tenant, [self.message() for _ in several])
        elif chance < 0.75:
            entry = changes_body(tenant, [self.change() for _ in several])
        elif chance < 0.92:
            names = [*"abcdef", "sub-0", "sub-3", *self.ending[-4:]]
            ids = [self.random.choice(names) for _ in several]
            kinds = ["boolean", "boolean", "proximity"]
            entry = moves_body(tenant, [(id, self.place(self.random.choice(kinds))) for id in ids])
        elif chance < 0.94:
            op = self.random.choice(["sink-gone", "remove-sink"])
            id = f"sink-{self.random.randint(1, 9):x}"
            entry = admin_body({"op": op, "id": id, "reason": "status 410"})
        elif chance < 0.96:
            name = self.random.choice(["zoe", "ann"])
            entry = admin_body({"op": "subscriber", "tenant": tenant, "name": name, "settings": {}})
        else:
            entry = Entry(TICK, b"", 1)
        self.seq += entry.count
        return timed(entry, self.time_us)


def matched(folder: Path, entries: list[Entry]) -> Path:
    """Write entries to the log of a folder, and let a server match them."""
    with Log(folder / "log", segment_bytes=1 << 12) as log:
        for entry in entries:
            log.append([entry])

    async def serve() -> None:
        service = Service.open(folder, segment_bytes=1 << 12)
        service.start()
        await service.close()

    asyncio.run(serve())
    return folder


@pytest.mark.parametrize("seed", range(12))
def test_a_server_that_is_right_agrees(tmp_path: Path, seed: int) -> None:
    content = Content(seed)
    matched(tmp_path, [content.entry() for _ in range(250)])
    report = audit(tmp_path)
    assert report.difference is None, report.difference
    assert report.first_seq == 1
    assert report.last_seq >= content.seq  # the server may have added ticks
    assert report.events > 100


def many_ranked(count: int, word: str) -> Entry:
    row = {"lon": 1, "lat": 1, "delta": 0.5, "tau": 0.3, "max_distance_m": 500_000}
    rows = [{**row, "keywords": [word, f"w{number % 7}"]} for number in range(count)]
    given = [definition("", kind="proximity", row=row) for row in rows]
    return changes_body(0, [Change(None, one) for one in given])


def test_weights_are_counted_at_the_same_moments(tmp_path: Path) -> None:
    entries = [
        entry
        for word, count in (("tea", 3), ("cake", 520), ("milk", 530), ("fire", 5))
        for entry in (
            many_ranked(count, word),
            messages_body(0, [blob(f"tea cake milk fire w{n}") for n in range(3)]),
        )
    ]
    matched(tmp_path, [timed(entry, START_US) for entry in entries])
    report = audit(tmp_path)
    assert report.difference is None, report.difference
    assert report.messages == 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A server that has matched a few messages of every kind."""
    near = {"keywords": ["tea"], "lon": 1, "lat": 1}
    near |= {"delta": 0.5, "tau": 0.2, "max_distance_m": 500_000}
    subscriptions = [
        Change("a", definition("tea")),
        Change("b", definition("tea")),
        Change("c", definition("tea", kind="proximity", row=near)),
        Change("d", definition("tea", "bob", expires_us=START_US + SECOND)),
    ]
    entries = [
        timed(changes_body(0, subscriptions), START_US),
        timed(messages_body(0, [blob("hot tea", ttl_s=60), blob("tea", 1.5), blob("x")]), START_US),
        timed(moves_body(0, [("a", box(5, 5, 6, 6))]), START_US + 2 * SECOND),
        timed(messages_body(0, [blob("tea", lon=5.5, lat=5.5)]), START_US + 3 * SECOND),
    ]
    return matched(tmp_path, entries)


def rewrite(folder: Path, change: Callable[[Postings], Postings]) -> None:
    """Change the postings of a folder; checksums are those of the changed ones."""
    checkpoint = max((folder / "checkpoint").glob("*"))
    events = StoredEvents(folder)
    first, last = events.first_seq, events.last_seq
    postings = change(events.between(first, last))
    shutil.rmtree(checkpoint / "tail")
    runs = [Run.of(postings, first)]
    write_run(checkpoint / "tail", first, last, runs, np.zeros(last - first + 1, np.uint32))


def at(postings: Postings, **wanted: int) -> int:
    """Return the first row with these values."""
    same = [getattr(postings, name) == value for name, value in wanted.items()]
    return int(np.flatnonzero(np.logical_and.reduce(same))[0])


def without(row: int, postings: Postings) -> Postings:
    return postings.take(np.delete(np.arange(postings.rows), row))


def replaced(postings: Postings, row: int, **values: float) -> Postings:
    columns = {name: getattr(postings, name).copy() for name in values}
    for name, value in values.items():
        columns[name][row] = value
    return postings._replace(**columns)


def swapped(postings: Postings, row: int) -> Postings:
    order = np.arange(postings.rows)
    order[[row, row + 1]] = row + 1, row
    return postings.take(order)


def again(postings: Postings, row: int, **values: float) -> Postings:
    """Return postings with a row twice, the second one changed."""
    order = np.sort(np.append(np.arange(postings.rows), row))
    return replaced(postings.take(order), row + 1, **values)


DAMAGE: dict[str, tuple[str, int, Callable[[Postings], Postings]]] = {
    "a match is missing": (
        "missing",
        5,
        lambda p: without(at(p, seq=5, handle=1), p),
    ),
    "a match is there that should not be": (
        "unexpected",
        7,
        lambda p: again(p, at(p, seq=6, handle=1), seq=7, message=7),
    ),
    "a match is there twice": (
        "unexpected",
        5,
        lambda p: again(p, at(p, seq=5, handle=1)),
    ),
    "a score is slightly different": (
        "score",
        6,
        lambda p: replaced(p, at(p, seq=6, handle=2), score=p.score[at(p, seq=6, handle=2)] + 1e-9),
    ),
    "a match without ranking has a score": (
        "score",
        5,
        lambda p: replaced(p, at(p, seq=5, handle=0), score=0.5),
    ),
    "a match is of another subscription": (
        "missing",
        5,
        lambda p: replaced(p, at(p, seq=5, handle=0), handle=3),
    ),
    "a match is of an unknown subscription": (
        "unexpected",
        7,
        lambda p: again(p, at(p, seq=6, handle=1), seq=7, message=7, handle=99),
    ),
    "matches are in another order": (
        "order",
        5,
        lambda p: swapped(p, at(p, seq=5, handle=0)),
    ),
    "an end is stored as a match": (
        "kind",
        8,
        lambda p: replaced(p, at(p, seq=8, kind=UNMATCH), kind=MATCH),
    ),
    "the start of a subscription is missing": (
        "missing",
        2,
        lambda p: without(at(p, seq=2, kind=STARTED), p),
    ),
    "the end of a subscription is missing": (
        "missing",
        8,
        lambda p: without(at(p, seq=8, handle=3), p),
    ),
    "a match is for another subscriber": (
        "missing",
        5,
        lambda p: without(at(p, seq=5, handle=3), p),
    ),
    "the last event is missing": (
        "missing",
        9,
        lambda p: without(p.rows - 1, p),
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(folder: Path, name: str) -> None:
    what, seq, change = DAMAGE[name]
    assert audit(folder).difference is None
    rewrite(folder, change)
    difference = audit(folder).difference
    assert difference is not None
    assert (difference.what, difference.seq) == (what, seq)
    run = CliRunner().invoke(app, ["audit", str(folder)])
    assert run.exit_code == 1
    assert f"The first difference is at event {difference.event}." in run.output
    assert f"server has    {difference.server}" in run.output
    assert f"scan has      {difference.scan}" in run.output


def test_a_difference_is_explained(folder: Path) -> None:
    rewrite(folder, lambda p: without(at(p, seq=5, handle=1), p))
    difference = audit(folder).difference
    assert difference is not None
    assert difference.subscription == "b (handle 1)"
    assert difference.channel == "subscriber 'ann' of tenant 0"
    assert (difference.message, difference.server, difference.scan) == (5, "nothing", "a match")
    assert difference.event.endswith("-5")
    assert "It has all required words: tea." in difference.explanation
    assert "The message is inside the region." in difference.explanation


def test_a_bug_in_matching_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    post = Matcher._post

    def drop_one(self: Matcher, *columns: Any) -> list[tuple[int, int]]:
        keep = ~((columns[0] == 30) & (columns[1] == 2))
        return post(self, *(column[keep] for column in columns))

    monkeypatch.setattr(Matcher, "_post", drop_one)
    subscriptions = [Change(None, definition("tea")) for _ in range(4)]
    entries = [changes_body(0, subscriptions), messages_body(0, [blob("tea")] * 40)]
    matched(tmp_path, [timed(entry, START_US) for entry in entries])
    difference = audit(tmp_path).difference
    assert difference is not None
    assert (difference.what, difference.seq, difference.subscription) == (
        "missing",
        30,
        "sub-2 (handle 2)",
    )


def test_all_events_agree(folder: Path) -> None:
    run = CliRunner().invoke(app, ["audit", str(folder)])
    assert run.exit_code == 0, run.output
    report = audit(folder)
    assert f"all {report.events} events agree." in run.output
    assert report.messages == 4


def test_a_stretch_is_given_by_events_seqs_or_times(folder: Path) -> None:
    with Log(folder / "log") as log:
        epoch = log.epoch_of(5)
    places = [("5", "6"), (f"{epoch}-5", f"{epoch}-6.1"), (f"{epoch}-5", "6")]
    for first, last in places:
        report = audit(folder, first, last)
        assert (report.first_seq, report.last_seq, report.messages) == (5, 6, 2)
    moment = "2026-09-21T14:13:22Z"  # of the move
    report = audit(folder, moment, moment)
    assert (report.first_seq, report.last_seq) == (8, 8)
    rewrite(folder, lambda p: without(at(p, seq=5, handle=1), p))
    assert audit(folder, first="6").difference is None
    assert audit(folder, last="4").difference is None
    assert audit(folder, last="5").difference is not None


@pytest.mark.parametrize("place", ["0", "999", "77-5", "yesterday", "5-"])
def test_a_place_that_is_not_in_the_folder_is_an_error(folder: Path, place: str) -> None:
    with pytest.raises(InvalidInput, match="--from"):
        audit(folder, first=place)


def test_a_folder_that_is_no_server_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not the folder of a server"):
        audit(tmp_path)


@pytest.mark.parametrize("seed", range(20, 24))
def test_a_stretch_depends_on_what_was_before(tmp_path: Path, seed: int) -> None:
    content = Content(seed)
    matched(tmp_path, [content.entry() for _ in range(250)])
    for first in (content.seq // 3, content.seq // 2, content.seq - 5):
        report = audit(tmp_path, str(first))
        assert report.difference is None, report.difference


def test_a_running_server_is_audited_as_far_as_its_folder_goes(tmp_path: Path) -> None:
    async def serve() -> None:
        service = Service.open(tmp_path)
        service.start()
        await service.change(0, [Change("a", definition("tea"))])
        await service.publish(0, [blob("tea")] * 5, b"", None, b"")
        await service.move(0, [("a", box(5, 5, 6, 6))])
        await asyncio.to_thread(service.pipeline.checkpoint)
        await service.publish(0, [blob("tea", 5.5, 5.5)] * 3, b"", None, b"")
        before = sorted(path for path in tmp_path.rglob("*"))
        report = await asyncio.to_thread(audit, tmp_path)
        assert report.difference is None
        assert (report.last_seq, report.messages, report.events) == (7, 5, 6)
        assert any("only in the memory of the server" in note for note in report.notes)
        assert sorted(path for path in tmp_path.rglob("*")) == before
        await service.close()

    asyncio.run(serve())
    report = audit(tmp_path)
    assert (report.difference, report.messages, report.events) == (None, 8, 9)


@pytest.mark.parametrize("seed", range(40, 46))
def test_a_trimmed_log_is_audited_from_a_checkpoint_on(tmp_path: Path, seed: int) -> None:
    content = Content(seed)
    matched(tmp_path, [content.entry() for _ in range(150)])
    [checkpoint] = (tmp_path / "checkpoint").glob("*")
    middle = int(checkpoint.name)
    content.time_us = time.time_ns() // 1000  # the server has added ticks with the time of day
    matched(tmp_path, [content.entry() for _ in range(150)])
    with Log(tmp_path / "log", segment_bytes=1 << 10) as log:
        log.trim(middle - 30)
        assert 1 < log.first_seq <= middle + 1
    report = audit(tmp_path)
    assert report.difference is None, report.difference
    assert report.first_seq == middle + 1
    assert report.messages > 50
    assert any(f"checkpoint at seq {middle:,}" in note for note in report.notes)


@pytest.mark.parametrize("seed", range(60, 66))
def test_messages_that_are_alive_and_gone_from_the_log_count(tmp_path: Path, seed: int) -> None:
    content = Content(seed)
    content.time_us = time.time_ns() // 1000  # nothing is due yet: the server adds no ticks
    content.max_ttl_s = 600
    matched(tmp_path, [content.entry() for _ in range(150)])
    [checkpoint] = (tmp_path / "checkpoint").glob("*")
    middle = int(checkpoint.name)
    matched(tmp_path, [content.entry() for _ in range(100)])
    with Log(tmp_path / "log", segment_bytes=1 << 10) as log:
        log.trim(middle)
        first = log.first_seq
        assert 1 < first <= middle + 1
    postings = StoredEvents(tmp_path).between(middle + 1, content.seq)
    assert np.any((0 < postings.message) & (postings.message < first))
    report = audit(tmp_path)
    assert report.difference is None, report.difference
    assert report.first_seq == middle + 1


@pytest.fixture
def trimmed(tmp_path: Path) -> Path:
    """A server whose log lacks two messages, 2 and 3, that were alive when `a` came near."""
    start_us = time.time_ns() // 1000
    far = definition("tea", row={"keywords": ["tea"], **box(5, 5, 6, 6)}, max_events=3)
    others = [blob(f"x {number}") for number in range(200)]
    before = [
        changes_body(0, [Change("a", far)]),
        messages_body(0, [blob("tea", ttl_s=3600), blob("old tea", ttl_s=3600)]),
        *(messages_body(0, [other]) for other in others),
    ]
    matched(tmp_path, [timed(entry, start_us) for entry in before])
    after = [moves_body(0, [("a", box(0, 0, 2, 2))]), messages_body(0, [blob("tea")] * 3)]
    matched(tmp_path, [timed(entry, start_us + SECOND) for entry in after])
    with Log(tmp_path / "log", segment_bytes=1 << 12) as log:
        log.trim(203)
        assert 3 < log.first_seq <= 203
    return tmp_path


def test_a_maximum_counts_matches_with_messages_that_are_gone(trimmed: Path) -> None:
    report = audit(trimmed)
    assert report.difference is None, report.difference
    assert (report.first_seq, report.messages, report.events) == (204, 3, 4)


@pytest.mark.parametrize("message", [2, 3])
def test_a_match_with_a_message_that_is_gone_is_missed(trimmed: Path, message: int) -> None:
    rewrite(trimmed, lambda p: without(at(p, seq=204, message=message), p))
    difference = audit(trimmed).difference
    assert difference is not None
    assert (difference.what, difference.seq, difference.message) == ("missing", 204, message)
    assert "The log has no such message." in difference.explanation
