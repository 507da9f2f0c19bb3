"""What a person does with the page, in a real browser against a real server."""

from __future__ import annotations

import re
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from map_page import ROOT, MapPage, opened, signed_in
from wire import wired

if TYPE_CHECKING:
    from pathlib import Path

    import httpx
    from playwright.sync_api import Browser, BrowserContext, Route

    from running import Running

WORLD = {"areaType": "BOX", "west": -180.0, "south": -90.0, "east": 180.0, "north": 90.0}


def subscribe(api: httpx.Client, name: str, words: str, **detail: Any) -> None:
    """Make a subscription; it is the world's unless a region is given."""
    given = {"region": WORLD, "expression": words, **detail}
    body = {"id": name, "config": {"subscriptionDetail": given}}
    api.post("/v1/subscriptions", json=body).raise_for_status()


def publish(api: httpx.Client, *texts: str, lon: float = 13.4, lat: float = 52.5) -> list[str]:
    """Publish texts at a place, and return their ids."""
    body = [{"text": text, "lon": lon, "lat": lat, "ttl_s": 3600} for text in texts]
    answer = api.post("/v1/messages", json=body).raise_for_status().json()
    epoch, first = answer["firstId"].split("-")
    return [f"{epoch}-{int(first) + at}" for at in range(len(texts))]


def box(west: float, south: float, east: float, north: float) -> dict[str, Any]:
    return {"areaType": "BOX", "west": west, "south": south, "east": east, "north": north}


def test_draw_publish_and_see_it_within_two_seconds(page: MapPage) -> None:
    page.pixel(0, 0)  # measures the map before anything is drawn
    page.button("New subscription").click()
    page.button("Rectangle").click()
    expect(page.page.get_by_text("Click one corner")).to_be_visible()
    page.click_map(-10, 10)
    page.click_map(20, 40)
    expect(page.page.get_by_label("West", exact=True)).not_to_have_value("")
    page.page.get_by_label("Words", exact=True).fill("lighthouse OR harbor")
    page.page.get_by_label("Name").fill("coasts")
    page.button("Save").click()
    expect(page.page.get_by_role("heading", name="coasts")).to_be_visible()
    page.tab("Publish")
    page.click_map(5, 25)
    page.page.get_by_label("Message", exact=True).fill("A lighthouse far inland")
    reach = page.page.locator(".reach")
    expect(reach).to_have_text("It would reach 1 subscription of 1 subscriber.")
    expect(page.events).to_have_count(0)  # a dry run publishes nothing
    page.button("Send").click()
    expect(page.event("A lighthouse far inland")).to_be_visible()
    expect(page.event("A lighthouse far inland")).to_contain_text("coasts")
    expect(page.page.locator(".sent li")).to_contain_text(
        "reached 1 subscription of 1 subscriber, of yours: coasts"
    )


@pytest.mark.parametrize("kind", ["Circle", "Polygon", "Place and reach"])
def test_other_shapes_can_be_drawn(page: MapPage, kind: str) -> None:
    page.pixel(0, 0)
    page.button("New subscription").click()
    page.button(kind).click()
    corners = {
        "Circle": [(10, 20), (16, 20)],
        "Polygon": [(0, 10), (20, 10), (10, 30), (0, 10)],
        "Place and reach": [(10, 20)],
    }[kind]
    for lon, lat in corners:
        page.click_map(lon, lat)
    label = {"Circle": "Radius, km", "Polygon": "Corners", "Place and reach": "Place (lat, lon)"}
    field = page.page.get_by_label(label[kind])
    expect(field).not_to_have_value("")
    if kind == "Circle":
        assert 580 < float(field.input_value()) < 670  # 6 degrees at 20 north
    elif kind == "Polygon":
        assert len(field.input_value().splitlines()) == 3


