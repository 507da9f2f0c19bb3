"""Tables of subscriptions: each row is taken or refused as the model takes or refuses it."""

from __future__ import annotations

import decimal
import math
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.columns import NEVER, Subscriptions
from nearcast.errors import DuplicateId, InvalidInput, UnsupportedFile
from nearcast.intake import Batch, Rejects, read_subscriptions, subscriptions_from
from nearcast.model import Circle, Rect, Subscription, region, time_from_us, time_us
from nearcast.model.checks import stored_before
from nearcast.text import IdTable, Vocabulary, words

BOX = ("west", "south", "east", "north")
CIRCLE = ("lon", "lat", "radius_m")
FORMS = {"box": BOX, "circle": CIRCLE, "geometry": ()}

sound_degrees = st.sampled_from([-90.0, 90.0, 0.0, 10.5, -10.5])
longitudes = sound_degrees | st.sampled_from([-180.0, 180.0]) | st.floats(-180, 180)
any_degrees = st.none() | longitudes | st.sampled_from([95.0, 200.0, math.nan, 1e300])
keyword = st.sampled_from(
    ["tea", "Coffee", "new york", "Straße", "a-b", "tea", "Flood*", "old flood*, town", "a & b"]
)
any_keyword = keyword | st.sampled_from(
    ["", "!", "C++", "tea -milk", "fl*od", "wi-fi*", '"new york"', "☕tea", "*"]
)
expression = st.sampled_from(
    ["tea", "tea OR coffee", "tea NOT (milk OR sugar)", '"new york" cake', "wi-fi NOT flood*"]
)
any_expression = expression | st.sampled_from(["NOT tea", "", "tea OR", "C++", "tea^2", "a*b"])
geometry = st.sampled_from(
    [
        "POINT (1 2)",
        "POLYGON ((0 0, 4 0, 0 4, 0 0))",
        "POLYGON ((170 0, 190 0, 190 5, 170 0))",
        "POLYGON ((0 0, 1 0, 1 1, 0 1, 0 0))",
        '{"type": "Point", "coordinates": [3, 4]}',
    ]
)
any_geometry = geometry | st.sampled_from(
    [None, "LINESTRING (0 0, 1 1)", "POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))", "nonsense"]
)


@st.composite
def places(draw: st.DrawFn, sound: bool) -> dict[str, Any]:
    form = draw(st.sampled_from(["box", "circle", "geometry", *["all"] * (not sound)]))
    row: dict[str, Any] = dict.fromkeys([*BOX, *CIRCLE, "geometry"])
    chosen = [name for key, names in FORMS.items() if form in {key, "all"} for name in names]
    for name in chosen:
        fitting = longitudes if name in {"west", "east", "lon"} else sound_degrees
        row[name] = draw(fitting if sound else any_degrees)
    if row["radius_m"] is not None:
        any_radius = [None, -1.0, math.inf] * (not sound)
        row["radius_m"] = draw(st.sampled_from([0.0, 5.0, 1e6, 1e8, *any_radius]))
    if form in {"geometry", "all"}:
        row["geometry"] = draw(geometry if sound else any_geometry)
    return row


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    """Return a row that is sound in most respects, and often in all."""
    sound = draw(st.booleans())
    asked = draw(st.sampled_from(["keywords", "expression", "nothing", *["both"] * (not sound)]))
    row: dict[str, Any] = {"keywords": None, "expression": None}
    if asked in {"keywords", "both"}:
        some = keyword if sound else any_keyword
        row["keywords"] = draw(st.lists(some, min_size=int(sound), max_size=3))
    if asked in {"expression", "both"}:
        row["expression"] = draw(expression if sound else any_expression)
    return {
        "id": draw(st.sampled_from([*"abcdefghij"] if sound else [*"abc", "", "d\0", None])),
        **row,
        **draw(places(sound)),
        "owner": draw(st.sampled_from([None, "me", *[""] * (not sound)])),
        "expires_at": draw(st.sampled_from([None, 12.5, *[1e20] * (not sound)])),
    }


