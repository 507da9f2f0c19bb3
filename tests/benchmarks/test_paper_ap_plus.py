"""``nearcast bench paper ap-plus``: scenes, measurements, verdicts, figures and files."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from typer.testing import CliRunner

from effort import LONG
from nearcast.benchmarks.paper import (
    MOVING_PAPERS,
    MovingExperiment,
    MovingPaperPlan,
    Sweep,
    judge,
    measure_moving,
    plot_figures,
    statement_table,
)
from nearcast.benchmarks.paper.ap_plus import AP_PLUS
from nearcast.benchmarks.paper.ap_plus.series import (
    LIFETIMES,
    PRINTED,
    SIZES,
    TWIN,
    circled,
    ranged,
    sized,
)
from nearcast.benchmarks.paper.moving import MovingSeries
from nearcast.benchmarks.report import tables_block
from nearcast.cli import app
from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

PLAN = MovingPaperPlan(1_000, 300, ticks=3) if LONG else MovingPaperPlan(200, 60, ticks=3)
KEPT = ("ap+-tree", "kk-index", TWIN)


class Run(NamedTuple):
    """A small experiment and its result."""

    experiment: MovingExperiment
    result: dict[str, Any]


def smaller(*names: str) -> MovingExperiment:
    """Return some figures, and a fast run of the lifetimes."""
    some = AP_PLUS.only(names)
    assert isinstance(some, MovingExperiment)
    lives = replace(some.scenes[LIFETIMES], arrivals=1.0)
    return replace(some, scenes={**some.scenes, LIFETIMES: lives})


@pytest.fixture(scope="module")
def run() -> Run:
    small = smaller("apart", "variants", "circles", "ticks", "lifetimes")
    said: list[tuple[int, int]] = []
    result = measure_moving(small, PLAN, lambda what, done, total: said.append((done, total)))
    assert said[-1][0] == said[-1][1]
    assert said == sorted(said)
    return Run(small, result)


def test_all_points_of_figures_are_measured(run: Run) -> None:
    points = {(p["dataset"], p["series"], p["group"]): p for p in run.result["points"]}
    assert len(points) == len(run.result["points"])
    for figure in run.experiment.figures:
        for point in figure.points():
            quantities = points[point]["quantities"]
            for measure in set(figure.measures) - {"bytes"}:
                assert all(value > 0 for value in quantities[measure]) or measure == "mi"
    assert {key[:2] for key in points} == {
        (build["dataset"], build["series"]) for build in run.result["builds"]
    }
    assert json.loads(json.dumps(run.result)) == run.result


def test_all_series_of_a_scene_have_the_same_updates(run: Run) -> None:
    for scene in set(run.experiment.datasets) - {LIFETIMES}:
        found = [p for p in run.result["points"] if p["dataset"] == scene]
        assert len(found) > 1
        assert len({json.dumps(point["digests"]) for point in found}) == 1


def test_figures_and_tables_are_written(run: Run, tmp_path: Path) -> None:
    paths = plot_figures(run.experiment, run.result, tmp_path)
    assert [path.name for path in paths] == [
        f"paper-ap-plus-{name}.png"
        for name in ("apart", "variants", "circles", "ticks", "lifetimes")
    ]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in paths)
    verdicts = judge(run.experiment, run.result)
    header, rows = statement_table(verdicts)
    assert {len(row) for row in rows} == {len(header)}
    keys = {verdict.statement.key for verdict in verdicts}
    assert {"mi iq+-tree", "msp variants ap+-tree", "ours ticks", "ours lifetimes"} <= keys
    assert not {"scale", "mobility imm", "range rises"} & keys
    assert json.loads(json.dumps([verdict.to_dict() for verdict in verdicts]))


def test_the_sizes_of_scenes_are_relative_to_the_plan() -> None:
    plan = MovingPaperPlan()
    largest = AP_PLUS.scenes[sized(SIZES[-1])].load(plan)
    assert (largest.subscriptions, largest.messages, largest.arriving) == (
        2_500_000,
        2_500_000,
        250_000,
    )
    default = AP_PLUS.scenes["tweets, city"].load(plan)
    assert (default.subscriptions, default.messages, default.arriving) == (
        1_000_000,
        500_000,
        50_000,
    )
    circles = AP_PLUS.scenes[circled(0.01)].load(plan)
    assert (circles.subscriptions, circles.messages, circles.mobility) == (10_000, 1_000_000, 1.0)
    assert AP_PLUS.scenes[ranged(10.0)].box_share == (0.1, 0.1)
    with pytest.raises(InvalidInput, match="messages"):
        MovingPaperPlan(100, 5)


def test_every_scene_and_series_is_known() -> None:
    assert set(AP_PLUS.datasets) <= set(AP_PLUS.scenes)
    for label, series in AP_PLUS.series.items():
        assert isinstance(series, MovingSeries)
        assert series.moving_builder().index.name == series.index, label
    assert AP_PLUS.builders("tweets, city")[PRINTED].options.fanout == 200
    keys = [statement.key for statement in AP_PLUS.statements]
    assert len(set(keys)) == len(keys)
    for figure in AP_PLUS.figures:
        lines = {point.series for point in figure.points()}
        assert TWIN in lines, figure.name


def test_the_command_writes_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [figure] = [figure for figure in AP_PLUS.figures if figure.name == "mobility"]
    assert isinstance(figure, Sweep)
    panels = {
        title: {name: dict(list(line.items())[-2:]) for name, line in lines.items() if name in KEPT}
        for title, lines in figure.panels.items()
    }
    series = {name: one for name, one in AP_PLUS.series.items() if name in KEPT}
    small = replace(
        AP_PLUS, figures=(replace(figure, panels=panels),), series=series, statements=()
    )
    monkeypatch.setitem(MOVING_PAPERS, "ap-plus", small)
    sizes = ["--subscriptions", "200", "--messages", "50", "--ticks", "1"]
    command = ["bench", "paper", "ap-plus", "--figure", "mobility", *sizes, "--out", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "paper-ap-plus.json").read_text())
    assert result["figures"] == ["mobility"]
    assert (tmp_path / "paper-ap-plus-mobility.png").exists()
    done = CliRunner().invoke(app, [*command[:3], "--figure", "speed", *sizes])
    assert done.exit_code == 1
    assert "unknown figure 'speed' of ap-plus" in done.stderr


def test_the_readme_names_the_command(run: Run) -> None:
    block = tables_block([run.result])
    assert (
        f"`nearcast bench paper ap-plus --subscriptions {PLAN.subscriptions} "
        f"--messages {PLAN.messages} --ticks 3 --seed 0 "
        "--figure apart,variants,circles,ticks,lifetimes`"
    ) in block
