"""Subscriptions and living messages of one partition, and what a micro-batch of events changes.

Events happen in the order of their times; at equal times deletes come before inserts, then moves,
then messages. The present only goes forward, from micro-batch to micro-batch. An event happens at
its own time, but not before the present and not after the time of its micro-batch: a recording
replays at its own times, and a row with a wrong time in the future does not end everything. All of
that depends only on the events and on the time that Spark logged, so all partitions, and all
attempts, agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine import Engine
from nearcast.errors import StorageError
from nearcast.intake import Rejects
from nearcast.intake.arrow_columns import column_array, not_null
from nearcast.intake.ids import read_ids
from nearcast.intake.rejects import RowErrors, cell_value, record_json
from nearcast.intake.times import read_durations, read_times
from nearcast.spark.workers.cleaning import DAMAGED
from nearcast.spark.workers.effects import OPERATIONS
from nearcast.spark.workers.events import CHANGE, MESSAGE, own_columns
from nearcast.spark.workers.resolving import read_operations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from nearcast.engine.standstill import Standstill
    from nearcast.segments import Part, Scorer

__all__ = ["UPDATES", "Applied", "LivingSet"]

TIME = pa.timestamp("us", "UTC")
UPDATES = ("time", "subscription_id", "message_id", "sign", "score")
"""The columns of updates."""

SOURCE = {CHANGE: "moves", MESSAGE: "messages"}
"""How rejects call the origin of a row."""

BEGINNING = int(np.iinfo(np.int64).min)
"""The present before the first event."""

_ROWS_PER_CALL = 50_000
_FEW_RUNS = 2
_DELETE, _INSERT, _MOVE, _PUBLISH = range(4)
_STEP = np.array([{"delete": _DELETE, "insert": _INSERT, "move": _MOVE}[o] for o in OPERATIONS])
_NO_TTL = "is missing; give it, or ttl_s for all messages without it"


class Applied(NamedTuple):
    """What became of events: updates in the order of time, rejects by kind, and counts."""

    updates: pa.Table
    rejects: dict[int, Rejects]
    messages: int
    changes: int


class _Clock:
    """A clock that shows the time of what is applied."""

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us

    def __call__(self) -> float:
        return self.now_us / 1_000_000


class _Rows(NamedTuple):
    """The valid rows of one kind: as given, with their numbers, times and steps."""

    table: pa.Table
    row: NDArray[np.int64]
    time_us: NDArray[np.int64]
    step: NDArray[np.int64]


class _Ordered(NamedTuple):
    """Events in the order in which they happen: their steps, rows and times."""

    changes: _Rows
    messages: _Rows
    step: NDArray[np.int64]
    own: NDArray[np.int64]
    when_us: NDArray[np.int64]

    def slice(self, first: int, end: int) -> _Ordered:
        """Return some of the events."""
        part = slice(first, end)
        return self._replace(step=self.step[part], own=self.own[part], when_us=self.when_us[part])

    def windows(self) -> Iterator[_Ordered]:
        """Yield the events in pieces: with moves and messages only, or without them."""
        other = self.step < _MOVE
        cuts = [*(np.flatnonzero(other[1:] != other[:-1]) + 1).tolist(), len(self.step)]
        first = 0
        for cut in cuts:
            while first < cut:
                end = min(cut, first + _ROWS_PER_CALL)
                yield self.slice(first, end)
                first = end


class _Given:
    """The rows of one kind in the order of their numbers, as they were given.

    Attributes
    ----------
    kind, table, row, time_us
        The rows, their numbers and times; the times of invalid ones mean nothing.
    errors
        What is wrong with them so far.
    """

    def __init__(self, events: pa.Table, kind: int) -> None:
        chosen = np.flatnonzero(events["_kind"].to_numpy() == kind)
        chosen = chosen[np.argsort(events["_row"].to_numpy()[chosen], kind="stable")]
        events = events.take(pa.array(chosen))
        self.kind, self.table = kind, own_columns(events, kind)
        self.row: NDArray[np.int64] = events["_row"].to_numpy()
        self.time_us: NDArray[np.int64] = pc.fill_null(events["_time"], 0).to_numpy()
        self.errors = RowErrors(len(chosen))
        damaged = column_array(self.table, DAMAGED)
        if damaged is not None:
            self.errors.add(not_null(damaged), "", "cannot be read as a record")
        read_times(self.table, "time", self.errors)


class LivingSet:
    """The subscriptions and living messages of a partition.

    ``present_us`` is the time until which everything has happened.
    """

    def __init__(self, engine: Engine, clock: _Clock, present_us: int) -> None:
        self._engine = engine
        self._clock = clock
        self.present_us = present_us

    @classmethod
    def begin(cls, parts: Sequence[Part], scorer: Scorer, at_us: int) -> LivingSet:
        """Return subscriptions before the first event, which happens at a time."""
        clock = _Clock(at_us)
        return cls(Engine.of_parts(parts, scorer, clock=clock), clock, BEGINNING)

    @classmethod
    def open(cls, folder: Path, meta: dict[str, Any]) -> LivingSet:
        """Return what was saved; ``meta`` as it was then."""
        clock = _Clock(int(meta["present_us"]))
        return cls(Engine.open(folder, clock=clock), clock, clock.now_us)

    def save(self, folder: Path) -> None:
        """Write everything but `meta` to a folder."""
        self._engine.save(folder)

    @property
    def meta(self) -> dict[str, Any]:
        """What is to be kept beside the saved folder."""
        return {"present_us": self.present_us}

    @property
    def rows(self) -> int:
        """How many subscriptions and messages there are."""
        stats = self._engine.stats()
        return stats.subscriptions + stats.live_messages

    def close(self) -> None:
        """Stop the threads of the engine."""
        self._engine.close()

    def apply(self, events: pa.Table, ttl_s: float | None, schema: pa.Schema) -> Applied:
        """Let events happen.

        Parameters
        ----------
        events
            Rows from `nearcast.spark.workers.events.RouteEvents`, at least one, in any order.
        ttl_s
            How long messages live that do not say it.
        schema
            The schema of updates.
        """
        now_us = int(pc.max(events["_now"]).cast(pa.int64()).as_py())
        last = pc.max(events["_time"]).as_py()
        run = _Run(self._engine, self._clock, schema)
        changes = run.valid(_Given(events, CHANGE), _read_changes)
        messages = run.valid(_Given(events, MESSAGE), partial(_read_messages, ttl_s=ttl_s))
        time_us = np.concatenate([changes.time_us, messages.time_us])
        step = np.concatenate([changes.step, messages.step])
        when = np.maximum(np.minimum(time_us, now_us), self.present_us)
        row = np.concatenate([changes.row, messages.row])
        order = np.lexsort((row, time_us, step, when))
        own = np.concatenate([np.arange(len(changes.row)), np.arange(len(messages.row))])
        ordered = _Ordered(changes, messages, step[order], own[order], when[order])
        for window in ordered.windows():
            run.window(window)
        if last is not None:
            self.present_us = max(self.present_us, min(int(last), now_us))
            run.advance(self.present_us)
        return run.applied(inserted=bool((step == _INSERT).any()))


@dataclass
class _Run:
    """Gives the events of a micro-batch to an engine, and keeps what comes of it."""

    engine: Engine
    clock: _Clock
    schema: pa.Schema
    updates: list[pa.Table] = field(default_factory=list)
    published: list[bool] = field(default_factory=list)
    rejects: dict[int, list[Rejects]] = field(default_factory=lambda: {CHANGE: [], MESSAGE: []})
    messages: int = 0
    changes: int = 0

    def valid(
        self, given: _Given, read: Callable[[_Given], tuple[pa.Table, NDArray[np.int64]]]
    ) -> _Rows:
        """Return the rows that are valid so far, and keep the others as rejects."""
        table, step = read(given)
        self.rejects[given.kind].append(given.errors.rejects(given.table, given.row))
        kept = np.flatnonzero(given.errors.valid)
        return _Rows(table.take(pa.array(kept)), given.row[kept], given.time_us[kept], step[kept])

    def window(self, window: _Ordered) -> None:
        """Let events happen: all at once if that gives the same, otherwise one after another.

        If that does not hold for all of them, it may hold for the first half, or the second one.
        """
        runs = [*_runs(window.step, window.when_us)]
        if len(runs) <= _FEW_RUNS:
            for first, end in runs:
                step = int(window.step[first])
                rows = window.messages if step == _PUBLISH else window.changes
                self.step(step, rows, window.own[first:end], window.when_us[first:end])
        elif not self._at_once(window):
            middle = runs[len(runs) // 2][0]
            self.window(window.slice(0, middle))
            self.window(window.slice(middle, len(window.step)))

    def _at_once(self, window: _Ordered) -> bool:
        """Publish all messages, then make all moves, and correct the times; see `Standstill`."""
        published = window.step == _PUBLISH
        message, move = window.own[published], window.own[~published]
        until_us, standstill = int(window.when_us[-1]), self.engine.standstill()
        ids = [
            read_ids(rows.table.take(pa.array(chosen)), "id", RowErrors(len(chosen)))
            for rows, chosen in ((window.changes, move), (window.messages, message))
        ]
        ttl_us = window.messages.table["ttl_s"].to_numpy()[message] * 1_000_000
        lives = window.messages.time_us[message] + ttl_us > window.when_us[published]
        distinct = len({*ids[1].tolist()}) == len(message)
        if not (distinct and (lives & (ttl_us > 0)).all() and standstill.allows(*ids, until_us)):
            return False
        self.clock.now_us = until_us
        updates = _Run(self.engine, self.clock, self.schema)
        with standstill.held():
            updates.call(_PUBLISH, window.messages, message, window.when_us[published])
            begun, updates.updates = updates.updates, []
            updates.call(_MOVE, window.changes, move, window.when_us[~published])
            moved, updates.updates = updates.updates, []
            moved = [_with_lives(one, standstill, self.schema) for one in moved]
        updates.advance(until_us)
        for kind, rejects in updates.rejects.items():
            self.rejects[kind] += rejects
        self.messages += updates.messages
        self.changes += updates.changes
        others = [_typed(one, self.schema) for one in (*begun, *updates.updates)]
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
        self, step: int, rows: _Rows, chosen: NDArray[np.int64], when_us: NDArray[np.int64]
    ) -> None:
        """Let events of one step happen, in order."""
        for first, end in _pieces(rows, chosen, distinct=step in (_INSERT, _PUBLISH)):
            self.clock.now_us = int(when_us[end - 1])
            self.call(step, rows, chosen[first:end], when_us[first:end])

    def call(
        self, step: int, rows: _Rows, piece: NDArray[np.int64], when_us: NDArray[np.int64]
    ) -> None:
        """Let events of one step happen by one call."""
        doing = (self._delete, self._insert, self._move, self._publish)[step]
        rejects, begun = doing(rows, piece, when_us)
        kind = MESSAGE if step == _PUBLISH else CHANGE
        if len(rejects):
            self.rejects[kind].append(_numbered(rows, piece, rejects))
        accepted = len(piece) - len(rejects)
        self.messages += accepted if kind == MESSAGE else 0
        self.changes += accepted if kind == CHANGE else 0
        self.advance(self.clock.now_us)
        if begun is not None:
            self._add(begun, published=step == _PUBLISH)

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
        self, rows: _Rows, piece: NDArray[np.int64], when_us: NDArray[np.int64]
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
        self, rows: _Rows, piece: NDArray[np.int64], when_us: NDArray[np.int64]
    ) -> tuple[Rejects, None]:
        names = [name for name in rows.table.column_names if name not in ("op", "time")]
        table = rows.table.select(names).take(pa.array(piece))
        return self.engine.subscribe_table(table, time=self.clock()), None

    def _move(
        self, rows: _Rows, piece: NDArray[np.int64], when_us: NDArray[np.int64]
    ) -> tuple[Rejects, pa.Table]:
        names = ["subscription_id" if name == "id" else name for name in rows.table.column_names]
        table = rows.table.take(pa.array(piece)).rename_columns(names)
        moved = self.engine.move_table(_with_column(table, "time", pa.array(when_us, TIME)))
        return moved.rejects, moved.updates

    def _publish(
        self, rows: _Rows, piece: NDArray[np.int64], when_us: NDArray[np.int64]
    ) -> tuple[Rejects, pa.Table]:
        table = rows.table.take(pa.array(piece))
        # A message that lives ends by its own time, however late it is.
        lives = table["ttl_s"].to_numpy() > 0
        time_us = np.where(lives, rows.time_us[piece], when_us)
        table = _with_column(table, "time", pa.array(time_us, TIME))
        published = self.engine.publish_table(table)
        matches = published.matches
        found = matches["message_id"].combine_chunks()
        place = pc.index_in(found, table["id"].combine_chunks().cast(found.type)).to_numpy()
        columns = [
            pa.array(when_us[place], TIME),
            matches["subscription_id"],
            found,
            pa.array(np.ones(len(found), np.int8)),
            matches["score"],
        ]
        return published.rejects, pa.table(columns, names=UPDATES)


def _read_changes(given: _Given) -> tuple[pa.Table, NDArray[np.int64]]:
    """Return changes and their steps; those without an operation or an id are errors."""
    read_ids(given.table, "id", given.errors)
    return given.table, _STEP[read_operations(given.table, given.errors)]


def _read_messages(given: _Given, ttl_s: float | None) -> tuple[pa.Table, NDArray[np.int64]]:
    """Return messages that all say how long they live, and their step."""
    ttl = read_durations(given.table, "ttl_s", given.errors)
    if ttl_s is None:
        given.errors.add(~ttl.given, "ttl_s", _NO_TTL)
    seconds = np.where(ttl.given, ttl.us / 1_000_000, ttl_s or 0.0)
    table = _with_column(given.table, "ttl_s", pa.array(seconds))
    return table, np.full(len(given.row), _PUBLISH)


def _runs(step: NDArray[np.int64], when_us: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield where runs of ordered events of one step begin and end.

    Moves and messages have times of their own; deletes and inserts of a run happen at one time.
    """
    cut = step[1:] != step[:-1]
    cut |= (step[1:] < _MOVE) & (when_us[1:] != when_us[:-1])
    ends = [*(np.flatnonzero(cut) + 1).tolist(), len(step)]
    yield from zip([0, *ends[:-1]], ends, strict=True) if len(step) else ()


