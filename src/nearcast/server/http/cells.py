"""The route with which a map shows a million subscriptions: how many there are where."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from nearcast.server.http.answers import json_answer
from nearcast.server.http.auth import Principal
from nearcast.server.http.boxes import parse_bbox
from nearcast.server.http.context import context_of, may
from nearcast.server.http.models import Resource
from nearcast.server.http.problems import Problem
from nearcast.server.matching.density import count_subscriptions

__all__ = ["router"]

router = APIRouter(tags=["subscriptions"])

_OTHER_METHODS = (
    "ACL BIND CHECKOUT CONNECT COPY DELETE HEAD LINK LOCK M-SEARCH MERGE MKACTIVITY MKCALENDAR "
    "MKCOL MOVE NOTIFY OPTIONS PATCH POST PROPFIND PROPPATCH PURGE PUT QUERY REBIND REPORT SEARCH "
    "SOURCE SUBSCRIBE TRACE UNBIND UNLINK UNLOCK UNSUBSCRIBE"
).split()
"""All that a request can have. /subscriptions/{id} would say its own for this path otherwise."""


class Cell(Resource):
    """A cell, and how many subscriptions have their center in it."""

    west: float = Field(ge=-180, le=180)
    south: float = Field(ge=-90, le=90)
    east: float = Field(ge=-180, le=180, description="Less than `west` across 180 degrees.")
    north: float = Field(ge=-90, le=90)
    count: int = Field(ge=1)


class Cells(Resource):
    """How many subscriptions there are in a part of the world, and where."""

    total: int = Field(ge=0, description="How many overlap the bbox.")
    cells: list[Cell] = Field(
        description="The cells that have some, from the southwest. A subscription counts in the "
        "cell that has the center of its bounding box, if that is in the bbox.",
        examples=[[{"west": 13.0, "south": 52.0, "east": 13.25, "north": 52.25, "count": 17}]],
    )


@router.api_route("/subscriptions/cells", methods=_OTHER_METHODS, include_in_schema=False)
async def refuse() -> Response:
    """Refuse other methods: this is no subscription."""
    raise Problem(405, "METHOD_NOT_ALLOWED", "Method Not Allowed", headers={"Allow": "GET"})


@router.get("/subscriptions/cells", response_model=Cells)
async def count(
    request: Request,
    principal: Annotated[Principal, Depends(may("subscribe"))],
    bbox: Annotated[
        str,
        Query(
            max_length=200,
            description="west,south,east,north; west > east across 180.",
            examples=["13,52,14,53"],
        ),
    ],
    columns: Annotated[int, Query(ge=1, le=256, description="How many columns of cells.")] = 32,
    subscriber: Annotated[str | None, Query(min_length=1, max_length=256)] = None,
) -> Response:
    """Count subscriptions in the cells of a grid, for maps that cannot draw all of them.

    Those that are `ACTIVE` or `INACTIVE` count, where they are now. Cells are about square in
    degrees.
    """
    if subscriber is not None:
        principal.require_subscriber(subscriber)
    found = await asyncio.to_thread(
        count_subscriptions,
        context_of(request).service.registry,
        principal.tenant,
        subscriber or principal.subscriber,
        parse_bbox(bbox),
        columns,
    )
    cells = [{**cell.box._asdict(), "count": cell.subscriptions} for cell in found.cells]
    return json_answer({"total": found.total, "cells": cells})
