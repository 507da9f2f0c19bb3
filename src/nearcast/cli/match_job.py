"""The job behind ``nearcast match``: reads subscriptions and messages, writes matches."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast.cli.match_hints import Hints
from nearcast.cli.writers import open_writer
from nearcast.columns import Scoring
from nearcast.compiled.first_calls import compile_at_once
from nearcast.errors import InvalidInput
from nearcast.intake import Reading, find_files, load_messages, load_subscriptions
from nearcast.segments import Part, Scorer, Segment, deliver
from nearcast.segments.warm import warm_tables, warm_up
from nearcast.text import tokenizer as find_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from nearcast.cli.output import Advance
    from nearcast.cli.writers import TableWriter
    from nearcast.columns import Subscriptions
    from nearcast.indexes import Builder
    from nearcast.intake import Batch, MessageBatch, Rejects
    from nearcast.plots.match_map import MapData
    from nearcast.text import Vocabulary

__all__ = ["REJECTS", "MatchJob", "Stopwatch", "Summary", "check_paths", "write_rejects"]

_MESSAGES_PER_BATCH = 10_000
_MATCHES_PER_WRITE = 1_000_000
_LARGE_BYTES = 500_000
REJECTS = pa.schema(
    [
        ("source", pa.string()),
        ("row", pa.int64()),
        ("file", pa.string()),
        ("field", pa.string()),
        ("reason", pa.string()),
        ("record", pa.string()),
    ]
)


@dataclass
class Summary:
    """The result of a job: counts, durations and reasons of rejects."""

    accepted: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    matches: int = 0
    examined: int = 0
    visited: int = 0
    matched_messages: int = 0
    taken: dict[str, dict[str, str]] = field(default_factory=dict)
    unused: dict[str, dict[str, None]] = field(default_factory=dict)
    hints: list[str] = field(default_factory=list)
    indexes: dict[str, str] = field(default_factory=dict)

    def add_columns(self, source: str, batch: Batch) -> None:
        """Remember which columns of a file were recognized by a similar name, or not used."""
        self.taken.setdefault(source, {}).update(batch.taken)
        self.unused.setdefault(source, {}).update(dict.fromkeys(batch.unused))

    def failure(self, sources: tuple[str, ...]) -> str | None:
        """Return why the command failed: a file without a valid row, or nothing to index."""
        for source in sources:
            rejected = self.rejected[source]
            if rejected and not self.accepted[source]:
                reasons = {k[1:]: rows for k, rows in self.reasons.items() if k[0] == source}
                name, reason = max(reasons, key=lambda key: reasons[key])
                why = f"{name} {reason}".strip()
                return f"all {rejected:,} rows of the {source} were rejected; most often: {why}"
        if not self.accepted["subscriptions"]:
            return "the file of subscriptions has no rows; there is nothing to match with"
        return None

    def add_rejects(self, source: str, rejects: Rejects) -> None:
        """Count rejected rows by field and reason, leaving out the values in the reasons."""
        self.rejected[source] += len(rejects)
        for name, reason in zip(rejects.field, rejects.reason, strict=True):
            self.reasons[source, name, re.sub(r" \((got|at character) .*\)$", "", reason)] += 1

    def to_dict(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        messages = self.accepted["messages"]
        matching = self.seconds.get("match", 0.0)
        return {
            "indexes": self.indexes,
            "subscriptions": self.rows("subscriptions"),
            "messages": self.rows("messages"),
            "rejects": self.reasons_list(),
            "columns": self.columns(),
            "hints": self.hints,
            "matches": self.matches,
            "matched_messages": self.matched_messages,
            "matches_per_message": self.matches / messages if messages else 0.0,
            "examined_per_message": self.examined / messages if messages else 0.0,
            "visited_per_message": self.visited / messages if messages else 0.0,
            "messages_per_second": messages / matching if matching else 0.0,
            "seconds": self.seconds,
        }

    def reasons_list(self) -> list[dict[str, Any]]:
        """Return the reasons of rejects, the most frequent first."""
        return [
            {"source": source, "field": name, "reason": reason, "rows": rows}
            for (source, name, reason), rows in self.reasons.most_common()
        ]

    def rows(self, source: str) -> dict[str, int]:
        """Return how many rows of a file were read, accepted and rejected."""
        accepted, rejected = self.accepted[source], self.rejected[source]
        return {"read": accepted + rejected, "accepted": accepted, "rejected": rejected}

    def columns(self) -> dict[str, dict[str, Any]]:
        """Return which columns of each file have a similar name, and which were not used."""
        return {
            source: {"taken": self.taken[source], "unused": [*self.unused[source]]}
            for source in self.taken
        }


class Stopwatch:
    """Adds the seconds of named steps to a summary."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary
        self._since = time.perf_counter()

    def lap(self, name: str) -> None:
        """Add the time since the last lap to this step."""
        now = time.perf_counter()
        spent = self._summary.seconds
        spent[name] = spent.get(name, 0.0) + now - self._since
        self._since = now