def _pieces(rows: _Rows, chosen: NDArray[np.int64], *, distinct: bool) -> Iterator[tuple[int, int]]:
    """Yield where pieces for one call begin and end; if ``distinct``, none has an id twice."""
    seen: set[str | int] = set()
    ids = rows.table["id"].take(pa.array(chosen)).to_pylist() if distinct else []
    first = 0
    for position in range(1, len(chosen)):
        if distinct:
            seen.add(ids[position - 1])
        if position - first == _ROWS_PER_CALL or (distinct and ids[position] in seen):
            yield first, position
            first, seen = position, set()
    yield first, len(chosen)


def _numbered(rows: _Rows, piece: NDArray[np.int64], rejects: Rejects) -> Rejects:
    """Return rejects of a piece with the numbers and the content of their rows."""
    at = piece[rejects.row]
    names = rows.table.column_names
    records = tuple(
        record_json({name: cell_value(rows.table, name, row) for name in names})
        for row in at.tolist()
    )
    field = tuple("id" if name == "subscription_id" else name for name in rejects.field)
    return Rejects(rows.row[at], field, rejects.reason, records)


def _with_column(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    if name not in table.column_names:
        return table.append_column(name, column)
    return table.set_column(table.column_names.index(name), name, column)


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
    table = _with_column(moved, "time", pa.array(corrected, TIME))
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
