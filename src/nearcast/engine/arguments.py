"""What users pass to an engine: one object or several, ids, tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from nearcast.columns import Ids
from nearcast.errors import InvalidInput
from nearcast.intake.rejects import Rejects, RowErrors
from nearcast.model.checks import identifiers, name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from nearcast.model import Id

__all__ = [
    "ids_of",
    "list_of",
    "owner_of",
    "table_of",
    "with_living",
    "with_rejected",
    "with_taken",
    "with_unknown",
]

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


def owner_of(owner: object) -> str:
    """Return an owner, checked."""
    return name("owner", owner)


def with_rejected(
    table: pa.Table, rejects: Rejects, more: Sequence[tuple[NDArray[np.bool_], str]]
) -> Rejects:
    """Return rejects and those whose id is wrong: which of the other rows, and why."""
    rows = _sound(table, rejects)
    for wrong, reason in more:
        if wrong.any():
            rejects = _with(table, rejects, rows[wrong], "id", reason)
    return rejects


def with_taken(table: pa.Table, rejects: Rejects, taken: NDArray[np.bool_]) -> Rejects:
    """Return rejects and, in the order of their rows, those whose id is registered already."""
    reason = "is registered already; unsubscribe it first, or move it"
    return _with(table, rejects, _sound(table, rejects)[taken], "id", reason)


def with_living(table: pa.Table, rejects: Rejects, living: NDArray[np.bool_]) -> Rejects:
    """Return rejects and those whose id a living message has."""
    reason = "is the id of a message that is alive; publish it again when that has expired"
    return _with(table, rejects, _sound(table, rejects)[living], "id", reason)


def with_unknown(table: pa.Table, rejects: Rejects, rows: NDArray[np.int64]) -> Rejects:
    """Return rejects and the rows whose subscription is not registered."""
    return _with(table, rejects, rows, "subscription_id", "is not registered, or has expired")


def _sound(table: pa.Table, rejects: Rejects) -> NDArray[np.int64]:
    """Return the rows that were not rejected."""
    sound = np.ones(table.num_rows, np.bool_)
    sound[rejects.row] = False
    return np.flatnonzero(sound)


def _with(
    table: pa.Table, rejects: Rejects, rows: NDArray[np.int64], field: str, reason: str
) -> Rejects:
    wrong = np.zeros(table.num_rows, np.bool_)
    wrong[rows] = True
    errors = RowErrors(table.num_rows)
    errors.add(wrong, field, reason)
    return Rejects.concatenate([rejects, errors.rejects(table)]).in_order()
