"""``nearcast bench paper``: the experiments of the papers, and what they say."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nearcast.cli.bench.options import OUT, Json, Out, Rounds, Seed
from nearcast.cli.output import show_json, show_table, steps

__all__ = ["app"]

app = typer.Typer(
    help="Run the experiments of a paper again, and hold its statements against them.",
    no_args_is_help=True,
    add_completion=False,
)

Subscriptions = Annotated[int, typer.Option(min=1, help="How many; the papers have 10 million.")]
MessagesEach = Annotated[int, typer.Option("--messages", min=1, help="How many of each group.")]


@app.command("rt")
def rt(
    subscriptions: Subscriptions = 1_000_000,
    messages: MessagesEach = 1_000,
    seed: Seed = 0,
    rounds: Rounds = 5,
    out: Out = OUT,
    as_json: Json = False,
) -> None:
    """Sorting strategies, token sets, existing methods, scalability, mixed load: the rt-trees."""
    _run("rt", subscriptions, messages, seed, rounds, out, as_json)


def _run(
    name: str, subscriptions: int, messages: int, seed: int, rounds: int, out: Path, as_json: bool
) -> None:
    from nearcast.bench.paper import PAPERS, Plan, judge, measure, plot_figures
    from nearcast.bench.report import write_result

    experiment = PAPERS[name]
    plan = Plan(subscriptions, messages, seed, rounds)
    with steps(not as_json, "measuring") as step:
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
    from nearcast.bench.machine import one_line
    from nearcast.bench.paper import NOTE, PAPERS, judge, statement_table

    header, rows = statement_table(judge(PAPERS[name], result))
    stem = out / f"paper-{name}"
    title = f"{PAPERS[name].title}, {result['subscriptions']:,} subscriptions"
    caption = f"{NOTE}\n{one_line(result['machine'])}\n{stem}.json, {stem}-*.png"
    show_table(title, header, rows, caption)
