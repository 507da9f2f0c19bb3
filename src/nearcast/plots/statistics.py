"""The figure of statistics: density of documents, token frequencies, sizes of boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import UNITS, WORLD
from nearcast.datasets.places import gazetteer
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
    from pathlib import Path

    from numpy.typing import NDArray

    from nearcast.indexes.statistics import Statistics

__all__ = ["plot_statistics"]

_HEIGHT = 7.6
_LABELED_RANKS = (1, 10, 100, 1_000, 10_000, 100_000)


def plot_statistics(statistics: Statistics, path: Path, kind: str = "documents") -> None:
    """Draw density, token frequency by rank, and sizes of boxes, as a PNG.

    Parameters
    ----------
    statistics
        The statistics to draw.
    path
        The file to write.
    kind
        What to call the documents, such as ``messages``.
    """
    tokens, grid = len(statistics.vocabulary), statistics.grid
    mean = statistics.vocabulary.frequency.sum() / max(statistics.documents, 1)
    figure = new_figure(
        f"{statistics.documents:,} {kind}: density and tokens",
        f"{tokens:,} different tokens, {mean:.3g} per document on average; "
        f"{(statistics.density > 0).sum():,} of {grid.cells:,} cells in use, "
        f"{len(statistics.cell_token):,} pairs of cell and token",
        describe_machine(),
        _HEIGHT,
    )
    _density(figure, statistics, kind)
    _frequencies(figure.add_axes((0.725, 0.535, 0.255, 0.275)), statistics, kind)
    _sizes(figure.add_axes((0.725, 0.135, 0.255, 0.275)), statistics)
    save_figure(figure, path)


def _density(figure: Any, statistics: Statistics, kind: str) -> None:
    """Draw the number of documents in each cell; faint dots for cities outline the world."""
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    axes = figure.add_axes((0.045, 0.135, 0.56, 0.675))
    style_axes(axes, "longitude (degrees)", "latitude (degrees)")
    across, up, box = statistics.grid
    west, south, east, north = _drawn_box(box)
    density = np.ma.masked_equal(statistics.density.reshape(up, across), 0)
    low, high = _color_range(statistics.density)
    shade = axes.imshow(
        density,
        origin="lower",
        extent=(west, east, south, north),
        cmap=LinearSegmentedColormap.from_list("density", ["#dbe7f1", BASE_COLOR, "#15304d"]),
        norm=LogNorm(low, high),
        interpolation="nearest",
        aspect="auto",
        zorder=1,
    )
    cities = gazetteer()
    axes.scatter(cities.lon, cities.lat, s=1, c=TEXT_COLOR, alpha=0.12, linewidths=0, zorder=2)
    axes.set_xlim(west, east)
    axes.set_ylim(south, north)
    if box == WORLD:
        axes.set_xticks(range(-180, 181, 60))
        axes.set_yticks(range(-90, 91, 30))
    bar = figure.colorbar(shade, cax=figure.add_axes((0.613, 0.135, 0.011, 0.675)))
    bar.set_label(f"{kind} per cell (logarithmic)", color=TEXT_COLOR, fontsize=11)
    bar.set_ticks(_ticks(low, high))
    bar.ax.yaxis.set_major_formatter(_format_whole)
    bar.ax.minorticks_off()
    bar.ax.tick_params(colors=TEXT_COLOR, labelsize=9)
    bar.outline.set_visible(False)


def _drawn_box(box: tuple[int, int, int, int]) -> tuple[float, float, float, float]:
    """Return a box in degrees; one without width or height gets a little."""
    west, south, east, north = (side / UNITS for side in box)
    return west, south, max(east, west + 1e-6), max(north, south + 1e-6)


def _color_range(density: NDArray[np.int64]) -> tuple[float, float]:
    """Return the values of the lightest and the darkest color; the lowest 2 % share one color."""
    used = density[density > 0]
    low = max(1.0, float(np.percentile(used, 2))) if len(used) else 1.0
    return low, max(float(density.max(initial=0)), 2 * low)


def _frequencies(axes: Any, statistics: Statistics, kind: str) -> None:
    """Draw the document frequency of tokens by rank, and label some tokens."""
    frequency = statistics.vocabulary.frequency
    style_axes(axes, "rank of a token (logarithmic)", f"{kind} (logarithmic)")
    if not len(frequency):
        _note(axes, "no tokens")
        return
    rank = np.arange(1, len(frequency) + 1)
    # Enough points that the curve looks complete.
    shown = np.unique(np.geomspace(1, len(rank), 2_000).astype(np.int64)) - 1
    axes.loglog(rank[shown], frequency[shown], color=HIGHLIGHT, linewidth=2, zorder=3)
    axes.loglog(
        rank[[0, -1]],
        frequency[0] / rank[[0, -1]].astype(np.float64),
        color="#8a94a0",
        linewidth=1,
        linestyle=":",
        label="1 / rank",
    )
    axes.set_ylim(0.7, frequency[0] * 4)
    for rank_to_label in _LABELED_RANKS:
        if rank_to_label <= len(frequency):
            height = frequency[rank_to_label - 1]
            axes.plot([rank_to_label], [height], "o", color=HIGHLIGHT, markersize=4, zorder=4)
            axes.annotate(
                statistics.vocabulary.token(rank_to_label - 1)[:16],
                (rank_to_label, height),
                (5, 5),
                textcoords="offset points",
                fontsize=9,
                color=TEXT_COLOR,
            )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_format_whole)
    axes.minorticks_off()
    axes.legend(loc="lower left", frameon=False, labelcolor=TEXT_COLOR, fontsize=9)


def _sizes(axes: Any, statistics: Statistics) -> None:
    """Draw a histogram of the widths and heights of boxes."""
    style_axes(axes, "side of a box (degrees, logarithmic)", "boxes")
    sides = {"width": (statistics.width, BASE_COLOR), "height": (statistics.height, HIGHLIGHT)}
    used = np.flatnonzero(statistics.width + statistics.height)
    nonzero = used[used > 0]
    points = int(min(statistics.width[0], statistics.height[0]))
    if not len(nonzero):
        _note(axes, f"all {points:,} are points" if points else "no boxes")
        return
    first, last = int(nonzero[0]), int(nonzero[-1])
    edge: NDArray[np.float64] = 2.0 ** np.arange(first - 1, last + 1) / UNITS
    for name, (bins, color) in sides.items():
        axes.stairs(bins[first : last + 1], edge, fill=True, color=color, alpha=0.25)
        axes.stairs(bins[first : last + 1], edge, color=color, linewidth=2, label=name)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(_ticks(edge[0], edge[-1]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(_format_whole)
    axes.set_ylim(0, 1.3 * max(int(bins[1:].max()) for bins, _ in sides.values()))
    note = f"and {points:,} points" if points else None
    axes.legend(
        loc="upper right",
        ncols=2,
        frameon=False,
        labelcolor=TEXT_COLOR,
        fontsize=9,
        title=note,
        title_fontsize=9,
    )


def _note(axes: Any, text: str) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=TEXT_COLOR, fontsize=12)


def _format_whole(value: float, _: object) -> str:
    return f"{value:,.0f}"


def _ticks(low: float, high: float) -> list[float]:
    """Return 1, 2, 5, 10, 20 ..., or 1, 10, 100 ... if the range is above three decades."""
    digits = (1, 2, 5) if high <= 1_000 * low else (1,)
    ticks = [digit * 10.0**power for power in range(-7, 13) for digit in digits]
    return [tick for tick in ticks if low <= tick <= high]
