"""``nearcast spark prepare``: clean raw messages or subscriptions."""

import time
from typing import Annotated, Any

import typer

from nearcast.cli.output import format_count, format_seconds, show_json, show_pairs
from nearcast.cli.spark.frames import (
    Format,
    Json,
    Master,
    Overwrite,
    Rejects,
    Strict,
    errors_in_one_line,
    exists,
    format_of,
    open_session,
    read_frame,
    rejects_folder,
    show_reasons,
    write_frame,
    write_rejects,
)
from nearcast.cli.text_options import Tokenizer
from nearcast.errors import InvalidInput

__all__ = ["prepare"]


def prepare(
    kind: Annotated[str, typer.Option(help="messages or subscriptions.")],
    source: Annotated[
        str, typer.Option("--input", metavar="F", help="File or folder of raw records.")
    ],
    out: Annotated[str, typer.Option(help="Folder for the clean rows, as Parquet.")],
    format: Format = None,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="OURS=THEIRS", help="Column with another name; may be repeated."),
    ] = None,
    rejects: Rejects = None,
    keep_duplicates: Annotated[
        bool, typer.Option("--keep-duplicates", help="Keep rows with the id of an earlier row.")
    ] = False,
    tokenizer: Tokenizer = "words",
    master: Master = None,
    overwrite: Overwrite = False,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Clean raw records: check, round, normalize, drop duplicates, and count.

    Invalid records are left out and written to the rejects folder with the reason. Of several rows
    with the same id, the first is kept. CSV must have a header and one record per line.
    """
    columns = _columns(column or [])
    rejects_path = rejects_folder(rejects, out)
    if len({source.rstrip("/"), out.rstrip("/"), rejects_path.rstrip("/")}) < 3:
        raise InvalidInput(
            "--out", out, "is also read, or also used for rejects; use another folder"
        )
    spark = open_session(master)
    if not overwrite and exists(spark, rejects_path):
        raise InvalidInput("--rejects", rejects_path, "exists already; add --overwrite")
    began = time.perf_counter()
    from nearcast.spark.prepare import prepare as run
    from nearcast.spark.records import REASONS

    with errors_in_one_line():
        frame = read_frame(spark, source, format, columns)
        prepared = run(
            frame,
            kind,
            columns,
            duplicates="keep" if keep_duplicates else "drop",
            damaged=REASONS[format_of(source, format)],
            tokenizer=tokenizer,
        )
        write_frame(prepared.rows, out, "parquet", overwrite=overwrite)
        counts = prepared.check()
        reasons = write_rejects(spark, prepared.rejects, rejects_path, counts["rejected"])
    result = {
        "command": "spark prepare",
        "kind": kind,
        **counts,
        "rejects": reasons,
        "seconds": time.perf_counter() - began,
        "out": out,
        "rejects_file": rejects_path if reasons else None,
    }
    show_json(result) if as_json else _show(result)
    if strict and counts["rejected"]:
        raise typer.Exit(3)


def _columns(texts: list[str]) -> dict[str, str]:
    columns = {}
    for text in texts:
        ours, sign, theirs = text.partition("=")
        if not (ours and sign and theirs):
            raise typer.BadParameter(f"expected ours=theirs, got {text!r}")
        columns[ours] = theirs
    return columns


def _show(result: dict[str, Any]) -> None:
    show_reasons(result["rejects"])
    pairs = {
        name: format_count(result[name]) for name in ("read", "clean", "rejected", "duplicates")
    }
    pairs |= {"time": format_seconds(result["seconds"]), "written to": result["out"]}
    if result["rejects_file"]:
        pairs["rejected records"] = result["rejects_file"]
    show_pairs(f"prepared {result['kind']}", pairs)
