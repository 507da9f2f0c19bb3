"""What users say, as flat arrays: the only form that indexes, engines and Spark tasks see.

A set of subscriptions is `Clauses` (token ids of all clauses end to end, boxes, the subscription
row of each clause, exact shapes) plus what belongs to the subscription as a whole (`Ids`, expiry,
owner); a batch of messages is `Messages`; an answer is `Matches`. All arrays are read-only, so
that a kernel is compiled for one type only, whether its arrays were just made or memory-mapped.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = [
    "NEVER",
    "UNITS",
    "WORLD",
    "Clauses",
    "Ids",
    "Matches",
    "Messages",
    "Shapes",
    "Subscriptions",
    "frozen",
]

UNITS = 10_000_000
"""Units per degree: coordinates are int32 in units of 1e-7 degree."""

WORLD = (-180 * UNITS, -90 * UNITS, 180 * UNITS, 90 * UNITS)
"""West, south, east and north of the whole world, in units."""

NEVER = np.iinfo(np.int64).max
"""The time (in microseconds) of what never happens: a subscription that does not expire."""


def frozen(values: Any, dtype: Any, width: int | None = None) -> NDArray[Any]:
    """Return the values as a contiguous read-only array of the type, copied only where needed."""
    array = np.ascontiguousarray(values, dtype=dtype).view()
    if width is not None:
        array = array.reshape(-1, width)
    array.flags.writeable = False
    return array


def starts(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Return the start array (one longer) of pieces with these lengths laid end to end."""
    start = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=start[1:])
    return start


def gather(start: NDArray[np.int64], rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the start array of the chosen pieces and the positions of their content."""
    length = (start[1:] - start[:-1])[rows]
    new_start = starts(length)
    position = np.arange(new_start[-1]) + np.repeat(start[:-1][rows] - new_start[:-1], length)
    return new_start, position


class _Arrays:
    """What all sets of arrays have in common: their size, and that they pickle read-only."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays together."""
        values = (getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]
        return sum(value.nbytes for value in values if hasattr(value, "nbytes"))


@dataclass(frozen=True, eq=False)
class Shapes(_Arrays):
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
        _freeze(self, radius_m=np.float64, ring_start=np.int64, point_start=np.int64)
        object.__setattr__(self, "point", frozen(self.point, np.int32, 2))

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
            _chain([p.ring_start for p in parts]),
            _chain([p.point_start for p in parts]),
            np.concatenate([p.point for p in parts]),
        )


@dataclass(frozen=True, eq=False)
class Clauses(_Arrays):
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
        _freeze(self, token_start=np.int64, token=np.int32, row=np.int32, shape=np.int32)
        _freeze(self, negative_start=np.int64, negative=np.int32)
        object.__setattr__(self, "box", frozen(self.box, np.int32, 4))
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
            _chain([p.token_start for p in parts]),
            np.concatenate([p.token for p in parts]),
            _chain([p.negative_start for p in parts]),
            np.concatenate([p.negative for p in parts]),
            np.concatenate([p.box for p in parts]),
            np.concatenate([p.row + base for p, base in zip(parts, row_base, strict=False)]),
            np.concatenate(moved),
            Shapes.concatenate([p.shapes for p in parts]),
            int(row_base[-1]),
        )


@dataclass(frozen=True, eq=False)
class Messages(_Arrays):
    """A batch of messages: token ids (ascending, distinct per message), boxes, times.

    A point has ``west == east`` and ``south == north``. A box with ``west > east`` crosses the
    antimeridian. ``time_us`` is in microseconds since 1970; ``ttl_us`` is 0 for a message that
    nobody keeps.
    """

    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    box: NDArray[np.int32]
    time_us: NDArray[np.int64]
    ttl_us: NDArray[np.int64]

    def __post_init__(self) -> None:
        _freeze(self, token_start=np.int64, token=np.int32, time_us=np.int64, ttl_us=np.int64)
        object.__setattr__(self, "box", frozen(self.box, np.int32, 4))

    def __len__(self) -> int:
        return len(self.box)

    @classmethod
    def of(cls, tokens: Sequence[Iterable[int]], box: Any, *, time_us: Any = 0) -> Self:
        """Make messages from lists of token ids and points (lon, lat) or boxes, in units.

        Examples
        --------
        >>> Messages.of([[2, 1, 2]], [[7, 8]]).box.tolist()
        [[7, 8, 7, 8]]
        """
        ordered = [sorted(set(t)) for t in tokens]
        boxes = np.asarray(box, np.int32)
        if boxes.ndim == 2 and boxes.shape[1] == 2:
            boxes = np.concatenate([boxes, boxes], axis=1)
        return cls(
            starts(np.array([len(t) for t in ordered], np.int64)),
            np.array([t for ts in ordered for t in ts], np.int32),
            boxes,
            np.broadcast_to(np.asarray(time_us, np.int64), len(ordered)),
            np.zeros(len(ordered), np.int64),
        )

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the messages of these rows."""
        token_start, token = gather(self.token_start, rows)
        return type(self)(
            token_start, self.token[token], self.box[rows], self.time_us[rows], self.ttl_us[rows]
        )

    @cached_property
    def wraps(self) -> NDArray[np.bool_]:
        """Which messages cross the antimeridian."""
        return self.box[:, 0] > self.box[:, 2]

    def cut(self) -> tuple[Self, NDArray[np.int64]]:
        """Cut messages at the antimeridian; return the pieces and the message row of each."""
        piece_of = np.repeat(np.arange(len(self)), 1 + self.wraps)
        pieces = self.take(piece_of)
        box = pieces.box.copy()
        second = np.diff(piece_of, prepend=-1) == 0
        first = np.diff(piece_of, append=-1) == 0
        box[first, 2] = WORLD[2]
        box[second, 0] = WORLD[0]
        return replace(pieces, box=box), piece_of


@dataclass(frozen=True, eq=False)
class Matches:
    """The answer to a batch: subscription rows, message by message, and what it cost to find them.

    The matches of message ``m`` are ``subscription[start[m]:start[m + 1]]``, in no particular
    order, each once. ``examined`` counts the candidates that had to be verified.
    """

    start: NDArray[np.int64]
    subscription: NDArray[np.int32]
    examined: int
    score: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.subscription)

    @cached_property
    def message(self) -> NDArray[np.int64]:
        """The message row of every match."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    def pairs(self) -> set[tuple[int, int]]:
        """Return the matches as a set of (message row, subscription row)."""
        return set(zip(self.message.tolist(), self.subscription.tolist(), strict=True))

    @classmethod
    def concatenate(cls, parts: Sequence[Matches]) -> Self:
        """Return the answers to consecutive batches as the answer to all of them."""
        scores = [p.score for p in parts if p.score is not None]
        return cls(
            _chain([p.start for p in parts]),
            np.concatenate([p.subscription for p in parts]),
            sum(p.examined for p in parts),
            np.concatenate(scores) if scores else None,
        )


