"""The plain page at ``/``: no build step, nothing from elsewhere, a strict content policy."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import Response

__all__ = ["POLICY", "router"]

router = APIRouter(include_in_schema=False)
POLICY = (
    "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_TYPES = {
    "index.html": "text/html",
    "page.css": "text/css",
    "page.js": "text/javascript",
}


def _page(name: str) -> Response:
    content = (files("nearcast.server.http") / "page" / name).read_bytes()
    return Response(content, media_type=_TYPES[name], headers=_HEADERS)


@router.get("/")
async def index() -> Response:
    """Return the page."""
    return _page("index.html")


@router.get("/page.css")
async def style() -> Response:
    """Return the style of the page."""
    return _page("page.css")


@router.get("/page.js")
async def script() -> Response:
    """Return the script of the page."""
    return _page("page.js")
