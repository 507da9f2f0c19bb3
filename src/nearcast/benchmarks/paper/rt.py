"""The experiments of the rt-tree papers.

Li, Wang, Wang, Feng: "Location-Aware Publish/Subscribe", KDD 2013, section 6, and Yu, Li, Wang,
Feng, Gong: "Efficient Filtering Algorithms for Location-Aware Publish/Subscribe", TKDE 2014,
section 7. Twitter is ``tweets`` here; the papers' other data, places of the USA with words of DBLP,
is ``places``. The statements are from the texts, not from the plots. The texts disagree on the
sorting strategies: the first measures them on the rt+-tree, the second on the rt++-tree, with the
same sizes. Therefore both trees are measured.
"""

from __future__ import annotations

from nearcast.benchmarks.paper.experiment import Experiment, Series
from nearcast.benchmarks.paper.figures import Figure
from nearcast.benchmarks.paper.phrases import (
    POINT,
    RANGE,
    SHARES,
    at_length,
    cases,
    growing,
    lengths,
)
from nearcast.benchmarks.paper.statements import Case, Statement

__all__ = ["RT"]

_SIZE = 10_000_000
"""The number of subscriptions in the paper."""

_STRATEGIES = ("random", "df", "idf", "local-df", "local-idf")
_BASELINES = ("keyword-first", "spatial-first", "ir-tree")
_MIXED = ("keyword-first", "spatial-first", "ir-tree", "rt-tree", "rt+-tree", "rt++-tree")
_LENGTHS = lengths(short=(8, 12, 16, 20), long=(100, 400, 700, 1000))


def _sorted_by(tree: str) -> dict[str, Series]:
    """Return a tree with each strategy; the last strategy has the name of the tree as its label."""
    named = {f"{tree} {kind}": Series(tree, {"tokens": kind}) for kind in _STRATEGIES[:-1]}
    return {**named, tree: Series(tree, {"tokens": _STRATEGIES[-1]})}


def _strategies(tree: str) -> dict[str, str]:
    """Return the labels of a tree's series by strategy."""
    return {kind: f"{tree} {kind}" for kind in _STRATEGIES[:-1]} | {_STRATEGIES[-1]: tree}


def _legend(tree: str) -> dict[str, str]:
    return {label: kind for kind, label in _strategies(tree).items()}


_WHY = {
    "df random": "the cover takes frequent tokens, which most messages have: more is opened, and "
    "smaller sets do not make up for it",
    "local idf": "the words of this data are drawn without regard to the place",
    "keyword": "keyword-first is at its best here: a subscription stands in the list of its rarest "
    "token only, and sixteen boxes are compared at once",
    "best": "keyword-first is at its best here (see above); and where boxes are small, as in "
    "places, the R-tree alone leaves little to check",
    "ir": "a token is looked up once a node and gives the entries below as one word, which costs "
    "little, and fewer nodes are opened",
    "rt++": "long messages have the first tokens of many subscriptions: the lists of the upper "
    "levels are read in vain, where the rt+-tree compares the boxes of whole nodes at once",
    "rt+ size": "ours counts all that changes need, the frequencies by cell too; and rare tokens, "
    "which represent here, are shared by few subscriptions",
}
"""Explanations of statements that do not hold here."""


# Series that are compared are adjacent, so that they share a heat if memory is short.
SERIES: dict[str, Series] = {
    **_sorted_by("rt+-tree"),
    "rt-tree": Series("rt-tree"),
    **_sorted_by("rt++-tree"),
    "keyword-first": Series("keyword-first"),
    "spatial-first": Series("spatial-first"),
    "ir-tree": Series("ir-tree"),
    "trie-pyramid": Series("trie-pyramid"),
    **growing("rt++-tree"),
}

