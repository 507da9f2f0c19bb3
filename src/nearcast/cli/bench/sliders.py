"""``nearcast bench sliders``: pictures of what delta, tau, alpha and theta do."""

from pathlib import Path
from typing import Annotated

import typer

from nearcast.cli.bench.options import DATA, OUT, Dataset, Messages, Seed, Subscriptions
from nearcast.cli.commands import FOLDER, OUTPUT

__all__ = ["sliders"]


def sliders(
    dataset: Dataset = "tweets",
    subscriptions: Subscriptions = 20_000,
    messages: Messages = 200,
    max_distance_m: Annotated[
        float,
        typer.Option(
            metavar="METERS",
            min=0.01,
            rich_help_panel=DATA,
            help="Proximity: distance at which nearness becomes 0.",
        ),
    ] = 500_000.0,
    range_share: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0,
            max=1,
            rich_help_panel=DATA,
            help="Overlap: largest area of a message, as a share of the world.",
        ),
    ] = 0.01,
    seed: Seed = 0,
    out: Annotated[
        Path, typer.Option(metavar=FOLDER, rich_help_panel=OUTPUT, help="Folder for the PNG files.")
    ] = OUT,
) -> None:
    """Plot what the parameters of ranked subscriptions do: delta, tau, alpha and theta.

    The plots show scores by distance and by overlap, and the number of matches for each setting.
    """
    from nearcast.datasets import Workload
    from nearcast.plots.ranking import count_matches, plot_coverage, plot_distances, plot_matches

    tenths = [number / 10 for number in range(11)]
    workload = Workload(dataset, seed)
    near = workload.ranked(subscriptions, max_distance_m=(max_distance_m, max_distance_m))
    cover = workload.ranked(subscriptions, "overlap")
    counts = [
        count_matches(near, workload.messages(messages), tenths, tenths),
        count_matches(cover, workload.messages(messages, range_share=range_share), tenths, tenths),
    ]
    subtitle = (
        f"{dataset}, {messages:,} messages, all subscriptions with the same two parameters. "
        f"Proximity: points, largest distance {max_distance_m / 1000:,.6g} km. "
        f"Overlap: messages of up to {range_share:.2%} of the world."
    )
    plot_distances(out / "ranking-distance.png")
    plot_coverage(out / "ranking-coverage.png")
    plot_matches(counts, subtitle, out / "ranking-matches.png")
    typer.echo(f"{out}/ranking-distance.png, ranking-coverage.png, ranking-matches.png")
