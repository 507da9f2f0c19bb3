"""Shared by several papers: lengths of messages, shares of subscriptions, common statements."""

from __future__ import annotations

from nearcast.benchmarks.compare import GROUPS
from nearcast.benchmarks.paper.experiment import Series
from nearcast.benchmarks.paper.statements import Case, Statement

__all__ = ["POINT", "RANGE", "SHARES", "at_length", "cases", "growing", "lengths"]

POINT, RANGE = ("short-point", "long-point"), ("short-range", "long-range")
"""The groups of messages, by point and range."""

SHARES = (0.2, 0.4, 0.6, 0.8)
"""Shares of the subscriptions at which scalability is measured, besides 1."""


def lengths(short: tuple[int, ...], long: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of tokens in the panels of a figure, by group."""
    return {name: long if name.startswith("long") else short for name in GROUPS}


def growing(index: str) -> dict[str, Series]:
    """Return an index over each share in `SHARES` of the subscriptions, by label.

    Examples
    --------
    >>> list(growing("ir-tree"))
    ['ir-tree 0.2', 'ir-tree 0.4', 'ir-tree 0.6', 'ir-tree 0.8']
    """
    return {f"{index} {share:g}": Series(index, share=share) for share in SHARES}


def cases(
    top: str, *bottom: str, groups: tuple[str, ...] = tuple(GROUPS), dataset: str = "tweets"
) -> tuple[Case, ...]:
    """Return one case per group of messages: a series relative to the best of some others."""
    return tuple(Case(top, bottom, group, dataset=dataset) for group in groups)


def at_length(
    top: str, bottom: str, group: str, printed: str, source: str, why: str = ""
) -> Statement:
    """Return a statement about printed times for one length of messages."""
    tokens, _, place = group.partition("-")
    return Statement(
        f"{top} {bottom} {group}",
        source,
        f"{top} / {bottom}, {place} messages of {tokens} tokens",
        cases(top, bottom, groups=(group,)),
        below=1,
        printed=printed,
        why=why,
    )
