"""The picture of a churn: what messages and changes cost while both go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.plots.figures import TEXT_COLOR, new_figure, save_figure, style_axes

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["plot_churn"]

_COLOURS = {"search": "#5b7c99", "insert": "#d1495b", "delete": "#edae49"}
_NAMES = {"search": "messages", "insert": "inserts", "delete": "deletes"}


def plot_churn(result: dict[str, Any], path: Path) -> None:
    """Draw microseconds per message and per change, and the segments, batch by batch."""
    runbook = result["runbook"]
    figure = new_figure(
        f"{runbook['dataset']}: {result['subscriptions']:,} subscriptions that change, "
        f"{result['index']}",
        f"runbook {runbook['name']}, batches of {runbook['batch']:,}; every dot is a batch",
        result["machine"],
    )
    heights = ((0.56, 0.27), (0.31, 0.19), (0.09, 0.16))
    axes = [figure.add_axes((0.06, bottom, 0.91, height)) for bottom, height in heights]
    batches = _Batches(result["steps"])
    _dots(axes[0], batches, ("search",))
    _fresh_line(axes[0], result["fresh"])
    _dots(axes[1], batches, ("insert", "delete"))
    axes[2].step(batches.looked, batches.segments, where="post", color=TEXT_COLOR)
    labels = ("µs a message", "µs a change", "segments")
    for one, label in zip(axes, labels, strict=True):
        style_axes(one, "batch" if label == "segments" else "", label)
        one.set_xlim(-1, batches.count)
        one.set_ylim(bottom=0)
        _mark_steps(one, batches, named=label == "µs a message")
    for one in axes[:2]:
        if one.get_legend_handles_labels()[0]:
            one.legend(loc="upper right", framealpha=0.9, labelcolor=TEXT_COLOR, ncols=3)
    save_figure(figure, path)


class _Batches:
    """The batches of all steps but the first load, one after the other."""

    def __init__(self, steps: list[dict[str, Any]]) -> None:
        self.starts: list[tuple[int, str]] = []
        kind: list[str] = []
        cost: list[float] = []
        segments: list[int | None] = []
        for step in steps:
            own = step["batches"]
            self.starts.append((len(kind), step["do"]))
            kind += own["kind"]
            cost += [ms * 1e3 / max(n, 1) for ms, n in zip(own["ms"], own["size"], strict=True)]
            segments += own["segments"]
        self.kind = np.array(kind)
        self.cost = np.array(cost)
        self.count = len(kind)
        self.looked = [i for i, n in enumerate(segments) if n is not None]
        self.segments = [segments[i] for i in self.looked]

    def of(self, kind: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the numbers and costs of the batches of one kind."""
        number = np.flatnonzero(self.kind == kind)
        return number, self.cost[number]


def _dots(axes: Any, batches: _Batches, kinds: tuple[str, ...]) -> None:
    """Draw every batch; the few slowest may lie above, and are counted."""
    top = 0.0
    for kind in kinds:
        number, cost = batches.of(kind)
        if len(cost):
            axes.scatter(number, cost, s=14, c=_COLOURS[kind], label=_NAMES[kind], linewidths=0)
            top = max(top, float(np.percentile(cost, 99)) * 1.6)
    if top:
        axes.set_ylim(0, top)
        above = sum(int((batches.of(kind)[1] > top).sum()) for kind in kinds)
        if above:
            note = f"{above} slower above"
            axes.annotate(
                note, (0.005, 0.9), xycoords="axes fraction", fontsize=9, color=TEXT_COLOR
            )


def _fresh_line(axes: Any, fresh: dict[str, Any]) -> None:
    if fresh["search"] is not None:
        cost = fresh["search"]["us_per_operation"]
        label = f"freshly built: {cost:.3g}"
        axes.axhline(cost, color=TEXT_COLOR, linewidth=1, linestyle="--", label=label)
        reading = fresh["reading_us_per_message"]
        label = f"reading alone: {reading:.3g}"
        axes.axhline(reading, color="#8a94a0", linewidth=1, linestyle=":", label=label)


def _mark_steps(axes: Any, batches: _Batches, *, named: bool) -> None:
    """Draw a line where a step begins; name the longer steps."""
    ends = [start for start, _ in batches.starts[1:]] + [batches.count]
    for (start, name), end in zip(batches.starts, ends, strict=True):
        axes.axvline(start - 0.5, color="#c3c9d1", linewidth=0.8, zorder=0)
        if named and end - start > batches.count / 25:
            middle = (start + end) / 2
            axes.annotate(
                name,
                (middle, 1.02),
                xycoords=("data", "axes fraction"),
                ha="center",
                fontsize=11,
                color=TEXT_COLOR,
            )
