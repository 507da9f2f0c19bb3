"""Both clients against a real server."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from standardwebhooks.webhooks import Webhook

from both import AnyClient, opened
from hostile import answer, scripted
from nearcast import Circle, Message, Overlap, Point, Proximity, Rect, Subscription
from nearcast.client import Client, EventMatch, EventsLost, Gap, ProblemError, Reach, Rejected
from nearcast.errors import InvalidInput, RegionError, UnsupportedFile
from running import running_server

if TYPE_CHECKING:
    from pathlib import Path

    from running import Running

BERLIN = Circle(13.4, 52.5, radius_m=1000)
TEA = {"text": "Fresh tea", "lon": 13.4, "lat": 52.5}


def new_name() -> str:
    return uuid.uuid4().hex[:12]


def texts(stream: Any, count: int) -> list[str]:
    return [event.message["text"] for event in islice(stream, count)]


def stored(server: Running, after: str) -> int:
    """Return how many messages were published after a cursor."""
    with server.client() as http:
        answer = http.get("/v1/messages", params={"after": after, "limit": 1000})
    return len(answer.raise_for_status().json()["messages"])


def test_a_message_reaches_a_subscriber_who_listens(client: AnyClient) -> None:
    ann = new_name()
    made = client.subscribe(keywords="tea", region=BERLIN, subscriber=ann)
    with client.events(subscriber=ann) as events:
        published = client.publish(TEA)
        event = next(events)
    assert published.accepted == 1
    assert event.id == published.ids[0] == events.cursor
    assert (event.type, dict(event.message)) == ("match", TEA)
    assert event.matches == (EventMatch(made.id, None, 1),)
    assert event.raw["subject"] == ann
    assert event.time is not None
    assert abs(event.time - datetime.now(UTC)) < timedelta(minutes=5)


def test_rejected_messages_have_their_index_and_the_others_their_id(client: AnyClient) -> None:
    given = [
        TEA,
        {"text": "nowhere"},
        Message(7, (13.4, 52.5), "coffee"),
        {"text": "off", "lon": 13.4, "lat": 99},
        {"text": object(), "lon": 13.4, "lat": 52.5},
        {"text": "\ud800", "lon": 13.4, "lat": 52.5},
        [1, 2],
        {**TEA, "lon": float("nan")},
        {**TEA, "time": datetime(2026, 1, 31, 12, tzinfo=UTC)},
    ]
    published = client.publish(one for one in given)
    assert published.accepted == 3
    assert [k for k, id in enumerate(published.ids) if id is not None] == [0, 2, 8]
    assert [one.index for one in published.rejected] == [1, 3, 4, 5, 6, 7]
    assert published.rejected[1].field == "lat"


def test_strict_is_all_or_nothing(client: AnyClient, server: Running) -> None:
    before = client.poll("now").cursor
    with pytest.raises(ProblemError) as caught:
        client.publish([TEA, {"text": "nowhere"}], strict=True)
    assert caught.value.status == 422
    assert caught.value.errors[0]["field"].startswith("line 2")
    assert caught.value.published is not None
    assert caught.value.published.accepted == 0
    with pytest.raises(InvalidInput, match="message 0"):
        client.publish([{"text": object()}], strict=True)
    assert stored(server, before) == 0
    assert client.publish([TEA, TEA], strict=True).accepted == 2


def test_many_messages_go_in_batches_and_arrive_once(client: AnyClient) -> None:
    ann = new_name()
    client.subscribe(region=BERLIN, subscriber=ann)
    with client.events(subscriber=ann) as events:
        published = client.publish({**TEA, "text": f"tea {n}"} for n in range(2_500))
        received = texts(events, 2_500)
    assert published.accepted == len({*published.ids}) == 2_500
    assert sorted(received) == sorted(f"tea {n}" for n in range(2_500))


def test_nothing_is_published_of_nothing(client: AnyClient) -> None:
    assert client.publish([]).ids == ()


def test_a_dry_run_says_whom_messages_would_reach(client: AnyClient, server: Running) -> None:
    ann, place = new_name(), Circle(-70.5, -33.4, 500)
    for _ in range(2):
        client.subscribe(keywords=[ann], region=place, subscriber=ann)
    before = client.poll("now").cursor
    tried = client.dry_run(
        [
            {"text": ann, "lon": -70.5, "lat": -33.4},
            {"text": "x"},
            {"text": ann, "lon": -70.5, "lat": 0},
        ]
    )
    assert tried.reach == (Reach(2, 1), None, Reach(0, 0))
    assert (tried.accepted, tried.ids, [one.index for one in tried.rejected]) == (2, (), [1])
    assert stored(server, before) == 0


REGIONS: list[Any] = [
    Rect(13, 52, 14, 53),
    Rect(170, -10, -170, 10),
    BERLIN,
    {"type": "Polygon", "coordinates": [[[13, 52], [14, 52], [14, 53], [13, 52]]]},
    "POLYGON ((13 52, 14 52, 14 53, 13 52))",
    {"lon": 13.4, "lat": 52.5, "radius_m": 500},
    {"west": 13, "south": 52, "east": 14, "north": 53},
    (13, 52, 14, 53),
    {"areaType": "CIRCLE", "center": {"latitude": 52.5, "longitude": 13.4}, "radius": 500},
]


@pytest.mark.parametrize("region", REGIONS, ids=str)
def test_regions_of_all_kinds_can_be_given(server: Running, region: Any) -> None:
    with Client(server.url, server.key) as client:
        assert client.subscribe(region=region, subscriber=new_name()).status == "ACTIVE"


def test_all_terms_reach_the_server(client: AnyClient) -> None:
    ann, end = new_name(), datetime(2100, 1, 1, tzinfo=UTC)
    made = client.subscribe(
        id=f"{ann}#1",
        keywords=["tea", "cake"],
        region=Point(13.4, 52.5),
        ranking=Proximity(0.3, 0.6, 2000),
        expression="NOT milk",
        subscriber=ann,
        types=["match"],
        expires_at=end,
        max_events=5,
        initial_event=True,
        dwell_s=3,
    )
    assert made.id == f"{ann}#1"
    config = made.raw["config"]
    assert config["subscriptionExpireTime"] == "2100-01-01T00:00:00Z"
    assert (config["subscriptionMaxEvents"], config["initialEvent"]) == (5, True)
    detail = config["subscriptionDetail"]
    assert detail["ranking"] == {"delta": 0.3, "tau": 0.6, "maxDistanceM": 2000.0}
    assert (detail["expression"], detail["dwellS"]) == ("NOT milk", 3)
    assert made.raw["types"] == ["org.nearcast.match"]
    assert client.get(made.id).raw == made.raw


def test_a_subscription_of_the_library_can_be_given(client: AnyClient) -> None:
    ann = new_name()
    given = Subscription(
        f"{ann}-1", Rect(13, 52, 14, 53), ["tea"], owner=ann, ranking=Overlap(0.4, 0.2)
    )
    made = client.subscribe(given, max_events=3)
    assert made.id == given.id
    assert made.raw["config"]["subscriptionDetail"]["subscriber"] == ann
    assert made.raw["config"]["subscriptionMaxEvents"] == 3
    with client.events(subscriber=ann) as events:
        client.publish(TEA)
        assert next(events).matches[0].score == pytest.approx(1.0)
    scoped = Subscription("x", Rect(13, 52, 14, 53), ["tea"], scope="other")
    with pytest.raises(InvalidInput, match="scope"):
        client.subscribe(scoped)


def test_mistakes_in_terms_are_found_before_anything_is_sent(client: AnyClient) -> None:
    with pytest.raises(InvalidInput, match="region: is missing"):
        client.subscribe(keywords="tea")
    with pytest.raises(InvalidInput, match="keyword"):
        client.subscribe(keyword="tea", region=BERLIN)
    with pytest.raises(RegionError, match="GeoJSON"):
        client.subscribe(region={"lon": 1})
    with pytest.raises(InvalidInput, match="ranking"):
        client.subscribe(region=BERLIN, ranking="near")
    with pytest.raises(InvalidInput, match="types"):
        client.subscribe(region=BERLIN, types="match")


def test_a_subscription_is_read_changed_paused_and_deleted(client: AnyClient) -> None:
    ann = new_name()
    made = client.subscribe(keywords="tea", region=BERLIN, subscriber=ann)
    patch = {"config": {"subscriptionDetail": {"keywords": ["coffee"]}}}
    changed = client.update(made.id, patch, if_version=made.version)
    assert changed.version > made.version
    with pytest.raises(ProblemError, match="PRECONDITION_FAILED") as caught:
        client.update(made.id, patch, if_version=made.version)
    assert caught.value.status == 412
    assert client.pause(made.id).status == "INACTIVE"
    assert client.resume(made.id).status == "ACTIVE"
    replaced = client.replace(made.id, keywords="mate", region=BERLIN, subscriber=ann)
    assert replaced.raw["config"]["subscriptionDetail"]["keywords"] == ["mate"]
    assert client.replace(f"{ann} new?é", region=BERLIN).id == f"{ann} new?é"
    client.delete(f"{ann} new?é")
    client.delete(made.id, if_version=replaced.version)
    for again in (client.get, client.delete, client.pause):
        with pytest.raises(ProblemError) as refused:
            again(made.id)
        assert (refused.value.status, refused.value.code) == (404, "NOT_FOUND")


def test_lists_go_on_over_pages(client: AnyClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearcast.client.subscriptions._PAGE", 3)
    ann = new_name()
    ids = [client.subscribe(region=BERLIN, subscriber=ann).id for _ in range(7)]
    client.pause(ids[2])
    assert [one.id for one in client.list(subscriber=ann)] == ids
    assert [one.id for one in client.list(subscriber=ann, status="INACTIVE")] == [ids[2]]
    assert [one.id for one in client.list(subscriber=ann, bbox=(13, 52, 14, 53))] == ids
    assert [*client.list(subscriber=ann, bbox=(0, 0, 1, 1))] == []


def test_subscriptions_of_files_and_iterables_are_imported(
    client: AnyClient, tmp_path: Path
) -> None:
    ann = new_name()
    circle = {"lon": 13.4, "lat": 52.5, "radius_m": 500, "owner": ann}
    good = [{"id": f"{ann}-{n}", **circle} for n in range(3)]
    lines = tmp_path / "subscriptions.ndjson"
    lines.write_text("\n".join([json.dumps(good[0]), "", '{"id": 1', json.dumps(good[1])]))
    imported = client.import_(lines)
    assert imported.accepted == 2
    assert [one.index for one in imported.rejected] == [2]
    given = [Subscription(f"{ann}-9", BERLIN, ["tea"], owner=ann), good[0], good[2]]
    imported = client.import_(given)
    assert imported.accepted == 2
    assert [one.index for one in imported.rejected] == [1]
    assert client.import_(iter(given), upsert=True).accepted == 3
    assert {one.id for one in client.list(subscriber=ann)} == {f"{ann}-{n}" for n in (0, 1, 2, 9)}


def test_features_of_geojson_are_imported(client: AnyClient, tmp_path: Path) -> None:
    ann = new_name()
    place = {"type": "Point", "coordinates": [13.4, 52.5]}
    feature = {"type": "Feature", "geometry": place}
    features = [
        {**feature, "id": f"{ann}-1", "properties": {"radius_m": 500, "owner": ann}},
        {**feature, "geometry": None, "properties": {"id": f"{ann}-2", "owner": ann}},
        {**feature, "properties": {"id": f"{ann}-3", "radius_m": 5, "owner": ann}},
    ]
    file = tmp_path / "places.geojson"
    file.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    imported = client.import_(str(file))
    assert imported.accepted == 2
    assert [one.index for one in imported.rejected] == [1]
    file.write_text("[]")
    with pytest.raises(UnsupportedFile, match="FeatureCollection"):
        client.import_(file)
    with pytest.raises(UnsupportedFile, match="No such file"):
        client.import_(tmp_path / "nothing.ndjson")


def test_a_subscription_that_moves_meets_messages_that_live(client: AnyClient) -> None:
    ann = new_name()
    made = client.subscribe(keywords="kiosk", region=Circle(20, 10, 500), subscriber=ann)
    client.publish({"text": "kiosk", "lon": 21, "lat": 10, "ttl_s": 3600})
    with client.events(subscriber=ann) as events:
        client.move(made.id, Circle(21, 10, 500))
        client.move(made.id, {"lon": 22, "lat": 10, "radius_m": 500})
        found = list(islice(events, 2))
    assert [(one.type, one.matches[0].sign) for one in found] == [("match", 1), ("unmatch", -1)]
    moved = client.move_many([(made.id, BERLIN), ("nobody", BERLIN)])
    assert (moved.accepted, [one.index for one in moved.rejected]) == (1, [1])
    with pytest.raises(ProblemError) as caught:
        client.move("nobody", BERLIN)
    assert caught.value.status == 404


def test_events_can_be_read_from_any_cursor(client: AnyClient) -> None:
    ann = new_name()
    client.subscribe(keywords="tea", region=BERLIN, subscriber=ann, types=["match"])
    ids = client.publish({**TEA, "text": f"tea {n}"} for n in range(5)).ids
    with client.events("earliest", subscriber=ann) as events:
        assert texts(events, 5) == [f"tea {n}" for n in range(5)]
    with client.events(ids[2], subscriber=ann) as events:
        assert texts(events, 2) == ["tea 3", "tea 4"]
    polled = client.poll(ids[3], subscriber=ann)
    assert [one.id for one in polled.events] == [ids[4]]
    assert client.poll(polled.cursor, subscriber=ann).events == ()


def test_a_cursor_of_another_server_is_a_gap(client: AnyClient) -> None:
    ann = new_name()
    client.subscribe(keywords="tea", region=BERLIN, subscriber=ann)
    with client.events("1-5", subscriber=ann) as events:
        gap, started = next(events), next(events)
    assert isinstance(gap, Gap)
    assert (gap.type, gap.after, gap.message, gap.matches) == ("gap", "1-5", None, ())
    assert started.type == "subscription-started"
    assert started.data["subscriptionId"].startswith("sub-")
    polled = client.poll("1-5", subscriber=ann)
    assert isinstance(polled.events[0], Gap)
    with client.events("1-5", subscriber=ann, on_gap="raise") as events:
        with pytest.raises(EventsLost) as caught:
            next(events)
        assert caught.value.gap == gap
        assert next(events, None) is None


def test_cursors_are_saved_by_a_function_after_each_handled_event(client: AnyClient) -> None:
    ann = new_name()
    client.subscribe(keywords="tea", region=BERLIN, subscriber=ann)
    saved: list[str] = []
    with client.events(subscriber=ann, save=saved.append) as events:
        ids = client.publish([TEA] * 3).ids
        assert next(events).id == ids[0]
        assert saved == []
        assert next(events).id == ids[1]
        assert saved == [ids[0]]
    assert saved == [*ids[:2]]
    stream = client.events(saved[-1], subscriber=ann, save=saved.append)
    assert next(stream).id == ids[2]
    with pytest.raises(ZeroDivisionError), stream:
        1 / 0  # noqa: B018  # the event is not handled
    assert saved == [*ids[:2]]


def test_cursors_with_a_name_are_kept_by_the_server(client: AnyClient) -> None:
    ann = new_name()
    client.subscribe(keywords="tea", region=BERLIN, subscriber=ann)
    with client.events("@phone", subscriber=ann, save=True):
        pass
    ids = client.publish({**TEA, "text": f"tea {n}"} for n in range(4)).ids
    with client.events("@phone", subscriber=ann, save=True) as events:
        assert texts(events, 2) == ["tea 0", "tea 1"]
    assert client.cursor("phone", subscriber=ann) == ids[1]
    with client.events("@phone", subscriber=ann) as events:
        assert texts(events, 2) == ["tea 2", "tea 3"]
    client.save_cursor("phone", ids[0], subscriber=ann)
    with client.events("@phone", subscriber=ann) as events:
        assert texts(events, 1) == ["tea 1"]
    with pytest.raises(InvalidInput, match="@phone"):
        client.events(save=True)


def test_keys_tokens_and_tenants_are_made_by_admins(
    kind: str, client: AnyClient, server: Running
) -> None:
    tenant, ann = new_name(), new_name()
    assert client.create_tenant(tenant, limits={"messagesPerS": 50})["name"] == tenant
    assert tenant in [one["name"] for one in client.tenants()]
    assert client.limits(tenant) == {"messagesPerS": 50}
    assert client.set_limits(tenant, {"subscriptions": 0}) == {"subscriptions": 0}
    made = client.create_key(["publish", "subscribe"], name="app", tenant=tenant)
    assert made["id"] in [one["id"] for one in client.keys()]
    with opened(kind, server.url, made["key"]) as other:
        assert other.publish(TEA).accepted == 1
        with pytest.raises(ProblemError) as refused:
            other.subscribe(region=BERLIN)
        assert refused.value.code == "PERMISSION_DENIED"
    client.revoke_key(made["id"])
    with opened(kind, server.url, made["key"]) as other, pytest.raises(ProblemError) as refused:
        other.publish(TEA)
    assert refused.value.status == 401
    client.subscribe(keywords="tea", region=BERLIN, subscriber=ann)
    token = client.create_token(ann)
    with opened(kind, server.url, token) as browser, browser.events() as events:
        client.publish(TEA)
        assert next(events).message["text"] == "Fresh tea"
        with pytest.raises(ProblemError, match="PERMISSION_DENIED"):
            browser.publish(TEA)


def test_a_subscription_is_previewed_before_it_is_made(client: AnyClient) -> None:
    word, near = new_name(), Proximity(0.5, 0.6, 2000)
    id = client.publish({**TEA, "text": word}).ids[0]
    tried = client.preview(keywords=word, region=BERLIN, messages=5)
    assert tried["matched"] == 1
    assert tried["messages"][-1]["id"] == id
    given = Message("m", (13.4, 52.5), word)
    tried = client.preview(keywords=word, region=Point(13.4, 52.5), ranking=near, message=given)
    assert tried["messages"][0]["score"] == pytest.approx(1.0)
    subscription = Subscription("s", BERLIN, ["other"])
    assert client.preview(subscription, message={**TEA, "text": word})["matched"] == 0


def test_events_and_their_absence_are_explained(client: AnyClient) -> None:
    ann = new_name()
    made = client.subscribe(keywords=[ann], region=BERLIN, subscriber=ann)
    with client.events(subscriber=ann) as events:
        hit, miss = client.publish([{**TEA, "text": ann}, TEA]).ids
        assert next(events).id == hit
    [why] = client.explain(hit, subscriber=ann)["explanations"]
    assert (why["subscriptionId"], why["matches"]) == (made.id, True)
    [why] = client.explain(miss, subscription_id=made.id)["explanations"]
    assert why["matches"] is False
    assert client.message(hit)["reach"]["subscriptions"] >= 1


def test_subscribers_choose_when_they_want_events(client: AnyClient) -> None:
    ann = new_name()
    cap = {"cap": {"events": 10, "periodS": 3600.0}}
    assert client.set_delivery(ann, cap)["delivery"] == cap
    client.subscribe(keywords="tea", region=BERLIN, subscriber=ann, types=["match"])
    first, _ = client.publish([TEA, TEA]).ids
    with client.events("earliest", subscriber=ann) as events:
        assert len(texts(events, 2)) == 2
    counted = client.subscriber(ann, cursor=first)
    assert (counted["recorded"], counted["pending"]) == (2, 1)


def test_webhooks_are_watched_and_replayed(kind: str, tmp_path: Path) -> None:
    with (
        scripted([answer(b"")]) as (hook, requests),
        running_server(tmp_path, allow_sinks=("127.0.0.0/8",)) as server,
        opened(kind, server.url, server.key) as client,
    ):
        made = client.subscribe(keywords="tea", region=BERLIN, sink=hook, types=["match"])
        [sink] = client.sinks()
        assert client.test_sink(sink["id"])["status"] == 200
        with client.events() as events:
            id = client.publish(TEA).ids[0]
            assert next(events).id == id
        body = requests[0].partition(b"\r\n\r\n")[2]
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        headers = {name: requests.header(0, name) or "" for name in names}
        assert made.secret is not None
        assert Webhook(made.secret).verify(body, headers)
        client.replay_sink(sink["id"], "earliest")
        assert client.enable_sink(sink["id"])["status"] == "ACTIVE"
        assert client.sink(sink["id"])["url"] == hook
        assert client.sink_dead(sink["id"]) == ()
        assert client.sink_attempts(sink["id"])[-1]["status"] == 200
        client.delete(made.id)
        client.remove_sink(sink["id"])
        assert client.sinks() == ()


def test_the_secret_of_a_sink_is_returned_once(client: AnyClient) -> None:
    made = client.subscribe(region=BERLIN, subscriber=new_name(), sink="https://example.com/hook")
    assert made.secret is not None
    Webhook(made.secret)
    assert made.secret not in repr(made)
    assert client.get(made.id).secret is None


def test_a_bad_address_or_key_is_an_error_at_once() -> None:
    for url in ("nearcast.example.com", "ftp://x", "", "http://"):
        with pytest.raises(InvalidInput, match="url"):
            Client(url, "nc_x_y")
    with pytest.raises(InvalidInput, match="key") as caught:
        Client("http://localhost", "nc_secret\n")
    assert "secret" not in str(caught.value)


def test_rejected_is_ordered_by_index() -> None:
    assert Rejected(1, "b", "x") < Rejected(2, "a", "x")
