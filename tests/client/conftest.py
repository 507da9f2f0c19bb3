"""What tests of the client share: a real server, and each client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from both import CLIENTS, AnyClient, opened
from running import Running, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(params=CLIENTS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(kind: str, server: Running) -> Iterator[AnyClient]:
    with opened(kind, server.url, server.key) as client:
        yield client
