"""What the text of the ap-tree paper says about its figures 19 to 25, and about our own.

Statements about the ap+-tree in the default setting are judged twice: with the paper's options (*as
printed*) and with ours, which the sweeps have. "Not sensitive" allows up to a fifth more. Numbers
of times ("nearly 10 x") stand beside the measured ones; a statement is judged by which is faster.
"""

from __future__ import annotations

from nearcast.benchmarks.paper.ap_plus.series import (
    AP,
    APK,
    APS,
    EXISTING,
    GN_CITY,
    GN_COUNTY,
    IQ,
    KK,
    LIFETIMES,
    LIVES,
    MOBILITIES,
    PRINTED,
    RANGES,
    RQ,
    SETS,
    SIZES,
    SS,
    TWEETS_CITY,
    TWIN,
    VELOCITIES,
    fast,
    mobile,
    ranged,
    sized,
)
from nearcast.benchmarks.paper.moving import TICK
from nearcast.benchmarks.paper.statements import Case, Statement

__all__ = ["STATEMENTS"]

_SIMILAR = 1.2
_BOTH = (PRINTED, AP)
_TREES = (IQ, RQ, *_BOTH)

_WHY = {
    "mi": "storing a message is a hash and an append for each of its lists; the trees have more "
    "lists for a message, the grids' tables have to grow and shrink",
    "slu": "as printed, a subscription stands in more leaves (215 bytes of index instead of 144), "
    "and the list of its leaves is kept too",
    "imm": "a message is stored under each of its tokens in the grids, in hash tables; a slot of "
    "the tree is only appended to",
    "imm existing": "a message is stored in 15 to 55 lists, wherever a matching subscription could "
    "come to stand, against one for each token in ss and kk (6 to 13)",
    "msp grids": "our grids find the list of the rarest token in a cell by one hash, compare "
    "sixteen messages at a time, and skip cells inside of both boxes; the paper's do not",
    "msp printed": "with frequent tokens first, lists are long, and a move reads many of them; "
    "with our options the tree is 2 to 3.5 times as fast",
    "bytes": "a message is stored wherever a matching subscription could ever come to stand: the "
    "paper stores it only in leaves that exist, and would miss it after a leaf is split",
    "falls": "nothing gets cheaper with speed here: more messages lie between the old and the new "
    "box",
    "small": "moves of small boxes have hardly any updates: what is left is to find the lists, "
    "which one hash does faster than a walk; with the smallest boxes the ap+-tree is split by "
    "space when it is built, and is rebuilt in the first ticks, when it has seen moves",
    "grows": "the messages of a token grow too: five times of both is twenty-five times the pairs",
}
"""Why we measure something else."""


def _at(scenes: tuple[str, ...], top: str, *bottom: str) -> tuple[Case, ...]:
    """Return one case per scene: a series relative to the best of some others."""
    return tuple(Case(top, bottom, TICK, dataset=name, label=_short(name)) for name in scenes)


def _short(scene: str) -> str:
    """Return the name of a scene without that of the default one."""
    return scene.removeprefix(f"{TWEETS_CITY}, ")


def _against_each(top: str, others: tuple[str, ...]) -> tuple[Case, ...]:
    """Return one case per other series, in the paper's default scene."""
    return tuple(
        Case(top, (other,), TICK, dataset=TWEETS_CITY, label=f"{top} / {other}") for other in others
    )


def _change(first: str, last: str, labels: tuple[str, ...]) -> tuple[Case, ...]:
    """Return the last scene relative to the first, for each series."""
    return tuple(
        Case(
            label,
            (label,),
            TICK,
            dataset=last,
            bottom_dataset=first,
            label=f"{label}, {GN_COUNTY}" if GN_COUNTY in last else label,
        )
        for label in labels
    )


