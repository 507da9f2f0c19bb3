"""``nearcast bench moving``: subscriptions that move and messages that live, in mixed ticks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.bench.options import OUT, Json, MemoryGb, Out, Seed
from nearcast.cli.options import parse_counts, parse_names, parse_shares
from nearcast.cli.output import format_count, show_json, show_table, step_progress

if TYPE_CHECKING:
    from nearcast.benchmarks.moving.load import Roads

__all__ = ["moving"]


def moving(
    subscriptions: Annotated[int, typer.Option(min=1, help="Number of subscriptions.")] = 1_000_000,
    messages: Annotated[int, typer.Option(min=1, help="Number of living messages.")] = 500_000,
    arrivals: Annotated[
        int | None,
        typer.Option(min=1, help="Messages that arrive and expire in a tick.  [default: a tenth]"),
    ] = None,
    ticks: Annotated[int, typer.Option(min=1, help="Measured ticks; medians are reported.")] = 5,
    index: Annotated[
        str,
        typer.Option(metavar="A,B,...", help="Names, or 'ap+-tree as printed'.  [default: all]"),
    ] = "",
    dataset: Annotated[str, typer.Option(help="Words: tweets or places.")] = "tweets",
    tokens: Annotated[str, typer.Option(metavar="A-B", help="Tokens of a message.")] = "10",
    velocity: Annotated[
        float, typer.Option(help="Factor of speeds; 2.5 is a mean step of 2.8 % of the side.")
    ] = 2.5,
    mobility: Annotated[
        float, typer.Option(min=0, max=1, help="Share of subscriptions that move in a tick.")
    ] = 0.4,
    range_share: Annotated[
        str,
        typer.Option(
            "--range", metavar="A-B", help="Area of subscriptions, as a share of the space."
        ),
    ] = "1e-4-1e-2",
    nodes: Annotated[Path | None, typer.Option(help="Nodes of a road map.")] = None,
    edges: Annotated[Path | None, typer.Option(help="Edges of a road map.")] = None,
    calls: Annotated[
        int, typer.Option(min=0, help="Single calls of an engine; 0: measure no engine.")
    ] = 1_000,
    memory_gb: MemoryGb = 8.0,
    seed: Seed = 0,
    out: Out = OUT,
    as_json: Json = False,
) -> None:
    """Run mixed ticks of moves, arrivals and expiries through moving indexes and an engine.

    All updates of all indexes are compared in every tick, and with the scan on a small load.
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
        tokens=parse_counts(tokens),
        roads=road_map(nodes, edges, CITY),
        velocity=velocity,
        mobility=mobility,
        box_share=parse_shares(range_share),
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


def road_map(nodes: Path | None, edges: Path | None, default: "Roads") -> "Roads":
    """Return the road map of two files; a generated one if none is given."""
    from dataclasses import replace

    if nodes is None and edges is None:
        return default
    if nodes is None or edges is None:
        raise typer.BadParameter("--nodes and --edges belong together")
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
