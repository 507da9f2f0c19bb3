"""Raw records to clean rows on Spark: frames, streams and the command."""

from __future__ import annotations

import csv
import json
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import typer
from pyarrow import parquet
from pyspark.sql import functions as F
from typer.testing import CliRunner

from nearcast.cli.output import OneLineErrors
from nearcast.cli.spark import prepare as command
from nearcast.errors import NearcastError, UnknownName, UnsupportedFile
from nearcast.intake import read_messages
from nearcast.spark.prepare import Prepared, clean, prepare

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

NAMES = {"id": "key", "text": "body", "lon": "x", "lat": "y", "time": "at"}
RAW = "key string, body string, x string, y string, at string"
FAULTS: dict[str, dict[str, str | None]] = {
    "id": {"key": None},
    "text": {"body": None},
    "lon": {"x": "200"},
    "lat": {"y": "north"},
    "time": {"at": "noon"},
}


class Dirty:
    """Generated raw messages, and what should become of them by plain Python.

    In CSV, a text cannot be missing: an empty cell is an empty text.
    """

    def __init__(self, count: int, seed: int = 0, *, csv: bool = False) -> None:
        faults = [name for name in FAULTS if not (csv and name == "text")]
        draw = random.Random(seed)
        self.records: list[dict[str, str | None]] = []
        self.clean: dict[str, dict[str, str | None]] = {}
        self.faults: list[str] = []
        self.duplicates = 0
        for number in range(count):
            record: dict[str, str | None] = {
                "key": f"m{draw.randrange(count)}",
                "body": f'tea,  "milk"\tand é{number}',
                "x": f"{draw.uniform(-180, 180):.9f}",
                "y": f"{draw.uniform(-90, 90):.9f}",
                "at": draw.choice(["1700000000", "2023-11-14T22:13:20Z", None]),
            }
            fault = draw.choice(faults) if draw.random() < 0.3 else None
            if fault is not None:
                record |= FAULTS[fault]
                self.faults.append(fault)
            elif record["key"] in self.clean:
                self.duplicates += 1
            else:
                self.clean[str(record["key"])] = record
            self.records.append(record)

    @property
    def counts(self) -> dict[str, int]:
        return {
            "read": len(self.records),
            "clean": len(self.clean),
            "rejected": len(self.faults),
            "duplicates": self.duplicates,
        }

    def frame(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame([list(r.values()) for r in self.records], RAW)

    def expected(self) -> list[tuple[Any, ...]]:
        moment = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC).timestamp()
        return sorted(
            (
                key,
                str(record["body"]).replace("  ", " ").replace("\t", " "),
                round(float(record["x"] or 0) * 1e7) / 1e7,
                round(float(record["y"] or 0) * 1e7) / 1e7,
                moment if record["at"] else None,
            )
            for key, record in self.clean.items()
        )


def found(rows: DataFrame) -> list[tuple[Any, ...]]:
    chosen = rows.select("id", "text", "lon", "lat", F.col("time").cast("double"))
    return sorted(tuple(row) for row in chosen.collect())


def test_dirty_messages_become_what_python_says(spark: SparkSession) -> None:
    dirty = Dirty(300)
    prepared = prepare(dirty.frame(spark), "messages", NAMES)
    assert found(prepared.rows) == dirty.expected()
    assert prepared.check() == dirty.counts
    rejects = prepared.rejects.orderBy("row").collect()
    assert [row["field"] for row in rejects] == dirty.faults
    # The record has all columns, under their own names.
    own = {NAMES[rejects[-1]["field"]], *json.loads(rejects[-1]["record"])}
    assert own >= {"key", "body", "x", "y"}
    assert prepared.rows.dtypes == [
        ("id", "string"),
        ("text", "string"),
        ("lon", "double"),
        ("lat", "double"),
        ("time", "timestamp"),
    ]


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_nothing_vanishes_however_it_is_cut(spark: SparkSession, partitions: int) -> None:
    dirty = Dirty(200, seed=partitions)
    # By the id of another row, so that twins lie in different partitions.
    frame = dirty.frame(spark).repartition(partitions, "body")
    prepared = prepare(frame, "messages", NAMES)
    assert {row["id"] for row in prepared.rows.collect()} == dirty.clean.keys()
    assert prepared.check() == dirty.counts
    assert sorted(r["field"] for r in prepared.rejects.collect()) == sorted(dirty.faults)
    assert prepared.rejects.select("row").distinct().count() == len(dirty.faults)