@pytest.mark.parametrize("by", ["mouse", "finger"])
@pytest.mark.parametrize("kind", ["Rectangle", "Circle"])
def test_a_drag_draws_and_leaves_the_map_where_it_is(
    profile: BrowserContext, map_server: Running, kind: str, by: str
) -> None:
    page = MapPage(profile, map_server.url).open()
    page.pixel(0, 0)
    page.button("New subscription").click()
    page.button(kind).click()
    expect(page.page.get_by_text(re.compile("^Drag"))).to_be_visible()
    page.page.locator(f"[data-drawing={kind.lower()}]").wait_for()
    drag = page.drag_map if by == "mouse" else page.touch_and_drag_map
    drag((10, 20), (16, 30))
    labels = {"Rectangle": ["West", "South", "East", "North"], "Circle": ["Radius, km"]}[kind]
    fields = [page.page.get_by_label(label, exact=True) for label in labels]
    expect(fields[0]).not_to_have_value("")
    drawn = [float(field.input_value()) for field in fields]
    if kind == "Rectangle":
        assert drawn == pytest.approx([10, 20, 16, 30], abs=0.5)
    else:
        assert drawn == pytest.approx([1270], rel=0.05)
    page.button("Cancel").click()
    page.tab("Publish")
    assert page.place_at(*page.pixel(10, 20)) == pytest.approx((10, 20), abs=0.5)


def test_a_shape_is_changed_by_its_corners(page: MapPage, api: httpx.Client) -> None:
    page.pixel(0, 0)
    page.button("New subscription").click()
    page.button("Rectangle").click()
    for lon, lat in ((0, 10), (20, 30)):
        page.click_map(lon, lat)
    east = page.page.get_by_label("East", exact=True)
    expect(east).not_to_have_value("")
    page.drag_map((20, 30), (30, 40))
    assert float(east.input_value()) == pytest.approx(30, abs=0.5)
    page.page.get_by_label("Words", exact=True).fill("corner")
    page.page.get_by_label("Name").fill("cornered")
    page.button("Save").click()
    expect(page.page.get_by_role("heading", name="cornered")).to_be_visible()
    page.button("Change").click()
    page.drag_map((0, 10), (-10, 20))
    page.button("Save changes").click()
    expect(page.page.get_by_text("cornered is changed.")).to_be_visible()
    region = api.get("/v1/subscriptions/cornered").json()["config"]["subscriptionDetail"]["region"]
    sides = [region[side] for side in ("west", "south", "east", "north")]
    assert sides == pytest.approx([-10, 20, 30, 40], abs=0.5)


def test_coordinates_can_be_typed_instead(page: MapPage, api: httpx.Client) -> None:
    page.button("New subscription").click()
    page.page.locator(".coordinates summary").click()
    for side, degrees in {"West": "170", "South": "-20", "East": "-170", "North": "20"}.items():
        page.page.get_by_label(side, exact=True).fill(degrees)
    page.page.get_by_label("Words", exact=True).fill("typed")
    page.page.get_by_label("Name").fill("date line")
    page.button("Save").click()
    expect(page.page.get_by_role("heading", name="date line")).to_be_visible()
    found = api.get("/v1/subscriptions/date line").json()
    region = found["config"]["subscriptionDetail"]["region"]
    assert (region["west"], region["east"]) == (170, -170)


def test_an_error_is_marked_under_the_offending_word(page: MapPage) -> None:
    page.button("New subscription").click()
    page.page.locator(".coordinates summary").click()
    for side, degrees in {"West": "1", "South": "1", "East": "2", "North": "2"}.items():
        page.page.get_by_label(side, exact=True).fill(degrees)
    words = page.page.get_by_label("Words", exact=True)
    words.fill("tea -milk sugar")
    expect(page.page.locator(".marks mark")).to_have_text("-milk")
    expect(page.page.locator("#expression-problem")).to_contain_text("NOT milk")
    expect(page.button("Save")).to_be_disabled()
    words.fill("tea or milk")
    expect(page.page.locator(".marks mark")).to_have_count(0)
    expect(page.page.locator(".expression .warning")).to_contain_text("OR")
    words.fill("tea NOT milk")
    expect(page.page.locator(".expression .warning")).to_have_count(0)
    expect(page.button("Save")).to_be_enabled()


