"""The figure of a comparison: time, memory and build time of each index."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nearcast.benchmarks.report import describe_ranking, fewer_messages
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

__all__ = ["plot_comparison"]


def plot_comparison(result: dict[str, Any], path: Path) -> None:
    """Draw a comparison: time, memory and build time of each index."""
    results = sorted(result["results"], key=lambda r: r["us_per_message"]["median"], reverse=True)
    height = max(4.2, 2.6 + 0.55 * len(results))
    kind = f"{result['kind']} " if result.get("ranking") is not None else ""
    figure = new_figure(
        f"{result['dataset']}: {result['subscriptions']:,} {kind}subscriptions, "
        f"{result['group']} messages",
        _subtitle(result, results[-1]),
        result["machine"],
        height,
    )
    names = [_label(result, r) for r in results]
    panels = [
        ("microseconds per message", [r["us_per_message"]["median"] for r in results]),
        ("bytes per subscription", [r["bytes_per_subscription"] for r in results]),
        ("seconds to build", [r["build_s"] for r in results]),
    ]
    edges = [(0.16, 0.36), (0.57, 0.18), (0.79, 0.18)]
    if result.get("ranking") is not None:
        # All have the same matches: whiskers of the first panel would say the same here.
        panels.insert(1, ("nanoseconds per match", [r["ns_per_match"] or 0.0 for r in results]))
        edges = [(0.16, 0.25), (0.45, 0.16), (0.65, 0.14), (0.83, 0.14)]
    bottom, panel_height = 0.85 / height, (height - 2.25) / height
    for number, ((label, values), (left, width)) in enumerate(zip(panels, edges, strict=True)):
        axes = figure.add_axes((left, bottom, width, panel_height))
        ends = _round_ends(results) if number == 0 else None
        _draw_bars(axes, label, names if number == 0 else [""] * len(names), values, ends)
    save_figure(figure, path)


def _subtitle(result: dict[str, Any], fastest: dict[str, Any]) -> str:
    """Return the size of the comparison; with the ranges of ranked subscriptions, if any."""
    ranking = describe_ranking(result).partition("(")[2].removesuffix(")")
    whiskers = "" if ranking else " (whiskers: minimum and maximum)"
    return (
        f"{result['messages']:,} messages, median of {result['rounds']} rounds{whiskers}, "
        f"threads: {result['threads']}; {fastest['matches_per_message']:,.1f} matches per message"
        + (f"; {ranking}" if ranking else "")
    )


def _label(result: dict[str, Any], measured: dict[str, Any]) -> str:
    """Return the name of an index, and how many messages it got if not all."""
    few = fewer_messages(result, measured)
    return f"{measured['index']}\n{few}" if few else str(measured["index"])


def _round_ends(results: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return the fastest and the slowest round of each index."""
    return [(r["us_per_message"]["least"], r["us_per_message"]["most"]) for r in results]


def _draw_bars(
    axes: Any,
    label: str,
    names: Sequence[str],
    values: Sequence[float],
    ends: Sequence[tuple[float, float]] | None,
) -> None:
    """Draw one horizontal bar per value, and highlight the best.

    The axis is logarithmic if there are whiskers, or if the values differ by more than 20 times.
    """
    positive = [v for v in values if v > 0]
    best, worst = min(positive, default=0.0), max(positive, default=0.0)
    logarithmic = bool(positive) and (ends is not None or worst > 20 * best)
    colors = [HIGHLIGHT if v == best else BASE_COLOR for v in values]
    axes.barh(range(len(values)), values, color=colors, height=0.62)
    for i, (least, most) in enumerate(ends or ()):
        axes.plot([least, most], [i, i], color=TEXT_COLOR, linewidth=1.5, zorder=3)
        axes.plot([least, most], [i, i], "|", color=TEXT_COLOR, markersize=7, zorder=3)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(*_log_limits([*positive, *(end for pair in ends or () for end in pair)]))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    else:
        axes.set_xlim(0, max(values, default=1.0) * 1.3 or 1.0)
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    for i, value in enumerate(values):
        # Above the whisker, which begins inside the bar and may go on to the right of its end.
        axes.annotate(
            _format_number(value),
            (value, i),
            (5, 10 if ends else 0),
            textcoords="offset points",
            va="center",
            fontsize=11,
            color=TEXT_COLOR,
        )
    axes.set_yticks(range(len(names)), names, fontsize=12, color=TEXT_COLOR)
    style_axes(axes, label + (" (logarithmic)" if logarithmic else ""))


def _log_limits(values: Sequence[float]) -> tuple[float, float]:
    """Return limits of a logarithmic axis: powers of ten at least around all values.

    Examples
    --------
    >>> _log_limits([2.0, 50.0])
    (1.0, 200.0)
    """
    least, most = min(values), max(values)
    return min(10.0 ** math.floor(math.log10(least)), least / 1.5), most * 4


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
