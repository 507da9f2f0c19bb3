"""What the figures of papers are drawn of: panels, lines, bars, axes and legends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.plots.figures import TEXT_COLOR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.paper.results import Measured

__all__ = [
    "LEFT",
    "RIGHT",
    "add_legend",
    "add_panel",
    "draw_bars",
    "draw_line",
    "set_plain_ticks",
    "set_upright",
    "short",
    "told",
    "vertical",
    "whiskers",
    "wide",
]

LEFT, RIGHT = 0.05, 0.985
"""Where panels begin and end, as shares of a figure's width."""


def whiskers(found: Sequence[Measured]) -> list[list[float]] | None:
    """Return how far rounds lie below and above their medians; None for what has no rounds."""
    if all(len(one.rounds) == 1 for one in found):
        return None
    below = [one.median - min(one.rounds) for one in found]
    return [below, [max(one.rounds) - one.median for one in found]]


def wide(found: Sequence[Measured]) -> bool:
    """Return whether values differ so much in size that only a logarithmic axis shows them."""
    positive = [one.median for one in found if one.median > 0]
    return bool(positive) and max(positive) > 20 * min(positive)


def vertical(height: float, row: tuple[int, int]) -> tuple[float, float]:
    """Return bottom and height of a row of panels, as shares of the figure."""
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
    """Add empty axes: row and column are each a number and how many there are."""
    bottom, tall = vertical(height, row)
    number, columns = column
    each = (right + 0.03 - left) / columns
    return canvas.add_axes((left + number * each, bottom, each - 0.03, tall))


def draw_line(
    axes: Any, look: tuple[str, str], x: Sequence[float], found: Sequence[Measured], label: str
) -> None:
    """Draw a line with whiskers from the least to the most."""
    axes.errorbar(
        x,
        [one.median for one in found],
        yerr=whiskers(found),
        color=look[0],
        marker=look[1],
        markersize=5,
        linewidth=1.6,
        label=label,
    )


def set_upright(axes: Any, *, logarithmic: bool) -> None:
    """Let the y axis begin at 0, or be logarithmic."""
    if logarithmic:
        axes.set_yscale("log")
        set_plain_ticks(axes.yaxis, *axes.get_ylim())
    else:
        # One disturbed round must not press all lines flat: its whisker leaves the panel.
        most = max(max(line.get_ydata()) for line in axes.lines)
        axes.set_ylim(0, min(max(axes.dataLim.y1 * 1.05, most * 1.1), most * 1.6) or 1.0)
    axes.tick_params(which="both", labelsize=9, length=0)


def set_plain_ticks(axis: Any, least: float, most: float) -> None:
    """Write few and whole numbers at a logarithmic axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0,) if most > 50 * least else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axis.set_minor_locator(NullLocator())


def add_legend(canvas: Any, height: float, axes: Any) -> None:
    """Write the names of the lines beside the panels."""
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
    axes: Any, found: Sequence[Measured], colours: Sequence[str], *, logarithmic: bool
) -> None:
    """Draw horizontal bars with their figures behind them."""
    values, reaching = [one.median for one in found], whiskers(found)
    axes.barh(
        range(len(values)), values, color=colours, height=0.62, xerr=reaching, ecolor=TEXT_COLOR
    )
    above = reaching[1] if reaching else [0.0] * len(values)
    reach = [value + more for value, more in zip(values, above, strict=True)]
    positive = [value for value in values if value > 0]
    if logarithmic and positive:
        axes.set_xscale("log")
        # Room for the figures: a share of the axis, whatever it spans.
        least, most = min(positive) / 3, max(reach)
        axes.set_xlim(least, most * (most / least) ** 0.35)
        set_plain_ticks(axes.xaxis, *axes.get_xlim())
    else:
        axes.set_xlim(0, max(reach) * 1.35 or 1.0)
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.7g}")
    axes.tick_params(which="both", length=0)
    for i, (value, end) in enumerate(zip(values, reach, strict=True)):
        axes.annotate(
            short(value),
            (end, i),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=10,
            color=TEXT_COLOR,
        )


def told(group: str) -> str:
    """Return a group's name for people."""
    tokens, _, place = group.partition("-")
    return f"{tokens} tokens, {place}" if tokens.isdigit() else f"{tokens} {place}"


def short(value: float) -> str:
    """Return a number in few characters."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
