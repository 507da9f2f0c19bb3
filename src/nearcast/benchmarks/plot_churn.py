"""The figure of a churn benchmark: the cost of messages and changes over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.plots.figures import TEXT_COLOR, new_figure, save_figure, style_axes

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["plot_churn"]

_COLORS = {"search": "#5b7c99", "insert": "#d1495b", "delete": "#edae49"}
_NAMES = {"search": "messages", "insert": "inserts", "delete": "deletes"}


def plot_churn(result: dict[str, Any], path: Path) -> None:
    """Draw microseconds per message and per change, and the number of segments, by batch."""
    runbook = result["runbook"]
    figure = new_figure(
        f"{runbook['dataset']}: {result['subscriptions']:,} changing subscriptions, "
        f"{result['index']}",
        f"runbook {runbook['name']}, batches of {runbook['batch']:,}; each dot is a batch",
        result["machine"],
    )
    heights = ((0.56, 0.27), (0.31, 0.19), (0.09, 0.16))
    axes = [figure.add_axes((0.06, bottom, 0.91, height)) for bottom, height in heights]
    batches = _Batches(result["steps"])
    _draw_batches(axes[0], batches, ("search",))
    _draw_fresh_cost(axes[0], result["fresh"])
    _draw_batches(axes[1], batches, ("insert", "delete"))
    axes[2].step(batches.sampled, batches.segments, where="post", color=TEXT_COLOR)
    labels = ("µs per message", "µs per change", "segments")
    for panel, label in zip(axes, labels, strict=True):
        style_axes(panel, "batch" if label == "segments" else "", label)
        panel.set_xlim(-1, batches.count)
        panel.set_ylim(bottom=0)
        _mark_steps(panel, batches, named=label == "µs per message")
    for panel in axes[:2]:
        if panel.get_legend_handles_labels()[0]:
            panel.legend(loc="upper right", framealpha=0.9, labelcolor=TEXT_COLOR, ncols=3)
    save_figure(figure, path)


class _Batches:
    """The batches of all steps, concatenated."""

    def __init__(self, steps: list[dict[str, Any]]) -> None:
        self.starts: list[tuple[int, str]] = []
        kind: list[str] = []
        cost: list[float] = []
        segments: list[int | None] = []
        for step in steps:
            batches = step["batches"]
            self.starts.append((len(kind), step["do"]))
            kind += batches["kind"]
            cost += [
                ms * 1e3 / max(n, 1) for ms, n in zip(batches["ms"], batches["size"], strict=True)
            ]
            segments += batches["segments"]
        self.kind = np.array(kind)
        self.cost = np.array(cost)
        self.count = len(kind)
        self.sampled = [i for i, n in enumerate(segments) if n is not None]
        self.segments = [segments[i] for i in self.sampled]

    def of(self, kind: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the numbers and costs of the batches of one kind."""
        number = np.flatnonzero(self.kind == kind)
        return number, self.cost[number]


def _draw_batches(axes: Any, batches: _Batches, kinds: tuple[str, ...]) -> None:
    """Draw each batch; outliers above the panel are counted in a note."""
    top = 0.0
    for kind in kinds:
        number, cost = batches.of(kind)
        if len(cost):
            axes.scatter(number, cost, s=14, c=_COLORS[kind], label=_NAMES[kind], linewidths=0)
            top = max(top, float(np.percentile(cost, 99)) * 1.6)
    if top:
        axes.set_ylim(0, top)
        above = sum(int((batches.of(kind)[1] > top).sum()) for kind in kinds)
        if above:
            note = f"{above} slower batches not shown"
            axes.annotate(
                note, (0.005, 0.9), xycoords="axes fraction", fontsize=9, color=TEXT_COLOR
            )


def _draw_fresh_cost(axes: Any, fresh: dict[str, Any]) -> None:
    if fresh["search"] is not None:
        cost = fresh["search"]["us_per_operation"]
        label = f"newly built: {cost:.3g}"
        axes.axhline(cost, color=TEXT_COLOR, linewidth=1, linestyle="--", label=label)
        reading = fresh["reading_us_per_message"]
        label = f"reading only: {reading:.3g}"
        axes.axhline(reading, color="#8a94a0", linewidth=1, linestyle=":", label=label)


def _mark_steps(axes: Any, batches: _Batches, *, named: bool) -> None:
    """Draw a line at the start of each step, and label the longer steps."""
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
