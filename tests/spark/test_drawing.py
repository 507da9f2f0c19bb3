"""Subscriptions drawn from messages: always the same, always as many, and all of them match."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import typer
from pyarrow import parquet
from typer.testing import CliRunner

from nearcast import indexes
from nearcast.cli.output import OneLineErrors
from nearcast.cli.spark.subscriptions import subscriptions as command
from nearcast.datasets import Workload
from nearcast.datasets.tables import message_table
from nearcast.errors import InvalidInput, UnsupportedFile
from nearcast.intake import read_messages, read_subscriptions
from nearcast.spark.subscriptions import Survey, subscriptions, survey
from nearcast.spark.workers import drawing
from nearcast.spark.workers.drawing import Recipe, Rounds, draw_batches, survey_batches
from nearcast.text import Vocabulary, words

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

PLACES = Workload("places", seed=4)
WORDED = 120


def table_of(*, boxes: bool = False) -> pa.Table:
    """Return messages: some on the antimeridian or over it, three without words, two bad ones."""
    drawn = PLACES.messages(WORDED, range_share=0.02 if boxes else 0.0)
    table = message_table(PLACES, drawn, boxes=boxes).drop_columns("time")
    rows = table.to_pylist()
    for number, row in enumerate(rows[:12]):
        row |= {"west": 175.0, "east": -170.0} if boxes else {"lon": (-180.0, 180.0)[number % 2]}
    place = {name: rows[0][name] for name in table.column_names[2:]}
    rows += [{"id": f"wordless{i}", "text": "...", **place} for i in range(3)]
    rows += [{"id": "", "text": "word", **place}, {"id": "textless", "text": None, **place}]
    return pa.Table.from_pylist(rows, table.schema)


@pytest.fixture(params=[False, True], ids=["points", "ranges"])
def table(request: pytest.FixtureRequest) -> pa.Table:
    return table_of(boxes=request.param)


@pytest.fixture(scope="module")
def frame(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    path = tmp_path_factory.mktemp("drawing") / "m.parquet"
    parquet.write_table(table_of(), path)
    return spark.read.parquet(str(path))


@pytest.fixture(scope="module")
def surveyed(frame: DataFrame) -> Survey:
    return survey(frame.repartition(3), 3)


def rows_of(drawn: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in drawn.collect()), key=lambda row: str(row["id"]))


def hashed(table: pa.Table) -> pa.Table:
    bits = np.random.default_rng(1).integers(-(2**63), 2**63, len(table), np.int64)
    return table.append_column("hash", pa.array(bits))


@pytest.mark.parametrize("count", [1, 50, WORDED, 4 * WORDED + 7])
def test_partitions_and_order_do_not_matter(frame: DataFrame, surveyed: Survey, count: int) -> None:
    first = rows_of(subscriptions(frame.repartition(1), count, seed=3))
    assert len(first) == count
    assert len({row["id"] for row in first}) == count
    for partitions in (3, 8):
        shuffled = frame.orderBy("text").repartition(partitions)
        assert rows_of(subscriptions(shuffled, count, seed=3, surveyed=surveyed)) == first
    copies = [int(row["id"].split("#")[1]) for row in first]
    drawn = [copies.count(copy) for copy in range(max(copies) + 1)]
    whole, rest = divmod(count, WORDED)
    assert drawn == [WORDED] * whole + [rest] * (rest > 0)


def test_a_smaller_draw_is_the_beginning_of_a_larger_one(
    frame: DataFrame, surveyed: Survey
) -> None:
    few, more = (
        rows_of(subscriptions(frame, count, seed=3, surveyed=surveyed)) for count in (30, 90)
    )
    assert all(row in more for row in few)


def test_other_seeds_draw_other_subscriptions(frame: DataFrame) -> None:
    one, other = rows_of(subscriptions(frame, 60)), rows_of(subscriptions(frame, 60, seed=1))
    same = {row["id"] for row in one} & {row["id"] for row in other}
    assert len(same) < 50
    kept = {row["id"]: row for row in one}
    assert sum(kept[row["id"]] == row for row in other if row["id"] in same) <= len(same) // 10


def test_integer_ids_draw_as_their_text_does(frame: DataFrame) -> None:
    numbered = frame.where("id like 'm%'").selectExpr("cast(substr(id, 2) as bigint) id", "*")
    numbered = numbered.toDF("id", "text_id", *frame.columns[1:]).drop("text_id")
    as_text = numbered.withColumn("id", numbered["id"].cast("string"))
    assert rows_of(subscriptions(numbered, 40)) == rows_of(subscriptions(as_text, 40))


def test_every_subscription_matches_its_message(table: pa.Table) -> None:
    """Without a JVM, and judged by the scan."""
    batches = hashed(table).to_batches(max_chunksize=17)
    recipe = Recipe((2, 4), (0.0001, 1.0))
    drawn = pa.Table.from_batches(draw_batches(batches, recipe=recipe, rounds=Rounds(0, 5)))
    assert drawn.num_rows == 5 * WORDED
    vocabulary = Vocabulary()
    read, rejects = read_subscriptions(drawn, vocabulary)
    assert len(rejects) == 0
    sent, _ = read_messages(table, now_us=0)
    pairs = indexes.create("scan").build(read.clauses).match(sent.number(vocabulary)).pairs()
    message_ids, subscription_ids = sent.ids.tolist(), read.ids.tolist()
    found = {(message_ids[m], subscription_ids[s]) for m, s in pairs}
    assert all((str(id).split("#")[0], id) in found for id in subscription_ids)


def test_numbers_and_areas_are_as_asked() -> None:
    table = table_of()
    recipe = Recipe((2, 3), (0.001, 0.01))
    rounds = Rounds(10, 50)
    batches = draw_batches(hashed(table).to_batches(), recipe=recipe, rounds=rounds)
    rows = pa.Table.from_batches(batches).to_pylist()
    tokens = {row["id"]: set(words(row["text"] or "")) for row in table.to_pylist()}
    lengths = []
    for row in rows:
        own = tokens[row["id"].split("#")[0]]
        assert row["keywords"] == sorted(set(row["keywords"]))
        assert own.issuperset(row["keywords"])
        assert min(2, len(own)) <= len(row["keywords"]) <= 3
        lengths += [len(row["keywords"])] if len(own) >= 3 else []
    assert 0.4 < np.mean(np.array(lengths) == 3) < 0.6
    size = np.array([[r["east"] - r["west"], r["north"] - r["south"]] for r in rows])
    area = size.prod(axis=1) / (360 * 180)
    assert 0.00099 < area.min() < 0.0011
    assert 0.009 < area.max() < 0.0101
    assert abs(np.log(area).mean() - np.log([0.001, 0.01]).mean()) < 0.05
    aspect = size[:, 0] / size[:, 1] / 2
    assert 0.49 < aspect.min() < 0.6 < 1.6 < aspect.max() < 2.01
    chosen = {tuple(row["keywords"]) for row in rows if row["id"].startswith("m7#")}
    assert len(chosen) == len(tokens["m7"]) * (len(tokens["m7"]) ** 2 - 1) / 6 or len(chosen) > 8


def test_a_box_may_be_the_world() -> None:
    batches = hashed(table_of()).to_batches()
    recipe = Recipe((1, 1), (1.0, 1.0))
    drawn = pa.Table.from_batches(draw_batches(batches, recipe=recipe, rounds=Rounds(0, 1)))
    edges = [set(drawn[side].to_pylist()) for side in ("west", "south", "east", "north")]
    assert edges == [{-180.0}, {-90.0}, {180.0}, {90.0}]


def test_boxes_of_a_city_are_shares_of_it(spark: SparkSession) -> None:
    """Shares of the world would be boxes larger than the city, which match everything."""
    places = [(f"m{i}", "hot tea", 13.3 + i % 7 / 30, 52.4 + i % 11 / 50) for i in range(80)]
    frame = spark.createDataFrame(places, "id string, text string, lon double, lat double")
    found = survey(frame.repartition(3))
    west, south, east, north = (side / 1e7 for side in found.box)
    assert (west, south) == (13.3, 52.4)
    assert (east, north) == pytest.approx((13.5, 52.6))
    for row in rows_of(subscriptions(frame, 160, share=(0.01, 0.04), surveyed=found)):
        assert west <= row["west"] <= row["east"] <= east
        assert south <= row["south"] <= row["north"] <= north
        area = (row["east"] - row["west"]) * (row["north"] - row["south"])
        assert 0.0099 < area / ((east - west) * (north - south)) < 0.0401


def test_many_copies_come_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = hashed(table_of()).to_batches()
    whole = pa.Table.from_batches(draw_batches(batches, recipe=Recipe(), rounds=Rounds(0, 9)))
    monkeypatch.setattr(drawing, "MAX_ROWS", 100)
    parts = list(draw_batches(batches, recipe=Recipe(), rounds=Rounds(0, 9)))
    assert max(batch.num_rows for batch in parts) == 100
    assert pa.Table.from_batches(parts).combine_chunks().equals(whole.combine_chunks())


def test_a_survey_counts_what_cannot_be_drawn_from(frame: DataFrame, surveyed: Survey) -> None:
    assert (surveyed.messages, surveyed.wordless, surveyed.rejected) == (WORDED, 3, 2)
    with pytest.raises(InvalidInput, match="seed 6"):
        subscriptions(frame, 10, seed=6, surveyed=surveyed)
    [batch] = survey_batches([])
    assert batch.num_rows == 0


def test_what_cannot_be_drawn_is_said(frame: DataFrame) -> None:
    with pytest.raises(InvalidInput, match=r"3 have none, 0 rows"):
        subscriptions(frame.where("id like 'wordless%'"), 10)
    for tokens, share in (((0, 3), (0.1, 0.1)), ((4, 3), (0.1, 0.1)), ((1, 1), (0.0, 0.1))):
        with pytest.raises(InvalidInput, match="must be two"):
            subscriptions(frame, 10, tokens=tokens, share=share)
    with pytest.raises(InvalidInput, match="at least 1"):
        subscriptions(frame, 0)
    with pytest.raises(UnsupportedFile, match="not a table of messages"):
        subscriptions(frame.drop("lon"), 10)


def test_the_command_draws(spark: SparkSession, tmp_path: Path) -> None:
    app = typer.Typer(cls=OneLineErrors)
    app.command("subscriptions")(command)
    app.command("other")(lambda: None)
    parquet.write_table(table_of(), tmp_path / "m.parquet")
    where = ["--messages", str(tmp_path / "m.parquet"), "--out", str(tmp_path / "drawn")]
    args = ["subscriptions", *where, "--count", "200", "--seed", "3", "--tokens", "1-2"]
    done = CliRunner().invoke(app, [*args, "--json"])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert (summary["count"], summary["messages"], summary["rejected"]) == (200, WORDED, 2)
    table = parquet.read_table(tmp_path / "drawn")
    assert table.num_rows == 200
    read, rejects = read_subscriptions(table, Vocabulary())
    assert (len(read), len(rejects)) == (200, 0)
    assert CliRunner().invoke(app, args).exit_code == 1
    shown = CliRunner().invoke(app, [*args, "--overwrite"])
    assert "200" in shown.stdout
