"""Comparisons of ranked indexes: measurements, reports, and answers that are really checked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pytest
from typer.testing import CliRunner

from nearcast import indexes
from nearcast.benchmarks import answers
from nearcast.benchmarks.answers import Answers
from nearcast.benchmarks.compare import GROUPS_OF_KIND, Comparison, compare
from nearcast.benchmarks.plot_compare import plot_comparison
from nearcast.benchmarks.ranking import RANKED_KINDS, Ranking, compared_names, default_index
from nearcast.benchmarks.report import tables_block
from nearcast.cli import app
from nearcast.columns import Scoring
from nearcast.datasets import Workload
from nearcast.errors import NearcastError, UnknownName
from nearcast.indexes import Builder
from nearcast.indexes.contract import NoOptions
from nearcast.indexes.ranked import RankedLinear

if TYPE_CHECKING:
    from pathlib import Path

    from nearcast.columns import Matches, Messages, Ranked

LINEAR = {"ranked-linear": Builder(RankedLinear, NoOptions())}


class Changed(RankedLinear):
    """A ranked index with a fault."""

    name = "changed"

    @classmethod
    def build(cls, content: Ranked, options: NoOptions | None = None) -> Self:
        return cls(content, NoOptions())


class Forgetful(Changed):
    """Loses its last match."""

    def match(self, messages: Messages, *, threads: int = 1) -> Matches:
        found = super().match(messages, threads=threads)
        start = np.minimum(found.start, found.start[-1] - 1)
        return found.keep(start, np.arange(start[-1]))


class Repeating(Changed):
    """Reports its last match twice."""

    def match(self, messages: Messages, *, threads: int = 1) -> Matches:
        found = super().match(messages, threads=threads)
        start = found.start.copy()
        start[-1] += 1
        return found.keep(start, np.append(np.arange(len(found)), len(found) - 1))


class Inexact(Changed):
    """Changes the last bit of a score."""

    def match(self, messages: Messages, *, threads: int = 1) -> Matches:
        found = super().match(messages, threads=threads)
        assert found.score is not None
        score = found.score.copy()
        score[-1] = np.nextafter(score[-1], 0)
        return replace(found, score=score)


class Unscored(Changed):
    """Has no scores."""

    def match(self, messages: Messages, *, threads: int = 1) -> Matches:
        return replace(super().match(messages, threads=threads), score=None)


def plan(kind: str, builders: dict[str, Builder] = LINEAR, **changes: Any) -> Comparison:
    scoring = Scoring(changes.pop("similarity", "containment"))
    ranking = Ranking(kind, threshold=(0.1, 0.9), scoring=scoring)
    given: dict[str, Any] = {
        "rounds": 2,
        "sample": 5,
        "groups": GROUPS_OF_KIND[kind],
        "range_share": 0.1,
    }
    return Comparison("tweets", 2_000, 30, builders, ranking=ranking, **given, **changes)


@pytest.mark.parametrize("kind", RANKED_KINDS)
@pytest.mark.parametrize("similarity", ["containment", "jaccard"])
def test_ranked_indexes_get_all_measurements(kind: str, similarity: str, tmp_path: Path) -> None:
    steps_seen: list[tuple[int, int]] = []
    builders = {**LINEAR, "other": LINEAR["ranked-linear"]}
    results = compare(
        plan(kind, builders, similarity=similarity),
        lambda name, done, total: steps_seen.append((done, total)),
    )
    assert {total for _, total in steps_seen} == {len(steps_seen)}
    assert [result["group"] for result in results] == list(GROUPS_OF_KIND[kind])
    for result in results:
        assert result["ranking"]["similarity"] == similarity
        for measured in result["results"]:
            assert measured["verified_matches"] >= 100 or measured["verified_messages"] == 30
            us, matches = measured["us_per_message"]["median"], measured["matches_per_message"]
            assert measured["ns_per_match"] == pytest.approx(us * 1000 / matches)
    assert json.loads(json.dumps(results)) == results
    plot_comparison(results[0], tmp_path / "compare.png")
    assert (tmp_path / "compare.png").read_bytes()[:4] == b"\x89PNG"
    block = tables_block(results)
    assert block.count("| ns/match |") == len(results)
    assert f"--kind {kind}" in block
    assert f"--similarity {similarity}" in block
    assert "| ns/match |" in tables_block(results[:1])


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (Forgetful, r"scan differ: .* 1 are missing; 0 matches are wrong"),
        (Repeating, r"scan differ: .* 0 are missing; 1 matches are wrong"),
        (Inexact, r"scan differ: of \d+ scores, 1 are different; first"),
        (Unscored, r"scan differ: there are no scores"),
    ],
)
@pytest.mark.parametrize("kind", RANKED_KINDS)
def test_wrong_answers_are_an_error(kind: str, fault: type[Changed], problem: str) -> None:
    wrong = {"wrong": Builder(fault, NoOptions())}
    with pytest.raises(NearcastError, match=problem):
        compare(plan(kind, wrong))


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        # One in each batch of messages: the sample is enlarged.
        (Forgetful, r"ranked-linear and the scan differ: .* 4 are missing; 0 matches are wrong"),
        (Repeating, r"ranked-linear and the scan differ: .* 0 are missing; 3 matches are wrong"),
    ],
)
def test_the_oracle_itself_is_compared_with_the_scan(
    fault: type[Changed], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the oracle loses is noticed only if the scan looks at its row: here it does at all rows.
    monkeypatch.setattr(answers, "RankedLinear", fault)
    with pytest.raises(NearcastError, match=problem):
        compare(plan("proximity"))


def test_scores_of_the_oracle_are_compared_with_the_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    class Doubtful(Changed):
        def match(self, messages: Messages, *, threads: int = 1) -> Matches:
            found = super().match(messages, threads=threads)
            assert found.score is not None
            return replace(found, score=found.score - 1e-10)

    monkeypatch.setattr(answers, "RankedLinear", Doubtful)
    with pytest.raises(NearcastError, match=r"ranked-linear and the scan differ: of \d+ scores"):
        compare(plan("overlap"))


def test_a_large_sample_is_scanned_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Workload("tweets", seed=1)
    near = workload.ranked(3_000)
    sample = near.weigh(workload.messages(30))
    scanned: list[int] = []
    build = indexes.create("scan").index.ranked_form
    assert build is not None
    match = build.match

    def counted(self: Any, messages: Messages, *, threads: int = 1) -> Matches:
        scanned.append(len(messages) * len(self.ranked))
        return match(self, messages, threads=threads)

    monkeypatch.setattr(build, "match", counted)
    monkeypatch.setattr(answers, "MAX_SCANNED_PAIRS", 10_000)
    checked = Answers(near, sample)
    assert 2_000 <= scanned[0] <= 10_000
    linear = RankedLinear.build(near)
    assert checked.check("all", linear) == len(linear.match(sample))
    some = RankedLinear.build(near.take(np.arange(1_000)))
    assert checked.check("some", some, 1_000) == len(some.match(sample))


def test_names_of_a_kind() -> None:
    for kind in RANKED_KINDS:
        assert "scan" not in compared_names(kind)
        assert set(compared_names(kind)) <= set(indexes.names(kind))
        assert default_index(kind) == indexes.RANKED_DEFAULT
    assert default_index("boolean") == indexes.DEFAULT
    with pytest.raises(UnknownName, match="choose from: overlap, proximity"):
        Ranking("boolean")
    with pytest.raises(UnknownName, match="index 'lfilter' of overlap subscriptions"):
        plan("overlap", {"lfilter": indexes.create("lfilter")})


@pytest.mark.parametrize("kind", RANKED_KINDS)
def test_the_command_writes_results_that_name_its_options(kind: str, tmp_path: Path) -> None:
    run = CliRunner().invoke
    sizes = ["--subscriptions", "500", "--messages", "20", "--rounds", "2", "--sample", "5"]
    range_options = {
        "proximity": ["--delta", "0.2-0.8", "--max-distance-m", "1e4-1e6"],
        "overlap": ["--alpha", "0.2-0.8", "--theta", "0.4"],
    }[kind]
    command = ["bench", "compare", "--kind", kind, "--index", "scan", *sizes]
    done = run(app, [*command, *range_options, "--group", "all", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "ns/match" in done.stdout
    names = [f"compare-{kind}-tweets-500-{group}" for group in GROUPS_OF_KIND[kind]]
    files = [tmp_path / f"{name}.json" for name in names]
    ranking = json.loads(files[0].read_text())["ranking"]
    assert ranking["delta" if kind == "proximity" else "alpha"] == [0.2, 0.8]
    block = tables_block([json.loads(file.read_text()) for file in files])
    assert f"--group {','.join(GROUPS_OF_KIND[kind])}" in block
    shown = "--max-distance-m 10000-1e+06" if kind == "proximity" else "--theta 0.4-0.4"
    assert shown in block


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--kind", "proximity", "--index", "trie-pyramid"], 1, "'trie-pyramid' of proximity"),
        (["--kind", "proximity", "--index", "scan", "--alpha", "0.5"], 2, "needs --kind overlap"),
        (["--delta", "0.5"], 2, "needs --kind proximity"),
        (["--kind", "overlap", "--index", "scan", "--similarity", "guess"], 1, "containment"),
        (["--kind", "nearest"], 2, "kind"),
    ],
)
def test_invalid_comparisons_are_rejected(
    options: list[str], code: int, message: str, tmp_path: Path
) -> None:
    few = ["--subscriptions", "10", "--messages", "3", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, ["bench", "compare", *few, *options])
    assert done.exit_code == code
    assert message in done.stderr
