"""``nearcast bench history``: a few figures of each commit, in one file."""

from pathlib import Path
from typing import Annotated

import typer

from nearcast.cli.bench.options import Rounds
from nearcast.cli.commands import FILE, FOLDER, NUMBER
from nearcast.cli.output import format_count, show_table

__all__ = ["history"]


def history(
    file: Annotated[Path, typer.Option(metavar=FILE, help="File with the records.")] = Path(
        "docs/benchmarks/history.json"
    ),
    subscriptions: Annotated[
        int, typer.Option(metavar=NUMBER, min=1, help="Number of subscriptions.")
    ] = 100_000,
    rounds: Rounds = 9,
    checkout: Annotated[
        Path | None,
        typer.Option(
            metavar=FOLDER, help="Another checkout to measure, such as one of an older commit."
        ),
    ] = None,
    plot: Annotated[Path, typer.Option(metavar=FILE, help="File for the figure: .png.")] = Path(
        "docs/images/history.png"
    ),
    show: Annotated[
        bool, typer.Option("--show", help="Show and draw the last record; measure nothing.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with code 1 if a figure is marked as slow.")
    ] = False,
) -> None:
    """Measure this commit, add it to the history, and compare it with earlier commits."""
    from nearcast.benchmarks.history import (
        add_record,
        compare_with_earlier,
        measure_checkout,
        own_checkout,
        read_history,
    )
    from nearcast.benchmarks.plot_history import plot_history
    from nearcast.errors import UnsupportedFile
    from nearcast.plots.machine import machine_caption

    if show:
        records = read_history(file)
        if not records:
            raise UnsupportedFile(f"{file}: has no records; run nearcast bench history first")
        record = records[-1]
    else:
        record = measure_checkout(checkout or own_checkout(), subscriptions, rounds)
        records = add_record(file, record)
    plot_history(records, plot, record)
    comparisons = compare_with_earlier(records, record)
    show_table(
        f"{record['commit']}{', changed' if record['dirty'] else ''}: {record['subject']}",
        ["figure", "value", "unit", "ratio", "earlier", "change", ""],
        [
            [
                c.name,
                format_count(c.value),
                c.unit,
                format_count(c.compared),
                "-" if c.earlier is None else format_count(c.earlier),
                "-" if c.change is None else f"{c.change:.2f} x",
                "slow" if c.slow else "",
            ]
            for c in comparisons
        ],
        f"{machine_caption(record['machine'])}"
        f"{'; other programs were running' if record['machine']['shared'] else ''}; {file}, {plot}",
    )
    for name, reason in record["skipped"].items():
        typer.echo(f"not measured: {name} ({reason})", err=True)
    if check and any(c.slow for c in comparisons):
        raise typer.Exit(1)
