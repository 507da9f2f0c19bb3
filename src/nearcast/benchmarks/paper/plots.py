"""Draw the figures of a paper from the measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.benchmarks.paper.axes import (
    RIGHT,
    add_legend,
    add_panel,
    draw_bars,
    draw_line,
    format_short,
    group_title,
    needs_log_scale,
    row_position,
    set_y_axis,
)
from nearcast.benchmarks.paper.figures import Figure, Sweep
from nearcast.benchmarks.paper.results import QUANTITIES, Measured, Results
from nearcast.plots.figures import HIGHLIGHT, TEXT_COLOR, new_figure, save_figure, style_axes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from nearcast.benchmarks.paper.experiment import Experiment

__all__ = ["plot_figures"]

COLORS = (
    "#5b7c99",
    "#edae49",
    "#66a182",
    "#8d6a9f",
    "#9aa5b1",
    "#c9803a",
    "#2e86ab",
    "#3d405b",
    "#81b29a",
)
MARKERS = "sD^vPX*<>"
_RIGHT_WITH_LEGEND = 0.79
"""The right edge of the panels if there is a legend beside them."""

_MAX_NAMED = 2
"""Names of more data sets or groups do not fit into a subtitle."""

_Panels = dict[tuple[str, str], list[Measured]]
"""The values of bars, by quantity and title of the panel."""


def plot_figures(experiment: Experiment, result: dict[str, Any], folder: Path) -> list[Path]:
    """Draw each figure of an experiment as a PNG file; return the paths."""
    drawing = _Drawing(result, experiment.highlighted, experiment.note)
    paths = []
    for figure in experiment.figures:
        path = folder / f"paper-{experiment.name}-{figure.name}.png"
        save_figure(_draw(figure, drawing), path)
        paths.append(path)
    return paths


def _draw(figure: Figure | Sweep, drawing: _Drawing) -> Any:
    if isinstance(figure, Sweep):
        return _sweep(figure, drawing)
    kinds = {"lengths": _lengths, "groups": _groups, "scale": _scale}
    return (kinds | {"mixed": _mixed, "datasets": _datasets})[figure.kind](figure, drawing)


class _Drawing:
    """The results to draw, and the style of the series."""

    def __init__(self, result: dict[str, Any], highlighted: str, note: str) -> None:
        self.found = Results(result)
        self._note = note
        self._result = result
        self._highlighted = highlighted

    def line_styles(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """Return the color and marker of each series; the highlighted one is always the same."""
        return [
            (HIGHLIGHT, "o")
            if name == self._highlighted
            else (COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)])
            for number, name in enumerate(names)
        ]

    def canvas(self, title: str, data: Sequence[str], height: float) -> Any:
        """Return an empty figure with title and subtitle."""
        named = " and ".join(filter(None, (", ".join(data[:-1]), data[-1])))
        if len(data) > _MAX_NAMED:  # the panels have their names
            named = f"{len(data)} groups"
        # A group may have its own size.
        load = self._result.get("loads", {}).get(data[0], self._result)
        subtitle = (
            f"{named}, {load['subscriptions']:,} subscriptions, median of "
            f"{self._result['rounds']} {self._result.get('rounds_are', 'rounds')} "
            "(whiskers: minimum and maximum)"
        )
        if self._note:
            subtitle += f". {self._note}"
        return new_figure(title, subtitle, self._result["machine"], height)


def _lengths(figure: Figure, drawing: _Drawing) -> Any:
    """Draw lines by tokens per message, with rows for time and work, and the sizes."""
    [dataset] = figure.datasets

    def at(quantity: str, group: str) -> list[list[Measured]]:
        return [
            [
                drawing.found.find(quantity, dataset, series, point)
                for point in figure.length_groups(group)
            ]
            for series in figure.series
        ]

    rows = [
        (quantity, panels)
        for quantity in ("time", "examined", "visited")
        if _any(panels := {group: at(quantity, group) for group in figure.groups})
    ]
    height = 1.6 + 3.2 * len(rows)
    canvas = drawing.canvas(figure.title, figure.datasets, height)
    names = [figure.names.get(series, series) for series in figure.series]
    line_styles = drawing.line_styles(figure.series)
    for row, (quantity, panels) in enumerate(rows):
        logarithmic = any(needs_log_scale(_flat(lines)) for lines in panels.values())
        label = QUANTITIES[quantity].label + (" (log.)" if logarithmic else "")
        for column, (group, lines) in enumerate(panels.items()):
            place = (row, len(rows)), (column, len(panels))
            axes = add_panel(canvas, height, *place, _RIGHT_WITH_LEGEND)
            for line_style, line, name in zip(line_styles, lines, names, strict=True):
                draw_line(axes, line_style, figure.lengths[group], line, name)
            last = row == len(rows) - 1
            style_axes(axes, "tokens per message" if last else "", label if column == 0 else " ")
            set_y_axis(axes, logarithmic=logarithmic)
            axes.set_xticks(figure.lengths[group])
            if row == 0:
                axes.set_title(group_title(group), fontsize=12, color=TEXT_COLOR)
    add_legend(canvas, height, canvas.axes[0])
    _sizes(canvas, height, (len(rows) - 1, len(rows)), figure, drawing)
    return canvas


def _any(panels: dict[str, list[list[Measured]]]) -> bool:
    return any(one.median for lines in panels.values() for one in _flat(lines))


def _flat(lines: Sequence[list[Measured]]) -> list[Measured]:
    return [one for line in lines for one in line]


def _sizes(
    canvas: Any, height: float, row: tuple[int, int], figure: Figure, drawing: _Drawing
) -> None:
    """Draw bytes per subscription, one bar per series in the color of its line."""
    bottom, tall = row_position(height, row)
    axes = canvas.add_axes((0.81, bottom, RIGHT - 0.81, tall))
    find, dataset = drawing.found.find, figure.datasets[0]
    sizes = [find("bytes", dataset, series, "") for series in reversed(figure.series)]
    colors = [color for color, _ in reversed(drawing.line_styles(figure.series))]
    draw_bars(axes, sizes, colors, logarithmic=needs_log_scale(sizes))
    axes.set_yticks([])
    style_axes(axes, QUANTITIES["bytes"].label)


def _groups(figure: Figure, drawing: _Drawing) -> Any:
    """Draw one bar per series, one panel per group, one row per data set."""
    return _over_groups(figure, drawing, "time")


def _mixed(figure: Figure, drawing: _Drawing) -> Any:
    """Draw operations per second, one panel per group."""
    return _over_groups(figure, drawing, "operations")


def _over_groups(figure: Figure, drawing: _Drawing, quantity: str) -> Any:
    panels = {
        (quantity, f"{dataset}: {group_title(group)}"): [
            drawing.found.find(quantity, dataset, series, group)
            for series in reversed(figure.series)
        ]
        for dataset in figure.datasets
        for group in figure.groups
    }
    logarithmic = {quantity} if any(needs_log_scale(panel) for panel in panels.values()) else set()
    return _bar_panels(figure, drawing, panels, logarithmic, len(figure.datasets))


def _datasets(figure: Figure, drawing: _Drawing) -> Any:
    """Draw one bar per series, one panel per data set, one row per quantity."""
    [group] = figure.groups
    panels = {
        (quantity, dataset): [
            drawing.found.find(quantity, dataset, series, group)
            for series in reversed(figure.series)
        ]
        for quantity in figure.measures
        for dataset in figure.datasets
    }
    logarithmic = {quantity for (quantity, _), panel in panels.items() if needs_log_scale(panel)}
    return _bar_panels(figure, drawing, panels, logarithmic, len(figure.measures))


def _bar_panels(
    figure: Figure, drawing: _Drawing, panels: _Panels, logarithmic: set[str], rows: int
) -> Any:
    """Draw panels of bars, row by row; ``logarithmic`` has the quantities with a log scale."""
    height = 1.6 + rows * (0.9 + 0.42 * len(figure.series))
    canvas = drawing.canvas(figure.title, figure.datasets, height)
    colors = [color for color, _ in reversed(drawing.line_styles(figure.series))]
    shown = [figure.names.get(series, series) for series in reversed(figure.series)]
    columns = len(panels) // rows
    for number, ((quantity, title), found) in enumerate(panels.items()):
        row, column = divmod(number, columns)
        axes = add_panel(canvas, height, (row, rows), (column, columns), left=0.11)
        draw_bars(axes, found, colors, logarithmic=quantity in logarithmic)
        names = shown if column == 0 else [""] * len(found)
        axes.set_yticks(range(len(found)), names, fontsize=11, color=TEXT_COLOR)
        label = QUANTITIES[quantity].label
        style_axes(axes, label + (" (logarithmic)" if quantity in logarithmic else ""))
        axes.set_title(title, fontsize=12, color=TEXT_COLOR)
    return canvas


def _scale(figure: Figure, drawing: _Drawing) -> Any:
    """Draw time by number of subscriptions, and a line for proportional growth."""
    [dataset] = figure.datasets
    height = 5.0
    canvas = drawing.canvas(figure.title, figure.datasets, height)
    counts = [drawing.found.subscriptions(dataset, series) for series in figure.series]
    for column, group in enumerate(figure.groups):
        axes = add_panel(canvas, height, (0, 1), (column, len(figure.groups)))
        points = [drawing.found.find("time", dataset, label, group) for label in figure.series]
        draw_line(axes, (HIGHLIGHT, "o"), counts, points, "measured")
        linear = [points[0].median * count / counts[0] for count in counts]
        axes.plot(counts, linear, "--", color="#8a94a0", linewidth=1.2, label="proportional")
        style_axes(axes, "subscriptions", QUANTITIES["time"].label if column == 0 else " ")
        set_y_axis(axes, logarithmic=False)
        axes.set_xlim(0, counts[-1] * 1.06)
        axes.set_xticks(counts, [format_short(count) for count in counts])
        axes.set_title(group_title(group), fontsize=12, color=TEXT_COLOR)
        axes.legend(loc="upper left", framealpha=0.9, labelcolor=TEXT_COLOR, fontsize=9)
    return canvas


def _sweep(figure: Sweep, drawing: _Drawing) -> Any:
    """Draw lines by the varied parameter, one column per panel, one row per quantity."""
    rows, columns = len(figure.measures), len(figure.panels)
    height = 1.8 + 3.2 * rows
    canvas = drawing.canvas(figure.title, list(figure.panels), height)
    line_styles = drawing.line_styles(figure.names)
    for row, quantity in enumerate(figure.measures):
        for column, (title, lines) in enumerate(figure.panels.items()):
            axes = add_panel(canvas, height, (row, rows), (column, columns), _RIGHT_WITH_LEGEND)
            found = {
                name: [drawing.found.find(quantity, *point) for point in line.values()]
                for name, line in lines.items()
            }
            for line_style, (name, line) in zip(line_styles, lines.items(), strict=True):
                draw_line(axes, line_style, list(line), found[name], name)
            label = QUANTITIES[quantity].label
            style_axes(
                axes, figure.parameter if row == rows - 1 else "", label if column == 0 else " "
            )
            set_y_axis(axes, logarithmic=needs_log_scale(_flat(list(found.values()))))
            _set_x_ticks(axes, sorted({value for line in lines.values() for value in line}))
            if row == 0:
                axes.set_title(title, fontsize=12, color=TEXT_COLOR)
    add_legend(canvas, height, canvas.axes[0])
    return canvas


def _set_x_ticks(axes: Any, values: list[float]) -> None:
    """Label the values of the x axis; use a log scale if they span a factor of 10."""
    from matplotlib.ticker import NullLocator

    if values[-1] >= 10 * values[0] > 0:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(values, [f"{value:,.10g}" for value in values])
