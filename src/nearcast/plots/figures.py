"""The common style of figures: title, axes, and a line about the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.plots.machine import machine_caption

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "BACKGROUND",
    "BASE_COLOR",
    "HIGHLIGHT",
    "TEXT_COLOR",
    "new_figure",
    "save_figure",
    "style_axes",
]

TEXT_COLOR = "#1d2733"
BACKGROUND = "#f7f8fa"
HIGHLIGHT = "#d1495b"
BASE_COLOR = "#5b7c99"


def new_figure(
    title: str, subtitle: str, machine: dict[str, Any] | None, height: float = 9.0
) -> Any:
    """Return an empty figure with a title, a subtitle, and the machine, if any, at the bottom."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(16, height), dpi=100, facecolor=BACKGROUND)
    FigureCanvasAgg(figure)
    figure.text(0.03, 1 - 0.5 / height, title, fontsize=18, weight="bold", color=TEXT_COLOR)
    figure.text(0.03, 1 - 0.85 / height, subtitle, fontsize=12, color=TEXT_COLOR)
    if machine is not None:
        figure.text(0.03, 0.18 / height, machine_caption(machine), fontsize=9, color="#6b7683")
    return figure


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def style_axes(axes: Any, x_label: str, y_label: str = "") -> None:
    """Apply the common style to axes, and label them."""
    axes.set_facecolor("white")
    axes.set_xlabel(x_label, color=TEXT_COLOR, fontsize=11)
    axes.set_ylabel(y_label, color=TEXT_COLOR, fontsize=11)
    axes.tick_params(colors=TEXT_COLOR, length=0)
    axes.grid(axis="x" if not y_label else "both", color="#e3e7ec", linewidth=0.8)
    axes.set_axisbelow(True)
    for name, side in axes.spines.items():
        side.set_visible(name in {"left", "bottom"})
        side.set_color("#c3c9d1")
