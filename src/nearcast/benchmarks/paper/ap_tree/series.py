"""The data sets, series and figures of section 5.1 of the ap-tree paper.

TWEETS is ``tweets`` here. The other three data sets are not available and are replaced: GN (names
of places in the USA) by ``places`` with messages of seven tokens and the paper's subscriptions;
CARS and AIS (positions tagged with random words) by ``tweets`` with their vocabulary of 81,000
words and messages of 30 and 50 tokens. The paper's TWEETS are ordered by time. Ours have no such
order; `Drifting` replaces it by words that change over time.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from nearcast.benchmarks.paper.data import Boolean, Data, Drifting
from nearcast.benchmarks.paper.experiment import Series
from nearcast.benchmarks.paper.figures import Figure, Point, Sweep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nearcast.benchmarks.paper.figures import Line

__all__ = [
    "AIS",
    "AP",
    "BOXES",
    "BUILT",
    "CARS",
    "DATA",
    "DIVERGENCES",
    "DRIFTING",
    "FIGURES",
    "GN",
    "IQ",
    "KEYWORDS",
    "NR",
    "OPTIMAL",
    "PREFERRED",
    "PRINTED",
    "RQ",
    "RT",
    "SERIES",
    "SETS",
    "SHARES",
    "TRIE",
    "TWEETS",
    "WORDS",
    "boolean",
    "boxed",
    "built",
    "diverging",
    "narrow",
    "shared",
    "tuned",
    "worded",
]

AP, IQ, RQ, RT, TRIE = "ap-tree", "iq-tree", "rq-tree", "rt++-tree", "trie-quadtree"
NR = "ap-tree-nr"
"""The ap-tree that never rebuilds a node, as the paper calls it."""

PRINTED = "ap-tree as printed"
"""The ap-tree with the settings printed in the paper; ``ap-tree`` has our default settings."""

OPTIMAL = f"{PRINTED} partition=optimal"
PREFERRED = {what: f"{PRINTED} prefer={what}" for what in ("keyword", "space")}
_OWN = "trie-pyramid"

TWEETS, GN, CARS, AIS, DRIFTING = "tweets", "like GN", "like CARS", "like AIS", "drifting tweets"
SETS = (TWEETS, GN, CARS, AIS)

FANOUTS, LEAVES = (50, 100, 200, 400, 800), (5, 10, 20, 40, 100, 200, 400)
KEYWORDS, WORDS = (1, 2, 3, 4, 5), (3, 4, 5, 6, 7)
BOXES = (1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
SHARES = (0.05, 0.25, 0.5, 0.75)
BUILT = (0.1, 0.3, 0.5, 0.7, 0.9)
DIVERGENCES = (0.0001, 0.001, 0.01, 0.1, 0.5)
_BUILT = 0.2
"""The share that is built in the experiment with the threshold of divergence."""

_SETTINGS = {"fanout": 200, "leaf": 40, "order": "frequent"}
"""The paper's settings, which differ from our defaults."""

_POINT = ("short-point",)

_PROFILES: dict[str, tuple[str, dict[str, object]]] = {
    TWEETS: ("tweets", {}),
    GN: ("places", {"message_tokens": (7, 7), "keywords": (1, 5), "box_share": (0.0001, 0.01)}),
    CARS: ("tweets", {"message_tokens": (30, 30), "vocabulary": 81_000}),
    AIS: ("tweets", {"message_tokens": (50, 50), "vocabulary": 81_000}),
}


def tuned(option: str, value: int) -> str:
    """Return the label of the ap-tree as printed, with one option changed."""
    return PRINTED if value == _SETTINGS[option] else f"{PRINTED} {option}={value}"


def shared(index: str, share: float) -> str:
    """Return the label of an index over a share of the subscriptions."""
    return index if share == 1.0 else f"{index} {share:g}"


def built(label: str, share: float) -> str:
    """Return the label of a series that is built from a share; the rest is inserted."""
    return f"{label} built={share:g}"


def diverging(threshold: float) -> str:
    """Return the label of the ap-tree that rebuilds nodes above this divergence."""
    return built(f"{AP} divergence={threshold:g}", _BUILT)


def narrow(dataset: str) -> str:
    """Return the data set with boxes of a thousandth of a percent."""
    return f"{dataset} small boxes"


def worded(dataset: str, keywords: int) -> str:
    """Return the data set whose subscriptions have this number of keywords."""
    return f"{dataset} keywords={keywords}"


def boxed(share: float) -> str:
    """Return the tweets whose boxes cover this share of the world."""
    return f"tweets box={share:g}"


def boolean(keywords: int) -> str:
    """Return the tweets with expressions of this number of keywords."""
    return f"boolean tweets keywords={keywords}"


def _printed(**options: object) -> Series:
    return Series(AP, _SETTINGS | options)


def _changed(dataset: str, **changes: object) -> Data:
    workload, profile = _PROFILES[dataset]
    return Data(workload, profile | changes)


DATA: dict[str, Data] = {
    **{name: _changed(name) for name in SETS},
    # Section 5.1.2 has 0.001 % on average for the variants, section 5.1.1 has 0.01 to 1 %.
    **{narrow(name): _changed(name, box_share=(1e-5, 1e-5)) for name in SETS},
    **{worded(d, n): _changed(d, keywords=(n, n)) for d in (TWEETS, GN) for n in KEYWORDS},
    **{boxed(share): _changed(TWEETS, box_share=(share, share)) for share in BOXES},
    **{boolean(n): Data("tweets", {"keywords": (n, n)}, Boolean) for n in WORDS},
    DRIFTING: Data("tweets", workload_class=Drifting),
}

