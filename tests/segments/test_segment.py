"""A segment whose rows die, one at a time and several at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from nearcast.columns import Messages
from nearcast.indexes import create
from nearcast.intake import read_subscriptions
from nearcast.segments.segment import Segment
from nearcast.text import Vocabulary


@pytest.mark.parametrize("rows", [[1], [1, 2], [0, 2, 3]])
def test_dead_rows_match_until_they_died(rows: list[int]) -> None:
    vocabulary = Vocabulary()
    columns = {"id": [0, 1, 2, 3], "keywords": [["tea"]] * 4}
    place = {"lon": [0.0] * 4, "lat": [0.0] * 4, "radius_m": [1.0] * 4}
    subscriptions, _ = read_subscriptions(pa.table(columns | place), vocabulary)
    segment = Segment.build(subscriptions, create("scan"), vocabulary)
    messages = Messages.of([[vocabulary.id_of("tea")]], [[0, 0]])
    segment.kill(np.array(rows), 5)
    assert segment.tombstones == len(rows)
    living = [row for row in range(4) if row not in rows]
    for version, expected in ((4, [0, 1, 2, 3]), (5, living), (6, living)):
        assert np.flatnonzero(segment.alive(version)).tolist() == expected
        found = segment.match(messages, version=version)
        assert sorted(found.subscription.tolist()) == expected
