"""The figures of a paper, drawn from what was measured here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.bench.plots import BEST, INK, new_figure, save_figure, style

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from nearcast.bench.paper.experiment import Experiment, Figure

__all__ = ["plot_figures"]

COLOURS = ("#5b7c99", "#edae49", "#66a182", "#8d6a9f", "#9aa5b1", "#c9803a")
MARKERS = "sD^vPX"
_LEFT, _RIGHT = 0.05, 0.985
_ROWS = (
    ("us_per_message", "µs a message"),
    ("examined_per_message", "examined a message"),
    ("visited_per_message", "nodes visited a message"),
)


def plot_figures(experiment: Experiment, result: dict[str, Any], folder: Path) -> list[Path]:
    """Draw every figure of an experiment as a PNG file of its own; return the files."""
    draw = {"lengths": _lengths, "groups": _groups, "scale": _scale, "mixed": _mixed}
    paths = []
    for figure in experiment.figures:
        path = folder / f"paper-{experiment.name}-{figure.name}.png"
        save_figure(draw[figure.kind](figure, _Found(result, experiment.own)), path)
        paths.append(path)
    return paths


class _Found:
    """A result, by data set, series and group; and the series that stands out."""

    def __init__(self, result: dict[str, Any], own: str) -> None:
        self.result = result
        self.own = own
        self.point = {(p["dataset"], p["series"], p["group"]): p for p in result["points"]}
        self.mixed = {(p["dataset"], p["series"], p["group"]): p for p in result["mixed"]}
        self.build = {(b["dataset"], b["series"]): b for b in result["builds"]}

    def looks(self, figure: Figure) -> list[tuple[str, str]]:
        """Return colour and marker of every series; the paper's own index is always the same."""
        return [
            (BEST, "o")
            if series == self.own
            else (COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)])
            for number, series in enumerate(figure.series)
        ]

    def canvas(self, figure: Figure, height: float) -> Any:
        """Return an empty figure with its titles."""
        data = " and ".join(figure.datasets)
        subtitle = (
            f"{data}, {self.result['subscriptions']:,} subscriptions, median of "
            f"{self.result['rounds']} rounds in turn (whiskers: least and most)"
        )
        return new_figure(figure.title, subtitle, self.result["machine"], height)


def _value(point: dict[str, Any], name: str) -> float:
    value = point[name]
    return float(value["median"] if isinstance(value, dict) else value)


def _whiskers(points: Sequence[dict[str, Any]], name: str) -> list[list[float]] | None:
    if not isinstance(points[0][name], dict):
        return None
    spreads = [point[name] for point in points]
    below = [s["median"] - s["least"] for s in spreads]
    return [below, [s["most"] - s["median"] for s in spreads]]


def _lengths(figure: Figure, found: _Found) -> Any:
    """Draw lines over the tokens of a message, a row each for time and work, and the sizes."""
    [dataset] = figure.datasets
    panels = {
        group: {
            series: [found.point[dataset, series, point] for point in figure.at(group)]
            for series in figure.series
        }
        for group in figure.groups
    }
    rows = [(name, label) for name, label in _ROWS if any(_values(panels, name))]
    height = 1.6 + 3.2 * len(rows)
    canvas = found.canvas(figure, height)
    for row, (name, label) in enumerate(rows):
        logarithmic = any(_wide(_values({"": panel}, name)) for panel in panels.values())
        label += " (log.)" if logarithmic else ""
        for column, group in enumerate(figure.groups):
            axes = _panel(canvas, height, (row, len(rows)), (column, len(figure.groups)), 0.79)
            for look, series in zip(found.looks(figure), figure.series, strict=True):
                points, shown = panels[group][series], figure.names.get(series, series)
                _line(axes, look, figure.lengths[group], points, name, shown)
            last = row == len(rows) - 1
            style(axes, "tokens of a message" if last else "", label if column == 0 else " ")
            _upright(axes, logarithmic=logarithmic)
            axes.set_xticks(figure.lengths[group])
            if row == 0:
                axes.set_title(_told(group), fontsize=12, color=INK)
    _legend(canvas, height, canvas.axes[0])
    _sizes(canvas, height, (len(rows) - 1, len(rows)), figure, found)
    return canvas


