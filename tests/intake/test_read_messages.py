"""Tables of messages: each row is taken or refused as the model takes or refuses it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.errors import InvalidInput, UnsupportedFile
from nearcast.intake import MessageBatch, messages, messages_from, read_messages
from nearcast.intake.rejects import table_records
from nearcast.model import Message, Point, Rect
from nearcast.text import Vocabulary

BOX = ("west", "south", "east", "north")
NOW_US = 77
WORDS = ["tea", "coffee", "new", "york", "strasse"]

sound_degrees = st.sampled_from([-90.0, 90.0, 0.0, 10.5, -10.5])
longitudes = sound_degrees | st.sampled_from([-180.0, 180.0])
any_degrees = st.none() | longitudes | st.sampled_from([95.0, math.nan])
texts = st.sampled_from([None, "", "Tea, tea & coffee!", "STRASSE in New York", "unheard of"])
tokens = st.none() | st.lists(st.sampled_from(["tea", "New York", "", "nothing"]), max_size=3)


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    """Return a row that is sound in most respects, and often in all."""
    sound = draw(st.booleans())
    row: dict[str, Any] = dict.fromkeys([*BOX, "lon", "lat", "text", "tokens"])
    form = draw(st.sampled_from(["point", "box"] if sound else ["point", "box", "both"]))
    for names in (("lon", "lat"), BOX):
        if form == "both" or (form == "point") == (names != BOX):
            for name in names:
                fitting = longitudes if name in {"lon", "west", "east"} else sound_degrees
                row[name] = draw(fitting if sound else any_degrees)
    says = draw(st.sampled_from(["text", "tokens"] if sound else ["text", "tokens", "both"]))
    if says != "tokens":
        row["text"] = draw(texts)
    if says != "text":
        row["tokens"] = draw(tokens)
    row["id"] = draw(st.integers(0, 20) if sound else st.none() | st.integers(0, 5))
    row["time"] = draw(st.sampled_from([None, 12.5, -1.0] + [1e20] * (not sound)))
    row["ttl_s"] = draw(st.sampled_from([None, 0.0, 30.5] + [-1.0, math.inf] * (not sound)))
    return row


TYPES = {
    "id": pa.int64(),
    "text": pa.string(),
    "tokens": pa.list_(pa.string()),
    **dict.fromkeys(["lon", "lat", *BOX, "time", "ttl_s"], pa.float64()),
}


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table(
        {name: pa.array([row.get(name) for row in rows], kind) for name, kind in TYPES.items()}
    )


def from_model(row: dict[str, Any]) -> Message | None:
    point = [row["lon"], row["lat"]]
    box = [row[name] for name in BOX]
    try:
        if (None in point) == (None in box):
            return None
        place = Rect(*box) if None in point else Point(*point)
        ttl_s = 0.0 if row["ttl_s"] is None else row["ttl_s"]
        return Message(row["id"], place, row["text"], row["tokens"], row["time"], ttl_s)
    except InvalidInput:
        return None


def described(batch: MessageBatch, vocabulary: Vocabulary) -> list[Any]:
    messages = batch.number(vocabulary)
    tokens = np.split(messages.token, messages.token_start[1:-1]) if len(messages) else []
    return [
        batch.ids.tolist(),
        [piece.tolist() for piece in tokens],
        messages.box.tolist(),
        messages.time_us.tolist(),
        messages.ttl_us.tolist(),
    ]


@given(st.lists(records(), max_size=8))
@settings(max_examples=examples(300), deadline=None)
def test_rows_are_taken_as_the_model_takes_them(rows: list[dict[str, Any]]) -> None:
    expected: list[Message] = []
    refused = []
    for number, row in enumerate(rows):
        made = from_model(row)
        if made is None or made.id in {other.id for other in expected}:
            refused.append(number)
        else:
            expected.append(made)
    vocabulary = Vocabulary(WORDS)
    objects = messages_from(expected, now_us=NOW_US)
    for few_rows in (messages._FEW_ROWS, 0):  # small tables have a way of their own
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(messages, "_FEW_ROWS", few_rows)
            found, rejects = read_messages(table_of(rows), now_us=NOW_US)
        assert rejects.row.tolist() == refused
        assert described(found, vocabulary) == described(objects, vocabulary)
    assert len(vocabulary) == len(WORDS)


def words_of(message: Message, vocabulary: Vocabulary) -> list[int]:
    """Return the tokens of a message by way of the model, which knows nothing of columns."""
    from nearcast.text import words

    return sorted(n for n in map(vocabulary.id_of, message.words(words)) if n >= 0)


@given(st.lists(records(), max_size=8))
@settings(max_examples=examples(100), deadline=None)
def test_objects_have_the_tokens_that_the_model_finds(rows: list[dict[str, Any]]) -> None:
    messages = [message for message in map(from_model, rows) if message is not None]
    vocabulary = Vocabulary(WORDS)
    numbered = messages_from(messages, now_us=NOW_US).number(vocabulary)
    start = numbered.token_start
    for number, message in enumerate(messages):
        found = numbered.token[start[number] : start[number + 1]].tolist()
        assert found == words_of(message, vocabulary)


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"text": None}, "text", "is missing; give text or tokens"),
        ({"tokens": ["tea"]}, "tokens", "not both"),
        ({"text": None, "tokens": ["tea", None]}, "tokens", "must not contain null"),
        ({"lat": 91.0}, "lat", "between -90 and 90"),
        ({"lat": None}, "lat", "is missing; give lon, lat"),
        (dict.fromkeys(BOX, 1.0), "place", "given twice"),
        ({"ttl_s": -1.0}, "ttl_s", "0 or more"),
        ({"time": math.nan}, "time", "must be"),
    ],
)
def test_the_reason_names_the_field(change: dict[str, Any], field: str, reason: str) -> None:
    row = {"id": 1, "text": "tea", "lon": 0.0, "lat": 0.0}
    table = table_of([{**row, **change}, {**row, "id": 2}])
    found, rejects = read_messages(table, now_us=0)
    assert found.ids.tolist() == [2]
    assert rejects.field == (field,)
    assert reason in rejects.reason[0]


@pytest.mark.parametrize(
    ("west", "east", "expected"),
    [
        (180, 180, (180, -180)),
        (-180, -180, (180, -180)),
        (170, 180, (170, -180)),
        (-180, 5, (180, 5)),
        (-180, 180, (-180, 180)),
        (170, -180, (170, -180)),
        (1, 2, (1, 2)),
    ],
)
def test_180_and_minus_180_are_one_meridian(west: int, east: int, expected: Any) -> None:
    row = {"id": 1, "text": "tea", "west": west, "south": 0, "east": east, "north": 1}
    found, _ = read_messages(table_of([row]), now_us=0)
    box = found.box[0] // 10_000_000
    assert (box[0], box[2]) == expected


def test_text_and_tokens_may_be_mixed() -> None:
    rows = [
        {"id": 1, "text": "tea coffee", "lon": 0.0, "lat": 0.0},
        {"id": 2, "tokens": ["New York", "tea"], "lon": 0.0, "lat": 0.0},
        {"id": 3, "text": "york", "lon": 0.0, "lat": 0.0},
    ]
    found, _ = read_messages(table_of(rows), now_us=0)
    messages = found.number(Vocabulary(WORDS))
    assert messages.token_start.tolist() == [0, 2, 5, 6]
    assert messages.token.tolist() == [0, 1, 0, 2, 3, 3]


def test_missing_columns_are_named() -> None:
    for missing in ("id", "text", "lon"):
        columns = {"id": [1], "text": ["tea"], "lon": [0], "lat": [0]}
        del columns[missing]
        with pytest.raises(
            UnsupportedFile, match=r"it has the columns .*; expected id, text or tokens"
        ):
            read_messages(pa.table(columns), now_us=0)


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_timestamps_of_small_tables(
    unit: str, zone: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [0, -1, 1_700_000_000, None, 10**11, -(10**11), 2**62]
    times = pa.array(values, pa.int64()).cast(pa.timestamp(unit, zone))
    columns = {"id": range(len(values)), "text": ["tea"] * len(values), "time": times}
    place = {"lon": [0.0] * len(values), "lat": [0.0] * len(values)}
    table = pa.table({**columns, **place})
    for piece in [table, *(table.slice(row, 1) for row in range(len(values)))]:
        found, rejects = read_messages(piece, now_us=7)
        with monkeypatch.context() as patch:
            patch.setattr(messages, "_FEW_ROWS", 0)
            expected, refused = read_messages(piece, now_us=7)
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.time_us.tolist() == expected.time_us.tolist()
        assert rejects.row.tolist() == refused.row.tolist()


def test_no_rows_have_no_records() -> None:
    assert table_records(pa.table({"a": ["x"], "b": [1]}), []) == ()
