"""``nearcast bench moving``: loads, digests, agreement, targets and files, in small sizes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from nearcast.benchmarks.moving import (
    MovingLoad,
    MovingPlan,
    check_with_scan,
    judge_targets,
    measure_engine,
    measure_ticks,
)
from nearcast.benchmarks.moving.compared import COMPARED, builders
from nearcast.benchmarks.moving.lifetimes import measure_lifetimes
from nearcast.benchmarks.moving.load import COUNTY, in_circles
from nearcast.benchmarks.moving.runs import check_agreement, digest
from nearcast.benchmarks.report import tables_block
from nearcast.cli import app
from nearcast.errors import InvalidInput, NearcastError
from nearcast.indexes.moving import registry
from nearcast.indexes.moving.contract import Changes
from nearcast.indexes.moving.twin_lists import TwinLists

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

run = CliRunner().invoke

FEW_WORDS = {"vocabulary": 300, "topics": 5, "keywords": (1, 3)}
LOAD = MovingLoad(600, 200, changes=FEW_WORDS, tokens=(10, 10), box_share=(0.01, 0.1))


def test_a_load_is_recorded_once_for_all_indexes() -> None:
    recording = LOAD.record(ticks=3, still=2)
    assert [len(batch) for batch in recording.fill] == [20] * 10
    assert len(recording.still) == 2
    assert recording.messages == 200
    assert [len(tick.messages) for tick in recording.ticks] == [20] * 3
    assert all(150 < len(tick.moves.mover) < 330 for tick in recording.ticks)
    assert np.diff(recording.ticks[0].messages.token_start).tolist() == [10] * 20
    again = LOAD.record(ticks=3, still=2)
    assert (again.ticks[2].moves.box == recording.ticks[2].moves.box).all()
    assert (again.ticks[2].messages.token == recording.ticks[2].messages.token).all()
    fast = replace(LOAD, velocity=3.0).record(ticks=1)
    assert 2 * recording.step < fast.step < 4 * recording.step


def test_arrivals_and_sizes_are_checked() -> None:
    load = replace(LOAD, arrivals=50)
    assert (load.arriving, load.ticks_of_life) == (50, 4)
    with pytest.raises(InvalidInput, match="arrivals"):
        replace(LOAD, arrivals=201)
    with pytest.raises(InvalidInput, match="messages"):
        replace(LOAD, messages=0)
    with pytest.raises(InvalidInput, match="ticks"):
        MovingPlan(0)
    assert COUNTY.network().nodes == pytest.approx(18_000, rel=0.1)
    assert load.roads.network().nodes == pytest.approx(6_000, rel=0.1)


def test_circles_lie_within_their_boxes() -> None:
    clauses = LOAD.record(ticks=1).clauses
    round_ones = in_circles(clauses, clauses.box)
    assert (round_ones.shape >= 0).all()
    assert (round_ones.token == clauses.token).all()
    height = clauses.box[:, 3] - clauses.box[:, 1]
    assert np.abs(round_ones.box[:, 3] - round_ones.box[:, 1] - height).max() < 100


def test_a_digest_depends_on_every_part_of_an_update() -> None:
    serial = np.array([5, 6, 7])
    some = Changes.of([1, 2, 3], [0, 1, 2], [1, -1, 1])
    turned = Changes.of([3, 2, 1], [2, 1, 0], [1, -1, 1])
    assert digest(some, serial) == digest(turned, serial)
    others = [
        Changes.of([1, 2, 4], [0, 1, 2], [1, -1, 1]),
        Changes.of([1, 2, 3], [0, 1, 1], [1, -1, 1]),
        Changes.of([1, 2, 3], [0, 1, 2], [1, 1, 1]),
        Changes.of([1, 2], [0, 1], [1, -1]),
    ]
    assert len({digest(one, serial) for one in (some, *others)}) == 5
    assert digest(some, serial) != digest(some, serial + 1)


@pytest.mark.parametrize("circles", [False, True], ids=["boxes", "circles"])
def test_all_indexes_agree_with_each_other_and_the_scan(circles: bool) -> None:
    load = replace(LOAD, circles=circles)
    series = builders(COMPARED)
    assert check_with_scan(series, load, apart=not circles) > 100
    plan = MovingPlan(ticks=3, apart=not circles)
    results = measure_ticks(series, plan.record(load), plan)
    assert [one["series"] for one in results] == list(COMPARED)
    assert {one["heat"] for one in results} == {1}
    for one in results:
        assert one["digests"] == results[0]["digests"]
        assert len(one["us_per_move"]) == len(one["tick_s"]) == 3
        assert len(one["us_per_still_move"]) == (0 if circles else 3)
        assert one["updates_per_move"] > 0
        assert 0 < one["quiet_moves"] < 1
        assert one["bytes"] > 600 * one["bytes_per_subscription"]
        assert one["copies_per_message"] >= 1


def test_little_memory_gives_more_heats() -> None:
    plan = MovingPlan(ticks=1, memory_bytes=1.0)
    results = measure_ticks(builders(["twin-lists", "kk-index"]), plan.record(LOAD), plan)
    assert [one["heat"] for one in results] == [1, 2]
    assert results[0]["digests"] == results[1]["digests"]


class Forgetful(TwinLists):
    """An index that loses the last update of moves."""

    name = "forgetful"

    def move(self, rows: NDArray[Any], box: NDArray[np.int32]) -> Changes:
        """Drop the last update."""
        found = super().move(rows, box)
        return Changes(found.row[:-1], found.message[:-1], found.sign[:-1])


def test_a_wrong_index_is_found_out() -> None:
    wrong = registry.MovingBuilder(Forgetful, TwinLists.Options())
    series = {**builders(["twin-lists"]), "forgetful": wrong}
    plan = MovingPlan(ticks=2)
    with pytest.raises(NearcastError, match="twin-lists and forgetful have different updates"):
        measure_ticks(series, plan.record(LOAD), plan)
    with pytest.raises(NearcastError, match="moving-scan and forgetful"):
        check_with_scan({"forgetful": wrong}, LOAD)
    with pytest.raises(NearcastError, match="numbers of updates differ"):
        measure_lifetimes(series, LOAD, (2,))


def test_the_first_differing_tick_is_named() -> None:
    same = {"series": "a", "digests": ["0", "1", "2"]}
    check_agreement([same, same | {"series": "b"}])
    with pytest.raises(NearcastError, match="in tick 1 of 2"):
        check_agreement([same, {"series": "b", "digests": ["0", "7", "8"]}])


def test_bytes_are_noted_after_lifetimes() -> None:
    results = measure_lifetimes(builders(["twin-lists", "ss-index"]), LOAD, (1, 3))
    assert [(one["series"], one["group"]) for one in results] == [
        ("twin-lists", "1"),
        ("ss-index", "1"),
        ("twin-lists", "3"),
        ("ss-index", "3"),
    ]
    assert all(one["bytes"] > 20_000 for one in results)


def test_an_engine_has_the_updates_of_its_index() -> None:
    plan = MovingPlan(ticks=2, warm_up=1)
    engine = measure_engine(LOAD, plan, moving="twin-lists", calls=50)
    [index] = measure_ticks(builders(["twin-lists"]), plan.record(LOAD), plan)
    assert engine["updates_per_move"] == pytest.approx(index["updates_per_move"])
    assert engine["single_moves"] > 50
    assert engine["us_per_table_move"]["median"] > 0


def measured(label: str, move: float, tick: float) -> dict[str, Any]:
    return {
        "series": label,
        "us_per_move": [move, move, 9 * move],
        "us_per_publish": [2.0],
        "tick_s": [tick],
        "bytes_per_subscription": 120.0,
        "bytes_of_tokens_per_subscription": 50.0,
        "bytes_per_message": 300.0,
    }


def test_targets_are_relative_to_the_best_of_the_trees() -> None:
    results = [
        measured("twin-lists", 0.5, 1.0),
        measured("ap+-tree", 2.5, 3.0),
        measured("ap+k-tree", 2.2, 9.0),
        measured("ap+-tree as printed", 6.0, 10.0),
    ]
    engine = {"us_per_table_move": {"median": 2.0}, "single_move_us": {"median": 150.0}}
    found = {one.name: (one.measured, one.reached) for one in judge_targets(results, engine)}
    assert found == {
        "moves": (2e6, True),
        "publish": (2.0, True),
        "a subscription, all": (120.0, False),
        "a subscription, without tokens": (70.0, True),
        "a living message": (300.0, True),
        "moves, relative to the best of our ap+-trees": (pytest.approx(4.4), True),
        "whole ticks, relative to the best of our ap+-trees": (3.0, False),
        "moves, relative to the ap+-tree as printed": (12.0, True),
        "whole ticks, relative to the ap+-tree as printed": (10.0, True),
        "move_table, integer ids": (5e5, True),
        "Engine.move": (150.0, False),
    }
    assert judge_targets(results[1:]) == []


def test_the_command_writes_and_shows_everything(tmp_path: Path) -> None:
    sizes = ["--subscriptions", "500", "--messages", "100", "--ticks", "2", "--calls", "20"]
    command = ["bench", "moving", *sizes, "--out", str(tmp_path)]
    done = run(app, [*command, "--index", "twin-lists,ap+-tree as printed", "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert json.loads((tmp_path / "moving-tweets-500.json").read_text()) == result
    assert [one["series"] for one in result["results"]] == ["twin-lists", "ap+-tree as printed"]
    assert result["results"][1]["median"]["us_per_move"]["least"] > 0
    assert result["load"]["arrivals"] == 10
    assert len(result["targets"]) == 9
    block = tables_block([result])
    assert "--subscriptions 500 --messages 100 --ticks 2" in block
    assert "| `twin-lists` |" in block
    done = run(app, [*command, "--index", "twin-lists", "--memory-gb", "0"])
    assert done.exit_code == 0, done.output
    assert "move_table, integer ids" in done.stdout
    assert "agree with the scan" in done.stdout
    assert "at least 1,000,000 moves/s" in done.stdout


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--index", "b-tree"], 1, "unknown moving index 'b-tree'"),
        (["--nodes", "nodes.csv"], 2, "--edges: is missing; give both"),
        (["--mobility", "2"], 2, "mobility"),
        (["--velocity", "0"], 1, "velocity"),
        (["--range", "2"], 2, "got '2'"),
    ],
)
def test_invalid_options_are_rejected(
    options: list[str], code: int, message: str, tmp_path: Path
) -> None:
    few = ["--subscriptions", "20", "--messages", "10", "--index", "twin-lists"]
    done = run(app, ["bench", "moving", *few, "--out", str(tmp_path), *options])
    assert done.exit_code == code
    assert message in done.stderr
