"""Resources to definitions: what is accepted, what is refused, and which property is named."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast import model
from nearcast.intake import read_subscriptions, subscriptions_from
from nearcast.server.delivery.addresses import SinkNetworks
from nearcast.server.http.definitions import (
    DefinitionLimits,
    definition_of,
    definition_of_subscription,
    merge_patch,
    patched,
    request_of,
)
from nearcast.server.http.models import SubscriptionRequest, parse_timestamp, timestamp_text
from nearcast.server.http.problems import Problem
from nearcast.text import Vocabulary

NOW_US = 1_795_888_800_000_000
DETAIL = "config.subscriptionDetail."
BOX = {"areaType": "BOX", "west": 13.0, "south": 52.0, "east": 14.0, "north": 53.0}
CIRCLE = {"areaType": "CIRCLE", "center": {"latitude": 52.5, "longitude": 13.4}, "radius": 500}
POINT = {"type": "Point", "coordinates": [13.4, 52.5]}
TRIANGLE = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0, 1], [0, 0]]]}
TWO = {
    "type": "MultiPolygon",
    "coordinates": [[[[0, 0], [1, 0], [0, 1]]], [[[5, 5], [6, 5], [5, 6]]]],
}
PROXIMITY = {"delta": 0.3, "tau": 0.6, "maxDistanceM": 2000}
OVERLAP = {"alpha": 0.4, "theta": 0.5}
ACCESS = {
    "credentialType": "ACCESSTOKEN",
    "accessToken": "abc",
    "accessTokenExpiresUtc": "2099-01-01T00:00:00Z",
}
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def document(region: Any = BOX, /, *, config: dict[str, Any] | None = None, **detail: Any) -> Any:
    return {"config": {"subscriptionDetail": {"region": region, **detail}, **(config or {})}}


def define(resource: Any, **options: Any) -> dict[str, Any]:
    return definition_of(request_of(resource), now_us=NOW_US, **options)


def problem_of(resource: Any, **options: Any) -> Problem:
    with pytest.raises(Problem) as caught:
        define(resource, **options)
    assert caught.value.status == 400
    return caught.value


ACCEPTED: list[tuple[Any, model.Subscription]] = [
    (document(BOX, keywords=["tea"]), model.Subscription("s", model.Rect(13, 52, 14, 53), ["tea"])),
    (document(CIRCLE), model.Subscription("s", model.Circle(13.4, 52.5, 500))),
    (
        document(POINT, ranking=OVERLAP),
        model.Subscription("s", model.Point(13.4, 52.5), ranking=model.Overlap(0.4, 0.5)),
    ),
    (document(TRIANGLE), model.Subscription("s", model.region(TRIANGLE))),
    (document(TWO), model.Subscription("s", model.region(TWO))),
    (
        document({"type": "Feature", "geometry": TRIANGLE, "properties": {"big": 2**70}}),
        model.Subscription("s", model.region(TRIANGLE)),
    ),
    (
        document(POINT, keywords=["tea"], expression="NOT milk", ranking=PROXIMITY),
        model.Subscription(
            "s",
            model.Point(13.4, 52.5),
            ["tea"],
            "NOT milk",
            ranking=model.Proximity(0.3, 0.6, 2000),
        ),
    ),
    (
        document(TRIANGLE, keywords=["tea"], ranking=OVERLAP),
        model.Subscription("s", model.region(TRIANGLE), ["tea"], ranking=model.Overlap(0.4, 0.5)),
    ),
    (
        document(BOX, expression='"old town" OR flood* NOT decaf'),
        model.Subscription(
            "s", model.Rect(13, 52, 14, 53), expression='"old town" OR flood* NOT decaf'
        ),
    ),
]


@pytest.mark.parametrize(("resource", "meant"), ACCEPTED)
def test_a_row_means_the_same_to_the_engine(resource: Any, meant: model.Subscription) -> None:
    definition = define(resource)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(definition)) == definition
    table = pa.Table.from_pylist([{"id": "s", **definition["row"]}])
    read, rejects = read_subscriptions(table, Vocabulary())
    expected = subscriptions_from([meant], Vocabulary())
    assert len(rejects) == 0
    assert read.clauses.token.tolist() == expected.clauses.token.tolist()
    assert read.clauses.box.tolist() == expected.clauses.box.tolist()
    assert (read.rankings is None) == (expected.rankings is None)
    if read.rankings is not None and expected.rankings is not None:
        assert read.rankings.threshold.tolist() == expected.rankings.threshold.tolist()


def test_rows_of_all_kinds_fit_into_one_table() -> None:
    rows = [{"id": n, **define(resource)["row"]} for n, (resource, _) in enumerate(ACCEPTED)]
    columns = {name for row in rows for name in row}
    table = pa.table({name: [row.get(name) for row in rows] for name in columns})
    read, rejects = read_subscriptions(table, Vocabulary())
    assert (len(read), len(rejects)) == (len(ACCEPTED), 0)


@pytest.mark.parametrize(("resource", "meant"), ACCEPTED)
def test_a_subscription_of_the_library_has_the_same_definition(
    resource: Any, meant: model.Subscription
) -> None:
    imported = definition_of_subscription(meant, now_us=NOW_US)
    direct = define(resource)
    assert imported["row"] == direct["row"]
    again = definition_of(request_of(imported["given"]), now_us=NOW_US)
    assert again["row"] == direct["row"]


def test_all_properties_of_a_definition() -> None:
    resource = document(
        BOX,
        subscriber="ann",
        dwellS=1.5,
        config={
            "subscriptionExpireTime": "2099-01-01T01:00:00+01:00",
            "subscriptionMaxEvents": 7,
            "initialEvent": True,
        },
    )
    resource |= {"id": "mine", "types": ["org.nearcast.match"], "status": "INACTIVE"}
    resource |= {"sink": "https://example.com/hook", "sinkCredential": ACCESS}
    definition = define(resource)
    row, shown = definition.pop("row"), definition.pop("given")
    assert row == {"west": 13.0, "south": 52.0, "east": 14.0, "north": 53.0}
    assert definition == {
        "id": "mine",
        "subscriber": "ann",
        "sink": {
            "url": "https://example.com/hook",
            "secret": None,
            "headers": {"authorization": "Bearer abc"},
        },
        "types": ["org.nearcast.match"],
        "expires_us": 4_070_908_800_000_000,
        "max_events": 7,
        "initial": True,
        "dwell_us": 1_500_000,
        "active": False,
        "kind": "boolean",
        "box": [13.0, 52.0, 14.0, 53.0],
    }
    assert "sinkCredential" not in shown
    assert shown == {name: value for name, value in resource.items() if name != "sinkCredential"}


REFUSED: list[tuple[Any, str, str]] = [
    (document(BOX, keywords=["--"]), DETAIL + "keywords", "INVALID_ARGUMENT"),
    (document(BOX, keywords=[]), DETAIL + "keywords", "INVALID_ARGUMENT"),
    (document(BOX, keywords="tea"), DETAIL + "keywords", "INVALID_ARGUMENT"),
    (document(BOX, keywords=["a"], expression="b"), DETAIL + "expression", "INVALID_ARGUMENT"),
    (document(POINT), DETAIL + "region", "INVALID_ARGUMENT"),
    (document(BOX, subscriber=""), DETAIL + "subscriber", "INVALID_ARGUMENT"),
    (document(BOX, subscriber="a\nb"), DETAIL + "subscriber", "INVALID_ARGUMENT"),
    (document(BOX, dwellS=-1), DETAIL + "dwellS", "OUT_OF_RANGE"),
    (document(BOX, dwellS=86_401), DETAIL + "dwellS", "OUT_OF_RANGE"),
    (document(BOX | {"west": False}), DETAIL + "region.west", "INVALID_ARGUMENT"),
    (document(BOX | {"west": "13"}), DETAIL + "region.west", "INVALID_ARGUMENT"),
    (document(BOX | {"west": 181}), DETAIL + "region.west", "OUT_OF_RANGE"),
    (document(BOX | {"south": 53.5}), DETAIL + "region.south", "INVALID_ARGUMENT"),
    (document(BOX | {"color": 1}), DETAIL + "region.color", "INVALID_ARGUMENT"),
    (document(CIRCLE | {"radius": -1}), DETAIL + "region.radius", "OUT_OF_RANGE"),
    (document(CIRCLE | {"radius": 1e400}), DETAIL + "region.radius", "INVALID_ARGUMENT"),
    (document({"type": "LineString", "coordinates": []}), DETAIL + "region", "INVALID_ARGUMENT"),
    (document(None), DETAIL + "region", "INVALID_ARGUMENT"),
    (
        document({"type": "Point", "coordinates": [13.4]}),
        DETAIL + "region.coordinates",
        "INVALID_ARGUMENT",
    ),
    (document({"type": "Point", "coordinates": [200, 0]}), DETAIL + "region", "INVALID_ARGUMENT"),
    (
        document({"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1]]]}),
        DETAIL + "region",
        "INVALID_ARGUMENT",
    ),
    (document(BOX, ranking=PROXIMITY), DETAIL + "region", "INVALID_ARGUMENT"),
    (document(POINT, ranking={"delta": 0.3}), DETAIL + "ranking.tau", "INVALID_ARGUMENT"),
    (document(POINT, ranking=PROXIMITY | {"tau": 2}), DETAIL + "ranking.tau", "OUT_OF_RANGE"),
    (document(BOX, ranking=OVERLAP | {"tau": 1}), DETAIL + "ranking.tau", "INVALID_ARGUMENT"),
    (
        document(config={"subscriptionMaxEvents": 0}),
        "config.subscriptionMaxEvents",
        "OUT_OF_RANGE",
    ),
    (
        document(config={"subscriptionMaxEvents": 1_000_001}),
        "config.subscriptionMaxEvents",
        "OUT_OF_RANGE",
    ),
    (
        document(config={"subscriptionMaxEvents": True}),
        "config.subscriptionMaxEvents",
        "INVALID_ARGUMENT",
    ),
    (
        document(config={"subscriptionExpireTime": "2020-01-01T00:00:00Z"}),
        "config.subscriptionExpireTime",
        "OUT_OF_RANGE",
    ),
    (
        document(config={"subscriptionExpireTime": "2099-01-01T00:00:00"}),
        "config.subscriptionExpireTime",
        "INVALID_ARGUMENT",
    ),
    (document() | {"types": ["match"]}, "types.0", "INVALID_ARGUMENT"),
    (document() | {"types": ["org.nearcast.match"] * 2}, "types", "INVALID_ARGUMENT"),
    (document() | {"protocol": "MQTT5"}, "protocol", "INVALID_ARGUMENT"),
    (document() | {"unknown": 1}, "unknown", "INVALID_ARGUMENT"),
    (document() | {"id": ""}, "id", "INVALID_ARGUMENT"),
    (document() | {"sink": "http://example.com"}, "sink", "INVALID_SINK"),
    (document() | {"sink": "https://"}, "sink", "INVALID_SINK"),
    (document() | {"sink": "https://[::1"}, "sink", "INVALID_SINK"),
    (document() | {"sink": "https://ann:secret@example.com"}, "sink", "INVALID_SINK"),
    (document() | {"sink": "https://example.com:99999/"}, "sink", "INVALID_SINK"),
    (document() | {"sink": "https://example.com/a b"}, "sink", "INVALID_SINK"),
    (document() | {"sink": "https://example.com/#a"}, "sink", "INVALID_SINK"),
    (document() | {"sink": "https://example.com/" + "a" * 2048}, "sink", "INVALID_ARGUMENT"),
    (document() | {"sinkCredential": ACCESS}, "sinkCredential", "INVALID_CREDENTIAL"),
    (
        document()
        | {
            "sink": "https://example.com",
            "sinkCredential": ACCESS | {"accessTokenExpiresUtc": "2020-01-01T00:00:00Z"},
        },
        "sinkCredential.accessTokenExpiresUtc",
        "INVALID_CREDENTIAL",
    ),
    (
        document()
        | {
            "sink": "https://example.com",
            "sinkCredential": {"credentialType": "WEBHOOKSECRET", "secret": "whsec_AAAA"},
        },
        "sinkCredential.secret",
        "INVALID_CREDENTIAL",
    ),
    (document() | {"sinkCredential": 4}, "sinkCredential", "INVALID_ARGUMENT"),
    ([], "", "INVALID_ARGUMENT"),
    ({}, "config", "INVALID_ARGUMENT"),
]


@pytest.mark.parametrize(("resource", "field", "code"), REFUSED)
def test_refusals_name_the_property_and_have_a_code(resource: Any, field: str, code: str) -> None:
    problem = problem_of(resource)
    assert (problem.errors[0].field, problem.code) == (field, code)
    assert problem.errors[0].reason


def test_an_expression_error_has_the_position() -> None:
    [error] = problem_of(document(BOX, expression="coffee OR")).errors
    assert (error.field, error.position) == (DETAIL + "expression", 7)
    assert "\n" not in error.reason


def test_limits_of_clauses_vertices_and_keywords() -> None:
    limits = DefinitionLimits(clauses=3, vertices=3, keywords=2)
    for resource, name in [
        (document(BOX, expression="(a OR b) AND (c OR d)"), "expression"),
        (document(TRIANGLE), "region"),
        (document(BOX, keywords=["a", "b", "c"]), "keywords"),
        (
            document(POINT, keywords=["a"], expression="b OR c OR d OR e", ranking=PROXIMITY),
            "expression",
        ),
    ]:
        problem = problem_of(resource, limits=limits)
        assert (problem.code, problem.errors[0].field) == ("OUT_OF_RANGE", DETAIL + name)


def test_http_sinks_need_the_setting() -> None:
    limits = DefinitionLimits(networks=SinkNetworks.of(["127.0.0.0/8"]))
    resource = document() | {"sink": "http://127.0.0.1:8080/hook"}
    assert define(resource, limits=limits)["sink"]["url"] == "http://127.0.0.1:8080/hook"
    for sink in ("ftp://a", "http://8.8.8.8/hook", "https://10.0.0.1/hook"):
        assert problem_of(document() | {"sink": sink}, limits=limits).code == "INVALID_SINK"


def test_a_replaced_sink_keeps_its_secret_and_sends_its_token_nowhere_else() -> None:
    secret = {"credentialType": "WEBHOOKSECRET", "secret": SECRET}
    first = define(document() | {"sink": "https://a.example", "sinkCredential": secret})
    assert first["sink"]["secret"] == SECRET
    second = define(
        document() | {"sink": "https://a.example", "sinkCredential": ACCESS}, previous=first
    )
    assert second["sink"]["secret"] == SECRET
    same = define(document() | {"sink": "https://a.example"}, previous=second)
    assert same["sink"] == second["sink"]
    other = define(document() | {"sink": "https://b.example"}, previous=second)
    assert other["sink"] == {"url": "https://b.example", "secret": SECRET}


# Appendix A of RFC 7396.
RFC_7396 = [
    ('{"a":"b"}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
    ('{"a":"b"}', '{"a":null}', "{}"),
    ('{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
    ('{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
    ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
    ('{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
    ('["a","b"]', '["c","d"]', '["c","d"]'),
    ('{"a":"b"}', '["c"]', '["c"]'),
    ('{"a":"foo"}', "null", "null"),
    ('{"a":"foo"}', '"bar"', '"bar"'),
    ('{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
    ("[1,2]", '{"a":"b","c":null}', '{"a":"b"}'),
    ("{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'),
]


@pytest.mark.parametrize(("target", "patch", "result"), RFC_7396)
def test_merge_patch_as_in_the_standard(target: str, patch: str, result: str) -> None:
    before = json.loads(target)
    assert merge_patch(before, json.loads(patch)) == json.loads(result)
    assert before == json.loads(target)


def test_a_patch_of_a_stored_resource() -> None:
    stored = define(document(BOX, keywords=["tea"]) | {"id": "s"})["given"]
    before = copy.deepcopy(stored)
    changed = patched(stored, {"status": "INACTIVE", **document(CIRCLE)})
    assert stored == before
    assert changed.status == "INACTIVE"
    assert changed.config.subscriptionDetail.keywords == ["tea"]
    assert definition_of(changed)["row"]["radius_m"] == 500.0
    without = patched(stored, {"config": {"subscriptionDetail": {"keywords": None}}})
    assert without.config.subscriptionDetail.keywords is None


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ([], ""),
        ({"version": 3}, "version"),
        ({"id": "other"}, "id"),
        ({"config": None}, "config"),
        ({"config": {"subscriptionDetail": {"region": {"radius": 3}}}}, DETAIL + "region"),
    ],
)
def test_patches_that_are_refused(patch: Any, field: str) -> None:
    stored = define(document(CIRCLE) | {"id": "s"})["given"]
    with pytest.raises(Problem) as caught:
        patched(stored, patch)
    assert caught.value.errors[0].field == field


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.sampled_from([r for r, _ in ACCEPTED]), st.data())
def test_any_value_anywhere_is_accepted_or_refused_by_a_problem(resource: Any, data: Any) -> None:
    changed = copy.deepcopy(resource)
    place = changed
    while True:
        name = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[name], dict) or data.draw(st.booleans()):
            break
        place = place[name]
    place[name] = data.draw(json_values)
    definition, problem = None, None
    try:
        definition = define(changed)
    except Problem as caught:
        problem = caught
    if problem is not None:
        assert problem.status == 400
        assert all(error.reason for error in problem.errors)
    elif definition is not None:
        msgspec.msgpack.encode(definition)
        assert SubscriptionRequest.model_validate(definition["given"])


@given(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
def test_timestamps_survive_their_text(us: int) -> None:
    parsed = parse_timestamp(timestamp_text(us))
    assert model.Message(1, (0, 0), "", time=parsed).time_us == us
