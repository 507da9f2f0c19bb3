"""What commands print: tables and JSON on stdout, progress and errors on stderr."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from typer.core import TyperGroup

from nearcast.errors import NearcastError

__all__ = [
    "Advance",
    "OneLineErrors",
    "count",
    "progress",
    "seconds",
    "show_json",
    "show_pairs",
    "show_table",
    "size",
    "steps",
]

Advance = Callable[[float, float], None]
"""Told how much is done, of how much."""


class OneLineErrors(TyperGroup):
    """A group of commands whose errors are one line on stderr and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (NearcastError, OSError) as error:
            line = " ".join(str(error).split())
            typer.echo(f"nearcast: {line}", err=True)
            raise typer.Exit(1) from error


@contextmanager
def progress(shown: bool) -> Iterator[Callable[[str], Advance]]:
    """Show bars on stderr while work goes on: ``bar = start("reading"); bar(done, total)``.

    Nothing is shown where stderr is no terminal.
    """
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not (shown and sys.stderr.isatty()),
    )

    def start(description: str) -> Advance:
        task = bars.add_task(description, total=None)
        return lambda done, total: bars.update(task, completed=done, total=total)

    with bars:
        yield start


@contextmanager
def steps(shown: bool, description: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show one bar for an experiment: ``step("building scan", 3, 12)``."""
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not (shown and sys.stderr.isatty()),
    )
    with bars:
        task = bars.add_task(description, total=None)

        def step(what: str, done: int, total: int) -> None:
            bars.update(task, description=what, completed=done, total=total)

        yield step


def show_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print a value for machines."""
    typer.echo(json.dumps(value, indent=2))


def show_pairs(title: str, pairs: Mapping[str, str]) -> None:
    """Print names and values, one pair a line."""
    table = Table(title=title, title_justify="left", show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in pairs.items():
        table.add_row(name, value)
    _console().print(table)


def show_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = ""
) -> None:
    """Print a table; columns after the first are aligned to the right where they hold numbers."""
    table = Table(title=title, title_justify="left", caption=caption or None)
    table.caption_justify = "left"
    for i, name in enumerate(header):
        numeric = bool(rows) and all(row[i][:1].isdigit() or row[i] in {"", "-"} for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    _console().print(table)


def count(number: float) -> str:
    """Return a number as people read it.

    Examples
    --------
    >>> count(1234567), count(12.345), count(0.01234)
    ('1,234,567', '12.3', '0.0123')
    """
    if float(number).is_integer() or abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}"


def seconds(value: float) -> str:
    """Return a time with its unit.

    Examples
    --------
    >>> seconds(12.34), seconds(0.01234)
    ('12.3 s', '12.3 ms')
    """
    return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def size(value: float) -> str:
    """Return a number of bytes with its unit.

    Examples
    --------
    >>> size(123), size(1_234_567)
    ('123 B', '1.2 MB')
    """
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def _console() -> Console:
    """Return stdout; a pipe gets wide lines instead of folded ones."""
    return Console() if sys.stdout.isatty() else Console(width=160)
