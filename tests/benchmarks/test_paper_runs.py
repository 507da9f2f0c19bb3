"""Small runs of the experiments of all papers: measurements, verdicts, plots and files."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pytest
from typer.testing import CliRunner

from effort import LONG
from nearcast import indexes
from nearcast.benchmarks.paper import (
    PAPERS,
    Case,
    Experiment,
    Figure,
    Plan,
    Statement,
    Sweep,
    judge,
    measure,
    plot_figures,
    statement_table,
    summary_table,
)
from nearcast.benchmarks.report import tables_block
from nearcast.cli import app

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

T = TypeVar("T")

MACHINE = {"processor": "Toaster", "cores": 3, "memory_gb": 1.5, "python": "3.11", "numba": "1"}
SUBSCRIPTIONS = 2_000 if LONG else 1_300
FEW = Plan(SUBSCRIPTIONS, 30, rounds=3, sample=5, point_s=0.001)
# The scan of ranked subscriptions is plain Python: a message takes milliseconds.
FEW_RANKED = replace(FEW, messages=5, sample=2)


NOTES = {"stamp": "500 km", "rt-ranked": "1% of the world"}
"""What the reader must know of experiments with ranked subscriptions."""


class Run(NamedTuple):
    """A small experiment and its result."""

    experiment: Experiment
    result: dict[str, Any]


def smaller(experiment: Experiment, last: int = 0, *, one_of_a_kind: bool = False) -> Experiment:
    """Return an experiment with its last figures (0: all) or one of each kind, and few panels."""
    # Ranked experiments have dozens of data sets: those of the first panels are enough.
    panels = 1 if is_ranked(experiment) or not LONG else None
    figures = tuple(fewer_panels(figure, panels) for figure in experiment.figures[-last:])
    if one_of_a_kind:
        figures = tuple({figure.kind: figure for figure in figures}.values())
    small = with_simple_indexes(replace(experiment, figures=figures, statements=()))
    kept = [
        replace(one, cases=tuple(case for case in one.cases if measures(small, one, case)))
        for one in experiment.statements
    ]
    return replace(small, statements=tuple(statement for statement in kept if statement.cases))


def fewer_panels(figure: Figure | Sweep, most: int | None) -> Figure | Sweep:
    """Keep the first and the last of the groups, lengths and values, and some panels of sweeps."""
    if isinstance(figure, Sweep):
        panels = {
            title: {name: dict(ends(list(line.items()))) for name, line in lines.items()}
            for title, lines in list(figure.panels.items())[:most]
        }
        return replace(figure, panels=panels)
    groups = ends(figure.groups)
    lengths = {name: ends(many) for name, many in figure.lengths.items() if name in groups}
    return replace(figure, groups=groups, lengths=lengths)


def ends(values: Sequence[T]) -> tuple[T, ...]:
    return tuple(values) if len(values) < 2 else (values[0], values[-1])


def is_ranked(experiment: Experiment) -> bool:
    return any(data.ranking is not None for data in experiment.data.values())


def with_simple_indexes(experiment: Experiment) -> Experiment:
    mixed = {s.series for f in experiment.figures if f.kind == "mixed" for s in f.points()}
    simple = indexes.RANKED_DEFAULT if is_ranked(experiment) else indexes.DEFAULT
    series = {
        label: replace(
            one,
            index="scan" if label in mixed or one.built < 1.0 else simple,
            options={},
        )
        for label, one in experiment.series.items()
    }
    return replace(experiment, series=series)


def measures(experiment: Experiment, statement: Statement, case: Case) -> bool:
    mixed = statement.quantity == "operations"
    needed = [(s, experiment.needed(s.dataset, s.series, mixed=mixed)) for s in case.points()]
    return all(point.group in groups if point.group else groups for point, groups in needed)


@pytest.fixture(scope="module", params=PAPERS)
def run(request: pytest.FixtureRequest) -> Run:
    # The scan of ranked subscriptions takes most of the time: two figures have every kind of point.
    few = 2 if is_ranked(PAPERS[request.param]) and not LONG else 0
    small = smaller(PAPERS[request.param], last=few, one_of_a_kind=not LONG)
    said: list[tuple[int, int]] = []
    plan = FEW_RANKED if is_ranked(small) else FEW
    result = measure(small, plan, lambda what, done, total: said.append((done, total)))
    assert said[-1][0] == said[-1][1]
    assert said == sorted(said)
    return Run(small, result)


def test_all_points_of_figures_are_measured(run: Run) -> None:
    points = {(p["dataset"], p["series"], p["group"]): p for p in run.result["points"]}
    builds = {(b["dataset"], b["series"]): b for b in run.result["builds"]}
    assert len(points) == len(run.result["points"])
    for figure in run.experiment.figures:
        for point in figure.points():
            series, build = run.experiment.series[point.series], builds[point.dataset, point.series]
            assert build["subscriptions"] == round(SUBSCRIPTIONS * series.share)
            assert build["built"] == round(SUBSCRIPTIONS * series.share * series.built)
            assert ("us_per_insert" in build) == (series.built < 1.0)
            assert len(points[point]["rounds_us"]) == 3
            assert points[point]["examined_per_message"] >= points[point]["matches_per_message"]
    assert {key[:2] for key in points} == set(builds)
    assert json.loads(json.dumps(run.result)) == run.result


def test_all_indexes_of_a_heat_get_the_same_messages(run: Run) -> None:
    whole = [p for p in run.result["points"] if run.experiment.series[p["series"]].share == 1.0]
    assert {p["heat"] for p in whole} == {1}
    for place in {(p["dataset"], p["group"]) for p in whole}:
        found = [p for p in whole if (p["dataset"], p["group"]) == place]
        assert len({p["messages"] for p in found}) == 1
        assert len({p["matches_per_message"] for p in found}) == 1


def test_a_mixed_load_is_a_tenth_inserts_and_a_tenth_deletes(run: Run) -> None:
    figures = [figure for figure in run.experiment.figures if figure.kind == "mixed"]
    wanted = {point for figure in figures for point in figure.points()}
    assert {(p["dataset"], p["series"], p["group"]) for p in run.result["mixed"]} == wanted
    for point in run.result["mixed"]:
        assert point["operations"] % 100 == 0
        assert point["operations_per_second"]["least"] > 0
        assert point["us_per_insert"]["median"] > 0


def test_figures_and_tables_are_written(run: Run, tmp_path: Path) -> None:
    paths = plot_figures(run.experiment, run.result, tmp_path)
    name = run.experiment.name
    assert [path.name for path in paths] == [
        f"paper-{name}-{figure.name}.png" for figure in run.experiment.figures
    ]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in paths)
    verdicts = judge(run.experiment, run.result)
    header, rows = statement_table(verdicts)
    assert {len(row) for row in rows} == {len(header)}
    assert [row[0] for row in rows] == [one.says for one in run.experiment.statements]
    assert json.loads(json.dumps([verdict.to_dict() for verdict in verdicts]))
    if is_ranked(run.experiment):
        header, rows = summary_table(run.experiment, run.result)
        assert header[-2:] == ["bytes/sub", "build"]
        assert header.count("ns/match") == (1 if run.experiment.name == "stamp" else 2)
        assert {len(row) for row in rows} == {len(header)}
        assert "`ranked-pyramid`" in [row[0] for row in rows]


def test_some_figures_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = smaller(PAPERS["stamp"])
    monkeypatch.setitem(PAPERS, "stamp", small)
    sizes = ["--subscriptions", "1300", "--messages", "5", "--rounds", "1", "--out", str(tmp_path)]
    command = ["bench", "paper", "stamp", "--figure", "cost-model,leaf", *sizes]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "ns/match" in done.stdout
    result = json.loads((tmp_path / "paper-stamp.json").read_text())
    assert result["figures"] == ["cost-model", "leaf"]
    keys = {verdict["statement"] for verdict in result["verdicts"]}
    assert {"st sp", "leaf 100"} <= keys
    assert not {"SP+HI SP", "update rt"} & keys
    block = tables_block([result])
    assert "--figure cost-model,leaf" in block
    assert "| `stamp` |" in block
    done = CliRunner().invoke(app, ["bench", "paper", "stamp", "--figure", "leaves", *sizes])
    assert done.exit_code == 1
    assert "unknown figure 'leaves' of stamp" in done.stderr


def test_little_memory_gives_more_heats() -> None:
    small = smaller(PAPERS["rt"])
    one_figure = replace(small, figures=small.figures[2:3], statements=())
    result = measure(one_figure, replace(FEW, memory_bytes=1.0))
    assert {p["heat"] for p in result["points"]} == {1, 2, 3}


@pytest.mark.long
@pytest.mark.parametrize("name", PAPERS)
def test_the_command_writes_everything(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = smaller(PAPERS[name], last=2)
    monkeypatch.setitem(PAPERS, name, small)
    messages = "5" if is_ranked(small) else "20"
    sizes = ["--subscriptions", "2000", "--messages", messages, "--rounds", "1"]
    done = CliRunner().invoke(app, ["bench", "paper", name, *sizes, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "the paper says" in done.stdout
    result = json.loads((tmp_path / f"paper-{name}.json").read_text())
    assert result["experiment"] == f"paper-{name}"
    assert len(result["verdicts"]) == len(small.statements)
    assert len(list(tmp_path.glob(f"paper-{name}-*.png"))) == len(small.figures)
    block = tables_block([result | {"machine": MACHINE}])
    options = f"--subscriptions 2000 --messages {messages} --rounds 1 --seed 0"
    assert f"nearcast bench paper {name} {options}" in block
    if name in NOTES:
        assert NOTES[name] in block
    first = small.statements[0]
    assert f"| {first.says} | {first.source} |" in block


@pytest.mark.parametrize("name", PAPERS)
def test_statements_have_unique_keys(name: str) -> None:
    keys = [statement.key for statement in PAPERS[name].statements]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(("name", "label"), [(n, s) for n in PAPERS for s in PAPERS[n].series])
def test_the_series_of_the_papers_exist(name: str, label: str) -> None:
    series = PAPERS[name].series[label]
    assert series.builder().index.name == series.index
