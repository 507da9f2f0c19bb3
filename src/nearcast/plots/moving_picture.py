"""The moving picture: who is near me now, as an animated GIF.

A frame shows a moment of a `Scene`: roads, drivers with trails and regions, living messages, and
the updates that the engine has reported. The color of a driver and of a message is its word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.errors import InvalidInput
from nearcast.plots.figures import BACKGROUND, TEXT_COLOR
from nearcast.plots.moving_scene import SUBSCRIBERS, Living, SceneUpdate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from nearcast.plots.moving_scene import Moment, Scene

__all__ = ["MovingPicture", "save_animation"]

COLORS = {"coffee": "#c9741a", "jazz": "#7a56a8", "bikes": "#2a78b4"}
"""The color of each word."""

TINTS = {"coffee": "#dda869", "jazz": "#a993c8", "bikes": "#78aad0"}
"""The color of messages that match nobody."""

SIGN_COLORS = {1: "#1e9e5a", -1: "#cf3a3a"}
SIGNS = {1: "+", -1: "\N{MINUS SIGN}"}

_INCHES = (8.0, 5.0)
_MIN_WIDTH, _MAX_WIDTH = 160, 1600
_GRAY, _RING = "#6b7683", "#1d2733"
_TRAIL, _FLASH, _FRESH = 24, 9, 5
"""How many frames trails, flashes and highlighted lines of the list last."""

_LINES = 9
"""Lines of the list."""

_FRAME_MS, _LAST_FRAME_MS = 110, 1500
_COLORS_OF_PALETTE = 96
_SAMPLED_FRAMES = 8


class MovingPicture:
    """Draws the moments of a scene.

    Parameters
    ----------
    scene
        What happens.
    width
        Pixels of a frame from left to right.
    """

    def __init__(self, scene: Scene, width: int = 800) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        if not _MIN_WIDTH <= width <= _MAX_WIDTH:
            raise InvalidInput("width", width, f"must be from {_MIN_WIDTH} to {_MAX_WIDTH:,}")
        self.scene = scene
        self.figure = Figure(figsize=_INCHES, dpi=width / _INCHES[0], facecolor=BACKGROUND)
        self.canvas: Any = FigureCanvasAgg(self.figure)
        self.map = self.figure.add_axes((0.012, 0.02, 0.6, 0.96))
        self.panel = self.figure.add_axes((0.63, 0.02, 0.36, 0.96))
        self._trail = [moment.place for moment in scene.moments]
        _draw_roads(self.map, scene)
        _draw_headings(self.panel)

    def frames(self, first: int = 0) -> Iterator[NDArray[np.uint8]]:
        """Yield the pixels of frames from a moment on, in red, green and blue."""
        for number in range(first, len(self.scene.moments)):
            artists = self.draw(number)
            self.canvas.draw()
            pixels = np.asarray(self.canvas.buffer_rgba())[:, :, :3].copy()
            for artist in artists:
                artist.remove()
            yield pixels

    def draw(self, number: int) -> list[Any]:
        """Draw the moment with this number; return everything that was drawn for it."""
        moment = self.scene.moments[number]
        return [
            *self._drivers(number, moment),
            *self._messages(moment),
            *self._flashes(number),
            *self._who(moment),
            *self._list(number),
        ]

    def told(self, number: int) -> list[SceneUpdate]:
        """Return all updates up to a moment, the first one first."""
        return [u for moment in self.scene.moments[: number + 1] for u in moment.updates]

    # --- the map ---------------------------------------------------------------------------------

    def _drivers(self, number: int, moment: Moment) -> Iterator[Any]:
        from matplotlib.collections import LineCollection
        from matplotlib.colors import to_rgba
        from matplotlib.patches import Rectangle

        trail = np.array(self._trail[max(0, number - _TRAIL) : number + 1])
        for row, (name, word) in enumerate(SUBSCRIBERS.items()):
            color = COLORS[word]
            west, south, east, north = moment.box[row].tolist()
            yield self.map.add_patch(
                Rectangle(
                    (west, south),
                    east - west,
                    north - south,
                    facecolor=to_rgba(color, 0.10),
                    edgecolor=to_rgba(color, 0.85),
                    linewidth=1.4,
                    zorder=3,
                )
            )
            steps = [*np.stack([trail[:-1, row], trail[1:, row]], axis=1)]
            fade = np.linspace(0.05, 0.7, len(steps))
            lines = LineCollection(
                steps, colors=[to_rgba(color, alpha) for alpha in fade], linewidths=3, zorder=4
            )
            yield self.map.add_collection(lines)
            yield from _dot(self.map, moment.place[row], color, 95, 8)
            yield _label(self.map, moment.place[row], name, color)

    def _messages(self, moment: Moment) -> Iterator[Any]:
        wanted = {message for _, message in moment.near}
        names = [*SUBSCRIBERS]
        for message in moment.messages:
            color = COLORS[message.word]
            if message.id not in wanted:
                yield from _dot(
                    self.map, message.place, TINTS[message.word], 36 * _growth(message), 5
                )
                continue
            for name in names:
                if (name, message.id) in moment.near:
                    yield from self._link(message, moment.place[names.index(name)], color)
            yield from _dot(self.map, message.place, color, 75 * _growth(message), 7, edge=_RING)

    def _link(self, message: Living, place: NDArray[np.float64], color: str) -> list[Any]:
        x, y = zip(place.tolist(), message.place, strict=True)
        lines: list[Any] = self.map.plot(x, y, color=color, linewidth=1.3, alpha=0.8, zorder=6)
        return lines

    def _flashes(self, number: int) -> Iterator[Any]:
        """Draw rings and signs where something has begun or ended a few frames ago."""
        for age in reversed(range(min(_FLASH, number + 1))):  # the newest on top
            for update in self.scene.moments[number - age].updates:
                place = self.scene.places[update.message]
                color, share = SIGN_COLORS[update.sign], age / _FLASH
                yield self.map.scatter(
                    *place,
                    s=120 + 900 * share,
                    facecolors="none",
                    edgecolors=color,
                    linewidths=3 - 2 * share,
                    zorder=10,
                )
                yield self.map.annotate(
                    f"{SIGNS[update.sign]} {update.name}",
                    place,
                    (0, 10 + 9 * share),
                    textcoords="offset points",
                    ha="center",
                    fontsize=13,
                    weight="bold",
                    color="white",
                    bbox={"boxstyle": "round,pad=0.2", "facecolor": color, "edgecolor": "white"},
                    zorder=12,
                )

    # --- the panel -------------------------------------------------------------------------------

    def _who(self, moment: Moment) -> Iterator[Any]:
        """Write how many messages match each driver, and the time."""
        minutes, seconds = divmod(round(moment.time_s), 60)
        yield _write(self.panel, 1.0, 0.945, f"{minutes}:{seconds:02}", size=12, ha="right")
        for row, (name, word) in enumerate(SUBSCRIBERS.items()):
            y = 0.78 - 0.052 * row
            near = [message for who, message in moment.near if who == name]
            yield from _dot(self.panel, (0.03, y + 0.013), COLORS[word], 70, 3)
            yield _write(self.panel, 0.09, y, name, weight="bold", color=COLORS[word])
            yield _write(self.panel, 0.25, y, f"wants {word}")
            for i in range(len(near)):
                at = (0.68 + 0.055 * i, y + 0.013)
                yield from _dot(self.panel, at, COLORS[word], 55, 3, edge=_RING)

    def _list(self, number: int) -> Iterator[Any]:
        """Write the last updates, the newest first, and how many there were."""
        told = self.told(number)
        recent = self.scene.moments[max(0, number - _FRESH + 1) : number + 1]
        fresh = sum(len(moment.updates) for moment in recent)
        for line, update in enumerate(reversed(told[-_LINES:])):
            y = 0.475 - 0.046 * line
            color = SIGN_COLORS[update.sign]
            alpha = 1.0 if line < fresh else 0.8 if line < _LINES // 2 else 0.5
            weight = "bold" if line < fresh else "normal"
            text = self.scene.texts[update.message]
            sign = f"{SIGNS[update.sign]} {update.name}"
            style: dict[str, Any] = {"alpha": alpha, "weight": weight}
            yield _write(self.panel, 0.0, y, sign, color=color, **style)
            yield _write(self.panel, 0.22, y, text, **style)
            yield _write(self.panel, 1.0, y, update.cause, ha="right", color=color, **style)
        begun = sum(update.sign > 0 for update in told)
        ended = len(told) - begun
        total = f"= {begun - ended} near now"
        for x, text, color in (
            (0.0, f"{SIGNS[1]} {begun}", SIGN_COLORS[1]),
            (0.2, f"{SIGNS[-1]} {ended}", SIGN_COLORS[-1]),
            (0.4, total, TEXT_COLOR),
        ):
            yield _write(self.panel, x, 0.015, text, size=12, color=color, weight="bold")


def save_animation(
    scene: Scene,
    path: Path,
    width: int = 800,
    first: int = 0,
    advance: Callable[[float, float], None] = lambda done, total: None,
) -> None:
    """Draw a scene as an animated GIF that runs for ever.

    Parameters
    ----------
    scene
        What happens.
    path
        The file.
    width
        Pixels of a frame from left to right.
    first
        The moment with which the animation begins.
    advance
        Called with the frames drawn and their total number.
    """
    from PIL import Image

    frames = []
    for pixels in MovingPicture(scene, width).frames(first):
        frames.append(Image.fromarray(pixels))
        advance(len(frames), len(scene.moments) - first)
    # All frames have one palette and no dithering: what does not change between two frames then
    # takes no space in the file.
    sample = frames[:: max(1, len(frames) // _SAMPLED_FRAMES)]
    width, height = frames[0].size
    together = Image.new("RGB", (width, height * len(sample) + height // 2))
    kept = (*COLORS.values(), *TINTS.values(), *SIGN_COLORS.values())
    for i, color in enumerate(kept):
        left = i * width // len(kept)
        together.paste(color, (left, together.height - height // 2, width, together.height))
    for row, frame in enumerate(sample):
        together.paste(frame, (0, row * frame.height))
    palette = together.quantize(_COLORS_OF_PALETTE, dither=Image.Dither.NONE)
    drawn = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn[0].save(
        path,
        save_all=True,
        append_images=drawn[1:],
        duration=[_FRAME_MS] * (len(drawn) - 1) + [_LAST_FRAME_MS],
        loop=0,
        optimize=True,
        disposal=1,
    )


def _draw_roads(axes: Any, scene: Scene) -> None:
    """Draw roads, main ones wider, and set the frame of the map."""
    from matplotlib.collections import LineCollection

    from nearcast.columns import UNITS

    roads = scene.roads
    bends = np.split(roads.point / UNITS, roads.point_start[1:-1])
    width = np.array([4.5, 3.2, 1.8])[np.minimum(roads.arc_class, 2)]
    axes.add_collection(LineCollection(bends, colors="#e3e8ed", linewidths=width, zorder=1))
    west, south, east, north = np.array(roads.frame) / UNITS
    middle, half = (west + east) / 2, (east - west) * 0.56
    up, tall = (south + north) / 2, (north - south) * 0.56
    axes.set_xlim(middle - half, middle + half)
    axes.set_ylim(up - tall, up + tall)
    axes.set_facecolor("white")
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_color("#c3c9d1")


def _draw_headings(axes: Any) -> None:
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_axis_off()
    _write(axes, 0.0, 0.945, "Who is near me now?", size=14, weight="bold")
    note = "Each dot is a message that lives for a while."
    _write(axes, 0.0, 0.895, note, size=9.5, color=_GRAY)
    _write(axes, 0.68, 0.835, "near now", size=9.5, color=_GRAY)
    _write(axes, 0.0, 0.535, "What each subscriber is told", size=11, weight="bold")
    axes.plot([0, 1], [0.517, 0.517], color="#c3c9d1", linewidth=0.8)
    axes.plot([0, 1], [0.065, 0.065], color="#c3c9d1", linewidth=0.8)


def _write(
    axes: Any,
    x: float,
    y: float,
    text: str,
    *,
    size: float = 10.5,
    color: str = TEXT_COLOR,
    **style: Any,
) -> Any:
    return axes.text(x, y, text, fontsize=size, color=color, **style)


def _label(axes: Any, place: NDArray[np.float64], name: str, color: str) -> Any:
    """Write a name below a driver."""
    return axes.annotate(
        name,
        place.tolist(),
        (0, -16),
        textcoords="offset points",
        ha="center",
        fontsize=10.5,
        weight="bold",
        color=color,
        zorder=9,
    )


def _dot(
    axes: Any, place: Any, color: str, size: float, zorder: int, *, edge: str = "white"
) -> list[Any]:
    return [
        axes.scatter(
            [float(place[0])],
            [float(place[1])],
            s=size,
            c=color,
            edgecolors=edge,
            linewidths=1.2,
            zorder=zorder,
        )
    ]


def _growth(message: Living) -> float:
    """Return the size of a dot: messages shrink at the end of their lives."""
    return max(0.15, min(1.0, message.left / 0.25))
