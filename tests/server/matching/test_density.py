"""How many subscriptions there are where, compared with a plain loop."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.server.matching.density import MAX_ROWS, Density, count_subscriptions
from nearcast.server.matching.registry import ACTIVE, DELETED, ENDED, NEW, PAUSED, Channel, Registry
from nearcast.server.state.cells import Box

WORLD = Box(-180, -90, 180, 90)


class Given(NamedTuple):
    """A subscription, as a person would write it down."""

    tenant: int
    subscriber: str
    status: int
    box: Box


def registry_of(subscriptions: list[Given]) -> Registry:
    registry = Registry()
    for one in subscriptions:
        channel, _ = registry.add_channel(Channel(one.tenant, one.subscriber))
        row = NEW._replace(tenant=one.tenant, channel=channel, status=ACTIVE)
        handle = registry.add(None, row, one.box)
        if one.status == PAUSED:
            registry.put(handle, row, row._replace(status=PAUSED))
        elif one.status == ENDED:
            registry.end(handle)
        elif one.status == DELETED:
            registry.delete(handle)
    return registry


def pieces(box: Box) -> list[tuple[float, float]]:
    """Return the ranges of longitudes of a box."""
    if box.west <= box.east:
        return [(box.west, box.east)]
    return [(box.west, 180.0), (-180.0, box.east)]


def overlap(a: Box, b: Box) -> bool:
    across = any(w <= east and e >= west for w, e in pieces(a) for west, east in pieces(b))
    return across and a.south <= b.north and a.north >= b.south


def center(box: Box) -> tuple[float, float]:
    width = box.east - box.west if box.west <= box.east else box.east + 360 - box.west
    lon = box.west + width / 2
    return lon - 360 if lon > 180 else lon, (box.south + box.north) / 2


def contains(box: Box, lon: float, lat: float) -> bool:
    """Whether a box has a place, its sides included; 180 and -180 are one meridian."""
    same = {lon, -lon} if abs(lon) == 180 else {lon}
    inside = any(west <= one <= east for west, east in pieces(box) for one in same)
    return inside and box.south <= lat <= box.north


def check(found: Density, chosen: list[Box], window: Box) -> None:
    """Check the cells: each has its centers, none is counted twice, and none is missing."""
    wanted = [box for box in chosen if overlap(box, window)]
    assert found.total == len(wanted)
    centers = [center(box) for box in wanted]
    inside = [place for place in centers if contains(window, *place)]
    assert sum(cell.subscriptions for cell in found.cells) == len(inside)
    for cell, count in found.cells:
        strictly = [p for p in inside if contains(cell, *p) and not on_border(cell, *p)]
        atmost = [p for p in inside if contains(cell, *p)]
        assert len(strictly) <= count <= len(atmost)
        assert contains(window, *center(cell))


def on_border(cell: Box, lon: float, lat: float) -> bool:
    return lon in (cell.west, cell.east) or lat in (cell.south, cell.north)


def box(rng: random.Random) -> Box:
    """Return a box on a lattice of degrees, which are exact; a third of them cross 180."""
    west, east = rng.randrange(-180, 181, 4), rng.randrange(-180, 181, 4)
    if rng.random() < 0.6:
        west, east = min(west, east), max(west, east)
    south, north = sorted((rng.randrange(-90, 91, 2), rng.randrange(-90, 91, 2)))
    return Box(float(west), float(south), float(east), float(north))


@given(st.integers(0, 10_000), st.integers(1, 40))
def test_cells_and_totals_are_those_of_a_loop(seed: int, columns: int) -> None:
    rng = random.Random(seed)
    subscriptions = [
        Given(
            rng.randrange(2),
            rng.choice("ab"),
            rng.choice([ACTIVE, ACTIVE, PAUSED, ENDED, DELETED]),
            box(rng),
        )
        for _ in range(rng.randrange(60))
    ]
    registry = registry_of(subscriptions)
    for subscriber in (None, "a", "nobody"):
        window = rng.choice([WORLD, box(rng), box(rng)])
        chosen = [
            one.box
            for one in subscriptions
            if one.tenant == 1
            and one.status in (ACTIVE, PAUSED)
            and subscriber in (None, one.subscriber)
        ]
        check(count_subscriptions(registry, 1, subscriber, window, columns), chosen, window)


def test_a_center_on_a_side_belongs_to_the_cell_of_which_it_is_the_western_or_southern() -> None:
    places = [Box(x, y, x, y) for x, y in ((0.0, 0.0), (5.0, 0.0), (10.0, 10.0), (0.0, 5.0))]
    registry = registry_of([Given(0, "a", ACTIVE, place) for place in places])
    found = count_subscriptions(registry, 0, None, Box(0, 0, 10, 10), 2)
    assert [(cell.box, cell.subscriptions) for cell in found.cells] == [
        (Box(0, 0, 5, 5), 1),
        (Box(5, 0, 10, 5), 1),
        (Box(0, 5, 5, 10), 1),
        (Box(5, 5, 10, 10), 1),
    ]


def test_a_grid_across_180_degrees() -> None:
    places = [Box(175, 0, 175, 0), Box(-175, 0, -175, 0), Box(179, -1, -179, 1), Box(0, 0, 0, 0)]
    registry = registry_of([Given(0, "a", ACTIVE, place) for place in places])
    found = count_subscriptions(registry, 0, None, Box(170, -10, -170, 10), 4)
    assert found.total == 3
    assert [(cell.box, cell.subscriptions) for cell in found.cells] == [
        (Box(175, 0, 180, 5), 1),
        (Box(180, 0, -175, 5), 1),
        (Box(-175, 0, -170, 5), 1),
    ]
    three = count_subscriptions(registry, 0, None, Box(170, -10, -170, 10), 3)
    assert any(cell.box.west > cell.box.east and cell.subscriptions == 1 for cell in three.cells)


@pytest.mark.parametrize(
    "window", [Box(0, 0, 0, 0), Box(0, -90, 0, 90), Box(-180, 0, 180, 0), Box(-180, -90, -179, 90)]
)
def test_windows_without_width_or_height(window: Box) -> None:
    place = Box(window.west, 0, window.west, 0)
    found = count_subscriptions(registry_of([Given(0, "a", ACTIVE, place)]), 0, None, window, 32)
    assert (found.total, [cell.subscriptions for cell in found.cells]) == (1, [1])
    assert len(found.cells) <= MAX_ROWS


def test_boxes_are_saved_and_restored() -> None:
    rng = random.Random(5)
    subscriptions = [Given(0, "a", ACTIVE, box(rng)) for _ in range(20)]
    registry = registry_of(subscriptions)
    arrays = registry.arrays()
    again = Registry.from_arrays(arrays)
    assert again.boxes.tolist() == registry.boxes.tolist()
    window = Box(-90, -45, 90, 45)
    assert count_subscriptions(again, 0, None, window, 8) == count_subscriptions(
        registry, 0, None, window, 8
    )
    handle = again.add(None, NEW, Box(0, 0, 0, 0))
    again.place(handle, Box(1, 2, 3, 4))
    assert again.boxes[-1].tolist() == [10_000_000, 20_000_000, 30_000_000, 40_000_000]
    assert {name: array.tobytes() for name, array in registry.arrays().items()} == {
        name: array.tobytes() for name, array in arrays.items()
    }
