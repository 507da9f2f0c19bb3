"""``from_dict`` and ``to_dict``: one JSON form, the same that files have."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nearcast
from effort import examples
from nearcast import Circle, Match, Message, Point, Polygon, Rect, Subscription, Update
from nearcast.columns import NEVER
from nearcast.errors import InvalidInput, RegionError
from nearcast.intake import (
    MESSAGE_COLUMNS,
    SUBSCRIPTION_COLUMNS,
    load_messages,
    load_subscriptions,
    messages_from,
    subscriptions_from,
)
from nearcast.model.json_form import FIELDS
from nearcast.text import Vocabulary

ids = st.integers(-(2**63), 2**63 - 1) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=5
)
zones: Any = st.none() | st.just(UTC) | st.just(timezone(timedelta(hours=5, minutes=30)))
times = (
    st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 30), timezones=zones)
    | st.floats(-1e11, 2.5e11)
    | st.integers(-(10**11), 10**11)
)
lons, lats = st.floats(-180, 180), st.floats(-90, 90)
rects = st.builds(lambda w, s, e, n: Rect(w, min(s, n), e, max(s, n)), lons, lats, lons, lats)
points = st.builds(Point, lons, lats)
polygons = st.sampled_from(
    [
        Polygon([[(0, 0), (4, 0), (0, 4)]]),
        Polygon(
            [[(100, -40.1234567), (260, -41), (255, 43.7654321)], [(210, 0), (220, -9), (215, -1)]]
        ),
        Polygon([[[(0, 0), (1, 0), (0, 1)]], [[(5, 5), (6, 5), (5, 6)]]]),
    ]
)
circles = st.builds(Circle, lons, lats, st.floats(0, 1e7))
wanted: Any = st.sampled_from(
    [{}, {"keywords": ["tea", "new york"]}, {"expression": "tea OR (coffee NOT decaf)"}]
)


@st.composite
def subscriptions(draw: st.DrawFn) -> Subscription:
    return Subscription(
        draw(ids),
        draw(rects | polygons | circles),
        **draw(wanted),
        owner=draw(st.sampled_from([None, "ann"])),
        expires_at=draw(st.none() | times),
        scope=draw(st.sampled_from([None, "acme", "\x1d"])),
    )


@st.composite
def messages(draw: st.DrawFn) -> Message:
    content: Any = draw(
        st.sampled_from([{"text": "Hot tea"}, {"text": ""}, {"tokens": ["tea", "a b"]}])
    )
    time, ttl_s = draw(st.none() | times), draw(st.sampled_from([0.0, 1.5, 60]))
    place, scope = draw(rects | points), draw(st.sampled_from([None, "acme", "\x1d"]))
    return Message(draw(ids), place, **content, time=time, ttl_s=ttl_s, scope=scope)


def through_json(fields: dict[str, Any]) -> dict[str, Any]:
    again: dict[str, Any] = json.loads(json.dumps(fields, allow_nan=False))
    return again


@given(subscriptions())
def test_subscriptions_come_back(subscription: Subscription) -> None:
    fields = through_json(subscription.to_dict())
    assert Subscription.from_dict(fields) == subscription
    assert set(fields) <= set(SUBSCRIPTION_COLUMNS)


@given(messages())
def test_messages_come_back(message: Message) -> None:
    fields = through_json(message.to_dict())
    assert Message.from_dict(fields) == message
    assert set(fields) <= set(MESSAGE_COLUMNS)


@given(ids, ids, st.none() | st.floats(0, 1), times, st.sampled_from([1, -1]))
def test_matches_and_updates_come_back(
    message: Any, subscription: Any, score: float | None, time: Any, sign: int
) -> None:
    match = Match(message, subscription, score)
    assert Match.from_dict(through_json(match.to_dict())) == match
    assert list(match.to_dict()) == ["message_id", "subscription_id", "score"]
    update = Update(time, subscription, message, sign, score)
    assert Update.from_dict(through_json(update.to_dict())) == update
    assert list(update.to_dict()) == ["time", "subscription_id", "message_id", "sign", "score"]


@settings(max_examples=examples(50), deadline=None)
@given(subscriptions(), messages())
def test_files_read_what_to_dict_writes(
    tmp_path_factory: pytest.TempPathFactory, subscription: Subscription, message: Message
) -> None:
    folder = tmp_path_factory.getbasetemp()
    path = folder / "one.ndjson"
    path.write_text(json.dumps(subscription.to_dict()) + "\n")
    vocabulary = Vocabulary()
    found, rejects = load_subscriptions(path, vocabulary)
    assert not len(rejects)
    expected = subscriptions_from([subscription], vocabulary)
    assert found.ids.tolist() == [subscription.id]
    assert found.clauses.box.tolist() == expected.clauses.box.tolist()
    assert found.clauses.shapes.point.tolist() == expected.clauses.shapes.point.tolist()
    assert found.clauses.token.tolist() == expected.clauses.token.tolist()
    assert found.expires_us.tolist() == expected.expires_us.tolist()
    vocabulary.add(["tea", "\x1dacme"])
    path.write_text(json.dumps(message.to_dict()) + "\n")
    [(batch, rejects)] = load_messages(path, now_us=7)
    assert not len(rejects)
    same = messages_from([message], now_us=7)
    assert batch.ids.tolist() == [message.id]
    one, other = batch.number(vocabulary), same.number(vocabulary)
    for name in ("box", "token", "time_us", "ttl_us"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()


PLACE: dict[str, Any] = {"lon": 1, "lat": 2, "radius_m": 3}


@pytest.mark.parametrize(
    ("fields", "field", "problem"),
    [
        ([], "subscription", "must be a mapping"),
        ({**PLACE}, "id", "is missing"),
        ({"id": None, **PLACE}, "id", "is missing"),
        ({"id": 1.5, **PLACE}, "id", "string or an integer"),
        ({"id": 1}, "place", "is missing; give"),
        ({"id": 1, "lon": 1, "lat": 2}, "radius_m", "is missing; give"),
        ({"id": 1, **PLACE, "geometry": "POINT (1 1)"}, "place", "given twice"),
        ({"id": 1, **PLACE, "lat": 91}, "lat", "between -90 and 90"),
        ({"id": 1, **PLACE, "lat": "north"}, "lat", "must be a number"),
        ({"id": 1, **PLACE, "lat": True}, "lat", "must be a number"),
        ({"id": 1, **PLACE, "keywords": 5}, "keywords", "list of strings"),
        ({"id": 1, **PLACE, "keywords": []}, "keywords", "must not be empty"),
        ({"id": 1, **PLACE, "keywords": ["a"], "expression": "a"}, "expression", "not both"),
        ({"id": 1, **PLACE, "expires_at": "soon"}, "expires_at", "ISO 8601"),
        ({"id": 1, **PLACE, "expires_at": 1e12}, "expires_at", "milliseconds"),
        ({"id": 1, **PLACE, "owner": ["ann"]}, "owner", "must be text"),
        ({"id": 1, **PLACE, "alpha": 0.5}, "theta", "is missing"),
        ({"id": 1, "geometry": 5}, "geometry", "must be text"),
        ({"id": 1, "geometry": {"type": "LineString"}}, "geometry", "LineString"),
    ],
)
def test_invalid_subscriptions_name_the_field(fields: Any, field: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        Subscription.from_dict(fields)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"id": 1, "text": "tea"}, "place"),
        ({"id": 1, "text": "tea", "lon": 1}, "lat"),
        ({"id": 1, "lon": 1, "lat": 1}, "text"),
        ({"id": 1, "lon": 1, "lat": 1, "text": "a", "tokens": ["a"]}, "text"),
        ({"id": 1, "lon": 1, "lat": 1, "text": "a", "ttl_s": -1}, "ttl_s"),
        ({"id": 1, "lon": 1, "lat": 1, "tokens": ["a", None]}, "tokens"),
    ],
)
def test_invalid_messages_name_the_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Message.from_dict(fields)
    assert caught.value.field == field


def test_invalid_matches_and_updates_name_the_field() -> None:
    with pytest.raises(InvalidInput, match="subscription_id: is missing"):
        Match.from_dict({"message_id": 1})
    update = {"time": 1, "message_id": 1, "subscription_id": 2}
    with pytest.raises(InvalidInput, match="sign: is missing"):
        Update.from_dict(update)
    with pytest.raises(InvalidInput, match="sign: must be 1 or -1"):
        Update.from_dict({**update, "sign": 3})
    with pytest.raises(InvalidInput, match="time"):
        Update.from_dict({**update, "sign": 1, "time": "soon"})


def test_other_fields_and_nulls_are_ignored() -> None:
    subscription = Subscription.from_dict(
        {"id": 1, **PLACE, "keywords": None, "alpha": None, "note": {"x": [1]}, "text": 5}
    )
    assert subscription == Subscription(1, Circle(1, 2, 3))
    assert subscription.expires_us is None
    assert subscriptions_from([subscription], Vocabulary()).expires_us.tolist() == [NEVER]
    message = Message.from_dict(
        {"id": 1, "lon": 1, "lat": 2, "text": "", "owner": 5, "ttl_s": None}
    )
    assert message == Message(1, (1, 2), "")


def test_texts_are_converted_as_in_files() -> None:
    record = {"id": 7, "lon": "1.5", "lat": " 2 ", "radius_m": 3, "keywords": "flat white"}
    assert Subscription.from_dict(record) == Subscription(7, Circle(1.5, 2, 3), ["flat", "white"])
    assert (
        Subscription.from_dict({**record, "owner": 12, "expires_at": "5"}).expires_us == 5_000_000
    )


def test_numpy_values_are_written_as_json() -> None:
    number: Any = np.int64(7)
    time: Any = np.float32(1.5)
    subscription = Subscription(number, Rect(0, 0, 1, 1), expires_at=time)
    assert json.dumps(subscription.to_dict()) == (
        '{"id": 7, "west": 0.0, "south": 0.0, "east": 1.0, "north": 1.0, "expires_at": 1.5}'
    )


def test_fields_are_the_columns_of_files() -> None:
    assert FIELDS["subscription"] == SUBSCRIPTION_COLUMNS
    assert set(FIELDS["message"]) == set(MESSAGE_COLUMNS)


def test_regions_are_public() -> None:
    assert isinstance(nearcast.region("POINT (1 2)"), nearcast.Region)


def test_a_deeply_nested_geometry_is_refused() -> None:
    nested: Any = 1
    for _ in range(100_000):
        nested = [nested]
    geometry = {"type": "Polygon", "coordinates": nested}
    with pytest.raises(RegionError, match="a ring must be"):
        Subscription.from_dict({"id": 1, "geometry": geometry})


def test_names_that_are_nearly_ours_are_recognized_or_asked_about() -> None:
    place = {"lng": 13.4, "Lat": 52.5, "radius_m": 5}
    found = Subscription.from_dict({"id": 1, "keyword": ["tea"], **place, "color": "red"})
    assert found == Subscription(1, Circle(13.4, 52.5, 5), ["tea"])
    for name in ("kewords", "words", "KeyWrods"):
        with pytest.raises(InvalidInput, match=f"{name}: is not a field; is it meant as keywords"):
            Subscription.from_dict({"id": 1, name: ["tea"], **place})
    with pytest.raises(InvalidInput, match="body: is not a field; is it meant as text"):
        Message.from_dict({"id": 1, "body": "tea", "lon": 0, "lat": 0})
    # What is there already needs no other name.
    assert Message.from_dict({"id": 1, "text": "tea", "body": 5, "lon": 0, "lat": 0}).text == "tea"


def test_a_radius_needs_lon_and_lat() -> None:
    point = {"type": "Point", "coordinates": [1.0, 2.0]}
    with pytest.raises(RegionError, match="radius_m: cannot be used with geometry"):
        Subscription.from_dict({"id": 1, "geometry": point, "radius_m": 500})
    with pytest.raises(RegionError, match="for a circle around a place"):
        Subscription(1, (1.0, 2.0), "tea")
