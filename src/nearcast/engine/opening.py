"""Engines that do not begin empty: saved ones, with a journal or without, and those of parts."""

from __future__ import annotations

import time as clocks
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from nearcast.engine.journal import Journal
from nearcast.engine.moving.stored import StoredLive
from nearcast.engine.replay import replay
from nearcast.engine.snapshot import Snapshot, stored
from nearcast.errors import StorageError, UnknownName
from nearcast.storage import holds_arrays, sweep_arrays
from nearcast.text import name_of, opened, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from nearcast.engine.engine import Engine
    from nearcast.engine.moving.live import Live
    from nearcast.engine.store import Store
    from nearcast.segments import Part, Scorer
    from nearcast.text import Tokenizer

    E = TypeVar("E", bound=Engine)

__all__ = ["open_journal", "open_parts", "open_saved", "snapshot_of"]


def snapshot_of(store: Store, live: Live, tokenizer: Tokenizer, keep_words: bool) -> Snapshot:
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
        keep_words,
    )


def open_saved(
    kind: type[E],
    folder: str | Path,
    tokenizer: str | Tokenizer | None,
    clock: Callable[[], float],
    *,
    verify: bool,
) -> E:
    """Open what `Engine.save` wrote; what killed writers left beside it is removed."""
    sweep_arrays(folder)
    snapshot = Snapshot.read(folder, verify=verify)
    builder = snapshot.builder
    engine = kind(
        builder.index.name,
        options=vars(builder.options),
        tokenizer=opened(snapshot.tokenizer, tokenizer, folder),
        moving=snapshot.live.index,
        moving_options=snapshot.live.options,
        report=snapshot.live.report,
        keep_words=snapshot.keep_words,
        clock=clock,
    )
    engine._store.vocabulary = snapshot.vocabulary
    engine._store.state = engine._store.state._replace(scorer=snapshot.scorer)
    engine._store.restore(snapshot.segments)
    snapshot.live.restore(engine._live, engine._store)
    engine._note_saved(folder)
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


def open_journal(
    kind: type[E],
    folder: Path,
    tokenizer: str | Tokenizer | None,
    clock: Callable[[], float],
    verify: bool,
    settings: Mapping[str, Any],
) -> E:
    """Open an engine with a journal, or make a new one with these settings."""
    journal = Journal(folder)
    try:
        stored_in = journal.checkpoint or (folder if holds_arrays(folder) else None)
        if stored_in is None:
            engine = kind(
                tokenizer=words if tokenizer is None else tokenizer, clock=clock, **settings
            )
        else:
            engine = open_saved(kind, stored_in, tokenizer, clock, verify=verify)
            _check_settings(folder, settings, engine)
        replay(engine, journal)
        engine._journal = journal
        journal.clock = engine._clock
        if journal.checkpoint is None:
            engine.checkpoint()
    except BaseException:
        journal.close()
        raise
    return engine


def _check_settings(folder: Path, settings: Mapping[str, Any], engine: Engine) -> None:
    """Refuse settings of a new engine that the stored one does not have."""
    store, live = engine._store, engine._live
    scoring = store.state.scorer.scoring
    found = {
        "index": store.builder.index.name,
        "options": vars(store.builder.options),
        "similarity": scoring.similarity,
        "distance": scoring.distance,
        "weights": "manual" if store.state.scorer.fixed else "auto",
        "moving": live.builder.index.name,
        "moving_options": vars(live.builder.options),
        "report": "all" if live.reports else "moves",
        "keep_words": engine._keep_words,
    }
    for name, value in settings.items():
        if name not in found:
            raise UnknownName("setting", name, found)
        known = found[name]
        given = {**known, **(value or {})} if isinstance(known, dict) else value
        if given != known:
            problem = f"was created with {name}={known!r}, not {value!r}; leave it out"
            raise StorageError(f"{folder}: {problem}, or use another folder")
