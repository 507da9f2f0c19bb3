"""Tables for the engine: subscriptions and moves as columns, by handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast.columns import WORLD
from nearcast.intake.json_records import column_type
from nearcast.model.close_names import COLUMNS
from nearcast.model.json_form import proximity_place, subscription_region
from nearcast.server.state.cells import Box

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nearcast.model import Region

__all__ = ["bounding_box", "move_table", "place_box", "place_region", "subscription_table"]

_UNITS = 10_000_000


def _columns(rows: Sequence[dict[str, Any]], kind: str) -> dict[str, pa.Array]:
    """Return the columns that occur in rows."""
    named = {name for row in rows for name in row}
    types = {name: column_type(name) for name in COLUMNS[kind] if name in named}
    if "geometry" in types:
        types["geometry"] = pa.binary()  # as WKB
    return {name: pa.array([row.get(name) for row in rows], t) for name, t in types.items()}


def subscription_table(
    handles: Sequence[int], rows: Sequence[dict[str, Any]], scopes: Sequence[str]
) -> pa.Table:
    """Return subscriptions, given as the columns of a file, with their handles as ids."""
    columns = _columns(rows, "subscriptions")
    columns["id"] = pa.array(handles, pa.int64())
    columns["scope"] = pa.array(scopes, pa.string())
    return pa.table(columns)


def move_table(handles: Sequence[int], rows: Sequence[dict[str, Any]], time_us: int) -> pa.Table:
    """Return moves, given as the columns of a file, all at one time."""
    columns = _columns(rows, "moves")
    columns["subscription_id"] = pa.array(handles, pa.int64())
    columns["time"] = pa.array(np.full(len(handles), time_us), pa.timestamp("us", "UTC"))
    return pa.table(columns)


def place_region(place: dict[str, Any]) -> Region:
    """Return the region of a move; a point if it is one."""
    is_point = "lon" in place and "radius_m" not in place
    return proximity_place(place) if is_point else subscription_region(place)


def place_box(place: dict[str, Any]) -> Box:
    """Return the bounding box of a move, in degrees."""
    return bounding_box(place_region(place))


def bounding_box(region: Region) -> Box:
    """Return west, south, east and north of a region in degrees; west > east across 180."""
    boxes = region.boxes()
    south = min(box[1] for box in boxes) / _UNITS
    north = max(box[3] for box in boxes) / _UNITS
    wests, easts = [box[0] for box in boxes], [box[2] for box in boxes]
    crosses = min(wests) == WORLD[0] and max(easts) == WORLD[2] and len(boxes) > 1
    if crosses:
        west = min((w for w in wests if w > WORLD[0]), default=WORLD[0])
        east = max((e for e in easts if e < WORLD[2]), default=WORLD[2])
        if west > east:
            return Box(west / _UNITS, south, east / _UNITS, north)
    return Box(min(wests) / _UNITS, south, max(easts) / _UNITS, north)
