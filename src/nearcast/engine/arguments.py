"""What users pass to an engine: one object or several, ids, tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from nearcast.columns import Ids
from nearcast.errors import InvalidInput
from nearcast.intake.rejects import Rejects, RowErrors
from nearcast.model.checks import identifiers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from nearcast.model import Id

__all__ = ["ids_of", "list_of", "table_of", "with_taken"]

T = TypeVar("T")


def table_of(table: object) -> pa.Table:
    """Return a table, or a record batch as one."""
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise InvalidInput("table", table, "must be a pyarrow Table; see pyarrow.table")
    return table


def list_of(values: T | Iterable[T], kind: type[T]) -> list[T]:
    """Return one object of a kind, or several, as a list; refuse any other."""
    if isinstance(values, kind):
        return [values]
    problem = f"must be a {kind.__name__}, or several of them"
    try:
        several: list[T] = [*values]  # type: ignore[misc]
    except TypeError:
        raise InvalidInput(kind.__name__.lower(), values, problem) from None
    for value in several:
        if not isinstance(value, kind):
            raise InvalidInput(kind.__name__.lower(), value, problem)
    return several


def ids_of(ids: Id | Iterable[Id] | pa.Array) -> Ids:
    """Return one id, or several, checked."""
    return Ids.of(identifiers("id", ids))


def with_taken(table: pa.Table, rejects: Rejects, taken: NDArray[np.bool_]) -> Rejects:
    """Return rejects and, in the order of their rows, those whose id is registered already."""
    sound = np.ones(table.num_rows, np.bool_)
    sound[rejects.row] = False
    repeated = np.zeros(table.num_rows, np.bool_)
    repeated[np.flatnonzero(sound)[taken]] = True
    errors = RowErrors(table.num_rows)
    errors.add(repeated, "id", "is registered already; unsubscribe it first, or move it")
    return Rejects.concatenate([rejects, errors.rejects(table)]).in_order()
