"""Routes of subscribers: the stream of events, by SSE, NDJSON, WebSocket or polling."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from nearcast.errors import InvalidInput
from nearcast.server.delivery.rendering import event_id, json_text, sse_frame
from nearcast.server.http.answers import accepted_type
from nearcast.server.http.auth import Principal, principal_of
from nearcast.server.http.connections import connection_of
from nearcast.server.http.context import Context, context_of, may, named_reader
from nearcast.server.http.correlators import correlator_of
from nearcast.server.http.messages import JSON, NDJSON
from nearcast.server.http.models import timestamp_text
from nearcast.server.http.parameters import check_names
from nearcast.server.http.problems import Problem, problem_of
from nearcast.server.http.subscribers import resolved_position

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import Receive, Scope, Send

    from nearcast.server.delivery.feeds import Feed
    from nearcast.server.delivery.paced import PacedFeed
    from nearcast.server.delivery.rendering import Rendered
    from nearcast.server.http.connections import Connection
    from nearcast.server.service import Gap

__all__ = ["router"]

router = APIRouter(tags=["events"])
SSE = "text/event-stream"
_WEBSOCKET_PARAMETERS = ("access_token", "all", "cursor", "subscriber")
_EXPIRING_S = 60.0
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_EXAMPLE = (
    "id: 1795888800-42\nevent: match\n"
    'data: {"specversion":"1.0","id":"1795888800-42","type":"org.nearcast.match",'
    '"data":{"message":{"text":"Fresh coffee","lon":13.4,"lat":52.5},'
    '"matches":[{"subscriptionId":"sub-7","sign":1}]}}\n\n'
)


@router.get(
    "/events",
    response_class=Response,
    responses={
        200: {
            "description": "Events, without end; or, with `poll`, those that are there.",
            "content": {
                SSE: {"schema": {"type": "string"}, "example": _EXAMPLE},
                NDJSON: {"schema": {"type": "string"}},
                JSON: {"schema": {"type": "object"}},
            },
        }
    },
)
async def read_events(
    request: Request,
    principal: Annotated[Principal, Depends(may("subscribe"))],
    subscriber: Annotated[
        str | None,
        Query(min_length=1, max_length=256, description="Whose events; those of the key's own."),
    ] = None,
    everyone: Annotated[
        bool,
        Query(
            alias="all",
            description="The events of all subscribers of the tenant; each match names its own.",
        ),
    ] = False,
    cursor: Annotated[
        str | None,
        Query(
            max_length=260,
            description=(
                "After which event: an id, `now` (the default), `earliest`, a time, or `@name` for "
                "a cursor that the server keeps."
            ),
        ),
    ] = None,
    poll: Annotated[bool, Query(description="Return what is there, and end.")] = False,
    limit: Annotated[int, Query(ge=1, le=1_000, description="How many, with `poll`.")] = 100,
    wait_s: Annotated[
        float, Query(alias="waitS", ge=0, le=60, description="How long `poll` waits for events.")
    ] = 0.0,
    access_token: Annotated[
        str | None, Query(description="A token, for browsers that cannot set headers.")
    ] = None,
) -> Response:
    """Receive events as they come, each once and in order.

    The id of an event is a cursor: send it back as `Last-Event-ID` or `cursor`, and the stream goes
    on after it. If that is no longer possible, the first event is a `gap`.
    """
    context = context_of(request)
    name = named_reader(principal, subscriber, everyone)
    accept = ",".join(request.headers.getlist("accept"))
    if poll:
        accepted_type(accept, [JSON])
    else:
        lines = accepted_type(accept, [SSE, NDJSON], ", or add poll=1 for JSON") == NDJSON
    given = request.headers.get("last-event-id") or cursor or "now"
    position, gap = await resolved_position(context, principal, name, given)
    feed = await context.feed(principal.tenant, name, position)
    context.missing(gap, "poll" if poll else "ndjson" if lines else "sse")
    feed.feed.allowed = lambda: context.authenticator.allows(request.scope)
    if poll:
        if principal.expires_s is not None:
            wait_s = max(0.0, min(wait_s, principal.expires_s - time.time()))
        try:
            return await _poll(context, feed, gap, limit, wait_s)
        finally:
            feed.feed.close()
    return EventStream(context, feed, gap, lines=lines, expires_s=principal.expires_s)


@router.websocket("/events")
async def read_events_by_websocket(websocket: WebSocket) -> None:
    """Send events as text frames, one CloudEvent each; a gap is `{"gap": {...}}`."""
    context = context_of(websocket)
    principal = principal_of(websocket.scope)
    try:
        principal.require("subscribe")
        check_names(websocket.query_params, _WEBSOCKET_PARAMETERS)
        given = websocket.query_params
        name = named_reader(principal, given.get("subscriber"), _is_set(given, "all"))
        cursor = given.get("cursor") or "now"
        position, gap = await resolved_position(context, principal, name, cursor)
    except (Problem, InvalidInput) as error:
        problem = error if isinstance(error, Problem) else problem_of(error)
        await websocket.send_denial_response(problem.response(correlator_of(websocket.scope)))
        return
    paced = await context.feed(principal.tenant, name, position)
    feed = paced.feed
    feed.allowed = lambda: context.authenticator.allows(websocket.scope)
    watcher = asyncio.create_task(_watch(websocket, feed))
    expiry = _Expiry(feed, principal.expires_s)
    context.missing(gap, "websocket")
    streams = context.metrics.streams.labels("websocket")
    streams.inc()
    try:
        await websocket.accept()
        if gap is not None:
            await websocket.send_text((b'{"gap":%s}' % _gap_data(gap)).decode())
        while not feed.ended:
            events = await paced.next()
            for event in events:
                await websocket.send_text(_object(event).decode())
            context.delivered(events, "websocket")
            if expiry.is_due():
                await websocket.send_text((b'{"expiring":%s}' % expiry.data).decode())
        await websocket.close(1012)
    except (WebSocketDisconnect, RuntimeError):
        pass  # it is gone
    finally:
        streams.dec()
        watcher.cancel()
        expiry.cancel()
        feed.close()


def _is_set(parameters: Mapping[str, str], name: str) -> bool:
    """Return whether a parameter is 1 or true; HTTP requests are checked by their models."""
    given = parameters.get(name, "0").lower()
    if given not in ("0", "1", "false", "true"):
        raise InvalidInput(name, given, "must be 0 or 1")
    return given in ("1", "true")


async def _watch(websocket: WebSocket, feed: Feed) -> None:
    """End a feed when its client is gone; what the client says is ignored, text and bytes."""
    with suppress(RuntimeError):
        while (await websocket.receive())["type"] != "websocket.disconnect":
            pass
    feed.end()


def _gap_data(gap: Gap) -> bytes:
    lost = b"null" if gap.lost is None else b"%d" % gap.lost
    return b'{"from":%s,"to":%s,"lost":%s}' % (json_text(gap.after), json_text(gap.to), lost)


async def _poll(
    context: Context, paced: PacedFeed, gap: Gap | None, limit: int, wait_s: float
) -> Response:
    """Return events that are there, or the first ones that come until a time."""
    events: list[Rendered] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s or None):
            if not wait_s:
                paced.feed.wake()
            events = await paced.next()
    while events and len(events) < limit:  # more that are there already
        paced.feed.wake()
        more = await paced.next()
        if not more:
            break
        events += more
    if not events and paced.feed.damage is not None:  # nobody may take it for the end
        raise paced.feed.damage
    events = events[:limit]
    context.delivered(events, "poll")
    position = events[-1].position if events else paced.position
    epoch = context.service.epoch_at(position)
    gaps = [] if gap is None else [_gap_data(gap)]
    gaps += [event.body for event in events if event.type == b"gap"]
    body = b'{"events":[%s],"cursor":"%s"%s}' % (
        b",".join([event.body for event in events if event.type != b"gap"]),
        event_id(epoch, position).encode(),
        b',"gap":' + gaps[0] if gaps else b"",
    )
    return Response(body, media_type=JSON, headers=_HEADERS)


class _Expiry:
    """Ends a stream when its token expires, and tells once, a minute before, that it will.

    For a stream that is opened less than two minutes before, it is after half of the time that is
    left: clients that renew their tokens then do not do it all the time.
    """

    def __init__(self, feed: Feed, expires_s: int | None) -> None:
        self._feed, self._due = feed, False
        self._timers: list[asyncio.TimerHandle] = []
        self.data = b""
        if expires_s is not None:
            self.data = b'{"expiresAt":%s}' % json_text(timestamp_text(expires_s * 1_000_000))
            left_s = expires_s - time.time()
            wait_s = max(left_s - _EXPIRING_S, left_s / 2)
            loop = asyncio.get_running_loop()
            self._timers.append(loop.call_later(wait_s, self._wake))
            self._timers.append(loop.call_later(left_s, feed.end))

    def _wake(self) -> None:
        self._due = True
        self._feed.wake()

    def is_due(self) -> bool:
        """Return whether it is time to tell; only once."""
        due, self._due = self._due and not self._feed.ended, False
        return due

    def cancel(self) -> None:
        """Forget about it: the stream has ended."""
        for timer in self._timers:
            timer.cancel()


class EventStream(Response):
    """An answer without end: events as they come.

    Several events that are ready go out with one write; while the client takes everything, without
    waking the task. One that does not read makes the writer wait, and its feed goes back to the
    event store later.
    """

    def __init__(
        self,
        context: Context,
        paced: PacedFeed,
        gap: Gap | None,
        *,
        lines: bool,
        expires_s: int | None,
    ) -> None:
        super().__init__(media_type=NDJSON if lines else SSE, headers=_HEADERS)
        del self.headers["content-length"]
        self._context, self._paced, self._gap = context, paced, gap
        self._feed = paced.feed
        self._frame: Callable[[Rendered], bytes] = _line if lines else sse_frame
        self._lines = lines
        self._expiry = _Expiry(self._feed, expires_s)
        self._kind = "ndjson" if lines else "sse"
        self._abort: Callable[[], object] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client or the server ends."""
        watcher = asyncio.create_task(self._watch(receive))
        streams = self._context.metrics.streams.labels(self._kind)
        streams.inc()
        connection = connection_of(scope)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if connection is not None:
                self._abort = connection.abort
                self._paced.send_at_once(connection.is_free, partial(self._send, connection))
            await self._write(send, self._opening())
            while not self._feed.ended:
                events = await self._paced.next()
                if events:
                    await self._write(send, b"".join(map(self._frame, events)))
                    self._context.delivered(events, self._kind)
                if self._expiry.is_due():
                    await self._write(send, self._expiring())
                elif not events:
                    await self._write(send, self._bookmark())
            with suppress(OSError, RuntimeError):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            streams.dec()
            watcher.cancel()
            self._expiry.cancel()
            self._feed.close()

    def _send(self, connection: Connection, events: list[Rendered]) -> None:
        try:
            connection.write(b"".join(map(self._frame, events)))
        except (OSError, RuntimeError):  # as in `_write`; the other feeds of the block go on
            self._feed.end()
            return
        self._context.delivered(events, self._kind)

    async def _write(self, send: Send, data: bytes) -> None:
        self._feed.writing(self._abort)
        try:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        except (OSError, RuntimeError):  # the connection is gone, and nobody has noticed yet
            self._feed.end()
        self._feed.written()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._feed.end()

    def _opening(self) -> bytes:
        """Return what comes first: a gap, or a sign that the stream is open."""
        if self._gap is None:
            return b"\n" if self._lines else b": open\n\n"
        data = _gap_data(self._gap)
        if self._lines:
            return b'{"gap":%s}\n' % data
        return b"event: gap\ndata: %s\n\n" % data

    def _bookmark(self) -> bytes:
        """Return the present position, for clients to come back to; it keeps connections alive."""
        return b"\n" if self._lines else b"id: %s\n\n" % self._cursor()

    def _expiring(self) -> bytes:
        """Return what says that the token ends soon, with the cursor to go on from."""
        data = self._expiry.data
        if self._lines:
            return b'{"expiring":%s}\n' % data
        return b"id: %s\nevent: expiring\ndata: %s\n\n" % (self._cursor(), data)

    def _cursor(self) -> bytes:
        position = self._paced.position
        return event_id(self._context.service.epoch_at(position), position).encode()


def _object(event: Rendered) -> bytes:
    """Return an event without a type beside it: a gap says what it is."""
    return b'{"gap":%s}' % event.body if event.type == b"gap" else event.body


def _line(event: Rendered) -> bytes:
    return _object(event) + b"\n"
