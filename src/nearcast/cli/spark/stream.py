"""``nearcast spark stream``: matches of messages as they come."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.output import count, show_json, show_pairs
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
        str, typer.Option(help="Folder to which files come, or kafka://HOST:PORT/TOPIC.")
    ],
    out: Annotated[str, typer.Option(help="Folder for matches, or kafka://HOST:PORT/TOPIC.")],
    checkpoint: Annotated[str, typer.Option(help="Folder that remembers how far it is.")],
    kind: Annotated[
        str, typer.Option("--format", help="Of the files: parquet, json or csv.")
    ] = "parquet",
    files_per_batch: Annotated[
        int | None, typer.Option(min=1, help="Files of a micro-batch at most.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="How often a micro-batch begins, such as '10 seconds'.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when all that is there is matched.")
    ] = False,
    mode: Annotated[str, typer.Option(help="replicated, sharded or auto.")] = "auto",
    rejects: Annotated[
        str | None,
        typer.Option(help="Folder for bad rows.  [default: OUT.rejects, none for Kafka]"),
    ] = None,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Match messages as they come, until it is stopped; a line for every micro-batch.

    Started again with the same checkpoint, it goes on where it was, whatever stopped it. Changed
    subscriptions are taken up by the next micro-batch.
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
        refused = rejects or (None if to_kafka else rejects_folder(None, out))
        if refused is not None:
            own = f"{checkpoint.rstrip('/')}/rejects"
            queries.append(stream_rejects(frame, to=refused, checkpoint=own, **pace))
        totals = {"batches": 0, "messages": 0, "matches": 0, "rejected": 0}
        try:
            _follow(queries, _teller(totals, as_json))
        except KeyboardInterrupt:
            for one in queries:
                one.stop()
    if not as_json:
        show_pairs("streamed", {**{k: count(v) for k, v in totals.items()}, "written to": out})


def _packages(*ends: str) -> tuple[str, ...]:
    if not any(end.startswith("kafka://") for end in ends):
        return ()
    from nearcast.spark.kafka import connector

    return (connector(),)


def _follow(queries: "list[StreamingQuery]", tell: "Callable[[Any], None]") -> None:
    """Tell of every micro-batch of the first query until all have ended."""
    first, told = queries[0], -1
    running = True
    while running:
        ended = [query.awaitTermination(_POLL_S) for query in queries]
        running = not all(ended)
        for progress in first.recentProgress:
            if progress["batchId"] > told:
                tell(progress)
                told = progress["batchId"]


def _teller(totals: dict[str, int], as_json: bool) -> "Callable[[Any], None]":
    from nearcast.spark.stream import rates

    def tell(progress: Any) -> None:
        told = rates(progress)
        if told is None:
            return
        totals["batches"] += 1
        for name in ("messages", "matches", "rejected"):
            totals[name] += int(told[name])
        if as_json:
            show_json(told)
        else:
            typer.echo(
                f"batch {told['batch']}: {count(told['messages'])} messages, "
                f"{count(told['matches'])} matches ({count(round(told['matches_per_second']))}/s), "
                f"{count(told['examined_per_message'])} examined a message, "
                f"{count(told['rejected'])} rejected"
            )

    return tell