def test_sliders_change_the_preview(page: MapPage, api: httpx.Client) -> None:
    publish(api, "harp concert", "violin concert", lon=10.0, lat=50.0)
    publish(api, "harp recital", lon=14.0, lat=50.0)
    page.button("New subscription").click()
    page.button("Place and reach").click()
    page.page.keyboard.press("Escape")
    page.page.locator(".coordinates summary").click()
    page.page.get_by_label("Place (lat, lon)").fill("50, 10")
    page.page.get_by_label("Reach, km").fill("500")
    page.button("Ranked").click()
    page.page.get_by_label("Words that count").fill("harp")
    matched = page.page.locator(".preview h3")
    few, relevant = (
        page.page.get_by_label("Few against many"),
        page.page.get_by_label("Near against relevant"),
    )
    relevant.fill("50")
    few.fill("0")  # words and place, both: only what is here and has the word
    expect(matched).to_contain_text(re.compile(r"^1 of the last"))
    few.fill("55")  # one of them is enough
    expect(matched).to_contain_text(re.compile(r"^3 of the last"))
    relevant.fill("100")  # only words
    few.fill("0")
    expect(matched).to_contain_text(re.compile(r"^2 of the last"))
    bar = page.page.locator(".preview .score-bar").first
    expect(bar).to_have_attribute("aria-label", re.compile(r"score 1: place 0, words 1"))


def test_dragging_a_region_gives_plus_and_minus(
    page: MapPage, api: httpx.Client, request: pytest.FixtureRequest
) -> None:
    here = {"subscriber": request.node.name, "region": box(-5, 10, 15, 30)}
    subscribe(api, "van", "parcel", **here)
    publish(api, "parcel left behind", lon=0.0, lat=20.0)
    expect(page.event("parcel left behind")).to_have_count(1)
    publish(api, "parcel ahead", lon=40.0, lat=20.0)
    page.pixel(0, 0)
    page.page.get_by_role("button", name="van").first.click()
    expect(page.page.get_by_role("heading", name="van")).to_be_visible()
    page.drag_map((5, 20), (40, 20))
    expect(page.event("parcel ahead").locator(".plus")).to_have_count(1)
    expect(page.event("parcel left behind").locator(".minus")).to_have_count(1)
    expect(page.page.locator(".notice")).to_contain_text("van has moved: +1 \N{MINUS SIGN}1")
    region = api.get("/v1/subscriptions/van").json()["config"]["subscriptionDetail"]["region"]
    assert region["west"] == pytest.approx(30, abs=0.5)


def test_a_reload_and_a_broken_connection_lose_and_repeat_nothing(
    profile: BrowserContext, map_server: Running, api: httpx.Client, request: pytest.FixtureRequest
) -> None:
    subscribe(api, "reload", "tick", subscriber=request.node.name)
    with wired(map_server.url) as wire:
        page = MapPage(profile, wire.url).open()
        sent = publish(api, *(f"tick {n}" for n in range(5)))
        expect(page.events).to_have_count(5)
        page.page.goto("about:blank")
        sent += publish(api, *(f"tick away {n}" for n in range(5)))
        page.open()
        expect(page.events).to_have_count(10)
        assert page.ids == sent
        wire.cut()
        page.page.locator(".stream.waiting").wait_for()
        sent += publish(api, *(f"tick while broken {n}" for n in range(5)))
        wire.join()
        expect(page.events).to_have_count(15)
        assert page.ids == sent
        page.page.reload()
        expect(page.events).to_have_count(15)
        assert page.ids == sent


