"""Engines that do not begin empty: saved ones, and those of subscriptions that were read before."""

from __future__ import annotations

import time as clocks
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from nearcast.engine.moving.stored import StoredLive
from nearcast.engine.snapshot import Snapshot, stored
from nearcast.text import name_of, opened, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from nearcast.engine.engine import Engine
    from nearcast.engine.moving.live import Live
    from nearcast.engine.store import Store
    from nearcast.segments import Part, Scorer
    from nearcast.text import Tokenizer

    E = TypeVar("E", bound=Engine)

__all__ = ["open_parts", "open_saved", "snapshot_of"]


def snapshot_of(store: Store, live: Live, tokenizer: Tokenizer) -> Snapshot:
    """Return all that is to be saved; callers hold the locks of merging and of events."""
    state = store.merge_vocabularies()
    segments = [stored(segment, state) for segment in state.segments]
    segments += store.stored_movers()
    return Snapshot(
        store.builder,
        state.scorer,
        segments,
        store.vocabulary,
        StoredLive.of(live, store),
        name_of(tokenizer),
    )


def open_saved(
    kind: type[E],
    folder: str | Path,
    tokenizer: str | Tokenizer | None,
    clock: Callable[[], float],
    *,
    verify: bool,
) -> E:
    """Open what `Engine.save` wrote."""
    snapshot = Snapshot.read(folder, verify=verify)
    builder = snapshot.builder
    engine = kind(
        builder.index.name,
        options=vars(builder.options),
        tokenizer=opened(snapshot.tokenizer, tokenizer, folder),
        moving=snapshot.live.index,
        moving_options=snapshot.live.options,
        report=snapshot.live.report,
        clock=clock,
    )
    engine._store.vocabulary = snapshot.vocabulary
    engine._store.state = engine._store.state._replace(scorer=snapshot.scorer)
    engine._store.restore(snapshot.segments)
    snapshot.live.restore(engine._live, engine._store)
    return engine


def open_parts(
    kind: type[E],
    parts: Iterable[Part],
    scorer: Scorer,
    *,
    tokenizer: str | Tokenizer = words,
    clock: Callable[[], float] = clocks.time,
) -> E:
    """Return an engine with subscriptions that were read before.

    Parameters
    ----------
    kind
        The class of the engine.
    parts
        The subscriptions, no two with the same id.
    scorer
        What the scores of ranked subscriptions depend on, for as long as the engine lives: weights
        are not counted again, so engines with different subscriptions give the same scores.
    tokenizer, clock
        As for a new engine.
    """
    engine = kind(tokenizer=tokenizer, clock=clock)
    store = engine._store
    store.state = store.state._replace(scorer=replace(scorer, fixed=True))
    for part in parts:
        store.add(part, skip=False)
    return engine
