"""Clauses of words only, against the same done clause by clause with sets of words."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nearcast.columns import Clauses
from nearcast.segments import has_derived, word_clauses
from nearcast.text import Vocabulary

WORDS = ["old", "town", "hall", "tea"]
PHRASES = {"\x1fold\x1ftown": ["old", "town"], "\x1ftown\x1fhall\x1ftown": ["town", "hall"]}
BEGINNINGS = ["\x1efl", "\x1eto"]
DERIVED = {*PHRASES, *BEGINNINGS}
ALL = [*WORDS, *PHRASES, *BEGINNINGS]
VOCABULARY = Vocabulary(ALL)
ID = {word: VOCABULARY.add([word])[0] for word in ALL}
SOME = st.lists(st.sampled_from(ALL), max_size=4, unique=True)


def ids(words: list[str]) -> list[int]:
    return [int(ID[word]) for word in words]


def names(start: list[int], token: list[int]) -> list[set[str]]:
    word = {number: name for name, number in ID.items()}
    return [{word[t] for t in token[a:b]} for a, b in pairwise(start)]


@given(st.lists(st.tuples(SOME, SOME), min_size=1, max_size=5))
def test_phrases_become_words_and_the_rest_of_what_is_derived_is_left_out(
    wanted: list[tuple[list[str], list[str]]],
) -> None:
    clauses = Clauses.of(
        [ids(required) for required, _ in wanted],
        [[0, 0, 9, 9]] * len(wanted),
        negatives=[ids(excluded) for _, excluded in wanted],
    )
    made = word_clauses(clauses, VOCABULARY)
    required = [
        {word for one in words for word in PHRASES.get(one, [one])} - {*BEGINNINGS}
        for words, _ in wanted
    ]
    assert names(made.token_start.tolist(), made.token.tolist()) == required
    assert len(made.token) == sum(map(len, required)), "each word once"
    excluded = [{*words} - DERIVED for _, words in wanted]
    assert names(made.negative_start.tolist(), made.negative.tolist()) == excluded
    derived = [bool(DERIVED & {*required, *excluded}) for required, excluded in wanted]
    assert has_derived(clauses, VOCABULARY).tolist() == derived


def test_clauses_of_words_stay_as_they_are() -> None:
    clauses = Clauses.of([ids(["tea"])], [[0, 0, 9, 9]], negatives=[ids(["old"])])
    assert word_clauses(clauses, VOCABULARY) is clauses
    plain = Vocabulary(["tea", "old"])
    few = Clauses.of([[0]], [[0, 0, 9, 9]], negatives=[[1]])
    assert word_clauses(few, plain) is few
    assert not has_derived(few, plain).any()


def test_rows_with_several_clauses_are_found_by_any_of_them() -> None:
    clauses = Clauses.of(
        [ids(["tea"]), ids(["\x1efl"]), ids(["hall"])], [[0, 0, 9, 9]] * 3, row=[0, 0, 1]
    )
    assert np.array_equal(has_derived(clauses, VOCABULARY), [True, False])
