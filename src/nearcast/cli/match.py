"""``nearcast match``: match a file of messages with a file of subscriptions."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.commands import FILE, FILES, INDEX, INPUT, NUMBER, OUTPUT
from nearcast.cli.options import Owners, misuse, parse_index_options
from nearcast.cli.output import (
    format_count,
    format_seconds,
    progress,
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
from nearcast.cli.text_options import Tokenizer
from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from nearcast.cli.match_job import Summary
    from nearcast.intake import Reading

__all__ = ["match"]

_NOTHING_S = 0.001
_MAX_REASONS = 12
_MAX_NAMES = 12


def match(
    subscriptions: Annotated[
        Path,
        typer.Option(
            metavar=FILES,
            rich_help_panel=INPUT,
            help="Subscriptions: Parquet, GeoParquet, CSV, TSV, NDJSON or GeoJSON, also as .gz or "
            ".zst.",
        ),
    ],
    messages: Annotated[
        Path,
        typer.Option(
            metavar=FILES, rich_help_panel=INPUT, help="Messages, in any of these formats."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar=FILE,
            rich_help_panel=OUTPUT,
            help="File for the matches (with --moves: the updates): .parquet, .csv or .ndjson.",
        ),
    ],
    moves: Annotated[
        Path | None,
        typer.Option(
            metavar=FILES,
            rich_help_panel=INPUT,
            help="Moves of subscriptions. Moves and messages are replayed in the order of their "
            "times; every match that begins or ends is written as an update.",
        ),
    ] = None,
    ttl: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            rich_help_panel=INPUT,
            help="With --moves: how long messages live that have no ttl_s of their own.",
        ),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=INDEX,
            show_default="trie-pyramid; with --moves twin-lists",
            help="Index to match with; nearcast indexes lists them.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            rich_help_panel=INDEX,
            help="Option of the index. May be repeated.",
        ),
    ] = None,
    threads: Annotated[
        int,
        typer.Option(metavar=NUMBER, min=1, rich_help_panel=INDEX, help="Number of threads."),
    ] = 1,
    similarity: Similarity = "containment",
    distance: Distance = "geodesic",
    tokenizer: Tokenizer = "words",
    top: Annotated[
        int | None,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=OUTPUT,
            show_default="all",
            help="Write at most N matches per message, the best first.",
        ),
    ] = None,
    owners: Owners = False,
    column: Columns = None,
    id: MadeIds = None,
    encoding: Encodings = None,
    delimiter: Delimiters = None,
    format: Formats = None,
    rejects: Annotated[
        Path | None,
        typer.Option(
            metavar=FILE,
            rich_help_panel=OUTPUT,
            show_default="OUT.rejects.ndjson",
            help="File for invalid rows, with the reasons.",
        ),
    ] = None,
    map_path: Annotated[
        Path | None,
        typer.Option(
            "--map", metavar=FILE, rich_help_panel=OUTPUT, help="Draw a map of the matches: .png."
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(rich_help_panel=OUTPUT, help="Exit with code 3 if rows were rejected."),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", rich_help_panel=OUTPUT, help="Print the summary as JSON."),
    ] = False,
) -> None:
    """Match files of messages with subscriptions, and write every match.

    Boolean and ranked subscriptions may be in one file. A subscription that expires before the
    time of a message does not match it. Invalid rows are skipped, and written to the rejects file
    with the reason. The exit code is 1 if all rows of a file are invalid.
    """
    reading = ReadingOptions(column, id, encoding, delimiter, format)
    paths = {"subscriptions": subscriptions, "messages": messages}
    rejects_path = rejects or out.with_name(f"{out.name}.rejects.ndjson")
    if moves is not None:
        _refuse(
            "cannot be used with --moves",
            top=top,
            map=map_path,
            threads=threads > 1 or None,
            owners=owners or None,
        )
        from nearcast.indexes import moving

        index = index or "twin-lists"
        options = parse_index_options(option or [], [moving.get(index).Options])
        files = subscriptions, messages, moves, out, rejects_path
        readings = reading.readings({**paths, "moves": moves})
        given = ReplayOptions(
            *files, index, options, ttl, similarity, distance, readings, tokenizer
        )
        _replay(given, strict=strict, as_json=as_json)
        return
    _refuse("needs --moves", ttl=ttl)
    index = index or "trie-pyramid"
    from nearcast import indexes
    from nearcast.cli.match_job import MatchJob
    from nearcast.columns import Scoring
    from nearcast.indexes import moving
    from nearcast.indexes.registry import option_classes

    if index in moving.names():
        raise misuse(
            "--index", "is an index of moving subscriptions; choose another, or add --moves", index
        )

    _check_map_path(map_path)
    options = parse_index_options(option or [], option_classes(index))
    builder = indexes.create(index, **options)
    scoring = Scoring(similarity, distance)
    readings = reading.readings(paths)
    job = MatchJob(
        subscriptions,
        messages,
        out,
        rejects_path,
        builder,
        threads,
        scoring,
        top=top,
        readings=readings,
        tokenizer=tokenizer,
        owners=owners,
    )
    map_data = _map_data(map_path)
    with progress(not as_json) as start:
        summary = job.run(start, map_data)
    result = {
        "command": "match",
        "index": index,
        "options": vars(builder.options),
        "threads": threads,
        "similarity": similarity,
        "distance": distance,
        "tokenizer": tokenizer,
        "top": top,
        **summary.to_dict(),
        "out": str(out),
        "rejects_file": str(rejects_path),
    }
    if map_path is not None and map_data is not None:
        map_data.draw(map_path, "Messages and the subscriptions that they match")
        result["map"] = str(map_path)
    if as_json:
        show_json(result)
    else:
        _show(result)
    _exit(summary, (*paths,), strict)


def _exit(summary: "Summary", sources: tuple[str, ...], strict: bool) -> None:
    """Exit with the code of a job that is done, and say why if it failed."""
    failure = summary.failure(sources)
    if failure is not None:
        typer.echo(f"nearcast: {failure}", err=True)
        raise typer.Exit(1)
    if strict and summary.rejected.total():
        raise typer.Exit(3)


@dataclass(frozen=True)
class ReplayOptions:
    """What a replay reads and writes, and with which index."""

    subscriptions: Path
    messages: Path
    moves: Path
    out: Path
    rejects: Path
    index: str
    options: dict[str, Any]
    ttl_s: float | None
    similarity: str
    distance: str
    readings: "dict[str, Reading]"
    tokenizer: str


def _replay(given: ReplayOptions, *, strict: bool, as_json: bool) -> None:
    from nearcast.cli.replay_job import ReplayJob

    with progress(not as_json) as start:
        summary = ReplayJob(**vars(given)).run(start)
    names = ("subscriptions", "messages", "moves")
    result: dict[str, Any] = {
        "command": "match",
        "index": given.index,
        "options": given.options,
        **{name: summary.rows(name) for name in names},
        "rejects": summary.reasons_list(),
        "columns": summary.columns(),
        "hints": summary.hints,
        "updates": summary.matches,
        "seconds": summary.seconds,
        "out": str(given.out),
        "rejects_file": str(given.rejects),
    }
    if as_json:
        show_json(result)
    else:
        _show_rows(result, names)
        pairs = {
            "updates": format_count(result["updates"]),
            "replaying": format_seconds(summary.seconds["match"]),
            "written to": result["out"],
        }
        show_pairs(f"replayed with {given.index}", pairs)
        _show_hints(result)
    _exit(summary, names, strict)


def _refuse(problem: str, **options: Any) -> None:
    """Raise an error if one of the options was given."""
    for name, value in options.items():
        if value is not None:
            raise misuse(f"--{name}", problem)


def _check_map_path(map_path: Path | None) -> None:
    if map_path is not None and map_path.suffix.lower() != ".png":
        raise InvalidInput("--map", str(map_path), "must be a file that ends in .png")


def _map_data(map_path: Path | None) -> Any:
    if map_path is None:
        return None
    from nearcast.plots.match_map import MapData

    return MapData()


def _show_rows(result: dict[str, Any], names: tuple[str, ...]) -> None:
    """Show how many rows of each file were read, accepted and rejected, and why."""
    header = ["file", "read", "accepted", "rejected"]
    rows = [[name, *(format_count(result[name][key]) for key in header[1:])] for name in names]
    show_table("rows", header, rows)
    columns = {}
    for name, found in result["columns"].items():
        if found["taken"]:
            taken = [f"{theirs} as {ours}" for ours, theirs in found["taken"].items()]
            columns[f"{name}: recognized"] = ", ".join(taken)
        if found["unused"]:
            columns[f"{name}: unused"] = _short_list(found["unused"])
    if columns:
        show_pairs("columns", columns)
    if result["rejects"]:
        shown = result["rejects"][:_MAX_REASONS]
        reasons = [[r["source"], r["field"], r["reason"], format_count(r["rows"])] for r in shown]
        more = len(result["rejects"]) - len(shown)
        caption = f"{more:,} more reasons: see {result['rejects_file']}" if more else ""
        show_table("rejected", ["file", "field", "reason", "rows"], reasons, caption)


def _compiling(seconds: float) -> str:
    """Return how long kernels were compiled; small files are matched without that, at first."""
    return format_seconds(seconds) if seconds > _NOTHING_S else "as needed, while matching"


def _used(index: str, by_kind: dict[str, str]) -> str:
    """Return the index that was used, or which ones if the chosen one does not take all kinds."""
    if {*by_kind.values()} == {index}:
        return index
    used = ", ".join(f"{name} ({kind} subscriptions)" for kind, name in by_kind.items())
    others = " or ".join(kind for kind, name in by_kind.items() if name != index)
    return f"{used}: {index} does not take {others} ones"


def _short_list(names: list[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _show_hints(result: dict[str, Any]) -> None:
    for hint in result["hints"]:
        typer.echo(f"hint: {hint}")


def _show(result: dict[str, Any]) -> None:
    _show_rows(result, ("subscriptions", "messages"))
    spent = result["seconds"]
    pairs = {
        "matches": format_count(result["matches"]),
        "matches per message": format_count(result["matches_per_message"]),
        "examined per message": format_count(result["examined_per_message"]),
        "messages per second": format_count(round(result["messages_per_second"])),
        "reading": format_seconds(spent["read_subscriptions"] + spent.get("read_messages", 0.0)),
        "compiling or loading kernels": _compiling(spent["compile"]),
        "building": format_seconds(spent["build"]),
        "matching": format_seconds(spent.get("match", 0.0)),
        "writing": format_seconds(spent.get("write", 0.0)),
        "written to": result["out"],
    }
    if result["visited_per_message"]:
        pairs["nodes visited per message"] = format_count(result["visited_per_message"])
    if result["rejects"]:
        pairs["rejected rows"] = result["rejects_file"]
    if "map" in result:
        pairs["map"] = result["map"]
    show_pairs(f"matched with {_used(result['index'], result['indexes'])}", pairs)
    _show_hints(result)
