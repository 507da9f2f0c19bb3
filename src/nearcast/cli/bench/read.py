"""``nearcast bench read``."""

from pathlib import Path
from typing import Annotated

import typer

from nearcast.cli.bench.options import DATA, MEASURING, OUT, Json, Out, Rounds, Seed
from nearcast.cli.commands import FOLDER, NUMBER
from nearcast.cli.output import (
    format_count,
    format_seconds,
    format_size,
    show_json,
    show_table,
    step_progress,
)

__all__ = ["read"]


def read(
    rows: Annotated[
        int,
        typer.Option(
            metavar=NUMBER, min=1, rich_help_panel=DATA, help="Number of rows in each file."
        ),
    ] = 1_000_000,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar=FOLDER,
            rich_help_panel=MEASURING,
            help="Another checkout of Nearcast to compare with; both read the same files in turn.",
        ),
    ] = None,
    rounds: Rounds = 3,
    seed: Seed = 0,
    out: Out = OUT,
    as_json: Json = False,
) -> None:
    """Measure how fast valid rows are read from CSV, NDJSON and Parquet, each in a new process."""
    from nearcast.benchmarks.reading import measure_reading
    from nearcast.benchmarks.report import write_result
    from nearcast.plots.machine import machine_caption

    with step_progress(not as_json, "read") as step:
        result = measure_reading(rows, rounds=rounds, seed=seed, against=against, step=step)
    path = out / "read.json"
    write_result(result, path)
    if as_json:
        show_json(result)
        return
    header = ["file", "size", "CPU time", "least-most", "rows/s"]
    if against is not None:
        header += ["against", "ratio of the least"]
    cells = []
    for file in result["files"]:
        spent = file["seconds"]
        row = [
            f"{file['kind']}.{file['format']}",
            format_size(file["bytes"]),
            format_seconds(spent["median"]),
            f"{format_seconds(spent['least'])}-{format_seconds(spent['most'])}",
            format_count(round(rows / spent["median"])),
        ]
        if against is not None:
            row += [format_seconds(file["seconds_against"]["median"]), f"{file['ratio']:.3g}"]
        cells.append(row)
    caption = f"{machine_caption(result['machine'])}; written to {path}"
    show_table(f"reading {rows:,} rows", header, cells, caption)
