"""Pictures of what the parameters of ranked subscriptions do: delta and tau, alpha and theta.

`plot_distances` and `plot_coverage` draw what a message needs to match, `plot_matches` how many
subscriptions of a workload match (`count_matches`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import OVERLAP, PROXIMITY, Rankings
from nearcast.indexes.ranked import RankedLinear
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

    from numpy.typing import NDArray

    from nearcast.columns import Messages, Ranked

__all__ = [
    "MatchCounts",
    "count_matches",
    "needed_space",
    "plot_coverage",
    "plot_distances",
    "plot_matches",
]

WORDS = {"all words": 1.0, "half of them": 0.5, "no word": 0.0}
"""What messages share with a subscription, as shares of the weight of its words."""

_COLORS = {"all words": "#dbe7f1", "half of them": "#8fb0cb", "no word": HIGHLIGHT}
_EDGES = {"all words": BASE_COLOR, "half of them": BASE_COLOR, "no word": "#8f2a3a"}
_TOLERANCE = 1e-9
_DARK = 0.1
"""Above this share of all subscriptions, numbers are white on a dark ground."""

TEXT_SHARES = (0.2, 0.5, 0.8)
THRESHOLDS = (0.5, 0.7, 0.9)
"""The values of the panels."""


def needed_space(text_share: float, threshold: float, text: float) -> float:
    """Return how near (or how much covered) a message must be, from 0 to 1, to match.

    It is 0 if the words alone are enough, and infinite if no place is.

    Parameters
    ----------
    text_share, threshold
        Delta and tau; or 1 - alpha and theta.
    text
        The similarity of the words, from 0 to 1.

    Examples
    --------
    >>> needed_space(0.5, 0.75, 1.0), needed_space(0.5, 0.5, 1.0), needed_space(0.5, 0.75, 0.0)
    (0.5, 0.0, inf)
    """
    missing = threshold - text_share * text
    if missing <= _TOLERANCE:
        return 0.0
    if missing > 1 - text_share + _TOLERANCE:
        return math.inf
    return min(1.0, missing / (1 - text_share))


def plot_distances(path: Path) -> None:
    """Draw where messages must be that share all, half or none of the words: delta and tau."""
    height = 14.6
    figure = new_figure(
        "Where a message must be to match: delta and tau",
        "Proximity. The subscription is in the middle; the dashed circle is its largest distance. "
        "A message matches in the circle for the words that it shares.",
        None,
        height,
    )
    for row, delta in enumerate(TEXT_SHARES):
        for column, tau in enumerate(THRESHOLDS):
            axes = figure.add_axes(_cell(row, column, height, 3.0, 1.25))
            _draw_circles(axes, delta, tau)
            axes.set_title(f"delta {delta:g}, tau {tau:g}", fontsize=13, color=TEXT_COLOR)
    _legend(figure, height)
    save_figure(figure, path)


def _cell(
    row: int, column: int, height: float, tall: float, top: float
) -> tuple[float, float, float, float]:
    """Return the edges of a panel in a grid of three columns, left of the legend."""
    width, gap = 4.1, 1.3
    bottom = height - top - 0.4 - (row + 1) * tall - row * gap
    return (0.5 + column * (width + 0.35)) / 16, bottom / height, width / 16, tall / height


def _draw_circles(axes: Any, delta: float, tau: float) -> None:
    from matplotlib.patches import Circle

    wide = 1.65
    axes.set_facecolor("white")
    lines = []
    for name, text in WORDS.items():
        needed = needed_space(delta, tau, text)
        radius = round(1 - needed, 9)
        if needed == 0:
            axes.set_facecolor(_COLORS[name])
            lines.append(f"{name}: anywhere")
        elif needed == math.inf:
            lines.append(f"{name}: nowhere")
        else:
            style = {"facecolor": _COLORS[name], "edgecolor": _EDGES[name], "linewidth": 1.2}
            # A circle of no size is the place itself.
            axes.add_patch(Circle((0, 0), max(radius, 0.015), **style))
            lines.append(f"{name}: " + (f"up to {_percent(radius)}" if radius else "at the place"))
    axes.add_patch(
        Circle((0, 0), 1, fill=False, edgecolor=TEXT_COLOR, linestyle="--", linewidth=1.1)
    )
    axes.plot([0], [0], "+", color=TEXT_COLOR, markersize=10)
    axes.set_xlim(-wide, wide)
    axes.set_ylim(-1.15, 1.15)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_xlabel("\n".join(lines), fontsize=11, color=TEXT_COLOR, linespacing=1.35)
    for side in axes.spines.values():
        side.set_color("#c3c9d1")


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _legend(figure: Any, height: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(facecolor=_COLORS[name], edgecolor=_EDGES[name], label=f"shares {name}")
        for name in WORDS
    ]
    handles.append(Line2D([], [], color=TEXT_COLOR, linestyle="--", label="largest distance"))
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.865, 1 - 1.5 / height),
        frameon=False,
        fontsize=11,
        labelcolor=TEXT_COLOR,
    )


def plot_coverage(path: Path) -> None:
    """Draw how much of the region a message must cover: alpha and theta."""
    height = 8.6
    figure = new_figure(
        "How much of its region a message must cover to match: alpha and theta",
        "Overlap. One bar for each kind of message: by the words that it shares. "
        "A point inside the region counts as covering all of it.",
        None,
        height,
    )
    for row, alpha in enumerate(TEXT_SHARES):
        for column, theta in enumerate(THRESHOLDS):
            axes = figure.add_axes(
                (
                    0.085 + column * 0.305,
                    (height - 2.9 - row * 2.35) / height,
                    0.265,
                    1.25 / height,
                )
            )
            _draw_bars(axes, alpha, theta, named=column == 0)
            axes.set_title(f"alpha {alpha:g}, theta {theta:g}", fontsize=13, color=TEXT_COLOR)
    save_figure(figure, path)


def _draw_bars(axes: Any, alpha: float, theta: float, *, named: bool) -> None:
    needed = {name: needed_space(1 - alpha, theta, text) for name, text in WORDS.items()}
    style_axes(axes, "share of the region that must be covered")
    for position, (name, share) in enumerate(reversed(needed.items())):
        note, at = "never matches", 0.0
        if share != math.inf:
            # A bar of no length would not be seen.
            at = min(share, 0.99)
            axes.barh([position], [1 - at], left=at, color=_COLORS[name], height=0.62)
            note = f"{_percent(share)} or more" if share < 1 else "all of it"
            note = note if share else "matches anywhere"
        # A note stands in the free part: before the bar, unless that is too short.
        before = at > 0.5
        axes.annotate(
            note,
            (at, position),
            (-5 if before else 6, 0),
            textcoords="offset points",
            ha="right" if before else "left",
            va="center",
            fontsize=10,
            color=TEXT_COLOR,
        )
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.6, len(needed) - 0.4)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"], fontsize=9)
    labels = list(reversed(needed)) if named else [""] * len(needed)
    axes.set_yticks(range(len(needed)), labels, fontsize=11, color=TEXT_COLOR)


@dataclass(frozen=True)
class MatchCounts:
    """The mean number of matches of a message, if all subscriptions had the same parameters.

    ``matches[i, j]`` belongs to ``weight[i]`` (delta, or alpha) and ``threshold[j]``.
    """

    kind: str
    weight: Sequence[float]
    threshold: Sequence[float]
    matches: NDArray[np.float64]
    subscriptions: int
    messages: int


def count_matches(
    ranked: Ranked, messages: Messages, weight: Sequence[float], threshold: Sequence[float]
) -> MatchCounts:
    """Count matches for every weight and threshold, whatever those of the subscriptions are.

    Similarity and nearness do not depend on the parameters: both are computed once, as the scores
    of subscriptions that want only words, and only space.

    Parameters
    ----------
    ranked
        Subscriptions of one kind.
    messages
        The messages, with the weight of their words if the similarity needs it.
    weight
        Values of delta for proximity, of alpha for overlap.
    threshold
        Values of tau, or of theta.

    Examples
    --------
    >>> from nearcast.datasets import Workload
    >>> tweets = Workload("tweets", seed=7)
    >>> near = tweets.ranked(500)
    >>> counts = count_matches(near, tweets.messages(3), [0.0, 1.0], [0.0, 0.9])
    >>> counts.matches[:, 0].tolist()
    [500.0, 500.0]
    """
    shares = [1 - w if ranked.rankings.kind[0] == OVERLAP else w for w in weight]
    only_text, only_space = (_with_share(ranked, share) for share in (1.0, 0.0))
    total = np.zeros((len(weight), len(threshold)))
    for row in range(len(messages)):
        message = messages.take(np.array([row]))
        text, space = _scores(only_text, message), _scores(only_space, message)
        for i, share in enumerate(shares):
            score = np.sort(share * text + (1 - share) * space)
            total[i] += len(score) - np.searchsorted(score, np.array(threshold) - _TOLERANCE)
    return MatchCounts(
        ranked.kind, weight, threshold, total / len(messages), len(ranked), len(messages)
    )


def _with_share(ranked: Ranked, share: float) -> RankedLinear:
    """Return an index over subscriptions that match everything, with this share of the text."""
    rankings = ranked.rankings
    all_match = Rankings(
        kind=rankings.kind,
        text_share=np.full(len(ranked), round(share * 1e9), np.int32),
        threshold=np.zeros(len(ranked), np.int32),
        max_distance_cm=rankings.max_distance_cm,
    )
    return RankedLinear.build(replace(ranked, rankings=all_match))


def _scores(index: RankedLinear, message: Messages) -> NDArray[np.float64]:
    """Return the scores of one message, one per subscription."""
    found = index.match(message)
    assert found.score is not None
    return found.score[np.argsort(found.subscription)]


def plot_matches(counts: Sequence[MatchCounts], subtitle: str, path: Path) -> None:
    """Draw the number of matches by both parameters, one panel for each kind."""
    height = 8.6
    figure = new_figure("How many subscriptions a message matches", subtitle, None, height)
    for number, one in enumerate(counts):
        left = 0.06 + number * 0.95 / len(counts)
        wide = 0.88 / len(counts) - 0.02
        _draw_counts(figure.add_axes((left, 0.85 / height, wide, (height - 2.6) / height)), one)
    save_figure(figure, path)


def _draw_counts(axes: Any, counts: MatchCounts) -> None:
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    share = counts.matches.T / counts.subscriptions
    axes.imshow(
        np.maximum(share, 1e-6),
        origin="lower",
        aspect="auto",
        norm=LogNorm(1e-6, 1.0),
        cmap=LinearSegmentedColormap.from_list("matches", ["#ffffff", "#dbe7f1", BASE_COLOR]),
    )
    for (row, column), value in np.ndenumerate(counts.matches.T):
        axes.text(
            column,
            row,
            _short(float(value)),
            ha="center",
            va="center",
            fontsize=10,
            color="white" if share[row, column] > _DARK else TEXT_COLOR,
        )
    proximity = counts.kind == ("boolean", "proximity", "overlap")[PROXIMITY]
    names = ("delta", "tau") if proximity else ("alpha", "theta")
    meaning = (
        ("only distance counts", "only words count")
        if proximity
        else ("only words count", "only area counts")
    )
    style_axes(axes, f"{names[0]}   (0: {meaning[0]}, 1: {meaning[1]})", f"{names[1]}, threshold")
    axes.grid(visible=False)
    axes.set_xticks(range(len(counts.weight)), [f"{w:g}" for w in counts.weight])
    axes.set_yticks(range(len(counts.threshold)), [f"{t:g}" for t in counts.threshold])
    axes.set_title(
        f"{counts.kind}: matches per message, of {counts.subscriptions:,} subscriptions",
        fontsize=13,
        color=TEXT_COLOR,
    )


def _short(value: float) -> str:
    """Format a mean number of matches in few characters."""
    if value >= 1000:
        return f"{value / 1000:.0f}k" if value >= 10_000 else f"{value / 1000:.1f}k"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