_APART = (
    *(
        Statement(
            f"mi {top}",
            "5.2.2, figure 19",
            f"{top} stores messages more slowly than ss- and kk-index",
            _at((TWEETS_CITY,), top, SS, KK),
            above=1,
            quantity="mi",
            why=_WHY["mi"],
        )
        for top in _TREES
    ),
    *(
        Statement(
            f"slu {top}",
            "5.2.2, figure 19",
            f"{top}: location updates are slower than those of ss, kk and ap+",
            _against_each(top, (SS, KK, *_BOTH)),
            above=1,
            quantity="slu",
            why=_WHY["slu"],
        )
        for top in (IQ, RQ)
    ),
    *(
        Statement(
            f"slu small {top}",
            "5.2.2, figure 19",
            f"location updates of the {top} are cheap: faster than iq+, rq+",
            _at((TWEETS_CITY,), top, IQ, RQ),
            below=1,
            quantity="slu",
            why=_WHY["slu"],
        )
        for top in _BOTH
    ),
)

_VARIANTS = tuple(
    statement
    for top in _BOTH
    for statement in (
        Statement(
            f"imm variants {top}",
            "5.2.2, figure 20",
            f"{top}: arrivals are slower than those of ap+k, ap+s",
            _at((TWEETS_CITY,), top, APK, APS),
            above=1,
            quantity="imm",
            printed="a little",
            why=_WHY["imm"],
        ),
        Statement(
            f"msp variants {top}",
            "5.2.2, figure 20",
            f"{top}: moves are faster than those of ap+k, ap+s",
            _against_each(top, (APK, APS)),
            below=1,
            quantity="msp",
            printed="nearly 10 x faster",
            why=_WHY["msp printed"] if top == PRINTED else _WHY["msp grids"],
        ),
    )
)

_SETS = tuple(
    statement
    for top in _BOTH
    for statement in (
        Statement(
            f"imm sets {top}",
            "5.2.3, figure 21",
            f"{top}: arrivals are faster than those of ss, kk, iq+, rq+",
            _at(SETS, top, *EXISTING),
            below=1,
            quantity="imm",
            why=_WHY["imm existing"],
        ),
        Statement(
            f"msp sets {top}",
            "5.2.3, figure 21",
            f"{top}: moves are faster than those of ss, kk, iq+, rq+",
            _at(SETS, top, *EXISTING),
            below=1,
            quantity="msp",
            printed="up to 30 x on GN",
            why=_WHY["msp printed"] if top == PRINTED else _WHY["msp grids"],
        ),
        Statement(
            f"bytes sets {top}",
            "5.2.3, figure 21",
            f"{top} is smaller than ss, kk, iq+, rq+",
            _at(SETS, top, *EXISTING),
            below=1,
            quantity="total_bytes",
            why=_WHY["bytes"],
        ),
    )
)

