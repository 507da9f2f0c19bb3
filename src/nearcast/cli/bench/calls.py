"""``nearcast bench calls``: the cost of single calls of an engine."""

from typing import Annotated

import typer

from nearcast.cli.bench.options import DATA, MEASURING, OUT, Dataset, Json, Out, Seed
from nearcast.cli.commands import NUMBER
from nearcast.cli.options import parse_counts, parse_names
from nearcast.cli.output import format_count, show_json, show_table, step_progress

__all__ = ["calls"]


def calls(
    dataset: Dataset = "tweets",
    subscriptions: Annotated[
        str,
        typer.Option(
            metavar="N,N,...",
            rich_help_panel=DATA,
            help="Numbers of subscriptions to measure with.",
        ),
    ] = "10000,10000000",
    calls: Annotated[
        int,
        typer.Option(
            metavar=NUMBER, min=1, rich_help_panel=MEASURING, help="Number of calls of each kind."
        ),
    ] = 10_000,
    seed: Seed = 0,
    out: Out = OUT,
    as_json: Json = False,
) -> None:
    """Measure calls of an engine with one object: publish, get, subscribe, move and unsubscribe."""
    from nearcast.benchmarks.calls import measure_calls
    from nearcast.benchmarks.report import write_result
    from nearcast.plots.machine import machine_caption

    sizes = [parse_counts(size, "--subscriptions")[0] for size in parse_names(subscriptions)]
    with step_progress(not as_json, "calls") as step:
        result = measure_calls(dataset, sizes, calls, seed, step)
    path = out / f"calls-{dataset}.json"
    write_result(result, path)
    if as_json:
        show_json(result)
        return
    rows = [
        [
            f"{row['subscriptions']:,}",
            row["call"],
            *(format_count(row[name]) for name in ("mean_us", "median_us", "p99_us")),
        ]
        for row in result["results"]
    ]
    show_table(
        "single calls, microseconds",
        ["subscriptions", "call", "mean", "median", "p99"],
        rows,
        f"{machine_caption(result['machine'])}; written to {path}",
    )
