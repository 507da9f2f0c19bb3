"""``nearcast bench readme``: the figures of the README, written from results."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["readme"]


def readme(
    results: Annotated[list[Path], typer.Argument(help="JSON files of experiments.")],
    file: Annotated[Path, typer.Option(help="The file to rewrite.")] = Path("README.md"),
) -> None:
    """Write results between <!-- bench:begin --> and <!-- bench:end --> of the README."""
    from benchmarks.report import read_result, rewrite_readme

    rewrite_readme(file, [read_result(path) for path in results])
    typer.echo(f"{file}: {len(results)} results written")