@dataclass(frozen=True)
class MatchJob:
    """The input files, the output files and the index of a job.

    Parameters
    ----------
    subscriptions, messages
        The files to read.
    out, rejects
        The files to write: matches, and rejected rows.
    builder
        The builder of the index.
    threads
        Number of threads.
    scoring
        How ranked subscriptions compare words and measure distance.
    top
        If given, only that many matches of each message, the best first.
    readings
        How the files are read, by ``subscriptions`` and ``messages``.
    tokenizer
        The name of what makes words.
    owners
        Whether matches have a column ``owner``.
    """

    subscriptions: Path
    messages: Path
    out: Path
    rejects: Path
    builder: Builder
    threads: int
    scoring: Scoring = field(default_factory=Scoring)
    top: int | None = None
    readings: Mapping[str, Reading] = field(default_factory=dict)
    tokenizer: str = "words"
    owners: bool = False

    def run(self, start: Callable[[str], Advance], map_data: MapData | None = None) -> Summary:
        """Run the job; ``start`` starts a progress bar, ``map_data`` collects the map."""
        check_paths([self.subscriptions, self.messages], out=self.out, rejects=self.rejects)
        summary = Summary()
        watch = Stopwatch(summary)
        large = self._is_large()
        if large:  # all kernels now, so that none is compiled while something else is measured
            compile_at_once()
            warm_tables()
        watch.lap("compile")
        with open_writer(self.rejects, REJECTS) as rejects:
            vocabulary, columns = self._read(rejects, summary, start("subscriptions"))
            summary.indexes = self.builder.index_names(columns.kinds)
            watch.lap("read_subscriptions")
            scorer = Scorer.counted(Part(columns, vocabulary), self.scoring)
            if large:
                warm_up(self.builder, columns.kinds, self.scoring)
            watch.lap("compile")
            segment = Segment.build(columns, self.builder, vocabulary, scorer)
            watch.lap("build")
            if map_data is not None:
                map_data.add_boxes(columns.clauses.box)
            hints = Hints()
            hints.add_subscriptions(columns.clauses.box)
            matching = _Matching(self, segment, summary, watch, map_data, hints)
            matching.run(rejects, start("messages"))
        if not summary.matches:
            summary.hints = hints.found(summary.reasons, summary.accepted + summary.rejected)
        return summary

    def _is_large(self) -> bool:
        """Whether compiling or loading kernels first is worth it; otherwise see `first_calls`."""
        files = [*_files_of(self.subscriptions), *_files_of(self.messages)]
        return sum(file.stat().st_size for file in files) > _LARGE_BYTES

    def _read(
        self, rejects: TableWriter, summary: Summary, advance: Advance
    ) -> tuple[Vocabulary, Subscriptions]:
        vocabulary = self.builder.vocabulary()
        columns, rejected = load_subscriptions(
            self.subscriptions,
            vocabulary,
            find_tokenizer(self.tokenizer),
            reading=self.readings.get("subscriptions", Reading()),
            progress=_progress("subscriptions", summary, advance),
        )
        summary.accepted["subscriptions"] = len(columns)
        write_rejects(rejects, "subscriptions", rejected, summary)
        return vocabulary, columns


