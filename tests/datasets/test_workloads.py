"""Workloads: rows depend only on the seed, and follow the intended distributions."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.columns import UNITS, WORLD, Clauses, Messages
from nearcast.datasets import DATASETS, Workload
from nearcast.datasets.places import gazetteer
from nearcast.errors import InvalidInput, UnknownName
from nearcast.text import words

datasets = pytest.mark.parametrize("dataset", sorted(DATASETS))


def digest(columns: Clauses | Messages) -> str:
    checksum = hashlib.sha256()
    for array in (columns.token_start, columns.token, columns.box):
        checksum.update(array.tobytes())
    return checksum.hexdigest()


@datasets
def test_the_same_seed_gives_the_same_rows_whatever_was_drawn_before(dataset: str) -> None:
    one, other = Workload(dataset, seed=7), Workload(dataset, seed=7)
    other.messages(50)
    assert digest(one.subscriptions(300)) == digest(other.subscriptions(300))
    assert digest(one.messages(200)) == digest(other.messages(200))
    assert digest(one.messages(200)) != digest(Workload(dataset, seed=8).messages(200))
    assert digest(one.messages(200)) != digest(one.messages(200, first=200))


def test_tweets_do_not_change() -> None:
    tweets = Workload("tweets", seed=7)
    drawn = tweets.subscriptions(5000, first=3)
    messages = tweets.messages(500, tokens=(3, 9), range_share=0.01)
    checksum = hashlib.sha256()
    for columns in (drawn, messages):
        for array in (columns.token_start, columns.token, columns.box):
            checksum.update(array.tobytes())
    assert checksum.hexdigest().startswith("18a123973ed399e1")


@datasets
@settings(max_examples=examples(20), deadline=None)
@given(
    seed=st.integers(0, 2**40),
    count=st.integers(0, 60),
    tokens=st.tuples(st.integers(1, 5), st.integers(5, 40)),
    range_share=st.sampled_from([0.0, 1e-6, 0.01, 1.0]),
)
def test_rows_are_well_formed(
    dataset: str, seed: int, count: int, tokens: tuple[int, int], range_share: float
) -> None:
    workload = Workload(dataset, seed=seed)
    clauses = workload.subscriptions(count)
    messages = workload.messages(count, tokens=tokens, range_share=range_share)
    assert len(clauses) == len(messages) == count
    for columns, max_tokens in ((clauses, workload.profile.keywords[1]), (messages, tokens[1])):
        length = np.diff(columns.token_start)
        assert ((length >= 1) & (length <= max_tokens)).all()
        assert (columns.token >= 0).all()
        assert (columns.token < len(workload.words())).all()
        west, south, east, north = columns.box.T
        crossing = (west == WORLD[2]) | (east == WORLD[0])
        assert ((west <= east) | crossing).all()
        assert (south <= north).all()
        assert (columns.box >= WORLD[:2] * 2).all()
        assert (columns.box <= WORLD[2:] * 2).all()
    inside = np.ones(len(messages.token), np.bool_)
    inside[messages.token_start[:-1][np.diff(messages.token_start) > 0]] = False
    assert (np.diff(messages.token, prepend=0)[inside] > 0).all()
    is_point = (messages.box[:, :2] == messages.box[:, 2:]).all()
    assert is_point == (range_share == 0.0 or count == 0)


def test_tweets_are_zipf_and_clustered() -> None:
    tweets = Workload("tweets", seed=1)
    messages, clauses = tweets.messages(5_000), tweets.subscriptions(5_000)
    length = np.diff(messages.token_start)
    assert (length.min(), length.max()) == (6, 20)
    assert np.bincount(np.diff(clauses.token_start))[1:].min() > 900
    frequency = np.sort(np.bincount(messages.token))[::-1]
    assert frequency[:100].sum() > 0.15 * frequency.sum()
    assert (frequency == 1).sum() > 3_000
    cell = np.floor(messages.box[:, :2] / UNITS / 5)
    _, per_cell = np.unique(cell, axis=0, return_counts=True)
    assert np.sort(per_cell)[::-1][:20].sum() > 0.2 * len(messages)
    area = np.prod((clauses.box[:, 2:] - clauses.box[:, :2]) / UNITS, axis=1) / (360 * 180)
    assert 0.9e-4 < area.min() < 5e-4
    assert 0.005 < area.max() < 0.0101


def test_messages_near_each_other_share_rare_tokens_in_places() -> None:
    places = Workload("places", seed=1)
    messages = places.messages(20_000)
    frequency = np.bincount(messages.token)
    rare = (frequency > 1) & (frequency < 10)
    row = np.repeat(np.arange(len(messages)), np.diff(messages.token_start))
    spans = []
    for token in np.flatnonzero(rare)[::20]:
        lat = messages.box[row[messages.token == token], 1] / UNITS
        spans.append(float(np.ptp(lat)))
    lat = messages.box[:, 1] / UNITS
    typical_distance = np.median(np.abs(lat[1:] - lat[:-1]))
    assert np.mean(np.array(spans) < 0.5) > 0.2
    assert typical_distance > 5


def test_places_are_near_cities() -> None:
    messages = Workload("places", seed=2).messages(2_000)
    cities = gazetteer()
    near = [
        np.min(np.hypot(cities.lon - lon, cities.lat - lat)) < 0.5
        for lon, lat in messages.box[:200, :2] / UNITS
    ]
    assert np.mean(near) > 0.9
    assert (cities.population[:-1] >= cities.population[1:]).all()


@datasets
def test_words_are_distinct_and_unchanged_by_the_tokenizer(dataset: str) -> None:
    all_words = Workload(dataset).words().to_pylist()
    assert len(set(all_words)) == len(all_words)
    for word in [*all_words[:500], *all_words[-500:], *all_words[:: len(all_words) // 500]]:
        assert words(word) == [word]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"keywords": (0, 3)}, InvalidInput),
        ({"keywords": (4, 3)}, InvalidInput),
        ({"box_share": (0.5, 0.1)}, InvalidInput),
        ({"box_share": (0.0, 1.5)}, InvalidInput),
        ({"words": 3}, UnknownName),
    ],
)
@datasets
def test_invalid_profiles_are_rejected(
    dataset: str, changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=next(iter(changes))):
        Workload(dataset, **changes)


def test_unknown_datasets_and_invalid_numbers_are_rejected() -> None:
    with pytest.raises(UnknownName, match=r"'songs'; choose from: places, tweets"):
        Workload("songs")
    with pytest.raises(InvalidInput, match="seed"):
        Workload("tweets", seed=-1)
    with pytest.raises(InvalidInput, match="tokens"):
        Workload("tweets").messages(1, tokens=(3, 2))
    with pytest.raises(InvalidInput, match="range_share"):
        Workload("tweets").messages(1, range_share=2.0)
