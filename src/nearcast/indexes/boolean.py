"""What all indexes for boolean subscriptions share: how a batch is matched, and what a match is.

An index has one thing to say: which *clauses* have all their tokens in a message and a box that
overlaps it (`BooleanIndex.find_part`). The rest is the same for every index and lives here: parts
of a batch on several threads, scratch space, the growing output, messages cut at the antimeridian,
forbidden tokens, exact shapes, one match per subscription.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import numpy as np

from nearcast.columns import Clauses, Matches, Messages
from nearcast.compiled.clauses import clause_columns
from nearcast.compiled.messages import MessageArrays, Output
from nearcast.compiled.shapes import ShapeArrays
from nearcast.errors import InvalidInput
from nearcast.indexes.batches import BatchIndex, Progress
from nearcast.indexes.contract import NoOptions
from nearcast.indexes.linear import scan_clauses
from nearcast.indexes.tracing import TracedBox, TracedNode
from nearcast.indexes.verification import ClauseArrays, join_pieces, verify_clauses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.indexes.contract import Index

__all__ = ["BooleanIndex", "Found", "Linear", "Progress"]

FindPart: TypeAlias = Callable[[MessageArrays, tuple[int, int], Any, Output], Progress]


class Found(NamedTuple):
    """The clauses found: those of message ``m`` are ``clause[start[m]:start[m + 1]]``.

    Attributes
    ----------
    start, clause
        Arrays of int64 and int32, as above.
    examined
        How many candidates had to be verified.
    visited
        How many nodes had to be opened, where the index is a tree.
    """

    start: NDArray[np.int64]
    clause: NDArray[np.int32]
    examined: int
    visited: int = 0


class BooleanIndex(BatchIndex):
    """An index for boolean subscriptions: finds clauses, and verifies what they leave open.

    A subclass implements `find_part` or `find`, and what is abstract in `Index`.

    Parameters
    ----------
    clauses
        The clauses of all subscriptions, as flat arrays.
    options
        An instance of ``Options``.
    """

    def __init__(self, clauses: Clauses, options: Any) -> None:
        super().__init__()
        self.clauses = clauses
        self.options = options

    @classmethod
    def build_small(cls, content: Clauses) -> Index:
        """Return an index that compares every clause."""
        return Linear.build(content)

    def find_part(
        self, messages: MessageArrays, part: tuple[int, int], scratch: Any, output: Output
    ) -> Progress:
        """Find the clauses whose tokens all occur in, and whose box overlaps, each message.

        An index implements this, by a kernel, or `find`.

        Parameters
        ----------
        messages
            The whole batch; none of its messages crosses the antimeridian.
        part
            The first message to look at, and the end (excluded).
        scratch
            What `make_scratch` returned; no other thread uses it.
        output
            What is found; ``output.start[part[0]]`` is filled already. Clauses of a message that do
            not fit are left out, and the message is the first of the next call.

        Returns
        -------
        tuple of int
            The first message that was not finished, and how many clauses were examined and how
            many nodes visited.
        """
        raise NotImplementedError(f"{self.name} must implement find_part, or find")

    def find(self, messages: Messages, threads: int = 1) -> Found:
        """Find the clauses of each message; each thread takes a part of the batch."""
        return self._find(messages, threads, self.find_part)

    def match(self, messages: Messages, *, threads: int = 1) -> Matches:
        """Return the subscriptions that match each message, each once."""
        if not len(messages) or not len(self.clauses):
            return Matches.empty(len(messages))
        if not messages.any_wraps:
            return self._verify(messages, None, self.find(messages, threads))
        pieces, message_of = messages.cut()
        piece_start = np.searchsorted(message_of, np.arange(len(messages) + 1))
        return self._verify(pieces, piece_start, self.find(pieces, threads))

    def _find(self, messages: Messages, threads: int, find_part: FindPart) -> Found:
        found = self._in_parts(
            messages, threads, lambda first, last: self._find_all(messages, find_part, first, last)
        )
        if len(found) == 1:
            return found[0]
        bases = np.cumsum([0, *(len(f.clause) for f in found)])
        start = [f.start[1:] + base for f, base in zip(found, bases, strict=False)]
        return Found(
            np.concatenate([np.zeros(1, np.int64), *start]),
            np.concatenate([f.clause for f in found]),
            sum(f.examined for f in found),
            sum(f.visited for f in found),
        )

    def _find_all(self, messages: Messages, find_part: FindPart, first: int, last: int) -> Found:
        """Find the clauses of a part; the output grows whenever it is full."""
        arrays = message_arrays(messages)
        tokens, scratch = self._take_scratch(messages, first, last)
        start = np.zeros(len(messages) + 1, np.int64)
        clause = np.empty(1024 + 16 * (last - first), np.int32)
        done, examined, visited = first, 0, 0
        while True:
            output = Output(start, clause)
            done, more_examined, more_visited = find_part(arrays, (done, last), scratch, output)
            examined += more_examined
            visited += more_visited
            if done == last:
                self._idle.append((tokens, scratch))
                return Found(start[first : last + 1], clause[: start[last]], examined, visited)
            rate = start[done] / max(1, done - first)
            more = max(2 * len(clause), int(1.1 * rate * (last - first)))
            clause = np.concatenate([clause[: start[done]], np.empty(more, np.int32)])

    def _verify(
        self, pieces: Messages, piece_start: NDArray[np.int64] | None, found: Found
    ) -> Matches:
        """Check what finding left open, and join the pieces of messages."""
        clauses = self.clauses
        self._check_found(pieces, found)
        if piece_start is None and clauses.plain:
            return Matches(found.start, found.clause, found.examined, visited=found.visited)
        if piece_start is None:
            piece_start = np.arange(len(pieces) + 1)
        start, output = np.zeros(len(piece_start), np.int64), Output(found.start, found.clause)
        if clauses.plain:
            join_pieces(piece_start, output, start)
        else:
            verify_clauses(
                ClauseArrays(clauses.negative_start, clauses.negative, clauses.row, clauses.shape),
                shape_arrays(clauses),
                message_arrays(pieces),
                piece_start,
                output,
                start,
            )
        return Matches(start, found.clause[: start[-1]], found.examined, visited=found.visited)

    def _check_found(self, pieces: Messages, found: Found) -> None:
        """Refuse what kernels could not read; whoever writes an index may override `find`."""
        for field, dtype in (("start", np.int64), ("clause", np.int32)):
            array = getattr(found, field)
            if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != 1:
                given = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
                problem = f"of {self.name}.find must be an array of {dtype.__name__}"
                raise InvalidInput(field, str(given), problem)
        if len(found.start) != len(pieces) + 1:
            problem = (
                f"of {self.name}.find must have {len(pieces) + 1} entries, one more than messages"
            )
            raise InvalidInput("start", len(found.start), problem)


class Linear(BooleanIndex):
    """Compares every clause: the small form of all boolean indexes, for a thousand at most.

    It costs nothing to build, so a subscription can be added for the price of copying a few
    columns.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> linear = Linear.build(Clauses.of([[1]], [[0, 0, 9, 9]]))
    >>> linear.match(Messages.of([[1, 5], [5]], [[9, 9], [0, 0]])).pairs()
    {(0, 0)}
    """

    name = "linear"
    summary = "compares every clause; for the newest subscriptions of an engine"

    @classmethod
    def build(cls, clauses: Clauses, options: NoOptions | None = None) -> Self:
        """Take the clauses as they are."""
        return cls(clauses, NoOptions())

    def find_part(
        self, messages: MessageArrays, part: tuple[int, int], scratch: Any, output: Output
    ) -> Progress:
        """Compare every clause with each message."""
        columns = clause_columns(self.clauses)
        done, examined = scan_clauses(columns, messages, part, output)
        return done, examined, 0

    def trace(self, messages: Messages) -> list[TracedNode]:
        """Return one list of all clauses: each box is compared, then the tokens where it fits."""
        pieces, _ = messages.cut()
        return [
            self._trace_piece(
                set(
                    pieces.token[pieces.token_start[piece] : pieces.token_start[piece + 1]].tolist()
                ),
                pieces.box[piece],
            )
            for piece in range(len(pieces))
        ]

    def _trace_piece(self, tokens: set[int], window: NDArray[np.int32]) -> TracedNode:
        clauses = self.clauses
        west, south, east, north = clauses.box.T
        meets = (west <= window[2]) & (south <= window[3])
        meets &= (east >= window[0]) & (north >= window[1])
        found = [
            clause
            for clause in np.flatnonzero(meets).tolist()
            if tokens.issuperset(
                clauses.token[
                    clauses.token_start[clause] : clauses.token_start[clause + 1]
                ].tolist()
            )
        ]
        boxes = [
            TracedBox(tuple(box), 0, touches)
            for box, touches in zip(clauses.box.tolist(), meets.tolist(), strict=True)
        ]
        return TracedNode((), len(clauses), tuple(boxes), int(meets.sum()), tuple(found))

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return no arrays: the clauses are all there is."""
        return {}

    def check_structure(self) -> None:
        """Accept: there are no arrays to check."""

    @classmethod
    def from_arrays(
        cls, clauses: Clauses, options: NoOptions, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Take the clauses as they are."""
        return cls(clauses, options)


def message_arrays(messages: Messages) -> MessageArrays:
    """Return what kernels see of messages."""
    return MessageArrays(messages.token_start, messages.token, messages.box)


def shape_arrays(clauses: Clauses) -> ShapeArrays:
    """Return what kernels see of exact shapes."""
    shapes = clauses.shapes
    return ShapeArrays(shapes.radius_m, shapes.ring_start, shapes.point_start, shapes.point)
