"""Encodings, delimiters, compression, folders and patterns."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from nearcast.errors import InvalidInput, NearcastError, UnknownName, UnsupportedFile
from nearcast.intake import Reading, find_files, load_messages, open_file, open_table

if TYPE_CHECKING:
    from pathlib import Path

CSV = "id,text,lon,lat\na,Café à la crème,1,2\nb,Straße €,3,4\n"
LINES = "".join(
    json.dumps({"id": i, "text": t, "lon": 1, "lat": 2}, ensure_ascii=False) + "\n"
    for i, t in (("a", "Café à la crème"), ("b", "Straße €"))
)


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def texts(path: Path, **reading: Any) -> list[str]:
    batches = list(open_table(path, Reading(**reading)))
    assert not any(len(batch.rejects) for batch in batches)
    return [text for batch in batches for text in batch.table.column("text").to_pylist()]


def rejected(path: Path, **reading: Any) -> list[tuple[str, int, str, str]]:
    parts = [rejects for _, rejects in load_messages(path, now_us=0, reading=Reading(**reading))]
    return [
        one
        for part in parts
        for one in zip(part.file, part.row.tolist(), part.field, part.reason, strict=True)
    ]


@pytest.mark.parametrize("name", ["m.csv", "m.ndjson", "m.json"])
@pytest.mark.parametrize("encoding", ["cp1252", "iso-8859-15", "utf-16-le", "utf-32", "mac-roman"])
def test_encodings_are_transcoded(tmp_path: Path, name: str, encoding: str) -> None:
    content = CSV if name == "m.csv" else LINES
    path = write(tmp_path, name, content.encode(encoding))
    assert texts(path, encoding=encoding) == ["Café à la crème", "Straße €"]


@pytest.mark.parametrize("name", ["m.csv", "m.ndjson"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32-le", "utf-8-sig"])
def test_a_byte_order_mark_tells_the_encoding(tmp_path: Path, name: str, encoding: str) -> None:
    mark = "" if encoding in {"utf-16", "utf-8-sig"} else "\ufeff"
    content = mark + (CSV if name == "m.csv" else LINES)
    path = write(tmp_path, name, content.encode(encoding))
    assert texts(path) == ["Café à la crème", "Straße €"]
    assert texts(path, encoding="latin-1") == ["Café à la crème", "Straße €"]


def test_latin_1_is_not_taken_for_utf_8(tmp_path: Path) -> None:
    path = write(tmp_path, "m.csv", CSV.replace(" €", "").encode("latin-1"))
    reasons = [(row, reason) for _, row, _, reason in rejected(path)]
    assert reasons == [(2, "is not valid UTF-8"), (3, "is not valid UTF-8")]
    assert texts(path, encoding="latin-1") == ["Café à la crème", "Straße"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "cp1252"])
@pytest.mark.parametrize("name", ["m.csv", "m.ndjson"])
def test_what_cannot_be_decoded_costs_its_line_only(
    tmp_path: Path, name: str, encoding: str
) -> None:
    broken = {"utf-16-le": b"\x00\xd8", "utf-16-be": b"\xd8\x00", "cp1252": b"\x81"}[encoding]
    content = (CSV if name == "m.csv" else LINES).encode(encoding)
    content = content.replace("crème".encode(encoding), "cr".encode(encoding) + broken)
    path = write(tmp_path, name, content)
    line = 2 if name == "m.csv" else 1
    assert [(row, reason) for _, row, _, reason in rejected(path, encoding=encoding)] == [
        (line, f"is not valid {encoding.upper()}")
    ]


def test_characters_over_the_border_of_chunks_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nearcast.intake import byte_streams

    monkeypatch.setattr(byte_streams, "_CHUNK_BYTES", 7)
    content = CSV.replace("Café", "😀é")
    path = write(tmp_path, "m.csv", content.encode("utf-16"))
    assert texts(path) == ["😀é à la crème", "Straße €"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_detected(tmp_path: Path, delimiter: str) -> None:
    rows = [["id", '"a,b;c"', "text", "lon", "lat"], ["a", "x", '"tea;|,\t"', "1", "2"]]
    path = write(tmp_path, "m.csv", "\n".join(delimiter.join(row) for row in rows))
    assert texts(path) == ["tea;|,\t"]
    plain = write(
        tmp_path, "n.csv", "\n".join(delimiter.join([*"abc"[:0], *r[2:], r[0]]) for r in rows)
    )
    assert [batch.table.num_rows for batch in open_table(plain)] == [1]


def test_a_delimiter_may_be_given(tmp_path: Path) -> None:
    path = write(tmp_path, "m.csv", "id:text:lon:lat\na:tea, cake; milk:1:2\n")
    assert texts(path, delimiter=":") == ["tea, cake; milk"]
    path = write(tmp_path, "m.tsv", "id\ttext,with;commas\tlon\tlat\na\ttea\t1\t2\n")
    [batch] = open_table(path)
    assert batch.table.column_names == ["id", "text,with;commas", "lon", "lat"]
    assert texts(write(tmp_path, "n.csv", "id\ttext,x\ttext\na\t,\ttea\n"), delimiter="tab") == [
        "tea"
    ]


@pytest.mark.parametrize("name", ["m.csv", "m.ndjson", "m.geojson"])
@pytest.mark.parametrize("compression", ["gz", "zst"])
def test_text_may_be_compressed(tmp_path: Path, name: str, compression: str) -> None:
    content = (CSV if name == "m.csv" else LINES).encode()
    if name == "m.geojson":
        rows = [json.loads(line) for line in LINES.splitlines()]
        features = [{"type": "Feature", "properties": row, "geometry": None} for row in rows]
        content = json.dumps({"type": "FeatureCollection", "features": features}).encode()

    def packed(raw: bytes) -> bytes:
        codec = pa.Codec("zstd")
        return gzip.compress(raw) if compression == "gz" else codec.compress(raw, asbytes=True)

    half = len(content) // 2
    members = packed(content[:half]) + packed(content[half:])
    for raw in (packed(content), members):
        path = write(tmp_path, f"{name}.{compression}", raw)
        assert texts(path) == ["Café à la crème", "Straße €"]
        [batch] = open_table(path)
        assert batch.bytes_read == batch.bytes_total == len(raw)
    with pytest.raises(UnsupportedFile, match=r"cannot be read as .*: Truncated"):
        list(open_table(write(tmp_path, f"{name}.{compression}", packed(content)[:-6])))
    with pytest.raises(UnsupportedFile, match="cannot be read as"):
        list(open_table(write(tmp_path, f"{name}.{compression}", content)))


def test_folders_and_patterns(tmp_path: Path) -> None:
    write(tmp_path, "in/b.csv", CSV)
    write(tmp_path, "in/sub/a.ndjson", LINES.replace('"a"', '"c"').replace('"b"', '"d"'))
    write(tmp_path, "in/_SUCCESS", b"")
    write(tmp_path, "in/.b.csv.crc", b"x")
    write(tmp_path, "in/_temporary/0/part.csv", "garbage")
    table = pa.table({"id": ["e"], "text": ["tea"], "lon": [1.0], "lat": [2.0]})
    parquet.write_table(table, tmp_path / "in" / "c.parquet")
    names = [str(path.relative_to(tmp_path)) for path in find_files(tmp_path / "in")]
    assert names == ["in/b.csv", "in/c.parquet", "in/sub/a.ndjson"]
    batches = list(open_table(tmp_path / "in"))
    assert [batch.file for batch in batches] == ["b.csv", "c.parquet", "sub/a.ndjson"]
    assert [i for b in batches for i in b.table.column("id").to_pylist()] == [*"abecd"]
    assert batches[-1].bytes_read == batches[-1].bytes_total
    assert [path.name for path in find_files(tmp_path / "in" / "*.csv")] == ["b.csv"]
    deep = list(open_table(tmp_path / "in" / "**" / "*.ndjson"))
    assert [batch.file for batch in deep] == ["sub/a.ndjson"]
    with pytest.raises(UnsupportedFile, match="no file matches"):
        find_files(tmp_path / "*.xml")
    write(tmp_path, "in/readme.txt", "hello")
    with pytest.raises(UnsupportedFile, match=r"readme\.txt: cannot tell the format"):
        list(open_table(tmp_path / "in"))


def test_rejects_name_the_file_and_keep_the_whole_record(tmp_path: Path) -> None:
    write(tmp_path, "in/a.csv", "id,text,lng,latitude,color\n1,tea,0,95,red\n2,tea,1\n")
    write(
        tmp_path, "in/b.ndjson", '{"id": "3", "text": "t", "lon": 0, "lat": 95, "color": "red"}\n'
    )
    table = pa.table({"id": [4], "text": ["t"], "LON": [0], "lat": [95], "color": ["red"]})
    parquet.write_table(table, tmp_path / "in" / "c.parquet")
    parts = [rejects for _, rejects in load_messages(tmp_path / "in", now_us=0)]
    found = [row for part in parts for row in part.to_table().to_pylist()]
    assert [(row["file"], row["row"], row["field"]) for row in found] == [
        ("a.csv", 3, ""),
        ("a.csv", 2, "lat"),
        ("b.ndjson", 1, "lat"),
        ("c.parquet", 0, "lat"),
    ]
    records = [json.loads(row["record"]) for row in found]
    assert records[0] == "2,tea,1"
    assert records[1] == {"id": "1", "text": "tea", "lng": "0", "latitude": "95", "color": "red"}
    assert records[2] == {"id": "3", "text": "t", "lon": 0, "lat": 95, "color": "red"}
    assert records[3] == {"id": 4, "text": "t", "LON": 0, "lat": 95, "color": "red"}


def test_pieces_of_parquet_have_the_numbers_of_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "m.parquet"
    parquet.write_table(pa.table({"id": range(10), "text": ["t"] * 10}), path, row_group_size=3)
    pieces = [list(open_file(path, Reading(), piece=(n, n + 2))) for n in (0, 2)]
    rows = [[row for batch in piece for row in batch.rows.tolist()] for piece in pieces]
    ids = [[i for b in piece for i in b.table.column("id").to_pylist()] for piece in pieces]
    assert rows == ids == [[*range(6)], [*range(6, 10)]]
    with pytest.raises(UnsupportedFile, match="only Parquet files"):
        list(open_file(write(tmp_path, "m.csv", CSV), Reading(), piece=(0, 1)))


def test_files_may_be_named_by_a_uri(tmp_path: Path) -> None:
    path = write(tmp_path, "m.csv", CSV)
    [batch] = open_file(path.as_uri())
    assert (batch.file, batch.table.num_rows) == ("m.csv", 2)
    table = pa.table({"id": [1], "text": ["t"], "lon": [1.0], "lat": [2.0]})
    parquet.write_table(table, tmp_path / "m.parquet")
    [batch] = open_file((tmp_path / "m.parquet").as_uri())
    assert batch.table.num_rows == 1
    with pytest.raises(UnsupportedFile, match="cannot be read"):
        list(open_file("nowhere://host/m.csv"))


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"format": "xml"}, UnknownName, "xml"),
        ({"ids": "random"}, UnknownName, "random"),
        ({"encoding": "utf-99"}, InvalidInput, "must be the name of a text encoding"),
        ({"encoding": "base64"}, InvalidInput, "must be the name of a text encoding"),
        ({"delimiter": "::"}, InvalidInput, "one ASCII character"),
        ({"delimiter": '"'}, InvalidInput, "one ASCII character"),
    ],
)
def test_options_are_checked(options: Any, error: type[NearcastError], reason: str) -> None:
    with pytest.raises(error, match=reason):
        Reading(**options)


def test_the_format_may_be_given(tmp_path: Path) -> None:
    assert texts(write(tmp_path, "m.txt", CSV), format="csv") == ["Café à la crème", "Straße €"]
    assert texts(write(tmp_path, "m", LINES), format="json") == ["Café à la crème", "Straße €"]
    with pytest.raises(UnsupportedFile, match="decompress this one"):
        list(open_table(write(tmp_path, "m.parquet.gz", b"")))


def test_a_quoted_line_break_is_one_row(tmp_path: Path) -> None:
    content = 'id;text;lon;lat\r\n1;"two\r\nlines; and more";1;2\r\n2;tea;1;2\r\n'
    path = write(tmp_path, "m.csv", content)
    [batch] = open_table(path)
    assert batch.table.column("text").to_pylist() == ["two\r\nlines; and more", "tea"]
    assert batch.rows.tolist() == [2, 4]


def test_rows_are_numbered_by_lines_of_the_transcoded_file(tmp_path: Path) -> None:
    rows = "".join(f"{n},tea,{n},{'x' if n == 7 else 1}\n" for n in range(10))
    path = write(tmp_path, "m.csv.gz", gzip.compress(("id,text,lon,lat\n" + rows).encode("utf-16")))
    [(file, row, field, _)] = rejected(path)
    assert (file, row, field) == ("m.csv.gz", 9, "lat")
    assert np.unique([b.file for b in open_table(path)]).tolist() == ["m.csv.gz"]
