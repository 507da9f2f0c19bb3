"""What the text of the stamp paper says about its figures.

"Similar" allows up to twice as much, as does "slightly affected". The numbers of times ("two orders
of magnitude") stand beside the measured ones; a statement is judged by which is faster.
"""

from __future__ import annotations

from nearcast.benchmarks.paper.stamp.series import (
    BASELINES,
    DELTAS,
    FILTERS,
    GROUP,
    IR_1,
    IR_100,
    KEYWORDS,
    LENGTHS,
    OWN,
    RT,
    SETS,
    SHARES,
    SIMILARITIES,
    STAMP_LABEL,
    STEPS,
    TAUS,
    TWEETS,
    grown,
    leaf,
    shared,
    similar,
    thresholded,
    weighted,
    worded,
)
from nearcast.benchmarks.paper.statements import Case, Statement

__all__ = ["STATEMENTS"]

_SIZE = 10_000_000
"""The number of subscriptions in the paper."""

_SIMILAR = 2.0
_TEXTUAL = "SP+RP+ST+HI"
_WHY = {
    "st": "verifying a candidate is one cache line and a vector loop here; the prefix saves less "
    "than a quarter of the candidates, and reads up to fourteen times the postings for it",
    "cost": "the paper weighs postings and candidates alike; here a candidate costs less than the "
    "postings that would save it",
    "delta st": "the more the words count, the more signature sets there are to read",
    "no place": "with delta 1 no place is too far, so there is nothing to prune by distance",
    "no words": "with delta 0 words do not count, so there are no prefixes of words",
    "ir": "a node of a hundred subscriptions has the words of most messages: looking them up saves "
    "little unless words count most",
    "regions": "with delta 1 no region is too far: every message opens all of them",
    "few matches": "the more tokens a subscription has, the smaller is the share that a message "
    "has of them: candidates fall to 17-45 %, and they cost most",
    "insert": "an insert writes a posting for each prefix token and signature set of its region; "
    "our R-trees change the few nodes of one path",
    "bytes": "the signature sets: without them (SP+RP+HI) stamp is smaller than the ir-trees",
    "build": "our R-trees are packed from sorted subscriptions, not grown by inserts, which leaves "
    "little to be faster than; prefixes have to be weighed token by token",
    "weights": "without weights by rarity, frequent words count as much as rare ones, so there are "
    "up to four times the candidates",
}
"""Why we measure something else."""

_BEST_SPATIAL = "SP+RP+HI"

_VARIED = {
    **{weighted(name, delta): name for name in SETS for delta in DELTAS},
    **{thresholded(name, tau): name for name in SETS for tau in TAUS},
}
"""The data sets with one delta or one tau, and the data set that each is made of."""


def _on(datasets: dict[str, str], top: str, *bottom: str) -> tuple[Case, ...]:
    """Return one case per data set: a series relative to the best of some others."""
    return tuple(
        Case(top, bottom, GROUP[kind], dataset=name, label=name) for name, kind in datasets.items()
    )


def _default(top: str, *bottom: str) -> tuple[Case, ...]:
    return _on({name: name for name in SETS}, top, *bottom)


def _change(
    first: str, last: str, dataset: str, labels: tuple[str, ...], what: str
) -> tuple[Case, ...]:
    """Return the last data set relative to the first, for each series."""
    return tuple(
        Case(
            label,
            (label,),
            GROUP[dataset],
            dataset=last,
            bottom_dataset=first,
            label=f"{dataset} {label} {what}",
        )
        for label in labels
    )


def _over_tau(labels: tuple[str, ...]) -> tuple[Case, ...]:
    least, most = TAUS[0], TAUS[-1]
    return tuple(
        case
        for name in SETS
        for case in _change(
            thresholded(name, least), thresholded(name, most), name, labels, f"{most:g} / {least:g}"
        )
    )


def _over_delta(labels: tuple[str, ...]) -> tuple[Case, ...]:
    small, large = DELTAS[1], DELTAS[-2]
    return tuple(
        case
        for name in SETS
        for case in _change(
            weighted(name, large), weighted(name, small), name, labels, f"{small:g} / {large:g}"
        )
    )


_COST_MODEL = (
    Statement(
        "st sp",
        "VII-C1, figure 8",
        "the spatio-textual prefix is faster than verifying all candidates",
        _on({TWEETS: TWEETS}, _TEXTUAL, _BEST_SPATIAL),
        below=1,
        why=_WHY["st"],
    ),
    Statement(
        "cost st",
        "VII-C1, figure 8",
        "choosing by cost is faster than always using it, and than never",
        _on({TWEETS: TWEETS}, STAMP_LABEL, _TEXTUAL, _BEST_SPATIAL),
        below=1,
        why=_WHY["cost"],
    ),
    Statement(
        "st bytes",
        "VII-C1, figure 8",
        "the spatio-textual prefix makes the index larger",
        (Case(_TEXTUAL, (_BEST_SPATIAL,), label="size"),),
        above=1,
        quantity="bytes",
        printed="a bit larger",
    ),
)


