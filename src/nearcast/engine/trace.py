"""How an engine finds the subscriptions of one message, segment by segment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import BOOLEAN, KINDS, NO_WEIGHTS
from nearcast.engine.directory import MOVING
from nearcast.indexes.mixed import Mixed, MixedPart
from nearcast.model.derived import is_scope, readable
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.columns import Messages
    from nearcast.engine.segment import LiveSegment, State
    from nearcast.indexes.tracing import TracedBox, TracedNode
    from nearcast.intake import MessageBatch

__all__ = ["NodeTrace", "SegmentTrace", "Trace", "trace_batch"]


class NodeTrace(NamedTuple):
    """A list of clauses that a message led to.

    Attributes
    ----------
    path
        The words on the way to it, without that of the scope; phrases and beginnings of words as a
        person would write them.
    scoped
        Whether the scope of the message is on the way to it.
    clauses, examined
        How many clauses it has, and how many of them were compared.
    matched
        How many subscriptions match because of a clause of it.
    boxes
        The boxes that were compared; see `nearcast.indexes.tracing.TracedBox`.
    """

    path: tuple[str, ...]
    scoped: bool
    clauses: int
    examined: int
    matched: int
    boxes: tuple[TracedBox, ...]


@dataclass(frozen=True)
class SegmentTrace:
    """Subscriptions of one kind in one segment.

    Attributes
    ----------
    index
        The name of their index.
    kind
        ``boolean``, ``proximity`` or ``overlap``; ``moving`` for those that have moved.
    subscriptions, examined, matches
        How many there are, how many were compared, and how many match.
    nodes
        The lists that the message led to; None if the index cannot tell.
    """

    index: str
    kind: str
    subscriptions: int
    examined: int
    matches: int
    nodes: tuple[NodeTrace, ...] | None


class Trace(NamedTuple):
    """How an engine finds the subscriptions of one message.

    Attributes
    ----------
    tokens
        The words of the message, in their order.
    segments
        What happens in each segment.
    """

    tokens: tuple[str, ...]
    segments: tuple[SegmentTrace, ...]

    @property
    def examined(self) -> int:
        """How many subscriptions were compared."""
        return sum(segment.examined for segment in self.segments)

    @property
    def matches(self) -> int:
        """How many subscriptions match."""
        return sum(segment.matches for segment in self.segments)


def trace_batch(state: State, batch: MessageBatch, moving: str) -> Trace:
    """Trace the only message of a batch.

    Parameters
    ----------
    state
        The segments; one of them may have the subscriptions that have moved.
    batch
        The message.
    moving
        The name of the moving index.
    """
    segments = [
        traced
        for segment in state.segments
        for traced in _trace_segment(segment, state.version, batch, moving)
    ]
    return Trace(_words(batch), tuple(segments))


def _trace_segment(
    segment: LiveSegment, version: int, batch: MessageBatch, moving: str
) -> list[SegmentTrace]:
    scorer = segment.scorer if segment.ranked else None
    text_weight = NO_WEIGHTS if scorer is None else scorer.text_weight(batch.words)
    messages = batch.number(segment.vocabulary, text_weight=text_weight)
    living = segment.alive(version) & segment.unexpired(int(batch.time_us[0]))
    moved = segment.serial == MOVING
    found = [
        _trace_part(part, messages, living[part.row], segment.vocabulary)
        for part in _parts(segment)
    ]
    if not moved:
        return found
    # The segment only stands for the moving index, which counts what it finds as examined.
    return [
        replace(one, index=moving, kind="moving", examined=one.matches, nodes=None) for one in found
    ]


def _parts(segment: LiveSegment) -> Sequence[MixedPart]:
    """Return the indexes of a segment, each with the kind and the rows of its subscriptions."""
    index = segment.index
    if isinstance(index, Mixed):
        return index.parts
    rankings = segment.subscriptions.rankings
    kind = KINDS[BOOLEAN if rankings is None or not len(segment) else int(rankings.kind[0])]
    return [MixedPart(kind, np.arange(len(segment), dtype=np.int32), index)]


def _trace_part(
    part: MixedPart, messages: Messages, living: NDArray[np.bool_], vocabulary: Vocabulary
) -> SegmentTrace:
    matches = part.index.match(messages)
    matching = living & np.isin(np.arange(len(living)), matches.subscription)
    traced = part.index.trace(messages)
    return SegmentTrace(
        part.index.name,
        part.kind,
        int(np.count_nonzero(living)),
        matches.examined,
        int(np.count_nonzero(matching)),
        None
        if traced is None
        else tuple(_shown(node, part.index.clauses.row, matching, vocabulary) for node in traced),
    )


def _shown(
    node: TracedNode,
    row_of_clause: NDArray[np.int32],
    matching: NDArray[np.bool_],
    vocabulary: Vocabulary,
) -> NodeTrace:
    tokens = [vocabulary.token(token) for token in node.tokens]
    words = [readable(token) for token in tokens if not is_scope(token)]
    rows = np.unique(row_of_clause[list(node.found)])
    return NodeTrace(
        tuple(words),
        len(words) < len(tokens),
        node.clauses,
        node.examined,
        int(np.count_nonzero(matching[rows])),
        node.boxes,
    )


def _words(batch: MessageBatch) -> tuple[str, ...]:
    vocabulary = Vocabulary()
    tokens = batch.number(vocabulary, add=True).token.tolist()
    words = [vocabulary.token(token) for token in tokens]
    return tuple(word for word in words if not is_scope(word))
