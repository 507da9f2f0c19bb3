"""``nearcast bench paper``: run the experiments of the papers and check their statements."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.commands.options import OUT, Json, Out, Rounds, Seed
from nearcast.cli.output import show_json, show_table, step_progress

if TYPE_CHECKING:
    from benchmarks.paper import Plan

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

# Not taken from the experiments: --help must not import their modules.
_HELP = {
    "rt": "Sorting strategies, token sets, existing methods, scale, mixed load: the rt-trees.",
    "lfilter": "Probing strategies, the three algorithms, existing methods, scale: lfilter.",
    "ap-tree": "Tuning, variants, data sets, sizes, maintenance, boolean expressions: the ap-tree.",
}


def _add(name: str) -> None:
    """Add the command of a paper; all papers have the same options."""

    @app.command(name, help=_HELP[name])
    def paper(
        subscriptions: Subscriptions = 1_000_000,
        messages: MessagesEach = 1_000,
        seed: Seed = 0,
        rounds: Rounds = 5,
        out: Out = OUT,
        as_json: Json = False,
    ) -> None:
        from benchmarks.paper import Plan

        _run(name, Plan(subscriptions, messages, seed, rounds), out, as_json)


for _name in _HELP:
    _add(_name)


def _run(name: str, plan: "Plan", out: Path, as_json: bool) -> None:
    from benchmarks.paper import PAPERS, judge, measure, plot_figures
    from benchmarks.report import write_result

    experiment = PAPERS[name]
    with step_progress(not as_json, "measuring") as step:
        result = measure(experiment, plan, step)
    verdicts = judge(experiment, result)
    result["verdicts"] = [verdict.to_dict() for verdict in verdicts]
    write_result(result, out / f"paper-{name}.json")
    plot_figures(experiment, result, out)
    if as_json:
        show_json(result)
    else:
        _show(name, result, out)


def _show(name: str, result: dict[str, Any], out: Path) -> None:
    from benchmarks.paper import NOTE, PAPERS, judge, statement_table
    from nearcast.plots.machine import machine_caption

    header, rows = statement_table(judge(PAPERS[name], result))
    stem = out / f"paper-{name}"
    title = f"{PAPERS[name].title}, {result['subscriptions']:,} subscriptions"
    caption = f"{NOTE}\n{machine_caption(result['machine'])}\n{stem}.json, {stem}-*.png"
    show_table(title, header, rows, caption)
