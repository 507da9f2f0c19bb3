"""The clauses of subscriptions, and the exact shapes of their regions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from nearcast.columns.arrays import Arrays, chain, freeze, frozen, gather, read_only, starts
from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = [
    "Clauses",
    "Conjunctions",
    "Regions",
    "Shapes",
    "clauses_of_lists",
    "place_conjunctions",
]

_SHAPE_TYPES = {"radius_m": np.float64, "ring_start": np.int64, "point_start": np.int64}
_CLAUSE_TYPES = {
    **dict.fromkeys(("token_start", "negative_start"), np.int64),
    **dict.fromkeys(("token", "negative", "row", "shape"), np.int32),
}


@dataclass(frozen=True, eq=False)
class Shapes(Arrays):
    """Exact regions that are more than a box: circles and polygons.

    A circle is one ring of one point, its center, with ``radius_m >= 0``. A polygon has
    ``radius_m == -1`` and any number of rings (outer rings of all parts, and holes, in any order:
    a place lies inside when it lies inside an odd number of them, or on a border). Rings are
    closed: the last point repeats the first.
    """

    radius_m: NDArray[np.float64]
    ring_start: NDArray[np.int64]
    point_start: NDArray[np.int64]
    point: NDArray[np.int32]

    def __post_init__(self) -> None:
        freeze(self, _SHAPE_TYPES)
        object.__setattr__(self, "point", read_only(self.point, np.int32, 2))

    def __len__(self) -> int:
        return len(self.radius_m)

    @classmethod
    def empty(cls) -> Self:
        """Return an empty set of shapes."""
        none = np.zeros(1, np.int64)
        return cls(np.empty(0), none, none, np.empty((0, 2), np.int32))

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the shapes of these rows."""
        ring_start, rings = gather(self.ring_start, rows)
        point_start, points = gather(self.point_start, rings)
        return type(self)(self.radius_m[rows], ring_start, point_start, self.point[points])

    @classmethod
    def concatenate(cls, parts: Sequence[Shapes]) -> Self:
        """Return the shapes of all parts end to end."""
        return cls(
            np.concatenate([p.radius_m for p in parts]),
            chain([p.ring_start for p in parts]),
            chain([p.point_start for p in parts]),
            np.concatenate([p.point for p in parts]),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Clauses(Arrays):
    """The clauses of a set of subscriptions: what must occur, what must not, and where.

    Clause ``c`` belongs to subscription ``row[c]`` (ascending). It asks for every token in
    ``token[token_start[c]:token_start[c + 1]]`` (ascending, distinct) and for none in ``negative``
    likewise, inside ``box[c]`` (west, south, east, north; west <= east) and, where
    ``shape[c] >= 0``, inside that exact shape too. A subscription with several clauses matches
    when one of them does.
    """

    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    negative_start: NDArray[np.int64]
    negative: NDArray[np.int32]
    box: NDArray[np.int32]
    row: NDArray[np.int32]
    shape: NDArray[np.int32]
    shapes: Shapes
    subscriptions: int

    def __post_init__(self) -> None:
        freeze(self, _CLAUSE_TYPES)
        object.__setattr__(self, "box", read_only(self.box, np.int32, 4))
        count = len(self.row)
        for name, length in (("box", len(self.box)), ("shape", len(self.shape))):
            if length != count:
                raise InvalidInput(name, length, f"must have one row per clause, {count}")

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def of_frozen(cls, *, plain: bool, **fields: Any) -> Self:
        """Take read-only arrays of the right types as they are: the fields, and `plain`.

        For single subscriptions: checking the arrays costs more than making them.
        """
        clauses = object.__new__(cls)
        vars(clauses).update(fields, plain=plain)
        return clauses

    @classmethod
    def of(
        cls,
        tokens: Sequence[Iterable[int]],
        box: Any,
        *,
        negatives: Sequence[Iterable[int]] | None = None,
        row: Any = None,
        shape: Any = None,
        shapes: Shapes | None = None,
    ) -> Self:
        """Make clauses from lists: one subscription per clause unless ``row`` says otherwise.

        Examples
        --------
        >>> Clauses.of([[3, 1], []], [[0, 0, 10, 10], [-5, -5, 5, 5]]).token.tolist()
        [1, 3]
        """
        ordered = [sorted(set(t)) for t in tokens]
        without = [sorted(set(t)) for t in negatives] if negatives else [[] for _ in ordered]
        count = len(ordered)
        rows: NDArray[Any] = np.arange(count) if row is None else np.asarray(row)
        return cls(
            token_start=starts(np.array([len(t) for t in ordered], np.int64)),
            token=np.array([t for ts in ordered for t in ts], np.int32),
            negative_start=starts(np.array([len(t) for t in without], np.int64)),
            negative=np.array([t for ts in without for t in ts], np.int32),
            box=np.asarray(box, np.int32).reshape(-1, 4),
            row=rows,
            shape=np.full(count, -1) if shape is None else np.asarray(shape),
            shapes=shapes or Shapes.empty(),
            subscriptions=int(rows[-1]) + 1 if count else 0,
        )

    @classmethod
    def empty(cls) -> Self:
        """Return an empty set of clauses."""
        return cls.of([], np.empty((0, 4)))

    @cached_property
    def plain(self) -> bool:
        """Whether a clause that matches by tokens and box is a match, and its number is its row."""
        return (
            len(self.negative) == 0
            and not bool((self.shape >= 0).any())
            and bool((self.row == np.arange(len(self))).all())
        )

    def clause_range(self, row: int) -> tuple[int, int]:
        """Return the first clause of a subscription row, and the end."""
        if self.plain:
            return min(row, len(self)), min(row + 1, len(self))
        wanted = np.array([row, row + 1], self.row.dtype)
        low, high = np.searchsorted(self.row, wanted).tolist()
        return low, high

    def clauses_of(self, rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the clauses of these subscription rows, and where those of each row begin.

        A few rows cost a binary search each, whatever the number of clauses.
        """
        if len(rows) * 16 > self.subscriptions:
            clause_start = np.searchsorted(self.row, np.arange(self.subscriptions + 1))
            return gather(clause_start, rows)
        wanted = np.asarray(rows, self.row.dtype)  # another type would make NumPy copy ``row``
        first = np.searchsorted(self.row, wanted)
        length = np.searchsorted(self.row, wanted, side="right") - first
        start = starts(length)
        return start, np.arange(start[-1]) + np.repeat(first - start[:-1], length)

    def row_slice(self, row: int) -> Self:
        """Return the clauses of one subscription row, which lie side by side."""
        low, high = self.clause_range(row)
        token_start = self.token_start[low : high + 1]
        negative_start = self.negative_start[low : high + 1]
        shape, shapes = self.shape[low:high], self.shapes
        if len(shapes):
            used = np.unique(shape[shape >= 0])
            shapes = shapes.take(used)
            if len(used):
                shape = np.searchsorted(used, shape).astype(np.int32)
        return type(self)(
            token_start=token_start - token_start[0],
            token=self.token[token_start[0] : token_start[-1]],
            negative_start=negative_start - negative_start[0],
            negative=self.negative[negative_start[0] : negative_start[-1]],
            box=self.box[low:high],
            row=np.zeros(high - low, np.int32),
            shape=shape,
            shapes=shapes,
            subscriptions=1,
        )

    def conjunction_lists(self, row: int) -> list[tuple[list[int], list[int]]]:
        """Return what one subscription asks for, without its place: tokens and negative ones."""
        low, high = self.clause_range(row)
        boxes = self.box[low:high].tolist()
        pieces = [
            [content[a:b].tolist() for a, b in pairwise(start[low : high + 1].tolist())]
            for start, content in (
                (self.token_start, self.token),
                (self.negative_start, self.negative),
            )
        ]
        triples = zip(*pieces, boxes, strict=True)
        return [(token, negative) for token, negative, box in triples if box == boxes[0]]

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the clauses of these subscription rows (ascending), renumbered from 0."""
        if len(rows) == 1:
            return self.row_slice(int(rows[0]))
        chosen_start, chosen = self.clauses_of(rows)
        token_start, token = gather(self.token_start, chosen)
        negative_start, negative = gather(self.negative_start, chosen)
        shape = self.shape[chosen]
        shapes = self.shapes
        if len(shapes):
            used = np.unique(shape[shape >= 0])
            shape = np.where(shape >= 0, np.searchsorted(used, shape), -1)
            shapes = shapes.take(used)
        return type(self)(
            token_start=token_start,
            token=self.token[token],
            negative_start=negative_start,
            negative=self.negative[negative],
            box=self.box[chosen],
            row=np.repeat(np.arange(len(rows)), np.diff(chosen_start)),
            shape=shape,
            shapes=shapes,
            subscriptions=len(rows),
        )

    def conjunctions(self) -> Conjunctions:
        """Return what each subscription asks for, without its place.

        A conjunction stands in one clause for each box of the region; those of the first box are
        taken.
        """
        clause_start = np.searchsorted(self.row, np.arange(self.subscriptions + 1))
        first_box = self.box[clause_start[:-1][self.row]] if len(self) else self.box
        chosen = np.flatnonzero((self.box == first_box).all(axis=1))
        token_start, token = gather(self.token_start, chosen)
        negative_start, negative = gather(self.negative_start, chosen)
        return Conjunctions(
            starts(np.bincount(self.row[chosen], minlength=self.subscriptions)),
            token_start,
            self.token[token],
            negative_start,
            self.negative[negative],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Clauses]) -> Self:
        """Return the clauses of all parts end to end, the rows of later parts moved up."""
        row_base = starts(np.array([p.subscriptions for p in parts], np.int64))
        shape_base = starts(np.array([len(p.shapes) for p in parts], np.int64))
        moved = [
            np.where(p.shape >= 0, p.shape + base, -1)
            for p, base in zip(parts, shape_base, strict=False)
        ]
        rows = [p.row + base for p, base in zip(parts, row_base, strict=False)]
        return cls(
            token_start=chain([p.token_start for p in parts]),
            token=np.concatenate([p.token for p in parts]),
            negative_start=chain([p.negative_start for p in parts]),
            negative=np.concatenate([p.negative for p in parts]),
            box=np.concatenate([p.box for p in parts]),
            row=np.concatenate(rows),
            shape=np.concatenate(moved),
            shapes=Shapes.concatenate([p.shapes for p in parts]),
            subscriptions=int(row_base[-1]),
        )


class Conjunctions(NamedTuple):
    """What rows ask for: row ``i`` has the conjunctions from ``clause_start[i]`` on.

    A conjunction asks for all its tokens and for none of its negative ones, both ascending.
    """

    clause_start: NDArray[np.int64]
    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    negative_start: NDArray[np.int64]
    negative: NDArray[np.int32]


class Regions(NamedTuple):
    """Where rows are: row ``i`` has the boxes from ``box_start[i]`` on, and one shape or -1."""

    box_start: NDArray[np.int64]
    box: NDArray[np.int32]
    shape: NDArray[np.int32]
    shapes: Shapes


def place_conjunctions(
    wanted: Conjunctions, regions: Regions, rows: NDArray[np.int64] | None = None
) -> Clauses:
    """Return the clauses of rows: each conjunction of a row in each of its boxes.

    Parameters
    ----------
    wanted, regions
        What the rows ask for, and where.
    rows
        The rows to take, ascending; all of them if left out.

    Examples
    --------
    >>> tea_or_milk = Clauses.of([[0], [1]], [[0, 0, 9, 9]] * 2, row=[0, 0]).conjunctions()
    >>> boxes = np.array([[0, 0, 1, 1], [5, 5, 6, 6]], np.int32)
    >>> regions = Regions(np.array([0, 2]), boxes, np.array([-1], np.int32), Shapes.empty())
    >>> place_conjunctions(tea_or_milk, regions).token.tolist()
    [0, 0, 1, 1]
    """
    if rows is None:
        rows = np.arange(len(wanted.clause_start) - 1)
    conjunctions, boxes = np.diff(wanted.clause_start)[rows], np.diff(regions.box_start)[rows]
    pairs = conjunctions * boxes
    row = np.repeat(np.arange(len(rows)), pairs)
    number = np.arange(len(row)) - starts(pairs)[row]
    conjunction = wanted.clause_start[rows][row] + number // boxes[row]
    box = regions.box_start[rows][row] + number % boxes[row]
    token_start, token = gather(wanted.token_start, conjunction)
    negative_start, negative = gather(wanted.negative_start, conjunction)
    shape = regions.shape[rows]
    used = shape[shape >= 0]
    renumbered = np.full(len(rows), -1, np.int32)
    renumbered[shape >= 0] = np.arange(len(used))
    return Clauses(
        token_start=token_start,
        token=wanted.token[token],
        negative_start=negative_start,
        negative=wanted.negative[negative],
        box=regions.box[box],
        row=row.astype(np.int32),
        shape=renumbered[row],
        shapes=regions.shapes.take(used),
        subscriptions=len(rows),
    )


def clauses_of_lists(
    wanted: Sequence[Sequence[tuple[Sequence[int], Sequence[int]]]],
    boxes: Sequence[Sequence[Sequence[int]]],
    shape: Sequence[int],
    shapes: Shapes,
) -> Clauses:
    """Return the clauses of rows that are given as lists: for single objects quicker than arrays.

    It gives them their place as `place_conjunctions` does.

    Parameters
    ----------
    wanted
        The conjunctions of each row: their tokens, and their negative ones, both ascending.
    boxes, shape, shapes
        The boxes of each row, its shape or -1, and all shapes.

    Examples
    --------
    >>> clauses_of_lists([[([1, 2], [])]], [[[0, 0, 9, 9]]], [-1], Shapes.empty()).plain
    True
    """
    tokens: list[int] = []
    negatives: list[int] = []
    token_start, negative_start = [0], [0]
    box: list[Sequence[int]] = []
    row: list[int] = []
    shape_of: list[int] = []
    for number, conjunctions in enumerate(wanted):
        own = boxes[number]
        for positive, negative in conjunctions:
            for one in own:
                tokens += positive
                negatives += negative
                token_start.append(len(tokens))
                negative_start.append(len(negatives))
                box.append(one)
                row.append(number)
                shape_of.append(shape[number])
    one_each = row == list(range(len(wanted)))
    return Clauses.of_frozen(
        token_start=_column(token_start, np.int64),
        token=frozen(np.array(tokens, np.int32)),
        negative_start=_column(negative_start, np.int64),
        negative=_column(negatives, np.int32),
        box=frozen(np.array(box, np.int32).reshape(-1, 4)),
        row=_column(row, np.int32),
        shape=_column(shape_of, np.int32),
        shapes=shapes,
        subscriptions=len(wanted),
        plain=one_each and not negatives and not len(shapes),
    )


def _column(values: list[int], dtype: Any) -> NDArray[Any]:
    """Return a read-only array; those of single subscriptions are nearly always the same."""
    return _short_column(*values, dtype=dtype) if len(values) <= 2 else _new_column(values, dtype)


def _new_column(values: Sequence[int], dtype: type[Any]) -> NDArray[Any]:
    return frozen(np.array(values, dtype))


@lru_cache
def _short_column(*values: int, dtype: Any) -> NDArray[Any]:
    return _new_column(values, dtype)
