"""The sample stream inside a server: it subscribes, publishes and moves as clients would."""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from nearcast.errors import NearcastError
from nearcast.server.demo.samples import sample_messages, sample_movers, sample_subscriptions
from nearcast.server.http.imports import read_import, read_moves
from nearcast.server.http.messages import JSON, parse_messages
from nearcast.server.http.stored import stored_definition
from nearcast.server.log.messages import MessageLimits
from nearcast.server.log.records import Change

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nearcast.server.service import Service

__all__ = ["play"]

_log = logging.getLogger("nearcast.server")
_TENANT = 0
_PAUSE_S = 0.25
_MESSAGES = 1
_MOVE_EVERY = 4
"""So there are four messages a second, and those that move do so once a second."""


async def play(service: Service, pause_s: float = _PAUSE_S) -> None:
    """Subscribe to the samples, then publish and move without end; to be cancelled.

    Parameters
    ----------
    service
        Where all of that happens, in the first tenant.
    pause_s
        How long to wait after each message.
    """
    messages = sample_messages()
    first = await asyncio.to_thread(next, messages)  # drawing them takes a second or two
    await subscribe(service)
    await _publish(service, [first])
    step = 0
    while True:
        await asyncio.sleep(pause_s)
        step += 1
        try:
            await _publish(service, islice(messages, _MESSAGES))
            if step % _MOVE_EVERY == 0:
                await _move(service, step // _MOVE_EVERY)
        except NearcastError as error:  # such as a full disk: the next time may succeed
            _log.warning("the sample stream pauses: %s", error)


async def subscribe(service: Service) -> None:
    """Make the sample subscriptions, or bring them to their beginnings if they exist."""
    read = read_import(_lines(sample_subscriptions()))
    assert not read.rejected
    changes = [Change(given["id"], stored_definition(given)) for given in read.definitions]
    for outcome in await service.change(_TENANT, changes):
        assert not outcome.code, outcome.reason


async def _publish(service: Service, messages: Iterable[dict[str, Any]]) -> None:
    body = msgspec.json.encode(list(messages))
    read = parse_messages(body, JSON, MessageLimits())
    await service.publish(_TENANT, read.blobs, b"[]", None, b"")


async def _move(service: Service, step: int) -> None:
    """Move what moves. One that somebody has paused or deleted stays so."""
    moves = [{"subscriptionId": m.id, "region": m.region(step)} for m in sample_movers()]
    read = read_moves(_lines(moves))
    await service.move(_TENANT, [(move.subscription_id, move.row) for move in read.moves])


def _lines(records: list[dict[str, Any]]) -> bytes:
    return b"\n".join(map(msgspec.json.encode, records))
