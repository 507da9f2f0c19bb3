"""The figure of a stream: messages and matches of each micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.plots.figures import (
    BASE_COLOR,
    HIGHLIGHT,
    TEXT_COLOR,
    new_figure,
    save_figure,
    style_axes,
)
from nearcast.plots.machine import describe_machine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["plot_stream"]


def plot_stream(batches: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw messages and matches of micro-batches, colored by the version of the index.

    A batch is a result of `nearcast.spark.rates` with an additional key ``version``.
    """
    messages = sum(int(batch["messages"]) for batch in batches)
    matches = sum(int(batch["matches"]) for batch in batches)
    figure = new_figure(
        "A stream, while the index changes",
        f"{len(batches)} micro-batches, {messages:,} messages, {matches:,} matches",
        describe_machine(),
        6.0,
    )
    names = [f"{batch['batch']:.0f}" for batch in batches]
    for left, quantity in ((0.05, "messages"), (0.54, "matches")):
        axes = figure.add_axes((left, 0.16, 0.43, 0.62))
        values = [batch[quantity] for batch in batches]
        first = batches[0]["version"] if batches else 0
        colors = [BASE_COLOR if batch["version"] == first else HIGHLIGHT for batch in batches]
        axes.bar(names, values, color=colors, width=0.7)
        for name, value in zip(names, values, strict=True):
            axes.annotate(
                f"{value:,.0f}", (name, value), ha="center", va="bottom", color=TEXT_COLOR
            )
        style_axes(axes, "micro-batch", quantity)
        axes.margins(y=0.15)
        axes.grid(visible=False, axis="x")
    _legend(figure, [int(batch["version"]) for batch in batches])
    save_figure(figure, path)


def _legend(figure: Any, versions: list[int]) -> None:
    for number, version in enumerate(dict.fromkeys(versions)):
        color = BASE_COLOR if number == 0 else HIGHLIGHT
        text = f"version {version} of the index"
        figure.text(0.05 + 0.16 * number, 0.805, "■ " + text, color=color, fontsize=12)
