"""Movers: they stay on roads, keep to speeds, reach goals by fastest ways, in any order."""

from __future__ import annotations

import hashlib
import heapq
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.datasets.roads import Edges, Movers, RoadNetwork, Routes, lattice, meters_per_tick
from nearcast.datasets.roads.movers import SPEED_FACTORS
from nearcast.errors import InvalidInput, UnknownName

TOWN = lattice(12, seed=3, side_km=4.0)
KMH = (50.0, 30.0, 20.0)


def one_way_town() -> RoadNetwork:
    """Return a network with one-way roads, bends and roads of very different lengths."""
    rng = np.random.default_rng(5)
    nodes = 60
    place = rng.integers(0, 40_000, (nodes, 2)).astype(np.int32)
    u = np.concatenate([np.arange(nodes), rng.integers(0, nodes, 40)])
    v = np.concatenate([(np.arange(nodes) + 1) % nodes, rng.integers(0, nodes, 40)])
    length = np.hypot(*(place[u] - place[v]).T.astype(np.float64)) * 0.0112 + 0.5
    one_way = np.arange(100) % 3 == 0
    road_class = rng.integers(0, 3, 100).astype(np.uint8)
    return RoadNetwork.from_edges(
        Edges(place, u.astype(np.int32), v.astype(np.int32), length, road_class, one_way)
    )


NETWORKS = {"lattice": TOWN, "one-way": one_way_town()}
networks = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
both_routes = pytest.mark.parametrize("route", ["destinations", "wander"])


def ticks_to(network: RoadNetwork, meters: Any, destination: int) -> dict[int, float]:
    """Return the ticks from each node to a destination, for a mover of factor 1 (Dijkstra)."""
    into: dict[int, list[tuple[int, float]]] = {}
    for arc in range(network.arcs):
        ticks = float(network.arc_length_m[arc] / meters[network.arc_class[arc]])
        into.setdefault(int(network.arc_to[arc]), []).append((int(network.arc_from[arc]), ticks))
    settled: dict[int, float] = {}
    waiting = [(0.0, destination)]
    while waiting:
        ticks, node = heapq.heappop(waiting)
        if node not in settled:
            settled[node] = ticks
            for before, more in into.get(node, []):
                heapq.heappush(waiting, (ticks + more, before))
    return settled


@networks
@pytest.mark.parametrize("goals", ["nodes", "density"])
def test_routes_are_the_fastest_ways(network: RoadNetwork, goals: str) -> None:
    meters = meters_per_tick(network, KMH, 30.0)
    routes = Routes.find(network, meters, destinations=20, goals=goals, seed=2)
    assert len(set(routes.destination.tolist())) == len(routes.destination) == 20
    for k, destination in enumerate(routes.destination.tolist()):
        expected = ticks_to(network, meters, destination)
        assert len(expected) == network.nodes
        arc = network.arc_start[:-1] + routes.hop[k]
        ticks = network.arc_length_m[arc] / meters[network.arc_class[arc]]
        for node in range(network.nodes):
            if node != destination:
                onward = ticks[node] + expected[int(network.arc_to[arc[node]])]
                assert onward == pytest.approx(expected[node])


def test_dense_places_are_destinations_more_often() -> None:
    network = lattice(40, seed=3)
    west, south, east, north = network.frame
    cell = (network.place - [west, south]) / [(east - west + 1) / 32, (north - south + 1) / 32]
    cells = cell.astype(int) @ [1, 32]
    density = np.bincount(cells)[cells]
    drawn = {
        goals: density[
            Routes.find(network, np.ones(3), destinations=200, goals=goals).destination
        ].mean()
        for goals in ("nodes", "density")
    }
    assert drawn["density"] > 1.1 * drawn["nodes"]


@networks
@both_routes
@pytest.mark.parametrize("capacity", [None, 3.0])
def test_movers_stay_on_their_arcs(
    network: RoadNetwork, route: str, capacity: float | None
) -> None:
    movers = Movers(
        network, 300, 1, route=route, speeds=KMH, mobility=0.7, capacity_per_km=capacity
    )
    for _ in range(6):
        movers.tick()
        assert (movers.offset_m >= 0).all()
        assert (movers.offset_m < network.arc_length_m[movers.arc]).all()
        places = movers.places()
        for row, arc in enumerate(movers.arc.tolist()):
            line = slice(network.point_start[arc], network.point_start[arc + 1])
            assert distance_to_line(places[row], network.point[line]) <= 1.0
            along = network.along_m[line]
            x, y = (np.interp(movers.offset_m[row], along, side) for side in network.point[line].T)
            assert abs(places[row] - [x, y]).max() <= 0.51


