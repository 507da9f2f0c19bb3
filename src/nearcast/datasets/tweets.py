"""``tweets``: the TWEETS data of the five papers, made instead of collected.

A Zipf vocabulary of a million tokens, places clustered in cities, messages about a topic, and
subscriptions of one to five keywords taken out of such a message, in a box of 0.01 to 1 % of the
space around its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import starts
from nearcast.datasets.draw import first_distinct, hash01, zipf
from nearcast.datasets.invented_words import invented_words
from nearcast.datasets.source import Profile, Somewhere, Source

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Tweets", "TweetsProfile"]

_TOPIC_TOKENS = 40
"""A long text has several topics, one for this number of tokens."""

_PART = 500_000
"""So many texts are drawn at a time."""


@dataclass(frozen=True)
class TweetsProfile(Profile):
    """The numbers of ``tweets``.

    Parameters
    ----------
    vocabulary
        How many tokens there are.
    head
        How flat the head of the Zipf law is: token ``i`` has a weight of ``1 / (i + head)``.
    topics, topic_head, topic_words, topic_share
        How many topics there are, how flat the head of their Zipf law is, how many words each
        has, and the share of a message's tokens that comes from its topic.
    cities, city_deg, background
        How many clusters of places there are, how wide, and the share of places outside of them.
    """

    message_tokens: tuple[int, int] = (6, 20)
    keywords: tuple[int, int] = (1, 5)
    box_share: tuple[float, float] = (0.0001, 0.01)
    vocabulary: int = 1_000_000
    head: float = 18.0
    topics: int = 5_000
    topic_head: float = 3.0
    topic_words: int = 30
    topic_share: float = 0.7
    cities: int = 2_000
    city_deg: float = 0.5
    background: float = 0.1


class Tweets(Source):
    """Short messages about topics, wherever people live."""

    summary = "a million Zipf tokens, topics, clustered places; as in the papers"
    default = TweetsProfile()
    in_order = False
    profile: TweetsProfile

    def __init__(self, seed: int, profile: TweetsProfile) -> None:
        super().__init__(seed, profile)
        rng = np.random.default_rng([seed, 0])
        lon = rng.uniform(-180, 180, profile.cities)
        lat = np.degrees(np.arcsin(rng.uniform(-0.82, 0.94, profile.cities)))
        self._city = np.stack([lon, lat], axis=1)

    def places(self, rng: np.random.Generator, count: int) -> Somewhere:
        """Draw places; large cities are drawn more often (Zipf)."""
        profile = self.profile
        city = zipf(rng.random(count), profile.cities, 5.0)
        spread = rng.standard_normal((count, 2)) * profile.city_deg
        place = self._city[city] + spread
        outside = rng.random(count) < profile.background
        place[outside] = rng.uniform((-180, -60), (180, 75), (int(outside.sum()), 2))
        lon = (place[:, 0] + 180) % 360 - 180
        return Somewhere(lon, np.clip(place[:, 1], -89, 89), city)

    def message_tokens(
        self, rng: np.random.Generator, length: NDArray[Any], at: Somewhere
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw texts of as many distinct tokens, most of them from the topics of the text."""
        parts = np.array_split(length, len(length) // _PART + 1)
        drawn = [self._texts(rng, part) for part in parts]
        length = np.concatenate([np.diff(start) for start, _ in drawn])
        return starts(length), np.concatenate([token for _, token in drawn])

    def keyword_tokens(
        self, rng: np.random.Generator, length: NDArray[Any], at: Somewhere
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw keywords as tokens are: one is as likely as the other."""
        return self.message_tokens(rng, length, at)

    def _texts(
        self, rng: np.random.Generator, length: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw more tokens than needed and keep the first distinct ones of each text."""
        profile = self.profile
        start = starts(2 * length + 3)
        row = np.repeat(np.arange(len(length)), np.diff(start))
        topic_start = starts(np.diff(start) // _TOPIC_TOKENS + 1)
        topic = zipf(rng.random(int(topic_start[-1])), profile.topics, profile.topic_head)
        of_text = topic_start[row] + (np.arange(len(row)) - start[row]) // _TOPIC_TOKENS
        word = zipf(rng.random(len(row)), profile.topic_words, 2.0)
        uniform = rng.random(len(row))
        topical = rng.random(len(row)) < profile.topic_share
        number = profile.topic_words * topic[of_text[topical]] + word[topical]
        uniform[topical] = hash01(number.astype(np.uint64))
        token = zipf(uniform, profile.vocabulary, profile.head)
        return first_distinct(start, token, length)

    def sides(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw sides evenly between those of the least and the most area."""
        least, most = np.sqrt(self.profile.box_share)
        return rng.uniform(least, most, count)

    def words(self) -> pa.StringArray:
        """Return invented words, the shortest for the most frequent tokens."""
        return _words(self.profile.vocabulary)


@cache
def _words(count: int) -> pa.StringArray:
    return invented_words(count)
