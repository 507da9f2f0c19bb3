"""How ranked subscriptions score messages, as flat arrays.

A ranked subscription has a *text share* p and a *threshold* q. Its score of a message is
``p * text + (1 - p) * space``, and it matches if that is at least q. Users say delta and tau, or
alpha and theta: see `nearcast.model.Proximity` and `nearcast.model.Overlap`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns.arrays import Arrays, freeze, read_only
from nearcast.columns.clauses import Clauses
from nearcast.errors import InvalidInput, UnknownName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.columns.messages import Messages

__all__ = [
    "BOOLEAN",
    "CENTIMETERS",
    "DISTANCES",
    "KINDS",
    "OVERLAP",
    "PROXIMITY",
    "SHARE_UNITS",
    "SIMILARITIES",
    "Ranked",
    "Rankings",
    "Scoring",
]

KINDS = ("boolean", "proximity", "overlap")
"""The kinds of subscriptions; `Rankings.kind` has their positions."""

BOOLEAN, PROXIMITY, OVERLAP = range(3)

SHARE_UNITS = 1_000_000_000
"""Units of a text share or a threshold: int32, so that decimals of up to 9 digits are exact."""

CENTIMETERS = 100
"""Centimeters per meter: the largest distance of a subscription is a uint32 of them."""

SIMILARITIES = ("containment", "overlap", "jaccard", "dice", "cosine")
"""How texts are compared; kernels know them by their positions."""

DISTANCES = ("geodesic", "planar")
"""How distances are measured; kernels know them by their positions."""

_TYPES = {
    "kind": np.uint8,
    "text_share": np.int32,
    "threshold": np.int32,
    "max_distance_cm": np.uint32,
}


@dataclass(frozen=True)
class Scoring:
    """How all ranked subscriptions of an engine, or of an index, score.

    Parameters
    ----------
    similarity
        One of `SIMILARITIES`. Containment and jaccard weigh tokens by their rarity, the others
        count them.
    distance
        One of `DISTANCES`: meters on the sphere, or degrees as on a flat map.

    Examples
    --------
    >>> Scoring("jaccard").weighs
    True
    """

    similarity: str = SIMILARITIES[0]
    distance: str = DISTANCES[0]

    def __post_init__(self) -> None:
        if self.similarity not in SIMILARITIES:
            raise UnknownName("similarity", self.similarity, SIMILARITIES)
        if self.distance not in DISTANCES:
            raise UnknownName("distance", self.distance, DISTANCES)

    @property
    def codes(self) -> tuple[int, int]:
        """The positions of similarity and distance."""
        return SIMILARITIES.index(self.similarity), DISTANCES.index(self.distance)

    @classmethod
    def of_codes(cls, codes: Sequence[int]) -> Self:
        """Return the scoring with these `codes`."""
        similarity, distance = codes
        if not (0 <= similarity < len(SIMILARITIES) and 0 <= distance < len(DISTANCES)):
            raise InvalidInput(
                "scoring", codes, "must be the numbers of a similarity and a distance"
            )
        return cls(SIMILARITIES[similarity], DISTANCES[distance])

    @property
    def weighs(self) -> bool:
        """Whether tokens are weighed by their rarity; otherwise each weighs 1."""
        return self.similarity in ("containment", "jaccard")

    @property
    def needs_message_weight(self) -> bool:
        """Whether the score depends on the weight of all tokens of a message."""
        return self.similarity in ("jaccard", "dice", "cosine")


@dataclass(frozen=True, eq=False, kw_only=True)
class Rankings(Arrays):
    """How the subscriptions of a set score messages, one row each.

    Boolean rows have ``kind == BOOLEAN`` and zeros. ``text_share`` and ``threshold`` are in
    `SHARE_UNITS`, ``max_distance_cm`` is 0 for overlap. ``condition`` has the clauses of which one
    must be true of the tokens of a message, at any place; None where no row has a condition, and
    a clause without tokens in rows that have none.
    """

    kind: NDArray[np.uint8]
    text_share: NDArray[np.int32]
    threshold: NDArray[np.int32]
    max_distance_cm: NDArray[np.uint32]
    condition: Clauses | None = None

    def __post_init__(self) -> None:
        freeze(self, _TYPES)

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def boolean(cls, count: int) -> Self:
        """Return the rankings of boolean subscriptions: none."""
        zero = np.zeros(count, np.int32)
        return cls(
            kind=np.zeros(count, np.uint8),
            text_share=zero,
            threshold=zero,
            max_distance_cm=np.zeros(count, np.uint32),
        )

    @classmethod
    def of(
        cls,
        kind: str,
        count: int,
        *,
        p: Any,
        q: Any,
        max_distance_m: Any = 0.0,
        condition: Clauses | None = None,
    ) -> Self:
        """Make rankings of one kind from shares, thresholds and distances: one for all, or each.

        Examples
        --------
        >>> Rankings.of("overlap", 2, p=[0.5, 1.0], q=0.25).text_share.tolist()
        [500000000, 1000000000]
        """

        def column(values: Any, scale: int, dtype: Any) -> NDArray[Any]:
            scaled = np.rint(np.asarray(values, np.float64) * scale).astype(dtype)
            return np.broadcast_to(scaled, count)

        return cls(
            kind=np.full(count, KINDS.index(kind), np.uint8),
            text_share=column(p, SHARE_UNITS, np.int32),
            threshold=column(q, SHARE_UNITS, np.int32),
            max_distance_cm=column(max_distance_m, CENTIMETERS, np.uint32),
            condition=condition,
        )

    def row(self, row: int) -> Self | None:
        """Return the ranking of one row; None if it is boolean."""
        return self.take(np.array([row])) if self.kind[row] != BOOLEAN else None

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the rankings of these rows (ascending)."""
        return type(self)(
            **{name: getattr(self, name)[rows] for name in _TYPES},
            condition=None if self.condition is None else self.condition.take(rows),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Rankings]) -> Self:
        """Return the rankings of all parts end to end."""
        condition = None
        if any(part.condition is not None for part in parts):
            condition = Clauses.concatenate(
                [no_conditions(len(p)) if p.condition is None else p.condition for p in parts]
            )
        joined = {name: np.concatenate([getattr(p, name) for p in parts]) for name in _TYPES}
        return cls(**joined, condition=condition)


