"""``nearcast spark``: the data pipeline, one module per command."""

import typer

from nearcast.cli.commands import Group, add_command
from nearcast.cli.spark import build, changes, match, prepare, statistics, stream, subscriptions

__all__ = ["app"]

app = typer.Typer(
    cls=Group,
    help="Run the data pipeline on Spark: prepare files, build an index, match files and streams.",
    no_args_is_help=True,
    add_completion=False,
)
add_command(
    app,
    "prepare",
    prepare.prepare,
    "nearcast spark prepare --kind messages --input 'raw/*.csv.gz' --column text=body "
    "--out messages",
)
add_command(
    app,
    "statistics",
    statistics.statistics,
    "nearcast spark statistics --kind messages --input messages --out statistics --plot tokens.png",
)
add_command(
    app,
    "subscriptions",
    subscriptions.subscriptions,
    "nearcast spark subscriptions --messages messages --count 100000 --out subscriptions",
)
add_command(
    app,
    "build",
    build.build,
    "nearcast spark build --subscriptions subscriptions --out index",
    "nearcast spark build --subscriptions subscriptions --mode sharded --shards 8 --out index",
)
add_command(
    app,
    "match",
    match.match,
    "nearcast spark match --index-path index --messages messages --out matches",
)
add_command(
    app,
    "stream",
    stream.stream,
    "nearcast spark stream --index-path index --messages arriving --out matches "
    "--checkpoint progress",
    "nearcast spark stream --index-path index --messages kafka://localhost:9092/messages "
    "--out kafka://localhost:9092/matches --checkpoint progress",
    "nearcast spark stream --index-path index --messages arriving --moves moves --ttl 600 "
    "--out updates --checkpoint progress",
)
add_command(
    app,
    "changes",
    changes.changes,
    "nearcast spark changes --index-path index --changes changes.csv",
)
add_command(app, "compact", changes.compact, "nearcast spark compact --index-path index")
