"""Statistics of frames: as counted locally, whatever the partitions."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import typer
from pyarrow import parquet
from typer.testing import CliRunner

from nearcast.cli.output import OneLineErrors
from nearcast.cli.spark.statistics import statistics as command
from nearcast.columns import Messages
from nearcast.datasets import Workload
from nearcast.datasets.tables import message_table, subscription_table
from nearcast.errors import InvalidInput, UnknownName, UnsupportedFile
from nearcast.indexes.statistics import Grid, Statistics
from nearcast.intake import read_messages, read_subscriptions
from nearcast.plots.statistics import plot_statistics
from nearcast.spark.statistics import (
    bounding_box,
    box_statistics,
    cell_statistics,
    density,
    statistics,
    token_statistics,
)
from nearcast.spark.workers import counting
from nearcast.spark.workers.counting import count_batches, write_statistics
from nearcast.text import Vocabulary, words

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from nearcast.spark.workers.counting import Kind

TWEETS = Workload("tweets", seed=11)
ACROSS, UP = 24, 12


def messages(*, boxes: bool = False) -> pa.Table:
    """Return drawn messages; some over the antimeridian, some without words, bad, or twice."""
    drawn = TWEETS.messages(300, range_share=0.01 if boxes else 0.0)
    table = message_table(TWEETS, drawn, boxes=boxes).drop_columns("time")
    rows = table.slice(0, 40).to_pylist()
    west = "west" if boxes else "lon"
    for row in rows[:10]:
        row |= {"west": 179.5, "east": -179.0} if boxes else {"lon": 180.0}
    rows[10]["text"] = "?!"
    rows[11]["text"] = "Éclair ÉCLAIR éclair b"
    rows[12][west] = 200.0
    rows[13]["id"] = None
    return pa.concat_tables([table, pa.Table.from_pylist(rows, table.schema)])


def subscriptions() -> pa.Table:
    """Return drawn subscriptions, and some with expressions, over the antimeridian, bad, twice."""
    table = subscription_table(TWEETS, TWEETS.subscriptions(200))
    table = table.append_column("expression", pa.nulls(len(table), pa.string()))
    rows = table.slice(0, 30).to_pylist()
    for row in rows[:10]:
        row |= {"keywords": None, "expression": "(tea OR cake AND tea) NOT milk"}
    for row in rows[5:15]:
        row |= {"west": 170.0, "east": -170.0}
    rows[16] |= {"keywords": None, "expression": "(((broken"}
    rows[17] |= {"keywords": None}
    return pa.concat_tables([table, pa.Table.from_pylist(rows, table.schema)])


TABLES: dict[str, tuple[Kind, pa.Table]] = {
    "points": ("messages", messages()),
    "ranges": ("messages", messages(boxes=True)),
    "subscriptions": ("subscriptions", subscriptions()),
}


def counted_locally(name: str, across: int = ACROSS, up: int = UP) -> Statistics:
    """Count with intake and `Statistics.count` alone; every row gets an id of its own."""
    kind, table = TABLES[name]
    ids = [None if old is None else i for i, old in enumerate(table["id"].to_pylist())]
    table = table.set_column(0, "id", pa.array(ids))
    vocabulary = Vocabulary()
    columns: Any
    if kind == "messages":
        vocabulary.add([t for text in table["text"].to_pylist() for t in words(text)])
        columns = read_messages(table, now_us=0)[0].number(vocabulary)
    else:
        columns = read_subscriptions(table, vocabulary)[0].clauses
    return Statistics.count(columns, vocabulary, across=across, up=up)


@pytest.fixture(scope="module")
def frames(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, DataFrame]:
    folder = tmp_path_factory.mktemp("statistics")
    for name, (_, table) in TABLES.items():
        parquet.write_table(table, folder / f"{name}.parquet")
    return {name: spark.read.parquet(str(folder / f"{name}.parquet")) for name in TABLES}


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def pairs_of(counted: Statistics) -> dict[tuple[int, str], int]:
    tokens = counted.vocabulary.tokens().to_pylist()
    cell = np.repeat(np.arange(counted.grid.cells), np.diff(counted.cell_start)).tolist()
    named = [tokens[t] for t in counted.cell_token.tolist()]
    return dict(zip(zip(cell, named, strict=True), counted.cell_frequency.tolist(), strict=True))


@pytest.mark.parametrize("name", TABLES)
def test_the_folder_has_the_bytes_of_local_counting(
    frames: dict[str, DataFrame], name: str, tmp_path: Path
) -> None:
    kind, table = TABLES[name]
    local = counted_locally(name)
    rejected = 2 if kind == "messages" else 1
    assert local.documents == len(table) - rejected
    for partitions in (1, 2, 7):
        folder = tmp_path / f"by{partitions}"
        shuffled = frames[name].repartition(partitions)
        given = statistics(shuffled, kind, folder, across=ACROSS, up=UP)
        assert (given.documents, given.rejected) == (local.documents, rejected)
    assert files_of(tmp_path / "by1") == files_of(tmp_path / "by2") == files_of(tmp_path / "by7")
    local.save(tmp_path / "local")
    assert files_of(tmp_path / "local")["arrays.bin"][64:] == files_of(folder)["arrays.bin"][64:]


@pytest.mark.parametrize("name", TABLES)
def test_frames_of_parts_say_the_same(frames: dict[str, DataFrame], name: str) -> None:
    kind = TABLES[name][0]
    frame, local = frames[name].repartition(3), counted_locally(name)
    tokens = frame.transform(token_statistics, kind).collect()
    assert [row["token"] for row in tokens] == local.vocabulary.tokens().to_pylist()
    assert [row["df"] for row in tokens] == local.vocabulary.frequency.tolist()
    assert [row["idf"] for row in tokens] == local.idf().tolist()
    cells = frame.transform(cell_statistics, kind, ACROSS, UP).collect()
    assert {(row["cell"], row["token"]): row["df"] for row in cells} == pairs_of(local)
    assert len(cells) == len(local.cell_token)
    places = frame.transform(density, kind, ACROSS, UP).collect()
    occupied = {c: n for c, n in enumerate(local.density.tolist()) if n}
    assert {row["cell"]: row["documents"] for row in places} == occupied
    boxes = frame.transform(box_statistics, kind).collect()
    found = {(row["side"], row["bin"]): row["boxes"] for row in boxes}
    bins = {"width": local.width.tolist(), "height": local.height.tolist()}
    assert found == {(side, b): n for side, own in bins.items() for b, n in enumerate(own) if n}


def test_points_are_counted_as_by_hand(frames: dict[str, DataFrame]) -> None:
    expected: Counter[str] = Counter()
    for row in TABLES["points"][1].to_pylist():
        if row["id"] is not None and row["lon"] <= 180:
            expected.update(set(words(row["text"])))
    found = frames["points"].transform(token_statistics, "messages").collect()
    assert {row["token"]: row["df"] for row in found} == dict(expected)


def test_little_room_gives_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a JVM: tasks that must give what they counted again and again."""
    table = TABLES["ranges"][1]
    grid = Grid(ACROSS, UP)

    def run(folder: Path) -> int:
        batches = table.to_batches(max_chunksize=50)
        rows = list(count_batches(batches, kind="messages", grid=grid))
        summed = pa.Table.from_batches(rows).group_by(["what", "cell", "token"])
        total = summed.aggregate([("times", "sum")]).rename_columns(["what", "cell", "token", "n"])
        list(write_statistics(total.combine_chunks().to_batches(), folder=str(folder), grid=grid))
        return len(rows)

    whole = run(tmp_path / "whole")
    monkeypatch.setattr(counting, "MAX_PAIRS", 2_500)
    monkeypatch.setattr(counting, "MAX_TOKENS", 100)
    monkeypatch.setattr(counting, "MAX_ROWS", 300)
    assert run(tmp_path / "little") > 5 * whole
    assert files_of(tmp_path / "whole") == files_of(tmp_path / "little")


