"""Pictures of experiments, as PNG files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.bench.machine import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["new_figure", "plot_comparison", "save_figure", "style"]

INK = "#1d2733"
PAPER = "#f7f8fa"
BEST = "#d1495b"
OTHER = "#5b7c99"


def new_figure(title: str, subtitle: str, machine: dict[str, Any], height: float = 9.0) -> Any:
    """Return an empty figure with title, subtitle and the machine below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(16, height), dpi=100, facecolor=PAPER)
    FigureCanvasAgg(figure)
    figure.text(0.03, 1 - 0.5 / height, title, fontsize=18, weight="bold", color=INK)
    figure.text(0.03, 1 - 0.85 / height, subtitle, fontsize=12, color=INK)
    figure.text(0.03, 0.18 / height, one_line(machine), fontsize=9, color="#6b7683")
    return figure


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def plot_comparison(result: dict[str, Any], path: Path) -> None:
    """Draw the figures of a comparison: time, memory and build time, index by index."""
    found = sorted(result["results"], key=lambda r: r["us_per_message"]["median"], reverse=True)
    height = max(4.2, 2.6 + 0.55 * len(found))
    figure = new_figure(
        f"{result['dataset']}: {result['subscriptions']:,} subscriptions, "
        f"{result['group']} messages",
        f"{result['messages']:,} messages, median of {result['rounds']} rounds in turn "
        f"(whiskers: least and most), threads: {result['threads']}; "
        f"{found[-1]['matches_per_message']:,.1f} matches a message",
        result["machine"],
        height,
    )
    names = [r["index"] for r in found]
    panels = (
        ("microseconds a message", [r["us_per_message"]["median"] for r in found], 0.16, 0.36),
        ("bytes a subscription", [r["bytes_per_subscription"] for r in found], 0.57, 0.18),
        ("seconds to build", [r["build_s"] for r in found], 0.79, 0.18),
    )
    bottom, tall = 0.85 / height, (height - 2.25) / height
    for number, (label, values, left, width) in enumerate(panels):
        axes = figure.add_axes((left, bottom, width, tall))
        whiskers = _whiskers(found) if number == 0 else None
        _bars(axes, label, names if number == 0 else [""] * len(names), values, whiskers)
    save_figure(figure, path)


def _whiskers(found: Sequence[dict[str, Any]]) -> list[list[float]]:
    timing = [r["us_per_message"] for r in found]
    return [[t["median"] - t["least"] for t in timing], [t["most"] - t["median"] for t in timing]]


def _bars(
    axes: Any,
    label: str,
    names: Sequence[str],
    values: Sequence[float],
    whiskers: list[list[float]] | None,
) -> None:
    """Draw one horizontal bar a value, the best one in another colour."""
    positive = [v for v in values if v > 0]
    best = min(positive, default=0.0)
    logarithmic = bool(positive) and max(positive) > 20 * best
    colours = [BEST if v == best else OTHER for v in values]
    axes.barh(range(len(values)), values, color=colours, height=0.62, xerr=whiskers, ecolor=INK)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(best / 3, max(positive) * 6)
    else:
        axes.set_xlim(0, max(values, default=1.0) * 1.3 or 1.0)
    for i, value in enumerate(values):
        reach = value + (whiskers[1][i] if whiskers else 0.0)
        axes.annotate(
            _short(value),
            (reach, i),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize=11,
            color=INK,
        )
    axes.set_yticks(range(len(names)), names, fontsize=12, color=INK)
    style(axes, label + (" (logarithmic)" if logarithmic else ""))


def style(axes: Any, x_label: str, y_label: str = "") -> None:
    """Give axes the look of the house."""
    axes.set_facecolor("white")
    axes.set_xlabel(x_label, color=INK, fontsize=11)
    axes.set_ylabel(y_label, color=INK, fontsize=11)
    axes.tick_params(colors=INK, length=0)
    axes.grid(axis="x" if not y_label else "both", color="#e3e7ec", linewidth=0.8)
    axes.set_axisbelow(True)
    for name, side in axes.spines.items():
        side.set_visible(name in {"left", "bottom"})
        side.set_color("#c3c9d1")


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
