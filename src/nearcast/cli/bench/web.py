"""``nearcast bench web``: the page in Chromium."""

import os
from typing import Annotated

import typer

from nearcast.cli.bench.options import DATA, MEASURING, OUT, Json, Out, Rounds, Seed, Subscriptions
from nearcast.cli.commands import NUMBER
from nearcast.cli.output import show_json, show_table, step_progress

__all__ = ["web"]


def web(
    subscriptions: Subscriptions = 1_000,
    events_per_s: Annotated[
        int,
        typer.Option(metavar=NUMBER, min=1, rich_help_panel=DATA, help="Events a second."),
    ] = 200,
    seconds: Annotated[
        float,
        typer.Option(
            metavar=NUMBER, min=1, rich_help_panel=MEASURING, help="How long events are traced."
        ),
    ] = 60.0,
    minutes: Annotated[
        float,
        typer.Option(
            metavar=NUMBER, min=0, rich_help_panel=MEASURING, help="How long the heap is watched."
        ),
    ] = 10.0,
    rounds: Rounds = 3,
    seed: Seed = 0,
    out: Out = OUT,
    as_json: Json = False,
) -> None:
    """Measure the page in Chromium: first paint, size, long tasks under load, and the heap.

    It needs Chromium, playwright, and the page that `make web` builds.
    """
    from nearcast.benchmarks.report import write_result
    from nearcast.benchmarks.web import HEADER, WebSizes, measure_web, web_table
    from nearcast.plots.machine import machine_caption

    sizes = WebSizes(subscriptions, events_per_s, seconds, minutes, rounds, seed)
    folder = out / f"web-{os.getpid()}.data"
    with step_progress(not as_json, "web") as step:
        result = measure_web(sizes, folder, step=step)
    path = out / "web.json"
    write_result(result, path)
    if as_json:
        show_json(result)
        return
    caption = (
        f"{machine_caption(result['machine'])}; Chromium {result['chromium']}; written to {path}"
    )
    show_table("the page", HEADER, web_table(result), caption)
