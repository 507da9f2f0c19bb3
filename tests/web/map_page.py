"""The page in Chromium, as tests and the pictures of the documentation use it."""

from __future__ import annotations

import json
import math
import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nearcast.server import http

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Request

__all__ = ["ROOT", "MapPage", "launched", "mercator", "missing", "opened", "signed_in"]

ROOT = Path(__file__).parents[2]
BUILT = Path(http.__file__).parent / "web" / "index.html"
# Without a graphics card, Chromium draws with SwiftShader.
FLAGS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
WIDE = (1280, 800)
_SESSION = "nearcast.session"


def missing() -> str | None:
    """Return why there can be no page here; None if there can."""
    if shutil.which("chromium") is None:
        return "Chromium is not installed: apt-get install chromium"
    if not BUILT.is_file():
        return "the page is not built: make web, which needs Node.js"
    return None


@contextmanager
def launched() -> Iterator[Browser]:
    """Run Chromium until the end of the block; skip the test, saying why, where there is none."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, **options: Any) -> Iterator[BrowserContext]:
    """Open a profile of a browser for a block; its pages must not break any rule.

    Rules: no error and no violation of the content policy in the console, and no request to
    another server.
    """
    options.setdefault("viewport", {"width": WIDE[0], "height": WIDE[1]})
    context = browser.new_context(reduced_motion="reduce", **options)
    broken: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        expected = "Failed to load resource"  # an answer that the page shows, such as 401
        if message.type == "error" and expected not in message.text:
            broken.append(message.text)

    def requested(request: Request) -> None:
        if not re.match(r"(http://127\.0\.0\.1:\d+/|data:|blob:)", request.url):
            broken.append(f"a request to {request.url}")

    context.on("console", heard)
    context.on("weberror", lambda error: broken.append(str(error.error)))
    context.on("request", requested)
    try:
        yield context
    finally:
        context.close()
    assert not broken, broken


def signed_in(context: BrowserContext, key: str, subscriber: str = "default") -> None:
    """Sign in all pages of a profile, and close the introduction, before they are loaded."""
    session = json.dumps(json.dumps({"credential": key, "subscriber": subscriber}))
    context.add_init_script(
        f"if (location.protocol === 'http:') {{ localStorage.setItem({_SESSION!r}, {session});"
        " localStorage.setItem('nearcast.introduced', 'yes'); }"
    )


def mercator(lon: float, lat: float) -> tuple[float, float]:
    """Return a place in Web Mercator, from 0 to 1."""
    y = math.log(math.tan(math.pi / 4 + math.radians(lat) / 2))
    return (lon + 180) / 360, (1 - y / math.pi) / 2


class MapPage:
    """A page, in the words of a person who uses it."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.page: Page = context.new_page()
        self.url = url
        self._scale: tuple[float, float, float] | None = None

    def open(self) -> MapPage:
        """Load the page, and wait until it is live and the map is there."""
        self.page.goto(self.url)
        self.is_live()
        self.canvas.wait_for()
        return self

    def is_live(self) -> None:
        """Wait until the stream is open."""
        self.page.locator(".stream.open").wait_for()

    @property
    def canvas(self) -> Locator:
        """The map."""
        return self.page.locator("canvas.maplibregl-canvas")

    @property
    def events(self) -> Locator:
        """The entries of the feed with messages, the newest first."""
        return self.page.locator(".feed .entry[data-id]")

    @property
    def ids(self) -> list[str]:
        """The ids of the shown events, the oldest first."""
        shown = self.events.evaluate_all("all => all.map(one => one.dataset.id)")
        return list(reversed(shown))

    def button(self, name: str) -> Locator:
        """Return the button with exactly this name."""
        return self.page.get_by_role("button", name=name, exact=True)

    def tab(self, name: str) -> None:
        """Open a panel."""
        self.page.get_by_role("tab", name=name).click()

    def event(self, text: str) -> Locator:
        """Return the entries of the feed with a text."""
        return self.events.filter(has_text=text)

    # --- places on the map -------------------------------------------------------------------

    def pixel(self, lon: float, lat: float) -> tuple[float, float]:
        """Return where a place is on the map, in pixels from its corner.

        The first time, two clicks in the panel for publishing tell how the map is scaled.
        """
        if self._scale is None:
            self._scale = self._measured()
        left, top, size = self._scale
        x, y = mercator(lon, lat)
        return left + x * size, top + y * size

    def click_map(self, lon: float, lat: float) -> None:
        """Click on a place."""
        x, y = self.pixel(lon, lat)
        self.canvas.click(position={"x": x, "y": y})

    def drag_map(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press on a place, move to another one and let go."""
        box = self.canvas.bounding_box()
        assert box is not None
        (x1, y1), (x2, y2) = self.pixel(*start), self.pixel(*end)
        mouse = self.page.mouse
        mouse.move(box["x"] + x1, box["y"] + y1)
        mouse.down()
        mouse.move(box["x"] + (x1 + x2) / 2, box["y"] + (y1 + y2) / 2, steps=4)
        mouse.move(box["x"] + x2, box["y"] + y2, steps=4)
        mouse.up()

    def touch_and_drag_map(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Put a finger on a place, move it to another one and take it away."""
        box = self.canvas.bounding_box()
        assert box is not None
        (x1, y1), (x2, y2) = self.pixel(*start), self.pixel(*end)
        touch = self.page.context.new_cdp_session(self.page)
        for step in range(9):
            x, y = x1 + (x2 - x1) * step / 8, y1 + (y2 - y1) * step / 8
            finger = {"x": box["x"] + x, "y": box["y"] + y}
            kind = "touchMove" if step else "touchStart"
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [finger]})
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    def _measured(self) -> tuple[float, float, float]:
        """Return left, top and size of the world on the map, in pixels."""
        self.tab("Publish")
        corners = [(150.0, 150.0), (450.0, 500.0)]
        places = [self.place_at(*corner) for corner in corners]
        self.tab("Subscriptions")
        (x1, y1), (x2, y2) = (mercator(*place) for place in places)
        size = (corners[1][0] - corners[0][0]) / (x2 - x1)
        assert abs((corners[1][1] - corners[0][1]) / (y2 - y1) - size) < 2
        return corners[0][0] - x1 * size, corners[0][1] - y1 * size, size

    def place_at(self, x: float, y: float) -> tuple[float, float]:
        """Return the place at a pixel of the map, by a click in the panel for publishing."""
        from playwright.sync_api import expect

        field = self.page.get_by_label("Place (lat, lon)")
        before = field.input_value()
        self.canvas.click(position={"x": x, "y": y})
        expect(field).not_to_have_value(before)
        lat, lon = map(float, field.input_value().split(","))
        return lon, lat
