"""``nearcast generate``: write files with generated subscriptions and messages."""

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.commands import FOLDER, NUMBER
from nearcast.cli.moving_options import (
    MOVING,
    Capacity,
    Destinations,
    Goals,
    Interval,
    Lattice,
    MessagePlaces,
    Mobility,
    Roads,
    Route,
    Speeds,
    Ticks,
    TickSeconds,
    TimeToLive,
    Velocity,
    Words,
    check_moving,
)
from nearcast.cli.options import parse_counts, parse_shares
from nearcast.cli.output import (
    Advance,
    format_count,
    format_seconds,
    format_size,
    progress,
    show_json,
    show_table,
)
from nearcast.cli.ranked_options import (
    Alpha,
    Delta,
    MaxDistance,
    Tau,
    Theta,
    parse_ranges,
)
from nearcast.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from nearcast.datasets import Workload

__all__ = ["Format", "RankedKind", "generate"]

CHUNK_ROWS = 100_000
DEFAULT_TICKS = 10
_CONTENT = "Content of the rows"
TOKENS = {"short": None, "long": (100, 1000)}


class Format(StrEnum):
    """The formats of generated files."""

    PARQUET = "parquet"
    CSV = "csv"
    NDJSON = "ndjson"


class RankedKind(StrEnum):
    """Kinds of ranked subscriptions to generate."""

    PROXIMITY = "proximity"
    OVERLAP = "overlap"
    MIXED = "mixed"


def generate(
    out: Annotated[
        Path, typer.Option(metavar=FOLDER, help="Folder for the files; created if missing.")
    ],
    dataset: Annotated[
        str,
        typer.Option(
            metavar="tweets|places|moving",
            help="Data set: tweets (short texts, dense in cities), places (points of interest), or "
            "moving (subscribers who drive on roads).",
        ),
    ] = "tweets",
    subscriptions: Annotated[
        int, typer.Option(metavar=NUMBER, min=0, help="Number of subscriptions.")
    ] = 100_000,
    messages: Annotated[
        int, typer.Option(metavar=NUMBER, min=0, help="Number of messages.")
    ] = 10_000,
    seed: Annotated[
        int, typer.Option(metavar=NUMBER, min=0, help="The same seed gives the same rows.")
    ] = 0,
    tokens: Annotated[
        str,
        typer.Option(
            metavar="short|long|A-B",
            rich_help_panel=_CONTENT,
            help="Words per message: short (as usual in the data set), long (100-1000) or a range.",
        ),
    ] = "short",
    range_share: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0,
            max=1,
            rich_help_panel=_CONTENT,
            help="If above 0, messages are rectangles instead of points, with up to this share of "
            "the area of the world.",
        ),
    ] = 0.0,
    box_share: Annotated[
        str | None,
        typer.Option(
            metavar="A-B",
            rich_help_panel=_CONTENT,
            show_default="as usual in the data set",
            help="Area of a subscription's rectangle, as a share of the world (with --dataset "
            "moving: of the road network).",
        ),
    ] = None,
    keywords: Annotated[
        str | None,
        typer.Option(
            metavar="A-B",
            rich_help_panel=_CONTENT,
            show_default="as usual in the data set",
            help="Keywords per subscription.",
        ),
    ] = None,
    ranked: Annotated[
        RankedKind | None,
        typer.Option(
            metavar="proximity|overlap|mixed",
            rich_help_panel="Ranked subscriptions",
            help="Generate ranked subscriptions: by the distance from a point, or by the overlap "
            "with a rectangle. mixed: a third each of proximity, overlap and boolean.",
        ),
    ] = None,
    delta: Delta = None,
    tau: Tau = None,
    max_distance_m: MaxDistance = None,
    alpha: Alpha = None,
    theta: Theta = None,
    words: Words = None,
    roads: Roads = None,
    lattice: Lattice = None,
    route: Route = None,
    destinations: Destinations = None,
    goals: Goals = None,
    speeds: Speeds = None,
    velocity: Velocity = None,
    mobility: Mobility = None,
    interval: Interval = None,
    tick_s: TickSeconds = None,
    ticks: Ticks = None,
    ttl_s: TimeToLive = None,
    message_places: MessagePlaces = None,
    capacity_per_km: Capacity = None,
    format: Annotated[
        Format, typer.Option(metavar="parquet|csv|ndjson", help="Format of the files.")
    ] = Format.PARQUET,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Generate files with subscriptions and messages, to try Nearcast or to measure it.

    Writes subscriptions, messages and manifest.json (all options that were used) to the folder;
    with --dataset moving also moves. A range A-B gives every row a random number between A and B;
    a single number A is allowed, too.
    """
    moving: dict[str, Any] = {
        "words": words,
        "roads": roads,
        "lattice": lattice,
        "route": route,
        "destinations": destinations,
        "goals": goals,
        "speeds": speeds,
        "velocity": velocity,
        "mobility": mobility,
        "interval": interval,
        "tick_s": tick_s,
        "ticks": ticks,
        "ttl_s": ttl_s,
        "message_places": message_places,
        "capacity_per_km": capacity_per_km,
    }
    check_moving(dataset, moving, {"ranked": ranked, "range_share": range_share or None})
    ranges = parse_ranges(
        _ranked_kinds(ranked),
        delta=delta,
        tau=tau,
        max_distance_m=max_distance_m,
        alpha=alpha,
        theta=theta,
    )
    drawn: dict[str, Any] = {
        "tokens": TOKENS[tokens] if tokens in TOKENS else parse_counts(tokens, "--tokens"),
        "box_share": None if box_share is None else parse_shares(box_share, "--box-share"),
        "keywords": None if keywords is None else parse_counts(keywords, "--keywords"),
    }
    options = {
        "dataset": dataset,
        "subscriptions": subscriptions,
        "messages": messages,
        "seed": seed,
    }
    with progress(not as_json) as start:
        if dataset == MOVING:
            more, files = _write_moving(out, options, drawn, moving, format, start)
        else:
            still = {"range_share": range_share, "ranked": ranked, "ranges": ranges}
            more, files = _write_still(out, options, drawn, still, format, start)
    manifest = {"command": "generate", **options, **more, "format": format.value, "files": files}
    _write_manifest(out / "manifest.json", manifest)
    if as_json:
        show_json(manifest)
    else:
        _show(out, files)


def _write_moving(
    out: Path,
    options: dict[str, Any],
    drawn: dict[str, Any],
    moving: dict[str, Any],
    format: Format,
    start: "Callable[[str], Advance]",
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write subscriptions that move, their moves, and messages; return options and files."""
    from nearcast.cli.generate_moving import describe_workload, make_workload, write_moving

    ticks = moving["ticks"] or DEFAULT_TICKS
    workload = make_workload(
        moving,
        subscriptions=options["subscriptions"],
        messages=options["messages"],
        ticks=ticks,
        seed=options["seed"],
        **drawn,
    )
    files = write_moving(
        out, workload, ticks=ticks, format=format.value, chunk_rows=CHUNK_ROWS, start=start
    )
    return {"ticks": ticks, **describe_workload(workload, moving["roads"])}, files


