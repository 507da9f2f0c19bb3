"""``nearcast spark stream``: match messages as they arrive."""

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from nearcast.cli.output import format_count, show_json, show_pairs
from nearcast.cli.spark.frames import (
    IndexPath,
    Json,
    Master,
    errors_in_one_line,
    open_session,
    rejects_folder,
)
from nearcast.cli.text_options import IndexTokenizer
from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["stream"]

_POLL_S = 1


def stream(
    index_path: IndexPath,
    messages: Annotated[
        str, typer.Option(help="Folder where files arrive, or kafka://HOST:PORT/TOPIC.")
    ],
    out: Annotated[str, typer.Option(help="Folder for matches, or kafka://HOST:PORT/TOPIC.")],
    checkpoint: Annotated[str, typer.Option(help="Folder for Spark's progress.")],
    kind: Annotated[
        str, typer.Option("--format", help="Format of files: parquet, json or csv.")
    ] = "parquet",
    files_per_batch: Annotated[
        int | None, typer.Option(min=1, help="Largest number of files in a micro-batch.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="How often a micro-batch begins, such as '10 seconds'.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when all available messages are matched.")
    ] = False,
    mode: Annotated[str, typer.Option(help="replicated, sharded or auto.")] = "auto",
    moves: Annotated[
        str | None,
        typer.Option(help="Folder where files of moves arrive, or a topic; OUT gets updates."),
    ] = None,
    ttl: Annotated[
        float | None,
        typer.Option(help="Seconds that messages live which do not say it; for --moves.", min=0),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(help="Tasks that share the subscriptions; for --moves.", min=1),
    ] = None,
    rejects: Annotated[
        str | None,
        typer.Option(help="Folder for invalid rows.  [default: OUT.rejects, none for Kafka]"),
    ] = None,
    tokenizer: IndexTokenizer = None,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Match messages as they arrive, until stopped; print a line for each micro-batch.

    Started again with the same checkpoint, it continues where it stopped, even after a crash. The
    next micro-batch uses changed subscriptions.

    With --moves, messages live for a while and subscriptions move, come and go: OUT gets +1 where a
    match begins and -1 where it ends. The subscriptions to begin with are those of the index when
    the first micro-batch begins; after that, only the moves change them.
    """
    _check(checkpoint, moves, {"--ttl": ttl, "--partitions": partitions}, mode)
    spark = open_session(master, _packages(messages, moves or "", out))
    from nearcast.spark.sources import open_stream
    from nearcast.spark.stream import stream as run
    from nearcast.spark.stream import stream_rejects
    from nearcast.spark.updates import stream_updates

    pace: dict[str, Any] = {"every": every, "available_now": once}
    chosen = {"tokenizer": tokenizer, **pace}
    files: dict[str, Any] = {"kind": kind, "files_per_batch": files_per_batch}
    to_kafka = out.startswith("kafka://")
    rejects_path = rejects or (None if to_kafka else rejects_folder(None, out))
    with errors_in_one_line():
        frame = open_stream(spark, messages, **files)
        if moves is not None:
            query = stream_updates(
                frame,
                open_stream(spark, moves, rows="moves", **files),
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
            query = run(frame, index_path, to=out, checkpoint=checkpoint, mode=mode, **chosen)
            queries, reporter = [query], _MATCHES
            if rejects_path is not None:
                own = f"{checkpoint.rstrip('/')}/rejects"
                queries.append(stream_rejects(frame, to=rejects_path, checkpoint=own, **pace))
        totals = dict.fromkeys(("batches", *reporter.counts), 0)
        try:
            _follow(queries, _reporter(totals, reporter, as_json))
        except KeyboardInterrupt:
            for running in queries:
                running.stop()
    if not as_json:
        show_pairs(
            "streamed", {**{k: format_count(v) for k, v in totals.items()}, "written to": out}
        )


def _check(checkpoint: str, moves: str | None, for_moves: dict[str, Any], mode: str) -> None:
    """Raise an error for options that do not go together."""
    if checkpoint.startswith("kafka://"):
        raise InvalidInput("--checkpoint", checkpoint, "must be a folder")
    if moves is not None and mode != "auto":
        raise InvalidInput("--mode", mode, "does not go with --moves; see --partitions")
    for name, value in for_moves.items():
        if moves is None and value is not None:
            raise InvalidInput(name, value, "needs --moves")


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


def _follow(queries: "list[StreamingQuery]", report: "Callable[[Any], None]") -> None:
    """Report each micro-batch of the first query until all have ended."""
    first, last = queries[0], -1
    running = True
    while running:
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
