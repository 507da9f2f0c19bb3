"""The sweep agrees with GEOS on whether polygons are valid, and large polygons take no time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.errors import RegionError
from nearcast.model import Polygon
from nearcast.model.ring_sweep import is_certainly_valid

Ring = list[tuple[int, int]]

lattice = st.tuples(st.integers(-4, 4), st.integers(-4, 4))
rings = st.lists(lattice, min_size=3, max_size=8)


def closed(ring: Ring) -> Any:
    return np.array([*ring, ring[0]], np.int64)


def touches_itself(parts: list[list[Ring]]) -> bool:
    """Whether rings share a point with each other or with themselves."""
    lines = [shapely.LinearRing(closed(ring)) for part in parts for ring in part]
    if not all(shapely.is_simple(line) for line in lines):
        return True
    return any(
        shapely.intersects(one, other)
        for number, one in enumerate(lines)
        for other in lines[number + 1 :]
    )


@settings(max_examples=examples(600), deadline=None)
@given(st.lists(st.lists(rings, min_size=1, max_size=3), min_size=1, max_size=3))
@example([[[(0, 0), (4, 0), (2, 4)], [(1, 1), (3, 1), (2, 3)]]])
@example(
    [
        [[(-4, -4), (4, -4), (4, 4), (-4, 4)], [(-3, -3), (3, -3), (0, 3)]],
        [[(0, 0), (1, 0), (0, 1)]],
    ]
)
@example([[[(-4, -4), (4, -4), (4, 4), (-4, 4)]], [[(0, 0), (1, 0), (0, 1)]]])
@example([[[(0, 0), (1, 0), (2, 0)]]])
def test_agrees_with_geos(parts: list[list[Ring]]) -> None:
    polygons = [
        shapely.Polygon(closed(part[0]), [closed(hole) for hole in part[1:]]) for part in parts
    ]
    valid = bool(shapely.is_valid(shapely.MultiPolygon(polygons)))
    certainly = is_certainly_valid([[closed(ring) for ring in part] for part in parts])
    assert certainly == (valid and not touches_itself(parts))


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 2**32), st.integers(3, 3_000))
@example(0, 3_000)
@example(1, 3_000)
def test_blocks_are_split_and_removed(seed: int, count: int) -> None:
    """More edges on the sweep line at a time than a block has."""
    rng = np.random.default_rng(seed)
    angle = np.sort(rng.uniform(0, 2 * math.pi, count))
    reach = rng.uniform(0.1, 1.0, count)
    ring = np.rint(np.column_stack([reach * np.cos(angle), reach * np.sin(angle)]) * 1e6)
    ring = np.vstack([ring, ring[:1]]).astype(np.int64)
    swap = ring.copy()
    if seed % 2:
        swap[[1, -2]] = swap[[-2, 1]]
    for candidate in (ring, swap):
        expected = bool(shapely.is_valid(shapely.Polygon(candidate)))
        assert is_certainly_valid([[candidate]]) == expected


def star(count: int, lon: float) -> list[list[tuple[float, float]]]:
    """Return a star with long thin spikes, whose bounding boxes nearly all overlap."""
    angle = np.linspace(0, 2 * math.pi, count, endpoint=False)
    reach = 5 + 5 * np.random.default_rng(0).random(count)
    x, y = lon + reach * np.cos(angle), reach * np.sin(angle)
    return [list(zip(x.tolist(), y.tolist(), strict=True))]


@pytest.mark.parametrize("lon", [10, 180])
def test_large_polygons_do_not_need_geos(lon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """GEOS compares all pairs of edges with overlapping boxes: 20 s for 100,000 corners."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("GEOS was asked")

    for name in ("is_valid", "intersection", "union_all"):
        monkeypatch.setattr(shapely, name, refuse)
    polygon = Polygon(star(12_000, lon))
    assert len(polygon.boxes()) == (2 if lon == 180 else 1)


def test_a_large_polygon_that_crosses_itself_is_refused() -> None:
    [ring] = star(12_000, 10)
    ring[100], ring[5_000] = ring[5_000], ring[100]
    with pytest.raises(RegionError, match="Self-intersection"):
        Polygon([ring])
