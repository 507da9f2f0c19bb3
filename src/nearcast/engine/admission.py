"""The moment at which messages are published: what they say, and which subscriptions they meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nearcast.engine.live_messages import LiveMessages
    from nearcast.engine.segment import State
    from nearcast.engine.sources import Source
    from nearcast.engine.store import Store
    from nearcast.intake import MessageBatch, Rejects
    from nearcast.text import Vocabulary

__all__ = ["admit"]


def admit(
    store: Store, vocabulary: Vocabulary, live: LiveMessages, source: Source
) -> tuple[State, MessageBatch, Rejects]:
    """Read messages, keep those that live on, and take the state that they are to meet.

    Tokens are looked up after the state was taken, so that no token of its subscriptions is
    unknown. Messages that live on are kept and meet their state in one step: to a subscription
    that moves they come either before the move or after it.
    """
    state, known = store.state, len(vocabulary)
    batch, rejects = source.read(vocabulary)
    kept = np.flatnonzero(batch.messages.ttl_us > 0)
    if not len(kept):
        return state, batch, rejects
    with live.lock:
        lasting, _ = source.chosen(kept, rejects).read(live.vocabulary)
        live.add(lasting, source.now_us)
        state = store.state
    if len(vocabulary) != known:
        batch, rejects = source.read(vocabulary)
    return state, batch, rejects
