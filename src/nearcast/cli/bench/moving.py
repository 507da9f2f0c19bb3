"""``nearcast bench moving``: subscriptions that move and messages that live, in mixed ticks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.bench.options import (
    DATA,
    MEASURING,
    OUT,
    Json,
    MemoryGb,
    Out,
    Seed,
    Subscriptions,
)
from nearcast.cli.commands import FILE, NUMBER
from nearcast.cli.options import misuse, parse_counts, parse_names, parse_shares
from nearcast.cli.output import format_count, show_json, show_table, step_progress

if TYPE_CHECKING:
    from nearcast.benchmarks.moving.load import Roads

__all__ = ["moving"]


def moving(
    subscriptions: Subscriptions = 1_000_000,
    messages: Annotated[
        int,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=DATA,
            help="Number of messages that are alive at a time.",
        ),
    ] = 500_000,
    arrivals: Annotated[
        int | None,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=DATA,
            show_default="a tenth of --messages",
            help="Number of messages that arrive, and that expire, in a tick.",
        ),
    ] = None,
    ticks: Annotated[
        int,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=MEASURING,
            help="Number of ticks to measure; medians are reported.",
        ),
    ] = 5,
    index: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME,...",
            rich_help_panel=MEASURING,
            show_default="all",
            help="Moving indexes to compare; 'ap+-tree as printed' has the options of its paper.",
        ),
    ] = "",
    dataset: Annotated[
        str,
        typer.Option(
            metavar="tweets|places",
            rich_help_panel=DATA,
            help="Data set that the words come from.",
        ),
    ] = "tweets",
    tokens: Annotated[
        str, typer.Option(metavar="A-B", rich_help_panel=DATA, help="Words per message.")
    ] = "10",
    velocity: Annotated[
        float,
        typer.Option(
            metavar="FACTOR",
            rich_help_panel=DATA,
            help="Factor for all speeds; with 2.5, a move is 2.8% of the width of the map on "
            "average.",
        ),
    ] = 2.5,
    mobility: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0,
            max=1,
            rich_help_panel=DATA,
            help="Share of the subscriptions that move in a tick.",
        ),
    ] = 0.4,
    range_share: Annotated[
        str,
        typer.Option(
            "--range",
            metavar="A-B",
            rich_help_panel=DATA,
            help="Area of a subscription's rectangle, as a share of the map.",
        ),
    ] = "1e-4-1e-2",
    nodes: Annotated[
        Path | None,
        typer.Option(
            metavar=FILE,
            rich_help_panel=DATA,
            show_default="a generated map",
            help="Nodes of a road map; needs --edges, too.",
        ),
    ] = None,
    edges: Annotated[
        Path | None,
        typer.Option(
            metavar=FILE, rich_help_panel=DATA, help="Edges of a road map; needs --nodes, too."
        ),
    ] = None,
    calls: Annotated[
        int,
        typer.Option(
            metavar=NUMBER,
            min=0,
            rich_help_panel=MEASURING,
            help="Number of single calls of an engine to measure; 0 measures only indexes.",
        ),
    ] = 1_000,
    memory_gb: MemoryGb = 8.0,
    seed: Seed = 0,
    out: Out = OUT,
    as_json: Json = False,
) -> None:
    """Compare moving indexes: subscriptions move, messages arrive and expire.

    Time passes in ticks. In every tick, all indexes must find the same updates; on a small load,
    these must be those of an exhaustive scan.
    """
    from nearcast.benchmarks.moving.compared import COMPARED, builders, compare_moving
    from nearcast.benchmarks.moving.load import CITY, MovingLoad
    from nearcast.benchmarks.moving.runs import MovingPlan
    from nearcast.benchmarks.report import write_result

    series = builders(parse_names(index) or COMPARED)
    load = MovingLoad(
        subscriptions,
        messages,
        arrivals,
        dataset,
        {"keywords": (1, 5)},
        tokens=parse_counts(tokens, "--tokens"),
        roads=road_map(nodes, edges, CITY),
        velocity=velocity,
        mobility=mobility,
        box_share=parse_shares(range_share, "--range"),
        seed=seed,
    )
    plan = MovingPlan(ticks, memory_bytes=memory_gb * 1e9)
    with step_progress(not as_json, "moving") as step:
        result = compare_moving(load, series, plan, calls=calls, step=step)
    path = out / f"moving-{dataset}-{subscriptions}.json"
    write_result(result, path)
    if as_json:
        show_json(result)
    else:
        _show(result, path)


def road_map(
    nodes: Path | None, edges: Path | None, default: "Roads", prefix: str = "--"
) -> "Roads":
    """Return the road map of two files; a generated one if none is given.

    ``prefix`` is how the names of the two options begin.
    """
    from dataclasses import replace

    if nodes is None and edges is None:
        return default
    if nodes is None or edges is None:
        missing = f"{prefix}{'nodes' if nodes is None else 'edges'}"
        raise misuse(missing, f"is missing; give both {prefix}nodes and {prefix}edges")
    return replace(default, files=(nodes, edges))


def _show(result: dict[str, Any], path: Path) -> None:
    from nearcast.benchmarks.moving.compared import moving_table
    from nearcast.plots.machine import machine_caption

    load, first = result["load"], result["results"][0]
    header, rows = moving_table(result)
    title = (
        f"{load['dataset']}: {load['subscriptions']:,} subscriptions, {load['messages']:,} living "
        f"messages, {load['arrivals']:,} new and expired and {first['moves_per_tick']:,.0f} moves "
        f"in a tick; median of {result['ticks']} ticks"
    )
    caption = (
        f"CPU time of calls of the index. A move is {result['mean_step']:.1%} of the side and has "
        f"{first['updates_per_move']:.3g} updates, a message {first['matches_per_message']:.3g} "
        f"matches. {_rotation(result)} All updates agree in every tick; on a small load, "
        f"{result['updates_compared_with_scan']:,} agree with the scan."
    )
    show_table(title, header, rows, caption)
    if result["engine"] is not None:
        show_table("whole calls of an engine", *_engine_rows(result))
    rows = [
        [
            target["name"],
            target["wanted"],
            f"{format_count(target['measured'])} {target['unit']}",
            "reached" if target["reached"] else "not reached",
        ]
        for target in result["targets"]
    ]
    caption = f"{machine_caption(result['machine'])}\n{path}"
    show_table("targets", ["what", "wanted", "measured", ""], rows, caption)


def _rotation(result: dict[str, Any]) -> str:
    if result["heats"] == 1:
        return "Indexes ran in rotation, tick by tick."
    return f"Indexes ran in {result['heats']} groups for lack of memory, in rotation in each."


def _engine_rows(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    engine, own = result["engine"], result["results"][0]["median"]
    single = engine["single_move_us"]
    kernel = {
        "move_table, integer ids": ("us_per_table_move", own["us_per_move"]["median"]),
        "publish_table, living messages": (
            "us_per_published_message",
            own["us_per_publish"]["median"],
        ),
        "advance, for each expired message": (
            "us_per_advanced_message",
            own["us_per_expire"]["median"],
        ),
    }
    rows = [
        [name, format_count(us := engine[key]["median"]), format_count(round(1e6 / us)), f"{k:.3g}"]
        for name, (key, k) in kernel.items()
    ]
    first = engine["first_move_us"]
    rows.append(["move_table, first moves", format_count(first), format_count(round(1e6 / first))])
    rows[-1].append("")
    rows.append(["move, of one", format_count(single["median"]), "", ""])
    return ["call", "µs each", "a second", f"in {result['results'][0]['series']} alone"], rows
