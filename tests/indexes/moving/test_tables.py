"""Hash tables of many owners, against dictionaries."""

from __future__ import annotations

import numpy as np
import pytest

from nearcast.indexes.moving.tables import (
    KEY,
    NO_KEY,
    NO_VALUE,
    VALUE,
    Tables,
    claim_key,
    find_key,
    region_end,
    remove_key,
)

OWNERS, COLUMN = 5, 1


@pytest.mark.parametrize("keys", [6, 20, 300])
def test_tables_are_like_dictionaries(keys: int) -> None:
    rng = np.random.default_rng(keys)
    tables, header = Tables(), np.zeros((OWNERS, 3), np.int32)
    expected: list[dict[int, int]] = [{} for _ in range(OWNERS)]
    for step in range(1500):
        owner, key = int(rng.integers(OWNERS)), int(rng.integers(keys)) * 7919
        at = int(find_key(tables.arrays.slot, header, owner, COLUMN, key))
        assert (at >= 0) == (key in expected[owner])
        if at >= 0 and rng.random() < 0.5:
            assert tables.arrays.slot[at, VALUE] == expected[owner].pop(key)
            remove_key(tables.arrays, header, owner, COLUMN, at)
        else:
            tables.reserve(1)
            at = int(claim_key(tables.arrays, header, owner, COLUMN, key))
            old = expected[owner].get(key, int(NO_VALUE))
            assert tables.arrays.slot[at, VALUE] == old
            tables.arrays.slot[at, VALUE] = expected[owner][key] = step
    assert len(tables) == sum(map(len, expected))
    for owner in range(OWNERS):
        first, end = int(header[owner, COLUMN]), int(region_end(header, owner, COLUMN))
        rows = tables.arrays.slot[first:end]
        rows = rows[rows[:, KEY] != NO_KEY]
        assert dict(rows.tolist()) == expected[owner]
