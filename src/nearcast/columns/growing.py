"""Arrays and clauses that grow at their end; appending costs what is appended.

Rows are stored with spare capacity. When it runs out, they are copied to an array of twice the
size; earlier views keep the old array and do not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns.clauses import Clauses, Shapes
from nearcast.columns.rankings import Rankings, no_conditions

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GrowingArray", "GrowingClauses", "GrowingRankings"]

_MIN_ROWS = 16
_MIN_ALIGNED = 4096
"""Arrays of at least this many bytes begin at a cache line, so that their rows do not straddle."""


class GrowingArray:
    """An array whose first axis grows; it begins with a copy of the values.

    Examples
    --------
    >>> array = GrowingArray(np.array([1, 2]))
    >>> before = array.view
    >>> array.append(np.array([3]))
    >>> before.tolist(), array.view.tolist()
    ([1, 2], [1, 2, 3])
    """

    def __init__(self, values: NDArray[Any]) -> None:
        self._used = len(values)
        self._capacity = _capacity(self._used)
        self._rows = _empty_rows(self._capacity, values)
        self._rows[: self._used] = values

    def __len__(self) -> int:
        return self._used

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.view,)

    @property
    def view(self) -> NDArray[Any]:
        """The rows in use, read-only."""
        view = self._rows[: self._used]
        view.setflags(write=False)
        return view

    @property
    def writable(self) -> NDArray[Any]:
        """The rows in use, to be changed in place."""
        return self._rows[: self._used]

    @property
    def last(self) -> Any:
        """The last row."""
        return self._rows[self._used - 1]

    @property
    def nbytes(self) -> int:
        """The bytes of the rows in use."""
        return self.view.nbytes

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows at the end."""
        first = self._used
        last = first + len(rows)
        if last > self._capacity:
            self.reserve(last)
        self._rows[first:last] = rows
        self._used = last

    def push(self, row: Any) -> None:
        """Add one row at the end."""
        used = self._used
        if used == self._capacity:
            self.reserve(used + 1)
        self._rows[used] = row
        self._used = used + 1

    def extend(self, count: int) -> NDArray[Any]:
        """Add ``count`` rows at the end and return them, writable and undefined."""
        self.reserve(self._used + count)
        self._used += count
        return self._rows[self._used - count : self._used]

    def truncate(self, count: int) -> None:
        """Keep only the first ``count`` rows; what is appended then overwrites the others."""
        self._used = min(self._used, count)

    def reserve(self, count: int) -> None:
        """Reserve capacity for ``count`` rows in total."""
        if count > self._capacity:
            self._capacity = _capacity(count)
            rows = _empty_rows(self._capacity, self._rows)
            rows[: self._used] = self._rows[: self._used]
            self._rows = rows


def _empty_rows(count: int, like: NDArray[Any]) -> NDArray[Any]:
    """Return rows of the same kind, undefined."""
    shape = (count, *like.shape[1:])
    size = int(np.prod(shape)) * like.dtype.itemsize
    if size < _MIN_ALIGNED or like.dtype.hasobject:
        return np.empty(shape, like.dtype)
    raw = np.empty(size + 64, np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + size].view(like.dtype).reshape(shape)


