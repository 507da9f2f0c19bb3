"""Opening: a checkpoint, the events that it has, and what the log has after it."""

from __future__ import annotations

import gc
import logging
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from nearcast.errors import StorageError
from nearcast.server.log.records import time_of
from nearcast.server.matching.checkpoint import Checkpoints, Loaded
from nearcast.server.matching.events import SEAL_POSTINGS, SEAL_SEQS, EventStore
from nearcast.server.matching.matcher import Matcher, new_engine
from nearcast.server.matching.postings import Postings
from nearcast.server.matching.remote import RemoteEngine
from nearcast.server.matching.segments import read_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from nearcast.server.log import Log
    from nearcast.server.matching.events import Block
    from nearcast.server.matching.matcher import Processed
    from nearcast.server.state import State
    from nearcast.storage.log import Record

__all__ = ["Recovered", "Seal", "advance", "computed_again", "no_collections", "recover"]

_log = logging.getLogger("nearcast.server")
_REPLAYED = 50_000


class Recovered(NamedTuple):
    """Matching up to the end of the log."""

    matcher: Matcher
    events: EventStore
    checkpoints: Checkpoints
    seq: int
    time_us: int
    replayed: int


class Seal(NamedTuple):
    """How long a segment of events is; a folder must always be opened with the same."""

    seal_postings: int = SEAL_POSTINGS
    seal_seqs: int = SEAL_SEQS


_SEAL = Seal()


def recover(
    folder: Path,
    log: Log,
    state: State,
    progress: Callable[[int, int], None] | None = None,
    *,
    seal: Seal = _SEAL,
    remote: bool = False,
) -> Recovered:
    """Bring matching to the end of the log.

    Parameters
    ----------
    folder
        The folder of the server.
    log, state
        What was opened before. The state gets what it lacks.
    progress
        Is called with the number of the record that was replayed, and that of the last one.
    seal
        How long segments of events are.
    remote
        Whether another system matches; always the same for a folder.

    Raises
    ------
    StorageError
        If the log has been trimmed, and no checkpoint is whole.
    """
    checkpoints = Checkpoints(folder / "checkpoint")
    loaded, events = _begin(folder, log, state, checkpoints, seal)
    engine = RemoteEngine if remote else new_engine
    matcher = Matcher(engine()) if loaded is None else loaded.matcher
    seq, time_us = (0, 0) if loaded is None else (loaded.seq, loaded.time_us)
    first = seq
    for records in _batches(log, seq + 1):
        seq, time_us = records[-1].seq + records[-1].count - 1, time_of(records[-1])
        advance(matcher, events, state, records)
        if progress is not None:
            progress(seq, log.last_seq)
    return Recovered(matcher, events, checkpoints, seq, time_us, seq - first)


def advance(
    matcher: Matcher, events: EventStore, state: State, records: list[Record]
) -> tuple[Processed, Block | None]:
    """Process records, and write what they lead to, unless it was written before."""
    with no_collections():
        processed = matcher.process(records)
        if processed.changes:
            state.apply(processed.changes, processed.last_seq)
    if processed.last_seq <= events.last_seq:
        return processed, None
    postings = processed.postings
    known = events.last_seq
    if len(postings.seq) and postings.seq[0] <= known:
        postings = postings.take((postings.seq > known).nonzero()[0])
    return processed, events.append(postings, processed.last_seq)