def _write_still(
    out: Path,
    options: dict[str, Any],
    drawn: dict[str, Any],
    still: dict[str, Any],
    format: Format,
    start: "Callable[[str], Advance]",
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write subscriptions and messages; return options and files."""
    from nearcast.datasets import DATASETS, Workload

    if options["dataset"] not in DATASETS:
        raise UnknownName("dataset", options["dataset"], (*DATASETS, MOVING))
    changes = {name: drawn[name] for name in ("box_share", "keywords") if drawn[name] is not None}
    workload = Workload(options["dataset"], options["seed"], **changes)
    ranked, ranges, range_share = still["ranked"], still["ranges"], still["range_share"]
    more = {
        "tokens": list(drawn["tokens"] or workload.profile.message_tokens),
        "range_share": range_share,
        "box_share": list(workload.profile.box_share),
        "keywords": list(workload.profile.keywords),
    }
    if ranked is not None:
        from nearcast.datasets.ranges import show_ranges

        more |= {"ranked": ranked.value, **show_ranges(ranges)}
    files = {
        "subscriptions": _write(
            out / f"subscriptions.{format.value}",
            lambda first, rows: _subscriptions(workload, ranked, ranges, first, rows),
            options["subscriptions"],
            start("subscriptions"),
        ),
        "messages": _write(
            out / f"messages.{format.value}",
            lambda first, rows: _messages(workload, first, rows, drawn["tokens"], range_share),
            options["messages"],
            start("messages"),
        ),
    }
    return more, files


def _ranked_kinds(ranked: RankedKind | None) -> tuple[str, ...]:
    """Return the ranked kinds of the subscriptions to draw."""
    if ranked is None:
        return ()
    return ("proximity", "overlap") if ranked is RankedKind.MIXED else (ranked.value,)


def _subscriptions(
    workload: "Workload",
    ranked: RankedKind | None,
    ranges: dict[str, dict[str, Any]],
    first: int,
    rows: int,
) -> "pa.Table":
    from nearcast.datasets.tables import subscription_table

    if ranked is None:
        return subscription_table(workload, workload.subscriptions(rows, first=first), first=first)
    if ranked is RankedKind.MIXED:
        drawn = workload.mixed(rows, first=first, **ranges)
        kinds = ("boolean", *ranges)
    else:
        drawn = workload.ranked(rows, ranked.value, first=first, **ranges[ranked.value])
        kinds = (ranked.value,)
    # A chunk may lack rows of a kind; all chunks must have the same columns.
    return subscription_table(workload, drawn, kinds=kinds, first=first)


def _messages(
    workload: "Workload",
    first: int,
    rows: int,
    tokens: tuple[int, int] | None,
    range_share: float,
) -> "pa.Table":
    from nearcast.datasets.tables import message_table

    drawn = workload.messages(rows, tokens=tokens, range_share=range_share, first=first)
    return message_table(workload, drawn, boxes=range_share > 0, first=first)


def _write(
    path: Path, draw: "Callable[[int, int], pa.Table]", rows: int, advance: Advance
) -> dict[str, Any]:
    """Draw and write rows in chunks; return the entry for the manifest."""
    from nearcast.cli.writers import open_writer

    began = time.perf_counter()
    with open_writer(path, draw(0, 0).schema) as writer:
        for first, last in _chunks(rows):
            writer.write(draw(first, last - first))
            advance(last, rows)
    taken = time.perf_counter() - began
    return {"file": path.name, "rows": rows, "bytes": path.stat().st_size, "seconds": taken}


def _chunks(rows: int) -> "Iterator[tuple[int, int]]":
    for first in range(0, rows, CHUNK_ROWS):
        yield first, min(first + CHUNK_ROWS, rows)


def _write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    from nearcast.cli.writers import write_atomically

    # Without durations, so that the same options give the same bytes.
    files = {
        name: {key: value for key, value in file.items() if key != "seconds"}
        for name, file in manifest["files"].items()
    }
    write_atomically(path, json.dumps({**manifest, "files": files}, indent=2).encode() + b"\n")


def _show(out: Path, files: dict[str, dict[str, Any]]) -> None:
    rows = [
        [
            str(out / f["file"]),
            format_count(f["rows"]),
            format_size(f["bytes"]),
            format_seconds(f["seconds"]),
        ]
        for f in files.values()
    ]
    show_table("generated", ["file", "rows", "bytes", "time"], rows)
