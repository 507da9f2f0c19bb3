"""The audit: it agrees with a server that is right, and finds every kind of damage."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nearcast.errors import InvalidInput
from nearcast.server.audit import audit
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
from nearcast.server.matching.segments import read_run, unpacked_reach, write_run
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
        return {"geometry": json.dumps({"type": "Polygon", "coordinates": [ring]})}

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
        ttl = {"ttl_s": self.random.randint(1, 60)} if chance() < 0.5 else {}
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
            entry = moves_body(
                tenant, [(id, self.place(self.random.choice(kinds))) for id in ids]
            )
        elif chance < 0.96:
            name = self.random.choice(["zoe", "ann"])
            entry = admin_body(
                {"op": "subscriber", "tenant": tenant, "name": name, "settings": {}}
            )
        else:
            entry = Entry(TICK, b"", 1)
        self.seq += entry.count
        return timed(entry, self.time_us)


def matched(folder: Path, entries: list[Entry]) -> Path:
    """Write entries to the log of a folder, and let a server match them."""
    with Log(folder / "log", segment_bytes=1 << 16) as log:
        for entry in entries:
            log.append([entry])

    async def serve() -> None:
        service = Service.open(folder, segment_bytes=1 << 16)
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
