"""``nearcast spark changes`` and ``nearcast spark compact``: change an index while it is used."""

import time
from typing import Annotated

import typer

from nearcast.cli.commands import FILES, INPUT
from nearcast.cli.output import format_count, format_seconds, format_size, show_json, show_pairs
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
    Rejects,
    Strict,
    check_index,
    columns_of,
    end_with,
    errors_in_one_line,
    find_files,
    open_session,
    rejects_folder,
    show_columns,
    show_reasons,
    write_rejects,
)
from nearcast.cli.text_options import IndexTokenizer

__all__ = ["changes", "compact"]


def changes(
    index_path: IndexPath,
    source: Annotated[
        str,
        typer.Option(
            "--changes",
            metavar=FILES,
            rich_help_panel=INPUT,
            help="The changes: op (insert, delete or move), id, and the columns of subscriptions.",
        ),
    ],
    tokenizer: IndexTokenizer = None,
    column: Columns = None,
    id: MadeIds = None,
    encoding: Encodings = None,
    delimiter: Delimiters = None,
    format: Formats = None,
    rejects: Rejects = None,
    master: Master = None,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Insert, delete and move subscriptions of an index.

    The result is a new version of the index; running streams use it from their next micro-batch. A
    subscription that is ranked by distance moves to a point (lon, lat), any other one to a region.
    How much each word counts in a score stays as nearcast spark build computed it.

    Invalid changes (unknown ids, ids that exist already, invalid rows) are written to the rejects
    folder with the reason.
    """
    check_index(index_path)
    reading = ReadingOptions(column, id, encoding, delimiter, format)
    files = find_files(source, "changes", reading)
    spark = open_session(master)
    from nearcast.spark.changes import changes as run

    rejects_path = rejects_folder(rejects, source)
    began = time.perf_counter()
    with errors_in_one_line():
        files = files.surveyed(spark)
        changed = run(files.frame(spark), index_path, tokenizer=tokenizer)
        taken = time.perf_counter() - began
        reasons = write_rejects(spark, changed.rejects, rejects_path, changed.rejected)
    result = {
        "command": "spark changes",
        "version": changed.version.number,
        **changed.taken,
        "rejected": changed.rejected,
        "rejects": reasons,
        "columns": columns_of(files),
        "seconds": taken,
        "rejects_file": rejects_path if reasons else None,
    }
    if as_json:
        show_json(result)
    else:
        show_reasons(reasons)
        pairs = {name: format_count(number) for name, number in changed.taken.items()}
        pairs |= {
            "rejected": format_count(changed.rejected),
            **show_columns(columns_of(files)),
            "current version": str(changed.version.number),
            "time in Spark": format_seconds(taken),
        }
        if reasons:
            pairs["rejected rows"] = rejects_path
        show_pairs("changed", pairs)
    taken_in_all = sum(changed.taken.values())
    end_with(taken_in_all, changed.rejected, what="valid changes", strict=strict)


def compact(
    index_path: IndexPath,
    keep: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            show_default="0; a day on file systems without locks",
            help="How long to keep older versions that nobody reads.",
        ),
    ] = None,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Merge the changes of an index into it, and delete old versions and files of crashed jobs.

    Versions that a running match or stream needs are kept. Run it after many changes, to keep
    matching fast and the folder small.
    """
    check_index(index_path)
    spark = open_session(master)
    from nearcast.spark.compact import compact as run

    began = time.perf_counter()
    with errors_in_one_line():
        done = run(spark, index_path, keep_s=keep)
    result = {
        "command": "spark compact",
        "version": done.version.number,
        "folded": done.folded,
        "dropped": list(done.dropped),
        "kept": list(done.kept),
        "removed": done.removed,
        "bytes": done.version.nbytes,
        "seconds": time.perf_counter() - began,
    }
    if as_json:
        show_json(result)
        return
    listed = ", ".join(map(str, done.dropped)) or "none"
    pairs = {
        "shards with merged changes": format_count(done.folded),
        "versions dropped": listed,
        "older versions kept": ", ".join(map(str, done.kept)) or "none",
        "folders removed": format_count(done.removed),
        "current version": str(done.version.number),
        "size": format_size(done.version.nbytes),
        "time in Spark": format_seconds(time.perf_counter() - began),
    }
    show_pairs("compacted", pairs)
