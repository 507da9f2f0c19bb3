"""The parts of the papers' figures: panels, lines, bars, axes and legends."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nearcast.benchmarks.paper.results import Measured
from nearcast.plots.figures import TEXT_COLOR

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "LEFT",
    "RIGHT",
    "add_legend",
    "add_panel",
    "draw_bars",
    "draw_line",
    "format_short",
    "group_title",
    "needs_log_scale",
    "row_position",
    "set_plain_ticks",
    "set_y_axis",
    "whiskers",
]

LEFT, RIGHT = 0.05, 0.985
"""The left and right edge of the panels, as shares of the figure's width."""


def whiskers(found: Sequence[Measured]) -> list[list[float]] | None:
    """Return the distances of minimum and maximum from the median; None if there are no rounds."""
    if all(len(one.rounds) == 1 for one in found):
        return None
    below = [one.median - min(one.rounds) for one in found]
    return [below, [max(one.rounds) - one.median for one in found]]


def needs_log_scale(found: Sequence[Measured]) -> bool:
    """Return whether values differ by more than a factor of 20."""
    positive = [one.median for one in found if one.median > 0]
    return bool(positive) and max(positive) > 20 * min(positive)


def row_position(height: float, row: tuple[int, int]) -> tuple[float, float]:
    """Return the bottom and the height of a row of panels, as shares of the figure."""
    number, rows = row
    gap, below, above = 0.85, 0.95, 1.45
    each = (height - below - above + gap) / rows
    return (below + (rows - 1 - number) * each) / height, (each - gap) / height


def add_panel(
    canvas: Any,
    height: float,
    row: tuple[int, int],
    column: tuple[int, int],
    right: float = RIGHT,
    left: float = LEFT,
) -> Any:
    """Add empty axes; ``row`` and ``column`` are pairs of a number and the total."""
    bottom, tall = row_position(height, row)
    number, columns = column
    each = (right + 0.03 - left) / columns
    return canvas.add_axes((left + number * each, bottom, each - 0.03, tall))


def draw_line(
    axes: Any,
    line_style: tuple[str, str],
    x: Sequence[float],
    found: Sequence[Measured],
    label: str,
) -> None:
    """Draw a line with whiskers from the minimum to the maximum, where there are values."""
    known = [(at, one) for at, one in zip(x, found, strict=True) if not math.isnan(one.median)]
    x, found = [at for at, _ in known], [one for _, one in known]
    axes.errorbar(
        x,
        [one.median for one in found],
        yerr=whiskers(found),
        color=line_style[0],
        marker=line_style[1],
        markersize=5,
        linewidth=1.6,
        label=label,
    )


def set_y_axis(axes: Any, *, logarithmic: bool) -> None:
    """Start the y axis at 0, or make it logarithmic."""
    if logarithmic:
        axes.set_yscale("log")
        set_plain_ticks(axes.yaxis, *axes.get_ylim())
    else:
        # One slow round must not flatten all lines: its whisker may leave the panel.
        most = max((max(line.get_ydata(), default=0.0) for line in axes.lines), default=0.0)
        axes.set_ylim(0, min(max(axes.dataLim.y1 * 1.05, most * 1.1), most * 1.6) or 1.0)
    axes.tick_params(which="both", labelsize=9, length=0)


def set_plain_ticks(axis: Any, least: float, most: float) -> None:
    """Label a logarithmic axis with a few round numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0,) if most > 50 * least else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_short(value)))
    axis.set_minor_locator(NullLocator())


def add_legend(canvas: Any, height: float, axes: Any) -> None:
    """Add the legend to the right of the panels."""
    handles, labels = axes.get_legend_handles_labels()
    canvas.legend(
        handles,
        labels,
        loc="upper left",
        bbox_to_anchor=(0.8, 1 - 1.35 / height),
        frameon=False,
        labelcolor=TEXT_COLOR,
        fontsize=11,
    )


def draw_bars(
    axes: Any, found: Sequence[Measured], colors: Sequence[str], *, logarithmic: bool
) -> None:
    """Draw horizontal bars with their values at the end."""
    # A value that was not measured gets no bar.
    found = [Measured.once(one.label, 0.0) if math.isnan(one.median) else one for one in found]
    values, errors = [one.median for one in found], whiskers(found)
    axes.barh(range(len(values)), values, color=colors, height=0.62, xerr=errors, ecolor=TEXT_COLOR)
    above = errors[1] if errors else [0.0] * len(values)
    bar_end = [value + more for value, more in zip(values, above, strict=True)]
    positive = [value for value in values if value > 0]
    if logarithmic and positive:
        axes.set_xscale("log")
        # Space for the values: a share of the axis.
        least, most = min(positive) / 3, max(bar_end)
        axes.set_xlim(least, most * (most / least) ** 0.35)
        set_plain_ticks(axes.xaxis, *axes.get_xlim())
    else:
        axes.set_xlim(0, max(bar_end) * 1.35 or 1.0)
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.7g}")
    axes.tick_params(which="both", length=0)
    for i, (value, end) in enumerate(zip(values, bar_end, strict=True)):
        axes.annotate(
            format_short(value) if value else "",
            (end, i),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=10,
            color=TEXT_COLOR,
        )


def group_title(group: str) -> str:
    """Return the title of a group of messages."""
    if group.startswith("mean-"):
        _, mean, place = group.split("-")
        return f"{mean} tokens on average, {place}"
    tokens, _, place = group.partition("-")
    return f"{tokens} tokens, {place}" if tokens.isdigit() else f"{tokens} {place}"


def format_short(value: float) -> str:
    """Format a number in few characters."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
