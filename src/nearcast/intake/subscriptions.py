"""Readers of subscriptions: tables and objects in, columns out."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from nearcast.columns import (
    BOOLEAN,
    NEVER,
    SHARE_UNITS,
    Ids,
    Rankings,
    Regions,
    Shapes,
    Subscriptions,
    clauses_of_lists,
    frozen,
    place_conjunctions,
)
from nearcast.errors import DuplicateId, UnsupportedFile
from nearcast.intake.arrow_columns import read_lists, read_texts
from nearcast.intake.frames import table_from
from nearcast.intake.ids import read_ids, read_names, refuse_repeated
from nearcast.intake.keyword_clauses import (
    number_conjunctions,
    number_scopes,
    read_keyword_clauses,
    with_scopes,
)
from nearcast.intake.names import HOW_TO_NAME
from nearcast.intake.places import read_regions, region_lists
from nearcast.intake.rankings import RankingColumns
from nearcast.intake.rejects import Rejects, RowErrors
from nearcast.intake.times import read_times
from nearcast.model import Conjunction
from nearcast.model.json_form import BOX, CIRCLE, FIELDS, POINT
from nearcast.text import UnicodeWords, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from nearcast.intake.batches import Batch
    from nearcast.model import Subscription
    from nearcast.text import IdTable, Tokenizer, Vocabulary

__all__ = ["SUBSCRIPTION_COLUMNS", "read_subscriptions", "subscriptions_from"]

SUBSCRIPTION_COLUMNS = FIELDS["subscription"]
"""The columns of a table of subscriptions; others are ignored."""

_WANTED = (
    "id, a place (west, south, east, north; or lon, lat, radius_m; or geometry; or lon, lat with "
    "delta, tau, max_distance_m), and keywords or expression to match words"
)


def read_subscriptions(
    table: pa.Table,
    vocabulary: Vocabulary,
    tokenizer: Tokenizer = words,
    *,
    source: Batch | None = None,
    seen: IdTable | None = None,
    unique: bool = True,
    keep_words: bool = False,
) -> tuple[Subscriptions, Rejects]:
    """Return the subscriptions of a table in their order, and the rejected rows.

    Parameters
    ----------
    table
        ``id``; ``keywords`` (lists of strings, or strings that are split at spaces) or
        ``expression``; ``west, south, east, north``, or ``lon, lat, radius_m``, or ``geometry``;
        optionally ``owner``, ``expires_at`` and ``scope``. Ranked rows have ``delta, tau,
        max_distance_m`` and ``lon, lat``, or ``alpha, theta`` and a region.
    vocabulary
        New tokens are added to it.
    tokenizer
        Splits keywords into tokens.
    source
        What the table was read from: rejects then have its file, row numbers and records.
    seen
        Ids of other tables: rows with one of them are rejected, and new ids are added.
    unique
        Whether rows with an id that occurred before are rejected.
    keep_words
        As for `subscriptions_from`.

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
    table = table_from(table)
    _require_columns(table)
    errors = RowErrors(table.num_rows)
    ids = read_ids(table, "id", errors)
    ranking = RankingColumns(table, errors)
    owner = read_names(table, "owner", errors)
    scope = read_names(table, "scope", errors)
    expiry = read_times(table, "expires_at", errors)
    regions = read_regions(table, errors, ranking.kind)
    found = read_keyword_clauses(table, tokenizer, vocabulary, errors, ranking.ranked)
    if scope is not None and scope.null_count < len(scope):
        token = number_scopes(scope, vocabulary, errors)
        found = with_scopes(found, token, ranking.ranked)
    wanted, conditions = found
    if unique:
        refuse_repeated(ids, "id", errors, seen)
    valid = np.flatnonzero(errors.valid)
    whole = len(valid) == table.num_rows
    condition = None
    if conditions is not None and len(valid):
        nowhere = Regions(
            np.arange(table.num_rows + 1),
            np.zeros((table.num_rows, 4), np.int32),
            np.full(table.num_rows, -1, np.int32),
            Shapes.empty(),
        )
        condition = place_conjunctions(conditions, nowhere, valid)
    subscriptions = Subscriptions(
        ids=ids if whole else ids.take(valid),
        clauses=place_conjunctions(wanted, regions, valid),
        expires_us=np.where(expiry.given, expiry.us, NEVER)[valid],
        owner=owner if whole or owner is None else owner.take(pa.array(valid)),
        rankings=ranking.rankings(valid, condition),
        typed=_typed_rows(table, valid) if keep_words and _changes_words(tokenizer) else None,
    )
    return subscriptions, errors.rejects(table, source)


