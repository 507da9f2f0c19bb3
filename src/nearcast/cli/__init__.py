"""The ``nearcast`` command.

One module per command, and a package for the commands of `spark`. Results go to stdout (tables, or
JSON with ``--json``), progress and errors to stderr. Exit codes: 0 success, 1 an error (one line on
stderr), 2 wrong usage, 3 success, but rows were rejected and ``--strict`` was given. Large modules
are imported only by the commands that need them.
"""

import os
import sys
from typing import Annotated

import typer

from nearcast.cli import audit, bench, clock, generate, indexes, match, plot, serve, spark
from nearcast.cli.commands import add_command, examples
from nearcast.cli.output import OneLineErrors

__all__ = ["app", "main"]

app = typer.Typer(
    name="nearcast",
    cls=OneLineErrors,
    help="Match geotagged messages with subscriptions: keywords and a region.",
    epilog=examples(
        "nearcast generate --subscriptions 10000 --messages 1000 --out data",
        "nearcast match --subscriptions data/subscriptions.parquet "
        "--messages data/messages.parquet --out matches.csv",
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
add_command(
    app,
    "generate",
    generate.generate,
    "nearcast generate --subscriptions 100000 --messages 10000 --out data",
    "nearcast generate --ranked mixed --format csv --out data",
    "nearcast generate --dataset moving --ticks 20 --out moving",
)
add_command(
    app,
    "match",
    match.match,
    "nearcast match --subscriptions subs.csv --messages messages.csv --out matches.csv",
    "nearcast match --subscriptions subs.parquet --messages 'day/*.json.gz' --column text=body "
    "--out matches.parquet",
    "nearcast match --subscriptions subs.csv --messages messages.csv --moves moves.csv --ttl 600 "
    "--out updates.csv",
)
add_command(
    app,
    "audit",
    audit.audit,
    "nearcast audit nearcast-data",
    "nearcast audit nearcast-data --from 2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z",
)
add_command(app, "indexes", indexes.indexes)
add_command(
    app,
    "serve",
    serve.serve,
    "nearcast serve",
    "nearcast serve nearcast-data --port 9000",
    "nearcast serve --demo",
    "nearcast serve --database postgresql://nearcast@localhost/nearcast",
)
add_command(
    app,
    "clock",
    clock.clock,
    "nearcast clock nearcast-data",
    "nearcast clock nearcast-data --repair",
)
app.add_typer(serve.keys_app, name="keys")
app.add_typer(spark.app, name="spark")
app.add_typer(plot.app, name="plot")
app.add_typer(bench.app, name="bench")


def _show_version(requested: bool) -> None:
    if requested:
        import nearcast

        typer.echo(f"nearcast {nearcast.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Match geotagged messages with subscriptions: keywords and a region.

    A subscription asks for words in a region. Every command explains itself: nearcast match --help.
    """
    # Options may name a module of the current folder. It is last, so it hides no other module.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def main() -> None:
    """Run the ``nearcast`` command."""
    app()
