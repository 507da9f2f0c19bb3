"""``nearcast spark``: the data pipeline, one module per command."""

import typer

from nearcast.cli.spark import build, changes, match, prepare, statistics, stream, subscriptions

__all__ = ["app"]

app = typer.Typer(
    help="The data pipeline on Spark: from raw records to matches.",
    no_args_is_help=True,
    add_completion=False,
)
app.command("prepare")(prepare.prepare)
app.command("statistics")(statistics.statistics)
app.command("subscriptions")(subscriptions.subscriptions)
app.command("build")(build.build)
app.command("match")(match.match)
app.command("stream")(stream.stream)
app.command("changes")(changes.changes)
app.command("compact")(changes.compact)
