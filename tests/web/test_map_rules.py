"""Rules that hold for the whole page: the base map is right, and everybody can use it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from matplotlib import image
from playwright.sync_api import expect

from map_page import ROOT, MapPage, opened, signed_in

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from running import Running

LAND = {
    "the Sahara": (10, 22),
    "the Amazon": (-60, -5),
    "Siberia": (95, 60),
    "Scandinavia": (15, 62.5),
    "Greenland": (-42, 68),
    "Australia": (134, -24),
}
WATER = {
    "the Atlantic": (-35, 28),
    "the Indian Ocean": (80, -22),
    "the Black Sea": (34, 43.2),
    "the Gulf of Bothnia": (20, 62.3),
    "Hudson Bay": (-86, 60),
    "the Bay of Bengal": (88, 15),
    "the Mediterranean": (18, 35),
}
COLORS = {"land": (0xF7, 0xF5, 0xF0), "water": (0xDB, 0xE6, 0xEA)}


def is_mostly(picture: Any, x: float, y: float, color: tuple[int, int, int]) -> bool:
    """Whether most pixels around a place have a color; a label may cross some of them."""
    part = picture[int(y) - 3 : int(y) + 4, int(x) - 3 : int(x) + 4, :3].reshape(-1, 3) * 255
    near = (abs(part - color) < 4).all(axis=1)
    return bool(near.mean() > 0.5)


def test_land_is_where_land_is(browser: Browser, map_server: Running) -> None:
    viewport = {"width": 1600, "height": 1100}
    with opened(browser, viewport=viewport, color_scheme="light") as context:
        signed_in(context, map_server.key, subscriber="nobody")
        page = MapPage(context, map_server.url).open()
        page.pixel(0, 0)
        # The fine coasts have come, and the map rests.
        expect(page.page.locator(".map[data-coasts=fine]")).to_be_visible()
        picture = image.imread(io.BytesIO(page.canvas.screenshot()))
        for kind, places in (("land", LAND), ("water", WATER)):
            for name, place in places.items():
                x, y = page.pixel(*place)
                assert is_mostly(picture, x, y, COLORS[kind]), f"{name} is not {kind}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 800), (390, 844)], ids=["wide", "phone"])
def test_axe_finds_nothing_serious(
    browser: Browser, map_server: Running, scheme: Any, size: tuple[int, int]
) -> None:
    source = (ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js").read_text()
    viewport = {"width": size[0], "height": size[1]}
    with opened(browser, viewport=viewport, color_scheme=scheme) as context:
        page = MapPage(context, map_server.url)
        page.page.goto(map_server.url)
        page.button("Sign in").wait_for()
        assert serious(page, source) == []
        page.page.get_by_label("Key").fill(map_server.key)
        page.button("Sign in").click()
        page.is_live()
        page.button("Just watch").wait_for()
        assert serious(page, source) == []
        page.button("Just watch").click()
        tabs = ["Publish", "Operations", "Subscriptions"] + (["Feed"] if size[0] < 600 else [])
        for tab in tabs:
            page.tab(tab)
            assert serious(page, source) == []
        page.tab("Subscriptions")
        page.button("New subscription").click()
        page.button("Ranked").click()
        assert serious(page, source) == []


def serious(page: MapPage, source: str) -> list[str]:
    """Return what axe-core finds; evaluated by the debugger, which no content policy stops."""
    page.page.evaluate(source)
    found = page.page.evaluate("async () => (await axe.run(document)).violations")
    return [
        f"{one['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def test_the_page_can_be_used_by_keyboard(browser: Browser, map_server: Running) -> None:
    with opened(browser) as context:
        signed_in(context, map_server.key, subscriber="keys")
        page = MapPage(context, map_server.url).open()
        page.page.get_by_role("tab", name="Subscriptions").focus()
        page.page.keyboard.press("ArrowRight")
        expect(page.page.get_by_role("tab", name="Publish")).to_be_focused()
        expect(page.page.get_by_label("Message", exact=True)).to_be_visible()
        page.page.keyboard.press("/")
        expect(page.page.get_by_label("Filter the feed")).to_be_focused()
        page.page.keyboard.press("Escape")
        page.page.keyboard.press("n")
        expect(page.page.get_by_role("heading", name="New subscription")).to_be_visible()


def test_nothing_is_wider_than_a_phone(browser: Browser, map_server: Running) -> None:
    with opened(browser, viewport={"width": 360, "height": 740}) as context:
        signed_in(context, map_server.key, subscriber="phone")
        page = MapPage(context, map_server.url).open()
        for tab in ("Feed", "Publish", "Operations", "Subscriptions"):
            page.tab(tab)
            width = page.page.evaluate("() => document.documentElement.scrollWidth")
            assert width <= 360, f"{tab} is {width} pixels wide"


def test_light_and_dark_can_be_switched_and_are_kept(browser: Browser, map_server: Running) -> None:
    with opened(browser, color_scheme="light") as context:
        signed_in(context, map_server.key, subscriber="theme")
        page = MapPage(context, map_server.url).open()
        html = page.page.locator("html")
        expect(html).to_have_attribute("data-theme", "light")
        page.button("Switch to dark").click()
        expect(html).to_have_attribute("data-theme", "dark")
        page.page.reload()
        expect(html).to_have_attribute("data-theme", "dark")
