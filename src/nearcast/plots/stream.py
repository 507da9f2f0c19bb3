"""The picture of a stream: what every micro-batch brought and found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.plots.figures import BEST, INK, OTHER, new_figure, save_figure, style
from nearcast.plots.machine import describe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["plot_stream"]


def plot_stream(batches: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw messages and matches of micro-batches, and which version of the index they met.

    A batch is what `nearcast.spark.rates` gives, and its ``version``.
    """
    messages = sum(int(batch["messages"]) for batch in batches)
    matches = sum(int(batch["matches"]) for batch in batches)
    figure = new_figure(
        "A stream, and an index that changes while it runs",
        f"{len(batches)} micro-batches, {messages:,} messages, {matches:,} matches",
        describe(),
        6.0,
    )
    names = [f"{batch['batch']:.0f}" for batch in batches]
    for left, what in ((0.05, "messages"), (0.54, "matches")):
        axes = figure.add_axes((left, 0.16, 0.43, 0.62))
        values = [batch[what] for batch in batches]
        first = batches[0]["version"] if batches else 0
        colours = [OTHER if batch["version"] == first else BEST for batch in batches]
        axes.bar(names, values, color=colours, width=0.7)
        for name, value in zip(names, values, strict=True):
            axes.annotate(f"{value:,.0f}", (name, value), ha="center", va="bottom", color=INK)
        style(axes, "micro-batch", what)
        axes.margins(y=0.15)
        axes.grid(visible=False, axis="x")
    _legend(figure, [int(batch["version"]) for batch in batches])
    save_figure(figure, path)


def _legend(figure: Any, versions: list[int]) -> None:
    for number, version in enumerate(dict.fromkeys(versions)):
        colour = OTHER if number == 0 else BEST
        text = f"version {version} of the index"
        figure.text(0.05 + 0.16 * number, 0.805, "■ " + text, color=colour, fontsize=12)
