"""The data sets, series and figures of section VII of the stamp paper.

TWITTER is ``tweets`` here, with messages of 12 tokens on average; POI is ``places``, with
subscriptions of one to five tokens and messages of 41 tokens on average (in the paper, ten POIs
joined). When a figure varies delta or tau, the other is drawn from its whole range, as in the
paper.

The paper's STAMP chooses by cost whether to use the spatio-textual prefix. Here the filter set
``cost`` does; ``sp+st+hi`` and ``sp+rp+st+hi`` always use it. Only stamp has regions of a chosen
size: the others are R-trees of 64 entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nearcast.benchmarks.paper.data import Data
from nearcast.benchmarks.paper.experiment import Series
from nearcast.benchmarks.paper.figures import Figure, Point, Sweep
from nearcast.benchmarks.ranking import Ranking
from nearcast.columns import SIMILARITIES, Scoring

if TYPE_CHECKING:
    from nearcast.benchmarks.paper.figures import Line

__all__ = [
    "BASELINES",
    "BUILT",
    "COMPARED",
    "DATA",
    "DELTAS",
    "FIGURES",
    "FILTERS",
    "GROUP",
    "IR_1",
    "IR_100",
    "KEYWORDS",
    "LEAVES",
    "LENGTHS",
    "MAX_DISTANCE_M",
    "NOTE",
    "OWN",
    "RT",
    "SERIES",
    "SETS",
    "SHARES",
    "SIMILARITIES",
    "STAMP_LABEL",
    "STEPS",
    "SUMMARY",
    "TAUS",
    "TWEETS",
    "grown",
    "leaf",
    "shared",
    "similar",
    "thresholded",
    "weighted",
    "worded",
]

MAX_DISTANCE_M = 500_000.0
"""The largest distance of every subscription. The paper does not give it: with this one, messages
have about as many matches as there (5,000 to 80,000 of ten million subscriptions)."""

NOTE = f"Largest distance (not given in the paper): {MAX_DISTANCE_M / 1000:,.0f} km"

STAMP_LABEL, IR_1, IR_100, RT = "stamp", "ir-tree-1", "ir-tree-100", "rt++-tree"
OWN = "ranked-pyramid"
"""Our default, which is not in the paper."""

BASELINES = (IR_1, IR_100, RT)

FILTERS = {
    "SP": "sp",
    "SP+HI": "sp+hi",
    "SP+RP+HI": "sp+rp+hi",
    "SP+ST+HI": "sp+st+hi",
    "SP+RP+ST+HI": "sp+rp+st+hi",
}
"""The filter sets under their names in the paper."""

TWEETS, PLACES = "tweets", "places"
SETS = (TWEETS, PLACES)
GROUP = {TWEETS: "mean-12-point", PLACES: "mean-41-point"}
"""The messages of each data set."""

SUMMARY = tuple(GROUP.items())

DELTAS = (0.0, 0.25, 0.5, 0.75, 1.0)
TAUS = (0.5, 0.6, 0.7, 0.8, 0.9)
LEAVES = (100, 500, 1_000, 5_000, 10_000, 50_000)
LENGTHS = (1, 10, 20, 30, 40, 50)
KEYWORDS = (1, 2, 3, 4, 5)
SHARES = (0.2, 0.4, 0.6, 0.8)
BUILT = 0.5
"""The share that is built before the inserts: five of ten million in the paper."""

STEPS = (0.55, 0.6, 0.7, 0.85, 1.0)
"""Shares of all subscriptions that are there after inserts, of a tenth of those built each."""

_DEFAULT_LEAF = 5_000


def weighted(dataset: str, delta: float) -> str:
    """Return the data set in which all subscriptions have one delta."""
    return f"{dataset} delta={delta:g}"


def thresholded(dataset: str, tau: float) -> str:
    """Return the data set in which all subscriptions have one tau."""
    return f"{dataset} tau={tau:g}"


def worded(dataset: str, keywords: int) -> str:
    """Return the data set whose subscriptions have this number of keywords."""
    return f"{dataset} keywords={keywords}"


def similar(similarity: str) -> str:
    """Return the tweets with another similarity of texts."""
    return TWEETS if similarity == SIMILARITIES[0] else f"{TWEETS} {similarity}"


def leaf(size: int) -> str:
    """Return the label of stamp with regions of this size."""
    return STAMP_LABEL if size == _DEFAULT_LEAF else f"{STAMP_LABEL} leaf={size}"


def shared(index: str, share: float) -> str:
    """Return the label of an index over a share of the subscriptions."""
    return index if share == 1.0 else f"{index} {share:g}"


def grown(index: str, share: float) -> str:
    """Return the label of an index that grew by inserts to a share of the subscriptions."""
    return f"{index} grown to {share:g}"


def _near(
    dataset: str,
    delta: float | None = None,
    tau: float | None = None,
    similarity: str = SIMILARITIES[0],
    keywords: tuple[int, int] = (1, 5),
) -> Data:
    ranking = Ranking(
        "proximity",
        text_share=(0.0, 1.0) if delta is None else (delta, delta),
        threshold=(0.5, 1.0) if tau is None else (tau, tau),
        max_distance_m=(MAX_DISTANCE_M, MAX_DISTANCE_M),
        scoring=Scoring(similarity),
    )
    return Data(dataset, {"keywords": keywords}, ranking=ranking)


DATA: dict[str, Data] = {
    **{name: _near(name) for name in SETS},
    **{weighted(name, delta): _near(name, delta=delta) for name in SETS for delta in DELTAS},
    **{thresholded(name, tau): _near(name, tau=tau) for name in SETS for tau in TAUS},
    **{worded(name, n): _near(name, keywords=(n, n)) for name in SETS for n in KEYWORDS},
    **{similar(kind): _near(TWEETS, similarity=kind) for kind in SIMILARITIES},
}

_STAMP = Series("stamp", {"filters": "cost", "leaf": _DEFAULT_LEAF})
_INDEXES = {STAMP_LABEL: _STAMP, **{name: Series(name) for name in (*BASELINES, OWN)}}
_CHANGING = {label: _INDEXES[label] for label in (STAMP_LABEL, *BASELINES)}

# Series that are COMPARED are adjacent, so that they share a heat if memory is short.
SERIES: dict[str, Series] = {
    **{
        label: Series("stamp", {"filters": filters, "leaf": _DEFAULT_LEAF})
        for label, filters in FILTERS.items()
    },
    **_INDEXES,
    **{leaf(size): Series("stamp", {"filters": "cost", "leaf": size}) for size in LEAVES},
    **{
        shared(label, share): Series(one.index, one.options, share=share)
        for share in SHARES
        for label, one in _INDEXES.items()
    },
    **{
        grown(label, share): Series(one.index, one.options, share=share, built=BUILT / share)
        for share in STEPS
        for label, one in _CHANGING.items()
    },
}

COMPARED = (*_INDEXES,)
"""The labels of all indexes, stamp with all its filters first."""


def _lines(labels: tuple[str, ...], dataset: str, varied: dict[float, str]) -> dict[str, Line]:
    """Return one line per series over data sets, by the varied parameter."""
    group = GROUP[dataset]
    return {
        label: {value: Point(name, label, group) for value, name in varied.items()}
        for label in labels
    }


def _over_delta(labels: tuple[str, ...]) -> dict[str, dict[str, Line]]:
    return {name: _lines(labels, name, {d: weighted(name, d) for d in DELTAS}) for name in SETS}


def _over_tau(labels: tuple[str, ...]) -> dict[str, dict[str, Line]]:
    return {name: _lines(labels, name, {t: thresholded(name, t) for t in TAUS}) for name in SETS}


_FILTERED = (*FILTERS, STAMP_LABEL, OWN)
_COST = ("time", "match")
_PRUNING = ("answers", "examined", "accessed")

FIGURES = (
    Figure(
        "cost-model",
        "When to use the spatio-textual prefix (ICDE 2015, figure 8)",
        "datasets",
        ("SP", "SP+RP+HI", "SP+RP+ST+HI", STAMP_LABEL, OWN),
        (TWEETS,),
        (GROUP[TWEETS],),
        names={"SP+RP+HI": "never", "SP+RP+ST+HI": "always", STAMP_LABEL: "by cost"},
        measures=("time", "match", "bytes"),
    ),
    Sweep(
        "filters-delta",
        "Filters by delta (ICDE 2015, figure 9)",
        "delta",
        _over_delta(_FILTERED),
        _COST,
    ),
    Sweep(
        "filters-tau", "Filters by tau (ICDE 2015, figure 9)", "tau", _over_tau(_FILTERED), _COST
    ),
    Sweep(
        "pruning-delta",
        "What filters leave, by delta (ICDE 2015, figure 10)",
        "delta",
        _over_delta(_FILTERED),
        _PRUNING,
    ),
    Sweep(
        "pruning-tau",
        "What filters leave, by tau (ICDE 2015, figure 10)",
        "tau",
        _over_tau(_FILTERED),
        _PRUNING,
    ),
    Sweep(
        "leaf",
        "Size of a region of stamp (ICDE 2015, figure 11)",
        "subscriptions of a region; the other indexes have none",
        {
            name: {
                label: {
                    size: Point(name, leaf(size) if label == STAMP_LABEL else label, GROUP[name])
                    for size in LEAVES
                }
                for label in COMPARED
            }
            for name in SETS
        },
        _COST,
    ),
    Sweep(
        "existing-delta",
        "Existing methods by delta (ICDE 2015, figure 11)",
        "delta",
        _over_delta(COMPARED),
        _COST,
    ),
    Sweep(
        "existing-tau",
        "Existing methods by tau (ICDE 2015, figure 11)",
        "tau",
        _over_tau(COMPARED),
        _COST,
    ),
    Sweep(
        "message-tokens",
        "Tokens of a message (ICDE 2015, figure 11)",
        "tokens of a message",
        {
            name: {
                label: {n: Point(name, label, f"{n}-point") for n in LENGTHS} for label in COMPARED
            }
            for name in SETS
        },
        _COST,
    ),
    Sweep(
        "subscription-tokens",
        "Tokens of a subscription (ICDE 2015, figure 11)",
        "tokens of a subscription",
        {name: _lines(COMPARED, name, {n: worded(name, n) for n in KEYWORDS}) for name in SETS},
        _COST,
    ),
    Sweep(
        "update",
        "Inserts after half of the subscriptions were built (ICDE 2015, figure 12)",
        "share of all subscriptions",
        {
            TWEETS: {
                label: {share: Point(TWEETS, grown(label, share), GROUP[TWEETS]) for share in STEPS}
                for label in _CHANGING
            }
        },
        ("insert", "time"),
    ),
    Sweep(
        "scale",
        "Number of subscriptions (ICDE 2015, figure 13)",
        "share of all subscriptions",
        {
            TWEETS: {
                label: {
                    share: Point(TWEETS, shared(label, share), GROUP[TWEETS])
                    for share in (*SHARES, 1.0)
                }
                for label in COMPARED
            }
        },
        ("time", "match", "bytes", "build"),
    ),
    Figure(
        "similarities",
        "Similarities of texts (ICDE 2015, figure 13d)",
        "datasets",
        (STAMP_LABEL, IR_100, RT, OWN),
        tuple(similar(kind) for kind in SIMILARITIES),
        (GROUP[TWEETS],),
        measures=_COST,
    ),
)
