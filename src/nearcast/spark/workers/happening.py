"""What events give: an engine lets them happen, and updates and rejects are kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine.moving.standstill import Standstill
from nearcast.engine.recording import TIME, begun_updates
from nearcast.errors import StorageError
from nearcast.intake import Rejects
from nearcast.intake.arrow_columns import with_column
from nearcast.intake.ids import read_ids
from nearcast.intake.rejects import RowErrors, cell_value, record_json
from nearcast.spark.workers.events import CHANGE, MESSAGE
from nearcast.spark.workers.ordering import (
    INSERT,
    MOVE,
    PUBLISH,
    EventRows,
    GivenRows,
    Ordered,
    pieces_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nearcast.engine import Engine
    from nearcast.engine.recording import ReplayClock

__all__ = ["Applied", "Happening"]

_FEW_RUNS = 2


class Applied(NamedTuple):
    """What became of events: updates in the order of time, rejects by kind, and counts."""

    updates: pa.Table
    rejects: dict[int, Rejects]
    messages: int
    changes: int


@dataclass
class Happening:
    """Gives the events of a micro-batch to an engine, and keeps what comes of it."""

    engine: Engine
    clock: ReplayClock
    schema: pa.Schema
    updates: list[pa.Table] = field(default_factory=list)
    published: list[bool] = field(default_factory=list)
    rejects: dict[int, list[Rejects]] = field(default_factory=lambda: {CHANGE: [], MESSAGE: []})
    messages: int = 0
    changes: int = 0

    def valid(
        self, given: GivenRows, read: Callable[[GivenRows], tuple[pa.Table, NDArray[np.int64]]]
    ) -> EventRows:
        """Return the rows that are valid so far, and keep the others as rejects."""
        table, step = read(given)
        rejects = given.errors.rejects(given.table)
        self.rejects[given.kind].append(replace(rejects, row=given.row[rejects.row]))
        kept = np.flatnonzero(given.errors.valid)
        return EventRows(
            table.take(pa.array(kept)), given.row[kept], given.time_us[kept], step[kept]
        )

    def window(self, window: Ordered) -> None:
        """Let events happen: all at once if that gives the same, otherwise one after another.

        If that does not hold for all of them, it may hold for the first half, or the second one.
        """
        runs = window.runs()
        moved_us = window.when_us[window.step == MOVE]
        if len(moved_us) and (len(runs) > _FEW_RUNS or moved_us[0] < moved_us[-1]):
            if self._at_once(window):
                return
            if len(runs) > _FEW_RUNS:
                middle = runs[len(runs) // 2][0]
                self.window(window.slice(0, middle))
                self.window(window.slice(middle, len(window.step)))
                return
        for first, end in runs:
            step = int(window.step[first])
            rows = window.messages if step == PUBLISH else window.changes
            self.step(step, rows, window.own[first:end], window.when_us[first:end])

    def _at_once(self, window: Ordered) -> bool:
        """Publish all messages, then make all moves, and correct the times; see `Standstill`."""
        published = window.step == PUBLISH
        message, move = window.own[published], window.own[~published]
        until_us, standstill = int(window.when_us[-1]), Standstill.of(self.engine)
        moved_ids, ids = (
            read_ids(rows.table.take(pa.array(chosen)), "id", RowErrors(len(chosen)))
            for rows, chosen in ((window.changes, move), (window.messages, message))
        )
        ttl_us = window.messages.table["ttl_s"].to_numpy()[message] * 1_000_000
        lives = window.messages.time_us[message] + ttl_us > window.when_us[published]
        fit = bool((lives & (ttl_us > 0)).all()) and len({*ids.tolist()}) == len(message)
        if not fit or not standstill.allows(moved_ids, ids, until_us):
            return False
        self.clock.now_us = until_us
        before, self.updates = self.updates, []
        flags, self.published = self.published, []
        with standstill.held():
            if len(message):
                self.call(PUBLISH, window.messages, message, window.when_us[published])
            begun, self.updates = self.updates, []
            self.call(MOVE, window.changes, move, window.when_us[~published])
            moved = [_with_lives(one, standstill, self.schema) for one in self.updates]
            self.updates = []
        self.advance(until_us)
        others = [_typed(one, self.schema) for one in (*begun, *self.updates)]
        self.updates, self.published = before, flags
        self._add_corrected(others, moved)
        return True

    def _add_corrected(self, others: list[pa.Table], moved: list[tuple[pa.Table, Any]]) -> None:
        """Keep what is left of updates at corrected times, and which of them moves gave."""
        tables = [*others, *(table for table, _ in moved)]
        if not tables:
            return
        updates = pa.concat_tables(tables)
        fixed = np.ones(updates.num_rows, np.bool_)
        if moved:
            same = np.concatenate([same for _, same in moved])
            fixed[len(fixed) - len(same) :] = ~same
        kept = np.sort(_uncancelled(updates, np.arange(len(fixed))))
        for published in (True, False):
            chosen = kept[fixed[kept] == published]
            self._add(updates.take(pa.array(chosen)), published=published)

    def step(
        self, step: int, rows: EventRows, chosen: NDArray[np.int64], when_us: NDArray[np.int64]
    ) -> None:
        """Let events of one step happen, in order."""
        for first, end in pieces_of(rows, chosen, distinct=step in (INSERT, PUBLISH)):
            self.clock.now_us = int(when_us[end - 1])
            self.call(step, rows, chosen[first:end], when_us[first:end])

    def call(
        self, step: int, rows: EventRows, piece: NDArray[np.int64], when_us: NDArray[np.int64]
    ) -> None:
        """Let events of one step happen by one call."""
        doing = (self._delete, self._insert, self._move, self._publish)[step]
        rejects, begun = doing(rows, piece, when_us)
        kind = MESSAGE if step == PUBLISH else CHANGE
        if len(rejects):
            self.rejects[kind].append(_numbered(rows, piece, rejects))
        accepted = len(piece) - len(rejects)
        self.messages += accepted if kind == MESSAGE else 0
        self.changes += accepted if kind == CHANGE else 0
        self.advance(self.clock.now_us)
        if begun is not None:
            self._add(begun, published=step == PUBLISH)

    def advance(self, until_us: int) -> None:
        """Let everything expire until a time."""
        self.clock.now_us = until_us
        self._add(self.engine.advance(self.clock()))

    def _add(self, updates: pa.Table, *, published: bool = False) -> None:
        if updates.num_rows:
            self.updates.append(updates)
            self.published.append(published)

    def applied(self, *, inserted: bool) -> Applied:
        """Return all that happened; ``inserted`` if subscriptions have come."""
        typed = [_typed(one, self.schema) for one in self.updates]
        updates = pa.concat_tables(typed) if typed else self.schema.empty_table()
        time_us = updates["time"].cast(pa.int64()).to_numpy()
        kept = np.arange(len(time_us))
        if inserted:
            rows = [one.num_rows for one in typed]
            published = np.repeat(np.array(self.published, np.bool_), rows)
            kept = np.sort(np.append(kept[published], _uncancelled(updates, kept[~published])))
        order = kept[np.argsort(time_us[kept], kind="stable")]
        updates = updates.take(pa.array(order))
        rejects = {kind: Rejects.concatenate(some) for kind, some in self.rejects.items()}
        return Applied(updates, rejects, self.messages, self.changes)

    def _delete(
        self, rows: EventRows, piece: NDArray[np.int64], when_us: NDArray[np.int64]
    ) -> tuple[Rejects, None]:
        ids = rows.table["id"].take(pa.array(piece)).to_pylist()
        known: dict[str | int, int] = {}
        for position, id in enumerate(ids):
            if id not in known and id in self.engine:
                known[id] = position
        if known:
            self.engine.unsubscribe([*known], time=self.clock())
        unknown = sorted({*range(len(ids))} - {*known.values()})
        return Rejects.of([(one, "id", "is not registered", "") for one in unknown]), None

    def _insert(
        self, rows: EventRows, piece: NDArray[np.int64], when_us: NDArray[np.int64]
    ) -> tuple[Rejects, None]:
        names = [name for name in rows.table.column_names if name not in ("op", "time")]
        table = rows.table.select(names).take(pa.array(piece))
        return self.engine.subscribe_table(table, time=self.clock()), None

    def _move(
        self, rows: EventRows, piece: NDArray[np.int64], when_us: NDArray[np.int64]
    ) -> tuple[Rejects, pa.Table]:
        names = ["subscription_id" if name == "id" else name for name in rows.table.column_names]
        table = rows.table.take(pa.array(piece)).rename_columns(names)
        moved = self.engine.move_table(with_column(table, "time", pa.array(when_us, TIME)))
        return moved.rejects, moved.updates

    def _publish(
        self, rows: EventRows, piece: NDArray[np.int64], when_us: NDArray[np.int64]
    ) -> tuple[Rejects, pa.Table]:
        table = rows.table.take(pa.array(piece))
        # A message that lives ends by its own time, however late it is.
        lives = table["ttl_s"].to_numpy() > 0
        time_us = np.where(lives, rows.time_us[piece], when_us)
        table = with_column(table, "time", pa.array(time_us, TIME))
        published = self.engine.publish_table(table)
        return published.rejects, begun_updates(published, table["id"], when_us)


def _numbered(rows: EventRows, piece: NDArray[np.int64], rejects: Rejects) -> Rejects:
    """Return rejects of a piece with the numbers and the content of their rows."""
    at = piece[rejects.row]
    names = rows.table.column_names
    records = tuple(
        record_json({name: cell_value(rows.table, name, row) for name in names})
        for row in at.tolist()
    )
    field = tuple("id" if name == "subscription_id" else name for name in rejects.field)
    return replace(rejects, row=rows.row[at], field=field, record=records)


def _typed(updates: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return updates in a schema.

    Raises
    ------
    StorageError
        When ids are text, but were integers when the stream began.
    """
    for name in ("subscription_id", "message_id"):
        found, wanted = updates[name].type, schema.field(name).type
        if pa.types.is_string(found) and found != wanted:
            problem = f"is text, but was {wanted} when the job started; start the job again"
            raise StorageError(f"{name}: {problem}")
    return updates.cast(schema)


