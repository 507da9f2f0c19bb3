"""Rankings: how much place matters against words, and how good a match must be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from nearcast.columns import CENTIMETERS, KINDS, OVERLAP, PROXIMITY, SHARE_UNITS
from nearcast.errors import InvalidInput
from nearcast.model import checks

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MAX_DISTANCE_M", "MIN_DISTANCE_M", "Overlap", "Proximity", "Ranking", "ranking_of"]

MIN_DISTANCE_M = 0.01
MAX_DISTANCE_M = 42_949_672.95
"""The range of `Proximity.max_distance_m`: whole centimeters that fit into 32 bits."""

SHARE_PROBLEM = "must be a number from 0 to 1"
DISTANCE_PROBLEM = f"must be a number of meters from {MIN_DISTANCE_M} to {MAX_DISTANCE_M:,}"


@dataclass(frozen=True, slots=True)
class Proximity:
    """Ranks by words and by distance from a place.

    The score of a message is ``delta * T + (1 - delta) * S``. T compares words; by default it is
    the share of the subscription's keywords that occur in the message, weighed by their rarity. S
    is 1 at the place of the subscription and falls to 0 at the largest distance. A message
    matches if its score is at least ``tau``. Beyond the largest distance words alone decide.

    Parameters
    ----------
    delta
        How much words matter, from 0 (only distance) to 1 (only words).
    tau
        The least score of a match, from 0 (everything) to 1.
    max_distance_m
        The distance in meters at which S becomes 0, from 0.01 to 42,949,672.95.

    Examples
    --------
    >>> Proximity(0.3, 0.6, max_distance_m=2000)
    Proximity(delta=0.3, tau=0.6, max_distance_m=2000.0)
    >>> Proximity(1.5, 0.6, 2000)
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: delta: must be a number from 0 to 1 (got 1.5)
    """

    delta: float
    tau: float
    max_distance_m: float

    kind: ClassVar[int] = PROXIMITY

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "delta", _share("delta", self.delta))
        put(self, "tau", _share("tau", self.tau))
        put(self, "max_distance_m", _distance("max_distance_m", self.max_distance_m))

    @property
    def text_share(self) -> float:
        """How much words matter: delta."""
        return self.delta

    @property
    def threshold(self) -> float:
        """The least score of a match: tau."""
        return self.tau

    @property
    def max_distance_cm(self) -> int:
        """The largest distance in centimeters."""
        return round(self.max_distance_m * CENTIMETERS)

    def to_dict(self) -> dict[str, float]:
        """Return the fields of a record: ``delta``, ``tau`` and ``max_distance_m``."""
        return {
            "delta": self.delta,
            "tau": self.tau,
            "max_distance_m": self.max_distance_m,
        }


@dataclass(frozen=True, slots=True)
class Overlap:
    """Ranks by words and by how much of the region a message covers.

    The score of a message is ``alpha * S + (1 - alpha) * T``. S is the share of the region's area
    that the message covers; if one of them has no area, 1 where they meet and 0 elsewhere. T
    compares words, as for `Proximity`. A message matches if its score is at least ``theta``.

    Parameters
    ----------
    alpha
        How much place matters, from 0 (only words) to 1 (only place).
    theta
        The least score of a match, from 0 (everything) to 1.

    Examples
    --------
    >>> Overlap(alpha=0.4, theta=0.5).text_share
    0.6
    """

    alpha: float
    theta: float

    kind: ClassVar[int] = OVERLAP

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", _share("alpha", self.alpha))
        object.__setattr__(self, "theta", _share("theta", self.theta))

    @property
    def text_share(self) -> float:
        """How much words matter: 1 - alpha."""
        return (SHARE_UNITS - round(self.alpha * SHARE_UNITS)) / SHARE_UNITS

    @property
    def threshold(self) -> float:
        """The least score of a match: theta."""
        return self.theta

    @property
    def max_distance_cm(self) -> int:
        """0: there is no largest distance."""
        return 0

    def to_dict(self) -> dict[str, float]:
        """Return the fields of a record: ``alpha`` and ``theta``."""
        return {"alpha": self.alpha, "theta": self.theta}


Ranking = Proximity | Overlap
"""How a ranked subscription scores messages."""

FIELDS: dict[str, type[Proximity] | type[Overlap]] = {
    "delta": Proximity,
    "tau": Proximity,
    "max_distance_m": Proximity,
    "alpha": Overlap,
    "theta": Overlap,
}
"""The fields of ranked subscriptions, and the ranking that each belongs to."""

MIXED_PROBLEM = "give delta, tau, max_distance_m or alpha, theta, not both"


def ranking_of(fields: Mapping[str, Any]) -> Ranking | None:
    """Return the ranking that the fields of a record describe; None if there is none.

    Examples
    --------
    >>> ranking_of({"id": "s1", "alpha": 0.5, "theta": 0.25})
    Overlap(alpha=0.5, theta=0.25)
    """
    given = {name: fields[name] for name in FIELDS if fields.get(name) is not None}
    kinds = {FIELDS[name] for name in given}
    if not kinds:
        return None
    if len(kinds) > 1:
        name = next(name for name in given if FIELDS[name] is Overlap)
        raise InvalidInput(name, given[name], MIXED_PROBLEM)
    [kind] = kinds
    for name, owner in FIELDS.items():
        if owner is kind and name not in given:
            raise InvalidInput(name, None, missing_problem(kind))
    return kind(**given)


def missing_problem(kind: type[Proximity] | type[Overlap]) -> str:
    """Return what a record lacks that has only some of the fields of a ranking."""
    names = ", ".join(name for name, owner in FIELDS.items() if owner is kind)
    return f"is missing; a subscription ranked by {KINDS[kind.kind]} has {names}"


def of_columns(kind: int, text_share: int, threshold: int, max_distance_cm: int) -> Ranking | None:
    """Return the ranking of a row of `nearcast.columns.Rankings`; None if it is boolean."""
    if kind == PROXIMITY:
        return Proximity(
            text_share / SHARE_UNITS, threshold / SHARE_UNITS, max_distance_cm / CENTIMETERS
        )
    if kind == OVERLAP:
        return Overlap((SHARE_UNITS - text_share) / SHARE_UNITS, threshold / SHARE_UNITS)
    return None


def _share(field: str, value: object) -> float:
    """Return a number from 0 to 1, rounded to 9 decimals."""
    number = checks.number(field, value)
    if not 0.0 <= number <= 1.0:
        raise InvalidInput(field, value, SHARE_PROBLEM)
    return round(number * SHARE_UNITS) / SHARE_UNITS


def _distance(field: str, value: object) -> float:
    """Return a distance in meters, rounded to centimeters."""
    number = checks.number(field, value)
    if math.isfinite(number):
        centimeters = round(number * CENTIMETERS)
        if 1 <= centimeters <= 0xFFFFFFFF:
            return centimeters / CENTIMETERS
    raise InvalidInput(field, value, DISTANCE_PROBLEM)
