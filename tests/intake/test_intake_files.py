"""Files: every line is taken or refused, and nothing but Nearcast's own errors is raised."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from effort import examples
from nearcast.errors import NearcastError, UnsupportedFile
from nearcast.intake import (
    Batch,
    csv_lines,
    lines,
    load_messages,
    load_subscriptions,
    open_table,
    read_messages,
    read_subscriptions,
)
from nearcast.model import Polygon
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path

TRIANGLE = Polygon([[(0, 0), (4, 0), (0, 4)]])
CSV = """id,keywords,west,south,east,north,owner
a,tea cake,1,2,3,4,
b,"[""new york""]",1,2,3,4,me
"c
d",,1,2,3,4,
"""


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def load(path: Path) -> tuple[list[str | int], list[tuple[int, str, str]]]:
    found, rejects = load_subscriptions(path, Vocabulary())
    refused = zip(rejects.row.tolist(), rejects.field, rejects.reason, strict=True)
    return found.ids.tolist(), sorted(refused)


def test_csv_is_read_with_quotes_lists_and_breaks(tmp_path: Path) -> None:
    vocabulary = Vocabulary()
    found, rejects = load_subscriptions(write(tmp_path, "s.csv", CSV), vocabulary)
    assert not len(rejects)
    assert found.ids.tolist() == ["a", "b", "c\nd"]
    assert found.clauses.token_start.tolist() == [0, 2, 4, 4]
    assert found.owner is not None
    assert found.owner.to_pylist() == [None, "me", None]


PLACE = "lon,lat,radius_m\n"


@pytest.mark.parametrize("quote", ["", '"'])
def test_bad_lines_of_csv_are_refused_with_their_number(tmp_path: Path, quote: str) -> None:
    raw = [
        b"id,lon,lat,radius_m",
        b"a,1,2,3",
        b"b,1,2",
        b"",
        b"c,1,2,\xff",
        b"d,1,2,3,4",
        b"e,1,x,3",
    ]
    raw += [b"a,5,5,5", f"{quote}f{quote},1,2,3".encode()]
    for newline in (b"\n", b"\r\n"):
        path = write(tmp_path, "s.csv", newline.join(raw))
        ids, refused = load(path)
        assert ids == ["a", "f"]
        assert [line for line, _, _ in refused] == [3, 5, 6, 7, 8]
        assert refused[0][2] == "has 3 cells, the header names 4 columns"
        assert refused[1][2] == "is not valid UTF-8"
        assert refused[3][1] == "lat"
        assert refused[4][1] == "id"


def test_a_quote_that_is_not_closed_costs_its_own_line_only(tmp_path: Path) -> None:
    rows = [f"{n},1,2,3" for n in range(50)]
    rows[10] = '"10,1,2,3'
    rows[20] = '2"0,1,2,3'
    rows[30] = '"30"x,1,2,3'
    path = write(tmp_path, "s.csv", "id," + PLACE + "\n".join(rows))
    ids, refused = load(path)
    assert [line for line, _, _ in refused] == [12, 32]
    assert ids == [('2"0' if n == 20 else str(n)) for n in range(50) if n not in {10, 30}]


STRAY = """id,text,lon,lat
1,"oops,2,3
2,tea,1,1
"
3,tea,1,1
"
4,"two
lines",1,1
5,te"a,1,1
6,",x
7,tea,1,1
8,"x"y,1,1
9,"a ""quoted"" word, and a comma",1,1
10,tea,1,1"
"""


@pytest.mark.parametrize("size", [1, 8, 30, 1 << 20])
def test_a_stray_quote_costs_its_own_line_only(tmp_path: Path, size: int) -> None:
    path = write(tmp_path, "m.csv", STRAY)
    batches = list(open_table(path, block_bytes=size))
    ids = [i for batch in batches for i in batch.table.column("id").to_pylist()]
    rejected = sorted(line for batch in batches for line in batch.rejects.row.tolist())
    assert ids == ["2", "3", "4", "5", "7", "9", "10"]
    assert rejected == [2, 4, 6, 10, 12]
    lines = [line for batch in batches for line in batch.rows.tolist()]
    assert lines == [3, 5, 7, 9, 11, 13, 14]
    assert batches[-1].bytes_read == path.stat().st_size
    texts = [t for batch in batches for t in batch.table.column("text").to_pylist()]
    assert texts[2] == "two\nlines"
    assert texts[5] == 'a "quoted" word, and a comma'


@pytest.mark.parametrize(
    "line", [b'a",",x\n', b'a,"\n', b'"\n', b'"x\n', b'""",\n', b'a,"b"c\n', b'x,","\n']
)
def test_every_line_of_csv_is_parsed_a_few_times_at_most(
    tmp_path: Path, line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = 0
    parse = csv_lines._cells

    def counted(text: str, delimiter: str) -> Any:
        nonlocal parsed
        parsed += len(text)
        return parse(text, delimiter)

    monkeypatch.setattr(csv_lines, "_cells", counted)
    content = b"id,text,lon,lat\n" + line * 3_000
    path = write(tmp_path, "m.csv", content)
    batches = list(open_table(path))
    assert sum(len(batch.rows) + len(batch.rejects) for batch in batches) <= 3_000
    assert parsed < 8 * len(content)


def test_a_row_over_too_many_lines_is_a_stray_quote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_lines, "_MAX_ROW_LINES", 5)
    monkeypatch.setattr(csv_lines, "_MAX_ROW_BYTES", 100)
    lines = ["id,lon,lat,radius_m", '"a', *["x"] * 3, 'b",1,2,3', '"c', *["x"] * 4, 'd",1,2,3']
    lines += ['"e' + "x" * 200, 'f",1,2,3', "g,1,2,3"]
    ids, refused = load(write(tmp_path, "s.csv", "\n".join(lines)))
    assert ids == ["a\nx\nx\nx\nb", 'd"', 'f"', "g"]
    assert [line for line, _, _ in refused] == [7, 8, 9, 10, 11, 13]


