"""Workloads: subscriptions and messages drawn from a seed, as in the papers' experiments.

A workload consists of columns of token ids: a benchmark over ten million subscriptions needs no
strings. `nearcast.datasets.tables` replaces the ids by words, for files. The data sets are in
`nearcast.datasets.tweets` and `nearcast.datasets.places`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import (
    KINDS,
    PROXIMITY,
    Clauses,
    Messages,
    Ranked,
    Rankings,
    Scoring,
    Shapes,
)
from nearcast.datasets.draw import boxes
from nearcast.datasets.places import Places
from nearcast.datasets.tweets import Tweets
from nearcast.errors import InvalidInput, UnknownName
from nearcast.intake.places import unite_meridian

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from nearcast.datasets.source import Source

__all__ = ["DATASETS", "Workload"]

DATASETS: dict[str, type[Source]] = {"places": Places, "tweets": Tweets}
"""The data sets by name."""


class Workload:
    """Subscriptions and messages of one data set, drawn from a seed.

    The same seed gives the same rows, whatever was drawn before: each call uses its own random
    generator.

    Parameters
    ----------
    dataset
        ``tweets`` or ``places``.
    seed
        A whole number of at least 0.
    changes
        Parameters of the data set's profile to change, such as ``keywords=(1, 3)``.

    Examples
    --------
    >>> tweets = Workload("tweets", seed=7)
    >>> clauses, messages = tweets.subscriptions(1000), tweets.messages(100)
    >>> len(clauses), len(messages)
    (1000, 100)
    """

    def __init__(self, dataset: str, seed: int = 0, **changes: Any) -> None:
        if dataset not in DATASETS:
            raise UnknownName("dataset", dataset, DATASETS)
        if seed < 0:
            raise InvalidInput("seed", seed, "must be at least 0")
        kind = DATASETS[dataset]
        valid = [field.name for field in fields(kind.default)]
        for name in changes:
            if name not in valid:
                raise UnknownName("option", name, valid, of=dataset)
        self.dataset = dataset
        self.seed = seed
        self.profile = replace(kind.default, **changes)
        self.source = kind(seed, self.profile)

    def subscriptions(self, count: int, *, first: int = 0) -> Clauses:
        """Return drawn subscriptions: some tokens of a message, and a box around its location.

        Parameters
        ----------
        count
            How many.
        first
            A different number gives different rows.

        Examples
        --------
        >>> len(Workload("tweets", seed=7).subscriptions(100))
        100
        """
        rng = np.random.default_rng([self.seed, 1, first])
        locations = self.source.locations(rng, count)
        minimum, maximum = self.profile.keywords
        length = rng.integers(minimum, maximum + 1, count)
        token_start, token = self.source.keyword_tokens(rng, length, locations)
        side = self.source.sides(rng, count)
        return Clauses(
            token_start=token_start,
            token=token,
            negative_start=np.zeros(count + 1, np.int64),
            negative=np.empty(0, np.int32),
            box=boxes(locations.lon, locations.lat, side * 360, side * 180),
            row=np.arange(count, dtype=np.int32),
            shape=np.full(count, -1, np.int32),
            shapes=Shapes.empty(),
            subscriptions=count,
        )

    def ranked(
        self,
        count: int,
        kind: str = "proximity",
        *,
        text_share: tuple[float, float] = (0.0, 1.0),
        threshold: tuple[float, float] = (0.5, 1.0),
        max_distance_m: tuple[float, float] = (100_000.0, 100_000.0),
        scoring: Scoring | None = None,
        first: int = 0,
    ) -> Ranked:
        """Draw ranked subscriptions: the same tokens and places as `subscriptions`.

        Parameters
        ----------
        count, first
            As for `subscriptions`.
        kind
            ``proximity`` (the place is the center of the box) or ``overlap`` (the box).
        text_share, threshold
            The ranges of p (delta, or 1 - alpha) and q (tau, or theta), drawn uniformly; the
            defaults are those of the papers.
        max_distance_m
            The range of the largest distance, drawn uniformly on a logarithmic scale.
        scoring
            The similarity and the distance. Weights are those of all subscriptions together.

        Examples
        --------
        >>> near = Workload("tweets", seed=7).ranked(1000)
        >>> len(near), int(near.rankings.max_distance_cm.max())
        (1000, 10000000)
        """
        rng = np.random.default_rng([self.seed, 3, first])
        clauses = self.subscriptions(count, first=first)
        nearest, farthest = np.log(max_distance_m).tolist()
        distance_m = np.exp(rng.uniform(nearest, farthest, count)) * (kind == "proximity")
        rankings = Rankings.of(
            kind,
            count,
            p=rng.uniform(*text_share, count),
            q=rng.uniform(*threshold, count),
            max_distance_m=distance_m,
        )
        if kind == "proximity":
            box = clauses.box.astype(np.int64)
            place = (box[:, :2] + box[:, 2:]) // 2
            clauses = replace(clauses, box=np.concatenate([place, place], axis=1))
        frequency = np.maximum(np.bincount(clauses.token), 1)
        return Ranked(
            clauses=clauses,
            rankings=rankings,
            weight=np.log1p(count / frequency),
            unknown_weight=float(np.log1p(count)),
            scoring=scoring or Scoring(),
        )

    def mixed(
        self,
        count: int,
        *,
        proximity: Mapping[str, Any] = MappingProxyType({}),
        overlap: Mapping[str, Any] = MappingProxyType({}),
        first: int = 0,
    ) -> Ranked:
        """Draw boolean, proximity and overlap subscriptions in turn, a third each.

        Parameters
        ----------
        count, first
            As for `subscriptions`.
        proximity, overlap
            The ranges of each ranked kind: arguments of `ranked`.

        Examples
        --------
        >>> Workload("tweets", seed=7).mixed(4).rankings.kind.tolist()
        [0, 1, 2, 0]
        """
        near = self.ranked(count, "proximity", first=first, **proximity)
        cover = self.ranked(count, "overlap", first=first, **overlap)
        kind = (first + np.arange(count)) % len(KINDS)
        kinds = (Rankings.boolean(count), near.rankings, cover.rankings)

        def column(name: str) -> NDArray[Any]:
            chosen: NDArray[Any] = np.choose(kind, [getattr(one, name) for one in kinds])
            return chosen

        box = np.where((kind == PROXIMITY)[:, None], near.clauses.box, cover.clauses.box)
        return replace(
            near,
            clauses=replace(near.clauses, box=box),
            rankings=Rankings(
                kind=kind.astype(np.uint8),
                text_share=column("text_share"),
                threshold=column("threshold"),
                max_distance_cm=column("max_distance_cm"),
            ),
        )

    def messages(
        self,
        count: int,
        *,
        tokens: tuple[int, int] | None = None,
        range_share: float = 0.0,
        first: int = 0,
    ) -> Messages:
        """Return drawn messages.

        Parameters
        ----------
        count
            How many.
        tokens
            The least and the largest number of tokens; those of the data set if left out.
        range_share
            If it is above 0, messages are boxes of up to that share of the world.
        first
            A different number gives different rows.

        Examples
        --------
        >>> len(Workload("tweets", seed=7).messages(100, tokens=(5, 10)))
        100
        """
        minimum, maximum = tokens or self.profile.message_tokens
        if not 1 <= minimum <= maximum:
            problem = "must be two whole numbers, 1 <= minimum <= maximum"
            raise InvalidInput("tokens", tokens, problem)
        if not 0 <= range_share <= 1:
            raise InvalidInput("range_share", range_share, "must be from 0 to 1")
        rng = np.random.default_rng([self.seed, 2, first])
        locations = self.source.locations(rng, count)
        length = rng.integers(minimum, maximum + 1, count)
        token_start, token = self.source.message_tokens(rng, length, locations)
        side = rng.uniform(0, np.sqrt(range_share), count)
        box = unite_meridian(boxes(locations.lon, locations.lat, side * 360, side * 180))
        no_time = np.zeros(count, np.int64)
        return Messages(token_start, token, box, no_time, no_time)

    def words(self) -> pa.StringArray:
        """Return the word of each token id.

        Examples
        --------
        >>> Workload("tweets").words()[1_000].as_py()
        'yaba'
        """
        return self.source.words()
