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

from nearcast.bench.draw import distinct, hash01, zipf
from nearcast.bench.source import Profile, Somewhere, Source
from nearcast.bench.words import invented_words

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Tweets", "TweetsProfile"]


@dataclass(frozen=True)
class TweetsProfile(Profile):
    """The numbers of ``tweets``.

    Parameters
    ----------
    vocabulary
        How many tokens there are.
    head
        How flat the head of the Zipf law is: token ``i`` has a weight of ``1 / (i + head)``.
    topics, topic_words, topic_share
        How many topics there are, of how many words each, and the share of a message's tokens
        that comes from its topic.
    cities, city_deg, background
        How many clusters of places there are, how wide, and the share of places outside of them.
    """

    message_tokens: tuple[int, int] = (6, 20)
    keywords: tuple[int, int] = (1, 5)
    box_share: tuple[float, float] = (0.0001, 0.01)
    vocabulary: int = 1_000_000
    head: float = 16.0
    topics: int = 5_000
    topic_words: int = 16
    topic_share: float = 0.75
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
        """Draw tokens, most of them from the topic of the text."""
        profile = self.profile
        count, total = len(length), int(length.sum())
        row = np.repeat(np.arange(count, dtype=np.uint64), length)
        topic = zipf(rng.random(count), profile.topics, 3.0).astype(np.uint64)
        word = zipf(rng.random(total), profile.topic_words, 2.0).astype(np.uint64)
        uniform = rng.random(total)
        of_topic = rng.random(total) < profile.topic_share
        seed = np.uint64(profile.topic_words) * topic[row[of_topic]] + word[of_topic]
        uniform[of_topic] = hash01(seed)
        token = zipf(uniform, profile.vocabulary, profile.head).astype(np.uint64)
        return distinct(row, token, count)

    def keyword_tokens(
        self, rng: np.random.Generator, length: NDArray[Any], at: Somewhere
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw keywords as tokens are: one is as likely as the other."""
        return self.message_tokens(rng, length, at)

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
