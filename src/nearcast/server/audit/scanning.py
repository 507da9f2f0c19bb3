"""The exhaustive scan over the subscriptions of a moment, and over the messages that are alive.

Everything is compared with everything, by the indexes ``scan``: NumPy, Shapely and plain Python.
Tenants have tables of their own, so scopes are not needed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast import indexes
from nearcast.columns import (
    BOOLEAN,
    EARTH_RADIUS_M,
    KINDS,
    PROXIMITY,
    UNITS,
    Clauses,
    Ranked,
    Rankings,
    Scoring,
)
from nearcast.intake import read_messages, read_subscriptions
from nearcast.intake.json_records import column_type
from nearcast.model.checks import stored_before
from nearcast.server.log.messages import columns_of
from nearcast.text import Vocabulary, Weights

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from nearcast.columns import Messages
    from nearcast.intake import MessageBatch

__all__ = ["Asked", "Found", "Living", "Restored", "Scanner", "Table", "Wanted"]

_MARGIN = 1e-6
"""A bound of a score may be this much too small, and more than rounding makes it."""

_M_PER_UNIT = math.pi * EARTH_RADIUS_M / 180 / UNITS


class Wanted(NamedTuple):
    """What subscriptions of one kind ask for; ``rankings`` is None if they are boolean."""

    clauses: Clauses
    rankings: Rankings | None

    @property
    def kind(self) -> int:
        """The number of the kind."""
        return BOOLEAN if self.rankings is None else int(self.rankings.kind[0])

    def take(self, rows: NDArray[np.int64]) -> Wanted:
        """Return some of the subscriptions (ascending)."""
        rankings = None if self.rankings is None else self.rankings.take(rows)
        return Wanted(self.clauses.take(rows), rankings)


class Asked(NamedTuple):
    """What one subscription asks for: a row of a part."""

    part: Wanted
    row: int

    def alone(self) -> Wanted:
        """Return it without the other rows."""
        return self.part.take(np.array([self.row]))


class Found(NamedTuple):
    """A message of a batch, by row, and a subscription that matches it; NaN if not ranked."""

    message: int
    handle: int
    score: float


class Scanner:
    """Reads subscriptions and messages, and compares them.

    Attributes
    ----------
    vocabulary
        Numbers all words that somebody asks for.
    weights
        The weights of tokens of this moment.
    """

    def __init__(self) -> None:
        self.vocabulary = Vocabulary()
        self.weights = Weights.empty()

    def read(self, rows: Sequence[dict[str, Any]]) -> list[Asked | None]:
        """Return what subscriptions, given as rows of a file, ask for; None for invalid ones."""
        names = sorted({"geometry", *(name for row in rows for name in row)})
        types = {name: column_type(name) for name in names} | {"geometry": pa.binary()}  # as WKB
        columns = {name: pa.array([row.get(name) for row in rows], types[name]) for name in names}
        columns["id"] = pa.array(range(len(rows)), pa.int64())
        with stored_before():
            read, _ = read_subscriptions(pa.table(columns), self.vocabulary)
        asked: list[Asked | None] = [None] * len(rows)
        given, rankings = np.array(read.ids.tolist(), np.int64), read.rankings
        kinds = np.full(len(given), BOOLEAN) if rankings is None else rankings.kind
        for kind in np.unique(kinds).tolist():
            chosen = np.flatnonzero(kinds == kind)
            ranked = None if rankings is None or kind == BOOLEAN else rankings.take(chosen)
            part = Wanted(read.clauses.take(chosen), ranked)
            for at, row in enumerate(given[chosen].tolist()):
                asked[row] = Asked(part, at)
        return asked

    def messages(self, blobs: Sequence[bytes]) -> MessageBatch:
        """Return messages, given as the log has them; their ids are their positions."""
        columns = {
            name: pa.array(values, column_type(name)) for name, values in columns_of(blobs).items()
        }
        columns["id"] = pa.array(range(len(blobs)), pa.int64())
        return read_messages(pa.table(columns), now_us=0)[0]

    def number(self, batch: MessageBatch) -> Messages:
        """Return messages with the numbers of their words."""
        return batch.number(self.vocabulary)

    def ranked(self, wanted: Wanted) -> Ranked:
        """Return ranked subscriptions with all that their scores depend on."""
        assert wanted.rankings is not None
        return Ranked(
            clauses=wanted.clauses,
            rankings=wanted.rankings,
            weight=self.weights.of(self.vocabulary),
            unknown_weight=self.weights.unknown,
            scoring=Scoring(),
        )

    def count_weights(self, tables: Sequence[Table]) -> None:
        """Count in how many ranked subscriptions of tables each token occurs."""
        frequency, count = np.zeros(len(self.vocabulary), np.int64), 0
        for table in tables:
            for block in table.blocks:
                if block.wanted.kind != BOOLEAN:
                    own, rows = block.count_tokens(len(frequency))
                    frequency, count = frequency + own, count + rows
        version = self.weights.version + 1
        self.weights = Weights(self.vocabulary, frequency, subscriptions=count, version=version)

    def pairs(
        self, wanted: Wanted, messages: Messages
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return which messages match which subscriptions: rows of both, and scores."""
        content = wanted.clauses if wanted.rankings is None else self.ranked(wanted)
        found = indexes.create("scan").build(content).match(messages)
        score = np.full(len(found), math.nan) if found.score is None else found.score
        return found.message, found.subscription.astype(np.int64), score