def subscriptions_from(
    subscriptions: Sequence[Subscription],
    vocabulary: Vocabulary,
    tokenizer: Tokenizer = words,
    *,
    keep_words: bool = False,
) -> Subscriptions:
    """Return subscription objects as columns.

    Parameters
    ----------
    subscriptions
        The subscriptions.
    vocabulary
        New tokens are added to it.
    tokenizer
        Splits keywords into tokens.
    keep_words
        Whether keywords and expressions are kept as they were given, unless the tokenizer is the
        default one, which finds the same tokens in its own tokens.

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
        rankings=_rankings_of(subscriptions, vocabulary, tokenizer),
        typed=_typed((s.keywords, s.expression) for s in subscriptions)
        if keep_words and _changes_words(tokenizer)
        else None,
    )


def _changes_words(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer may find other tokens in its own tokens, as a stemmer does."""
    return type(tokenizer) is not UnicodeWords


def _typed(given: Iterable[tuple[Sequence[str] | None, str | None]]) -> pa.StringArray | None:
    """Return keywords and expressions as JSON; None if nobody gave any."""
    rows = [
        None
        if keywords is None and expression is None
        else json.dumps([keywords, expression], ensure_ascii=False, separators=(",", ":"))
        for keywords, expression in given
    ]
    return pa.array(rows, pa.string()) if any(rows) else None


def _typed_rows(table: pa.Table, rows: NDArray[np.int64]) -> pa.StringArray | None:
    """Return keywords and expressions of valid rows of a table as JSON."""
    chosen = table.take(pa.array(rows))
    errors = RowErrors(len(rows))
    lists = read_lists(chosen, "keywords", errors)
    keywords: list[list[str] | None] = [None] * len(rows)
    if lists is not None:
        values, start = lists.value.to_pylist(), lists.value_start.tolist()
        for row in np.flatnonzero(lists.given).tolist():
            keywords[row] = values[start[row] : start[row + 1]]
    expressions = read_texts(chosen, "expression", errors).to_pylist()
    return _typed(zip(keywords, expressions, strict=True))


def _rankings_of(
    subscriptions: Sequence[Subscription], vocabulary: Vocabulary, tokenizer: Tokenizer
) -> Rankings | None:
    """Return the rankings of subscriptions; None if all of them are boolean."""
    rankings = [s.ranking for s in subscriptions]
    if all(ranking is None for ranking in rankings):
        return None
    conditions = [s.condition(tokenizer) for s in subscriptions]
    condition = None
    if any(one is not None for one in conditions):
        numbered = number_conjunctions(
            [one or (Conjunction(()),) for one in conditions], vocabulary
        )
        count = len(conditions)
        condition = clauses_of_lists(numbered, [[[0] * 4]] * count, [-1] * count, Shapes.empty())
    columns = [
        (
            r.kind,
            round(r.text_share * SHARE_UNITS),
            round(r.threshold * SHARE_UNITS),
            r.max_distance_cm,
        )
        if r is not None
        else (BOOLEAN, 0, 0, 0)
        for r in rankings
    ]
    kind, share, threshold, distance_cm = zip(*columns, strict=True)
    return Rankings(
        kind=np.array(kind, np.uint8),
        text_share=np.array(share, np.int32),
        threshold=np.array(threshold, np.int32),
        max_distance_cm=np.array(distance_cm, np.uint32),
        condition=condition,
    )


def _require_columns(table: pa.Table) -> None:
    columns = table.column_names
    names = set(columns)
    places = names.issuperset(BOX) or names.issuperset(CIRCLE) or "geometry" in names
    places = places or names.issuperset((*POINT, "max_distance_m"))
    if "id" not in names or not places:
        found = ", ".join(columns) or "none"
        raise UnsupportedFile(
            f"not a table of subscriptions: it has the columns {found}; expected {_WANTED}; "
            f"{HOW_TO_NAME}"
        )
    for name in SUBSCRIPTION_COLUMNS:
        if columns.count(name) > 1:
            raise UnsupportedFile(f"the column {name} occurs twice; rename one of them")
