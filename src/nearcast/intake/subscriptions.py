"""Readers of subscriptions: tables and objects in, columns out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from nearcast.columns import (
    NEVER,
    Ids,
    Subscriptions,
    clauses_of_lists,
    frozen,
    place_conjunctions,
)
from nearcast.errors import DuplicateId, UnsupportedFile
from nearcast.intake.ids import read_ids, read_owners, refuse_repeated
from nearcast.intake.keyword_clauses import number_conjunctions, read_keyword_clauses
from nearcast.intake.places import read_regions, region_lists
from nearcast.intake.rejects import Rejects, RowErrors
from nearcast.intake.times import read_times
from nearcast.model.json_form import BOX, CIRCLE, FIELDS, RANKED, RANKED_PROBLEM
from nearcast.text import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.model import Subscription
    from nearcast.text import IdTable, Tokenizer, Vocabulary

__all__ = ["SUBSCRIPTION_COLUMNS", "read_subscriptions", "subscriptions_from"]

SUBSCRIPTION_COLUMNS = FIELDS["subscription"]
"""The columns of a table of subscriptions; others are ignored."""

_WANTED = (
    "id, a place (west, south, east, north; or lon, lat, radius_m; or geometry), "
    "and keywords or expression to match words"
)


def read_subscriptions(
    table: pa.Table,
    vocabulary: Vocabulary,
    tokenizer: Tokenizer = words,
    *,
    rows: NDArray[np.int64] | None = None,
    seen: IdTable | None = None,
    unique: bool = True,
) -> tuple[Subscriptions, Rejects]:
    """Return the subscriptions of a table in their order, and the rejected rows.

    Parameters
    ----------
    table
        ``id``; ``keywords`` (lists of strings, or strings that are split at spaces) or
        ``expression``; ``west, south, east, north``, or ``lon, lat, radius_m``, or ``geometry``;
        optionally ``owner`` and ``expires_at``.
    vocabulary
        New tokens are added to it.
    tokenizer
        Splits keywords into tokens.
    rows
        The numbers of the rows, for the rejects; by default their positions in the table.
    seen
        Ids of other tables: rows with one of them are rejected, and new ids are added.
    unique
        Whether rows with an id that occurred before are rejected.

    Raises
    ------
    UnsupportedFile
        If the table has no columns for ids and places.

    Examples
    --------
    >>> from nearcast.text import Vocabulary
    >>> table = pa.table({
    ...     "id": ["a", "b"], "keywords": [["coffee"], ["tea"]],
    ...     "lon": [13.4, 13.5], "lat": [52.5, 95.0], "radius_m": [500, 500],
    ... })
    >>> subscriptions, rejects = read_subscriptions(table, Vocabulary())
    >>> subscriptions.ids.tolist(), rejects.field, rejects.row.tolist()
    (['a'], ('lat',), [1])
    """
    _require_columns(table)
    errors = RowErrors(table.num_rows)
    ids = read_ids(table, "id", errors)
    _reject_ranked(table, errors)
    owner = read_owners(table, "owner", errors)
    expiry = read_times(table, "expires_at", errors)
    regions = read_regions(table, errors)
    keyword_clauses = read_keyword_clauses(table, tokenizer, vocabulary, errors)
    if unique:
        refuse_repeated(ids, "id", errors, seen)
    subscriptions = Subscriptions(
        ids=ids,
        clauses=place_conjunctions(keyword_clauses, regions, np.flatnonzero(errors.valid)),
        expires_us=np.where(expiry.given, expiry.us, NEVER),
        owner=owner,
    )
    return _only_valid(subscriptions, errors.valid), errors.rejects(table, rows)


def subscriptions_from(
    subscriptions: Sequence[Subscription], vocabulary: Vocabulary, tokenizer: Tokenizer = words
) -> Subscriptions:
    """Return subscription objects as columns; new tokens are added to the vocabulary.

    Raises
    ------
    InvalidInput
        If the tokenizer finds no token in a keyword.
    DuplicateId
        If two subscriptions have the same id.

    Examples
    --------
    >>> from nearcast.model import Rect, Subscription
    >>> from nearcast.text import Vocabulary
    >>> tea = Subscription("s1", Rect(0, 0, 1, 1), ["tea", "time"])
    >>> subscriptions_from([tea], Vocabulary()).clauses.token.tolist()
    [0, 1]
    """
    ids = [subscription.id for subscription in subscriptions]
    if len(set(ids)) < len(ids):
        again, _ = Counter(ids).most_common(1)[0]
        raise DuplicateId(f"two subscriptions have the id {again!r}; give each its own")
    wanted = number_conjunctions([s.clauses(tokenizer) for s in subscriptions], vocabulary)
    regions = region_lists([s.region for s in subscriptions])
    expires = [NEVER if s.expires_us is None else s.expires_us for s in subscriptions]
    owners = [s.owner for s in subscriptions]
    named = any(owner is not None for owner in owners)
    return Subscriptions(
        ids=Ids.of(ids),
        clauses=clauses_of_lists(wanted, *regions),
        expires_us=frozen(np.array(expires, np.int64)),
        owner=pa.array(owners, pa.string()) if named else None,
    )


def _require_columns(table: pa.Table) -> None:
    columns = table.column_names
    names = set(columns)
    places = names.issuperset(BOX) or names.issuperset(CIRCLE) or "geometry" in names
    if "id" not in names or not places:
        found = ", ".join(columns) or "none"
        raise UnsupportedFile(
            f"not a table of subscriptions: found the columns {found}; wanted {_WANTED}"
        )
    for name in SUBSCRIPTION_COLUMNS:
        if columns.count(name) > 1:
            raise UnsupportedFile(f"the column {name} occurs twice; rename one of them")


def _reject_ranked(table: pa.Table, errors: RowErrors) -> None:
    for name in RANKED:
        if name in table.column_names:
            column = table.column(name)
            if column.null_count < len(column):
                errors.add(column.is_valid().to_numpy(), name, RANKED_PROBLEM)


def _only_valid(subscriptions: Subscriptions, valid: NDArray[np.bool_]) -> Subscriptions:
    """Return the valid subscriptions; ``clauses`` are already those of the valid ones."""
    if valid.all():
        return subscriptions
    rows = np.flatnonzero(valid)
    owner = None if subscriptions.owner is None else subscriptions.owner.take(pa.array(rows))
    return Subscriptions(
        ids=subscriptions.ids.take(rows),
        clauses=subscriptions.clauses,
        expires_us=subscriptions.expires_us[rows],
        owner=owner,
    )