class _Block:
    """Subscriptions of one kind that came together, and which of them are still there."""

    def __init__(self, handle: NDArray[np.int64], wanted: Wanted) -> None:
        self.handle = handle
        self.wanted = wanted
        self.alive = np.ones(len(handle), np.bool_)
        self._sides = np.ascontiguousarray(wanted.clauses.box.T)
        self._weights: tuple[Weights, NDArray[Any], NDArray[Any]] | None = None

    def count_tokens(self, tokens: int) -> tuple[NDArray[np.int64], int]:
        """Return how many ranked subscriptions have each token, and how many there are."""
        clauses = self.wanted.clauses
        first = np.diff(clauses.row, prepend=-1) != 0
        counted = np.repeat(first & self.alive[clauses.row], np.diff(clauses.token_start))
        frequency = np.bincount(clauses.token[counted], minlength=tokens)
        return frequency, int(np.count_nonzero(self.alive))

    def candidates(self, scanner: Scanner, messages: Messages, m: int) -> NDArray[np.int64]:
        """Return all rows but those that certainly do not match: every row is looked at.

        Boolean ones are left out if their box does not meet that of the message, ranked ones if an
        upper bound of the score is too small.
        """
        clauses, rankings = self.wanted
        if rankings is None:
            chosen = _touches(self._sides, messages.box[m])
        else:
            tokens = messages.token[messages.token_start[m] : messages.token_start[m + 1]]
            text = self._text(scanner, tokens)
            space = _space_bound(self._sides, clauses, rankings, messages.box[m])
            share = (rankings.text_share / 1e9)[clauses.row]
            threshold = (rankings.threshold / 1e9)[clauses.row]
            chosen = share * text + (1 - share) * space >= threshold - _MARGIN
        rows = clauses.row[chosen]
        return np.unique(rows[self.alive[rows]]).astype(np.int64)

    def _text(self, scanner: Scanner, tokens: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return which share of its words, by weight, each clause has in common with a message."""
        clauses = self.wanted.clauses
        owner = np.repeat(np.arange(len(clauses)), np.diff(clauses.token_start))
        if self._weights is None or self._weights[0] is not scanner.weights:
            ranked = scanner.ranked(self.wanted)
            weight = np.full(len(clauses.token), ranked.unknown_weight)
            known = clauses.token < len(ranked.weight)
            weight[known] = ranked.weight[clauses.token[known]]
            self._weights = scanner.weights, weight, np.bincount(owner, weight, len(clauses))
        _, weight, own = self._weights
        present = np.zeros(len(scanner.vocabulary), np.bool_)
        present[tokens] = True
        shared = np.bincount(owner, weight * present[clauses.token], len(clauses))
        return np.where(own > 0, shared / np.where(own > 0, own, 1), 1.0)


class Table:
    """The subscriptions of a tenant that are matched at a moment."""

    def __init__(self) -> None:
        self.blocks: list[_Block] = []
        self._place: dict[int, tuple[_Block, int]] = {}

    def __len__(self) -> int:
        return len(self._place)

    def add(self, handles: Sequence[int], asked: Sequence[Asked]) -> None:
        """Add subscriptions that were read together, in their order."""
        for kind in range(len(KINDS)):
            chosen = [at for at, one in enumerate(asked) if one.part.kind == kind]
            if chosen:
                rows = np.array([asked[at].row for at in chosen])
                self._append(
                    np.array([handles[at] for at in chosen], np.int64),
                    asked[chosen[0]].part.take(rows),
                )

    def remove(self, handle: int) -> None:
        """Remove a subscription."""
        block, row = self._place.pop(handle)
        block.alive[row] = False

    def match(self, scanner: Scanner, messages: Messages) -> list[Found]:
        """Return what messages match, by message and handle."""
        found: list[Found] = []
        for block in self.blocks:
            for m in range(len(messages)):
                rows = block.candidates(scanner, messages, m)
                if len(rows):
                    one = messages.take(np.array([m]))
                    _, row, score = scanner.pairs(block.wanted.take(rows), one)
                    handle = block.handle[rows[row]].tolist()
                    found += [Found(m, *pair) for pair in zip(handle, score.tolist(), strict=True)]
        return sorted(found, key=lambda one: one[:2])

    def _append(self, handle: NDArray[np.int64], wanted: Wanted) -> None:
        """Add a block; join it with the last ones of its kind that are not much larger."""
        joined = [block for block in self.blocks if block.wanted.kind == wanted.kind]
        parts = [(handle, wanted)]
        size = len(handle)
        while joined and len(joined[-1].handle) <= 2 * size:
            last = joined.pop()
            self.blocks.remove(last)
            rows = np.flatnonzero(last.alive)
            if len(rows):
                parts.insert(0, (last.handle[rows], last.wanted.take(rows)))
            size += len(last.handle)
        block = _Block(np.concatenate([h for h, _ in parts]), _joined([w for _, w in parts]))
        self.blocks.append(block)
        for row, one in enumerate(block.handle.tolist()):
            self._place[one] = block, row


class Restored(NamedTuple):
    """Messages by words and places, as a checkpoint has them; with their numbers and ends."""

    seq: NDArray[np.int64]
    end_us: NDArray[np.int64]
    batch: MessageBatch

    def take(self, rows: NDArray[np.int64]) -> Restored:
        """Return some of the messages."""
        return Restored(self.seq[rows], self.end_us[rows], self.batch.take(rows))


class Living:
    """The messages of a tenant that stay alive, in the order of publication."""

    def __init__(self) -> None:
        self._seq = np.empty(0, np.int64)
        self._end_us = np.empty(0, np.int64)
        self._box = np.empty((0, 4), np.int32)
        self._blobs: list[bytes] = []
        self._more: list[tuple[int, int, NDArray[np.int32], bytes]] = []
        self._restored: Restored | None = None

    def restore(self, messages: Restored) -> None:
        """Begin with messages that the log does not have any more."""
        self._restored = messages

    def add(self, seq: int, end_us: int, box: NDArray[np.int32], blob: bytes) -> None:
        """Add a message."""
        self._more.append((seq, end_us, box, blob))

    def matching(
        self, scanner: Scanner, wanted: Wanted, after: int, time_us: int
    ) -> dict[int, float]:
        """Return the messages after a number that are alive at a time and match, with scores."""
        self._settle(time_us)
        found: dict[int, float] = {}
        for seq, batch in self._candidates(scanner, wanted, after):
            message, _, score = scanner.pairs(wanted, scanner.number(batch))
            found |= zip(seq[message].tolist(), score.tolist(), strict=True)
        return found

    def _candidates(
        self, scanner: Scanner, wanted: Wanted, after: int
    ) -> Iterator[tuple[NDArray[np.int64], MessageBatch]]:
        """Yield messages that may match, with their numbers."""
        if self._restored is not None:
            seq, _, batch = self._restored
            rows = np.flatnonzero((seq > after) & _may_match(wanted, batch.box))
            if len(rows):
                yield seq[rows], batch.take(rows)
        rows = np.flatnonzero((self._seq > after) & _may_match(wanted, self._box))
        if len(rows):
            yield self._seq[rows], scanner.messages([self._blobs[row] for row in rows.tolist()])

    def end_us(self, seq: int) -> int:
        """Return when a message expires that `matching` returned."""
        for seqs, ends in ((self._seq, self._end_us), (self._restored or ((), ()))[:2]):
            at = np.searchsorted(seqs, seq)
            if at < len(seqs) and seqs[at] == seq:
                return int(ends[at])
        raise KeyError(seq)

    def _settle(self, time_us: int) -> None:
        """Forget what has expired, and take in what was added."""
        if self._more:
            seq, end_us, box, blobs = zip(*self._more, strict=True)
            self._seq = np.concatenate([self._seq, np.array(seq, np.int64)])
            self._end_us = np.concatenate([self._end_us, np.array(end_us, np.int64)])
            self._box = np.concatenate([self._box, np.stack(box)])
            self._blobs += blobs
            self._more = []
        alive = self._end_us > time_us
        if not alive.all():
            rows = np.flatnonzero(alive)
            self._blobs = [self._blobs[row] for row in rows.tolist()]
            self._seq, self._end_us = self._seq[rows], self._end_us[rows]
            self._box = self._box[rows]
        if self._restored is not None and not (self._restored.end_us > time_us).all():
            self._restored = self._restored.take(np.flatnonzero(self._restored.end_us > time_us))


def _joined(parts: Sequence[Wanted]) -> Wanted:
    if len(parts) == 1:
        return parts[0]
    rankings = [part.rankings for part in parts if part.rankings is not None]
    return Wanted(
        Clauses.concatenate([part.clauses for part in parts]),
        Rankings.concatenate(rankings) if rankings else None,
    )


def _touches(sides: NDArray[np.int32], box: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which boxes meet another one, which may cross the antimeridian; they do not.

    ``sides`` has their west, south, east and north.
    """
    west, south, east, north = box.tolist()
    touches: NDArray[np.bool_] = (sides[1] <= north) & (sides[3] >= south)
    if west <= east:
        touches &= (sides[0] <= east) & (sides[2] >= west)
    else:
        touches &= (sides[0] <= east) | (sides[2] >= west)
    return touches


def _space_bound(
    sides: NDArray[np.int32], clauses: Clauses, rankings: Rankings, box: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return for each clause of ranked subscriptions what its part of space is at most."""
    if int(rankings.kind[0]) != PROXIMITY:
        return _touches(sides, box).astype(np.float64)
    south, north = int(box[1]), int(box[3])
    lat = sides[1].astype(np.int64)
    along_m = np.maximum(0, np.maximum(south - lat, lat - north)) * _M_PER_UNIT
    max_m = (rankings.max_distance_cm / 100)[clauses.row]
    bound: NDArray[np.float64] = np.maximum(0.0, 1 - along_m / max_m)
    return bound


def _may_match(wanted: Wanted, box: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which of the boxes of messages one subscription may match, words left aside."""
    clauses, rankings = wanted
    everywhere = np.ones(len(box), np.bool_)
    if rankings is None:
        share, threshold = 0.0, 1.0
    else:
        share, threshold = int(rankings.text_share[0]) / 1e9, int(rankings.threshold[0]) / 1e9
    if share >= threshold - _MARGIN or (rankings is not None and rankings.kind[0] == PROXIMITY):
        return everywhere
    west, south, east, north = (box[:, i] for i in range(4))
    wraps = west > east
    found = np.zeros(len(box), np.bool_)
    for w, s, e, n in clauses.box.tolist():
        across = np.where(wraps, (w <= east) | (e >= west), (w <= east) & (e >= west))
        found |= across & (s <= north) & (n >= south)
    return found
