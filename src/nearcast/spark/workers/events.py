"""Events of a stream of updates: changes of subscriptions and messages, divided into partitions.

Subscriptions are divided by the hash of their id. So a move, which only has an id, finds its
partition without a look at any state, and no subscription ever changes its partition, wherever it
goes. Every partition gets all messages. To divide by tokens or places instead would send a message
to fewer partitions, but a move to all of them.

An event is a row with the columns of a message, or of a change, and those of `EVENT`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.intake.ids import read_ids
from nearcast.intake.rejects import RowErrors
from nearcast.intake.times import read_times
from nearcast.spark.workers.cleaning import FILE, ORIGIN, RECORD, located
from nearcast.text import hash_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from nearcast.columns import Ids
    from nearcast.intake import Rejects

__all__ = [
    "CHANGE",
    "EVENT",
    "GIVEN",
    "MESSAGE",
    "RouteEvents",
    "own_columns",
    "partition_of",
    "with_origin",
]

CHANGE, MESSAGE, TICK = range(3)
"""The kinds of events; a tick only says how late it is."""

PREFIX = {CHANGE: "change_", MESSAGE: "message_"}
"""How the columns of an event are called: the names of changes and of messages overlap."""

GIVEN = pa.schema([("_kind", pa.int8()), ("_row", pa.int64()), ("_now", pa.timestamp("us", "UTC"))])
"""The columns that every row has before it is sent to a partition.

``_row`` is the number of the first row of a Spark partition, ``_now`` the time of the micro-batch:
the same for all its rows, however often Spark tries it.
"""

EVENT = pa.schema([*GIVEN, ("_time", pa.int64()), ("_key", pa.int32())])
"""The columns that every event has: also when it happens, and the key of its partition.

``_row`` now says which row it was, so that events of the same time have an order. ``_time`` is in
microseconds since 1970, null if the time is invalid.
"""


@dataclass(frozen=True)
class RouteEvents:
    """Sends each change to the partition of its subscription, and messages to all partitions.

    Every partition also gets the last time of all events, so that all have the same present.

    Parameters
    ----------
    keys
        A key for each partition of the shuffle that follows.
    """

    keys: tuple[int, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Route each batch."""
        done, last_us, now, schema = 0, None, None, None
        for batch in batches:
            table = pa.Table.from_batches([batch])
            schema = schema or _routed_schema(table.schema)
            if not table.num_rows:
                continue
            now = table["_now"][0]
            time_us = _times(table)
            latest = pc.max(time_us).as_py()
            if latest is not None:
                last_us = latest if last_us is None else max(last_us, latest)
            row = table["_row"].to_numpy() + np.arange(done, done + table.num_rows)
            done += table.num_rows
            at = table.column_names.index("_row")
            numbered = table.set_column(at, "_row", pa.array(row)).append_column("_time", time_us)
            yield from self._divided(numbered, schema)
        if schema is not None:
            tick = {"_kind": TICK, "_now": now.as_py() if now else None, "_time": last_us}
            ticks = [{**tick, "_key": key} for key in self.keys]
            yield pa.RecordBatch.from_pylist(ticks, schema)

    def _divided(self, table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each partition."""
        kind = table["_kind"].to_numpy()
        changes = np.flatnonzero(kind == CHANGE)
        part = np.full(table.num_rows, -1, np.int64)
        own = own_columns(table.take(pa.array(changes)), CHANGE)
        if len(changes):
            errors = RowErrors(len(changes))
            ids = read_ids(own, "id", errors)
            part[changes] = np.where(errors.valid, partition_of(ids, len(self.keys)), 0)
        for number, key in enumerate(self.keys):
            rows = np.flatnonzero((part == number) | (kind == MESSAGE))
            if len(rows):
                chosen = table if len(rows) == len(part) else table.take(pa.array(rows))
                chosen = chosen.append_column("_key", pa.array(np.full(len(rows), key, np.int32)))
                columns = chosen.combine_chunks().columns
                yield from pa.Table.from_arrays(columns, schema=schema).to_batches()


def partition_of(ids: Ids, partitions: int) -> NDArray[np.int64]:
    """Return the partitions of subscriptions.

    Examples
    --------
    >>> from nearcast.columns import Ids
    >>> sorted({*partition_of(Ids.of(range(100)), 3).tolist()})
    [0, 1, 2]
    """
    number: NDArray[np.int64] = hash_ids(ids).astype(np.int64) % partitions
    return number


def own_columns(table: pa.Table, kind: int) -> pa.Table:
    """Return the columns of a kind of events, as users call them; not where a row comes from."""
    prefix = PREFIX[kind]
    hidden = {f"{prefix}{name}" for name in (*ORIGIN.names, RECORD)}
    names = [n for n in table.column_names if n.startswith(prefix) and n not in hidden]
    return table.select(names).rename_columns([name.removeprefix(prefix) for name in names])


def with_origin(rejects: Rejects, events: pa.Table, kind: int) -> Rejects:
    """Return rejects of events with the file, the line and the whole record, where they are known.

    Their numbers are those of the events.
    """
    prefix = PREFIX[kind]
    if not len(rejects) or f"{prefix}{FILE}" not in events.column_names:
        return rejects
    own = events.filter(pc.equal(events["_kind"], kind))
    order = np.argsort(own["_row"].to_numpy(), kind="stable")
    at = order[np.searchsorted(own["_row"].to_numpy()[order], rejects.row)]
    return located(rejects, own.take(pa.array(at)), prefix)


def _times(table: pa.Table) -> pa.Array:
    """Return when events happen: that of the micro-batch without a time, null if it is invalid."""
    now_us = table["_now"].cast(pa.int64()).to_numpy()
    kind = table["_kind"].to_numpy()
    time_us, valid = now_us.copy(), np.ones(len(now_us), np.bool_)
    for one in (CHANGE, MESSAGE):
        rows = np.flatnonzero(kind == one)
        errors = RowErrors(len(rows))
        time = read_times(own_columns(table.take(pa.array(rows)), one), "time", errors)
        time_us[rows] = np.where(time.given, time.us, now_us[rows])
        valid[rows] = errors.valid
    return pa.array(time_us, mask=~valid)


def _routed_schema(given: pa.Schema) -> pa.Schema:
    """Return the schema of routed rows; in a tick, most columns are null."""
    routing = [field for field in EVENT if field.name not in GIVEN.names]
    return pa.schema([*(field.with_nullable(True) for field in given), *routing])
