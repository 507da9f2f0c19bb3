"""Read a road network from a file of nodes and a file of edges."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import UNITS
from nearcast.datasets.roads.network import MAX_CLASSES, Edges, RoadNetwork, lengths_m
from nearcast.errors import UnsupportedFile, shorten
from nearcast.intake import open_table
from nearcast.intake.arrow_columns import column_array, is_text, not_null, read_numbers
from nearcast.intake.rejects import RowErrors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["CLASS_NAMES", "load_roads"]

CLASS_NAMES = {
    name: number
    for number, names in enumerate(
        (
            "motorway trunk",
            "primary secondary",
            "tertiary unclassified residential living_street road busway",
            "service track raceway rest_area services escape",
            "path footway cycleway pedestrian steps bridleway platform corridor elevator",
        )
    )
    for name in names.split()
}
"""The classes of OpenStreetMap's values of ``highway``; all others count as ``service``."""

_FLAGS = {"false": False, "no": False, "0": False, "true": True, "yes": True, "1": True}
_FORMATS = (".parquet", ".csv")
_CLASS_COLUMNS = ("class", "road_class", "highway")
_ONE_WAY_COLUMNS = ("one_way", "oneway")


def load_roads(nodes: str | os.PathLike[str], edges: str | os.PathLike[str]) -> RoadNetwork:
    r"""Read a road network.

    Parameters
    ----------
    nodes
        A Parquet or CSV file with the columns ``id`` (whole numbers or text), ``lon``
        and ``lat``.
    edges
        A file with ``u`` and ``v`` (ids of nodes), and optionally ``length`` (meters; otherwise the
        distance of the nodes), ``class`` (a number, 0 is the fastest, or a name of `CLASS_NAMES`;
        ``highway`` is read too) and ``oneway``.

    Raises
    ------
    UnsupportedFile
        If a file cannot be read, lacks a column or has an invalid row; the message names the file
        and the first such row. Parquet rows count from 0, lines of text files from 1.
    InvalidInput
        If the edges are no network, see `RoadNetwork.from_edges`.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "nodes.csv").write_text("id,lon,lat\na,9.5,47.1\nb,9.51,47.1\nc,9.5,47.2\n")
    >>> _ = (folder / "edges.csv").write_text("u,v,class\na,b,residential\nb,c,track\n")
    >>> network = load_roads(folder / "nodes.csv", folder / "edges.csv")
    >>> network.nodes, network.arcs, network.arc_class.tolist()
    (3, 4, [2, 2, 3, 3])
    """
    node_table, node_rows = _read(nodes)
    edge_table, edge_rows = _read(edges)
    with _naming(nodes):
        ids, place = _nodes(node_table, node_rows)
    with _naming(edges):
        checks = _Checks(edge_table, edge_rows)
        u, v = (_ends(checks, name, ids) for name in ("u", "v"))
        if "length" in edge_table.column_names:
            length_m = checks.numbers("length", 0.0, np.inf, "must be a number of meters")
        else:
            length_m = lengths_m(place, u, v)
        found = Edges(place, u, v, length_m, _classes(checks), _one_way(checks))
    return RoadNetwork.from_edges(found)


class _Checks:
    """A table, the number of each row in its file, and columns that must not have invalid rows."""

    def __init__(self, table: pa.Table, row: NDArray[np.int64]) -> None:
        self.table = table
        self._row = row

    def column(self, name: str) -> pa.Array:
        """Return a column without nulls."""
        column = column_array(self.table, name)
        if column is None:
            if self.table.num_rows and name in self.table.column_names:
                raise UnsupportedFile(f"the column {name!r} is empty")
            found = ", ".join(self.table.column_names)
            raise UnsupportedFile(f"there is no column {name!r}; the columns are: {found}")
        self.require(not_null(column), name, "must not be empty")
        return column

    def numbers(self, name: str, low: float, high: float, problem: str) -> NDArray[np.float64]:
        """Return a column of finite numbers within limits."""
        self.column(name)
        value = read_numbers(self.table, name, RowErrors(self.table.num_rows)).value
        self.require((value >= low) & (value <= high) & np.isfinite(value), name, problem)
        return value

    def require(self, valid: NDArray[np.bool_], name: str, problem: str) -> None:
        """Raise an error that names the first row that is not valid."""
        if valid.all():
            return
        row = int(np.argmin(valid))
        value = shorten(self.table.column(name)[row].as_py())
        raise UnsupportedFile(
            f"row {self._row[row]}: {name} {problem} (got {value}); "
            f"{np.count_nonzero(~valid):,} of {len(valid):,} rows are like that"
        )


@contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Prepend the name of the file to error messages."""
    try:
        yield
    except UnsupportedFile as error:
        raise UnsupportedFile(f"{os.fspath(path)}: {error}") from None


def _read(path: str | os.PathLike[str]) -> tuple[pa.Table, NDArray[np.int64]]:
    """Return a whole file as one table, and the number of each row."""
    if Path(path).suffix.lower() not in _FORMATS:
        raise UnsupportedFile(f"{os.fspath(path)}: roads must be {' or '.join(_FORMATS)} files")
    batches = list(open_table(path, kind=None))
    with _naming(path):
        for batch in batches:
            if len(batch.rejects):
                reason = batch.rejects.reason[0]
                raise UnsupportedFile(f"row {batch.rejects.row[0]}: {reason}")
        tables = [batch.table for batch in batches]
        if not sum(table.num_rows for table in tables):
            raise UnsupportedFile("there are no rows")
    joined = pa.concat_tables(tables, promote_options="permissive")
    return joined, np.concatenate([batch.rows for batch in batches])


def _nodes(table: pa.Table, row: NDArray[np.int64]) -> tuple[pa.Array, NDArray[np.int32]]:
    """Return the ids of nodes as text, and their places in units."""
    checks = _Checks(table, row)
    ids = checks.column("id").cast(pa.large_string())
    first = pc.index_in(ids, value_set=ids).to_numpy()
    checks.require(first == np.arange(len(ids)), "id", "must be unique")
    lon = checks.numbers("lon", -180, 180, "must be from -180 to 180")
    lat = checks.numbers("lat", -90, 90, "must be from -90 to 90")
    place = np.rint(np.stack([lon, lat], axis=1) * UNITS).astype(np.int32)
    return ids, place


def _ends(checks: _Checks, name: str, ids: pa.Array) -> NDArray[np.int32]:
    """Return the nodes at one end of each edge."""
    ends = checks.column(name).cast(pa.large_string())
    node = pc.index_in(ends, value_set=ids)
    checks.require(not_null(node), name, "must be the id of a node")
    numbers: NDArray[np.int32] = node.to_numpy().astype(np.int32)
    return numbers


def _classes(checks: _Checks) -> NDArray[np.uint8]:
    """Return road classes from numbers, or from names as in OpenStreetMap; none is a street."""
    name = next((n for n in _CLASS_COLUMNS if n in checks.table.column_names), None)
    if name is None:
        return np.full(checks.table.num_rows, CLASS_NAMES["residential"], np.uint8)
    column = checks.column(name)
    if is_text(column.type):
        distinct = column.dictionary_encode()
        numbers = [_class_of_text(text) for text in distinct.dictionary.to_pylist()]
        value = np.array(numbers, np.float64)[distinct.indices.to_numpy()]
    else:
        value = checks.numbers(name, -np.inf, np.inf, "must be a number")
    valid = (value >= 0) & (value < MAX_CLASSES) & (value == np.floor(value))
    checks.require(valid, name, f"must be a whole number from 0 to {MAX_CLASSES - 1}")
    classes: NDArray[np.uint8] = value.astype(np.uint8)
    return classes


def _class_of_text(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        name = text.strip().lower().removesuffix("_link")
        return CLASS_NAMES.get(name, CLASS_NAMES["service"])


def _one_way(checks: _Checks) -> NDArray[np.bool_]:
    """Return which edges are one-way; none of them if there is no such column."""
    name = next((n for n in _ONE_WAY_COLUMNS if n in checks.table.column_names), None)
    if name is None:
        return np.zeros(checks.table.num_rows, np.bool_)
    column = checks.column(name)
    if pa.types.is_boolean(column.type):
        flags: NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
        return flags
    distinct = column.cast(pa.large_string()).dictionary_encode()
    names = [_FLAGS.get(text.strip().lower()) for text in distinct.dictionary.to_pylist()]
    index = distinct.indices.to_numpy()
    known = np.array([flag is not None for flag in names])[index]
    checks.require(known, name, "must be true or false")
    one_way: NDArray[np.bool_] = np.array([bool(flag) for flag in names])[index]
    return one_way
