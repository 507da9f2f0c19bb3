"""``nearcast bench spark``: compare the Spark pipeline with one process."""

from typing import Annotated, Any

import typer

from nearcast.cli.bench.options import (
    DATA,
    MEASURING,
    OUT,
    Dataset,
    Json,
    Messages,
    Out,
    Rounds,
    Seed,
    Subscriptions,
)
from nearcast.cli.commands import NUMBER
from nearcast.cli.output import (
    format_count,
    format_seconds,
    format_size,
    show_json,
    show_pairs,
    show_table,
    step_progress,
)

__all__ = ["spark"]


def spark(
    dataset: Dataset = "tweets",
    subscriptions: Subscriptions = 5_000_000,
    messages: Messages = 1_000_000,
    shards: Annotated[
        int,
        typer.Option(
            metavar=NUMBER,
            min=2,
            rich_help_panel=DATA,
            help="Number of shards of the sharded index.",
        ),
    ] = 4,
    prepared: Annotated[
        int,
        typer.Option(
            metavar=NUMBER,
            min=10,
            rich_help_panel=DATA,
            help="Number of messages for the measurement of nearcast spark prepare.",
        ),
    ] = 10_000_000,
    ids: Annotated[
        str,
        typer.Option(metavar="integer|string", rich_help_panel=DATA, help="Type of the ids."),
    ] = "integer",
    master: Annotated[
        str,
        typer.Option(
            metavar="URL", rich_help_panel=MEASURING, help="Spark master, such as local[4]."
        ),
    ] = "local[2]",
    rounds: Rounds = 3,
    seed: Seed = 0,
    out: Out = OUT,
    as_json: Json = False,
) -> None:
    """Measure building, matching and preparing on Spark, compared with one process without it."""
    from nearcast.benchmarks.report import write_result
    from nearcast.benchmarks.spark import SparkRun, measure_spark
    from nearcast.plots.machine import machine_caption
    from nearcast.spark.session import session

    plan = SparkRun(
        dataset, subscriptions, messages, shards, prepared, rounds, seed, ids, out / "spark"
    )
    running = session(master, spark__driver__memory="2g")
    with step_progress(not as_json, "spark") as step:
        result = measure_spark(running, plan, step)
    path = out / f"spark-{dataset}-{subscriptions}-{ids}.json"
    write_result(result, path)
    if as_json:
        show_json(result)
        return
    _show(result)
    show_pairs("", {"machine": machine_caption(result["machine"]), "written to": str(path)})


def _show(result: dict[str, Any]) -> None:
    rows = []
    for job, key in (("build", "build_s"), ("match", "match_s")):
        in_process = result[key]["in_process"]["median"]
        for name, spent in result[key].items():
            rate = (result["subscriptions" if job == "build" else "messages"]) / spent["median"]
            rows.append(
                [
                    job,
                    name.replace("_", " "),
                    format_seconds(spent["median"]),
                    f"{format_seconds(spent['least'])}-{format_seconds(spent['most'])}",
                    format_count(round(rate)),
                    f"{in_process / spent['median']:.2f}",
                ]
            )
    header = ["job", "mode", "time", "min-max", "rows per second", "speed-up over one process"]
    title = (
        f"{result['dataset']}: {format_count(result['subscriptions'])} subscriptions, "
        f"{format_count(result['messages'])} messages, "
        f"{format_count(result['matches_per_message'])} matches each, {result['ids']} ids, "
        f"on {result['master']}"
    )
    show_table(title, header, rows)
    memory = [
        [
            format_count(one["read"]),
            format_seconds(one["seconds"]),
            format_count(round(one["read"] / one["seconds"])),
            format_size(one["driver_growth_bytes"]),
            format_size(one["driver_heap_bytes"]),
        ]
        for one in result["prepare"]
    ]
    header = ["messages prepared", "time", "per second", "growth of driver", "heap of its JVM"]
    show_table("preparing", header, memory)
