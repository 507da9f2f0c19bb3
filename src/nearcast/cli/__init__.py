"""The ``nearcast`` command.

One file per command, a folder for a group of them (`spark`). Results go to stdout (tables,
or JSON with ``--json``), progress and errors to stderr. Exit codes: 0 done, 1 an error (one line on
stderr), 2 wrong usage, 3 done but rows were rejected and ``--strict`` was given. What is heavy to
import is imported by the command that needs it.
"""

from typing import Annotated

import typer

from nearcast.cli import bench, generate, indexes, match, spark
from nearcast.cli.output import OneLineErrors

__all__ = ["app", "main"]

app = typer.Typer(
    name="nearcast",
    cls=OneLineErrors,
    help="Delivers geotagged messages to every subscription that they match.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("generate")(generate.generate)
app.command("match")(match.match)
app.command("indexes")(indexes.indexes)
app.add_typer(spark.app, name="spark")
bench.register(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        import nearcast

        typer.echo(f"nearcast {nearcast.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Delivers geotagged messages to every subscription that they match."""


def main() -> None:
    """Run the command; the entry point of the package."""
    app()
