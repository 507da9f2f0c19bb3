"""Whom messages have reached: how many subscriptions and subscribers, from the events."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nearcast.server.service import Service

__all__ = ["Reach", "reach_of"]

_MAX_POSTINGS = 1_000_000
"""So many postings are counted at a time: a message may have matched all subscriptions."""


class Reach(NamedTuple):
    """How many subscriptions a message has reached, and how many subscribers they belong to."""

    subscriptions: int
    subscribers: int


_NOBODY = Reach(0, 0)


def reach_of(service: Service, seqs: Sequence[int]) -> dict[int, Reach]:
    """Return whom messages reached when they were published, by their ascending numbers.

    Those that are not matched yet are left out. If another system matches, all are: nobody can say
    when a message is matched.
    """
    if service.remote:
        return {}
    known = [seq for seq in seqs if seq <= service.events.last_seq]
    found = dict.fromkeys(known, _NOBODY)
    for some in _portions(service, known):
        found |= _counted(service, some)
    return found


def _portions(service: Service, seqs: Sequence[int]) -> Iterator[list[int]]:
    """Yield the messages that have postings, with not too many postings at a time."""
    some: list[int] = []
    postings = 0
    for seq in seqs:
        count = service.events.reach(seq)
        if some and postings + count > _MAX_POSTINGS:
            yield some
            some, postings = [], 0
        if count:
            some.append(seq)
            postings += count
    if some:
        yield some


def _counted(service: Service, seqs: list[int]) -> dict[int, Reach]:
    registry = service.registry
    wanted = np.array(seqs, np.int64)
    seq, channel = service.published(wanted)
    numbers = np.unique(channel)
    # What goes to a sink is posted twice: for the sink, and for the subscriber whose it is.
    own = [number for number in numbers.tolist() if registry.channel(number).url is None]
    kept = np.isin(channel, np.array(own, np.uint32))
    seq, channel = seq[kept], channel[kept]
    found: dict[int, Reach] = {}
    order = np.argsort(seq, kind="stable")
    border = seq[order].searchsorted(wanted[:, None] + np.array([0, 1]))
    for number, (first, last) in zip(seqs, border.tolist(), strict=True):
        rows = order[first:last]
        found[number] = Reach(len(rows), len(np.unique(channel[rows])))
    return found
