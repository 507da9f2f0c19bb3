"""The papers' experiments: measurements, verdicts and checks of definitions."""

from __future__ import annotations

import gc
import math
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Self
from weakref import WeakSet

import numpy as np
import pytest

from nearcast.benchmarks.paper import (
    Case,
    Data,
    Experiment,
    Figure,
    Group,
    Plan,
    Point,
    Series,
    Statement,
    Sweep,
    judge,
    measure,
    statement_table,
)
from nearcast.benchmarks.ranking import Ranking
from nearcast.columns import Matches, Messages
from nearcast.errors import InvalidInput, NearcastError, UnknownName
from nearcast.indexes import Builder
from nearcast.indexes.contract import NoOptions
from nearcast.indexes.ranked import RankedLinear
from nearcast.indexes.scan import Scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nearcast.columns import Clauses

FEW = Plan(2_000, 30, rounds=3, sample=5, point_s=0.001)


def result_of(
    rounds: dict[str, list[float]],
    kinds: Mapping[str, str] = MappingProxyType({}),
    **work: tuple[float, float],
) -> dict[str, Any]:
    """Return a fake result with the rounds of two series, and examined and visited of each."""
    points = [
        {
            "dataset": "tweets",
            "series": label,
            "group": "short-point",
            "heat": 1,
            "rounds_us": values,
            "us_per_message": {"median": float(np.median(values))},
            "examined_per_message": work.get(label, (0, 0))[0],
            "visited_per_message": work.get(label, (0, 0))[1],
        }
        for label, values in rounds.items()
    ]
    return {
        "subscriptions": 1_000_000,
        "rounds": len(next(iter(rounds.values()))),
        "builds": [
            {"dataset": "tweets", "series": label, "index": kinds.get(label, "scan")}
            for label in rounds
        ],
        "mixed": [],
        "points": points,
    }


def experiment_of(statement: Statement) -> Experiment:
    figure = Figure("f", "F", "groups", ("a", "b"), groups=("short-point",))
    series = {name: Series("scan") for name in "ab"}
    return Experiment("x", "X", "a", series, (figure,), (statement,))


FASTER = Statement(
    "a b", "1.1", "a is faster", (Case("a", ("b",), "short-point"),), below=1, why="It rained."
)


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ([1, 1, 2], [4, 5, 6], "holds"),
        ([4, 5, 6], [1, 1, 2], "differs"),
        ([1, 2, 6], [5, 5, 7], "unclear"),
        ([100, 101, 101], [103, 103, 104], "unclear"),
        ([1, 1], [4, 5], "not judged"),
    ],
    ids=["below", "above", "overlapping", "near", "few rounds"],
)
def test_a_case_is_clear_if_all_rounds_agree(a: list[float], b: list[float], verdict: str) -> None:
    [judged] = judge(experiment_of(FASTER), result_of({"a": a, "b": b}))
    assert judged.verdict == verdict
    assert ("It rained." in judged.sentence) == (verdict == "differs")
    assert bool(judged.sentence) == (verdict != "holds")


def test_single_measurements_must_be_further_from_the_bound() -> None:
    built = replace(FASTER, quantity="build", cases=(Case("a", ("b",)),))
    result = result_of({"a": [1, 1, 1], "b": [1, 1, 1]})
    for seconds, verdict in ((0.9, "unclear"), (0.7, "holds"), (1.3, "differs")):
        for build, build_s in zip(result["builds"], (seconds, 1.0), strict=True):
            build["build_s"] = build_s
        assert judge(experiment_of(built), result)[0].verdict == verdict


def test_two_data_sets_are_compared() -> None:
    figure = Figure("f", "F", "groups", ("a",), ("tweets", "few"), ("short-point",))
    grows = Case("a", ("a",), "short-point", dataset="few", bottom_dataset="tweets")
    statement = replace(FASTER, cases=(grows,))
    series, data = {"a": Series("scan")}, {"few": Data("tweets", {"keywords": (1, 1)})}
    two = Experiment("x", "X", "a", series, (figure,), (statement,), data)
    result = result_of({"a": [1, 1, 1]})
    other = result_of({"a": [5, 5, 5]})
    for kind in ("points", "builds"):
        result[kind] += [one | {"dataset": "few"} for one in other[kind]]
    [judged] = judge(two, result)
    assert (judged.verdict, judged.cases[0].value) == ("differs", 5)