def _with_lives(
    moved: pa.Table, standstill: Standstill, schema: pa.Schema
) -> tuple[pa.Table, NDArray[np.bool_]]:
    """Return what moves changed, not before a message lives and not after it, and which did."""
    errors = RowErrors(moved.num_rows)
    start_us, end_us = standstill.lives(read_ids(moved, "message_id", errors))
    time_us = moved["time"].cast(pa.int64()).to_numpy()
    corrected = np.clip(time_us, start_us, end_us)
    table = with_column(moved, "time", pa.array(corrected, TIME))
    return _typed(table, schema), (start_us < time_us) & (time_us < end_us)


def _uncancelled(updates: pa.Table, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return some rows of updates without pairs that begin and end at one time.

    A subscription that is inserted may move at the same time, or replace one that goes then. At
    one time, a pair begins or ends, or neither.
    """
    if not len(rows):
        return rows
    updates = updates.take(pa.array(rows))
    columns = [
        pc.dictionary_encode(updates[name].combine_chunks()).indices.to_numpy()
        for name in ("time", "subscription_id", "message_id")
    ]
    order = np.lexsort(columns)
    cut = np.zeros(len(order), np.bool_)
    for column in columns:
        cut[1:] |= np.diff(column[order]) != 0
    cut[:1] = True
    group = np.cumsum(cut) - 1
    sign = updates["sign"].to_numpy()[order].astype(np.int64)
    total = np.bincount(group, weights=sign).astype(np.int64)
    agrees = np.flatnonzero(sign == total[group])
    last = agrees[np.diff(group[agrees], append=-1) != 0]
    kept: NDArray[np.int64] = rows[order[last]]
    return kept