@pytest.mark.parametrize("name", ["s.csv", "s.ndjson"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_a_line_that_is_too_long_is_refused_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, quote: str
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1_000)
    rows = [{**GOOD, "id": n, "keywords": "tea " * (400 if n == "b" else 1)} for n in "abc"]
    if name == "s.csv":
        cells = [[quote + str(v) + quote for v in row.values()] for row in rows]
        content = "\n".join(",".join(row) for row in [[*rows[0]], *cells])
    else:
        content = "\n".join(map(json.dumps, rows))
    path = write(tmp_path, name, content)
    for size in (1, 100, 200, 700):
        found = list(open_table(path, block_bytes=size))
        assert [i for batch in found for i in batch.table.column("id").to_pylist()] == ["a", "c"]
        [(line, reason)] = [
            pair
            for batch in found
            for pair in zip(batch.rejects.row.tolist(), batch.rejects.reason, strict=True)
        ]
        assert (line, reason) == (3 if name == "s.csv" else 2, "is longer than 1,000 bytes")
        assert [line for batch in found for line in batch.rows.tolist()][-1] == line + 1


def test_a_quoted_cell_does_not_continue_on_a_line_that_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 100)
    content = 'id,lon,lat,radius_m\n"a\n' + "x" * 200 + '\nb",1,2,3\nc,1,2,3\n'
    path = write(tmp_path, "s.csv", content)
    for size in (1, 21, 25, 50):
        found = list(open_table(path, block_bytes=size))
        assert [i for b in found for i in b.table.column("id").to_pylist()] == ['b"', "c"]
        assert sorted(n for b in found for n in b.rejects.row.tolist()) == [2, 3]


def test_a_header_that_is_too_long_is_unsupported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 100)
    path = write(tmp_path, "s.csv", "id," + "x" * 200 + "\na,b\n")
    with pytest.raises(UnsupportedFile, match="first line is longer than"):
        list(open_table(path, block_bytes=10))


