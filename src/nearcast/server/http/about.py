"""What a page has to know of the server before anybody has signed in."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from nearcast import __version__
from nearcast.server.http.answers import json_answer
from nearcast.server.http.context import context_of
from nearcast.server.http.models import Resource
from nearcast.server.http.parameters import check_parameters

__all__ = ["router"]

router = APIRouter(tags=["signing in"])


class About(Resource):
    """What the server is."""

    name: str = Field(examples=["Nearcast"])
    version: str = Field(examples=["1.0.0"])
    demo: bool = Field(description="Whether browsers on the same machine need no key.")
    tiles: str | None = Field(
        description="The background of the map, if the server was started with `--tiles`.",
        examples=["https://tiles.example.com/{z}/{x}/{y}.png"],
    )
    epoch: int = Field(description="What ids of new events begin with.", examples=[1795888800])


@router.get("/about", response_model=About)
async def about(request: Request) -> Response:
    """Tell what the server is. Needs no key."""
    check_parameters(request)
    context = context_of(request)
    return json_answer(
        {
            "name": "Nearcast",
            "version": __version__,
            "demo": context.settings.demo,
            "tiles": context.settings.tiles,
            "epoch": context.service.log.epoch,
        }
    )
