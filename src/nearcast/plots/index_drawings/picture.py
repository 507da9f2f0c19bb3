"""Draws the structure of an index: the map above, the tree of its nodes below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast import indexes
from nearcast.errors import NearcastError, UnknownName
from nearcast.indexes import moving
from nearcast.plots.figures import BACKGROUND, BASE_COLOR, HIGHLIGHT, TEXT_COLOR
from nearcast.plots.index_drawings.example import MOVING_OPTIONS, OPTIONS
from nearcast.plots.index_drawings.moving_structures import read_moving_structure
from nearcast.plots.index_drawings.structures import Structure, read_structure

if TYPE_CHECKING:
    from pathlib import Path

    from nearcast.plots.index_drawings.example import Scene
    from nearcast.plots.index_drawings.structures import Node

__all__ = ["draw_index"]

_WIDTH = 9.0
_MARGIN = 0.2
_MAP_HEIGHT = 3.0
_TITLE_HEIGHT = 0.5
_FONT = 9.0
_CHARACTER = 0.602 / 72
"""The width of a character of the monospaced font, in inches per point."""

_LINE = 1.45 / 72
_GAP = 0.12
_LEVEL_GAP = 0.38
_LEVEL_COLORS = ("#8c6bb1", HIGHLIGHT, "#d98c21", "#3a8f6b", "#44546a")


def draw_index(name: str, path: Path) -> Structure:
    """Draw an index over the running example as PNG, and return what was drawn."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if name not in OPTIONS and name not in MOVING_OPTIONS:
        drawn = sorted([*OPTIONS, *MOVING_OPTIONS])
        if name in [*indexes.names(), *moving.names()]:
            raise NearcastError(f"{name} has no drawing; there are drawings of: {', '.join(drawn)}")
        raise UnknownName("index", name, drawn)
    read = read_structure if name in OPTIONS else read_moving_structure
    structure = read(name)
    font, tree_height = _fit_tree(structure.tree)
    height = _TITLE_HEIGHT + _MAP_HEIGHT + tree_height + 0.35
    figure = Figure(figsize=(_WIDTH, height), dpi=130, facecolor=BACKGROUND)
    FigureCanvasAgg(figure)
    at = 1 - 0.3 / height
    figure.text(0.02, at, name, fontsize=14, weight="bold", color=TEXT_COLOR, va="center")
    figure.text(
        0.985, at, structure.caption, fontsize=9.5, color=TEXT_COLOR, va="center", ha="right"
    )
    bottom = 1 - (_TITLE_HEIGHT + _MAP_HEIGHT) / height
    _draw_map(figure, structure, (0.03, bottom, 0.65, _MAP_HEIGHT / height))
    _draw_legend(figure, structure.scene, (0.70, bottom, 0.29, _MAP_HEIGHT / height))
    axes = figure.add_axes((0, 0.1 / height, 1, tree_height / height))
    axes.set_xlim(0, _WIDTH)
    axes.set_ylim(-tree_height, 0)
    axes.axis("off")
    left = (_WIDTH - _tree_width(structure.tree, font)) / 2
    _draw_node(axes, structure.tree, left, -0.08, font)
    _save(figure, path)
    return structure


def _save(figure: Any, path: Path) -> None:
    """Write a figure as PNG with a palette, which takes a third of the space."""
    from PIL import Image

    figure.canvas.draw()
    picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.quantize(64, dither=Image.Dither.NONE).save(path, format="PNG", optimize=True)