MARK = "\ufeff"


@pytest.mark.parametrize("last", ["c,1,2,3", '"c",1,2,3'])
@pytest.mark.parametrize("start", ["", MARK])
def test_only_the_mark_at_the_start_of_a_file_is_dropped(
    tmp_path: Path, start: str, last: str
) -> None:
    content = f"{start}id,lon,lat,radius_m\n{MARK}a,1,2,3\n{MARK}b,1,2,3\n{last}\n"
    for size in (1, 30, 1 << 20):
        batches = list(open_table(write(tmp_path, "s.csv", content), block_bytes=size))
        ids = [i for batch in batches for i in batch.table.column("id").to_pylist()]
        assert ids == [f"{MARK}a", f"{MARK}b", "c"]


@pytest.mark.parametrize("name", ["s.csv", "s.parquet"])
def test_control_characters_of_a_header_are_escaped_and_long_ones_shortened(
    tmp_path: Path, name: str
) -> None:
    columns = ["\x1b[31mname", "l\ton", "x" * 5_000_000]
    path = tmp_path / name
    if name == "s.csv":
        write(tmp_path, name, ",".join(columns) + "\n1,2,3\n")
    else:
        parquet.write_table(pa.table({column: [1] for column in columns}), path)
    for read in (load, lambda path: list(load_messages(path, now_us=0))):
        with pytest.raises(UnsupportedFile) as caught:
            read(path)
        message = str(caught.value)
        assert len(message) <= 2_000
        assert message.isprintable()
        assert "\\x1b[31mname, l\\ton, xxx" in message


@pytest.mark.parametrize("other", ["", '{"id": "slow", "lon": "1", "lat": 2, "radius_m": 3}\n'])
def test_json_of_any_depth_is_refused_line_by_line(tmp_path: Path, other: str) -> None:
    depths = [5, 500, *range(900, 1_100), 50_000]
    rows = [
        f'{{"id": {n}, "geometry": {{"type": "Polygon", "coordinates": {"[" * n}1{"]" * n}}}}}'
        for n in depths
    ]
    good = json.dumps(GOOD)
    path = write(tmp_path, "s.ndjson", other + "\n".join([*rows, good]))
    ids, refused = load(path)
    assert ids == (["slow", "g"] if other else ["g"])
    assert len(refused) == len(depths)


