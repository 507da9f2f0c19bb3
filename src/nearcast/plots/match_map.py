"""The map of a job: where subscriptions ask, and which messages found some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import UNITS

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["MapData"]

CELLS_PER_DEG = 4
_WIDTH, _HEIGHT = 360 * CELLS_PER_DEG, 180 * CELLS_PER_DEG
_MAX_POINTS = 20_000
_INK = "#1d2733"
_PAPER = "#f7f8fa"


class MapData:
    """What a map shows, collected while a job runs, in little memory whatever its size.

    Subscriptions are counted on a grid of quarter degrees; of messages, about twenty thousand are
    kept, evenly over the job.
    """

    def __init__(self) -> None:
        self._corner = np.zeros((_HEIGHT + 1, _WIDTH + 1))
        self._boxes = 0
        self._points: list[NDArray[np.float64]] = []
        self._stride = 1
        self._seen = 0
        self._matched = 0
        self._matches = 0

    def add_boxes(self, box: NDArray[np.int32]) -> None:
        """Count the boxes of subscriptions in every cell that they touch.

        Examples
        --------
        >>> data = MapData()
        >>> data.add_boxes(np.array([[0, 0, 9_999_999, 4_999_999]], np.int32))
        >>> int(data.density().sum())
        8
        """
        west, south, east, north = _cells(box)
        for rows, columns, sign in (
            (south, west, 1),
            (north + 1, east + 1, 1),
            (south, east + 1, -1),
            (north + 1, west, -1),
        ):
            np.add.at(self._corner, (rows, columns), sign)
        self._boxes += len(box)

    def add_messages(self, box: NDArray[np.int32], found: NDArray[Any]) -> None:
        """Take messages and how many matches each has."""
        chosen = np.arange(-self._seen % self._stride, len(box), self._stride)
        self._seen += len(box)
        self._matched += int((found > 0).sum())
        self._matches += int(found.sum())
        west, south, east, north = box[chosen].astype(np.float64).T / UNITS
        middle = np.where(west <= east, (west + east) / 2, west)
        self._points.append(np.stack([middle, (south + north) / 2, found[chosen]], axis=1))
        while sum(map(len, self._points)) > _MAX_POINTS:
            self._points = [np.concatenate(self._points)[::2]]
            self._stride *= 2

    def density(self) -> NDArray[np.float64]:
        """Return how many subscriptions touch each cell, south to north."""
        summed: NDArray[np.float64] = self._corner.cumsum(axis=0).cumsum(axis=1)
        return summed[:_HEIGHT, :_WIDTH]

    def points(self) -> NDArray[np.float64]:
        """Return lon, lat and number of matches of the messages that were kept."""
        return np.concatenate([np.empty((0, 3)), *self._points])

    def draw(self, path: Path, title: str) -> None:
        """Draw the map as a PNG of 1600 x 900 pixels."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(16, 9), dpi=100, facecolor=_PAPER)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0.045, 0.09, 0.845, 0.8))
        extent = self._extent()
        _draw_world(axes, extent)
        shade = self._draw_density(axes)
        dots = self._draw_messages(axes)
        _label(axes, extent)
        _bars(figure, shade, dots)
        figure.text(0.045, 0.945, title, fontsize=18, weight="bold", color=_INK)
        figure.text(0.045, 0.912, self._caption(), fontsize=12, color=_INK)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)

    def _caption(self) -> str:
        share = self._matched / self._seen if self._seen else 0.0
        kept = len(self.points())
        shown = "" if kept == self._seen else f" ({kept:,} shown)"
        return (
            f"{self._boxes:,} boxes of subscriptions, {self._seen:,} messages{shown}, "
            f"{self._matches:,} matches; {share:.0%} of the messages found a subscription"
        )

    def _extent(self) -> tuple[float, float, float, float]:
        """Return the part of the world to show: all of it unless the messages are in one place."""
        points = self.points()
        if not len(points):
            return -180, 180, -60, 80
        (west, south), (east, north) = points[:, :2].min(axis=0), points[:, :2].max(axis=0)
        if east - west > 120:
            return -180, 180, max(-90.0, min(-58.0, south - 2)), min(90.0, max(78.0, north + 2))
        height = max(north - south, (east - west) / 2, 0.05) * 1.15
        x, y = (west + east) / 2, (south + north) / 2
        return x - height, x + height, y - height / 2, y + height / 2

    def _draw_density(self, axes: Any) -> Any:
        from matplotlib.colors import LogNorm

        density = _coarser(self.density())
        if not density.max() > 0:
            return None
        least = max(1.0, float(np.percentile(density[density > 0], 1)))
        return axes.imshow(
            np.ma.masked_less_equal(density, 0),
            origin="lower",
            extent=(-180, 180, -90, 90),
            cmap=_colours("Blues", 0.1, 0.5),
            norm=LogNorm(least, max(density.max(), 10 * least)),
            interpolation="nearest",
            aspect="auto",
            zorder=1,
        )

    def _draw_messages(self, axes: Any) -> Any:
        from matplotlib.colors import LogNorm

        points = self.points()
        size = float(np.clip(60_000 / max(len(points), 1), 4, 40))
        missed = points[points[:, 2] == 0]
        found = points[points[:, 2] > 0]
        found = found[np.argsort(found[:, 2])]
        axes.scatter(
            missed[:, 0],
            missed[:, 1],
            s=size / 3,
            c="#8a94a0",
            linewidths=0,
            zorder=3,
            label="message without a match",
        )
        if not len(found):
            return None
        most = found[:, 2].max()
        return axes.scatter(
            found[:, 0],
            found[:, 1],
            c=found[:, 2],
            s=size * (0.8 + 2.2 * np.log1p(found[:, 2]) / np.log1p(most)),
            cmap=_colours("plasma_r", 0.18, 1.0),
            norm=LogNorm(1, max(most, 2)),
            alpha=0.9,
            linewidths=0,
            zorder=4,
        )


