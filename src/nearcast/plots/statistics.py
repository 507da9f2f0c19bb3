"""The picture of statistics: where documents are, how often tokens occur, how large boxes are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import UNITS
from nearcast.datasets.places import gazetteer
from nearcast.plots.figures import BEST, INK, OTHER, new_figure, save_figure, style
from nearcast.plots.machine import describe

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from nearcast.indexes.statistics import Statistics

__all__ = ["plot_statistics"]

_HEIGHT = 7.6
_NAMED = (1, 10, 100, 1_000, 10_000, 100_000)


def plot_statistics(statistics: Statistics, path: Path, kind: str = "documents") -> None:
    """Draw density, rank and frequency, and sizes of boxes, as a PNG.

    Parameters
    ----------
    statistics
        What was counted.
    path
        The file to write.
    kind
        What the documents are called.
    """
    tokens, grid = len(statistics.vocabulary), statistics.grid
    mean = statistics.vocabulary.frequency.sum() / max(statistics.documents, 1)
    figure = new_figure(
        f"{statistics.documents:,} {kind}: where they are, and what they say",
        f"{tokens:,} different tokens, {mean:.3g} each on average; "
        f"{(statistics.density > 0).sum():,} of {grid.cells:,} cells in use, "
        f"{len(statistics.cell_token):,} tokens by cell",
        describe(),
        _HEIGHT,
    )
    _density(figure, statistics, kind)
    _frequencies(figure.add_axes((0.725, 0.535, 0.255, 0.275)), statistics, kind)
    _sizes(figure.add_axes((0.725, 0.135, 0.255, 0.275)), statistics)
    save_figure(figure, path)


def _density(figure: Any, statistics: Statistics, kind: str) -> None:
    """Draw how many documents lie in every cell; the cities of the world give its outline."""
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    axes = figure.add_axes((0.045, 0.135, 0.56, 0.675))
    style(axes, "longitude (degrees)", "latitude (degrees)")
    across, up = statistics.grid
    density = np.ma.masked_equal(statistics.density.reshape(up, across), 0)
    least, most = _ends(statistics.density)
    shade = axes.imshow(
        density,
        origin="lower",
        extent=(-180, 180, -90, 90),
        cmap=LinearSegmentedColormap.from_list("density", ["#dbe7f1", OTHER, "#15304d"]),
        norm=LogNorm(least, most),
        interpolation="nearest",
        aspect="auto",
        zorder=1,
    )
    cities = gazetteer()
    axes.scatter(cities.lon, cities.lat, s=1, c=INK, alpha=0.12, linewidths=0, zorder=2)
    axes.set_xlim(-180, 180)
    axes.set_ylim(-90, 90)
    axes.set_xticks(range(-180, 181, 60))
    axes.set_yticks(range(-90, 91, 30))
    bar = figure.colorbar(shade, cax=figure.add_axes((0.613, 0.135, 0.011, 0.675)))
    bar.set_label(f"{kind} in a cell (logarithmic)", color=INK, fontsize=11)
    bar.set_ticks(_ticks(least, most))
    bar.ax.yaxis.set_major_formatter(_plain)
    bar.ax.minorticks_off()
    bar.ax.tick_params(colors=INK, labelsize=9)
    bar.outline.set_visible(False)


def _ends(density: NDArray[np.int64]) -> tuple[float, float]:
    """Return what is palest and darkest; the thinnest cells may be as pale as those above them."""
    used = density[density > 0]
    least = max(1.0, float(np.percentile(used, 2))) if len(used) else 1.0
    return least, max(float(density.max(initial=0)), 2 * least)


def _frequencies(axes: Any, statistics: Statistics, kind: str) -> None:
    """Draw the document frequency of every token over its rank, and name some."""
    frequency = statistics.vocabulary.frequency
    style(axes, "tokens by their rank (logarithmic)", f"{kind} (logarithmic)")
    if not len(frequency):
        _note(axes, "no tokens")
        return
    rank = np.arange(1, len(frequency) + 1)
    # Enough points of a long tail that none is visibly missing.
    shown = np.unique(np.geomspace(1, len(rank), 2_000).astype(np.int64)) - 1
    axes.loglog(rank[shown], frequency[shown], color=BEST, linewidth=2, zorder=3)
    axes.loglog(
        rank[[0, -1]],
        frequency[0] / rank[[0, -1]].astype(np.float64),
        color="#8a94a0",
        linewidth=1,
        linestyle=":",
        label="1 / rank",
    )
    axes.set_ylim(0.7, frequency[0] * 4)
    for number in _NAMED:
        if number <= len(frequency):
            height = frequency[number - 1]
            axes.plot([number], [height], "o", color=BEST, markersize=4, zorder=4)
            axes.annotate(
                statistics.vocabulary.token(number - 1)[:16],
                (number, height),
                (5, 5),
                textcoords="offset points",
                fontsize=9,
                color=INK,
            )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_plain)
    axes.minorticks_off()
    axes.legend(loc="lower left", frameon=False, labelcolor=INK, fontsize=9)


def _sizes(axes: Any, statistics: Statistics) -> None:
    """Draw how many boxes have sides of which size."""
    style(axes, "side of a box (degrees, logarithmic)", "boxes")
    sides = {"width": (statistics.width, OTHER), "height": (statistics.height, BEST)}
    used = np.flatnonzero(statistics.width + statistics.height)
    extended = used[used > 0]
    points = int(min(statistics.width[0], statistics.height[0]))
    if not len(extended):
        _note(axes, f"all {points:,} are points" if points else "no boxes")
        return
    first, last = int(extended[0]), int(extended[-1])
    edge: NDArray[np.float64] = 2.0 ** np.arange(first - 1, last + 1) / UNITS
    for name, (bins, colour) in sides.items():
        axes.stairs(bins[first : last + 1], edge, fill=True, color=colour, alpha=0.25)
        axes.stairs(bins[first : last + 1], edge, color=colour, linewidth=2, label=name)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(_ticks(edge[0], edge[-1]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(_plain)
    axes.set_ylim(0, 1.3 * max(int(bins[1:].max()) for bins, _ in sides.values()))
    note = f"and {points:,} points" if points else None
    axes.legend(
        loc="upper right",
        ncols=2,
        frameon=False,
        labelcolor=INK,
        fontsize=9,
        title=note,
        title_fontsize=9,
    )


def _note(axes: Any, text: str) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=INK, fontsize=12)


def _plain(value: float, _: object) -> str:
    return f"{value:,.0f}"


def _ticks(least: float, most: float) -> list[float]:
    """Return 1, 2, 5, 10, 20 ... or, over more than three decades, 1, 10, 100 ..."""
    digits = (1, 2, 5) if most <= 1_000 * least else (1,)
    ticks = [digit * 10.0**power for power in range(-7, 13) for digit in digits]
    return [tick for tick in ticks if least <= tick <= most]
