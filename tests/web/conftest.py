"""What tests of the page share: a real server, a real browser, and a profile for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from map_page import MapPage, launched, opened, signed_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx
    from playwright.sync_api import Browser, BrowserContext
    from running import Running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    from running import running_server

    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def context(browser: Browser, server: Running, request: pytest.FixtureRequest) -> Iterator[BrowserContext]:
    """A profile that is signed in as a subscriber of its own: tests do not see each other."""
    with opened(browser) as context:
        signed_in(context, server.key, subscriber=request.node.name)
        yield context


@pytest.fixture
def page(context: BrowserContext, server: Running) -> MapPage:
    return MapPage(context, server.url).open()


@pytest.fixture
def api(server: Running) -> Iterator[httpx.Client]:
    """The same server over HTTP, with all rights."""
    with server.client() as client:
        yield client
