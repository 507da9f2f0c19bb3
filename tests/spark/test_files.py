"""Files as frames: the rules of intake, whatever the format, the tasks and the job."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import functions as F

from nearcast.errors import UnsupportedFile
from nearcast.intake import Reading, Rejects, open_table, read_messages
from nearcast.spark import build, changes, files, match, prepare, read_files
from nearcast.spark.files import files_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

AS_IT_IS = Reading()
pd: Any = pytest.importorskip("pandas")


def ids(frame: DataFrame) -> list[Any]:
    return sorted(row.id for row in frame.where("id is not null").select("id").collect())


def rejected(frame: DataFrame) -> dict[tuple[str, int], tuple[str, str]]:
    """Return the field and the record of rejects, by file and line."""
    rows = prepare(frame, "messages").rejects.collect()
    found = {(row.file, row.row): (row.field, row.record) for row in rows}
    assert len(found) == len(rows)
    return found


def by_intake(path: Path, reading: Reading = AS_IT_IS) -> tuple[list[Any], Rejects]:
    """Return the ids and the rejects that ``nearcast match`` has."""
    accepted, rejects = [], []
    for batch in open_table(path, reading):
        read, wrong = read_messages(batch.table, now_us=0, source=batch, unique=False)
        accepted += read.ids.tolist()
        rejects += [batch.rejects, wrong]
    return accepted, Rejects.concatenate(rejects)


def test_quoted_line_breaks_neither_lose_nor_invent_messages(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "calls.csv"
    rows = [f'c{i},"first line\nc9{i},second, line\n",1,2,"a ""quoted"" word"' for i in range(30)]
    rows += ['stray,"open,1,2,x', "short,1", "c99,plain,1,2,x"]
    path.write_text("\n".join(["id,text,lon,lat,note", *rows]) + "\n")
    frame = read_files(spark, path)
    accepted, rejects = by_intake(path)
    assert ids(frame) == sorted(accepted) == sorted([*(f"c{i}" for i in range(30)), "c99"])
    assert [*rejected(frame)] == [("calls.csv", line) for line in rejects.row.tolist()]
    assert prepare(frame, "messages").check()["read"] == 33


def test_encodings_are_checked_and_can_be_said(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "cafés.csv"
    path.write_bytes("id;text;lon;lat\na;café;1;2\nb;tea;1;2\n".encode("latin-1"))
    frame = read_files(spark, path)
    assert ids(frame) == ["b"]
    assert rejected(frame) == {("cafés.csv", 2): ("", '"a;caf\\ufffd;1;2"')}
    said = read_files(spark, path, reading=Reading(encoding="latin-1"))
    assert {row.text for row in said.collect()} == {"café", "tea"}


def test_types_of_pandas_and_arrow_mean_the_same_in_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's reader refuses nanoseconds, and takes durations for numbers of microseconds."""
    path = tmp_path / "typed.parquet"
    moment = pd.Timestamp("2024-05-06T07:08:09.123456789")
    frame = pd.DataFrame(
        {
            "id": [1, 2],
            "text": pd.Categorical(["tea", "ice"]),
            "lon": [Decimal("1.25"), Decimal("2.5")],
            "lat": pd.Series([1.5, 2.5], dtype="float32"),
            "time": [moment, pd.NaT],
            "ttl_s": [pd.Timedelta(hours=1), pd.Timedelta(milliseconds=1500)],
        }
    )
    frame.astype({"id": "uint64"}).to_parquet(path)
    rows = read_files(spark, path).orderBy("id").collect()
    assert [(row.id, row.text, row.lon, row.lat, row.ttl_s) for row in rows] == [
        (1, "tea", 1.25, 1.5, 3600.0),
        (2, "ice", 2.5, 2.5, 1.5),
    ]
    assert rows[0].time == datetime(2024, 5, 6, 7, 8, 9, 123456)
    days = pa.table({**parquet.read_table(path).to_pydict(), "time": [date(2024, 5, 6), None]})
    parquet.write_table(days.drop_columns("ttl_s"), path)
    assert read_files(spark, path).orderBy("id").first().time == datetime(2024, 5, 6)  # type: ignore[union-attr]
    whole = pa.array([Decimal(7), Decimal(8)], pa.decimal128(20, 0))
    parquet.write_table(days.set_column(0, "id", whole).drop_columns("ttl_s"), path)
    assert ids(read_files(spark, path)) == [7, 8]
    huge = days.set_column(0, "id", pa.array([7, 2**63], pa.uint64())).drop_columns("ttl_s")
    parquet.write_table(huge, path)
    assert ids(read_files(spark, path)) == [7]
    assert [*rejected(read_files(spark, path))] == [("typed.parquet", 1)]


