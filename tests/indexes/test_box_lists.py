"""Lists of boxes in a pool: against a plain list of entries, and from crafted arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_crafted_arrays import BUILDERS, SEED, crafted

from effort import examples
from nearcast.compiled import box_lists
from nearcast.compiled.box_lists import CAPACITY, SIZE, START
from nearcast.compiled.clauses import Ordered
from nearcast.compiled.jit import JIT
from nearcast.errors import StorageError
from nearcast.indexes.in_place import InPlaceIndex
from nearcast.testing import draw

NO_TOKEN = 2**31 - 1
NAMES = ("keyword-first", "iq-tree", "rq-tree", "trie-quadtree")

TOKENS = [[], [5], [5, 7], [5, 7, 9]]
"""The tokens of clause ``c`` are those of ``c % 4``."""

NEXT = [NO_TOKEN, NO_TOKEN, 7, ~7]


def ordered_clauses(count: int) -> Ordered:
    tokens = [TOKENS[c % 4] for c in range(count)]
    start = np.cumsum([0, *map(len, tokens)])
    token = np.array([t for clause in tokens for t in clause], np.int32)
    return Ordered(start, token, np.arange(4 * count, dtype=np.int32).reshape(-1, 4))


def contents(row: Any, entry: Any) -> list[tuple[list[int], int, int]]:
    """Return box, clause and next token of each entry, as the module's docstring describes it."""
    _, start, size, capacity = row.tolist()
    flat, found = entry.reshape(-1).tolist(), []
    for number in range(size):
        west = 6 * start + 4 * (number - number % 16) + number % 16
        box = [flat[west + side * min(capacity, 16)] for side in range(4)]
        tail = 6 * start + 4 * capacity + 2 * number
        found.append((box, flat[tail], flat[tail + 1]))
    return found


@settings(deadline=None, max_examples=examples(60 if JIT else 20))
@given(data=st.data())
def test_a_list_agrees_with_a_plain_list(data: Any) -> None:
    """Append, drop, move and pack in any order."""
    ordered = ordered_clauses(100)
    rows, entry, top = np.zeros((1, 4), np.int32), box_lists.new_pool(2000), 0
    wanted: list[int] = []
    for clause in data.draw(st.lists(st.integers(0, 99), max_size=60)):
        row, flat = rows[0], entry.reshape(-1)
        if clause in wanted and data.draw(st.booleans()):
            assert box_lists.drop_clause(flat, row, clause)
            number = wanted.index(clause)
            wanted[number] = wanted[-1]
            wanted.pop()
        else:
            if row[SIZE] == row[CAPACITY]:
                capacity = box_lists.larger_capacity(row[CAPACITY])
                start = box_lists.aligned_start(np.int64(top), capacity)
                box_lists.move_list(flat, row, start, capacity)
                top = int(start + capacity)
            box_lists.append_entry(flat, row, ordered, clause, clause, 1)
            wanted.append(clause)
        if data.draw(st.integers(0, 9)) == 0:
            tight = data.draw(st.booleans())
            nowhere, packed = entry[:0], box_lists.new_pool(2000)
            end = box_lists.pack_lists(rows, entry, tight, 0, nowhere)
            top = int(box_lists.pack_lists(rows, entry, tight, 0, packed))
            assert end == top == row[CAPACITY]
            entry = packed
        assert contents(rows[0], entry) == [
            (ordered.box[c].tolist(), c, NEXT[c % 4]) for c in wanted
        ]
    assert not box_lists.drop_clause(entry.reshape(-1), rows[0], 100)
    taken = np.zeros(top, np.bool_)
    used = np.ones(1, np.bool_)
    assert box_lists.find_damaged_list(rows, used, entry, 100, taken) == -1
    assert taken.sum() == rows[0, CAPACITY]


@pytest.mark.parametrize(
    ("column", "value"),
    [(START, -1), (START, 4), (SIZE, -1), (SIZE, 4), (CAPACITY, 17), (CAPACITY, 2), (START, 2)],
)
def test_a_damaged_list_is_found(column: int, value: int) -> None:
    """Two lists of three entries in a pool of six, one number of the second changed."""
    ordered, entry = ordered_clauses(6), box_lists.new_pool(6)
    rows = np.array([[0, 0, 0, 3], [0, 3, 0, 3]], np.int32)
    for clause in range(6):
        box_lists.append_entry(entry.reshape(-1), rows[clause // 3], ordered, clause, clause, 1)
    both = np.ones(2, np.bool_)

    def damaged(clauses: int = 6) -> int:
        taken = np.zeros(6, np.bool_)
        return int(box_lists.find_damaged_list(rows, both, entry, clauses, taken))

    assert damaged() == -1
    assert damaged(clauses=5) == 1
    rows[1, column] = value
    assert damaged() == 1


@pytest.mark.parametrize("name", [b for b in BUILDERS if b.split(",")[0] in NAMES])
def test_crafted_arrays_are_harmless_to_changes(name: str) -> None:
    """Arrays that are accepted may hold nonsense, but deletes and inserts stay within them."""
    rng = np.random.default_rng(SEED)
    case = draw("lattice", SEED)
    clauses = case.clauses if JIT else case.clauses.take(np.arange(40))
    index = BUILDERS[name].build(clauses)
    assert isinstance(index, InPlaceIndex)
    index.insert(clauses.take(np.arange(9)))
    index.delete(np.array([1, 5, 20]))
    arrays = dict(index.arrays())
    for _ in range(100 if JIT else 8):
        array = sorted(arrays)[int(rng.integers(len(arrays)))]
        changed = arrays | {array: crafted(arrays[array], rng)}
        try:
            loaded = type(index).from_arrays(index.clauses, index.options, changed)
            loaded.check_structure()
        except StorageError:
            continue
        loaded.delete(rng.permutation(np.flatnonzero(loaded.alive))[:9])
        loaded.insert(clauses.take(np.arange(9)))
        loaded.match(case.messages)