def test_pausing_loses_nothing(
    page: MapPage, api: httpx.Client, request: pytest.FixtureRequest
) -> None:
    subscribe(api, "pause", "calm", subscriber=request.node.name)
    # Its own event would wait with the others.
    expect(page.page.get_by_text("pause listens now")).to_be_visible()
    page.button("Pause feed").click()
    sent = publish(api, *(f"calm {n}" for n in range(4)))
    expect(page.page.locator(".paused-note")).to_contain_text("4 events wait")
    expect(page.events).to_have_count(0)
    page.button("Resume feed").click()
    expect(page.events).to_have_count(4)
    assert page.ids == sent


def test_filter_and_mute_hide_and_show_again(
    page: MapPage, api: httpx.Client, request: pytest.FixtureRequest
) -> None:
    subscribe(api, "loud", "drum", subscriber=request.node.name)
    publish(api, "drum in the park", "drum in the hall")
    expect(page.events).to_have_count(2)
    page.page.get_by_label("Filter the feed").fill("park")
    expect(page.events).to_have_count(1)
    page.page.get_by_label("Filter the feed").fill("")
    page.event("hall").locator(".entry-head").click()
    expect(page.page.locator(".why")).to_contain_text("drum")  # why it matched
    page.page.locator(".why").get_by_role("button", name="Mute").click()
    expect(page.events).to_have_count(0)
    page.button("Unmute 1").click()
    expect(page.events).to_have_count(2)


def test_a_cursor_that_is_too_old_is_shown_as_a_gap(
    profile: BrowserContext, map_server: Running, request: pytest.FixtureRequest
) -> None:
    page = MapPage(profile, map_server.url)
    page.page.goto(f"{map_server.url}/healthz")
    page.page.evaluate(
        """name => new Promise((resolve, reject) => {
            const opening = indexedDB.open(name, 1);
            opening.onupgradeneeded = () => {
                opening.result.createObjectStore("entries", { autoIncrement: true });
                opening.result.createObjectStore("state").put("1-1", "cursor");
            };
            opening.onsuccess = () => { opening.result.close(); resolve(null); };
            opening.onerror = reject;
        })""",
        f"nearcast:default:{request.node.name}",
    )
    page.open()
    expect(page.page.locator(".feed .gap")).to_have_count(1)
    expect(page.page.locator(".feed .gap")).to_contain_text("missing here")


def test_seven_tabs_share_one_stream(
    profile: BrowserContext, map_server: Running, api: httpx.Client, request: pytest.FixtureRequest
) -> None:
    subscribe(api, "seven", "tabs", subscriber=request.node.name)
    tabs = [MapPage(profile, map_server.url) for _ in range(7)]
    for tab in tabs:
        tab.page.goto(map_server.url)
        tab.is_live()
    sent = publish(api, *(f"tabs {n}" for n in range(10)))
    for tab in tabs:
        expect(tab.events).to_have_count(10)
        assert tab.ids == sent
    streams = re.search(r'nearcast_streams\{kind="sse"\} (\d+)', api.get("/metrics").text)
    assert streams is not None
    assert int(streams[1]) == 1
    leader = next(tab for tab in tabs if tab.page.evaluate(HOLDS_LOCK))
    leader.page.close()
    sent += publish(api, "tabs after the leader has gone")
    for tab in tabs:
        if tab is not leader:
            expect(tab.events).to_have_count(11)
            assert tab.ids == sent


HOLDS_LOCK = """async () => {
    const { held } = await navigator.locks.query();
    const own = await new Promise(resolve =>
        navigator.locks.request("own", async () => {
            const all = (await navigator.locks.query()).held;
            resolve(all.find(one => one.name === "own").clientId);
        }));
    return held.some(one => one.name.startsWith("nearcast:") && one.clientId === own);
}"""