def _values(panels: dict[str, dict[str, list[dict[str, Any]]]], name: str) -> list[float]:
    lines = [points for panel in panels.values() for points in panel.values()]
    return [_value(point, name) for points in lines for point in points]


def _wide(values: Sequence[float]) -> bool:
    """Return whether values are of so many sizes that only a logarithmic axis shows them."""
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) > 20 * min(positive)


def _sizes(canvas: Any, height: float, row: tuple[int, int], figure: Figure, found: _Found) -> None:
    """Draw the bytes of a subscription, a bar for each series in the colour of its line."""
    bottom, tall = _vertical(height, row)
    axes = canvas.add_axes((0.81, bottom, _RIGHT - 0.81, tall))
    builds = [found.build[figure.datasets[0], series] for series in reversed(figure.series)]
    values = [build["bytes_per_subscription"] for build in builds]
    colours = [colour for colour, _ in reversed(found.looks(figure))]
    _bars(axes, values, colours, None, logarithmic=_wide(values))
    axes.set_yticks([])
    style(axes, "bytes a subscription")


def _groups(figure: Figure, found: _Found) -> Any:
    """Draw a bar for each series, a panel for each group, a row for each data set."""
    return _bar_panels(
        figure,
        found,
        lambda dataset, series, group: found.point[dataset, series, group],
        ("us_per_message", "µs a message"),
    )


def _mixed(figure: Figure, found: _Found) -> Any:
    """Draw operations a second, a panel for each group."""
    return _bar_panels(
        figure,
        found,
        lambda dataset, series, group: found.mixed[dataset, series, group],
        ("operations_per_second", "operations a second"),
    )


def _bar_panels(
    figure: Figure,
    found: _Found,
    at: Callable[[str, str, str], dict[str, Any]],
    quantity: tuple[str, str],
) -> Any:
    name, label = quantity
    rows = len(figure.datasets)
    height = 1.6 + rows * (0.9 + 0.42 * len(figure.series))
    canvas = found.canvas(figure, height)
    colours = [colour for colour, _ in reversed(found.looks(figure))]
    shown = [figure.names.get(series, series) for series in reversed(figure.series)]
    panels = {
        (dataset, group): [at(dataset, series, group) for series in reversed(figure.series)]
        for dataset in figure.datasets
        for group in figure.groups
    }
    logarithmic = any(_wide([_value(p, name) for p in panel]) for panel in panels.values())
    for number, ((dataset, group), points) in enumerate(panels.items()):
        row, column = divmod(number, len(figure.groups))
        axes = _panel(canvas, height, (row, rows), (column, len(figure.groups)), _RIGHT, 0.11)
        values = [_value(point, name) for point in points]
        _bars(axes, values, colours, _whiskers(points, name), logarithmic=logarithmic)
        names = shown if column == 0 else [""] * len(values)
        axes.set_yticks(range(len(values)), names, fontsize=11, color=INK)
        style(axes, label + (" (logarithmic)" if logarithmic else ""))
        axes.set_title(f"{dataset}: {_told(group)}", fontsize=12, color=INK)
    return canvas


def _scale(figure: Figure, found: _Found) -> Any:
    """Draw time over the number of subscriptions, beside what it would be if it grew as they do."""
    [dataset] = figure.datasets
    height = 5.0
    canvas = found.canvas(figure, height)
    counts = [found.build[dataset, series]["subscriptions"] for series in figure.series]
    for column, group in enumerate(figure.groups):
        axes = _panel(canvas, height, (0, 1), (column, len(figure.groups)), _RIGHT)
        points = [found.point[dataset, series, group] for series in figure.series]
        _line(axes, (BEST, "o"), counts, points, "us_per_message", "measured")
        first = _value(points[0], "us_per_message")
        linear = [first * count / counts[0] for count in counts]
        axes.plot(counts, linear, "--", color="#8a94a0", linewidth=1.2, label="in proportion")
        style(axes, "subscriptions", "µs a message" if column == 0 else " ")
        _upright(axes, logarithmic=False)
        axes.set_xlim(0, counts[-1] * 1.06)
        axes.set_xticks(counts, [_short(count) for count in counts])
        axes.set_title(_told(group), fontsize=12, color=INK)
        axes.legend(loc="upper left", framealpha=0.9, labelcolor=INK, fontsize=9)
    return canvas


