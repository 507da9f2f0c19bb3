"""``nearcast bench paper``: run the experiments of the papers and check their statements."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.bench.moving import road_map
from nearcast.cli.bench.options import OUT, Json, MemoryGb, Out, Rounds, Seed
from nearcast.cli.options import parse_names
from nearcast.cli.output import show_json, show_table, step_progress

if TYPE_CHECKING:
    from nearcast.benchmarks.paper import Experiment, Plan

__all__ = ["app"]

app = typer.Typer(
    help="Run the experiments of a paper, and compare its statements with the measurements.",
    no_args_is_help=True,
    add_completion=False,
)

Subscriptions = Annotated[
    int, typer.Option(min=1, help="Number of subscriptions; 1 to 20 million in the papers.")
]
MessagesEach = Annotated[
    int, typer.Option("--messages", min=1, help="Number of messages per group.")
]

Figures = Annotated[
    str,
    typer.Option(metavar="A,B,...", help="Only these figures, by name.  [default: all]"),
]

# Not taken from the experiments: --help must not import their modules.
_HELP = {
    "rt": "Sorting strategies, token sets, existing methods, scale, mixed load: the rt-trees.",
    "lfilter": "Probing strategies, the three algorithms, existing methods, scale: lfilter.",
    "ap-tree": "Tuning, variants, data sets, sizes, maintenance, boolean expressions: the ap-tree.",
    "stamp": "Filters, pruning, existing methods, updates, scale: ranked by proximity, stamp.",
    "rt-ranked": "Alpha and theta: ranked by overlap, the rt-trees.",
}


def _add(name: str) -> None:
    """Add the command of a paper; all papers have the same options."""

    @app.command(name, help=_HELP[name])
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


for _name in _HELP:
    _add(_name)


@app.command(
    "ap-plus", help="Moves, arrivals, mobility, velocity, ranges, sizes, circles: the ap+-tree."
)
def ap_plus(
    subscriptions: Annotated[
        int, typer.Option(min=1, help="Subscriptions of the default setting; others are relative.")
    ] = 1_000_000,
    messages: Annotated[
        int, typer.Option(min=1, help="Living messages of the default setting.")
    ] = 500_000,
    ticks: Annotated[int, typer.Option(min=1, help="Measured ticks; medians are reported.")] = 3,
    figure: Figures = "",
    city_nodes: Annotated[Path | None, typer.Option(help="Nodes of a city's road map.")] = None,
    city_edges: Annotated[Path | None, typer.Option(help="Edges of a city's road map.")] = None,
    county_nodes: Annotated[Path | None, typer.Option(help="Nodes of a county's road map.")] = None,
    county_edges: Annotated[Path | None, typer.Option(help="Edges of a county's road map.")] = None,
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
        road_map(city_nodes, city_edges, CITY),
        road_map(county_nodes, county_edges, COUNTY),
    )
    with step_progress(not as_json, "measuring") as step:
        result = measure_moving(experiment, plan, step)
    _finish(experiment, result, out, as_json)


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
