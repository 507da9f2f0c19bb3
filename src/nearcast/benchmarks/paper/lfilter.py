"""The experiments of the paper of mbr-trie, pt-quadtree and lfilter.

Yu, Li, Feng: "A Cost-based Method for Location-Aware Publish/Subscribe Services", CIKM 2015,
section 6. Twitter is ``tweets`` here; places of the USA with words of DBLP are ``places``. The
statements are from the text. The plots and table 1 (the sizes) are not available: sizes are
measured and drawn, but not judged. The paper does not state the order of tokens (section 3.1 uses
the alphabet as an example). Both orders are measured; ``mbr-trie`` has the rarest token first.
"""

from __future__ import annotations

from nearcast.benchmarks.compare import GROUPS
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
from nearcast.benchmarks.paper.statements import Statement

__all__ = ["LFILTER"]

_SIZE = 10_000_000
"""The number of subscriptions in the paper."""

_TRIE, _QUADTREE, _BOTH = "mbr-trie", "pt-quadtree", "lfilter"
_TOKENS, _NODES = "mbr-trie probe=tokens", "mbr-trie probe=trie"
_ALPHABET = "mbr-trie order=alphabet"
_LENGTHS = lengths(short=(8, 12, 16, 20), long=(200, 400, 600, 800, 1000))

# The text has times for messages of 600 tokens, but not their group. 16 ms is far more than the
# 2-4 ms of long point messages, so they must be boxes. (Section 6.2 has the same 16 ms for 1,000.)
_SIX_HUNDRED = "600-range"

_WHY = {
    "tokens": "looking for every child of the root in the message means hundreds of thousands of "
    "them, where a token finds its child by a hash table",
    "best": "lists are grouped by pivotal token here, which leaves the quadtree alone little to "
    "verify: pruning examines far less, but looking the message's tokens up for it costs more",
    "range": "boxes of messages are small (a ten-thousandth of the world at most), and lists that "
    "are grouped by pivotal token leave the quadtree little to verify",
    "ir": "the ir-tree looks a token up once a node and gets the entries below as one word; where "
    "boxes are small, that leaves little to check",
}
"""Explanations of statements that do not hold here."""

SERIES: dict[str, Series] = {
    _TOKENS: Series(_TRIE, {"probe": "tokens"}),
    _NODES: Series(_TRIE, {"probe": "trie"}),
    _ALPHABET: Series(_TRIE, {"order": "alphabet"}),
    _TRIE: Series(_TRIE),
    _QUADTREE: Series(_QUADTREE),
    _BOTH: Series(_BOTH),
    "rt++-tree": Series("rt++-tree"),
    "ir-tree": Series("ir-tree"),
    "trie-pyramid": Series("trie-pyramid"),
    **growing(_BOTH),
}

FIGURES = (
    Figure(
        "probing",
        "Probing strategies of the mbr-trie (CIKM 2015, figure 7), and another order of tokens",
        "lengths",
        (_TOKENS, _NODES, _TRIE, _ALPHABET),
        lengths=_LENGTHS,
        names={
            _TOKENS: "ProbeTokenSet",
            _NODES: "ProbeTrie",
            _TRIE: "CostBasedProbe",
            _ALPHABET: "CostBasedProbe, alphabet",
        },
    ),
    Figure(
        "algorithms",
        "The three algorithms (CIKM 2015, figure 8)",
        "lengths",
        (_TRIE, _QUADTREE, _BOTH),
        lengths=_LENGTHS,
    ),
    Figure(
        "existing",
        "Existing methods (CIKM 2015, figures 9 and 10)",
        "groups",
        ("ir-tree", "rt++-tree", _BOTH, "trie-pyramid"),
        datasets=("tweets", "places"),
    ),
    Figure(
        "scale",
        "Scalability of lfilter (CIKM 2015, figure 11)",
        "scale",
        (*growing(_BOTH), _BOTH),
        groups=(*GROUPS, _SIX_HUNDRED),
    ),
)