FIGURES = (
    Figure(
        "sorting-rt+",
        "Sorting strategies, rt+-tree (KDD 2013, figure 6)",
        "lengths",
        tuple(_strategies("rt+-tree").values()),
        lengths=_LENGTHS,
        names=_legend("rt+-tree"),
    ),
    Figure(
        "sorting-rt++",
        "Sorting strategies, rt++-tree (TKDE 2014, figure 7)",
        "lengths",
        tuple(_strategies("rt++-tree").values()),
        lengths=_LENGTHS,
        names=_legend("rt++-tree"),
    ),
    Figure(
        "token-sets",
        "Token sets (KDD 2013, figure 7; TKDE 2014, figure 8)",
        "lengths",
        ("rt-tree", "rt+-tree", "rt++-tree"),
        lengths=_LENGTHS,
    ),
    Figure(
        "existing",
        "Existing methods (KDD 2013, figures 8 and 9; TKDE 2014, figures 9 and 10)",
        "groups",
        (*_BASELINES, "rt++-tree", "trie-pyramid"),
        datasets=("tweets", "places"),
    ),
    Figure(
        "scale",
        "Scalability of the rt++-tree (KDD 2013, figure 10; TKDE 2014, figure 11)",
        "scale",
        (*growing("rt++-tree"), "rt++-tree"),
    ),
    Figure(
        "mixed",
        "10 % inserts, 10 % deletes, 80 % messages (TKDE 2014, figure 12)",
        "mixed",
        _MIXED,
    ),
)


def _sorting(tree: str, source: str) -> tuple[Statement, ...]:
    """Return the statements about the strategies of a tree."""
    by = _strategies(tree)
    pairs = (("idf", "df"), ("df", "random"), ("local-idf", "idf"), ("local-idf", "df"))
    return tuple(
        Statement(
            f"{tree} {fast} {slow}",
            source,
            f"{tree}: {fast} is faster than {slow}",
            cases(by[fast], by[slow]),
            below=1,
            why=_WHY.get({"df": "df random", "local-idf": "local idf"}.get(fast, ""), ""),
        )
        for fast, slow in pairs
    )


def _sizes() -> tuple[Statement, ...]:
    """Return the statements about sizes by strategy, for both trees."""
    said = (
        ("df", "random", "smaller", "0.95 x", 0),
        ("idf", "random", "larger", "1.04 x", 1),
        ("local-idf", "idf", "larger", "1.05 x", 1),
    )
    return tuple(
        Statement(
            f"size {one} {other}",
            "KDD 6.1, TKDE 7.1",
            f"{one} makes the tree {how} than {other}",
            tuple(
                Case(_strategies(tree)[one], (_strategies(tree)[other],), label=tree)
                for tree in ("rt+-tree", "rt++-tree")
            ),
            below=None if larger else 1,
            above=1 if larger else None,
            quantity="bytes",
            printed=printed,
        )
        for one, other, how, printed, larger in said
    )


def _existing(dataset: str, source: str) -> tuple[Statement, ...]:
    """Return the statements about existing methods, on one data set."""
    spatial, keyword = "spatial-first", "keyword-first"
    return (
        Statement(
            f"{dataset} spatial keyword point",
            source,
            f"{dataset}, point messages: spatial-first is faster than keyword-first",
            cases(spatial, keyword, groups=POINT, dataset=dataset),
            below=1,
            why=_WHY["keyword"],
        ),
        Statement(
            f"{dataset} spatial keyword range",
            source,
            f"{dataset}, range messages: spatial-first is slower than keyword-first",
            cases(spatial, keyword, groups=RANGE, dataset=dataset),
            above=1,
        ),
        Statement(
            f"{dataset} ir spatial",
            source,
            f"{dataset}: ir-tree is slower than spatial-first",
            cases("ir-tree", spatial, dataset=dataset),
            above=1,
            why=_WHY["ir"],
        ),
        Statement(
            f"{dataset} rt++ best",
            source,
            f"{dataset}: rt++-tree is faster than the best of the three",
            cases("rt++-tree", *_BASELINES, dataset=dataset),
            below=1,
            why=_WHY["best"],
        ),
    )


