"""What a server has and what the scan has, side by side: the first difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.server.audit.replay import Posting
from nearcast.server.matching.postings import Postings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Disagreement", "as_columns", "count_events", "first_disagreement"]

SCORE_MARGIN = 1e-11
"""Scores may differ by rounding."""

_COLUMNS = (np.int64, np.uint32, np.uint32, np.int64, np.uint8, np.float64)


class Disagreement(NamedTuple):
    """A posting that one side has and the other has not, or has differently, or elsewhere.

    ``what`` is ``missing``, ``unexpected``, ``kind``, ``score`` or ``order``.
    """

    what: str
    server: Posting | None
    scan: Posting | None

    @property
    def posting(self) -> Posting:
        """The posting, as the scan has it if it does."""
        posting = self.scan or self.server
        assert posting is not None
        return posting


def as_columns(postings: Sequence[Posting]) -> Postings:
    """Return postings in the order in which a folder has them.

    That is by seq and channel, the postings of one event side by side.
    """
    ordered = sorted(postings, key=lambda posting: posting[:2])
    columns = zip(*_by_event(ordered), strict=True) if ordered else ([] for _ in _COLUMNS)
    pairs = zip(columns, _COLUMNS, strict=True)
    return Postings(*(np.array(column, dtype) for column, dtype in pairs))


def _by_event(postings: Sequence[Posting]) -> Iterator[Posting]:
    """Yield postings by seq and channel, those of one message after its first one."""
    group: dict[tuple[int, int], list[Posting]] = {}
    before: tuple[int, int] | None = None
    for number, posting in enumerate(postings):
        if posting[:2] != before:
            for event in group.values():
                yield from event
            group, before = {}, posting[:2]
        event_of = (posting.message, 0) if posting.message else (0, number)
        group.setdefault(event_of, []).append(posting)
    for event in group.values():
        yield from event


def count_events(postings: Postings) -> int:
    """Return the number of events of postings that are in the order of a folder."""
    if not postings.rows:
        return 0
    seq, channel, message = postings.seq, postings.channel, postings.message
    new = (message == 0) | np.ones(1, np.bool_)
    new[1:] = (
        (message[1:] == 0)
        | (seq[1:] != seq[:-1])
        | (channel[1:] != channel[:-1])
        | (message[1:] != message[:-1])
    )
    return int(np.count_nonzero(new))


def first_disagreement(server: Postings, scan: Postings) -> Disagreement | None:
    """Return the first difference of postings that are in the order of a folder."""
    common = min(server.rows, scan.rows)
    same = np.ones(common, np.bool_)
    for name in ("seq", "channel", "handle", "message", "kind"):
        same &= getattr(server, name)[:common] == getattr(scan, name)[:common]
    same &= np.isclose(
        server.score[:common], scan.score[:common], rtol=0, atol=SCORE_MARGIN, equal_nan=True
    )
    differing = np.flatnonzero(~same)
    if not len(differing) and server.rows == scan.rows:
        return None
    at = int(differing[0]) if len(differing) else common
    first = min(_posting(side, at)[:2] for side in (server, scan) if at < side.rows)
    return _explained(_group(server, first), _group(scan, first))


def _posting(postings: Postings, at: int) -> Posting:
    return Posting(*(column[at].item() for column in postings))


def _group(postings: Postings, group: tuple[int, ...]) -> list[Posting]:
    """Return the postings of a seq and a channel."""
    seq, channel = group
    rows = np.flatnonzero((postings.seq == seq) & (postings.channel == channel))
    return [_posting(postings, at) for at in rows.tolist()]


def _explained(server: list[Posting], scan: list[Posting]) -> Disagreement:
    """Return how the postings of a seq and channel differ."""
    found = {_key(posting): posting for posting in server}
    expected = {_key(posting): posting for posting in scan}
    for key, posting in expected.items():
        if key not in found:
            other = _of_other_kind(posting, server, expected)
            return Disagreement("missing" if other is None else "kind", other, posting)
    for key, posting in found.items():
        if key not in expected:
            return Disagreement("unexpected", posting, None)
    for key, posting in expected.items():
        if not np.isclose(found[key].score, posting.score, 0, SCORE_MARGIN, equal_nan=True):
            return Disagreement("score", found[key], posting)
    if len(server) > len(scan):
        return Disagreement("unexpected", _repeated(server), None)
    if len(server) < len(scan):
        return Disagreement("missing", None, _repeated(scan))
    ours, theirs = next(
        pair for pair in zip(server, scan, strict=True) if _key(pair[0]) != _key(pair[1])
    )
    return Disagreement("order", ours, theirs)


def _repeated(postings: list[Posting]) -> Posting:
    """Return the first posting that was there before."""
    keys = [_key(posting) for posting in postings]
    return next(posting for at, posting in enumerate(postings) if keys[at] in keys[:at])


def _key(posting: Posting) -> tuple[int, int, int]:
    return posting.message, posting.handle, posting.kind


def _of_other_kind(
    posting: Posting, server: list[Posting], expected: dict[tuple[int, int, int], Posting]
) -> Posting | None:
    """Return what the server has of the same subscription and message instead."""
    same = (other for other in server if other[2:4] == posting[2:4] and _key(other) not in expected)
    return next(same, None)