def _existing(dataset: str) -> tuple[Statement, ...]:
    """Return the statements about existing methods, on one data set."""
    return tuple(
        Statement(
            f"{dataset} {fast} {slow}",
            "6.3",
            f"{dataset}: {fast} is faster than {slow}",
            cases(fast, slow, dataset=dataset),
            below=1,
            why=_WHY["ir"] if slow == "ir-tree" else "",
        )
        for fast, slow in ((_BOTH, "rt++-tree"), ("rt++-tree", "ir-tree"))
    )


def _long_point(top: str, bottom: str, printed: str) -> Statement:
    """Return a statement about the printed times of long point messages."""
    return Statement(
        f"{top} {bottom} long-point",
        "6.3",
        f"{top} / {bottom}, long point messages",
        cases(top, bottom, groups=("long-point",)),
        below=1,
        printed=printed,
    )


STATEMENTS = (
    Statement(
        "cost best",
        "6.1",
        "mbr-trie: probing by cost is faster than the better of the two ways",
        cases(_TRIE, _TOKENS, _NODES),
        below=1,
    ),
    at_length(_TRIE, _NODES, "1000-range", "56 / 98 ms = 0.57 x", "6.1"),
    at_length(_TRIE, _TOKENS, "1000-range", "56 / 72 ms = 0.78 x", "6.1"),
    at_length(_TOKENS, _NODES, "1000-range", "72 / 98 ms = 0.73 x", "6.1", _WHY["tokens"]),
    Statement(
        "lfilter best",
        "6.2",
        "lfilter is faster than the better of mbr-trie and pt-quadtree",
        cases(_BOTH, _TRIE, _QUADTREE),
        below=1,
        why=_WHY["best"],
    ),
    Statement(
        "quadtree trie point",
        "6.2",
        "point messages: pt-quadtree is faster than mbr-trie",
        cases(_QUADTREE, _TRIE, groups=POINT),
        below=1,
    ),
    Statement(
        "trie quadtree range",
        "6.2",
        "range messages: mbr-trie is faster than pt-quadtree",
        cases(_TRIE, _QUADTREE, groups=RANGE),
        below=1,
        why=_WHY["range"],
    ),
    at_length(_BOTH, _TRIE, "1000-range", "16 / >50 ms", "6.2"),
    at_length(_BOTH, _QUADTREE, "1000-range", "16 / >50 ms", "6.2", _WHY["best"]),
    *_existing("tweets"),
    _long_point(_BOTH, "rt++-tree", "2-4 / 10 ms = 0.2-0.4 x"),
    _long_point("rt++-tree", "ir-tree", "10 / >15 ms"),
    Statement(
        "lfilter long-point",
        "6.3",
        "lfilter takes 2-4 ms for a long point message",
        cases(_BOTH, groups=("long-point",)),
        below=4_000,
        printed="2,000-4,000 µs",
        at_size=_SIZE,
    ),
    *_existing("places"),
    Statement(
        "scale",
        "6.4",
        "lfilter: five times the subscriptions take less than five times the time",
        cases(_BOTH, f"{_BOTH} {SHARES[0]:g}"),
        below=5,
    ),
    Statement(
        "scale 600",
        "6.4",
        "lfilter: the same with range messages of 600 tokens",
        cases(_BOTH, f"{_BOTH} {SHARES[0]:g}", groups=(_SIX_HUNDRED,)),
        below=5,
        printed="16 / 6 ms = 2.7 x",
    ),
    Statement(
        "lfilter 600",
        "6.4",
        "lfilter takes 16 ms for a range message of 600 tokens",
        cases(_BOTH, groups=(_SIX_HUNDRED,)),
        below=16_000,
        printed="16,000 µs",
        at_size=_SIZE,
    ),
)

LFILTER = Experiment(
    "lfilter",
    "A cost-based method: mbr-trie, pt-quadtree and lfilter",
    _BOTH,
    SERIES,
    FIGURES,
    STATEMENTS,
)
"""The experiment of the lfilter paper."""
