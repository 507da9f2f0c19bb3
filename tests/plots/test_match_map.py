"""The map: its counts, and drawing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.columns import UNITS
from nearcast.plots.match_map import CELLS_PER_DEG, MapData

if TYPE_CHECKING:
    from pathlib import Path

degrees = st.tuples(
    st.integers(-180 * 8, 180 * 8),
    st.integers(-90 * 8, 90 * 8),
    st.integers(0, 80),
    st.integers(0, 80),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(degrees, max_size=6))
def test_each_cell_counts_the_boxes_that_touch_it(places: list[tuple[int, ...]]) -> None:
    boxes = [
        (w / 8, s / 8, min(w / 8 + dw / 8, 180.0), min(s / 8 + dh / 8, 90.0))
        for w, s, dw, dh in places
    ]
    data = MapData()
    data.add_boxes(np.array(boxes).reshape(-1, 4).__mul__(UNITS).astype(np.int32))
    expected = np.zeros((180 * CELLS_PER_DEG, 360 * CELLS_PER_DEG))
    for west, south, east, north in boxes:
        x0, x1 = (min(int((x + 180) * CELLS_PER_DEG), 1439) for x in (west, east))
        y0, y1 = (min(int((y + 90) * CELLS_PER_DEG), 719) for y in (south, north))
        expected[y0 : y1 + 1, x0 : x1 + 1] += 1
    assert (data.density() == expected).all()


def test_many_messages_are_sampled_evenly() -> None:
    data = MapData()
    for first in range(0, 90_000, 9_000):
        lon = np.arange(first, first + 9_000)
        data.add_messages(np.stack([lon, lon, lon, lon], axis=1).astype(np.int32), lon % 2)
    kept = np.round(data.points()[:, 0] * UNITS)
    assert 10_000 < len(kept) <= 20_000
    assert len(set(np.diff(kept[-5_000:]))) == 1


@pytest.mark.parametrize("width", [0.0, 0.4, 300.0])
def test_maps_of_any_extent_can_be_drawn(width: float, tmp_path: Path) -> None:
    lon = np.linspace(-width / 2, width / 2, 50) * UNITS
    box = np.stack([lon, lon / 4, lon, lon / 4], axis=1).astype(np.int32)
    data = MapData()
    data.add_boxes(box)
    data.add_messages(box, np.arange(50))
    data.draw(tmp_path / "map.png", "title")
    data = MapData()
    data.draw(tmp_path / "empty.png", "nothing")
    for name in ("map.png", "empty.png"):
        header = (tmp_path / name).read_bytes()[:24]
        assert int.from_bytes(header[16:20], "big") == 1600
        assert int.from_bytes(header[20:24], "big") == 900
