"""Pages of other origins, and ids that must be part of paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from running import resource, running_server

if TYPE_CHECKING:
    from pathlib import Path

ORIGIN = "https://app.example.com"


def test_pages_of_allowed_origins_only(tmp_path: Path) -> None:
    with running_server(tmp_path, allow_origins=(ORIGIN,)) as server:
        asked = {"Access-Control-Request-Method": "POST", "Origin": ORIGIN}
        asked["Access-Control-Request-Headers"] = "authorization, idempotency-key"
        with httpx.Client(base_url=server.url) as client:
            allowed = client.options("/v1/messages", headers=asked)
            assert allowed.headers["access-control-allow-origin"] == ORIGIN
            refused = client.options(
                "/v1/messages", headers={**asked, "Origin": "https://evil.example.com"}
            )
            assert "access-control-allow-origin" not in refused.headers


def test_without_origins_there_is_no_permission(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, httpx.Client(base_url=server.url) as client:
        answer = client.get("/healthz", headers={"Origin": ORIGIN})
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("id", ["a/b", ".", ".."])
def test_ids_that_no_path_can_have_are_refused(id: str, tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        headers = {"Authorization": f"Bearer {server.key}"}
        with httpx.Client(base_url=server.url, headers=headers) as client:
            answer = client.post("/v1/subscriptions", json=resource("tea", id=id))
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "id")
