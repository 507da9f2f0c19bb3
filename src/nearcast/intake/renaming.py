"""Tables with our names: which of their columns are ours, and ids where there are none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

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

__all__ = ["in_our_names", "our_columns", "renamed", "with_our_names"]


def with_our_names(batch: Batch, reading: Reading, kind: str | None) -> Batch:
    """Return a batch of a file with our names, ids if they are made, and places in lon, lat."""
    table = batch.table
    found, names = in_our_names(table, dict(reading.columns), kind)
    if reading.ids is not None and kind is not None and "id" in COLUMNS[kind]:
        if "id" not in names.path:
            made = hash_ids(table) if reading.ids == "hash" else row_ids(batch.file, batch.rows)
            found = found.append_column("id", made)
    if batch.empty_is_null and kind == "messages":
        found = _with_empty_texts(found)
    return replace(batch, table=found, taken=names.taken, unused=names.unused, original=table)


def in_our_names(table: pa.Table, said: dict[str, str], kind: str | None) -> tuple[pa.Table, Names]:
    """Return a table with our names and places in lon, lat, and where its columns were.

    ``said`` has columns that are called differently, by our names. The metadata of GeoParquet say
    which column is the geometry.
    """
    said = dict(said)
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
    # Without the metadata: who gets this table must not convert it once more.
    return (found if geo is None else found.replace_schema_metadata(None)), names


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


def _with_empty_texts(table: pa.Table) -> pa.Table:
    """Return messages with an empty text where there is none, unless they have tokens."""
    if "text" not in table.column_names:
        return table
    text = pc.fill_null(table["text"], "")
    if "tokens" in table.column_names:
        text = pc.if_else(pc.is_null(table["tokens"]), text, table["text"])
    return table.set_column(table.column_names.index("text"), "text", text)


def _is_placed(table: pa.Table, said: dict[str, str], kind: str | None) -> bool:
    """Whether the rows have a place without their geometry."""
    return kind == "messages" and {*table.column_names, *said}.issuperset(POINT)
