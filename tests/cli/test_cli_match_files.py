"""``nearcast match`` with files as users have them, and what its summary says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from nearcast.cli import app

if TYPE_CHECKING:
    from pathlib import Path

SUBSCRIPTIONS = "id,keywords,lon,lat,radius_m\na,tea,13.4,52.5,5000\nb,cake,13.4,52.5,5000\n"
MESSAGES = "id,text,lon,lat\n1,Hot tea,13.4,52.5\n2,Cold tea,13.41,52.5\n"


class Folder:
    """Files of a test, and the command on them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("s.csv", SUBSCRIPTIONS)
        self.write("m.csv", MESSAGES)

    def write(self, name: str, content: str | bytes) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def match(self, *more: str, s: str = "s.csv", m: str = "m.csv") -> Any:
        files = ["--subscriptions", self.path / s, "--messages", self.path / m]
        files += ["--out", self.path / "out.ndjson"]
        return CliRunner().invoke(app, ["match", *map(str, files), *more])

    def summary(self, *more: str, s: str = "s.csv", m: str = "m.csv", code: int = 0) -> Any:
        done = self.match("--json", *more, s=s, m=m)
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    def pairs(self) -> list[tuple[str, str]]:
        rows = map(json.loads, (self.path / "out.ndjson").read_text().splitlines())
        return sorted((str(row["message_id"]), row["subscription_id"]) for row in rows)

    def rejects(self) -> list[dict[str, Any]]:
        text = (self.path / "out.ndjson.rejects.ndjson").read_text()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_names_that_are_nearly_ours_are_in_the_summary(folder: Folder) -> None:
    folder.write("m.csv", MESSAGES.replace("lon,lat", "lng,Latitude"))
    folder.write("s.csv", SUBSCRIPTIONS.replace("keywords", "Keywords").replace("\n", ",x\n"))
    summary = folder.summary()
    assert folder.pairs() == [("1", "a"), ("2", "a")]
    assert summary["columns"] == {
        "subscriptions": {"taken": {"keywords": "Keywords"}, "unused": ["x"]},
        "messages": {"taken": {"lon": "lng", "lat": "Latitude"}, "unused": []},
    }
    shown = folder.match().stdout
    assert "lng as lon, Latitude as lat" in shown
    assert "subscriptions: unused" in shown


def test_a_close_name_ends_the_command(folder: Folder) -> None:
    folder.write("s.csv", SUBSCRIPTIONS.replace("keywords", "keywrods"))
    done = folder.match()
    assert done.exit_code == 1
    assert "s.csv: is 'keywrods' meant as keywords?" in done.stderr
    assert folder.match("--column", "keywords=keywrods").exit_code == 0
    assert folder.pairs() == [("1", "a"), ("2", "a")]
    assert folder.match("--column", "keywords=").exit_code == 0
    assert len(folder.pairs()) == 4


def test_a_column_is_looked_for_in_all_files(folder: Folder) -> None:
    folder.write("m.csv", MESSAGES.replace("lon,lat", "x,y"))
    said = ["--column", "lon=x", "--column", "lat=y"]
    assert folder.match(*said).exit_code == 0
    assert folder.pairs() == [("1", "a"), ("2", "a")]
    folder.write("s.csv", SUBSCRIPTIONS.replace("lon,lat", "x,y"))
    assert folder.match(*said).exit_code == 0
    assert folder.pairs() == [("1", "a"), ("2", "a")]
    done = folder.match(*said, "--column", "text=words")
    assert done.exit_code == 1
    assert "--column text=words: no file has the column 'words'" in done.stderr
    done = folder.match("--column", "altitude=z")
    assert done.exit_code == 1
    assert "altitude" in done.stderr
    assert folder.match("--column", "lon").exit_code == 2


def test_a_column_may_be_given_for_one_file(folder: Folder) -> None:
    folder.write("m.csv", "id,text,lon,lat,x,y\n1,Hot tea,0,0,13.4,52.5\n")
    folder.write("s.csv", "id,keywords,lon,lat,radius_m,x,y\na,tea,13.4,52.5,5000,0,0\n")
    said = ["--column", "messages.lon=x", "--column", "messages.lat=y"]
    assert folder.match(*said).exit_code == 0
    assert folder.pairs() == [("1", "a")]
    done = folder.match("--column", "messages.lon=z")
    assert done.exit_code == 1
    assert "m.csv: there is no column 'z' for --column lon=z" in done.stderr


def test_ids_are_made(folder: Folder) -> None:
    folder.write("m.csv", "text,lon,lat\nHot tea,13.4,52.5\ncake,13.4,52.5\n")
    done = folder.match()
    assert done.exit_code == 1
    assert "expected id" in done.stderr
    assert "--id row" in done.stderr
    assert folder.match("--id", "row").exit_code == 0
    assert folder.pairs() == [("m.csv:2", "a"), ("m.csv:3", "b")]
    assert folder.match("--id", "messages=hash").exit_code == 0
    assert {len(message) for message, _ in folder.pairs()} == {32}


