"""Road networks: strongly connected parts and chains against naive ones; lattices; files."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from effort import examples
from nearcast.columns import UNITS
from nearcast.datasets.roads import Edges, RoadNetwork, lattice, load_roads
from nearcast.datasets.roads.graph import Graph, largest_strong_part
from nearcast.datasets.roads.lattice import lattice_edges
from nearcast.datasets.roads.network import MIN_LENGTH_M
from nearcast.errors import InvalidInput, UnsupportedFile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Edge = tuple[int, int, float, int, bool]
"""u, v, length, class, one-way."""


def edges_of(places: Iterable[tuple[int, int]], edges: list[Edge]) -> Edges:
    u, v, length, road_class, one_way = zip(*edges, strict=True) if edges else ((),) * 5
    return Edges(
        np.array(list(places), np.int32).reshape(-1, 2),
        np.array(u, np.int32),
        np.array(v, np.int32),
        np.array(length, np.float64),
        np.array(road_class, np.uint8),
        np.array(one_way, np.bool_),
    )


def distances(nodes: int, arcs: Iterable[tuple[int, int, float]]) -> np.ndarray[Any, Any]:
    """Return the shortest ways between all nodes (Floyd and Warshall)."""
    table = np.full((nodes, nodes), np.inf)
    np.fill_diagonal(table, 0.0)
    for tail, head, length in arcs:
        table[tail, head] = min(table[tail, head], length)
    for k in range(nodes):
        table = np.minimum(table, table[:, k, None] + table[None, k])
    return table


def arcs_of(edges: list[Edge]) -> list[tuple[int, int, float]]:
    along = [(u, v, length) for u, v, length, _, _ in edges]
    return along + [(v, u, length) for u, v, length, _, one_way in edges if not one_way]


def network_distances(network: RoadNetwork) -> np.ndarray[Any, Any]:
    columns = (network.arc_from.tolist(), network.arc_to.tolist(), network.arc_length_m.tolist())
    return distances(network.nodes, zip(*columns, strict=True))


@st.composite
def maps(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[Edge]]:
    """Draw small maps with many chains, rings and one-way roads; node numbers are places."""
    nodes = draw(st.integers(2, 12))
    node = st.integers(0, nodes - 1)
    ring = [(i, i + 1) for i in range(nodes - 1)] + draw(st.sampled_from([[], [(nodes - 1, 0)]]))
    pairs = draw(st.sampled_from([[], ring])) + draw(st.lists(st.tuples(node, node), max_size=8))
    edges = [
        (u, v, float(draw(st.integers(1, 9))), draw(st.sampled_from([1, 1, 1, 2])), one_way)
        for u, v in pairs
        for one_way in [draw(st.sampled_from([False, False, True]))]
    ]
    return [(100 * i, 7 * i * i) for i in range(nodes)], edges


@settings(max_examples=examples(200))
@given(maps())
def test_the_largest_strong_part_is_that_of_reachability(
    drawn: tuple[list[tuple[int, int]], list[Edge]],
) -> None:
    places, edges = drawn
    arcs = sorted((u, v) for u, v, _ in arcs_of(edges))
    tail = np.array([u for u, _ in arcs], np.int32)
    head = np.array([v for _, v in arcs], np.int32)
    found = largest_strong_part(Graph.of(len(places), tail, head, np.zeros(len(arcs), np.uint8)))
    reached = np.isfinite(distances(len(places), arcs_of(edges)))
    parts = [set(np.flatnonzero(row).tolist()) for row in reached & reached.T]
    largest = max(map(len, parts))
    assert set(np.flatnonzero(found).tolist()) == next(p for p in parts if len(p) == largest)


@settings(max_examples=examples(200))
@given(maps())
def test_chains_keep_all_roads_and_all_distances(
    drawn: tuple[list[tuple[int, int]], list[Edge]],
) -> None:
    places, edges = drawn
    table = distances(len(places), arcs_of(edges))
    reached = np.isfinite(table)
    sizes = (reached & reached.T).sum(axis=1)
    assume(sizes.max() >= 2)
    network = RoadNetwork.from_edges(edges_of(places, edges))
    number = {place: i for i, place in enumerate(places)}
    node = [number[x, y] for x, y in network.place.tolist()]
    assert network_distances(network) == pytest.approx(table[np.ix_(node, node)])
    points = [number[x, y] for x, y in network.point.tolist()]
    inside = set(points)
    raw = [(u, v, length) for u, v, length in arcs_of(edges) if {u, v} <= inside and u != v]
    assert network.arc_length_m.sum() == pytest.approx(sum(length for _, _, length in raw))
    assert len(inside) == sizes.max()
    assert (network.arc_from != network.arc_to).all()
    steps = set()
    for arc in range(network.arcs):
        way = points[network.point_start[arc] : network.point_start[arc + 1]]
        assert (way[0], way[-1]) == (node[network.arc_from[arc]], node[network.arc_to[arc]])
        assert not set(way[1:-1]) & set(node)
        steps |= set(itertools.pairwise(way))
        along = network.along_m[network.point_start[arc] : network.point_start[arc + 1]]
        assert along[0] == 0
        assert (np.diff(along) > 0).all()
        back = network.arc_back[arc]
        if back >= 0:
            assert points[network.point_start[back] : network.point_start[back + 1]] == way[::-1]
            assert network.arc_back[back] == arc
    assert steps == {(u, v) for u, v, _ in raw}


def test_a_bend_disappears_where_the_class_stays_the_same() -> None:
    places = [(0, 0), (10, 5), (20, 0), (30, 0)]
    edges = [(0, 1, 4.0, 1, False), (1, 2, 6.0, 1, False), (2, 3, 5.0, 2, False)]
    network = RoadNetwork.from_edges(edges_of(places, edges))
    assert network.place.tolist() == [[0, 0], [20, 0], [30, 0]]
    assert network.arc_length_m.tolist() == [10.0, 10.0, 5.0, 5.0]
    assert network.point[:3].tolist() == [[0, 0], [10, 5], [20, 0]]
    assert network.along_m[:3].tolist() == [0.0, 4.0, 10.0]
    assert network.arc_class.tolist() == [1, 1, 2, 2]
    assert network.places_at(np.array([0, 0, 1], np.int32), np.array([2.0, 7.0, 6.0])).tolist() == [
        [5, 3],
        [15, 3],
        [10, 5],
    ]


@pytest.mark.parametrize("one_way", [False, True])
@pytest.mark.parametrize("size", [3, 4, 7])
def test_a_ring_keeps_two_nodes(size: int, one_way: bool) -> None:
    places = [(10 * i, i * i) for i in range(size)]
    edges = [(i, (i + 1) % size, 1.0, 0, one_way) for i in range(size)]
    network = RoadNetwork.from_edges(edges_of(places, edges))
    assert (network.nodes, network.arcs) == (2, 2 if one_way else 4)
    assert network.arc_length_m.sum() == size * (1 if one_way else 2)


def test_edges_that_are_no_network_are_errors() -> None:
    places = [(0, 0), (10, 5), (20, 0)]
    for edges, problem in [
        ([], "at least two nodes"),
        ([(1, 1, 1.0, 0, False)], "at least two nodes"),
        ([(0, 1, 1.0, 0, True), (1, 2, 1.0, 0, True)], "in both directions"),
    ]:
        with pytest.raises(InvalidInput, match=problem):
            RoadNetwork.from_edges(edges_of(places, edges))
    around = [(-170 * UNITS, 0), (170 * UNITS, 0)]
    with pytest.raises(InvalidInput, match="antimeridian"):
        RoadNetwork.from_edges(edges_of(around, [(0, 1, 1.0, 0, False)]))
    star = [(0, 0), *((i, 1) for i in range(257))]
    with pytest.raises(InvalidInput, match="at most 256"):
        RoadNetwork.from_edges(edges_of(star, [(0, i, 1.0, 0, False) for i in range(1, 258)]))


def test_no_edge_is_passed_in_no_time() -> None:
    network = RoadNetwork.from_edges(edges_of([(0, 0), (0, 0)], [(0, 1, 0.0, 0, False)]))
    assert network.arc_length_m.tolist() == [MIN_LENGTH_M] * 2


def test_a_lattice_has_lines_of_three_classes() -> None:
    lines = 33
    edges = lattice_edges(lines, seed=4, side_km=20.0, center=(10.0, 50.0))
    width = np.ptp(edges.place[:, 0]) * np.cos(np.radians(50.0))
    assert width == pytest.approx(np.ptp(edges.place[:, 1]), rel=0.1)
    assert np.ptp(edges.place[:, 1]) / UNITS * 111_195 == pytest.approx(20_000, rel=0.1)
    across = np.where(edges.v == edges.u + 1, edges.u // lines, edges.u % lines)
    expected = np.where(across % 16 == 0, 0, np.where(across % 4 == 0, 1, 2))
    assert edges.road_class.tolist() == expected.tolist()
    counts = np.bincount(edges.road_class)
    assert counts[:2].tolist() == [2 * 3 * 32, 2 * 6 * 32]
    assert counts[2] == pytest.approx(0.85 * 2 * 24 * 32, rel=0.05)


def test_a_lattice_is_strongly_connected_denser_in_the_middle_of_centers_and_keeps_its_seed() -> (
    None
):
    network = lattice(24, seed=2)
    assert np.isfinite(network_distances(network)).all()
    assert network.nodes > 0.85 * 24 * 24
    gaps = np.diff(np.median(lattice_edges(24, 2).place[:, 0].reshape(24, 24), axis=0))
    assert (gaps > 0).all()
    assert gaps.max() > 1.8 * gaps.min()
    same, other = lattice(24, seed=2), lattice(24, seed=3)
    assert (same.point == network.point).all()
    assert other.frame != network.frame


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"lines": 1}, "from 2 to"),
        ({"side_km": 0.0}, "above 0"),
        ({"center": (0.0, 89.9)}, "too near to a pole"),
        ({"center": (179.9, 0.0)}, "too near to the antimeridian"),
    ],
)
def test_a_lattice_off_the_map_is_an_error(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        lattice(**arguments)


NODES = [{"id": 10 * i, "lon": 9.5 + i / 100, "lat": 47.0 + i * i / 1e4} for i in range(4)]
EDGES = [
    {"u": 0, "v": 10, "length": 900.0, "highway": "primary_link", "oneway": False},
    {"u": 10, "v": 20, "length": 800.5, "highway": "residential", "oneway": True},
    {"u": 20, "v": 30, "length": 700.0, "highway": "path", "oneway": False},
    {"u": 30, "v": 10, "length": 1500.0, "highway": "proposed", "oneway": True},
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("extension", [".parquet", ".csv"])
def test_files_of_all_formats_give_the_same_network(extension: str, tmp_path: Path) -> None:
    nodes, edges = (tmp_path / f"{name}{extension}" for name in ("nodes", "edges"))
    network = load_roads(write(nodes, NODES), write(edges, EDGES))
    assert network.nodes == 4
    assert sorted(network.arc_class.tolist()) == [1, 1, 2, 3, 4, 4]
    assert sorted(network.arc_length_m.tolist()) == [700, 700, 800.5, 900, 900, 1500]
    assert (network.arc_back < 0).sum() == 2
    assert {tuple(place) for place in network.place.tolist()} == {
        (round(n["lon"] * UNITS), round(n["lat"] * UNITS)) for n in NODES
    }


def test_only_the_ends_of_edges_are_required(tmp_path: Path) -> None:
    nodes = write(tmp_path / "n.csv", [{**node, "id": f"n{node['id']}"} for node in NODES])
    rows = [{"u": f"n{e['u']}", "v": f"n{e['v']}"} for e in EDGES]
    network = load_roads(nodes, write(tmp_path / "e.csv", rows))
    assert set(network.arc_class.tolist()) == {2}
    assert (network.arc_back >= 0).all()
    straight = np.hypot(0.01 * np.cos(np.radians(47)), 0.0001) * 111_195
    assert network.arc_length_m.min() == pytest.approx(straight, rel=1e-3)


def changed(rows: list[dict[str, Any]], row: int, **values: Any) -> list[dict[str, Any]]:
    return [{**r, **values} if i == row else r for i, r in enumerate(rows)]


def without(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != name} for row in rows]


@pytest.mark.parametrize(
    ("nodes", "edges", "problem"),
    [
        (without(NODES, "lat"), EDGES, "nodes.*no column 'lat'; the columns are: id, lon"),
        (NODES, without(EDGES, "u"), "edges.*no column 'u'"),
        (changed(NODES, 2, id=10), EDGES, r"nodes.*row 2: id must be unique \(got 10\); 1 of 4"),
        (changed(NODES, 1, lat=91.0), EDGES, "row 1: lat must be from -90 to 90"),
        (changed(NODES, 1, lon=None), EDGES, "row 1: lon must not be empty"),
        (NODES, changed(EDGES, 3, v=11), r"edges.*row 3: v must be the id of a node \(got 11\)"),
        (NODES, changed(EDGES, 0, length=-1.0), "row 0: length must be a number of meters"),
        (NODES, changed(EDGES, 0, length=float("nan")), "row 0: length must be"),
        (NODES, [{**e, "class": 16} for e in EDGES], "row 0: class must be a whole number from 0"),
        (NODES, [{**e, "class": 0.5} for e in EDGES], "class must be a whole number"),
        (NODES, changed([{**e, "oneway": "no"} for e in EDGES], 2, oneway="?"), "row 2: oneway"),
        (NODES, without([{**e, "one_way": 7} for e in EDGES], "oneway"), "one_way must be true"),
    ],
)
def test_invalid_files_are_errors_that_name_file_and_row(
    nodes: list[dict[str, Any]], edges: list[dict[str, Any]], problem: str, tmp_path: Path
) -> None:
    paths = write(tmp_path / "nodes.parquet", nodes), write(tmp_path / "edges.parquet", edges)
    with pytest.raises(UnsupportedFile, match=problem):
        load_roads(*paths)


def test_missing_empty_and_damaged_files_are_errors(tmp_path: Path) -> None:
    nodes, edges = write(tmp_path / "n.csv", NODES), write(tmp_path / "e.csv", EDGES)
    with pytest.raises(UnsupportedFile, match="no such file"):
        load_roads(nodes, tmp_path / "none.csv")
    with pytest.raises(UnsupportedFile, match=r"must be \.parquet or \.csv files"):
        load_roads(tmp_path / "nodes.ndjson", edges)
    empty = tmp_path / "empty.csv"
    empty.write_text("id,lon,lat\n")
    with pytest.raises(UnsupportedFile, match=r"empty\.csv: there are no rows"):
        load_roads(empty, edges)
    nodes.write_text("id,lon,lat\n1,2\n")
    with pytest.raises(UnsupportedFile, match=r"n\.csv: row 2: has 2 cells"):
        load_roads(nodes, edges)
