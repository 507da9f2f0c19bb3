"""Names, options, and what happens with wrong ones."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

from nearcast import indexes
from nearcast.columns import Clauses, Messages
from nearcast.engine import Engine
from nearcast.errors import InvalidInput, StorageError, UnknownId, UnknownName
from nearcast.indexes import Builder, Found, UpdatableIndex, registry
from nearcast.indexes.boolean import Linear
from nearcast.indexes.scan import Scan
from nearcast.indexes.trie_pyramid import TriePyramid
from nearcast.model import Message, Rect, Subscription
from nearcast.storage import clauses_to_arrays, write_arrays
from nearcast.testing import check_index, draw

if TYPE_CHECKING:
    from pathlib import Path


class Own(Scan):
    """An index that is in no registry."""

    name = "own"


def test_names_are_sorted_and_contain_the_default() -> None:
    assert indexes.names() == sorted(indexes.names())
    assert indexes.DEFAULT in indexes.names()


def test_an_unknown_name_lists_the_names() -> None:
    with pytest.raises(UnknownName, match=r"unknown index 'r-tree'; choose from: .*trie-pyramid"):
        indexes.create("r-tree")


def test_an_unknown_option_lists_the_options() -> None:
    with pytest.raises(UnknownName, match=r"option 'b' of trie-pyramid.*list_size"):
        indexes.create("trie-pyramid", b=25)


@pytest.mark.parametrize("name", indexes.names())
def test_every_index_says_what_it_is(name: str) -> None:
    assert indexes.get(name).name == name
    assert indexes.get(name).summary


def test_stored_options_include_those_of_the_ranked_form() -> None:
    chosen = indexes.create("rt++-tree", most=30, least=10, anywhere="nodes")
    again = indexes.create("rt++-tree", **chosen.stored_options())
    for kind in ("boolean", "proximity"):
        assert again.for_kind(kind).options == chosen.for_kind(kind).options
    assert indexes.create("trie-pyramid", list_size=7).stored_options()["list_size"] == 7


def test_an_index_is_not_loaded_as_another(tmp_path: Path) -> None:
    indexes.create("scan").build(draw("lattice").clauses).save(tmp_path / "scan")
    with pytest.raises(StorageError, match="contains the index 'scan', expected 'trie-pyramid'"):
        indexes.get("trie-pyramid").load(tmp_path / "scan")


@pytest.mark.parametrize("options", [{"level_size": 4}, {}])
def test_an_index_of_another_layout_says_that_it_must_be_built_again(
    tmp_path: Path, options: dict[str, int]
) -> None:
    index = indexes.create("trie-pyramid").build(draw("lattice").clauses)
    arrays = {f"clauses.{name}": array for name, array in clauses_to_arrays(index.clauses).items()}
    write_arrays(tmp_path, "index", arrays, {"index": "trie-pyramid", "options": options})
    with pytest.raises(StorageError, match=r"another version of nearcast .* build it again"):
        indexes.load(tmp_path)


def test_a_row_is_deleted_once() -> None:
    scan = indexes.create("scan").build(draw("lattice").clauses)
    assert isinstance(scan, UpdatableIndex)
    scan.delete(np.array([3]))
    for row in (3, -1, 10_000):
        with pytest.raises(UnknownId, match=f"row {row} is not in the index"):
            scan.delete(np.array([row]))


def test_an_index_need_not_be_registered_to_be_checked() -> None:
    check_index(Builder(Own, Own.Options()), rounds=1)


def test_an_error_in_an_index_names_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(indexes.get("trie-pyramid"), "find", broken)
    with pytest.raises(ZeroDivisionError) as caught:
        check_index("trie-pyramid")
    assert caught.value.__notes__ == ["in the check agrees_on_lattice with seed 0"]


def test_check_index_finds_a_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks can fail: an index that loses its last clause is caught."""
    find = TriePyramid.find

    def forgetful(self: TriePyramid, messages: Messages, threads: int) -> indexes.Found:
        found = find(self, messages, threads)
        start = found.start.copy()
        start[-1] -= start[-1] > start[-2]
        return indexes.Found(start, found.clause[: start[-1]], found.examined)

    monkeypatch.setattr(TriePyramid, "find", forgetful)
    with pytest.raises(AssertionError, match="agrees_on_lattice with seed 0: lattice: 1 missing"):
        check_index("trie-pyramid")


class OwnIndex(Linear):
    """An index of one's own."""

    name = "own-index"


@pytest.fixture
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let names that a test registers be forgotten again."""
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))


@pytest.mark.usefixtures("own_names")
def test_an_index_of_ones_own_is_known_everywhere(tmp_path: Path) -> None:
    assert indexes.register(OwnIndex) is OwnIndex
    assert indexes.register(OwnIndex) is OwnIndex
    assert "own-index" in indexes.names()
    engine = Engine("own-index")
    engine.subscribe(Subscription(i, Rect(0, 0, 1, 1), "tea") for i in range(600))
    assert len(engine.publish(Message("m", (0.5, 0.5), "tea"))) == 600
    engine.save(tmp_path / "engine")
    assert len(Engine.open(tmp_path / "engine").publish(Message(1, (0.5, 0.5), "tea"))) == 600


@pytest.mark.usefixtures("own_names")
def test_what_is_no_index_is_refused() -> None:
    class Nameless(Linear):
        name = ""

    class Thief(Linear):
        name = "scan"

    for wrong in (Linear.build(Clauses.empty()), dict, Nameless, Thief):
        with pytest.raises(InvalidInput):
            indexes.register(wrong)  # type: ignore[type-var,arg-type]


@pytest.mark.usefixtures("own_names")
def test_packages_bring_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("own-index", f"{__name__}:OwnIndex", registry.GROUP),
        EntryPoint("broken", "nearcast.nowhere:Index", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    registry._find_others.cache_clear()
    with pytest.warns(RuntimeWarning, match="broken"):
        assert indexes.get("own-index") is OwnIndex
    registry._find_others.cache_clear()


def test_a_wrong_type_from_find_is_an_error() -> None:
    class Wrong(Linear):
        wrong: ClassVar[Any] = None

        def find(self, messages: Messages, threads: int = 1) -> Found:
            return self.wrong  # type: ignore[no-any-return]

    index = Wrong.build(Clauses.of([[1]], [[0, 0, 9, 9]]))
    messages = Messages.of([[1]], [[5, 5]])
    start, clause = np.array([0, 1]), np.array([0], np.int32)
    for found, field in (
        (Found(start, clause.astype(np.int64), 1), "clause"),
        (Found(start.astype(np.int32), clause, 1), "start"),
        (Found([0, 1], clause, 1), "start"),  # type: ignore[arg-type]
        (Found(np.array([0, 1, 1]), clause, 1), "start"),
    ):
        Wrong.wrong = found
        with pytest.raises(InvalidInput, match=rf"{field}: of linear.find must"):
            index.match(messages)