def test_ids_of_two_types_that_are_written_alike_are_rejected(folder: Folder) -> None:
    region = {"keywords": ["tea"], "lon": 13.4, "lat": 52.5, "radius_m": 5000}
    rows = [{"id": id} | region for id in (7, "7", "8", 8, "a", 0, "x", "0", "07")]
    folder.write("s.ndjson", "".join(json.dumps(row) + "\n" for row in rows))
    assert folder.summary(s="s.ndjson")["matches"] == 12
    assert {id for _, id in folder.pairs()} == {"7", "8", "a", "0", "x", "07"}
    rejected = [(row["row"], row["field"]) for row in folder.rejects()]
    assert rejected == [(2, "id"), (3, "id"), (8, "id")]


def test_encodings_and_delimiters_of_each_file(folder: Folder) -> None:
    content = SUBSCRIPTIONS.replace(",", ";").replace("tea", "crème")
    folder.write("s.csv", content.encode("latin-1"))
    folder.write("m.csv", MESSAGES.replace("tea", "crème").encode("utf-16"))
    assert folder.match("--encoding", "latin-1").exit_code == 0
    assert folder.pairs() == [("1", "a"), ("2", "a")]
    folder.write("m.csv", MESSAGES.replace("tea", "crème"))
    assert folder.match("--encoding", "subscriptions=latin-1").exit_code == 0
    assert folder.pairs() == [("1", "a"), ("2", "a")]
    options = ["--encoding", "subscriptions=latin-1", "--delimiter", "messages=,"]
    assert folder.match(*options, "--delimiter", "subscriptions=;").exit_code == 0
    folder.write("m.txt", MESSAGES.replace("tea", "crème"))
    options = ["--encoding", "subscriptions=latin-1", "--format", "csv"]
    assert folder.match(*options, m="m.txt").exit_code == 0
    assert folder.match("--encoding", "klingon").exit_code == 1


def test_folders_patterns_and_compressed_geojson(folder: Folder) -> None:
    import gzip

    square = [[[13, 52], [14, 52], [14, 53], [13, 53], [13, 52]]]
    geometry = {"type": "Polygon", "coordinates": square}
    features = [
        {"type": "Feature", "id": "g", "properties": {"keywords": "tea"}, "geometry": geometry}
    ]
    document = json.dumps({"type": "FeatureCollection", "features": features})
    folder.write("s/d.geojson.gz", gzip.compress(document.encode()))
    folder.write("s/_SUCCESS", "")
    folder.write("m/1.csv", MESSAGES)
    folder.write("m/2.csv", MESSAGES.replace("1,", "3,", 1).replace("2,", "x,", 1))
    assert folder.match(s="s", m="m/*.csv").exit_code == 0
    assert {subscription for _, subscription in folder.pairs()} == {"g"}
    inside = ["--subscriptions", str(folder.path / "s"), "--messages", str(folder.path / "m")]
    done = CliRunner().invoke(app, ["match", *inside, "--out", str(folder.path / "m" / "1.csv")])
    assert done.exit_code == 1
    assert "is already used by this command" in done.stderr


def test_all_rows_rejected_is_an_error(folder: Folder) -> None:
    folder.write("m.csv", "id,text,lon,lat\n1,tea,x,1\n2,tea,y,1\n")
    done = folder.match()
    assert done.exit_code == 1
    assert (
        "all 2 rows of the messages were rejected; most often: lon must be a number" in done.stderr
    )
    assert "rejected" in done.stdout
    assert len(folder.rejects()) == 2
    assert folder.pairs() == []
    assert folder.match("--strict").exit_code == 1


def test_nothing_to_index_is_an_error(folder: Folder) -> None:
    folder.write("s.csv", "id,lon,lat,radius_m\n")
    done = folder.match()
    assert done.exit_code == 1
    assert "the file of subscriptions has no rows" in done.stderr
    folder.write("s.csv", "id,lon,lat,radius_m\na,1,2,-3\n")
    summary = folder.summary(code=1)
    assert summary["subscriptions"] == {"read": 1, "accepted": 0, "rejected": 1}


def test_no_messages_is_no_error(folder: Folder) -> None:
    folder.write("m.csv", "id,text,lon,lat\n")
    assert folder.summary()["matches"] == 0


def test_swapped_coordinates_give_a_hint(folder: Folder) -> None:
    folder.write("m.csv", "id,text,lat,lon\n1,Hot tea,13.4,52.5\n")
    assert "longitude and latitude look swapped" in folder.summary()["hints"][0]
    assert "hint: longitude and latitude look swapped" in folder.match().stdout
    folder.write("m.csv", "id,text,lon,lat\n1,Hot tea,35.6,139.7\n2,tea,35.6,139.7\n3,tea,35,1\n")
    assert "latitude of the messages look swapped" in folder.summary()["hints"][0]
    folder.write("m.csv", "id,text,lon,lat\n1,Hot tea,-100,40\n")
    assert "subscriptions and messages are in different places" in folder.summary()["hints"][0]
    folder.write("m.csv", MESSAGES)
    assert folder.summary()["hints"] == []


