"""The job behind ``nearcast match --moves``: replays moves and messages, writes updates."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast.cli.event_files import EventFile
from nearcast.cli.match_hints import Hints
from nearcast.cli.match_job import REJECTS, Stopwatch, Summary, check_paths, write_rejects
from nearcast.cli.writers import open_writer
from nearcast.columns import NEVER
from nearcast.engine import Engine
from nearcast.engine.recording import TIME, ReplayClock, begun_updates
from nearcast.intake import Reading, open_table
from nearcast.intake.files import file_of, naming
from nearcast.intake.renaming import our_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from nearcast.cli.event_files import Events
    from nearcast.cli.output import Advance
    from nearcast.cli.writers import TableWriter
    from nearcast.intake import Rejects

__all__ = ["ReplayJob"]

_UPDATES = pa.schema(
    [
        ("time", TIME),
        ("subscription_id", pa.int64()),  # widened to strings when the first string id occurs
        ("message_id", pa.int64()),
        ("sign", pa.int8()),
        ("score", pa.float64()),
    ]
)


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
    readings
        How the files are read, by ``subscriptions``, ``messages`` and ``moves``.
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
    readings: Mapping[str, Reading] = field(default_factory=dict)

    def run(self, start: Callable[[str], Advance]) -> Summary:
        """Run the job; ``start`` starts a progress bar."""
        check_paths(
            [self.subscriptions, self.messages, self.moves], out=self.out, rejects=self.rejects
        )
        summary, clock = Summary(), ReplayClock()
        watch = Stopwatch(summary)
        engine = Engine(
            moving=self.index,
            moving_options=self.options,
            similarity=self.similarity,
            distance=self.distance,
            clock=clock,
        )
        with engine, open_writer(self.rejects, REJECTS) as rejects:

            def reject(source: str) -> Callable[[Rejects], None]:
                return lambda rows: write_rejects(rejects, source, rows, summary)

            def events(kind: str, path: Path, ttl_s: float | None = None) -> EventFile:
                return EventFile(
                    path,
                    self.readings.get(kind, Reading()),
                    kind,
                    reject(kind),
                    seen=lambda batch: summary.add_columns(kind, batch),
                    ttl_s=ttl_s,
                )

            messages = events("messages", self.messages, self.ttl_s)
            moves = events("moves", self.moves)
            watch.lap("read_messages")
            first = min(messages.next_us, moves.next_us)
            clock.now_us = first if first < NEVER else 0
            self._subscribe(engine, rejects, summary, start("subscriptions"))
            watch.lap("build")
            with open_writer(self.out, _UPDATES) as out:
                replay = _Replay(engine, clock, summary, rejects, out)
                replay.run(moves, messages, start("events"))
            watch.lap("match")
        if not summary.matches:
            summary.hints = Hints().found(summary.reasons, summary.accepted + summary.rejected)
        return summary

    def _subscribe(
        self, engine: Engine, rejects: TableWriter, summary: Summary, advance: Advance
    ) -> None:
        kind = "subscriptions"
        for batch in open_table(self.subscriptions, self.readings.get(kind, Reading()), kind=kind):
            with naming(file_of(self.subscriptions, batch)):
                found = engine.subscribe_table(our_columns(batch.table, kind))
            numbered = replace(
                found,
                row=batch.rows[found.row],
                file=(batch.file,) * len(found),
                record=batch.records(found.row.tolist()),
            )
            summary.add_columns(kind, batch)
            write_rejects(rejects, kind, batch.rejects, summary)
            write_rejects(rejects, kind, numbered, summary)
            summary.accepted["subscriptions"] += batch.table.num_rows - len(found)
            advance(batch.bytes_read, batch.bytes_total)


@dataclass
class _Replay:
    """Gives events to an engine in the order of time, and writes what begins and ends."""

    engine: Engine
    clock: ReplayClock
    summary: Summary
    rejects: TableWriter
    out: TableWriter

    def run(self, moves: EventFile, messages: EventFile, advance: Advance) -> None:
        """Replay all events; at equal times moves come before messages."""
        total = moves.bytes_total + messages.bytes_total
        while min(moves.next_us, messages.next_us) < NEVER:
            if moves.next_us <= messages.next_us:
                self._move(moves.take(messages.next_us))
            else:
                self._publish(messages.take(moves.next_us - 1))
            advance(moves.bytes_read + messages.bytes_read, total)

    def _move(self, moves: Events) -> None:
        self.clock.now_us = int(moves.time_us[-1])
        moved = self.engine.move_table(moves.table)
        self._refuse("moves", moves, moved.rejects)
        self.summary.accepted["moves"] += len(moves) - len(moved.rejects)
        self._write(moved.updates)

    def _publish(self, messages: Events) -> None:
        self.clock.now_us = int(messages.time_us[-1])
        published = self.engine.publish_table(messages.table)
        self._refuse("messages", messages, published.rejects)
        self.summary.accepted["messages"] += published.messages
        self.summary.examined += published.examined
        self._write(begun_updates(published, messages.table["id"], messages.time_us))

    def _refuse(self, source: str, events: Events, rejects: Rejects) -> None:
        write_rejects(self.rejects, source, events.in_files(rejects).in_order(), self.summary)

    def _write(self, updates: pa.Table) -> None:
        """Write updates, and before them what expired until then."""
        expired = self.engine.advance(self.clock())
        both = pa.concat_tables(_alike([expired, updates]))
        order = np.argsort(both["time"].cast(pa.int64()).to_numpy(), kind="stable")
        self.summary.matches += len(order)
        if len(order):
            self.out.write(both.take(pa.array(order)))


def _alike(tables: list[pa.Table]) -> list[pa.Table]:
    """Return tables whose ids are of one type: strings if those of one of them are."""
    for name in ("subscription_id", "message_id"):
        kinds = {t[name].type for t in tables if t.num_rows}
        kind = pa.string() if pa.string() in kinds or not kinds else pa.int64()
        tables = [
            t.set_column(t.column_names.index(name), name, t[name].cast(kind)) for t in tables
        ]
    return tables
