"""Moving a subscription: its columns with another region, and what that changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import PROXIMITY, Ranked, Subscriptions, clauses_of_lists
from nearcast.indexes.boolean import Linear
from nearcast.indexes.ranked import RankedLinear
from nearcast.intake.places import region_lists
from nearcast.model import Update
from nearcast.model import region as region_of
from nearcast.model.subscriptions import point_of
from nearcast.segments import renumber

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.engine.live_messages import LiveSnapshot
    from nearcast.model import Id, Region, Time
    from nearcast.segments import Part, Scorer
    from nearcast.text import Vocabulary

__all__ = ["moved", "updates_of"]


def moved(subscriptions: Subscriptions, row: int, region: Region | Any) -> Subscriptions:
    """Return the subscription of a row with another region; it asks for the same words."""
    wanted = subscriptions.clauses.conjunction_lists(row)
    owner = subscriptions.owner
    rankings = subscriptions.rankings
    ranking = None if rankings is None else rankings.row(row)
    by_distance = ranking is not None and ranking.kind[0] == PROXIMITY
    place = point_of(region) if by_distance else region_of(region)
    return Subscriptions(
        ids=subscriptions.ids.slice(row, row + 1),
        clauses=clauses_of_lists([wanted], *region_lists([place])),
        expires_us=subscriptions.expires_us[row : row + 1],
        owner=None if owner is None else owner.slice(row, 1),
        rankings=ranking,
    )


def updates_of(
    before: Part, after: Part, scorer: Scorer, live: LiveSnapshot, time: Time, time_us: int
) -> list[Update]:
    """Return what a move changes: messages that match only before it (-1), or only after it (+1).

    Parameters
    ----------
    before, after
        The subscription before and after it moved.
    scorer
        What its scores depend on, if it is ranked.
    live
        The messages that were alive when it moved.
    time, time_us
        When it moves: messages that are not alive then do not count.
    """
    ranked = after.subscriptions.rankings is not None and after.subscriptions.rankings.kind.any()
    translated = renumber if ranked else _translated
    both = Subscriptions.concatenate(
        [translated(part, live.vocabulary) for part in (before, after)]
    )
    content = scorer.content(both, live.vocabulary) if ranked else both.clauses
    index = RankedLinear.build(content) if isinstance(content, Ranked) else Linear.build(content)
    found: list[tuple[int, Id, int]] = []
    for batch in live.batches:
        messages = batch.messages
        if isinstance(content, Ranked):
            messages = content.weigh(messages)
        matches = index.match(messages)
        change = np.zeros(len(messages), np.int64)
        np.add.at(change, matches.message, np.where(matches.subscription == 1, 1, -1))
        sent = messages.time_us
        alive = (sent <= time_us) & (time_us < sent + messages.ttl_us)
        rows = np.flatnonzero((change != 0) & alive & (sent < both.expires_us[0]))
        values = sent[rows].tolist(), batch.ids.take(rows).tolist(), change[rows].tolist()
        found.extend(zip(*values, strict=True))
    found.sort(key=lambda one: one[0])
    [subscription_id, _] = both.ids.tolist()
    return [Update(time, subscription_id, message_id, sign) for _, message_id, sign in found]


def _translated(part: Part, target: Vocabulary) -> Subscriptions:
    """Return a subscription with the ids of another vocabulary, -1 for unknown tokens."""

    def numbers(token: NDArray[np.int32]) -> NDArray[np.int32]:
        return target.ids_of([part.vocabulary.token(number) for number in token.tolist()])

    clauses = part.subscriptions.clauses
    translated = replace(clauses, token=numbers(clauses.token), negative=numbers(clauses.negative))
    return replace(part.subscriptions, clauses=translated)