def test_files_of_one_set_are_read_alike(spark: SparkSession, tmp_path: Path) -> None:
    """Columns by name, missing ones are null, and ids are text as soon as one is."""
    (tmp_path / "a.csv").write_text("lat,lon,text,id\n2,1,tea,a\n")
    (tmp_path / "b.json").write_text('{"id": 7, "text": "tea", "lon": 1, "lat": 2, "time": 5}\n')
    table = pa.table({"id": [8], "text": ["x"], "lon": ["1"], "lat": [2], "ttl_s": ["9"]})
    parquet.write_table(table, tmp_path / "c.parquet")
    frame = read_files(spark, tmp_path)
    assert frame.columns[:6] == ["id", "text", "lon", "lat", "time", "ttl_s"]
    rows = sorted(frame.collect(), key=lambda row: row._file)
    assert [(row.id, row.lon, row.lat, row.ttl_s) for row in rows] == [
        ("a", 1.0, 2.0, None),
        ("7", 1.0, 2.0, None),
        ("8", 1.0, 2.0, 9.0),
    ]
    assert [row.time and row.time.second for row in rows] == [None, 5, None]
    assert ids(read_files(spark, tmp_path / "[bc].*")) == [7, 8]
    with pytest.raises(UnsupportedFile, match="no file matches"):
        read_files(spark, tmp_path / "*.tsv")


def test_large_parquet_files_are_divided_by_row_groups(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.parquet"
    count = 1000
    lat = [91.0 if i % 100 == 50 else 1.0 for i in range(count)]
    columns = {"id": range(count), "text": ["tea"] * count, "lon": [1.0] * count, "lat": lat}
    parquet.write_table(pa.table({**columns, "id": list(range(count))}), path, row_group_size=100)
    monkeypatch.setattr(files, "_MIN_TASK_BYTES", 1)
    frame = read_files(spark, path)
    assert frame.rdd.getNumPartitions() >= 2
    assert sorted(row._line for row in frame.collect()) == list(range(count))
    assert [*rejected(frame)] == [("large.parquet", line) for line in range(50, count, 100)]
    assert prepare(frame, "messages").check() == {
        "read": 1000,
        "clean": 990,
        "rejected": 10,
        "duplicates": 0,
    }


@pytest.mark.parametrize("limit", ["_SURVEY_HERE_BYTES", "_SURVEY_HERE_FILES"])
def test_large_files_of_json_and_many_files_are_surveyed_by_a_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    for number in range(3):
        one = {"id": number, "text": "tea", "lng": 1, "lat": 2, f"extra{number}": 1}
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(one))
    monkeypatch.setattr(files, limit, 0)
    found = files.FileSet.find(tmp_path, "messages")
    assert found.survey is None
    frame = found.frame(spark)
    known = files_of(frame)
    assert known is not None
    assert known.survey is not None
    assert known.survey.taken == ("lon=lng",)
    assert {*known.survey.unused} == {"extra0", "extra1", "extra2"}
    assert ids(frame) == [0, 1, 2]