def test_rows_over_the_border_of_blocks_are_whole(tmp_path: Path) -> None:
    rows = [[f"{n}\nx" if n % 3 else str(n), "1", "2", "3"] for n in range(40)]
    text = io.StringIO()
    csv.writer(text).writerows([["id", "lon", "lat", "radius_m"], *rows])
    path = write(tmp_path, "s.csv", text.getvalue())
    for size in (1, 7, 64, 1 << 20):
        batches = list(open_table(path, block_bytes=size))
        assert [i for b in batches for i in b.table.column("id").to_pylist()] == [
            r[0] for r in rows
        ]
        lines = [line for b in batches for line in b.rows.tolist()]
        assert lines == [2 + sum(1 + ("\n" in r[0]) for r in rows[:n]) for n in range(40)]
        assert batches[-1].bytes_read == batches[-1].bytes_total == path.stat().st_size


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_header_may_have_a_mark_and_blanks(tmp_path: Path, mark: bytes) -> None:
    path = write(tmp_path, "s.csv", mark + b"\n id , lon,lat,radius_m\na,1,2,3\n")
    assert load(path) == (["a"], [])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "has no header"),
        (b"\n\n", "has no header"),
        (b"id,id\na,b\n", "distinct names"),
        (b"id,\xff\na,b\n", "is not valid UTF-8"),
        (b'"id,lon\na,b\n', "first line is not a CSV row"),
        (b"name,lon\na,b\n", "it has the columns name, lon; expected id"),
        (b"name,lon\n", "it has the columns name, lon; expected id"),
    ],
)
def test_csv_without_the_right_header_is_unsupported(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = write(tmp_path, "s.csv", content)
    with pytest.raises(UnsupportedFile, match=rf"s\.csv: .*{reason}"):
        load(path)


GOOD: dict[str, Any] = {"id": "g", "lon": 1, "lat": 2, "radius_m": 3}


@pytest.mark.parametrize(
    ("line", "field", "reason"),
    [
        (b"{", "", "is not JSON"),
        (b"nonsense", "", "is not JSON"),
        (b"5", "", "is not a JSON object"),
        (b'{"id": "\xff"}', "", "is not valid UTF-8"),
        (b'{"id": "\\ud800"}', "", "half a surrogate pair"),
        (b"[" * 100_000, "", "is not JSON"),
        (b'{"a": 1}{"a": 2}', "", "is not JSON"),
        (b'{"id": ' + b"9" * 5000 + b"}", "", "is not JSON"),
        ({"id": True}, "id", "string or an integer"),
        ({"id": 1.5}, "id", "string or an integer"),
        ({"id": 2**63}, "id", "64 bits"),
        ({"lon": "east"}, "lon", "must be a number"),
        ({"lon": True}, "lon", "must be a number"),
        ({"lon": 10**400}, "lon", "must"),
        ({"keywords": 5}, "keywords", "must be a list of strings"),
        ({"keywords": ["a", 5]}, "keywords", "must be a list of strings"),
        ({"keywords": ["a", None]}, "keywords", "must not contain null"),
        ({"expression": ["tea"]}, "expression", "must be text"),
        ({"expires_at": "soon"}, "expires_at", "ISO 8601"),
        ({"alpha": "half"}, "alpha", "must be a number"),
        ({"id": None}, "id", "is missing"),
        ({}, "id", "is a duplicate"),
    ],
)
def test_bad_lines_of_json_are_refused_with_their_number(
    tmp_path: Path, line: Any, field: str, reason: str
) -> None:
    raw = line if isinstance(line, bytes) else json.dumps({**GOOD, **line}).encode()
    good = json.dumps(GOOD).encode()
    last = json.dumps({**GOOD, "id": "last"}).encode()
    path = write(tmp_path, "s.ndjson", b"\n".join([good, b"", raw, last]))
    ids, refused = load(path)
    assert ids == ["g", "last"]
    [(number, where, why)] = refused
    assert (number, where) == (3, field)
    assert reason in why


def test_json_rows_may_differ_in_their_types(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {**GOOD, "id": 7, "keywords": "tea cake", "expires_at": 5},
        {
            **GOOD,
            "id": "70",
            "keywords": ["tea"],
            "lon": "1.5",
            "expires_at": "1970-01-01T00:00:05Z",
        },
        {"id": 8, "geometry": TRIANGLE.to_geojson(), "owner": 12},
        {"id": 9, "geometry": TRIANGLE.to_wkt(), "other": {"x": [1, "y"]}},
    ]
    path = write(tmp_path, "s.jsonl", "\n".join(map(json.dumps, rows)))
    found, rejects = load_subscriptions(path, Vocabulary())
    assert not len(rejects)
    assert sorted(found.ids.tolist(), key=repr) == ["70", 7, 8, 9]
    assert sorted(found.expires_us.tolist())[:2] == [5_000_000, 5_000_000]


def test_text_that_looks_like_a_time_stays_text(tmp_path: Path) -> None:
    row = {**GOOD, "id": "2024-05-01 12:00:00", "expression": "2024-05-01"}
    path = write(tmp_path, "s.json", json.dumps(row))
    assert load(path) == (["2024-05-01 12:00:00"], [])


def test_objects_over_two_lines_are_refused(tmp_path: Path) -> None:
    one, two = '{"id": "a",', '"lon": 1, "lat": 2, "radius_m": 3}'
    both = '{"id": "b"}{"id": "c"}'
    ids, refused = load(write(tmp_path, "s.json", "\n".join([one, two, both])))
    assert ids == []
    assert [line for line, _, _ in refused] == [1, 2, 3]


def test_quick_and_careful_reading_agree(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": n, "text": f"word {n} é", "lon": n / 7, "lat": n, "time": n * 1.5} for n in range(99)
    ]
    lines = "\n".join(map(json.dumps, rows))
    quick = list(open_table(write(tmp_path, "quick.json", lines)))
    careful = list(open_table(write(tmp_path, "careful.json", lines + "\nbad")))
    assert [len(batch.rejects) for batch in careful] == [0, 1]
    one, _ = read_messages(quick[0].table, now_us=0)
    other, _ = read_messages(careful[0].table, now_us=0)
    vocabulary = Vocabulary(["word", "é"])
    assert one.ids.tolist() == other.ids.tolist()
    assert one.box.tolist() == other.box.tolist()
    assert one.number(vocabulary).token.tolist() == other.number(vocabulary).token.tolist()
    assert one.time_us.tolist() == other.time_us.tolist()
    assert quick[0].rows.tolist() == careful[0].rows.tolist() == list(range(1, 100))


def test_a_json_array_is_not_one_object_per_line(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFile, match="one object per line"):
        load(write(tmp_path, "s.ndjson", "\n [" + json.dumps(GOOD) + "]"))


def test_parquet_is_read_in_batches(tmp_path: Path) -> None:
    table = pa.table({"id": range(25), "geometry": [TRIANGLE.to_wkb()] * 25})
    path = tmp_path / "s.parquet"
    parquet.write_table(table, path)
    batches = list(open_table(path, batch_rows=10))
    assert [len(batch.rows) for batch in batches] == [10, 10, 5]
    assert batches[2].rows.tolist() == list(range(20, 25))
    assert batches[2].bytes_read == batches[2].bytes_total == path.stat().st_size
    assert load(path) == (list(range(25)), [])


def test_an_empty_parquet_file_is_no_rows(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("geometry", pa.binary())])
    parquet.write_table(schema.empty_table(), tmp_path / "s.parquet")
    assert load(tmp_path / "s.parquet") == ([], [])


