"""The vocabulary against a plain dict."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.columns import read_only
from nearcast.compiled.jit import JIT
from nearcast.errors import InvalidInput, StorageError
from nearcast.model.derived import PHRASE, PREFIX
from nearcast.text import Vocabulary
from nearcast.text.byte_table import MAX_KEY_BYTES, Keys

# Phrases bring their words with them: tests/text/test_derived.py.
LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters=PHRASE + PREFIX)
TOKENS = st.lists(st.text(LETTERS, min_size=1, max_size=4), max_size=30)


@settings(deadline=None)
@given(st.lists(TOKENS, max_size=5), TOKENS)
def test_ids_are_those_of_a_dict(batches: list[list[str]], others: list[str]) -> None:
    expected: dict[str, int] = {}
    vocabulary = Vocabulary()
    for batch in batches:
        ids = vocabulary.add(batch)
        for token in batch:
            expected.setdefault(token, len(expected))
        assert ids.tolist() == [expected[t] for t in batch]
        assert len(vocabulary) == len(expected)
    assert vocabulary.ids_of(others).tolist() == [expected.get(t, -1) for t in others]
    assert vocabulary.tokens().to_pylist() == list(expected)
    assert [vocabulary.token(i) for i in range(len(expected))] == list(expected)


@settings(deadline=None, max_examples=examples(30))
@given(TOKENS, TOKENS)
def test_round_trips_can_be_added_to(first: list[str], second: list[str]) -> None:
    vocabulary = Vocabulary(first)
    vocabulary.count(vocabulary.ids_of(first))
    whole = Vocabulary(first + second)
    stored = vocabulary.arrays()
    for copy in (Vocabulary.from_arrays(stored), pickle.loads(pickle.dumps(vocabulary))):
        assert copy.tokens().equals(vocabulary.tokens())
        assert copy.frequency.tolist() == vocabulary.frequency.tolist()
        copy.add(second)
        assert copy.tokens().equals(whole.tokens())
        assert copy.ids_of(first + second).tolist() == whole.ids_of(first + second).tolist()
        assert copy.frequency.sum() == len(first)
    assert vocabulary.tokens().to_pylist() == list(dict.fromkeys(first))


def test_stored_arrays_do_not_change_with_the_vocabulary() -> None:
    vocabulary = Vocabulary("abcdefghi")
    stored = vocabulary.arrays()
    vocabulary.add(["x"])  # the arrays have the capacity for it
    vocabulary.count([0])
    copy = Vocabulary.from_arrays(stored)
    assert copy.ids_of(["a", "b", "x"]).tolist() == [0, 1, -1]
    assert copy.frequency.tolist() == [0] * 9


def test_frequency_follows_growth() -> None:
    vocabulary = Vocabulary(["a", "b"])
    vocabulary.count([1, 1, 0])
    vocabulary.add([f"t{i}" for i in range(1000)])
    vocabulary.count([1001])
    assert vocabulary.frequency[[0, 1, 2, 1001]].tolist() == [1, 2, 0, 1]
    assert len(vocabulary.frequency) == 1002
    with pytest.raises(ValueError, match="read-only"):
        vocabulary.frequency[0] = 5


@pytest.mark.parametrize("ids", [[-1], [2], [0, 99]])
def test_counting_unknown_ids_is_refused(ids: list[int]) -> None:
    with pytest.raises(InvalidInput, match="ids: must be token ids from 0 to 1"):
        Vocabulary(["a", "b"]).count(np.array(ids))


def test_an_empty_vocabulary_knows_nothing() -> None:
    vocabulary = Vocabulary()
    assert len(vocabulary) == 0
    assert vocabulary.id_of("a") == -1
    assert "a" not in vocabulary
    assert vocabulary.tokens().to_pylist() == []
    assert vocabulary.ids_of([]).tolist() == []
    assert Vocabulary.from_arrays(vocabulary.arrays()).id_of("a") == -1


@pytest.mark.parametrize("token", ["", "\ud800", 5, None])
def test_what_is_no_token_is_refused(token: str) -> None:
    vocabulary = Vocabulary(["a"])
    with pytest.raises(InvalidInput, match="token: must"):
        vocabulary.add(["b", token])
    assert len(vocabulary) == 1


def test_a_token_of_16_megabytes_is_refused() -> None:
    size = MAX_KEY_BYTES + 1
    byte = read_only(np.full(size, ord("x")), np.uint8)
    keys = Keys(read_only([0, size], np.int64), byte, read_only([5], np.uint32))
    with pytest.raises(InvalidInput, match=r"must have 1 to 16777215 bytes, has 16777216 .*'xxx"):
        Vocabulary().add_keys(keys)
    assert Vocabulary(["x"]).ids_of_keys(keys).tolist() == [-1]


@pytest.mark.parametrize("number", [-1, 2])
def test_unknown_numbers_have_no_token(number: int) -> None:
    with pytest.raises(InvalidInput, match="must be a token id below 2"):
        Vocabulary(["a", "b"]).token(number)


@pytest.mark.parametrize("name", ["slot", "span", "key", "frequency"])
def test_damaged_arrays_are_refused(name: str) -> None:
    good = Vocabulary(["a", "bc", "d"]).arrays()
    with pytest.raises(StorageError, match=f"array '{name}' is missing"):
        Vocabulary.from_arrays({k: v for k, v in good.items() if k != name})
    with pytest.raises(StorageError, match="do not belong together"):
        Vocabulary.from_arrays({**good, name: good[name][:0]})
    if name in {"slot", "span"}:
        with pytest.raises(StorageError, match="do not belong together"):
            Vocabulary.from_arrays({**good, name: np.where(good[name] > 0, good[name] + 1, 0)})


def test_readers_are_right_while_one_thread_adds() -> None:
    count = 20_000 if JIT else 300
    tokens = [f"token{i}" for i in range(count)]
    vocabulary = Vocabulary()
    wrong: list[int] = []
    done = threading.Event()

    def read() -> None:
        expected = np.arange(count)
        while not done.is_set():
            known = len(vocabulary)
            ids = vocabulary.ids_of(tokens)
            wrong.extend(np.flatnonzero((ids != expected) & (ids != -1)))
            wrong.extend(np.flatnonzero(ids[:known] != expected[:known]))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for first in range(0, count, 100):
        vocabulary.add(tokens[first : first + 100])
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_a_snapshot_outlives_growth() -> None:
    from nearcast.text.keys import numbers_of, strings_as_keys

    vocabulary = Vocabulary(["a", "b"])
    snapshot = vocabulary.snapshot()
    vocabulary.add([f"t{i}" for i in range(500)])
    found = numbers_of(snapshot, strings_as_keys(["b", "a", "zzz"], "token"))
    assert found.tolist() == [1, 0, -1]
    assert vocabulary.ids_of(["b", "t0"]).tolist() == [1, 2]
