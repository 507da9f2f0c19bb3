"""``nearcast spark match``: match messages against an index."""

import time
from typing import Annotated, Any

import typer

from nearcast.cli.commands import FILES, FOLDER, INDEX, INPUT, NUMBER, OUTPUT
from nearcast.cli.options import Owners
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
    IndexPath,
    Json,
    Master,
    Mode,
    Overwrite,
    Rejects,
    Strict,
    check_index,
    check_new,
    columns_of,
    end_with,
    errors_in_one_line,
    find_files,
    open_session,
    rejects_folder,
    show_columns,
    show_reasons,
    write_frame,
    write_rejects,
)
from nearcast.cli.text_options import IndexTokenizer

__all__ = ["match"]


def match(
    index_path: IndexPath,
    messages: Annotated[
        str, typer.Option(metavar=FILES, rich_help_panel=INPUT, help="The messages.")
    ],
    out: Annotated[
        str,
        typer.Option(
            metavar=FOLDER, rich_help_panel=OUTPUT, help="Folder for the matches, as Parquet."
        ),
    ],
    mode: Mode = "auto",
    version: Annotated[
        int | None,
        typer.Option(
            metavar=NUMBER,
            rich_help_panel=INDEX,
            show_default="the latest",
            help="Version of the index.",
        ),
    ] = None,
    owners: Owners = False,
    tokenizer: IndexTokenizer = None,
    column: Columns = None,
    id: MadeIds = None,
    encoding: Encodings = None,
    delimiter: Delimiters = None,
    format: Formats = None,
    rejects: Rejects = None,
    overwrite: Overwrite = False,
    master: Master = None,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Match files of messages with the subscriptions of an index, and write every match.

    Matches of ranked subscriptions have a score. Invalid rows are skipped, and written to the
    rejects folder with the file, the line, the reason and the whole record.
    """
    check_index(index_path, mode, version)
    check_new("--out", out, overwrite=overwrite)
    reading = ReadingOptions(column, id, encoding, delimiter, format)
    files = find_files(messages, "messages", reading)
    spark = open_session(master)
    from pyspark.sql import Observation

    from nearcast.spark.match import match as run
    from nearcast.spark.prepare import prepare

    rejects_path = rejects_folder(rejects, out)
    observed = Observation()
    began = time.perf_counter()
    with errors_in_one_line():
        files = files.surveyed(spark)
        frame = files.frame(spark)
        matches = run(
            frame,
            index_path,
            mode=mode,
            version=version,
            observation=observed,
            tokenizer=tokenizer,
            owners=owners,
        )
        write_frame(matches, out, overwrite=overwrite)
        taken = time.perf_counter() - began
        metrics = observed.get
        invalid = prepare(frame, "messages", duplicates="keep").rejects
        reasons = write_rejects(spark, invalid, rejects_path, metrics["rejected"])
    result: dict[str, Any] = {
        "command": "spark match",
        **metrics,
        "rejects": reasons,
        "columns": columns_of(files),
        "seconds": taken,
        "messages_per_second": metrics["messages"] / taken,
        "out": out,
        "rejects_file": rejects_path if reasons else None,
    }
    show_json(result) if as_json else _show(result)
    end_with(metrics["messages"], metrics["rejected"], what="valid messages", strict=strict)


def _show(result: dict[str, Any]) -> None:
    show_reasons(result["rejects"])
    pairs = {name: format_count(result[name]) for name in ("messages", "rejected", "matches")}
    pairs |= show_columns(result["columns"])
    pairs |= {
        "examined per message": format_count(result["examined_per_message"] or 0),
        "messages per second": format_count(round(result["messages_per_second"])),
        "time in Spark": format_seconds(result["seconds"]),
        "written to": result["out"],
    }
    if result["rejects_file"]:
        pairs["rejected rows"] = result["rejects_file"]
    show_pairs("matched", pairs)
