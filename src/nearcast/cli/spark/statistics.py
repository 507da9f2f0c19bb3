"""``nearcast spark statistics``: token frequencies, overall and by grid cell."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.commands import FILE, FILES, FOLDER, INPUT, NUMBER, OUTPUT
from nearcast.cli.output import (
    format_count,
    format_seconds,
    format_size,
    show_json,
    show_pairs,
    show_table,
)
from nearcast.cli.reading_options import (
    Columns,
    Delimiters,
    Encodings,
    Formats,
    MadeIds,
    ReadingOptions,
)
from nearcast.cli.spark.frames import (
    Json,
    Master,
    Overwrite,
    Strict,
    columns_of,
    end_with,
    errors_in_one_line,
    find_files,
    open_session,
    show_columns,
)
from nearcast.cli.text_options import Tokenizer
from nearcast.errors import InvalidInput
from nearcast.extras import require

if TYPE_CHECKING:
    from nearcast.indexes.statistics import Statistics

__all__ = ["Kind", "statistics"]

_MAX_TOKENS = 10
_GRID = "Grid"


class Kind(StrEnum):
    """What the rows of a file are."""

    MESSAGES = "messages"
    SUBSCRIPTIONS = "subscriptions"


def statistics(
    input: Annotated[
        str,
        typer.Option(metavar=FILES, rich_help_panel=INPUT, help="The messages or subscriptions."),
    ],
    kind: Annotated[
        Kind,
        typer.Option(
            metavar="messages|subscriptions", rich_help_panel=INPUT, help="What the rows are."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar=FOLDER, rich_help_panel=OUTPUT, help="Folder for the statistics."),
    ],
    across: Annotated[
        int,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=_GRID,
            help="Number of cells from west to east.",
        ),
    ] = 100,
    up: Annotated[
        int,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=_GRID,
            help="Number of cells from south to north.",
        ),
    ] = 100,
    box: Annotated[
        str | None,
        typer.Option(
            metavar="W,S,E,N",
            rich_help_panel=_GRID,
            show_default="that of the data",
            help="Area of the grid: west, south, east and north in degrees.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar=FILE, rich_help_panel=OUTPUT, help="Draw the statistics, too: .png."),
    ] = None,
    tokenizer: Tokenizer = "words",
    column: Columns = None,
    id: MadeIds = None,
    encoding: Encodings = None,
    delimiter: Delimiters = None,
    format: Formats = None,
    master: Master = None,
    overwrite: Overwrite = False,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Count how often each word occurs, in all rows and in each cell of a grid.

    Rows per cell and the sizes of rectangles are counted, too. Invalid rows are only counted here;
    nearcast spark prepare writes them with the reasons.
    """
    import time

    if plot is not None and plot.suffix.lower() != ".png":
        raise InvalidInput("--plot", str(plot), "must be a file that ends in .png")
    if out.exists() and not overwrite:
        raise InvalidInput(
            "--out", str(out), "exists already; choose another folder, or add --overwrite"
        )
    if plot is not None:
        require("plots", "--plot")
    sides = None if box is None else _parse_box(box)
    reading = ReadingOptions(column, id, encoding, delimiter, format)
    from nearcast.spark.statistics import statistics as run

    files = find_files(input, kind.value, reading)
    spark = open_session(master)
    began = time.perf_counter()
    with errors_in_one_line():
        files = files.surveyed(spark)
        found = run(
            files.frame(spark),
            kind.value,
            out,
            across=across,
            up=up,
            box=sides,
            tokenizer=tokenizer,
        )
    taken = time.perf_counter() - began
    result = {
        "command": "spark statistics",
        "kind": kind.value,
        **_summary(found),
        "columns": columns_of(files),
        "bytes": found.nbytes,
        "seconds": taken,
        "out": str(out),
    }
    if plot is not None:
        from nearcast.plots.statistics import plot_statistics

        plot_statistics(found, plot, kind.value)
        result["plot"] = str(plot)
    if as_json:
        show_json(result)
    else:
        _show(result)
    end_with(found.documents, found.rejected, what=f"valid {kind.value}", strict=strict)


def _parse_box(text: str) -> tuple[float, float, float, float]:
    try:
        west, south, east, north = (float(side) for side in text.split(","))
    except ValueError:
        raise InvalidInput(
            "--box", text, "must be four numbers, WEST,SOUTH,EAST,NORTH, in degrees"
        ) from None
    if not (-180 <= west < east <= 180 and -90 <= south < north <= 90):
        raise InvalidInput(
            "--box",
            text,
            "must have west < east from -180 to 180, and south < north from -90 to 90",
        )
    return west, south, east, north


def _summary(found: "Statistics") -> dict[str, Any]:
    from nearcast.columns import UNITS

    frequency, weight = found.vocabulary.frequency, found.idf()
    top = range(min(_MAX_TOKENS, len(frequency)))
    return {
        "documents": found.documents,
        "rejected": found.rejected,
        "tokens": len(frequency),
        "tokens_per_document": int(frequency.sum()) / max(found.documents, 1),
        "grid": [found.grid.across, found.grid.up],
        "box": [side / UNITS for side in found.grid.box],
        "cells_in_use": int((found.density > 0).sum()),
        "cell_tokens": len(found.cell_token),
        "most_frequent": [
            {"token": found.vocabulary.token(t), "df": int(frequency[t]), "idf": float(weight[t])}
            for t in top
        ],
    }


def _show(result: dict[str, Any]) -> None:
    top = [
        [
            row["token"],
            format_count(row["df"]),
            f"{row['df'] / max(result['documents'], 1):.2%}",
            f"{row['idf']:.3f}",
        ]
        for row in result["most_frequent"]
    ]
    show_table("most frequent tokens", ["token", result["kind"], "share", "weight"], top)
    across, up = result["grid"]
    pairs = {
        result["kind"]: format_count(result["documents"]),
        "rejected": format_count(result["rejected"]),
        "tokens": format_count(result["tokens"]),
        "tokens each": format_count(result["tokens_per_document"]),
        "cells in use": f"{format_count(result['cells_in_use'])} of {format_count(across * up)}",
        "tokens by cell": format_count(result["cell_tokens"]),
        "box of the cells": ", ".join(f"{side:g}" for side in result["box"]),
        **show_columns(result["columns"]),
        "counting": format_seconds(result["seconds"]),
        "written to": f"{result['out']} ({format_size(result['bytes'])})",
    }
    if "plot" in result:
        pairs["plot"] = result["plot"]
    show_pairs(f"statistics of {result['kind']}", pairs)
