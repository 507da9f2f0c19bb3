"""Why a subscription matches a message, or why not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from nearcast.model.checks import Id

__all__ = ["Explanation", "WeighedWord"]


class WeighedWord(NamedTuple):
    """A word of a subscription; ``share`` is its share of the weight of all of them."""

    word: str
    weight: float
    share: float


@dataclass(frozen=True)
class Explanation:
    """Why a subscription matches a message, or why not.

    Attributes
    ----------
    message_id, subscription_id, kind, matches
        The pair, ``boolean``, ``proximity`` or ``overlap``, and whether it is a match.
    reasons
        The same in sentences.
    shared, missing
        The words of the subscription that the message has, and those that it does not have. Of
        several clauses of a boolean subscription, those of the one that comes closest.
    forbidden
        Words of the message that the expression excludes.
    inside
        Whether the message meets the region; None if the subscription is ranked by distance.
    condition
        Whether the expression of a ranked subscription is true; None if it has none.
    scope
        Whether the message is of the scope of the subscription; None if that has none.
    distance_m
        How far the message is from the place of the subscription, in meters, if that is ranked by
        distance.
    text, space
        T and S, the two parts of a score before they are weighed against each other.
    text_part, space_part, score
        What each contributes, and their sum.
    threshold, margin
        What the score must reach, and by how much it does (negative: falls short). A margin of
        -1e-9 still matches.
    weights_version
        The version of the table of weights. None for boolean subscriptions, as are all of
        ``text`` to ``margin``.

    Examples
    --------
    >>> from nearcast import Engine, Message, Proximity, Subscription
    >>> engine = Engine()
    >>> near = Proximity(delta=0.5, tau=0.9, max_distance_m=1000)
    >>> engine.subscribe(Subscription("ann", (0, 0), ["hot", "tea"], ranking=near))
    >>> why = engine.explain(Message(1, (0, 0), "Tea"), "ann")
    >>> why.matches, why.score, round(why.margin, 3), [word.word for word in why.missing]
    (False, 0.75, -0.15, ['hot'])
    """

    message_id: Id
    subscription_id: Id
    kind: str
    matches: bool
    reasons: tuple[str, ...]
    shared: tuple[WeighedWord, ...] = ()
    missing: tuple[WeighedWord, ...] = ()
    forbidden: tuple[str, ...] = ()
    inside: bool | None = None
    condition: bool | None = None
    scope: bool | None = None
    distance_m: float | None = None
    text: float | None = None
    space: float | None = None
    text_part: float | None = None
    space_part: float | None = None
    score: float | None = None
    threshold: float | None = None
    margin: float | None = None
    weights_version: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as an object for JSON."""
        fields = asdict(self)
        for name in ("shared", "missing"):
            fields[name] = [word._asdict() for word in getattr(self, name)]
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in fields.items()
        }

    def __str__(self) -> str:
        return "\n".join(self.reasons)
