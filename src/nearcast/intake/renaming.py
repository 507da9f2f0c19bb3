"""Tables with our names: which of their columns are ours, and ids where there are none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from nearcast.intake.made_ids import hash_ids, row_ids
from nearcast.intake.names import resolve, steps
from nearcast.intake.nested import follow
from nearcast.intake.parquet_files import geometry_column, in_lon_lat
from nearcast.model.close_names import COLUMNS
from nearcast.model.json_form import POINT

if TYPE_CHECKING:
    from nearcast.intake.batches import Batch
    from nearcast.intake.names import Names
    from nearcast.intake.reading import Reading

__all__ = ["our_columns", "renamed", "with_our_names"]


def with_our_names(batch: Batch, reading: Reading, kind: str | None) -> Batch:
    """Return a batch of a file with our names, ids if they are made, and places in lon, lat."""
    table = batch.table
    said = dict(reading.columns)
    geo = None if kind is None else geometry_column(table.schema)
    if geo is not None and "geometry" in COLUMNS[kind] and "geometry" not in said:
        if geo.reference is None or not _is_placed(table, said, kind):
            said["geometry"] = geo.name
        else:
            said["geometry"] = ""
    names = resolve(tuple(table.column_names), kind, tuple(said.items()))
    found = renamed(table, names, kind)
    if geo is not None and geo.reference is not None and said.get("geometry") == geo.name:
        geometries = in_lon_lat(table, geo)
        found = found.set_column(found.column_names.index("geometry"), "geometry", geometries)
    if reading.ids is not None and kind is not None and "id" in COLUMNS[kind]:
        if "id" not in names.path:
            made = hash_ids(table) if reading.ids == "hash" else row_ids(batch.file, batch.rows)
            found = found.append_column("id", made)
    return replace(batch, table=found, taken=names.taken, unused=names.unused, original=table)


def renamed(table: pa.Table, names: Names, kind: str | None) -> pa.Table:
    """Return a table with our names, and with the columns that are not ours under their own."""
    if names.as_it_is:
        return table
    own = table.column_names
    others = [name for name in names.unused if name not in COLUMNS[kind]]
    columns = {}
    for ours, source in names.path.items():
        if source in own:
            columns[ours] = table.column(own.index(source))
        else:
            root, *inside = steps(source)
            columns[ours] = follow(table.column(own.index(str(root))), tuple(inside))
    return pa.table(columns | {name: table.column(own.index(name)) for name in others})


def our_columns(table: pa.Table, kind: str) -> pa.Table:
    """Return a table with our names without the columns that are not ours."""
    return table.select([name for name in COLUMNS[kind] if name in table.column_names])


def _is_placed(table: pa.Table, said: dict[str, str], kind: str | None) -> bool:
    """Whether the rows have a place without their geometry."""
    return kind == "messages" and {*table.column_names, *said}.issuperset(POINT)
