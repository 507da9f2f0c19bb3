"""Moving a subscription: its columns with another region, and what that changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import Clauses, Subscriptions, gather
from nearcast.engine.restore import conjunctions_of
from nearcast.indexes.boolean import Linear
from nearcast.intake.places import regions_of
from nearcast.model import Update

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.intake import MessageBatch
    from nearcast.model import Id, Region, Time
    from nearcast.text import Vocabulary

__all__ = ["moved", "updates_of"]


def moved(columns: Subscriptions, region: Region) -> Subscriptions:
    """Return one subscription with another region; it asks for the same words."""
    clauses, place = columns.clauses, regions_of([region])
    wanted = conjunctions_of(clauses)
    clause = np.repeat(wanted, len(place.box))
    token_start, token = gather(clauses.token_start, clause)
    negative_start, negative = gather(clauses.negative_start, clause)
    elsewhere = Clauses(
        token_start,
        clauses.token[token],
        negative_start,
        clauses.negative[negative],
        np.tile(place.box, (len(wanted), 1)),
        np.zeros(len(clause), np.int32),
        np.full(len(clause), place.shape[0]),
        place.shapes,
        1,
    )
    return replace(columns, clauses=elsewhere)


def translated(clauses: Clauses, source: Vocabulary, target: Vocabulary) -> Clauses:
    """Return clauses in the numbers of another vocabulary; -1 is a token that it does not know."""

    def numbers(token: NDArray[np.int32]) -> NDArray[np.int32]:
        return target.ids_of([source.token(number) for number in token.tolist()])

    return replace(clauses, token=numbers(clauses.token), negative=numbers(clauses.negative))


def updates_of(
    both: Subscriptions, clauses: Clauses, batches: Sequence[MessageBatch], time: Time, time_us: int
) -> list[Update]:
    """Return what a move changes: messages that match only before it (-1), or only after it (+1).

    Parameters
    ----------
    both
        The subscription before and after it moved.
    clauses
        Their clauses, in the numbers of the vocabulary of the messages.
    batches
        Messages in the order in which they were published.
    time, time_us
        When it moves: messages that are not alive then do not count.
    """
    index = Linear.build(clauses)
    found: list[tuple[int, Id, int]] = []
    for batch in batches:
        messages = batch.messages
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
