"""Which matches were seen: a set of pairs says the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("msgspec")

from nearcast.server.kafka.seen import Seen

messages = st.one_of(st.integers(1, 30), st.integers((1 << 33) - 5, (1 << 33) + 5))
pairs = st.lists(st.tuples(messages, st.sampled_from([0, 1, 7, (1 << 32) - 1])), max_size=8)


@given(st.lists(pairs, max_size=40), st.integers(1, 60), st.integers(1, 10))
def test_pairs_are_known_once_they_were_added(
    batches: list[list[tuple[int, int]]], max_pairs: int, since: int
) -> None:
    seen, known = Seen(since, max_pairs), set()
    for batch in batches:
        columns = np.array(batch, np.int64).reshape(-1, 2)
        found = seen.contains(columns[:, 0], columns[:, 1]).tolist()
        for pair, contained in zip(batch, found, strict=True):
            assert contained == (pair in known and pair[0] >= seen.since)
        seen.add(columns[:, 0], columns[:, 1])
        known |= {*batch}


def test_only_old_messages_are_forgotten() -> None:
    seen = Seen(1, max_pairs=100)
    for message in range(1, 1000):
        seen.add(np.full(3, message), np.arange(3))
    assert 1000 - 100 <= seen.since < 1000 - 10
    recent = np.arange(seen.since, 1000)
    assert seen.contains(recent, np.full(len(recent), 2)).all()
