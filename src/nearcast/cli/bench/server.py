"""``nearcast bench server``: the live server under load."""

import os
from typing import Annotated

import typer

from nearcast.cli.bench.options import DATA, MEASURING, OUT, Json, Out, Rounds, Seed, Subscriptions
from nearcast.cli.commands import NUMBER
from nearcast.cli.options import parse_names
from nearcast.cli.output import show_json, show_table, step_progress

__all__ = ["server"]


def server(
    scenario: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME,...",
            rich_help_panel=MEASURING,
            help="What to measure: publish, streams, restart, memory, missed.",
        ),
    ] = "publish,streams,restart,memory,missed",
    subscriptions: Subscriptions = 1_000_000,
    connections: Annotated[
        int,
        typer.Option(
            metavar=NUMBER,
            min=4,
            rich_help_panel=DATA,
            help="Number of connected subscribers; four share a tag.",
        ),
    ] = 1_000,
    messages_per_s: Annotated[
        int,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=MEASURING,
            help="Messages a second while subscribers are connected; each reaches four of them.",
        ),
    ] = 5_000,
    seconds: Annotated[
        float,
        typer.Option(
            metavar=NUMBER, min=0.1, rich_help_panel=MEASURING, help="Duration of a round."
        ),
    ] = 20.0,
    rounds: Rounds = 3,
    missed: Annotated[
        int,
        typer.Option(
            metavar=NUMBER,
            min=1_000,
            rich_help_panel=DATA,
            help="Number of messages that a subscriber has missed; 18,000,000 take about 4 GB.",
        ),
    ] = 18_000_000,
    minutes: Annotated[
        float,
        typer.Option(
            metavar=NUMBER,
            min=0.01,
            rich_help_panel=MEASURING,
            help="How long memory is measured.",
        ),
    ] = 10.0,
    seed: Seed = 0,
    out: Out = OUT,
    as_json: Json = False,
) -> None:
    """Measure the live server: durable publishing, streams, resuming, restarts and memory.

    A server runs in a process of its own, with its data below --out; load comes from other
    processes over the loopback interface. Every event is counted: a lost one is an error.
    """
    from nearcast.benchmarks.report import write_result
    from nearcast.benchmarks.server.scenarios import Sizes, measure_server
    from nearcast.benchmarks.server_tables import HEADER, server_table
    from nearcast.plots.machine import machine_caption

    sizes = Sizes(
        subscriptions, connections, messages_per_s, seconds, rounds, missed, minutes, seed
    )
    folder = out / f"server-{os.getpid()}.data"
    with step_progress(not as_json, "server") as step:
        result = measure_server(sizes, folder, parse_names(scenario), step=step)
    path = out / "server.json"
    write_result(result, path)
    if as_json:
        show_json(result)
        return
    caption = f"{machine_caption(result['machine'])}; written to {path}"
    title = f"live server, {subscriptions:,} subscriptions"
    show_table(title, HEADER, server_table(result), caption)
