"""What users pass to an engine: one object or several, ids, tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from nearcast.columns import Ids
from nearcast.errors import InvalidInput
from nearcast.intake.batches import Batch
from nearcast.intake.frames import table_from
from nearcast.intake.rejects import Rejects, RowErrors
from nearcast.intake.renaming import in_our_names
from nearcast.model.checks import identifiers, name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from nearcast.intake import Named
    from nearcast.model import Id

__all__ = [
    "TAKEN",
    "GivenTable",
    "ids_of",
    "list_of",
    "owner_of",
    "table_of",
    "with_living",
    "with_missing",
    "with_rejected",
    "with_unknown",
]

T = TypeVar("T")

TAKEN = "is registered already; use replace to change it"
"""Why an id cannot be registered."""


class GivenTable(NamedTuple):
    """A table with our names, and what it was before, if a column was called differently."""

    table: pa.Table
    source: Batch | None


def table_of(table: object, kind: str, columns: Mapping[str, str] | None = None) -> GivenTable:
    """Return a table, a record batch or a frame with our names.

    Parameters
    ----------
    table
        What the user gave.
    kind
        ``messages``, ``subscriptions`` or ``moves``.
    columns
        Where our columns are, by our name; an empty text leaves a column out.
    """
    given = table_from(table)
    ours, _ = in_our_names(given, dict(columns or {}), kind)
    if ours is given:
        return GivenTable(given, None)
    rows = np.arange(given.num_rows)
    return GivenTable(ours, Batch(ours, rows, Rejects.empty(), 0, 0, original=given))


def list_of(values: T | Iterable[T], kind: type[T]) -> list[T]:
    """Return one object of a kind, or several, as a list; refuse any other."""
    if isinstance(values, kind):
        return [values]
    problem = f"must be a {kind.__name__}, or an iterable of them"
    if isinstance(values, (Mapping, str)):
        if isinstance(values, Mapping):
            problem += f"; {kind.__name__}.from_dict reads a mapping"
        raise InvalidInput(kind.__name__.lower(), values, problem)
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
    given: GivenTable, rejects: Rejects, more: Sequence[tuple[NDArray[np.bool_], str]]
) -> Rejects:
    """Return rejects and those whose id is wrong: which of the other rows, and why."""
    rows = _sound(given.table, rejects)
    for wrong, reason in more:
        if wrong.any():
            rejects = _with(given, rejects, rows[wrong], "id", reason)
    return rejects


def with_living(given: GivenTable, rejects: Rejects, living: NDArray[np.bool_]) -> Rejects:
    """Return rejects and those whose id a living message has."""
    reason = "is the id of a message that is alive; publish it again when that has expired"
    return _with(given, rejects, _sound(given.table, rejects)[living], "id", reason)


def with_unknown(given: GivenTable, rejects: Rejects, rows: NDArray[np.int64]) -> Rejects:
    """Return rejects and the rows whose subscription is not registered."""
    return _with(given, rejects, rows, "subscription_id", "is not registered, or has expired")


def with_missing(
    table: pa.Table, rejects: Rejects, named: Named, rows: Sequence[int] | NDArray[np.int64]
) -> Rejects:
    """Return rejects and the rows that name no subscription."""
    if not len(rows):
        return rejects
    given = GivenTable(table, None)
    if named.owners is None:
        return _with(given, rejects, rows, "id", "is not registered, or has expired")
    return _with(given, rejects, rows, "owner", "owns no subscription")


def _sound(table: pa.Table, rejects: Rejects) -> NDArray[np.int64]:
    """Return the rows that were not rejected."""
    sound = np.ones(table.num_rows, np.bool_)
    sound[rejects.row] = False
    return np.flatnonzero(sound)


def _with(
    given: GivenTable,
    rejects: Rejects,
    rows: Sequence[int] | NDArray[np.int64],
    field: str,
    reason: str,
) -> Rejects:
    wrong = np.zeros(given.table.num_rows, np.bool_)
    wrong[rows] = True
    errors = RowErrors(given.table.num_rows)
    errors.add(wrong, field, reason)
    return Rejects.concatenate([rejects, errors.rejects(*given)]).in_order()