def _cells(box: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the first and last cell of boxes, in both directions."""
    degrees = box.astype(np.float64).T / UNITS + np.array([[180], [90], [180], [90]])
    most = np.array([[_WIDTH], [_HEIGHT], [_WIDTH], [_HEIGHT]]) - 1
    cell: NDArray[np.int64] = np.floor(degrees * CELLS_PER_DEG).astype(np.int64)
    return np.clip(cell, 0, most)


def _draw_world(axes: Any, extent: tuple[float, float, float, float]) -> None:
    """Let the cities of the world stand for its outline."""
    from nearcast.datasets.places import gazetteer

    cities = gazetteer()
    size = 1.5 if extent[1] - extent[0] > 200 else 6
    axes.scatter(cities.lon, cities.lat, s=size, c="#4f5d6b", alpha=0.18, linewidths=0, zorder=2)


def _label(axes: Any, extent: tuple[float, float, float, float]) -> None:
    axes.set_facecolor("white")
    axes.set_xlim(extent[0], extent[1])
    axes.set_ylim(extent[2], extent[3])
    axes.set_xlabel("longitude (degrees)", color=_INK)
    axes.set_ylabel("latitude (degrees)", color=_INK)
    axes.tick_params(colors=_INK, labelsize=9)
    for side in axes.spines.values():
        side.set_color("#c3c9d1")
    axes.legend(loc="lower left", framealpha=0.85, labelcolor=_INK, markerscale=2)


def _bars(figure: Any, shade: Any, dots: Any) -> None:
    """Put the two scales to the right of the map."""
    for mappable, bottom, label in (
        (dots, 0.52, "matches of a message"),
        (shade, 0.09, "subscriptions at a place"),
    ):
        if mappable is not None:
            bar = figure.colorbar(mappable, cax=figure.add_axes((0.905, bottom, 0.014, 0.37)))
            bar.set_label(label, color=_INK)
            bar.set_ticks(_ticks(mappable.norm.vmin, mappable.norm.vmax))
            bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            bar.ax.minorticks_off()
            bar.ax.tick_params(colors=_INK, labelsize=9)
            bar.outline.set_visible(False)


def _ticks(least: float, most: float) -> list[float]:
    """Return 1, 2, 5, 10, 20 ... or, over more than three decades, 1, 10, 100 ..."""
    digits = (1, 2, 5) if most <= 1000 * least else (1,)
    ticks = [digit * 10.0**power for power in range(12) for digit in digits]
    return [tick for tick in ticks if least <= tick <= most]


def _coarser(density: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the most of every two by two cells: a single cell would be a single pixel."""
    blocks = density.reshape(_HEIGHT // 2, 2, _WIDTH // 2, 2)
    coarse: NDArray[np.float64] = blocks.max(axis=(1, 3))
    return coarse


def _colours(name: str, first: float, last: float) -> Any:
    """Return a part of a colour map: without what cannot be seen on white."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps[name](np.linspace(first, last, 256)))