TYPES = {
    "id": pa.string(),
    "keywords": pa.list_(pa.string()),
    "expression": pa.string(),
    **dict.fromkeys([*BOX, *CIRCLE], pa.float64()),
    "geometry": pa.string(),
    "owner": pa.string(),
    "expires_at": pa.float64(),
}


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table(
        {name: pa.array([row.get(name) for row in rows], kind) for name, kind in TYPES.items()}
    )


def from_model(row: dict[str, Any]) -> Subscription | None:
    """Return what the model makes of a row, or None."""
    forms = []
    for names in (BOX, CIRCLE, ("geometry",)):
        if all(row[name] is not None for name in names):
            forms.append([row[name] for name in names])
    try:
        if len(forms) != 1:
            return None
        if row["geometry"] is not None and row["radius_m"] is not None:
            return None  # a radius, but no circle
        values = forms[0]
        place = {4: Rect, 3: Circle}.get(len(values), region)(*values)
        subscription = Subscription(
            row["id"], place, row["keywords"], row["expression"], row["owner"], row["expires_at"]
        )
        subscription.clauses(words)
    except InvalidInput:
        return None
    return subscription


def described(subscriptions: Subscriptions, vocabulary: Vocabulary) -> list[Any]:
    """Return subscriptions in a form that does not depend on the numbers of tokens and shapes."""
    clauses, shapes = subscriptions.clauses, subscriptions.clauses.shapes
    rows: list[list[Any]] = [[] for _ in range(len(subscriptions))]
    for c in range(len(clauses)):
        token = clauses.token[clauses.token_start[c] : clauses.token_start[c + 1]].tolist()
        negative = clauses.negative[clauses.negative_start[c] : clauses.negative_start[c + 1]]
        assert token == sorted(set(token))
        outline: Any = None
        if clauses.shape[c] >= 0:
            shape = shapes.take(clauses.shape[c : c + 1])
            outline = shape.radius_m.tolist(), shape.point_start.tolist(), shape.point.tolist()
        asked = frozenset(map(vocabulary.token, token))
        without = frozenset(map(vocabulary.token, negative.tolist()))
        rows[clauses.row[c]].append((asked, without, tuple(clauses.box[c].tolist()), outline))
    owner = [None] * len(rows) if subscriptions.owner is None else subscriptions.owner.to_pylist()
    clauses_of = [sorted(row, key=repr) for row in rows]
    ids, expires = subscriptions.ids.tolist(), subscriptions.expires_us.tolist()
    return list(zip(ids, clauses_of, owner, expires, strict=True))


@given(st.lists(records(), max_size=8))
@settings(max_examples=examples(300), deadline=None)
def test_rows_are_taken_as_the_model_takes_them(rows: list[dict[str, Any]]) -> None:
    expected: list[Subscription] = []
    refused = []
    for number, row in enumerate(rows):
        made = from_model(row)
        if made is None or made.id in {other.id for other in expected}:
            refused.append(number)
        else:
            expected.append(made)
    vocabulary, other = Vocabulary(), Vocabulary()
    found, rejects = read_subscriptions(table_of(rows), vocabulary)
    assert rejects.row.tolist() == refused
    assert described(found, vocabulary) == described(subscriptions_from(expected, other), other)
    assert all(rejects.reason)
    assert all(rejects.field)


