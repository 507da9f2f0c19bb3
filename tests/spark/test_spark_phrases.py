"""Phrases, beginnings of words and tokenizers by name on Spark, against plain Python."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from own_tokens import codes
from typer.testing import CliRunner

from nearcast.cli import app
from nearcast.errors import InvalidInput, StorageError
from nearcast.model import parse
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.build import build
from nearcast.spark.changes import changes
from nearcast.spark.match import match
from nearcast.spark.prepare import prepare
from nearcast.spark.statistics import token_statistics
from nearcast.spark.stream import stream
from nearcast.spark.subscriptions import subscriptions as draw_subscriptions
from nearcast.testing.expressions import draw_expression, draw_text, is_true, write
from nearcast.text import words

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

BOX = {"west": 0.0, "south": 0.0, "east": 9.0, "north": 9.0}


def drawn(count: int, seed: int) -> list[Any]:
    """Return trees of expressions that can be registered."""
    rng = Random(seed)
    trees: list[Any] = []
    while len(trees) < count:
        tree = draw_expression(rng)
        try:
            parse(write(tree), words)
        except InvalidInput:
            continue
        trees.append(tree)
    return trees


TREES = drawn(120, 5)
TEXTS = [draw_text(Random(seed)) for seed in range(80)]
SUBSCRIPTIONS = pa.Table.from_pylist(
    [{"id": i, "expression": write(tree), **BOX} for i, tree in enumerate(TREES)]
)
MESSAGES = pa.Table.from_pylist(
    [{"id": i, "text": text, "lon": 1.0, "lat": 1.0} for i, (text, _) in enumerate(TEXTS)]
)


def expected(trees: dict[int, Any]) -> set[tuple[int, int]]:
    return {
        (m, s)
        for s, tree in trees.items()
        for m, (_, said) in enumerate(TEXTS)
        if is_true(tree, [said])
    }


def pairs(frame: DataFrame) -> set[tuple[Any, Any]]:
    return {(row.message_id, row.subscription_id) for row in frame.collect()}


@pytest.mark.parametrize("shards", [1, 4])
def test_phrases(spark: SparkSession, tmp_path: Path, shards: int) -> None:
    """Built, matched, changed and streamed: what plain Python says."""
    built = build(spark.createDataFrame(SUBSCRIPTIONS), tmp_path / "index", shards=shards)
    assert built.rejected == 0
    messages = spark.createDataFrame(MESSAGES)
    trees = dict(enumerate(TREES))
    assert len(expected(trees)) > 500
    for mode in ("replicated", "sharded"):
        assert pairs(match(messages, tmp_path / "index", mode=mode)) == expected(trees)
    more = {200 + i: tree for i, tree in enumerate(drawn(20, 9))}
    rows = [{"op": "insert", "id": i, "expression": write(tree), **BOX} for i, tree in more.items()]
    rows += [{"op": "delete", "id": i, "expression": None, **BOX} for i in range(0, 120, 3)]
    changed = changes(spark.createDataFrame(pa.Table.from_pylist(rows)), tmp_path / "index")
    assert changed.rejected == 0
    trees = {i: tree for i, tree in trees.items() if i % 3} | more
    for mode in ("replicated", "sharded"):
        assert pairs(match(messages, tmp_path / "index", mode=mode)) == expected(trees)
    messages.write.parquet(str(tmp_path / "messages"))
    arriving = spark.readStream.schema(messages.schema).parquet(str(tmp_path / "messages"))
    where = {"to": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    stream(arriving, tmp_path / "index", **where, available_now=True).awaitTermination()  # type: ignore[arg-type]
    assert pairs(spark.read.parquet(str(tmp_path / "out"))) == expected(trees)


def table(rows: dict[str, Any], column: str, **place: float) -> pa.Table:
    return pa.Table.from_pylist([{"id": i, column: value, **place} for i, value in rows.items()])


def test_stems_are_stored_and_checked(spark: SparkSession, tmp_path: Path) -> None:
    asked = {"a": "flooding", "b": '"old towns"', "c": "c++", "e": "flooded*"}
    wanted = table(asked, "expression", **BOX)
    texts = {"1": "Flooded!", "2": "an old town", "3": "town old"}
    said = spark.createDataFrame(table(texts, "text", lon=1.0, lat=1.0))
    built = build(spark.createDataFrame(wanted), tmp_path / "index", tokenizer="stem:english")
    assert (built.version.tokenizer, built.rejected) == ("stem:english", 1)
    assert Artifact(tmp_path / "index").latest().tokenizer == "stem:english"
    for chosen in (None, "stem:english"):
        found = match(said, tmp_path / "index", tokenizer=chosen)
        assert pairs(found) == {("1", "a"), ("1", "e"), ("2", "b")}
    with pytest.raises(StorageError, match="'stem:english', not 'words'"):
        match(said, tmp_path / "index", tokenizer="words")
    insert = table({"d": "towns"}, "expression", **BOX).append_column("op", pa.array(["insert"]))
    with pytest.raises(StorageError, match="'stem:english', not 'cjk'"):
        changes(spark.createDataFrame(insert), tmp_path / "index", tokenizer="cjk")
    changes(spark.createDataFrame(insert), tmp_path / "index")
    assert ("3", "d") in pairs(match(said, tmp_path / "index"))


@pytest.mark.parametrize("own", [codes, "own_tokens:many_codes"])
def test_tokenizers_of_ones_own(spark: SparkSession, tmp_path: Path, own: Any) -> None:
    wanted = table({"a": ["C++"], "b": ["x y"]}, "keywords", **BOX)
    said = table({"1": "C++/x", "2": "c++", "3": "x y/C"}, "text", lon=1.0, lat=1.0)
    frame = spark.createDataFrame(wanted)
    assert prepare(frame, "subscriptions").rejects.count() == 1
    assert prepare(frame, "subscriptions", tokenizer=own).rejects.count() == 0
    built = build(frame, tmp_path / "index", shards=2, tokenizer=own)
    assert built.version.tokenizer == ("own_tokens:codes" if own is codes else own)
    messages = spark.createDataFrame(said)
    for mode in ("replicated", "sharded"):
        assert pairs(match(messages, tmp_path / "index", mode=mode)) == {("1", "a"), ("3", "b")}
    counted = {
        row.token: row.df for row in token_statistics(messages, "messages", tokenizer=own).collect()
    }
    assert counted == {"C++": 1, "x": 1, "c++": 1, "x y": 1, "C": 1}
    taken = draw_subscriptions(messages, 3, tokens=(1, 1), tokenizer=own).collect()
    assert {keyword for row in taken for keyword in row.keywords} <= counted.keys()
    with pytest.raises(InvalidInput, match="top level of a module"):
        build(frame, tmp_path / "other", tokenizer=lambda text: [text])


def test_statistics_of_subscriptions_show_phrases(spark: SparkSession) -> None:
    wanted = table({"a": '"old town" flood*', "b": "flood* tea"}, "expression", **BOX)
    counted = token_statistics(spark.createDataFrame(wanted), "subscriptions").collect()
    assert {row.token: row.df for row in counted} == {"flood*": 2, '"old town"': 1, "tea": 1}


def test_commands(spark: SparkSession, tmp_path: Path) -> None:
    def run(*given: object, code: int = 0) -> Any:
        done = CliRunner().invoke(app, ["spark", *map(str, given)])
        assert done.exit_code == code, done.output
        return json.loads(done.stdout) if code == 0 else done.output

    wanted, said = tmp_path / "s.csv", tmp_path / "m.csv"
    wanted.write_text(
        'id,expression,west,south,east,north\na,floods,0,0,9,9\nb,"""old town""",0,0,9,9\n'
    )
    said.write_text("id,text,lon,lat\n1,flooding the old towns,1,1\n2,town old,1,1\n")
    index, out = tmp_path / "index", tmp_path / "out"
    named = ("--tokenizer", "stem:english")
    built = run("build", "--subscriptions", wanted, "--out", index, *named, "--json")
    assert built["tokenizer"] == "stem:english"
    found = run("match", "--index-path", index, "--messages", said, "--out", out, *named, "--json")
    assert found["matches"] == 2
    for command in ("prepare", "statistics"):
        kind = ("--kind", "subscriptions", "--input", wanted)
        run(command, *kind, "--out", tmp_path / command, *named, "--json")
    drawn = ("--messages", said, "--out", tmp_path / "drawn", "--count", 2)
    run("subscriptions", *drawn, *named, "--json")
    wrong = ("--out", tmp_path / "other", "--tokenizer", "words")
    assert "not 'words'" in run("match", "--index-path", index, "--messages", said, *wrong, code=1)