def test_two_tenants_do_not_see_each_other(browser: Browser, map_server: Running) -> None:
    keys = [map_server.make_tenant(name) for name in ("north", "south")]
    for key in keys:
        with map_server.client(key) as client:
            subscribe(client, "same name", "secret")
    with opened(browser) as north, opened(browser) as south:
        pages = []
        for context, key in zip((north, south), keys, strict=True):
            signed_in(context, key)
            pages.append(MapPage(context, map_server.url).open())
        for at, key in enumerate(keys):
            with map_server.client(key) as client:
                publish(client, f"secret of tenant {at}")
        for at, page in enumerate(pages):
            expect(page.event(f"secret of tenant {at}")).to_have_count(1)
            expect(page.events).to_have_count(1)


def test_an_administrator_sees_the_events_of_all_subscribers(
    browser: Browser, map_server: Running
) -> None:
    key = map_server.make_tenant("seven")
    names = ["ann", "ben", "cleo", "dan", "eve", "finn", "gil"]
    with opened(browser) as context, map_server.client(key) as api:
        for name in names:
            subscribe(api, f"rain of {name}", "rain" if name < "d" else "snow", subscriber=name)
        page = MapPage(context, map_server.url)
        page.page.goto(map_server.url)
        page.page.get_by_label("Key").fill(key)
        page.button("Sign in").click()
        page.button("Just watch").click()
        page.is_live()
        whose = page.page.get_by_label("Events of")
        expect(whose).to_be_visible()
        expect(whose).to_have_attribute("placeholder", "all subscribers")
        expect(page.page.get_by_text("matched a subscription of any subscriber")).to_be_visible()
        [id] = publish(api, "Rain in the afternoon")
        event = page.event("Rain in the afternoon")
        expect(event).to_have_count(1)
        for name in names:
            expect(event.get_by_text(f"for {name}", exact=True)).to_have_count(int(name < "d"))
        event.get_by_role("button", name="Rain in the afternoon").click()
        expect(event.locator(".why h4")).to_have_text([f"rain of {name}" for name in names[:3]])

        # Somebody else's feed, and back. Until its stream is open, the page does not say "live".
        held: list[Route] = []
        opened_up = Event()

        def hold(route: Route) -> None:
            if opened_up.is_set():
                route.continue_()
            else:
                held.append(route)

        page.page.route(re.compile("/v1/events"), hold)
        whose.fill("eve")
        expect(page.page.get_by_text("matched a subscription of eve")).to_be_visible()
        expect(page.page.locator(".stream")).to_contain_text("connecting")
        opened_up.set()  # not `unroute`: that may let go what is held
        for route in held:
            route.continue_()
        page.is_live()
        publish(api, "Snow in the evening", "Rain at night")
        expect(page.event("Snow in the evening")).to_have_count(1)
        expect(page.events).to_have_count(1)
        page.page.reload()
        expect(whose).to_have_value("eve")
        expect(page.event("Snow in the evening")).to_have_count(1)
        whose.fill("")
        expect(page.events).to_have_count(3)  # it reads on from where it was
        assert page.ids[0] == id


def test_the_feed_of_one_subscriber_says_whose_it_is(browser: Browser, map_server: Running) -> None:
    key = map_server.make_key("subscribe", subscriber="solo")
    with opened(browser) as context:
        signed_in(context, key)
        page = MapPage(context, map_server.url).open()
        expect(page.page.locator(".feed-of")).to_have_text("Events of solo")
        expect(page.page.get_by_label("Events of")).to_have_count(0)


MARKUP = '<img src=x onerror="window.broken=1"><script>window.broken=1</script><b>storm</b>'


def test_markup_in_a_message_is_inert(
    page: MapPage, api: httpx.Client, request: pytest.FixtureRequest
) -> None:
    name = "<i onmouseover=alert(1)>storms<|i>"
    subscribe(api, name, "storm", subscriber=request.node.name)
    publish(api, MARKUP)
    event = page.events.first
    expect(event.locator(".message-text")).to_have_text(MARKUP)
    expect(event.locator(".match-name")).to_have_text(name)
    event.locator(".entry-head").click()
    expect(page.page.locator(".why")).to_contain_text("storm")
    assert page.page.evaluate("() => window.broken") is None
    for part in (".message-text", ".match-name", ".why li", ".why h4", ".subscription-text strong"):
        assert page.page.locator(f"{part} *").count() == 0


