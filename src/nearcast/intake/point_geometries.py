"""Places of messages from a column of geometries: points by whole columns, others one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import UNITS
from nearcast.errors import RegionError
from nearcast.intake.arrow_columns import column_array, is_text
from nearcast.intake.rejects import cell_value
from nearcast.model.json_form import message_geometry
from nearcast.model.regions import Point

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.intake.rejects import RowErrors

__all__ = ["read_point_geometries"]

_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_WKT = rf"^(?i:POINT) ?\((?P<lon>{_NUMBER}) (?P<lat>{_NUMBER})\)$"
_GEOJSON = (
    r'^\{"type": ?"Point", ?"coordinates": ?\['
    rf"(?P<lon>{_NUMBER}), ?(?P<lat>{_NUMBER})(?:, ?{_NUMBER})?\]\}}$"
)
# A point in the byte order of most machines: the order, the type, and two numbers.
_WKB_POINT = np.dtype([("order", "u1"), ("type", "<u4"), ("lon", "<f8"), ("lat", "<f8")])
_HEX = r"^0101000000[0-9A-Fa-f]{32}$"


class _Points(NamedTuple):
    """Coordinates in degrees; NaN where the geometry has not been read."""

    lon: NDArray[np.float64]
    lat: NDArray[np.float64]


def read_point_geometries(
    table: pa.Table, rows: NDArray[np.int64], errors: RowErrors
) -> NDArray[np.int32]:
    """Return the boxes of the geometries of some rows; those of rejected rows are undefined."""
    box = np.zeros((len(rows), 4), np.int32)
    column = column_array(table, "geometry")
    if column is None or not len(rows):
        return box
    points = _points(column if len(rows) == len(column) else column.take(pa.array(rows)))
    found = (np.abs(points.lon) <= 180.0) & (np.abs(points.lat) <= 90.0)
    place = np.stack([points.lon[found], points.lat[found]], axis=1)
    box[found] = np.tile(np.rint(place * UNITS).astype(np.int32), 2)
    for at in np.flatnonzero(~found).tolist():
        try:
            place_of_row = message_geometry(cell_value(table, "geometry", int(rows[at])))
        except RegionError as error:
            errors.add_error(int(rows[at]), error, "geometry")
            continue
        if isinstance(place_of_row, Point):
            box[at] = place_of_row.boxes()[0]
        else:
            bounds = (place_of_row.west, place_of_row.south, place_of_row.east, place_of_row.north)
            box[at] = [round(bound * UNITS) for bound in bounds]
    return box


def _points(column: pa.Array) -> _Points:
    """Return the points of a column that are written in a usual way."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _from_wkb(column)
    if is_text(kind):
        return _from_text(column)
    if pa.types.is_struct(kind):
        return _from_structs(column)
    return _nowhere(len(column))


def _nowhere(count: int) -> _Points:
    return _Points(np.full(count, np.nan), np.full(count, np.nan))


def _from_wkb(column: pa.Array) -> _Points:
    points = _nowhere(len(column))
    size = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    chosen = np.flatnonzero(size == _WKB_POINT.itemsize)
    if not len(chosen):
        return points
    raw = b"".join(column.take(pa.array(chosen)).to_pylist())
    values = np.frombuffer(raw, _WKB_POINT)
    plain = (values["order"] == 1) & (values["type"] == 1)
    points.lon[chosen[plain]] = values["lon"][plain]
    points.lat[chosen[plain]] = values["lat"][plain]
    return points


def _from_text(column: pa.Array) -> _Points:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:  # invalid UTF-8: one by one
        return _nowhere(len(column))
    is_hex = pc.match_substring_regex(column, _HEX)
    if pc.any(is_hex).as_py():
        cells = column.to_pylist()
        hexes = pc.fill_null(is_hex, False).to_pylist()
        decoded = [bytes.fromhex(c) if h else None for c, h in zip(cells, hexes, strict=True)]
        return _from_wkb(pa.array(decoded, pa.binary()))
    first = pc.any(pc.starts_with(column, "{")).as_py()
    matched = pc.extract_regex(column, _GEOJSON if first else _WKT)
    lon, lat = (pc.struct_field(matched, name).cast(pa.float64()) for name in ("lon", "lat"))
    return _Points(_floats(lon), _floats(lat))


def _from_structs(column: pa.Array) -> _Points:
    """Return the points of GeoJSON geometries whose coordinates are lists of numbers."""
    kind = column.type
    at = kind.get_field_index("coordinates")
    if at < 0 or kind.get_field_index("type") < 0:
        return _nowhere(len(column))
    inner = kind.field(at).type
    is_list = pa.types.is_list(inner) or pa.types.is_large_list(inner)
    if not is_list or not pa.types.is_floating(inner.value_type):
        return _nowhere(len(column))
    coordinates = pc.struct_field(column, "coordinates")
    name = pc.struct_field(column, "type")
    length = pc.list_value_length(coordinates)
    usual = pc.and_(
        pc.equal(name.cast(pa.string()), "Point"),
        pc.and_(pc.greater_equal(length, 2), pc.less_equal(length, 3)),
    )
    pair = pc.list_slice(coordinates, 0, 2, return_fixed_size_list=True)
    lon, lat = (pc.if_else(usual, pc.list_element(pair, i), None) for i in (0, 1))
    return _Points(_floats(lon), _floats(lat))


def _floats(column: pa.Array) -> NDArray[np.float64]:
    filled = pc.fill_null(column.cast(pa.float64()), np.nan)
    return np.array(filled.to_numpy(zero_copy_only=False), np.float64)