class _Matching:
    """The second half of a job: matches messages with the built index."""

    def __init__(
        self,
        job: MatchJob,
        segment: Segment,
        summary: Summary,
        watch: Stopwatch,
        map_data: MapData | None,
        hints: Hints,
    ) -> None:
        self._job = job
        self._segment = segment
        self._summary = summary
        self._watch = watch
        self._map_data = map_data
        self._hints = hints

    def run(self, rejects: TableWriter, advance: Advance) -> None:
        """Read, match and write the messages batch by batch."""
        batches = load_messages(
            self._job.messages,
            find_tokenizer(self._job.tokenizer),
            now_us=time.time_ns() // 1000,
            reading=self._job.readings.get("messages", Reading()),
            progress=_progress("messages", self._summary, advance),
        )
        schema = pa.schema(
            [
                ("message_id", pa.int64()),  # widened to strings when the first string id occurs
                ("subscription_id", self._segment.subscriptions.ids.to_arrow().type),
                ("score", pa.float64()),
                *([("owner", pa.string())] if self._job.owners else []),
            ]
        )
        with open_writer(self._job.out, schema) as out:
            for batch, rejected in batches:
                write_rejects(rejects, "messages", rejected, self._summary)
                self._summary.accepted["messages"] += len(batch)
                self._hints.add_messages(batch)
                self._watch.lap("read_messages")
                for first in range(0, len(batch), _MESSAGES_PER_BATCH):
                    rows = np.arange(first, min(first + _MESSAGES_PER_BATCH, len(batch)))
                    self._match(batch if len(rows) == len(batch) else batch.take(rows), out)

    def _match(self, batch: MessageBatch, out: TableWriter) -> None:
        found = deliver([self._segment], batch, threads=self._job.threads, owners=self._job.owners)
        if self._job.top is not None:
            found = found.best(self._job.top)
        self._watch.lap("match")
        count = np.bincount(found.message, minlength=len(batch))
        self._summary.matches += len(found.message)
        self._summary.examined += found.examined
        self._summary.visited += found.visited
        self._summary.matched_messages += int((count > 0).sum())
        if self._map_data is not None:
            self._map_data.add_messages(batch.box, count)
        for first in range(0, len(found.message), _MATCHES_PER_WRITE):
            out.write(found.to_table(batch.ids, first, first + _MATCHES_PER_WRITE))
        self._watch.lap("write")


def check_paths(read: list[Path], **written: Path) -> None:
    """Raise unless what a command writes is different from what it reads."""
    used = [file for path in read for file in (path, *_files_of(path))]
    for name, path in written.items():
        if any(path.resolve() == other.resolve() for other in used):
            raise InvalidInput(
                f"--{name}", str(path), "is already used by this command; choose another file"
            )
        used.append(path)


def _files_of(path: Path) -> list[Path]:
    """Return a file, or the files of a folder or a pattern."""
    return [path] if path.is_file() else find_files(path)


def write_rejects(out: TableWriter, source: str, rejects: Rejects, summary: Summary) -> None:
    """Write rejected rows and add them to the summary."""
    if len(rejects):
        summary.add_rejects(source, rejects)
        table = rejects.to_table()
        out.write(table.add_column(0, "source", pa.array([source] * len(rejects))))


def _progress(source: str, summary: Summary, advance: Advance) -> Callable[[Batch], None]:
    def after(batch: Batch) -> None:
        summary.add_columns(source, batch)
        advance(batch.bytes_read, batch.bytes_total)

    return after
