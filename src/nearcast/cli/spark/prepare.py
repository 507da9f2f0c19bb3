"""``nearcast spark prepare``: clean raw messages or subscriptions."""

import time
from typing import Annotated, Any

import typer

from nearcast.cli.commands import FILES, FOLDER, INPUT, OUTPUT
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
    Rejects,
    Strict,
    check_new,
    columns_of,
    end_with,
    errors_in_one_line,
    exists,
    find_files,
    open_session,
    rejects_folder,
    show_columns,
    show_reasons,
    write_frame,
    write_rejects,
)
from nearcast.cli.text_options import Tokenizer
from nearcast.errors import InvalidInput, UnknownName

__all__ = ["prepare"]


def prepare(
    kind: Annotated[
        str,
        typer.Option(
            metavar="messages|subscriptions", rich_help_panel=INPUT, help="What the rows are."
        ),
    ],
    source: Annotated[
        str,
        typer.Option("--input", metavar=FILES, rich_help_panel=INPUT, help="The raw records."),
    ],
    out: Annotated[
        str,
        typer.Option(
            metavar=FOLDER, rich_help_panel=OUTPUT, help="Folder for the clean rows, as Parquet."
        ),
    ],
    column: Columns = None,
    id: MadeIds = None,
    encoding: Encodings = None,
    delimiter: Delimiters = None,
    format: Formats = None,
    rejects: Rejects = None,
    keep_duplicates: Annotated[
        bool,
        typer.Option(
            "--keep-duplicates", rich_help_panel=OUTPUT, help="Keep all rows that have the same id."
        ),
    ] = False,
    tokenizer: Tokenizer = "words",
    master: Master = None,
    overwrite: Overwrite = False,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Turn raw files of messages or subscriptions into clean Parquet files, ready to match.

    Every record is checked. Invalid ones are written to the rejects folder with the file, the line,
    the reason and the whole record. Of several rows with the same id, only the first is kept.
    """
    rejects_path = rejects_folder(rejects, out)
    if len({source.rstrip("/"), out.rstrip("/"), rejects_path.rstrip("/")}) < 3:
        raise InvalidInput(
            "--out", out, "must differ from --input and --rejects; choose another folder"
        )
    if kind not in ("messages", "subscriptions"):
        raise UnknownName("kind", kind, ("messages", "subscriptions"))
    check_new("--out", out, overwrite=overwrite)
    check_new("--rejects", rejects_path, overwrite=overwrite)
    reading = ReadingOptions(column, id, encoding, delimiter, format)
    from nearcast.spark.prepare import prepare as run

    files = find_files(source, kind, reading)
    spark = open_session(master)
    if not overwrite and exists(spark, rejects_path):
        raise InvalidInput(
            "--rejects", rejects_path, "exists already; choose another folder, or add --overwrite"
        )
    began = time.perf_counter()
    with errors_in_one_line():
        files = files.surveyed(spark)
        duplicates = "keep" if keep_duplicates else "drop"
        frame = files.frame(spark)
        prepared = run(frame, kind, duplicates=duplicates, tokenizer=tokenizer)
        write_frame(prepared.rows, out, overwrite=overwrite)
        counts = prepared.check()
        reasons = write_rejects(spark, prepared.rejects, rejects_path, counts["rejected"])
    result = {
        "command": "spark prepare",
        "kind": kind,
        **counts,
        "rejects": reasons,
        "columns": columns_of(files),
        "seconds": time.perf_counter() - began,
        "out": out,
        "rejects_file": rejects_path if reasons else None,
    }
    show_json(result) if as_json else _show(result)
    end_with(counts["clean"], counts["rejected"], what=f"clean {kind}", strict=strict)


def _show(result: dict[str, Any]) -> None:
    show_reasons(result["rejects"])
    pairs = {
        name: format_count(result[name]) for name in ("read", "clean", "rejected", "duplicates")
    }
    pairs |= show_columns(result["columns"])
    pairs |= {"time in Spark": format_seconds(result["seconds"]), "written to": result["out"]}
    if result["rejects_file"]:
        pairs["rejected records"] = result["rejects_file"]
    show_pairs(f"prepared {result['kind']}", pairs)