STATEMENTS = (
    *_sorting("rt+-tree", "KDD 6.1"),
    *_sorting("rt++-tree", "TKDE 7.1"),
    # The text names idf twice, with more than 9 ms and with 6 ms; the first must be df.
    at_length("rt++-tree", "rt++-tree random", "20-range", "4 / >9 ms", "TKDE 7.1"),
    at_length("rt++-tree", "rt++-tree df", "20-range", "4 / >9 ms", "TKDE 7.1"),
    at_length("rt++-tree", "rt++-tree idf", "20-range", "4 / 6 ms = 0.67 x", "TKDE 7.1"),
    *_sizes(),
    Statement(
        "rt+ rt",
        "KDD 6.2, TKDE 7.2",
        "rt+-tree is faster than rt-tree",
        cases("rt+-tree", "rt-tree"),
        below=1,
    ),
    Statement(
        "rt++ rt+",
        "KDD 6.2, TKDE 7.2",
        "rt++-tree is faster than rt+-tree",
        cases("rt++-tree", "rt+-tree"),
        below=1,
        why=_WHY["rt++"],
    ),
    at_length("rt+-tree", "rt-tree", "1000-range", "28 / 50 ms = 0.56 x", "KDD 6.2"),
    at_length(
        "rt++-tree", "rt+-tree", "1000-range", "12 / 28 ms = 0.43 x", "KDD 6.2", _WHY["rt++"]
    ),
    at_length("rt++-tree", "rt-tree", "1000-range", "12 / 50 ms = 0.24 x", "KDD 6.2", _WHY["rt++"]),
    Statement(
        "rt++ short",
        "KDD 6.2",
        "rt++-tree takes 1-2 ms for a short message",
        cases("rt++-tree", groups=("short-point", "short-range")),
        below=2_000,
        printed="1,000-2,000 µs",
        at_size=_SIZE,
    ),
    Statement(
        "size rt+ rt",
        "KDD table 1",
        "rt+-tree is smaller than rt-tree",
        (Case("rt+-tree", ("rt-tree",), label="size"),),
        below=1,
        quantity="bytes",
        printed="0.79 / 1.63 GB = 0.48 x",
        why=_WHY["rt+ size"],
    ),
    Statement(
        "size rt++ rt+",
        "KDD table 1",
        "rt++-tree is larger than rt+-tree",
        (Case("rt++-tree", ("rt+-tree",), label="size"),),
        above=1,
        quantity="bytes",
        printed="0.89 / 0.79 GB = 1.13 x",
    ),
    *_existing("tweets", "KDD 6.3, TKDE 7.3"),
    *_existing("places", "KDD 6.3, TKDE 7.3"),
    Statement(
        "scale",
        "KDD 6.4, TKDE 7.4",
        "rt++-tree: five times the subscriptions take less than five times the time",
        cases("rt++-tree", f"rt++-tree {SHARES[0]:g}"),
        below=5,
    ),
    Statement(
        "mixed short long",
        "TKDE 7.5",
        "mixed load: more operations a second with short point than with long range messages",
        (
            Case(
                "rt++-tree",
                ("rt++-tree",),
                "short-point",
                bottom_group="long-range",
                label="short-point / long-range",
            ),
        ),
        above=1,
        quantity="operations",
        printed="600-840 / 60-120 = 5-14 x",
    ),
    Statement(
        "mixed short",
        "TKDE 7.5",
        "mixed load with short point messages: operations of the rt++-tree",
        (Case("rt++-tree", group="short-point"),),
        above=600,
        quantity="operations",
        printed="600-840 a second",
        at_size=_SIZE,
    ),
    Statement(
        "mixed long",
        "TKDE 7.5",
        "mixed load with long range messages: operations of the rt++-tree",
        (Case("rt++-tree", group="long-range"),),
        above=60,
        quantity="operations",
        printed="60-120 a second",
        at_size=_SIZE,
    ),
)

RT = Experiment(
    "rt",
    "Location-aware publish/subscribe: the rt-tree family",
    "rt++-tree",
    SERIES,
    FIGURES,
    STATEMENTS,
)
"""The experiment of the rt-tree papers."""
