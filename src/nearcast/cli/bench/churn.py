"""``nearcast bench churn``: insert and delete subscriptions while messages are matched."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nearcast.cli.bench.options import DATA, MEASURING, OUT, Dataset, Json, Out, Seed
from nearcast.cli.commands import FILE, NUMBER
from nearcast.cli.output import format_count, format_seconds, show_json, show_table, step_progress

__all__ = ["churn"]


def churn(
    runbook: Annotated[
        Path | None,
        typer.Option(
            metavar=FILE,
            rich_help_panel=DATA,
            show_default="10% inserts, 10% deletes, 80% messages",
            help="JSON file with the data set, the sizes and the steps of a run.",
        ),
    ] = None,
    dataset: Dataset = "tweets",
    subscriptions: Annotated[
        int,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=DATA,
            help="Number of subscriptions at the start.",
        ),
    ] = 100_000,
    operations: Annotated[
        int | None,
        typer.Option(
            metavar=NUMBER,
            min=10,
            rich_help_panel=DATA,
            show_default="as many as subscriptions, up to 200,000",
            help="Number of inserts, deletes and messages.",
        ),
    ] = None,
    batch: Annotated[
        int,
        typer.Option(
            metavar=NUMBER, min=1, rich_help_panel=MEASURING, help="Number of rows per call."
        ),
    ] = 1_000,
    index: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=MEASURING,
            help="Index of the engine; nearcast indexes lists them.",
        ),
    ] = "trie-pyramid",
    seed: Seed = 0,
    out: Out = OUT,
    as_json: Json = False,
) -> None:
    """Measure an engine while subscriptions are inserted and deleted and messages are published.

    With --runbook, the data set, the sizes and the steps come from the file.
    """
    from nearcast.benchmarks.churn import churn as run
    from nearcast.benchmarks.plot_churn import plot_churn
    from nearcast.benchmarks.report import write_result
    from nearcast.benchmarks.runbook import mixed_load, read_runbook

    if runbook is not None:
        plan = read_runbook(runbook)
    else:
        mixed = operations or max(10, min(200_000, subscriptions))
        plan = mixed_load(subscriptions, mixed, dataset=dataset, batch=batch)
    with step_progress(not as_json, "churning") as step:
        result = run(plan, index=index, seed=seed, step=step)
    name = f"churn-{plan.dataset}-{result['subscriptions']}"
    write_result(result, out / f"{name}.json")
    plot_churn(result, out / f"{name}.png")
    if as_json:
        show_json(result)
    else:
        _show(result, out / name)


def _show(result: dict[str, Any], stem: Path) -> None:
    from nearcast.plots.machine import machine_caption

    header = ["step", "operation", "operations", "µs each", "operations/s", "batch", "batch p99"]
    rows = [
        row
        for number, step in enumerate(result["steps"])
        for row in _rows(f"{number + 1} {step['do']}", step)
    ]
    fresh = result["fresh"]
    if fresh["search"] is not None:
        rows += _rows("freshly built", fresh)
    last = result["steps"][-1]
    caption = (
        f"including {format_count(fresh['reading_us_per_message'])} µs to read a message; "
        f"{len(last['segments'])} segments at the end, {fresh['verified_messages']:,} messages "
        f"compared with the freshly built engine\n{machine_caption(result['machine'])}\n"
        f"{stem}.json, {stem}.png"
    )
    title = f"{result['runbook']['dataset']}, runbook {result['runbook']['name']}"
    show_table(f"{title}, {result['index']}", [*header, "segments"], rows, caption)


def _rows(name: str, step: dict[str, Any]) -> list[list[str]]:
    segments = str(len(step["segments"])) if "segments" in step else "1"
    kinds = [kind for kind in ("insert", "delete", "search") if step.get(kind) is not None]
    rows = [
        [
            name,
            {"insert": "inserts", "delete": "deletes", "search": "messages"}[kind],
            format_count(step[kind]["operations"]),
            format_count(step[kind]["us_per_operation"]),
            format_count(round(step[kind]["operations_per_second"])),
            format_seconds(step[kind]["batch_median_ms"] / 1e3),
            format_seconds(step[kind]["batch_p99_ms"] / 1e3),
            segments,
        ]
        for kind in kinds
    ]
    if len(rows) > 1:
        total = sum(step[kind]["operations"] for kind in kinds)
        rate = format_count(round(step["operations_per_second"]))
        rows.append([name, "all", format_count(total), "", rate, "", "", segments])
    return rows or [[name, "", "", "", "", format_seconds(step["seconds"]), "", segments]]
