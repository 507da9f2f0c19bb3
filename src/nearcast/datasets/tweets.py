"""``tweets``: generated data like the TWEETS data set of the five papers.

A Zipf vocabulary of a million tokens, locations clustered in cities, and messages about a topic. A
subscription has one to five keywords of such a message and a box around its location that covers
0.01 to 1 % of the world.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import starts
from nearcast.datasets.draw import first_distinct, hash_to_uniform, zipf
from nearcast.datasets.invented_words import invented_words
from nearcast.datasets.source import Locations, Profile, Source

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Tweets", "TweetsProfile"]

_TOPIC_TOKENS = 40
"""Tokens per topic: a long text has several topics."""

_CHUNK = 500_000
"""The number of texts that are drawn at a time."""


@dataclass(frozen=True)
class TweetsProfile(Profile):
    """The parameters of ``tweets``.

    Parameters
    ----------
    vocabulary
        Number of tokens.
    head
        How flat the start of the Zipf distribution is: token ``i`` has the weight
        ``1 / (i + head)``.
    topics, topic_head, topic_words, topic_share
        Number of topics, how flat the start of their Zipf distribution is, words per topic, and
        the share of a message's tokens that come from its topic.
    cities, city_deg, background
        Number of clusters of locations, their width, and the share of locations outside them.
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
    """Short messages about topics, clustered in cities."""

    summary = "a million Zipf tokens, topics, clustered locations; as in the papers"
    default = TweetsProfile()
    keeps_token_order = False
    profile: TweetsProfile

    def __init__(self, seed: int, profile: TweetsProfile) -> None:
        super().__init__(seed, profile)
        rng = np.random.default_rng([seed, 0])
        lon = rng.uniform(-180, 180, profile.cities)
        lat = np.degrees(np.arcsin(rng.uniform(-0.82, 0.94, profile.cities)))
        self._city = np.stack([lon, lat], axis=1)

    def locations(self, rng: np.random.Generator, count: int) -> Locations:
        """Draw locations; large cities are drawn more often (Zipf)."""
        profile = self.profile
        city = zipf(rng.random(count), profile.cities, 5.0)
        spread = rng.standard_normal((count, 2)) * profile.city_deg
        point = self._city[city] + spread
        outside = rng.random(count) < profile.background
        point[outside] = rng.uniform((-180, -60), (180, 75), (int(outside.sum()), 2))
        lon = (point[:, 0] + 180) % 360 - 180
        return Locations(lon, np.clip(point[:, 1], -89, 89), city)

    def message_tokens(
        self, rng: np.random.Generator, length: NDArray[Any], locations: Locations
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw texts of ``length[i]`` distinct tokens, most of them from the topics of the text."""
        parts = np.array_split(length, len(length) // _CHUNK + 1)
        drawn = [self._texts(rng, part) for part in parts]
        length = np.concatenate([np.diff(start) for start, _ in drawn])
        return starts(length), np.concatenate([token for _, token in drawn])

    def keyword_tokens(
        self, rng: np.random.Generator, length: NDArray[Any], locations: Locations
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw keywords from the same distribution as the tokens of messages."""
        return self.message_tokens(rng, length, locations)

    def _texts(
        self, rng: np.random.Generator, length: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw more tokens than needed and keep the first distinct tokens of each text."""
        profile = self.profile
        start = starts(2 * length + 3)
        row = np.repeat(np.arange(len(length)), np.diff(start))
        topic_start = starts(np.diff(start) // _TOPIC_TOKENS + 1)
        topic = zipf(rng.random(int(topic_start[-1])), profile.topics, profile.topic_head)
        topic_of_token = topic_start[row] + (np.arange(len(row)) - start[row]) // _TOPIC_TOKENS
        word = zipf(rng.random(len(row)), profile.topic_words, 2.0)
        uniform = rng.random(len(row))
        topical = rng.random(len(row)) < profile.topic_share
        number = profile.topic_words * topic[topic_of_token[topical]] + word[topical]
        uniform[topical] = hash_to_uniform(number.astype(np.uint64))
        token = zipf(uniform, profile.vocabulary, profile.head)
        return first_distinct(start, token, length)

    def sides(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw sides uniformly between those of the smallest and the largest area."""
        smallest, largest = np.sqrt(self.profile.box_share)
        return rng.uniform(smallest, largest, count)

    def words(self) -> pa.StringArray:
        """Return invented words; frequent tokens have shorter words."""
        return _words(self.profile.vocabulary)


@cache
def _words(count: int) -> pa.StringArray:
    return invented_words(count)
