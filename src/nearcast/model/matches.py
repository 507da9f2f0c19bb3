"""The results: matches, and updates when subscriptions move or messages expire.

The library creates them in large numbers from ids that were validated on entry, so constructors
validate only what a caller could get wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from nearcast.errors import InvalidInput
from nearcast.model.json_form import read_fields, required, write_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nearcast.model.checks import Id, Time

__all__ = ["Match", "OwnedMatch", "Update"]


class Match(NamedTuple):
    """A message that matches a subscription; ``score`` is None for boolean subscriptions.

    A tuple, because a message may have thousands of matches, and no other object is made faster.

    Attributes
    ----------
    message_id, subscription_id
        The ids, as they were given.
    score
        From 0 to 1 for a ranked subscription; None for a boolean one.

    Examples
    --------
    >>> Match("m1", "s1")
    Match(message_id='m1', subscription_id='s1', score=None)
    """

    message_id: Id
    subscription_id: Id
    score: float | None = None

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Return the match that a JSON object describes.

        Examples
        --------
        >>> Match.from_dict({"message_id": "m1", "subscription_id": "s1", "score": None})
        Match(message_id='m1', subscription_id='s1', score=None)
        """
        given = read_fields(fields, "match")
        ids = required(given, "message_id"), required(given, "subscription_id")
        return cls(*ids, given.get("score"))

    def to_dict(self) -> dict[str, Any]:
        """Return the match as an object for JSON.

        Examples
        --------
        >>> Match("m1", "s1").to_dict()
        {'message_id': 'm1', 'subscription_id': 's1', 'score': None}
        """
        score = None if self.score is None else float(self.score)
        return {
            "message_id": self.message_id,
            "subscription_id": self.subscription_id,
            "score": score,
        }


class OwnedMatch(NamedTuple):
    """A match with the owner of the subscription, None if it names nobody.

    Attributes
    ----------
    message_id, subscription_id, score
        As in `Match`.
    owner
        The owner of the subscription.

    Examples
    --------
    >>> OwnedMatch("m1", "s1", None, "ann").owner
    'ann'
    """

    message_id: Id
    subscription_id: Id
    score: float | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """A match that began (``sign`` is +1) or ended (-1) at a time.

    Attributes
    ----------
    time
        When it began or ended: seconds since 1970, or a datetime if one was given.
    subscription_id, message_id
        The ids, as they were given.
    sign
        1 if the match began, -1 if it ended.
    score
        The score of a ranked subscription whose match began; otherwise None.

    Examples
    --------
    >>> Update(1700000000.0, "s1", "m1", +1).sign
    1
    """

    time: Time
    subscription_id: Id
    message_id: Id
    sign: int
    score: float | None = None

    def __post_init__(self) -> None:
        if self.sign not in (1, -1):
            raise InvalidInput("sign", self.sign, "must be 1 or -1")

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Return the update that a JSON object describes.

        Examples
        --------
        >>> record = {"time": 5.5, "subscription_id": "s1", "message_id": "m1", "sign": -1}
        >>> Update.from_dict(record)
        Update(time=5.5, subscription_id='s1', message_id='m1', sign=-1, score=None)
        """
        given = read_fields(fields, "update")
        time, sign = required(given, "time"), required(given, "sign")
        ids = required(given, "subscription_id"), required(given, "message_id")
        return cls(time, *ids, int(sign) if sign in (1, -1) else sign, given.get("score"))

    def to_dict(self) -> dict[str, Any]:
        """Return the update as an object for JSON; the time as ISO 8601 text or seconds.

        Examples
        --------
        >>> Update(5.5, "s1", "m1", -1).to_dict()
        {'time': 5.5, 'subscription_id': 's1', 'message_id': 'm1', 'sign': -1, 'score': None}
        """
        return {
            "time": write_time(self.time),
            "subscription_id": self.subscription_id,
            "message_id": self.message_id,
            "sign": int(self.sign),
            "score": None if self.score is None else float(self.score),
        }
