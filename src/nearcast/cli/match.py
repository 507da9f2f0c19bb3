"""``nearcast match``: the matches of a file of messages with a file of subscriptions."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nearcast.cli.options import assignments
from nearcast.cli.output import count, progress, seconds, show_json, show_pairs, show_table
from nearcast.errors import InvalidInput

__all__ = ["match"]

_MAX_REASONS = 12


def match(
    subscriptions: Annotated[Path, typer.Option(help="Parquet, GeoParquet, CSV or NDJSON.")],
    messages: Annotated[Path, typer.Option(help="Parquet, CSV or NDJSON.")],
    out: Annotated[Path, typer.Option(help="File for the matches: .parquet, .csv or .ndjson.")],
    index: Annotated[str, typer.Option(help="See: nearcast indexes.")] = "trie-pyramid",
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Option of the index; repeat.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="How many threads match.")] = 1,
    rejects: Annotated[
        Path | None, typer.Option(help="File for bad rows.  [default: OUT.rejects.ndjson]")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--map", help="Draw the matches on a map, a PNG.")
    ] = None,
    strict: Annotated[bool, typer.Option(help="Exit with 3 when rows were rejected.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Match messages with subscriptions and write every pair.

    Bad rows are left out and written to the rejects file with the reason. A subscription that has
    expired at the time of a message does not match it.
    """
    options = assignments(option or [])
    from nearcast import indexes
    from nearcast.cli.match_job import MatchJob

    refused = rejects or out.with_name(f"{out.name}.rejects.ndjson")
    _check_picture(picture)
    builder = indexes.create(index, **options)
    job = MatchJob(subscriptions, messages, out, refused, builder, threads)
    map_data = _map_data(picture)
    with progress(not as_json) as start:
        summary = job.run(start, map_data)
    result = {
        "command": "match",
        "index": index,
        "options": vars(builder.options),
        "threads": threads,
        **summary.to_dict(),
        "out": str(out),
        "rejects_file": str(refused),
    }
    if picture is not None and map_data is not None:
        map_data.draw(picture, "Messages and the subscriptions that they match")
        result["map"] = str(picture)
    if as_json:
        show_json(result)
    else:
        _show(result)
    if strict and summary.rejected.total():
        raise typer.Exit(3)


def _check_picture(picture: Path | None) -> None:
    if picture is not None and picture.suffix.lower() != ".png":
        raise InvalidInput("--map", str(picture), "must be a file that ends in .png")


def _map_data(picture: Path | None) -> Any:
    if picture is None:
        return None
    from nearcast.plots.match_map import MapData

    return MapData()


def _show(result: dict[str, Any]) -> None:
    header = ["file", "read", "accepted", "rejected"]
    rows = [
        [name, *(count(result[name][key]) for key in header[1:])]
        for name in ("subscriptions", "messages")
    ]
    show_table("rows", header, rows)
    if result["rejects"]:
        shown = result["rejects"][:_MAX_REASONS]
        reasons = [[r["source"], r["field"], r["reason"], count(r["rows"])] for r in shown]
        more = len(result["rejects"]) - len(shown)
        caption = f"and {more} more reasons, see {result['rejects_file']}" if more else ""
        show_table("rejected", ["file", "field", "reason", "rows"], reasons, caption)
    spent = result["seconds"]
    pairs = {
        "matches": count(result["matches"]),
        "matches per message": count(result["matches_per_message"]),
        "examined per message": count(result["examined_per_message"]),
        "messages per second": count(round(result["messages_per_second"])),
        "reading": seconds(spent["read_subscriptions"] + spent.get("read_messages", 0.0)),
        "compiling or loading kernels": seconds(spent["compile"]),
        "building": seconds(spent["build"]),
        "matching": seconds(spent.get("match", 0.0)),
        "writing": seconds(spent.get("write", 0.0)),
        "written to": result["out"],
    }
    if result["visited_per_message"]:
        pairs["nodes visited per message"] = count(result["visited_per_message"])
    if result["rejects"]:
        pairs["rejected rows"] = result["rejects_file"]
    if "map" in result:
        pairs["map"] = result["map"]
    show_pairs(f"matched with {result['index']}", pairs)