@dataclass(frozen=True, eq=False)
class Ids:
    """The ids that users gave, strings or integers, to be given back as they came.

    ``text`` is None where all ids are integers; where it is not, it is null for the integers.
    """

    number: NDArray[np.int64]
    text: pa.StringArray | None = None

    def __len__(self) -> int:
        return len(self.number)

    @property
    def nbytes(self) -> int:
        """The bytes that the ids take."""
        return int(self.number.nbytes) + (self.text.nbytes if self.text is not None else 0)

    @classmethod
    def of(cls, values: Sequence[str | int]) -> Self:
        """Take ids from a list.

        Examples
        --------
        >>> Ids.of(["a", 7]).tolist()
        ['a', 7]
        """
        numbers = np.array([0 if isinstance(v, str) else v for v in values], np.int64)
        if not any(isinstance(v, str) for v in values):
            return cls(numbers)
        return cls(
            numbers, pa.array([v if isinstance(v, str) else None for v in values], pa.string())
        )

    def tolist(self) -> list[str | int]:
        """Return the ids as they were given."""
        numbers: list[str | int] = self.number.tolist()
        if self.text is None:
            return numbers
        texts = self.text.to_pylist()
        return [n if t is None else t for n, t in zip(numbers, texts, strict=True)]

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the ids of these rows."""
        text = None if self.text is None else self.text.take(pa.array(rows))
        return type(self)(self.number[rows], text)

    @classmethod
    def concatenate(cls, parts: Sequence[Ids]) -> Self:
        """Return the ids of all parts end to end."""
        number = np.concatenate([p.number for p in parts])
        if all(p.text is None for p in parts):
            return cls(number)
        texts = [pa.nulls(len(p), pa.string()) if p.text is None else p.text for p in parts]
        return cls(number, pa.concat_arrays(texts))

    def to_arrow(self) -> pa.Array:
        """Return int64 where all ids are integers, and strings otherwise.

        A column has one type: where integers and strings are mixed, 7 becomes "7".
        """
        numbers = pa.array(self.number)
        if self.text is None:
            return numbers
        return self.text.fill_null("") if self.text.null_count == 0 else self._mixed()

    def _mixed(self) -> pa.Array:
        return pa.array([str(v) for v in self.tolist()], pa.string())


@dataclass(frozen=True, eq=False)
class Subscriptions:
    """A set of subscriptions: clauses, and what belongs to each subscription as a whole.

    ``expires_us`` is `NEVER` where a subscription does not expire; ``owner`` is null where nobody
    was named, and None where that is so of all of them.
    """

    ids: Ids
    clauses: Clauses
    expires_us: NDArray[np.int64]
    owner: pa.StringArray | None = None

    def __len__(self) -> int:
        return self.clauses.subscriptions

    @property
    def nbytes(self) -> int:
        """The bytes of all columns together."""
        owner = self.owner.nbytes if self.owner is not None else 0
        return (
            self.ids.nbytes
            + self.clauses.nbytes
            + self.clauses.shapes.nbytes
            + int(self.expires_us.nbytes)
            + owner
        )

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the subscriptions of these rows (ascending)."""
        return type(self)(
            self.ids.take(rows),
            self.clauses.take(rows),
            self.expires_us[rows],
            None if self.owner is None else self.owner.take(pa.array(rows)),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Subscriptions]) -> Self:
        """Return the subscriptions of all parts end to end."""
        owner = None
        if any(p.owner is not None for p in parts):
            owner = pa.concat_arrays(
                [pa.nulls(len(p), pa.string()) if p.owner is None else p.owner for p in parts]
            )
        return cls(
            Ids.concatenate([p.ids for p in parts]),
            Clauses.concatenate([p.clauses for p in parts]),
            np.concatenate([p.expires_us for p in parts]),
            owner,
        )


def _freeze(arrays: Any, **types: Any) -> None:
    for name, dtype in types.items():
        object.__setattr__(arrays, name, frozen(getattr(arrays, name), dtype))


def _chain(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the start array of pieces whose start arrays these are."""
    bases = np.cumsum([0, *(int(p[-1]) for p in parts)])
    moved = [p[1:] + base for p, base in zip(parts, bases, strict=False)]
    return np.concatenate([np.zeros(1, np.int64), *moved])
