"""The figure of the history: one small panel per figure, over commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.benchmarks.history import compare_with_earlier, series
from nearcast.plots.figures import (
    BASE_COLOR,
    HIGHLIGHT,
    TEXT_COLOR,
    new_figure,
    save_figure,
    style_axes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from nearcast.benchmarks.history import Comparison

__all__ = ["plot_history"]

_COLUMNS = 3
_PANEL_HEIGHT = 2.6
_MAX_COMMITS = 40


def plot_history(
    records: Sequence[dict[str, Any]], path: Path, last: dict[str, Any] | None = None
) -> None:
    """Draw the figures of the records that can be compared with the last one.

    Dots are medians, whiskers the quartiles of the rounds. A red dot is slow.
    """
    last = records[-1] if last is None else last
    drawn = series(records, last)[-_MAX_COMMITS:]
    compared = [{c.name: c for c in compare_with_earlier(records, record)} for record in drawn]
    newest_first = reversed(compared)
    names = list(dict.fromkeys(name for comparisons in newest_first for name in comparisons))
    rows = -(-len(names) // _COLUMNS)
    height = 2.0 + rows * _PANEL_HEIGHT
    figure = new_figure(
        f"{len(drawn)} {'commit' if len(drawn) == 1 else 'commits'}, "
        f"{last['subscriptions']:,} subscriptions",
        "CPU time relative to a sort with NumPy; lower is better. Whiskers: quartiles of the "
        "rounds. Red: slower than the commits before.",
        last["machine"],
        height,
    )
    commits = [record["commit"] + ("*" if record["dirty"] else "") for record in drawn]
    for number, name in enumerate(names):
        row, column = divmod(number, _COLUMNS)
        bottom = height - 1.35 - (row + 1) * _PANEL_HEIGHT + 0.75
        axes = figure.add_axes(
            (0.05 + column * 0.325, bottom / height, 0.27, (_PANEL_HEIGHT - 1.05) / height)
        )
        figures = [record["figures"].get(name) for record in drawn]
        _draw_panel(axes, figures, [comparisons.get(name) for comparisons in compared])
        axes.set_title(name, fontsize=12, color=TEXT_COLOR, loc="left")
        axes.set_xticks(range(len(commits)), commits, rotation=30, ha="right", fontsize=8)
        axes.set_xlim(-0.5, len(commits) - 0.5)
    save_figure(figure, path)


def _draw_panel(
    axes: Any,
    figures: Sequence[dict[str, Any] | None],
    compared: Sequence[Comparison | None],
) -> None:
    places = [i for i, figure in enumerate(figures) if figure is not None]
    medians, low, high, slow, unit = [], [], [], [], ""
    for i in places:
        figure, comparison = figures[i], compared[i]
        if figure is None or comparison is None:
            continue
        ratio = figure.get("ratio")
        medians.append(comparison.compared)
        low.append(comparison.compared - ratio["low"] if ratio else 0.0)
        high.append(ratio["high"] - comparison.compared if ratio else 0.0)
        slow.append(comparison.slow)
        unit = "ratio" if ratio else figure["unit"]
    style_axes(axes, "", unit)
    axes.errorbar(
        places, medians, yerr=[low, high], color=BASE_COLOR, ecolor="#a9b8c6", linewidth=1.5
    )
    colors = [HIGHLIGHT if marked else BASE_COLOR for marked in slow]
    axes.scatter(places, medians, c=colors, s=36, zorder=3)
    axes.set_ylim(0, max((m + h for m, h in zip(medians, high, strict=True)), default=1.0) * 1.2)
