"""Recent records: every message is found as the record has it, and memory stays bounded."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from nearcast.server.delivery.recent import RecentRecords
from nearcast.server.log.records import CHANGES, MESSAGES, message_at, messages_body, timed
from nearcast.storage.log import Record


def _record(seq: int, count: int, kind: int = MESSAGES) -> Record:
    texts = [b'{"text":"%s"}' % (b"x" * number) for number in range(count)]
    entry = timed(messages_body(0, texts), 1_000 + seq)
    return Record(seq, kind, entry.body, 7, count)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.integers(0, 99))
def test_messages_are_found_in_any_order_of_adding(counts: list[int], seed: int) -> None:
    records, seq = [], 1
    for count in counts:
        records.append(_record(seq, count))
        seq += count + 1  # one number belongs to no record
    recent = RecentRecords()
    recent.add(random.Random(seed).sample(records, len(records)))
    for record in records:
        for number in range(record.seq, record.seq + record.count):
            found = recent.find(number)
            assert found is not None
            assert found.record is record
            assert found.time_us == 1_000 + record.seq
            assert found.message(number) == message_at(record, number)[1]
        assert recent.find(record.seq + record.count) is None
    assert recent.find(0) is None


def test_the_oldest_records_are_forgotten() -> None:
    records = [_record(seq, 1) for seq in range(1, 11)]
    size = len(records[0].body)
    recent = RecentRecords(max_bytes=3 * size)
    recent.add([*records, records[-1]])
    kept = [record.seq for record in records if recent.find(record.seq) is not None]
    assert kept == [8, 9, 10]
    fewer = RecentRecords(max_records=2)
    fewer.add(records)
    assert [record.seq for record in records if fewer.find(record.seq)] == [9, 10]


def test_the_last_record_is_kept_however_large_it_is() -> None:
    recent = RecentRecords(max_bytes=1)
    opened = recent.add_one(_record(5, 3))
    assert recent.find(6) is opened


def test_records_without_messages_have_none() -> None:
    assert RecentRecords().add_one(_record(1, 1, CHANGES)).message(1) == b""
