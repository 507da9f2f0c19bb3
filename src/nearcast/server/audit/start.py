"""Where an audit starts: at the beginning of the log, or at a checkpoint if that is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast.columns import NEVER
from nearcast.engine import Engine
from nearcast.errors import StorageError
from nearcast.model.derived import SCOPE
from nearcast.server.audit.replay import (
    ACTIVE,
    DELETED,
    ENDED,
    PAUSED,
    Replay,
    Subscription,
    Waiting,
)
from nearcast.server.audit.scanning import Restored
from nearcast.server.audit.stored import checkpoint_seqs
from nearcast.server.log.records import Definition, SinkDefinition
from nearcast.server.matching.checkpoint import clocks_in
from nearcast.server.matching.postings import MATCH, UNMATCH
from nearcast.storage import nested, read_arrays, strings_from_arrays

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from nearcast.engine.moving.messages import LiveMessages
    from nearcast.storage.log import LogReader

__all__ = ["start_at"]

_KIND = "server-registry"
_STATUSES = {1: ACTIVE, 2: PAUSED, 3: ENDED, 4: DELETED}
_TYPES = (
    "match",
    "unmatch",
    "subscription-started",
    "subscription-updated",
    "subscription-ended",
)
_IGNORED = ("id", "owner", "scope", "expires_at")


def start_at(folder: Path, log: LogReader) -> tuple[Replay, int, tuple[str, ...]]:
    """Return a replay, the number of the record that it needs next, and notes for the reader."""
    if log.first_seq == 1:
        return Replay(), 1, ("The whole log was replayed, from its first record on.",)
    for seq in checkpoint_seqs(folder):
        if seq >= log.first_seq - 1:
            notes = (
                f"The log begins with seq {log.first_seq:,}. Subscriptions, and earlier messages "
                f"that were alive, were taken as the checkpoint at seq {seq:,} has them, and not "
                "computed again.",
            )
            return _resumed(folder / "checkpoint" / f"{seq:020d}", log, seq), seq + 1, notes
    raise StorageError(
        f"{folder}: the log begins with record {log.first_seq:,}, and there is no later "
        "checkpoint; stop the server, which writes one"
    )


def _resumed(checkpoint: Path, log: LogReader, seq: int) -> Replay:
    """Return a replay that begins after a checkpoint."""
    arrays, meta = read_arrays(checkpoint / "registry", _KIND)
    replay = Replay()
    channels = strings_from_arrays(nested("registry.channels", arrays)).to_pylist()
    current = {}
    for number, key in enumerate(channels[1:], 1):
        kind, tenant, subscriber, url = key.split("\0")
        whose = int(tenant), subscriber, None if kind == "subscriber" else url
        replay.channels.append(whose)
        if kind != "retired":
            current[number] = whose
    with Engine.open(checkpoint / "engine") as engine:
        since = _since(engine)
        rows = _rows(engine)
        replay.scanner.weights = engine._store.state.scorer.weights
        for tenant, messages in _living(engine, log.first_seq):
            replay.restore(tenant, messages)
    dwelling = nested("dwelling", arrays)
    names = ("handle", "message", "due_us", "sign", "score", "ends_us")
    waiting = {
        (handle, message): Waiting(due_us, MATCH if sign > 0 else UNMATCH, score, ends_us)
        for handle, message, due_us, sign, score, ends_us in zip(
            *(dwelling[name].tolist() for name in names), strict=True
        )
    }
    subscriptions = _subscriptions(nested("registry", arrays), rows, since, replay.channels)
    replay.resume(subscriptions, waiting, current, int(meta["counted"]))
    clocks = clocks_in(meta)
    replay.clocks = clocks.before(log.first_seq)
    for record in log.read(log.first_seq):
        if record.seq > seq:
            break
        replay.remember(record)
    replay.clocks = clocks
    return replay


def _rows(engine: Engine) -> dict[int, dict[str, Any]]:
    """Return what subscriptions ask for, where they are now, as rows of a file, by handle."""
    rows = {}
    for one in engine:
        row = {name: value for name, value in one.to_dict().items() if name not in _IGNORED}
        rows[int(one.id)] = row | ({"geometry": one.region.to_wkb()} if "geometry" in row else {})
    return rows


def _living(engine: Engine, first_seq: int) -> Iterator[tuple[int, Restored]]:
    """Yield the messages before a number that are alive, by tenant."""
    live = engine._live.messages
    seq = np.array(live.ids(live.numbers).tolist(), np.int64)
    numbers, seq = live.numbers[seq < first_seq], seq[seq < first_seq]
    end_us = live.end_us(numbers)
    tenant = _tenants(live, numbers)
    for one in np.unique(tenant).tolist():
        rows = np.flatnonzero(tenant == one)
        batch = live.batch(numbers[rows], np.zeros(len(rows), np.int64))
        yield one, Restored(seq[rows], end_us[rows], batch)


def _tenants(live: LiveMessages, numbers: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the tenants of messages: their last word is that of the scope."""
    start, word, _ = live.words(numbers)
    last = word[start[1:] - 1]
    token = np.where(last < 0, -2 - last, last)  # negative at the beginning of a text
    names = live.vocabulary.tokens().take(pa.array(token)).to_pylist()
    return np.array([int(name.removeprefix(SCOPE)) for name in names], np.int64)


def _since(engine: Engine) -> dict[int, int]:
    """Return after which message subscriptions want some, by handle; others want all."""
    live = engine._live
    numbers = live.messages.numbers
    order = live.messages.order(numbers)
    seqs = np.array(live.messages.ids(numbers).tolist(), np.int64)
    first_of = live.since.by_handle
    handles, ids = engine._store.placed(np.array([*first_of], np.int32))
    return {
        int(id): int(seqs[order < first_of[handle]].max(initial=0))
        for handle, id in zip(handles.tolist(), ids.tolist(), strict=True)
    }


def _subscriptions(
    arrays: dict[str, Any],
    rows: dict[int, dict[str, Any]],
    since: dict[int, int],
    channels: list[tuple[int, str, str | None]],
) -> list[Subscription]:
    """Return the subscriptions of a checkpoint, by handle."""
    texts = strings_from_arrays(nested("names", arrays)).to_pylist()
    names = dict(zip(arrays["named"].tolist(), texts, strict=True))
    fields = (
        "tenant channel sink max_events events status wants ranked expires_us dwell_us version"
    ).split()
    columns = [arrays[name].tolist() for name in fields]
    found = []
    for handle, values in enumerate(zip(*columns, strict=True)):
        one = dict(zip(fields, values, strict=True))
        _, subscriber, _ = channels[one["channel"] - 1]
        url = channels[one["sink"] - 1][2] if one["sink"] else None
        definition = Definition(
            subscriber=subscriber,
            row=rows.get(handle, {}),
            box=(0.0, 0.0, 0.0, 0.0),
            kind="ranked" if one["ranked"] else "boolean",
            given={},
            sink=None if url is None else SinkDefinition(url),
            types=tuple(type for bit, type in enumerate(_TYPES) if one["wants"] >> bit & 1),
            expires_us=None if one["expires_us"] == NEVER else one["expires_us"],
            max_events=one["max_events"],
            dwell_us=one["dwell_us"],
            active=one["status"] == 1,
        )
        found.append(
            Subscription(
                handle=handle,
                tenant=one["tenant"],
                name=names.get(handle),
                definition=definition,
                row=definition.row,
                status=_STATUSES[one["status"]],
                version=one["version"],
                events=one["events"],
                since=since.get(handle, 0),
                channel=one["channel"],
                sink=one["sink"],
            )
        )
    return found