def distance_to_line(place: Any, line: Any) -> float:
    """Return the distance from a place to the nearest segment, in units."""
    begin, step = line[:-1].astype(np.float64), np.diff(line.astype(np.float64), axis=0)
    share = ((place - begin) * step).sum(axis=1) / np.maximum((step**2).sum(axis=1), 1e-9)
    nearest = begin + np.clip(share, 0, 1)[:, None] * step
    return float(np.hypot(*(place - nearest).T).min())


@networks
def test_speeds_are_those_of_road_and_mover(network: RoadNetwork) -> None:
    movers = Movers(network, 3000, 1, speeds=KMH, velocity=1.5, tick_s=2.0, mobility=0.6)
    meters = meters_per_tick(network, KMH, 2.0) * 1.5
    assert meters[:4].tolist() == pytest.approx([50 / 1.2, 30 / 1.2, 20 / 1.2, 20 / 1.2])
    arc, offset = movers.arc.copy(), movers.offset_m.copy()
    moved = np.zeros(len(movers), np.bool_)
    moved[movers.tick().mover] = True
    same = (movers.arc == arc) & moved
    assert same.sum() > 200
    expected = meters[network.arc_class[arc]] * movers.factor
    assert (movers.offset_m - offset)[same] == pytest.approx(expected[same])
    assert (movers.arc[~moved] == arc[~moved]).all()
    assert (movers.offset_m[~moved] == offset[~moved]).all()
    shares = [(movers.factor == factor).mean() for factor in SPEED_FACTORS]
    assert shares == pytest.approx([1 / 3] * 3, abs=0.03)


@networks
def test_movers_reach_their_goals_in_the_time_of_the_fastest_way(network: RoadNetwork) -> None:
    movers = Movers(network, 200, 1, speeds=KMH, tick_s=5.0, mobility=1.0, destinations=16)
    meters = meters_per_tick(network, KMH, 5.0)
    table = [ticks_to(network, meters, goal) for goal in movers.routes.destination.tolist()]

    def ticks_left() -> Any:
        rest_m = network.arc_length_m[movers.arc] - movers.offset_m
        on_arc = rest_m / meters[network.arc_class[movers.arc]]
        nodes, goals = network.arc_to[movers.arc].tolist(), movers.goal.tolist()
        onward = [table[goal][node] for goal, node in zip(goals, nodes, strict=True)]
        return (on_arc + onward) / movers.factor

    left, trip = ticks_left(), movers.trip.copy()
    for _ in range(2_000):
        movers.tick()
        now = ticks_left()
        going = movers.trip == trip
        # On the way, a tick brings a mover nearer by a tick; otherwise it has arrived in it.
        assert now[going] == pytest.approx(left[going] - 1)
        assert (left[~going] <= 1 + 1e-9).all()
        left, trip = now, movers.trip.copy()
        if trip.min() >= 3:
            break
    assert trip.min() >= 3


def test_movers_visit_all_destinations() -> None:
    movers = Movers(TOWN, 200, 1, speeds=KMH, mobility=1.0, destinations=8, velocity=5.0)
    seen = np.zeros((200, 8), np.bool_)
    for _ in range(150):
        seen[np.arange(200), movers.goal] = True
        movers.tick()
    assert seen.sum(axis=1).min() >= 4
    assert seen.mean() > 0.9


@networks
def test_wanderers_do_not_turn_back_except_at_dead_ends(network: RoadNetwork) -> None:
    movers = Movers(network, 400, 1, route="wander", speeds=KMH, tick_s=0.5, mobility=1.0)
    turned = passed = 0
    for _ in range(300):
        before, trip = movers.arc.copy(), movers.trip.copy()
        movers.tick()
        for row in np.flatnonzero(movers.trip == trip + 1).tolist():
            node = network.arc_to[before[row]]
            arc = int(movers.arc[row])
            assert network.arc_from[arc] == node
            passed += 1
            if arc == network.arc_back[before[row]]:
                turned += 1
                assert network.arc_start[node + 1] - network.arc_start[node] == 1
    assert passed > 500
    assert turned < passed / 2


