"""Subscriptions, messages, matches and updates: what they keep and what they refuse."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nearcast.errors import ExpressionError, InvalidInput, RegionError
from nearcast.model import (
    Circle,
    Conjunction,
    Match,
    Message,
    Overlap,
    Point,
    Polygon,
    Rect,
    Subscription,
    Update,
    time_from_us,
    time_us,
)
from nearcast.model.checks import identifiers, stored_before

HERE = Rect(0, 0, 1, 1)


class TestIds:
    @pytest.mark.parametrize("value", ["a", "\u00fc", 0, -(2**63), 2**63 - 1, np.int32(5)])
    def test_come_back_as_given(self, value: Any) -> None:
        assert Subscription(value, HERE).id == value
        assert Message(value, (0, 0), "").id == value

    @pytest.mark.parametrize(
        "value", ["", "a\0b", "\ud800", True, None, 1.0, b"a", 2**63, -(2**63) - 1, ["a"]]
    )
    def test_refused(self, value: Any) -> None:
        with pytest.raises(InvalidInput):
            identifiers("id", [value])
        for make in (lambda: Subscription(value, HERE), lambda: Message(value, (0, 0), "")):
            with pytest.raises(InvalidInput) as caught:
                make()
            assert caught.value.field == "id"

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ("ann", ["ann"]),
            (7, [7]),
            (np.int64(7), [7]),
            (np.uint8(7), [7]),
            (["ann", np.int32(7)], ["ann", 7]),
            ({"ann"}, ["ann"]),
            ((n for n in range(2)), [0, 1]),
            (np.array([1, 2]), [1, 2]),
            (pa.array(["a", "b"]), ["a", "b"]),
            (pa.chunked_array([[1], [2]]), [1, 2]),
            ([], []),
        ],
    )
    def test_one_or_several(self, values: Any, expected: list[Any]) -> None:
        found = identifiers("id", values)
        assert found == expected
        assert all(type(one) in (str, int) for one in found)

    @pytest.mark.parametrize(
        "values",
        [1.5, None, True, np.True_, np.array(7), b"ann", object(), [[1]], [np.False_], [1.5],
         np.array([1.5]), pa.scalar(7), 2**63],
    )  # fmt: skip
    def test_what_is_no_id_is_refused(self, values: Any) -> None:
        with pytest.raises(InvalidInput) as caught:
            identifiers("id", values)
        assert caught.value.field == "id"


class TestTimes:
    @given(st.datetimes(timezones=st.just(UTC)) | st.floats(-2.5e11, 2.5e11))
    @example(datetime.max)
    @example(datetime.min)
    @example(datetime.max.replace(tzinfo=UTC))
    @example(253_402_300_799.99997)
    def test_come_back_from_microseconds(self, moment: Any) -> None:
        us = time_us("t", moment)
        assert time_us("t", time_from_us(us)) == us

    @pytest.mark.parametrize(
        "moment",
        [
            datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
            datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
        ],
    )
    def test_what_could_not_come_back_is_refused(self, moment: datetime) -> None:
        with pytest.raises(InvalidInput, match="expires_at: must be in the years 1 to 9999"):
            Subscription(1, HERE, expires_at=moment)

    def test_not_a_time_of_pandas_is_refused(self) -> None:
        nat = pytest.importorskip("pandas").NaT
        with pytest.raises(InvalidInput, match="NaT"):
            time_us("t", nat)

    @given(st.datetimes(timezones=st.just(UTC) | st.none()))
    def test_datetimes_are_exact(self, moment: datetime) -> None:
        aware = moment.replace(tzinfo=UTC)
        assert (
            datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us("t", moment)) == aware
        )

    @given(st.integers(-(10**11), 10**11))
    def test_seconds(self, seconds: int) -> None:
        assert time_us("t", seconds) == seconds * 1_000_000
        assert time_us("t", float(seconds)) == seconds * 1_000_000
        assert time_us("t", np.int64(seconds)) == seconds * 1_000_000

    def test_other_zones(self) -> None:
        moment = datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
        assert time_us("t", moment) == 0

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, 10**30, "now", True])
    def test_refused(self, value: Any) -> None:
        for make in (
            lambda: Subscription(1, HERE, expires_at=value),
            lambda: Message(1, (0, 0), "", time=value),
            lambda: Message(1, (0, 0), "", ttl_s=value),
        ):
            with pytest.raises(InvalidInput):
                make()

    def test_a_lifetime_is_not_negative(self) -> None:
        assert Message(1, (0, 0), "", ttl_s=1.5).ttl_us == 1_500_000
        with pytest.raises(InvalidInput, match="ttl_s"):
            Message(1, (0, 0), "", ttl_s=-0.5)


class TestSubscription:
    def test_keywords_become_one_clause(self) -> None:
        subscription = Subscription("s", HERE, ["new york", "tea"])
        assert subscription.clauses(str.split) == (Conjunction(("new", "tea", "york")),)
        assert Subscription("s", HERE, "tea time").clauses(str.split) == (
            Conjunction(("tea", "time")),
        )

    def test_expression(self) -> None:
        subscription = Subscription("s", HERE, expression="tea OR coffee NOT milk")
        assert subscription.clauses(str.split) == (
            Conjunction(("coffee",), ("milk",)),
            Conjunction(("tea",)),
        )

    def test_without_either_it_asks_for_everything(self) -> None:
        assert Subscription("s", HERE).clauses(str.split) == (Conjunction(()),)

    @pytest.mark.parametrize(
        "keywords",
        [[], "", [""], ["tea", " "], ["..."], "!", [7], 7, b"tea", {"tea": 1}, ["\ud800"]],
    )
    def test_refuses_keywords(self, keywords: Any) -> None:
        with pytest.raises(InvalidInput) as caught:
            Subscription("s", HERE, keywords)
        assert caught.value.field == "keywords"

    def test_what_the_tokenizer_leaves_nothing_of_is_refused_later(self) -> None:
        subscription = Subscription("s", HERE, ["\u2615"])
        with pytest.raises(InvalidInput, match="keyword"):
            subscription.clauses(lambda _: [])
        assert subscription.clauses(lambda text: [text]) == (Conjunction(("\u2615",)),)

    @pytest.mark.parametrize(
        "expression", ["", " ", "NOT tea", "tea AND", "(tea", "tea NOT Tea", "&"]
    )
    def test_refuses_an_expression_at_once(self, expression: str) -> None:
        with pytest.raises(ExpressionError):
            Subscription("s", HERE, expression=expression)

    def test_refuses_keywords_and_expression_together(self) -> None:
        with pytest.raises(InvalidInput, match="not both"):
            Subscription("s", HERE, ["tea"], "tea")

    def test_takes_what_region_takes(self) -> None:
        assert Subscription("s", [0, 0, 1, 1]).region == HERE
        half = Overlap(0.5, 0.5)
        assert Subscription("s", "POINT (1 2)", ranking=half).region == Point(1, 2)
        for point in (Point(1, 2), "POINT (1 2)", {"type": "Point", "coordinates": [1, 2]}):
            with pytest.raises(RegionError, match=r"give a circle around it: Circle\(lon, lat"):
                Subscription("s", point, "tea")
            with stored_before():  # an older version took it
                assert Subscription("s", point, "tea").region == Point(1, 2)
        with pytest.raises(RegionError, match="give a circle around it"):
            Subscription.from_dict({"id": 1, "geometry": "POINT (1 2)"})
        with pytest.raises(RegionError):
            Subscription("s", "nowhere")

    def test_owner_and_expiry(self) -> None:
        subscription = Subscription("s", HERE, owner="ann", expires_at=datetime(1970, 1, 2))
        assert subscription.expires_us == 86_400_000_000
        assert Subscription("s", HERE).expires_us is None
        for owner in ["", 7, "a\0"]:
            with pytest.raises(InvalidInput, match="owner"):
                Subscription("s", HERE, owner=owner)  # type: ignore[arg-type]

    def test_is_a_value(self) -> None:
        subscription = Subscription("s", Circle(1, 2, 3), ["tea"])
        assert pickle.loads(pickle.dumps(subscription)) == subscription
        assert len({subscription, Subscription("s", Circle(1, 2, 3), ("tea",))}) == 1
        assert replace(subscription, region=HERE).region == HERE
        with pytest.raises(FrozenInstanceError):
            subscription.id = "t"  # type: ignore[misc]


class TestMessage:
    def test_words(self) -> None:
        assert Message(1, (0, 0), "a b a").words(str.split) == {"a", "b"}
        assert Message(1, (0, 0), tokens=["a b", "c", ""]).words(str.split) == {"a", "b", "c"}
        assert Message(1, (0, 0), tokens=[]).words(str.split) == set()

    def test_places(self) -> None:
        assert Message(1, (1, 2), "").place == Point(1, 2)
        assert Message(1, Rect(170, 0, -170, 1), "").box() == (
            1_700_000_000,
            0,
            -1_700_000_000,
            10_000_000,
        )

    @pytest.mark.parametrize(
        ("place", "west", "east"),
        [
            (Point(180, 0), 180, -180),
            (Point(-180, 0), 180, -180),
            (Rect(170, 0, 180, 0), 170, -180),
            (Rect(-180, 0, -170, 0), 180, -170),
            (Rect(180, 0, -170, 0), 180, -170),
            (Rect(170, 0, -180, 0), 170, -180),
            (Rect(-180, 0, 180, 0), -180, 180),
            (Rect(180, 0, -180, 0), 180, -180),
        ],
    )
    def test_180_and_minus_180_are_one_meridian(self, place: Any, west: int, east: int) -> None:
        box = Message(1, place, "").box()
        assert (box[0], box[2]) == (west * 10_000_000, east * 10_000_000)

    @pytest.mark.parametrize(
        "place", [None, (1,), (1, 2, 3), (1, 91), "POINT (1 2)", Circle(0, 0, 1)]
    )
    def test_refuses_a_place(self, place: Any) -> None:
        with pytest.raises(RegionError):
            Message(1, place, "")
        with pytest.raises(RegionError):
            Message(1, Polygon([[(0, 0), (1, 0), (0, 1)]]), "")  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "content",
        [{}, {"text": "a", "tokens": ["a"]}, {"text": 7}, {"tokens": "abc"}, {"tokens": [7]}],
    )
    def test_refuses_content(self, content: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput):
            Message(1, (0, 0), **content)

    def test_is_a_value(self) -> None:
        message = Message("m", (1, 2), tokens=["tea"], time=1.5, ttl_s=3)
        assert pickle.loads(pickle.dumps(message)) == message
        assert (message.time_us, message.ttl_us) == (1_500_000, 3_000_000)
        assert Message("m", (1, 2), "tea").time_us is None


def test_matches_and_updates() -> None:
    assert Match("m", 1) == Match("m", 1, None)
    assert Update(1.0, "s", "m", -1).sign == -1
    for sign in [0, 2, "+"]:
        with pytest.raises(InvalidInput, match="sign"):
            Update(1.0, "s", "m", sign)  # type: ignore[arg-type]


def test_operators_belong_into_expressions() -> None:
    with pytest.raises(
        InvalidInput, match="keywords: cannot contain AND, OR, NOT; use expression="
    ):
        Subscription("s", Rect(0, 0, 1, 1), "flood OR storm")
    listed = Subscription("s", Rect(0, 0, 1, 1), ["OR", "flood"])
    assert listed.clauses(str.split)[0].positive == ("OR", "flood")


@pytest.mark.parametrize("value", [1_700_000_000_000, 1.7e12, 253_402_300_800])
def test_milliseconds_are_noticed(value: float) -> None:
    with pytest.raises(InvalidInput, match="is it in milliseconds"):
        Message("m", (0, 0), "tea", time=value)
    with pytest.raises(InvalidInput, match="is it in milliseconds"):
        Subscription("s", Rect(0, 0, 1, 1), expires_at=value)