_SWEEPS = (
    Statement(
        "mobility",
        "5.2.3, figure 22",
        "ap+: moves are far ahead at every mobility",
        _at(tuple(mobile(share) for share in MOBILITIES), AP, *EXISTING),
        below=1,
        quantity="total_msp",
        why=_WHY["msp grids"],
    ),
    Statement(
        "mobility imm",
        "5.2.3, figure 22",
        f"arrivals do not depend on mobility ({MOBILITIES[-1]:g} / {MOBILITIES[0]:g})",
        _change(mobile(MOBILITIES[0]), mobile(MOBILITIES[-1]), (*EXISTING, AP)),
        below=_SIMILAR,
        quantity="imm",
    ),
    Statement(
        "velocity",
        "5.2.3, figure 23",
        "ap+: moves are fastest at every velocity",
        _at(
            tuple(fast(name, v) for name in (TWEETS_CITY, GN_COUNTY) for v in VELOCITIES),
            AP,
            *EXISTING,
        ),
        below=1,
        quantity="msp",
        why=_WHY["msp grids"],
    ),
    Statement(
        "velocity falls",
        "5.2.3, figure 23",
        "ap+: the time of a move first falls with velocity (1 / 0.5)",
        _change(fast(TWEETS_CITY, 0.5), TWEETS_CITY, (AP,))
        + _change(fast(GN_COUNTY, 0.5), GN_COUNTY, (AP,)),
        below=1,
        quantity="msp",
        why=_WHY["falls"],
    ),
    Statement(
        "velocity rises",
        "5.2.3, figure 23",
        "ap+: the time of a move then rises with velocity (4 / 1)",
        _change(TWEETS_CITY, fast(TWEETS_CITY, 4.0), (AP,))
        + _change(GN_COUNTY, fast(GN_COUNTY, 4.0), (AP,)),
        above=1,
        quantity="msp",
    ),
    Statement(
        "range rises",
        "5.2.3, figure 24",
        f"moves of larger boxes are slower ({RANGES[-1]:g} % / {RANGES[0]:g} %)",
        _change(ranged(RANGES[0]), ranged(RANGES[-1]), (*EXISTING, AP)),
        above=1,
        quantity="msp",
    ),
    Statement(
        "range",
        "5.2.3, figure 24",
        "ap+: moves are fastest at every range",
        _at(tuple(ranged(percent) for percent in RANGES), AP, *EXISTING),
        below=1,
        quantity="msp",
        why=_WHY["small"],
    ),
    Statement(
        "scale",
        "5.2.3, figure 25",
        f"ap+ scales: five times of both, at most five times for a move "
        f"({SIZES[-1]:g} M / {SIZES[0]:g} M)",
        _change(sized(SIZES[0]), sized(SIZES[-1]), (AP,)),
        below=SIZES[-1] / SIZES[0],
        quantity="msp",
        why=_WHY["grows"],
    ),
    Statement(
        "scale fastest",
        "5.2.3, figure 25",
        "ap+: moves are fastest at every size",
        _at(tuple(sized(factor) for factor in SIZES), AP, *EXISTING),
        below=1,
        quantity="msp",
        why=_WHY["msp grids"],
    ),
)

_EVERY = (
    *SETS,
    *(mobile(share) for share in MOBILITIES if share != 0.4),
    *(fast(name, v) for name in (TWEETS_CITY, GN_COUNTY) for v in VELOCITIES if v != 1.0),
    *(ranged(percent) for percent in RANGES),
    *(sized(factor) for factor in SIZES),
)
_OTHERS = (*EXISTING, AP)

_OURS = (
    *(
        Statement(
            f"ours {quantity}",
            "ours",
            f"twin-lists: {what} faster than those of all indexes of the paper",
            _at(_EVERY, TWIN, *_OTHERS),
            below=1,
            quantity=quantity,
            printed="-",
        )
        for quantity, what in (("msp", "moves are"), ("imm", "arrivals are"))
    ),
    Statement(
        "ours ticks",
        "ours",
        "twin-lists: more whole ticks per second than all indexes of the paper",
        _at((TWEETS_CITY,), TWIN, *_OTHERS, PRINTED, APK, APS),
        above=1,
        quantity="ticks",
        printed="-",
    ),
    Statement(
        "ours bytes",
        "ours",
        "twin-lists is smaller than all indexes of the paper",
        _at((TWEETS_CITY, GN_CITY), TWIN, *_OTHERS),
        below=1,
        quantity="total_bytes",
        printed="-",
    ),
    Statement(
        "ours lifetimes",
        "ours",
        f"memory stays the same ({LIVES[-1]} lifetimes / {LIVES[4]})",
        tuple(
            Case(
                label,
                (label,),
                str(LIVES[-1]),
                bottom_group=str(LIVES[4]),
                dataset=LIFETIMES,
                label=label,
            )
            for label in (*_OTHERS, PRINTED, APK, APS, TWIN)
        ),
        below=_SIMILAR,
        quantity="total_bytes",
        printed="-",
    ),
)

STATEMENTS = (*_APART, *_VARIANTS, *_SETS, *_SWEEPS, *_OURS)
