"""The map of a matching job: where subscriptions are, and how many each message matches."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import UNITS
from nearcast.engine.arguments import list_of, table_of
from nearcast.intake import (
    is_table,
    messages_from,
    read_messages,
    read_subscriptions,
    table_from,
)
from nearcast.model import Message, Subscription
from nearcast.plots.figures import BACKGROUND, TEXT_COLOR
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from numpy.typing import NDArray

    from nearcast.model import Match
    from nearcast.plots.notebook import NotebookFigure

__all__ = ["MapData", "draw_map"]

CELLS_PER_DEG = 4
_WIDTH, _HEIGHT = 360 * CELLS_PER_DEG, 180 * CELLS_PER_DEG
_MAX_POINTS = 20_000
_TITLE = "Messages, colored by the number of matches"


def draw_map(
    messages: pa.Table | Iterable[Message] | Any,
    matches: pa.Table | Iterable[Match] | Any,
    subscriptions: pa.Table | Iterable[Subscription] | Any = (),
    *,
    title: str = _TITLE,
    path: str | Path | None = None,
) -> NotebookFigure:
    """Draw a map of messages, colored by the number of their matches.

    Each argument is a table, a frame of pandas or Polars, or objects. Rows that an engine would
    reject are left out. The cities of the world are the background; they need the extra
    ``datasets``.

    Parameters
    ----------
    messages
        The messages.
    matches
        What `Engine.publish` returned, or the ``matches`` of `Engine.publish_table`.
    subscriptions
        If given, the map is shaded by how many subscriptions each cell has. An engine will do.
    title
        The line above the map.
    path
        If given, the map is also written to this PNG file, with 1600 x 900 pixels.

    Returns
    -------
    NotebookFigure
        A figure of matplotlib, which a notebook shows; ``figure.set_dpi(60)`` makes it smaller.

    Examples
    --------
    >>> from nearcast import Engine, Message, Rect, Subscription
    >>> engine = Engine()
    >>> engine.subscribe(Subscription("ann", Rect(11, 48, 12, 49), "tea"))
    >>> messages = [Message(1, (11.5, 48.1), "Hot tea"), Message(2, (11.2, 48.9), "Cake")]
    >>> figure = draw_map(messages, engine.publish(messages), engine)
    >>> figure.texts[1].get_text()
    '1 boxes of subscriptions, 2 messages, 1 matches; 50% of the messages match a subscription'
    """
    data = MapData()
    data.add_boxes(_subscription_boxes(subscriptions))
    ids, box = _message_boxes(messages)
    counts = _count_matches(matches)
    data.add_messages(box, np.array([counts[id] for id in ids], np.int64))
    figure = data.figure(title)
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    return figure


class MapData:
    """The data of a map, collected while a job runs, in a fixed amount of memory.

    Subscriptions are counted on a grid of quarter degrees. Of the messages, an even sample of at
    most 20,000 is kept.
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
        """Count the boxes of subscriptions in each cell that they touch.

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

    def add_messages(self, box: NDArray[np.int32], matches: NDArray[Any]) -> None:
        """Add messages, and the number of matches of each."""
        chosen = np.arange(-self._seen % self._stride, len(box), self._stride)
        self._seen += len(box)
        self._matched += int((matches > 0).sum())
        self._matches += int(matches.sum())
        west, south, east, north = box[chosen].astype(np.float64).T / UNITS
        middle = np.where(west <= east, (west + east) / 2, west)
        self._points.append(np.stack([middle, (south + north) / 2, matches[chosen]], axis=1))
        while sum(map(len, self._points)) > _MAX_POINTS:
            self._points = [np.concatenate(self._points)[::2]]
            self._stride *= 2

    def density(self) -> NDArray[np.float64]:
        """Return the number of subscriptions that touch each cell, from south to north."""
        summed: NDArray[np.float64] = self._corner.cumsum(axis=0).cumsum(axis=1)
        return summed[:_HEIGHT, :_WIDTH]

    def points(self) -> NDArray[np.float64]:
        """Return lon, lat and number of matches of the sampled messages."""
        return np.concatenate([np.empty((0, 3)), *self._points])

    def draw(self, path: Path, title: str) -> None:
        """Draw the map as a PNG of 1600 x 900 pixels."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.figure(title).savefig(path)

    def figure(self, title: str) -> NotebookFigure:
        """Return the map as a figure of 1600 x 900 pixels."""
        from nearcast.plots.notebook import NotebookFigure

        figure = NotebookFigure(figsize=(16, 9), dpi=100, facecolor=BACKGROUND)
        axes = figure.add_axes((0.045, 0.09, 0.845, 0.8))
        extent = self._extent()
        _draw_world(axes, extent)
        shade = self._draw_density(axes)
        dots = self._draw_messages(axes)
        _label_axes(axes, extent)
        _color_bars(figure, shade, dots)
        figure.text(0.045, 0.945, title, fontsize=18, weight="bold", color=TEXT_COLOR)
        figure.text(0.045, 0.912, self._caption(), fontsize=12, color=TEXT_COLOR)
        return figure

    def _caption(self) -> str:
        share = self._matched / self._seen if self._seen else 0.0
        kept = len(self.points())
        shown = "" if kept == self._seen else f" ({kept:,} shown)"
        return (
            f"{self._boxes:,} boxes of subscriptions, {self._seen:,} messages{shown}, "
            f"{self._matches:,} matches; {share:.0%} of the messages match a subscription"
        )

    def _extent(self) -> tuple[float, float, float, float]:
        """Return the extent to show: the whole world, or the region that has all messages."""
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

        density = _merge_cells(self.density())
        if not density.max() > 0:
            return None
        lowest = max(1.0, float(np.percentile(density[density > 0], 1)))
        return axes.imshow(
            np.ma.masked_less_equal(density, 0),
            origin="lower",
            extent=(-180, 180, -90, 90),
            cmap=_color_map("Blues", 0.1, 0.5),
            norm=LogNorm(lowest, max(density.max(), 10 * lowest)),
            interpolation="nearest",
            aspect="auto",
            zorder=1,
        )

    def _draw_messages(self, axes: Any) -> Any:
        from matplotlib.colors import LogNorm

        points = self.points()
        size = float(np.clip(60_000 / max(len(points), 1), 4, 40))
        unmatched = points[points[:, 2] == 0]
        matched = points[points[:, 2] > 0]
        matched = matched[np.argsort(matched[:, 2])]
        axes.scatter(
            unmatched[:, 0],
            unmatched[:, 1],
            s=size / 3,
            c="#8a94a0",
            linewidths=0,
            zorder=3,
            label="message without a match",
        )
        if not len(matched):
            return None
        most_matches = matched[:, 2].max()
        return axes.scatter(
            matched[:, 0],
            matched[:, 1],
            c=matched[:, 2],
            s=size * (0.8 + 2.2 * np.log1p(matched[:, 2]) / np.log1p(most_matches)),
            cmap=_color_map("plasma_r", 0.18, 1.0),
            norm=LogNorm(1, max(most_matches, 2)),
            alpha=0.9,
            linewidths=0,
            zorder=4,
        )


