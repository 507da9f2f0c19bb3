"""From the matches of several segments to ids and a table of matches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import NO_WEIGHTS, Ids, join_scores, row_array
from nearcast.segments.segment import LATEST
from nearcast.text import gather_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.columns import Matches, Messages
    from nearcast.intake import MessageBatch
    from nearcast.segments.segment import Segment
    from nearcast.text import Vocabulary

__all__ = ["Delivery", "deliver"]

_COLUMNS = ["message_id", "subscription_id", "score"]


class Delivery(NamedTuple):
    """Matches of a batch: message row (ascending) and subscription id of each, and their scores.

    ``score`` is None where all matches are boolean, and NaN for boolean ones among others.
    ``examined`` and ``visited`` are what finding them cost, as in `nearcast.columns.Matches`.
    ``owner`` has the owners of the subscriptions, where they were asked for.
    """

    message: NDArray[np.int64]
    subscription: Ids
    score: NDArray[np.float64] | None
    examined: int
    visited: int
    owner: pa.StringArray | None = None

    def scores(self) -> list[float | None]:
        """Return the score of every match, None for boolean ones."""
        if self.score is None:
            return [None] * len(self.message)
        return [None if math.isnan(score) else score for score in self.score.tolist()]

    def best(self, count: int) -> Delivery:
        """Return the best matches of each message, the best first, at most ``count``.

        Boolean matches have no score and come last; equal ones are in the order of their ids.
        """
        score = np.full(len(self.message), np.nan) if self.score is None else self.score
        keys = {
            "message": pa.array(self.message),
            "score": pa.array(-score, from_pandas=True),
            "number": pa.array(self.subscription.number),
            "text": self.subscription.text,
        }
        columns = {name: key for name, key in keys.items() if key is not None}
        order = pc.sort_indices(
            pa.table(columns), sort_keys=[(name, "ascending") for name in columns]
        ).to_numpy()
        message = self.message[order]
        rank = np.arange(len(message)) - np.searchsorted(message, message)
        kept = order[rank < count]
        return self._replace(
            message=self.message[kept],
            subscription=self.subscription.take(kept),
            score=None if self.score is None else self.score[kept],
            owner=None if self.owner is None else self.owner.take(row_array(kept)),
        )

    def joined(
        self,
        message: NDArray[np.int64],
        subscription: Ids,
        owner: pa.StringArray | None = None,
    ) -> Delivery:
        """Return the same with more boolean matches, in the order of the messages."""
        if not len(message):
            return self
        score = self.score
        if score is not None:
            score = np.concatenate([score, np.full(len(message), np.nan)])
        both = np.concatenate([self.message, message])
        order = np.argsort(both, kind="stable")
        return self._replace(
            message=both[order],
            subscription=Ids.concatenate([self.subscription, subscription]).take(order),
            score=None if score is None else score[order],
            examined=self.examined + len(message),
            owner=None
            if self.owner is None or owner is None
            else pa.concat_arrays([self.owner, owner]).take(row_array(order)),
        )

    def to_table(self, message_ids: Ids, first: int = 0, last: int | None = None) -> pa.Table:
        """Return matches as a table of ``message_id``, ``subscription_id``, ``score``, ``owner``.

        The owners are there if they were asked for.

        Parameters
        ----------
        message_ids
            The ids of the messages of the batch.
        first, last
            Which of the matches, all by default.
        """
        message = self.message[first:last]
        whole = len(message) == len(self.message)
        subscription = (
            self.subscription
            if whole
            else self.subscription.take(np.arange(first, first + len(message)))
        )
        score = pa.nulls(len(message), pa.float64())
        if self.score is not None:
            score = pa.array(self.score[first:last], from_pandas=True)
        columns = [
            gather_ids(message_ids, message).to_arrow(),
            subscription.to_arrow(),
            score,
        ]
        if self.owner is None:
            return pa.Table.from_arrays(columns, _COLUMNS)
        owner = self.owner.slice(first, len(message))
        return pa.Table.from_arrays([*columns, owner], [*_COLUMNS, "owner"])


def deliver(
    segments: Sequence[Segment],
    batch: MessageBatch,
    *,
    version: int = LATEST,
    threads: int = 1,
    owners: bool = False,
) -> Delivery:
    """Match messages against all segments of a version; return owners too if asked to.

    Segments that share a vocabulary share the numbering of the messages. All segments of a version
    have the same scorer.
    """
    numbered: dict[tuple[Vocabulary, bool], Messages] = {}
    found: list[Matches] = []
    ids: list[Ids] = []
    owner = [pa.nulls(0, pa.string())]
    examined = visited = 0
    for segment in segments:
        key = segment.vocabulary, segment.ranked
        messages = numbered.get(key)
        if messages is None:
            scorer = segment.scorer if segment.ranked else None
            text_weight = NO_WEIGHTS if scorer is None else scorer.text_weight(batch.words)
            messages = batch.number(segment.vocabulary, text_weight=text_weight)
            numbered[key] = messages
        matches = segment.match(messages, version=version, threads=threads)
        examined += matches.examined
        visited += matches.visited
        if len(matches):
            found.append(matches)
            ids.append(gather_ids(segment.subscriptions.ids, matches.subscription))
            if owners:
                owner.append(_owners(segment, matches))
    named = pa.concat_arrays(owner) if owners else None
    if not found:
        return Delivery(np.empty(0, np.int64), Ids.of([]), None, examined, visited, named)
    if len(found) == 1:
        return Delivery(found[0].message, ids[0], found[0].score, examined, visited, named)
    message = np.concatenate([matches.message for matches in found])
    score = join_scores([matches.score for matches in found], [len(m) for m in found])
    order = np.argsort(message, kind="stable")
    return Delivery(
        message[order],
        Ids.concatenate(ids).take(order),
        None if score is None else score[order],
        examined,
        visited,
        None if named is None else named.take(row_array(order)),
    )


def _owners(segment: Segment, matches: Matches) -> pa.StringArray:
    owner = segment.subscriptions.owner
    if owner is None:
        return pa.nulls(len(matches), pa.string())
    return owner.take(row_array(matches.subscription))
