"""Updates that have to last: what becomes of them when their message expires meanwhile."""

from __future__ import annotations

import pytest

from matching_oracle import SECOND, START_US, message_json
from nearcast.server.log.records import (
    TICK,
    Change,
    Definition,
    changes_body,
    messages_body,
    moves_body,
    timed,
)
from nearcast.server.matching.dwell import Dwelling, Waiting
from nearcast.server.matching.matcher import Matcher, new_engine
from nearcast.server.matching.postings import MATCH, UNMATCH
from nearcast.storage.log import Entry, Record

HERE = {"west": 0, "south": 0, "east": 1, "north": 1}
AWAY = {"west": 8, "south": 8, "east": 9, "north": 9}


def posted(*entries: tuple[int, Entry]) -> list[tuple[int, int, int]]:
    """Return seq, message and kind of the matches that records lead to, given with seconds."""
    records, seq = [], 1
    for seconds, entry in entries:
        body = timed(entry, START_US + seconds * SECOND).body
        records.append(Record(seq, entry.kind, body, 7, entry.count))
        seq += entry.count
    with new_engine() as engine:
        found = Matcher(engine).process(records).postings
    kinds = zip(found.seq.tolist(), found.message.tolist(), found.kind.tolist(), strict=True)
    return [one for one in kinds if one[2] in (MATCH, UNMATCH)]


def subscription(place: dict[str, int], dwell_s: int = 4) -> Entry:
    row = {"keywords": ["tea"], **place}
    definition = Definition(
        "ann", row, (0.0, 0.0, 9.0, 9.0), "boolean", {}, dwell_us=dwell_s * SECOND
    )
    return changes_body(0, [Change("a", definition)])


def tea(ttl_s: int) -> Entry:
    return messages_body(0, [message_json(["tea"], 1, 1, ttl_s)])


def move(place: dict[str, int]) -> Entry:
    return moves_body(0, [("a", place)])


TIME_PASSES = Entry(TICK, b"", 1)


@pytest.mark.parametrize(
    ("ttl_s", "expected"),
    [
        (20, [(4, 2, MATCH), (6, 2, UNMATCH)]),
        (6, [(4, 2, MATCH)]),  # it lives when the match is due, and is gone at the next move
        (5, []),  # it ends in the moment in which the match is due
        (3, []),
    ],
)
def test_a_match_is_sent_only_while_its_message_lives(
    ttl_s: int, expected: list[tuple[int, int, int]]
) -> None:
    found = posted(
        (0, subscription(AWAY)),
        (0, tea(ttl_s)),
        (1, move(HERE)),
        (5, TIME_PASSES),
        (7, move(AWAY)),
        (30, TIME_PASSES),
    )
    assert found == expected


def test_a_match_that_is_late_is_not_sent_after_the_end_of_its_message() -> None:
    found = posted((0, subscription(AWAY)), (0, tea(9)), (1, move(HERE)), (60, TIME_PASSES))
    assert found == []


def test_an_end_is_sent_although_its_message_has_expired_meanwhile() -> None:
    found = posted((0, subscription(HERE)), (0, tea(3)), (1, move(AWAY)), (5, TIME_PASSES))
    assert found == [(2, 2, MATCH), (4, 2, UNMATCH)]


def test_what_waits_is_saved_with_the_end_of_its_message() -> None:
    dwelling = Dwelling()
    dwelling.add(Waiting(5, 0, 1, 1, 0.5, 9))
    dwelling.add(Waiting(5, 0, 2, 1, 0.5, 5))
    dwelling.add(Waiting(5, 0, 3, -1, 0.5, 5))
    loaded = Dwelling.from_arrays(dwelling.arrays())
    assert [update.message for update in loaded.take(5)] == [1, 3]