def test_duplicates_can_stay(spark: SparkSession) -> None:
    dirty = Dirty(60)
    prepared = prepare(dirty.frame(spark), "messages", NAMES, duplicates="keep")
    assert prepared.rows.count() == 60 - len(dirty.faults)
    assert prepared.check() == {
        **dirty.counts,
        "clean": 60 - len(dirty.faults),
        "duplicates": 0,
    }
    assert "Exchange" not in plan_of(prepared.rows)


def plan_of(frame: DataFrame) -> str:
    jvm: Any = frame
    return str(jvm._jdf.queryExecution().executedPlan().toString())


def test_a_sum_that_does_not_fit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"read": 9, "clean": 4, "rejected": 2, "duplicates": 1}
    monkeypatch.setattr(Prepared, "counts", counts)
    broken: Any = Prepared(*[None] * 4)  # type: ignore[arg-type]
    with pytest.raises(NearcastError, match="9 read, 4 clean, 2 rejected, 1 duplicates"):
        broken.check()


def test_subscriptions_of_any_types(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [
            (1, ["flat white"], 1.0, 2.0, "50", datetime(2024, 5, 6), {"a": 1}),
            (2, ["!!"], 1.0, 2.0, "50", None, None),
            (3, None, 1.0, 2.0, "50", None, None),
            (1, None, 1.0, 2.0, "60", None, None),
        ],
        "id int, words array<string>, lon float, lat double, radius_m string, "
        "until timestamp, other map<string, int>",
    )
    names: dict[str, Any] = {"keywords": "words", "expires_at": F.col("until")}
    prepared = prepare(frame, "subscriptions", names)
    rows = prepared.rows.orderBy("id").collect()
    assert [(row["id"], row["keywords"], row["radius_m"]) for row in rows] == [
        (1, ["flat white"], 50.0),
        (3, None, 50.0),
    ]
    assert prepared.rows.schema["id"].dataType.simpleString() == "bigint"
    assert rows[0]["expires_at"] == datetime(2024, 5, 6)
    assert prepared.check() == {"read": 4, "clean": 2, "rejected": 1, "duplicates": 1}


def test_times_do_not_depend_on_the_zone_of_the_session(spark: SparkSession) -> None:
    text = "select 'a' id, 'x' text, 1 lon, 1 lat, '2024-05-06T07:08:09Z' time"
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        cleaned = clean(spark.sql(text), "messages").select(F.unix_seconds("time"))
        again = clean(clean(spark.sql(text), "messages"), "messages")
        assert cleaned.collect() == again.select(F.unix_seconds("time")).collect()
        assert cleaned.collect()[0][0] == 1714979289
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


def test_transform_and_fields_in_columns(spark: SparkSession) -> None:
    raw = spark.sql(
        "select 7 `the id`, named_struct('x', '1', 'y', '2') place, array('tea') text, 'q' tokens"
    )
    # The column "text" holds tokens, so it does not count as text.
    names = {"id": "the id", "lon": "place.x", "lat": "place.y", "tokens": "text"}
    [row] = raw.transform(clean, "messages", names).collect()
    assert (row["id"], row["tokens"], row["lon"]) == (7, ["tea"], 1.0)


