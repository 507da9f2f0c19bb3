"""The ap-tree paper's statements about scale, inserts and boolean expressions."""

from __future__ import annotations

from nearcast.benchmarks.paper.ap_tree.phrases import POINT, SIMILAR, STABLE, STRAIGHT, from_to, on
from nearcast.benchmarks.paper.ap_tree.series import (
    AP,
    BUILT,
    DIVERGENCES,
    DRIFTING,
    GN,
    IQ,
    NR,
    RQ,
    SHARES,
    TWEETS,
    WORDS,
    boolean,
    built,
    diverging,
    shared,
)
from nearcast.benchmarks.paper.statements import Case, Statement

__all__ = ["GROWTH"]

_DEFAULT, _MOST = 5_000_000, 20_000_000
"""The paper's number of subscriptions: the default, and the largest."""

_SCALE = "5.1.3, figure 15"
_DIVERGENCE = "5.1.3, figure 16"
_MAINTENANCE = "5.1.3, figure 17"
_BOOLEAN = "5.1.3, figure 18"


def _shares(dataset: str) -> tuple[Case, ...]:
    """Compare the ap-tree with the best of the others at each share of the subscriptions."""
    return tuple(
        Case(
            shared(AP, share),
            (shared(IQ, share), shared(RQ, share)),
            POINT,
            dataset=dataset,
            label=f"{dataset} {share:g} of all",
        )
        for share in (*SHARES, 1.0)
    )


def _whole_to_least(*datasets: str) -> tuple[Case, ...]:
    """Compare the ap-tree over all subscriptions with that over the smallest share."""
    return on(datasets, AP, shared(AP, SHARES[0]))


_OF_SCALE = (
    Statement(
        "scale ap",
        _SCALE,
        "any number of subscriptions: ap-tree is faster than iq-tree and rq-tree",
        (*_shares(TWEETS), *_shares(GN)),
        below=1,
    ),
    Statement(
        "scale 20",
        _SCALE,
        "ap-tree: twenty times the subscriptions take less than twenty times the time",
        _whole_to_least(TWEETS, GN),
        below=20,
        printed="much more scalable",
    ),
    *(
        Statement(
            f"scale {name}",
            _SCALE,
            f"ap-tree takes {ms:g} ms for a message of {name.removeprefix('like ')}",
            on((name,), AP),
            below=ms * 1_000,
            printed=f"{ms * 1_000:g} µs",
            at_size=_MOST,
        )
        for name, ms in ((TWEETS, 0.4), (GN, 0.04))
    ),
)


def _after(top: str, *bottom: str, shares: tuple[float, ...] = BUILT) -> tuple[Case, ...]:
    """Return cases by the share that was built; the rest is inserted."""
    return tuple(
        Case(
            built(top, share),
            tuple(built(one, share) for one in bottom),
            POINT,
            dataset=DRIFTING,
            label=f"{share:g} built",
        )
        for share in shares
    )


_EXTREMES = (
    Case(
        diverging(DIVERGENCES[0]),
        (diverging(DIVERGENCES[-1]),),
        POINT,
        dataset=DRIFTING,
        label=f"{DIVERGENCES[0]:g} / {DIVERGENCES[-1]:g}",
    ),
)

_OF_MAINTENANCE = (
    Statement(
        "divergence time",
        _DIVERGENCE,
        "ap-tree: with the smallest threshold it is faster than with the largest",
        _EXTREMES,
        below=1,
    ),
    Statement(
        "divergence insert",
        _DIVERGENCE,
        "ap-tree: with the smallest threshold inserts take longer than with the largest",
        _EXTREMES,
        above=1,
        quantity="insert",
    ),
    Statement(
        "nr slower",
        _MAINTENANCE,
        "a tenth built: the ap-tree that rebuilds nodes is faster than the one that does not",
        _after(AP, NR, shares=BUILT[:1]),
        below=1,
    ),
    Statement(
        "ap stable",
        _MAINTENANCE,
        "ap-tree: with a tenth built it is about as fast as with nine tenths",
        (
            Case(
                built(AP, BUILT[0]),
                (built(AP, BUILT[-1]),),
                POINT,
                dataset=DRIFTING,
                label=f"{BUILT[0]:g} / {BUILT[-1]:g} built",
            ),
        ),
        below=SIMILAR,
        printed="rather stable",
    ),
    Statement(
        "ap after",
        _MAINTENANCE,
        "after inserts: ap-tree is faster than iq-tree and rq-tree",
        _after(AP, IQ, RQ),
        below=1,
        printed="by a large margin",
        why=STRAIGHT,
    ),
    Statement(
        "nr insert",
        _MAINTENANCE,
        "an insert into the ap-tree without rebuilding takes less than into all others",
        _after(NR, AP, IQ, RQ),
        below=1,
        quantity="insert",
        why="a clause goes down the ap-tree to its leaf; it is put into lists that a hash finds",
    ),
    *(
        Statement(
            f"ap insert {other}",
            _MAINTENANCE,
            f"an insert into the ap-tree takes longer than into {other}",
            _after(AP, other),
            above=1,
            quantity="insert",
        )
        for other in (IQ, RQ)
    ),
    Statement(
        "ap insert",
        _MAINTENANCE,
        "an insert into the ap-tree takes 0.12 ms",
        _after(AP),
        below=120,
        quantity="insert",
        printed="120 µs",
        at_size=_DEFAULT,
    ),
)

_OF_EXPRESSIONS = (
    Statement(
        "boolean stable",
        _BOOLEAN,
        "expressions of seven keywords take about as long as those of three",
        from_to(boolean(WORDS[0]), boolean(WORDS[-1]), f"{WORDS[-1]} / {WORDS[0]} keywords"),
        below=STABLE,
        printed="relatively stable",
    ),
    Statement(
        "boolean ap",
        _BOOLEAN,
        "expressions of six and seven keywords: ap-tree is faster than iq-tree and rq-tree",
        on(tuple(boolean(n) for n in WORDS[-2:]), AP, IQ, RQ),
        below=1,
    ),
    Statement(
        "boolean scale",
        _BOOLEAN,
        "expressions: twenty times the subscriptions take less than twenty times the time",
        _whole_to_least(boolean(5)),
        below=20,
        printed="scales well",
    ),
)


GROWTH = (*_OF_SCALE, *_OF_MAINTENANCE, *_OF_EXPRESSIONS)
"""The statements, in the order of the paper."""