def test_no_rows_give_empty_statistics(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([], "id string, text string, lon double, lat double")
    empty = statistics(frame, "messages", tmp_path / "s", across=3, up=2)
    assert (empty.documents, len(empty.vocabulary), empty.grid) == (0, 0, Grid(3, 2))
    assert frame.transform(token_statistics, "messages").collect() == []


def test_a_city_is_counted_over_its_own_box(spark: SparkSession, tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    lon, lat = draw.uniform(13.3, 13.5, 300), draw.uniform(52.4, 52.6, 300)
    rows = [(i, "tea", float(x), float(y)) for i, (x, y) in enumerate(zip(lon, lat, strict=True))]
    frame = spark.createDataFrame(rows, "id int, text string, lon double, lat double")
    found = statistics(frame, "messages", tmp_path / "own", across=5, up=5)
    assert np.count_nonzero(found.density) == 25
    box = bounding_box(frame, "messages")
    assert box == pytest.approx((lon.min(), lat.min(), lon.max(), lat.max()), abs=1e-7)
    assert [round(side * 1e7) for side in box or ()] == [*found.grid.box]
    assert frame.transform(density, "messages", 5, 5).count() == 25
    over_world = statistics(frame, "messages", tmp_path / "world", box=(-180, -90, 180, 90))
    assert np.count_nonzero(over_world.density) == 1
    with pytest.raises(InvalidInput, match="west <= east"):
        statistics(frame, "messages", tmp_path / "wrong", box=(10, 0, 5, 1))
    assert bounding_box(frame.where("id < 0"), "messages") is None


def test_what_cannot_be_counted_is_said_before_a_job_runs(
    frames: dict[str, DataFrame], tmp_path: Path
) -> None:
    frame: Any = frames["points"]
    with pytest.raises(
        UnsupportedFile, match="not a table of messages: it has the columns id, lon"
    ):
        token_statistics(frame.select("id", "lon", "lat"), "messages")
    with pytest.raises(UnsupportedFile, match="not a table of subscriptions"):
        token_statistics(frame, "subscriptions")
    with pytest.raises(UnknownName, match="choose from: messages, subscriptions"):
        token_statistics(frame, "tweets")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="at least 1"):
        cell_statistics(frame, "messages", across=0)
    with pytest.raises(InvalidInput, match="must be a path on a disk"):
        statistics(frame, "messages", "s3://bucket/statistics")


def test_pictures_are_drawn_of_little_as_well(tmp_path: Path) -> None:
    few = Messages.of([[0], []], [[0, 0], [5, 5]])
    for name, columns in (("none", Messages.of([], np.empty((0, 2)))), ("points", few)):
        plot_statistics(Statistics.count(columns, Vocabulary(["a"])), tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer(cls=OneLineErrors)
    app.command("statistics")(command)
    app.command("other")(lambda: None)
    return app


def test_the_command_counts_and_draws(
    spark: SparkSession, app: typer.Typer, tmp_path: Path
) -> None:
    source, out, plot = tmp_path / "m.parquet", tmp_path / "out", tmp_path / "p.png"
    parquet.write_table(TABLES["ranges"][1], source)
    args = ["statistics", "--kind", "messages", "--input", str(source), "--out", str(out)]
    run = CliRunner().invoke
    done = run(app, [*args, "--across", "24", "--up", "12", "--plot", str(plot), "--json"])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert (summary["documents"], summary["rejected"]) == (338, 2)
    assert Statistics.load(out).grid == counted_locally("ranges").grid
    assert plot.read_bytes().startswith(b"\x89PNG")
    again = run(app, args)
    assert again.exit_code == 1
    assert "add --overwrite" in again.stderr
    strict = run(app, [*args, "--overwrite", "--strict"])
    assert strict.exit_code == 3
    assert "338" in strict.stdout
    missing = run(app, [*args[:3], "--input", str(tmp_path / "no"), "--out", str(tmp_path / "x")])
    assert missing.exit_code == 1
    assert len(missing.stderr.strip().splitlines()) == 1
