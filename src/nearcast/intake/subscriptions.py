"""Subscriptions: from tables and from objects to columns."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from nearcast.columns import NEVER, Ids, Subscriptions, place_conjunctions
from nearcast.errors import DuplicateId, UnsupportedFile
from nearcast.intake.ids import read_ids, read_owners, refuse_repeated
from nearcast.intake.places import BOX, CIRCLE, read_regions, regions_of
from nearcast.intake.rejects import Faults, Rejects
from nearcast.intake.times import read_times
from nearcast.intake.wants import read_wants, wants_of
from nearcast.text import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.model import Subscription
    from nearcast.text import IdTable, Tokenizer, Vocabulary

__all__ = ["SUBSCRIPTION_COLUMNS", "read_subscriptions", "subscriptions_from"]

RANKED = ("delta", "tau", "max_distance_m", "alpha", "theta")
"""The columns of ranked subscriptions."""

SUBSCRIPTION_COLUMNS = (
    "id",
    "keywords",
    "expression",
    *BOX,
    *CIRCLE,
    "geometry",
    "owner",
    "expires_at",
    *RANKED,
)
"""The columns that a table of subscriptions may have; others are not looked at."""

_WANTED = (
    "id, a place (west, south, east, north; or lon, lat, radius_m; or geometry), "
    "and keywords or expression if they ask for words"
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
    """Return the subscriptions of a table in their order, and the rows that are none.

    Parameters
    ----------
    table
        ``id``; ``keywords`` (lists of strings, or strings that are split at spaces) or
        ``expression``; ``west, south, east, north``, or ``lon, lat, radius_m``, or ``geometry``;
        and if need be ``owner`` and ``expires_at``.
    vocabulary
        Takes up the tokens that it does not know.
    tokenizer
        What makes tokens of keywords.
    rows
        The numbers of the rows, for the rejects; their positions in the table if left out.
    seen
        Ids that other tables had: rows with one of them are refused, and new ones are added.
    unique
        Whether an id that occurs again is refused; where it is not, that is the caller's business.

    Raises
    ------
    UnsupportedFile
        When the table has no column that could hold the id or the place.

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
    faults = Faults(table.num_rows)
    ids = read_ids(table, "id", faults)
    _refuse_ranked(table, faults)
    owner = read_owners(table, "owner", faults)
    expiry = read_times(table, "expires_at", faults)
    regions = read_regions(table, faults)
    wants = read_wants(table, tokenizer, vocabulary, faults)
    if unique:
        refuse_repeated(ids, "id", faults, seen)
    everything = Subscriptions(
        ids=ids,
        clauses=place_conjunctions(wants, regions, np.flatnonzero(faults.sound)),
        expires_us=np.where(expiry.given, expiry.us, NEVER),
        owner=owner,
    )
    return _sound(everything, faults.sound), faults.rejects(table, rows)


def subscriptions_from(
    subscriptions: Sequence[Subscription], vocabulary: Vocabulary, tokenizer: Tokenizer = words
) -> Subscriptions:
    """Return subscription objects as columns; new tokens are added to the vocabulary.

    Raises
    ------
    InvalidInput
        When the tokenizer finds no token in a keyword.
    DuplicateId
        When two of them have the same id.

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
    wants = wants_of([s.clauses(tokenizer) for s in subscriptions], vocabulary)
    regions = regions_of([s.region for s in subscriptions])
    expires = [NEVER if s.expires_us is None else s.expires_us for s in subscriptions]
    owners = [s.owner for s in subscriptions]
    named = any(owner is not None for owner in owners)
    return Subscriptions(
        ids=Ids.of(ids),
        clauses=place_conjunctions(wants, regions),
        expires_us=np.array(expires, np.int64),
        owner=pa.array(owners, pa.string()) if named else None,
    )


def _require_columns(table: pa.Table) -> None:
    names = set(table.column_names)
    places = names.issuperset(BOX) or names.issuperset(CIRCLE) or "geometry" in names
    if "id" not in names or not places:
        found = ", ".join(table.column_names) or "none"
        raise UnsupportedFile(
            f"not a table of subscriptions: found the columns {found}; wanted {_WANTED}"
        )
    for name in SUBSCRIPTION_COLUMNS:
        if table.column_names.count(name) > 1:
            raise UnsupportedFile(f"the column {name} occurs twice; rename one of them")


def _refuse_ranked(table: pa.Table, faults: Faults) -> None:
    for name in RANKED:
        if name in table.column_names:
            column = table.column(name)
            if column.null_count < len(column):
                ranked = column.is_valid().to_numpy()
                reason = "ranked subscriptions are not supported by this version"
                faults.add(ranked, name, reason)


def _sound(everything: Subscriptions, sound: NDArray[np.bool_]) -> Subscriptions:
    """Return the subscriptions whose clauses these are without the refused rows."""
    if sound.all():
        return everything
    rows = np.flatnonzero(sound)
    owner = None if everything.owner is None else everything.owner.take(pa.array(rows))
    return Subscriptions(
        ids=everything.ids.take(rows),
        clauses=everything.clauses,
        expires_us=everything.expires_us[rows],
        owner=owner,
    )