def test_the_sentence_notes_when_the_work_agrees() -> None:
    slow = {"a": [4.0, 5.0, 6.0], "b": [1.0, 1.0, 2.0]}
    [less] = judge(experiment_of(FASTER), result_of(slow, a=(10, 3), b=(20, 9)))
    assert less.cases[0].examined == 0.5
    assert "5 x though the work is on the paper's side" in less.sentence
    [more] = judge(experiment_of(FASTER), result_of(slow, a=(10, 9), b=(20, 3)))
    assert "though" not in more.sentence
    [other] = judge(experiment_of(FASTER), result_of(slow, {"a": "rt-tree"}, a=(10, 3), b=(20, 9)))
    assert "though" not in other.sentence
    row = statement_table([more])[1][0]
    assert row[2:6] == ["below 1 x", "5 x", "0.50 x", "3 x"]


def test_what_was_not_measured_is_not_judged() -> None:
    fewer = replace(FASTER, quantity="accessed")
    result = result_of({"a": [1, 1, 1], "b": [1, 1, 1]})
    result["points"][0]["accessed_per_message"] = 5.0
    [judged] = judge(experiment_of(fewer), result)
    assert (judged.verdict, judged.sentence) == ("not judged", "not measured: short-point")
    assert judged.to_dict()["cases"][0]["value"] is None
    assert statement_table([judged])[1][0][3] == "- x"
    result["points"][1]["accessed_per_message"] = 10.0
    [judged] = judge(experiment_of(fewer), result)
    assert (judged.verdict, judged.cases[0].value) == ("holds", 0.5)


class Explaining(RankedLinear):
    """Says that a message reads three postings."""

    def explain(self, messages: Messages) -> SimpleNamespace:
        return SimpleNamespace(accessed=np.full(len(messages), 3))


def test_what_an_index_accesses_is_asked_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = {"a": Explaining, "b": RankedLinear}
    monkeypatch.setattr(Series, "builder", lambda self: Builder(classes[self.index], NoOptions()))
    figure = Figure("f", "F", "groups", ("a", "b"), groups=("short-point",))
    data = {"tweets": Data("tweets", ranking=Ranking("proximity"))}
    series = {name: Series(name) for name in "ab"}
    result = measure(Experiment("x", "X", "a", series, (figure,), (), data), FEW)
    assert [p["accessed_per_message"] for p in result["points"]] == [3.0, None]
    assert result["rankings"]["tweets"]["tau"] == [0.5, 1.0]


def test_time_per_match_needs_matches() -> None:
    quick = replace(FASTER, quantity="match", cases=(Case("a", group="short-point"),), below=25)
    result = result_of({"a": [4, 5, 6], "b": [1, 1, 1]})
    for matches, verdict, value in ((1000, "holds", 5.0), (100, "differs", 50.0)):
        result["points"][0]["matches_per_message"] = matches
        [judged] = judge(experiment_of(quick), result)
        assert (judged.verdict, judged.cases[0].value) == (verdict, value)
    result["points"][0]["matches_per_message"] = 0
    assert judge(experiment_of(quick), result)[0].verdict == "not judged"


def test_single_values_are_judged_only_at_the_papers_size() -> None:
    absolute = replace(
        FASTER,
        cases=(Case("a", group="short-point"),),
        below=10.0,
        at_size=10_000_000,
        printed="10 µs",
    )
    result = result_of({"a": [4, 5, 6], "b": [1, 1, 2]})
    [judged] = judge(experiment_of(absolute), result)
    assert (judged.verdict, judged.cases[0].value) == ("not judged", 5)
    assert "10,000,000" in judged.sentence
    [judged] = judge(experiment_of(absolute), result | {"subscriptions": 10_000_000})
    assert judged.verdict == "holds"


def test_a_statement_that_no_figure_measures_is_rejected() -> None:
    for case in (Case("a", ("b",), "long-point"), Case("c", ("b",), "short-point")):
        with pytest.raises(NearcastError):
            experiment_of(replace(FASTER, cases=(case,)))
    for quantity in ("operations", "insert"):
        with pytest.raises(InvalidInput, match="no figure"):
            experiment_of(replace(FASTER, quantity=quantity))
    elsewhere = Case("a", ("b",), dataset="places")
    with pytest.raises(InvalidInput, match="no figure measures a on places"):
        experiment_of(replace(FASTER, quantity="bytes", cases=(elsewhere,)))
    with pytest.raises(UnknownName, match="bytes"):
        replace(FASTER, quantity="joules")
    with pytest.raises(ValueError, match="below and above"):
        replace(FASTER, above=1)


