"""The comparison of indexes: measurements, checks and plots."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pytest

import nearcast
from nearcast import indexes
from nearcast.benchmarks import answers, plot_compare
from nearcast.benchmarks import compare as experiment
from nearcast.benchmarks.compare import GROUPS, Comparison, compare, spread
from nearcast.benchmarks.plot_compare import plot_comparison
from nearcast.benchmarks.report import describe_checks, tables_block
from nearcast.columns import Clauses, Matches, Messages
from nearcast.errors import InvalidInput, NearcastError, UnknownName
from nearcast.indexes import Builder
from nearcast.indexes.contract import NoOptions
from nearcast.indexes.scan import Scan
from nearcast.plots.machine import PeakMemory, describe_machine, machine_caption

if TYPE_CHECKING:
    from pathlib import Path


class Forgetful(Scan):
    """A scan that loses its last match."""

    name = "forgetful"

    @classmethod
    def build(cls, clauses: Clauses, options: NoOptions) -> Self:
        return cls(clauses, np.ones(clauses.subscriptions, np.bool_))

    def match(self, messages: Messages, *, threads: int = 1) -> Matches:
        found = super().match(messages, threads=threads)
        start = np.minimum(found.start, max(0, found.start[-1] - 1))
        return Matches(start, found.subscription[: start[-1]], found.examined)


class Lossy(Forgetful):
    """A scan that does not know every tenth subscription."""

    name = "lossy"

    def match(self, messages: Messages, *, threads: int = 1) -> Matches:
        found = Scan.match(self, messages, threads=threads)
        known = found.subscription % 10 != 0
        start = np.concatenate([[0], np.cumsum(known)])[found.start]
        return Matches(start, found.subscription[known], found.examined)


def plan(*names: str, **changes: Any) -> Comparison:
    builders = {name: indexes.create(name) for name in names}
    return Comparison("tweets", 10_000, 100, builders, **{"rounds": 3, **changes})


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_each_index_gets_all_measurements(group: str, tmp_path: Path) -> None:
    steps_seen: list[tuple[int, int]] = []
    comparison = plan("trie-pyramid", "scan", groups=(group,))
    [result] = compare(comparison, lambda name, done, total: steps_seen.append((done, total)))
    fast, scan = result["results"]
    assert [fast["index"], scan["index"]] == ["trie-pyramid", "scan"]
    assert fast["matches_per_message"] == scan["matches_per_message"] > 0
    assert fast["examined_per_message"] < scan["examined_per_message"] == 10_000
    assert len(fast["rounds_us"]) == 3
    timing = fast["us_per_message"]
    assert timing["least"] <= timing["median"] <= timing["most"]
    assert 20 <= fast["verified_messages"] <= 100
    assert fast["verified_matches"] >= 100 or fast["verified_messages"] == 100
    assert [done for done, _ in steps_seen] == list(range(len(steps_seen)))
    assert {total for _, total in steps_seen} == {len(steps_seen)}
    assert json.loads(json.dumps(result)) == result
    plot_comparison(result, tmp_path / "deep" / "compare.png")
    assert (tmp_path / "deep" / "compare.png").read_bytes()[:4] == b"\x89PNG"


def test_a_wrong_index_is_an_error() -> None:
    wrong = Comparison(
        "tweets", 10_000, 100, {"forgetful": Builder(Forgetful, NoOptions())}, sample=100
    )
    with pytest.raises(NearcastError, match=r"scan differ: .* 1 are missing; 0 matches are wrong"):
        compare(wrong)


def lossy(*names: str, **changes: Any) -> Comparison:
    """Return a comparison of an index that loses a tenth of the matches."""
    more = {name: indexes.create(name) for name in names}
    builders = {"lossy": Builder(Lossy, NoOptions()), **more}
    return Comparison("tweets", 10_000, 400, builders, rounds=1, **changes)


def test_a_sample_with_few_matches_is_enlarged() -> None:
    with pytest.raises(
        NearcastError, match=r"lossy and the scan differ: of \d+ matches of \d{2,} "
    ):
        compare(lossy())
    [result] = compare(plan("trie-pyramid", rounds=1, groups=("long-range",)))
    measured = result["results"][0]
    assert measured["verified_matches"] >= 100
    assert f"{measured['verified_matches']:,} matches of" in describe_checks(result)


def test_a_sample_grows_only_as_far_as_the_scan_can_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MAX_ENLARGED_PAIRS", {"boolean": 300_000})
    [result] = compare(plan("keyword-first", rounds=1))
    assert result["results"][0]["verified_messages"] == 30
    monkeypatch.setattr(experiment, "MAX_CHECK_S", 0.0)
    [result] = compare(plan("keyword-first", rounds=1))
    assert result["results"][0]["verified_messages"] == 20


@pytest.mark.parametrize("names", [("trie-pyramid",), ("keyword-first", "trie-pyramid")])
def test_indexes_must_find_the_same_number_of_matches(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MIN_MATCHES", 0)
    problem = (
        r"lossy found 43 matches of 400 messages, [\w-]+ found 54; for message \d+, lossy and the "
        r"scan differ: of \d matches of 1 messages, \d are missing; 0 matches are wrong"
    )
    with pytest.raises(NearcastError, match=problem):
        compare(lossy(*names, sample=1))


def test_slow_indexes_get_fewer_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "MAX_ROUND_S", 0.0)
    [result] = compare(plan("scan", rounds=1))
    assert result["results"][0]["messages"] == 20
    assert "(20 of 100 messages) |" in tables_block([result])
    other = {**result, "group": "long-point"}
    assert tables_block([result, other]).count("20 of 100 messages") == 2


@pytest.mark.parametrize("count", [1, 2])
def test_times_are_on_a_logarithmic_axis_with_all_rounds(
    count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(plot_compare, "save_figure", lambda figure, path: figures.append(figure))
    [result] = compare(plan("keyword-first", "trie-pyramid", rounds=1))
    result["results"] = result["results"][:count]
    times = {"median": 2.0, "least": 0.4, "most": 300.0}
    result["results"][0] |= {"us_per_message": times, "messages": 26}
    plot_comparison(result, tmp_path / "compare.png")
    axes = figures[0].axes[0]
    assert axes.get_xscale() == "log"
    least, most = axes.get_xlim()
    assert least < 0.4 < 300.0 < most
    assert "keyword-first\n26 of 100 messages" in [t.get_text() for t in axes.get_yticklabels()]
    assert 2.0 in [text.xy[0] for text in axes.texts]


def test_results_say_with_what_they_were_made() -> None:
    [result] = compare(plan("keyword-first", rounds=1))
    assert result["nearcast"] == nearcast.__version__
    assert datetime.fromisoformat(result["date"]).utcoffset() == timedelta(0)


def test_results_of_earlier_versions_are_read() -> None:
    [result] = compare(plan("keyword-first", rounds=1))
    before = tables_block([result])
    for key in ("nearcast", "date", "sample"):
        del result[key]
    for key in ("verified_matches", "verified_messages", "messages"):
        del result["results"][0][key]
    assert tables_block([result]) == before
    assert describe_checks(result) == ""


def test_each_group_has_a_result_and_all_share_a_table() -> None:
    steps_seen: list[tuple[int, int]] = []
    comparison = plan("trie-pyramid", "scan", groups=tuple(GROUPS))
    results = compare(comparison, lambda name, done, total: steps_seen.append((done, total)))
    assert [result["group"] for result in results] == list(GROUPS)
    assert {total for _, total in steps_seen} == {len(steps_seen)}
    assert {len(r["rounds_us"]) for result in results for r in result["results"]} == {3}
    long, short = (results[i]["results"][0]["matches_per_message"] for i in (1, 0))
    assert long > short
    block = tables_block(results)
    scan = next(line for line in block.splitlines() if line.startswith("| `scan`"))
    assert scan.count(" x)") == len(GROUPS)
    assert f"--group {','.join(GROUPS)} --rounds 3" in block
    assert block.count("nearcast bench compare") == 1
    assert tables_block(results[:1]).count("least-most") == 1


@pytest.mark.parametrize("name", ["subscriptions", "messages", "rounds"])
def test_empty_comparisons_are_rejected(name: str) -> None:
    given: dict[str, Any] = {
        "dataset": "tweets",
        "subscriptions": 1,
        "messages": 1,
        "builders": {},
        name: 0,
    }
    with pytest.raises(InvalidInput, match=name):
        Comparison(**given)
    with pytest.raises(UnknownName, match="long-point"):
        plan("scan", groups=("medium",))
    with pytest.raises(InvalidInput, match="at least one group"):
        plan("scan", groups=())


def test_spread_has_median_minimum_and_maximum() -> None:
    assert spread([5.0, 1.0, 2.0, 4.0]) == {"median": 3.0, "least": 1.0, "most": 5.0}


def test_peak_memory_counts_new_arrays() -> None:
    with PeakMemory() as memory:
        taken = np.ones(30_000_000, np.uint8)
    assert memory.growth_bytes > 0.8 * len(taken)
    assert str(describe_machine()["cores"]) in machine_caption(describe_machine())