BERLIN = {"west": 13.0, "south": 52.3, "east": 13.8, "north": 52.7}


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"id": None}, "id", "is missing"),
        ({"id": ""}, "id", "must not be empty"),
        ({"keywords": []}, "keywords", "must not be empty"),
        ({"keywords": ["tea", "!?"]}, "keywords", "letter or digit (got '!?')"),
        ({"keywords": ["tea", None]}, "keywords", "must not contain null"),
        ({"keywords": ["tea"], "expression": "tea"}, "expression", "not both"),
        ({"expression": "tea OR"}, "expression", "at character 5"),
        ({"north": 99.0}, "north", "between -90 and 90"),
        ({"south": 60.0}, "south", "must not be greater than north"),
        ({"west": math.nan}, "west", "between -180 and 180"),
        ({"west": None}, "west", "is missing; give"),
        (dict.fromkeys(BOX), "place", "is missing; give"),
        ({"lon": 1.0, "lat": 1.0, "radius_m": 5.0}, "place", "given twice"),
        ({"geometry": "POINT (1 1)"}, "place", "given twice"),
        ({**dict.fromkeys(BOX), "geometry": "LINESTRING (0 0, 1 1)"}, "geometry", "LINESTRING"),
        ({**dict.fromkeys(BOX), "lon": 1.0, "lat": 1.0, "radius_m": -5.0}, "radius_m", "0 or more"),
        (
            {**dict.fromkeys(BOX), "geometry": "POINT (1 1)", "radius_m": 5.0},
            "radius_m",
            "cannot be used with geometry",
        ),
        ({"owner": ""}, "owner", "must not be empty"),
        ({"expires_at": math.inf}, "expires_at", "must be"),
    ],
)
def test_the_reason_names_the_field(change: dict[str, Any], field: str, reason: str) -> None:
    row = {"id": "a", **BERLIN, **change}
    found, rejects = read_subscriptions(table_of([row, {"id": "b", **BERLIN}]), Vocabulary())
    assert found.ids.tolist() == ["b"]
    assert rejects.field == (field,)
    assert reason in rejects.reason[0]


def test_refused_rows_keep_their_record_and_number() -> None:
    table = table_of([{"id": "a", **BERLIN, "keywords": []}])
    batch = Batch(table, np.array([41]), Rejects.empty(), 0, 0, file="a.csv")
    _, rejects = read_subscriptions(table, Vocabulary(), source=batch)
    written = rejects.to_table()
    assert written.column_names == ["row", "file", "field", "reason", "record"]
    assert written.column("row").to_pylist() == [41]
    assert written.column("file").to_pylist() == ["a.csv"]
    record = '{"id": "a", "keywords": [], "west": 13.0, "south": 52.3, "east": 13.8, "north": 52.7}'
    assert written.column("record").to_pylist() == [record]


def test_refused_rows_add_no_tokens() -> None:
    vocabulary = Vocabulary()
    bad = {"id": "", **BERLIN, "keywords": ["spam"]}
    worse = {"id": "x", **BERLIN, "north": 91.0, "expression": "spam OR eggs"}
    read_subscriptions(
        table_of([bad, worse, {"id": "a", **BERLIN, "keywords": ["tea"]}]), vocabulary
    )
    assert vocabulary.tokens().to_pylist() == ["tea"]


@pytest.mark.parametrize(
    "convert",
    [
        lambda values: pa.array([str(v) for v in values]),
        lambda values: pa.array([f" {v} " for v in values], pa.large_string()),
        lambda values: pa.array([str(v) for v in values], pa.string_view()),
        lambda values: pa.array([decimal.Decimal(str(v)) for v in values]),
        lambda values: pa.array([str(v) for v in values]).dictionary_encode(),
        lambda values: pa.chunked_array([values[:1], values[1:]]),
    ],
)
def test_numbers_may_come_in_other_types(convert: Any) -> None:
    boxes = {"west": [1.5, -3.0], "south": [2.0, -4.0], "east": [3.25, 5.0], "north": [4.0, 6.0]}
    table = pa.table({"id": [1, 2], **{name: convert(values) for name, values in boxes.items()}})
    found, rejects = read_subscriptions(table, Vocabulary())
    assert not len(rejects)
    assert found.clauses.box.tolist() == [
        [15000000, 20000000, 32500000, 40000000],
        [-30000000, -40000000, 50000000, 60000000],
    ]


