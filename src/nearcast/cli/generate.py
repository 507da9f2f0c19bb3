"""``nearcast generate``: write files with generated subscriptions and messages."""

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    show_ranges,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from nearcast.datasets import Workload

__all__ = ["Format", "RankedKind", "generate"]

CHUNK_ROWS = 100_000
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
    out: Annotated[Path, typer.Option(help="Folder for the files; created if missing.")],
    dataset: Annotated[str, typer.Option(help="tweets or places.")] = "tweets",
    subscriptions: Annotated[int, typer.Option(min=0, help="Number of subscriptions.")] = 100_000,
    messages: Annotated[int, typer.Option(min=0, help="Number of messages.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same rows.")] = 0,
    tokens: Annotated[
        str, typer.Option(help="Tokens per message: short, long (100-1000) or A-B.")
    ] = "short",
    range_share: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="If above 0, messages are boxes of up to this share of the world."
        ),
    ] = 0.0,
    box_share: Annotated[
        str | None,
        typer.Option(metavar="A-B", help="Area of a subscription's box, as a share of the world."),
    ] = None,
    keywords: Annotated[
        str | None, typer.Option(metavar="A-B", help="Keywords per subscription.")
    ] = None,
    ranked: Annotated[
        RankedKind | None,
        typer.Option(help="Ranked subscriptions; mixed has a third each of them and of boolean."),
    ] = None,
    delta: Delta = None,
    tau: Tau = None,
    max_distance_m: MaxDistance = None,
    alpha: Alpha = None,
    theta: Theta = None,
    format: Annotated[Format, typer.Option(help="Format of the files.")] = Format.PARQUET,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Generate subscriptions and messages of a data set; a seed always gives the same rows.

    Writes subscriptions.EXT, messages.EXT and manifest.json (all options) to the folder.
    """
    from nearcast.datasets import Workload

    changes: dict[str, Any] = {}
    if box_share is not None:
        changes["box_share"] = parse_shares(box_share)
    if keywords is not None:
        changes["keywords"] = parse_counts(keywords)
    ranges = parse_ranges(
        _ranked_kinds(ranked),
        delta=delta,
        tau=tau,
        max_distance_m=max_distance_m,
        alpha=alpha,
        theta=theta,
    )
    token_range = TOKENS[tokens] if tokens in TOKENS else parse_counts(tokens)
    workload = Workload(dataset, seed, **changes)
    options = {
        "dataset": dataset,
        "subscriptions": subscriptions,
        "messages": messages,
        "seed": seed,
        "tokens": list(token_range or workload.profile.message_tokens),
        "range_share": range_share,
        "box_share": list(workload.profile.box_share),
        "keywords": list(workload.profile.keywords),
        "format": format.value,
    }
    if ranked is not None:
        options |= {"ranked": ranked.value, **show_ranges(ranges)}
    with progress(not as_json) as start:
        files = {
            "subscriptions": _write(
                out / f"subscriptions.{format.value}",
                lambda first, rows: _subscriptions(workload, ranked, ranges, first, rows),
                subscriptions,
                start("subscriptions"),
            ),
            "messages": _write(
                out / f"messages.{format.value}",
                lambda first, rows: _messages(workload, first, rows, token_range, range_share),
                messages,
                start("messages"),
            ),
        }
    manifest = {"command": "generate", **options, "files": files}
    _write_manifest(out / "manifest.json", manifest)
    if as_json:
        show_json(manifest)
    else:
        _show(out, files)


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
