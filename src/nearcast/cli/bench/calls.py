"""``nearcast bench calls``: the cost of single calls of an engine."""

from typing import Annotated

import typer

from nearcast.cli.bench.options import OUT, Dataset, Json, Out, Seed
from nearcast.cli.output import format_count, show_json, show_table, step_progress

__all__ = ["calls"]


def calls(
    dataset: Dataset = "tweets",
    subscriptions: Annotated[
        str, typer.Option(help="Numbers of subscriptions, separated by commas.")
    ] = "10000,10000000",
    calls: Annotated[int, typer.Option(min=1, help="Number of calls of each kind.")] = 10_000,
    seed: Seed = 0,
    out: Out = OUT,
    as_json: Json = False,
) -> None:
    """Measure publish, get, subscribe, move and unsubscribe, one object at a time."""
    from nearcast.benchmarks.calls import measure_calls
    from nearcast.benchmarks.report import write_result
    from nearcast.plots.machine import machine_caption

    sizes = [int(size) for size in subscriptions.split(",")]
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
