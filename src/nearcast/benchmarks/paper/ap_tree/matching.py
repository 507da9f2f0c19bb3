"""The ap-tree paper's statements about tuning, variants, data sets, keywords and boxes."""

from __future__ import annotations

from nearcast.benchmarks.paper.ap_tree.phrases import SIMILAR, STABLE, STRAIGHT, from_to, on
from nearcast.benchmarks.paper.ap_tree.series import (
    AIS,
    AP,
    BOXES,
    CARS,
    GN,
    IQ,
    KEYWORDS,
    OPTIMAL,
    PREFERRED,
    PRINTED,
    RQ,
    RT,
    SETS,
    TRIE,
    TWEETS,
    boxed,
    narrow,
    tuned,
    worded,
)
from nearcast.benchmarks.paper.statements import Statement

__all__ = ["MATCHING"]

_TUNING = "5.1.2, figure 10"
_VARIANTS = "5.1.2, figure 11"
_SETS = "5.1.3, figure 12"
_KEYWORDS = "5.1.3, figure 13"
_BOXES = "5.1.3, figure 14"

_MANY_CUTS = (
    "cuts are searched without branches here, so that more of them cost little, and leaves have "
    "fewer clauses of other tokens: our own setting is 16,000"
)
_CELLS = (
    "boxes as small as these sort out more than 200 cuts of a large vocabulary do, "
    "which the cost model sees too little of"
)
_LOOKUPS = (
    "the iq-tree looks up every token in every cell above the message; the lists of the rq-tree "
    "are short, and sixteen boxes of them are compared at once"
)

_TUNED = (
    *(
        Statement(
            f"fanout 200 {other}",
            _TUNING,
            f"fanout 200 is faster than {other}",
            on((TWEETS, GN), PRINTED, tuned("fanout", other)),
            below=1,
            why=why,
        )
        for other, why in ((50, ""), (800, _MANY_CUTS))
    ),
    Statement(
        "leaf below 40",
        _TUNING,
        "leaves of 40 are as fast as the best of 5, 10 and 20",
        on((TWEETS, GN), PRINTED, *(tuned("leaf", n) for n in (5, 10, 20))),
        below=SIMILAR,
    ),
    Statement(
        "leaf above 40",
        _TUNING,
        "leaves of 400 are slower than leaves of 40",
        on((TWEETS, GN), tuned("leaf", 400), PRINTED),
        above=1,
    ),
    Statement(
        "leaf size",
        _TUNING,
        "leaves of 40 make the tree smaller than leaves of 5",
        on((TWEETS, GN), PRINTED, tuned("leaf", 5)),
        below=1,
        quantity="bytes",
    ),
)

_NARROW = tuple(narrow(name) for name in SETS)

_OF_VARIANTS = (
    Statement(
        "optimal best",
        _VARIANTS,
        "the optimal partition is faster than the best of all other variants",
        on(_NARROW, OPTIMAL, PRINTED, *PREFERRED.values(), TRIE),
        below=1,
        why="only cuts of keywords are optimal, and for these boxes cells are better",
    ),
    Statement(
        "heuristic optimal",
        _VARIANTS,
        "the heuristic partition is about as fast as the optimal one",
        on(_NARROW, PRINTED, OPTIMAL),
        below=SIMILAR,
        printed="similar",
    ),
    Statement(
        "heuristic optimal build",
        _VARIANTS,
        "the heuristic partition is built faster than the optimal one",
        on(_NARROW, PRINTED, OPTIMAL),
        below=1,
        quantity="build",
        printed="by a huge margin",
    ),
    *(
        Statement(
            f"{other} slower",
            _VARIANTS,
            f"{other} is slower than the ap-tree that adapts",
            on(_NARROW, other, PRINTED),
            above=1,
            why=_CELLS if other == PREFERRED["space"] else "",
        )
        for other in (*PREFERRED.values(), TRIE)
    ),
)

_OF_SETS = (
    Statement(
        "ap best",
        _SETS,
        "ap-tree is faster than the best of rt++-tree, iq-tree and rq-tree",
        on(SETS, AP, RT, IQ, RQ),
        below=1,
        printed="GN: 1 / 30 = 0.03 x",
    ),
    Statement(
        "rq best of old",
        _SETS,
        "tweets, GN and AIS: rq-tree is faster than iq-tree and rt++-tree",
        on((TWEETS, GN, AIS), RQ, IQ, RT),
        below=1,
    ),
    Statement(
        "iq rq cars",
        _SETS,
        "CARS: iq-tree is faster than rq-tree",
        on((CARS,), IQ, RQ),
        below=1,
        why=_LOOKUPS,
    ),
    Statement(
        "iq rt",
        _SETS,
        "iq-tree is faster than rt++-tree",
        on(SETS, IQ, RT),
        below=1,
        printed="much faster",
    ),
    Statement(
        "rt build",
        _SETS,
        "rt++-tree is built faster than iq-tree, rq-tree and ap-tree",
        on(SETS, RT, IQ, RQ, AP),
        below=1,
        quantity="build",
        why="with a cut for nearly every token, the ap-tree is parted a few times and is done",
    ),
    Statement(
        "ap size",
        _SETS,
        "ap-tree is about as large as the smallest of the others",
        on(SETS, AP, RT, IQ, RQ),
        below=STABLE,
        quantity="bytes",
        printed="comparable",
    ),
)

_OF_KEYWORDS = (
    Statement(
        "keywords 5 1",
        _KEYWORDS,
        "with five keywords all are faster than with one",
        tuple(
            case
            for name in (TWEETS, GN)
            for case in from_to(worded(name, 1), worded(name, 5), name)
        ),
        below=1,
    ),
    Statement(
        "keywords one",
        _KEYWORDS,
        "one keyword: ap-tree is faster than iq-tree and rq-tree",
        on(tuple(worded(name, 1) for name in (TWEETS, GN)), AP, IQ, RQ),
        below=1,
        printed="slightly",
        why=STRAIGHT,
    ),
    Statement(
        "keywords more",
        _KEYWORDS,
        "two to five keywords: ap-tree is faster than iq-tree and rq-tree",
        on(tuple(worded(d, n) for d in (TWEETS, GN) for n in KEYWORDS[1:]), AP, IQ, RQ),
        below=1,
        printed="significantly",
        why=STRAIGHT,
    ),
)

_OF_BOXES = (
    Statement(
        "boxes grow",
        _BOXES,
        "with the largest boxes all are slower than with the smallest",
        from_to(boxed(BOXES[0]), boxed(BOXES[-1]), f"{BOXES[-1]:g} / {BOXES[0]:g}"),
        above=1,
    ),
    Statement(
        "boxes small",
        _BOXES,
        "very small boxes: rq-tree is slower than iq-tree",
        on((boxed(BOXES[0]),), RQ, IQ),
        above=1,
        why=_LOOKUPS,
    ),
    Statement(
        "boxes large",
        _BOXES,
        "large boxes: rq-tree is faster than iq-tree",
        on((boxed(BOXES[-1]),), RQ, IQ),
        below=1,
    ),
    Statement(
        "boxes ap",
        _BOXES,
        "boxes of any size: ap-tree is faster than iq-tree and rq-tree",
        on(tuple(boxed(share) for share in BOXES), AP, IQ, RQ),
        below=1,
        printed="by a large margin",
    ),
)


MATCHING = (*_TUNED, *_OF_VARIANTS, *_OF_SETS, *_OF_KEYWORDS, *_OF_BOXES)
"""The statements, in the order of the paper."""