def test_pause_change_and_delete_a_subscription(
    page: MapPage, api: httpx.Client, request: pytest.FixtureRequest
) -> None:
    subscribe(api, "changing", "before", subscriber=request.node.name, region=box(0, 0, 9, 9))
    page.page.get_by_role("button", name="changing").first.click()
    page.button("Pause").click()
    expect(page.button("Resume")).to_be_visible()
    assert api.get("/v1/subscriptions/changing").json()["status"] == "INACTIVE"
    page.button("Resume").click()
    page.button("Change").click()
    page.page.get_by_label("Words", exact=True).fill("after")
    page.button("Save changes").click()
    expect(page.page.locator(".details .words")).to_have_text("after")
    found = api.get("/v1/subscriptions/changing").json()
    assert found["config"]["subscriptionDetail"]["expression"] == "after"
    assert found["status"] == "ACTIVE"
    page.button("Delete").first.click()
    page.page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
    expect(page.page.locator(".details")).to_have_count(0)
    assert api.get("/v1/subscriptions/changing").json().get("status") in (None, 404, "DELETED")


def test_what_is_exported_can_be_imported(
    page: MapPage, api: httpx.Client, map_server: Running, browser: Browser, tmp_path: Path
) -> None:
    other = map_server.make_tenant("exporting")
    with map_server.client(other) as client:
        subscribe(
            client,
            "circle",
            "tea",
            region={
                "areaType": "CIRCLE",
                "center": {"latitude": 52.5, "longitude": 13.4},
                "radius": 500,
            },
        )
        ranking = {"delta": 0.4, "tau": 0.6, "maxDistanceM": 2000}
        point = {"type": "Point", "coordinates": [13.4, 52.5]}
        body = {"keywords": ["tea"], "region": point, "ranking": ranking}
        client.post(
            "/v1/subscriptions", json={"id": "ranked", "config": {"subscriptionDetail": body}}
        ).raise_for_status()
        subscribe(client, "date line", "tea", region=box(170, -10, -170, 10))
    file = tmp_path / "subscriptions.geojson"
    with opened(browser) as context:
        signed_in(context, other)
        exporting = MapPage(context, map_server.url).open()
        with exporting.page.expect_download() as download:
            exporting.button("Export as GeoJSON").click()
        download.value.save_as(file)
    empty = map_server.make_tenant("importing")
    with opened(browser) as context:
        signed_in(context, empty)
        importing = MapPage(context, map_server.url).open()
        importing.page.get_by_label("File with subscriptions").set_input_files(file)
        expect(importing.page.locator(".notice")).to_contain_text("3 subscriptions imported.")
    with map_server.client(empty) as client:
        found = {one["id"]: one for one in client.get("/v1/subscriptions").json()["subscriptions"]}
    assert set(found) == {"circle", "ranked", "date line"}
    assert found["ranked"]["config"]["subscriptionDetail"]["ranking"] == ranking
    assert found["circle"]["config"]["subscriptionDetail"]["region"]["radius"] == 500


def test_the_replay_shows_what_was_delivered(
    page: MapPage, api: httpx.Client, request: pytest.FixtureRequest
) -> None:
    subscribe(api, "replayed", "echo", subscriber=request.node.name)
    sent = publish(api, *(f"echo {n}" for n in range(6)))
    expect(page.events).to_have_count(6)
    page.button("Replay").click()
    time = page.page.get_by_label("Time of the replay")
    time.press("Home")
    page.page.get_by_label("Speed").select_option("1000")
    page.button("Play").click()
    expect(page.page.locator(".replay-facts small")).to_have_text("6 events delivered")
    assert page.ids == sent
    sent += publish(api, "echo while replaying")
    page.button("Back to live").click()
    expect(page.events).to_have_count(7)
    assert page.ids == sent


