"""The route that tells how a message is found: words, trie nodes, and boxes for a map."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends
from pydantic import Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response

from nearcast.columns import UNITS
from nearcast.model import Message
from nearcast.server.http.answers import json_answer
from nearcast.server.http.auth import Principal
from nearcast.server.http.context import context_of, may
from nearcast.server.http.models import Resource
from nearcast.server.http.problems import Problem
from nearcast.server.http.publishing import find_message

if TYPE_CHECKING:
    from nearcast.engine import SegmentTrace, Trace
    from nearcast.indexes.tracing import TracedBox
    from nearcast.server.service import Service

__all__ = ["MAX_BOXES", "MAX_NODES", "router"]

router = APIRouter(tags=["explanations"])

MAX_NODES, MAX_BOXES = 200, 2_000
"""How many nodes and boxes an answer has at most."""

_WORLD = (-180.0, -90.0, 180.0, 90.0)
_MOVED = "These have moved, and are in an index that is made for moves."
_RANKED = "An index of ranked subscriptions only tells how many were compared."
_OTHERS = "This index only tells how many were compared."


class Box(Resource):
    """A box that was compared with the message."""

    west: float = Field(ge=-180, le=180)
    south: float = Field(ge=-90, le=90)
    east: float = Field(ge=-180, le=180)
    north: float = Field(ge=-90, le=90)
    level: int = Field(
        ge=0, description="0: a subscription; 1: a block of them; 2: a block of blocks; ..."
    )
    opened: bool = Field(description="Whether it overlaps the message, so that it was looked into.")


class Node(Resource):
    """A node of the trie that the words of the message led to."""

    path: list[str] = Field(description="The words on the way to it.", examples=[["coffee"]])
    scoped: bool = Field(description="Whether the tenant is on the way to it, as a word would be.")
    clauses: int = Field(ge=0, description="How many clauses are in it.")
    examined: int = Field(ge=0, description="How many of them were compared.")
    matched: int = Field(ge=0, description="How many subscriptions match because of it.")
    boxes: list[Box]


class Segment(Resource):
    """Subscriptions of one kind in a segment of the engine."""

    index: str = Field(examples=["trie-pyramid"])
    kind: Literal["boolean", "proximity", "overlap", "moving"]
    subscriptions: int = Field(ge=0)
    examined: int = Field(ge=0)
    matched: int = Field(ge=0)
    nodes: list[Node]
    untraced: str | None = Field(description="Why there are no nodes; null if there could be some.")


class TraceAnswer(Resource):
    """How the subscriptions that match a message are found."""

    id: str = Field(examples=["1795888800-42"])
    message: dict[str, JsonValue]
    tokens: list[str] = Field(examples=[["fresh", "coffee"]])
    examined: int = Field(ge=0)
    matches: int = Field(ge=0)
    segments: list[Segment]
    truncated: bool = Field(description="Whether there are more nodes or boxes than shown.")


@router.get("/messages/{id}/trace", response_model=TraceAnswer)
async def trace(
    id: str, request: Request, principal: Annotated[Principal, Depends(may("admin"))]
) -> Response:
    """Tell how the index finds a message: tokens, the trie nodes they lead to, boxes it compares.

    The message meets the subscriptions as they are now. At most 200 nodes and 2,000 boxes. Only
    admin keys of the tenant `default` can do this, because boxes are those of all tenants.
    """
    service = context_of(request).service
    if principal.tenant != 0 or principal.subscriber is not None:
        detail = "only admin keys of the tenant default can do this: it shows boxes of all tenants"
        raise Problem(403, "PERMISSION_DENIED", detail)
    if service.remote:
        detail = "a trace is not possible here: Spark matches the messages, not the server"
        raise Problem(400, "INVALID_ARGUMENT", detail)
    found = await asyncio.to_thread(_traced, service, principal.tenant, id)
    if found is None:
        raise Problem(404, "NOT_FOUND", "there is no such message, or it is no longer kept")
    return json_answer({"id": id, **found})


def _traced(service: Service, tenant: int, id: str) -> dict[str, Any] | None:
    found = find_message(service, tenant, id)
    if found is None:
        return None
    fields = msgspec.json.decode(found.blob)
    for name in ("properties", "time", "ttl_s"):  # it comes now
        fields.pop(name, None)
    message = Message.from_dict({**fields, "id": 0, "scope": str(tenant)})
    return {"message": msgspec.Raw(found.blob), **shown_trace(service.engine.trace(message))}


def shown_trace(trace: Trace) -> dict[str, Any]:
    """Return a trace as clients read it, with not too many nodes and boxes."""
    left = _Left()
    segments = [left.segment(segment) for segment in trace.segments]
    return {
        "tokens": list(trace.tokens),
        "examined": trace.examined,
        "matches": trace.matches,
        "segments": segments,
        "truncated": left.truncated,
    }


class _Left:
    """How many nodes and boxes may still be shown."""

    def __init__(self) -> None:
        self._nodes, self._boxes = MAX_NODES, MAX_BOXES
        self.truncated = False

    def segment(self, segment: SegmentTrace) -> dict[str, Any]:
        """Return a segment with the nodes that are left."""
        all_nodes = segment.nodes or ()
        nodes = all_nodes[: self._nodes]
        self._nodes -= len(nodes)
        self.truncated |= len(nodes) < len(all_nodes)
        return {
            "index": segment.index,
            "kind": segment.kind,
            "subscriptions": segment.subscriptions,
            "examined": segment.examined,
            "matched": segment.matches,
            "nodes": [
                {
                    "path": list(node.path),
                    "scoped": node.scoped,
                    "clauses": node.clauses,
                    "examined": node.examined,
                    "matched": node.matched,
                    "boxes": self._shown(node.boxes),
                }
                for node in nodes
            ],
            "untraced": None if segment.nodes is not None else _reason(segment),
        }

    def _shown(self, boxes: tuple[TracedBox, ...]) -> list[dict[str, Any]]:
        shown = boxes[: self._boxes]
        self._boxes -= len(shown)
        self.truncated |= len(shown) < len(boxes)
        return [_box(box) for box in shown]


def _reason(segment: SegmentTrace) -> str:
    """Return why a segment has no nodes."""
    if segment.kind == "moving":
        return _MOVED
    return _OTHERS if segment.kind == "boolean" else _RANKED


def _box(traced: TracedBox) -> dict[str, Any]:
    sides = [side / UNITS for side in traced.box]
    west, south = (max(side, edge) for side, edge in zip(sides[:2], _WORLD[:2], strict=True))
    east, north = (min(side, edge) for side, edge in zip(sides[2:], _WORLD[2:], strict=True))
    return {
        "west": west,
        "south": south,
        "east": east,
        "north": north,
        "level": traced.level,
        "opened": traced.opened,
    }