def test_invalid_figures_are_rejected() -> None:
    with pytest.raises(UnknownName, match="bytes"):
        Figure("f", "F", "datasets", ("a",), measures=("joules",))
    with pytest.raises(UnknownName, match="datasets"):
        Figure("f", "F", "pie", ("a",))
    line = {1.0: Point("tweets", "a")}
    with pytest.raises(UnknownName, match="line 'b' of right"):
        Sweep("s", "S", "x", {"left": {"a": line}, "right": {"b": line}})
    lost = Sweep("s", "S", "x", {"left": {"c": {1.0: Point("tweets", "c")}}})
    with pytest.raises(UnknownName, match="series"):
        Experiment("x", "X", "a", {"a": Series("scan")}, (lost,), ())


def test_names_of_groups_are_parsed() -> None:
    assert Group.named("700-range") == Group((700, 700), True)
    for name in ("medium", "x-point", "20-line"):
        with pytest.raises(UnknownName, match="20-point"):
            Group.named(name)
    with pytest.raises(InvalidInput, match="subscriptions"):
        Plan(1_000)
    with pytest.raises(InvalidInput, match="rounds"):
        Plan(rounds=0)


class Counted(Scan):
    """A scan that counts the large scans in memory."""

    alive: ClassVar[WeakSet[Counted]] = WeakSet()
    most: ClassVar[int] = 0

    @classmethod
    def build(cls, clauses: Clauses, options: NoOptions) -> Self:
        built = cls(clauses, np.ones(clauses.subscriptions, np.bool_))
        gc.collect()
        cls.alive.add(built)
        Counted.most = max(Counted.most, len(cls.alive))
        return built


@pytest.fixture
def little_garbage() -> Iterator[None]:
    """Let the garbage collector look at new objects only: all others take it half a second."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("little_garbage")
def test_a_heat_is_freed_before_the_next_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Series, "builder", lambda self: Builder(Counted, NoOptions()))
    figure = Figure("f", "F", "mixed", tuple("abc"), groups=("short-point",))
    series = {name: Series("scan") for name in "abc"}
    mixed = Experiment("x", "X", "a", series, (figure,), ())
    measure(mixed, replace(FEW, memory_bytes=1.0))
    assert Counted.most == 1
    measure(mixed, FEW)
    # Three run in rotation; the last one was built after a small one was freed.
    assert Counted.most == 3


class Forgetful(Scan):
    """A scan that loses its last match."""

    @classmethod
    def build(cls, clauses: Clauses, options: NoOptions) -> Self:
        return cls(clauses, np.ones(clauses.subscriptions, np.bool_))

    def match(self, messages: Messages, *, threads: int = 1) -> Matches:
        found = super().match(messages, threads=threads)
        start = np.minimum(found.start, max(0, found.start[-1] - 1))
        return Matches(start, found.subscription[: start[-1]], found.examined)


def test_wrong_matches_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Series, "builder", lambda self: Builder(Forgetful, NoOptions()))
    with pytest.raises(NearcastError, match=r"a and the scan differ: .* 0 matches are wrong"):
        measure(experiment_of(FASTER), replace(FEW, messages=500, sample=500))


def test_an_index_without_updates_is_rejected() -> None:
    figure = Figure("f", "F", "mixed", ("a",), groups=("short-point",))
    series = {"a": Series("trie-pyramid")}
    fixed = Experiment("x", "X", "a", series, (figure,), ())
    with pytest.raises(NearcastError, match="a cannot be changed in place"):
        measure(fixed, FEW)
    grown = replace(fixed, series={"a": Series("trie-pyramid", built=0.5)})
    with pytest.raises(NearcastError, match="build it from all"):
        measure(grown, FEW)


def test_an_index_with_inserts_has_all_subscriptions() -> None:
    lines = {"a": {0.5: Point("tweets", "half of a half")}}
    figure = Sweep("f", "F", "x", {"tweets": lines}, ("time", "insert"))
    series = {"half of a half": Series("scan", share=0.5, built=0.5)}
    result = measure(Experiment("x", "X", "a", series, (figure,), ()), FEW)
    [build] = result["builds"]
    assert (build["built"], build["subscriptions"]) == (500, 1_000)
    assert build["us_per_insert"] > 0
    assert result["points"][0]["verified_messages"] == 5


@pytest.mark.usefixtures("little_garbage")
def test_an_infinite_option_is_written_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = SimpleNamespace(most=math.inf, least=1.0)
    monkeypatch.setattr(Series, "builder", lambda self: Builder(Counted, endless))
    result = measure(experiment_of(FASTER), FEW)
    assert result["builds"][0]["options"] == {"most": "inf", "least": 1.0}
