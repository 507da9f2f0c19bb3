"""A subscription: what someone wants to hear about, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nearcast.errors import InvalidInput
from nearcast.model import checks
from nearcast.model import keywords as words
from nearcast.model.expressions import Conjunction, parse
from nearcast.model.regions import Region
from nearcast.model.regions import region as region_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nearcast.model.checks import Id, Time, Tokenize

__all__ = ["Subscription"]

_EVERYTHING = (Conjunction(()),)


@dataclass(frozen=True, slots=True, init=False)
class Subscription:
    """What someone wants to hear about, and where.

    Parameters
    ----------
    id
        A string that is not empty, or an integer of 64 bits; it comes back as given.
    region
        A `Region`, or anything that `nearcast.region` takes.
    keywords
        All of these must occur in a message. One that consists of several words asks for all of
        them; a single string is one keyword.
    expression
        Such as ``coffee AND (latte OR mocha) NOT decaf``; instead of keywords. Without either, the
        subscription matches everything in its region.
    owner
        Whose subscription it is.
    expires_at
        When it ends: a datetime (naive ones are UTC) or seconds since 1970. None means never.

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
    (at character 7)
      coffee OR
             ^
    """

    id: Id
    region: Region
    keywords: tuple[str, ...] | None
    expression: str | None
    owner: str | None
    expires_at: Time | None

    def __init__(
        self,
        id: Id,
        region: Region | Any,
        keywords: str | Sequence[str] | None = None,
        expression: str | None = None,
        owner: str | None = None,
        expires_at: Time | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "id", checks.identifier("id", id))
        put(self, "region", region if isinstance(region, Region) else region_of(region))
        put(self, "keywords", None if keywords is None else words.checked(keywords))
        put(self, "expression", expression)
        put(self, "owner", None if owner is None else checks.name("owner", owner))
        put(self, "expires_at", expires_at)
        if expression is not None:
            if keywords is not None:
                problem = "give either keywords or an expression, not both"
                raise InvalidInput("expression", expression, problem)
            parse(expression, words.literal)
        if expires_at is not None:
            checks.time_us("expires_at", expires_at)

    def clauses(self, tokenize: Tokenize) -> tuple[Conjunction, ...]:
        """Return what must be true of a message's tokens: one of these clauses.

        Parameters
        ----------
        tokenize
            The tokenizer that messages go through too.
        """
        if self.expression is not None:
            return parse(self.expression, tokenize)
        if self.keywords is not None:
            return (words.conjunction(self.keywords, tokenize),)
        return _EVERYTHING

    @property
    def expires_us(self) -> int | None:
        """When it ends, in microseconds since 1970; None means never."""
        return None if self.expires_at is None else checks.time_us("expires_at", self.expires_at)