@pytest.mark.parametrize(
    ("kind", "columns", "error", "message"),
    [
        ("tweets", {}, UnknownName, "choose from: messages, subscriptions"),
        ("messages", {"txt": "body"}, UnknownName, "unknown column 'txt' of messages"),
        ("messages", {"text": "bodi"}, UnsupportedFile, "'bodi' for text; found"),
        ("messages", {"text": "body.x"}, UnsupportedFile, "columns key, body, x, y, at"),
        ("messages", {"id": "key", "lon": "x", "lat": "y"}, UnsupportedFile, "expected id, text"),
        ("subscriptions", {"id": "key"}, UnsupportedFile, "not a table of subscriptions"),
    ],
)
def test_wrong_columns_are_told_before_anything_runs(
    spark: SparkSession, kind: str, columns: dict[str, Any], error: type, message: str
) -> None:
    frame = spark.createDataFrame([], RAW)
    with pytest.raises(error, match=message):
        prepare(frame, kind, columns)


def test_ids_are_strings_or_integers(spark: SparkSession) -> None:
    with pytest.raises(UnsupportedFile, match="got double; cast it"):
        prepare(spark.createDataFrame([], RAW), "messages", {**NAMES, "id": F.lit(1.5e0)})


def test_ways_with_duplicates_have_names(spark: SparkSession) -> None:
    with pytest.raises(UnknownName, match="drop, keep"):
        prepare(spark.createDataFrame([], RAW), "messages", NAMES, duplicates="first")


def test_an_empty_frame_is_prepared(spark: SparkSession) -> None:
    prepared = prepare(spark.createDataFrame([], RAW), "messages", NAMES)
    assert prepared.rows.collect() == []
    assert set(prepared.check().values()) == {0}


@pytest.mark.parametrize("duplicates", ["drop", "keep"])
def test_a_frame_without_a_good_row_is_counted(spark: SparkSession, duplicates: str) -> None:
    frame = spark.createDataFrame([("a", "x", "1", "91", None)] * 5, RAW)
    prepared = prepare(frame, "messages", NAMES, duplicates=duplicates)
    assert prepared.rows.collect() == []
    assert prepared.check() == {"read": 5, "clean": 0, "rejected": 5, "duplicates": 0}


def test_a_stream_is_prepared_and_counted_in_its_progress(
    spark: SparkSession, tmp_path: Path
) -> None:
    dirty = Dirty(90)
    (tmp_path / "raw").mkdir()
    for first in range(0, 90, 30):
        lines = [json.dumps(record) for record in dirty.records[first : first + 30]]
        (tmp_path / "raw" / f"{first}.json").write_text("\n".join([*lines, "{broken"]))
    source = spark.readStream.schema(f"{RAW}, _corrupt_record string")
    frame = source.option("maxFilesPerTrigger", 1).json(str(tmp_path / "raw"))
    prepared = prepare(frame, "messages", NAMES)
    with pytest.raises(NearcastError, match="counts_in"):
        _ = prepared.counts
    told = stream(prepared.rows, tmp_path / "clean")
    rows = spark.read.parquet(str(tmp_path / "clean")).collect()
    assert sorted(row["id"] for row in rows) == sorted(dirty.clean)
    counted = [counts for counts in map(prepared.counts_in, told) if counts is not None]
    total = {name: sum(counts[name] for counts in counted) for name in counted[0]}
    assert total == {**dirty.counts, "read": 93, "rejected": len(dirty.faults) + 3}
    stream(prepared.rejects, tmp_path / "rejects")
    rejects = spark.read.parquet(str(tmp_path / "rejects")).collect()
    assert sorted(r["field"] for r in rejects) == sorted([*dirty.faults, "", "", ""])


def stream(frame: DataFrame, out: Path) -> list[Any]:
    """Write what there is of a stream; return the progress of all micro-batches."""
    writer = frame.writeStream.option("checkpointLocation", f"{out}.checkpoint")
    query = writer.trigger(availableNow=True).format("parquet").start(str(out))
    query.awaitTermination()
    return list(query.recentProgress)


app = typer.Typer(cls=OneLineErrors)
app.command("prepare")(command.prepare)
app.callback()(lambda: None)


