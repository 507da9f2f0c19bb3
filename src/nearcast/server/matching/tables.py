"""Tables for the engine: subscriptions and moves as columns, by handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast.intake.json_records import column_type
from nearcast.model.close_names import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["move_table", "subscription_table"]


def _columns(rows: Sequence[dict[str, Any]], kind: str) -> dict[str, pa.Array]:
    """Return the columns that occur in rows."""
    named = {name for row in rows for name in row}
    return {
        name: pa.array([row.get(name) for row in rows], column_type(name))
        for name in COLUMNS[kind]
        if name in named
    }


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