def test_operations_show_figures_and_how_a_message_was_found(
    page: MapPage, api: httpx.Client, request: pytest.FixtureRequest
) -> None:
    subscribe(api, "traced", "amber", subscriber=request.node.name, region=box(10, 50, 20, 60))
    publish(api, "amber on the beach", lon=14.0, lat=54.0)
    page.event("amber on the beach").locator(".entry-head").click()
    page.button("How found").click()
    trace = page.page.locator(".trace-shown")
    expect(trace.locator(".tokens")).to_contain_text("amber")
    expect(trace).to_contain_text("1 matched")
    figures = page.page.locator(".figures")
    expect(figures).to_contain_text("subscriptions")
    expect(page.page.locator(".chart-plot canvas")).to_have_count(5)


def test_sign_in_with_a_key_and_with_a_one_time_link(browser: Browser, map_server: Running) -> None:
    with opened(browser) as context:
        page = MapPage(context, map_server.url)
        page.page.goto(map_server.url)
        for key, said in (
            ("nc_wrong_key", "This server does not know this key."),
            ("password", "This is not a key of Nearcast: keys begin with nc_."),
        ):
            page.page.get_by_label("Key").fill(key)
            page.button("Sign in").click()
            expect(page.page.get_by_role("alert")).to_contain_text(said)
        page.page.get_by_label("Key").fill(map_server.key)
        page.button("Sign in").click()
        page.is_live()
        expect(page.page.get_by_role("heading", name="Messages find those")).to_be_visible()
        page.button("Just watch").click()
        page.page.reload()
        page.is_live()
    code = map_server.app.state.context.one_time_code.make()
    link = f"{map_server.url}/#code={code}"
    with opened(browser) as context:
        page = MapPage(context, map_server.url)
        page.page.goto(link)
        page.is_live()
        assert "code" not in page.page.url
    with opened(browser) as context:
        page = MapPage(context, map_server.url)
        page.page.goto(link)
        expect(page.page.get_by_role("alert")).to_contain_text("This link was used already")


def tutorial_code() -> str:
    """Return the code for browsers in the tutorial."""
    page = (ROOT / "docs/tutorials/live-server.md").read_text()
    [code] = re.findall(r"^```js\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return str(code)


def test_the_code_of_the_tutorial_outlives_its_tokens(
    browser: Browser, map_server: Running, api: httpx.Client
) -> None:
    subscribe(api, "long-lived", "endurance", subscriber="tutorial")
    lives = iter([0, 4, 4])  # the first one is refused, the second one expires soon
    tokens: list[str] = []

    def new_token() -> str:
        body = {"subscriber": "tutorial", "expiresInS": next(lives, 0) or 900}
        token = api.post("/v1/tokens", json=body).raise_for_status().json()["token"]
        tokens.append(token)
        return token if len(tokens) > 1 else "nct_expired"

    with opened(browser) as context:
        page = context.new_page()
        page.goto(f"{map_server.url}/plain")
        page.expose_function("newToken", new_token)
        page.evaluate(
            "() => { window.shown = []; const reload = () => window.shown.push('gap');"
            f" const show = (text) => window.shown.push(text); {tutorial_code()} }}"
        )
        sent: list[str] = []
        for _ in range(100):  # until all short tokens have expired
            publish(api, f"endurance {len(sent)}")
            sent.append(f"endurance {len(sent)}")
            page.wait_for_timeout(200)
            shown = page.evaluate("() => window.shown")
            if len(tokens) >= 4 and shown[-1:] == sent[-1:]:
                break
        assert len(tokens) >= 4
        assert shown == sent[-len(shown) :]  # from the first connection on, each once and in order
        assert len(shown) > 10