def _filters() -> tuple[Statement, ...]:
    middle = {weighted(TWEETS, 0.5): TWEETS}
    steps = (
        ("SP+HI", "SP", "50 / 82 ms = 0.61 x"),
        ("SP+RP+HI", "SP+HI", "43 / 50 ms = 0.86 x"),
        (STAMP_LABEL, "SP+RP+HI", "25 / 43 ms = 0.58 x"),
    )
    everywhere = tuple(
        Statement(
            f"{fast} {slow}",
            "VII-C2, figure 9",
            f"any delta and tau: {fast} is faster than {slow}",
            _on(_VARIED, fast, slow),
            below=1,
            why=_WHY["st"] if fast == STAMP_LABEL else "",
        )
        for fast, slow, _ in steps
    )
    printed = tuple(
        Statement(
            f"{fast} {slow} half",
            "VII-C2, figure 9",
            f"Twitter, delta 0.5: {fast} / {slow}",
            _on(middle, fast, slow),
            below=1,
            printed=ratio,
            why=_WHY["st"] if fast == STAMP_LABEL else "",
        )
        for fast, slow, ratio in steps
    )
    milliseconds = tuple(
        Statement(
            f"{label} ms",
            "VII-C2, figure 9",
            f"Twitter, delta 0.5: {label} takes {ms} ms",
            _on(middle, label),
            below=ms * 1000,
            printed=f"{ms * 1000:,} µs",
            at_size=_SIZE,
        )
        for label, ms in (("SP", 82), ("SP+HI", 50), ("SP+RP+HI", 43), (STAMP_LABEL, 25))
    )
    return (*everywhere, *printed, *milliseconds)


_TRENDS = (
    Statement(
        "tau filters",
        "VII-C2, figure 9",
        "a larger tau makes all filter sets faster",
        _over_tau((*FILTERS, STAMP_LABEL)),
        below=1,
    ),
    Statement(
        "delta filters",
        "VII-C2, figure 9",
        "a smaller delta makes SP, SP+HI, SP+ST+HI and SP+RP+HI slower",
        _over_delta(("SP", "SP+HI", "SP+ST+HI", "SP+RP+HI")),
        above=1,
        printed="much longer",
        why=_WHY["delta st"],
    ),
    Statement(
        "delta stamp",
        "VII-C2, figure 9",
        "a smaller delta makes stamp only a little slower",
        _over_delta((STAMP_LABEL,)),
        below=_SIMILAR,
        printed="slightly affected",
    ),
)

_PRUNING = (
    *(
        Statement(
            f"accessed {fewer} {more}",
            "VII-C2, figure 10",
            f"{fewer} accesses fewer subscriptions than {more}",
            _on(_VARIED, fewer, more),
            below=1,
            quantity="accessed",
            why=_WHY["no place"],
        )
        for fewer, more in (("SP+HI", "SP"), ("SP+RP+HI", "SP+HI"))
    ),
    *(
        Statement(
            f"candidates {one} SP",
            "VII-C2, figure 10",
            f"{one} has as many candidates as SP",
            _on(_VARIED, one, "SP"),
            above=0.999,
            quantity="examined",
            printed="1 x",
        )
        for one in ("SP+HI", "SP+RP+HI")
    ),
    *(
        Statement(
            f"candidates {with_st} {without}",
            "VII-C2, figure 10",
            f"{with_st} has fewer candidates than {without}",
            _on(_VARIED, with_st, without),
            below=1,
            quantity="examined",
        )
        for with_st, without in (("SP+ST+HI", "SP+HI"), (_TEXTUAL, _BEST_SPATIAL))
    ),
    *(
        Statement(
            f"accessed {with_st} {without}",
            "VII-C2, figure 10",
            f"{with_st} accesses more subscriptions than {without}",
            _on(_VARIED, with_st, without),
            above=1,
            quantity="accessed",
            printed="many more",
            why=_WHY["no words"],
        )
        for with_st, without in (("SP+ST+HI", "SP+HI"), (_TEXTUAL, _BEST_SPATIAL))
    ),
)

