"""The commands of the pipeline, one after the other, as a user would give them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from nearcast.cli import app

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def run(*words: object, code: int = 0) -> Any:
    """Give a command and return what it says, as JSON."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output if code in (1, 2) else json.loads(done.stdout)


def pairs(path: Path) -> set[tuple[str, str]]:
    table = parquet.read_table(path)
    rows = list(
        zip(*(table[n].to_pylist() for n in ("message_id", "subscription_id")), strict=True)
    )
    assert len(rows) == len(set(rows))
    return set(rows)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    many = ("--subscriptions", 3000, "--messages", 400, "--box-share", "0.01-0.1")
    run("generate", "--dataset", "tweets", *many, "--format", "csv", "--out", folder, "--json")
    with open(folder / "messages.csv", "a") as file:
        file.write("bad,words,200,0,\n")
    return folder


def test_the_commands_give_what_one_process_gives(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    messages, index = data / "messages.csv", tmp_path / "index"
    alone = tmp_path / "alone.parquet"
    given = ("--subscriptions", data / "subscriptions.csv", "--messages", messages)
    expected = run("match", *given, "--out", alone, "--json")
    assert expected["matches"] > 100

    built = run("spark", "build", *given, "--out", index, "--shards", 2, "--json")
    assert (built["version"], built["mode"], built["rejected"]) == (1, "sharded", 0)
    assert built["plan"]["subscription_copies"] >= 1
    for mode in ("sharded", "replicated"):
        out = tmp_path / mode
        found = run(
            *("spark", "match", "--index-path", index, "--messages", messages, "--out", out),
            *("--mode", mode, "--json", "--strict"),
            code=3,
        )
        assert (found["messages"], found["rejected"]) == (400, 1)
        assert found["rejects"][0]["field"] == "lon"
        assert pairs(out) == pairs(alone)
        assert len(spark.read.json(f"{out}.rejects").collect()) == 1

    arriving = tmp_path / "arriving"
    arriving.mkdir()
    (arriving / "messages.csv").write_bytes(messages.read_bytes())
    run(
        *("spark", "stream", "--index-path", index, "--messages", arriving, "--format", "csv"),
        *("--out", tmp_path / "streamed", "--checkpoint", tmp_path / "checkpoint", "--once"),
        "--json",
    )
    assert pairs(tmp_path / "streamed") == pairs(alone)

    gone = sorted(pairs(alone))[0][1]
    (tmp_path / "changes.csv").write_text(f"op,id\ndelete,{gone}\ndelete,nobody\n")
    changed = run(
        *("spark", "changes", "--index-path", index, "--changes", tmp_path / "changes.csv"),
        "--json",
    )
    assert (changed["version"], changed["delete"], changed["rejected"]) == (2, 1, 1)
    compacted = run("spark", "compact", "--index-path", index, "--json")
    assert compacted["version"] == 3
    # Java decides when the plans of the commands above are gone, and with them what they hold.
    assert sorted([*compacted["dropped"], *compacted["kept"]]) == [1, 2]
    assert 2 in compacted["dropped"]
    run(
        *("spark", "match", "--index-path", index, "--messages", messages),
        *("--out", tmp_path / "after", "--json"),
    )
    assert pairs(tmp_path / "after") == {pair for pair in pairs(alone) if pair[1] != gone}


def test_nothing_valid_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """The rejects are written and the summary is shown; an index is not replaced by nothing."""
    (tmp_path / "m.csv").write_text("id,text,lon,lat\na,tea,1,2\n")
    (tmp_path / "s.csv").write_text("id,keywords,west,south,east,north\ns,tea,0,0,9,9\n")
    header = "id,text,lon,lat,west,south,east,north\n"
    (tmp_path / "wrong.csv").write_text(f"{header}a,tea,500,2,8,8,8,1\n")
    (tmp_path / "nobody.csv").write_text("op,id\ndelete,nobody\n")
    (tmp_path / "empty.csv").write_text(header)
    index, wrong, empty = (tmp_path / name for name in ("index", "wrong.csv", "empty.csv"))
    out = {name: tmp_path / name for name in ("p1", "p2", "x", "y", "st", "su")}
    run("spark", "build", "--subscriptions", tmp_path / "s.csv", "--out", index, "--json")
    prepare = ("prepare", "--kind", "messages", "--input")
    by_index = ("--index-path", index)
    for words, said in (
        ((*prepare, wrong, "--out", out["p1"]), "no clean messages: all 1 were"),
        ((*prepare, empty, "--out", out["p2"]), "no clean messages: the input has no rows"),
        (
            ("build", "--subscriptions", empty, "--out", index),
            "no subscriptions to index: the input has no rows",
        ),
        (("build", "--subscriptions", wrong, "--out", index), "no subscriptions to index: all 1"),
        (("match", *by_index, "--messages", wrong, "--out", out["x"]), "no valid messages: all 1"),
        (("changes", *by_index, "--changes", tmp_path / "nobody.csv"), "no valid changes: all 1"),
        (("statistics", *prepare[1:], wrong, "--out", out["st"]), "no valid messages: all 1"),
        (
            ("subscriptions", "--messages", wrong, "--out", out["su"]),
            "at least one message with words",
        ),
    ):
        assert said in run("spark", *words, code=1)
    assert [path.name for path in (index / "versions").iterdir()] == ["00000001.json"]
    for name in ("p1", "index", "x", "nobody.csv"):
        assert spark.read.json(f"{tmp_path}/{name}.rejects").count() == 1
    given = (*by_index, "--messages", tmp_path / "m.csv", "--out", out["y"])
    assert run("spark", "match", *given, "--json")["matches"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["match", "--index-path", "nowhere", "--out", "x"], "contains no index"),
        (["match", "--index-path", "nowhere", "--out", "x", "--mode", "both"], "unknown mode"),
        (["build", "--out", "index"], "not a table of subscriptions"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    spark: SparkSession,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "--messages" if words[0] == "match" else "--subscriptions"
    output = run("spark", *words, name, data / "messages.csv", code=1)
    assert said in output
    assert len(output.strip().splitlines()) == 1