def geoparquet(path: Path, **column: Any) -> Path:
    geo = {"primary_column": "shape", "columns": {"shape": {"encoding": "WKB", **column}}}
    table = pa.table({"id": [1], "shape": [TRIANGLE.to_wkb()]})
    parquet.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), path)
    return path


def test_geoparquet_names_its_geometry(tmp_path: Path) -> None:
    path = tmp_path / "s.geoparquet"
    crs84 = {"id": {"authority": "OGC", "code": "CRS84"}}
    for crs in (None, crs84, {"id": {"authority": "EPSG", "code": 4326}}):
        assert load(geoparquet(path, crs=crs)) == ([1], [])
    with pytest.raises(UnsupportedFile, match="must be WKB, is point; convert it"):
        load(geoparquet(path, encoding="point"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing.csv", "there is no such file"),
        ("missing.parquet", "there is no such file"),
        ("file.txt", r"cannot tell the format from '\.txt'; name it one of \.parquet"),
        ("file", "cannot tell the format from 'no extension'"),
        ("folder.json", "the folder has no files"),
        ("garbage.parquet", "cannot be read as parquet"),
    ],
)
def test_other_files_are_unsupported(tmp_path: Path, name: str, reason: str) -> None:
    write(tmp_path, "garbage.parquet", b"garbage" * 9)
    write(tmp_path, "file.txt", b"")
    write(tmp_path, "file", b"")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(UnsupportedFile, match=rf"{name}: {reason}"):
        load(tmp_path / name)


def test_progress_is_told(tmp_path: Path) -> None:
    path = write(tmp_path, "m.csv", "id,text,lon,lat\n1,tea,0,0\n2,tea,0\n")
    told: list[Batch] = []
    [(batch, rejects)] = load_messages(path, now_us=0, progress=told.append)
    assert (len(batch), len(rejects), len(told)) == (1, 1, 1)
    assert told[0].bytes_read == path.stat().st_size
    load_subscriptions(write(tmp_path, "s.csv", CSV), Vocabulary(), progress=told.append)
    assert len(told) == 2


