"""Short arrays are sorted as NumPy sorts them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.compiled.sorting import MAX_INSERTIONS, sort_short


@settings(deadline=None)
@given(st.lists(st.integers(-5, 5), max_size=2 * MAX_INSERTIONS))
def test_values_ascend(values: list[int]) -> None:
    array = np.array(values, np.int32)
    sort_short(array)
    assert array.tolist() == sorted(values)
