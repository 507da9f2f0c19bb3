"""``nearcast match``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

from nearcast import indexes
from nearcast.cli import app, match_job
from nearcast.columns import Clauses, Messages
from nearcast.datasets import Workload
from nearcast.indexes.statistics import Statistics
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path

run = CliRunner().invoke

SUBSCRIPTIONS = """\
id,keywords,expression,west,south,east,north,expires_at
a,coffee,,0,0,10,10,
b,,tea NOT milk,0,0,10,10,
c,coffee tea,,5,5,20,20,2020-01-01T00:00:10Z
d,coffee,,0,0,99,99,
a,tea,,0,0,10,10,
e,coffee,tea,0,0,10,10,
f,,,170,-10,-170,10,
"""
MESSAGES = """\
id,text,lon,lat,time
m1,"Coffee, tea and cake",5,5,2020-01-01T00:00:09Z
m2,"Coffee, tea and cake",5,5,2020-01-01T00:00:10Z
m3,tea with milk,5,5,
m4,anything,180,0,
m5,coffee,1000,0,
m6,coffee
"""
EXPECTED = {("m1", "a"), ("m1", "b"), ("m1", "c"), ("m2", "a"), ("m2", "b"), ("m4", "f")}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "subscriptions.csv").write_text(SUBSCRIPTIONS)
    (tmp_path / "messages.csv").write_text(MESSAGES)
    return {
        "--subscriptions": str(tmp_path / "subscriptions.csv"),
        "--messages": str(tmp_path / "messages.csv"),
        "--out": str(tmp_path / "out" / "matches.ndjson"),
    }


def match(files: dict[str, str], *more: str) -> Any:
    return run(app, ["match", *(part for pair in files.items() for part in pair), *more])


def lines(path: str) -> list[dict[str, Any]]:
    with open(path) as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize("index", indexes.names("boolean"))
def test_valid_rows_match_and_invalid_rows_are_reported(index: str, files: dict[str, str]) -> None:
    done = match(files, "--index", index, "--json")
    assert done.exit_code == 0, done.output
    rows = lines(files["--out"])
    assert {(row["message_id"], row["subscription_id"]) for row in rows} == EXPECTED
    assert {row["score"] for row in rows} == {None}
    summary = json.loads(done.stdout)
    assert summary["subscriptions"] == {"read": 7, "accepted": 4, "rejected": 3}
    assert summary["messages"] == {"read": 6, "accepted": 4, "rejected": 2}
    assert summary["matches"] == len(rows) == 6
    assert summary["matched_messages"] == 3
    assert summary["examined_per_message"] >= summary["matches_per_message"] == 1.5
    without_nodes = {"scan", "keyword-first", "trie-pyramid"}
    assert (summary["visited_per_message"] > 0) == (index not in without_nodes)
    rejects = lines(summary["rejects_file"])
    assert summary["rejects_file"] == files["--out"] + ".rejects.ndjson"
    assert [(r["source"], r["row"], r["field"]) for r in rejects] == [
        ("subscriptions", 5, "north"),
        ("subscriptions", 6, "id"),
        ("subscriptions", 7, "expression"),
        ("messages", 7, ""),
        ("messages", 6, "lon"),
    ]
    assert sum(r["rows"] for r in summary["rejects"]) == 5


def test_rejects_change_the_exit_code_only_with_strict(
    files: dict[str, str], tmp_path: Path
) -> None:
    rejects = str(tmp_path / "bad.csv")
    done = match(files, "--strict", "--rejects", rejects)
    assert done.exit_code == 3
    assert csv.read_csv(rejects).num_rows == 5
    assert len(lines(files["--out"])) == 6
    assert "rejected" in done.stdout
    assert "messages per second" in done.stdout
    (tmp_path / "messages.csv").write_text("\n".join(MESSAGES.splitlines()[:4]) + "\n")
    (tmp_path / "subscriptions.csv").write_text("\n".join(SUBSCRIPTIONS.splitlines()[:4]) + "\n")
    done = match(files, "--strict", "--rejects", rejects)
    assert done.exit_code == 0
    assert csv.read_csv(rejects).num_rows == 0


@pytest.mark.parametrize("extension", ["parquet", "csv", "ndjson"])
@pytest.mark.parametrize("threads", ["1", "3"])
def test_generated_files_give_the_same_matches_as_the_scan(
    extension: str, threads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(match_job, "_MESSAGES_PER_BATCH", 33)
    monkeypatch.setattr(match_job, "_MATCHES_PER_WRITE", 10)
    options = ["--subscriptions", "2000", "--messages", "100", "--format"]
    many_matches = ["--keywords", "1", "--box-share", "0.2-0.6", "--out", str(tmp_path)]
    assert run(app, ["generate", *options, extension, *many_matches]).exit_code == 0
    out = tmp_path / "matches.parquet"
    files = {
        "--subscriptions": str(tmp_path / f"subscriptions.{extension}"),
        "--messages": str(tmp_path / f"messages.{extension}"),
        "--out": str(out),
    }
    done = match(files, "--threads", threads, "--map", str(tmp_path / "map.png"), "--json")
    assert done.exit_code == 0, done.output
    workload = Workload("tweets", keywords=(1, 1), box_share=(0.2, 0.6))
    found = indexes.create("scan").build(workload.subscriptions(2000)).match(workload.messages(100))
    expected = sorted((f"m{m}", f"s{s}") for m, s in found.pairs())
    table = parquet.read_table(out)
    pairs = zip(table["message_id"].to_pylist(), table["subscription_id"].to_pylist(), strict=True)
    assert sorted(pairs) == expected
    assert len(expected) > 30
    assert table.schema.field("score").type == pa.float64()
    assert (tmp_path / "map.png").stat().st_size > 10_000


def test_ids_keep_their_type(files: dict[str, str], tmp_path: Path) -> None:
    def line(id: int | str, **location: float) -> str:
        return json.dumps({"id": id, "text": "tea", **location}) + "\n"

    subscriptions = tmp_path / "subscriptions.ndjson"
    box = {"west": -1, "south": -1, "east": 1, "north": 1}
    subscriptions.write_text(json.dumps({"id": 7, "keywords": ["tea"], **box}) + "\n")
    messages = tmp_path / "messages.ndjson"
    files |= {"--subscriptions": str(subscriptions), "--messages": str(messages)}
    messages.write_text(line(1, lon=0, lat=0) + line(2, lon=0, lat=0))
    files["--out"] = str(tmp_path / "numbers.parquet")
    assert match(files).exit_code == 0
    table = parquet.read_table(files["--out"])
    assert table["message_id"].to_pylist() == [1, 2]
    assert table["subscription_id"].to_pylist() == [7, 7]
    messages.write_text(line(1, lon=0, lat=0) + line("two", lon=0, lat=0))
    files["--out"] = str(tmp_path / "mixed.parquet")
    assert match(files).exit_code == 0
    assert parquet.read_table(files["--out"])["message_id"].to_pylist() == ["1", "two"]
    files["--out"] = str(tmp_path / "mixed.ndjson")
    assert match(files).exit_code == 0
    assert [row["message_id"] for row in lines(files["--out"])] == [1, "two"]


def test_no_messages_give_no_matches(files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "messages.csv").write_text("id,text,lon,lat\n")
    files["--out"] = str(tmp_path / "none.parquet")
    done = match(files, "--json", "--map", str(tmp_path / "none.png"))
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["messages_per_second"] == 0
    assert parquet.read_table(files["--out"]).num_rows == 0


@pytest.mark.parametrize(
    ("change", "more", "code", "message"),
    [
        ({"--messages": "nowhere.csv"}, [], 1, "nowhere.csv: there is no such file"),
        ({"--messages": "messages.txt"}, [], 1, "messages.txt: there is no such file"),
        ({}, ["--index", "b-tree"], 1, "unknown index 'b-tree'; choose from: "),
        ({}, ["--option", "fanout=3"], 1, "unknown option 'fanout' of trie-pyramid"),
        ({}, ["--option", "list_size=0"], 1, "list_size"),
        ({}, ["--option", "fast"], 2, "--option: must be NAME=VALUE"),
        ({}, ["--threads", "0"], 2, "threads"),
        ({"--out": "matches.xml"}, [], 1, "matches.xml: cannot tell the format"),
        ({}, ["--map", "matches.jpg"], 1, "--map: must be a file that ends in .png"),
    ],
)
def test_errors_are_one_line_and_leave_no_files(
    change: dict[str, str],
    more: list[str],
    code: int,
    message: str,
    files: dict[str, str],
    tmp_path: Path,
) -> None:
    before = {path.name for path in tmp_path.iterdir()}
    given = files | {name: str(tmp_path / value) for name, value in change.items()}
    done = match(given, *more)
    assert done.exit_code == code
    assert message in done.stderr
    assert "Traceback" not in done.output
    assert code == 2 or done.stderr.count("\n") == 1
    left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert left <= before


def test_the_output_names_the_rejects_file(files: dict[str, str]) -> None:
    done = run(app, ["match", *(p for pair in files.items() for p in pair)], env={"COLUMNS": "300"})
    assert done.exit_code == 0
    assert f"{files['--out']}.rejects.ndjson" in done.stdout


def test_a_failed_job_keeps_the_old_result(files: dict[str, str], tmp_path: Path) -> None:
    assert match(files).exit_code == 0
    old = lines(files["--out"])
    (tmp_path / "messages.csv").write_text("id,lon,lat\nm1,5,5\n")
    done = match(files)
    assert done.exit_code == 1
    assert "text or tokens" in done.stderr
    assert lines(files["--out"]) == old
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["matches.ndjson", "matches.ndjson.rejects.ndjson"]


def test_input_is_never_overwritten(files: dict[str, str]) -> None:
    done = match(files | {"--out": files["--messages"]})
    assert done.exit_code == 1
    assert "already used by this command" in done.stderr
    done = match(files, "--rejects", files["--subscriptions"])
    assert done.exit_code == 1


def test_statistics_are_used_with_their_own_token_ids(
    files: dict[str, str], tmp_path: Path
) -> None:
    # In the statistics "tea" is rare and "coffee" frequent; in the file the opposite is true.
    words = Vocabulary(["milk", "coffee", "tea"])
    counted = Messages.of([[1]] * 9 + [[2]], [[50_000_000, 50_000_000]] * 10)
    Statistics.count(counted, words).save(tmp_path / "statistics")
    options = ["--option", "tokens=idf", "--option", f"statistics={tmp_path / 'statistics'}"]
    result = match(files, "--index", "rt+-tree", *options)
    assert result.exit_code == 0, result.output
    assert {(r["message_id"], r["subscription_id"]) for r in lines(files["--out"])} == EXPECTED
    builder = indexes.create("rt+-tree", tokens="idf", statistics=str(tmp_path / "statistics"))
    assert builder.vocabulary().tokens().to_pylist() == ["coffee", "tea"]
    # The first token of "coffee tea" depends on the statistics, although "coffee" is rarer here.
    both = Clauses.of([[0, 1], [1], [1]], [[0, 0, 9, 9]] * 3)
    assert builder.build(both).arrays()["token"][0] == 1
    assert indexes.create("rt+-tree", tokens="idf").build(both).arrays()["token"][0] == 0


@pytest.mark.parametrize("extension", ["ndjson", "parquet", "csv"])
def test_matches_name_owners_on_request(
    files: dict[str, str], tmp_path: Path, extension: str
) -> None:
    owned = "id,keywords,west,south,east,north,owner\na,coffee,0,0,10,10,ann\nb,tea,0,0,10,10,\n"
    (tmp_path / "subscriptions.csv").write_text(owned)
    out = tmp_path / f"owned.{extension}"
    done = match({**files, "--out": str(out)}, "--owners")
    assert done.exit_code == 0, done.output
    if extension == "ndjson":
        rows = lines(str(out))
    else:
        table = parquet.read_table(out) if extension == "parquet" else csv.read_csv(out)
        rows = table.to_pylist()
    found = {(row["message_id"], row["subscription_id"], row["owner"] or None) for row in rows}
    assert found == {
        ("m1", "a", "ann"),
        ("m1", "b", None),
        *(("m2", "a", "ann"), ("m2", "b", None)),
        ("m3", "b", None),
    }


def test_tokenizers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = 'id,expression,west,south,east,north\na,floods,0,0,9,9\nb,"""old town""",0,0,9,9\n'
    (tmp_path / "subscriptions.csv").write_text(wanted + "c,C++,0,0,9,9\nd,flooding*,0,0,9,9\n")
    said = "id,text,lon,lat\n1,Flooding of old towns,1,1\n2,town old,1,1\n3,C++,1,1\n"
    (tmp_path / "messages.csv").write_text(said)
    files = {f"--{n}": str(tmp_path / f"{n}.csv") for n in ("subscriptions", "messages")}
    files["--out"] = str(tmp_path / "out.ndjson")
    (tmp_path / "own_split.py").write_text("def split(text): return text.split()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    expected = {
        "words": {("1", "d")},
        "stem:english": {("1", "a"), ("1", "b"), ("1", "d")},
        "own_split:split": {("3", "c")},
    }
    for name, pairs in expected.items():
        done = match(files, "--tokenizer", name, "--json")
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        assert told["tokenizer"] == name
        assert told["subscriptions"]["rejected"] == (name != "own_split:split")
        found = lines(files["--out"])
        assert {(m["message_id"], m["subscription_id"]) for m in found} == pairs
    for name, problem in (("stem:klingon", "stem:english"), ("nowhere:f", "No module named")):
        done = match(files, "--tokenizer", name)
        assert done.exit_code != 0
        assert problem in str(done.exception or "") + done.output


def test_tokenizers_of_a_replay(tmp_path: Path) -> None:
    wanted = 'id,expression,west,south,east,north\na,"""old towns""",0,0,9,9\n'
    (tmp_path / "subscriptions.csv").write_text(wanted)
    said = "id,text,lon,lat,time,ttl_s\n1,old town,1,1,100,50\n2,town old,1,1,100,50\n"
    (tmp_path / "messages.csv").write_text(said)
    moves = "subscription_id,time,west,south,east,north\na,110,5,5,9,9\na,120,0,0,9,9\n"
    (tmp_path / "moves.csv").write_text(moves)
    names = ("subscriptions", "messages", "moves")
    files = {f"--{n}": str(tmp_path / f"{n}.csv") for n in names}
    files["--out"] = str(tmp_path / "out.ndjson")
    done = match(files, "--tokenizer", "stem:english", "--json")
    assert done.exit_code == 0, done.output
    found = [(u["message_id"], u["sign"]) for u in lines(files["--out"])]
    assert found == [("1", 1), ("1", -1), ("1", 1)]


def test_the_summary_names_the_index_that_was_used(files: dict[str, str], tmp_path: Path) -> None:
    assert "matched with ap-tree  " in match(files, "--index", "ap-tree").output
    (tmp_path / "subscriptions.csv").write_text(
        "id,keywords,lon,lat,radius_m,delta,tau,max_distance_m\n"
        "a,coffee,5,5,,0.5,0.5,1000\nb,coffee,5,5,1000,,,\n"
    )
    done = match(files, "--index", "ap-tree")
    said = "ap-tree (boolean subscriptions), ranked-pyramid (proximity subscriptions)"
    assert f"matched with {said}: ap-tree does not take proximity ones" in done.output
    result = json.loads(match(files, "--index", "ap-tree", "--json").output)
    assert result["indexes"] == {"boolean": "ap-tree", "proximity": "ranked-pyramid"}
    assert "matched with scan  " in match(files, "--index", "scan").output


def test_large_files_are_matched_by_compiled_kernels(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So what is shown as matching contains no compiling; small files are not worth it."""
    assert "as needed, while matching" in match(files).output
    monkeypatch.setattr(match_job, "_LARGE_BYTES", 10)
    calls: list[str] = []
    monkeypatch.setattr(match_job, "compile_at_once", lambda: calls.append("at once"))
    assert "as needed" not in match(files).output
    assert calls == ["at once"]