def test_wanderers_prefer_better_roads_and_to_go_straight_on() -> None:
    """At a crossing of four roads, the one ahead is taken more often, and the one of class 0."""
    places = [(0, 0), (-1000, 0), (1000, 0), (0, -1000), (0, 1000)]
    edges = Edges(
        np.array(places, np.int32),
        np.zeros(4, np.int32),
        np.arange(1, 5, dtype=np.int32),
        np.full(4, 1000.0),
        np.array([1, 1, 1, 0], np.uint8),
        np.zeros(4, np.bool_),
    )
    network = RoadNetwork.from_edges(edges)
    movers = Movers(network, 20_000, 1, route="wander", speeds=(36.0,), tick_s=40, mobility=1.0)
    node = {tuple(place): i for i, place in enumerate(network.place.tolist())}
    from_west = (network.arc_from[movers.arc] == node[-1000, 0]) & (movers.factor == 1.0)
    from_west &= movers.offset_m > 600  # reaches the crossing in this tick, not another node
    movers.tick()
    ends = [network.arc_to[movers.arc[from_west]] == node[place] for place in places[1:]]
    west, east, south, north = (int(end.sum()) for end in ends)
    assert west == 0
    weights = np.array([2.05 / 2, 1.05 / 2, 1.05])
    assert np.array([east, south, north]) / from_west.sum() == pytest.approx(
        weights / weights.sum(), abs=0.05
    )


@given(
    seed=st.integers(0, 2**70),
    chosen=st.lists(st.integers(0, 2**40), min_size=1, max_size=30, unique=True),
    route=st.sampled_from(["destinations", "wander"]),
    interval=st.integers(1, 3),
)
@settings(max_examples=examples(30))
def test_a_mover_depends_on_no_other_one(
    seed: int, chosen: list[int], route: str, interval: int
) -> None:
    motion: dict[str, Any] = {"route": route, "interval": interval, "mobility": 0.6}
    motion |= {"velocity": 3.0, "destinations": 9}
    together = Movers(TOWN, np.array(chosen), seed, **motion)
    order = np.random.default_rng(0).permutation(len(chosen))
    shuffled = Movers(TOWN, np.array(chosen)[order], seed, routes=together.routes, **motion)
    half = len(chosen) // 2
    parts = [
        Movers(TOWN, np.array(part, np.int64), seed, routes=together.routes, **motion)
        for part in (chosen[:half], chosen[half:])
    ]
    assert (together.boxes()[order] == shuffled.boxes()).all()
    for _ in range(5):
        all_moves = dict(zip(*map(np.ndarray.tolist, together.tick()), strict=True))
        moves = dict(zip(*map(np.ndarray.tolist, shuffled.tick()), strict=True))
        assert {int(order[row]): box for row, box in moves.items()} == all_moves
        chunks = [dict(zip(*map(np.ndarray.tolist, part.tick()), strict=True)) for part in parts]
        assert chunks[0] | {row + half: box for row, box in chunks[1].items()} == all_moves
        assert (together.places()[order] == shuffled.places()).all()


def test_a_share_of_the_movers_moves_in_each_tick() -> None:
    movers = Movers(TOWN, 4000, 1, mobility=0.3)
    rows = [set(movers.tick().mover.tolist()) for _ in range(4)]
    assert [len(r) / 4000 for r in rows] == pytest.approx([0.3] * 4, abs=0.03)
    assert len(rows[0] & rows[1]) / 4000 == pytest.approx(0.09, abs=0.02)
    assert len(Movers(TOWN, 100, 1, mobility=0.0).tick().mover) == 0
    assert Movers(TOWN, 100, 1, mobility=1.0).tick().mover.tolist() == list(range(100))


def test_movers_report_at_their_interval_if_they_moved_since() -> None:
    often = Movers(TOWN, 3000, 1, mobility=0.2)
    seldom = Movers(TOWN, 3000, 1, mobility=0.2, interval=4, routes=often.routes)
    moved = np.zeros(3000, np.bool_)
    for tick in range(1, 13):
        moved[often.tick().mover] = True
        reported = seldom.tick()
        assert (often.places() == seldom.places()).all()
        expected = np.flatnonzero(moved & (np.arange(3000) % 4 == tick % 4))
        assert reported.mover.tolist() == expected.tolist()
        assert (reported.box == often.boxes()[expected]).all()
        moved[expected] = False
    assert len(expected) / 3000 == pytest.approx((1 - 0.8**4) / 4, abs=0.03)


