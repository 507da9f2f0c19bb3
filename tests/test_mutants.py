"""Planted faults: each kind of them, and what tests say about a few in a small checkout."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import mutants
import pytest

import faults

SAMPLE = '''
"""A docstring: 0 < 1 and True."""

class Lists:
    def add(self, row: int, many=True) -> bool:
        with self._lock:
            if row < 0 or not self.open:
                return False
            self.size += row
            self.row[0] = max(row, 1)
            self.write(row)
        for other in self.rows:
            if other is row:
                break
        return other in self.rows
'''

EXPECTED = [
    ("0/1", "self.row[1] = max(row, 1)"),
    ("0/1", "self.row[0] = max(row, 0)"),
    ("0/1", "self.row[0] = max(row, 2)"),
    ("0/1", "if row < 1 or not self.open:"),
    ("+/-", "self.size -= row"),
    ("True/False", "def add(self, row: int, many=False) -> bool:"),
    ("True/False", "return True"),
    ("and/or", "if row < 0 and not self.open:"),
    ("break/continue", "continue"),
    ("comparison", "if other is not row:"),
    ("comparison", "if row <= 0 or not self.open:"),
    ("comparison", "return other not in self.rows"),
    ("dropped", "pass"),
    ("dropped", "pass"),
    ("dropped", "pass"),
    ("lock", 'with __import__("contextlib").nullcontext():'),
    ("min/max", "self.row[0] = min(row, 1)"),
    ("negation", "if (not (row < 0 or not self.open)):"),
    ("return", "pass"),
]

LEFT_ALONE = '''
"""1 + 1"""
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    SIZE = 1

__all__ = ["a"] + ["b"]
log = logging.getLogger("nearcast")

@cached(size=1)
def check(row: Literal[1], rows: Literal[0] = None) -> Literal[True]:
    """Return 1 + 1."""
    log.warning("of %s rows", 1 + 1)
    assert row is None, 1
    text = f"{1 + 1}"
    raise ValueError(text, 0, row + 1)
'''

TINY = """
def clamp(value, low, high):
    if value <= low:
        return low
    return min(value, high)
"""

TEST = """
from nearcast import clamp

def test_clamp():
    assert [clamp(value, 1, 3) for value in (0, 1, 2, 3, 4)] == [1, 1, 2, 3, 3]
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEARCAST_CACHE_DIR", str(tmp_path / "cache"))
    root = tmp_path / "checkout"
    for name, text in {
        "src/nearcast/__init__.py": TINY,
        "tests/test_tiny.py": TEST,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_every_kind_of_fault_is_made() -> None:
    found = faults.mutants_of(SAMPLE.encode(), "lists.py")
    assert sorted((mutant.kind, mutant.new) for mutant in found) == sorted(EXPECTED)
    assert {mutant.kind for mutant in found} == set(faults.KINDS)
    for mutant in found:
        planted = mutant.planted(SAMPLE.encode()).decode()
        compile(planted, "lists.py", "exec")
        lines = zip(SAMPLE.splitlines(), planted.splitlines(), strict=True)
        changed = [number for number, (old, new) in enumerate(lines, 1) if old != new]
        assert changed == [mutant.line], "the rest of the file is as it was"
        assert mutant.old == SAMPLE.splitlines()[mutant.line - 1].strip()


def test_texts_and_types_are_left_alone() -> None:
    assert faults.mutants_of(LEFT_ALONE.encode(), "checks.py") == []


def test_positions_are_those_of_bytes() -> None:
    (mutant,) = faults.mutants_of('a = "größer" if b > c else d'.encode(), "a.py")[1:]
    assert mutant.new == 'a = "größer" if b >= c else d'


def test_a_fault_is_found_and_an_equal_one_survives(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "TARGETS", {"tiny": mutants.Target(("src/nearcast",))})
    found = {mutant.new: mutant for mutant in mutants.selected(checkout, 100, 0)}
    assert len(found) == 4
    wrong, same = found["return max(value, high)"], found["if value < low:"]
    results = checkout / "out" / "results.jsonl"
    said: list[str] = []
    mutants.run_mutants(checkout, [wrong, same], results, say=said.append)
    first, second = map(json.loads, results.read_text().splitlines())
    assert (first["outcome"], first["how"]) == ("found", "test")
    assert first["test"] == "tests/test_tiny.py::test_clamp"
    assert second["outcome"] == "survived"
    assert len(said) == 3, "the tests are measured first"
    assert (checkout / "src/nearcast/__init__.py").read_text() == TINY
    assert mutants.read_results(results).keys() == {wrong.key, same.key}

    text, survivors = mutants.report([first, second], {})
    assert survivors == 1
    assert "src/nearcast/__init__.py:3  (comparison)\n  old: if value <= low:\n" in text
    judged = checkout / "equal.toml"
    entry = [f"{name} = {json.dumps(second[name])}" for name in ("file", "old", "new")]
    judged.write_text("\n".join(["[[equal]]", *entry, 'reason = "low either way"']))
    _, survivors = mutants.report([first, second], mutants.read_equal(judged))
    assert survivors == 0


def test_faults_are_spread_and_the_seed_decides(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = {name: mutants.Target((f"src/nearcast/{name}",)) for name in ("one", "two")}
    monkeypatch.setattr(mutants, "TARGETS", targets)
    for name in ("one/a", "one/b", "one/c", "two/d"):
        path = checkout / "src" / "nearcast" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(SAMPLE)
    chosen = mutants.selected(checkout, 12, seed=3)
    assert chosen == mutants.selected(checkout, 12, seed=3)
    assert chosen != mutants.selected(checkout, 12, seed=4)
    files = Counter(Path(mutant.file).stem for mutant in chosen)
    assert files == {"a": 2, "b": 2, "c": 2, "d": 6}
    assert {mutant.target for mutant in mutants.selected(checkout, 9, 0, only="one")} == {"one"}


def test_contracts_run_for_one_index_only() -> None:
    tests = {"tests/test_rtree.py": "", "tests/test_contract.py": "rtree"}
    assert mutants._arguments(tests) == (*tests, "-k", "rtree or not (test_contract)")
    assert mutants._arguments({"tests/test_rtree.py": ""}) == ("tests/test_rtree.py",)


def test_the_checked_in_judgments_can_be_read() -> None:
    for (file, old, new), reason in mutants.read_equal(mutants.ROOT / mutants.EQUAL).items():
        assert (mutants.ROOT / file).exists(), file
        assert old != new
        assert reason