def no_conditions(count: int) -> Clauses:
    """Return the conditions of rows that have none."""
    return Clauses.of([[]] * count, np.zeros((count, 4), np.int32))


@dataclass(frozen=True, eq=False, kw_only=True)
class Ranked(Arrays):
    """Subscriptions with all that their scores depend on.

    Row ``r`` is one subscription. The clauses of a ranked one have the same tokens, those that are
    scored, and differ in their boxes: a region across the antimeridian has two. Token ``t``
    weighs ``weight[t]``, or ``unknown_weight`` from ``len(weight)`` on. An index is built over the
    rows of one kind (`of_kind`).

    Examples
    --------
    >>> near = Ranked.of([[1, 2]], [[0, 0]], kind="proximity", p=0.5, q=0.6, max_distance_m=100)
    >>> near.kind, len(near), near.rankings.max_distance_cm.tolist()
    ('proximity', 1, [10000])
    """

    clauses: Clauses
    rankings: Rankings
    weight: NDArray[np.float64]
    unknown_weight: float
    scoring: Scoring

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", read_only(self.weight, np.float64))
        count = self.clauses.subscriptions
        if len(self.rankings) != count:
            problem = f"must have one row per subscription, {count}"
            raise InvalidInput("rankings", len(self.rankings), problem)

    def __len__(self) -> int:
        return len(self.rankings)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the rows; an empty set counts as proximity."""
        kind = self.rankings.kind
        if not len(kind):
            return (KINDS[PROXIMITY],)
        if bool((kind == kind[0]).all()):
            return (KINDS[int(kind[0])],)
        return tuple(KINDS[number] for number in np.unique(kind).tolist())

    @property
    def kind(self) -> str:
        """The kind of all rows, which must be of one kind."""
        if len(self.kinds) > 1:
            raise InvalidInput("kind", self.kinds, "must be a single kind; select one with of_kind")
        return self.kinds[0]

    def rows_of(self, kind: str) -> NDArray[np.int32]:
        """Return the rows of one kind."""
        return np.flatnonzero(self.rankings.kind == KINDS.index(kind)).astype(np.int32)

    def of_kind(self, kind: str) -> Clauses | Ranked:
        """Return the rows of one kind; boolean ones as clauses."""
        part = self if self.kinds == (kind,) else self.take(self.rows_of(kind))
        return part.clauses if kind == KINDS[BOOLEAN] else part

    @classmethod
    def of(
        cls,
        tokens: Sequence[Sequence[int]],
        place: Any,
        *,
        kind: str,
        p: Any,
        q: Any,
        max_distance_m: Any = 0.0,
        weight: Any = (),
        unknown_weight: float = 1.0,
        scoring: Scoring | None = None,
        condition: Clauses | None = None,
        row: Any = None,
        shape: Any = None,
        shapes: Any = None,
    ) -> Self:
        """Make ranked subscriptions from lists.

        Parameters
        ----------
        tokens
            The tokens of each clause; one clause per subscription unless ``row`` says otherwise.
        place
            A point (lon, lat) or a box per clause, in units.
        kind
            ``proximity`` or ``overlap``.
        p, q, max_distance_m
            The text share, the threshold and the largest distance: one for all or one per row.
        weight, unknown_weight, scoring, condition, row, shape, shapes
            As in `Ranked`, `Rankings` and `Clauses`.
        """
        box = np.asarray(place, np.int32)
        if box.ndim == 2 and box.shape[1] == 2:
            box = np.concatenate([box, box], axis=1)
        clauses = Clauses.of(tokens, box, row=row, shape=shape, shapes=shapes)
        rankings = Rankings.of(
            kind,
            clauses.subscriptions,
            p=p,
            q=q,
            max_distance_m=max_distance_m,
            condition=condition,
        )
        return cls(
            clauses=clauses,
            rankings=rankings,
            weight=np.asarray(weight, np.float64),
            unknown_weight=unknown_weight,
            scoring=scoring or Scoring(),
        )

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the subscriptions of these rows (ascending)."""
        return replace(self, clauses=self.clauses.take(rows), rankings=self.rankings.take(rows))

    def weigh(self, messages: Messages) -> Messages:
        """Return messages with the weight of their texts, all of whose words have tokens."""
        token = messages.token
        each = np.ones(len(token))
        if self.scoring.weighs:
            known = token < len(self.weight)
            each[~known] = self.unknown_weight
            each[known] = self.weight[token[known]]
        total = np.concatenate([[0.0], np.cumsum(each)])
        start = messages.token_start
        return replace(messages, text_weight=total[start[1:]] - total[start[:-1]])

    @classmethod
    def concatenate(cls, parts: Sequence[Ranked]) -> Self:
        """Return the subscriptions of all parts, which must share weights and scoring."""
        return cls(
            clauses=Clauses.concatenate([p.clauses for p in parts]),
            rankings=Rankings.concatenate([p.rankings for p in parts]),
            weight=parts[0].weight,
            unknown_weight=parts[0].unknown_weight,
            scoring=parts[0].scoring,
        )
