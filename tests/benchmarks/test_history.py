"""``nearcast bench history``: records by commit, the comparison with earlier ones, the plot."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import nearcast
from nearcast.benchmarks import history_figures
from nearcast.benchmarks.history import add_record, compare_with_earlier, read_history, series
from nearcast.benchmarks.plot_history import plot_history
from nearcast.cli import app
from nearcast.errors import UnsupportedFile

run = CliRunner().invoke

MACHINE = {
    "processor": "a processor",
    "cores": 2,
    "system": "Linux",
    "memory_gb": 8.0,
    "python": "3.11",
    "numba": "0.61",
    "load": 0.0,
    "shared": False,
}


def make_record(day: int, ratio: float, spread: float = 0.1, **changes: Any) -> dict[str, Any]:
    quartiles = {"median": ratio, "low": ratio - spread / 2, "high": ratio + spread / 2}
    match = {"unit": "µs/message", "value": quartiles, "ratio": quartiles}
    size = {"unit": "bytes/subscription", "value": changes.pop("size", 40.0)}
    return {
        "commit": f"c{day}",
        "date": f"2026-01-{day:02}T12:00:00+00:00",
        "subject": f"Change {day}",
        "dirty": False,
        "subscriptions": 1000,
        "rounds": 5,
        "machine": MACHINE,
        "figures": {"match": match, "index size": size},
        "skipped": {},
        **changes,
    }


def slow_figures(records: list[dict[str, Any]]) -> list[list[str]]:
    return [[c.name for c in compare_with_earlier(records, r) if c.slow] for r in records]


def test_records_are_added_by_date_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "history.json"
    assert read_history(path) == []
    add_record(path, make_record(2, 10.0))
    add_record(path, make_record(1, 10.0))
    records = add_record(path, make_record(2, 11.0))
    assert [(r["commit"], r["figures"]["match"]["ratio"]["median"]) for r in records] == [
        ("c1", 10.0),
        ("c2", 11.0),
    ]
    assert read_history(path) == records


def test_other_machines_and_sizes_are_kept_and_not_compared(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    add_record(path, make_record(1, 1.0))
    add_record(path, make_record(1, 2.0, machine={**MACHINE, "cores": 64}))
    add_record(path, make_record(1, 3.0, subscriptions=5))
    record = make_record(2, 4.0)
    records = add_record(path, record)
    assert len(records) == 4
    assert [r["figures"]["match"]["ratio"]["median"] for r in series(records, record)] == [1.0, 4.0]


def test_a_newer_version_of_a_package_is_compared() -> None:
    records = [make_record(1, 10.0), make_record(2, 20.0, machine={**MACHINE, "numba": "0.62"})]
    assert slow_figures(records) == [[], ["match"]]


def test_a_slow_commit_is_marked() -> None:
    records = [make_record(day, ratio) for day, ratio in enumerate([10, 10.5, 9.8, 12, 10.1], 1)]
    assert slow_figures(records) == [[], [], [], ["match"], []]
    worst = compare_with_earlier(records, records[3])[0]
    assert worst.change == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("ratio", "spread", "slow"),
    [(11.4, 0.1, False), (11.6, 0.1, True), (12.0, 2.1, False), (12.0, 1.9, True)],
)
def test_slow_is_more_than_the_limit_and_than_the_spread(
    ratio: float, spread: float, slow: bool
) -> None:
    records = [make_record(1, 10.0), make_record(2, ratio, spread)]
    assert slow_figures(records)[1] == (["match"] if slow else [])


def test_a_larger_index_is_marked() -> None:
    records = [make_record(1, 10.0), make_record(2, 10.0, size=50.0)]
    assert slow_figures(records)[1] == ["index size"]


def test_a_figure_that_older_commits_lack_is_compared_with_nothing() -> None:
    first = make_record(1, 10.0)
    del first["figures"]["match"]
    second = make_record(2, 10.0)
    found = compare_with_earlier([first, second], second)
    assert [(c.name, c.earlier, c.change) for c in found] == [
        ("match", None, None),
        ("index size", 40.0, 1.0),
    ]


def test_the_plot_is_written(tmp_path: Path) -> None:
    first = make_record(1, 10.0)
    del first["figures"]["match"]
    records = [first, make_record(2, 10.0), make_record(3, 13.0, dirty=True)]
    plot_history(records, tmp_path / "history.png")
    assert (tmp_path / "history.png").read_bytes().startswith(b"\x89PNG")


def test_the_check_fails_if_the_last_commit_is_slow(tmp_path: Path) -> None:
    path, plot = tmp_path / "history.json", tmp_path / "history.png"
    options = ["bench", "history", "--show", "--file", str(path), "--plot", str(plot)]
    missing = run(app, options)
    assert missing.exit_code == 1
    assert "has no records" in missing.stderr
    add_record(path, make_record(1, 10.0))
    assert run(app, [*options, "--check"]).exit_code == 0
    add_record(path, make_record(2, 12.0))
    done = run(app, options)
    assert done.exit_code == 0, done.output
    assert "1.20 x" in done.stdout
    assert "slow" in done.stdout
    assert plot.exists()
    assert run(app, [*options, "--check"]).exit_code == 1


def test_other_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text("{")
    with pytest.raises(UnsupportedFile, match="is not JSON"):
        read_history(path)
    path.write_text('{"experiment": "calls"}')
    with pytest.raises(UnsupportedFile, match="not a file of nearcast bench history"):
        read_history(path)


def test_a_checkout_is_measured_and_recorded(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "src").symlink_to(Path(nearcast.__file__).parents[1])
    person = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    commit = ["-c", "commit.gpgsign=false", "commit", "--quiet", "--message", "First"]
    for arguments in (["init", "--quiet"], ["add", "src"], [*person, *commit]):
        subprocess.run(["git", "-C", str(checkout), *arguments], check=True)
    path, plot = tmp_path / "history.json", tmp_path / "history.png"
    output = ["--file", str(path), "--plot", str(plot)]
    sizes = ["--subscriptions", "300", "--rounds", "1"]
    done = run(app, ["bench", "history", "--checkout", str(checkout), *sizes, *output])
    assert done.exit_code == 0, done.output
    [record] = json.loads(path.read_text())["records"]
    assert (record["subject"], record["dirty"]) == ("First", False)
    names = [figure.name for figure in history_figures.FIGURES]
    assert list(record["figures"]) == [*names, "index size"]
    assert record["skipped"] == {}
    assert all(record["figures"][name]["ratio"]["median"] > 0 for name in names)
    assert plot.exists()


def test_a_folder_that_is_no_checkout_is_rejected(tmp_path: Path) -> None:
    done = run(app, ["bench", "history", "--checkout", str(tmp_path)])
    assert done.exit_code == 1
    assert "is not a git checkout" in done.stderr


def test_a_figure_that_a_checkout_cannot_give_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(subscriptions: int) -> history_figures.Run:
        raise AttributeError(f"nothing for {subscriptions}")

    work = history_figures.Run(lambda: 0.5, 10)
    figures = (
        history_figures.Figure("old", prepare, "µs"),
        history_figures.Figure("new", lambda subscriptions: work, "ms", 1e-3),
    )
    monkeypatch.setattr(history_figures, "FIGURES", figures)
    measured = history_figures.measure(100, 3)
    assert measured["skipped"] == {"old": "AttributeError: nothing for 100"}
    assert measured["figures"]["new"]["value"] == {"median": 50.0, "low": 50.0, "high": 50.0}