@pytest.mark.parametrize(
    "value", ["", "abc", "1,5", "0x10", "nan", "1 2", True, [1.0], b"1", "\uff11"]
)
def test_what_is_no_number_is_refused(value: Any) -> None:
    table = pa.table({"id": ["a"], "lon": [value], "lat": [0], "radius_m": [1]})
    _, rejects = read_subscriptions(table, Vocabulary())
    assert rejects.field == ("lon",)
    assert "must be a number" in rejects.reason[0]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([datetime(2024, 5, 1, 12, tzinfo=UTC)], None),
        ([datetime(2024, 5, 1, 12)], pa.timestamp("s")),
        ([datetime(2024, 5, 1, 12)], pa.timestamp("ns")),
        (["2024-05-01T12:00:00Z"], None),
        (["2024-05-01 12:00:00"], None),
        (["2024-05-01T14:00:00.000+02:00"], None),
        ([1714564800], pa.int32()),
        ([1714564800.0], None),
        (["1714564800"], None),
        ([decimal.Decimal("1714564800")], None),
    ],
)
def test_times_may_come_in_other_types(values: list[Any], kind: Any) -> None:
    table = pa.table({"id": ["a"], **{k: [v] for k, v in BERLIN.items()}})
    table = table.append_column("expires_at", pa.array(values, kind))
    found, rejects = read_subscriptions(table, Vocabulary())
    assert not len(rejects)
    assert found.expires_us.tolist() == [1714564800_000000]


def test_mixed_times_are_read_one_by_one() -> None:
    times = [
        "2024-05-01T12:00:00Z",
        "2024-05-01T12:00:00",
        "1714564800",
        "soon",
        None,
        "2024-05-01",
    ]
    table = table_of([{"id": str(n), **BERLIN} for n in range(6)]).drop_columns("expires_at")
    found, rejects = read_subscriptions(table.append_column("expires_at", [times]), Vocabulary())
    noon = 1714564800_000000
    assert found.expires_us.tolist() == [noon, noon, noon, NEVER, noon - 43_200_000_000]
    assert rejects.row.tolist() == [3]
    assert "ISO 8601" in rejects.reason[0]


@pytest.mark.parametrize(
    "ids",
    [pa.array([7, 2**63], pa.uint64()), pa.array([7, None], pa.int16())],
)
def test_integer_ids_come_back(ids: pa.Array) -> None:
    table = pa.table({"id": ids, **{k: [v, v] for k, v in BERLIN.items()}})
    found, rejects = read_subscriptions(table, Vocabulary())
    assert found.ids.tolist() == [7]
    assert rejects.row.tolist() == [1]


@pytest.mark.parametrize("ids", [[1.0, 2.0], [True, False], [[1], [2]]])
def test_other_ids_are_refused(ids: list[Any]) -> None:
    table = pa.table({"id": ids, **{k: [v, v] for k, v in BERLIN.items()}})
    found, rejects = read_subscriptions(table, Vocabulary())
    assert len(found) == 0
    assert "must be a string or an integer" in rejects.reason[0]


