"""Figures in one style: title, axes, and the machine on which something was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.plots.machine import one_line

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BEST", "INK", "OTHER", "PAPER", "new_figure", "save_figure", "style"]

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


def style(axes: Any, x_label: str, y_label: str = "") -> None:
    """Style axes like all other figures."""
    axes.set_facecolor("white")
    axes.set_xlabel(x_label, color=INK, fontsize=11)
    axes.set_ylabel(y_label, color=INK, fontsize=11)
    axes.tick_params(colors=INK, length=0)
    axes.grid(axis="x" if not y_label else "both", color="#e3e7ec", linewidth=0.8)
    axes.set_axisbelow(True)
    for name, side in axes.spines.items():
        side.set_visible(name in {"left", "bottom"})
        side.set_color("#c3c9d1")
