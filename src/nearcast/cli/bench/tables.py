"""``nearcast bench tables``: write results as tables into a page of the documentation."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["tables"]


def tables(
    results: Annotated[list[Path], typer.Argument(help="JSON files with results.")],
    file: Annotated[Path, typer.Option(help="The Markdown file to rewrite.")] = Path(
        "docs/benchmarks/boolean.md"
    ),
) -> None:
    """Write tables of results between <!-- bench:begin --> and <!-- bench:end --> of a page."""
    from nearcast.benchmarks.report import read_result, rewrite_tables

    rewrite_tables(file, [read_result(path) for path in results])
    typer.echo(f"{file}: {len(results)} results written")
