"""What indexes of ranked subscriptions that change in place have in common.

Clauses, rankings, conditions and the columns that kernels read grow at their end: inserting costs
what is inserted. A dropped row leaves the index, but its columns stay. An index that was
opened from a folder is read-only views until its first change.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import (
    GrowingArray,
    GrowingClauses,
    Ranked,
    Rankings,
    read_only,
)
from nearcast.columns.rankings import no_conditions
from nearcast.compiled.areas import Outlines
from nearcast.compiled.clauses import ClauseTokens
from nearcast.compiled.scoring import Conditions, RankedColumns
from nearcast.errors import InvalidInput
from nearcast.indexes.boolean import shape_arrays
from nearcast.indexes.contract import UpdatableIndex
from nearcast.indexes.in_place import check_tokens, present_rows
from nearcast.indexes.ranked import CandidateIndex, ranked_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GrowingRanked", "RankedInPlaceIndex"]

_RANKINGS = ("kind", "text_share", "threshold", "max_distance_cm")


class GrowingRanked:
    """Ranked subscriptions that grow, and their columns as kernels see them.

    Examples
    --------
    >>> near = Ranked.of([[1]], [[0, 0]], kind="proximity", p=0.5, q=0.9, max_distance_m=1000)
    >>> growing = GrowingRanked(near, ranked_columns(near))
    >>> growing.append(near)
    >>> len(growing.ranked), growing.columns.token.tolist()
    (2, [1, 1])
    """

    def __init__(self, ranked: Ranked, columns: RankedColumns) -> None:
        self._first = ranked
        self._clauses = GrowingClauses(ranked.clauses)
        self._rankings = {n: GrowingArray(getattr(ranked.rankings, n)) for n in _RANKINGS}
        self._condition: GrowingClauses | None = None
        self._condition_start: GrowingArray | None = None
        if ranked.rankings.condition is not None:
            self._begin_conditions(ranked.rankings.condition)
        self._start = {n: GrowingArray(getattr(columns, n)) for n in ("token_start", "box_start")}
        each = ("token", "token_weight", "text_weight", "area", "shape")
        self._each = {n: GrowingArray(getattr(columns, n)) for n in each}
        self._outlines = Outlines(*map(GrowingArray, columns.outlines))  # type: ignore[arg-type]

    def append(self, ranked: Ranked) -> None:
        """Add subscriptions of the same kind, weights and scoring."""
        shapes = len(self._clauses.clauses.shapes)
        rows = len(self._rankings["kind"])
        columns = ranked_columns(ranked)
        self._clauses.append(ranked.clauses)
        for name, array in self._rankings.items():
            array.append(getattr(ranked.rankings, name))
        condition = ranked.rankings.condition
        if condition is not None and self._condition is None:
            self._begin_conditions(no_conditions(rows))
        if self._condition is not None and self._condition_start is not None:
            condition = no_conditions(len(ranked)) if condition is None else condition
            self._condition.append(condition)
            _chain(self._condition_start, _clause_starts(condition))
        for name, array in self._start.items():
            _chain(array, getattr(columns, name))
        for name, array in self._each.items():
            more = getattr(columns, name)
            array.append(np.where(more >= 0, more + shapes, -1) if name == "shape" else more)
        outlines: Any = self._outlines
        for name, array in zip(Outlines._fields, outlines, strict=True):
            more = getattr(columns.outlines, name)
            if name.endswith("_start"):
                _chain(array, more)
            else:
                array.append(more)

    @property
    def ranked(self) -> Ranked:
        """All subscriptions; values returned before do not change."""
        rankings: dict[str, Any] = {name: array.view for name, array in self._rankings.items()}
        condition = None if self._condition is None else self._condition.clauses
        return Ranked(
            clauses=self._clauses.clauses,
            rankings=Rankings(**rankings, condition=condition),
            weight=self._first.weight,
            unknown_weight=self._first.unknown_weight,
            scoring=self._first.scoring,
        )

    @property
    def columns(self) -> RankedColumns:
        """All subscriptions as kernels see them."""
        clauses = self._clauses.clauses
        outlines: Any = self._outlines
        rankings = {name: self._rankings[name].view for name in _RANKINGS[1:]}
        return RankedColumns(
            **{name: array.view for name, array in (self._start | self._each).items()},
            **rankings,
            box=clauses.box,
            shapes=shape_arrays(clauses),
            outlines=Outlines(*(array.view for array in outlines)),
        )

    @property
    def conditions(self) -> Conditions | None:
        """The conditions of all subscriptions; None if there are none."""
        if self._condition is None or self._condition_start is None:
            return None
        clauses = self._condition.clauses
        return Conditions(
            self._condition_start.view,
            ClauseTokens(clauses.token_start, clauses.token),
            ClauseTokens(clauses.negative_start, clauses.negative),
        )

    def _begin_conditions(self, condition: Any) -> None:
        self._condition = GrowingClauses(condition)
        self._condition_start = GrowingArray(_clause_starts(condition))


def _clause_starts(clauses: Any) -> NDArray[np.int64]:
    """Return where the clauses of every row begin."""
    return np.searchsorted(clauses.row, np.arange(clauses.subscriptions + 1)).astype(np.int64)


def _chain(start: GrowingArray, more: NDArray[np.int64]) -> None:
    """Append a start array, whose content is appended to that of the first."""
    if len(more) > 1:
        start.append(more[1:] + start.last)


class RankedInPlaceIndex(CandidateIndex, UpdatableIndex):
    """An index of ranked subscriptions that grow.

    A subclass puts ``alive`` among its arrays and says how clauses are added and removed. What
    of it must be writable for that, it makes so in `_begin_changing`.
    """

    def __init__(
        self, ranked: Ranked, options: Any, alive: NDArray[np.bool_] | None = None
    ) -> None:
        super().__init__(ranked, options)
        check_tokens(ranked.clauses)
        if alive is None:
            alive = np.ones(len(ranked), np.bool_)
        self._fixed_alive = read_only(alive, np.bool_)
        self._growing: tuple[GrowingRanked, GrowingArray] | None = None
        # A row of two boxes may be found by either of them.
        self.may_repeat = len(self.clauses) != len(ranked)

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Which subscription rows are in the index."""
        return self._fixed_alive if self._growing is None else self._growing[1].view

    def insert(self, content: Ranked) -> None:
        """Add subscriptions; their rows follow those that are there.

        They must be of the same kind, with the same weights and scoring.
        """
        self._check_alike(content)
        check_tokens(content.clauses)
        growing, alive = self._changeable()
        self._drop_scratch()
        first = len(self.clauses)
        growing.append(content)
        alive.append(np.ones(len(content), np.bool_))
        self._follow(growing)
        if len(content.clauses):
            self._add(first, len(self.clauses))

    def delete(self, rows: NDArray[Any]) -> None:
        """Drop the subscriptions of these rows; the other rows keep their numbers."""
        gone = present_rows(self.alive, np.asarray(rows).reshape(-1))
        _, alive = self._changeable()
        self._drop_scratch()
        _, clauses = self.clauses.clauses_of(gone)
        if len(clauses):
            self._remove(clauses)
        alive.writable[gone] = False

    @abstractmethod
    def _add(self, first: int, last: int) -> None:
        """Take the clauses with these numbers, which are in ``self.clauses`` already."""

    @abstractmethod
    def _remove(self, clauses: NDArray[np.int64]) -> None:
        """Drop the clauses with these numbers, all of which are in the index."""

    def _begin_changing(self) -> None:
        """Make what is read-only writable; called once, before the first change."""

    def _check_alike(self, content: Ranked) -> None:
        mine = self.ranked
        if len(content) and content.kind != mine.kind:
            raise InvalidInput("kind", content.kind, f"must be {mine.kind}, as in the index")
        alike = content.scoring == mine.scoring and content.unknown_weight == mine.unknown_weight
        same = content.weight is mine.weight or np.array_equal(content.weight, mine.weight)
        if not (alike and same):
            problem = "must have the weights and the scoring of the index"
            raise InvalidInput("content", content.scoring, problem)

    def _changeable(self) -> tuple[GrowingRanked, GrowingArray]:
        if self._growing is None:
            growing = (
                GrowingRanked(self.ranked, self.columns),
                GrowingArray(self._fixed_alive),
            )
            self._begin_changing()
            self._growing = growing
            self._follow(growing[0])
        return self._growing

    def _follow(self, growing: GrowingRanked) -> None:
        """Refer to the subscriptions as they are now."""
        self.ranked = growing.ranked
        self.clauses = self.ranked.clauses
        self._columns = growing.columns
        self._conditions = growing.conditions
        self.may_repeat = len(self.clauses) != len(self.ranked)