def _vertical(height: float, row: tuple[int, int]) -> tuple[float, float]:
    """Return bottom and height of a row of panels, as shares of the figure."""
    number, rows = row
    gap, below, above = 0.85, 0.95, 1.45
    each = (height - below - above + gap) / rows
    return (below + (rows - 1 - number) * each) / height, (each - gap) / height


def _panel(
    canvas: Any,
    height: float,
    row: tuple[int, int],
    column: tuple[int, int],
    right: float,
    left: float = _LEFT,
) -> Any:
    bottom, tall = _vertical(height, row)
    number, columns = column
    each = (right + 0.03 - left) / columns
    return canvas.add_axes((left + number * each, bottom, each - 0.03, tall))


def _line(
    axes: Any,
    look: tuple[str, str],
    x: Sequence[float],
    points: Sequence[dict[str, Any]],
    name: str,
    label: str,
) -> None:
    axes.errorbar(
        x,
        [_value(point, name) for point in points],
        yerr=_whiskers(points, name),
        color=look[0],
        marker=look[1],
        markersize=5,
        linewidth=1.6,
        label=label,
    )


def _upright(axes: Any, *, logarithmic: bool) -> None:
    """Let the y axis begin at 0, or be logarithmic."""
    if logarithmic:
        axes.set_yscale("log")
        _plain_ticks(axes.yaxis, *axes.get_ylim())
    else:
        # One disturbed round must not press all lines flat: its whisker leaves the panel.
        most = max(max(line.get_ydata()) for line in axes.lines)
        axes.set_ylim(0, min(max(axes.dataLim.y1 * 1.05, most * 1.1), most * 1.6) or 1.0)
    axes.tick_params(which="both", labelsize=9, length=0)


def _plain_ticks(axis: Any, least: float, most: float) -> None:
    """Write few and whole numbers at a logarithmic axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0,) if most > 50 * least else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axis.set_minor_locator(NullLocator())


def _legend(canvas: Any, height: float, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    canvas.legend(
        handles,
        labels,
        loc="upper left",
        bbox_to_anchor=(0.8, 1 - 1.35 / height),
        frameon=False,
        labelcolor=INK,
        fontsize=11,
    )


def _bars(
    axes: Any,
    values: Sequence[float],
    colours: Sequence[str],
    whiskers: list[list[float]] | None,
    *,
    logarithmic: bool,
) -> None:
    """Draw horizontal bars with their figures behind them."""
    axes.barh(range(len(values)), values, color=colours, height=0.62, xerr=whiskers, ecolor=INK)
    above = whiskers[1] if whiskers else [0.0] * len(values)
    reach = [value + more for value, more in zip(values, above, strict=True)]
    positive = [value for value in values if value > 0]
    if logarithmic and positive:
        axes.set_xscale("log")
        # Room for the figures: a share of the axis, whatever it spans.
        least, most = min(positive) / 3, max(reach)
        axes.set_xlim(least, most * (most / least) ** 0.35)
        _plain_ticks(axes.xaxis, *axes.get_xlim())
    else:
        axes.set_xlim(0, max(reach) * 1.35 or 1.0)
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.7g}")
    axes.tick_params(which="both", length=0)
    for i, (value, end) in enumerate(zip(values, reach, strict=True)):
        axes.annotate(
            _short(value),
            (end, i),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=10,
            color=INK,
        )


def _told(group: str) -> str:
    """Return a group's name for people."""
    tokens, _, place = group.partition("-")
    return f"{tokens} tokens, {place}" if tokens.isdigit() else f"{tokens} {place}"


def _short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
