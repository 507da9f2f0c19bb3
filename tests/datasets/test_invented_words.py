"""Invented words: distinct, readable, stable."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.datasets.invented_words import MAX_WORDS, invented_words
from nearcast.errors import InvalidInput


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 30_000))
def test_words_are_distinct_and_a_larger_count_only_appends(count: int) -> None:
    some = invented_words(count).to_pylist()
    assert len(some) == len(set(some)) == count
    assert invented_words(count + 7).to_pylist()[:count] == some


def test_words_are_pronounceable_and_short() -> None:
    all_words = invented_words(1_000_000).to_pylist()
    assert len(set(all_words)) == 1_000_000
    assert {len(word) for word in all_words} == {4, 6}
    assert all(word[1::2].strip("aeiou") == "" for word in all_words[::997])


@pytest.mark.parametrize("count", [-1, MAX_WORDS + 1])
def test_invalid_counts_are_rejected(count: int) -> None:
    with pytest.raises(InvalidInput, match="count"):
        invented_words(count)
