"""What tests of the page share: a real server, a real browser, and a profile for each test.

Only fixtures import what they need: all tests load this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx
    from playwright.sync_api import Browser, BrowserContext

    from map_page import MapPage
    from running import Running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from map_page import launched

    with launched() as browser:
        from playwright.sync_api import expect

        expect.set_options(timeout=30_000)  # for machines that have other things to do
        yield browser


@pytest.fixture(scope="module")
def map_server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    from running import running_server

    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def profile(
    browser: Browser, map_server: Running, request: pytest.FixtureRequest
) -> Iterator[BrowserContext]:
    """A profile that is signed in as a subscriber of its own: tests do not see each other."""
    from map_page import opened, signed_in

    with opened(browser) as context:
        signed_in(context, map_server.key, subscriber=request.node.name)
        yield context


@pytest.fixture
def page(profile: BrowserContext, map_server: Running) -> MapPage:
    from map_page import MapPage

    return MapPage(profile, map_server.url).open()


@pytest.fixture
def api(map_server: Running) -> Iterator[httpx.Client]:
    """The same server over HTTP, with all rights."""
    with map_server.client() as client:
        yield client
