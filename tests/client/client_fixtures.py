"""What tests of the client share: a real server, and each client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from both import AnyClient
    from running import Running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    from running import running_server  # only here: all tests load this module

    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(params=["blocking", "asyncio"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(kind: str, server: Running) -> Iterator[AnyClient]:
    from both import opened

    with opened(kind, server.url, server.key) as client:
        yield client