def test_texts_without_words_give_a_hint(folder: Folder) -> None:
    folder.write("m.csv", "id,text,lon,lat\n1,!!!,13.4,52.5\n2,...,13.4,52.5\n")
    assert "no message has a word" in folder.summary()["hints"][0]


def test_rejects_of_all_formats_are_whole(folder: Folder) -> None:
    folder.write("m/1.csv", "id,text,lon,lat,color\n1,tea,1,95,red\n")
    folder.write("m/2.ndjson", '{"id": "2", "text": "t", "lon": 1, "lat": "x", "color": "red"}\n')
    folder.write("m/3.csv", MESSAGES)
    folder.summary(m="m")
    found = [(r["source"], r["file"], r["row"], json.loads(r["record"])) for r in folder.rejects()]
    csv = {"id": "1", "text": "tea", "lon": "1", "lat": "95", "color": "red"}
    line = {"id": "2", "text": "t", "lon": 1, "lat": "x", "color": "red"}
    assert found == [("messages", "1.csv", 2, csv), ("messages", "2.ndjson", 1, line)]


MOVES = """time,sid,x,y,radius_m,why
10,a,13.4,52.5,100,ok
20,zz,13.4,52.5,100,unknown
30,a,13.4,95,100,place
,a,13.4,52.5,100,time
"""


def test_a_replay_has_the_same_options(folder: Folder) -> None:
    folder.write("s.csv", SUBSCRIPTIONS.replace("lon,", "lng,"))
    messages = (
        "id,text,lon,lat,time,color\n1,tea,13.4,52.5,5,red\n2,tea,x,1,6,blue\n1,tea,1,1,7,green\n"
    )
    folder.write("m.csv", messages)
    folder.write("moves.csv", MOVES)
    said = [f"moves.{ours}={theirs}" for ours, theirs in (("subscription_id", "sid"), ("lat", "y"))]
    said += ["lon=x"]
    options = [part for one in said for part in ("--column", one)]
    moves = ["--moves", str(folder.path / "moves.csv"), "--ttl", "100"]
    summary = folder.summary(*moves, *options)
    assert (summary["moves"]["accepted"], summary["moves"]["rejected"]) == (1, 3)
    assert summary["columns"]["subscriptions"]["taken"] == {"lon": "lng"}
    assert summary["columns"]["moves"]["unused"] == ["why"]
    found = {(r["source"], r["file"], r["row"]): json.loads(r["record"]) for r in folder.rejects()}
    assert {key: record.get("why", record.get("color")) for key, record in found.items()} == {
        ("moves", "moves.csv", 3): "unknown",
        ("moves", "moves.csv", 4): "place",
        ("moves", "moves.csv", 5): "time",
        ("messages", "m.csv", 3): "blue",
        ("messages", "m.csv", 4): "green",
    }


def test_a_replay_without_a_valid_move_fails(folder: Folder) -> None:
    folder.write("m.csv", "id,text,lon,lat,time\n1,tea,13.4,52.5,5\n")
    folder.write("moves.csv", "time,subscription_id,lon,lat,radius_m\n1,a,0,95,1\n")
    done = folder.match("--moves", str(folder.path / "moves.csv"), "--ttl", "9")
    assert done.exit_code == 1
    assert "all 1 rows of the moves were rejected" in done.stderr


@pytest.mark.parametrize("name", ["m.ndjson", "m.geojson", "m.json"])
def test_a_column_of_one_file_leaves_json_of_the_other_alone(folder: Folder, name: str) -> None:
    row = {"id": "1", "text": "tea", "lon": 13.4, "lat": 52.5}
    document: Any = row
    if name == "m.geojson":
        document = {"type": "Feature", "id": "1", "properties": row, "geometry": None}
    folder.write(name, json.dumps([row] if name == "m.json" else document))
    folder.write("s.csv", SUBSCRIPTIONS.replace("lon,lat", "x,y"))
    assert folder.match("--column", "lon=x", "--column", "lat=y", m=name).exit_code == 0
    assert folder.pairs() == [("1", "a")]
    folder.write(name, json.dumps([row] if name == "m.json" else document).replace('"lon"', '"x"'))
    said = ["--column", "lon=x", "--column", "subscriptions.lat=y"]
    assert folder.match(*said, m=name).exit_code == 0
    assert folder.pairs() == [("1", "a")]
    done = folder.match(*said, "--column", "text=nowhere", m=name)
    assert done.exit_code == 1
    assert "no file has the column 'nowhere'" in done.stderr
    assert folder.match(*said, "--column", "messages.text=nowhere", m=name).exit_code == 1
