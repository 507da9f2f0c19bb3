"""``nearcast spark subscriptions``: draw subscriptions from messages."""

import time
from typing import Annotated, Any

import typer

from nearcast.cli.commands import FILES, FOLDER, INPUT, NUMBER, OUTPUT
from nearcast.cli.options import parse_counts, parse_shares
from nearcast.cli.output import format_count, format_seconds, show_json, show_pairs
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
    check_new,
    columns_of,
    errors_in_one_line,
    find_files,
    open_session,
    show_columns,
    write_frame,
)
from nearcast.cli.text_options import Tokenizer

__all__ = ["subscriptions"]

_DRAWN = "Subscriptions"


def subscriptions(
    messages: Annotated[
        str, typer.Option(metavar=FILES, rich_help_panel=INPUT, help="The messages.")
    ],
    out: Annotated[
        str,
        typer.Option(
            metavar=FOLDER, rich_help_panel=OUTPUT, help="Folder for the subscriptions, as Parquet."
        ),
    ],
    count: Annotated[
        int,
        typer.Option(
            metavar=NUMBER, min=1, rich_help_panel=_DRAWN, help="Number of subscriptions."
        ),
    ] = 100_000,
    seed: Annotated[
        int,
        typer.Option(
            metavar=NUMBER,
            min=0,
            rich_help_panel=_DRAWN,
            help="The same seed gives the same rows.",
        ),
    ] = 0,
    tokens: Annotated[
        str,
        typer.Option(metavar="A-B", rich_help_panel=_DRAWN, help="Keywords per subscription."),
    ] = "1-5",
    share: Annotated[
        str,
        typer.Option(
            metavar="A-B",
            rich_help_panel=_DRAWN,
            help="Area of a subscription's rectangle, as a share of the area of all messages.",
        ),
    ] = "0.0001-0.01",
    tokenizer: Tokenizer = "words",
    column: Columns = None,
    id: MadeIds = None,
    encoding: Encodings = None,
    delimiter: Delimiters = None,
    format: Formats = None,
    master: Master = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Make test subscriptions from messages: some words of a message, and a rectangle around it.

    If there are fewer messages than subscriptions, messages are used several times.
    """
    from nearcast.columns import UNITS
    from nearcast.spark.subscriptions import subscriptions as draw
    from nearcast.spark.subscriptions import survey

    ends, area = parse_counts(tokens, "--tokens"), parse_shares(share, "--share")
    check_new("--out", out, overwrite=overwrite)
    reading = ReadingOptions(column, id, encoding, delimiter, format)
    files = find_files(messages, "messages", reading)
    spark = open_session(master)
    began = time.perf_counter()
    with errors_in_one_line():
        files = files.surveyed(spark)
        frame = files.frame(spark)
        found = survey(frame, seed, tokenizer=tokenizer)
        drawn = draw(
            frame, count, seed=seed, tokens=ends, share=area, surveyed=found, tokenizer=tokenizer
        )
        write_frame(drawn, out, overwrite=overwrite)
    result: dict[str, Any] = {
        "command": "spark subscriptions",
        "count": count,
        "seed": seed,
        "tokens": list(ends),
        "share": list(area),
        "box": [side / UNITS for side in found.box],
        "messages": found.messages,
        "wordless": found.wordless,
        "rejected": found.rejected,
        "columns": columns_of(files),
        "seconds": time.perf_counter() - began,
        "out": out,
    }
    if as_json:
        show_json(result)
    else:
        _show(result)


def _show(result: dict[str, Any]) -> None:
    pairs = {
        "subscriptions": format_count(result["count"]),
        "messages used": format_count(min(result["count"], result["messages"])),
        "messages with words": format_count(result["messages"]),
        "messages without words": format_count(result["wordless"]),
        "rejected": format_count(result["rejected"]),
        **show_columns(result["columns"]),
        "drawing": format_seconds(result["seconds"]),
        "written to": result["out"],
    }
    show_pairs("subscriptions drawn from messages", pairs)
