"""A subscription: keywords and a place that someone wants messages about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from nearcast.columns import BOOLEAN, PROXIMITY
from nearcast.errors import InvalidInput, RegionError
from nearcast.model import checks
from nearcast.model import keywords as words
from nearcast.model.close_names import own_names
from nearcast.model.derived import scope_token
from nearcast.model.expressions import Conjunction, parse
from nearcast.model.json_form import (
    place_fields,
    proximity_place,
    read_fields,
    required,
    subscription_region,
    write_time,
)
from nearcast.model.rankings import Overlap, Proximity, ranking_of
from nearcast.model.regions import NO_REACH, Point, Region
from nearcast.model.regions import region as region_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nearcast.model.checks import AnyTime, Id, Time, Tokenize
    from nearcast.model.rankings import Ranking

__all__ = ["Subscription", "region_for"]

_EVERYTHING = (Conjunction(()),)


@dataclass(frozen=True, slots=True, init=False)
class Subscription:
    """Keywords and a region that someone wants messages about.

    Parameters
    ----------
    id
        A non-empty string or a 64-bit integer.
    region
        A `Region`, or anything that `nearcast.region` accepts. With a `Proximity`, a `Point` or
        ``(lon, lat)``; without a ranking anything but a `Point`, which hardly any message is at.
    keywords
        All of these must occur in a message. A keyword of several words requires all of them;
        ``flood*`` requires a word that begins so; a single string is one keyword. With a ranking,
        the score tells how many of them occur.
    expression
        Such as ``coffee AND (latte OR mocha) NOT decaf``; instead of keywords. It may have phrases
        (``"old town"``) and beginnings of words (``flood*``). Without keywords and expression, the
        subscription matches everything in its region. With a ranking, a condition: it decides
        whether a message may match at all, and does not change the score.
    owner
        The name of the owner.
    expires_at
        When it ends: a datetime or date (UTC if it has no time zone), ISO 8601 text, or seconds
        since 1970. None means never.
    ranking
        A `Proximity` or an `Overlap`: matches have scores, and must reach a threshold. None for a
        boolean subscription.
    scope
        The name of its scope, such as a tenant: only messages of the same scope match. Without
        one, messages of all scopes match, and those without.

    Examples
    --------
    >>> from nearcast.model import Rect, Subscription
    >>> berlin = Rect(13.0, 52.3, 13.8, 52.7)
    >>> Subscription("s1", berlin, ["coffee", "cake"]).clauses(str.split)
    (Conjunction(positive=('cake', 'coffee'), negative=()),)
    >>> Subscription("s2", berlin, expression="coffee OR")
    Traceback (most recent call last):
        ...
    nearcast.errors.ExpressionError: expression: OR needs a word or a parenthesis after it
    (at character 8)
      coffee OR
             ^
    """

    id: Id
    region: Region
    keywords: tuple[str, ...] | None
    expression: str | None
    owner: str | None
    expires_at: Time | None
    ranking: Ranking | None
    scope: str | None

    def __init__(
        self,
        id: Id,
        region: Region | Any,
        keywords: str | Sequence[str] | None = None,
        expression: str | None = None,
        owner: str | None = None,
        expires_at: AnyTime | None = None,
        ranking: Ranking | None = None,
        scope: str | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "id", checks.identifier("id", id))
        if not (ranking is None or isinstance(ranking, Proximity | Overlap)):
            problem = "must be a Proximity or an Overlap, or left out"
            raise InvalidInput("ranking", ranking, problem)
        put(self, "region", region_for(BOOLEAN if ranking is None else ranking.kind, region))
        put(self, "keywords", None if keywords is None else words.checked(keywords))
        put(self, "expression", expression)
        put(self, "owner", None if owner is None else checks.name("owner", owner))
        put(
            self,
            "expires_at",
            None if expires_at is None else checks.moment("expires_at", expires_at),
        )
        put(self, "ranking", ranking)
        put(self, "scope", None if scope is None else checks.name("scope", scope))
        if expression is not None:
            if keywords is not None and ranking is None:
                problem = "give either keywords or an expression, not both"
                raise InvalidInput("expression", expression, problem)
            parse(expression, words.literal, condition=ranking is not None)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Return the subscription that a JSON object describes.

        Parameters
        ----------
        fields
            The columns of a file of subscriptions: ``id``; ``keywords`` or ``expression``; ``west,
            south, east, north``, or ``lon, lat, radius_m``, or ``geometry`` (GeoJSON, WKT or WKB);
            optionally ``owner``, ``expires_at`` (ISO 8601 text or seconds since 1970) and
            ``scope``; for ranked ones ``delta, tau, max_distance_m`` with ``lon, lat``, or
            ``alpha, theta`` with a region. Names that are nearly these are recognized, or refused
            with a question; other fields are ignored.

        Examples
        --------
        >>> record = {"id": "s1", "keywords": ["tea"], "lon": 13.4, "lat": 52.5, "radius_m": 500}
        >>> Subscription.from_dict(record).region
        Circle(lon=13.4, lat=52.5, radius_m=500.0)
        """
        given = read_fields(own_names(fields, "subscriptions"), "subscription")
        ranking = ranking_of(given)
        place = proximity_place if isinstance(ranking, Proximity) else subscription_region
        return cls(
            required(given, "id"),
            place(given),
            given.get("keywords"),
            given.get("expression"),
            given.get("owner"),
            given.get("expires_at"),
            ranking,
            given.get("scope"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the subscription as an object for JSON, of which `from_dict` makes the same one.

        Examples
        --------
        >>> from nearcast.model import Rect
        >>> Subscription("s1", Rect(13.0, 52.3, 13.8, 52.7), ["tea"], owner="ann").to_dict()
        {'id': 's1', 'keywords': ['tea'], 'west': 13.0, 'south': 52.3, 'east': 13.8, 'north': 52.7,
         'owner': 'ann'}
        """
        fields: dict[str, Any] = {"id": self.id}
        if self.keywords is not None:
            fields["keywords"] = list(self.keywords)
        if self.expression is not None:
            fields["expression"] = self.expression
        fields |= place_fields(self.region, point=isinstance(self.ranking, Proximity))
        if self.ranking is not None:
            fields |= self.ranking.to_dict()
        if self.owner is not None:
            fields["owner"] = self.owner
        if self.expires_at is not None:
            fields["expires_at"] = write_time(self.expires_at)
        if self.scope is not None:
            fields["scope"] = self.scope
        return fields

    def clauses(self, tokenize: Tokenize) -> tuple[Conjunction, ...]:
        """Return the clauses of which one must be true of the tokens of a message.

        A ranked subscription has one clause, with the tokens that are scored; its expression is
        its `condition`. The scope of a boolean subscription is a token of every clause.

        Parameters
        ----------
        tokenize
            The tokenizer of the messages.
        """
        if self.expression is not None and self.ranking is None:
            return self._scoped(parse(self.expression, tokenize))
        clauses = _EVERYTHING
        if self.keywords is not None:
            scored = self.ranking is not None
            clauses = (words.conjunction(self.keywords, tokenize, scored=scored),)
        return clauses if self.ranking is not None else self._scoped(clauses)

    def condition(self, tokenize: Tokenize) -> tuple[Conjunction, ...] | None:
        """Return the clauses of which one must be true for a ranked match; None if there are none.

        The scope is a token of every clause.

        Examples
        --------
        >>> near = Proximity(0.5, 0.5, max_distance_m=1000)
        >>> tea = Subscription("s1", (0, 0), ["tea"], expression="NOT milk", ranking=near)
        >>> tea.condition(str.split)
        (Conjunction(positive=(), negative=('milk',)),)
        """
        if self.ranking is None or (self.expression is None and self.scope is None):
            return None
        if self.expression is None:
            return self._scoped(_EVERYTHING)
        return self._scoped(parse(self.expression, tokenize, condition=True))

    def _scoped(self, clauses: tuple[Conjunction, ...]) -> tuple[Conjunction, ...]:
        """Return clauses that require the token of the scope as well, if there is one."""
        if self.scope is None:
            return clauses
        token = scope_token(self.scope)
        return tuple(Conjunction((token, *one.positive), one.negative) for one in clauses)

    @property
    def expires_us(self) -> int | None:
        """When it expires, in microseconds since 1970; None means never."""
        return None if self.expires_at is None else checks.time_us("expires_at", self.expires_at)


def region_for(kind: int, place: Any) -> Region:
    """Return the region of a subscription of a kind: a point if it is ranked by distance.

    Examples
    --------
    >>> region_for(PROXIMITY, (13.4, 52.5))
    Point(lon=13.4, lat=52.5)
    """
    if kind == PROXIMITY and isinstance(place, tuple | list) and len(place) == 2:
        return Point(*place)
    found = place if isinstance(place, Region) else region_of(place)
    if kind == PROXIMITY and not isinstance(found, Point):
        problem = "must be a Point or (lon, lat) for a Proximity; max_distance_m says how far"
        raise RegionError("region", place, problem)
    if kind == BOOLEAN and isinstance(found, Point) and not checks.reading_stored():
        raise RegionError("region", place, NO_REACH)
    return found