def rows_in(path: Path, kind: str) -> tuple[int, int, int]:
    """Return how many rows were read, taken and refused."""
    rows = taken = refused = 0
    for batch in open_table(path, kind=kind, block_bytes=64):
        if kind == "subscriptions":
            found, rejects = read_subscriptions(batch.table, Vocabulary(), source=batch)
            taken += len(found)
        else:
            messages, rejects = read_messages(batch.table, now_us=0, source=batch)
            taken += len(messages)
        rows += len(batch.rows) + len(batch.rejects)
        refused += len(batch.rejects) + len(rejects)
    return rows, taken, refused


HEADERS = {
    "subscriptions": b"id,keywords,expression,lon,lat,radius_m,geometry,expires_at,owner\n",
    "messages": b"id,text,tokens,lon,lat,time,ttl_s\n",
}
separators = [
    b"\n",
    b"\r\n",
    b"\r",
    b",",
    b'"',
    b'""',
    b"[",
    b"]",
    b"{",
    b"}",
    b" ",
    b"\0",
    b"\xff",
]
cells = [b'["a"]', b"1", b"-7.5", b"1e9", b"tea", b"POINT (1 1)", b"2024-05-01", "İé".encode()]
whole = [b"1,tea,,1,1,5,,,\n", b"2,tea,,1,1,5,9\n"]
pieces = st.sampled_from([*separators, *cells, *whole])
any_bytes = st.binary(max_size=80) | st.lists(pieces, max_size=40).map(b"".join)


@given(any_bytes, st.sampled_from(sorted(HEADERS)), st.booleans())
@example(b'1,"\n' * 9, "messages", True)
@settings(max_examples=examples(300), deadline=None)
def test_any_bytes_can_be_csv(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, kind: str, header: bool
) -> None:
    content = HEADERS[kind] + content if header else content
    path = write(tmp_path_factory.getbasetemp(), "any.csv", content)
    try:
        rows, taken, refused = rows_in(path, kind)
    except NearcastError:
        assert not header
    else:
        assert rows == taken + refused


json_cells = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([10**30, 1e300, 0.5, "tea", "", "1", "[", "POINT (1 1)", "2024-05-01", "é\0"]),
    st.lists(st.sampled_from(["tea", "", None, 1, []]), max_size=2),
    st.just({"type": "Point", "coordinates": [1, 1]}),
)
common = ["id", "lon", "lat", "time", "west", "unknown"]
of_subscriptions = [
    "keywords",
    "expression",
    "radius_m",
    "geometry",
    "expires_at",
    "owner",
    "alpha",
]
names = st.sampled_from([*common, *of_subscriptions, "text", "tokens", "ttl_s"])
json_rows = st.dictionaries(names, json_cells, max_size=8).map(lambda row: json.dumps(row).encode())
complete = st.builds(
    lambda row, more: json.dumps({**row, **more}).encode(),
    st.just({"id": "a", "text": "tea", "lon": 1, "lat": 2, "radius_m": 3}),
    st.dictionaries(names, json_cells, max_size=1),
)


@given(
    st.lists(any_bytes | json_rows | complete, max_size=8).map(b"\n".join),
    st.sampled_from(sorted(HEADERS)),
)
@example(b"{}\n\n {}", "messages")
@settings(max_examples=examples(300), deadline=None)
def test_any_bytes_can_be_json_lines(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, kind: str
) -> None:
    path = write(tmp_path_factory.getbasetemp(), "any.ndjson", content)
    text = content.removeprefix(b"\xef\xbb\xbf")
    filled = [line for line in text.split(b"\n") if line.strip(b" \t\r\x0b\x0c")]
    try:
        rows, taken, refused = rows_in(path, kind)
    except NearcastError:
        assert text.lstrip().startswith(b"[")
    else:
        assert rows == taken + refused == len(filled)
