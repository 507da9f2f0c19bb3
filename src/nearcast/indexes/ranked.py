"""What all indexes for ranked subscriptions share: how a batch is matched, scored and checked.

A `RankedIndex` says which subscriptions match each message, and their scores (`match_part`). Most
of them only find *candidates*: a `CandidateIndex` implements `find_part`, and every candidate is
scored by `nearcast.compiled.scoring.score_rows`. Shared by all: parts of a batch on several
threads, scratch space, messages cut at the antimeridian, the growing output, and conditions
(an expression that must be true whatever the score).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from nearcast.columns import (
    KINDS,
    OVERLAP,
    PROXIMITY,
    WORLD,
    Matches,
    Messages,
    Ranked,
    read_only,
    starts,
)
from nearcast.compiled.clauses import ClauseTokens
from nearcast.compiled.messages import Output
from nearcast.compiled.scoring import (
    Conditions,
    RankedColumns,
    RankedMessages,
    ScoredOutput,
    ScoringCodes,
    keep_conditions,
    score_rows,
    sort_heaviest_first,
)
from nearcast.errors import InvalidInput
from nearcast.indexes.batches import BatchIndex, Progress
from nearcast.indexes.boolean import shape_arrays
from nearcast.indexes.candidates import outline_areas, sort_candidates
from nearcast.indexes.contract import NoOptions
from nearcast.indexes.outlines import outlines_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.columns import Clauses
    from nearcast.indexes.contract import Index

__all__ = ["CandidateIndex", "RankedIndex", "RankedLinear", "ranked_columns", "ranked_messages"]

_MESSAGES_AT_A_TIME = 1024


_ONE_PIECE = read_only([0, 1], np.int64)
_ZERO = read_only([0.0], np.float64)


class _Found(NamedTuple):
    """The matches of a part of the messages, and what finding them cost."""

    start: NDArray[np.int64]
    row: NDArray[np.int32]
    score: NDArray[np.float64]
    examined: int
    visited: int


class RankedIndex(BatchIndex):
    """An index for ranked subscriptions of one kind.

    A subclass implements `match_part`, and what is abstract in `Index`. `columns` has the
    subscriptions as kernels see them, with the tokens of each from the heaviest to the lightest.

    Parameters
    ----------
    ranked
        The subscriptions, as flat arrays.
    options
        An instance of ``Options``.
    """

    kinds: ClassVar[tuple[str, ...]] = (KINDS[PROXIMITY], KINDS[OVERLAP])

    def __init__(self, ranked: Ranked, options: Any) -> None:
        super().__init__()
        if ranked.kind not in self.kinds:
            problem = f"{self.name} takes {' and '.join(self.kinds)} subscriptions"
            raise InvalidInput("kind", ranked.kind, problem)
        self.ranked = ranked
        self.clauses = ranked.clauses
        self.options = options
        similarity, distance = ranked.scoring.codes
        proximity = int(ranked.kind == KINDS[PROXIMITY])
        self.codes = ScoringCodes(similarity, distance, proximity)
        self._conditions = conditions_of(ranked.rankings.condition)
        self._columns: RankedColumns | None = None
        self._usual_matches = 64.0

    @property
    def content(self) -> Ranked:
        """The subscriptions that the index was built over."""
        return self.ranked

    @property
    def columns(self) -> RankedColumns:
        """The subscriptions as kernels see them."""
        if self._columns is None:
            self._columns = ranked_columns(self.ranked)
        return self._columns

    @classmethod
    def build_small(cls, content: Ranked) -> Index:
        """Return an index that scores every subscription."""
        return RankedLinear.build(content)

    @abstractmethod
    def match_part(
        self,
        messages: RankedMessages,
        part: tuple[int, int],
        scratch: Any,
        output: ScoredOutput,
    ) -> Progress:
        """Write the subscriptions that match each message, each once, and their scores.

        Conditions are checked afterwards.

        Parameters
        ----------
        messages
            The whole batch.
        part
            The first message to look at, and the end (excluded).
        scratch
            What `make_scratch` returned; no other thread uses it.
        output
            Where matches go; ``output.start[part[0]]`` is filled already. Matches of a message
            that do not fit are left out, and the message is the first of the next call.

        Returns
        -------
        tuple of int
            The first message that was not finished, and how many subscriptions were examined and
            how many nodes visited.
        """

    def match(self, messages: Messages, *, threads: int = 1) -> Matches:
        """Return the subscriptions that match each message, each once, with their scores."""
        if not len(messages) or not len(self.ranked):
            start, no_scores = np.zeros(len(messages) + 1, np.int64), np.empty(0)
            return Matches(start, np.empty(0, np.int32), 0, no_scores)
        seen = ranked_messages(messages, self.ranked)
        found = self._in_parts(
            messages, threads, lambda first, last: self._match_all(messages, seen, first, last)
        )
        if len(found) == 1:
            start, row, score, examined, visited = found[0]
            return Matches(start, row, examined, score, visited)
        bases = np.cumsum([0, *(len(f.row) for f in found)])
        moved = [f.start[1:] + base for f, base in zip(found, bases, strict=False)]
        return Matches(
            np.concatenate([np.zeros(1, np.int64), *moved]),
            np.concatenate([f.row for f in found]),
            sum(f.examined for f in found),
            np.concatenate([f.score for f in found]),
            sum(f.visited for f in found),
        )

    def _match_all(self, messages: Messages, seen: RankedMessages, first: int, last: int) -> _Found:
        """Find the matches of a part; the output grows whenever it is full."""
        tokens, scratch = self._take_scratch(messages, first, last)
        start = np.zeros(len(messages) + 1, np.int64)
        # As many as there were before: growing means copying, and touching new pages twice.
        capacity = 4096 + int(1.1 * self._usual_matches * (last - first))
        row, score = np.empty(capacity, np.int32), np.empty(capacity)
        done, examined, visited = first, 0, 0
        while True:
            output = ScoredOutput(start, row, score)
            done, more_examined, more_visited = self.match_part(seen, (done, last), scratch, output)
            examined += more_examined
            visited += more_visited
            if done == last:
                break
            used = int(start[done])
            rate = used / max(1, done - first)
            more = max(2 * len(row), int(1.1 * rate * (last - first)))
            row = np.concatenate([row[:used], np.empty(more, np.int32)])
            score = np.concatenate([score[:used], np.empty(more)])
        self._idle.append((tokens, scratch))
        self._usual_matches = int(start[last]) / (last - first)
        if self._conditions is not None:
            keep_conditions(self._conditions, seen, (first, last), output)
        end = int(start[last])
        return _Found(start[first : last + 1], row[:end], score[:end], examined, visited)


class _Candidates:
    """Space for the candidates of some messages, up to the message ``reached``.

    Candidates whose matches do not fit into the output stay there until the next call.
    """

    def __init__(self) -> None:
        self.row = np.empty(1 << 16, np.int32)
        self.found = Output(np.empty(0, np.int64), self.row)
        self.reached = 0


class CandidateIndex(RankedIndex):
    """An index that finds candidates, all of which are scored."""

    may_repeat: bool = True
    """Whether `find_part` may find a row twice for one message; then candidates are sorted."""

    @abstractmethod
    def find_part(
        self, messages: RankedMessages, part: tuple[int, int], scratch: Any, output: Output
    ) -> Progress:
        """Find candidates: at least all rows that match each message.

        Parameters and result are those of `match_part`; ``output.clause`` gets rows.
        """

    def make_find_scratch(self, tokens: int) -> Any:
        """Return what `find_part` needs for messages of at most ``tokens`` tokens."""
        return None

    def make_scratch(self, tokens: int) -> Any:
        """Return scratch for finding, a set of tokens, and space for candidates."""
        token_set = np.full(1 << max(6, (2 * tokens - 1).bit_length()), -1, np.int32)
        return self.make_find_scratch(tokens), token_set, _Candidates()

    def match_part(
        self,
        messages: RankedMessages,
        part: tuple[int, int],
        scratch: Any,
        output: ScoredOutput,
    ) -> Progress:
        """Find candidates and score them, some messages at a time."""
        find_scratch, token_set, candidates = scratch
        done, last = part
        examined = visited = 0
        while done < last:
            if done >= candidates.reached:
                some = (done, min(last, done + _MESSAGES_AT_A_TIME))
                found = Output(np.zeros(len(messages.token_start), np.int64), candidates.row)
                reached, more_examined, more_visited = self.find_part(
                    messages, some, find_scratch, found
                )
                if reached == done:
                    candidates.row = np.empty(2 * len(candidates.row), np.int32)
                    continue
                if self.may_repeat:
                    sort_candidates(found, (done, reached))
                examined += more_examined
                visited += more_visited
                candidates.found, candidates.reached = found, reached
            done = score_rows(
                self.codes,
                self.columns,
                messages,
                (done, candidates.reached),
                candidates.found,
                token_set,
                output,
            )
            if done < candidates.reached:
                return done, examined, visited
        candidates.reached = 0
        return last, examined, visited


class RankedLinear(CandidateIndex):
    """Scores every subscription: the small form of all ranked indexes, for a thousand at most.

    It costs nothing to build; its columns are made at the first match.

    Examples
    --------
    >>> from nearcast.columns import Messages
    >>> near = Ranked.of([[1]], [[0, 0]], kind="proximity", p=0.5, q=0.9, max_distance_m=1000)
    >>> matches = RankedLinear.build(near).match(Messages.of([[1, 5], [5]], [[0, 0], [0, 0]]))
    >>> matches.pairs(), matches.score.tolist()
    ({(0, 0)}, [1.0])
    """

    name = "ranked-linear"
    summary = "scores every subscription; for the newest subscriptions of an engine"
    may_repeat = False

    @classmethod
    def build(cls, content: Ranked, options: NoOptions | None = None) -> Self:
        """Take the subscriptions as they are."""
        return cls(content, NoOptions())

    def find_part(
        self, messages: RankedMessages, part: tuple[int, int], scratch: Any, output: Output
    ) -> Progress:
        """Take every row as a candidate."""
        rows = len(self.ranked)
        fits = min(part[1] - part[0], len(output.clause) // rows)
        output.start[part[0] : part[0] + fits + 1] = rows * np.arange(fits + 1)
        output.clause[: fits * rows].reshape(fits, rows)[:] = np.arange(rows)
        return part[0] + fits, fits * rows, 0

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return no arrays: the subscriptions are all there is."""
        return {}

    def check_structure(self) -> None:
        """Accept: there are no arrays to check."""

    @classmethod
    def from_arrays(
        cls, content: Ranked, options: NoOptions, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Take the subscriptions as they are."""
        return cls(content, options)


def ranked_columns(ranked: Ranked) -> RankedColumns:
    """Return ranked subscriptions of one kind as kernels see them."""
    clauses, rankings = ranked.clauses, ranked.rankings
    count = len(ranked)
    clause_start = np.arange(count + 1)
    if len(clauses) != count:
        clause_start = np.searchsorted(clauses.row, np.arange(count + 1))
    first = clause_start[:-1]
    token_start, token = clauses.token_start, clauses.token.copy()
    if len(clauses) != count:
        length = np.diff(token_start)[first]
        token_start = starts(length)
        at = np.repeat(clauses.token_start[first] - token_start[:-1], length)
        token = clauses.token[at + np.arange(token_start[-1])]
    token_weight = token_weights(ranked, token)
    text_weight = np.zeros(count)
    sort_heaviest_first(read_only(token_start, np.int64), token, token_weight, text_weight)
    shape = clauses.shape[first]
    outlines, area = outlines_of(clauses.shapes), np.zeros(count)
    if ranked.kind == KINDS[OVERLAP]:
        box = clauses.box.astype(np.int64)
        each = (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])
        area = np.add.reduceat(each, first).astype(np.float64) if count else area
        outline_areas(outlines, read_only(shape, np.int32), read_only(WORLD, np.int32), area)
    return RankedColumns(
        token_start=read_only(token_start, np.int64),
        token=read_only(token, np.int32),
        token_weight=read_only(token_weight, np.float64),
        text_weight=read_only(text_weight, np.float64),
        text_share=rankings.text_share,
        threshold=rankings.threshold,
        max_distance_cm=rankings.max_distance_cm,
        box_start=read_only(clause_start, np.int64),
        box=clauses.box,
        area=read_only(area, np.float64),
        shape=read_only(shape, np.int32),
        shapes=shape_arrays(clauses),
        outlines=outlines,
    )


def token_weights(ranked: Ranked, token: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the weight of every token: 1 where the similarity only counts."""
    if not ranked.scoring.weighs:
        return np.ones(len(token))
    known = token < len(ranked.weight)
    weight = np.full(len(token), ranked.unknown_weight)
    weight[known] = ranked.weight[token[known]]
    return weight


def ranked_messages(messages: Messages, ranked: Ranked) -> RankedMessages:
    """Return messages as kernels of ranked indexes see them."""
    if len(messages) == 1 and not ranked.scoring.needs_message_weight and not messages.any_wraps:
        return _one_message(messages, ranked)
    pieces, piece_start = messages, np.arange(len(messages) + 1)
    if messages.any_wraps:
        pieces, message_of = messages.cut()
        piece_start = np.searchsorted(message_of, piece_start)
    area = np.zeros(len(messages))
    if ranked.kind == KINDS[OVERLAP]:
        box = pieces.box.astype(np.int64)
        each = (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])
        area = np.add.reduceat(each, piece_start[:-1]).astype(np.float64)
    weight = messages.text_weight
    if ranked.scoring.needs_message_weight and len(weight) != len(messages):
        problem = f"must have one value per message, {len(messages)}"
        raise InvalidInput("text_weight", len(weight), f"{ranked.scoring.similarity}: {problem}")
    if len(weight) != len(messages):
        weight = np.zeros(len(messages))
    return RankedMessages(
        messages.token_start,
        messages.token,
        read_only(piece_start, np.int64),
        pieces.box,
        read_only(weight, np.float64),
        read_only(area, np.float64),
    )


def _one_message(messages: Messages, ranked: Ranked) -> RankedMessages:
    """Return the same for a single message, for which each NumPy call costs more than its work."""
    area = _ZERO
    if ranked.kind == KINDS[OVERLAP]:
        west, south, east, north = messages.box[0].tolist()
        area = read_only([float((east - west) * (north - south))], np.float64)
    return RankedMessages(
        messages.token_start, messages.token, _ONE_PIECE, messages.box, _ZERO, area
    )


def conditions_of(condition: Clauses | None) -> Conditions | None:
    """Return conditions as kernels see them; None if there are none."""
    if condition is None:
        return None
    clause_start = np.searchsorted(condition.row, np.arange(condition.subscriptions + 1))
    return Conditions(
        read_only(clause_start, np.int64),
        ClauseTokens(condition.token_start, condition.token),
        ClauseTokens(condition.negative_start, condition.negative),
    )
