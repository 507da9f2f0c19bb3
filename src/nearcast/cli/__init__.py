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

from nearcast.cli import bench, generate, indexes, match, plot, spark
from nearcast.cli.output import OneLineErrors

__all__ = ["app", "main"]

app = typer.Typer(
    name="nearcast",
    cls=OneLineErrors,
    help="Deliver geotagged messages to the subscriptions that they match.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("generate")(generate.generate)
app.command("match")(match.match)
app.command("indexes")(indexes.indexes)
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
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Deliver geotagged messages to the subscriptions that they match."""
    # Options may name a module of the current folder. It is last, so it hides no other module.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def main() -> None:
    """Run the ``nearcast`` command."""
    app()
