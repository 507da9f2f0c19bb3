"""What comes out: matches, and updates where subscriptions move or messages expire.

They are made by the library from ids that were checked when they came in, in large numbers, so that
only what a mistake in a caller could get wrong is checked again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from nearcast.model.checks import Id, Time

__all__ = ["Match", "Update"]


@dataclass(frozen=True, slots=True)
class Match:
    """A message that reached a subscription; the score is None where there is none.

    Examples
    --------
    >>> Match("m1", "s1")
    Match(message_id='m1', subscription_id='s1', score=None)
    """

    message_id: Id
    subscription_id: Id
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """A match that began (sign +1) or ended (sign -1) at a time.

    Examples
    --------
    >>> Update(1700000000.0, "s1", "m1", +1).sign
    1
    """

    time: Time
    subscription_id: Id
    message_id: Id
    sign: int

    def __post_init__(self) -> None:
        if self.sign not in (1, -1):
            raise InvalidInput("sign", self.sign, "must be 1 or -1")
