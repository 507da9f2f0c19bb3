"""The pages: the built one at ``/``, a plain one at ``/plain``, and a strict content policy.

The built page is a folder that ``make web`` makes: ``index.html``, and files whose names have a
hash of their content in ``assets``. Without it, the plain page is at ``/`` as well. That one needs
no build step. Neither loads anything from elsewhere, except for tiles if the operator names some.
"""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from nearcast.server.http.context import context_of
from nearcast.server.http.problems import Problem
from nearcast.server.http.tiles import tile_origin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nearcast.server.http.context import Settings

__all__ = ["content_policy", "router"]

router = APIRouter(include_in_schema=False)

_NO_CACHE = "no-cache"
_A_YEAR = "public, max-age=31536000, immutable"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".geojson": "application/geo+json",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_NAME = re.compile(r"[\w-][\w.-]{0,199}", re.ASCII)
"""Names that file systems can look up; the compressed file has three characters more."""

_GZIP = re.compile(r"(?:^|,)\s*(?:x-)?gzip\s*(?:;\s*q\s*=\s*([\d.]+)\s*)?(?:,|$)", re.IGNORECASE)


def content_policy(tiles: str | None = None) -> str:
    """Return the content policy of the pages; tiles may come from their origin.

    Examples
    --------
    >>> "connect-src 'self';" in content_policy()
    True
    >>> content_policy("https://example.com/{z}/{x}/{y}.png").split("; ")[4]
    "img-src 'self' data: blob: https://example.com"
    """
    more = "" if tiles is None else f" {tile_origin(tiles)}"
    return (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; "
        f"img-src 'self' data: blob:{more}; connect-src 'self'{more}; form-action 'none'; "
        "base-uri 'none'; frame-ancestors 'none'"
    )


@router.get("/")
async def index(request: Request) -> Response:
    """Return the built page, or the plain one."""
    settings = context_of(request).settings
    path = settings.web / "index.html"
    if not path.is_file():
        return await plain(request)
    return await _file(request, path, _NO_CACHE)


@router.get("/plain")
async def plain(request: Request) -> Response:
    """Return the plain page."""
    return _plain_file(request, "index.html")


@router.get("/page.css")
async def style(request: Request) -> Response:
    """Return the style of the plain page."""
    return _plain_file(request, "page.css")


@router.get("/page.js")
async def script(request: Request) -> Response:
    """Return the script of the plain page."""
    return _plain_file(request, "page.js")


@router.get("/assets/{name}")
async def asset(name: str, request: Request) -> Response:
    """Return a file of the built page; its name changes with its content."""
    return await _file(request, context_of(request).settings.web / "assets" / name, _A_YEAR)


def _headers(settings: Settings, cache: str) -> dict[str, str]:
    return {
        "Content-Security-Policy": content_policy(settings.tiles),
        "Referrer-Policy": "no-referrer",
        "Cache-Control": cache,
    }


def _plain_file(request: Request, name: str) -> Response:
    content = (files("nearcast.server.http") / "page" / name).read_bytes()
    headers = _headers(context_of(request).settings, _NO_CACHE)
    return Response(content, media_type=_TYPES[Path(name).suffix], headers=headers)


async def _file(request: Request, path: Path, cache: str) -> Response:
    """Return a file; the compressed one beside it if there is one and the client takes it."""
    media_type = _TYPES.get(path.suffix)
    if media_type is None or _NAME.fullmatch(path.name) is None or not path.is_file():
        raise Problem(404, "NOT_FOUND", "there is no such page")
    headers = _headers(context_of(request).settings, cache)
    compressed = path.with_name(f"{path.name}.gz")
    if compressed.is_file():
        headers["Vary"] = "Accept-Encoding"
        if _accepts_gzip(request.headers):
            path = compressed
            headers["Content-Encoding"] = "gzip"
    content = await asyncio.to_thread(_read, path)
    return Response(content, media_type=media_type, headers=headers)


def _read(path: Path) -> bytes:
    """Return the content of a file: the same object for all who take long to receive it."""
    status = path.stat()
    return _content(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)
def _content(path: Path, time_ns: int, size: int) -> bytes:
    del time_ns, size
    return path.read_bytes()


def _accepts_gzip(headers: Mapping[str, str]) -> bool:
    """Whether a client takes gzip.

    Examples
    --------
    >>> [_accepts_gzip({"accept-encoding": a}) for a in ("br, gzip", "gzip;q=0", "identity", "")]
    [True, False, False, False]
    """
    found = _GZIP.search(headers.get("accept-encoding", ""))
    return found is not None and (found[1] is None or found[1].strip("0.") != "")
