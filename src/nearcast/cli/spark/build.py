"""``nearcast spark build``: build an index over subscriptions."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.commands import FILES, FOLDER, INDEX, INPUT, NUMBER, OUTPUT
from nearcast.cli.options import parse_index_options
from nearcast.cli.output import (
    format_count,
    format_seconds,
    format_size,
    show_json,
    show_pairs,
    show_table,
)
from nearcast.cli.ranked_options import Distance, Similarity
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
    Mode,
    Rejects,
    Strict,
    columns_of,
    end_with,
    errors_in_one_line,
    open_session,
    rejects_folder,
    show_columns,
    show_reasons,
    write_rejects,
)
from nearcast.cli.text_options import Tokenizer

if TYPE_CHECKING:
    from nearcast.spark.build import Built

__all__ = ["build"]


def build(
    subscriptions: Annotated[
        str, typer.Option(metavar=FILES, rich_help_panel=INPUT, help="The subscriptions.")
    ],
    out: Annotated[
        str,
        typer.Option(
            metavar=FOLDER,
            rich_help_panel=OUTPUT,
            help="Folder of the index; if it has one already, this adds a new version.",
        ),
    ],
    mode: Mode = "auto",
    shards: Annotated[
        int | None,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=INDEX,
            show_default="as many as --shard-size needs",
            help="Number of shards.",
        ),
    ] = None,
    shard_size: Annotated[
        int,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=INDEX,
            help="Largest number of subscriptions in a shard.",
        ),
    ] = 20_000_000,
    messages: Annotated[
        str | None,
        typer.Option(
            metavar=FILES,
            rich_help_panel=INPUT,
            show_default="messages like the subscriptions",
            help="Typical messages; a sample of them is used to plan the shards.",
        ),
    ] = None,
    index: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=INDEX,
            help="Index to build; nearcast indexes lists them.",
        ),
    ] = "trie-pyramid",
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            rich_help_panel=INDEX,
            help="Option of the index. May be repeated.",
        ),
    ] = None,
    similarity: Similarity = "containment",
    distance: Distance = "geodesic",
    tokenizer: Tokenizer = "words",
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
    """Build an index of subscriptions, as a whole or in shards.

    The index is a new version in its folder. The old version stays in use until the new one is
    complete. Invalid rows are skipped, and written to the rejects folder with the reason.

    Boolean and ranked subscriptions may be mixed. How much each word counts in a score is computed
    from all ranked subscriptions, and stays the same until the next build.
    """
    from nearcast.indexes.registry import option_classes
    from nearcast.spark.build import build as run
    from nearcast.spark.build import check_arguments
    from nearcast.spark.files import FileSet

    options = parse_index_options(option or [], option_classes(index))
    check_arguments(mode, shards, shard_size, index, options)
    paths = {"subscriptions": subscriptions}
    if messages is not None:
        paths["messages"] = messages
    readings = ReadingOptions(column, id, encoding, delimiter, format).readings(paths)
    found = {kind: FileSet.find(path, kind, readings[kind]) for kind, path in paths.items()}
    files, typical = found["subscriptions"], found.get("messages")
    spark = open_session(master)

    rejects_path = rejects_folder(rejects, out)
    began = time.perf_counter()
    with errors_in_one_line():
        files = files.surveyed(spark)
        built = run(
            files.frame(spark),
            out,
            mode=mode,
            shards=shards,
            shard_size=shard_size,
            messages=None if typical is None else typical.frame(spark),
            index=index,
            options=options,
            similarity=similarity,
            distance=distance,
            tokenizer=tokenizer,
            empty=False,
        )
        taken = time.perf_counter() - began
        reasons = write_rejects(spark, built.rejects, rejects_path, built.rejected)
    result = _summary(built) | {
        "rejects": reasons,
        "columns": columns_of(files),
        "seconds": taken,
        "out": out,
        "rejects_file": rejects_path if reasons else None,
    }
    show_json(result) if as_json else _show(result)
    end_with(built.version.rows, built.rejected, what="subscriptions to index", strict=strict)


def _summary(built: "Built") -> dict[str, Any]:
    from nearcast.columns import KINDS
    from nearcast.indexes import create

    version = built.version
    return {
        "command": "spark build",
        "version": version.number,
        "mode": version.mode,
        "index": version.index,
        "options": version.options,
        "similarity": version.scoring.similarity,
        "distance": version.scoring.distance,
        "tokenizer": version.tokenizer,
        "subscriptions": version.rows,
        "ranked": version.source.get("ranked", 0),
        "ranked_indexes": create(version.index).index_names(KINDS[1:]),
        "rejected": built.rejected,
        "duplicates": built.duplicates,
        "bytes": version.nbytes,
        "shards": [{"rows": shard.rows} for shard in version.shards],
        "plan": version.plan,
    }


def _show(result: dict[str, Any]) -> None:
    if result["plan"]:
        header = ["shard", "subscriptions", "planned", "share of messages", "share of load"]
        planned = result["plan"]["shards"]
        rows = [
            [
                str(number),
                format_count(shard["rows"]),
                format_count(expected["subscriptions"]),
                f"{expected['message_share']:.1%}",
                f"{expected['load_share']:.1%}",
            ]
            for number, (shard, expected) in enumerate(zip(result["shards"], planned, strict=True))
        ]
        show_table("shards", header, rows)
    show_reasons(result["rejects"])
    pairs = {
        "version": str(result["version"]),
        "mode": result["mode"],
        "subscriptions": format_count(result["subscriptions"]),
        "of these ranked": format_count(result["ranked"]),
        "rejected": format_count(result["rejected"]),
        "duplicates": format_count(result["duplicates"]),
    }
    if not result["ranked"]:
        del pairs["of these ranked"]
    elif {*result["ranked_indexes"].values()} != {result["index"]}:
        used = [f"{name} ({kind})" for kind, name in result["ranked_indexes"].items()]
        pairs["index of ranked ones"] = ", ".join(used)
    if result["plan"]:
        pairs["shards per subscription"] = f"{result['plan']['subscription_copies']:.2f}"
        pairs["shards per message"] = f"{result['plan']['message_copies']:.2f}"
    pairs |= show_columns(result["columns"])
    pairs |= {
        "size": format_size(result["bytes"]),
        "time in Spark": format_seconds(result["seconds"]),
        "written to": result["out"],
    }
    if result["rejects_file"]:
        pairs["rejected rows"] = result["rejects_file"]
    show_pairs(f"built {result['index']}", pairs)
