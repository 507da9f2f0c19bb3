"""The table of ids against a plain dict."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from effort import examples
from nearcast.columns import Ids
from nearcast.compiled.jit import JIT
from nearcast.errors import InvalidInput
from nearcast.text import IdTable

SAMPLES: list[str | int] = [
    *range(-3, 4), 2**63 - 1, -(2**63), 0x3737373737373737, 256,
    "0", "1", "-1", "a", "aa", "ab", "ä", "77777777", "字", "x" * 300, "\x01", " ",
]  # fmt: skip


class IdMachine(RuleBasedStateMachine):
    """Adds and removes ids in batches."""

    def __init__(self) -> None:
        super().__init__()
        self.table = IdTable()
        self.known: dict[str | int, int] = {}
        self.highest = 0

    @rule(ids=st.lists(st.sampled_from(SAMPLES) | st.integers(0, 99) | st.text("ab", min_size=1)))
    def add(self, ids: list[str | int]) -> None:
        new = [i for i in dict.fromkeys(ids) if i not in self.known]
        handles = self.table.add(Ids.of(new)).tolist()
        assert not set(handles) & set(self.known.values())
        assert len(set(handles)) == len(new)
        self.known.update(zip(new, handles, strict=True))
        self.highest = max(self.highest, len(self.known))

    @rule(data=st.data())
    def add_again(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from([*self.known] or ["a"])))
        ids = [i for i in ids if i in self.known]
        assert self.table.add(Ids.of(ids)).tolist() == [self.known[i] for i in ids]

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from([*self.known] or ["a"]), unique=True))
        handles = [self.known.pop(i) for i in chosen if i in self.known]
        self.table.remove(np.array(handles, np.int32))

    @invariant()
    def agrees(self) -> None:
        asked = [*SAMPLES, *self.known, "unknown", 12345]
        assert self.table.find(Ids.of(asked)).tolist() == [self.known.get(i, -1) for i in asked]
        assert len(self.table) == len(self.known)
        assert self.table.handles == self.highest  # freed handles are used before new ones


TestIds = IdMachine.TestCase
TestIds.settings = settings(max_examples=examples(40), stateful_step_count=20, deadline=None)


def test_sliced_and_mixed_ids() -> None:
    text = pa.array(["no", "b", None, "ccc", "", None])[1:]
    ids = Ids(np.array([0, 7, 0, 0, -7]), text)
    table = IdTable()
    with pytest.raises(InvalidInput, match="id: must have 1 to"):
        table.add(ids)
    handles = table.add(ids.take(np.array([0, 1, 2, 4])))
    found = table.find(Ids.of(["no", "b", 7, "ccc", -7]))
    assert found.tolist() == [-1, *handles.tolist()]


def test_no_ids() -> None:
    table = IdTable()
    for nothing in (Ids.of([]), Ids(np.empty(0, np.int64), pa.array([], pa.string()))):
        assert table.add(nothing).tolist() == table.find(nothing).tolist() == []
    table.remove(np.empty(0, np.int32))
    assert len(table) == 0
    assert table.find(Ids.of(["a"])).tolist() == [-1]


@pytest.mark.parametrize("handles", [[-1], [2], [0, 5]])
def test_handles_never_given_are_refused(handles: list[int]) -> None:
    table = IdTable()
    table.add(Ids.of(["a", "b"]))
    with pytest.raises(InvalidInput, match="handles: must be from 0 to 1"):
        table.remove(np.array(handles))
    assert len(table) == 2


def test_handles_not_in_use_are_refused() -> None:
    table = IdTable()
    table.add(Ids.of(["a", "b", "c"]))
    with pytest.raises(InvalidInput, match="must be in use and distinct, only 1 are"):
        table.remove(np.array([1, 1]))
    with pytest.raises(InvalidInput, match="only 0 are"):
        table.remove(np.array([1]))
    assert table.find(Ids.of(["a", "b", "c"])).tolist() == [0, -1, 2]
    assert table.add(Ids.of(["d", "e"])).tolist() == [1, 3]


def test_churn_takes_no_more_memory() -> None:
    count, rounds = (5000, 40) if JIT else (60, 20)
    table = IdTable()
    handles = table.add(Ids.of([f"id-{i:08d}" for i in range(count)]))
    before = table.nbytes
    for r in range(1, rounds):
        table.remove(handles)
        handles = table.add(Ids.of([f"id-{r * count + i:08d}" for i in range(count)]))
    assert len(table) == table.handles == count
    assert table.nbytes <= before + 4 * count
    assert (
        table.find(Ids.of([f"id-{(rounds - 1) * count + i:08d}" for i in range(count)])) == handles
    ).all()


def test_memory_per_id() -> None:
    count = 20_000 if JIT else 2000
    table = IdTable()
    table.add(Ids(np.arange(count)))
    assert table.nbytes < (20.5 + 9 * 9 / 8) * count + 1000