_EXISTING = (
    *(
        Statement(
            f"leaf {other}",
            "VII-C3, figure 11",
            f"stamp: regions of 5,000 are faster than regions of {other:,}",
            _default(leaf(5_000), leaf(other)),
            below=1,
        )
        for other in (100, 50_000)
    ),
    Statement(
        "ir 100",
        "VII-C3, figure 11",
        "ir-tree-100 is faster than ir-tree-1",
        _on(_VARIED, IR_100, IR_1),
        below=1,
        why=_WHY["ir"],
    ),
    Statement(
        "stamp ir",
        "VII-C3, figure 11",
        "stamp is faster than ir-tree-100",
        _on(_VARIED, STAMP_LABEL, IR_100),
        below=1,
        printed="by 2 orders of magnitude: 0.01 x",
    ),
    Statement(
        "stamp rt",
        "VII-C3, figure 11",
        "stamp is faster than rt++-tree",
        _on(_VARIED, STAMP_LABEL, RT),
        below=1,
        printed="10-50 times: 0.02-0.1 x",
        why=_WHY["regions"],
    ),
    Statement(
        "tau existing",
        "VII-C3, figure 11",
        "a larger tau makes all indexes faster",
        _over_tau((STAMP_LABEL, *BASELINES)),
        below=1,
    ),
    Statement(
        "message tokens",
        "VII-C3, figure 11",
        "longer messages take longer",
        tuple(
            Case(
                label,
                (label,),
                f"{LENGTHS[-1]}-point",
                f"{LENGTHS[0]}-point",
                dataset=name,
                label=f"{name} {label} {LENGTHS[-1]} / {LENGTHS[0]} tokens",
            )
            for name in SETS
            for label in (STAMP_LABEL, *BASELINES)
        ),
        above=1,
        printed="slightly",
    ),
    Statement(
        "subscription tokens",
        "VII-C3, figure 11",
        "subscriptions of more tokens take longer",
        tuple(
            case
            for name in SETS
            for case in _change(
                worded(name, KEYWORDS[0]),
                worded(name, KEYWORDS[-1]),
                name,
                (STAMP_LABEL, *BASELINES),
                f"{KEYWORDS[-1]} / {KEYWORDS[0]} tokens",
            )
        ),
        above=1,
        printed="slightly",
        why=_WHY["few matches"],
    ),
)


def _after(top: str, *bottom: str) -> tuple[Case, ...]:
    """Return cases by the share of subscriptions that were there after inserts."""
    return tuple(
        Case(
            grown(top, share),
            tuple(grown(one, share) for one in bottom),
            GROUP[TWEETS],
            label=f"grown to {share:g}",
        )
        for share in STEPS
    )


_UPDATE = (
    Statement(
        "update rt",
        "VII-C4, figure 12",
        "an insert into stamp takes about as long as into rt++-tree",
        _after(STAMP_LABEL, RT),
        below=_SIMILAR,
        quantity="insert",
        printed="similar",
        why=_WHY["insert"],
    ),
    *(
        Statement(
            f"update {other}",
            "VII-C4, figure 12",
            f"an insert into stamp takes less time than into {other}",
            _after(STAMP_LABEL, other),
            below=1,
            quantity="insert",
            why=_WHY["insert"],
        )
        for other in (IR_1, IR_100)
    ),
    Statement(
        "update matching",
        "VII-C4, figure 12",
        "after inserts: stamp is faster than the best of the others",
        _after(STAMP_LABEL, *BASELINES),
        below=1,
    ),
    Statement(
        "update growth",
        "VII-C4, figure 12",
        "more inserts make matching slower",
        tuple(
            Case(
                grown(label, STEPS[-1]),
                (grown(label, STEPS[0]),),
                GROUP[TWEETS],
                label=f"{label} {STEPS[-1]:g} / {STEPS[0]:g}",
            )
            for label in (STAMP_LABEL, *BASELINES)
        ),
        above=1,
    ),
)

_SCALE = (
    Statement(
        "scale",
        "VII-C5, figure 13",
        "stamp: five times the subscriptions take less than five times the time",
        _on({TWEETS: TWEETS}, STAMP_LABEL, shared(STAMP_LABEL, SHARES[0])),
        below=5,
    ),
    *(
        Statement(
            f"{quantity} {label} {other}",
            "VII-C5, figure 13",
            f"{label} {says} than {other}",
            (Case(label, (other,), label=quantity),),
            below=1,
            quantity=quantity,
            why=_WHY[quantity],
        )
        for quantity, says in (("bytes", "is smaller"), ("build", "is built faster"))
        for label in (STAMP_LABEL, RT)
        for other in (IR_1, IR_100)
    ),
    Statement(
        "similarities",
        "VII-C5, figure 13d",
        "stamp: other similarities of texts take about as long as containment",
        tuple(
            Case(
                STAMP_LABEL,
                (STAMP_LABEL,),
                GROUP[TWEETS],
                dataset=similar(kind),
                bottom_dataset=TWEETS,
                label=kind,
            )
            for kind in SIMILARITIES[1:]
        ),
        below=_SIMILAR,
        printed="high performance on other functions",
        why=_WHY["weights"],
    ),
)

_OURS = (
    Statement(
        "own",
        "not in the paper",
        f"{OWN} is faster than the best of stamp (with any filters) and the others",
        (
            *_on(_VARIED, OWN, *FILTERS, STAMP_LABEL, *BASELINES),
            *_default(OWN, STAMP_LABEL, *BASELINES),
        ),
        below=1,
    ),
)

STATEMENTS = (
    *_COST_MODEL,
    *_filters(),
    *_TRENDS,
    *_PRUNING,
    *_EXISTING,
    *_UPDATE,
    *_SCALE,
    *_OURS,
)
"""The statements, in the order of the paper."""