@contextmanager
def no_collections() -> Iterator[None]:
    """Let the garbage collector pause: many objects are made, none of them in cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def computed_again(
    checkpoints: Checkpoints,
    log: Log,
    first_seq: int,
    last_seq: int,
    *,
    remote: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> Postings:
    """Return the postings of a stretch of the log, matched once more from the checkpoint before it.

    Parameters
    ----------
    checkpoints, log
        What there is; neither is changed.
    first_seq, last_seq
        The stretch.
    remote
        As for `recover`.
    stopped
        Whether nobody needs them any more.

    Raises
    ------
    StorageError
        If the log before the stretch was trimmed, and no checkpoint is whole; or if it stopped.
    """
    matcher, seq = _before(checkpoints, log, first_seq, remote=remote)
    found = []
    try:
        for records in _batches(log, seq + 1):
            wanted = [record for record in records if record.seq <= last_seq]
            if stopped():
                raise StorageError("the server is shutting down")
            if wanted:
                with no_collections():
                    postings = matcher.process(wanted).postings
                inside = (postings.seq >= first_seq) & (postings.seq <= last_seq)
                found.append(postings.take(inside.nonzero()[0]))
            if len(wanted) < len(records):
                break
    finally:
        matcher.engine.close()
    return Postings.concatenate(found)


def _before(
    checkpoints: Checkpoints, log: Log, first_seq: int, *, remote: bool
) -> tuple[Matcher, int]:
    """Return matching as it was at some record before a number, the later the better."""
    for seq in reversed(checkpoints.seqs()):
        if log.first_seq - 1 <= seq < first_seq:
            try:
                return checkpoints.load(seq).matcher, seq
            except StorageError as error:
                _log.warning("%s; an older checkpoint is used", error)
    if log.first_seq > 1:
        raise StorageError(
            f"no checkpoint from {log.first_seq - 1:,} to {first_seq - 1:,} is whole, and the log "
            f"begins with record {log.first_seq:,}"
        )
    return Matcher(RemoteEngine() if remote else new_engine()), 0


def _begin(
    folder: Path, log: Log, state: State, checkpoints: Checkpoints, seal: Seal
) -> tuple[Loaded | None, EventStore]:
    """Return the newest checkpoint that is whole and whose events are, and these events."""
    if state.applied_seq > log.last_seq:
        raise StorageError(
            f"{folder}: the state has changes up to record {state.applied_seq:,}, but the log ends "
            f"with {log.last_seq:,}; restore both from the same backup"
        )
    without_events: Loaded | None = None
    for seq in reversed(checkpoints.seqs()):
        if not log.first_seq - 1 <= seq <= state.applied_seq:
            continue
        try:
            loaded = checkpoints.load(seq)
        except StorageError as error:
            _log.warning("%s; an older checkpoint is used", error)
            continue
        try:
            events = _open_events(folder, loaded, log.first_seq, seal)
        except StorageError as error:
            _log.warning("%s; an older checkpoint is used", error)
            without_events = loaded
            continue
        checkpoints.remove_after(seq)
        return loaded, events
    if log.first_seq == 1:
        checkpoints.remove_after(-1)
        shutil.rmtree(folder / "events", ignore_errors=True)
        return None, EventStore(folder / "events", **seal._asdict())
    if without_events is None:
        raise StorageError(
            f"{folder}: the log begins with record {log.first_seq:,}, and no checkpoint from "
            f"{log.first_seq - 1:,} to {state.applied_seq:,}, the last record in the state, is "
            "whole; restore the folder 'checkpoint', or the state, from a backup"
        )
    checkpoints.remove_after(without_events.seq)
    return without_events, _give_up_events(folder, without_events, seal)


def _open_events(folder: Path, loaded: Loaded, first_seq: int, seal: Seal) -> EventStore:
    tail = loaded.folder / "tail"
    return EventStore.open(
        folder / "events", tail, loaded.seq, first_seq=first_seq, **seal._asdict()
    )


def _give_up_events(folder: Path, loaded: Loaded, seal: Seal) -> EventStore:
    """Return the events that a checkpoint has; those before can neither be read nor computed."""
    start = read_run(loaded.folder / "tail", lazy=False)[0]
    _log.warning("%s: events before record %d are lost", folder / "events", start)
    shutil.rmtree(folder / "events")
    return _open_events(folder, loaded, start, seal)


def _batches(log: Log, first: int) -> Iterator[list[Record]]:
    """Yield the records from a number on, many at a time."""
    batch: list[Record] = []
    messages = 0
    for record in log.read(first):
        batch.append(record)
        messages += record.count
        if messages >= _REPLAYED:
            yield batch
            batch, messages = [], 0
    if batch:
        yield batch