def call(out: Path, source: Path, *more: str, kind: str = "messages") -> Any:
    given = ["--kind", kind, "--input", str(source), "--out", str(out)]
    return CliRunner().invoke(app, ["prepare", *given, *more])


@pytest.fixture
def columns() -> list[str]:
    return [part for pair in NAMES.items() for part in ("--column", "=".join(pair))]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_the_command_reads_every_format(
    spark: SparkSession, tmp_path: Path, columns: list[str], form: str
) -> None:
    dirty = Dirty(80, csv=form == "csv")
    raw, out, broken = tmp_path / f"raw.{form}", tmp_path / "out", 0
    if form == "csv":
        with raw.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["extra", *NAMES.values()])
            writer.writeheader()
            writer.writerows({"extra": "?", **record} for record in dirty.records)
            file.write('?,m1,x,1,2\n?,m1,x,1,2,,9\n\n?,m1,"x,1,2,\n')
        broken = 3
    elif form == "json":
        lines = [json.dumps(record) for record in dirty.records]
        lines += ["{", "[]", "7", "null", '{"key": "m1"}{"key": "m2"}', "", '[{"key": "m1"}]']
        raw.write_bytes("\n".join(lines).encode() + b'\n{"key": "\xff"}\n')
        broken = 7
    else:
        dirty.frame(spark).coalesce(1).write.parquet(str(raw))
    done = call(out, raw, *columns, "--json", "--strict")
    assert done.exit_code == 3, done.output
    result = json.loads(done.stdout)
    wanted = dirty.counts
    wanted["read"] += broken
    wanted["rejected"] += broken
    assert {name: result[name] for name in wanted} == wanted
    assert found(spark.read.parquet(str(out))) == dirty.expected()
    rejects = spark.read.json(f"{out}.rejects").collect()
    assert sorted(r["field"] for r in rejects) == sorted([*dirty.faults, *[""] * broken])
    assert sum(reason["rows"] for reason in result["rejects"]) == wanted["rejected"]
    table = parquet.read_table(out)
    assert len(read_messages(table, now_us=0)[0]) == len(dirty.clean)


