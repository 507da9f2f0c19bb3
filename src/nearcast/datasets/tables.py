"""Drawn subscriptions and messages as Arrow tables, with words instead of token ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import (
    BOOLEAN,
    CENTIMETERS,
    KINDS,
    OVERLAP,
    PROXIMITY,
    SHARE_UNITS,
    UNITS,
    Clauses,
    Messages,
)
from nearcast.datasets.draw import hash_to_uniform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.columns import Ranked
    from nearcast.datasets.workloads import Workload

__all__ = ["START_US", "box_columns", "message_table", "row_ids", "subscription_table"]

_SIDES = ("west", "south", "east", "north")
START_US = 1_767_225_600_000_000
"""The time of the first message: 2026-01-01."""

_STEP_US = 1_000


def subscription_table(
    workload: Workload,
    content: Clauses | Ranked,
    *,
    kinds: Sequence[str] | None = None,
    first: int = 0,
) -> pa.Table:
    """Return ``id``, ``keywords`` and a place for each subscription; ids count from ``first``.

    Boolean subscriptions have a box. Proximity subscriptions have a point and ``delta``, ``tau``,
    ``max_distance_m``; overlap subscriptions have a box and ``alpha``, ``theta``. If there are
    several ``kinds`` (those of the rows unless given), the columns that a row does not use are
    null.

    Parameters
    ----------
    workload
        The workload that they were drawn from.
    content
        What it drew.
    kinds
        The kinds whose columns the table has.
    first
        The first id.

    Examples
    --------
    >>> from nearcast.datasets import Workload
    >>> tweets = Workload("tweets", seed=7)
    >>> table = subscription_table(tweets, tweets.subscriptions(10))
    >>> table.column_names, table["id"][9].as_py()
    (['id', 'keywords', 'west', 'south', 'east', 'north'], 's9')
    >>> subscription_table(tweets, tweets.ranked(10)).column_names
    ['id', 'keywords', 'lon', 'lat', 'delta', 'tau', 'max_distance_m']
    """
    clauses = content if isinstance(content, Clauses) else content.clauses
    place = (
        box_columns(clauses.box)
        if isinstance(content, Clauses)
        else _ranked_columns(content, kinds)
    )
    keywords = _word_lists(workload, clauses.token_start, clauses.token)
    return pa.table(
        {"id": row_ids("s", np.arange(first, first + len(clauses))), "keywords": keywords, **place}
    )


def message_table(
    workload: Workload, messages: Messages, *, boxes: bool = False, first: int = 0
) -> pa.Table:
    """Return ``id``, ``text``, a location and ``time`` for each message, one millisecond apart.

    Parameters
    ----------
    workload
        The workload that they were drawn from.
    messages
        What it drew.
    boxes
        Whether the location is a box instead of ``lon, lat``.
    first
        The first id.

    Examples
    --------
    >>> from nearcast.datasets import Workload
    >>> tweets = Workload("tweets", seed=7)
    >>> message_table(tweets, tweets.messages(3)).column_names
    ['id', 'text', 'lon', 'lat', 'time']
    """
    token_start, token = messages.token_start, messages.token
    if not workload.source.keeps_token_order:
        token = _shuffled(messages)
    text = pc.binary_join(_word_lists(workload, token_start, token), " ")
    time_us = START_US + _STEP_US * np.arange(first, first + len(messages))
    time = pa.array(time_us).cast(pa.timestamp("us", "UTC"))
    location = box_columns(messages.box)
    if not boxes:
        location = {"lon": location["west"], "lat": location["south"]}
    return pa.table(
        {
            "id": row_ids("m", np.arange(first, first + len(messages))),
            "text": text,
            **location,
            "time": time,
        }
    )


def _word_lists(workload: Workload, start: Any, token: Any) -> pa.ListArray:
    value = workload.words().take(pa.array(token))
    return pa.ListArray.from_arrays(pa.array(start.astype(np.int32)), value)


def _shuffled(messages: Messages) -> Any:
    """Return the tokens of each message in a random order that is the same on every call."""
    row = np.repeat(np.arange(len(messages)), np.diff(messages.token_start))
    key = hash_to_uniform(messages.token.astype(np.uint64) + row.astype(np.uint64))
    return messages.token[np.lexsort((key, row))]


def box_columns(box: NDArray[np.int32]) -> dict[str, Any]:
    """Return boxes in units as columns of degrees."""
    return {side: box[:, i] / UNITS for i, side in enumerate(_SIDES)}


def _ranked_columns(ranked: Ranked, kinds: Sequence[str] | None) -> dict[str, Any]:
    """Return the places and rankings of subscriptions; null where a kind does not use a column."""
    rankings, box = ranked.rankings, box_columns(ranked.clauses.box)
    shares = rankings.text_share.astype(np.int64)
    threshold = rankings.threshold / SHARE_UNITS
    by_kind = {
        BOOLEAN: box,
        PROXIMITY: {
            "lon": box["west"],
            "lat": box["south"],
            "delta": shares / SHARE_UNITS,
            "tau": threshold,
            "max_distance_m": rankings.max_distance_cm / CENTIMETERS,
        },
        # Alpha weighs space: what it leaves is the share of the text.
        OVERLAP: {**box, "alpha": (SHARE_UNITS - shares) / SHARE_UNITS, "theta": threshold},
    }
    used = {kind: by_kind[KINDS.index(kind)] for kind in kinds or ranked.kinds}
    columns = {name: column for chosen in used.values() for name, column in chosen.items()}
    unused = {
        name: ~np.isin(rankings.kind, [KINDS.index(k) for k in used if name in used[k]])
        for name in columns
    }
    return {name: pa.array(column, mask=unused[name]) for name, column in columns.items()}


def row_ids(letter: str, number: NDArray[Any]) -> pa.Array:
    """Return ids: a letter and the number of each row."""
    return pc.binary_join_element_wise(letter, pa.array(number).cast(pa.string()), "")
