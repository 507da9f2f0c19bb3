"""The pages and their files, by requests to a real server: what is served, and how."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from nearcast.errors import InvalidInput
from nearcast.server.http.tiles import tile_origin
from running import Running, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCRIPT = b"console.log('built');"
PLAIN = "Messages at places"


def build(folder: Path) -> Path:
    """Write what a built page consists of."""
    assets = folder / "assets"
    assets.mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>Built</title>")
    (assets / "index-1a2b.js").write_bytes(SCRIPT)
    (assets / "index-1a2b.js.gz").write_bytes(gzip.compress(SCRIPT, mtime=0))
    (assets / "world-3c4d.json").write_text("{}")
    (assets / "secret.pem").write_text("no")
    (folder / "beside.js").write_text("no")
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    web = build(tmp_path_factory.mktemp("web") / "page")
    (web.parent / "outside.js").write_text("no")
    with running_server(tmp_path_factory.mktemp("server"), web=web) as running:
        yield running


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    tiles = "https://tiles.example.com:8443/{z}/{x}/{y}.png"
    web = tmp_path_factory.mktemp("nothing") / "missing"
    with running_server(tmp_path_factory.mktemp("plain"), web=web, tiles=tiles) as running:
        yield running


def test_the_built_page_is_never_cached_and_has_a_strict_policy(built: Running) -> None:
    with built.client("") as client:
        answer = client.get("/")
    assert "<title>Built</title>" in answer.text
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    policy = answer.headers["content-security-policy"].split("; ")
    assert policy[:6] == [
        "default-src 'none'",
        "script-src 'self'",
        "worker-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
    ]


def test_assets_are_cached_and_compressed_for_those_who_can(built: Running) -> None:
    with built.client("") as client:
        for accepted, encoding in (("gzip, br", "gzip"), ("gzip;q=0", None), ("identity", None)):
            answer = client.get("/assets/index-1a2b.js", headers={"Accept-Encoding": accepted})
            assert answer.content == SCRIPT
            assert answer.headers.get("content-encoding") == encoding
            assert answer.headers["vary"] == "Accept-Encoding"
            assert answer.headers["content-type"].startswith("text/javascript")
            assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        other = client.get("/assets/world-3c4d.json")
        assert (other.headers["content-type"], "vary" in other.headers) == (
            "application/json",
            False,
        )


@pytest.mark.parametrize(
    "path",
    [
        "/assets/none.js",
        "/assets/secret.pem",
        "/assets/index-1a2b.js.gz",
        "/assets/..%2Findex.html",
        f"/assets/{'a' * 300}.js",
        f"/assets/{'a' * 252}.js",
        "/assets/%2e%2e%2f%2e%2e%2foutside.js",
        "/assets/",
        "/assets",
        "/beside.js",
        "/index.html",
        "/outside.js",
    ],
)
def test_nothing_else_is_served(built: Running, path: str) -> None:
    with built.client("") as client:
        answer = client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_plain_page_is_always_there(built: Running, plain: Running) -> None:
    for server, paths in ((built, ["/plain"]), (plain, ["/plain", "/"])):
        with server.client("") as client:
            for path in paths:
                answer = client.get(path)
                assert PLAIN in answer.text
                assert answer.headers["cache-control"] == "no-cache"
            assert client.get("/page.css").headers["content-type"].startswith("text/css")
            assert client.get("/page.js").headers["content-type"].startswith("text/javascript")


def test_tiles_may_come_from_their_origin(plain: Running) -> None:
    with plain.client("") as client:
        policy = client.get("/").headers["content-security-policy"].split("; ")
        about = client.get("/v1/about").json()
    assert "img-src 'self' data: blob: https://tiles.example.com:8443" in policy
    assert "connect-src 'self' https://tiles.example.com:8443" in policy
    assert "script-src 'self'" in policy
    assert about["tiles"] == "https://tiles.example.com:8443/{z}/{x}/{y}.png"


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/tiles",
        "ftp://example.com/{z}/{x}/{y}.png",
        "/{z}/{x}/{y}.png",
        "https://example.com; script-src *//{z}/{x}/{y}",
        "https://user@example.com/{z}/{x}/{y}.png",
        "https://*.example.com/{z}/{x}/{y}.png",
        "https://example.com/{z}/{x}/{y}.png\r\nX: y",
        "https://[::1/{z}/{x}/{y}.png",
    ],
)
def test_other_addresses_of_tiles_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="--tiles"):
        tile_origin(url)
