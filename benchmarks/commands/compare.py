"""``nearcast bench compare``: compare indexes on one workload."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.commands.options import OUT, Dataset, Json, Out, Rounds, Seed
from nearcast.cli.options import parse_assignments, parse_names
from nearcast.cli.output import (
    format_count,
    format_seconds,
    format_size,
    show_json,
    show_table,
    step_progress,
)

if TYPE_CHECKING:
    from nearcast.indexes import Builder

__all__ = ["compare"]


def compare(
    dataset: Dataset = "tweets",
    subscriptions: Annotated[int, typer.Option(min=1, help="Number of subscriptions.")] = 100_000,
    messages: Annotated[int, typer.Option(min=1, help="Number of messages.")] = 10_000,
    index: Annotated[
        str,
        typer.Option(
            metavar="A,B,...", help="Names; options as NAME:option=value.  [default: all but scan]"
        ),
    ] = "",
    group: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="Groups of messages: short-point, long-point, short-range, long-range, or all.",
        ),
    ] = "short-point",
    range_share: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Largest area of a range message, as a share of the world."
        ),
    ] = 0.0001,
    rounds: Rounds = 5,
    sample: Annotated[
        int, typer.Option(min=1, help="Number of messages to compare with the scan.")
    ] = 20,
    threads: Annotated[int, typer.Option(min=1, help="Number of threads.")] = 1,
    seed: Seed = 0,
    out: Out = OUT,
    as_json: Json = False,
) -> None:
    """Compare indexes on one workload, after checking each against the scan.

    Each group of messages gets its own result files.
    """
    builders = _builders(index)
    from benchmarks.compare import GROUPS, Comparison
    from benchmarks.compare import compare as run
    from benchmarks.plot_compare import plot_comparison
    from benchmarks.report import write_result

    plan = Comparison(
        dataset,
        subscriptions,
        messages,
        builders,
        seed=seed,
        groups=tuple(GROUPS) if group == "all" else tuple(parse_names(group)),
        range_share=range_share,
        rounds=rounds,
        sample=sample,
        threads=threads,
    )
    with step_progress(not as_json, "comparing") as step:
        results = run(plan, step)
    for result in results:
        first = result["group"] == "short-point"
        name = f"compare-{dataset}-{subscriptions}" + ("" if first else f"-{result['group']}")
        write_result(result, out / f"{name}.json")
        plot_comparison(result, out / f"{name}.png")
        if not as_json:
            _show(result, out / name)
    if as_json:
        show_json(results if len(results) > 1 else results[0])


def _builders(names: str) -> "dict[str, Builder]":
    """Parse ``a,b:option=value``; each whole item is also the name in the report."""
    from nearcast import indexes

    builders = {}
    for label in parse_names(names) or [name for name in indexes.names() if name != "scan"]:
        name, *options = label.split(":")
        builders[label] = indexes.create(name, **parse_assignments(options))
    return builders


def _show(result: dict[str, Any], stem: Path) -> None:
    from nearcast.plots.machine import machine_caption

    header = [
        "index",
        "µs/message",
        "least-most",
        "messages/s",
        "matches/msg",
        "examined/msg",
        "visited/msg",
        "bytes/sub",
        "build",
        "peak",
        "compile",
    ]
    rows = [
        [
            r["index"],
            format_count(r["us_per_message"]["median"]),
            f"{format_count(r['us_per_message']['least'])}-{format_count(r['us_per_message']['most'])}",
            format_count(round(r["messages_per_second"])),
            format_count(r["matches_per_message"]),
            format_count(r["examined_per_message"]),
            format_count(r["visited_per_message"]),
            format_count(r["bytes_per_subscription"]),
            format_seconds(r["build_s"]),
            format_size(r["build_peak_bytes"]),
            format_seconds(r["compile_s"]),
        ]
        for r in result["results"]
    ]
    title = (
        f"{result['dataset']}, {result['subscriptions']:,} subscriptions, "
        f"{result['messages']:,} {result['group']} messages, {result['rounds']} rounds"
    )
    caption = f"{machine_caption(result['machine'])}\n{stem}.json, {stem}.png"
    show_table(title, header, rows, caption)