class GrowingClauses:
    """Clauses that grow: ``clauses`` is always the whole, as read-only views.

    Examples
    --------
    >>> growing = GrowingClauses(Clauses.of([[1]], [[0, 0, 5, 5]]))
    >>> growing.append(Clauses.of([[2, 3]], [[1, 1, 2, 2]]))
    >>> growing.clauses.token.tolist(), growing.clauses.row.tolist()
    ([1, 2, 3], [0, 1])
    """

    def __init__(self, clauses: Clauses) -> None:
        self._token_start = GrowingArray(clauses.token_start)
        self._token = GrowingArray(clauses.token)
        self._negative_start = GrowingArray(clauses.negative_start)
        self._negative = GrowingArray(clauses.negative)
        self._box = GrowingArray(clauses.box)
        self._row = GrowingArray(clauses.row)
        self._shape = GrowingArray(clauses.shape)
        self._shapes = _GrowingShapes(clauses.shapes)
        self._whole = self._views(clauses.subscriptions, clauses.plain)

    @property
    def clauses(self) -> Clauses:
        """All clauses; values returned before do not change."""
        return self._whole

    def append(self, clauses: Clauses) -> None:
        """Add clauses; their rows follow those that are there."""
        whole = self._whole
        numbers_are_rows = not len(clauses) or len(whole) == whole.subscriptions
        shape = clauses.shape
        if len(clauses.shapes):
            shape = np.where(shape >= 0, shape + len(whole.shapes), -1)
        self._token.append(clauses.token)
        if len(clauses) == 1:  # most writes to an engine: single values cost less than slices
            self._token_start.push(len(self._token))
            self._negative_start.push(self._negative_start.last + len(clauses.negative))
            self._box.push(clauses.box[0])
            self._row.push(whole.subscriptions)
            self._shape.push(shape[0])
        else:
            _chain(self._token_start, clauses.token_start)
            _chain(self._negative_start, clauses.negative_start)
            self._box.append(clauses.box)
            self._row.append(clauses.row + np.int32(whole.subscriptions))
            self._shape.append(shape)
        if len(clauses.negative):
            self._negative.append(clauses.negative)
        self._shapes.append(clauses.shapes)
        self._whole = self._views(
            whole.subscriptions + clauses.subscriptions,
            whole.plain and clauses.plain and numbers_are_rows,
        )

    def _views(self, subscriptions: int, plain: bool) -> Clauses:
        return Clauses.of_frozen(
            token_start=self._token_start.view,
            token=self._token.view,
            negative_start=self._negative_start.view,
            negative=self._negative.view,
            box=self._box.view,
            row=self._row.view,
            shape=self._shape.view,
            shapes=self._shapes.shapes,
            subscriptions=subscriptions,
            plain=plain,
        )


class GrowingRankings:
    """Rankings that grow: ``rankings`` is always the whole, as read-only views.

    Examples
    --------
    >>> growing = GrowingRankings(Rankings.boolean(2))
    >>> growing.append(Rankings.of("overlap", 1, p=0.5, q=0.25))
    >>> growing.rankings.kind.tolist()
    [0, 0, 2]
    """

    def __init__(self, rankings: Rankings) -> None:
        self._kind = GrowingArray(rankings.kind)
        self._text_share = GrowingArray(rankings.text_share)
        self._threshold = GrowingArray(rankings.threshold)
        self._max_distance_cm = GrowingArray(rankings.max_distance_cm)
        self._condition = None
        if rankings.condition is not None:
            self._condition = GrowingClauses(rankings.condition)

    @property
    def rankings(self) -> Rankings:
        """All rankings; values returned before do not change."""
        return Rankings(
            kind=self._kind.view,
            text_share=self._text_share.view,
            threshold=self._threshold.view,
            max_distance_cm=self._max_distance_cm.view,
            condition=None if self._condition is None else self._condition.clauses,
        )

    def append(self, rankings: Rankings) -> None:
        """Add rows at the end."""
        condition = rankings.condition
        if condition is not None and self._condition is None:
            self._condition = GrowingClauses(no_conditions(len(self._kind)))
        if self._condition is not None:
            self._condition.append(no_conditions(len(rankings)) if condition is None else condition)
        self._kind.append(rankings.kind)
        self._text_share.append(rankings.text_share)
        self._threshold.append(rankings.threshold)
        self._max_distance_cm.append(rankings.max_distance_cm)


class _GrowingShapes:
    """Shapes that grow."""

    def __init__(self, shapes: Shapes) -> None:
        self._radius_m = GrowingArray(shapes.radius_m)
        self._ring_start = GrowingArray(shapes.ring_start)
        self._point_start = GrowingArray(shapes.point_start)
        self._point = GrowingArray(shapes.point)
        self.shapes = shapes

    def append(self, shapes: Shapes) -> None:
        if not len(shapes):
            return
        self._radius_m.append(shapes.radius_m)
        _chain(self._ring_start, shapes.ring_start)
        _chain(self._point_start, shapes.point_start)
        self._point.append(shapes.point)
        self.shapes = Shapes(
            self._radius_m.view, self._ring_start.view, self._point_start.view, self._point.view
        )


def _capacity(rows: int) -> int:
    """Return the capacity for this many rows; untouched memory costs nothing."""
    return max(_MIN_ROWS, 2 * rows)


def _chain(start: GrowingArray, more: NDArray[np.int64]) -> None:
    """Append a start array, whose content is appended to that of the first."""
    if len(more) > 1:
        start.append(more[1:] + start.last)