def _message_boxes(messages: Any) -> tuple[list[Any], NDArray[np.int32]]:
    """Return the ids and boxes of messages, given as a table or as objects."""
    if is_table(messages):
        batch, _ = read_messages(table_of(messages, "messages").table, now_us=0)
    else:
        batch = messages_from(list_of(messages, Message), now_us=0)
    return batch.ids.tolist(), batch.box


def _count_matches(matches: Any) -> Counter[Any]:
    """Return the number of matches by the id of the message."""
    if is_table(matches):
        return Counter(table_from(matches)["message_id"].to_pylist())
    return Counter(match.message_id for match in matches)


def _subscription_boxes(subscriptions: Any) -> NDArray[np.int32]:
    """Return the boxes of subscriptions, given as a table or as objects."""
    if is_table(subscriptions):
        table, _ = table_of(subscriptions, "subscriptions")
        columns, _ = read_subscriptions(table, Vocabulary())
        box: NDArray[np.int32] = columns.clauses.box
        return box
    boxes = [box for s in list_of(subscriptions, Subscription) for box in s.region.boxes()]
    return np.array(boxes, np.int32).reshape(-1, 4)


def _cells(box: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return west, south, east and north cell numbers of boxes."""
    degrees = box.astype(np.float64).T / UNITS + np.array([[180], [90], [180], [90]])
    last = np.array([[_WIDTH], [_HEIGHT], [_WIDTH], [_HEIGHT]]) - 1
    cell: NDArray[np.int64] = np.floor(degrees * CELLS_PER_DEG).astype(np.int64)
    return np.clip(cell, 0, last)


def _draw_world(axes: Any, extent: tuple[float, float, float, float]) -> None:
    """Draw all cities as faint dots, as an outline of the world."""
    from nearcast.datasets.places import gazetteer

    cities = gazetteer()
    size = 1.5 if extent[1] - extent[0] > 200 else 6
    axes.scatter(cities.lon, cities.lat, s=size, c="#4f5d6b", alpha=0.18, linewidths=0, zorder=2)


def _label_axes(axes: Any, extent: tuple[float, float, float, float]) -> None:
    axes.set_facecolor("white")
    axes.set_xlim(extent[0], extent[1])
    axes.set_ylim(extent[2], extent[3])
    axes.set_xlabel("longitude (degrees)", color=TEXT_COLOR)
    axes.set_ylabel("latitude (degrees)", color=TEXT_COLOR)
    axes.tick_params(colors=TEXT_COLOR, labelsize=9)
    for side in axes.spines.values():
        side.set_color("#c3c9d1")
    axes.legend(loc="lower left", framealpha=0.85, labelcolor=TEXT_COLOR, markerscale=2)


def _color_bars(figure: Any, shade: Any, dots: Any) -> None:
    """Draw the two color scales to the right of the map."""
    for mappable, bottom, label in (
        (dots, 0.52, "matches per message"),
        (shade, 0.09, "subscriptions per cell"),
    ):
        if mappable is not None:
            bar = figure.colorbar(mappable, cax=figure.add_axes((0.905, bottom, 0.014, 0.37)))
            bar.set_label(label, color=TEXT_COLOR)
            bar.set_ticks(_ticks(mappable.norm.vmin, mappable.norm.vmax))
            bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            bar.ax.minorticks_off()
            bar.ax.tick_params(colors=TEXT_COLOR, labelsize=9)
            bar.outline.set_visible(False)


def _ticks(low: float, high: float) -> list[float]:
    """Return 1, 2, 5, 10, 20 ..., or 1, 10, 100 ... if the range is above three decades."""
    digits = (1, 2, 5) if high <= 1000 * low else (1,)
    ticks = [digit * 10.0**power for power in range(12) for digit in digits]
    return [tick for tick in ticks if low <= tick <= high]


def _merge_cells(density: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the maximum of each 2 x 2 block of cells: single cells are too small to see."""
    blocks = density.reshape(_HEIGHT // 2, 2, _WIDTH // 2, 2)
    coarse: NDArray[np.float64] = blocks.max(axis=(1, 3))
    return coarse


def _color_map(name: str, first: float, last: float) -> Any:
    """Return a part of a color map, without the colors that are invisible on white."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps[name](np.linspace(first, last, 256)))