@pytest.mark.parametrize(
    "keywords",
    [
        pa.array([["Tea", "new york"], ["cake"]], pa.large_list(pa.large_string())),
        pa.array([["Tea", "new york"], ["cake", "cake"]], pa.list_(pa.string(), 2)),
        pa.array([["Tea", "new york"], ["cake"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        pa.array([["Tea", "new york"], ["cake"]], pa.list_view(pa.string())),
        pa.array([["Tea", "new york"], ["cake"]], pa.large_list_view(pa.string_view())),
        pa.array([["x"], ["Tea", "new york"], ["cake"]], pa.list_view(pa.string())).slice(1),
        pa.array([["Tea", "new york"], ["cake"]], pa.list_(pa.string_view())),
        pa.ListViewArray.from_arrays([1, 0], [2, 1], ["cake", "Tea", "new york"]),
        pa.chunked_array(
            [
                pa.array([["Tea", "new york"]], pa.list_view(pa.string())),
                pa.array([["cake"]], pa.list_view(pa.string())),
            ]
        ),
        pa.array(["Tea  new york", " cake "]),
        pa.array(['["Tea", "new york"]', "cake"]),
    ],
)
def test_keywords_may_come_in_other_types(keywords: pa.Array) -> None:
    table = pa.table({"id": [1, 2], "keywords": keywords, **{k: [v, v] for k, v in BERLIN.items()}})
    vocabulary = Vocabulary()
    found, rejects = read_subscriptions(table, vocabulary)
    assert not len(rejects)
    assert found.clauses.token_start.tolist() == [0, 3, 4]
    assert vocabulary.tokens().to_pylist() == ["tea", "new", "york", "cake"]


@pytest.mark.parametrize(
    "cell", ["", "  ", "[]", "[1]", "[tea", '["tea"', '["a"] b', '["\\ud800"]']
)
def test_text_that_is_no_list_is_refused(cell: str) -> None:
    cells = pa.array([cell, '["tea"]'])
    table = pa.table({"id": [1, 2], "keywords": cells, **{k: [v, v] for k, v in BERLIN.items()}})
    found, rejects = read_subscriptions(table, Vocabulary())
    assert found.ids.tolist() == [2]
    assert rejects.field == ("keywords",)


def test_bad_utf8_is_refused_wherever_it_stands() -> None:
    def spoiled(good: str) -> pa.Array:
        raw = pa.array([b"\xff\xfe", good.encode()], pa.binary())
        return pa.StringArray.from_buffers(2, raw.buffers()[1], raw.buffers()[2])

    for name, good in {"id": "a", "expression": "tea", "owner": "me", "west": "1"}.items():
        table = table_of([{"id": "x", **BERLIN}, {"id": "y", **BERLIN}])
        column = table.column_names.index(name)
        table = table.set_column(column, name, spoiled(good))
        found, rejects = read_subscriptions(table, Vocabulary())
        assert len(found) == 1
        assert (rejects.row.tolist(), rejects.field) == ([0], (name,))
        assert "//4=" in rejects.record[0]
    lists = pa.ListArray.from_arrays([0, 1, 2], spoiled("tea"))
    table = table_of([{"id": "x", **BERLIN}, {"id": "y", **BERLIN}]).drop_columns("keywords")
    found, rejects = read_subscriptions(table.append_column("keywords", lists), Vocabulary())
    assert (len(found), rejects.field) == (1, ("keywords",))


def test_list_views_with_nulls_and_other_values() -> None:
    boxes = {k: [v] * 4 for k, v in BERLIN.items()}
    lists = pa.array([["tea"], None, [], ["cake", None]], pa.list_view(pa.string()))
    table = pa.table({"id": [1, 2, 3, 4], "keywords": lists, **boxes})
    found, rejects = read_subscriptions(table, Vocabulary())
    assert found.ids.tolist() == [1, 2]
    assert rejects.row.tolist() == [2, 3]
    for kind in (pa.int64(), pa.list_view(pa.int64())):
        values = pa.array([None, None, None, []], pa.list_view(kind))
        table = pa.table({"id": [1, 2, 3, 4], "keywords": values, **boxes})
        found, rejects = read_subscriptions(table, Vocabulary())
        assert (found.ids.tolist(), rejects.row.tolist()) == ([1, 2, 3], [3])


@pytest.mark.parametrize("name", ["id", "expression", "owner", "west", "note"])
def test_one_bad_row_of_a_string_view_is_one_reject(name: str) -> None:
    raw = pa.array([b"\xff\xfe", b"1", b"2"], pa.binary_view()).view(pa.string_view())
    rows = [{"id": str(n), **BERLIN, "east": 99.0 if n == 0 else 13.8} for n in range(3)]
    rows[0]["south"] = 60.0
    table = table_of(rows)
    if name in table.column_names:
        table = table.drop_columns(name)
    found, rejects = read_subscriptions(table.append_column(name, raw), Vocabulary())
    assert len(found) == 2
    assert rejects.row.tolist() == [0]
    assert "//4=" in rejects.record[0]


def test_times_beyond_the_year_9999_are_refused() -> None:
    times = ["9999-12-31T23:59:59.999999", "9999-12-31T23:59:59-05:00", "2024-05-01T00:00:00"]
    boxes = {k: [v] * 3 for k, v in BERLIN.items()}
    for column in (times, [t.replace("-05:00", "").replace("9999-12", "9999-10") for t in times]):
        table = pa.table({"id": [0, 1, 2], "expires_at": column, **boxes})
        found, rejects = read_subscriptions(table, Vocabulary())
        assert rejects.row.tolist() == ([1] if column is times else [])
        for us in found.expires_us.tolist():
            assert time_us("t", time_from_us(us)) == us
    table = pa.table(
        {"id": [0, 1, 2], "expires_at": [253_402_300_800, -253_402_300_800, 5], **boxes}
    )
    assert read_subscriptions(table, Vocabulary())[1].row.tolist() == [0, 1]


def test_geometry_may_be_binary() -> None:
    shapes = [Circle(1, 2, 1000).to_wkb(), b"garbage", Rect(0, 0, 1, 1).to_wkb()]
    table = pa.table({"id": [1, 2, 3], "geometry": pa.array(shapes, pa.binary())})
    found, rejects = read_subscriptions(table, Vocabulary())
    assert found.ids.tolist() == [1, 3]
    assert found.clauses.shape.tolist() == [0, -1]
    assert rejects.row.tolist() == [1]


def test_circles_and_polygons_keep_their_own_shapes() -> None:
    circle = {"lon": 1.0, "lat": 2.0, "radius_m": 5.0}
    triangle = {"geometry": "POLYGON ((0 0, 4 0, 0 4, 0 0))"}
    rows: list[dict[str, Any]] = [
        {"id": "a", **triangle},
        {"id": "b", **circle},
        {"id": "c", **BERLIN},
    ]
    found, _ = read_subscriptions(table_of(rows), Vocabulary())
    clauses = found.clauses
    assert [clauses.shapes.radius_m[shape] for shape in clauses.shape[:2]] == [-1.0, 5.0]
    assert clauses.shape[2] == -1


def test_shapes_of_refused_rows_are_gone() -> None:
    circles = {"lon": [1.0, 2.0, 3.0], "lat": [0.0] * 3, "radius_m": [5.0] * 3}
    table = pa.table({"id": ["a", "a", "b"], **circles})
    found, _ = read_subscriptions(table, Vocabulary())
    assert found.clauses.shapes.point.tolist() == [[10000000, 0], [30000000, 0]]
    assert found.clauses.shape.tolist() == [0, 1]


def test_missing_columns_are_named() -> None:
    with pytest.raises(UnsupportedFile, match=r"it has the columns id, west; expected .*geometry"):
        read_subscriptions(pa.table({"id": [1], "west": [1]}), Vocabulary())
    with pytest.raises(UnsupportedFile, match="expected id"):
        read_subscriptions(pa.table({"geometry": ["POINT (1 1)"]}), Vocabulary())
    twice = pa.table([["a"], ["b"], ["POINT (1 1)"]], ["id", "id", "geometry"])
    with pytest.raises(UnsupportedFile, match="column id occurs twice"):
        read_subscriptions(twice, Vocabulary())


def test_an_empty_table_is_no_subscriptions() -> None:
    found, rejects = read_subscriptions(table_of([]), Vocabulary())
    assert (len(found), len(rejects)) == (0, 0)


def test_ids_of_other_tables_are_refused() -> None:
    seen = IdTable()
    first = table_of([{"id": "a", **BERLIN}, {"id": "b", **BERLIN, "north": 99.0}])
    read_subscriptions(first, Vocabulary(), seen=seen)
    second = table_of([{"id": name, **BERLIN} for name in "abcc"])
    found, rejects = read_subscriptions(second, Vocabulary(), seen=seen)
    assert found.ids.tolist() == ["b", "c"]
    assert rejects.row.tolist() == [0, 3]


def test_objects_raise() -> None:
    everywhere = Rect(-180, -90, 180, 90)
    twice = [Subscription("a", everywhere), Subscription("a", everywhere)]
    with pytest.raises(DuplicateId, match="'a'"):
        subscriptions_from(twice, Vocabulary())
    with pytest.raises(InvalidInput, match="keywords"):
        subscriptions_from([Subscription("a", everywhere, "☕")], Vocabulary())
    assert len(subscriptions_from([], Vocabulary())) == 0


def test_another_tokenizer_serves_keywords_and_expressions() -> None:
    rows = [
        {"id": "a", **BERLIN, "keywords": ["a+b"]},
        {"id": "b", **BERLIN, "expression": "c+d OR e"},
    ]
    vocabulary = Vocabulary()
    found, _ = read_subscriptions(table_of(rows), vocabulary, lambda text: text.split("+"))
    assert vocabulary.tokens().to_pylist() == ["a", "b", "\x1fc\x1fd", "c", "d", "e"]
    assert found.clauses.row.tolist() == [0, 1, 1]


SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("keywords", pa.list_(pa.string())),
        *((name, pa.float64()) for name in (*BOX, "alpha", "theta")),
    ]
)


def test_keywords_with_symbols() -> None:
    keywords = ["flood*", "C++", "C#", "old town", "wi-fi", "-milk", "rock & roll", '"old town"']
    rows = [{"id": str(i), **BERLIN, "keywords": [k]} for i, k in enumerate(keywords)]
    rows.append({"id": "r", **BERLIN, "keywords": ["tea", "flood*"], "alpha": 0.5, "theta": 0.5})
    vocabulary = Vocabulary()
    found, rejects = read_subscriptions(pa.Table.from_pylist(rows, SCHEMA), vocabulary)
    tokens = vocabulary.tokens().take(found.clauses.token).to_pylist()
    start = found.clauses.token_start.tolist()
    assert [sorted(tokens[a:b]) for a, b in pairwise(start)] == [
        ["\x1eflood"],
        ["old", "town"],
        ["fi", "wi"],
        ["rock", "roll"],
    ]
    assert rejects.row.tolist() == [1, 2, 5, 7, 8]
    reasons = ["'++' would be ignored", "'#' would be ignored", "write NOT milk"]
    reasons += ["put the phrase into the expression", "score whole words"]
    for reason, part in zip(rejects.reason, reasons, strict=True):
        assert part in reason
    # A tokenizer that keeps such words is asked first.
    kept = pa.Table.from_pylist(rows[1:3], SCHEMA)
    found, rejects = read_subscriptions(kept, Vocabulary(), str.split)
    assert (len(found), len(rejects)) == (2, 0)


def test_boolean_rows_have_no_points() -> None:
    table = pa.table(
        {
            "id": [1, 2, 3],
            "geometry": ["POINT (1 2)", "POINT (1 2)", "POLYGON ((0 0, 1 0, 0 1, 0 0))"],
            "alpha": [None, 0.5, None],
            "theta": [None, 0.5, None],
        }
    )
    found, rejects = read_subscriptions(table, Vocabulary())
    assert (found.ids.tolist(), rejects.field) == ([2, 3], ("geometry",))
    assert "give a circle around it" in rejects.reason[0]
    with stored_before():  # an older version took it
        assert len(read_subscriptions(table, Vocabulary())[0]) == 3
