"""The right answers to a sample of messages, to compare those of indexes with.

For boolean subscriptions they are the scan's. The scan of ranked subscriptions is plain Python,
too slow for millions of them: their answers are those of `RankedLinear`, which scores every
subscription with the kernels that all ranked indexes use, and must therefore give the same bits.
It is compared with the scan, which shares no kernel with it, on every row that it found for some of
the messages, and on random rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from nearcast import indexes
from nearcast.columns import Clauses, Matches, Ranked
from nearcast.errors import NearcastError
from nearcast.indexes.ranked import RankedLinear

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import Messages
    from nearcast.indexes import Index

__all__ = ["Answers"]

MAX_SCANNED_PAIRS = 200_000
"""As many messages are scanned as fit; a pair takes about ten microseconds."""

MIN_MATCHES = 100
"""A sample with fewer matches is enlarged: an index that loses a few matches is noticed then."""

MAX_ENLARGED_PAIRS = {"boolean": 200_000_000, "ranked": 20_000_000}
"""Pairs of a message and a subscription up to which a sample is enlarged: about ten seconds."""

RANDOM_ROWS = 2_000
"""Rows that are scanned besides those that match."""

SCORE_MARGIN = 1e-11
"""The largest difference between a score of the kernels and one of the scan."""


class _Pairs(NamedTuple):
    """Matches as sorted keys (message and row in one number), and their scores if there are any."""

    key: NDArray[np.int64]
    score: NDArray[np.float64] | None

    @classmethod
    def of(cls, matches: Matches) -> _Pairs:
        key = (matches.message << 32) | matches.subscription
        order = np.argsort(key, kind="stable")
        return cls(key[order], None if matches.score is None else matches.score[order])

    def keep(self, chosen: NDArray[np.bool_]) -> _Pairs:
        return _Pairs(self.key[chosen], None if self.score is None else self.score[chosen])

    @property
    def message(self) -> NDArray[np.int64]:
        return self.key >> 32

    @property
    def row(self) -> NDArray[np.int64]:
        return self.key & 0xFFFFFFFF


class Answers:
    """The matches of a sample of messages, with scores if the subscriptions are ranked.

    Examples
    --------
    >>> from nearcast.datasets import Workload
    >>> tweets = Workload("tweets", seed=7)
    >>> near, sample = tweets.ranked(500), tweets.messages(3)
    >>> Answers(near, near.weigh(sample)).check("ranked-linear", RankedLinear.build(near)) > 0
    True
    """

    def __init__(self, content: Clauses | Ranked, sample: Messages) -> None:
        self._take(content, sample, _oracle(content).match(sample))

    @classmethod
    def of_sample(cls, content: Clauses | Ranked, messages: Messages, sample: int) -> Self:
        """Return the answers to some messages, evenly spaced, with at least `MIN_MATCHES` matches.

        Parameters
        ----------
        content
            The subscriptions.
        messages
            All messages.
        sample
            How many of them to take. More are taken until there are enough matches, or all
            messages are used, or more than `MAX_ENLARGED_PAIRS` would be scanned.
        """
        order = _sample_order(len(messages), sample)
        clauses = isinstance(content, Clauses)
        most = MAX_ENLARGED_PAIRS["boolean" if clauses else "ranked"] // max(1, len(content))
        oracle, parts = _oracle(content), []
        taken, following = 0, min(sample, len(messages))
        while True:
            parts.append(oracle.match(messages.take(order[taken:following])))
            taken = following
            following = min(2 * taken, len(messages), max(most, taken))
            if following == taken or sum(map(len, parts)) >= MIN_MATCHES:
                break
        answers = cls.__new__(cls)
        answers._take(content, messages.take(order[:taken]), Matches.concatenate(parts))
        return answers

    def _take(self, content: Clauses | Ranked, sample: Messages, matches: Matches) -> None:
        self.sample = sample
        self._pairs = _Pairs.of(matches)
        if isinstance(content, Ranked):
            _compare_with_scan(content, sample, self._pairs)

    def check_part(self, label: str, index: Index, first: int, last: int) -> int:
        """Compare the answers of an index to the messages from ``first`` to ``last`` (excluded).

        Return how many matches were compared, and raise errors as `check` does.
        """
        pairs = self._pairs
        expected = pairs.keep((pairs.message >= first) & (pairs.message < last))
        expected = expected._replace(key=expected.key - (first << 32))
        part = self.sample.take(np.arange(first, last))
        return _check(label, index, part, expected)

    def check(self, label: str, index: Index, rows: int | None = None) -> int:
        """Compare the answers of an index; return how many matches were compared.

        Parameters
        ----------
        label
            The name of the index in the error.
        index
            An index over the content, or over its first ``rows`` subscriptions.
        rows
            How many subscriptions the index has, if not all.

        Raises
        ------
        NearcastError
            If a match is missing, wrong or repeated, or a score has other bits than it should.
        """
        expected = self._pairs if rows is None else self._pairs.keep(self._pairs.row < rows)
        return _check(label, index, self.sample, expected)


def _oracle(content: Clauses | Ranked) -> Index:
    """Return the index whose answers are taken as right."""
    if isinstance(content, Clauses):
        return indexes.create("scan").build(content)
    return RankedLinear.build(content)


def _sample_order(messages: int, sample: int) -> NDArray[np.int64]:
    """Return all rows of messages: first those of a sample, evenly spaced, then the others."""
    rows = np.linspace(0, messages - 1, min(sample, messages)).astype(np.int64)
    others = np.setdiff1d(np.arange(messages), rows)
    return np.concatenate([rows, np.random.default_rng(messages).permutation(others)])


def _check(label: str, index: Index, sample: Messages, expected: _Pairs) -> int:
    """Raise an error if an index answers otherwise; return the number of expected matches."""
    found = _Pairs.of(index.match(sample))
    # The scan shares no kernel with the others, and may round the last bit differently.
    margin = SCORE_MARGIN if index.name == "scan" else 0.0
    _compare(f"{label} and the scan", len(sample), found, expected, margin=margin)
    return len(expected.key)


def _compare(who: str, messages: int, found: _Pairs, expected: _Pairs, *, margin: float) -> None:
    """Raise an error if two sets of matches differ, or scores differ by more than the margin."""
    missing = len(np.setdiff1d(expected.key, found.key))
    # A repeated match is a wrong one.
    wrong = len(found.key) - (len(expected.key) - missing)
    problem = f"of {len(expected.key)} matches of {messages} messages, {missing} are missing; "
    if missing or wrong:
        raise NearcastError(f"{who} differ: {problem}{wrong} matches are wrong")
    if expected.score is None:
        return
    if found.score is None:
        raise NearcastError(f"{who} differ: there are no scores")
    other = ~(np.abs(found.score - expected.score) <= margin)
    if other.any():
        first = int(np.flatnonzero(other)[0])
        raise NearcastError(
            f"{who} differ: of {len(other)} scores, {int(other.sum())} are different; first "
            f"{float(found.score[first])!r}, expected {float(expected.score[first])!r}"
        )


def _compare_with_scan(ranked: Ranked, sample: Messages, pairs: _Pairs) -> None:
    """Compare matches and scores with the scan's, on rows that match and on random ones."""
    rng = np.random.default_rng(len(ranked))
    chosen = rng.choice(len(ranked), min(RANDOM_ROWS, len(ranked)), replace=False)
    for messages in range(len(sample), 0, -1):
        rows = np.union1d(chosen, pairs.row[pairs.message < messages])
        if messages * len(rows) <= MAX_SCANNED_PAIRS:
            break
    scan = indexes.create("scan").build(ranked.take(rows))
    found = _Pairs.of(scan.match(sample.take(np.arange(messages))))
    # The rows of the scan are numbered from 0.
    found = _Pairs((found.message << 32) | rows[found.row], found.score)
    expected = pairs.keep((pairs.message < messages) & np.isin(pairs.row, rows))
    _compare("ranked-linear and the scan", messages, expected, found, margin=SCORE_MARGIN)
