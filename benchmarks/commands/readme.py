"""``nearcast bench readme``: write the tables of the README from result files."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["readme"]


def readme(
    results: Annotated[list[Path], typer.Argument(help="JSON files with results.")],
    file: Annotated[Path, typer.Option(help="The file to rewrite.")] = Path("README.md"),
) -> None:
    """Write tables of results between <!-- bench:begin --> and <!-- bench:end --> of the README."""
    from benchmarks.report import read_result, rewrite_readme

    rewrite_readme(file, [read_result(path) for path in results])
    typer.echo(f"{file}: {len(results)} results written")
