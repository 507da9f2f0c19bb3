"""Shared parts of the statements of the ap-tree paper.

"Similar" in the paper allows up to a fifth more; "stable" and "comparable" allow up to twice as
much. "Slightly" and "by a large margin" are judged as faster or slower; the table shows the
measured ratio beside them.
"""

from __future__ import annotations

from nearcast.benchmarks.paper.ap_tree.series import AP, IQ, RQ
from nearcast.benchmarks.paper.statements import Case

__all__ = ["POINT", "SIMILAR", "STABLE", "STRAIGHT", "from_to", "on"]

SIMILAR, STABLE = 1.2, 2.0
POINT = "short-point"

STRAIGHT = (
    "a hash leads the rq-tree straight to a short list, where the ap-tree searches cuts on several "
    "levels; it looks at fewer clauses, and is about as fast"
)


def on(datasets: tuple[str, ...], top: str, *bottom: str) -> tuple[Case, ...]:
    """Return one case per data set: a series relative to the best of some others."""
    return tuple(Case(top, bottom, POINT, dataset=name, label=name) for name in datasets)


def from_to(first: str, last: str, label: str) -> tuple[Case, ...]:
    """Return the last data set relative to the first, for each of the paper's three indexes."""
    return tuple(
        Case(index, (index,), POINT, "", last, f"{index} {label}", bottom_dataset=first)
        for index in (IQ, RQ, AP)
    )
