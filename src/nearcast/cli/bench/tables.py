"""``nearcast bench tables``: write results as tables into a page of the documentation."""

from pathlib import Path
from typing import Annotated

import typer

from nearcast.cli.commands import FILE

__all__ = ["tables"]


def tables(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULT", help="JSON files that nearcast bench wrote."),
    ],
    file: Annotated[Path, typer.Option(metavar=FILE, help="Markdown file to change.")] = Path(
        "docs/benchmarks/boolean.md"
    ),
) -> None:
    """Write results as tables into a Markdown file.

    The tables replace what is between the lines <!-- bench:begin --> and <!-- bench:end -->.
    """
    from nearcast.benchmarks.report import read_result, rewrite_tables

    rewrite_tables(file, [read_result(path) for path in results])
    typer.echo(f"{file}: {len(results):,} results written")
