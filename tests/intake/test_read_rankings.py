"""Ranked rows of tables: taken or refused as the model takes or refuses them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.errors import InvalidInput
from nearcast.intake import read_subscriptions, subscriptions_from
from nearcast.model import Overlap, Point, Proximity, Subscription
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from nearcast.columns import Subscriptions

COLUMNS = {
    "id": pa.string(),
    "keywords": pa.list_(pa.string()),
    "expression": pa.string(),
    **dict.fromkeys(
        ["west", "south", "east", "north", "lon", "lat", "radius_m", "delta", "tau"], pa.float64()
    ),
    **dict.fromkeys(["max_distance_m", "alpha", "theta"], pa.float64()),
    "geometry": pa.string(),
}
POINT = {"lon": 13.4, "lat": 52.5}
BOX = {"west": 13.0, "south": 52.3, "east": 13.8, "north": 52.7}
NEAR = {"delta": 0.3, "tau": 0.6, "max_distance_m": 2000.0}
PART = {"alpha": 0.25, "theta": 0.5}


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table({n: pa.array([r.get(n) for r in rows], t) for n, t in COLUMNS.items()})


def columns_of(subscriptions: Subscriptions) -> list[Any]:
    clauses, rankings = subscriptions.clauses, subscriptions.rankings
    found = [subscriptions.ids.tolist(), clauses.token.tolist(), clauses.box.tolist()]
    if rankings is not None:
        found += [rankings.kind.tolist(), rankings.text_share.tolist()]
        found += [rankings.threshold.tolist(), rankings.max_distance_cm.tolist()]
        if rankings.condition is not None:
            condition = rankings.condition
            found += [condition.token.tolist(), condition.negative.tolist(), condition.row.tolist()]
    return found


def test_kinds_are_mixed_in_one_table() -> None:
    rows = [
        {"id": "near", "keywords": ["tea"], **POINT, **NEAR},
        {"id": "plain", "keywords": ["tea"], **BOX},
        {"id": "part", "keywords": ["tea"], "expression": "NOT milk", **BOX, **PART},
        {"id": "point", "geometry": "POINT (1 2)", **NEAR},
    ]
    found, rejects = read_subscriptions(table_of(rows), Vocabulary())
    assert len(rejects) == 0
    assert found.rankings is not None
    assert found.rankings.kind.tolist() == [1, 0, 2, 1]
    assert found.rankings.text_share.tolist() == [300_000_000, 0, 750_000_000, 300_000_000]
    assert found.rankings.threshold.tolist() == [600_000_000, 0, 500_000_000, 600_000_000]
    assert found.rankings.max_distance_cm.tolist() == [200_000, 0, 0, 200_000]
    assert found.clauses.box[0].tolist() == [134_000_000, 525_000_000] * 2


def test_a_table_of_boolean_rows_has_no_rankings() -> None:
    found, _ = read_subscriptions(table_of([{"id": "a", **BOX}]), Vocabulary())
    assert found.rankings is None


def test_lon_and_lat_are_place_enough_where_rows_are_ranked() -> None:
    table = pa.table({"id": ["a"], **{n: [v] for n, v in (POINT | NEAR).items()}})
    found, rejects = read_subscriptions(table, Vocabulary())
    assert (len(found), len(rejects)) == (1, 0)


@pytest.mark.parametrize(
    ("row", "field", "reason"),
    [
        ({**POINT, **NEAR, "delta": 1.5}, "delta", "must be a number from 0 to 1 (got 1.5)"),
        ({**POINT, **NEAR, "tau": -0.1}, "tau", "must be a number from 0 to 1"),
        ({**POINT, **NEAR, "tau": math.nan}, "tau", "must be a number from 0 to 1"),
        ({**POINT, **NEAR, "max_distance_m": 0.0}, "max_distance_m", "meters from 0.01"),
        ({**POINT, **NEAR, "max_distance_m": 5e7}, "max_distance_m", "to 42,949,672.95"),
        (
            {**POINT, "delta": 0.5, "tau": 0.5},
            "max_distance_m",
            "is missing; a subscription ranked",
        ),
        ({**BOX, "alpha": 0.5}, "theta", "ranked by overlap has alpha, theta"),
        ({**BOX, **PART, **NEAR}, "alpha", "not both"),
        ({**BOX, **NEAR}, "place", "lon, lat"),
        ({**NEAR}, "place", "is missing; give lon, lat"),
        ({"lon": 1.0, **NEAR}, "lat", "is missing"),
        ({**POINT, "radius_m": 5.0, **NEAR}, "radius_m", "leave it out"),
        ({**NEAR, "lon": 1.0, "lat": 95.0}, "lat", "between -90 and 90"),
        ({**NEAR, "geometry": "POLYGON ((0 0, 4 0, 0 4, 0 0))"}, "geometry", "must be a point"),
        ({**POINT, **NEAR, "geometry": "POINT (1 2)"}, "place", "is given twice"),
        ({**BOX, **PART, "expression": "tea OR"}, "expression", "needs a word"),
    ],
)
def test_refused_rows_say_why(row: dict[str, Any], field: str, reason: str) -> None:
    sound = {"id": "b", **BOX}
    found, rejects = read_subscriptions(table_of([{"id": "a", **row}, sound]), Vocabulary())
    assert found.ids.tolist() == ["b"]
    assert rejects.field == (field,)
    assert reason in rejects.reason[0]


shares = st.sampled_from([0.0, 1.0, 0.5, 1e-9, 0.123456789, 0.1234567894, 1.1, -0.5])
distances = st.sampled_from([0.01, 0.014, 0.004, 500.0, 42_949_672.95, 5e7])
rankings: st.SearchStrategy[dict[str, float]] = st.one_of(
    st.fixed_dictionaries({"delta": shares, "tau": shares, "max_distance_m": distances}),
    st.fixed_dictionaries({"alpha": shares, "theta": shares}),
    st.just({}),
)
words = st.sampled_from([None, ["tea"], ["Hot tea", "cake"]])
expressions = st.sampled_from([None, "tea", "NOT milk", "tea OR (cake NOT milk)"])


@settings(max_examples=examples(200))
@given(ranking=rankings, keywords=words, expression=expressions)
def test_a_row_means_what_its_object_means(
    ranking: dict[str, float], keywords: list[str] | None, expression: str | None
) -> None:
    place = POINT if "delta" in ranking else BOX
    row = {"id": "a", "keywords": keywords, "expression": expression, **place, **ranking}
    vocabulary = Vocabulary()
    found, rejects = read_subscriptions(table_of([row]), vocabulary)
    problem: InvalidInput | None = None
    try:
        expected = subscriptions_from([Subscription.from_dict(row)], vocabulary)
    except InvalidInput as error:
        problem = error
    if problem is not None:
        assert rejects.field == (problem.field,)
        assert problem.problem in rejects.reason[0]
    else:
        assert len(rejects) == 0
        assert columns_of(found) == columns_of(expected)


def test_records_come_back_as_they_were() -> None:
    for record in (
        {"id": "a", "keywords": ["tea"], **POINT, **NEAR},
        {"id": "a", "keywords": ["tea"], "expression": "NOT milk", **BOX, **PART},
    ):
        assert Subscription.from_dict(record).to_dict() == record


def test_a_proximity_has_a_place() -> None:
    near = Proximity(0.5, 0.5, 100)
    assert Subscription("a", (1, 2), ranking=near).region == Point(1, 2)
    with pytest.raises(InvalidInput, match=r"must be a Point or \(lon, lat\)"):
        Subscription("a", (0, 0, 1, 1), ranking=near)
    with pytest.raises(InvalidInput, match="must be a Proximity or an Overlap"):
        Subscription("a", (0, 0, 1, 1), ranking="near")  # type: ignore[arg-type]


def test_shares_are_rounded_to_nine_decimals_and_distances_to_centimeters() -> None:
    assert Proximity(0.12345678949, 1, 5.004) == Proximity(0.123456789, 1.0, 5.0)
    assert Overlap(0.3, 0.5).text_share == 0.7
