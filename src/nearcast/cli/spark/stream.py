"""``nearcast spark stream``: match messages as they arrive."""

import glob
import re
import signal
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from nearcast.cli.commands import FOLDER, INPUT, NUMBER, OUTPUT, SPARK
from nearcast.cli.options import Owners
from nearcast.cli.output import format_count, show_json, show_pairs
from nearcast.cli.reading_options import (
    Columns,
    Delimiters,
    Encodings,
    Formats,
    MadeIds,
    ReadingOptions,
)
from nearcast.cli.spark.frames import (
    IndexPath,
    Json,
    Master,
    Mode,
    check_index,
    end_with,
    errors_in_one_line,
    open_session,
    rejects_folder,
)
from nearcast.cli.text_options import IndexTokenizer
from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["stream"]

_POLL_S = 1
_INTERVAL = re.compile(r"\d+ (millisecond|second|minute|hour|day)s?")
_SOURCE = "FOLDER|kafka://HOST:PORT/TOPIC"


def stream(
    index_path: IndexPath,
    messages: Annotated[
        str,
        typer.Option(
            metavar=_SOURCE,
            rich_help_panel=INPUT,
            help="Where messages arrive: a folder that gets new files, or a Kafka topic.",
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            metavar=_SOURCE,
            rich_help_panel=OUTPUT,
            help="Where matches go (with --moves: updates): a folder, or a Kafka topic.",
        ),
    ],
    checkpoint: Annotated[
        str,
        typer.Option(
            metavar=FOLDER,
            rich_help_panel=OUTPUT,
            help="Folder in which Spark records its progress. A stream that is started again with "
            "the same one continues there.",
        ),
    ],
    column: Columns = None,
    id: MadeIds = None,
    encoding: Encodings = None,
    delimiter: Delimiters = None,
    format: Formats = None,
    files_per_batch: Annotated[
        int | None,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=SPARK,
            show_default="no limit",
            help="Largest number of files in a micro-batch.",
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="INTERVAL",
            rich_help_panel=SPARK,
            show_default="as soon as the last one is done",
            help="How often a micro-batch starts, such as '10 seconds'.",
        ),
    ] = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once", rich_help_panel=SPARK, help="Stop when all available messages are matched."
        ),
    ] = False,
    mode: Mode = "auto",
    owners: Owners = False,
    moves: Annotated[
        str | None,
        typer.Option(
            metavar=_SOURCE,
            rich_help_panel=INPUT,
            help="Where moves of subscriptions arrive; writes updates instead of matches.",
        ),
    ] = None,
    ttl: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            rich_help_panel=INPUT,
            help="With --moves: how long messages live that have no ttl_s of their own.",
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=SPARK,
            show_default="number of cores",
            help="With --moves: number of tasks that share the subscriptions.",
        ),
    ] = None,
    rejects: Annotated[
        str | None,
        typer.Option(
            metavar=FOLDER,
            rich_help_panel=OUTPUT,
            show_default="OUT.rejects; none for Kafka",
            help="Folder for invalid rows with the reasons.",
        ),
    ] = None,
    tokenizer: IndexTokenizer = None,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Match messages as they arrive, until you press Ctrl-C; print a line for each micro-batch.

    Started again with the same checkpoint, the stream continues where it stopped, even after a
    crash. Changes of the index (nearcast spark changes) apply from the next micro-batch.

    With --moves, messages live for a while and subscriptions move, appear and disappear. OUT gets
    an update with sign +1 when a match begins and -1 when it ends. The stream starts with the
    subscriptions of the index; from then on, only the moves change them.
    """
    if every is not None and not _INTERVAL.fullmatch(every):
        raise InvalidInput("--every", every, "must be a time such as '10 seconds' or '1 minute'")
    _check(checkpoint, moves, {"--ttl": ttl, "--partitions": partitions}, mode)
    if owners and moves is not None:
        raise InvalidInput(
            "--owners", owners, "cannot be used with --moves, because updates have no owner"
        )
    check_index(index_path, mode)
    paths = {"messages": messages}
    if moves is not None:
        paths["moves"] = moves
    for kind, source in paths.items():
        _check_source(f"--{kind}", source)
    readings = ReadingOptions(column, id, encoding, delimiter, format).readings(paths)
    spark = open_session(master, _packages(messages, moves or "", out))
    from nearcast.spark.sources import open_stream
    from nearcast.spark.stream import stream as run
    from nearcast.spark.stream import stream_rejects
    from nearcast.spark.updates import stream_updates

    pace: dict[str, Any] = {"every": every, "available_now": once}
    chosen = {"tokenizer": tokenizer, **pace}
    to_kafka = out.startswith("kafka://")
    rejects_path = rejects or (None if to_kafka else rejects_folder(None, out))

    def opened(source: str, rows: str) -> Any:
        return open_stream(
            spark, source, reading=readings[rows], files_per_batch=files_per_batch, rows=rows
        )

    with errors_in_one_line(), stop_request() as stopping:
        frame = opened(messages, "messages")
        if moves is not None:
            query = stream_updates(
                frame,
                opened(moves, "moves"),
                index_path,
                to=out,
                checkpoint=checkpoint,
                ttl_s=ttl,
                rejects=rejects_path,
                partitions=partitions,
                **chosen,
            )
            queries, reporter = [query], _UPDATES
        else:
            chosen |= {"mode": mode, "owners": owners}
            query = run(frame, index_path, to=out, checkpoint=checkpoint, **chosen)
            queries, reporter = [query], _MATCHES
            if rejects_path is not None:
                own = f"{checkpoint.rstrip('/')}/rejects"
                queries.append(stream_rejects(frame, to=rejects_path, checkpoint=own, **pace))
        totals = dict.fromkeys(("batches", *reporter.counts), 0)
        _follow(queries, _reporter(totals, reporter, as_json), stopping)
    if not as_json:
        shown = {**{k: format_count(v) for k, v in totals.items()}, "written to": out}
        if totals["rejected"] and rejects_path is not None:
            shown["rejected rows"] = str(rejects_path)
        show_pairs("streamed", shown)
    if once and totals["rejected"]:
        valid = totals["messages"] + totals.get("changes", 0)
        end_with(valid, totals["rejected"], what="valid messages", strict=False)


def _check(checkpoint: str, moves: str | None, for_moves: dict[str, Any], mode: str) -> None:
    """Raise an error for options that do not go together."""
    if checkpoint.startswith("kafka://"):
        raise InvalidInput("--checkpoint", checkpoint, "must be a folder, not a Kafka topic")
    if moves is not None and mode != "auto":
        raise InvalidInput(
            "--mode", mode, "cannot be used with --moves; use --partitions to spread the work"
        )
    for name, value in for_moves.items():
        if moves is None and value is not None:
            raise InvalidInput(name, value, "needs --moves")


def _check_source(option: str, source: str) -> None:
    """Raise an error unless a source is a topic, a URI, or a folder or pattern that exists."""
    from nearcast.spark.sources import topic_of

    if topic_of(source) is not None or "://" in source:
        return
    path = Path(source)
    if not path.exists() and not glob.glob(source):
        raise InvalidInput(option, source, "must be an existing folder, or kafka://HOST:PORT/TOPIC")


@contextmanager
def stop_request() -> "Iterator[threading.Event]":
    """Yield an event that Ctrl-C sets; the second one interrupts the program.

    Spark's own handler would cancel the jobs, so that the streams fail.
    """
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return

    def stop(_number: int, _frame: object) -> None:
        stopping.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield stopping
    finally:
        signal.signal(signal.SIGINT, before)


class _Report(NamedTuple):
    """What is reported of micro-batches: the totals of counts, and a line for each."""

    counts: tuple[str, ...]
    line: str


_MATCHES = _Report(
    ("messages", "matches", "rejected"),
    "batch {batch}: {messages} messages, {matches} matches ({matches_per_second}/s), "
    "{examined_per_message} examined per message, {rejected} rejected",
)
_UPDATES = _Report(
    ("messages", "changes", "begun", "ended", "rejected"),
    "batch {batch}: {messages} messages, {changes} changes of subscriptions, {begun} matches "
    "began, {ended} ended ({updates_per_second}/s), {rejected} rejected",
)


def _packages(*ends: str) -> tuple[str, ...]:
    if not any(end.startswith("kafka://") for end in ends):
        return ()
    from nearcast.spark.kafka import connector

    return (connector(),)


def _follow(
    queries: "list[StreamingQuery]", report: "Callable[[Any], None]", stopping: threading.Event
) -> None:
    """Report each micro-batch of the first query until all have ended, or should stop."""
    first, last = queries[0], -1
    running = True
    while running:
        if stopping.is_set():
            for query in queries:
                query.stop()
        ended = [query.awaitTermination(_POLL_S) for query in queries]
        running = not all(ended)
        for progress in first.recentProgress:
            if progress["batchId"] > last:
                report(progress)
                last = progress["batchId"]


def _reporter(totals: dict[str, int], reported: _Report, as_json: bool) -> "Callable[[Any], None]":
    from nearcast.spark.stream import rates
    from nearcast.spark.updates import update_rates

    def report(progress: Any) -> None:
        batch = (rates if reported is _MATCHES else update_rates)(progress)
        if batch is None:
            return
        totals["batches"] += 1
        for name in reported.counts:
            totals[name] += int(batch[name])
        if as_json:
            show_json(batch)
        else:
            shown = {
                name: format_count(round(value) if name.endswith("_per_second") else value)
                for name, value in batch.items()
            }
            typer.echo(reported.line.format(**shown | {"batch": batch["batch"]}))

    return report
