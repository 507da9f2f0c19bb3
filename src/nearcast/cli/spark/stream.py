"""``nearcast spark stream``: match messages as they arrive."""

from typing import TYPE_CHECKING, Annotated, Any

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
    rejects: Annotated[
        str | None,
        typer.Option(help="Folder for invalid rows.  [default: OUT.rejects, none for Kafka]"),
    ] = None,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Match messages as they arrive, until stopped; print a line for each micro-batch.

    Started again with the same checkpoint, it continues where it stopped, even after a crash. The
    next micro-batch uses changed subscriptions.
    """
    to_kafka = out.startswith("kafka://")
    if checkpoint.startswith("kafka://"):
        raise InvalidInput("--checkpoint", checkpoint, "must be a folder")
    spark = open_session(master, _packages(messages, out))
    from nearcast.spark.sources import open_stream
    from nearcast.spark.stream import stream as run
    from nearcast.spark.stream import stream_rejects

    pace: dict[str, Any] = {"every": every, "available_now": once}
    with errors_in_one_line():
        frame = open_stream(spark, messages, kind=kind, files_per_batch=files_per_batch)
        query = run(frame, index_path, to=out, checkpoint=checkpoint, mode=mode, **pace)
        queries = [query]
        rejects_path = rejects or (None if to_kafka else rejects_folder(None, out))
        if rejects_path is not None:
            own = f"{checkpoint.rstrip('/')}/rejects"
            queries.append(stream_rejects(frame, to=rejects_path, checkpoint=own, **pace))
        totals = {"batches": 0, "messages": 0, "matches": 0, "rejected": 0}
        try:
            _follow(queries, _reporter(totals, as_json))
        except KeyboardInterrupt:
            for running in queries:
                running.stop()
    if not as_json:
        show_pairs(
            "streamed", {**{k: format_count(v) for k, v in totals.items()}, "written to": out}
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


def _reporter(totals: dict[str, int], as_json: bool) -> "Callable[[Any], None]":
    from nearcast.spark.stream import rates

    def report(progress: Any) -> None:
        batch = rates(progress)
        if batch is None:
            return
        totals["batches"] += 1
        for name in ("messages", "matches", "rejected"):
            totals[name] += int(batch[name])
        if as_json:
            show_json(batch)
        else:
            typer.echo(
                f"batch {batch['batch']}: {format_count(batch['messages'])} messages, "
                f"{format_count(batch['matches'])} matches "
                f"({format_count(round(batch['matches_per_second']))}/s), "
                f"{format_count(batch['examined_per_message'])} examined per message, "
                f"{format_count(batch['rejected'])} rejected"
            )

    return report