def _draw_map(figure: Any, structure: Structure, place: tuple[float, ...]) -> None:
    from matplotlib.patches import Rectangle

    axes = figure.add_axes(place)
    axes.set_facecolor("white")
    scene = structure.scene
    axes.set_xlim(*scene.extent[:2])
    axes.set_ylim(*scene.extent[2:])
    axes.tick_params(colors=TEXT_COLOR, length=0, labelsize=7, pad=1)
    for side in axes.spines.values():
        side.set_color("#c3c9d1")
    for clause, (west, south, east, north) in enumerate(scene.boxes):
        size = east - west, north - south
        axes.add_patch(
            Rectangle((west, south), *size, facecolor=BASE_COLOR, alpha=0.18, linewidth=0)
        )
        axes.add_patch(
            Rectangle((west, south), *size, fill=False, edgecolor=BASE_COLOR, linewidth=0.9)
        )
        bold = {"fontsize": 9.5, "weight": "bold", "color": "#2c4a66", "zorder": 5}
        hidden = any(abs(x - west) < 5 and abs(y - south) < 5 for _, (x, y) in scene.messages)
        at, side = (east - 0.9, "right") if hidden else (west + 0.9, "left")
        axes.text(at, south + 0.9, str(clause), ha=side, **bold)
    for area in sorted(structure.areas, key=lambda area: area.level):
        left, bottom, right, top = area.box
        color = _LEVEL_COLORS[area.level % len(_LEVEL_COLORS)]
        shrink = 0.0 if structure.has_cells else 0.55 - 0.35 * area.level
        axes.add_patch(
            Rectangle(
                (left - shrink, bottom - shrink),
                right - left + 2 * shrink,
                top - bottom + 2 * shrink,
                fill=False,
                edgecolor=color,
                linewidth=1.3 if structure.has_cells else 1.6,
                linestyle="-" if structure.has_cells else "--",
            )
        )
        if area.label:
            side = "left" if area.level == 0 else "right"
            inside = {"fontsize": 8, "color": color, "ha": side, "va": "center", "zorder": 6}
            background = {"facecolor": "white", "alpha": 0.9, "linewidth": 0, "pad": 0.5}
            x = left + 2.5 if side == "left" else min(right, scene.extent[1]) - 1.5
            y = min(top + shrink, scene.extent[3] - 1)
            if side == "left" and not structure.has_cells:
                x, y = left + 8, bottom - shrink - 0.8  # labels of what is inside are at the top
            axes.text(x, y, area.label, bbox=background, **inside)
    for number, (_, (x, y)) in enumerate(scene.messages):
        axes.plot([x], [y], marker="o", markersize=4.5, color=TEXT_COLOR)
        axes.text(x + 1.2, y, f"m{number}", fontsize=8.5, color=TEXT_COLOR, va="center")


def _draw_legend(figure: Any, scene: Scene, place: tuple[float, ...]) -> None:
    axes = figure.add_axes(place)
    axes.axis("off")
    rows = [
        (f"{c}", " ".join(scene.words[t] for t in tokens))
        for c, tokens in enumerate(scene.subscriptions)
    ]
    messages = [
        (f"m{m}", " ".join(scene.words[t] for t in tokens))
        for m, (tokens, _) in enumerate(scene.messages)
    ]
    lines = [("subscriptions", ""), *rows, ("", ""), ("messages", ""), *messages]
    step = 1 / max(len(lines), 14)
    for i, (key, words) in enumerate(lines):
        y = 1 - (i + 0.5) * step
        is_head = not words
        weight = "bold" if is_head else "normal"
        axes.text(0, y, key, fontsize=9, color=TEXT_COLOR, va="center", weight=weight)
        axes.text(0.14, y, words, fontsize=9, color=TEXT_COLOR, va="center")


# --- the tree ------------------------------------------------------------------------------------


def _fit_tree(tree: Node) -> tuple[float, float]:
    """Return the largest font with which the tree fits the width, and the height that it needs."""
    font = _FONT
    while _tree_width(tree, font) > _WIDTH - 2 * _MARGIN and font > 5:
        font -= 0.25
    return font, _tree_height(tree, font) + 0.2


def _node_size(node: Node, font: float) -> tuple[float, float]:
    width = max(len(line) for line in node.lines) * _CHARACTER * font
    return width + 0.14, len(node.lines) * _LINE * font + 0.09


def _tree_width(node: Node, font: float) -> float:
    below = sum(_tree_width(child, font) + _GAP for child in node.children) - _GAP
    return max(_node_size(node, font)[0], below)


def _tree_height(node: Node, font: float) -> float:
    below = [_tree_height(child, font) for child in node.children]
    return _node_size(node, font)[1] + (_LEVEL_GAP + max(below) if below else 0)


def _draw_node(axes: Any, node: Node, left: float, top: float, font: float) -> float:
    """Draw a node and what is below it; return the middle of the node."""
    from matplotlib.patches import FancyBboxPatch

    width, height = _node_size(node, font)
    total = _tree_width(node, font)
    below = sum(_tree_width(child, font) + _GAP for child in node.children) - _GAP
    at = left + max(0.0, (total - below) / 2)
    middles = []
    for child in node.children:
        middles.append(_draw_node(axes, child, at, top - height - _LEVEL_GAP, font))
        at += _tree_width(child, font) + _GAP
    middle = left + total / 2 if not middles else (middles[0] + middles[-1]) / 2
    middle = min(max(middle, left + width / 2), left + total - width / 2)
    for end in middles:
        axes.plot(
            [middle, end], [top - height, top - height - _LEVEL_GAP], color="#9aa5b1", linewidth=1
        )
    axes.add_patch(
        FancyBboxPatch(
            (middle - width / 2, top - height),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.05",
            facecolor="white" if node.is_list else "#e4ebf2",
            edgecolor=BASE_COLOR,
            linewidth=1,
        )
    )
    for i, line in enumerate(node.lines):
        y = top - 0.045 - (i + 0.5) * _LINE * font
        weight = "bold" if i == 0 else "normal"
        style = {"fontsize": font, "family": "monospace", "color": TEXT_COLOR, "weight": weight}
        axes.text(middle, y, line, ha="center", va="center", **style)
    return middle