def test_json_ids_and_shapes_keep_their_meaning(spark: SparkSession, tmp_path: Path) -> None:
    square = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
    records: list[dict[str, Any]] = [
        {"id": 1, "keywords": ["tea"], "geometry": square},
        {"id": 2, "keywords": "hot tea", "geometry": square},
        {"id": 3, "geometry": "POLYGON ((0 0, 1 0, 1 1, 0 0))"},
        {"id": 4, "geometry": {"type": "Point"}},
    ]
    raw = tmp_path / "raw.jsonl"
    raw.write_text("\n".join(map(json.dumps, records)))
    done = call(tmp_path / "out", raw, kind="subscriptions")
    assert done.exit_code == 0, done.output
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("id").collect()
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert json.loads(rows[0]["geometry"]) == square
    assert [row["keywords"] for row in rows] == [["tea"], ["hot", "tea"], None]
    raw.write_text("\n".join(map(json.dumps, [*records, {**records[0], "id": 10**20}])))
    call(tmp_path / "out", raw, "--overwrite", kind="subscriptions")
    ids = {row["id"] for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    assert ids == {1, 2, 3}  # the large one is rejected, as by nearcast match
    raw.write_text("\n".join(map(json.dumps, [*records, {**records[0], "id": "five"}])))
    call(tmp_path / "out", raw, "--overwrite", kind="subscriptions")
    ids = {row["id"] for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    assert ids == {"1", "2", "3", "five"}


def test_the_command_says_what_it_did(spark: SparkSession, tmp_path: Path) -> None:
    raw, out = tmp_path / "raw.csv", tmp_path / "out"
    raw.write_text("id,text,lon,lat\na,tea,1,2\na,tea,1,2\nb,tea,181,2\nc,tea,182,2\n")
    done = call(out, raw)
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert "must lie between -180 and 180 degrees │ 2" in text
    assert "read 4 clean 1 rejected 2 duplicates 1" in text
    assert call(out, raw).exit_code == 1
    raw.write_text("id,text,lon,lat\na,tea,1,2\na,tea,1,2\n")
    again = call(out, raw, "--overwrite", "--strict", "--keep-duplicates", "--json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["clean"] == 2
    assert not (tmp_path / "out.rejects").exists()
    assert call(out, raw).stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "content", "more", "said"),
    [
        ("none.csv", None, [], "none.csv: there is no such file"),
        ("none*.json", None, [], "no file matches this pattern"),
        ("none.xml", "<a/>", [], "cannot tell the format from '.xml'"),
        ("x.parquet", "no parquet", [], "x.parquet"),
        ("x.csv", "id,text,lon\n1,2,3\n", [], "not a table of messages: it has the columns"),
        ("x.csv", "id,text,lon,lat\n", ["--column", "text=body"], "no column 'body'"),
        (
            "x.csv",
            "id,text,lon,lat\n",
            ["--format", "xml"],
            "choose from: csv, geojson, json, parquet",
        ),
        (
            "x.csv",
            "id,text,lon,lat\n",
            ["--rejects", "OUT"],
            "must differ from --input and --rejects",
        ),
        ("x.json", "", [], "no clean messages: the input has no rows"),
        ("x.json", "{", [], "no clean messages: all 1 were rejected"),
        ("x.csv", "id,text,lon,lat\na,b,c,d\n", [], "no clean messages: all 1 were rejected"),
        ("x.csv", "id,body,lon,lat\n", [], "--column text=body to read it"),
        ("x.csv", "id,text,lon,lat\n", ["--id", "rows"], "choose from: hash, row"),
        ("x.csv", "id,text,lon,lat\n", ["--encoding", "latin-99"], "the name of a text encoding"),
        ("x.csv", "id,text,lon,lat\n", ["--delimiter", "::"], "must be one ASCII character"),
        ("x.csv", "id,text,lon,lat\n", ["--column", "txt=text"], "unknown column 'txt'"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    spark: SparkSession, tmp_path: Path, name: str, content: str | None, more: list[str], said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    out = tmp_path / "out"
    done = call(out, tmp_path / name, *(str(out) if part == "OUT" else part for part in more))
    assert done.exit_code == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_files_of_different_headers_are_read_by_name(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "a.csv").write_text("id,text,lon,lat\na,tea,1,2\n")
    (folder / "b.csv").write_text("time;id;text;lat;lon\n7;b;tea;2;1\n")
    done = call(tmp_path / "out", folder)
    assert done.exit_code == 0, done.output
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("id").collect()
    assert [(row.lon, row.lat, row.time is None) for row in rows] == [(1, 2, True), (1, 2, False)]


def test_counting_never_waits_for_an_action(spark: SparkSession) -> None:
    """Without an action on the rows, there is nothing to wait for."""
    dirty = Dirty(40)
    prepared = prepare(dirty.frame(spark), "messages", NAMES)
    assert prepared.check() == dirty.counts
    assert prepared.counts == dirty.counts
    assert found(prepared.rows) == dirty.expected()


def test_the_summary_has_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    raw = tmp_path / "raw.csv"
    raw.write_text("ID,text,lng,latitude,color\na,tea,1,2,red\n")
    done = call(tmp_path / "out", raw, "--json")
    assert json.loads(done.stdout)["columns"] == {
        "taken": {"id": "ID", "lon": "lng", "lat": "latitude"},
        "unused": ["color"],
    }
    text = " ".join(call(tmp_path / "out", raw, "--overwrite").stdout.split())
    assert "recognized columns ID as id, lng as lon, latitude as lat unused columns color" in text


def test_a_column_option_has_two_sides(tmp_path: Path) -> None:
    done = call(tmp_path / "out", tmp_path / "raw.csv", "--column", "text")
    assert done.exit_code == 2
    assert "must be NAME=COLUMN" in done.output
