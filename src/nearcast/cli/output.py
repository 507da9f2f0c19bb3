"""The output of commands: tables and JSON on stdout, progress and errors on stderr."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from nearcast.cli.commands import Group
from nearcast.errors import NearcastError

__all__ = [
    "Advance",
    "OneLineErrors",
    "format_count",
    "format_seconds",
    "format_size",
    "progress",
    "show_json",
    "show_pairs",
    "show_table",
    "step_progress",
]

Advance = Callable[[float, float], None]
"""Called with the amount of work done and the total amount."""


class OneLineErrors(Group):
    """A group of commands that prints errors as one line on stderr and exits with 1."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
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
    """Show progress bars on stderr: ``bar = start("reading"); bar(done, total)``.

    Nothing is shown if stderr is not a terminal.
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
def step_progress(shown: bool, description: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show one progress bar for a sequence of steps: ``step("building scan", 3, 12)``."""
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

        def step(name: str, done: int, total: int) -> None:
            bars.update(task, description=name, completed=done, total=total)

        yield step


def show_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(value, indent=2))


def show_pairs(title: str, pairs: Mapping[str, str]) -> None:
    """Print names and values, one pair per line."""
    table = Table(title=title, title_justify="left", show_header=False, box=None)
    table.min_width = len(title)  # a title that is wider than the pairs stays on one line
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in pairs.items():
        table.add_row(name, value)
    _console().print(table)


def show_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = ""
) -> None:
    """Print a table; columns of numbers are aligned to the right."""
    table = Table(title=title, title_justify="left", caption=caption or None)
    table.caption_justify = "left"
    for i, name in enumerate(header):
        numeric = bool(rows) and all(row[i][:1].isdigit() or row[i] in {"", "-"} for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    _console().print(table)


def format_count(number: float) -> str:
    """Format a number with thousands separators or three significant digits.

    Examples
    --------
    >>> format_count(1234567), format_count(12.345), format_count(0.01234)
    ('1,234,567', '12.3', '0.0123')
    """
    if float(number).is_integer() or abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}"


def format_seconds(value: float) -> str:
    """Format a duration with its unit.

    Examples
    --------
    >>> format_seconds(12.34), format_seconds(0.01234)
    ('12.3 s', '12.3 ms')
    """
    return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def format_size(value: float) -> str:
    """Format a number of bytes with its unit.

    Examples
    --------
    >>> format_size(123), format_size(1_234_567)
    ('123 B', '1.2 MB')
    """
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def _console() -> Console:
    """Return a console for stdout; a pipe gets lines of 160 characters."""
    return Console() if sys.stdout.isatty() else Console(width=160)
