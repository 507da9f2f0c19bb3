"""The clauses of subscriptions, and the exact shapes of their regions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns.arrays import Arrays, chain, freeze, gather, read_only, starts
from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["Clauses", "Shapes"]


@dataclass(frozen=True, eq=False)
class Shapes(Arrays):
    """Exact regions that are more than a box: circles and polygons.

    A circle is one ring of one point, its centre, with ``radius_m >= 0``. A polygon has
    ``radius_m == -1`` and any number of rings (outer rings of all parts, and holes, in any order:
    a place lies inside when it lies inside an odd number of them, or on a border). Rings are
    closed: the last point repeats the first.
    """

    radius_m: NDArray[np.float64]
    ring_start: NDArray[np.int64]
    point_start: NDArray[np.int64]
    point: NDArray[np.int32]

    def __post_init__(self) -> None:
        freeze(self, radius_m=np.float64, ring_start=np.int64, point_start=np.int64)
        object.__setattr__(self, "point", read_only(self.point, np.int32, 2))

    def __len__(self) -> int:
        return len(self.radius_m)

    @classmethod
    def empty(cls) -> Self:
        """Return no shapes."""
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


@dataclass(frozen=True, eq=False)
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
        freeze(self, token_start=np.int64, token=np.int32, row=np.int32, shape=np.int32)
        freeze(self, negative_start=np.int64, negative=np.int32)
        object.__setattr__(self, "box", read_only(self.box, np.int32, 4))
        for name, length in {"box": len(self.box), "shape": len(self.shape)}.items():
            if length != len(self.row):
                raise InvalidInput(name, length, f"must have one row per clause, {len(self.row)}")

    def __len__(self) -> int:
        return len(self.row)

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
            starts(np.array([len(t) for t in ordered], np.int64)),
            np.array([t for ts in ordered for t in ts], np.int32),
            starts(np.array([len(t) for t in without], np.int64)),
            np.array([t for ts in without for t in ts], np.int32),
            np.asarray(box, np.int32).reshape(-1, 4),
            rows,
            np.full(count, -1) if shape is None else np.asarray(shape),
            shapes or Shapes.empty(),
            int(rows[-1]) + 1 if count else 0,
        )

    @classmethod
    def empty(cls) -> Self:
        """Return no clauses."""
        return cls.of([], np.empty((0, 4)))

    @cached_property
    def plain(self) -> bool:
        """Whether a clause that matches by tokens and box is a match, and its number is its row."""
        return (
            len(self.negative) == 0
            and not bool((self.shape >= 0).any())
            and bool((self.row == np.arange(len(self))).all())
        )

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the clauses of these subscription rows (ascending), renumbered from 0."""
        clause_start = np.searchsorted(self.row, np.arange(self.subscriptions + 1))
        chosen_start, chosen = gather(clause_start, rows)
        token_start, token = gather(self.token_start, chosen)
        negative_start, negative = gather(self.negative_start, chosen)
        shape = self.shape[chosen]
        used = np.unique(shape[shape >= 0])
        renumbered = np.where(shape >= 0, np.searchsorted(used, shape), -1)
        return type(self)(
            token_start,
            self.token[token],
            negative_start,
            self.negative[negative],
            self.box[chosen],
            np.repeat(np.arange(len(rows)), np.diff(chosen_start)),
            renumbered,
            self.shapes.take(used),
            len(rows),
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
        return cls(
            chain([p.token_start for p in parts]),
            np.concatenate([p.token for p in parts]),
            chain([p.negative_start for p in parts]),
            np.concatenate([p.negative for p in parts]),
            np.concatenate([p.box for p in parts]),
            np.concatenate([p.row + base for p, base in zip(parts, row_base, strict=False)]),
            np.concatenate(moved),
            Shapes.concatenate([p.shapes for p in parts]),
            int(row_base[-1]),
        )
