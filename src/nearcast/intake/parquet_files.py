"""Parquet files in batches, and the geometry column of GeoParquet and GeoArrow."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import shapely

from nearcast.errors import UnsupportedFile
from nearcast.intake.arrow_columns import column_array
from nearcast.intake.batches import Batch
from nearcast.intake.byte_streams import open_native
from nearcast.intake.parquet_checks import open_parquet
from nearcast.intake.rejects import Rejects

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["GeoColumn", "geometry_column", "in_lon_lat", "is_lon_lat", "read_parquet"]

_POINT, _POLYGON, _MULTIPOLYGON = 1, 3, 6
_GEOARROW_WKB = (b"geoarrow.wkb", b"ogc.wkb")


class GeoColumn(NamedTuple):
    """The primary geometry column, and its coordinate reference system.

    ``reference`` is None if that is longitude and latitude.
    """

    name: str
    reference: Any


def read_parquet(
    path: str | os.PathLike[str], batch_rows: int, file: str, piece: tuple[int, int] | None = None
) -> Iterator[Batch]:
    """Yield the batches of a Parquet file, with its own names.

    Parameters
    ----------
    path, file
        Where the file is, and what it is called in rejects.
    batch_rows
        The maximum number of rows in a batch.
    piece
        The first row group to read, and the one after the last; None for all.
    """
    with open_native(path) as opened, open_parquet(opened, batch_rows) as (source, plan):
        total, metadata = opened.size(), source.metadata
        first_group, end_group = piece or (0, metadata.num_row_groups)
        groups = range(first_group, min(end_group, metadata.num_row_groups))
        first = sum(metadata.row_group(group).num_rows for group in range(first_group))
        rows, done = max(metadata.num_rows, 1), 0
        for part in source.iter_batches(plan.batch_rows, row_groups=[*groups]):
            for table in plan.written_out(part):
                number = np.arange(first, first + len(table))
                first += len(table)
                done += len(table)
                yield Batch(table, number, Rejects.empty(), total * done // rows, total, file)
        if not done:
            empty = plan.schema.empty_table()
            yield Batch(empty, np.empty(0, np.int64), Rejects.empty(), total, total, file)


def geometry_column(schema: pa.Schema) -> GeoColumn | None:
    """Return the primary geometry column of a schema with metadata of GeoParquet or GeoArrow."""
    raw = (schema.metadata or {}).get(b"geo")
    if raw is None:
        return _geoarrow_column(schema)
    try:
        geo = json.loads(raw)
        primary = geo["primary_column"]
        column = geo["columns"][primary]
        encoding, reference = column["encoding"], column.get("crs")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UnsupportedFile("its GeoParquet metadata cannot be read") from None
    if primary not in schema.names:
        raise UnsupportedFile(f"its GeoParquet metadata names {primary!r}, which is not a column")
    if encoding != "WKB":
        raise UnsupportedFile(
            f"the geometry column {primary!r} must be WKB, is {encoding}; convert it"
        )
    return GeoColumn(primary, None if is_lon_lat(reference) else reference)


def _geoarrow_column(schema: pa.Schema) -> GeoColumn | None:
    """Return the first column of WKB that says with GeoArrow's metadata what it is."""
    for field in schema:
        said = field.metadata or {}
        if said.get(b"ARROW:extension:name") not in _GEOARROW_WKB:
            continue
        try:
            reference = json.loads(said.get(b"ARROW:extension:metadata") or b"{}").get("crs")
        except (ValueError, AttributeError):
            problem = f"the GeoArrow metadata of the column {field.name!r} cannot be read"
            raise UnsupportedFile(problem) from None
        return GeoColumn(field.name, None if is_lon_lat(reference) else reference)
    return None


def in_lon_lat(table: pa.Table, column: GeoColumn) -> pa.Array:
    """Return the geometries in longitude and latitude.

    Raises
    ------
    UnsupportedFile
        If pyproj is not installed, or does not know the coordinate reference system.
    """
    transform = _transform(column)
    found = column_array(table, column.name)
    if found is None:
        return pa.nulls(table.num_rows, pa.binary())
    raw = np.array(found.to_pylist(), object)
    # Others are not regions, and nested collections may overflow the stack of Shapely's reader.
    known = np.array([_wkb_type(value) in {_POINT, _POLYGON, _MULTIPOLYGON} for value in raw])
    readable = raw.copy()
    readable[~known] = None
    geometries = shapely.from_wkb(readable, on_invalid="ignore")
    there = np.flatnonzero(~shapely.is_missing(geometries))
    with np.errstate(all="ignore"):
        moved = shapely.transform(shapely.force_2d(geometries[there]), transform)
    raw[there] = shapely.to_wkb(shapely.set_srid(moved, 0))
    return pa.array(raw.tolist(), pa.binary())


def _transform(column: GeoColumn) -> Any:
    name = _reference_name(column.reference)
    try:
        import pyproj
    except ImportError:
        raise UnsupportedFile(
            f"the geometry column {column.name!r} is in {name}, not in longitude and latitude; "
            "install pyproj (pip install 'nearcast[geo]') to have it converted, or convert it"
        ) from None
    try:
        source = pyproj.CRS.from_user_input(column.reference)
        transformer = pyproj.Transformer.from_crs(source, "OGC:CRS84", always_xy=True)
    except pyproj.exceptions.ProjError as error:
        raise UnsupportedFile(
            f"the geometry column {column.name!r} is in {name}, which pyproj cannot convert to "
            f"longitude and latitude: {error}"
        ) from None

    def transform(points: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.stack(transformer.transform(points[:, 0], points[:, 1]), axis=1)

    return transform


def _wkb_type(value: bytes | None) -> int | None:
    if value is None or len(value) < 5:
        return None
    code = int.from_bytes(value[1:5], "little" if value[0] == 1 else "big")
    return (code & 0x0FFFFFFF) % 1000


def _reference_name(reference: Any) -> str:
    """Return the name of a coordinate reference system."""
    known = reference if isinstance(reference, dict) else {"name": reference}
    own = known.get("id") if isinstance(known.get("id"), dict) else {}
    code = f"{own.get('authority')}:{own.get('code')}" if own else known.get("name")
    return str(code or "an unknown coordinate reference system")


def is_lon_lat(reference: Any) -> bool:
    """Whether a coordinate reference system is that of GeoJSON, or is not given."""
    if reference is None:
        return True
    if isinstance(reference, str):
        return reference.upper() in {"OGC:CRS84", "EPSG:4326"}
    known = reference.get("id", {}) if isinstance(reference, dict) else {}
    return (known.get("authority"), str(known.get("code"))) in {
        ("OGC", "CRS84"),
        ("EPSG", "4326"),
    }
