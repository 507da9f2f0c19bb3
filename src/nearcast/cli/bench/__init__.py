"""``nearcast bench``: one module per command."""

import typer

from nearcast.cli.bench import (
    calls,
    churn,
    compare,
    costs,
    history,
    moving,
    paper,
    read,
    sliders,
    spark,
    tables,
)

__all__ = ["app"]

app = typer.Typer(
    help="Measure indexes, changes, moves, calls, text, files, start-up and Spark; rerun papers.",
    no_args_is_help=True,
    add_completion=False,
)
app.command("compare")(compare.compare)
app.command("churn")(churn.churn)
app.command("calls")(calls.calls)
app.command("moving")(moving.moving)
app.command("text")(costs.text)
app.command("start")(costs.start)
app.command("read")(read.read)
app.command("spark")(spark.spark)
app.add_typer(paper.app, name="paper")
app.command("sliders")(sliders.sliders)
app.command("history")(history.history)
app.command("tables")(tables.tables)
