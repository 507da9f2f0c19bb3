"""``nearcast bench paper``: run the experiments of the papers and check their statements."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.bench.moving import road_map
from nearcast.cli.bench.options import DATA, MEASURING, OUT, Json, MemoryGb, Out, Rounds, Seed
from nearcast.cli.commands import FILE, NUMBER, Group, add_command
from nearcast.cli.options import parse_names
from nearcast.cli.output import show_json, show_table, step_progress

if TYPE_CHECKING:
    from nearcast.benchmarks.paper import Experiment, Plan

__all__ = ["app"]

app = typer.Typer(
    cls=Group,
    help="Repeat the experiments of a published paper, and check what it says about its indexes.",
    no_args_is_help=True,
    add_completion=False,
)

Subscriptions = Annotated[
    int,
    typer.Option(
        metavar=NUMBER,
        min=1,
        rich_help_panel=DATA,
        help="Number of subscriptions; the papers have 1 to 20 million.",
    ),
]
MessagesEach = Annotated[
    int,
    typer.Option(
        "--messages",
        metavar=NUMBER,
        min=1,
        rich_help_panel=DATA,
        help="Number of messages in each group (short or long; points or rectangles).",
    ),
]

Figures = Annotated[
    str,
    typer.Option(
        metavar="NAME,NAME,...",
        rich_help_panel=MEASURING,
        show_default="all",
        help="Measure only these figures; an unknown name lists all names.",
    ),
]

# Not taken from the experiments: --help must not import their modules.
_HELP = {
    "rt": "The rt-trees: R-trees with keywords. Orders of sorting, token sets, other indexes, "
    "scale, changes.",
    "lfilter": "lfilter: a trie of keywords with rectangles. Ways to search it, its three "
    "algorithms, other indexes, scale.",
    "ap-tree": "The ap-tree: splits by keywords or by space. Tuning, variants, data sets, sizes, "
    "changes, boolean expressions.",
    "stamp": "stamp: subscriptions that are ranked by proximity. Filters, pruning, other indexes, "
    "changes, scale.",
    "rt-ranked": "The rt-trees with subscriptions that are ranked by overlap: weights of the area, "
    "and thresholds.",
}
_MORE = "Prints each statement of the paper with the measured value and whether it holds here."


def _road_file(help: str) -> Any:
    return typer.Option(
        metavar=FILE, rich_help_panel=DATA, show_default="a generated map", help=help
    )


def _add(name: str) -> None:
    """Add the command of a paper; all papers have the same options."""

    def paper(
        subscriptions: Subscriptions = 1_000_000,
        messages: MessagesEach = 1_000,
        figure: Figures = "",
        seed: Seed = 0,
        rounds: Rounds = 5,
        out: Out = OUT,
        as_json: Json = False,
    ) -> None:
        from nearcast.benchmarks.paper import Plan

        _run(name, figure, Plan(subscriptions, messages, seed, rounds), out, as_json)

    example = f"nearcast bench paper {name} --subscriptions 100000"
    add_command(app, name, paper, example, help=f"{_HELP[name]}\n\n{_MORE}")


for _name in _HELP:
    _add(_name)


def ap_plus(
    subscriptions: Annotated[
        int,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=DATA,
            help="Number of subscriptions; experiments with other sizes scale with it.",
        ),
    ] = 1_000_000,
    messages: Annotated[
        int,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=DATA,
            help="Number of messages that are alive at a time; scaled likewise.",
        ),
    ] = 500_000,
    ticks: Annotated[
        int,
        typer.Option(
            metavar=NUMBER,
            min=1,
            rich_help_panel=MEASURING,
            help="Number of ticks to measure; medians are reported.",
        ),
    ] = 3,
    figure: Figures = "",
    city_nodes: Annotated[Path | None, _road_file("Nodes of the road map of a city.")] = None,
    city_edges: Annotated[Path | None, _road_file("Edges of the road map of a city.")] = None,
    county_nodes: Annotated[Path | None, _road_file("Nodes of the road map of a county.")] = None,
    county_edges: Annotated[Path | None, _road_file("Edges of the road map of a county.")] = None,
    memory_gb: MemoryGb = 8.0,
    seed: Seed = 0,
    out: Out = OUT,
    as_json: Json = False,
) -> None:
    from nearcast.benchmarks.moving.load import CITY, COUNTY
    from nearcast.benchmarks.paper import (
        MOVING_PAPERS,
        MovingExperiment,
        MovingPaperPlan,
        measure_moving,
    )

    experiment = MOVING_PAPERS["ap-plus"].only(parse_names(figure))
    assert isinstance(experiment, MovingExperiment)
    plan = MovingPaperPlan(
        subscriptions,
        messages,
        ticks,
        seed,
        memory_gb * 1e9,
        road_map(city_nodes, city_edges, CITY, "--city-"),
        road_map(county_nodes, county_edges, COUNTY, "--county-"),
    )
    with step_progress(not as_json, "measuring") as step:
        result = measure_moving(experiment, plan, step)
    _finish(experiment, result, out, as_json)


add_command(
    app,
    "ap-plus",
    ap_plus,
    "nearcast bench paper ap-plus --subscriptions 100000 --messages 50000",
    help="The ap+-tree: subscriptions that move and messages that expire. Rates of moves and "
    f"arrivals, speeds, sizes of regions, data sets, scale, circles.\n\n{_MORE}",
)


def _run(name: str, figures: str, plan: "Plan", out: Path, as_json: bool) -> None:
    from nearcast.benchmarks.paper import PAPERS, measure

    experiment = PAPERS[name].only(parse_names(figures))
    with step_progress(not as_json, "measuring") as step:
        result = measure(experiment, plan, step)
    _finish(experiment, result, out, as_json)


def _finish(experiment: "Experiment", result: dict[str, Any], out: Path, as_json: bool) -> None:
    """Judge a result, and write and show everything."""
    from nearcast.benchmarks.paper import judge, plot_figures
    from nearcast.benchmarks.report import write_result

    verdicts = judge(experiment, result)
    result["verdicts"] = [verdict.to_dict() for verdict in verdicts]
    write_result(result, out / f"paper-{experiment.name}.json")
    plot_figures(experiment, result, out)
    if as_json:
        show_json(result)
    else:
        _show(experiment, result, out)


def _show(experiment: "Experiment", result: dict[str, Any], out: Path) -> None:
    from nearcast.benchmarks.paper import NOTE, judge, statement_table, summary_table
    from nearcast.plots.machine import machine_caption

    title = f"{experiment.title}, {result['subscriptions']:,} subscriptions"
    header, rows = summary_table(experiment, result)
    if rows:
        show_table(title, header, rows, experiment.note)
    header, rows = statement_table(judge(experiment, result))
    stem = out / f"paper-{experiment.name}"
    note = f"{NOTE} {experiment.note}".strip()
    caption = f"{note}\n{machine_caption(result['machine'])}\n{stem}.json, {stem}-*.png"
    show_table(title, header, rows, caption)
