"""Frames of pandas, Polars and others as Arrow tables, without importing any of these."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import shapely

from nearcast.errors import InvalidInput
from nearcast.intake.parquet_files import GeoColumn, in_lon_lat, is_lon_lat
from nearcast.intake.table_checks import check_table

__all__ = ["is_table", "table_from"]

_PROBLEM = (
    "must be a PyArrow table, or a data frame of pandas, Polars or another library with Arrow"
)


def table_from(value: Any) -> pa.Table:
    """Return a table, a record batch or a frame as an Arrow table.

    Frames of pandas are taken without their index, those of geopandas with their geometries as WKB
    in longitude and latitude, all others by the Arrow PyCapsule interface.

    Parameters
    ----------
    value
        The table, record batch or frame.

    Raises
    ------
    InvalidInput
        When it is none of these, or has columns that Arrow does not know.
    UnsupportedFile
        When a GeoDataFrame is in a coordinate reference system that cannot be converted, or when
        the table is damaged, has columns of types that are not read, or stands for far more than
        its bytes; see `nearcast.intake.table_checks`.

    Examples
    --------
    >>> import pandas as pd
    >>> table_from(pd.DataFrame({"id": [1, 2]}, index=["a", "b"])).to_pydict()
    {'id': [1, 2]}
    """
    table = _converted(value)
    check_table(table)
    return table


def _converted(value: Any) -> pa.Table:
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    try:
        if _is_geopandas(value):
            return _with_wkb(value)
        if _is_pandas(value):
            return pa.Table.from_pandas(value, preserve_index=False)
        if hasattr(value, "__arrow_c_stream__"):
            return pa.table(value)
    except (pa.ArrowException, TypeError, ValueError) as error:
        problem = f"cannot be converted to an Arrow table: {' '.join(str(error).split())}"
        raise InvalidInput("table", type(value).__name__, problem) from None
    raise InvalidInput("table", value, _PROBLEM)


def is_table(value: Any) -> bool:
    """Return whether `table_from` may take a value for a table.

    Parameters
    ----------
    value
        Anything.

    Examples
    --------
    >>> is_table(pa.table({"id": [1]})), is_table([1])
    (True, False)
    """
    arrow = isinstance(value, pa.Table | pa.RecordBatch) or hasattr(value, "__arrow_c_stream__")
    return arrow or _is_pandas(value)


def _is_pandas(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "columns")


def _is_geopandas(value: Any) -> bool:
    return any(
        kind.__name__ == "GeoDataFrame" and kind.__module__.partition(".")[0] == "geopandas"
        for kind in type(value).__mro__
    )


def _with_wkb(frame: Any) -> pa.Table:
    """Return a GeoDataFrame as a table, its geometries as WKB; the active ones in lon, lat.

    Its metadata names the active column, as that of GeoParquet does. Without a coordinate reference
    system, it is in longitude and latitude already.
    """
    drawn = [name for name, kind in frame.dtypes.items() if str(kind) == "geometry"]
    table = pa.Table.from_pandas(frame.drop(columns=drawn), preserve_index=False)
    for name in drawn:
        wkb = shapely.to_wkb(np.asarray(frame[name], object))
        table = table.append_column(name, pa.array(wkb.tolist(), pa.binary()))
    active = frame.active_geometry_name
    if active is None:
        return table
    reference = None if frame.crs is None else frame.crs.to_json_dict()
    column = GeoColumn(active, None if is_lon_lat(reference) else reference)
    if column.reference is not None:
        at = table.column_names.index(active)
        table = table.set_column(at, active, in_lon_lat(table, column))
    geo = {"primary_column": active, "columns": {active: {"encoding": "WKB"}}}
    return table.replace_schema_metadata({"geo": json.dumps(geo)})