_COMPARED = {name: Series(name) for name in (IQ, RQ, AP, _OWN)}
_CHANGING = {
    AP: Series(AP),
    NR: Series(AP, {"divergence": math.inf}),
    IQ: Series(IQ),
    RQ: Series(RQ),
}

# Series that are compared are adjacent, so that they share a heat if memory is short.
SERIES: dict[str, Series] = {
    RT: Series(RT),
    **_COMPARED,
    PRINTED: _printed(),
    OPTIMAL: _printed(partition="optimal"),
    **{label: _printed(prefer=what) for what, label in PREFERRED.items()},
    TRIE: Series(TRIE),
    **{tuned("fanout", n): _printed(fanout=n) for n in FANOUTS},
    **{tuned("leaf", n): _printed(leaf=n) for n in LEAVES},
    **{
        shared(index, share): replace(one, share=share)
        for index, one in _COMPARED.items()
        for share in SHARES
    },
    **{
        built(label, share): replace(one, built=share)
        for share in BUILT
        for label, one in _CHANGING.items()
    },
    **{diverging(most): Series(AP, {"divergence": most}, built=_BUILT) for most in DIVERGENCES},
}


def _over_data(datasets: Mapping[float, str]) -> dict[str, Line]:
    """Return one line per index over data sets, by the varied parameter."""
    return {
        index: {value: Point(name, index) for value, name in datasets.items()}
        for index in _COMPARED
    }


def _over_shares(dataset: str) -> dict[str, Line]:
    """Return one line per index over shares of the subscriptions."""
    return {
        index: {share: Point(dataset, shared(index, share)) for share in (*SHARES, 1.0)}
        for index in _COMPARED
    }


def _over_option(option: str, values: tuple[int, ...]) -> dict[str, dict[str, Line]]:
    """Return the panels of one option of the ap-tree."""
    return {
        name: {PRINTED: {value: Point(name, tuned(option, value)) for value in values}}
        for name in (TWEETS, GN)
    }


FIGURES = (
    Sweep(
        "fanout",
        "Fanout of the ap-tree (VLDB Journal 2015, figure 10a)",
        "fanout",
        _over_option("fanout", FANOUTS),
        ("time", "bytes"),
    ),
    Sweep(
        "leaf",
        "Leaves of the ap-tree (VLDB Journal 2015, figure 10b)",
        "most subscriptions of a leaf",
        _over_option("leaf", LEAVES),
        ("time", "bytes"),
    ),
    Figure(
        "variants",
        "Variants of the ap-tree, boxes of 0.001 % (VLDB Journal 2015, figure 11)",
        "datasets",
        (OPTIMAL, PRINTED, *PREFERRED.values(), TRIE),
        tuple(narrow(name) for name in SETS),
        _POINT,
        names={
            OPTIMAL: "optimal",
            PRINTED: "heuristic",
            **{label: f"prefers {what}" for what, label in PREFERRED.items()},
        },
        measures=("time", "build"),
    ),
    Figure(
        "datasets",
        "Data sets (VLDB Journal 2015, figure 12)",
        "datasets",
        (RT, IQ, RQ, PRINTED, AP, _OWN),
        SETS,
        _POINT,
        measures=("time", "build", "bytes"),
    ),
    Sweep(
        "keywords",
        "Keywords of a subscription (VLDB Journal 2015, figure 13)",
        "keywords",
        {name: _over_data({n: worded(name, n) for n in KEYWORDS}) for name in (TWEETS, GN)},
    ),
    Sweep(
        "boxes",
        "Box of a subscription (VLDB Journal 2015, figure 14)",
        "share of the world",
        {TWEETS: _over_data({share: boxed(share) for share in BOXES})},
    ),
    Sweep(
        "scale",
        "Number of subscriptions (VLDB Journal 2015, figure 15)",
        "share of all subscriptions",
        {name: _over_shares(name) for name in (TWEETS, GN)},
    ),
    Sweep(
        "divergence",
        "Threshold of divergence, a fifth built (VLDB Journal 2015, figure 16)",
        "threshold",
        {
            DRIFTING: {
                AP: {threshold: Point(DRIFTING, diverging(threshold)) for threshold in DIVERGENCES}
            }
        },
        ("time", "insert"),
    ),
    Sweep(
        "maintenance",
        "Inserting what was not built (VLDB Journal 2015, figure 17)",
        "share that is built",
        {
            DRIFTING: {
                label: {share: Point(DRIFTING, built(label, share)) for share in BUILT}
                for label in _CHANGING
            }
        },
        ("time", "insert"),
    ),
    Sweep(
        "boolean",
        "Boolean expressions by their keywords (VLDB Journal 2015, figure 18a)",
        "keywords",
        {"boolean tweets": _over_data({n: boolean(n) for n in WORDS})},
    ),
    Sweep(
        "boolean-scale",
        "Boolean expressions by their number (VLDB Journal 2015, figure 18b)",
        "share of all subscriptions",
        {boolean(5): _over_shares(boolean(5))},
    ),
)