def test_boxes_have_the_chosen_area_and_are_around_the_mover() -> None:
    share = (1e-6, 0.01)
    movers = Movers(TOWN, 2000, 1, box_share=share)
    moves = movers.tick()
    west, south, east, north = TOWN.frame
    width, height = (moves.box[:, 2:] - moves.box[:, :2]).astype(np.float64).T
    side = width / (east - west)
    assert height / (north - south) == pytest.approx(side, abs=1e-5)
    assert side.min() == pytest.approx(0.001, abs=0.001)
    assert side.max() == pytest.approx(0.1, abs=0.001)
    assert side.mean() == pytest.approx(0.0505, abs=0.004)
    middle = (moves.box[:, :2].astype(np.int64) + moves.box[:, 2:]) / 2
    assert abs(middle - movers.places()[moves.mover]).max() <= 1
    points = Movers(TOWN, 50, 1, box_share=(0.0, 0.0))
    assert (points.boxes() == np.tile(points.places(), 2)).all()


def test_boxes_stay_inside_the_world() -> None:
    corner = lattice(5, seed=1, side_km=10.0, center=(179.93, 0.0))
    box = Movers(corner, 500, 1, box_share=(1.0, 1.0)).boxes().astype(np.int64)
    assert (box[:, 2] <= 1_800_000_000).all()
    assert (box[:, 2] == 1_800_000_000).any()
    assert len(set((box[:, 2] - box[:, 0]).tolist())) == 1


def test_full_roads_are_slow() -> None:
    free = Movers(TOWN, 2000, 1, speeds=KMH, tick_s=1.0, mobility=1.0)
    full = Movers(
        TOWN, 2000, 1, speeds=KMH, tick_s=1.0, mobility=1.0, capacity_per_km=4.0, routes=free.routes
    )
    arc, offset = full.arc.copy(), full.offset_m.copy()
    load = np.bincount(arc, minlength=TOWN.arcs)[arc]
    capacity = np.maximum(4.0 * TOWN.arc_length_m[arc] / 1_000, 1.0)
    free.tick()
    full.tick()
    stayed = (free.arc == arc) & (full.arc == arc)
    free_m, full_m = (m.offset_m[stayed] - offset[stayed] for m in (free, full))
    assert full_m / free_m == pytest.approx(np.minimum(1, capacity / load)[stayed])
    assert (full_m < 0.9 * free_m).any()


@pytest.mark.parametrize(("speeds", "ticks"), [("slow", 250), ("medium", 50), ("fast", 10)])
def test_paces_are_shares_of_the_network(speeds: str, ticks: int) -> None:
    meters = meters_per_tick(TOWN, speeds, 30.0)
    assert meters[0] * ticks == pytest.approx(sum(TOWN.size_m))
    assert (meters[1:] == meters[:-1] / 2).all()


def test_movers_do_not_change() -> None:
    """Compiled and interpreted kernels give the same boxes."""
    checksum = hashlib.sha256()
    for route in ("destinations", "wander"):
        movers = Movers(TOWN, 40, 7, route=route, destinations=12, velocity=2.0, mobility=0.8)
        for _ in range(6):
            moves = movers.tick()
            checksum.update(moves.mover.tobytes() + moves.box.tobytes())
    assert checksum.hexdigest()[:16] == "08964b048e5a26c9"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"mobility": 1.5}, "mobility: must be from 0 to 1"),
        ({"interval": 0}, "interval: must be a whole number of at least 1"),
        ({"velocity": 0.0}, "velocity: must be a number above 0"),
        ({"tick_s": float("nan")}, "tick_s: must be a number above 0"),
        ({"capacity_per_km": -1.0}, "capacity_per_km: must be a number above 0"),
        ({"box_share": (0.5, 0.1)}, "box_share: must be two shares"),
        ({"destinations": 1}, "destinations: must be from 2 to"),
        ({"speeds": (0.0,)}, "speeds: must be numbers of km/h above 0"),
        ({"seed": -1}, "seed: must be at least 0"),
        ({"movers": -1}, "movers: must be from 0 to"),
        ({"movers": np.array([-1])}, "movers: must be a row of whole numbers"),
    ],
)
def test_invalid_options_are_errors(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        Movers(TOWN, **{"movers": 10, **changes})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"route": "fly"}, "choose from: destinations, wander"),
        ({"goals": "best"}, "choose from: density, nodes"),
        ({"speeds": "quick"}, "choose from: fast, medium, roads, slow"),
        ({"mobile": 1}, "choose from: box_share, capacity_per_km"),
    ],
)
def test_unknown_names_list_the_choices(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(UnknownName, match=problem):
        Movers(TOWN, 10, **changes)
