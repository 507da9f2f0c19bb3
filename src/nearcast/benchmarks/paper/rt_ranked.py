"""The experiments with ranked subscriptions of the rt-tree's journal paper: scores by overlap.

Yu, Li, Wang, Feng, Gong: "Efficient Filtering Algorithms for Location-Aware Publish/Subscribe",
TKDE 2014, section 7.6. The plots are not available. When a figure varies alpha or theta, the other
is drawn from its whole range: the text does not give its value. It says that performance decreases
with theta, and why it becomes easier: the reason is taken, not the word.

Keyword-first, spatial-first and the ir-tree, with which the paper compares, have no form for ranked
subscriptions here; the other rt-trees, of which the text gives the ranked form, are compared
instead.
"""

from __future__ import annotations

from nearcast.benchmarks.compare import GROUPS, RANGE_SHARES
from nearcast.benchmarks.paper.data import Data
from nearcast.benchmarks.paper.experiment import Experiment, Series
from nearcast.benchmarks.paper.figures import Figure, Point, Sweep
from nearcast.benchmarks.paper.statements import Case, Statement
from nearcast.benchmarks.ranking import Ranking

__all__ = ["RT_RANKED"]

_RT, _PLUS, _BEST, _OWN = "rt-tree", "rt+-tree", "rt++-tree", "ranked-pyramid"
_TREES = (_RT, _PLUS, _BEST)
_ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_THETAS = (0.5, 0.6, 0.7, 0.8, 0.9)
_MIDDLE = 0.4
_RANGE_SHARE = RANGE_SHARES["overlap"]
_WHY = {
    "alpha": "with alpha 0 the lists of tokens decide alone, and no node is opened; a place that "
    "counts a little opens nodes before it excludes subscriptions",
    "lists": "the more the place counts, the fewer words a match needs: subscriptions stand in the "
    "lists of nearly all their tokens, where the other two compare the boxes of a node at once",
}
"""Why we measure something else."""


def _weighted(alpha: float) -> str:
    """Return the data set in which all subscriptions have one alpha."""
    return f"tweets alpha={alpha:g}"


def _thresholded(theta: float) -> str:
    """Return the data set in which all subscriptions have one theta."""
    return f"tweets theta={theta:g}"


def _cover(alpha: float | None = None, theta: float | None = None) -> Data:
    ranking = Ranking(
        "overlap",
        text_share=(0.0, 1.0) if alpha is None else (1 - alpha, 1 - alpha),
        threshold=(0.5, 1.0) if theta is None else (theta, theta),
    )
    return Data("tweets", ranking=ranking)


DATA: dict[str, Data] = {
    "tweets": _cover(),
    **{_weighted(alpha): _cover(alpha=alpha) for alpha in _ALPHAS},
    **{_thresholded(theta): _cover(theta=theta) for theta in _THETAS},
}

SERIES: dict[str, Series] = {name: Series(name) for name in (*_TREES, _OWN)}


def _panels(varied: dict[float, str]) -> dict[str, dict[str, dict[float, Point]]]:
    """Return one panel per group of messages, with one line per index."""
    return {
        group: {
            label: {value: Point(name, label, group) for value, name in varied.items()}
            for label in SERIES
        }
        for group in GROUPS
    }


FIGURES = (
    Sweep(
        "alpha",
        "Ranked subscriptions by alpha (TKDE 2014, figure 13)",
        "alpha",
        _panels({alpha: _weighted(alpha) for alpha in _ALPHAS}),
        ("time", "match", "answers"),
    ),
    Sweep(
        "theta",
        "Ranked subscriptions by theta (TKDE 2014, figure 14)",
        "theta",
        _panels({theta: _thresholded(theta) for theta in _THETAS}),
        ("time", "match", "answers"),
    ),
    Figure("default", "Alpha 0-1, theta 0.5-1 (not in the paper)", "groups", tuple(SERIES)),
)


def _from_to(first: str, last: str, what: str) -> tuple[Case, ...]:
    """Return the last data set relative to the first, for each group of messages."""
    return tuple(
        Case(_BEST, (_BEST,), group, dataset=last, bottom_dataset=first, label=f"{group} {what}")
        for group in GROUPS
    )


def _everywhere(top: str, *bottom: str) -> tuple[Case, ...]:
    names = [*map(_weighted, _ALPHAS), *map(_thresholded, _THETAS), "tweets"]
    return tuple(
        Case(top, bottom, group, dataset=name, label=f"{name.removeprefix('tweets ')} {group}")
        for name in names
        for group in GROUPS
    )


STATEMENTS = (
    Statement(
        "alpha falls",
        "TKDE 7.6, figure 13",
        "rt++-tree: as alpha grows, time falls first",
        _from_to(_weighted(0.0), _weighted(_MIDDLE), f"{_MIDDLE:g} / 0"),
        below=1,
        why=_WHY["alpha"],
    ),
    Statement(
        "alpha rises",
        "TKDE 7.6, figure 13",
        "rt++-tree: as alpha grows, time rises in the end",
        _from_to(_weighted(_MIDDLE), _weighted(1.0), f"1 / {_MIDDLE:g}"),
        above=1,
    ),
    Statement(
        "theta falls",
        "TKDE 7.6, figure 14",
        "rt++-tree: a larger theta makes it faster",
        _from_to(_thresholded(_THETAS[0]), _thresholded(_THETAS[-1]), "0.9 / 0.5"),
        below=1,
    ),
    Statement(
        "rt++ best",
        "TKDE 7.6, figure 14",
        "rt++-tree is faster than the existing methods (here: than rt-tree and rt+-tree; "
        "keyword-first, spatial-first and ir-tree have no ranked form)",
        _everywhere(_BEST, _RT, _PLUS),
        below=1,
        why=_WHY["lists"],
    ),
    Statement(
        "own",
        "not in the paper",
        f"{_OWN} is faster than the best of the rt-trees",
        _everywhere(_OWN, *_TREES),
        below=1,
    ),
)

RT_RANKED = Experiment(
    "rt-ranked",
    "Ranked subscriptions by overlap: the rt-tree family",
    _BEST,
    SERIES,
    FIGURES,
    STATEMENTS,
    DATA,
    note=f"Messages with an area cover up to {_RANGE_SHARE:.0%} of the world",
    summary=tuple(("tweets", group) for group in GROUPS),
    range_share=_RANGE_SHARE,
)
"""The experiment with ranked subscriptions of the rt-tree's journal paper."""