def test_what_cannot_be_opened_is_said_without_spark(tmp_path: Path) -> None:
    find = files.FileSet.find
    (tmp_path / "m.csv").write_text("id,text,lon,lat\na,tea,1,2\n")
    for path, said in (
        ("nowhere://host/m.csv", "cannot be opened"),
        ("file:///no/such/file.csv", "there is no such file"),
        (tmp_path / "nothing", "there is no such file"),
    ):
        with pytest.raises(UnsupportedFile, match=said):
            find(path, "messages")
    with pytest.raises(UnsupportedFile, match=r"m\.csv: not a table of subscriptions"):
        find(tmp_path / "m.csv", "subscriptions")
    with pytest.raises(UnsupportedFile, match="not a table of changes"):
        find(tmp_path / "m.csv", "changes")
    with pytest.raises(UnsupportedFile, match="no column 'body'"):
        find(tmp_path / "m.csv", "messages", Reading(columns=(("text", "body"),)))
    (tmp_path / "other.csv").write_text("id,lon,lat\na,1,2\n")
    with pytest.raises(UnsupportedFile, match=r"other\.csv: not a table of messages"):
        find(tmp_path, "messages")
    [piece] = find(f"file://{tmp_path}/m.csv", "messages").pieces
    assert (piece.path, piece.name) == (str(tmp_path / "m.csv"), "m.csv")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return files with a few invalid rows each, and columns that nobody knows."""
    folder = tmp_path_factory.mktemp("data")
    messages = [
        f"m{i},{'tea' if i % 3 else 'milk'} and more,{i % 10},{i % 7},x" for i in range(200)
    ]
    messages[50], messages[100] = "m50,tea,500,1,why", "m100,tea"
    (folder / "messages.csv").write_text("\n".join(["id,text,lon,lat,extra", *messages]))
    rows: list[dict[str, Any]] = [
        {
            "id": f"s{i}",
            "keywords": ["tea"],
            "lon": i,
            "lat": 0,
            "radius_m": 300_000,
            "color": "red",
        }
        for i in range(10)
    ]
    rows[3] |= {"radius_m": -1}
    rows += [{**rows[0], "id": ""}]
    (folder / "subscriptions.json").write_text("\n".join(map(json.dumps, rows)))
    (folder / "changes.csv").write_text(
        "op,id,west,south,east,north,by\ndelete,s1,,,,,me\ndelete,nobody,,,,,me\n"
        "move,s2,0,0,1,1,me\nmove,s4,east,0,1,1,me\njump,s5,,,,,me\n"
    )
    return folder


def test_jobs_over_files_give_what_they_give_over_frames(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    """Reading and working in one process, or with Java in between: the same."""
    subscriptions = read_files(spark, data / "subscriptions.json", "subscriptions")
    messages = read_files(spark, data / "messages.csv")
    built = build(subscriptions, tmp_path / "index", mode="sharded", shards=2)
    other = build(subscriptions.select("*"), tmp_path / "other", mode="sharded", shards=2)
    assert built.rejected == other.rejected == 2
    assert built.version.rows == other.version.rows >= 9
    found = {(row.file, row.row): (row.field, row.record) for row in built.rejects.collect()}
    lines = (data / "subscriptions.json").read_text().splitlines()
    assert found == {
        ("subscriptions.json", 4): ("radius_m", lines[3]),
        ("subscriptions.json", 11): ("id", lines[10]),
    }
    pairs = {
        mode: sorted(map(tuple, match(frame, tmp_path / "index", mode=mode).collect()))
        for mode, frame in (("replicated", messages), ("sharded", messages.select("*")))
    }
    assert pairs["replicated"] == pairs["sharded"]
    assert len(pairs["sharded"]) > 100
    assert pairs["sharded"] == sorted(
        map(tuple, match(messages, tmp_path / "index", mode="sharded").collect())
    )


def test_rejects_say_which_record_it_was(spark: SparkSession, data: Path) -> None:
    messages = read_files(spark, data / "messages.csv")
    wanted = {
        ("messages.csv", 52): (
            "lon",
            '{"id": "m50", "text": "tea", "lon": "500", "lat": "1", "extra": "why"}',
        ),
        ("messages.csv", 102): ("", '"m100,tea"'),
    }
    assert rejected(messages) == wanted
    # A frame that was changed is checked again, and still says where its rows come from.
    moved = messages.withColumn("lat", F.when(F.col("id") == "m7", 99.0).otherwise(F.col("lat")))
    found = rejected(moved)
    assert found.pop(("messages.csv", 9))[0] == "lat"
    assert found == wanted


def test_rejects_of_changes_say_which_record_it_was(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    build(read_files(spark, data / "subscriptions.json", "subscriptions"), tmp_path / "index")
    changed = changes(read_files(spark, data / "changes.csv", "changes"), tmp_path / "index")
    assert changed.taken == {"insert": 0, "delete": 1, "move": 1}
    found = {(row.file, row.row): (row.field, row.record) for row in changed.rejects.collect()}
    assert {key: field for key, (field, _) in found.items()} == {
        ("changes.csv", 3): "id",
        ("changes.csv", 5): "west",
        ("changes.csv", 6): "op",
    }
    assert json.loads(found["changes.csv", 3][1]) == {"op": "delete", "id": "nobody", "by": "me"}


def test_what_prepare_wrote_is_read_by_match(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    prepared = prepare(read_files(spark, data / "messages.csv"), "messages")
    prepared.rows.repartition(3).write.parquet(str(tmp_path / "clean"))
    assert prepared.check() == {"read": 200, "clean": 198, "rejected": 2, "duplicates": 0}
    accepted, rejects = by_intake(tmp_path / "clean")
    assert len(accepted) == 198
    assert not len(rejects)
    assert ids(read_files(spark, tmp_path / "clean")) == sorted(accepted)


@pytest.mark.parametrize("ids_of", ["row", "hash"])
def test_ids_that_are_made_are_those_of_match(
    spark: SparkSession, tmp_path: Path, ids_of: str
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.csv").write_text("text,lon,lat\ntea,1,2\nmilk,3,4\n")
    (tmp_path / "sub" / "b.json").write_text('{"text": "tea", "lon": 1, "lat": 2}\n')
    reading = Reading(ids=ids_of)
    found = ids(read_files(spark, tmp_path, reading=reading))
    assert found == sorted(by_intake(tmp_path, reading)[0])
    if ids_of == "row":
        assert found == ["a.csv:2", "a.csv:3", "sub/b.json:1"]


def test_nested_fields_and_geometries_are_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "quakes.geojson"
    feature = {"type": "Feature", "id": "q1", "properties": {"title": "Quake", "at": {"t": 5}}}
    point = {"type": "Point", "coordinates": [10.5, 20.25]}
    path.write_text(
        json.dumps({"type": "FeatureCollection", "features": [{**feature, "geometry": point}]})
    )
    reading = Reading(columns=(("text", "title"), ("time", "at.t")))
    [row] = prepare(read_files(spark, path, reading=reading), "messages").rows.collect()
    assert (row.id, row.text) == ("q1", "Quake")
    assert row.time.replace(tzinfo=UTC) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=5)
    assert json.loads(row.geometry) == point
    lines = tmp_path / "lines.json"
    lines.write_text(json.dumps({"key": 1, "body": "tea", "at": {"xy": [10.5, 20.25]}}))
    columns = (("id", "key"), ("text", "body"), ("lon", "at.xy[0]"), ("lat", "at.xy[1]"))
    [row] = read_files(spark, lines, reading=Reading(columns=columns)).collect()
    assert (row.id, row.lon, row.lat) == (1, 10.5, 20.25)
