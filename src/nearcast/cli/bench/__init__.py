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
    server,
    sliders,
    spark,
    tables,
    web,
)
from nearcast.cli.commands import Group, add_command

__all__ = ["app"]

app = typer.Typer(
    cls=Group,
    help="Measure indexes and engines, compare indexes on your own data, repeat published "
    "experiments.",
    no_args_is_help=True,
    add_completion=False,
)
add_command(
    app,
    "compare",
    compare.compare,
    "nearcast bench compare --subscriptions 1000000 --messages 20000 --index trie-pyramid,rt-tree",
    "nearcast bench compare --subscriptions-file subs.parquet --messages-file messages.parquet",
    "nearcast bench compare --kind proximity --tau 0.7-0.9",
)
add_command(app, "churn", churn.churn, "nearcast bench churn --subscriptions 1000000")
add_command(app, "calls", calls.calls, "nearcast bench calls --subscriptions 10000,1000000")
add_command(
    app, "moving", moving.moving, "nearcast bench moving --subscriptions 100000 --messages 50000"
)
add_command(app, "text", costs.text)
add_command(app, "start", costs.start)
add_command(app, "read", read.read)
add_command(app, "spark", spark.spark)
add_command(
    app,
    "server",
    server.server,
    "nearcast bench server --subscriptions 100000 --seconds 5 --scenario publish,streams",
)
add_command(app, "web", web.web, "nearcast bench web --seconds 20 --minutes 1")
app.add_typer(paper.app, name="paper")
add_command(app, "sliders", sliders.sliders)
add_command(
    app,
    "history",
    history.history,
    "nearcast bench history",
    "nearcast bench history --show",
)
add_command(
    app,
    "tables",
    tables.tables,
    "nearcast bench tables out/bench/compare-*.json --file docs/benchmarks/boolean.md",
)
