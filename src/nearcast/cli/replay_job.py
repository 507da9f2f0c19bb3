"""The job behind ``nearcast match --moves``: replays moves and messages, writes updates."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.cli.match_job import REJECTS, Stopwatch, Summary, check_paths, write_rejects
from nearcast.cli.writers import open_writer
from nearcast.engine import Engine
from nearcast.errors import InvalidInput
from nearcast.intake import Rejects, open_table
from nearcast.intake.rejects import RowErrors
from nearcast.intake.times import read_durations, read_times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from nearcast.cli.output import Advance
    from nearcast.cli.writers import TableWriter

__all__ = ["ReplayJob"]

_ROWS_PER_CALL = 50_000
_UPDATES = pa.schema(
    [
        ("time", pa.timestamp("us", "UTC")),
        ("subscription_id", pa.int64()),  # widened to strings when the first string id occurs
        ("message_id", pa.int64()),
        ("sign", pa.int8()),
        ("score", pa.float64()),
    ]
)


class _Recording:
    """A clock that shows the time of what is replayed."""

    def __init__(self) -> None:
        self.now_us = 0

    def __call__(self) -> float:
        return self.now_us / 1_000_000


class _Events(NamedTuple):
    """The rows of a file, by time, and their numbers in the file."""

    table: pa.Table
    time_us: NDArray[np.int64]
    row: NDArray[np.int64]

    def slice(self, first: int, last: int) -> pa.Table:
        return self.table.slice(first, last - first)


@dataclass(frozen=True)
class ReplayJob:
    """The files and the index of a replay.

    Parameters
    ----------
    subscriptions, messages, moves
        The files to read.
    out, rejects
        The files to write: updates, and rejected rows.
    index, options
        The moving index.
    ttl_s
        How long messages live that do not say it.
    similarity, distance
        How ranked subscriptions compare words and measure distance.
    """

    subscriptions: Path
    messages: Path
    moves: Path
    out: Path
    rejects: Path
    index: str
    options: Mapping[str, Any] = field(default_factory=dict)
    ttl_s: float | None = None
    similarity: str = "containment"
    distance: str = "geodesic"

    def run(self, start: Callable[[str], Advance]) -> Summary:
        """Run the job; ``start`` starts a progress bar."""
        check_paths(
            [self.subscriptions, self.messages, self.moves], out=self.out, rejects=self.rejects
        )
        summary, clock = Summary(), _Recording()
        watch = Stopwatch(summary)
        engine = Engine(
            moving=self.index,
            moving_options=self.options,
            similarity=self.similarity,
            distance=self.distance,
            clock=clock,
        )
        with engine, open_writer(self.rejects, REJECTS) as rejects:
            messages = self._read(self.messages, "messages", rejects, summary)
            moves = self._read(self.moves, "moves", rejects, summary)
            watch.lap("read_messages")
            times = np.concatenate([messages.time_us[:1], moves.time_us[:1]])
            clock.now_us = int(times.min()) if len(times) else 0
            self._subscribe(engine, rejects, summary, start("subscriptions"))
            watch.lap("build")
            with open_writer(self.out, _UPDATES) as out:
                replay = _Replay(engine, clock, summary, rejects, out)
                replay.run(moves, messages, start("events"))
            watch.lap("match")
        return summary

    def _subscribe(
        self, engine: Engine, rejects: TableWriter, summary: Summary, advance: Advance
    ) -> None:
        for batch in open_table(self.subscriptions):
            found = engine.subscribe_table(batch.table)
            numbered = replace(found, row=batch.rows[found.row])
            write_rejects(rejects, "subscriptions", batch.rejects, summary)
            write_rejects(rejects, "subscriptions", numbered, summary)
            summary.accepted["subscriptions"] += batch.table.num_rows - len(found)
            advance(batch.bytes_read, batch.bytes_total)

    def _read(self, path: Path, source: str, rejects: TableWriter, summary: Summary) -> _Events:
        """Return the rows of a file that have a time, and messages with the time that they live."""
        tables, rows = [], []
        for batch in open_table(path):
            write_rejects(rejects, source, batch.rejects, summary)
            tables.append(batch.table)
            rows.append(batch.rows)
        table, row = pa.concat_tables(tables, promote_options="permissive"), np.concatenate(rows)
        errors = RowErrors(table.num_rows)
        time = read_times(table, "time", errors)
        errors.add(~time.given, "time", "is missing; a replay needs the time of every row")
        if source == "messages":
            table = self._with_ttl(table, errors)
        write_rejects(rejects, source, errors.rejects(table, row), summary)
        kept = np.flatnonzero(errors.valid)
        order = kept[np.argsort(time.us[kept], kind="stable")]
        return _Events(table.take(pa.array(order)), time.us[order], row[order])

    def _with_ttl(self, table: pa.Table, errors: RowErrors) -> pa.Table:
        """Return messages all of which say how long they live."""
        if "ttl_s" not in table.column_names:
            if self.ttl_s is None:
                problem = "must be given: no message says how long it lives (ttl_s)"
                raise InvalidInput("--ttl", None, problem)
            return table.append_column("ttl_s", pa.array(np.full(table.num_rows, self.ttl_s)))
        given = read_durations(table, "ttl_s", errors)
        seconds = given.us / 1_000_000
        if self.ttl_s is None:
            errors.add(~given.given, "ttl_s", "is missing; give it, or --ttl for all without it")
        else:
            seconds = np.where(given.given, seconds, self.ttl_s)
        at = table.column_names.index("ttl_s")
        return table.set_column(at, "ttl_s", pa.array(seconds))


@dataclass
class _Replay:
    """Gives events to an engine in the order of time, and writes what begins and ends."""

    engine: Engine
    clock: _Recording
    summary: Summary
    rejects: TableWriter
    out: TableWriter

    def run(self, moves: _Events, messages: _Events, advance: Advance) -> None:
        """Replay all events; at equal times moves come before messages."""
        done, total = 0, len(moves.row) + len(messages.row)
        for moving, first, last in _turns(moves.time_us, messages.time_us):
            if moving:
                self._move(moves, first, last)
            else:
                self._publish(messages, first, last)
            done += last - first
            advance(done, total)

    def _move(self, moves: _Events, first: int, last: int) -> None:
        self.clock.now_us = int(moves.time_us[last - 1])
        moved = self.engine.move_table(moves.slice(first, last))
        self._refuse("moves", moves, first, moved.rejects)
        self.summary.accepted["moves"] += last - first - len(moved.rejects)
        self._write(moved.updates)

    def _publish(self, messages: _Events, first: int, last: int) -> None:
        self.clock.now_us = int(messages.time_us[last - 1])
        table = messages.slice(first, last)
        published = self.engine.publish_table(table)
        self._refuse("messages", messages, first, published.rejects)
        self.summary.accepted["messages"] += published.messages
        self.summary.examined += published.examined
        matches = published.matches
        found = matches["message_id"].combine_chunks()
        place = pc.index_in(found, table["id"].combine_chunks().cast(found.type)).to_numpy()
        begun = {
            "time": pa.array(messages.time_us[first:last][place], _UPDATES.field("time").type),
            "subscription_id": matches["subscription_id"],
            "message_id": found,
            "sign": pa.array(np.ones(len(found), np.int8)),
            "score": matches["score"],
        }
        self._write(pa.table(begun))

    def _refuse(self, source: str, events: _Events, first: int, rejects: Rejects) -> None:
        numbered = replace(rejects, row=events.row[first + rejects.row])
        write_rejects(self.rejects, source, numbered.in_order(), self.summary)

    def _write(self, updates: pa.Table) -> None:
        """Write updates, and before them what expired until then."""
        expired = self.engine.advance(self.clock())
        both = pa.concat_tables(_alike([expired, updates]))
        order = np.argsort(both["time"].cast(pa.int64()).to_numpy(), kind="stable")
        self.summary.matches += len(order)
        if len(order):
            self.out.write(both.take(pa.array(order)))


def _turns(
    move_us: NDArray[np.int64], message_us: NDArray[np.int64]
) -> Iterator[tuple[bool, int, int]]:
    """Yield what comes next: whether it is moves, and which rows of moves or of messages."""
    i = j = 0
    while i < len(move_us) or j < len(message_us):
        if j == len(message_us) or (i < len(move_us) and move_us[i] <= message_us[j]):
            end = len(move_us)
            if j < len(message_us):
                end = int(np.searchsorted(move_us, message_us[j], side="right"))
            end = min(end, i + _ROWS_PER_CALL)
            yield True, i, end
            i = end
        else:
            end = len(message_us)
            if i < len(move_us):
                end = int(np.searchsorted(message_us, move_us[i], side="left"))
            end = min(end, j + _ROWS_PER_CALL)
            yield False, j, end
            j = end


def _alike(tables: list[pa.Table]) -> list[pa.Table]:
    """Return tables whose ids are of one type: strings if those of one of them are."""
    for name in ("subscription_id", "message_id"):
        kinds = {t[name].type for t in tables if t.num_rows}
        kind = pa.string() if pa.string() in kinds or not kinds else pa.int64()
        tables = [
            t.set_column(t.column_names.index(name), name, t[name].cast(kind)) for t in tables
        ]
    return tables
