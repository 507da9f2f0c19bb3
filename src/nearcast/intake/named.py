"""Tables that name subscriptions, by id or by owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.columns import Ids
from nearcast.errors import UnsupportedFile
from nearcast.intake.arrow_columns import not_null
from nearcast.intake.ids import read_ids, read_names, refuse_repeated
from nearcast.intake.rejects import RowErrors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.intake.rejects import Rejects

__all__ = ["Named", "read_named"]


class Named(NamedTuple):
    """The ids that a table names, or the owners.

    Attributes
    ----------
    ids
        The ids; none if the table names owners.
    owners
        The owners; None if the table names ids.
    row
        The position of each in the table.
    """

    ids: Ids
    owners: list[str] | None
    row: NDArray[np.int64]

    def values(self) -> list[str | int]:
        """Return the owners, or the ids."""
        return [*self.owners] if self.owners is not None else self.ids.tolist()


def read_named(table: pa.Table) -> tuple[Named, Rejects]:
    """Return the ids or the owners of a table, each once, and the rows that were rejected.

    Parameters
    ----------
    table
        Either ``id`` or ``owner``.

    Raises
    ------
    UnsupportedFile
        When it has neither, or both.

    Examples
    --------
    >>> named, rejects = read_named(pa.table({"owner": ["ann", None, "ann", "bob"]}))
    >>> named.owners, rejects.row.tolist()
    (['ann', 'bob'], [1, 2])
    """
    columns = [name for name in ("id", "owner") if name in table.column_names]
    if len(columns) != 1:
        found = ", ".join(table.column_names) or "none"
        raise UnsupportedFile(
            f"must have either a column id or a column owner; the columns are: {found}"
        )
    errors = RowErrors(table.num_rows)
    if columns == ["id"]:
        ids = read_ids(table, "id", errors)
    else:
        owner = read_names(table, "owner", errors)
        text = pa.nulls(table.num_rows, pa.string()) if owner is None else owner
        errors.add(~not_null(text), "owner", "is missing")
        ids = Ids(np.zeros(table.num_rows, np.int64), text.fill_null(""))
    refuse_repeated(ids, columns[0], errors)
    rows = np.flatnonzero(errors.valid)
    ids = ids.take(rows)
    owners = None if columns == ["id"] else [str(one) for one in ids.tolist()]
    return Named(ids, owners, rows), errors.rejects(table)
